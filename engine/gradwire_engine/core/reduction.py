"""Reduction of several arrays, element by element, for collectives between sessions.

The arrays are combined in the order given, so the result does not depend on who computes it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradwire_engine.core.dtypes import COMPLEX, FLOAT, DType, category, name_of
from gradwire_engine.core.errors import EngineError, Reason

HostArray = np.ndarray[Any, Any]
_COMBINE: dict[str, Callable[..., Any]] = {
    "sum": np.add,
    "avg": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}
REDUCTIONS = frozenset(_COMBINE)


def check_reduction(name: str, dtype: DType) -> None:
    """Check that a reduction exists for a dtype. Raises EngineError: DTYPE."""
    kind = category(dtype)
    if (
        (name == "avg" and kind not in (FLOAT, COMPLEX))
        or (name in ("min", "max") and kind == COMPLEX)
        or (name in ("band", "bor", "bxor") and kind in (FLOAT, COMPLEX))
    ):
        raise EngineError(Reason.DTYPE, f"the reduction {name} does not support {name_of(dtype)}")


def reduce_into(name: str, sources: Sequence[HostArray], out: HostArray) -> None:
    """Write the reduction of `sources`, in their order, to `out`. All have one shape and dtype.

    `out` may be the first or the second source, no later one.
    Values of two bytes are combined in float32 and rounded once. check_reduction() says which dtypes are possible.
    """
    combine = _COMBINE[name]
    with np.errstate(all="ignore"):
        if out.dtype.itemsize == 2 and category(out.dtype) == FLOAT:
            total = sources[0].astype(np.float32)
            for source in sources[1:]:
                combine(total, source.astype(np.float32), out=total)
            if name == "avg":
                total /= len(sources)
            out[...] = total
            return
        if len(sources) == 1:
            out[...] = sources[0]
        else:
            combine(sources[0], sources[1], out=out)
        for source in sources[2:]:
            combine(out, source, out=out)
        if name == "avg":
            np.divide(out, len(sources), out=out)
