"""Tensor commands: handlers that create, change, differentiate and read tensors (commands.py has the table).

A program's steps run the handlers that take a `TensorScope` (scope.py).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from typing import Any

from gradwire.v1 import commands_pb2, types_pb2
from gradwire_engine import (
    Backward,
    EngineError,
    Generator,
    Gradients,
    Tensor,
    detach_from_base,
    retain_grad,
    set_data,
    set_grad,
    set_requires_grad,
    tensor,
)
from gradwire_engine.autograd.node_call import NodeCall
from gradwire_engine.autograd.noted_pass import Later
from gradwire_engine.core.device import CPU, canonical, selected, to_device
from gradwire_engine.core.index_bounds import note as note_bounds
from gradwire_engine.core.random import MT19937, PCG64
from gradwire_server.common.engine_errors import describe_operands
from gradwire_server.common.errors import Refusal
from gradwire_server.common.payload import TO_WIRE, array_of, bytes_of, check_size, checked_bytes, dtype_of, wire_view
from gradwire_server.session.activity_report import report_activity
from gradwire_server.session.arguments import NAMED_OPS, NamedOp, check_in_place, named_op
from gradwire_server.session.hook_commands import node_behind, pass_through
from gradwire_server.session.scope import TensorScope
from gradwire_server.session.session import Session
from gradwire_server.session.specs import fill_spec, tell_base, tell_memory

MAX_DESCRIBED = 10_000
DEFAULT_LISTED = 1000
_ALGORITHM_NUMBERS = {PCG64: types_pb2.RANDOM_ALGORITHM_PCG64, MT19937: types_pb2.RANDOM_ALGORITHM_MT19937}
# Clients and logs from before the field mean PCG64.
_ALGORITHMS = {types_pb2.RANDOM_ALGORITHM_UNSPECIFIED: PCG64} | {
    number: name for name, number in _ALGORITHM_NUMBERS.items()
}


def create(scope: TensorScope, request: commands_pb2.CreateRequest, answer: commands_pb2.CreateResponse | None) -> None:
    """Create a leaf. The size is checked against dtype and shape before any allocation."""
    scope.check_new(request.id)
    source = request.WhichOneof("source")
    if source is None:
        raise Refusal("MALFORMED", "create needs a payload or a transfer")
    described: Any = request.payload if source == "payload" else request.transfer
    dtype = dtype_of(described.dtype)
    wanted = checked_bytes(described.shape, dtype)
    limits = scope.limits
    if wanted > limits.max_tensor_bytes:
        raise Refusal(
            "PAYLOAD_SIZE",
            f"a tensor has at most {limits.max_tensor_bytes} bytes, not {wanted}",
            limit=limits.max_tensor_bytes,
            given=wanted,
        )
    device = canonical(request.device or None)
    if source == "payload":
        data: Any = request.payload.data
        check_size(described.shape, dtype, len(data))
        if wanted > limits.max_inline_bytes:
            raise Refusal(
                "MESSAGE_TOO_LARGE",
                f"a payload in a message has at most {limits.max_inline_bytes} bytes, not {wanted}; use Upload",
                limit=limits.max_inline_bytes,
                given=wanted,
            )
        scope.account.admit(wanted)
    else:
        upload = scope.transfers.finished(described.transfer_id)
        check_size(described.shape, dtype, upload.total)
        data = upload.buffer
    array = array_of(data, dtype, described.shape, copy=source == "payload")
    scope.enter(scope.context(request.grad_mode))
    made = tensor(to_device(array, device), request.requires_grad)
    if device != CPU:
        note_bounds(made.storage, made.array, array)
    if source == "transfer":
        scope.transfers.forget(described.transfer_id)
    made_id = scope.bind(request.id, made)
    if answer is not None:
        fill_spec(answer.tensor, made, made_id)


def op(session: Session, request: commands_pb2.OpRequest, answer: commands_pb2.OpResponse | None) -> None:
    """Apply an op and bind its results."""
    name = request.op
    call = NAMED_OPS.get(name) or named_op(name)
    args = call.decode(request.args, session)
    session.enter(session.context(request.grad_mode, request.default_dtype))
    if not call.in_place:
        apply_op(session, call, args, request.outputs, answer)
        return
    check_in_place(call, request.outputs, type(args[0]) is Tensor)
    try:
        changed = call.apply(args)
    except EngineError as error:
        describe_operands(error, call.name, args)
        raise
    if answer is not None:
        first_id = next((item.tensor for item in request.args if item.name in ("", call.params[0].name)), 0)
        fill_spec(answer.outputs.add(), changed, first_id)


def apply_op(
    session: Session, call: NamedOp, args: tuple[Any, ...], ids: Sequence[int], answer: commands_pb2.OpResponse | None
) -> None:
    """Apply an op that is not in place to complete arguments and bind its results."""
    count = len(ids)
    if count == 1:
        tensor_id = ids[0]
        session.check_new(tensor_id)
    else:
        tensor_id = 0
        session.check_all_new(ids)
    try:
        result = call.apply(args)
    except EngineError as error:
        describe_operands(error, call.name, args)
        raise
    if type(result) is Tensor:
        if count > 1:
            raise _too_many(call.name, 1, ids)
        same_as = session.names.get(result, 0)
        detach_from_intermediates(session, args, (result,))
        tensor_id = session.bind(tensor_id, result)
        if answer is not None:
            spec = answer.outputs.add()
            fill_spec(spec, result, tensor_id, _flag(call, args))
            spec.same_as = same_as
            spec.is_view = spec.is_view and not _hides_its_base(session, result)
    else:
        bind_results(session, call, args, result, ids, answer)


def bind_results(
    session: Session,
    call: NamedOp,
    args: tuple[Any, ...],
    result: Sequence[Tensor],
    ids: Sequence[int],
    answer: commands_pb2.OpResponse | None,
) -> None:
    """Bind an op's results to `ids`; the server chooses missing ids."""
    if len(ids) > len(result):
        raise _too_many(call.name, len(result), ids)
    session.check_room(len(result))
    names = session.allot(ids, len(result))
    detach_from_intermediates(session, args, result)
    if answer is not None:
        flag = _flag(call, args)
        for tensor_id, item in zip(names, result, strict=True):
            spec = answer.outputs.add()
            fill_spec(spec, item, tensor_id, flag)
            spec.same_as = session.names.get(item, 0)
            spec.is_view = spec.is_view and not _hides_its_base(session, item)
        _check_answer(session, call.name, answer)
    for tensor_id, item in zip(names, result, strict=True):
        session.bind(tensor_id, item)


