"""The numbers that the contract fixes."""

from gradwire_server.common import protocol


def test_the_protocol_and_the_first_epoch_are_those_that_old_clients_know() -> None:
    assert (protocol.PROTOCOL, protocol.EPOCH) == (1, 1)
