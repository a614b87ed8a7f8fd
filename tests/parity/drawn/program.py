"""Random programs: draw one with PyTorch, run it with gradwire, and tell where they part.

A program is a list of lines. After each the two are compared: what was raised, what was warned of, and everything that
can be seen of each live tensor. The first line with a difference ends the program.
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import numpy as np
import torch
import torch.utils.checkpoint

import gradwire
import gradwire.utils.checkpoint
from gradwire._functions import backward
from gradwire._tensor import tensor
from gradwire._tensor.warnings import WARNED_ONCE
from tests.parity.drawn import known, words
from tests.parity.drawn.state import TOLERANCE, differ, differ_plain, fetched, look
from tests.parity.drawn.steps import Writer

#: Values beyond this are not carried on: what rounding does to them is no difference.
LARGEST = 1e6


@dataclass
class Difference:
    """Where a program parts: the line's place, and classes and texts of what differs."""

    at: int
    line: str
    what: list[tuple[str, str]]
    program: list[str] = field(default_factory=list)


class Side:
    """One library running a program."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.names: dict[str, Any] = {"t": module, "copy": copy, "seen": [], "np": np, **words.customs(module)}
        self.error: BaseException | None = None
        self.warned: list[str] = []
        self.births: dict[int, tuple[Any, int]] = {}
        self.lies_otherwise = False

    def run(self, code: CodeType, waits: bool = True) -> None:
        """Run a line and keep what it raises and warns of. Without `waits` gradwire may raise it later."""
        self.error = None
        before = set(self.names)
        backward._cycle_warned = tensor._scalar_warned = False
        WARNED_ONCE.clear()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                exec(code, self.names)
                if waits and self.module is gradwire:
                    gradwire.sync()
            except Exception as error:  # noqa: BLE001 - whatever is raised is what is compared
                self.error = error.with_traceback(None)
        if self.module is torch and "autograd" in code.co_names:
            self._densify_gradients(self.names.keys() - before)
        self.names.pop("q", None)
        self.warned = sorted({each.category.__name__ for each in caught if each.category is not DeprecationWarning})

    def _densify_gradients(self, names: Iterable[str]) -> None:
        """Copy results of autograd.grad that PyTorch leaves expanded; gradwire's are dense (coming-from-pytorch.md)."""
        for name in names:
            if isinstance(self.names[name], tuple):
                dense = {id(each): _dense(each) for each in self.names[name]}  # a tensor given twice stays one
                self.names[name] = tuple([dense[id(each)] for each in self.names[name]])

    def tensors(self) -> dict[str, Any]:
        """The live tensors by the expressions that name them."""
        found: dict[str, Any] = {}
        for name, value in self.names.items():
            if name[0] != "r" or not name[1:].isdecimal():
                continue
            if isinstance(value, self.module.Tensor):
                found[name] = value
            elif isinstance(value, tuple | list):
                parts = {f"{name}[{place}]": each for place, each in enumerate(value[:3])}
                found.update({key: each for key, each in parts.items() if isinstance(each, self.module.Tensor)})
        return found

    def plain(self) -> dict[str, Any]:
        """Results that are no tensors."""
        kept = {name: value for name, value in self.names.items() if name[0] == "r" and name[1:].isdecimal()}
        return {name: _plain(value) for name, value in kept.items()} | {"seen": list(self.names["seen"])}


def _dense(value: Any) -> Any:
    """A tensor without history whose elements share memory, copied; any other value as it is."""
    expanded = isinstance(value, torch.Tensor) and value.numel() > 1 and 0 in value.stride()
    return value.contiguous() if expanded and not value.requires_grad else value


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor | gradwire.Tensor):
        return "a tensor"
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, bool | int | float | complex | str) or value is None:
        return value
    return str(value).removeprefix("torch.").removeprefix("gradwire.")


def _kind(error: BaseException | None) -> type[BaseException] | None:
    """The built-in class that an exception is of."""
    if error is None:
        return None
    return next(cls for cls in type(error).__mro__ if cls.__module__ == "builtins")


def _coarsest(side: Side) -> float:
    dtypes = {str(each.dtype)[6:] for each in side.tensors().values()}
    return max((TOLERANCE.get(name, 0.0) for name in dtypes), default=0.0)


def _too_large(side: Side) -> bool:
    for each in side.tensors().values():
        values = look(each)["values"]
        if values.dtype.kind in "fc" and (np.abs(values[np.isfinite(values)]) > LARGEST).any():
            return True
    return False


def draw(seed: int, most: int) -> list[str]:
    """The lines of the program of this seed: up to so many."""
    writer, side = Writer(seed), Side(torch)
    lines: list[str] = []
    with torch.random.fork_rng(devices=[]):
        while len(lines) < most:
            writer.number = len(lines)
            writer.live = side.tensors()
            line = writer.line()
            try:
                code = compile(line, "<drawn>", "exec")
            except SyntaxError:
                continue
            lines.append(line)
            side.run(code)
            writer.optimizers = [name for name in writer.optimizers if name in side.names]
            if known.ends(line, side.error) or _too_large(side):
                break
    return lines


