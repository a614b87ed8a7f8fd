"""What the images install is pinned: each lock file has all that pyproject.toml asks for, by hash, from anywhere."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tools.lock import ALSO, EXTRAS, FOLDER, ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
LOCKS = (*(f"{extra}.lock" for extra in EXTRAS), "build.lock")


def entries(path: Path) -> Iterator[tuple[Requirement, list[str]]]:
    """What a lock file pins, and with which hashes."""
    for entry in path.read_text().replace("\\\n", " ").splitlines():
        pinned, *hashes = entry.split(" --hash=")
        yield Requirement(pinned.strip()), [each.strip() for each in hashes]


def asked(extra: str) -> Iterator[Requirement]:
    """What pyproject.toml asks for with an extra, those it is made of included."""
    for text in PROJECT["project"]["optional-dependencies"][extra]:
        requirement = Requirement(text)
        if requirement.name == PROJECT["project"]["name"]:
            for each in requirement.extras:
                yield from asked(each)
        else:
            yield requirement


def wanted(lock: str) -> list[Requirement]:
    if lock == "build.lock":
        return [Requirement(text) for text in PROJECT["build-system"]["requires"]]
    core = [Requirement(text) for text in PROJECT["project"]["dependencies"]]
    return [*core, *(each for extra in (lock.removesuffix(".lock"), *ALSO) for each in asked(extra))]


def unmet(requirements: list[Requirement], pinned: list[Requirement], python: str) -> list[str]:
    """What a lock file does not satisfy on a version of Python, on Linux."""
    environment = {
        "python_version": python, "python_full_version": f"{python}.5", "sys_platform": "linux",
        "platform_system": "Linux", "platform_machine": "x86_64", "extra": "",
    }  # fmt: skip
    versions = {
        canonicalize_name(each.name): next(iter(each.specifier)).version
        for each in pinned
        if each.marker is None or each.marker.evaluate(environment)
    }
    found = []
    for each in requirements:
        if each.marker is None or each.marker.evaluate(environment):
            version = versions.get(canonicalize_name(each.name))
            if version is None or not each.specifier.contains(Version(version), prereleases=True):
                found.append(f"{each} is pinned to {version}")
    return found


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_file_satisfies_the_project(lock: str, python: str) -> None:
    assert unmet(wanted(lock), [pinned for pinned, _ in entries(FOLDER / lock)], python) == []


def test_what_a_lock_file_lacks_is_found() -> None:
    pinned = [pinned for pinned, _ in entries(FOLDER / "server.lock")]
    assert unmet([Requirement("numpy>=99")], pinned, "3.12") != []
    assert unmet([Requirement("leftpad")], pinned, "3.12") == ["leftpad is pinned to None"]


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_is_exact_and_has_hashes_and_no_place_is_named(lock: str) -> None:
    found = list(entries(FOLDER / lock))
    assert len(found) > 3
    for pinned, hashes in found:
        assert [each.operator for each in pinned.specifier] == ["=="]
        assert pinned.url is None
        assert hashes and all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes)
    text = (FOLDER / lock).read_text()
    assert "://" not in text
    assert not re.search(r"^\s*-(?!-hash)", text, re.MULTILINE)


def test_images_install_what_is_locked_and_nothing_else() -> None:
    text = (ROOT / "Dockerfile").read_text()
    installs = [line for line in text.splitlines() if "pip install" in line]
    assert len(installs) == 3
    assert all("--require-hashes -r requirements/" in line or "--no-deps /opt/build/dist/" in line for line in installs)
    arguments = re.findall(r"EXTRA=(\w+)", text + (ROOT / "docker-compose.yml").read_text())
    arguments += re.findall(r"EXTRA: (\w+)$", (ROOT / "docker-compose.cluster.yml").read_text(), re.MULTILINE)
    assert set(arguments) <= set(EXTRAS)
