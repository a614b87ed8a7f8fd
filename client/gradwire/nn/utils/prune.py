"""Pruning (torch.nn.utils.prune): a parameter times a mask of zeros and ones.

A pruned module has the trained parameter as `<name>_orig` and the mask as the buffer `<name>_mask`. A hook computes the
attribute `<name>` from both before each call of the module.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from gradwire._functions.create import ones_like, rand, rand_like, zeros
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor
from gradwire.nn._module import Module

__all__ = [
    "BasePruningMethod",
    "CustomFromMask",
    "Identity",
    "L1Unstructured",
    "LnStructured",
    "PruningContainer",
    "RandomStructured",
    "RandomUnstructured",
    "custom_from_mask",
    "global_unstructured",
    "identity",
    "is_pruned",
    "l1_unstructured",
    "ln_structured",
    "random_structured",
    "random_unstructured",
    "remove",
]


class BasePruningMethod(ABC):
    """The base: a subclass defines `compute_mask` and PRUNING_TYPE: "unstructured", "structured" or "global"."""

    PRUNING_TYPE: str
    _tensor_name: str

    def __call__(self, module: Module, inputs: Any) -> None:
        """Compute the pruned tensor, before the module's `forward`."""
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask of a tensor that has this mask before."""

    def apply_mask(self, module: Module) -> Tensor:
        """The trained parameter times the mask."""
        name = self._tensor_name
        mask, original = getattr(module, f"{name}_mask"), getattr(module, f"{name}_orig")
        product: Tensor = mask.to(dtype=original.dtype) * original
        return product

    @classmethod
    def apply(cls, module: Module, name: str, *args: Any, importance_scores: Any = None, **kwargs: Any) -> Any:
        """Prune a parameter, again if it is pruned already, and return the hook."""
        earlier = _method_of(module, name)
        method: Any = cls(*args, **kwargs)
        method._tensor_name = name
        given = getattr(module, name)
        if importance_scores is None:
            importance_scores = given
        elif tuple(importance_scores.shape) != tuple(given.shape):
            raise AssertionError(
                f"importance_scores should have the same shape as parameter {name} of {module}, got "
                f"{importance_scores.shape} vs {given.shape}"
            )
        if earlier is None:
            del module._parameters[name]
            module.register_parameter(f"{name}_orig", given)
            before = ones_like(given.detach())
        else:
            _remove_hook(module, earlier)
            before = getattr(module, f"{name}_mask").detach().clone()
            method = PruningContainer(*_parts(earlier), method)
        try:
            mask = method.compute_mask(importance_scores.detach(), before)
            module.register_buffer(f"{name}_mask", mask)
            setattr(module, name, method.apply_mask(module))
        except Exception:
            if earlier is None:
                del module._parameters[f"{name}_orig"]
                module.register_parameter(name, given)
            else:
                module.register_forward_pre_hook(earlier)
            raise
        module.register_forward_pre_hook(method)
        return method

    def prune(self, t: Any, default_mask: Any = None, importance_scores: Any = None) -> Any:
        """A tensor times the mask of its scores, or of its values."""
        scores = t if importance_scores is None else importance_scores
        if tuple(scores.shape) != tuple(t.shape):
            raise AssertionError("importance_scores should have the same shape as tensor t")
        return t * self.compute_mask(scores, ones_like(t) if default_mask is None else default_mask)

    def remove(self, module: Module) -> None:
        """Make the pruned values the parameter. The hook stays; `prune.remove` takes it off, too."""
        name = self._tensor_name
        pruned = self.apply_mask(module)
        module.__dict__.pop(name, None)
        original = module._parameters.pop(f"{name}_orig")
        del module._buffers[f"{name}_mask"]
        assert original is not None
        original.data = pruned.data
        module.register_parameter(name, original)


class PruningContainer(BasePruningMethod):
    """Several methods, of which each prunes what the earlier ones have left."""

    def __init__(self, *args: Any) -> None:
        self._pruning_methods: tuple[Any, ...] = ()
        given = args[0] if len(args) == 1 and not isinstance(args[0], BasePruningMethod) else args
        if given:
            self._tensor_name = given[0]._tensor_name
        for method in given:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        """Add a method. Raises TypeError for anything else, ValueError for one of another tensor."""
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method._tensor_name != self._tensor_name:
            raise ValueError(
                "Can only add pruning methods acting on the parameter named "
                f"'{self._tensor_name}' to PruningContainer {self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Any:
        return iter(self._pruning_methods)

    def __getitem__(self, place: Any) -> Any:
        return self._pruning_methods[place]

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask after the last method, which sees only the part that is not pruned yet."""
        method = self._pruning_methods[-1]
        mask = default_mask.to(dtype=t.dtype)
        if method.PRUNING_TYPE == "unstructured":
            kept = mask == 1
        elif method.PRUNING_TYPE == "structured":
            dim = method.dim + t.ndim if method.dim < 0 else method.dim
            others = tuple(axis for axis in range(t.ndim) if axis != dim)
            channels = (mask.sum(others) if others else mask) != 0
            kept = (slice(None),) * dim + (channels,)
        elif method.PRUNING_TYPE == "global":
            kept = (slice(None),) * t.ndim
        else:
            raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        made = mask.clone()
        made[kept] = method.compute_mask(t[kept], mask[kept]).to(dtype=mask.dtype)
        return made


