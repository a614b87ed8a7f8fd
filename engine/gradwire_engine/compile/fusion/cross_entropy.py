"""Cross entropy in machine code: what NumPy's indexing is slow at, with the same bits as NumPy's kernel.

`pick` checks the targets, and gathers the log-probabilities at them. `scatter` changes the gradient: it subtracts 1
there and multiplies all by a number. exp and the sum of a batch stay NumPy's.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import Template
from typing import Any
from weakref import ref

import numpy as np

from gradwire_engine.compile.fusion.kernel_cache import Kernel

_TYPES = {"f": "float", "d": "double"}

_PICK = """\
define void @entry(i64 %begin, i64 %end, ptr %scratch, ptr %table) #0 {
start:
  %n = load i64, ptr %table
$pointers
  br label %loop
loop:
  %i = phi i64 [ %begin, %start ], [ %i.next, %loop ]
  %wrong = phi i64 [ 0, %start ], [ %wrong.next, %loop ]
  %t.at = getelementptr i64, ptr %target, i64 %i
  %t = load i64, ptr %t.at
  %is = icmp ult i64 %t, %n
  %safe = select i1 %is, i64 %t, i64 0
  %one = select i1 %is, i64 0, i64 1
  %wrong.next = or i64 %wrong, %one
  %first = mul nsw i64 %i, %n
  %at = add nsw i64 %first, %safe
  %p.at = getelementptr i64, ptr %positions, i64 %i
  store i64 %at, ptr %p.at
  %x.at = getelementptr $type, ptr %logs, i64 %at
  %x = load $type, ptr %x.at
  %y.at = getelementptr $type, ptr %picked, i64 %i
  store $type %x, ptr %y.at
  %i.next = add nsw i64 %i, 1
  %more = icmp slt i64 %i.next, %end
  br i1 %more, label %loop, label %done
done:
  store i64 %wrong.next, ptr %flag
  ret void
}
attributes #0 = { nounwind }
"""
_SCATTER = """\
define void @entry(i64 %begin, i64 %end, ptr %scratch, ptr %table) #0 {
start:
  %n = load i64, ptr %table
$pointers
  %s = load $type, ptr %share
  br label %loop
loop:
  %i = phi i64 [ %begin, %start ], [ %i.next, %loop ]
  %p.at = getelementptr i64, ptr %positions, i64 %i
  %at = load i64, ptr %p.at
  %x.at = getelementptr $type, ptr %out, i64 %at
  %x = load $type, ptr %x.at
  %y = fsub $type %x, 1.0
  store $type %y, ptr %x.at
  %i.next = add nsw i64 %i, 1
  %more = icmp slt i64 %i.next, %end
  br i1 %more, label %loop, label %scale
scale:
  %first = mul nsw i64 %begin, %n
  %last = mul nsw i64 %end, %n
  br label %each
each:
  %k = phi i64 [ %first, %scale ], [ %k.next, %each ]
  %z.at = getelementptr inbounds $type, ptr %out, i64 %k
  %z = load $type, ptr %z.at
  %w = fmul $type %z, %s
  store $type %w, ptr %z.at
  %k.next = add nsw i64 %k, 1
  %k.more = icmp slt i64 %k.next, %last
  br i1 %k.more, label %each, label %done
done:
  ret void
}
attributes #0 = { nounwind }
"""
_OPERANDS = {_PICK: ("logs", "target", "positions", "picked", "flag"), _SCATTER: ("out", "positions", "share")}


def sources(dtype: str) -> tuple[str, str]:
    """The modules of `pick` and `scatter` for a dtype, "f" or "d"."""
    return _source(_PICK, dtype), _source(_SCATTER, dtype)


def _source(text: str, dtype: str) -> str:
    pointers = "\n".join(
        f"  %{name}.in = getelementptr i64, ptr %table, i64 {place}\n  %{name} = load ptr, ptr %{name}.in"
        for place, name in enumerate(_OPERANDS[text], 1)
    )
    return Template(text).substitute(type=_TYPES[dtype], pointers=pointers)


class LossKernels:
    """The two kernels for losses of one shape. Its arrays are its own; those that are given are not held."""

    def __init__(self, pick: Kernel, scatter: Kernel, positions: Any, picked: Any) -> None:
        """positions, picked: row-major arrays of an element per row, int64 and the loss's dtype."""
        assert pick.entry is not None
        assert scatter.entry is not None
        self._kernels = pick, scatter  # own the code
        self._pick, self._scatter, self._rows = pick.entry, scatter.entry, len(positions)
        self._positions, self._picked, self._share = positions, picked, np.empty((), picked.dtype)
        self._flag = np.zeros((), np.int64)
        self._picks = np.zeros(6, np.int64)
        self._scatters = np.zeros(4, np.int64)
        self._picks[3:] = _addresses((positions, picked, self._flag))
        self._scatters[2:] = _addresses((positions, self._share))
        self._given: tuple[Any, ...] = ()
        self._out: Any = None
        self._tables = _addresses((self._picks, self._scatters))

    def pick(self, logs: Any, target: Any) -> bool | None:
        """Fill positions and picked values; whether all targets are classes. None if a layout is not supported."""
        given = self._given
        if not given or given[0]() is not logs or given[1]() is not target:
            if not (logs.flags.c_contiguous and target.flags.c_contiguous):
                return None
            self._given = ()
            self._picks[:3] = logs.shape[1], *_addresses((logs, target))
            self._given = ref(logs), ref(target)
        self._pick(0, self._rows, None, self._tables[0])
        return not self._flag

    def scatter(self, out: Any, share: Any) -> bool:
        """Subtract 1 at the positions, multiply by a number; False with nothing changed for another layout."""
        if self._out is None or self._out() is not out:
            if not out.flags.c_contiguous or out.dtype != self._share.dtype:
                return False
            self._out = None
            self._scatters[:2] = out.shape[1], *_addresses((out,))
            self._out = ref(out)
        self._share[()] = share
        self._scatter(0, self._rows, None, self._tables[1])
        return True


def _addresses(arrays: Sequence[Any]) -> list[int]:
    return [int(each.__array_interface__["data"][0]) for each in arrays]