def _hides_its_base(session: Session, item: Tensor) -> bool:
    """Whether a view's base has no id: an intermediate result of the op."""
    return item.view is not None and item.view.base not in session.names


def detach_from_intermediates(session: Session, args: Iterable[Any], result: Sequence[Tensor]) -> None:
    """Make views of an op's intermediate results stand alone, unless others share their storage.

    Otherwise later views of such a result would have a base that no client knows, and would not follow its changes.
    """
    hiding = [item for item in result if _hides_its_base(session, item)]
    if hiding:
        given = [each for value in args for each in (value if type(value) is list else (value,))]
        counts = Counter(id(each.storage) for each in (*given, *result) if type(each) is Tensor)
        for item in hiding:
            if counts[id(item.storage)] == 1:
                detach_from_base(item)


def _check_answer(session: Session, name: str, answer: commands_pb2.OpResponse) -> None:
    """Check that the results' descriptions fit a message, before ids are bound that the client would not learn."""
    size, limit = answer.ByteSize(), session.limits.max_message_bytes
    if size > limit:
        raise Refusal(
            "MESSAGE_TOO_LARGE",
            f"{name}() has {len(answer.outputs)} results, described in {size} bytes, but {limit} are the cap",
            limit=limit,
        )


def _flag(call: Any, args: tuple[Any, ...]) -> bool:
    return bool(call.data_dependent(*args)) if call.data_dependent is not None else call.always_data_dependent


