"""Functions with a derivative of the user's own (torch.autograd.Function).

`forward` runs here, on proxies, without a graph. Then one command makes its results the outputs of a node of the
server's graph. Saved values are on the server, so they are freed, counted and checked for changes like any op's. When
backward reaches the node, the server asks for the derivative, and `backward` runs in the client.
"""

from __future__ import annotations

import functools
import inspect
import warnings
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

from gradwire._base.errors import GradwireNotImplementedError, GradwireTypeError, refuse
from gradwire._base.modes import is_grad_enabled, is_inference_mode_enabled, no_grad
from gradwire._base.refused import refusal
from gradwire._base.wiring import names_of_paths
from gradwire._functions.saved_tensor_hooks import packing
from gradwire._functions.stored_values import StoredValues, split_values
from gradwire._graph import commands
from gradwire._graph.hook_runner import CURRENT_PASS, IN_CHECKPOINT, HookArguments
from gradwire._graph.hooks import HeldHooks, HookOfTensor
from gradwire._graph.nodes import Node, class_of
from gradwire._graph.sparse_gradients import kept_from_server, note_leaves
from gradwire._proxy.dual_levels import DUAL_LEVELS, DualLevel
from gradwire._proxy.handle import Handle
from gradwire._proxy.memo import Spec, read_spec
from gradwire._proxy.results import update_in_place
from gradwire._proxy.shadow_graph import NodeHooks, hold_hooks
from gradwire._proxy.transforms import TRANSFORM
from gradwire._tensor.batching import BATCHING, FUNCTIONS
from gradwire._tensor.in_place import check_in_place
from gradwire._tensor.tensor import Tensor
from gradwire._transport.wire import Value
from gradwire.autograd.function_tangents import level_of, with_tangents
from gradwire.v1 import errors_pb2, hooks_pb2, service_pb2

_F = TypeVar("_F", bound="Callable[..., Any]")

_READ_TWICE = (
    "torch.utils.checkpoint: Unpack is being triggered for a tensor that was already unpacked once. If you are calling "
    "ctx.saved_tensors in backward, make sure to do so only once. Otherwise please open an issue with details on your "
    "use case."
)


def _nothing() -> None:
    """The output of a function that was not recorded."""


class FunctionCtx:
    """What forward leaves for backward (torch.autograd.function.FunctionCtx); any attribute may be set, too."""

    #: Per argument of apply, whether a gradient is wanted for it.
    needs_input_grad: tuple[bool, ...] = ()
    materialize_grads = True
    _materialize_non_diff_grads = True

    def __init__(self) -> None:
        self._to_save: tuple[Any, ...] = ()
        self._for_jvp: tuple[Any, ...] = ()
        self._changed_inputs = False
        self._saved: tuple[Any, ...] | None = None
        #: What a backward that kept the graph got, if it holds no result of the function.
        self._kept: tuple[Any, ...] | None = None
        #: An output, whose node has the saved values after forward.
        self._output: Callable[[], Any] = _nothing
        self._references: tuple[weakref.ref[Any], ...] = ()
        #: What makes the saved tensors of those that the node has: the values of sparse ones.
        self._rebuild: Callable[[Sequence[Any]], tuple[Any, ...]] = tuple
        self._in_checkpoint = False
        self._reads = 0
        self._dirty: tuple[Any, ...] = ()
        self._constant: tuple[Any, ...] = ()
        self._constant_places: frozenset[int] = frozenset()
        #: The ctx that the node has, if it is another.
        self._of_node: FunctionCtx | None = None
        #: Per level of tangents, outermost first, what backward is shown while the level is open.
        self._at_levels: list[tuple[DualLevel, FunctionCtx | Sequence[Any]]] = []
        #: Which argument or result each saved tensor is: (0 or 1, place), or None for another.
        self._origins: list[tuple[int, int] | None] = []

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Save inputs, outputs or others for backward, which gets them as `saved_tensors`. Raises TypeError."""
        for place, each in enumerate(tensors):
            if each is not None and not isinstance(each, (Handle, StoredValues)):
                raise GradwireTypeError(
                    f"save_for_backward can only save variables, but argument {place} is of type {type(each).__name__}"
                )
        self._to_save = tensors

    def saved_objects(self) -> dict[int, Any]:
        """The objects that were saved and still exist, by id: backward gets these, where they are the values."""
        return {each._id: each for reference in self._references if (each := reference()) is not None}

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Save inputs, outputs or others for jvp, which gets them as `saved_tensors`, and none of backward's."""
        self._for_jvp = tensors

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The saved tensors, with their history.

        Raises RuntimeError after backward has freed them, and in a checkpoint if one backward reads them twice.
        """
        if self._saved is not None:
            self._reads += 1
            if self._in_checkpoint and self._reads > 1:
                raise refuse(_READ_TWICE)
            return self._saved
        output = self._output()
        if output is not None and output.__dict__.get("_function_context", (None,))[0] is output._edge:
            return self._rebuild(output.grad_fn._saved_saved_tensors)
        if self._kept is not None:
            return self._kept
        return self._to_save

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        """`saved_tensors` by its old name, with PyTorch's warning."""
        warnings.warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2)
        return self.saved_tensors

    def mark_dirty(self, *args: Tensor) -> None:
        """Tell which inputs forward has changed in place; it has to return them."""
        self._dirty = args
        self._changed_inputs = bool(args)

    def mark_non_differentiable(self, *args: Tensor) -> None:
        """Tell which outputs no gradient flows through."""
        self._constant = args

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros, rather than None, for outputs that no gradient came for."""
        self.materialize_grads = bool(value)


class BackwardCFunction(FunctionCtx):
    """The context of one call, which stands for the call's node, too (torch.autograd.function.BackwardCFunction)."""

    def __init__(self, name: str = "") -> None:
        super().__init__()
        self._name = name

    def name(self) -> str:
        """The name of the function's node."""
        return self._name

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """The nodes that receive the node's gradients; none before forward has ended, and without a result."""
        output = self._output()
        node = None if output is None else output.grad_fn
        return () if node is None else node.next_functions