class Identity(BasePruningMethod):
    """Prunes nothing, and makes the names of a pruned parameter."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """See BasePruningMethod."""
        return default_mask


class _Amount(BasePruningMethod):
    """A method that prunes a share (a float) or a number (an int) of the elements or channels."""

    def __init__(self, amount: Any) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount

    def _count(self, among: int) -> int:
        _validate_pruning_amount(self.amount, among)
        return _compute_nparams_toprune(self.amount, among)


class RandomUnstructured(_Amount):
    """Prunes elements at random."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """See BasePruningMethod."""
        count = self._count(t.nelement())
        mask = default_mask.clone()
        if count:
            scores = rand_like(t).reshape(-1)
            mask.reshape(-1)[scores.topk(count).indices] = 0
        return mask


class L1Unstructured(_Amount):
    """Prunes the elements of the smallest magnitudes."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """See BasePruningMethod."""
        count = self._count(t.nelement())
        mask = default_mask.clone()
        if count:
            mask.reshape(-1)[t.abs().reshape(-1).topk(count, largest=False).indices] = 0
        return mask


class _Structured(_Amount):
    """A method that prunes whole channels, the slices along a dimension."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Any, dim: int = -1) -> None:
        super().__init__(amount)
        self.dim = dim

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """See BasePruningMethod. Raises ValueError for a tensor of one dimension, IndexError for a wrong `dim`."""
        _validate_structured_pruning(t)
        _validate_pruning_dim(t, self.dim)
        channels = t.shape[self.dim]
        count = self._count(channels)
        if not count:
            return default_mask
        sizes = [1] * t.ndim
        sizes[self.dim] = channels
        return self._kept(t, count).to(default_mask.dtype).reshape(sizes) * default_mask

    @abstractmethod
    def _kept(self, t: Any, count: int) -> Any:
        """Which channels stay when `count` are pruned."""


class RandomStructured(_Structured):
    """Prunes channels at random."""

    def _kept(self, t: Any, count: int) -> Any:
        scores = rand(t.shape[self.dim], device=t.device)
        return scores > scores.kthvalue(count).values


