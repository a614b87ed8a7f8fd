"""The examples of PyTorch's docstrings, run with PyTorch and with gradwire as `torch`.

`python -m tests.parity.docstrings [NAME…]` counts the docstrings whose examples print the same, to 3 digits. Examples
that PyTorch refuses, that print something else each time, or that need a GPU or a network are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import doctest
import importlib
import inspect
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MODULES = (
    "torch", "torch.Tensor", "torch.nn", "torch.nn.functional", "torch.nn.init", "torch.nn.utils", "torch.nn.utils.rnn",
    "torch.nn.utils.parametrize", "torch.nn.utils.parametrizations", "torch.nn.utils.prune", "torch.linalg",
    "torch.fft", "torch.special", "torch.optim", "torch.optim.lr_scheduler", "torch.optim.swa_utils", "torch.autograd",
    "torch.autograd.graph", "torch.autograd.functional", "torch.autograd.forward_ad", "torch.func", "torch.sparse",
    "torch.distributions", "torch.masked", "torch.signal.windows", "torch.utils.data", "torch.utils.checkpoint",
    "torch.utils.dlpack", "torch.testing", "torch.overrides", "torch.random",
)  # fmt: skip
#: Words of examples that are left out: other devices, networks, compilers, memory that nothing was written to.
_LEFT_OUT = re.compile(
    r"cuda|xpu|\bmps\b|\bnpu\b|hub\.|distributed|\bdist\.|\brpc\b|onnx|jit\.|torch\.compile|dynamo|make_fx|download|"
    r"empty|mkldnn|vulkan|multiprocessing|\+SKIP|skip\(|resize_|torch\.Tensor\(\d|thread"
)
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_FUNCTION = re.compile(r"<(?:built-in method|function) (\w+) (?:of type object )?at 0x[0-9a-f]+>")
_SECONDS = 60


@dataclasses.dataclass
class Printed:
    """What an example came to."""

    text: str
    error: str = ""


def docstrings() -> dict[str, list[str]]:
    """The sources of the examples of each docstring of PyTorch that has some, by the first name that has it."""
    found: dict[str, list[str]] = {}
    seen: set[str] = set()
    for path, doc in _docs():
        if doc in seen:
            continue
        seen.add(doc)
        try:
            examples = [one.source for one in doctest.DocTestParser().get_examples(doc)]
        except ValueError:
            continue
        if examples:
            found[path] = examples
    return found


def _docs() -> Iterator[tuple[str, str]]:
    for path in MODULES:
        value = importlib.import_module("torch").Tensor if path == "torch.Tensor" else importlib.import_module(path)
        for attribute in sorted(dir(value)):
            member = getattr(value, attribute, None)
            home = getattr(member, "__module__", None) or "torch"
            if attribute.startswith("_") or inspect.ismodule(member) or not str(home).startswith("torch"):
                continue
            for name, one in ((f"{path}.{attribute}", member), *_methods(f"{path}.{attribute}", member)):
                doc = getattr(one, "__doc__", None)
                if isinstance(doc, str) and ">>>" in doc:
                    yield name, doc


def _methods(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if inspect.isclass(value):
        yield from ((f"{path}.{name}", one) for name, one in vars(value).items() if not name.startswith("_"))


def run(sources: list[str], torch: Any) -> list[Printed]:
    """Run a docstring's examples one after another; an example that fails does not end them."""
    import numpy

    torch.manual_seed(0)
    numpy.random.seed(0)
    torch.set_default_dtype(torch.float32)
    torch.set_printoptions(profile="default")
    torch.set_grad_enabled(True)
    torch.set_default_device(None)
    places: dict[str, Any] = {"torch": torch, "np": numpy, "nn": torch.nn, "F": torch.nn.functional}
    places["math"] = importlib.import_module("math")
    return [_one(source, places) for source in sources]


