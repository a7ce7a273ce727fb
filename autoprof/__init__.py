"""Profile an unmodified Hugging Face Accelerate job with one environment variable.

This module imports nothing: the interpreter reads it at start-up whenever the agent is armed.
"""

__version__ = "0.1.0"
