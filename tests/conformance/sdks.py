"""Run the SDKs' tests and conformance runners against a live server (`make test-sdks`).

    python -m tests.conformance.sdks [--only Go] [--matrix] [--sanitize address,undefined]

A language without its toolchain, or without the packages that it needs, is skipped with a sentence. --matrix also runs
Python's client and writes the table language × subject into docs/other-languages.md. --sanitize runs only C++'s tests,
built with these sanitizers of the compiler. README.md tells what the runners are given.
"""

import argparse
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.processes import hear, process
from tests.client.chaos import Restarting
from tests.client.proxy import CuttingProxy
from tests.conformance.exported import losses
from tests.conformance.make import FOLDER
from tests.conformance.servers import SERVE, moving, secure

ROOT = Path(__file__).resolve().parents[2]
# So many languages are tested at a time: tests wait for servers and leases, while others compile.
AT_ONCE = 2
PAGE = ROOT / "docs" / "other-languages.md"
BEGIN, END = "<!-- matrix: begins -->", "<!-- matrix: ends -->"


@dataclass(frozen=True)
class Sdk:
    """An SDK: what its tests need and how they run."""

    language: str
    folder: Path
    tools: tuple[str, ...]
    prepare: tuple[str, ...]  # fetches packages; if it fails, the language is skipped
    checks: tuple[tuple[str, ...], ...]  # linters and formatters
    test: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    seconds: float = 480  # of each check, and of the test
    prepare_seconds: float = 180.0


# Without optimizations it compiles in half of the time.
_CMAKE = (
    "-DCMAKE_BUILD_TYPE=None",
    "-DCMAKE_CXX_FLAGS=-O0",
    "-DGRADWIRE_BUILD_TESTS=ON",
    "-DGRADWIRE_BUILD_EXAMPLES=OFF",
    "-DGRADWIRE_INSTALL=OFF",
)
SDKS = (
    Sdk(
        "Go",
        ROOT / "client" / "go",
        ("go",),
        ("go", "mod", "download"),
        (("sh", "-c", 'test -z "$(gofmt -l .)"'), ("go", "vet", "./...")),
        ("go", "test", "-count=1", "./..."),
        (("GOTOOLCHAIN", "local"), ("GOFLAGS", "-mod=readonly -buildvcs=false")),
    ),
    Sdk(
        "TypeScript",
        ROOT / "client" / "typescript",
        ("node", "npm"),
        ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"),
        (("npm", "run", "lint"),),
        ("npm", "test"),
    ),
    Sdk(
        "Rust",
        ROOT / "client" / "rust",
        ("cargo", "rustfmt", "cargo-clippy"),
        ("cargo", "fetch", "--locked"),
        (
            ("cargo", "fmt", "--check"),
            ("cargo", "clippy", "--locked", "--all-targets", "--", "-D", "warnings"),
        ),
        ("cargo", "test", "--locked", "--lib", "--test", "all"),
        (("CARGO_TERM_COLOR", "never"),),
        seconds=600,  # the first time it compiles all dependencies
    ),
    Sdk(
        "Java",
        ROOT / "client" / "java",
        ("mvn", "javac"),
        ("mvn", "-q", "-B", "test-compile", "surefire:help"),
        (),
        ("mvn", "-q", "-B", "spotless:check", "test"),
        prepare_seconds=480.0,  # it also makes and compiles the stubs
    ),
    Sdk(
        "C++",
        ROOT / "client" / "cpp",
        ("g++", "cmake", "protoc", "grpc_cpp_plugin", "clang-format", "pkg-config"),
        ("pkg-config", "--exists", "--print-errors", "--errors-to-stdout", "grpc++", "protobuf", "gtest", "zlib"),
        (
            (
                "sh",
                "-c",
                "clang-format --dry-run --Werror include/gradwire/*.hpp src/*.[ch]pp tests/*.[ch]pp examples/*.[ch]pp "
                "tests/subproject/*.cpp bench/*.cpp",
            ),
            ("cmake", "-S", "tests/subproject", "-B", "build/subproject", *_CMAKE),
            ("cmake", "--build", "build/subproject", "--parallel", "2"),
        ),
        ("sh", "-c", "build/subproject/consumer && build/subproject/_deps/gradwire-build/tests/gradwire_tests"),
        seconds=600,  # it compiles the stubs
    ),
)