class Function:
    """Subclass it with static methods `forward` and `backward`, and call `apply` (torch.autograd.Function).

    `forward(ctx, *args)`, or `forward(*args)` with `setup_context(ctx, inputs, output)`, computes; `backward(ctx,
    *grad_outputs)` returns one gradient per argument, None for non-tensors.
    """

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the results."""
        raise GradwireNotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Save what backward needs, where forward does not take ctx."""
        raise GradwireNotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """The gradients of the arguments, given those of the results."""
        raise GradwireNotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with "
            "backward mode AD."
        )

    vjp = backward
    #: The class of the function's nodes.
    _backward_cls: type[Node]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._backward_cls = class_of(f"{cls.__name__}Backward")

    #: Under vmap, forward is called on batched tensors. PyTorch does so only where this is set.
    generate_vmap_rule = False

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """The tangents of the results, given those of the arguments: None for one that is no tensor."""
        raise GradwireNotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        """How the function is mapped over a batch: the result, and its dimensions of samples, nested like it or None.

        `info` has batch_size and randomness. `in_dims` are nested like the arguments, None for one without samples.
        Arguments of the mapped function have vmap's `in_dims`, other tensors 0. A function without it is called on
        the samples' batched tensors.
        """
        raise GradwireNotImplementedError("To use autograd.Function with vmap, you must override the vmap staticmethod")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise refuse(
            "Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd "
            "function with static forward method: call `apply` of the class."
        )

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Call the function. Raises what forward raises, RuntimeError for a leaf that was changed in place.

        Keywords are for functions with `setup_context`, which gets them among `inputs`, as it does defaults.
        """
        in_two = cls.setup_context is not Function.setup_context
        if not in_two and TRANSFORM.get() is not None and not is_internal(cls):
            raise refuse(
                "In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, jacrev, ...), it "
                "must override the setup_context staticmethod. For more details, please see "
                "https://pytorch.org/docs/main/notes/extending.func.html"
            )
        return cls._apply_by_rules(args, kwargs)

    @classmethod
    def _apply_by_rules(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function by the rules of what is under way, or as it is, with tangents or without."""
        for rule in FUNCTIONS if BATCHING else ():
            made = rule(cls, args, kwargs)
            if made is not NotImplemented:
                return made
        if cls.setup_context is not Function.setup_context:
            bound = inspect.signature(cls.forward).bind(*args, **kwargs)
            bound.apply_defaults()
            args = bound.args
        elif kwargs:
            raise GradwireTypeError(f"{cls.__name__}.apply() takes no keyword arguments")
        level = level_of(args) if DUAL_LEVELS.get() else None
        if level is not None:
            return with_tangents(cls, level, args, cls._call_below)
        return cls._apply(args)[0]

    @classmethod
    def _node_name(cls) -> str:
        """The name of the function's nodes: transforms that differentiate make another class of it, as PyTorch's do."""
        inside = TRANSFORM.get()
        while inside is not None and not inside.differentiates:
            inside = inside.outer
        return f"{cls.__name__}Backward" if inside is None else f"{cls.__name__}GeneratedBackward"

    @classmethod
    def _call_below(cls, args: tuple[Any, ...]) -> tuple[Any, FunctionCtx | None, tuple[Any, ...]]:
        """Call the function on arguments without a level's tangents: result, ctx and what it saved for jvp.

        If they have tangents at levels outside, ctx is one whose saved tensors have them, too; None without
        setup_context.
        """
        outer = level_of(args)
        if outer is None:
            return cls._apply(args)
        below: list[Any] = []

        def call(primals: tuple[Any, ...]) -> tuple[Any, FunctionCtx | None, tuple[Any, ...]]:
            below.append(cls._call_below(primals))
            return below[0]  # type: ignore[no-any-return]

        result = with_tangents(cls, outer, args, call)
        if cls.setup_context is Function.setup_context:
            return result, None, ()
        ctx = BackwardCFunction(f"{cls.__name__}Backward")
        cls.setup_context(ctx, args, result)
        ctx._of_node = below[0][1]._of_node or below[0][1]
        return result, ctx, ctx._for_jvp

    @classmethod
    def _note_tangents(cls, ctx: FunctionCtx, level: DualLevel, args: Sequence[Any], result: Any) -> None:
        """Show backward what it was left with tangents at a level, while the level is open.

        PyTorch calls forward with these. Without them a gradient's tangent would lack its dependence on the arguments.
        """
        of_node = ctx._of_node or ctx
        results = result if isinstance(result, tuple) else (result,)
        if not any(isinstance(each, Handle) and each._spec.requires_grad for each in results):
            return
        if cls.setup_context is Function.setup_context:
            values = (args, results)
            shown: Any = [origin and values[origin[0]][origin[1]] for origin in of_node._origins]
        else:
            shown = FunctionCtx()
            shown.needs_input_grad = of_node.needs_input_grad
            cls.setup_context(shown, tuple(args), result)
        of_node._at_levels.append((level, shown))

    @classmethod
    def _apply(cls, args: tuple[Any, ...]) -> tuple[Any, FunctionCtx, tuple[Any, ...]]:
        """Call the function on complete arguments without tangents: result, ctx and what it saved for jvp."""
        ctx = BackwardCFunction(f"{cls.__name__}Backward")
        in_two = cls.setup_context is not Function.setup_context
        _refuse_sparse(cls, args)
        tensors = [each if isinstance(each, Handle) else None for each in args]
        for each in tensors:
            if each is not None:
                each.is_leaf  # type: ignore[attr-defined] # noqa: B018 brings it up to date, or refuses a stale view
        needs = tuple(each is not None and each._spec.requires_grad for each in tensors)
        ctx.needs_input_grad = needs
        with _unrecorded():
            if in_two:
                result = cls.forward(*args)
                cls.setup_context(ctx, args, result)
            else:
                result = cls.forward(ctx, *args)
        saved = ctx._for_jvp
        several = isinstance(result, tuple)
        results = list(result) if several else [result]
        if in_two:
            _check_saved_inputs(ctx, tensors, results)
        ctx._constant_places = _places_of(ctx._constant, results)
        if not (is_grad_enabled() and any(needs)):
            # An input returned as it is: PyTorch returns a view of it, or a detached tensor if it requires grad.
            given = {id(each) for each in tensors if each is not None} - {id(each) for each in ctx._dirty}
            returned = any(id(each) in given for each in results)
            results = [each.detach() if id(each) in given and each._spec.requires_grad else each for each in results]
            if returned or any(isinstance(each, Handle) and each._spec.is_view for each in results):
                results = _separate(results, tensors, ctx)
                record(f"{cls.__name__}Backward", 0, (), _tensors_of(results), dirty=ctx._dirty)
                return tuple(results) if several else results[0], ctx, saved
            return result, ctx, saved
        _refuse_sparse(cls, results, always=True)
        results = _separate(results, tensors, ctx)
        _record(cls, ctx, tensors, results)
        ctx._to_save = ctx._dirty = ctx._constant = ()
        ctx._for_jvp = ()
        return tuple(results) if several else results[0], ctx, saved


