"""Switches of PyTorch's dispatcher (torch._C): they exist for libraries that set them, and have no effect here."""

from __future__ import annotations

from contextvars import ContextVar


class DisableTorchFunction:
    """Context in which subclasses' `__torch_function__` is not called (torch._C.DisableTorchFunctionSubclass).

    It is never called for tensors here.
    """

    def __enter__(self) -> DisableTorchFunction:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class _Keys(type):
    """Class whose attributes are all names of keys."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class DispatchKey(metaclass=_Keys):
    """Names of backends and layers of PyTorch's dispatcher: ops have one implementation here."""


class DispatchKeySet(frozenset[str]):
    """Several of them."""

    def __new__(cls, *keys: str) -> DispatchKeySet:
        """A set of these keys."""
        return super().__new__(cls, keys)

    def has(self, key: str) -> bool:
        """Whether a key is among them."""
        return key in self


_NO_KEYS = DispatchKeySet()
_EXCLUDED: ContextVar[DispatchKeySet] = ContextVar("gradwire_excluded_keys", default=_NO_KEYS)


class ExcludeDispatchKeyGuard(DisableTorchFunction):
    """Context in which keys are passed over: none is used here, but `excluded_keys` names them."""

    def __init__(self, keys: DispatchKeySet) -> None:
        self.keys = keys

    def __enter__(self) -> ExcludeDispatchKeyGuard:
        self._token = _EXCLUDED.set(DispatchKeySet(*_EXCLUDED.get(), *self.keys))
        return self

    def __exit__(self, *error: object) -> None:
        _EXCLUDED.reset(self._token)


def excluded_keys() -> DispatchKeySet:
    """The keys of the guards around (torch._C._dispatch_tls_local_exclude_set)."""
    return _EXCLUDED.get()
