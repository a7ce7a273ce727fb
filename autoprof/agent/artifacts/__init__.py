"""One module per kind of file that a capture can leave."""