def is_internal(function: type[Function]) -> bool:
    """Whether a function is this package's own, to which the rules for functions under transforms do not apply."""
    return function.__module__.startswith("gradwire.")


def _check_saved_inputs(ctx: FunctionCtx, tensors: Sequence[Any], results: Sequence[Any]) -> None:
    """Refuse to save an input that is an output, too: it is replaced by a view, which `setup_context` has not seen."""
    unchanged = {id(each) for each in tensors if each is not None} - {id(each) for each in ctx._dirty}
    returned = {id(each) for each in results} & unchanged
    if any(id(each) in returned for each in (*ctx._to_save, *ctx._for_jvp)):
        raise refuse(
            "An input that has been returned as-is as output is being saved for backward. This is not supported if you "
            "override setup_context. You should return and save a view of the input instead, e.g. with x.view_as(x) or "
            "setup ctx inside the forward function itself."
        )


def _separate(results: list[Any], tensors: Sequence[Any], ctx: FunctionCtx) -> list[Any]:
    """The results. A view replaces an input that is returned unchanged: a view can have a separate history."""
    inputs = {id(each) for each in tensors if each is not None} - {id(each) for each in ctx._dirty}
    with _unrecorded():
        made = [_view_of(each) if id(each) in inputs else each for each in results]
    replaced = {id(old): new for old, new in zip(results, made, strict=True) if old is not new}
    ctx._constant = tuple(replaced.get(id(each), each) for each in ctx._constant)
    return made


