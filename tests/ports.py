"""Free ports, for servers that must know their address before they listen."""

import socket


def free_port() -> int:
    """A port of 127.0.0.1 at which nothing listens."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])