def _one(source: str, places: dict[str, Any]) -> Printed:
    out = io.StringIO()
    hook, sys.displayhook = sys.displayhook, lambda value: out.write(f"{value!r}\n") if value is not None else None
    try:
        with contextlib.redirect_stdout(out):
            exec(compile(source, "<example>", "single"), places)
    except _Late:
        raise
    except Exception as error:  # noqa: BLE001 - whatever an example raises is its outcome
        return Printed(out.getvalue(), f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
    finally:
        sys.displayhook = hook
    return Printed(out.getvalue())


class _Late(BaseException):
    """The time of a docstring is over."""


def _ended(*_: Any) -> None:
    raise _Late


def serve(log: Path) -> None:
    """Run the docstrings of the file with the `torch` of this process and add what they printed."""
    import torch

    work = json.loads(log.read_text())
    signal.signal(signal.SIGALRM, _ended)
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        os.chdir(folder)
        for one in work.values():
            try:
                signal.alarm(_SECONDS)
                one["printed"] = [dataclasses.asdict(each) for each in run(one["sources"], torch)]
            except _Late:
                one["printed"] = [{"text": "", "error": "no end in time"}] * len(one["sources"])
            finally:
                signal.alarm(0)
        os.chdir("/")
    log.write_text(json.dumps(work))


def _ran(work: dict[str, Any], ours: bool) -> dict[str, list[dict[str, str]]]:
    """What the docstrings print in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "work.json"
        log.write_text(json.dumps(work))
        command = [sys.executable, "-W", "ignore", "-m", "tests.parity.docstrings", "--serve", str(log)]
        subprocess.run([*command, *(["--ours"] if ours else [])], check=True, stdout=subprocess.DEVNULL)
        return {name: one["printed"] for name, one in json.loads(log.read_text()).items()}


def _agree(theirs: str, ours: str) -> bool:
    """Whether two texts have the same words and, to 3 digits, the same numbers."""
    theirs, ours = (_FUNCTION.sub(r"<function \1>", text.replace("gradwire", "torch")) for text in (theirs, ours))
    theirs, ours = (re.sub(r"0x[0-9a-f]+", "", text) for text in (theirs, ours))
    if re.sub(r"\s", "", _NUMBER.sub("#", theirs)) != re.sub(r"\s", "", _NUMBER.sub("#", ours)):
        return False
    pairs = zip(_NUMBER.findall(theirs), _NUMBER.findall(ours), strict=True)
    return all(abs(float(a) - float(b)) <= 1e-3 * max(1.0, abs(float(a))) for a, b in pairs)


def compare(names: list[str]) -> None:
    """Run all docstrings, or those named, with both libraries; print those that differ, and how many agree."""
    found = {name: sources for name, sources in docstrings().items() if not names or name in names}
    work = {name: {"sources": sources} for name, sources in found.items()}
    first, again, ours = _ran(work, False), _ran(work, False), _ran(work, True)
    counted = agreeing = examples = same = 0
    for name, sources in found.items():
        outcomes = []
        for source, one, other, mine in zip(sources, first[name], again[name], ours[name], strict=True):
            if one["error"] or not _agree(one["text"], other["text"]) or _LEFT_OUT.search(source):
                continue
            agrees = not mine["error"] and _agree(one["text"], mine["text"])
            outcomes.append(agrees)
            if not agrees:
                texts = (source, mine["error"] or mine["text"], one["text"])
                print("\n    ".join([f"{name}: {texts[0].strip()}", *(text.strip() for text in texts[1:])]))
        if outcomes:
            counted, agreeing = counted + 1, agreeing + all(outcomes)
            examples, same = examples + len(outcomes), same + sum(outcomes)
    print(f"{agreeing} of {counted} docstrings ({agreeing / max(counted, 1):.1%}), {same:,} of {examples:,} examples")


def main() -> None:
    """Compare, or serve a process of the comparison."""
    parser = argparse.ArgumentParser(prog="python -m tests.parity.docstrings", description=__doc__)
    parser.add_argument("names", nargs="*", help="docstrings, such as torch.topk; all without")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--ours", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ours:
        importlib.import_module("gradwire").alias()
    if options.serve:
        serve(options.serve)
    else:
        compare(options.names)


if __name__ == "__main__":
    main()
