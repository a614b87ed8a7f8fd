"""Asks a server's health service (grpc.health.v1) whether it serves: exit status 0 if so, else 1.

`python -m gradwire_server.healthcheck [HOST:PORT]` is what the container image runs. Without an address it asks the
server of GRADWIRE_PORT on this machine, since a probe runs where the server does.
"""

import argparse
import os
import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

DEFAULT_PORT = 50051


def serving_status(address: str, service: str = "", timeout: float = 5.0) -> str:
    """The status the server at `address` reports: "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN" or "UNKNOWN".

    `service` empty asks for the server as a whole; `timeout` is in seconds. Raises grpc.RpcError when no answer came.
    """
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=timeout)
    name: str = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    return name


def main() -> int:
    default = f"127.0.0.1:{os.environ.get('GRADWIRE_PORT', DEFAULT_PORT)}"
    parser = argparse.ArgumentParser(prog="python -m gradwire_server.healthcheck", description=__doc__)
    parser.add_argument("address", nargs="?", default=default, help=f"HOST:PORT to ask, by default {default}")
    parser.add_argument("--service", default="", help="one service's name; by default the server as a whole")
    parser.add_argument("--timeout", type=float, default=5.0, help="seconds to wait for the answer")
    options = parser.parse_args()
    try:
        status = serving_status(options.address, options.service, options.timeout)
    except grpc.RpcError as error:
        print(f"{options.address}: {error.code().name}: {error.details()}", file=sys.stderr)
        return 1
    print(f"{options.address}: {status}")
    return 0 if status == "SERVING" else 1


if __name__ == "__main__":
    sys.exit(main())