def sanitized(sanitizers: str) -> Sdk:
    """C++'s tests, built with sanitizers. The first finding ends them."""
    sdk, build = SDKS[-1], "build/" + sanitizers.replace(",", "-")
    flags = ("-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-O0 -g1", f"-DGRADWIRE_SANITIZE={sanitizers}", *_CMAKE[2:])
    return replace(
        sdk,
        language=f"C++ with {sanitizers}",
        checks=(
            ("cmake", "-S", "tests/subproject", "-B", build, *flags),
            ("cmake", "--build", build, "--parallel", "2", "--target", "gradwire_tests"),
        ),
        test=(f"{build}/_deps/gradwire-build/tests/gradwire_tests",),
        environment=(
            ("ASAN_OPTIONS", "detect_stack_use_after_return=1"),
            ("UBSAN_OPTIONS", "halt_on_error=1:print_stacktrace=1"),
        ),
        seconds=3600,
    )


PYTHON = Sdk("Python", ROOT, (), (), (), (sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "tests/conformance"))


# Servers for the runners


@contextmanager
def server() -> Iterator[str]:
    """A server on a TCP port of this machine."""
    with (
        tempfile.TemporaryDirectory() as states,
        process(*SERVE, f"--state-dir={states}", "--snapshot-every=0") as started,
    ):
        yield str(json.loads(hear(started))["address"])


