"""`gradwire studio`: a gateway for browsers beside a running server, until SIGTERM or SIGINT."""

import asyncio
import logging
import signal
import ssl
from typing import Any

import click

from gradwire_server import __version__
from gradwire_server.app.gateway_setup import (
    GatewayRefused,
    check_exposure,
    check_installed,
    listen,
    origins_of,
    url_of,
)
from gradwire_server.common.addresses import is_loopback, parsed_address
from gradwire_server.common.logging import announce, configure
from gradwire_server.web.options import GatewayOptions

log = logging.getLogger("gradwire.web")


@click.command(context_settings={"max_content_width": 110})
@click.argument("address", envvar="GRADWIRE_ADDRESS", default="127.0.0.1:50051", metavar="[SERVER]")
@click.option(
    "--web",
    default="8080",
    show_default=True,
    metavar="HOST:PORT",
    help="Address, or port of 127.0.0.1, to listen at.",
)
@click.option(
    "--origin", "origins", multiple=True, metavar="ORIGIN", help="Origin of web pages that may call; may be repeated."
)
@click.option(
    "--logdir",
    default=None,
    type=click.Path(exists=True, file_okay=False),
    help="Folder of TensorBoard's event files for the page Training; all callers see it.",
)
@click.option("--tls-cert", default="", metavar="FILE", help="PEM file of the gateway's certificate chain.")
@click.option("--tls-key", default="", metavar="FILE", help="PEM file of the key of --tls-cert, without password.")
@click.option(
    "--insecure-bind", is_flag=True, help="Listen where others can reach it without TLS: a proxy before it encrypts."
)
@click.option("--tls/--no-tls", envvar="GRADWIRE_TLS", default=False, help="Whether the server has TLS.")
@click.option("--ca", envvar="GRADWIRE_CA", default="", metavar="FILE", help="PEM file of the server's authorities.")
@click.option(
    "--server-name", envvar="GRADWIRE_SERVER_NAME", default="", help="Name in the server's certificate, if another."
)
@click.option(
    "--cert", envvar="GRADWIRE_CERT", default="", metavar="FILE", help="Certificate for a server that demands one."
)
@click.option("--key", envvar="GRADWIRE_KEY", default="", metavar="FILE", help="Key of --cert.")
@click.option("--max-message-bytes", default=8 << 20, show_default=True, help="Bytes of one message, as the server's.")
@click.option("--log-format", type=click.Choice(["plain", "json"]), default="plain", show_default=True)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
@click.version_option(__version__, prog_name="gradwire")
def studio(address: str, web: str, origins: tuple[str, ...], insecure_bind: bool, **given: Any) -> None:
    """Serve the running server at SERVER, host:port, to browsers.

    Callers send their own tokens; the gateway has none. Without tokens in the server, only this machine is served.
    """
    configure(given["log_format"], given["log_level"])
    for one, other in (("tls_cert", "tls_key"), ("cert", "key")):
        if bool(given[one]) != bool(given[other]):
            raise click.UsageError(f"--{one.replace('_', '-')} and --{other.replace('_', '-')} go together")
    try:
        host, port = parsed_address(web)
        allowed = origins_of(",".join(origins))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    try:
        check_installed("gradwire studio")
        options = GatewayOptions(
            server=address,
            server_tls=given.pop("tls"),
            logdir=given.pop("logdir") or "",
            server_ca=given.pop("ca"),
            client_cert=given.pop("cert"),
            client_key=given.pop("key"),
            origins=allowed,
            **given,
        )
        asyncio.run(_studio(options, host, port, insecure_bind))
    except (GatewayRefused, OSError, ssl.SSLError) as error:
        raise click.ClickException(str(error)) from None


async def _studio(options: GatewayOptions, host: str, port: int, insecure_bind: bool) -> None:
    """Serve until a signal. Raises GatewayRefused, OSError, ssl.SSLError."""
    from dataclasses import replace

    from gradwire_server.web.serving import serve

    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    authenticated = await _authenticates(options, needed=not is_loopback(host))
    check_exposure(host, authenticated, bool(options.tls_cert), insecure_bind)
    # With a certificate of the gateway, a call without a token would be the gateway's own.
    required = authenticated or bool(options.client_cert)
    options = replace(options, credentials_required=required, tokens_checked=not is_loopback(host))
    if options.metadata_in_clear:
        log.warning("tokens travel to the server unencrypted; others can read them", extra={"server": options.server})
    listening = listen(host, port)
    announce(options.log_format, url_of(listening, bool(options.tls_cert)))
    await serve(options, listening, ended)


async def _authenticates(options: GatewayOptions, needed: bool) -> bool:
    """Whether the server refuses unknown tokens. Raises GatewayRefused if that is `needed` and it does not answer."""
    import grpc

    from gradwire_server.web.upstream import Upstream

    upstream = Upstream(options)
    try:
        return await upstream.authenticates()
    except grpc.aio.AioRpcError as error:
        if needed:
            raise GatewayRefused(
                f"{options.server} does not say whether it needs tokens ({error.details()}); so only 127.0.0.1 is safe"
            ) from None
    finally:
        await upstream.close()
    return False
