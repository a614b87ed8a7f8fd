"""Usage tracker: records what a call of a user's function uses: names looked up, code run, functions called in C.

A trace function sees every instruction of the user's code; a profile function sees every call. A name therefore
counts only if the call reached it: names in a branch not taken do not count.
"""

from __future__ import annotations

import dis
import sys
import types
from functools import cache
from typing import Any

from gradwire._base.call_site import INTERNAL, describe_call_site
from gradwire._base.signals import handlers_running
from gradwire._base.watching import WATCHER
from gradwire._compile.purity import (
    FORMATS,
    LEADS_ELSEWHERE,
    LIBRARY,
    READS_ALL,
    TRUSTED,
    is_distrusted_here,
    is_outside,
    is_pure,
    reads_all,
)

_GLOBAL = ("_GLOBAL", "_NAME", "_GLOBALS")
_ATTRIBUTE = ("_ATTR", "_METHOD", "IMPORT_FROM")
#: Functions of optimizers and schedulers that may be called without reading learning rates or step counts.
_STEPPING = frozenset(("hooked", "step", "zero_grad", "__init__", "__setstate__", "register_step_post_hook"))
#: Functions of importlib that an import statement calls.
_IMPORTING = frozenset(("_find_and_load", "_handle_fromlist", "_lock_unlock_module", "__getattr__"))
_CALLS = frozenset(("call", "c_call"))
#: Functions written in C whose calls count if this package makes them, too.
_NOTED = frozenset(("warn", "_abc_instancecheck", "_abc_subclasscheck"))
_RATES = frozenset(("param_groups", "state", "defaults", "_last_lr", "base_lrs"))


class CallUsage:
    """Everything one call used. `reads_all` tells that it may have read any attribute."""

    def __init__(self) -> None:
        #: Code that ran, with the globals it ran in.
        self.codes: dict[types.CodeType, list[dict[str, Any]]] = {}
        self.attributes: set[str] = set()
        self.cells: set[str] = set()
        #: By id of a globals dictionary: the dictionary, and the names looked up in it.
        self.globals: dict[int, tuple[dict[str, Any], set[str]]] = {}
        self.modules: set[str] = set()
        self.reads_all = False
        self.reads_rates = False
        #: Whether it ran an instance check on an abstract class, whose registry cannot be inspected.
        self.reads_abstract = False
        #: The first thing it did that no guard covers, with its line.
        self.obstacle: str | None = None
        self.call_sites: dict[str, tuple[types.CodeType, int]] = {}

    def add_code(self, code: types.CodeType, offsets: set[int] | None) -> None:
        """Record the names that the instructions at `offsets` look up; None means all instructions."""
        for offset, kind, name in _names(code):
            if offsets is not None and offset not in offsets:
                continue
            self.call_sites.setdefault(name, (code, offset))
            if kind == "global":
                for held in self.codes.get(code, ()):
                    self.globals.setdefault(id(held), (held, set()))[1].add(name)
            elif kind == "attribute":
                self.attributes.add(name)
            elif kind == "cell":
                self.cells.add(name)
            elif kind == "module":
                self._add_module(code, name)
            else:
                self.reads_all = True
            if kind in ("attribute", "global") and name in READS_ALL:
                self.reads_all = True
            if kind == "attribute" and name in LEADS_ELSEWHERE:
                self.obstruct(f"it reads {name}, behind which anything may be{self.where(name)}")

    def _add_module(self, code: types.CodeType, name: str) -> None:
        parts = name.split(".")
        self.modules.update(".".join(parts[: count + 1]) for count in range(len(parts)))
        self.attributes.update(parts[1:])
        for held in self.codes.get(code, ()):
            package = held.get("__package__")
            if package:
                self.modules.add(f"{package}.{name}" if name else package)

    def obstruct(self, why: str) -> None:
        """Record why no guard covers the call; only the first reason is kept."""
        if self.obstacle is None:
            self.obstacle = why

    def finish(self) -> None:
        """Derive `reads_rates` from the names."""
        self.reads_rates = self.reads_rates or self.reads_all or bool(self.attributes & _RATES)

    def where(self, name: str) -> str:
        """Line where a name was looked up, as text; empty if unknown."""
        call_site = self.call_sites.get(name)
        return "" if call_site is None else "\n  " + describe_call_site(*call_site)


