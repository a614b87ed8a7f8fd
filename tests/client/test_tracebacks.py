"""An uncaught error shows the program's lines alone, and is at most as long as PyTorch's."""

import json
import os
import subprocess
import sys
from traceback import walk_tb

import pytest

from gradwire._base.errors import GradwireRuntimeError
from gradwire._base.tracebacks import fold, folded_lines

NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 4)
        self.b = nn.Linear(5, 2)
    def forward(self, x):
        return self.b(self.a(x))
"""
#: A program that ends in an error, and its line that is shown last.
PROGRAMS = {
    "eager": ("torch.ones(2, 3) @ torch.ones(2, 3)", "torch.ones(2, 3) @ torch.ones(2, 3)"),
    "a module": (f"{NET}\nNet()(torch.ones(1, 3))", "return self.b(self.a(x))"),
    "nested modules": (
        "net = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.ReLU(), nn.Linear(5, 2)))\nnet(torch.ones(1, 3))",
        "net(torch.ones(1, 3))",
    ),
    "a second backward": (
        "w = torch.ones(3, requires_grad=True)\nl = (w * w).sum()\nl.backward()\nl.backward()",
        "l.backward()",
    ),
    "a backward without a scalar": ("torch.ones(3, requires_grad=True).mul(2).backward()", "torch.ones(3,"),
    "a leaf in place": ("w = torch.ones(3, requires_grad=True)\nw.add_(1)", "w.add_(1)"),
    "an index": ("torch.ones(3)[5]", "torch.ones(3)[5]"),
    "a loss": ("F.cross_entropy(torch.ones(3, 4), torch.tensor([0, 1]))", "F.cross_entropy("),
    "an optimizer": ("torch.optim.SGD([torch.ones(3)], lr=-1.0)", "torch.optim.SGD("),
    "an attribute": ("torch.ones(3).data_ptrr", "torch.ones(3).data_ptrr"),
    "a compiled function": (
        "def multiplied(a, b):\n    return a @ b\ntorch.compile(multiplied, backend='eager')(torch.ones(2, 3), "
        "torch.ones(2, 3))",
        "return a @ b",
    ),
    "a hook": (
        "w = torch.ones(3, requires_grad=True)\ndef fail(g):\n    raise ValueError('mine')\n"
        "w.register_hook(fail)\n(w * w).sum().backward()",
        "raise ValueError('mine')",
    ),
    "a thread": (
        "import threading\ndef work():\n    torch.ones(2, 3) @ torch.ones(2, 3)\n"
        "t = threading.Thread(target=work); t.start(); t.join()",
        "torch.ones(2, 3) @ torch.ones(2, 3)",
    ),
}


#: Runs each program of a file as a script of its own would be, and prints its error as an uncaught one.
RUNNER = """
import json, pathlib, sys
import {library} as torch
import {library}.nn as nn
import {library}.nn.functional as F
torch.ones(1).item()
for name, program in json.load(open(sys.argv[1])).items():
    print("#", name, file=sys.stderr)
    file = pathlib.Path(sys.argv[1]).with_name(name.replace(" ", "-") + ".py")
    file.write_text(program)
    try:
        exec(compile(program, file, "exec"), dict(globals()))
    except Exception:
        sys.excepthook(*sys.exc_info())
"""


def printed(tmp_path, library, **environment):
    """The lines that each program ends with."""
    given, script = tmp_path / "programs.json", tmp_path / "runner.py"
    given.write_text(json.dumps({name: program for name, (program, _) in PROGRAMS.items()}))
    script.write_text(RUNNER.format(library=library))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), str(given)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    parts = done.stderr.split("# ")[1:]
    return {(lines := part.rstrip().split("\n"))[0]: lines[1:] for part in parts}


def frames(lines):
    return [line for line in lines if line.startswith('  File "') and "runner.py" not in line]


def test_the_programs_line_is_last_and_no_frame_is_the_packages(tmp_path, server_address):
    shown = printed(tmp_path, "gradwire", GRADWIRE_ADDRESS=server_address)
    assert shown.keys() == PROGRAMS.keys()
    for name, lines in shown.items():
        places = [i for i, line in enumerate(lines) if line.startswith('  File "')]
        assert lines[places[-1] + 1].strip().startswith(PROGRAMS[name][1]), name
        assert not [line for line in frames(lines) if "gradwire/_" in line or "gradwire/nn" in line], name


def test_a_traceback_is_at_most_as_long_as_pytorchs(tmp_path, server_address):
    pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    mine = printed(tmp_path, "gradwire", GRADWIRE_ADDRESS=server_address)
    theirs = printed(tmp_path, "torch")
    # PyTorch's compiler logs its own traceback, too.
    for name in PROGRAMS.keys() - {"a compiled function"}:
        assert len(frames(mine[name])) <= len(frames(theirs[name])), name


def test_all_frames_are_shown_where_asked(tmp_path, server_address):
    shown = printed(tmp_path, "gradwire", GRADWIRE_ADDRESS=server_address, GRADWIRE_TRACEBACK="full")
    assert any("gradwire/_session" in line for line in frames(shown["eager"]))


def test_a_fault_of_the_package_keeps_its_frames():
    with pytest.raises(AttributeError) as caught:
        folded_lines(None)
    before = len(caught.traceback)
    fold(caught.value)
    assert len(list(walk_tb(caught.value.__traceback__))) == before > 1


def test_a_notebook_shows_the_programs_lines(deferring):
    import gradwire

    with pytest.raises(GradwireRuntimeError) as caught:
        gradwire.ones(2, 3) @ gradwire.ones(2, 3)
    lines = caught.value._render_traceback_()
    assert lines[0] == "Traceback (most recent call last):"
    assert not [line for line in lines if "gradwire/_" in line]
    assert "mat1 and mat2" in lines[-1]


@pytest.mark.parametrize("before", ["", "torch.ones(1)\n"], ids=["before a session", "with a session"])
@pytest.mark.parametrize("mistake", ["torch.tensr(1)", "torch.ones(2) @ torch.ones(3)", "torch.ones(2).data_prt()"])
def test_the_launchers_frames_are_left_out(tmp_path, server_address, before, mistake):
    program = tmp_path / "program.py"
    program.write_text(f"import torch\n{before}def work():\n    {mistake}\nwork()\n")
    done = subprocess.run(
        [sys.executable, "-m", "gradwire", "run", str(program)],
        env={**os.environ, "GRADWIRE_ADDRESS": server_address},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    found = [line for line in done.stderr.splitlines() if line.startswith('  File "')]
    assert len(found) == 2 and all(str(program) in line for line in found), done.stderr