def _too_many(name: str, made: int, ids: Sequence[int]) -> Refusal:
    return Refusal("ARGUMENT_VALUE", f"{name}() has {made} results, but {len(ids)} ids were given", argument="outputs")


def run_backward(
    scope: TensorScope, request: commands_pb2.BackwardRequest, answer: commands_pb2.BackwardResponse | None
) -> Iterator[None] | None:
    """Add gradients to the leaves."""
    scope.enter(scope.grad_context)
    if scope.passes is not None and _is_of_scalar(request):
        received = scope.passes.run(scope.tensor(request.tensors[0]), request.retain_graph)
        if isinstance(received, list):
            if answer is not None:
                answer.accumulated.extend(scope.ids_of(received))
            return None
        if received is not None:
            return _run_rest(scope, received, request, answer)
    return _run_ordinary(scope, request, answer)


def _run_rest(
    scope: TensorScope, rest: Later, request: commands_pb2.BackwardRequest, answer: commands_pb2.BackwardResponse | None
) -> Iterator[None]:
    """Run a repeated backward from its first pause on."""
    received = yield from rest
    if received is None:
        scope.enter(scope.grad_context)
        yield from _run_ordinary(scope, request, answer)
    elif answer is not None:
        answer.accumulated.extend(scope.ids_of(received))


def _run_ordinary(
    scope: TensorScope, request: commands_pb2.BackwardRequest, answer: commands_pb2.BackwardResponse | None
) -> Iterator[None]:
    run = Backward(
        scope.tensors(request.tensors),
        _optional(scope, request.gradients),
        request.retain_graph if request.HasField("retain_graph") else None,
        request.create_graph,
        scope.tensors(request.inputs) or None,
        check_nan=request.check_nan,
    )

    def finish(answer: Any) -> None:
        received = run.deliver()
        if answer is not None:
            answer.accumulated.extend(scope.ids_of(received))

    return pass_through(scope, run, request.answers_hooks, finish, answer)


def is_plain(request: commands_pb2.BackwardRequest) -> bool:
    """Whether a backward is that of one scalar, without options."""
    return _is_of_scalar(request) and not request.retain_graph


def _is_of_scalar(request: commands_pb2.BackwardRequest) -> bool:
    """Whether a backward is that of one scalar, without options, but that it may keep the graph."""
    options = request.gradients or request.inputs or request.create_graph or request.check_nan
    return len(request.tensors) == 1 and not options


def run_gradients(
    scope: TensorScope, request: commands_pb2.GradientsRequest, answer: commands_pb2.GradientsResponse | None
) -> Iterator[None]:
    """Compute gradients and bind them."""
    scope.enter(scope.grad_context)
    if request.HasField("called_node"):
        return _call_node(scope, request, answer)
    ids = request.results
    scope.check_all_new(ids)
    if len(ids) > len(request.inputs):
        raise _too_many("gradients", len(request.inputs), ids)
    scope.check_room(len(request.inputs))
    run = Gradients(
        scope.tensors(request.outputs),
        scope.tensors(request.inputs),
        _optional(scope, request.grad_outputs),
        request.retain_graph if request.HasField("retain_graph") else None,
        request.create_graph,
        check_nan=request.check_nan,
        refuse_unused=not (request.allow_unused or request.materialize_grads),
    )

    def finish(answer: Any) -> None:
        scope.check_all_new(ids)  # again, since hooks may have used the ids meanwhile
        made = run.results(request.allow_unused, request.materialize_grads)
        received = run.deliver()
        _tell_gradients(scope, made, ids, answer)
        if answer is not None:
            answer.accumulated.extend(scope.ids_of(received))

    return pass_through(scope, run, request.answers_hooks, finish, answer)


