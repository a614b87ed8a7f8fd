"""Each section of docs/extending.md, applied to a copy of the sources, adds what it says."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "extending.md"
# What tools have built there: gigabytes, after the tests of the SDKs. Compiled files are copied, so that the copy's
# processes need not compile the packages again; those with a number at the end are being written.
_BUILT = shutil.ignore_patterns("node_modules", "target", "build", "*.pyc.*")
COPIED = ("client", "docs", "engine", "proto", "server", "tests", "tools", "Makefile", "pyproject.toml")
TITLES = [
    "An op", "An RPC", "A command", "A setting", "An optimizer", "A snapshot store", "An execution backend", "A kernel",
]  # fmt: skip
MOST_PROSE, MOST_CODE = 5, 15  # lines of a section; of code those that are neither imports nor tests
WAIT = 240
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PLACE = re.compile(r"^(?:#|//) ([\w/]+\.(?:py|proto))(?:, (after|before|in place of) (.+))?$", re.MULTILINE)


@dataclass(frozen=True)
class Piece:
    """Lines for a file: at its end, or beside the one line that has `beside` in it."""

    file: str
    where: str | None
    beside: str
    text: str

    def apply(self, root: Path) -> None:
        """Put them there."""
        path = root / self.file
        if self.where is None:
            with path.open("a", encoding="utf-8") as file:
                file.write(f"\n\n{self.text}\n")
            return
        lines = path.read_text("utf-8").splitlines()
        (at,) = (number for number, line in enumerate(lines) if line.strip().startswith(self.beside))
        indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
        end = at + (0 if self.where == "before" else self._height(lines[at:]))
        begin = at if self.where == "in place of" else end
        lines[begin:end] = textwrap.indent(self.text, indent).splitlines()
        path.write_text("\n".join(lines) + "\n", "utf-8")

    @staticmethod
    def _height(lines: list[str]) -> int:
        """How many lines the first one's statement has: until its brackets are closed, but for a block's."""
        depth = 0
        for height, line in enumerate(lines, 1):
            depth += sum(line.count(each) for each in "([{") - sum(line.count(each) for each in ")]}")
            if depth <= 0 or line.rstrip().endswith("= {"):
                return height
        raise AssertionError(f"{lines[0]} has no end")


@dataclass(frozen=True)
class Section:
    """What a section says to write and to run."""

    prose: list[str]
    pieces: list[Piece]
    commands: list[str]


def sections() -> dict[str, Section]:
    """The page's sections by title."""
    _, *parts = re.split(r"^## ", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    return {title: section(body) for title, _, body in (part.partition("\n") for part in parts)}


def section(body: str) -> Section:
    pieces, commands = [], []
    for language, text in _BLOCK.findall(body):
        if language == "sh":
            commands += text.splitlines()
            continue
        before, *found = _PLACE.split(text)
        assert not before, f"it is not said where this goes: {before}"
        for file, where, beside, lines in zip(*(found[start::4] for start in range(4)), strict=True):
            pieces.append(Piece(file, where, beside or "", lines.strip("\n")))
    return Section([line for line in _BLOCK.sub("", body).splitlines() if line], pieces, commands)


SECTIONS = sections()


class Copy:
    """The sources with a section applied."""

    def __init__(self, root: Path, title: str) -> None:
        self.root = root
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("GRADWIRE_", "PYTEST_"))}
        self.env["PYTHONPATH"] = os.pathsep.join(str(root / part) for part in ("engine", "server", "client"))
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, root / name, ignore=_BUILT)
            else:
                shutil.copy2(ROOT / name, root / name)
        for piece in SECTIONS[title].pieces:
            piece.apply(root)
        for command in SECTIONS[title].commands:
            self.run(*self.arguments(command))

    def arguments(self, command: str) -> list[str]:
        """A command of the page for this Python; of `make` its target's recipe, since it would install things."""
        words = shlex.split(command)
        if words[0] == "make":
            recipe = re.search(rf"^{words[1]}:.*\n\t(.*)$", (self.root / "Makefile").read_text("utf-8"), re.MULTILINE)
            assert recipe, command
            words = shlex.split(recipe[1].replace("$(BIN)", ".venv/bin"))
        assert words[0] == ".venv/bin/python", command
        return [*words[1:], "-p", "no:cacheprovider"] if "pytest" in words else words[1:]

    def run(self, *arguments: str) -> str:
        """What Python prints."""
        ended = subprocess.run(
            [sys.executable, *arguments], cwd=self.root, env=self.env, capture_output=True, text=True, timeout=WAIT
        )
        assert ended.returncode == 0, f"{arguments}: {ended.stdout[-4000:]}{ended.stderr[-4000:]}"
        return ended.stdout

    def program(self, text: str) -> str:
        """What a program prints."""
        return self.run("-c", textwrap.dedent(text))


@pytest.fixture
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Copy]:
    yield Copy(tmp_path / "gradwire", request.param)
    shutil.rmtree(tmp_path / "gradwire")


def after(title: str) -> pytest.MarkDecorator:
    """A test of what there is when a section was applied, and its commands have ended well."""
    return pytest.mark.parametrize("made", [title], indirect=True, ids=[title])


def test_the_page_has_these_sections_and_they_are_short() -> None:
    assert list(SECTIONS) == TITLES
    for title, each in SECTIONS.items():
        lines = [
            line for piece in each.pieces if not piece.file.startswith("tests/") for line in piece.text.splitlines()
        ]
        code = [line for line in lines if line.strip() and not line.startswith(("import ", "from "))]
        assert len(each.prose) <= MOST_PROSE, title
        assert len(code) <= MOST_CODE, title
        assert any(piece.file.startswith("tests/") for piece in each.pieces), title
        assert any("-m pytest" in command for command in each.commands), title


