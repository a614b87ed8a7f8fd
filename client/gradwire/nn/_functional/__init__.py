"""Parts of gradwire.nn.functional, by subject."""
