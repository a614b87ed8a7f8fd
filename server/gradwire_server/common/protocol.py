"""Protocol: numbers that the contract fixes, for the front and its workers."""

PROTOCOL = 1
WRITER_IDS = 40  # the ids that writer n chooses have n in the bits from here on
CLIENT_IDS = 1 << 52  # clients choose ids below; the server chooses ids from here to twice as much
EPOCH = 1  # the epoch of a session that was never rolled back


def ids_of(writer: int) -> tuple[int, int]:
    """The first and the last id that a writer may choose; (0, 0) for a writer beyond the ranges."""
    first, end = (writer << WRITER_IDS) + 1, (writer + 1) << WRITER_IDS
    return (first, end - 1) if end <= CLIENT_IDS else (0, 0)
