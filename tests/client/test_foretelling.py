"""Foretold results against the server's description: calls of which the session has had no answer.

The memo is empty before each call. One that does not wait must have exactly the server's description, and must not be
refused later.
"""

import contextlib
import inspect

import pytest
import torch

import gradwire
from gradwire._base.errors import GradwireError
from gradwire._proxy.memo import read_spec
from gradwire._tensor import call, ops
from gradwire._tensor.foretelling import DTYPE_RULES
from gradwire._tensor.foretelling.kinds import PARAMETER_KINDS
from tests.client.test_shape_rules import DTYPES as DRAWN_DTYPES
from tests.client.test_shape_rules import LAYOUTS, REFUSALS, Drawn, arguments, described, form_of, operands


@pytest.fixture
def foretold(deferring, monkeypatch):
    """Ops whose results were foretold or inferred."""
    counted = []
    inferred_call = call._inferred_call

    def watched(*args):
        counted.append(args[5])
        return inferred_call(*args)

    monkeypatch.setattr(call, "_inferred_call", watched)
    return counted


# Dtypes that some ops refuse, and values that some parameters refuse.
FURTHER_DTYPES = (*DRAWN_DTYPES, gradwire.float16, gradwire.bfloat16, gradwire.complex64, gradwire.int8)
SIDES = ("left", "right")
VALUES = (None, True, 2, 0.5, 1e300, 1 + 2j, "none", (0,), [0, 1], gradwire.float64)


def mixed(draw, value):
    """An argument, or in its place a tensor of another dtype or layout, a number of another type, or another value."""
    if draw.random.random() < 0.7:
        return value
    if draw.random.random() < 0.15:
        return draw.random.choice(VALUES)
    if isinstance(value, gradwire.Tensor):
        dtype, layout = draw.random.choice(FURTHER_DTYPES), draw.random.choice(LAYOUTS)
        return draw.tensor(value.shape, dtype, layout)
    if type(value) is list and value and isinstance(value[0], gradwire.Tensor):
        return [mixed(draw, each) for each in value]
    return draw.random.choice((value, float(value), bool(value))) if type(value) is int else value


def named(draw, op, given):
    """Some named arguments of an op, valid or not."""
    found = []
    base = op.removesuffix("_") if op not in ops.DEFAULTS else op
    parameters = call._parameters(op)[0][given:]
    for name, default in ops.DEFAULTS.get(base, {}).items():
        if name not in parameters or draw.random.random() < 0.8:
            continue
        if name == "device":
            found.append((name, "cpu"))
            continue
        if draw.random.random() < 0.15:
            found.append((name, draw.random.choice(VALUES)))
        elif name == "dtype":
            found.append((name, draw.random.choice(DRAWN_DTYPES)))
        elif name == "rounding_mode":
            found.append((name, draw.random.choice(("floor", "trunc", None))))
        elif type(default) is bool:
            found.append((name, not default))
        elif type(default) in (int, float):
            found.append((name, draw.random.choice((draw.number(), draw.number() / 2))))
    return found


def viewed(value):
    """A tensor's view that was made without recording, in its place; it tells so to its own views."""
    if type(value) is list:
        return [viewed(each) for each in value]
    with gradwire.no_grad():
        return value[...] if isinstance(value, gradwire.Tensor) else value


def check(session, foretold, op, args, kwargs):
    """Make a call as the session's first; compare its results unless it waited. Return whether it was foretold."""
    session.sync()
    session.memo.clear()
    session.models.clear()
    foretold.clear()
    try:
        made = call._call(op, tuple(args), kwargs, form_of(op, args))
    except REFUSALS:  # an immediate refusal is right, whether PyTorch refuses or not
        return False
    if op not in foretold:
        return False
    session.sync()  # a refusal now would be late
    results = made if isinstance(made, tuple) else (made,)
    for result, message in zip(results, described(session, results), strict=True):
        assert result._spec is read_spec(message), (op, args, kwargs, result._spec, message)
        assert result._version == message.version
    return True