@after("An op")
def test_an_op(made: Copy) -> None:
    told = made.program("""
        import gradwire
        x = gradwire.tensor([2.0, -3.0], dtype=gradwire.float64, requires_grad=True)
        x.cube().sum().backward()
        print(gradwire.cube(x).tolist(), x.grad.tolist(), x.detach().cube_().tolist())
    """)
    assert told == "[8.0, -27.0] [12.0, 27.0] [8.0, -27.0]\n"
    assert "| `cube`, `cube_` |" in (made.root / "docs/ops.md").read_text("utf-8")


@after("An RPC")
def test_an_rpc(made: Copy) -> None:
    told = made.program("""
        import grpc
        from gradwire.v1 import service_pb2, service_pb2_grpc
        from gradwire._transport.embedded import EmbeddedServer
        server = EmbeddedServer()
        with grpc.insecure_channel(server.address) as channel:
            stub = service_pb2_grpc.AutogradServiceStub(channel)
            for _ in range(2):
                print(stub.CountSessions(service_pb2.CountSessionsRequest()).sessions)
                stub.OpenSession(service_pb2.OpenSessionRequest())
        server.stop()
    """)
    assert told == "0\n1\n"


@after("A command")
def test_a_command(made: Copy) -> None:
    told = made.program("""
        import gradwire
        from gradwire.v1 import commands_pb2, service_pb2
        with gradwire.connect() as session:
            x = gradwire.ones(2)
            y = x + x
            command = service_pb2.Command(count_tensors=commands_pb2.CountTensorsRequest())
            print(session.wait(command).count_tensors.tensors)
            request = commands_pb2.CountTensorsRequest(session_id=session.session_id)
            print(session._transport.call("CountTensors", request, commands_pb2.CountTensorsResponse).tensors)
    """)
    assert told == "2\n2\n"


@after("A setting")
def test_a_setting(made: Copy) -> None:
    assert "--max-prepared" in made.run("-m", "gradwire_server", "--help")
    assert "| `--max-prepared` | `4096` |" in (made.root / "docs/operations.md").read_text("utf-8")
    told = made.program("""
        import subprocess, sys
        import gradwire
        line = [sys.executable, "-m", "gradwire_server", "--port=0", "--workers=0", "--max-prepared=7"]
        with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
            address = server.stdout.readline().split()[-1]
            with gradwire.connect(address) as session:
                print(session.limits.max_prepared)
            server.terminate()
    """)
    assert told == "7\n"


@after("An optimizer")
def test_an_optimizer(made: Copy) -> None:
    told = made.program("""
        import gradwire
        w = gradwire.tensor([1.0], requires_grad=True)
        steps = gradwire.optim.Momentum([w], lr=0.5, momentum=0.5)
        schedule = gradwire.optim.lr_scheduler.StepLR(steps, 1, 0.5)
        for _ in range(4):
            steps.zero_grad()
            w.sum().backward()
            steps.step()
            schedule.step()
        print(w.item())
    """)
    assert told == f"{1 - 0.5 * 1 - 0.25 * 1.5 - 0.125 * 1.75 - 0.0625 * 1.875}\n"


@after("A snapshot store")
def test_a_snapshot_store(made: Copy) -> None:
    told = made.program("""
        import os, subprocess, sys, tempfile
        import gradwire
        folder = tempfile.mkdtemp()
        store = f"gradwire_server.storage.sqlite_objects:SqliteObjects?path={folder}/objects.db"
        line = [sys.executable, "-m", "gradwire_server", "--port=0", "--workers=1", "--state-dir", folder]
        line += ["--snapshot-store", store]
        x = None
        for run in range(2):
            with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
                address = server.stdout.readline().split()[-1]
                if x is None:
                    with gradwire.connect(address) as session:
                        x = gradwire.arange(3.0, dtype=gradwire.float64) * 2
                        session.save("best", tensors={"x": x})
                else:
                    restored = gradwire.restore("best", address)
                    print(restored.tensors["x"].tolist())
                    restored.close()
                server.terminate()
        print([name for _, _, names in os.walk(folder) for name in sorted(names) if name.endswith(".session")])
    """)
    assert told == "[0.0, 2.0, 4.0]\n[]\n"


@after("An execution backend")
def test_an_execution_backend(made: Copy) -> None:
    told = made.program("""
        import subprocess, sys
        import gradwire
        line = [sys.executable, "-m", "gradwire_server", "--port=0", "--workers=0"]
        with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
            address = server.stdout.readline().split()[-1]
            with gradwire.connect(address):
                print((gradwire.ones(2) + 1).tolist())
            server.terminate()
            print(server.stdout.read())
    """)
    assert told.startswith("[2.0, 2.0]\n")
    assert re.search(r"computes (Run|Stream)", told)


@after("A kernel")
def test_a_kernel(made: Copy) -> None:
    told = made.program("""
        from dataclasses import replace
        import numpy as np
        import gradwire_engine as engine
        from gradwire_engine.compile.plan import Plan
        from gradwire_engine.compile.tracing import Tracer
        from gradwire_engine.core.context import CURRENT
        from tests.steps import through
        x, other = (engine.tensor(np.array([value, 2.0])) for value in (1.0, -3.0))
        with engine.activate(engine.Context()):
            tracer = Tracer([x])
            with engine.activate(replace(CURRENT.get(), tracer=tracer)):
                plan = Plan(tracer, [engine.call("neg", [engine.call("expm1", [x])])], 0, CURRENT.get().account)
            (found,) = through(plan.run([other], [], CURRENT.get()))
        np.testing.assert_array_equal(found.array, -np.expm1(other.array))
        print([instr.what.name for instr, kernel in zip(plan.instrs, plan.kernels) if kernel is not None])
    """)
    assert "'expm1'" in told
