"""torch.jit: scripting and tracing return the function or module unchanged, with a warning. Python runs it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from gradwire._base.refused import refusal, refused
from gradwire._base.wiring import names_of_paths
from gradwire._tensor.warnings import warn_once
from gradwire.nn import Module
from gradwire.nn.parameter import is_lazy

__all__ = [
    "Attribute",
    "Error",
    "Final",
    "ScriptFunction",
    "ScriptModule",
    "annotate",
    "export",
    "fork",
    "freeze",
    "ignore",
    "interface",
    "is_scripting",
    "is_tracing",
    "isinstance",
    "load",
    "optimize_for_inference",
    "save",
    "script",
    "script_if_tracing",
    "script_method",
    "trace",
    "trace_module",
    "unused",
    "wait",
]

F = TypeVar("F")
__getattr__ = names_of_paths(__name__)
_WHY = "Python runs functions and modules here; use torch.save(model.state_dict(), path), and torch.compile for speed"
_UNCHANGED = "gradwire has no TorchScript: torch.jit.{} returns its argument unchanged. Use torch.compile for speed."
_is_instance = isinstance

load = refused("jit.load", _WHY)
RecursiveScriptModule = refused("jit.RecursiveScriptModule", _WHY)
TopLevelTracedModule = refused("jit.TopLevelTracedModule", _WHY)


class Error(RuntimeError):
    """An error of a scripted function: never raised here."""


class TracerWarning(Warning):
    """A warning of tracing: never given here."""


class ScriptFunction:
    """Class of scripted functions: there are none."""


class ScriptModule(Module):
    """A module; its methods run as Python."""


def is_scripting() -> bool:
    """False."""
    return False


def is_tracing() -> bool:
    """False."""
    return False


def script(obj: F, *args: Any, **options: Any) -> F:
    """Return the function, class or module unchanged, and warn once per process (torch.jit.script).

    Raises RuntimeError for a module with parameters or buffers without sizes.
    """
    module: Any = obj
    if _is_instance(obj, Module) and any(is_lazy(each) for each in (*module.parameters(), *module.buffers())):
        raise RuntimeError("Modules that have uninitialized parameters can't be scripted: run a forward pass first")
    warn_once(_UNCHANGED.format("script"))
    return obj


def trace(func: F, example_inputs: Any = None, *args: Any, **options: Any) -> F:
    """Return the function or module unchanged, and warn once per process (torch.jit.trace)."""
    warn_once(_UNCHANGED.format("trace"))
    return func


def trace_module(mod: F, inputs: Any, *args: Any, **options: Any) -> F:
    """Return the module unchanged, and warn once per process (torch.jit.trace_module)."""
    warn_once(_UNCHANGED.format("trace_module"))
    return mod


def freeze(mod: F, *args: Any, **options: Any) -> F:
    """Return the module unchanged."""
    return mod


def optimize_for_inference(mod: F, *args: Any, **options: Any) -> F:
    """Return the module unchanged."""
    return mod


def save(m: Any, f: Any, *args: Any, **options: Any) -> None:
    """Raise NotImplementedError: there is no scripted module to save."""
    raise refusal("jit.save", _WHY)


def script_if_tracing(fn: F) -> F:
    """Return the function unchanged: nothing is traced."""
    return fn


def script_method(fn: F) -> F:
    """Return the method unchanged."""
    return fn


def export(fn: F) -> F:
    """Return the method unchanged."""
    return fn


def interface(obj: F) -> F:
    """Return the class unchanged."""
    return obj


def unused(fn: F) -> F:
    """Return the function unchanged."""
    return fn


def ignore(drop: Any = False, **options: Any) -> Any:
    """Return the function unchanged; with arguments, a decorator that does so."""
    return drop if callable(drop) else lambda fn: fn


def annotate(the_type: Any, the_value: F) -> F:
    """Return the value."""
    return the_value


def Attribute(value: F, type: Any = None) -> F:
    """Return the value."""
    return value


def isinstance(obj: Any, target_type: Any) -> bool:
    """Whether an object is of a type; of a generic type, whether it is of its origin."""
    targets = target_type if _is_instance(target_type, tuple) else (target_type,)
    return any(_is_instance(obj, getattr(target, "__origin__", target)) for target in targets)


def fork(func: Callable[..., F], *args: Any, **kwargs: Any) -> F:
    """Call the function at once; its result is what `wait` returns."""
    return func(*args, **kwargs)


def wait(future: F) -> F:
    """Return the result of `fork`."""
    return future


def set_fusion_strategy(strategy: Any) -> list[Any]:
    """Do nothing: nothing is fused here by TorchScript."""
    return []


@contextlib.contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    """Do nothing."""
    yield


@contextlib.contextmanager
def fuser(name: str) -> Iterator[None]:
    """Do nothing."""
    yield


def _overload(fn: F) -> F:
    """Return the function unchanged: overloads are for scripting."""
    return fn


_overload_method = _overload
_script_if_tracing = script_if_tracing
_fork = fork
_wait = wait


def _copy_to_script_wrapper(fn: F) -> F:
    """Return the method unchanged."""
    return fn
