"""A module's state as a dictionary: collected by `state_dict` and loaded by `load_state_dict`.

Loading checks everything before it copies, so a refused dictionary does not change the module.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from gradwire._base.modes import no_grad
from gradwire._tensor.tensor import Tensor
from gradwire.nn._parameter import Parameter, set_owner

if TYPE_CHECKING:
    from gradwire.nn._module import Module


class IncompatibleKeys(NamedTuple):
    """What `load_state_dict(strict=False)` passed over."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"_IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"

    def __str__(self) -> str:
        return repr(self)


def _tensor_owners(module: Module, prefix: str = "") -> list[tuple[str, Module, str]]:
    """Each state tensor's path, the module that holds it, and its name there; shared ones under every path."""
    owners = []
    for path, holder in module.named_modules(prefix=prefix.removesuffix("."), remove_duplicate=False):
        lead = f"{path}." if path else ""
        for name, param in holder._parameters.items():
            if param is not None:
                owners.append((lead + name, holder, name))
        for name, buffer in holder._buffers.items():
            if buffer is not None and name not in holder._non_persistent_buffers:
                owners.append((lead + name, holder, name))
    return owners


def collect(module: Module, prefix: str, keep_vars: bool) -> OrderedDict[str, Tensor]:
    """The state by path; see Module.state_dict."""
    state: OrderedDict[str, Tensor] = OrderedDict()
    for path, holder, name in _tensor_owners(module, prefix):
        held: Tensor = getattr(holder, name)
        state[path] = held if keep_vars else held.detach()
    return state


def load(module: Module, state: Any, strict: bool, assign: bool) -> IncompatibleKeys:
    """Take a dictionary's values; see Module.load_state_dict."""
    if not isinstance(state, Mapping):
        raise TypeError(f"Expected state_dict to be dict-like, got {type(state)}.")
    owners = _tensor_owners(module)
    paths = {path for path, _, _ in owners}
    missing = [path for path, _, _ in owners if path not in state]
    unexpected = [path for path in state if path not in paths]
    found = [(path, holder, name, state[path]) for path, holder, name in owners if path in state]
    problems = [problem for path, holder, name, value in found if (problem := _mismatch(path, holder, name, value))]
    if strict and unexpected:
        problems.insert(0, "Unexpected key(s) in state_dict: " + ", ".join(f'"{key}"' for key in unexpected) + ".")
    if strict and missing:
        problems.insert(0, "Missing key(s) in state_dict: " + ", ".join(f'"{key}"' for key in missing) + ".")
    if problems:
        raise RuntimeError(f"Error(s) in loading state_dict for {module._get_name()}:\n\t" + "\n\t".join(problems))
    with no_grad():
        for _, holder, name, value in found:
            _take(holder, name, value, assign)
    return IncompatibleKeys(missing, unexpected)


def _mismatch(path: str, holder: Module, name: str, value: Any) -> str | None:
    current = getattr(holder, name)
    if not isinstance(value, Tensor):
        return (
            f'While copying the parameter named "{path}", expected gradwire.Tensor from checkpoint '
            f"but received {type(value)}."
        )
    if value.shape != current.shape:
        return (
            f"size mismatch for {path}: copying a param with shape {value.shape} from checkpoint, "
            f"the shape in current model is {current.shape}."
        )
    return None


def _take(holder: Module, name: str, value: Tensor, assign: bool) -> None:
    current: Tensor = getattr(holder, name)
    if not assign:
        current.copy_(value)
    elif isinstance(current, Parameter):
        made = value if isinstance(value, Parameter) else Parameter(value)
        made.requires_grad_(current.requires_grad)
        holder._parameters[name] = made
        set_owner(made, holder, name)
    else:
        holder._buffers[name] = value
