"""One session: its tensors, and the handlers of its commands."""
