"""Operands: the tensors of a collective, checked and described for the other ranks."""

import hashlib
import math
from collections.abc import Iterable, Sequence
from typing import Protocol

from gradwire_engine import Tensor
from gradwire_engine.core.device import is_writable
from gradwire_engine.core.dtypes import DType, name_of
from gradwire_server.common.errors import Refusal
from gradwire_server.session.state.group_table import GroupTable

_MAX_SHOWN = 300  # characters of a collective's description in messages
COPIED = 1 << 20  # elements that are copied between two looks at the clock


class ExchangeScope(Protocol):
    """What a collective needs of a session, of a program's step or of a plan."""

    groups: GroupTable

    def tensors(self, ids: Iterable[int], /) -> list[Tensor]:
        """The tensors of ids or slots. Raises Refusal."""


def described(name: str, tensors: Sequence[Tensor]) -> str:
    """What all ranks must agree on, in at most _MAX_SHOWN characters and a hash."""
    dtypes = " and ".join(sorted({name_of(each.dtype) for each in tensors}))
    text = f"{name} of {dtypes} {', '.join(str(list(each.shape)) for each in tensors)}" if tensors else name
    if len(text) > _MAX_SHOWN:
        digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        text = f"{text[:_MAX_SHOWN]}… ({len(tensors)} tensors, {digest})"
    return text


def one_dtype(tensors: Sequence[Tensor]) -> DType:
    """The dtype of all tensors. Raises Refusal: DTYPE."""
    found = {each.dtype for each in tensors}
    if len(found) != 1:
        names = ", ".join(sorted(map(name_of, found))) or "none"
        raise Refusal("DTYPE", f"a collective's tensors have one dtype, not {names}")
    return tensors[0].dtype


def check_written(tensors: Sequence[Tensor]) -> None:
    """Check that values can be written to the tensors. Raises Refusal: RUNTIME."""
    for each in tensors:
        array = each.array
        overlaps = any(size > 1 and not stride for size, stride in zip(array.shape, array.strides, strict=True))
        if overlaps or not is_writable(array):
            raise Refusal(
                "RUNTIME",
                "unsupported operation: more than one element of the written-to tensor refers to a single memory "
                "location. Please clone() the tensor before performing the operation.",
            )


def count_of(tensors: Sequence[Tensor]) -> int:
    """Number of elements of all tensors."""
    return sum(math.prod(each.shape) for each in tensors)
