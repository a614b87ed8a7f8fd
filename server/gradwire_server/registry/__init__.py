"""Which sessions exist, where each one lives, and until when."""