def _view_of(returned: Any) -> Any:
    """A view of an input that is returned as it is. One of a program's own class keeps the class, or overrides this."""
    kind = type(returned)
    if kind.__module__.partition(".")[0] == "gradwire":
        return returned.view_as(returned)
    override = getattr(kind, "__torch_function__", None)
    if override is not None and override is not getattr(Tensor, "__torch_function__", None):
        return override(Tensor.view_as, (kind,), (returned, returned), {})
    return returned.view_as(returned)._as_subclass(kind)


def _refuse_sparse(cls: type[Function], values: Sequence[Any], always: bool = False) -> None:
    """Refuse sparse tensors that a function would have to give a history, or have a gradient of."""
    for each in values:
        if isinstance(each, StoredValues) and (always or (each.requires_grad and is_grad_enabled())):
            raise refusal(
                f"autograd.Function ({cls.__name__}) with a differentiable sparse argument or result",
                "give it the values, and make the sparse tensor outside of it",
            )


def _unrecorded() -> Any:
    """No grad mode; in inference mode that mode, so that results are its tensors."""
    return nullcontext() if is_inference_mode_enabled() else no_grad()


def _tensors_of(values: Sequence[Any]) -> list[Any]:
    """The tensors in order, and None for non-tensors."""
    return [each if isinstance(each, Handle) else None for each in values]


def _record(cls: type[Function], ctx: FunctionCtx, tensors: Sequence[Any], results: list[Any]) -> None:
    """Let the results be a node's outputs."""
    ctx._dirty = _inputs_changed(ctx._dirty, tensors, results)
    outputs, dirty = _tensors_of(results), ctx._dirty
    session = commands.common_session(cls.__name__, [each for each in (*tensors, *outputs) if each is not None])
    number = next(session.ids)
    name = cls._node_name()
    leaves = note_leaves(tensors)
    saved, rebuild = split_values(ctx._to_save)
    ctx._origins = [_origin(each, (tensors, outputs)) for each in ctx._to_save]
    wanted = [each is not None for each in tensors]
    undefined = [
        place
        for place, each in enumerate(outputs)
        if not ctx._materialize_non_diff_grads and any(each is other for other in ctx._constant)
    ]

    keeps = not any(each is other for each in ctx._to_save for other in outputs if other is not None)

    # Holds no result of the function: the node holds what was saved.
    def run(hook_arguments: HookArguments) -> Sequence[Any]:
        gradients = [None if place in undefined else each for place, each in enumerate(hook_arguments.gradients)]
        ctx._saved, ctx._reads = rebuild(hook_arguments.others), 0
        try:
            made = _checked(name, formula(cls)(_with_open_tangents(ctx), *gradients), wanted)
            current = CURRENT_PASS.get()
            return made if current is None else kept_from_server(made, leaves, current.sparse, name)
        finally:
            this = CURRENT_PASS.get()
            ctx._kept = ctx._saved if keeps and this is not None and this.keeps_graph else None
            ctx._saved = None

    run.near = ctx.saved_objects  # type: ignore[attr-defined]
    ctx._references = tuple([weakref.ref(each) for each in saved if each is not None])
    ctx._rebuild = rebuild
    ctx._in_checkpoint = IN_CHECKPOINT.get()
    session.hooks[number] = run
    try:
        packing(
            session,
            lambda: record(name, number, tensors, outputs, saved, ctx._dirty, ctx._constant, ctx.materialize_grads),
            outputs,
        )
    except BaseException:
        session.hooks.pop(number, None)
        raise
    for each in outputs:
        if each is not None and each._spec.grad_fn and not each._spec.is_leaf:
            each.__dict__["_function_context"] = (each._edge, ctx)
            ctx._output = weakref.ref(each)
    _hold_derivative(session, number, outputs, dirty)


