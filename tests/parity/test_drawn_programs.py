"""Random programs over PyTorch and gradwire: nothing that can be seen of a tensor differs without being documented.

Bounded here: the same programs in every run. `make random-programs PROGRAMS=20000 SEED=7` runs others in volume, and
prints the differences by class. The drawn lines are in `drawn/words.py`, what may differ in `drawn/known.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is what is compared with")

import gradwire  # noqa: E402
from tests.parity.drawn import known, program  # noqa: E402

SEEDS = range(9_000_000, 9_000_100)
AT_ONCE = 10
#: Classes that go unnoticed by a program.
SILENT = ("value", "gradient", "flag", "silent", "dtype")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", SEEDS[::AT_ONCE])
def test_no_random_program_differs_in_silence(first: int) -> None:
    """Value, gradient, flag, dtype, and whether a line is refused, after each line and when repeated."""
    wrong = []
    for seed in range(first, first + AT_ONCE):
        found = program.compare(program.draw(seed, 10 + seed % 5))
        if found is not None and any(kind in SILENT for kind, _ in found.what):
            wrong.append(f"seed {seed}\n" + "\n".join([*found.program, *map(str, found.what)]))
    assert not wrong, "\n\n".join(wrong)


def test_a_program_is_the_same_for_the_same_seed() -> None:
    """So that a seed reproduces what it found."""
    assert program.draw(5, 12) == program.draw(5, 12)


def test_a_difference_is_found_and_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong value is seen in the line that makes it, and lines that it does not need are dropped."""
    monkeypatch.setattr(gradwire.Tensor, "sin", lambda self: self.cos())
    found = program.compare(["r0 = t.ones(2)", "r1 = t.zeros(3)", "r2 = r1 + 1", "r3 = r0.sin()"])
    assert found is not None
    assert [kind for kind, _ in found.what] == ["value"]
    assert program.shrink(found).program == ["r0 = t.ones(2)", "r3 = r0.sin()"]


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("flag", "r1 = r0.detach()"),
        ("silent", "r0.add_(t.ones(9))"),
        ("loud", "r1 = r0.t()"),
    ],
)
def test_flags_and_refusals_are_compared(kind: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each class of difference is told as what it is."""

    def refused(self: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(gradwire.Tensor, "detach", lambda self: self * 1)
    monkeypatch.setattr(gradwire.Tensor, "add_", lambda self, other: self)
    monkeypatch.setattr(gradwire.Tensor, "t", refused)
    found = program.compare(["r0 = (t.ones(2, requires_grad=True) * 2)", line])
    assert found is not None
    assert kind in [each for each, _ in found.what]


@pytest.mark.parametrize("readable", [0, 1])
def test_a_refusal_that_comes_with_a_value_is_a_difference(readable: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the line, and when the lines are repeated without waiting for each."""
    looks = iter([True] * readable)

    def look(tensor: object) -> dict[str, object]:
        if isinstance(tensor, gradwire.Tensor) and not next(looks, False):
            raise RuntimeError("refused late")
        return real(tensor)

    real = program.look
    monkeypatch.setattr(program, "look", look)
    found = program.compare(["r0 = t.ones(2)"])
    assert found is not None
    ((kind, text),) = found.what
    assert kind == "loud"
    assert "refused late" in text


def test_what_may_differ_has_a_reason() -> None:
    """No entry without why."""
    assert all(why for _, _, _, why in known.EXCUSED)


@pytest.fixture(scope="module", autouse=True)
def _session() -> Iterator[None]:
    """A default session of its own, whatever other tests have closed; and each warning each time, as gradwire's."""
    torch.set_warn_always(True)
    with contextlib.closing(gradwire.connect()):
        yield
    torch.set_warn_always(False)
