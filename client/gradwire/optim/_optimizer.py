"""Optimizer: parameters in groups, the options of each group, and the state of each parameter.

Steps are in-place tensor ops without a graph. Numbers that change from step to step (bias corrections, a scheduled
learning rate) are operands of these ops. A whole step is therefore deferred into one batch, and no value travels.
"""

from __future__ import annotations

import copy
import functools
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from gradwire._base import dtypes
from gradwire._base.errors import refuse
from gradwire._base.modes import enable_grad, no_grad
from gradwire._base.watching import unwatched
from gradwire._compile.symbolic import SymbolicNumber, rounded_to_float32
from gradwire._functions.create import tensor
from gradwire._functions.functions import typename
from gradwire._graph.hooks import RemovableHandle, add_hook
from gradwire._graph.sparse_gradients import is_sparse
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor
from gradwire.nn._module import clear_grads
from gradwire.optim._alike import update_alike
from gradwire.optim._plain_updates import NUMBERS, runs_unwatched
from gradwire.optim._steps import Steps


class _RequiredParameter:
    """The default of an option that has none (torch.optim.optimizer.required)."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _RequiredParameter()
Params: TypeAlias = "Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]"


# Hooks of all optimizers, by the numbers of their handles.
_PRE_HOOKS: dict[int, Callable[..., Any]] = {}
_POST_HOOKS: dict[int, Callable[..., Any]] = {}


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` before each step of any optimizer (torch.optim.optimizer).

    `args` begins with the optimizer. A result other than None is a pair that replaces both; RuntimeError for another.
    """
    return add_hook(_PRE_HOOKS, hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` after each step of any optimizer (torch.optim.optimizer)."""
    return add_hook(_POST_HOOKS, hook)


def _with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """A class's `step` with the hooks around it, once, though it may call the step of its base."""

    @functools.wraps(step)
    def hooked(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        if self._stepping or "_step_pre_hooks" not in self.__dict__:  # a wrapper that is no optimizer of its own
            return step(self, *args, **kwargs)
        self._stepping = self._opt_called = True
        try:
            given: tuple[Any, ...] = (self, *args)
            for hook in [*_PRE_HOOKS.values(), *self._step_pre_hooks.values()]:
                changed = hook(self, given, kwargs)
                if changed is not None:
                    if not isinstance(changed, tuple) or len(changed) != 2:
                        raise refuse(
                            f"{step} must return None or a tuple of (new_args, new_kwargs), but got {changed}."
                        )
                    given, kwargs = changed
            result = step(*given, **kwargs)
            for hook in [*self._step_post_hooks.values(), *_POST_HOOKS.values()]:
                hook(self, given, kwargs)
            return result
        finally:
            self._stepping = False

    return hooked


class Optimizer:
    """The base of all optimizers; a subclass defines `_update(group)` or `step`.

    `params` are tensors, pairs of name and tensor (`model.named_parameters()`), or groups: dictionaries with "params"
    and options that differ from `defaults`. Raises TypeError for a non-tensor. Raises ValueError without parameters,
    for a non-leaf, and for a parameter in two groups. Like torch.optim.Optimizer.
    """

    #: Whether it has made a step, which a scheduler asks.
    _opt_called = False
    _stepping = False
    #: Whether each element is updated by itself, so that complex parameters may be updated as pairs of real numbers.
    _by_elements = False
    #: Whether parameters that differ in sizes alone are updated by the same ops (`_alike`).
    _is_alike = False
    #: Whether `_update` itself sees to sparse gradients, which `_gradients` leaves out.
    _takes_sparse = False
    #: The function of `step` when a scheduler was made, which notices that it is overridden later.
    _scheduled_step: Any = None
    #: Makes guards of compiled functions compare its groups and state, but not its rates (`_compile.reach`).
    __has_param_groups__ = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _with_hooks(cls.__dict__["step"])  # type: ignore[method-assign]

    def __init__(self, params: Params, defaults: dict[str, Any]) -> None:
        self._steps = Steps()
        self._make_hooks()
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, "
                f"but got {typename(params)}"
            )
        self.defaults = defaults
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        groups: list[Any] = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def _make_hooks(self) -> None:
        self._step_pre_hooks: dict[int, Any] = {}
        self._step_post_hooks: dict[int, Any] = {}
        self._state_dict_pre_hooks: dict[int, Any] = {}
        self._state_dict_post_hooks: dict[int, Any] = {}
        self._load_state_dict_pre_hooks: dict[int, Any] = {}
        self._load_state_dict_post_hooks: dict[int, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Groups, state and defaults, for pickle and copies. Hooks are not copied, as in PyTorch."""
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take what `__getstate__` gave, and further attributes."""
        self._steps = Steps()
        self._make_hooks()
        self.__dict__.update(state)
        for group in self.param_groups:
            for option, default in self.defaults.items():
                group.setdefault(option, default)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Optimize more parameters: a dictionary with "params" and options. Raises as the constructor does."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        given = param_group["params"]
        if isinstance(given, set):
            raise TypeError(
                "optimizer parameters need to be organized in ordered collections: the ordering of tensors in sets "
                "will change between runs. Please use a list instead."
            )
        members = [given] if isinstance(given, Tensor) else list(given)
        names = [member[0] for member in members if isinstance(member, tuple)]
        if names and len(names) != len(members):
            raise ValueError("all optimizer params should be with/without names. Some param names are missing")
        params = [member[1] if isinstance(member, tuple) else member for member in members]
        self._check_params(params, bool(names))
        param_group["params"] = params
        if names:
            param_group["param_names"] = names
        for option, default in self.defaults.items():
            if default is required and option not in param_group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {option}")
            param_group.setdefault(option, default)
        self.param_groups.append(param_group)

    def _check_params(self, params: list[Any], named: bool) -> None:
        for param in params:
            if not isinstance(param, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(param).__name__}")
            if not (param.is_leaf or param.retains_grad or self._is_differentiable()):
                raise ValueError("can't optimize a non-leaf Tensor")
        fresh = {id(param) for param in params}
        if len(fresh) != len(params):
            warnings.warn("optimizer contains a parameter group with duplicate parameters", stacklevel=4)
        for group in self.param_groups:
            if named != ("param_names" in group):
                raise ValueError(
                    "all optimizer param groups should be with/without names. cannot add param group "
                    f"{'with' if named else 'without'} names to the optimizer"
                )
            if any(id(param) in fresh for param in group["params"]):
                raise ValueError("some parameters appear in more than one parameter group")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradient of every parameter, or with `set_to_none=False` fill it with zeros."""
        if set_to_none and runs_unwatched(self):
            unwatched(self._clear_gradients, set_to_none)
        else:
            self._clear_gradients(set_to_none)

    def _clear_gradients(self, set_to_none: bool) -> None:
        for group in self.param_groups:
            clear_grads(group["params"], set_to_none)

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` before each step; a result other than None replaces both.

        `args` begins with the optimizer.
        """
        return add_hook(self._step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` after each step."""
        return add_hook(self._step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` before `state_dict`."""
        return add_hook(self._state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` after `state_dict`; a result other than None replaces it."""
        return add_hook(self._state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` before loading; a result other than None is loaded instead."""
        return add_hook(self._load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` after loading."""
        return add_hook(self._load_state_dict_post_hooks, hook, prepend)

    @_with_hooks
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change every parameter that has a gradient, once.

        `closure` is called first, with gradients enabled, and computes the loss and its gradients; its result is
        returned.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        if self._is_differentiable():
            self._take_numbers()
            self._update_groups()
            return loss
        with no_grad():
            self._steps.make(self, self._update_all)
        return loss

    def _is_differentiable(self) -> bool:
        """Whether steps are part of the graph: gradients flow through them to gradients and state."""
        return bool(self.defaults.get("differentiable"))

    def _take_numbers(self) -> None:
        """Read what is a number here and was given as a tensor. Refuses one, and an option, that requires grad."""
        options = [(name, option) for group in self.param_groups for name, option in group.items() if name != "params"]
        numbers = [
            (name, values[name]) for values in self.state.values() for name in NUMBERS if values.get(name) is not None
        ]
        for name, value in [*options, *numbers]:
            for each in value if isinstance(value, tuple) else (value,):
                if isinstance(each, Tensor) and each.requires_grad:
                    raise NotImplementedError(f"differentiable steps have no gradient of {name}: give a number")
        self._read_numbers()

    def _read_numbers(self) -> None:
        """Read those numbers of the state that a program has given as tensors, as they are in PyTorch."""
        for values in self.state.values():
            for name in NUMBERS if isinstance(values, dict) else ():
                if isinstance(values.get(name), Tensor):
                    number = values[name].item()
                    values[name] = int(number) if name == "step" else number

    def _update_all(self) -> None:
        if runs_unwatched(self):
            unwatched(self._update_groups)
        else:
            self._update_groups()

    def _update_groups(self) -> None:
        for group in self.param_groups:
            if not update_alike(self, group):
                self._update(group)

    def _initial_state(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """State of a parameter before its first step. Empty if the first step itself makes it."""
        return {}

    def _begin_state(self, param: Tensor, group: dict[str, Any]) -> bool:
        """Make a parameter's state, if it has none; False if its first update is not like the others."""
        if not self.state.get(param) and (begun := self._initial_state(param, group)):
            self.state[param] = begun
        return True

    def _update(self, group: dict[str, Any]) -> None:
        """Change the parameters of a group."""
        raise NotImplementedError(f"{type(self).__name__} gives neither _update nor step")

    def _gradients(self, group: dict[str, Any]) -> Iterator[tuple[Tensor, Tensor]]:
        """Each parameter that has a gradient, with it; negated where the group ascends."""
        for param in group["params"]:
            grad = param.grad
            if grad is None:
                continue
            if is_sparse(grad):
                if self._takes_sparse:
                    continue
                raise RuntimeError(
                    f"{type(self).__name__} does not support sparse gradients, please consider SparseAdam instead"
                )
            if group["maximize"]:
                grad = -grad
            if param.is_complex():
                yield from self._real_views(param, grad)
            else:
                yield param, grad

    def _real_views(self, param: Tensor, grad: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """A complex parameter and its gradient as real numbers, two for each; its state, too, while it is changed."""
        if not self._by_elements:
            raise RuntimeError(f"{type(self).__name__} does not support complex parameters")
        if param._session.recorder is not None:
            raise NotImplementedError(f"{type(self).__name__} of complex parameters in a recording is not supported")
        held = self.state[param]
        view = ops.view_as_real(param)
        views = {name: ops.view_as_real(each) if _is_complex(each) else each for name, each in held.items()}
        self.state[view] = shown = dict(views)
        try:
            yield view, ops.view_as_real(grad)
        finally:
            del self.state[view]
        for name, each in shown.items():
            if each is not views.get(name):  # else it has changed in place
                is_pairs = isinstance(each, Tensor) and each.shape == view.shape
                held[name] = ops.view_as_complex(each) if is_pairs else each

    def state_dict(self) -> dict[str, Any]:
        """The state for `load_state_dict`: the groups' options, and the state with parameters as numbers."""
        for hook in list(self._state_dict_pre_hooks.values()):
            hook(self)
        number = {id(param): place for place, param in enumerate(self._params())}
        groups = [{**group, "params": [number[id(param)] for param in group["params"]]} for group in self.param_groups]
        for group in groups:
            group["params"] = group.pop("params")  # last, as in PyTorch
        made: dict[float, Tensor] = {}
        # What a program stores under other keys stays as it is.
        state = {
            number[id(key)] if isinstance(key, Tensor) else key: _as_pytorchs(values, made)
            for key, values in self.state.items()
        }
        found: dict[str, Any] = {"state": state, "param_groups": groups}
        for hook in list(self._state_dict_post_hooks.values()):
            changed = hook(self, found)
            found = found if changed is None else changed
        return found

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take options and state of a `state_dict`; tensors are copied, cast and moved as their parameter is.

        Raises ValueError where the numbers of groups or of their parameters differ, and then has changed nothing.
        """
        state_dict = dict(state_dict)  # so that hooks change a copy
        for hook in list(self._load_state_dict_pre_hooks.values()):
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        saved_groups = [dict(group) for group in copy.deepcopy(state_dict["param_groups"])]
        if len(saved_groups) != len(self.param_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        for group, saved in zip(self.param_groups, saved_groups, strict=True):
            if len(group["params"]) != len(saved["params"]):
                raise ValueError(
                    "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
                )
        numbers = [number for saved in saved_groups for number in saved["params"]]
        by_number = dict(zip(numbers, self._params(), strict=True))
        state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        given = state_dict["state"]
        for key in [key for key in given if not isinstance(key, int)]:
            state[key] = copy.deepcopy(given[key])
        given = {number: values for number, values in given.items() if isinstance(number, int)}
        unknown = [number for number in given if number not in by_number]
        if unknown:
            raise ValueError(f"loaded state dict has a state of parameter {unknown[0]}, which is in none of its groups")
        for number, values in _with_numbers(given).items():
            param = by_number[number]
            state[param] = {name: _like(param, value) for name, value in values.items()}
        for group, saved in zip(self.param_groups, saved_groups, strict=True):
            kept: dict[str, Any] = {name: group[name] for name in ("params", "param_names") if name in group}
            group.clear()
            group.update({**saved, **kept})
        self.state = state
        for hook in list(self._load_state_dict_post_hooks.values()):
            hook(self)

    def _params(self) -> list[Tensor]:
        """All parameters, in the order of the groups."""
        return [param for group in self.param_groups for param in group["params"]]

    def __repr__(self) -> str:
        sections = []
        for place, group in enumerate(self.param_groups):
            options = [f"    {option}: {group[option]}" for option in sorted(group) if option != "params"]
            sections.append("\n".join([f"Parameter Group {place}", *options]))
        return f"{type(self).__name__} (\n" + "\n\n".join(sections) + "\n)"


def _is_complex(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_complex()


def _as_pytorchs(values: Any, made: dict[float, Tensor]) -> Any:
    """A parameter's state with tensors for the numbers that PyTorch has tensors for."""
    if not isinstance(values, dict):
        return values
    shown = dict(values)
    for name in NUMBERS:
        if name in shown and not isinstance(shown[name], Tensor):
            number = float(shown[name])
            if number not in made:
                made[number] = tensor(number, dtype=dtypes.float32 if name == "step" else None)
            shown[name] = made[number]
    return shown


def _with_numbers(state: Mapping[Any, Mapping[str, Any]]) -> dict[Any, dict[str, Any]]:
    """Loaded state with numbers where PyTorch has tensors; all of them are read at once."""
    plain = {key: dict(values) for key, values in state.items()}
    tensors = [
        (key, name)
        for key, values in plain.items()
        for name in NUMBERS
        if isinstance(values.get(name), Tensor) and values[name].numel() == 1
    ]
    if tensors:
        read = ops.stack([plain[key][name].detach().double().reshape(()) for key, name in tensors]).tolist()
        for (key, name), number in zip(tensors, read, strict=True):
            plain[key][name] = int(number) if name == "step" else number
    return plain


def _like(param: Tensor, value: Any) -> Any:
    """A copy of a state tensor, with a floating parameter's dtype, and on its device."""
    if not isinstance(value, Tensor):
        return copy.deepcopy(value)
    dtype = param.dtype if param.is_floating_point() else value.dtype
    return value.detach().clone().to(param.device, dtype)


def unchanged(step: Callable[..., Any]) -> Callable[..., Any]:
    """A step as it is: the decorators of PyTorch's steps have no effect here."""
    return step


def _default_to_fused_or_foreach(params: Any, differentiable: bool, use_fused: bool = False) -> tuple[bool, bool]:
    """Whether a step is fused, or over lists of tensors: neither, each op is a command of one batch."""
    return False, False


def _get_capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    """Devices whose steps can be captured."""
    return ["cuda"]


def _get_value(x: Any) -> Any:
    """A number, read if it is a tensor."""
    return x.item() if isinstance(x, Tensor) else x


def refuse_rates(lr: float | Tensor) -> None:
    """Refuse a tensor of several rates."""
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")


def refuse_negative(name: str, value: float | Tensor) -> None:
    """Refuse an option below zero, in PyTorch's words: "Invalid learning rate: -1"; and a rate of several elements."""
    refuse_rates(value)
    if not value >= 0.0:
        raise ValueError(f"Invalid {name}: {value}")


def refuse_betas(betas: tuple[float, float]) -> None:
    """Refuse decays outside [0, 1)."""
    for place, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {place}: {beta}")


def rounded_to_default(number: Any) -> Any:
    """A number in the precision of PyTorch's tensor for it, which has the default dtype or float32."""
    return number if dtypes.get_default_dtype() is dtypes.float64 else rounded_to_float32(number)


def rate_of(group: dict[str, Any]) -> Any:
    """The learning rate of a group as a float, or as a symbolic number while its step is exported."""
    rate = group["lr"]
    return rate if type(rate) is SymbolicNumber else float(rate)


def plus(term: Tensor, number: Any) -> Tensor:
    """term + number, in its place unless it is a part of a graph, which saved it."""
    made: Tensor = term.add(number) if term.requires_grad else term.add_(number)
    return made


def stored(grad: Any, group: dict[str, Any]) -> tuple[tuple[Tensor, ...], Tensor]:
    """Where a sparse gradient has elements, each place once, and the elements; negated where the group ascends."""
    once = (-grad if group["maximize"] else grad).coalesce()
    return tuple(once.indices()), once.values()


def to_save(moved: Tensor) -> Tensor:
    """A value of the state for an op that saves it: where it is a part of a graph a copy, as a later step moves it."""
    made: Tensor = moved.clone() if moved.requires_grad else moved
    return made


def kept_in(state: dict[str, Any], name: str, value: Tensor) -> Tensor:
    """Store a value in the state's tensor, or where it is a part of a graph, which saved that, in its stead."""
    if value.requires_grad:
        state[name] = value
        return value
    made: Tensor = state[name].copy_(value)
    return made


def decayed(param: Tensor, grad: Tensor, group: dict[str, Any]) -> Tensor:
    """The gradient with the weight decay's, if there is any."""
    weight_decay = group["weight_decay"]
    made: Tensor = grad.add(param, alpha=weight_decay) if weight_decay != 0 else grad
    return made


def refuse_unsupported(differentiable: bool, fused: bool | None, foreach: bool | None) -> None:
    """Refuse what would change results; `foreach` and `fused` say how fast, and every step here is one batch anyway."""
    if fused and differentiable:
        raise RuntimeError("`fused` does not support `differentiable`")
    if fused and foreach:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
