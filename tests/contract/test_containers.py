"""The image and the compose file, tested without a container engine.

The Dockerfile's install, start and health commands run in a clean virtual environment. Only their paths are replaced,
by a temporary folder's. A compose parser reads the compose file if one is installed.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import yaml

from gradwire.v1 import commands_pb2, service_pb2, service_pb2_grpc
from gradwire_server.app.settings import Settings
from gradwire_server.registry import session_catalog
from tests.server.harness import Id, op

ROOT = Path(__file__).resolve().parents[2]
# As .dockerignore says.
_UNSENT = shutil.ignore_patterns("__pycache__", "node_modules", "target", "build")
IMAGE_PATHS = {"/opt/gradwire": "opt", "/opt/build": "build", "/var/lib/gradwire": "state"}


def instructions() -> list[tuple[str, str]]:
    """(keyword, rest) of the Dockerfile, comments dropped and continued lines joined."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.lstrip().startswith("#")]
    text = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(keyword, rest) for keyword, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def arguments_of(keyword: str) -> str:
    """What the last `keyword` of the Dockerfile says; in a Dockerfile the last one counts."""
    return [rest for name, rest in instructions() if name == keyword][-1]


def health_command() -> list[str]:
    command: list[str] = json.loads(arguments_of("HEALTHCHECK").partition("CMD ")[2])
    return command


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return document


