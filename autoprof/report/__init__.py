"""What a person reads: answers of the analysis room, laid out. Imports no torch."""