def compare(lines: list[str]) -> Difference | None:
    """The first difference of a program, whose tensors are looked at after every line; then of its repeat."""
    its, mine = Side(torch), Side(gradwire)
    coarsest = 0.0
    done: list[tuple[str, CodeType, bool]] = []
    for at, line in enumerate(lines):
        code = compile(line, "<drawn>", "exec")
        its.run(code)
        mine.run(code)
        outcome = _outcome(mine, its)
        coarsest = max(coarsest, _coarsest(its), TOLERANCE["float32"] if "out=" in line else 0.0)
        over = known.ends(line, its.error)
        found = outcome or ([] if over else _states(mine, its, coarsest))
        over = over or mine.lies_otherwise
        what = [one for one in found if not known.excused(line, lines, one)]
        if known.is_rounded_apart(line, what, its.tensors()):
            return None
        if what:
            return Difference(at, line, what, lines[: at + 1])
        if over or outcome:
            return None
        done.append((line, code, its.error is not None))
    return _repeat(done, its, coarsest)


def _repeat(done: list[tuple[str, CodeType, bool]], its: Side, coarsest: float) -> Difference | None:
    """The difference of the same lines run once more by gradwire, which defers them now and is looked at at the end."""
    mine = Side(gradwire)
    lines = [line for line, _, _ in done]
    for at, (line, code, refused) in enumerate(done):
        mine.run(code, waits=refused or at + 1 == len(done))
        if (mine.error is not None) is not refused:
            return Difference(at, line, [("loud" if mine.error else "silent", f"when repeated: {mine.error!r}")], lines)
    what = _states(mine, its, coarsest)
    what = [
        (kind, f"when repeated: {text}") for kind, text in what if not known.excused(lines[-1], lines, (kind, text))
    ]
    return Difference(len(lines) - 1, lines[-1], what, lines) if what else None


def _outcome(mine: Side, its: Side) -> list[tuple[str, str]]:
    one, other = mine.error, its.error
    if other is None and one is not None:
        return [("loud", f"{type(one).__name__}: {one}; PyTorch raises nothing")]
    if one is None and other is not None:
        return [("silent", f"no error, PyTorch raises {type(other).__name__}: {other}")]
    if other is not None and not isinstance(one, _kind(other)):  # type: ignore[arg-type]
        return [("kind", f"{type(one).__name__}: {one}; PyTorch raises {type(other).__name__}: {other}")]
    if mine.warned != its.warned:
        return [("warning", f"warns {mine.warned}, PyTorch {its.warned}")]
    return []


def _states(mine: Side, its: Side, coarsest: float) -> list[tuple[str, str]]:
    ours, theirs = mine.tensors(), its.tensors()
    with fetched(each for name, each in ours.items() if name in theirs):
        found = _differences(mine, its, ours, theirs, coarsest)
    of_ours, of_theirs = mine.plain(), its.plain()
    for name, value in of_theirs.items():
        seen = differ_plain(of_ours.get(name), value, coarsest)
        found.extend((kind, f"{name}: {text}") for kind, text in seen)
    return found


def _differences(
    mine: Side, its: Side, ours: dict[str, Any], theirs: dict[str, Any], coarsest: float
) -> list[tuple[str, str]]:
    """The differences between the tensors of both."""
    found = []
    for name in theirs:
        if name not in ours:
            found.append(("value", f"{name} is no tensor"))
            continue
        try:
            one = look(ours[name])
        except RuntimeError as error:
            found.append(("loud", f"{name} cannot be read: {error}"))
            continue
        other = look(theirs[name])
        mine.lies_otherwise |= known.align(one, other, theirs[name], list(theirs.values()), its.births)
        mine.lies_otherwise |= known.lies_otherwise(one, other)
        seen = differ(one, other, coarsest)
        found.extend((kind, f"{name}: {text}") for kind, text in seen)
    return found


def shrink(difference: Difference) -> Difference:
    """The same difference, by class, of fewer lines."""
    worst = difference.what[0][0]
    best = difference
    place = len(best.program) - 2
    while place >= 0:
        shorter = compare([*best.program[:place], *best.program[place + 1 :]])
        if shorter is not None and shorter.line == best.line and shorter.what[0][0] == worst:
            best = shorter
        place = min(place, len(best.program) - 1) - 1
    return best


def compare_seeds(seeds: range) -> tuple[int, list[tuple[int, Difference]]]:
    """Compare the programs of these seeds. Returns the count of their lines, and each difference with its seed."""
    torch.set_warn_always(True)
    warnings.simplefilter("ignore")
    lines, found = 0, []
    with contextlib.closing(gradwire.connect()):
        for seed in seeds:
            drawn = draw(seed, 10 + seed % 5)
            lines += len(drawn)
            difference = compare(drawn)
            if difference is not None:
                found.append((seed, shrink(difference)))
    return lines, found
