"""Build: describes array libraries, BLAS settings and devices for ServerInfo."""

import os
import platform
from functools import cache
from typing import Any

import numpy as np
from numpy.__config__ import show as numpy_config

from gradwire.v1 import service_pb2
from gradwire_engine.backends import onednn
from gradwire_engine.core.device import CPU, cupy
from gradwire_server.common.blas import CORE_TYPE, threads
from gradwire_server.common.limits import memory_bytes


@cache
def build_info() -> dict[str, str]:
    """Versions and settings by name."""
    config: Any = numpy_config(mode="dicts")
    blas = config["Build Dependencies"]["blas"]
    info = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "blas": str(blas.get("name", "unknown")),
        "blas_version": str(blas.get("version", "unknown")),
        "blas_threads": str(threads()),
        "blas_core_type": os.environ.get(CORE_TYPE, "detected"),
    }
    if (found := onednn.installed()) is not None:
        info["onednn"] = found
    module = cupy()
    if module is not None:
        info["cupy"] = str(module.__version__)
        info["cuda"] = str(module.cuda.runtime.runtimeGetVersion())
    return info


@cache
def device_info(name: str) -> service_pb2.Device:
    """A device as ServerInfo describes it."""
    module = cupy()
    if name == CPU or module is None:
        description = f"{platform.machine()} CPU, {os.cpu_count()} cores"
        return service_pb2.Device(name=name, description=description, total_bytes=memory_bytes())
    properties = module.cuda.runtime.getDeviceProperties(int(name.partition(":")[2]))
    return service_pb2.Device(
        name=name, description=properties["name"].decode(), total_bytes=int(properties["totalGlobalMem"])
    )
