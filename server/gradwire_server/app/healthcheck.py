"""Asks a server's health service (grpc.health.v1) whether it serves: exit status 0 if so, else 1.

`python -m gradwire_server.app.healthcheck [HOST:PORT]` is what the container image runs. Without an address it asks the
server of GRADWIRE_PORT on this machine, since a probe runs where the server does.
"""

import argparse
import os
import sys
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

DEFAULT_PORT = 50051


def serving_status(
    address: str, service: str = "", timeout: float = 5.0, tls: grpc.ChannelCredentials | None = None, host: str = ""
) -> str:
    """The status the server at `address` reports: "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN" or "UNKNOWN".

    `service` empty asks for the server as a whole; `timeout` is in seconds. With `tls` the server's certificate must be
    for `host`, or for the address if `host` is empty. Raises grpc.RpcError without an answer.
    """
    options = [("grpc.ssl_target_name_override", host)] if host else []
    with grpc.insecure_channel(address) if tls is None else grpc.secure_channel(address, tls, options) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=timeout)
    name: str = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    return name


def _tls(*files: str | None) -> grpc.ChannelCredentials | None:
    """Channel credentials from files of authorities, certificate and key; None without any."""
    if not any(files):
        return None
    ca, cert, key = (Path(path).read_bytes() if path else None for path in files)
    return grpc.ssl_channel_credentials(ca, key, cert)


def main() -> int:
    default = f"127.0.0.1:{os.environ.get('GRADWIRE_PORT', DEFAULT_PORT)}"
    parser = argparse.ArgumentParser(prog="python -m gradwire_server.app.healthcheck", description=__doc__)
    parser.add_argument("address", nargs="?", default=default, help=f"HOST:PORT to ask, by default {default}")
    for kind, what in (("ca", "authorities to believe"), ("cert", "certificate to show"), ("key", "key to --cert")):
        variable = f"GRADWIRE_{kind.upper()}"
        text = f"PEM file of the {what}, for a server with TLS; else {variable}"
        parser.add_argument(f"--{kind}", default=os.environ.get(variable), help=text)
    parser.add_argument(
        "--server-name",
        default=os.environ.get("GRADWIRE_SERVER_NAME", ""),
        help="name that the server's certificate is for, if it is not the address; else GRADWIRE_SERVER_NAME",
    )
    parser.add_argument("--service", default="", help="one service's name; by default the server as a whole")
    parser.add_argument("--timeout", type=float, default=5.0, help="seconds to wait for the answer")
    options = parser.parse_args()
    try:
        tls = _tls(options.ca, options.cert, options.key)
        status = serving_status(options.address, options.service, options.timeout, tls, options.server_name)
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    except grpc.RpcError as error:
        print(f"{options.address}: {error.code().name}: {error.details()}", file=sys.stderr)
        return 1
    print(f"{options.address}: {status}")
    return 0 if status == "SERVING" else 1


if __name__ == "__main__":
    sys.exit(main())
