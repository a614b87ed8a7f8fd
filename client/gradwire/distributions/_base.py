"""Distribution: what all of them share: shapes, samples, densities, and the check of arguments.

Arguments and values are checked as PyTorch does, unless `validate_args=False`: then nothing is read from the server.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, TypeVar

from gradwire._base import dtypes
from gradwire._base.dtypes import Size
from gradwire._base.errors import GradwireValueError
from gradwire._base.modes import no_grad
from gradwire._functions.create import tensor
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor
from gradwire.distributions.constraints import Constraint, is_dependent

D = TypeVar("D", bound="Distribution")
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Numbers and tensors as tensors of one shape. Raises ValueError for anything else."""
    if not all(isinstance(value, (Tensor, int, float)) for value in values):
        raise ValueError(
            "Input arguments must all be instances of Number, gradwire.Tensor or objects that are like one."
        )
    like = next((value for value in values if isinstance(value, Tensor)), None)
    dtype = dtypes.get_default_dtype() if like is None or not like.is_floating_point() else like.dtype
    device = None if like is None else like.device
    held = [
        value if isinstance(value, Tensor) else tensor(float(value), dtype=dtype, device=device) for value in values
    ]
    return tuple(ops.broadcast_tensors(*held)) if len(held) > 1 else tuple(held)


_BUT = "but found invalid values"


def holds(condition: Tensor, message: str) -> bool:
    """Whether a condition holds everywhere. Only the first check at a call site waits for the answer.

    A later check that fails raises ValueError with the message at the next wait, as other deferred commands do.
    """
    try:
        ops.check_all(condition, message)
    except GradwireValueError as error:
        if error.late or str(error) != message:
            raise
        return False
    return True


