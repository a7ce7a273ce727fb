"""Lives inside the training process. Imports torch and accelerate only after the user's code has."""
