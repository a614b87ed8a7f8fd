"""Command line: `gradwire serve` runs a server until SIGTERM or SIGINT; `gradwire token` creates a token for it.

Imports no NumPy before BLAS's environment is set.
"""

import asyncio
import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import click
from pydantic import ByteSize

from gradwire_server import __version__
from gradwire_server.app.configuration import CONFIG, ConfigurationError, default_text, flag, load
from gradwire_server.app.gateway_setup import (
    GatewayRefused,
    check_exposure,
    check_installed,
    listen,
    origins_of,
    url_of,
)
from gradwire_server.app.settings import Settings
from gradwire_server.common import blas
from gradwire_server.common.addresses import address_of, is_loopback, parsed_address
from gradwire_server.worker.process_end import end_process

if TYPE_CHECKING:
    from gradwire_server.app.gateway_process import GatewayProcess
    from gradwire_server.app.metrics import Metrics
    from gradwire_server.auth.tls import Tls
    from gradwire_server.registry.backend import Backend
    from gradwire_server.registry.session_catalog import SessionCatalog
    from gradwire_server.rpc.server import Server
    from gradwire_server.rpc.traces import Traces

_LOST = 3  # exit status if sessions could not be stored
_EXIT_SECONDS = 5.0  # for threads to end, after all else has

log = logging.getLogger("gradwire.server")


def _options(command: Any) -> Any:
    """Add an option per setting, from its field: name, type, default, description."""
    for name, field in reversed(Settings.model_fields.items()):
        kind: Any = field.annotation
        option_name, default = flag(name), default_text(name)
        option: dict[str, Any] = {"type": kind}
        if get_origin(kind) is Literal:
            option = {"type": click.Choice(get_args(kind))}
        elif kind is bool:
            option_name = f"{option_name}/--no-{option_name[2:]}"
            default, option = field.default, {}
        elif kind is ByteSize:
            option = {"type": str, "metavar": "BYTES"}
        else:
            option["metavar"] = next((each for each in field.metadata if isinstance(each, str)), None)
        command = click.option(
            option_name, name, default=default, show_default=bool(default), help=field.description, **option
        )(command)
    return command


class _Serve(click.Command):
    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Run under the name that the user typed, also if another program's command line calls this one."""
        return super().make_context("gradwire serve", args, parent, **extra)


@click.command(
    cls=_Serve,
    context_settings={"max_content_width": 110},
    epilog="A setting may also be a variable, GRADWIRE_MAX_BYTES for --max-bytes, or a key of --config's file, "
    "max_bytes. A flag wins over the environment, and that over the file. Bytes may be given as 8MiB.",
)
@click.option(
    "--config",
    envvar=CONFIG,
    show_envvar=True,
    default="",
    show_default=False,
    metavar="FILE",
    help="TOML file of settings.",
)
@_options
@click.version_option(__version__, prog_name="gradwire")
@click.pass_context
def serve(context: click.Context, /, config: str, **values: Any) -> None:
    """Serve tensors and gradients over gRPC, until SIGTERM or SIGINT.

    With --token-file or --tls-client-ca calls are authenticated, with --tls-cert encrypted. Without, whoever reaches
    the port may open sessions.
    """
    given, settings = _settings(context, config, values)
    blas.prepare(_arguments(given, config), settings.blas_threads)
    from gradwire_server.auth.tls import TlsError
    from gradwire_server.auth.tokens import TokenFileError
    from gradwire_server.common.logging import configure

    configure(settings.log_format, settings.log_level)
    _check(settings)
    try:
        lost = asyncio.run(_serve(settings))
    except (OSError, TokenFileError, TlsError) as error:
        raise click.ClickException(str(error)) from None
    if lost:
        log.error("%d sessions are lost: they were to be stored and could not be", lost)
    status = _LOST if lost else 0
    _bound_exit(status)
    end_process(status)


def _settings(context: click.Context, config: str, values: dict[str, Any]) -> tuple[dict[str, Any], Settings]:
    """The options on the command line, and the settings that follow. Raises UsageError."""
    given = {
        name: value
        for name, value in values.items()
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    }
    try:
        return given, load(given, config)
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from None


def check_arguments(arguments: Sequence[str]) -> None:
    """Check a command line of `gradwire serve`, and that its files can be read. Raises ClickException."""
    from gradwire_server.auth.tokens import TokenFileError, Tokens

    context = serve.make_context(None, list(arguments))
    values = dict(context.params)
    _, settings = _settings(context, values.pop("config"), values)
    _check(settings)
    for name in ("token_file", "tls_cert", "tls_key", "tls_client_ca"):
        path = getattr(settings, name)
        if path and not os.access(path, os.R_OK):
            raise click.UsageError(f"{flag(name)}: {path} cannot be read")
    try:
        if settings.token_file:
            Tokens(Path(settings.token_file))
    except (OSError, TokenFileError) as error:
        raise click.ClickException(str(error)) from None


