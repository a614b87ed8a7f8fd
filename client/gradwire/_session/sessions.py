"""Sessions: opens sessions, and selects the current one: of the `with` block, else the process's default.

The default session is opened at first use. One daemon thread, for maintenance, renews the leases of all sessions, sends
commands left in buffers, and ends unreferenced sessions.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import weakref
from _thread import start_new_thread

from gradwire._base.errors import GradwireError
from gradwire._base.signals import wrap_handlers
from gradwire._base.tracebacks import install
from gradwire._session.entered import ENTERED
from gradwire._session.session import Session
from gradwire._transport.connection_advice import checked_all, explained
from gradwire._transport.credentials import Credentials, from_environment
from gradwire._transport.embedded import EmbeddedServer
from gradwire._transport.finalizer import ORPHANS
from gradwire._transport.opening import ANYWHERE, Placing
from gradwire._transport.retransmission import patience_of
from gradwire._transport.transport import Transport
from gradwire.v1 import service_pb2

_MAINTENANCE_SECONDS = 0.5
_default: Session | None = None
_lock = threading.RLock()
_open: weakref.WeakSet[Session] = weakref.WeakSet()
_open_lock = threading.Lock()
_maintained = False  # whether the maintenance thread runs


def connect(
    address: str | None = None,
    *,
    token: str | None = None,
    ca: str | os.PathLike[str] | None = None,
    cert: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
    tls: bool | None = None,
    patience: float | None = None,
    device_type: str | None = None,
) -> Session:
    """Open a session and make it the process's default.

    `address` is "host:port" or "unix:/path", or several of them, separated by commas: servers of one cluster. The
    session then continues at another server if its own fails. The default is GRADWIRE_ADDRESS. Without it, an embedded
    server is started as a child process, which ends with this process.

    `token` authenticates the caller. With `ca`, `cert` or `tls=True` the connection is encrypted, and the server must
    prove its name. `ca` is a PEM file of trusted authorities; the default is gRPC's list. `cert` and `key` are PEM
    files of a client certificate, if the server requires one. The defaults are GRADWIRE_TOKEN, GRADWIRE_CA,
    GRADWIRE_CERT, GRADWIRE_KEY and GRADWIRE_TLS=1.

    `patience` is the time in seconds to wait for a server that stops answering, counted from its last answer. The
    default is GRADWIRE_PATIENCE, else 120. A computing server still answers.

    `device_type` is the type of a device that the session needs, such as "cuda". A cluster opens it at a server that
    has one. Raises RuntimeError if no server has.

    Raises GradwireConnectionError if no server is reachable, and GradwirePermissionError if the caller is not
    authenticated. Raises ValueError for an address without a port, and ValueError or OSError for unusable credentials.
    """
    global _default
    session = open_session(
        address, token=token, ca=ca, cert=cert, key=key, tls=tls, patience=patience, device_type=device_type
    )
    _default = session
    return session


def open_session(
    address: str | None,
    *,
    token: str | None,
    ca: str | os.PathLike[str] | None,
    cert: str | os.PathLike[str] | None,
    key: str | os.PathLike[str] | None,
    tls: bool | None,
    patience: float | None,
    device_type: str | None,
) -> Session:
    """Open a session that is not the process's default; the arguments and errors are those of connect()."""
    address = address or os.environ.get("GRADWIRE_ADDRESS") or None
    given = (token, ca, cert, key, tls)
    if address is None and any(each is not None for each in given):
        raise ValueError("token, ca, cert, key and tls are for a server that is named by its address")
    return _open_session(
        address,
        from_environment(*given) if address else None,
        patience,
        placing=Placing.of_this_process(device_type or ""),
    )


def restore(
    name: str,
    address: str | None = None,
    *,
    token: str | None = None,
    ca: str | os.PathLike[str] | None = None,
    cert: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
    tls: bool | None = None,
    patience: float | None = None,
    device_type: str | None = None,
) -> Session:
    """Open a session from the named snapshot, and make it the process's default.

    Its `tensors` are the tensors that were saved by name. The arguments equal those of connect(). Without an address,
    the current session's server restores it. Raises RuntimeError if the caller has no such snapshot or it is damaged.
    Raises MemoryError if the server has too little memory.
    """
    global _default
    address = address or os.environ.get("GRADWIRE_ADDRESS") or None
    given = (token, ca, cert, key, tls)
    if address is not None:
        session = _open_session(address, from_environment(*given), patience, name, Placing(device_type or ""))
    elif any(each is not None for each in given):
        raise ValueError("token, ca, cert, key and tls are for a server that is named by its address")
    else:
        here = current_session()
        addresses = ",".join(here._transport.servers.given)
        session = _open_session(addresses, here._transport.credentials, patience, name, Placing(device_type or ""))
    _default = session
    return session


