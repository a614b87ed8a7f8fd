"""What ServerInfo tells of the machine: libraries, BLAS settings, devices."""

import platform

import numpy as np
import pytest

from gradwire_engine.backends import onednn
from gradwire_server.common import build
from gradwire_server.common.blas import CORE_TYPE
from gradwire_server.common.limits import memory_bytes


@pytest.fixture(autouse=True)
def _fresh():
    build.build_info.cache_clear()
    yield
    build.build_info.cache_clear()


def test_versions_and_settings_are_texts_by_name() -> None:
    info = build.build_info()
    assert info["python"] == platform.python_version()
    assert info["numpy"] == np.__version__
    assert int(info["blas_threads"]) > 0
    assert {"blas", "blas_version", "blas_core_type"} <= info.keys()
    assert all(type(value) is str for value in info.values())


def test_a_chosen_core_type_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CORE_TYPE, "Haswell")
    assert build.build_info()["blas_core_type"] == "Haswell"
    build.build_info.cache_clear()
    monkeypatch.delenv(CORE_TYPE)
    assert build.build_info()["blas_core_type"] == "detected"


@pytest.mark.parametrize("version", ["2023.2.0", None])
def test_onednn_is_told_if_it_is_installed(version: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn, "installed", lambda: version)
    assert build.build_info().get("onednn") == version


def test_the_cpu_has_the_machines_memory() -> None:
    told = build.device_info("cpu")
    assert (told.name, told.total_bytes) == ("cpu", memory_bytes())
    assert platform.machine() in told.description
    assert "cores" in told.description