class UsageTracker:
    """Context that watches this thread and records what it uses in `usage`."""

    def __init__(self) -> None:
        self.usage = CallUsage()
        self._offsets: dict[types.CodeType, set[int]] = {}
        self._traces = False
        self._profiler: Any = None
        self._tracer: Any = None
        # One object each, so that identity tells whether they are still set.
        self._watch, self._trace_function = self._profile, self._trace
        # Actions of a signal handler are not the function's.
        self._handlers = handlers_running()

    def __enter__(self) -> UsageTracker:
        self._tracer = sys.gettrace()
        self._profiler = sys.getprofile()
        if self._profiler is not None and hasattr(self._profiler, "disable"):
            self._profiler.disable()
        # A debugger's trace function stays installed; then all names of the code that ran count.
        self._traces = self._tracer is None
        self._outer = WATCHER.profile, WATCHER.trace
        WATCHER.profile, WATCHER.trace = self._watch, self._trace_function if self._traces else None
        if self._traces:
            sys.settrace(self._trace_function)
        sys.setprofile(self._watch)
        return self

    def __exit__(self, *exc: object) -> None:
        WATCHER.profile, WATCHER.trace = self._outer
        if sys.getprofile() is not self._watch or (self._traces and sys.gettrace() is not self._trace_function):
            self.usage.obstruct("it was not seen to its end: a trace or profile function was exchanged meanwhile")
        if self._profiler is not None and hasattr(self._profiler, "enable"):
            sys.setprofile(None)
            self._profiler.enable()
        else:
            sys.setprofile(self._profiler)
        if self._traces:
            sys.settrace(None)
        for code in self.usage.codes:
            self.usage.add_code(code, self._offsets.get(code, set()) if self._traces else None)
        self.usage.finish()

    def _trace(self, frame: types.FrameType, event: str, arg: Any) -> Any:
        if handlers_running() != self._handlers or _is_trusted(frame):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        offsets = self._offsets.setdefault(frame.f_code, set())

        def each(frame: types.FrameType, event: str, arg: Any) -> Any:
            if event == "opcode":
                offsets.add(frame.f_lasti)
            elif event == "exception" and issubclass(arg[0], ImportError):
                self._obstruct("it imports a missing module", frame)
            return each

        return each

    def _profile(self, frame: types.FrameType, event: str, arg: Any) -> None:
        if event not in _CALLS or _is_ordinary(frame, event, arg) or handlers_running() != self._handlers:
            return
        if event == "call":
            code = frame.f_code
            if _is_trusted(frame):
                self._enter(code, frame)
                return
            held = self.usage.codes.setdefault(code, [])
            if not any(each is frame.f_globals for each in held):
                held.append(frame.f_globals)
        elif event == "c_call":
            if _is_trusted(frame):
                self._call_by_trusted(frame, arg)
            elif reads_all(arg):
                self.usage.reads_all = True
            elif not is_pure(arg):
                self._obstruct(f"it calls {_title(arg)}(), which depends on or changes more than its arguments", frame)

    def _call_by_trusted(self, frame: types.FrameType, called: Any) -> None:
        name, filename = called.__name__, frame.f_code.co_filename
        if name == "warn" and called.__module__ == "_warnings":
            self._obstruct("it warns", frame)
        elif name in ("_abc_instancecheck", "_abc_subclasscheck"):
            asker = frame.f_back
            if asker is not None and not INTERNAL[asker.f_code.co_filename]:
                self.usage.reads_abstract = True
        elif is_outside(called) and not filename.startswith("<frozen importlib") and not _is_ours(frame):
            self._obstruct(f"it calls {_title(called)}(), which depends on or changes more than its arguments", frame)

    def _enter(self, code: types.CodeType, frame: types.FrameType) -> None:
        """Record a call of trusted code by untrusted code."""
        called_by = frame.f_back
        if called_by is None or _is_trusted(called_by):
            return
        if "importlib" in code.co_filename and code.co_name not in _IMPORTING:
            self._obstruct(f"it calls importlib's {code.co_name}()", frame)
        if code.co_name in READS_ALL or (code.co_name == "__instancecheck__" and "typing" in code.co_filename):
            self.usage.reads_all = True
        if INTERNAL[code.co_filename]:
            if is_distrusted_here(code.co_filename) or (
                code.co_filename.endswith("legacy.py") and code.co_name.startswith(("get_", "set_", "are_", "use_"))
            ):
                self._obstruct(f"it calls {code.co_name}(), which depends on or changes state outside", frame)
            elif code.co_name not in _STEPPING and "optim" in code.co_filename:
                self.usage.reads_rates = True

    def _obstruct(self, why: str, frame: types.FrameType | None) -> None:
        if self.usage.obstacle is not None:
            return
        while frame is not None and TRUSTED[frame.f_code.co_filename]:
            frame = frame.f_back
        where = "" if frame is None else "\n  " + describe_call_site(frame.f_code, frame.f_lasti)
        self.usage.obstruct(why + where)


