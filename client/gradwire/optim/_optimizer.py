"""Optimizer: parameters in groups, the options of each group, and what is remembered about each parameter.

Steps are in-place tensor ops without a graph. The numbers that change from step to step (bias corrections, a scheduled
learning rate) are operands of those ops, so a whole step is deferred into one batch and no value travels.
"""

from __future__ import annotations

import copy
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from gradwire._modes import enable_grad, no_grad
from gradwire._tensor import Tensor
from gradwire.nn._module import clear_grad

Params: TypeAlias = "Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]"


class Optimizer:
    """The base of all optimizers; a subclass gives `_update(group)`, or its own `step`.

    `params` are tensors, pairs of name and tensor (`model.named_parameters()`), or groups: dictionaries with "params"
    and options that differ from `defaults`. Raises TypeError for what is no tensor, ValueError for none at all, for a
    non-leaf and for a parameter in two groups. Answers to torch.optim.Optimizer.
    """

    def __init__(self, params: Params, defaults: dict[str, Any]) -> None:
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, "
                f"but got {type(params).__name__}"
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
            param_group.setdefault(option, default)
        self.param_groups.append(param_group)

    def _check_params(self, params: list[Any], named: bool) -> None:
        for param in params:
            if not isinstance(param, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(param).__name__}")
            if not (param.is_leaf or param.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor")
        fresh = {id(param) for param in params}
        if len(fresh) != len(params):
            warnings.warn("optimizer contains a parameter group with duplicate parameters", stacklevel=4)
        for group in self.param_groups:
            if named != ("param_names" in group):
                raise ValueError("all optimizer param groups should be with/without names")
            if any(id(param) in fresh for param in group["params"]):
                raise ValueError("some parameters appear in more than one parameter group")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradient of every parameter, or with `set_to_none=False` fill it with zeros."""
        for group in self.param_groups:
            for param in group["params"]:
                clear_grad(param, set_to_none)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change every parameter that has a gradient, once.

        `closure` is called first, with gradients enabled, and computes the loss and its gradients; its result is
        returned.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            for group in self.param_groups:
                self._update(group)
        return loss

    def _update(self, group: dict[str, Any]) -> None:
        """Change the parameters of a group."""
        raise NotImplementedError(f"{type(self).__name__} gives neither _update nor step")

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` takes: the groups' options, and the state with parameters as numbers."""
        number = {id(param): place for place, param in enumerate(self._params())}
        groups = [{**group, "params": [number[id(param)] for param in group["params"]]} for group in self.param_groups]
        for group in groups:
            group["params"] = group.pop("params")  # last, as in PyTorch
        return {"state": {number[id(param)]: values for param, values in self.state.items()}, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take options and state of a `state_dict`; tensors are copied, cast and moved as their parameter is.

        Raises ValueError where the numbers of groups or of their parameters differ, and then has changed nothing.
        """
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
        for number, values in state_dict["state"].items():
            param = by_number[number]
            state[param] = {name: _like(param, value) for name, value in values.items()}
        for group, saved in zip(self.param_groups, saved_groups, strict=True):
            kept: dict[str, Any] = {name: group[name] for name in ("params", "param_names") if name in group}
            group.clear()
            group.update({**saved, **kept})
        self.state = state

    def _params(self) -> list[Tensor]:
        """All parameters, in the order of the groups."""
        return [param for group in self.param_groups for param in group["params"]]

    def __repr__(self) -> str:
        sections = []
        for place, group in enumerate(self.param_groups):
            options = [f"    {option}: {group[option]}" for option in sorted(group) if option != "params"]
            sections.append("\n".join([f"Parameter Group {place}", *options]))
        return f"{type(self).__name__} (\n" + "\n\n".join(sections) + "\n)"


def _like(param: Tensor, value: Any) -> Any:
    """A copy of a state tensor, with a floating parameter's dtype, and on its device."""
    if not isinstance(value, Tensor):
        return copy.deepcopy(value)
    dtype = param.dtype if param.is_floating_point() else value.dtype
    return value.detach().clone().to(param.device, dtype)


def refuse_negative(name: str, value: float) -> None:
    """Refuse an option below zero, in PyTorch's words: "Invalid learning rate: -1"."""
    if not value >= 0.0:
        raise ValueError(f"Invalid {name}: {value}")


def refuse_unsupported(differentiable: bool, fused: bool | None, foreach: bool | None) -> None:
    """Refuse what would change results; `foreach` and `fused` say how fast, and every step here is one batch anyway."""
    if differentiable:
        raise NotImplementedError("differentiable=True is not supported yet: write the update out of place instead")
    if fused and foreach:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
