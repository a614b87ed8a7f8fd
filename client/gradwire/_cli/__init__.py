"""The `gradwire` command."""
