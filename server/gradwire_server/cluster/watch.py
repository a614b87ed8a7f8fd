"""Watch: the process that `gradwire cluster start` and `join` become. It ends the node and Ray of this machine.

It replaces a process that had imported Ray, for Ray takes 50 MiB. What it needs at its end only is imported then. A
connection to the node's actor tells whether that lives. It works without Ray's head.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from typing import NoReturn

from gradwire_server.cluster.head import HeadKeeper
from gradwire_server.cluster.ray_session import RaySession

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_CHECK_SECONDS = 1.0
_CONNECT_SECONDS = 0.2  # between tries, while Ray starts an actor again
_NODE_GRACE = 30.0  # seconds to store a node's sessions
_END_SECONDS = 10.0  # more, until it has ended
_KILL_SECONDS = 3.0  # then for its actor to tell Ray that it is not to be started again, which needs Ray's head


def become_watch(endpoint: str, ray: RaySession, control: str, head: int = 0, joined: str = "") -> NoReturn:
    """Replace this process by a watch of a node. Signals that come meanwhile wait for it.

    It also keeps Ray's head, a process of this machine with the id `head`, if one is given. `joined` has the options by
    which a machine joins again (rejoin.py); "" for the first one.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    sys.stdout.flush()
    sys.stderr.flush()
    words = [endpoint, str(ray.pid), ray.folder, control, str(head), joined]
    os.execv(sys.executable, [sys.executable, "-m", "gradwire_server.cluster.watch", *words])


class Watch:
    """A node's watch, until a signal, the node's end or the end of Ray."""

    def __init__(
        self, endpoint: str, ray: RaySession, control: str, head: HeadKeeper | None = None, joins_again: bool = False
    ) -> None:  # fmt: skip
        """`control` is the path of the actor's socket, which it removes when the node ends.

        With `joins_again`, Ray's end is no error: what follows joins again.
        """
        self._joins_again = joins_again
        self._endpoint = endpoint
        self._ray = ray
        self._head = head
        self._control = control
        self._waking, self._wake = socket.socketpair()

    def wake(self) -> None:
        """Let `run` end the node. A signal's handler may call it."""
        self._wake.send(b"\0")

    @property
    def is_woken(self) -> bool:
        """Whether the node is to end."""
        return self._woken(0)

    def run(self) -> int:
        """Watch, and end what is left; the process's exit status: 1 if Ray has ended by itself."""
        try:
            if self._head is not None:
                self._head.start()
            while self._ray.alive:
                actor = self._connect()
                if actor is None:
                    if not os.path.exists(self._control) or self._woken(_CONNECT_SECONDS):
                        return 0
                    continue
                with actor:
                    while True:
                        ready = select.select((actor, self._waking), (), (), _CHECK_SECONDS)[0]
                        if self._waking in ready:
                            self._stop(actor)
                            return 0
                        if actor in ready or not self._ray.alive:
                            break  # the actor has ended: it was drained, or Ray starts it again
            if not os.path.exists(self._control):  # it was drained, and Ray's end is seen first
                return 0
            ended = f"Ray has ended on this machine, and with it the node {self._endpoint}"
            print(f"{ended}, which joins again" if self._joins_again else f"Error: {ended}", file=sys.stderr)
            return 1
        finally:
            if self._head is not None:
                self._head.stop()
            self._ray.stop()

    def _connect(self) -> socket.socket | None:
        actor = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            actor.connect(self._control)
        except OSError:
            actor.close()
            return None
        return actor

    def _woken(self, seconds: float) -> bool:
        return bool(select.select((self._waking,), (), (), seconds)[0])

    def _stop(self, actor: socket.socket) -> None:
        """Let the node store its sessions and end."""
        import json

        ends = time.monotonic() + _NODE_GRACE + _END_SECONDS
        told = b""
        try:
            actor.sendall(json.dumps({"stop": _NODE_GRACE}).encode() + b"\n")
            while (left := ends - time.monotonic()) > 0:
                actor.settimeout(left)
                part = actor.recv(1 << 10)
                if not part:
                    break
                told += part
                ends = min(ends, time.monotonic() + _KILL_SECONDS)
        except OSError as error:  # the actor was killed, or does not end in time
            if not told:
                print(f"the node {self._endpoint} does not answer: {error}", file=sys.stderr)
        if told.endswith(b"\n"):
            in_time = json.loads(told)["ended"]
            print(f"{self._endpoint} has ended" + ("" if in_time else ", killed after its grace"), flush=True)


def main(endpoint: str, session: str, folder: str, control: str, head: str, joined: str = "") -> int:
    """Watch a node of this machine, and its Ray's head unless the id is 0; the exit status.

    If Ray ends, a machine that has `joined` joins again.
    """
    ray = RaySession(int(session), folder)
    try:
        keeper = HeadKeeper(int(head)) if int(head) else None
    except OSError:
        print("Error: Ray's head has ended before its watch began, and with it this machine's node", file=sys.stderr)
        ray.stop()
        return 1
    watch = Watch(endpoint, ray, control, keeper, bool(joined))
    for number in _SIGNALS:
        signal.signal(number, lambda *_: watch.wake())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    status = watch.run()
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # what comes from here on waits for the next program
    if status and joined and not watch.is_woken:
        from gradwire_server.cluster.rejoin import become_rejoin

        become_rejoin(joined)
    return status


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
