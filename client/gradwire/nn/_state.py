"""A module's state as a dictionary: collected by `state_dict` and loaded by `load_state_dict`.

Loading checks everything before it copies, so a refused dictionary does not change the module.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from gradwire._base.modes import no_grad
from gradwire._graph.hooks import RemovableHandle, add_hook
from gradwire._tensor.tensor import Tensor
from gradwire.nn._parameter import Parameter, is_lazy, set_owner

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


#: The attributes of a module that hold its hooks of `state_dict` and `load_state_dict`.
HOOKS = (
    "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
    "_load_state_dict_pre_hooks_with_module",
)  # fmt: skip
EXTRA_STATE_KEY = "_extra_state"
# The copies that the running `load_state_dict` makes once nothing is refused; None outside of it.
_copies: ContextVar[list[tuple[Any, str, Tensor, bool]] | None] = ContextVar("_copies", default=None)


class StateHooks:
    """How a module takes part in saving and loading: methods that subclasses override, and hooks."""

    #: The version of the state's form, which is stored beside it.
    _version = 1
    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _modules: dict[str, Any]
    _non_persistent_buffers_set: set[str]
    _state_dict_hooks: dict[int, Any]
    _state_dict_pre_hooks: dict[int, Any]
    _load_state_dict_pre_hooks: dict[int, Any]
    #: Numbers of those that get the module. The hooks hold no reference to it, so no cycle keeps it alive.
    _load_state_dict_pre_hooks_with_module: dict[int, bool]
    _load_state_dict_post_hooks: dict[int, Any]

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, prefix, keep_vars)` before `state_dict`."""
        return add_hook(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, local_metadata)` after `state_dict`; it may change the dictionary."""

        def checked(*args: Any) -> None:
            if hook(*args) is not None:
                raise RuntimeError("state_dict post-hook must return None")

        with suppress(AttributeError):  # bound methods take no attributes
            hook._from_public_api = True  # type: ignore[attr-defined]
        return add_hook(self._state_dict_hooks, checked)

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """The same; a result other than None replaces the dictionary."""
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError(
                "Cannot register the same function as the state dict post hook that was previously registered via "
                "register_state_dict_post_hook"
            )
        return add_hook(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, metadata, strict, missing, unexpected, errors)` before loading."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], with_module: bool = False
    ) -> RemovableHandle:
        """The same; the hook gets the module only `with_module`."""
        marks = [self._load_state_dict_pre_hooks_with_module] if with_module else []
        return add_hook(self._load_state_dict_pre_hooks, hook, marks=marks)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, incompatible_keys)` after loading; it may change the lists of keys."""
        return add_hook(self._load_state_dict_post_hooks, hook)

    def get_extra_state(self) -> Any:
        """Further state, which `state_dict` stores: for subclasses to define."""
        raise RuntimeError("Reached a code path in Module.get_extra_state() that should never be called.")

    def set_extra_state(self, state: Any) -> None:
        """Take what `get_extra_state` gave: for subclasses to define."""
        raise RuntimeError("Reached a code path in Module.set_extra_state() that should never be called.")

    def _own_state(self) -> dict[str, Tensor]:
        """Parameters and persistent buffers of this module alone."""
        buffers = {name: each for name, each in self._buffers.items() if name not in self._non_persistent_buffers_set}
        return {name: each for name, each in {**self._parameters, **buffers}.items() if each is not None}

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Store this module's own state, without that of submodules."""
        for name, held in self._own_state().items():
            destination[prefix + name] = held if keep_vars or is_lazy(held) else held.detach()
        if _has_extra_state(self):
            destination[prefix + EXTRA_STATE_KEY] = self.get_extra_state()

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: Mapping[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Take this module's own state, without that of submodules; report keys and errors in the lists."""
        args = (state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        for number, hook in list(self._load_state_dict_pre_hooks.items()):
            hook(*((self, *args) if number in self._load_state_dict_pre_hooks_with_module else args))
        own = self._own_state()
        copies = _copies.get()
        for name in own:
            key = prefix + name
            if key not in state_dict:
                if strict:
                    missing_keys.append(key)
                continue
            problem = _mismatch(key, self, name, state_dict[key])
            assign = bool(local_metadata.get("assign_to_params_buffers", False))
            if problem:
                error_msgs.append(problem)
            elif copies is None:
                _take(self, name, state_dict[key], assign)
            else:
                copies.append((self, name, state_dict[key], assign))
        self._load_extra_state(state_dict, prefix, strict, missing_keys, unexpected_keys)
        if strict:
            unexpected_keys += [key for key in state_dict if _is_unexpected(self, own, key, prefix)]

    def _load_extra_state(
        self, state_dict: Mapping[str, Any], prefix: str, strict: bool, missing: list[str], unexpected: list[str]
    ) -> None:
        key = prefix + EXTRA_STATE_KEY
        if _has_extra_state(self):
            if key in state_dict:
                self.set_extra_state(state_dict[key])
            elif strict:
                missing.append(key)
        elif strict and key in state_dict:
            unexpected.append(key)


def _has_extra_state(module: Any) -> bool:
    return type(module).get_extra_state is not StateHooks.get_extra_state


def _is_unexpected(module: Any, own: Mapping[str, Any], key: str, prefix: str) -> bool:
    """Whether a key of the module's own is not in its state, or is of a submodule that it has not."""
    if not key.startswith(prefix) or key == prefix + EXTRA_STATE_KEY:
        return False
    name, dot, _ = key[len(prefix) :].partition(".")
    return name not in (module._modules if dot else own)


def collect(module: Module, destination: Any, prefix: str, keep_vars: bool) -> OrderedDict[str, Any]:
    """The state by path; see Module.state_dict."""
    if destination is None:
        destination = OrderedDict()
        destination._metadata = OrderedDict()
    local = {"version": module._version}
    if hasattr(destination, "_metadata"):
        destination._metadata[prefix[:-1]] = local
    for hook in list(module._state_dict_pre_hooks.values()):
        hook(module, prefix, keep_vars)
    module._save_to_state_dict(destination, prefix, keep_vars)
    for name, child in module._modules.items():
        if child is not None:
            child.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
    for hook in list(module._state_dict_hooks.values()):
        changed = hook(module, destination, prefix, local)
        if changed is not None:
            destination = changed
    made: OrderedDict[str, Any] = destination
    return made


def load(module: Module, state: Any, strict: bool, assign: bool) -> IncompatibleKeys:
    """Take a dictionary's values; see Module.load_state_dict."""
    if not isinstance(state, Mapping):
        raise TypeError(f"Expected state_dict to be dict-like, got {type(state)}.")
    order = {key: place for place, key in enumerate(state)}
    found = _Loading(getattr(state, "_metadata", None), assign)
    token = _copies.set(found.copies)
    try:
        found.load(module, OrderedDict(state), "")
    finally:
        _copies.reset(token)
    # As in the dictionary, whatever the order of the modules.
    found.unexpected.sort(key=lambda key: order.get(key, len(order)))
    problems = list(found.problems)
    if strict and found.unexpected:
        keys = ", ".join(f'"{key}"' for key in found.unexpected)
        problems.insert(0, f"Unexpected key(s) in state_dict: {keys}.")
    if strict and found.missing:
        problems.insert(0, "Missing key(s) in state_dict: " + ", ".join(f'"{key}"' for key in found.missing) + ".")
    if problems:
        raise RuntimeError(f"Error(s) in loading state_dict for {module._get_name()}:\n\t" + "\n\t".join(problems))
    with no_grad():
        for holder, name, value, assigned in found.copies:
            _take(holder, name, value, assigned)
    return IncompatibleKeys(found.missing, found.unexpected)


class _Loading:
    """One call of `load_state_dict`: what it found while it walked the modules."""

    def __init__(self, metadata: Any, assign: bool) -> None:
        self.metadata = metadata
        self.assign = assign
        self.missing: list[str] = []
        self.unexpected: list[str] = []
        self.problems: list[str] = []
        self.copies: list[tuple[Any, str, Tensor, bool]] = []

    def load(self, module: Module, state: OrderedDict[str, Any], prefix: str) -> None:
        """Walk a module and those below it; `state` has the keys that begin with the prefix."""
        local = dict((self.metadata or {}).get(prefix[:-1], {}))
        if self.assign:
            local["assign_to_params_buffers"] = True
        module._load_from_state_dict(state, prefix, local, True, self.missing, self.unexpected, self.problems)
        for name, child in module._modules.items():
            if child is not None:
                below = f"{prefix}{name}."
                self.load(child, OrderedDict((k, v) for k, v in state.items() if k.startswith(below)), below)
        keys = IncompatibleKeys(self.missing, self.unexpected)
        for hook in list(module._load_state_dict_post_hooks.values()):
            if hook(module, keys) is not None:
                raise AssertionError("Hooks registered with register_load_state_dict_post_hook must return None")


def _mismatch(path: str, holder: Any, name: str, value: Any) -> str | None:
    current = getattr(holder, name)
    if not isinstance(value, Tensor):
        return (
            f'While copying the parameter named "{path}", expected gradwire.Tensor from checkpoint '
            f"but received {type(value)}."
        )
    # The shape of a value without sizes is refused, so it loads only where there are none either.
    if not is_lazy(current) and value.shape != current.shape:
        return (
            f"size mismatch for {path}: copying a param with shape {value.shape} from checkpoint, "
            f"the shape in current model is {current.shape}."
        )
    return None


def _take(holder: Any, name: str, value: Tensor, assign: bool) -> None:
    current: Tensor = getattr(holder, name)
    if not assign:
        if not (is_lazy(current) and is_lazy(value)):
            current.copy_(value)
    elif isinstance(current, Parameter):
        made = value if isinstance(value, Parameter) else Parameter(value)
        made.requires_grad_(current.requires_grad)
        holder._parameters[name] = made
        set_owner(made, holder, name)
    else:
        holder._buffers[name] = value
