"""Servers: the addresses of a cluster's servers, and the one in use.

The addresses are those that the program gave, and the one that a server named last. A session may live at any of them.
A channel stays open until `close`: another thread may have a call on it.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Sequence
from typing import Any

import grpc

from gradwire._transport.connection_advice import checked
from gradwire._transport.credentials import Credentials
from gradwire._transport.local_calls import may_call


class Servers:
    """Channels by address. Thread-safe."""

    def __init__(self, addresses: Sequence[str], credentials: Credentials, options: list[Any]) -> None:
        """Use the first address first."""
        self.given = tuple(addresses)
        self.address = self.given[0]
        self._credentials = credentials
        self._options = options
        self._named = ""  # the address that a server named last
        self._channels: dict[str, grpc.Channel] = {}
        if not may_call(self.address, credentials):  # else a program may need no channel
            self._channels[self.address] = credentials.channel(self.address, options)
        self._lock = threading.Lock()
        self._closed = False

    @property
    def channel(self) -> grpc.Channel:
        """The channel to the server in use. Raises ValueError if none is open after `close`."""
        with self._lock:
            return self._opened(self.address)

    def _opened(self, address: str) -> grpc.Channel:
        channel = self._channels.get(address)
        if channel is None:
            if self._closed:
                raise ValueError("the session was closed")
            channel = self._channels[address] = self._credentials.channel(address, self._options_of(address))
        return channel

    @property
    def several(self) -> bool:
        """Whether there is another server to try."""
        return len(self.given) > 1 or self._named not in ("", self.given[0])

    def move(self, address: str, endpoint: str = "") -> bool:
        """Use `endpoint`, or without it the next server, unless `address` is no longer in use.

        Returns whether another server is in use now.
        """
        with self._lock:
            if self._closed or address != self.address:
                return False
            with contextlib.suppress(ValueError):  # not an address: try the next one
                if endpoint:
                    self._named = checked(endpoint)
                    return self._use(self._named)
            if self.address not in self.given:
                # All sessions of a lost server would go to the first address, and wait there for each other.
                return self._use(random.choice(self.given))
            known = [*self.given, *(() if self._named in ("", *self.given) else (self._named,))]
            return self._use(known[(known.index(self.address) + 1) % len(known)])

    def _use(self, address: str) -> bool:
        if address == self.address:
            return False
        self._opened(address)
        self.address = address
        return True

    def _options_of(self, address: str) -> list[Any]:
        """Options of a channel. A server that another one named must prove the name of the program's first address."""
        if not self._credentials.tls or address in self.given:
            return self._options
        name = self.given[0].rpartition(":")[0].strip("[]")
        return [*self._options, ("grpc.ssl_target_name_override", name)]

    def close(self) -> None:
        """Close all channels and cancel their calls."""
        with self._lock:
            self._closed = True
            channels = list(self._channels.values())
        for channel in channels:
            channel.close()
