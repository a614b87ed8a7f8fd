"""Lazy layers: they take the number of inputs from the first input, and then become ordinary layers."""

from __future__ import annotations

from typing import Any

from gradwire._base import dtypes
from gradwire._base.errors import refuse
from gradwire._base.modes import no_grad
from gradwire._functions.create import empty, ones, tensor, zeros
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
from gradwire.nn._parameter import Parameter

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
    "UninitializedParameter",
    "is_lazy",
]

_NO_SHAPE = (
    "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in `load_state_dict` "
    "when trying to load an uninitialized parameter into an initialized one. Call `forward` to initialize the "
    "parameters before accessing their attributes."
)


class UninitializedParameter(Parameter):
    """A parameter without sizes, until `materialize` makes it an ordinary one (torch.nn.UninitializedParameter)."""

    __slots__ = ()

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> UninitializedParameter:
        made: UninitializedParameter = empty(0, device=device, dtype=dtype)._as_subclass(cls)
        return made.requires_grad_(requires_grad)

    @property
    def shape(self) -> Any:
        """Refused: RuntimeError."""
        raise refuse(_NO_SHAPE)

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Take sizes, and unspecified values; optimizers that hold it keep it."""
        self.data = empty(shape, device=device or self.device, dtype=dtype or self.dtype)
        self.__class__ = Parameter  # type: ignore[assignment]

    def __deepcopy__(self, memo: dict[int, Any]) -> UninitializedParameter:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.requires_grad, self.device, self.dtype)
        made: UninitializedParameter = memo[id(self)]
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self), (self.requires_grad, self.device, self.dtype)

    def __repr__(self) -> str:
        return "<UninitializedParameter>"


def is_lazy(param: object) -> bool:
    """Whether a parameter has no sizes yet (torch.nn.parameter.is_lazy)."""
    return isinstance(param, UninitializedParameter)


class LazyModule(Module):
    """What lazy layers share: `_infer` takes the sizes of the first input, before the first forward."""

    #: The class that it becomes, and the attribute with the number of inputs.
    _becomes: type[Module] = Module
    _size_name = "in_features"

    def _set_up(self) -> None:
        self._lazy_handles = [
            self._register_load_state_dict_pre_hook(self._lazy_load),
            self.register_forward_pre_hook(self._first, prepend=True),
        ]

    def has_uninitialized_params(self) -> bool:
        """Whether one of its parameters has no sizes yet."""
        return any(is_lazy(each) for each in self._parameters.values())

    def _is_known(self) -> bool:
        return bool(getattr(self, self._size_name))

    def reset_parameters(self) -> None:
        """Draw new values, once the sizes are known."""
        if not self.has_uninitialized_params() and self._is_known():
            self._becomes.reset_parameters(self)  # type: ignore[attr-defined]

    def _first(self, module: Module, args: tuple[Any, ...]) -> None:
        self.initialize_parameters(*args)
        self._become()

    def _become(self) -> None:
        for handle in self.__dict__.pop("_lazy_handles"):
            handle.remove()
        self.__class__ = self._becomes  # type: ignore[assignment]

    def initialize_parameters(self, input: Tensor) -> None:
        """Give the parameters their sizes by an input, and their first values."""
        if self._is_known():
            return
        with no_grad():
            for name, shape in self._shapes(self._inputs(input)).items():
                held = self._parameters.get(name)
                if isinstance(held, UninitializedParameter):
                    held.materialize(shape)
        self.reset_parameters()

    def _inputs(self, input: Tensor) -> int:
        """Number of features or channels of an input."""
        return int(input.shape[-1])

    def _shapes(self, inputs: int) -> dict[str, tuple[int, ...]]:
        """Take the number of inputs; the sizes of the parameters by name."""
        raise NotImplementedError

    def _lazy_load(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        """Take the sizes of a loaded state, unless it has none either."""
        given = next(
            (state_dict[key] for key in (f"{prefix}weight", f"{prefix}running_mean") if key in state_dict), None
        )
        if self._is_known() or given is None or not given.numel():
            return
        for name, shape in self._shapes(self._inputs_of(given)).items():
            held = self._parameters.get(name)
            if isinstance(held, UninitializedParameter):
                held.materialize(shape)

    def _inputs_of(self, weight: Tensor) -> int:
        return int(weight.shape[-1])


class LazyLinear(LazyModule, Linear):
    """A Linear whose `in_features` the first input tells. Like torch.nn.LazyLinear."""

    _becomes = Linear

    def __init__(self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(0, 0, False)
        self._set_up()
        self.out_features = out_features
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def _shapes(self, inputs: int) -> dict[str, tuple[int, ...]]:
        self.in_features = inputs
        return {"weight": (self.out_features, inputs), "bias": (self.out_features,)}


class _LazyConv(LazyModule):
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
        super().__init__(0, 0, kernel_size, bias=False, **given)  # type: ignore[call-arg]
        self._set_up()
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

    _becomes = Conv1d


class LazyConv2d(_LazyConv, Conv2d):
    """A Conv2d whose `in_channels` the first input tells. Like torch.nn.LazyConv2d."""

    _becomes = Conv2d


class LazyConv3d(_LazyConv, Conv3d):
    """A Conv3d whose `in_channels` the first input tells. Like torch.nn.LazyConv3d."""

    _becomes = Conv3d


class LazyConvTranspose1d(_LazyConv, ConvTranspose1d):
    """A ConvTranspose1d whose `in_channels` the first input tells. Like torch.nn.LazyConvTranspose1d."""

    _becomes = ConvTranspose1d


class LazyConvTranspose2d(_LazyConv, ConvTranspose2d):
    """A ConvTranspose2d whose `in_channels` the first input tells. Like torch.nn.LazyConvTranspose2d."""

    _becomes = ConvTranspose2d


class LazyConvTranspose3d(_LazyConv, ConvTranspose3d):
    """A ConvTranspose3d whose `in_channels` the first input tells. Like torch.nn.LazyConvTranspose3d."""

    _becomes = ConvTranspose3d


class _LazyNorm(LazyModule):
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
        super().__init__(0, eps, momentum, False, False, device, dtype)  # type: ignore[call-arg]
        self._set_up()
        self.affine, self.track_running_stats = affine, track_running_stats
        if affine:
            self.weight = UninitializedParameter(device=device, dtype=dtype)
            if bias:
                self.bias = UninitializedParameter(device=device, dtype=dtype)
        if track_running_stats:
            # Without sizes until the first input; buffers of no elements, so that no state is saved as known.
            self.running_mean = zeros(0, device=device, dtype=dtype)
            self.running_var = ones(0, device=device, dtype=dtype)
            self.num_batches_tracked = tensor(0, dtype=dtypes.int64, device=device)

    def has_uninitialized_params(self) -> bool:
        """Whether one of its parameters or running statistics has no sizes yet."""
        return super().has_uninitialized_params() or (self.running_mean is not None and not self.running_mean.numel())

    def _inputs(self, input: Tensor) -> int:
        return int(input.shape[1])

    def _inputs_of(self, weight: Tensor) -> int:
        return int(weight.shape[0])

    def _shapes(self, inputs: int) -> dict[str, tuple[int, ...]]:
        self.num_features = inputs
        if self.running_mean is not None and not self.running_mean.numel():
            like = {"device": self.running_mean.device, "dtype": self.running_mean.dtype}
            self.running_mean, self.running_var = zeros(inputs, **like), ones(inputs, **like)
        return {"weight": (inputs,), "bias": (inputs,)}


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d):
    """A BatchNorm1d whose `num_features` the first input tells. Like torch.nn.LazyBatchNorm1d."""

    _becomes = BatchNorm1d


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d):
    """A BatchNorm2d whose `num_features` the first input tells. Like torch.nn.LazyBatchNorm2d."""

    _becomes = BatchNorm2d


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d):
    """A BatchNorm3d whose `num_features` the first input tells. Like torch.nn.LazyBatchNorm3d."""

    _becomes = BatchNorm3d


class LazyInstanceNorm1d(_LazyNorm, InstanceNorm1d):
    """An InstanceNorm1d whose `num_features` the first input tells. Like torch.nn.LazyInstanceNorm1d."""

    _becomes = InstanceNorm1d


class LazyInstanceNorm2d(_LazyNorm, InstanceNorm2d):
    """An InstanceNorm2d whose `num_features` the first input tells. Like torch.nn.LazyInstanceNorm2d."""

    _becomes = InstanceNorm2d


class LazyInstanceNorm3d(_LazyNorm, InstanceNorm3d):
    """An InstanceNorm3d whose `num_features` the first input tells. Like torch.nn.LazyInstanceNorm3d."""

    _becomes = InstanceNorm3d
