"""The distribution has three typed import packages, and no top-level name that other distributions might use."""

import subprocess
import sys
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"gradwire", "gradwire_engine", "gradwire_server"}


def build(kind: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(folder)]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert answer.returncode == 0, answer.stderr
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    return zipfile.ZipFile(build("wheel", tmp_path_factory.mktemp("wheel")))


def test_wheel_holds_the_three_packages_and_nothing_else_at_top_level(wheel: zipfile.ZipFile) -> None:
    assert {name.split("/")[0] for name in wheel.namelist()} == PACKAGES | {"gradwire-0.1.0.dist-info"}


def test_packages_are_typed(wheel: zipfile.ZipFile) -> None:
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(wheel.namelist())


def test_wheel_holds_every_module_and_stub_of_the_repository(wheel: zipfile.ZipFile) -> None:
    folders = (ROOT / "client", ROOT / "engine", ROOT / "server")
    sources = {str(path.relative_to(folder)) for folder in folders for path in folder.rglob("*.py*")}
    expected = {name for name in sources if name.endswith((".py", ".pyi"))}
    assert "gradwire/v1/service_pb2_grpc.py" in expected
    assert expected <= set(wheel.namelist())


def test_wheel_holds_the_built_page_of_studio(wheel: zipfile.ZipFile) -> None:
    folder = ROOT / "server" / "gradwire_server" / "web" / "static"
    built = {path.relative_to(ROOT / "server").as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {"gradwire_server/web/static/index.html", "gradwire_server/web/static/studio/studio.js"} <= built
    assert built <= set(wheel.namelist())


def test_wheel_names_its_commands(wheel: zipfile.ZipFile) -> None:
    entry_points = wheel.read("gradwire-0.1.0.dist-info/entry_points.txt").decode()
    assert "gradwire = gradwire._cli.main:main" in entry_points
    assert "serve = gradwire_server.app.cli:serve" in entry_points


def test_core_install_is_the_thin_client(wheel: zipfile.ZipFile) -> None:
    metadata = HeaderParser().parsestr(wheel.read("gradwire-0.1.0.dist-info/METADATA").decode())
    required = metadata.get_all("Requires-Dist") or []
    core = {name.split("<")[0].split(">")[0] for name in required if "extra ==" not in name}
    assert core == {"grpcio", "protobuf", "numpy"}
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.10"
    assert {"server", "cuda12", "cuda13", "demo", "test", "dev"} <= set(metadata.get_all("Provides-Extra") or [])


@pytest.mark.parametrize("language", ["cpp", "go", "java", "rust", "typescript"])
def test_an_sdks_package_holds_the_license(language: str) -> None:
    copy = ROOT / "client" / language / "LICENSE"
    assert copy.read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert not copy.is_symlink()  # Go's and npm's packages leave links out


def test_source_distribution_holds_the_protos_and_the_tests(tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert "proto/gradwire/v1/service.proto" in names
    assert "tests/contract/test_package.py" in names
    assert "LICENSE" in names
    assert not any("node_modules" in name for name in names)