def open_beside(session: Session, patience: float, placing: Placing = ANYWHERE) -> Session:
    """Open another session at the server, or in the cluster, of a session. It ends when nothing refers to it."""
    transport = session._transport
    made = _open_session(",".join(transport.servers.given), transport.credentials, patience, placing=placing)
    made.every_call_waits = False
    return made


def current_session() -> Session:
    """The session in which new tensors are made."""
    stack: tuple[Session, ...] = ENTERED.get()
    if stack:
        return stack[-1]
    global _default
    if _default is None:
        with _lock:
            if _default is None:
                address = os.environ.get("GRADWIRE_ADDRESS") or None
                credentials = from_environment() if address else None
                made = _open_session(address, credentials, None, placing=Placing.of_this_process())
                if _default is None:
                    _default = made
                else:  # a signal handler opened one meanwhile
                    made.close()
    assert _default is not None
    return _default


def has_server() -> bool:
    """Whether new tensors go to a server that other processes may use too, not to this process's embedded one."""
    stack: tuple[Session, ...] = ENTERED.get()
    session = stack[-1] if stack else _default
    return bool(os.environ.get("GRADWIRE_ADDRESS")) if session is None else session._embedded is None


def sync() -> None:
    """Wait until all issued commands are done. Raises GradwireError if one of them was refused."""
    if _default is not None or ENTERED.get():
        current_session().sync()


def server_info() -> service_pb2.ServerInfoResponse:
    """The version, devices, limits and usage of the current session's server."""
    return current_session().server_info()


def _open_session(
    address: str | None,
    credentials: Credentials | None,
    patience: float | None,
    restore: str | None = None,
    placing: Placing = ANYWHERE,
) -> Session:
    patience = patience_of(patience)
    wrap_handlers()
    ORPHANS.end()
    embedded = None
    if address is None:
        embedded = EmbeddedServer()
        address = embedded.address
        # The last registered function runs first: sessions end before a server that they may share.
        atexit.unregister(_close_all)
        atexit.register(_close_all)
    transport = Transport(checked_all(address), credentials)
    try:
        sync = os.environ.get("GRADWIRE_SYNC", "") not in ("", "0")
        install()
        session = Session(transport, embedded, sync, restore, patience, placing)
    except BaseException as error:
        transport.close()
        if embedded is not None:
            embedded.stop()
        elif isinstance(error, GradwireError):
            raise explained(error, transport.address, credentials) from None
        raise
    with _open_lock:
        _open.add(session)
    _start_maintenance()
    session.begin()
    return session


def _opened() -> tuple[Session, ...]:
    with _open_lock:
        return tuple(_open)


# The maintenance thread.


def _start_maintenance() -> None:
    global _maintained
    with _lock:
        if not _maintained:
            _maintained = True
            start_new_thread(_maintain, ())  # a Thread's start would wait until the thread runs


def _maintain() -> None:
    global _maintained
    renewed: weakref.WeakKeyDictionary[Session, float] = weakref.WeakKeyDictionary()
    try:
        while True:
            ORPHANS.wait(_MAINTENANCE_SECONDS)
            ORPHANS.end()
            _maintain_sessions(renewed)
    finally:
        _maintained = False  # the next session starts another thread


def _maintain_sessions(renewed: weakref.WeakKeyDictionary[Session, float]) -> None:
    for session in _opened():
        # The session keeps the error and raises it at its next use.
        with contextlib.suppress(GradwireError):
            session.send_keepalive_if_silent()
            session.flush_without_waiting()
            session.drop_answered()
            now = time.monotonic()
            if now - renewed.setdefault(session, now) > session.lease_seconds / 3:
                renewed[session] = now
                session.renew_lease()


# The end of the process, and forks.


def _close_all() -> None:
    ORPHANS.end()
    refusal: GradwireError | None = None
    # A session that started a server stops it, so the other sessions close first.
    for session in sorted(_opened(), key=lambda session: session._embedded is not None):
        try:
            session.close()
        except GradwireError as error:
            # A session whose server is unreachable needs no close.
            if error.reason != "UNAVAILABLE":
                refusal = refusal or error
    if refusal is not None:  # a deferred error; Python prints it at exit
        raise refusal


def _after_fork_in_child() -> None:
    global _maintained, _lock, _open_lock
    _lock = threading.RLock()
    _open_lock = threading.Lock()
    ORPHANS.forget()
    _maintained = False
    for session in tuple(_open):
        session.after_fork_in_child()
    _open.clear()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