def _check(settings: Settings) -> None:
    """Check ports, directories, and that what serves browsers is installed. Raises UsageError."""
    if not is_loopback(settings.host):
        _check_bind(settings)
    if settings.web:
        _check_web(settings)
    for name in ("state_dir", "snapshot_dir", "files_dir"):
        if folder := getattr(settings, name):
            _check_written(flag(name), Path(folder))


def _check_written(option: str, folder: Path) -> None:
    """Check now that a directory can be written, which is created if there is none. Raises UsageError."""
    from gradwire_server.storage.snapshot_files import make_folder

    try:
        make_folder(folder)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise click.UsageError(f"{option}: {folder} cannot be written: {error.strerror or error}") from None


def _bound_exit(status: int) -> None:
    """End the process soon, even if a thread never ends: a store that never answers must not keep it alive."""

    def end() -> None:
        log.error("threads did not end within %g s; what they do is given up", _EXIT_SECONDS)
        logging.shutdown()
        os._exit(status)

    timer = threading.Timer(_EXIT_SECONDS, end)
    timer.daemon = True
    timer.start()


def _check_bind(settings: Settings) -> None:
    """Check that no port is unprotected by oversight. Raises UsageError."""
    lacking = settings.unguarded
    if not lacking:
        return
    if not settings.insecure_bind:
        raise click.UsageError(
            f"{settings.host} can be reached by others, and there is no {lacking}: without the one, whoever sees the "
            "traffic reads what passes; without the other, whoever reaches the port may open sessions and use this "
            "machine. Pass --insecure-bind if that is meant."
        )
    log.warning("listening at %s with no %s", settings.host, lacking)


def _check_web(settings: Settings) -> None:
    """Check that the gateway's extra is installed and its port is protected. Raises UsageError."""
    host, _ = parsed_address(settings.web)
    try:
        check_installed("--web")
        check_exposure(host, bool(settings.token_file), bool(settings.tls_cert), settings.insecure_bind)
    except GatewayRefused as error:
        raise click.UsageError(f"--web: {error}") from None


def _arguments(given: dict[str, Any], config: str) -> list[str]:
    """The command line that gives these settings."""
    line = [f"--config={config}"] if config else []
    for name, value in given.items():
        if isinstance(value, bool):
            line.append(flag(name) if value else f"--no-{flag(name)[2:]}")
        else:
            line.append(f"{flag(name)}={value}")
    return line


def _tls(settings: Settings) -> "Tls | None":
    from gradwire_server.auth.tls import Tls

    if not settings.tls_cert:
        return None
    authorities = Path(settings.tls_client_ca) if settings.tls_client_ca else None
    return Tls(Path(settings.tls_cert), Path(settings.tls_key), authorities)


def _catalog(settings: Settings) -> "SessionCatalog":
    from gradwire_server.common.peer import answers
    from gradwire_server.registry.session_catalog import SessionCatalog
    from gradwire_server.registry.shared_catalog import SharedCatalog
    from gradwire_server.storage.configured import snapshot_store

    try:
        store = snapshot_store(settings.snapshot_store)
    except ValueError as error:
        raise click.UsageError(f"--snapshot-store: {error}") from error
    arguments = (
        Path(settings.state_dir),
        settings.state_grace,
        settings.max_principal_snapshots,
        settings.max_principal_snapshot_bytes,
        settings.max_snapshot_seconds,
        settings.snapshot_dir,
        settings.max_principal_stored_sessions,
        store,
    )
    if not settings.endpoint:
        return SessionCatalog(*arguments)
    encrypts = bool(settings.tls_cert)
    return SharedCatalog(*arguments, endpoint=settings.endpoint, answers=lambda address: answers(address, tls=encrypts))


def _backend(settings: Settings) -> "Backend":
    from gradwire_server.worker_pool.process_worker import worker_count

    workers = worker_count(settings.workers)
    if not workers:
        from gradwire_server.registry.thread_backend import InProcessBackend

        return InProcessBackend(settings.limits(), owns_process=True, counts=bool(settings.metrics))
    from gradwire_server.registry.process_backend import WorkersBackend

    return WorkersBackend(
        settings.limits(),
        workers,
        log_format=settings.log_format,
        log_level=settings.log_level,
        counts=bool(settings.metrics),
    )


def _traces(settings: Settings) -> "Traces | None":
    """The exporter of spans. Raises UsageError without OpenTelemetry."""
    if not settings.traces:
        return None
    try:
        from gradwire_server.rpc.traces import Traces

        return Traces.to(settings.traces, settings.endpoint)
    except ImportError as error:
        raise click.UsageError(f"--traces needs OpenTelemetry: pip install 'gradwire[otel]' ({error})") from None