@pytest.fixture
def default_dtype():
    """Sets the default dtype until the test ends."""
    yield gradwire.set_default_dtype
    gradwire.set_default_dtype(gradwire.float32)


@pytest.mark.parametrize("op", sorted(ops.SHAPE_RULES))
def test_foretold_results_are_as_the_server_describes_them(deferring, foretold, default_dtype, op):
    rule, told = ops.SHAPE_RULES[op], 0
    for number in range(150):
        if number >= 40 and (told or op not in ops.DTYPE_RULES):
            break
        draw = Drawn(op, number)
        if number >= 10 and draw.random.random() < 0.4:
            draw.dtype = draw.random.choice(FURTHER_DTYPES)
        default_dtype(draw.random.choice((gradwire.float32, gradwire.float64)))
        with gradwire.set_grad_enabled(draw.random.random() < 0.8):
            args = arguments(draw, op, rule)
            kwargs = [] if number < 20 else named(draw, op, len(args))
            changed = args if number < 10 else [mixed(draw, each) for each in args]
            if rule in ("getitem", "setitem") and not isinstance(changed[0], gradwire.Tensor):
                changed[0] = args[0]  # an index is of a tensor
            if number % 5 == 4:
                changed = [viewed(each) for each in changed]
            told += check(deferring, foretold, op, changed, kwargs)
    assert bool(told) is (op in ops.DTYPE_RULES)


@pytest.mark.parametrize("op", [op for op, rule in sorted(ops.SHAPE_RULES.items()) if rule == "pointwise"])
def test_elementwise_results_of_permuted_tensors_keep_the_order_in_memory(deferring, foretold, op):
    for number in range(12):
        draw = Drawn(op, number)
        draw.layout, draw.rank = "transposed", 2 + number % 2
        if number < 8:
            draw.dtype = gradwire.float64 if number % 4 else gradwire.float32
        sizes = [draw.number(2, 4) for _ in range(draw.rank)]
        args = [draw.tensor(sizes, x.dtype) if isinstance(x, gradwire.Tensor) else x for x in operands(draw, op)]
        if number % 3 == 0:
            args = [x.permute(*range(draw.rank)[1:], 0) if isinstance(x, gradwire.Tensor) else x for x in args]
        check(deferring, foretold, op, args, [])
        args = [draw.tensor(x.shape, x.dtype, "plain") if x is args[0] else x for x in args]
        check(deferring, foretold, op, args, [])


@pytest.fixture
def waits(deferring, monkeypatch):
    """Names of the commands that waited."""
    counted = []
    wait = deferring.wait

    def watched(command, *args):
        counted.append(command.op.op or command.WhichOneof("command"))
        return wait(command, *args)

    monkeypatch.setattr(deferring, "wait", watched)
    return counted


def compared(session, *tensors):
    """Whether the client describes tensors as the server does."""
    return [each._spec for each in tensors] == [read_spec(message) for message in described(session, tensors)]


def test_the_first_training_step_waits_for_descriptions_of_gradients_alone(deferring, waits):
    weight = gradwire.tensor([[1.0, 2.0], [3.0, 4.0]])
    weight.requires_grad_()
    bias = gradwire.zeros(2, requires_grad=True)
    weight.data = gradwire.ones(2, 2) * 0.5
    loss = (gradwire.nn.functional.linear(gradwire.ones(3, 2), weight, bias).relu() ** 2).mean()
    loss.backward()
    gradients = weight.grad, bias.grad
    with gradwire.no_grad():
        weight.sub_(0.1 * weight.grad)
    bias.grad = None
    assert set(waits) <= {"backward", "grad"}
    assert compared(deferring, weight, bias, loss, *gradients)


