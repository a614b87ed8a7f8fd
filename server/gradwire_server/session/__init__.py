"""One session: its tensors, and the commands that change them."""
