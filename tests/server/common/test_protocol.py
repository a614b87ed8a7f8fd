"""The numbers that the contract fixes."""

from gradwire_server.common import protocol


def test_the_protocol_and_the_first_epoch_are_those_that_old_clients_know() -> None:
    assert (protocol.PROTOCOL, protocol.EPOCH) == (1, 1)


def test_writers_beyond_the_ranges_have_no_ids() -> None:
    assert protocol.ids_of(1) == ((1 << 40) + 1, (2 << 40) - 1)
    assert protocol.ids_of(4095) == ((4095 << 40) + 1, protocol.CLIENT_IDS - 1)
    assert protocol.ids_of(4096) == (0, 0)
