"""Special functions under PyTorch's names (torch.special): the ops of "special.", and those torch has too."""

from __future__ import annotations

from typing import Any

from gradwire._base.absent import absent
from gradwire._tensor import ops

_PREFIX = "special_"
# PyTorch has these in both places; the second is their name there.
_SHARED = {
    "digamma": "digamma", "erf": "erf", "erfc": "erfc", "erfinv": "erfinv", "exp2": "exp2", "expit": "sigmoid",
    "expm1": "expm1", "gammaln": "lgamma", "log1p": "log1p", "log_softmax": "log_softmax", "logit": "logit",
    "logsumexp": "logsumexp", "polygamma": "polygamma", "psi": "digamma", "round": "round", "sinc": "sinc",
    "softmax": "softmax", "xlogy": "xlogy", "i0": "i0", "gammainc": "igamma", "gammaincc": "igammac",
    "multigammaln": "mvlgamma",
}  # fmt: skip
__all__ = [
    *sorted(
        {name[len(_PREFIX) :] for name in vars(ops) if name.startswith(_PREFIX)}
        | {name for name, there in _SHARED.items() if hasattr(ops, there)}
    )
]


def __getattr__(name: str) -> Any:
    found = getattr(ops, _PREFIX + name, None) or getattr(ops, _SHARED.get(name, _PREFIX + name), None)
    if found is None:
        raise absent("gradwire.special", name, lambda: __all__)
    return found


def __dir__() -> list[str]:
    return list(__all__)