@contextmanager
def cutters(target: str) -> Iterator[str]:
    """The control port: a connection that sends "least most" gets the address of a proxy before `target`."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                control, _ = listening.accept()
            except OSError:  # closed
                return
            threading.Thread(target=_cut, args=(control, target), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.close()


@contextmanager
def restarts() -> Iterator[str]:
    """The control port: a connection gets the address of a server of its own, and restarts it with each line."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                control, _ = listening.accept()
            except OSError:  # closed
                return
            threading.Thread(target=_restart, args=(control,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.close()


def _restart(control: socket.socket) -> None:
    with control, control.makefile("rw") as lines, tempfile.TemporaryDirectory() as folder:
        server = Restarting(Path(folder), "--durability=log")
        try:
            lines.write(f"{server.address}\n")
            lines.flush()
            while lines.readline():
                server.kill()
                server.start()
                lines.write("restarted\n")
                lines.flush()
        finally:
            server.stop()


def _cut(control: socket.socket, target: str) -> None:
    with control, control.makefile("rw") as lines:
        least, most = map(int, lines.readline().split())
        drawn = random.Random(most)
        proxy = CuttingProxy(target, iter(lambda: drawn.randint(least, most), None))
        try:
            lines.write(f"{proxy.address}\n")
            lines.flush()
            lines.read()
            try:
                lines.write(f"{proxy.broken}\n")
                lines.flush()
            except OSError:  # the runner does not want to know
                return
        finally:
            proxy.close()


# Runs


@dataclass
class Outcome:
    """How an SDK's tests went: `skipped` says why they did not run."""

    sdk: Sdk
    skipped: str = ""
    failed: bool = False
    output: str = ""
    seconds: float = 0.0
    report: dict[str, str] | None = None


def tested(sdk: Sdk, trained: str) -> Outcome:
    """Run an SDK's tests with servers of its own, since languages name their snapshots alike."""
    missing = [tool for tool in sdk.tools if not shutil.which(tool)]
    if missing:
        return Outcome(sdk, skipped=f"{', '.join(missing)} is not on the PATH")
    with server() as address, tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        variables = {
            "GRADWIRE_ADDRESS": address,
            "GRADWIRE_CUTTING": stack.enter_context(cutters(address)),
            "GRADWIRE_RESTARTING": stack.enter_context(restarts()),
            "GRADWIRE_MOVING": stack.enter_context(moving(address)),
            "GRADWIRE_LOSSES": trained,
            **stack.enter_context(secure(Path(folder))),
        }
        return run(sdk, variables)


def run(sdk: Sdk, variables: dict[str, str]) -> Outcome:
    """Run an SDK's tests with variables that tell of the servers; never raises for what is missing."""
    environment = {**os.environ, **dict(sdk.environment)}
    if sdk.prepare:
        prepared = _call(sdk.prepare, sdk.folder, environment, sdk.prepare_seconds)
        if prepared.returncode:
            reason = prepared.stdout.strip().splitlines()[-1:] or ["no answer"]
            return Outcome(sdk, skipped=f"`{' '.join(sdk.prepare)}` failed: {reason[0]}")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        environment |= variables
        environment |= {
            "GRADWIRE_CONFORMANCE": str(Path(__file__).parent),
            "GRADWIRE_CONFORMANCE_REPORT": str(report),
            "GRADWIRE_PYTHON": sys.executable,  # for a web gateway
        }
        begun = time.monotonic()
        for command in (*sdk.checks, sdk.test):
            answer = _call(command, sdk.folder, environment, sdk.seconds)
            if answer.returncode:
                break
        seconds = time.monotonic() - begun
        told = json.loads(report.read_text("utf-8")) if report.exists() else {}
        return Outcome(sdk, "", answer.returncode != 0, answer.stdout, seconds, told)


def _call(
    command: tuple[str, ...], folder: Path, environment: dict[str, str], seconds: float
) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, f"no end after {seconds:.0f} seconds")


# The matrix


def matrix(outcomes: list[Outcome]) -> str:
    """The table: for each subject, how many scenarios each language passes."""
    languages = [each for each in outcomes if each.report is not None]
    lines = ["| subject | scenarios | " + " | ".join(each.sdk.language for each in languages) + " |"]
    lines.append("| --- |" + " --- |" * (len(languages) + 1))
    for path in sorted(FOLDER.glob("*.json")):
        names = [f"{path.stem}: {scenario['name']}" for scenario in json.loads(path.read_text("utf-8"))]
        cells = [_cell(names, each.report or {}) for each in languages]
        lines.append(f"| {path.stem.replace('_', ' ')} | {len(names)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(names: list[str], report: dict[str, str]) -> str:
    passed = sum(report.get(name) == "ok" for name in names)
    return "all" if passed == len(names) else str(passed) if passed else "none"


def write_matrix(table: str) -> None:
    """Put the table into the page."""
    text = PAGE.read_text("utf-8")
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"{PAGE.name} has no place for the matrix")
    replacement: Callable[[re.Match[str]], str] = lambda _: f"{BEGIN}\n\n{table}\n\n{END}"  # noqa: E731
    PAGE.write_text(pattern.sub(replacement, text), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="one language")
    parser.add_argument("--matrix", action="store_true", help="run Python's client, too, and write the table")
    parser.add_argument("--sanitize", metavar="NAMES", help="of the compiler's sanitizers, for C++'s tests")
    given = parser.parse_args()
    if given.sanitize and given.matrix:
        parser.error("the table's figures are those of the usual build: leave out --sanitize or --matrix")
    candidates = (sanitized(given.sanitize),) if given.sanitize else ((PYTHON,) if given.matrix else ()) + SDKS
    chosen = [sdk for sdk in candidates if given.only in (None, sdk.language)]
    with server() as address:
        trained = json.dumps(losses(address))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            outcomes = list(pool.map(lambda sdk: tested(sdk, trained), chosen))
    for each in outcomes:
        if each.skipped:
            print(f"{each.sdk.language}: skipped, since {each.skipped}")
            continue
        if each.failed:
            print(each.output[-8000:])
        state = "FAILED" if each.failed else "passed"
        print(f"{each.sdk.language}: {state} in {each.seconds:.0f} s, {len(each.report or {})} scenarios")
    if given.matrix:
        table = matrix(outcomes)
        print(table)
        write_matrix(table)
    if any(each.failed for each in outcomes):
        sys.exit(1)


if __name__ == "__main__":
    main()
