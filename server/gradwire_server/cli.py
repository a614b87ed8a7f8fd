"""`gradwire serve`: a server until SIGTERM. Imports no NumPy before BLAS's environment is set."""

import asyncio
import logging
import signal
import sys
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import click
from pydantic import ValidationError

from gradwire_server import blas
from gradwire_server.settings import Settings

if TYPE_CHECKING:
    from gradwire_server.backend import SessionBackend

log = logging.getLogger("gradwire.server")


def _options(command: Any) -> Any:
    """An option per setting, from its field: name, type, default, sentence."""
    for name, field in reversed(Settings.model_fields.items()):
        kind: Any = field.annotation
        shown: dict[str, Any] = {"type": kind}
        if get_origin(kind) is Literal:
            shown = {"type": click.Choice(get_args(kind))}
        elif kind is bool:
            shown = {"is_flag": True}
        command = click.option(
            f"--{name.replace('_', '-')}",
            name,
            default=field.default,
            show_default=True,
            envvar=f"GRADWIRE_{name.upper()}",
            show_envvar=True,
            help=field.description,
            **shown,
        )(command)
    return command


class _Serve(click.Command):
    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Run under the name that the user typed, also where another program's command line leads here."""
        return super().make_context("gradwire serve", args, parent, **extra)


@click.command(cls=_Serve)
@_options
def serve(**given: Any) -> None:
    """Serve tensors and gradients over gRPC, until SIGTERM or SIGINT.

    Calls are neither encrypted nor authenticated: whoever reaches the port may open sessions.
    """
    try:
        settings = Settings(**given)
    except ValidationError as error:
        raise click.UsageError(
            "; ".join(f"--{problem['loc'][0]}: {problem['msg']}".replace("_", "-") for problem in error.errors())
        ) from None
    blas.prepare(_arguments(given), settings.blas_threads)
    from gradwire_server.logging import configure
    from gradwire_server.server import is_loopback

    configure(settings.log_format, settings.log_level)
    if not is_loopback(settings.host):
        if not settings.insecure_bind:
            raise click.UsageError(
                f"{settings.host} can be reached by others, and there is no encryption and no authentication: whoever "
                "reaches the port may open sessions and use this machine. Pass --insecure-bind if that is meant."
            )
        log.warning("listening at %s: whoever reaches it may open sessions, and reads what passes", settings.host)
    try:
        asyncio.run(_serve(settings))
    except OSError as error:
        raise click.ClickException(str(error)) from None


def _arguments(given: dict[str, Any]) -> list[str]:
    """The command line that gives these settings."""
    line = []
    for name, value in given.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            line += [flag] if value else []
        else:
            line.append(f"{flag}={value}")
    return line


def _backend(settings: Settings) -> "SessionBackend":
    from gradwire_server.backend import InProcessBackend
    from gradwire_server.workers import WorkersBackend, worker_count

    workers = worker_count(settings.workers)
    if not workers:
        return InProcessBackend(settings.limits(), owns_process=True)
    return WorkersBackend(
        settings.limits(),
        workers,
        log_format=settings.log_format,
        log_level=settings.log_level,
    )


async def _serve(settings: Settings) -> None:
    from gradwire_server.logging import announce
    from gradwire_server.server import Server, address_of

    sys.setswitchinterval(0.001)  # the event loop should not wait long for a computing thread
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    server = Server(_backend(settings))
    announce(settings.log_format, await server.start(address_of(settings.host, settings.port)))
    await ended.wait()
    await server.drain(settings.grace_seconds)