def _call_node(
    scope: TensorScope, request: commands_pb2.GradientsRequest, answer: commands_pb2.GradientsResponse | None
) -> Iterator[None]:
    """Apply one node to gradients of its results, and bind what it returns."""
    if not isinstance(scope, Session):
        raise Refusal("NOT_SUPPORTED", "a program does not call nodes", argument="called_node")
    if len(request.outputs) != 1 or request.inputs or request.results:
        message = "called_node takes one output, and neither inputs nor results"
        raise Refusal("ARGUMENT_VALUE", message, argument="called_node")
    node = node_behind(scope, scope.tensor(request.outputs[0]), request.called_node)
    scope.check_room(len(node.edges))
    run = NodeCall(node, _optional(scope, request.grad_outputs), request.create_graph)

    def finish(answer: Any) -> None:
        _tell_gradients(scope, run.results(), (), answer)

    return pass_through(scope, run, request.answers_hooks, finish, answer)


def _tell_gradients(scope: TensorScope, made: Sequence[Tensor | None], ids: Sequence[int], answer: Any) -> None:
    """Bind gradients, and describe them in the answer if there is one."""
    for number, item in enumerate(made):
        same_as = 0 if item is None else scope.id_of(item)
        tensor_id = 0 if item is None else scope.bind(ids[number] if number < len(ids) else 0, item)
        if answer is not None:
            spec = answer.gradients.add()
            if item is not None:
                fill_spec(spec, item, tensor_id)
                spec.same_as = same_as
                tell_base(spec, item, scope.id_of)


def _optional(scope: TensorScope, ids: Iterable[int]) -> list[Tensor | None]:
    return [scope.tensor(tensor_id) if tensor_id else None for tensor_id in ids]


def run_retain_grad(
    scope: TensorScope, request: commands_pb2.RetainGradRequest, answer: commands_pb2.RetainGradResponse | None
) -> None:
    """Let a non-leaf keep its gradient."""
    target = scope.tensor(request.tensor)
    retain_grad(target)
    if answer is not None:
        fill_spec(answer.tensor, target, request.tensor)


def grad(scope: TensorScope, request: commands_pb2.GradRequest, answer: commands_pb2.GradResponse | None) -> None:
    """Give a gradient an id, or return the id it has."""
    scope.check_new(request.id)
    found = scope.tensor(request.tensor).grad
    if found is None:
        return
    known = 0 if request.id else scope.id_of(found)
    grad_id = known or scope.bind(request.id, found)
    if answer is not None:
        fill_spec(answer.grad, found, grad_id)


def run_set_grad(
    scope: TensorScope, request: commands_pb2.SetGradRequest, answer: commands_pb2.SetGradResponse | None
) -> None:
    """Set or clear a gradient."""
    target = scope.tensor(request.tensor)
    set_grad(target, scope.tensor(request.grad) if request.grad else None)


def run_set_requires_grad(
    scope: TensorScope,
    request: commands_pb2.SetRequiresGradRequest,
    answer: commands_pb2.SetRequiresGradResponse | None,
) -> None:
    """Set a leaf's requires_grad."""
    target = scope.tensor(request.tensor)
    if target.storage.inference:
        # The request tells no grad mode. A client refuses outside inference mode before it sends.
        scope.enter(scope.context(types_pb2.GRAD_MODE_INFERENCE))
    set_requires_grad(target, request.requires_grad)
    if answer is not None:
        fill_spec(answer.tensor, target, request.tensor)


def run_set_data(
    scope: TensorScope, request: commands_pb2.SetDataRequest, answer: commands_pb2.SetDataResponse | None
) -> None:
    """Make a tensor share another tensor's values."""
    target = scope.tensor(request.tensor)
    set_data(target, scope.tensor(request.data))
    if answer is not None:
        fill_spec(answer.tensor, target, request.tensor)


