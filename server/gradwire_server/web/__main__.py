"""`python -m gradwire_server.web OPTIONS FD COUNTERS`: the gateway of `gradwire serve --web`, a child of the server.

OPTIONS is JSON, FD a listening socket that the server opened, COUNTERS the file of its counters. The gateway ends when
its stdin does: the server closes it, or has ended. Signals of a terminal or a service manager are for the server, which
finishes its calls first.
"""

import asyncio
import os
import signal
import socket
import sys

from gradwire_server.common.logging import configure
from gradwire_server.web.counters import WebCounters
from gradwire_server.web.options import GatewayOptions
from gradwire_server.web.serving import serve


async def _serve(options: GatewayOptions, listening: socket.socket, counters: WebCounters) -> None:
    ended = asyncio.Event()

    def read() -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            ended.set()

    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), read)
    await serve(options, listening, ended, counters=counters)


def main() -> None:
    """Serve until stdin ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    options = GatewayOptions.from_json(sys.argv[1])
    configure(options.log_format, options.log_level)
    listening = socket.socket(fileno=int(sys.argv[2]))
    listening.setblocking(False)
    shared = int(sys.argv[3])
    counters = WebCounters(shared)
    os.close(shared)  # the memory stays
    asyncio.run(_serve(options, listening, counters))


if __name__ == "__main__":
    main()