class LnStructured(_Structured):
    """Prunes the channels of the smallest norms of order `n`."""

    def __init__(self, amount: Any, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def _kept(self, t: Any, count: int) -> Any:
        norms = _compute_norm(t, self.n, self.dim)
        kept = zeros(len(norms), device=t.device)
        kept[norms.topk(len(norms) - count).indices] = 1
        return kept


class CustomFromMask(BasePruningMethod):
    """Prunes by a given mask."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Any) -> None:
        self.mask = mask

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """See BasePruningMethod."""
        return default_mask * self.mask.to(dtype=default_mask.dtype)


def identity(module: Module, name: str) -> Module:
    """Prune nothing, and make the names of a pruned parameter."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: Any) -> Module:
    """Prune elements at random: a share (float) or a number (int)."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Module, name: str, amount: Any, importance_scores: Any = None) -> Module:
    """Prune the elements of the smallest magnitudes, of the scores if these are given."""
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: Any, dim: int) -> Module:
    """Prune channels along `dim` at random."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module: Module, name: str, amount: Any, n: Any, dim: int, importance_scores: Any = None) -> Module:
    """Prune the channels along `dim` of the smallest norms of order `n`."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Module, name: str, mask: Any) -> Module:
    """Prune by a given mask."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]], pruning_method: Any, importance_scores: Any = None, **kwargs: Any
) -> None:
    """Prune the elements of several parameters together: those of the smallest scores among all.

    `importance_scores` maps (module, name) to scores. Raises TypeError for a method that is not unstructured.
    """
    pairs = list(parameters)
    if importance_scores is not None and not isinstance(importance_scores, dict):
        raise TypeError("global_unstructured(): importance_scores should be of type dict")
    given = importance_scores or {}
    scores = [given.get((module, name), getattr(module, name)).detach() for module, name in pairs]
    masks = [
        getattr(module, f"{name}_mask", ones_like(score)) for (module, name), score in zip(pairs, scores, strict=True)
    ]
    method = PruningContainer()
    method._tensor_name = "temp"
    single = pruning_method(**kwargs)
    single._tensor_name = "temp"
    if single.PRUNING_TYPE != "unstructured":
        raise TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. '
            f"Found method {pruning_method} of type {single.PRUNING_TYPE}"
        )
    method.add_pruning_method(single)
    joint = method.compute_mask(
        ops.cat([one.reshape(-1) for one in scores]), ops.cat([one.reshape(-1) for one in masks])
    )
    begin = 0
    for (module, name), score in zip(pairs, scores, strict=True):
        custom_from_mask(module, name, joint[begin : begin + score.numel()].reshape(score.shape))
        begin += score.numel()


def remove(module: Module, name: str) -> Module:
    """Make the pruned values the parameter, and take the hook off. Raises ValueError for a parameter not pruned."""
    method = _method_of(module, name)
    if method is None:
        raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")
    method.remove(module)
    _remove_hook(module, method)
    return module


def is_pruned(module: Module) -> bool:
    """Whether a parameter of the module, or of one inside, is pruned."""
    return any(
        isinstance(hook, BasePruningMethod) for one in module.modules() for hook in one._forward_pre_hooks.values()
    )


def _method_of(module: Module, name: str) -> BasePruningMethod | None:
    """The method that prunes a parameter; None without one."""
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            return hook
    return None


def _parts(method: BasePruningMethod) -> Sequence[BasePruningMethod]:
    return tuple(method) if isinstance(method, PruningContainer) else (method,)


def _remove_hook(module: Module, method: BasePruningMethod) -> None:
    for key, hook in list(module._forward_pre_hooks.items()):
        if hook is method:
            del module._forward_pre_hooks[key]


# Programs with pruning methods of their own call these by PyTorch's names.


def _validate_pruning_amount_init(amount: Any) -> None:
    """Refuse what is neither a share (float) nor a number (int) of units: TypeError, ValueError."""
    if not isinstance(amount, (int, float)):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if amount < 0 or (not isinstance(amount, int) and amount > 1):
        raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")


def _validate_pruning_amount(amount: Any, tensor_size: int) -> None:
    """Refuse a number above that of the units: ValueError."""
    if isinstance(amount, int) and amount > tensor_size:
        raise ValueError(f"amount={amount} should be smaller than the number of parameters to prune={tensor_size}")


def _compute_nparams_toprune(amount: Any, tensor_size: int) -> int:
    """How many of the units an amount prunes."""
    return int(amount) if isinstance(amount, int) else round(amount * tensor_size)


def _validate_structured_pruning(t: Any) -> None:
    """Refuse a tensor of fewer than two dimensions: ValueError."""
    if t.ndim < 2:
        raise ValueError(
            "Structured pruning can only be applied to multidimensional tensors. Found tensor of shape "
            f"{t.shape} with {t.ndim} dims"
        )


def _validate_pruning_dim(t: Any, dim: int) -> None:
    """Refuse a dimension that a tensor has not: IndexError."""
    if not -t.ndim <= dim < t.ndim:
        raise IndexError(f"Invalid index {dim} for tensor of size {t.shape}")


def _compute_norm(t: Any, n: Any, dim: int) -> Any:
    """The norms of order `n` of the slices along a dimension."""
    kept = dim % t.ndim
    return ops.norm(t, n, tuple(axis for axis in range(t.ndim) if axis != kept))