def test_compose_file_passes_a_compose_parser() -> None:
    parser = shutil.which("docker-compose")
    if parser is None:
        pytest.skip("needs a compose parser: docker-compose is not on the PATH")
    answer = subprocess.run(
        [parser, "--file", ROOT / "docker-compose.yml", "--profile", "gpu", "config"],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert answer.returncode == 0, answer.stderr
    services = yaml.safe_load(answer.stdout)["services"]
    assert set(services) == {"cpu", "gpu"}
    assert services["gpu"]["build"]["args"] == {"EXTRA": "cuda12"}


def test_cpu_is_the_default_and_gpu_a_profile_with_a_device(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert set(services) == {"cpu", "gpu"}
    assert "profiles" not in services["cpu"]
    assert services["gpu"]["profiles"] == ["gpu"]
    (device,) = services["gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}


def test_services_are_published_on_loopback_only(compose: dict[str, Any]) -> None:
    ports = [port for service in compose["services"].values() for port in service["ports"]]
    assert all(port.startswith("127.0.0.1:") and port.endswith(f":{arguments_of('EXPOSE')}") for port in ports)
    assert len(set(ports)) == len(compose["services"])


class Overriding(yaml.SafeLoader):
    """Knows compose's mark for what replaces a list, where a list would be added to."""


Overriding.add_constructor("!override", lambda loader, node: loader.construct_sequence(node))


def test_the_override_for_others_asks_for_encryption_and_tokens(compose: dict[str, Any]) -> None:
    text = (ROOT / "docker-compose.tls.yml").read_text()
    services = yaml.load(text, Overriding)["services"]
    assert set(services) == set(compose["services"])
    (start,) = {tuple(service["command"]) for service in services.values()}
    assert list(start) == [word for word in json.loads(arguments_of("CMD")) if word != "--insecure-bind"]
    for service in services.values():
        named = {key.removeprefix("GRADWIRE_").lower(): path for key, path in service["environment"].items()}
        settings = Settings(**{name: path for name, path in named.items() if name in Settings.model_fields})
        assert settings.unguarded == ""
        (mount,) = service["volumes"]
        folder, mode = mount.rpartition("}:")[2].split(":")
        assert mode == "ro"
        paths = (settings.tls_cert, settings.tls_key, settings.token_file, service["environment"]["GRADWIRE_CA"])
        assert all(path.startswith(f"{folder}/") for path in paths)


def test_services_run_with_as_few_rights_as_they_need(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["read_only"] is True
        assert "mem_limit" in service and "pids_limit" in service
        assert "network_mode" not in service and "privileged" not in service


def test_every_volume_is_declared_and_named(compose: dict[str, Any]) -> None:
    used = {volume.partition(":")[0] for service in compose["services"].values() for volume in service["volumes"]}
    assert used == set(compose["volumes"])
    assert all(volume["name"].startswith("gradwire-") for volume in compose["volumes"].values())


def test_compose_asks_the_same_health_question_as_the_image(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        assert service["healthcheck"]["test"] == ["CMD", *health_command()]


def test_image_runs_as_a_user_without_rights() -> None:
    last_stage = " ".join(f"{name} {rest}\n" for name, rest in instructions()).rpartition("FROM ")[2]
    user = arguments_of("USER")
    assert f"USER {user}" in last_stage
    assert re.search(rf"useradd --system .*\b{user}\b", last_stage)


def copied_sources() -> list[list[str]]:
    return [rest.split() for name, rest in instructions() if name == "COPY" and "--from" not in rest]


def test_build_context_holds_what_the_image_copies_and_no_more() -> None:
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    admitted = {line.removeprefix("!") for line in ignore if line.startswith("!")}
    assert "*" in ignore
    assert {source for *sources, _ in copied_sources() for source in sources} == admitted


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_image_installs_starts_and_reports_health_in_a_clean_environment(
    tmp_path: Path, launch: Callable[..., Any]
) -> None:
    for image, local in IMAGE_PATHS.items():
        assert image in (ROOT / "Dockerfile").read_text()
        (tmp_path / local).mkdir()
    env = clean_environment(tmp_path)
    install_image(tmp_path, env)

    env |= image_environment(tmp_path) | {"GRADWIRE_PORT": "0"}
    state = tmp_path / "state"
    command = json.loads(arguments_of("CMD"))
    command[0] = shutil.which(command[0], path=env["PATH"])
    assert command[0] == str(tmp_path / "opt/bin/gradwire")
    server = launch(command, env=env, cwd=state)

    probe = [str(tmp_path / "opt/bin" / health_command()[0]), *health_command()[1:]]
    env["GRADWIRE_PORT"] = server.address.rpartition(":")[2]
    healthy = subprocess.run(probe, env=env, cwd=state, capture_output=True, text=True, timeout=200)
    assert healthy.returncode == 0, healthy.stderr
    assert healthy.stdout.endswith("SERVING\n")

    assert server.stop() == 0
    ended = subprocess.run(probe, env=env, cwd=state, capture_output=True, text=True, timeout=200)
    assert ended.returncode == 1
    assert "UNAVAILABLE" in ended.stderr


def localised(text: str, folder: Path) -> str:
    for image, local in IMAGE_PATHS.items():
        text = text.replace(image, str(folder / local))
    return text


def clean_environment(folder: Path) -> dict[str, str]:
    """This environment without what would let its packages or settings through, and with `python` on the PATH."""
    programs = folder / "programs"
    programs.mkdir()
    python = programs / "python"
    python.write_text(f"#!/bin/sh\nexec '{sys.executable}' \"$@\"\n")
    python.chmod(0o755)
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "GRADWIRE_", "PYTEST_", "COV_")) and name != "VIRTUAL_ENV"
    }
    # Python compiles the modules that it imports; to compile all packages takes a fifth of the processor time.
    return kept | {"PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin", "PIP_COMPILE": "0"}


def install_image(folder: Path, env: dict[str, str]) -> None:
    """Does what the build stage does: COPY the sources, then RUN its commands with the default build arguments."""
    source = folder / "src"
    source.mkdir()
    for *names, _ in copied_sources():
        for name in names:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, source / name, ignore=_UNSENT)
            else:
                shutil.copy(ROOT / name, source / name)
    defaults = dict(rest.split("=") for name, rest in instructions() if name == "ARG" and "=" in rest)
    commands = [rest for name, rest in instructions() if name == "RUN" and not rest.startswith("useradd")]
    assert any("pip install" in command for command in commands)
    for command in commands:
        answer = subprocess.run(
            ["sh", "-euc", localised(command, folder)],
            env=env | defaults,
            cwd=source,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert answer.returncode == 0, answer.stdout + answer.stderr


def image_environment(folder: Path) -> dict[str, str]:
    """The ENV of the image."""
    settings = dict(pair.split("=", 1) for pair in arguments_of("ENV").split())
    path = localised(settings.pop("PATH"), folder).replace("$PATH", os.environ["PATH"])
    return {"PATH": path} | {name: localised(value, folder) for name, value in settings.items()}


# What a container keeps.


def seconds(text: str) -> float:
    """A duration of the compose file's."""
    assert text.endswith("s") and text[:-1].isdecimal(), text
    return float(text[:-1])


def environment_of(service: dict[str, Any]) -> dict[str, str]:
    """What a service's process has from image and compose file, with nothing set where that is started."""
    image = dict(pair.split("=", 1) for pair in arguments_of("ENV").split())
    given = {name: re.sub(r"\$\{\w+:-(.*?)\}", r"\1", value) for name, value in service["environment"].items()}
    return image | given


def settings_of(service: dict[str, Any]) -> Settings:
    told = {name.removeprefix("GRADWIRE_").lower(): value for name, value in environment_of(service).items()}
    return Settings(**{name: value for name, value in told.items() if name in Settings.model_fields})


def test_a_containers_default_keeps_all_that_was_answered_in_its_volume(compose: dict[str, Any]) -> None:
    image = Settings(
        state_dir=environment_of({"environment": {}})["GRADWIRE_STATE_DIR"],
        durability=environment_of({"environment": {}})["GRADWIRE_DURABILITY"],
    )
    (volume,) = json.loads(arguments_of("VOLUME"))
    assert re.search(rf"useradd .*--uid 10001 --home-dir {volume} --create-home", (ROOT / "Dockerfile").read_text())
    for service in compose["services"].values():
        settings = settings_of(service)
        (mounted,) = (each.partition(":")[2] for each in service["volumes"])
        assert mounted == volume
        for each in (settings, image):
            assert each.state_dir.startswith(f"{volume}/") and each.durability == "log"
        # The drain lets calls end, then stores sessions, then ends workers: each within the grace.
        assert seconds(service["stop_grace_period"]) >= 3 * settings.grace_seconds + 10
        assert seconds(service["healthcheck"]["start_period"]) > session_catalog._LOCK_SECONDS


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda each: each.name)
def test_a_session_continues_after_its_container_was_stopped_or_killed(
    compose: dict[str, Any], tmp_path: Path, launch: Callable[..., Any], number: signal.Signals
) -> None:
    # Services with the same environment start the same server.
    different = {json.dumps(environment_of(each), sort_keys=True) for each in compose["services"].values()}
    for place, environment in enumerate(sorted(different)):
        folder = tmp_path / str(place)
        folder.mkdir()
        check_that_a_session_goes_on(json.loads(environment), folder, launch, number)


def check_that_a_session_goes_on(
    environment: dict[str, str], folder: Path, launch: Callable[..., Any], number: signal.Signals
) -> None:
    for local in IMAGE_PATHS.values():
        (folder / local).mkdir()
    told = {key: localised(value, folder) for key, value in environment.items() if key != "PATH"}
    env = {key: value for key, value in os.environ.items() if not key.startswith("GRADWIRE_")}
    env |= told | {"GRADWIRE_PORT": "0", "GRADWIRE_WORKERS": "1", "CUDA_VISIBLE_DEVICES": ""}
    program, *flags = json.loads(arguments_of("CMD"))
    assert program == "gradwire" and flags[0] == "serve"
    line = [sys.executable, "-m", "gradwire_server", *flags[1:]]

    def connected(server: Any) -> Any:
        return grpc.insecure_channel(f"127.0.0.1:{server.address.rpartition(':')[2]}")

    server = launch(line, env=env, cwd=folder / "state")
    with connected(server) as channel:
        stub = service_pb2_grpc.AutogradServiceStub(channel)
        session = stub.OpenSession(service_pb2.OpenSessionRequest(), wait_for_ready=True).session_id
        stub.Op(op("full", [3], 2.0, session_id=session, outputs=[1]))
        stub.Op(op("mul_", Id(1), 21.0, session_id=session))
    server.process.send_signal(number)
    assert server.process.wait(60) == (0 if number == signal.SIGTERM else -signal.SIGKILL)
    again = launch(line, env=env, cwd=folder / "state")
    with connected(again) as channel:
        stub = service_pb2_grpc.AutogradServiceStub(channel)
        read = commands_pb2.ReadRequest(session_id=session, tensor=1)
        data = stub.Read(read, wait_for_ready=True).payload.data
        assert np.frombuffer(data, np.float32).tolist() == [42.0] * 3
    assert again.stop() == 0
