"""Module: a tree of parameters, buffers and submodules with a forward.

Attributes do the bookkeeping: a Parameter assigned to a module is its parameter, a Module its submodule, a tensor given
to `register_buffer` its buffer. Everything else here walks that tree. Moving and casting (`to`, `cuda`, `double`)
replace the data of parameters and are no ops of the graph: parameters remain the same leaves.
"""

from __future__ import annotations

import itertools
import textwrap
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import gradwire.nn._state as _state
from gradwire._base import dtypes
from gradwire._base.call_site import find_call_site
from gradwire._base.errors import refuse
from gradwire._base.modes import no_grad
from gradwire._base.refused import refusal
from gradwire._graph.hooks import RemovableHandle, add_hook
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor
from gradwire.nn._error_context import blame
from gradwire.nn._hooks.of_all_modules import (
    ALWAYS_CALLED,
    BACKWARD_HOOKS,
    BACKWARD_PRE_HOOKS,
    HOOKS,
    PRE_HOOKS,
    REGISTRATIONS,
    WITH_KWARGS,
    registered,
)
from gradwire.nn._parameter import Buffer, Parameter, is_lazy, set_owner

if TYPE_CHECKING:
    from gradwire._proxy.protocols import SessionProtocol

M = TypeVar("M", bound="Module")
Held = TypeVar("Held")
_REGISTRIES = ("_parameters", "_buffers", "_modules")