@pytest.mark.parametrize("layout", ["plain", "transposed", "view"])
def test_data_is_described_as_the_server_describes_it(deferring, layout):
    for target in (gradwire.zeros(2, 3), gradwire.zeros(2, 3, requires_grad=True), gradwire.zeros(4, 3)[:2]):
        source = {
            "plain": gradwire.ones(2, 3, requires_grad=True),
            "transposed": gradwire.ones(3, 2).t(),
            "view": gradwire.ones(4, 3)[1:3],
        }[layout]
        bare = source.data
        target.data = source
        assert compared(deferring, target, source, bare)


def test_a_call_whose_kind_was_refused_late_waits(deferring, waits, monkeypatch):
    """A foretold call that the server refuses is reported at the next wait; the next one is refused in the call."""
    monkeypatch.setitem(DTYPE_RULES, "softshrink", ("floats", "", ""))
    monkeypatch.setitem(PARAMETER_KINDS, "softshrink", {"input": "Tensor", "lambd": "float"})
    row = gradwire.ones(3)
    gradwire.nn.functional.softshrink(row, -1.0)
    with pytest.raises(RuntimeError, match="lambda"):
        deferring.sync()
    waits.clear()
    with pytest.raises(RuntimeError, match="lambda"):
        gradwire.nn.functional.softshrink(row, -1.0)
    assert waits == ["softshrink"]


def test_a_gradient_of_the_programs_own_code_is_described_by_the_server(deferring):
    weight = gradwire.ones(2, 3, requires_grad=True)
    other = gradwire.ones(2, 3, requires_grad=True)
    weight.register_hook(lambda grad: gradwire.ones(3, 2).t())
    (weight * other).sum().backward()
    gradients = weight.grad, other.grad
    assert compared(deferring, *gradients)


def test_nothing_is_foretold_in_an_ended_session(server_address):
    session = gradwire.connect(server_address)
    held = gradwire.ones(2)
    session.close()
    with pytest.raises(GradwireError, match="closed"):
        held.exp()


@pytest.mark.parametrize(
    ("op", "args"),
    [
        ("softplus", (True,)),
        ("leaky_relu", (False,)),
        ("nan_to_num", (True,)),
        ("max", ((0,),)),
        ("argmax", ((0, 1),)),
        ("add", (None,)),
        ("minimum", (2,)),
        ("mul", (1 + 2j,)),
        ("linear", (2,)),
        ("unsqueeze", (0.5,)),
        ("clamp", ()),
        ("clamp", (None, None)),
        ("mm", (gradwire.ones,)),
        ("mv", (gradwire.ones,)),
        ("bmm", (gradwire.ones,)),
    ],
)
def test_a_call_with_arguments_of_other_types_or_ranks_is_not_foretold(deferring, foretold, op, args):
    """The server may refuse such calls, and then does so in the call."""
    x = gradwire.ones(3)
    with contextlib.suppress(RuntimeError, TypeError):
        call._call(op, (x, *[x if each is gradwire.ones else each for each in args]))
    assert op not in foretold
    deferring.sync()


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "uint8", "int64"])
@pytest.mark.parametrize("value", [1e300, -1e39, 70000.0, -2.0, float("nan"), float("inf")])
def test_a_number_beyond_a_dtype_is_refused_in_the_call(deferring, dtype, value):
    """However the call is described: by a rule for the first time, or like an earlier one."""
    kind = getattr(gradwire, dtype)
    x, y = gradwire.ones(3, dtype=kind), gradwire.ones(3, dtype=kind)
    makers = [
        lambda n: gradwire.full((2,), n, dtype=kind),
        lambda n: gradwire.full_like(x, n),
        lambda n: gradwire.full_like(y.double(), n, dtype=kind),
        lambda n: x.new_full((2,), n),
        lambda n: x.clone().fill_(n),
        lambda n: x.masked_fill(x > 2, n),
        lambda n: x.clamp(min=n),
        lambda n: x + n,
        lambda n: x.clone().__setitem__(0, n),
    ]
    for make in makers:
        for number in (value, 1.0, value):
            deferring.memo.clear()  # a repeat with another number is not checked
            with contextlib.suppress(RuntimeError):
                make(number)
            deferring.sync()


