"""Protocol: numbers that the contract fixes, for the front and its workers."""

PROTOCOL = 1
EPOCH = 1  # the epoch of a session that was never rolled back
