"""Grad modes: whether ops are recorded, per thread and per asyncio task; every command carries the mode."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Generator
from contextvars import ContextVar
from typing import Any, TypeVar

from gradwire.v1 import types_pb2 as pb

_F = TypeVar("_F", bound=Callable[..., Any])


class Inference:
    """The mode of inference_mode: records nothing, and its results can never join a graph."""

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "INFERENCE"


INFERENCE = Inference()
Mode = bool | Inference

#: A new thread starts with the default: enabled. Each asyncio task has its own mode; PyTorch's leaks to other tasks.
GRAD_ENABLED: ContextVar[Mode] = ContextVar("gradwire_grad_enabled", default=True)


def is_grad_enabled() -> bool:
    """Whether operations are recorded now (torch.is_grad_enabled)."""
    return bool(GRAD_ENABLED.get())


def is_inference_mode_enabled() -> bool:
    """Whether inference mode is on (torch.is_inference_mode_enabled)."""
    return GRAD_ENABLED.get() is INFERENCE


def wire_mode(mode: Mode) -> pb.GradMode:
    """The contract's code of the mode. Enabled is the default, GRAD_MODE_UNSPECIFIED."""
    if mode:
        return pb.GRAD_MODE_UNSPECIFIED
    return pb.GRAD_MODE_INFERENCE if mode is INFERENCE else pb.GRAD_MODE_DISABLED


class _Mode:
    """A context manager and decorator that sets the mode to `_flag` inside."""

    _flag: Mode = True

    def __init__(self) -> None:
        self._before: list[Mode] = []

    def __enter__(self) -> None:
        self._before.append(GRAD_ENABLED.get())
        GRAD_ENABLED.set(self._flag)

    def __exit__(self, *exc: object) -> None:
        GRAD_ENABLED.set(self._before.pop())

    def __call__(self, function: _F) -> _F:
        """Decorate a function, generator function or coroutine function: its body runs in this mode."""
        flag = self._flag
        if inspect.isclass(function):
            warnings.warn(
                "Decorating classes is deprecated and will be disabled in future versions. You should only decorate "
                "functions or methods. To preserve the current behavior of class decoration, you can directly decorate "
                "the `__init__` method and nothing else.",
                FutureWarning,
                stacklevel=2,
            )
        if inspect.isgeneratorfunction(function):
            return _decorate_generator(function, flag)  # type: ignore[return-value]
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def coroutine(*args: Any, **kwargs: Any) -> Any:
                with _Fixed(flag):
                    return await function(*args, **kwargs)

            return coroutine  # type: ignore[return-value]

        @functools.wraps(function)
        def plain(*args: Any, **kwargs: Any) -> Any:
            with _Fixed(flag):
                return function(*args, **kwargs)

        return plain  # type: ignore[return-value]


class _Fixed(_Mode):
    def __init__(self, flag: Mode) -> None:
        super().__init__()
        self._flag = flag


def _decorate_generator(function: Callable[..., Any], flag: Mode) -> Callable[..., Any]:
    """Set the mode while the generator runs, but not between its steps, while its caller runs."""

    @functools.wraps(function)
    def steps(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        generator = function(*args, **kwargs)
        step: Callable[[], Any] = functools.partial(next, generator)
        try:
            while True:
                try:
                    with _Fixed(flag):
                        value = step()
                except StopIteration as end:
                    return end.value
                try:
                    sent = yield value
                except GeneratorExit:
                    raise
                except BaseException as thrown:  # noqa: BLE001 - the generator's to handle
                    step = functools.partial(generator.throw, thrown)
                else:
                    step = functools.partial(generator.send, sent)
        finally:
            with _Fixed(flag):
                generator.close()

    return steps


class no_grad(_Mode):
    """Record nothing inside; context manager and decorator, with or without brackets (torch.no_grad)."""

    _flag = False

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        mode = super().__new__(cls)
        if function is None:
            return mode
        cls.__init__(mode)
        return mode(function)

    def __init__(self, function: Callable[..., Any] | None = None) -> None:
        super().__init__()


class enable_grad(no_grad):
    """Record inside, also within no_grad (torch.enable_grad)."""

    _flag = True


class inference_mode(_Mode):
    """Disable recording like no_grad; tensors made inside can never join a graph (torch.inference_mode).

    These tensors have no version counter. They can be changed in place only in this mode, and cannot be saved for
    backward. inference_mode(False) enables recording.
    """

    def __new__(cls, mode: Any = True) -> Any:
        made = super().__new__(cls)
        if callable(mode):
            cls.__init__(made, True)
            return made(mode)
        return made

    def __init__(self, mode: Any = True) -> None:
        super().__init__()
        self._flag = INFERENCE if mode else True


class set_grad_enabled(_Mode):
    """Set the mode from now on, or for a `with` block or a decorated function (torch.set_grad_enabled)."""

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self._flag = bool(mode)
        self._called = GRAD_ENABLED.get()
        GRAD_ENABLED.set(self._flag)

    def __enter__(self) -> None:
        GRAD_ENABLED.set(self._flag)

    def __exit__(self, *exc: object) -> None:
        GRAD_ENABLED.set(self._called)

    def __call__(self, function: _F) -> _F:
        # Undo the change by __init__: a decorator sets the mode only in the function's body.
        GRAD_ENABLED.set(self._called)
        return super().__call__(function)
