"""Lazy layers: they take the number of inputs from the first input, and then become ordinary layers.

`LazyModuleMixin` makes any module lazy. It calls `initialize_parameters` before the first forward.
"""

from __future__ import annotations

from typing import Any

from gradwire._base import dtypes
from gradwire._base.errors import refuse
from gradwire._base.modes import no_grad
from gradwire._functions.create import tensor
from gradwire._tensor.tensor import Tensor
from gradwire.nn._conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from gradwire.nn._layers import Linear
from gradwire.nn._module import Module
from gradwire.nn._norm import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
)
from gradwire.nn._parameter import (
    Parameter,
    UninitializedBuffer,
    UninitializedParameter,
    UninitializedTensorMixin,
    is_lazy,
)

__all__ = [
    "LazyBatchNorm1d",
    "LazyBatchNorm2d",
    "LazyBatchNorm3d",
    "LazyConv1d",
    "LazyConv2d",
    "LazyConv3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
    "LazyInstanceNorm1d",
    "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
    "LazyLinear",
    "LazyModuleMixin",
]


class LazyModuleMixin:
    """What makes a module lazy; its class names it before Module. Like torch.nn.modules.lazy.LazyModuleMixin.

    A subclass has `initialize_parameters`, which materializes parameters and buffers by the first forward's arguments.
    """

    #: The class that a module gets then; None if it keeps its own.
    cls_to_become: type[Any] | None = None
    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _register_load_state_dict_pre_hook: Any
    register_forward_pre_hook: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = self.register_forward_pre_hook(self._infer_parameters, with_kwargs=True)

    def has_uninitialized_params(self) -> bool:
        """Whether one of its parameters or buffers has no sizes yet."""
        return any(is_lazy(each) for each in (*self._parameters.values(), *self._buffers.values()))

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Materialize all parameters and buffers by the arguments of the first forward: for subclasses to define."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def _infer_parameters(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise refuse(f"module {module._get_name()} has not been fully initialized")
        for name in ("_initialize_hook", "_load_hook"):
            getattr(module, name).remove()
            delattr(module, name)
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become

    def _lazy_load_hook(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        """Take the sizes of a loaded state, where it has some."""
        for name, held in (*self._parameters.items(), *self._buffers.items()):
            given = state_dict.get(prefix + name)
            if is_lazy(held) and isinstance(given, Tensor) and not is_lazy(given):
                with no_grad():
                    held.materialize(given.shape)


class _LazyLayer(LazyModuleMixin, Module):
    """What the lazy layers share: `_shapes` takes the number of inputs, and gives sizes to what has none."""

    #: The attribute with the number of inputs.
    _size_name = "in_features"

    def _is_known(self) -> bool:
        return bool(getattr(self, self._size_name))

    def reset_parameters(self) -> None:
        """Draw new values, once the sizes are known."""
        if not self.has_uninitialized_params() and self._is_known():
            self.cls_to_become.reset_parameters(self)  # type: ignore[union-attr]

    def initialize_parameters(self, input: Tensor) -> None:
        """Give the parameters their sizes by an input, and their first values."""
        if not self._is_known():
            with no_grad():
                self._materialize(self._inputs(input))
            self.reset_parameters()

    def _materialize(self, inputs: int) -> None:
        for name, shape in self._shapes(inputs).items():
            held = self._parameters.get(name, self._buffers.get(name))
            if isinstance(held, UninitializedTensorMixin):
                held.materialize(shape)

    def _inputs(self, input: Tensor) -> int:
        """Number of features or channels of an input."""
        return int(input.shape[-1])

    def _shapes(self, inputs: int) -> dict[str, tuple[int, ...]]:
        """Take the number of inputs; the sizes of the parameters and buffers by name."""
        raise NotImplementedError

    def _lazy_load_hook(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        """Take the number of inputs of a loaded state, unless it has none either."""
        keys = (f"{prefix}weight", f"{prefix}running_mean")
        given = next((state_dict[key] for key in keys if key in state_dict), None)
        if not self._is_known() and isinstance(given, Tensor) and not is_lazy(given):
            self._materialize(self._inputs_of(given))

    def _inputs_of(self, weight: Tensor) -> int:
        return int(weight.shape[-1])


class LazyLinear(_LazyLayer, Linear):
    """A Linear whose `in_features` the first input tells. Like torch.nn.LazyLinear."""

    cls_to_become = Linear

    def __init__(self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(0, 0, False)
        self.out_features = out_features
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def _shapes(self, inputs: int) -> dict[str, tuple[int, ...]]:
        self.in_features = inputs
        return {"weight": (self.out_features, inputs), "bias": (self.out_features,)}


class _LazyConv(_LazyLayer):
    """What lazy convolutions share. `_dims`, of the convolution: the number of its spatial dimensions."""

    _size_name = "in_channels"
    weight: Parameter
    bias: Parameter | None
    in_channels: int
    out_channels: int
    groups: int
    kernel_size: tuple[int, ...]
    transposed: bool
    _dims: int

    def __init__(self, out_channels: int, kernel_size: Any, *args: Any, **options: Any) -> None:
        names = _CONV_TRANSPOSE if self._transposed else _CONV
        given = {**dict(zip(names, args, strict=False)), **options}
        bias, groups = given.pop("bias", True), given.pop("groups", 1)
        device, dtype = given.pop("device", None), given.pop("dtype", None)
        super().__init__(0, 0, kernel_size, bias=False, **given)
        self.groups = groups
        self.out_channels = out_channels
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def _inputs(self, input: Tensor) -> int:
        if input.ndim not in (self._dims + 1, self._dims + 2):
            raise refuse(
                f"Expected {self._dims + 1}D (unbatched) or {self._dims + 2}D (batched) input to "
                f"{type(self).__name__}, but got input of size: {list(input.shape)}"
            )
        return int(input.shape[-1 - self._dims])

    def _inputs_of(self, weight: Tensor) -> int:
        return int(weight.shape[0] if self.transposed else weight.shape[1] * self.groups)

    def _shapes(self, inputs: int) -> dict[str, tuple[int, ...]]:
        self.in_channels = inputs
        if inputs % self.groups:
            raise ValueError("in_channels must be divisible by groups")
        channels = (inputs, self.out_channels // self.groups)
        if not self.transposed:
            channels = (self.out_channels, inputs // self.groups)
        return {"weight": (*channels, *self.kernel_size), "bias": (self.out_channels,)}


_CONV = ("stride", "padding", "dilation", "groups", "bias", "padding_mode", "device", "dtype")
_CONV_TRANSPOSE = (
    "stride", "padding", "output_padding", "groups", "bias", "dilation", "padding_mode", "device", "dtype",
)  # fmt: skip


class LazyConv1d(_LazyConv, Conv1d):
    """A Conv1d whose `in_channels` the first input tells. Like torch.nn.LazyConv1d."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyConv, Conv2d):
    """A Conv2d whose `in_channels` the first input tells. Like torch.nn.LazyConv2d."""

    cls_to_become = Conv2d


class LazyConv3d(_LazyConv, Conv3d):
    """A Conv3d whose `in_channels` the first input tells. Like torch.nn.LazyConv3d."""

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyConv, ConvTranspose1d):
    """A ConvTranspose1d whose `in_channels` the first input tells. Like torch.nn.LazyConvTranspose1d."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConv, ConvTranspose2d):
    """A ConvTranspose2d whose `in_channels` the first input tells. Like torch.nn.LazyConvTranspose2d."""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConv, ConvTranspose3d):
    """A ConvTranspose3d whose `in_channels` the first input tells. Like torch.nn.LazyConvTranspose3d."""

    cls_to_become = ConvTranspose3d


class _LazyNorm(_LazyLayer):
    """What lazy norms share: parameters and running statistics of as many channels as the first input has."""

    _size_name = "num_features"
    num_features: int
    weight: Parameter | None
    bias: Parameter | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, False, False, device, dtype)
        self.affine, self.track_running_stats = affine, track_running_stats
        if affine:
            self.weight = UninitializedParameter(device=device, dtype=dtype)
            if bias:
                self.bias = UninitializedParameter(device=device, dtype=dtype)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = tensor(0, dtype=dtypes.int64, device=device)

    def _inputs(self, input: Tensor) -> int:
        return int(input.shape[1])

    def _inputs_of(self, weight: Tensor) -> int:
        return int(weight.shape[0])

    def _shapes(self, inputs: int) -> dict[str, tuple[int, ...]]:
        self.num_features = inputs
        return dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (inputs,))


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d):
    """A BatchNorm1d whose `num_features` the first input tells. Like torch.nn.LazyBatchNorm1d."""

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d):
    """A BatchNorm2d whose `num_features` the first input tells. Like torch.nn.LazyBatchNorm2d."""

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d):
    """A BatchNorm3d whose `num_features` the first input tells. Like torch.nn.LazyBatchNorm3d."""

    cls_to_become = BatchNorm3d


class LazyInstanceNorm1d(_LazyNorm, InstanceNorm1d):
    """An InstanceNorm1d whose `num_features` the first input tells. Like torch.nn.LazyInstanceNorm1d."""

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyNorm, InstanceNorm2d):
    """An InstanceNorm2d whose `num_features` the first input tells. Like torch.nn.LazyInstanceNorm2d."""

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyNorm, InstanceNorm3d):
    """An InstanceNorm3d whose `num_features` the first input tells. Like torch.nn.LazyInstanceNorm3d."""

    cls_to_become = InstanceNorm3d
