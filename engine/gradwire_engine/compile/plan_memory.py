"""The memory of a plan: each kernel's result gets memory that is reused after the last use of its contents."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from gradwire_engine.compile.kernels.registry import Kernel
from gradwire_engine.compile.schedule import Schedule
from gradwire_engine.compile.trace import Instr, Ref, Reg
from gradwire_engine.core.context import Account
from gradwire_engine.core.device import CPU, module_for

Array = Any


class PlanMemory(Schedule):
    """A schedule with memory for its kernels' results.

    leaving: registers of outputs and of gradients. memory: by register. scratch: temporary memory of in-place ops, by
    their instruction's id. bytes: of both together.
    """

    leaving: frozenset[int]
    memory: dict[int, Array]
    scratch: dict[int, Array]
    bytes: int

    def _allocate(self, account: Account) -> None:
        """Assign memory to each kernel's result, reusing memory whose last use is this or an earlier instruction.

        Raises EngineError: MEMORY_LIMIT, before an allocation that would exceed the limit.
        """
        free: dict[tuple[int, Any], list[Array]] = {}
        holder: dict[int, Array] = {}  # root register -> flat memory
        self.bytes = sum(instr.what.nbytes for instr in self.instrs if instr.kind == "constant")
        for place, (instr, kernel) in enumerate(zip(self.instrs, self.kernels, strict=True)):
            dying = {root for number in instr.reads() for root in self.roots[number] if self.last[root] == place}
            if instr.kind == "fused":
                self.bytes += instr.what.nbytes
                account.admit(self.bytes)
                for out in instr.outs:
                    if self.makes_anew(out):
                        continue
                    holder[out] = self._fresh(self.regs[out], free, account)
                    self.memory[out] = holder[out].reshape(self.regs[out].shape)
                dying.update(out for out in instr.outs if self.last[out] == place)
            elif kernel is not None and instr.outs:
                self.bytes += kernel.nbytes
                account.admit(self.bytes)
                out = instr.outs[0]
                reg = self.regs[out]
                flat = self._taken(instr, kernel, reg, dying, holder)
                if flat is None:
                    flat = self._fresh(reg, free, account)
                holder[out] = flat
                shaped = flat.reshape(reg.shape[::-1]).T if kernel.transposed else flat.reshape(reg.shape)
                self.memory[out] = shaped
                if self.last[out] == place:
                    dying.add(out)
            elif kernel is not None and kernel.scratch and not kernel.splits(self._size(instr)):
                reg = self.regs[instr.args[0]]
                flat = self._fresh(reg, free, account)
                self.scratch[id(instr)] = flat.reshape(reg.shape)
                free.setdefault((flat.size, flat.dtype), []).append(flat)
            for root in dying:
                flat = holder.pop(root, None)
                if flat is not None:
                    free.setdefault((flat.size, flat.dtype), []).append(flat)

    def _size(self, instr: Instr) -> int:
        return prod(self.regs[instr.args[0]].shape)

    def _taken(self, instr: Instr, kernel: Kernel, reg: Reg, dying: set[int], holder: dict[int, Array]) -> Array | None:
        for position in kernel.takes:
            given = instr.args[position]
            if type(given) is not Ref or int(given) not in dying or int(given) not in holder:
                continue
            old = self.regs[given]
            # Another view of this memory, say transposed, would be read after it is overwritten; the same view is safe.
            shown = any(self.roots[other] & self.roots[int(given)] for other in instr.reads() if other != given)
            lone = not shown and self.roots[int(given)] == frozenset((int(given),))
            if lone and old.shape == reg.shape and old.dtype == reg.dtype and not self._is_transposed(int(given)):
                dying.discard(int(given))
                return holder.pop(int(given))
        return None

    def _is_transposed(self, number: int) -> bool:
        return not self.memory[number].flags.c_contiguous

    def _fresh(self, reg: Reg, free: dict[tuple[int, Any], list[Array]], account: Account) -> Array:
        size = prod(reg.shape)
        waiting = free.get((size, reg.dtype))
        if waiting:
            return waiting.pop()
        self.bytes += size * reg.dtype.itemsize
        account.admit(self.bytes)
        if self.device != CPU:
            return module_for(self.device).empty(size, reg.dtype)
        return _aligned(size, reg.dtype)

    def makes_anew(self, number: int) -> bool:
        """Whether each run makes new memory for a fused result: on a GPU, for what leaves the plan, uncopied."""
        return self.device != CPU and number in self.leaving

    def _dynamic_bytes(self) -> int:
        made = [out for instr, kernel in zip(self.instrs, self.kernels, strict=True)
                for out in instr.outs if out >= 0 and (kernel is None or self.makes_anew(out))]  # fmt: skip
        split = [instr.args[0] for instr, kernel in zip(self.instrs, self.kernels, strict=True)
                 if kernel is not None and instr.kind == "write" and kernel.scratch
                 and kernel.splits(self._size(instr))]  # fmt: skip
        split += [instr.args[0] for instr in self.instrs if instr.kind == "update"]  # a product that no library adds
        return sum(map(self._nbytes, made)) + max(map(self._nbytes, split), default=0)

    def _nbytes(self, number: int) -> int:
        reg = self.regs[number]
        return prod(reg.shape) * int(reg.dtype.itemsize)


def _aligned(size: int, dtype: Any) -> Array:
    """Allocate uninitialized memory aligned to a cache line (64 bytes)."""
    raw = np.empty(size * dtype.itemsize + 64, np.uint8)
    begin = -raw.__array_interface__["data"][0] % 64
    return raw[begin : begin + size * dtype.itemsize].view(dtype)
