"""Free ports, for servers that must know their address before they listen."""

import itertools
import os
import socket

# Below the range from which the kernel takes ports for those who ask for any: of what it gives, another process may
# get the same one as soon as it is closed here.
_PORTS = range(20_000, 32_000)
_reserved: list[socket.socket] = []


def free_port() -> int:
    """A port of 127.0.0.1 at which nothing listens, and which no other test process gets while this one runs."""
    start = os.getpid() * 101 % len(_PORTS)
    for port in itertools.chain(_PORTS[start:], _PORTS[:start]):
        reserving = socket.socket(socket.AF_UNIX)
        try:
            reserving.bind(f"\0gradwire-test-port-{port}")
            with socket.socket() as trying:
                trying.bind(("127.0.0.1", port))
        except OSError:
            reserving.close()
        else:
            _reserved.append(reserving)
            return port
    raise OSError("no port is free")