def _is_ordinary(frame: types.FrameType, event: str, arg: Any) -> bool:
    """Whether this is one of the many calls between trusted code, or from this package to C, which mean nothing."""
    filename = frame.f_code.co_filename
    if not TRUSTED[filename]:
        return False
    if event == "c_call":
        return INTERNAL[filename] and arg.__name__ not in _NOTED
    called_by = frame.f_back
    return called_by is None or TRUSTED[called_by.f_code.co_filename]


def _is_trusted(frame: types.FrameType) -> bool:
    """Whether a frame's code depends only on its arguments, or is installed code that this package called."""
    at: types.FrameType | None = frame
    if TRUSTED[frame.f_code.co_filename]:
        return True
    if frame.f_code.co_filename == "<string>":  # possibly generated by dataclasses or namedtuple for a trusted module
        return _is_trusted_text(frame.f_globals)
    while at is not None and LIBRARY[at.f_code.co_filename]:
        if INTERNAL[at.f_code.co_filename] or at.f_code.co_filename.startswith("<frozen importlib"):
            return True
        at = at.f_back
    return False


def _is_ours(frame: types.FrameType | None) -> bool:
    """Whether a frame of installed code was called by this package, through installed code only."""
    while frame is not None and LIBRARY[frame.f_code.co_filename]:
        if INTERNAL[frame.f_code.co_filename]:
            return True
        frame = frame.f_back
    return False


def _is_trusted_text(held: dict[str, Any]) -> bool:
    """Whether code without a file was generated for a namedtuple or belongs to a trusted module."""
    if held.get("__builtins__") == {} and str(held.get("__name__")).startswith("namedtuple_"):
        return True
    source = held.get("__file__")
    return isinstance(source, str) and TRUSTED[source]


def _title(function: Any) -> str:
    module = getattr(function, "__module__", None)
    name = str(getattr(function, "__qualname__", function.__name__))
    return name if module in (None, "builtins") else f"{module}.{name}"


@cache
def _names(code: types.CodeType) -> tuple[tuple[int, str, str], ...]:
    """For each instruction that looks up a name: its offset, the kind of name, the name."""
    found: list[tuple[int, str, str]] = []
    prefix: list[int] = []
    for each in dis.get_instructions(code):
        if each.opname == "EXTENDED_ARG":
            prefix.append(each.offset)
            continue
        kind = _kind(each.opname)
        if each.opname == "LOAD_ATTR" and each.argval in FORMATS:
            kind = "all"  # C code may call it, which the trace function does not see
        if kind is not None:
            found.extend((offset, kind, str(each.argval)) for offset in (*prefix, each.offset))
        prefix.clear()
    return tuple(found)


def _kind(name: str) -> str | None:
    if name == "IMPORT_NAME":
        return "module"
    if name == "MATCH_CLASS":
        return "all"
    if name.endswith(_ATTRIBUTE):
        return "attribute"
    if name.endswith(("DEREF", "CLASSDEREF")):
        return "cell"
    return "global" if name.endswith(_GLOBAL) else None