def _origin(saved: Any, values: Sequence[Sequence[Any]]) -> tuple[int, int] | None:
    """Which of the arguments or of the results a saved tensor is."""
    for group, tensors in enumerate(values):
        place = _first(tensors, saved)
        if place >= 0:
            return group, place
    return None


def _with_open_tangents(ctx: FunctionCtx) -> FunctionCtx:
    """The ctx that backward gets: with the tangents of the innermost level that is open, if its call had any."""
    for level, shown in reversed(ctx._at_levels):
        if level in DUAL_LEVELS.get():
            if isinstance(shown, FunctionCtx):
                return shown
            assert ctx._saved is not None
            ctx._saved = tuple(
                plain if other is None else other for plain, other in zip(ctx._saved, shown, strict=True)
            )
            break
    return ctx


def _hold_derivative(session: Any, number: int, outputs: Sequence[Any], dirty: Sequence[Any]) -> None:
    """Let the outputs hold the derivative, and with it the context, in place of the session.

    So does the base of a view that was changed in place: its new history leads to the function by itself.
    """
    bases = [view.base for each in dirty if (view := each.__dict__.get("_view")) is not None]
    nodes = [each._edge for each in (*outputs, *bases) if each is not None and each._spec.grad_fn]
    if not nodes or not all(nodes):
        return
    held = HeldHooks()
    session.hooks[number] = HookOfTensor(held, session.hooks[number])
    session.hook_holders.add(held)
    for node in nodes:
        hold_hooks(node, held)


def _inputs_changed(dirty: Sequence[Any], tensors: Sequence[Any], results: Sequence[Any]) -> tuple[Any, ...]:
    """Those marked dirty that are inputs; warns of others. Raises RuntimeError for what may not be changed in place."""
    changed = []
    for each in dirty:
        if not any(each is other for other in results):
            raise refuse(
                "Some elements marked as dirty during the forward method were not returned as output. The inputs that "
                "are modified inplace must all be outputs of the Function."
            )
        if not any(each is other for other in tensors):
            warnings.warn(
                "Only input Tensors should be given to ctx.mark_dirty(). If a Tensor is not an input, there is no need "
                "to pass it to mark_dirty().",
                UserWarning,
                stacklevel=4,
            )
            continue
        if each._spec.is_leaf and each._spec.requires_grad:
            raise refuse(
                "a leaf Variable that requires grad has been used in an in-place operation.",
                errors_pb2.REASON_LEAF_IN_PLACE,
            )
        check_in_place("", (each,), True, (each,))
        changed.append(each)
    return tuple(changed)


def formula(cls: type[Function]) -> Callable[..., Any]:
    """The derivative that a function defines. Raises RuntimeError where it defines two."""
    if cls.vjp is Function.vjp:
        return cls.backward
    if cls.backward is not Function.backward:
        raise refuse(
            "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only implement "
            "one of them."
        )
    return cls.vjp


def _checked(name: str, answer: Any, wanted: Sequence[bool]) -> list[Any]:
    """The gradients that backward returned, one per argument. Raises RuntimeError."""
    made = list(answer) if isinstance(answer, tuple) else [answer]
    if len(made) > len(wanted) and all(each is None for each in made[len(wanted) :]):
        del made[len(wanted) :]
    if len(made) != len(wanted):
        raise refuse(
            f"function {name} returned an incorrect number of gradients (expected {len(wanted)}, got {len(made)})"
        )
    for place, (gradient, is_tensor) in enumerate(zip(made, wanted, strict=True)):
        if gradient is None:
            continue
        if not is_tensor:
            raise refuse(
                f"function {name} returned a gradient different than None at position {place + 1}, but the "
                "corresponding forward input was not a Variable"
            )
        if not isinstance(gradient, (Handle, StoredValues)):
            raise refuse(f"expected Variable or None (got {type(gradient).__name__})")
    return made