def _metrics(server: "Server", backend: "Backend", settings: Settings, gateway: "GatewayProcess | None") -> "Metrics":
    """Start the metrics. Raises OSError."""
    from gradwire_server.app.metrics import Metrics

    host, port = settings.metrics_address
    metrics = Metrics(server, backend, settings.endpoint, None if gateway is None else gateway.counters)
    try:
        host, port = metrics.start(host, port)
    except OSError as error:
        raise OSError(f"cannot listen for metrics at {settings.metrics}: {error.strerror or error}") from None
    backend.metrics = address_of(host, port)
    log.log(
        logging.INFO if is_loopback(host) else logging.WARNING,
        "metrics without authentication",
        extra={"address": f"http://{host}:{port}/metrics"},
    )
    return metrics


def _gateway(settings: Settings) -> "GatewayProcess":
    """The gateway for browsers; its port listens, and it is not started yet. Raises OSError."""
    from gradwire_server.app.gateway_process import GatewayProcess
    from gradwire_server.web.options import GatewayOptions

    listening = listen(*parsed_address(settings.web))
    log.info("web gateway", extra={"address": url_of(listening, bool(settings.tls_cert))})
    options = GatewayOptions(
        server="",  # the process's own socket
        tls_cert=settings.tls_cert,
        tls_key=settings.tls_key,
        origins=origins_of(settings.web_origins),
        credentials_required=bool(settings.token_file),
        log_format=settings.log_format,
        log_level=settings.log_level,
        max_message_bytes=settings.max_message_bytes,
    )
    return GatewayProcess(options, listening)


async def _serve(settings: Settings) -> int:
    """Serve until a signal. Returns how many sessions are lost because they could not be stored."""
    from gradwire_server.auth.owner import Owner
    from gradwire_server.auth.tokens import Tokens
    from gradwire_server.common.logging import announce
    from gradwire_server.rpc.server import Server

    sys.setswitchinterval(0.001)  # seconds; bounds how long the event loop waits for a computing thread
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    tokens = Tokens(Path(settings.token_file)) if settings.token_file else None
    tls = _tls(settings)
    if tokens is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, tokens.force_next_poll)
    elif tls is not None:  # each handshake checks the files anyway; SIGHUP must not end the server
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    backend, traces = _backend(settings), _traces(settings)
    if settings.state_dir:
        logs = settings.durability == "log"
        await backend.persist_in(_catalog(settings), logs, settings.snapshot_every, settings.snapshot_store)
    if settings.endpoint:
        from gradwire_server.registry.peer_links import Peers

        encryption = None if tls is None else (tls.cert, tls.key)
        peers = Peers(settings.endpoint, settings.host.strip("[]"), encryption)
        backend.share_groups(peers, Path(settings.state_dir, "groups"))
    if settings.placement:
        from gradwire_server.registry.placement import PlacementClient

        backend.placement = PlacementClient(settings.placement, settings.endpoint)
    folder = settings.files_dir or (str(Path(settings.state_dir, "files")) if settings.state_dir else "")
    if folder:
        from gradwire_server.registry.files import FileDirectory

        directory_of_files = FileDirectory(
            Path(folder), settings.max_principal_files, settings.max_principal_file_bytes
        )
        await backend.files.use_directory(directory_of_files)
    server = Server(backend, tokens, tls, traces, settings.local_streams)
    gateway = _gateway(settings) if settings.web else None
    private = "" if gateway is None else gateway.socket_path
    address = await server.start(address_of(settings.host, settings.port), private)
    if server.interceptor is None:
        server.front.owner = Owner(address)
    try:
        metrics = _metrics(server, backend, settings, gateway) if settings.metrics else None
    except OSError:
        await server.drain(0)
        raise
    if gateway is not None:
        await gateway.start()
    announce(settings.log_format, address)
    await ended.wait()
    lost = await server.drain(settings.grace_seconds)
    if gateway is not None:  # after the drain: until then it carries the calls that finish
        await gateway.stop()
    if server.front.owner is not None:
        server.front.owner.stop()
    for each in (metrics, traces):
        if each is not None:
            await asyncio.get_running_loop().run_in_executor(None, each.close)
    return lost


@click.command("token")
@click.argument("name")
@click.option("--scope", "scopes", multiple=True, help="Additional right: admin. May be given repeatedly.")
@click.option("--days", type=click.IntRange(min=1, max=36_500), help="Days until it expires; without, it does not.")
@click.option("--file", "path", type=click.Path(dir_okay=False, path_type=Path), help="Token file to add the line to.")
def token(name: str, scopes: tuple[str, ...], days: int | None, path: Path | None) -> None:
    """Make a token for the principal NAME.

    The token is shown this once; the file keeps only a salted hash. Without --file the file's line is printed too. A
    server takes over a changed file by itself. To revoke a token, delete its line.
    """
    from gradwire_server.auth import tokens

    expires = datetime.now(timezone.utc) + timedelta(days=days) if days else None
    try:
        made, line = tokens.make(name, frozenset(scopes), expires)
        if path is not None:
            tokens.append(path, line)
    except (OSError, tokens.TokenFileError) as error:
        raise click.ClickException(str(error)) from None
    click.echo(made)
    if path is None:
        click.echo(line)