def manual_seed(
    scope: TensorScope, request: commands_pb2.ManualSeedRequest, answer: commands_pb2.ManualSeedResponse | None
) -> None:
    """Seed, restore or read the random generator."""
    generator = scope.grad_context.generator
    which = request.WhichOneof("set")
    if which == "seed":
        if request.algorithm not in _ALGORITHMS:
            raise Refusal("ARGUMENT_VALUE", f"there is no random algorithm {request.algorithm}", argument="algorithm")
        generator.manual_seed(request.seed, _ALGORITHMS[request.algorithm])
    elif which == "state":
        _restore(generator, request.state)
    if answer is not None:
        answer.seed = generator.seed
        if which is None or generator.algorithm != MT19937:
            answer.state = generator.get_state()
        answer.algorithm = _ALGORITHM_NUMBERS[generator.algorithm]


def _restore(generator: Generator, state: bytes) -> None:
    before = generator.get_state()
    refusal = Refusal("ARGUMENT_VALUE", "these bytes are no generator state", argument="state")
    try:
        generator.set_state(state)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        raise refusal from None
    if not 0 <= generator.seed < 1 << 64:
        generator.set_state(before)
        raise refusal


def describe(
    session: Session, request: commands_pb2.DescribeRequest, answer: commands_pb2.DescribeResponse | None
) -> None:
    """Describe tensors and the session, or list the tensors. Raises Refusal: TENSOR_NOT_FOUND, ARGUMENT_VALUE."""
    if len(request.tensors) > MAX_DESCRIBED:
        raise Refusal(
            "ARGUMENT_VALUE",
            f"at most {MAX_DESCRIBED} tensors are described at once, not {len(request.tensors)}",
            argument="tensors",
        )
    if request.list and request.tensors:
        raise Refusal("ARGUMENT_VALUE", "a list takes no tensors: it has those of the session", argument="tensors")
    ids, more = _page_of_ids(session, request) if request.list else (request.tensors, False)
    found = session.tensors(ids)
    if answer is not None:
        for tensor_id, item in zip(ids, found, strict=True):
            spec = answer.tensors.add()
            fill_spec(spec, item, tensor_id)
            tell_memory(spec, item, session.id_of)
            spec.has_grad = item.grad is not None
        answer.tensor_count = len(session.store)
        answer.bytes = session.account.bytes
        answer.more = more
        if request.activity:
            report_activity(session, answer.activity)


def _page_of_ids(session: Session, request: commands_pb2.DescribeRequest) -> tuple[Sequence[int], bool]:
    """The ids of a page of the session's list, and whether more follow."""
    most = min(request.page_size or DEFAULT_LISTED, MAX_DESCRIBED)
    ids = nsmallest(most + 1, (tensor_id for tensor_id in session.store if tensor_id > request.after))
    return ids[:most], len(ids) > most


def read(session: Session, request: commands_pb2.ReadRequest, answer: commands_pb2.ReadResponse | None) -> None:
    """Return a tensor's values, or pin them for Download if they, or the batch's values together, are too large."""
    source = session.tensor(request.tensor)
    array = source.array
    if answer is None:
        return
    size = array.nbytes
    if size <= session.inline_left and size <= session.limits.max_inline_bytes:
        session.inline_left -= size
        payload = answer.payload
        with selected(source.device):
            payload.data = bytes_of(array)
    else:
        session.account.admit(size)
        payload = answer.transfer  # type: ignore[assignment]
        with selected(source.device):
            pinned, borrowed = wire_view(array)
        answer.transfer.transfer_id = session.transfers.pin(pinned, borrowed)
        answer.transfer.total_bytes = pinned.nbytes
    payload.dtype = TO_WIRE[array.dtype]  # type: ignore[assignment]
    if array.ndim:
        payload.shape.extend(array.shape)


def release(
    session: Session, request: commands_pb2.ReleaseRequest, answer: commands_pb2.ReleaseResponse | None
) -> None:
    """Forget ids."""
    released = session.release_all(request.tensors)
    if answer is not None:
        answer.released = released