class Distribution:
    """The base: a subclass defines `rsample` or `sample`, `log_prob` and further methods.

    Raises ValueError for arguments out of range. Like torch.distributions.Distribution.
    """

    arg_constraints: Any = {}  # noqa: RUF012
    support: Any = None
    has_rsample = False
    has_enumerate_support = False
    _validate_args: bool = __debug__  # of instances without `validate_args`, too

    def __init__(
        self, batch_shape: Sequence[int] = (), event_shape: Sequence[int] = (), validate_args: bool | None = None
    ) -> None:
        self._batch_shape = Size(batch_shape)
        self._event_shape = Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_arguments()

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions check their arguments by default. Raises ValueError for no bool."""
        if value not in (True, False):
            raise ValueError("set_default_validate_args takes True or False")
        Distribution._validate_args = value

    def _check_arguments(self) -> None:
        for name, constraint in self.arg_constraints.items():
            value = self.__dict__.get(name)
            if not isinstance(value, Tensor) or not isinstance(constraint, Constraint) or is_dependent(constraint):
                continue
            who = f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of distribution"
            with no_grad():
                good = constraint.check(value.detach())
            if not holds(good, f"{who} {type(self).__name__} to satisfy the constraint {constraint!r}, {_BUT}"):
                raise ValueError(f"{who} {self!r} to satisfy the constraint {constraint!r}, {_BUT}:\n{value}")

    @property
    def batch_shape(self) -> Size:
        """The shape over which it is batched."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one sample of one of the batch."""
        return self._event_shape

    def expand(self: D, batch_shape: Sequence[int], _instance: Any = None) -> D:
        """The same with its arguments, and the distributions that it is made of, expanded to a batch shape."""
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        batched = len(self._batch_shape)
        for name, value in self.__dict__.items():
            if not isinstance(value, (Tensor, Distribution)):
                continue
            shape = value.shape if isinstance(value, Tensor) else value.batch_shape
            # Values for the whole batch do not change.
            if tuple(shape[:batched]) == tuple(self._batch_shape):
                made.__dict__[name] = value.expand((*batch_shape, *shape[batched:]))
        made._batch_shape = Size(batch_shape)
        return made

    @property
    def mean(self) -> Tensor:
        """The mean."""
        raise NotImplementedError(f"{type(self).__name__} has no mean here")

    @property
    def mode(self) -> Tensor:
        """The most probable value."""
        raise NotImplementedError(f"{type(self).__name__} has no mode here")

    @property
    def variance(self) -> Tensor:
        """The variance."""
        raise NotImplementedError(f"{type(self).__name__} has no variance here")

    @property
    def stddev(self) -> Tensor:
        """The standard deviation."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Samples, outside of any graph: sample_shape + batch_shape + event_shape."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Samples that are a function of the arguments, so that gradients reach these."""
        raise NotImplementedError(f"{type(self).__name__} has no reparametrized samples here; use sample()")

    def sample_n(self, n: int) -> Tensor:
        """As sample((n,)), which has taken its place."""
        warnings.warn("sample_n will be deprecated. Use .sample((n,)) instead", UserWarning, stacklevel=2)
        return self.sample((n,))

    def log_prob(self, value: Any) -> Tensor:
        """The log of the density, or probability, of a value."""
        raise NotImplementedError(f"{type(self).__name__} has no log_prob here")

    def cdf(self, value: Any) -> Tensor:
        """The probability of values up to one."""
        raise NotImplementedError(f"{type(self).__name__} has no cdf here")

    def icdf(self, value: Any) -> Tensor:
        """The value up to which the probability is one."""
        raise NotImplementedError(f"{type(self).__name__} has no icdf here")

    def entropy(self) -> Tensor:
        """The entropy, in nats."""
        raise NotImplementedError(f"{type(self).__name__} has no entropy here")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values, along a new first dimension."""
        raise NotImplementedError(f"{type(self).__name__} has no finite support")

    def perplexity(self) -> Tensor:
        """exp(entropy)."""
        return self.entropy().exp()

    def _extended(self, sample_shape: Sequence[int]) -> tuple[int, ...]:
        given = (sample_shape,) if isinstance(sample_shape, int) else tuple(sample_shape)
        return (*given, *self._batch_shape, *self._event_shape)

    def _checked(self, value: Any) -> Any:
        """A value for log_prob. Raises ValueError for one of another shape, or outside of the support."""
        if not self._validate_args:
            return value
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        shape = tuple(value.shape)
        events = len(self._event_shape)
        if shape[len(shape) - events :] != tuple(self._event_shape):
            raise ValueError(
                f"The right-most size of value must match event_shape: {shape} vs {tuple(self._event_shape)}."
            )
        wanted = (*self._batch_shape, *self._event_shape)
        for one, other in zip(reversed(shape), reversed(wanted), strict=False):
            if 1 not in (one, other) and one != other:
                raise ValueError(f"Value is not broadcastable with batch_shape+event_shape: {shape} vs {wanted}.")
        support = self.support
        if isinstance(support, Constraint):
            who = f"Expected value argument ({type(value).__name__} of shape {shape}) to be within the support"
            with no_grad():
                good = support.check(value.detach())
            if not holds(good, f"{who} of the distribution {type(self).__name__}, {_BUT}"):
                raise ValueError(f"{who} ({support!r}) of the distribution {self!r}, {_BUT}:\n{value}")
        return value

    # Names by which classes made for PyTorch call these.

    def _validate_sample(self, value: Any) -> None:
        validate, self._validate_args = self._validate_args, True
        try:
            self._checked(value)
        finally:
            self._validate_args = validate

    def _extended_shape(self, sample_shape: Sequence[int] = ()) -> Size:
        return Size(self._extended(sample_shape))

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        if _instance is None and type(self).__init__ != cls.__init__:  # type: ignore[misc]
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ method must also "
                "define a custom .expand() method."
            )
        return type(self).__new__(type(self)) if _instance is None else _instance

    def __repr__(self) -> str:
        held = {name: self.__dict__[name] for name in self.arg_constraints if name in self.__dict__}
        shown = (f"{name}: {value if value.numel() == 1 else value.shape}" for name, value in held.items())
        return f"{type(self).__name__}({', '.join(shown)})"


def _new(like: Tensor, shape: Sequence[int]) -> Tensor:
    return like.new_empty(tuple(shape))


def uniform(like: Tensor, shape: Sequence[int]) -> Tensor:
    """Numbers in (0, 1), of a tensor's dtype and device."""
    tiny = dtypes.finfo(like.dtype).tiny
    return _new(like, shape).uniform_().clamp_(min=tiny)


def normal(like: Tensor, shape: Sequence[int]) -> Tensor:
    """Standard normal numbers, of a tensor's dtype and device."""
    return _new(like, shape).normal_()
