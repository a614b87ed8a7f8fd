"""Plans that are launched at once: the calls of a run, captured as a CUDA graph.

The first run is made call by call. A later one, in which no input has moved, is made so too, but with all temporary
arrays in the plan's own memory. The next is captured, and from then on a run is one launch. Inputs that move are
copied to fixed memory before; outputs and gradients are copied from it afterwards. A plan that cannot be captured, or
whose capture fails, runs call by call; `uncaptured` says why.

Indices are checked before a launch, by the bounds of the inputs that hold them (core/index_bounds.py). A run with an
index out of bounds is made call by call, and the op refuses it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, Literal

import numpy as np

from gradwire_engine.compile.fusion.cuda_graph import Arena, Numbers, captured
from gradwire_engine.compile.fusion.fused import OPTIONS
from gradwire_engine.compile.plan_code import Code, PlanCode
from gradwire_engine.compile.trace import Instr, NumRef, leaves
from gradwire_engine.core.device import Array, cupy, module_of
from gradwire_engine.core.errors import EngineError
from gradwire_engine.core.index_bounds import IGNORED, bounds_of, checked
from gradwire_engine.graph.tensor import Storage, Tensor

log = logging.getLogger("gradwire.engine")

#: Ops that neither wait for the GPU nor read or write host memory, with their formulas; views need no entry.
CAPTURED = frozenset(
    (
        "_transposed", "_fold", "_unsafe_view", "reshape", "view", "transpose", "permute", "clone", "_row_major",
        "_channels_last", "unbind", "stack",
        "_linear_mm", "_linear_addmm", "mm", "bmm", "addmm", "_matmul_batched", "_convolution", "_batch_norm",
        "_layer_norm", "_max_pool", "_running", "_nll_loss", "_embedding", "add", "sub", "mul", "div", "neg", "relu",
        "tanh", "sigmoid", "exp", "sum", "mean", "softmax", "log_softmax", "gelu", "_fused_attention",
        "_cast", "pow",
    )
)  # fmt: skip
# Ops that index: the places of the indices, of what they index, and its dimension.
_INDEXED = {"_nll_loss": (1, 0), "_embedding": (0, 1)}
# Launches from which a graph is worth its capture.
_WORTH = 3
# How often inputs that cannot be copied may move: each time the plan is captured again.
_MOST_MOVES = 8
# Dtypes in which a number is used, at most.
_DTYPES = 4
#: How a run is made: call by call, the same in the plan's memory, or by the graph.
Way = Literal["calls", "arena", "graph"]

#: An input that holds indices: its place, how many may be indexed, and the value that is ignored.
_Guard = tuple[int, int, int]


class GraphState:
    """A plan on its way to a graph: `graph` is None until it is captured."""

    def __init__(self, numbers: int, guards: Sequence[_Guard]) -> None:
        self.arena = Arena()
        self.numbers = Numbers(numbers)
        self.guards = guards
        self.graph: Any = None
        self.is_warm = False  # whether a run has been made in the arena
        self.moves = 0  # of inputs that are not copied
        self.results: dict[int, Array] = {}
        self.storage: Storage | None = None

    def moved(self) -> None:
        """Forget the graph, whose addresses are no longer those of the inputs."""
        self.graph, self.is_warm, self.results = None, False, {}

    def __del__(self) -> None:
        self.graph, self.results = None, {}
        self.arena.close()


class PlanGraph(PlanCode):
    """A plan's code that may become a graph. See the module's docstring."""

    moving: set[int]
    copied: dict[int, Array]
    bound: list[Any]
    changes: dict[int, int]
    storage: Storage
    dynamic_bytes: int
    interrupt_check: Any
    # Of Plan: bind the arrays of the inputs; whether an input may be copied before each run instead.
    bind: Callable[[list[Any]], None]
    may_copy: Callable[[int, Array], bool]

    #: Why runs are no launches of a graph; empty if they are, or may become so.
    uncaptured = "it is not on a GPU"
    graph: GraphState | None = None
    way: Way = "calls"  # how the current run is made
    has_moved = False  # whether an input has moved in the current run

    # What can be captured.

    def may_capture(self) -> str:
        """Why this plan is never captured; empty if it may be."""
        module: Any = cupy()
        if OPTIONS.mode == "verify":
            return "its kernels are verified"
        if module.products() is None:
            return "cublasLt is not installed"
        hosted = {instr.outs[0] for instr in self.instrs if type(instr.what) is np.ndarray}
        why = next(filter(None, (_uncaptured(instr, hosted) for instr in self.instrs)), "")
        launches = sum(not _is_view(instr) for instr in self.instrs)
        return why or ("" if launches >= _WORTH else "it is few launches")

    def _guards(self) -> list[_Guard] | str:
        """The inputs that hold indices; or why indices cannot be checked before a run."""
        found: list[_Guard] = []
        for instr in self.instrs:
            if instr.kind != "op" or instr.what.name not in _INDEXED:
                continue
            indices, table = (instr.args[place] for place in _INDEXED[instr.what.name])
            place = next((each for each, number in enumerate(self.input_regs) if self.roots[indices] == {number}), None)
            if place is None or place in self.changes:
                return f"{instr.what.name} has computed indices"
            shape = self.regs[table].shape
            if instr.what.name == "_nll_loss":
                found.append((place, shape[1] if len(shape) > 1 else shape[0], instr.args[4]))
            else:
                found.append((place, shape[0], 0))
        return found

    def _indices_fit(self, inputs: Sequence[Tensor], guards: Iterable[_Guard]) -> bool:
        """Whether all indices are in bounds. Waits for the GPU if an input's bounds are not known."""
        for place, size, ignored in guards:
            bounds = bounds_of(inputs[place].storage, inputs[place].array)
            if bounds.least < 0 or bounds.most >= size or (bounds.ignored and ignored != IGNORED):
                return False
        return True

    # Inputs.

    def _number(self, place: int, dtype: Any) -> Array:
        return super()._number(place, dtype) if self.graph is None else self.graph.numbers.array(place, dtype)

    def moved_inputs(self, arrays: Sequence[Any], changed: set[int]) -> set[int]:
        """Those of the changed inputs whose addresses are not those of the graph."""
        moved = set()
        for place in changed:
            array, bound = arrays[place], self.bound[place]
            if type(array) is np.ndarray or (bound is not None and array.data.ptr == bound.data.ptr):
                self.bound[place] = array
            else:
                moved.add(place)
        return moved

    def fix_inputs(self, arrays: list[Any], places: Iterable[int]) -> None:
        """Give inputs that move fixed memory. The others are captured again, but not without end."""
        assert self.graph is not None
        self.graph.moved()
        stays = False
        for place in places:
            array = arrays[place]
            if type(array) is np.ndarray:
                continue
            if self.may_copy(place, array):
                self.moving.add(place)
                self.copied[place] = module_of(array).empty(array.shape, array.dtype)
                continue
            self.moving.discard(place)
            stays = True
        self.graph.moves += stays
        if self.graph.moves > _MOST_MOVES:
            self.give_up("inputs that it changes move from run to run", arrays)

    def copy_inputs(self, arrays: Sequence[Any]) -> None:
        """Copy inputs that move to their fixed memory."""
        for place, buffer in self.copied.items():
            buffer.data.copy_from_device_async(arrays[place].data, buffer.nbytes)

    # Runs.

    def choose_way(self, inputs: Sequence[Tensor], arrays: list[Any]) -> Way:
        """How to make the current run; captures it if it is time. Nothing is computed yet."""
        if self.uncaptured:
            return "calls"
        if self.graph is None and (self.has_moved or not self._begin(arrays)):
            return "calls"
        state = self.graph
        assert state is not None
        state.numbers.write(self.numbers)
        if not self._indices_fit(inputs, state.guards):
            return "calls"
        if not state.is_warm:
            return "arena"
        return "graph" if state.graph is not None or self._capture(state, arrays) else "calls"

    def _begin(self, arrays: list[Any]) -> bool:
        """Give the plan what a graph needs; return whether it may become one."""
        guards = self._guards()
        if isinstance(guards, str):
            self.give_up(guards, arrays)
            return False
        self.graph = GraphState(_DTYPES * len(self.numbers), guards)
        self.fix_inputs(arrays, set(self.moving))
        if self.graph is None:
            return False
        self.bind(arrays)
        self.copy_inputs(arrays)
        return True

    def give_up(self, why: str, arrays: list[Any]) -> None:
        """Run call by call from now on."""
        log.info("a plan runs call by call: %s", why)
        self.uncaptured, self.graph = why, None
        self.copied.clear()
        self.dynamic_bytes = self._dynamic_bytes()
        self.bind(arrays)

    def _capture(self, state: GraphState, arrays: list[Any]) -> bool:
        """Capture the run; return whether that was possible. If not, nothing of it was computed."""

        def run() -> None:
            with checked():
                for call in self.code:
                    if call is not self.interrupt_check:
                        call()

        try:
            state.graph = captured(run, state.arena)
        except Exception as error:  # noqa: BLE001 - a call that cannot be captured; told as the reason
            self.give_up(f"its capture failed: {error}", arrays)
            return False
        state.results = {number: self.values[number] for number in self.leaving}
        return True

    def run_in_arena(self, calls: Iterable[Code]) -> None:
        """Make a run with all temporary arrays in the plan's memory."""
        assert self.graph is not None
        with self.graph.arena.allocating(), checked():
            for call in calls:
                if call is not self.interrupt_check:
                    call()

    def keep_arena(self, arrays: list[Any]) -> None:
        """Count the plan's memory after a run in it, whose results have left. Without room it is given up."""
        state, account = self.graph, self.storage.account
        assert state is not None
        state.storage = None
        size = state.arena.bytes + sum(buffer.nbytes for buffer in self.copied.values())
        try:
            account.admit(size)
        except EngineError as error:
            self.give_up(f"its memory is too large: {error}", arrays)
            return
        state.storage, state.is_warm = Storage(size, account), True
        self.dynamic_bytes = sum(map(self._nbytes, self.leaving))

    def launch(self) -> None:
        """Make a run by the graph."""
        assert self.graph is not None
        self.graph.graph.launch()
        for number, array in self.graph.results.items():
            self.values[number] = array


def _is_view(instr: Instr) -> bool:
    return instr.kind in ("constant", "own") or (instr.kind == "op" and bool(instr.what.view))


def _uncaptured(instr: Instr, hosted: Container[int]) -> str:
    """Why an instruction is not captured; empty if it is. hosted: registers in host memory."""
    name = instr.what[0] if instr.kind in ("formula", "spread") else getattr(instr.what, "name", instr.kind)
    if any(number in hosted for number in instr.reads()):
        return f"{name} reads host memory"
    if instr.kind in ("fused", "constant", "own", "sum", "accumulate"):
        return ""
    if any(type(item) is NumRef for item in leaves(instr.args)):
        return f"a number of {name} differs from run to run"
    known = instr.kind in ("op", "formula", "spread", "write") and (name in CAPTURED or _is_view(instr))
    return "" if known else f"{name} may wait for the GPU or read host memory"