def record(
    name: str,
    number: int,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    saved: Sequence[Any] = (),
    dirty: Sequence[Any] = (),
    constant: Sequence[Any] = (),
    materialize: bool = True,
) -> None:
    """Make tensors a node's outputs: it asks for its derivative by a number, or without one hands gradients on."""
    lists = (inputs, outputs, saved, dirty, constant)
    # Each list as how many there are and which of them are tensors; the ids are the values.
    shape = tuple(tuple(each is not None for each in one) for one in lists)
    values: list[Value] = [number] if number else []
    values += [each._id for one in lists for each in one if each is not None]
    session = commands.common_session(name, [each for one in lists for each in one if each is not None])

    def build(values: Sequence[Value]) -> service_pb2.Command:
        ids = iter([int(value) for value in values])
        hook = next(ids) if number else 0
        parts = [[next(ids) if present else 0 for present in one] for one in shape]
        request = hooks_pb2.RecordFunctionRequest(
            hook=hook,
            name=name,
            inputs=parts[0],
            outputs=parts[1],
            saved=parts[2],
            dirty=parts[3],
            non_differentiable=parts[4],
            keeps_undefined=not materialize,
        )
        return service_pb2.Command(record_function=request)

    def read(result: service_pb2.Result) -> tuple[Spec, ...]:
        return tuple(read_spec(spec) for spec in result.record_function.outputs)

    same = tuple(tuple(_first(one, each) for one in (inputs, outputs)) for each in (*inputs, *outputs, *dirty))
    specs = tuple(None if each is None else each._spec for one in lists for each in one)
    key = (name, bool(number), shape, materialize, same, specs)
    edges = [each._edge for each in inputs if each is not None and each._edge is not None]
    if edges and len(outputs) > 1:
        edges.append(NodeHooks())
    made = commands.run(session, "record_function", key, values, build, read)
    assert made is not None
    for output, spec in zip([each for each in outputs if each is not None], made, strict=True):
        if spec.grad_fn and any(output is each for each in dirty):
            update_in_place(output, spec, list(edges), True)
            continue
        output._spec = spec
        view = output.__dict__.get("_view")
        if view is not None and output._storage is not None:
            view.version, output._changes_seen = output._storage.version, output._storage.changes
        if spec.grad_fn:
            output._edge = list(edges)


def _places_of(wanted: Sequence[Any], results: Sequence[Any]) -> frozenset[int]:
    """Where results are that are marked."""
    return frozenset(place for place, each in enumerate(results) if any(each is one for one in wanted))


def _first(tensors: Sequence[Any], wanted: Any) -> int:
    """Where a tensor is among others, -1 if it is not."""
    return next((place for place, each in enumerate(tensors) if each is wanted and each is not None), -1)


def hand_on(name: str, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The same tensors behind a new node, through which their gradients pass unchanged.

    Those that require no gradient still require none.
    """
    with no_grad():
        made = [each.view_as(each) for each in tensors]
    constant = [new for new, each in zip(made, tensors, strict=True) if not each._spec.requires_grad]
    record(name, 0, tensors, made, constant=constant)
    return made


class InplaceFunction(Function):
    """A function that may change its inputs in place; nothing more here (torch.autograd.function.InplaceFunction)."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace


class Delayed(Function):
    """The identity; its derivative is refused with the class's message."""

    message = "trying to differentiate twice a function that was marked with @once_differentiable"

    @classmethod
    def _node_name(cls) -> str:
        return "Error"

    @staticmethod
    def forward(ctx: Any, *tensors: Any) -> Any:
        return tuple(None if each is None else each.detach() for each in tensors)

    @classmethod
    def backward(cls, ctx: Any, *grad_outputs: Any) -> Any:
        raise refuse(cls.message)


def once_differentiable(function: _F) -> _F:
    """Decorate a `backward` that cannot be differentiated itself: trying to is refused."""

    @functools.wraps(function)
    def wrapper(ctx: Any, *gradients: Any) -> Any:
        with no_grad():
            made = function(ctx, *gradients)
        if not any(isinstance(each, Handle) and each._spec.requires_grad for each in gradients):
            return made
        parts: list[Any] = list(made) if isinstance(made, tuple) else [made]
        leaves = [each.detach().requires_grad_() if isinstance(each, Tensor) else None for each in parts]
        delayed = Delayed.apply(*leaves)
        return delayed if isinstance(made, tuple) else delayed[0]

    return wrapper  # type: ignore[return-value]


# PyTorch's further names of this module (`_paths`).
__getattr__ = names_of_paths(__name__)