def _forward_missing(self: Module, *args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')


def _session_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> SessionProtocol | None:
    """The session of the first tensor among the arguments, or in a list or tuple of them; None without one."""
    for given in (*args, *kwargs.values()):
        for each in given if isinstance(given, (list, tuple)) else (given,):
            if isinstance(each, Tensor):
                return each._session
    return None


class _HookedCall:
    """One call of a module with hooks: the arguments and the result, as the hooks so far changed them."""

    __slots__ = ("args", "ended", "kwargs", "result")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.args = args
        self.kwargs = kwargs
        self.result: Any = None
        #: The numbers of the forward hooks that were called.
        self.ended: set[int] = set()

    def before(self, module: Module, hook: Callable[..., Any], with_kwargs: bool) -> None:
        """Call a forward pre-hook; what it returns replaces the arguments."""
        changed = hook(module, self.args, self.kwargs) if with_kwargs else hook(module, self.args)
        if changed is None:
            return
        if not with_kwargs:
            self.args = changed if isinstance(changed, tuple) else (changed,)
        elif isinstance(changed, tuple) and len(changed) == 2:
            self.args, self.kwargs = changed
        else:
            raise refuse(f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {changed}.")

    def after(self, module: Module, number: int, hook: Callable[..., Any]) -> None:
        """Call a forward hook; what it returns replaces the result."""
        self.ended.add(number)
        with_kwargs = number in WITH_KWARGS or number in module._forward_hooks_with_kwargs
        changed = hook(module, self.args, *((self.kwargs,) if with_kwargs else ()), self.result)
        if changed is not None:
            self.result = changed


class Module(_state.StateHooks):
    """The base of all layers and models. Subclass it, assign layers in `__init__`, compute in `forward`.

    Like torch.nn.Module.
    """

    training: bool
    # Typed as a plain callable, so a subclass may take any arguments.
    forward: Callable[..., Any] = _forward_missing
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _owner: Any = None

    def __init__(self) -> None:
        set_plainly = super().__setattr__
        set_plainly("training", True)
        for registry in _REGISTRIES:
            set_plainly(registry, {})
        set_plainly("_non_persistent_buffers_set", set())
        set_plainly("_forward_pre_hooks", {})
        set_plainly("_forward_hooks", {})
        set_plainly("_backward_pre_hooks", {})
        set_plainly("_backward_hooks", {})
        set_plainly("_forward_pre_hooks_with_kwargs", {})
        set_plainly("_forward_hooks_with_kwargs", {})
        set_plainly("_forward_hooks_always_called", {})
        for hooks in _state.HOOKS:
            set_plainly(hooks, {})

    def __getstate__(self) -> dict[str, Any]:
        """Attributes for pickle and copies: all but the weak reference to the module that holds this one."""
        state = self.__dict__.copy()
        state.pop("_owner", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the attributes of `__getstate__`; what is held gets its names again."""
        if "_non_persistent_buffers_set" not in self.__dict__:
            Module.__init__(self)
        self.__dict__.update(state)
        for held in (*self._parameters.items(), *self._modules.items()):
            if held[1] is not None:
                set_owner(held[1], self, held[0])

    def __getattr__(self, name: str) -> Any:
        # Reached only where ordinary look-up found nothing.
        for registry in _REGISTRIES:
            held = self.__dict__.get(registry)
            if held is not None and name in held:
                return held[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        for registry, kind, noun in (("_parameters", Parameter, "parameters"), ("_modules", Module, "module")):
            if isinstance(value, kind):
                if registry not in self.__dict__:
                    raise AttributeError(f"cannot assign {noun} before Module.__init__() call")
                self._forget(name, but=registry)
                hooks = REGISTRATIONS["parameter" if registry == "_parameters" else "module"]
                if hooks:
                    value = registered("parameter" if registry == "_parameters" else "module", self, name, value)
                self.__dict__[registry][name] = value
                set_owner(value, self, name)
                return
        if isinstance(value, Buffer):
            self._forget(name, but="_buffers")
            held: Any = value
            self.register_buffer(name, held, held.__dict__["_persistent_buffer"])
            return
        for registry, wanted in (
            ("_parameters", "parameter '{}' (gradwire.nn.Parameter or None expected)"),
            ("_modules", "child module '{}' (gradwire.nn.Module or None expected)"),
            ("_buffers", "buffer '{}' (gradwire.Tensor or None expected)"),
        ):
            held = self.__dict__.get(registry)
            if held is not None and name in held:
                if value is not None and not (registry == "_buffers" and isinstance(value, Tensor)):
                    raise TypeError(f"cannot assign '{_type_name(value)}' as {wanted.format(name)}")
                held[name] = value
                return
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        if any(name in self.__dict__.get(registry, ()) for registry in _REGISTRIES):
            self._forget(name)
        else:
            super().__delattr__(name)

    def _forget(self, name: str, but: str = "") -> None:
        self.__dict__.pop(name, None)
        if but != "_buffers":
            self.__dict__["_non_persistent_buffers_set"].discard(name)
        for registry in _REGISTRIES:
            if registry != but:
                self.__dict__[registry].pop(name, None)

    def __dir__(self) -> list[str]:
        held = itertools.chain.from_iterable(self.__dict__[registry] for registry in _REGISTRIES)
        return sorted({*super().__dir__(), *held})

    # Registering by name.

    def _check_name(self, kind: str, name: str, registry: str) -> None:
        if registry not in self.__dict__:
            raise AttributeError(f"cannot assign {kind} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {_type_name(name)}")
        if "." in name:
            raise KeyError(f'{kind} name can\'t contain "."' + (f", got: {name}" if kind == "module" else ""))
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')
        if hasattr(self, name) and name not in self.__dict__[registry]:
            raise KeyError(f"attribute '{name}' already exists")

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Hold a parameter under a name; None keeps the name free for one.

        Raises KeyError for a bad or taken name, TypeError for a non-Parameter, ValueError for a non-leaf.
        """
        self._check_name("parameter", name, "_parameters")
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{_type_name(param)}' object to parameter '{name}' "
                "(gradwire.nn.Parameter or None required)"
            )
        if param is not None and not param.is_leaf:
            raise ValueError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created explicitly: "
                "to have it as a function of another Tensor, compute the value in forward()."
            )
        if REGISTRATIONS["parameter"] and param is not None:
            param = registered("parameter", self, name, param)
        self._parameters[name] = param
        if param is not None:
            set_owner(param, self, name)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Hold a tensor that is state but no parameter; unless `persistent`, `state_dict` omits it.

        Raises KeyError for a bad or taken name, TypeError for a non-Tensor.
        """
        self._check_name("buffer", name, "_buffers")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{_type_name(tensor)}' object to buffer '{name}' (gradwire.Tensor or None required)"
            )
        if REGISTRATIONS["buffer"]:
            tensor = registered("buffer", self, name, tensor)
        self._buffers[name] = tensor
        (self._non_persistent_buffers_set.discard if persistent else self._non_persistent_buffers_set.add)(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Hold a submodule under a name. Raises KeyError for a bad or taken name, TypeError for a non-Module."""
        self._check_name("module", name, "_modules")
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{_type_name(module)} is not a Module subclass")
        if REGISTRATIONS["module"]:
            module = registered("module", self, name, module)
        self._modules[name] = module
        if module is not None:
            set_owner(module, self, name)

    register_module = add_module

    # Calling.

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run `forward`, with the hooks around it."""
        session = args[0]._session if args and isinstance(args[0], Tensor) else _session_of(args, kwargs)
        first = session.next_command() if session is not None else 0
        if not (
            self._forward_pre_hooks
            or self._forward_hooks
            or self._backward_hooks
            or self._backward_pre_hooks
            or PRE_HOOKS
            or HOOKS
            or BACKWARD_HOOKS
            or BACKWARD_PRE_HOOKS
        ):
            try:
                result = self.forward(*args, **kwargs)
            except Exception as error:
                blame(self, error, args, kwargs)
                raise
            if session is not None:
                session.note_module_call(first, self._owner, type(self).__name__)
            return result
        call = _HookedCall(args, kwargs)
        try:
            result = self._call_hooked(call)
        except Exception as error:
            blame(self, error, args, kwargs)
            self._run_always_called(call)
            raise
        if session is not None:
            session.note_module_call(first, self._owner, type(self).__name__)
        return result

    def _run_always_called(self, call: _HookedCall) -> None:
        """Run the hooks for failures that have not run; their own errors become warnings beside the first error."""
        for number, hook in [*HOOKS.items(), *self._forward_hooks.items()]:
            is_always_called = number in ALWAYS_CALLED or number in self._forward_hooks_always_called
            if not is_always_called or number in call.ended:
                continue
            try:
                call.after(self, number, hook)
            except Exception as error:  # noqa: BLE001 - the first error is raised
                warnings.warn(
                    f"{'global ' if number in HOOKS else ''}module forward hook with ``always_call=True`` raised an "
                    f"exception that was silenced as another error was raised in forward: {error}",
                    stacklevel=3,
                )

    def _call_hooked(self, call: _HookedCall) -> Any:
        for number, hook in [*PRE_HOOKS.items(), *self._forward_pre_hooks.items()]:
            call.before(self, hook, number in self._forward_pre_hooks_with_kwargs)
        backward = None
        hooks = [*BACKWARD_HOOKS.values(), *self._backward_hooks.values()]
        pre_hooks = [*BACKWARD_PRE_HOOKS.values(), *self._backward_pre_hooks.values()]
        if hooks or pre_hooks:
            from gradwire.nn._hooks.backward import BackwardHooks

            backward = BackwardHooks(self, hooks, pre_hooks)
            call.args = backward.take(call.args)
        call.result = self.forward(*call.args, **call.kwargs)
        for number, hook in [*HOOKS.items(), *self._forward_hooks.items()]:
            call.after(self, number, hook)
        return call.result if backward is None else backward.give(call.result)

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args)` before each forward; a result other than None replaces the arguments.

        `with_kwargs`: it is called with the named arguments, too, and returns both. `prepend`: before the other hooks.
        """
        marks = [self._forward_pre_hooks_with_kwargs] if with_kwargs else []
        return add_hook(self._forward_pre_hooks, hook, prepend, marks)

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Call `hook(module, args, output)` after each forward; a result other than None replaces the output.

        `with_kwargs`: it is called with the named arguments, too. `prepend`: before the other hooks. `always_call`:
        also where forward raises.
        """
        marks = [self._forward_hooks_with_kwargs] if with_kwargs else []
        if always_call:
            marks.append(self._forward_hooks_always_called)
        return add_hook(self._forward_hooks, hook, prepend, marks)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(module, grad_input, grad_output)` when backward has passed the module.

        A result other than None replaces the gradients of the inputs, one per positional argument.
        """
        return add_hook(self._backward_hooks, hook, prepend)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(module, grad_output)` before backward passes the module; its result replaces them."""
        return add_hook(self._backward_pre_hooks, hook, prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """As `register_full_backward_hook`, which has taken its place."""
        return self.register_full_backward_hook(hook)

    # Walking the tree.

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module and all below it with their paths, each once by default."""
        seen = set() if memo is None else memo
        if self in seen:
            return
        if remove_duplicate:
            seen.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(seen, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self) -> Iterator[Module]:
        """This module and all below it, each once."""
        return (module for _, module in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The submodules held directly, with their names, each once."""
        seen: set[Module] = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        """The submodules held directly, each once."""
        return (module for _, module in self.named_children())

    def _named_members(
        self, registry: str, prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        modules = self.named_modules(None, prefix, remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, held in module.__dict__[registry].items():
                if held is None or id(held) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(held))
                yield (f"{path}.{name}" if path else name), held

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """The parameters of this module, and with `recurse` of all below it, with their paths."""
        return self._named_members("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters of this module, and with `recurse` of all below it, each once."""
        return (param for _, param in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """The buffers of this module, and with `recurse` of all below it, with their paths."""
        return self._named_members("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers of this module, and with `recurse` of all below it, each once."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Module:
        """The module at a path ("layers.0"); "" is this one. Raises AttributeError if there is none."""
        found: Any = self
        for name in target.split(".") if target else ():
            found = getattr(found, name)
            if not isinstance(found, Module):
                raise AttributeError(f"`{name}` is not an nn.Module")
        module: Module = found
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put a module at a path. Raises ValueError for "", AttributeError for a missing parent.

        `strict`: only where there is a module already, else AttributeError.
        """
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def _get_member(self, target: str, registry: str, kind: str) -> Any:
        path, _, name = target.rpartition(".")
        held = self.get_submodule(path).__dict__[registry]
        if name not in held:
            raise AttributeError(f"`{name}` is not {kind}")
        return held[name]

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a path. Raises AttributeError if there is none."""
        param: Parameter = self._get_member(target, "_parameters", "an nn.Parameter")
        return param

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a path. Raises AttributeError if there is none."""
        buffer: Tensor = self._get_member(target, "_buffers", "a buffer")
        return buffer

    def apply(self: M, fn: Callable[[Module], Any]) -> M:
        """Call `fn` on every submodule, children first, then on this module; returns this module."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    # Mode, gradients.

    def train(self: M, mode: bool = True) -> M:
        """Switch dropout and batch norm of the whole tree to training, or back. Raises ValueError for no bool."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        for module in self.modules():
            module.training = mode
        return self

    def eval(self: M) -> M:
        """The same as `train(False)`; it does not imply `no_grad()`."""
        return self.train(False)

    def requires_grad_(self: M, requires_grad: bool = True) -> M:
        """Set the flag of every parameter."""
        for param in self.parameters():
            param.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop every parameter's gradient, or with `set_to_none=False` fill it with zeros."""
        clear_grads(self.parameters(), set_to_none)

    # Moving and casting.

    def _apply(self: M, fn: Callable[[Tensor], Tensor]) -> M:
        """Replace the data of all parameters, their gradients and all buffers by what `fn` makes of them."""
        with no_grad():
            for module in self.modules():
                for param in module._parameters.values():
                    if param is not None:
                        _replace_data(param, fn)
                for name, buffer in module._buffers.items():
                    if is_lazy(buffer):
                        _replace_data(buffer, fn)
                    elif buffer is not None:
                        module._buffers[name] = fn(buffer)
        return self

    def to(self: M, *args: Any, **kwargs: Any) -> M:
        """Move the module: `to(device)`, `to(dtype)`, `to(device, dtype)`, `to(tensor)`.

        Tensors of whole numbers keep their dtype. Raises TypeError for a dtype that is neither floating nor complex.
        Returns the module, changed in place.
        """
        device, dtype = _target(*args, **kwargs)
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(
                f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}"
            )

        def moved(tensor: Tensor) -> Tensor:
            casts = dtype is not None and (tensor.is_floating_point() or tensor.is_complex())
            there = tensor.device if device is None else device
            made: Tensor = tensor.to(there, dtype if casts else tensor.dtype)
            return made

        return self._apply(moved)

    def cpu(self: M) -> M:
        """Move the module to the CPU."""
        return self._apply(lambda tensor: tensor.cpu())

    def cuda(self: M, device: Any = None) -> M:
        """Move the module to a GPU of the server."""
        return self._apply(lambda tensor: tensor.cuda() if device is None else tensor.cuda(device))

    def share_memory(self: M) -> M:
        """Refused: the tensors are on the server. Raises RuntimeError for parameters without sizes, as PyTorch does."""
        if any(map(is_lazy, itertools.chain(self.parameters(), self.buffers()))):
            raise RuntimeError(
                "Can't share memory on an uninitialized parameter or buffer. Call `forward()` before calling "
                "`module.share_memory()`."
            )
        raise refusal("nn.Module.share_memory", "tensors are on the server, and each process has a session of its own")

    def _cast(self: M, dtype: dtypes.dtype) -> M:
        return self._apply(lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)

    def float(self: M) -> M:
        """Cast floating tensors to float32."""
        return self._cast(dtypes.float32)

    def double(self: M) -> M:
        """Cast floating tensors to float64."""
        return self._cast(dtypes.float64)

    def half(self: M) -> M:
        """Cast floating tensors to float16."""
        return self._cast(dtypes.float16)

    def bfloat16(self: M) -> M:
        """Cast floating tensors to bfloat16."""
        return self._cast(dtypes.bfloat16)

    def type(self: M, dst_type: dtypes.dtype) -> M:
        """Cast every parameter and buffer."""
        return self._apply(lambda tensor: tensor.type(dst_type))

    def to_empty(self: M, *, device: Any, recurse: bool = True) -> M:
        """Move the module without its values: parameters and buffers are unspecified after it."""
        if not recurse:
            raise NotImplementedError("to_empty(recurse=False) is not supported: apply it to each module")
        place = None if device is None else dtypes.device_name(device)
        return self._apply(lambda tensor: ops.empty_like(tensor, device=place))

    # Saving and loading.

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> OrderedDict[str, Any]:
        """Parameters and persistent buffers by path; detached but on the same storage, unless `keep_vars`."""
        given: dict[str, Any] = {"destination": destination, "prefix": prefix, "keep_vars": keep_vars}
        given.update(zip(given, args, strict=False))
        return _state.collect(self, **given)

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> _state.IncompatibleKeys:
        """Take the values of a `state_dict`, by copying or with `assign` by taking its tensors.

        Raises RuntimeError and changes nothing if a size differs or, with `strict`, if a key is missing or unexpected;
        TypeError for no mapping. Returns those keys.
        """
        return _state.load(self, state_dict, strict, assign)

    # Showing.

    def _expects(self) -> str:
        """The shape that the input should have, for errors; "" where it may be any, or is not known."""
        return ""

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What `repr` shows beside the submodules; for subclasses to define."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        extra_lines = extra.split("\n") if extra else []
        child_lines = [indented(f"({name}): {module!r}") for name, module in self._modules.items()]
        if not child_lines and len(extra_lines) <= 1:
            return f"{self._get_name()}({extra})"
        return f"{self._get_name()}(\n  " + "\n  ".join(extra_lines + child_lines) + "\n)"


def add_indent(text: str, spaces: int) -> str:
    """The text with every line but the first moved right (torch.nn.modules.module._addindent)."""
    first, *rest = text.split("\n")
    return "\n".join([first, *(spaces * " " + line for line in rest)])


def indented(text: str) -> str:
    """The text with every line but the first moved right by two."""
    first, *rest = text.split("\n", 1)
    return first if not rest else first + "\n" + textwrap.indent(rest[0], "  ", lambda line: True)


def clear_grads(params: Iterable[Tensor], set_to_none: bool) -> None:
    """Drop tensors' gradients, or detach each and fill it with zeros."""
    call_site = find_call_site()
    for param in params:
        if not set_to_none:
            _zero_grad(param)
        elif type(param).grad is not Tensor.grad:  # a subclass sets gradients in its own way
            param.grad = None
        else:
            param._clear_grad(call_site)


def _zero_grad(param: Tensor) -> None:
    if (grad := param.grad) is not None:
        if grad.grad_fn is not None:
            grad.detach_()
        else:
            grad.requires_grad_(False)
        with no_grad():
            grad.zero_()


def _replace_data(param: Any, fn: Callable[[Tensor], Tensor]) -> None:
    if is_lazy(param):
        param.data = fn(param.data)
        return
    grad, bare = param.grad, param.detach()
    data = fn(bare)
    stays = data is bare  # such as of `to` with the present device and dtype
    if grad is None:
        if not stays:
            param.data = data
        return
    bare = grad.detach()
    new_grad = fn(bare)
    if stays and new_grad is bare:
        return
    # The gradient is taken off first: a gradient must have its tensor's dtype and device at every moment.
    param.grad = None
    param.data = data
    param.grad = new_grad.requires_grad_(grad.requires_grad)


def parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """What the arguments of `to` name: device, dtype, non_blocking, memory format (torch._C._nn._parse_to)."""
    memory_format = kwargs.pop("memory_format", None)
    non_blocking = bool(kwargs.get("non_blocking", False))
    device, dtype = _target(*args, **kwargs)
    return None if device is None else dtypes.device(device), dtype, non_blocking, memory_format


def _target(*args: Any, **kwargs: Any) -> tuple[Any, dtypes.dtype | None]:
    """The device and dtype that the arguments of `to` name."""
    device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
    like = kwargs.pop("tensor", None)
    kwargs.pop("non_blocking", None)  # commands never block for data to move
    kwargs.pop("memory_format", None)  # the layout is always row-major
    if kwargs:
        raise TypeError(f"to() got an unexpected keyword argument '{next(iter(kwargs))}'")
    for place, argument in enumerate(args):
        if isinstance(argument, Tensor):
            like = argument
        elif isinstance(argument, dtypes.dtype):
            dtype = argument
        elif isinstance(argument, bool) and place > 0:
            continue  # non_blocking
        elif argument is not None:
            device = argument
    if like is not None:
        device, dtype = like.device, like.dtype
    return device, dtype


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