@pytest.mark.parametrize("op", ["max", "min", "sum", "mean", "prod", "squeeze"])
def test_a_dimension_of_none_is_none(deferring, op):
    x = gradwire.ones(1, 3, requires_grad=True)
    made = [call._call(op, (x, *rest)) for rest in ((), (None,), *([] if op == "squeeze" else [(None, False)]))]
    assert compared(deferring, *made)


def test_a_view_of_one_of_several_views_and_a_weighted_loss_are_described_by_the_server(deferring):
    x = gradwire.ones(2, 3, requires_grad=True)
    part = x.unbind(0)[0]
    loss = gradwire.nn.functional.mse_loss(x, gradwire.zeros(2, 3), weight=gradwire.ones(2, 3))
    assert compared(deferring, part[1:], part.unsqueeze(0), part.reshape(3, 1), part * 2.0, loss)


def test_seeds_are_not_waited_for_and_each_is_its_own(deferring, waits):
    drawn = []
    for seed in (1, 2, 1):
        gradwire.manual_seed(seed)
        drawn.append(gradwire.rand(3))
    assert waits == []
    assert drawn[0].tolist() == drawn[2].tolist() != drawn[1].tolist()
    assert gradwire.initial_seed() == 1


def test_products_of_batches_that_broadcast_are_described_as_by_the_server(deferring):
    x = gradwire.ones(4, 3, 2, requires_grad=True)
    made = [one @ x for one in (gradwire.ones(4, 6, 3), gradwire.ones(1, 6, 3), gradwire.ones(1, 1, 6, 3))]
    made += [x.mT @ gradwire.ones(batch, 3, 5) for batch in (4, 1)]
    assert compared(deferring, *made)


@pytest.mark.parametrize(
    "sizes", [((1, 3, 2), (1, 2, 4)), ((1, 3, 2), (4, 2, 4)), ((4, 2), (2, 2, 3)), ((4, 2), (1, 2, 3))]
)
@pytest.mark.parametrize("recorded", ["left", "right", "both"])
def test_nodes_of_batched_products_are_those_of_pytorch(deferring, sizes, recorded):
    def node(t):
        left, right = (
            t.ones(each, requires_grad=recorded in (side, "both")) for each, side in zip(sizes, SIDES, strict=True)
        )
        return (left @ right).grad_fn.name()

    for _ in range(2):
        assert node(gradwire) == node(torch)
    one, two = (gradwire.ones(each, requires_grad=True) for each in sizes)
    assert compared(deferring, one @ two.detach(), one.detach() @ two, one @ two)


def test_views_and_copies_of_the_same_kinds_of_tensors_are_told_apart(deferring, waits):
    x = gradwire.ones(4, 6, requires_grad=True)
    made = []
    for _ in range(2):
        made += [
            x[:, :4].reshape(2, 2, 4),
            x.t().reshape(2, 2, 6),
            x[:, :4].flatten(),
            x.t().detach(),
            x.t().contiguous(),
        ]
    assert waits == []
    assert compared(deferring, *made)


def test_results_of_views_made_without_grad_are_foretold(deferring, waits):
    with gradwire.no_grad():
        x, weight = gradwire.ones(4, 3)[1:3], gradwire.ones(6, 3)[:2]
        made = gradwire.nn.functional.linear(x, weight), x * 2.0, x + x, gradwire.stack([x, x])
    assert waits == []
    assert compared(deferring, *made)


def test_names_of_parameters_are_those_of_signatures():
    """Also of functions that take old forms as further arguments (addcdiv)."""
    functions = [value for name, value in vars(ops).items() if inspect.isfunction(value) and not name.startswith("_")]
    assert len(functions) > 300
    for function in functions:
        assert call._names_of(function) == tuple(inspect.signature(function).parameters), function.__name__
