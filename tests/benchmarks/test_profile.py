"""Layers of the profile: the packages of engine, server and client, by the files that exist."""

from pathlib import Path

import pytest

from benchmarks import profile

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("stack", "layer"),
    [
        (["run (gradwire/_cli/workloads.py:30)", "apply (engine/gradwire_engine/op/op.py:9)", "dot"], "engine: op"),
        (["main (/home/gradwire/engine/gradwire_engine/core/device.py:3)"], "engine: core"),
        (["main (x/server/gradwire_server/session/state/writers.py:3)"], "server: session"),
        (["<module> (x/client/gradwire/__init__.py:3)"], "client: top level"),
        (["step (x/client/gradwire/_cli/workloads.py:30)"], "the workload itself"),
        (["run (lib/asyncio/base_events.py:5)"], "asyncio"),
        (["poll (lib/grpc/_channel.py:5)"], "gRPC"),
        (["main (somewhere/else.py:5)"], "elsewhere"),
    ],
)
def test_the_layer_is_that_of_the_innermost_frame(stack: list[str], layer: str) -> None:
    assert profile.layer(stack) == layer


@pytest.mark.parametrize("product", ["engine/gradwire_engine", "server/gradwire_server", "client/gradwire"])
def test_every_package_is_a_layer(product: str) -> None:
    files = [path for path in (ROOT / product).glob("*/*.py") if path.name != "workloads.py"]
    packages = {profile.layer([f"f ({path}:1)"]).partition(": ")[2] for path in files}
    assert packages == {path.parent.name for path in files}


def test_samples_are_counted_by_layer_and_by_function(tmp_path: Path) -> None:
    path = tmp_path / "samples"
    path.write_text(
        "main (x/gradwire/_cli/workloads.py:1);apply (x/gradwire_engine/op/op.py:9) 3\n"
        "main (x/gradwire/_cli/workloads.py:1);apply (x/gradwire_engine/op/op.py:12) 2\n"
    )
    layers, functions = profile.read(path)
    assert layers == {"engine: op": 5}
    assert functions == {"apply (x/gradwire_engine/op/op.py)": 5}
