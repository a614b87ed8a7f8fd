"""Numbers that the contract fixes, for the front and its workers alike."""

PROTOCOL = 1
EPOCH = 1  # of a session that was never rolled back
