"""Offline: trace files to answers. Imports no torch."""
