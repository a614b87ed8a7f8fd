"""Inferred results against the server's description: random sizes, numbers and layouts for every op with a shape rule.

A call that did not wait must have exactly the server's description, and must not be refused later.
"""

import inspect
import math
import random

import numpy as np
import pytest

import gradwire
from gradwire._proxy.memo import read_spec
from gradwire._tensor import ops
from gradwire._tensor.call import _call, _parameters
from gradwire._tensor.indexing import make_index
from gradwire._tensor.shape_rules import RULES
from gradwire.v1 import commands_pb2, service_pb2

DTYPES = (gradwire.float32, gradwire.float32, gradwire.int64, gradwire.bool, gradwire.float64, gradwire.uint8)
LAYOUTS = ("plain", "plain", "leaf", "node", "transposed", "sliced", "expanded", "stepped", "row")


class Drawn:
    """Draws arguments. A tensor's dtype, rank and layout are fixed per series of calls, so that models are found."""

    def __init__(self, op, number):
        self.random = random.Random(f"{op}{number}")
        self.rank = self.random.choice((1, 2, 2, 3))
        self.dtype = DTYPES[number] if number in (1, 2) else self.random.choice(DTYPES)
        self.layout = LAYOUTS[0] if number in (1, 2) else self.random.choice(LAYOUTS)
        self.form = self.random.random()

    def size(self, most=5):
        return self.random.choice((0, *range(1, most + 1), *range(1, most + 1)))

    def sizes(self, rank=None):
        return [self.size() for _ in range(self.rank if rank is None else rank)]

    def number(self, low=-4, high=6):
        return self.random.randint(low, high)

    def dim(self):
        return self.number(-self.rank - 1, self.rank)

    def tensor(self, sizes=None, dtype=None, layout=None):
        sizes = self.sizes() if sizes is None else list(sizes)
        dtype, layout = dtype or self.dtype, layout or self.layout
        floating = dtype.is_floating_point
        if layout in ("leaf", "node") and floating:
            made = gradwire.ones(sizes, dtype=dtype, requires_grad=True)
            return made * 1.0 if layout == "node" else made
        if layout == "transposed" and len(sizes) > 1:
            return gradwire.ones(sizes[::-1], dtype=dtype).permute(*range(len(sizes))[::-1])
        if layout == "sliced" and sizes:
            return gradwire.ones([*sizes[:-1], sizes[-1] + 2], dtype=dtype)[..., 1 : sizes[-1] + 1]
        if layout == "stepped" and sizes:
            return gradwire.ones([sizes[0] * 2, *sizes[1:]], dtype=dtype)[::2]
        if layout == "expanded" and sizes:
            return gradwire.ones([1, *sizes[1:]], dtype=dtype).expand(sizes)
        if layout == "row" and sizes:
            return gradwire.ones([3, *sizes], dtype=dtype)[1]
        return gradwire.ones(sizes, dtype=dtype)

    def index(self, rank):
        items = []
        kinds = random.Random(self.form)
        for _ in range(kinds.randint(1, rank + 1)):
            kind = kinds.choice(("int", "int", "slice", "slice", "none", "dots"))
            if kind == "int":
                items.append(self.number(-4, 4))
            elif kind == "none":
                items.append(None)
            elif kind == "dots" and Ellipsis not in items:
                items.append(Ellipsis)
            else:
                bounds = [self.number(), self.number(), self.number(1, 3)]
                items.append(slice(*[one if kinds.random() < 0.6 else None for one in bounds]))
        return tuple(items)


def operands(draw, op):
    """Arguments of an elementwise op: tensors that may broadcast, or a number."""
    names = ops.DEFAULTS.get(op.removesuffix("_"), {})
    numbers = ops.NUMBERS.get(op.removesuffix("_"), frozenset())
    required = [
        name
        for name, parameter in inspect.signature(
            getattr(ops, op.removesuffix("_").replace(".", "_"))
        ).parameters.items()
        if parameter.default is inspect.Parameter.empty
        and name not in names
        and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    sizes = draw.sizes()
    args = []
    for place, name in enumerate(required):
        if name in ("mask", "condition"):
            args.append(draw.tensor(sizes, gradwire.bool))
        elif place and name in numbers and (draw.form < 0.5 or op.startswith("threshold")):
            args.append(draw.number() if draw.form < 0.35 else draw.number() / 2)
        elif place and draw.random.random() < 0.4:
            args.append(draw.tensor([draw.random.choice((1, size, size, 3)) for size in sizes]))
        else:
            args.append(draw.tensor(sizes))
    return [*args, draw.number(), draw.number()] if op in ("clamp", "clamp_") else args


def arguments(draw, op, rule):
    """Random arguments of an op by its rule, valid or not."""
    sizes = draw.sizes()
    x = draw.tensor(sizes)
    rank = len(sizes)
    if rule == "pointwise":
        return operands(draw, op)
    if rule in ("like", "drawn", "dropout", "triangle"):
        name = op.removesuffix("_")
        if name in ("fill", "full_like", "tril", "triu"):
            return [x, draw.number()]
        if op == "dropout":
            return [x, draw.random.choice((0.0, 0.25, 0.5, 1.0, 1.5)), draw.form < 0.8]
        return [x, draw.number() / 2, draw.number() / 2] if rule == "drawn" else [x]
    if rule in ("along", "sort"):
        return [x, draw.dim()]
    if rule in ("reduction", "extremum"):
        many = rule == "reduction" and op not in ("argmax", "argmin", "prod")
        forms = [None, draw.dim(), [draw.dim()], [draw.dim(), draw.dim()]] if many else [None, draw.dim()]
        dim = forms[int(draw.form * len(forms))]
        keepdim = draw.form * 10 % 1 < 0.4
        if rule == "extremum" and draw.form > 0.85:
            return [x, draw.tensor([draw.random.choice((1, size, size, 3)) for size in sizes])]
        return (
            [x]
            if dim is None and (op == "prod" or not many)
            else [x, dim]
            if op == "count_nonzero"
            else [x, dim, keepdim]
        )
    if rule == "length":
        p = "fro" if op == "norm" and draw.form < 0.5 else draw.random.choice((1, 2, 2.0, 0.5, 3, 0, -1.0))
        dim = [None, draw.dim(), [draw.dim()], [draw.dim(), draw.dim()]][int(draw.form * 40) % 4]
        return [x, p, dim, draw.random.random() < 0.4]
    if rule == "creation":
        return [draw.sizes(), draw.number()] if op == "full" else [[draw.number(-1, 5) for _ in sizes]]
    if rule == "creation_like":
        return [x, sizes, draw.number()] if op == "new_full" else [x, [draw.number(-1, 5) for _ in sizes]]
    if rule == "random_integers":
        return [draw.number(0, 3), draw.number(0, 6), sizes]
    if rule == "number_range":
        if draw.form < 0.3:
            return [draw.number() / 2, draw.number() * 1.1, draw.random.choice((1, 0.3, 0.1, -0.5))]
        return [draw.number(), draw.number(), draw.number(-2, 3)]
    if rule == "steps":
        return [draw.number(), draw.number() / 2, draw.number(-1, 5)]
    if rule == "identity":
        return [draw.number(-1, 4), draw.number(-1, 4)][: 1 + (draw.form < 0.5)]
    if rule == "permutation":
        return [draw.number(-1, 6)]
    if rule in ("viewed_as", "expanded_as"):
        x = draw.tensor([draw.random.choice((1, size)) for size in sizes])
        wanted = [*draw.sizes(int(draw.form * 3)), *x.shape] if draw.random.random() < 0.5 else sizes
        return [x, draw.tensor(wanted, gradwire.float32, draw.random.choice(("plain", "leaf")))]
    if rule in ("dot", "all_close"):
        sizes = sizes if draw.random.random() < 0.2 and rule == "dot" else sizes[:1]
        tolerances = [0.1, draw.random.choice((0.0, 1e-3, -1.0)), draw.form < 0.5] if rule == "all_close" else []
        x = draw.tensor(sizes, gradwire.float32)
        return [x, draw.tensor(sizes if draw.random.random() < 0.8 else [3], gradwire.float32, "plain"), *tolerances]
    if rule == "contiguous":
        return [x]
    if rule == "log_of_sums":
        return [x, draw.dim(), draw.random.random() < 0.4]
    if rule == "drawn_integers":
        return [[x], [x, 0, None], [x, draw.number(), draw.number()]][int(draw.form * 3)]
    if rule == "getitem":
        if draw.form > 0.85:
            return [x, make_index(x, gradwire.zeros(draw.sizes(1), dtype=gradwire.int64))]
        return [x, make_index(x, draw.index(rank))]
    if rule == "setitem":
        value = draw.number() if draw.form < 0.4 else draw.tensor(draw.sizes(int(draw.form * 3)), layout="plain")
        return [x, make_index(x, draw.index(rank)), value]
    if rule == "select":
        return [x, draw.dim(), draw.number()]
    if rule == "narrow":
        return [x, draw.dim(), draw.number(), draw.number(-1, 4)]
    if rule == "reshape":
        count = x.numel()
        pairs = [(a, count // a) for a in range(1, count + 1) if count % a == 0] or [(0, 3)]
        pairs += [
            (*sizes[:-2], math.prod(sizes[-2:])),
            (2, sizes[0] // 2, *sizes[1:]),
            (*sizes[:-1], sizes[-1] // 2, 2),
        ]
        wanted = [*draw.random.choice(pairs)]
        if draw.random.random() < 0.5:
            wanted[draw.number(0, len(wanted) - 1)] = draw.random.choice((-1, 3))
        return [x, wanted]
    if rule == "flatten":
        return [x, draw.dim(), draw.dim()]
    if rule == "expand":
        x = draw.tensor([draw.random.choice((1, size)) for size in sizes])
        return [x, [*draw.sizes(int(draw.form * 3)), *(draw.random.choice((size, size, -1, 3)) for size in sizes)]]
    if rule == "squeeze":
        x = draw.tensor([draw.random.choice((1, size)) for size in sizes])
        return [x, [None, draw.dim(), [draw.dim()]][int(draw.form * 3)]]
    if rule in ("unsqueeze", "unbind"):
        return [x, draw.dim()]
    if rule == "transpose":
        return [x, draw.dim(), draw.dim()]
    if rule in ("last_two", "matrix_t"):
        return [x]
    if rule == "permute":
        order = [*range(rank)]
        draw.random.shuffle(order)
        if draw.random.random() < 0.2:
            order[0] = draw.dim()
        return [x, order]
    if rule == "matmul":
        two = {"mm": (2, 2), "bmm": (3, 3), "mv": (2, 1)}.get(op) or (
            1 + int(draw.form * 3),
            1 + int(draw.form * 30) % 3,
        )
        one = [draw.number(1, 3) for _ in range(two[0])]
        other = [draw.number(1, 3) for _ in range(two[1])]
        if draw.random.random() < 0.8:
            other[max(len(other) - 2, 0)] = one[-1]
            for place in range(3, min(two) + 1):
                other[-place] = one[-place]
        return [draw.tensor(one, gradwire.float32), draw.tensor(other, gradwire.float32)]
    if rule == "linear":
        x = draw.tensor(dtype=gradwire.float32)
        weight = [draw.number(1, 4), x.shape[-1] if draw.random.random() < 0.8 else 3]
        bias = [draw.tensor([weight[0]], gradwire.float32)] if draw.form < 0.5 else []
        return [x, draw.tensor(weight, gradwire.float32), *bias]
    if rule in ("stack", "cat"):
        parts = [x]
        for _ in range(int(draw.form * 3)):
            other = list(sizes)
            if draw.random.random() < 0.5:
                other[draw.number(0, rank - 1)] = draw.size()
            parts.append(draw.tensor(other))
        return [parts, draw.dim()]
    if rule == "index_select":
        return [x, draw.dim(), gradwire.zeros(draw.sizes(1), dtype=gradwire.int64)]
    if rule == "gather":
        return [
            x,
            draw.dim(),
            gradwire.zeros([draw.random.choice((size, 1, 2)) for size in sizes], dtype=gradwire.int64),
        ]
    if rule == "embedding":
        padding = [draw.number()] if draw.form < 0.3 else []
        weight = draw.tensor(draw.sizes(2), gradwire.float32)
        return [gradwire.tensor(np.zeros(sizes, np.int64)), weight, *padding]
    if rule == "repeat":
        return [x, draw.sizes(rank + (draw.form < 0.5))]
    if rule == "pad":
        return [x, [draw.number(-1, 3) for _ in range(2 * (1 + (draw.form < 0.5)))]]
    if rule in ("split", "chunk"):
        return [x, draw.number(0, 4), draw.dim()]
    if rule == "diagonal":
        return [x, draw.number(), *([draw.dim(), draw.dim()] if draw.form < 0.5 else [])]
    if rule == "topk":
        return [x, draw.number(0, 4), draw.dim()]
    if rule == "roll":
        if draw.form < 0.5:
            return [x, draw.number(), draw.dim()]
        return [x, [draw.number() for _ in range(1 + (draw.form < 0.75))], [draw.dim(), draw.dim()]]
    return further_arguments(draw, op, rule, x, sizes)


def convolution_arguments(draw, rank):
    float32, groups = gradwire.float32, draw.random.choice((1, 1, 2))
    channels = groups * draw.number(1, 2)
    images = [draw.number(1, 3), channels, *(draw.number(1, 6) for _ in range(rank))]
    inner = channels // groups if draw.random.random() < 0.9 else draw.number(1, 4)
    kernels = [groups * draw.number(1, 2), inner, *(draw.number(1, 3) for _ in range(rank))]
    bias = draw.tensor([kernels[0] if draw.random.random() < 0.9 else 3], float32) if draw.form < 0.6 else None

    def numbers(low, high):
        one = draw.number(low, high)
        return one if draw.form * 10 % 1 < 0.5 else [one, *(draw.number(low, high) for _ in range(rank - 1))]

    form = [numbers(1, 3), numbers(0, 2), numbers(1, 2), groups if draw.random.random() < 0.9 else 3]
    return [draw.tensor(images, float32), draw.tensor(kernels, float32), bias, *form]


def transposed_arguments(draw, rank):
    x, kernel, bias, steps, pads, gaps, groups = convolution_arguments(draw, rank)
    channels = x.shape[1] if draw.random.random() < 0.9 else 3
    weight = draw.tensor([channels, draw.number(1, 2), *kernel.shape[2:]], gradwire.float32)
    bias = None if bias is None else draw.tensor([weight.shape[1] * groups], gradwire.float32)
    return [x, weight, bias, steps, pads, draw.number(0, 1), groups, gaps]


def layer_arguments(draw, op, rule):
    float32, rank = gradwire.float32, int(op[-2]) if rule == "pooling" else 2
    if rule == "batch_norm":
        channels = draw.number(1, 3)
        x = draw.tensor([draw.number(1, 3), channels, *draw.sizes(int(draw.form * 3))], float32)
        training = draw.form * 10 % 1 < 0.6
        parameters = [
            draw.tensor([channels if draw.random.random() < 0.95 else 4], float32, layout)
            for layout in (*[draw.random.choice(("plain", "plain", "row", "leaf"))] * 2, "leaf", "leaf")
        ]
        if draw.form < 0.2:
            parameters[:2] = None, None
        return [x, *parameters, training, draw.random.choice((0.1, 0.5, 0.0)), draw.random.choice((1e-5, 1e-5, 0.0))]
    if rule == "recurrent":
        return recurrent_arguments(draw, op)
    images = draw.tensor([draw.number(1, 2), draw.number(1, 2), *(draw.number(1, 7) for _ in range(rank))], float32)

    def numbers(low, high):
        one = draw.number(low, high)
        return one if draw.form * 10 % 1 < 0.5 else [one, *(draw.number(low, high) for _ in range(rank - 1))]

    if rule == "adaptive_pooling":
        return [images, draw.random.choice((1, 1, 2, [1, 1], [1, 2], 0))]
    steps = None if draw.form < 0.4 else numbers(0, 3)
    gaps = [] if op.startswith("avg") else [numbers(0, 2)]
    tail = [True, None] if op.startswith("avg") else [False]
    return [images, numbers(0, 3), steps, numbers(-1, 2), *gaps, draw.form * 100 % 1 < 0.2, *tail]


def recurrent_arguments(draw, op):
    states, gates = (2, 4) if op == "lstm_layer" else (1, {"gru_layer": 3}.get(op, 1))
    kind = draw.dtype if draw.dtype.is_floating_point else gradwire.float32
    steps, batch, inner, width = (draw.number(1, 3) for _ in range(4))
    sizes = sorted((draw.number(1, batch) for _ in range(steps)), reverse=draw.random.random() < 0.9)
    packed = draw.form < 0.4
    batch = sizes[0] if packed else batch
    x = draw.tensor([sum(sizes), inner] if packed else [steps, batch, inner], kind)
    wrong = draw.random.random() < 0.1
    weights = [draw.tensor([gates * width + wrong, each], kind, "leaf") for each in (inner, width)]
    biases = [draw.tensor([gates * width], kind, "leaf") if draw.form * 10 % 1 < 0.7 else None for _ in range(2)]
    projection = [None] if op == "lstm_layer" else []
    initial = [draw.tensor([batch, width], kind, "plain") for _ in range(states)]
    return [x, *initial, *weights, *biases, *projection, sizes if packed else [], draw.form * 100 % 1 < 0.3]


def further_arguments(draw, op, rule, x, sizes):
    float32, int64 = gradwire.float32, gradwire.int64
    if rule == "layer_norm":
        x = draw.tensor(sizes, float32)
        shape = [*sizes[int(draw.form * 10) % len(sizes) :]]
        if draw.random.random() < 0.3:
            shape[-1] = draw.size()
        return [x, shape, *([draw.tensor(shape, float32, "leaf")] if draw.form < 0.6 else [])]
    if rule == "attention":
        lead, (rows, width), keys = sizes[:-2], [*sizes, 3][:2], draw.size()
        shapes = [[*lead, rows, width], [*lead, keys, width], [*lead, keys, draw.size()]]
        if draw.random.random() < 0.1:
            shapes[draw.number(0, 2)][0] += 1
        layouts = [draw.random.choice(("plain", "row", "leaf")) for _ in shapes]
        kind = draw.dtype if draw.form * 10 % 1 < 0.5 else float32
        tensors = [draw.tensor(*each) for each in zip(shapes, [kind] * 3, layouts, strict=True)]
        return [*tensors, None, draw.random.choice((0.0, 0.0, 0.5)), draw.form < 0.5]
    if rule == "transposed_convolution":
        return transposed_arguments(draw, int(op[-2]))
    if rule == "convolution":
        return convolution_arguments(draw, int(op[4]))
    if rule in ("batch_norm", "pooling", "adaptive_pooling", "recurrent"):
        return layer_arguments(draw, op, rule)
    if rule == "deviation":
        return [draw.tensor(sizes, float32), *([draw.dim()] if draw.form < 0.5 else [])]
    if rule == "detach":
        return [x]
    if rule == "copied":
        return [x, draw.tensor([draw.random.choice((1, size, size, 3)) for size in sizes], float32, "plain")]
    if rule == "converted":
        return [x, gradwire.int32 if draw.form < 0.5 else gradwire.float64]
    if rule == "elementwise_loss":
        x = draw.tensor(sizes, float32)
        other = [draw.random.choice((1, size, size, size)) for size in sizes]
        named = [None, None, None] if op == "binary_cross_entropy_with_logits" else [None, None]
        reduction = ("mean", "sum", "none", "mean")[int(draw.form * 4)]
        beta = [draw.random.choice((1.0, 1.0, 0.5, 0.0, -1.0))] if op == "smooth_l1_loss" else []
        return [x, draw.tensor(other, float32, "plain"), *named, reduction, *beta]
    if rule == "class_loss":
        rows = draw.size()
        x = draw.tensor([rows, draw.number(1, 4)], float32)
        classes = gradwire.tensor(np.zeros(rows if draw.random.random() < 0.8 else draw.size(), np.int64))
        return [x, classes, None, None, -100, None, ("mean", "sum", "none")[int(draw.form * 3)]]
    if rule == "embedding_bag":
        weight = draw.tensor(draw.sizes(2), float32, "leaf")
        offsets = gradwire.zeros([draw.size()], dtype=int64)
        mode = ("mean", "sum", "max")[int(draw.form * 3)]
        return [gradwire.zeros([draw.size()], dtype=int64), weight, offsets, None, 2.0, False, mode]
    raise AssertionError(f"no arguments are drawn for the rule {rule}")


def form_of(op, args):
    if op in ("unbind", "split", "chunk"):
        return "tuple"
    if op.endswith("_layer"):
        return ("output", "h_n", "c_n")[: 3 if op == "lstm_layer" else 2]
    along = op in ("max", "min") and len(args) > 1 and not isinstance(args[1], gradwire.Tensor)
    return ("values", "indices") if along or op in ("topk", "sort") else None


def described(session, tensors):
    """The server's descriptions of tensors."""
    request = commands_pb2.DescribeRequest(tensors=[tensor._id for tensor in tensors])
    return session.wait(service_pb2.Command(describe=request)).describe.tensors


@pytest.fixture
def waited(deferring, monkeypatch):
    """Ops that waited."""
    counted = []
    wait = deferring.wait

    def watched(command, *args):
        if command.WhichOneof("command") == "op":
            counted.append(command.op.op)
        return wait(command, *args)

    monkeypatch.setattr(deferring, "wait", watched)
    return counted


def apply(op, args):
    return _call(op, tuple(args), (), form_of(op, args))


REFUSALS = (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError)


@pytest.mark.parametrize("op", sorted(ops.SHAPE_RULES))
def test_inferred_results_are_as_the_server_describes_them(deferring, waited, op):
    rule = ops.SHAPE_RULES[op]
    series, calls = (4, 5) if rule == "pointwise" else (12, 9)
    inferred = 0
    for number in range(40):
        if number >= series and inferred:
            break
        draw = Drawn(op, number)
        with gradwire.set_grad_enabled(draw.form < 0.9):
            for _ in range(calls):
                inferred += check(deferring, waited, op, rule, draw)
    assert inferred, f"no call of {op} was inferred"


def check(session, waited, op, rule, draw):
    """Make a call with random arguments; compare its results unless it waited. Return whether it was inferred."""
    args = arguments(draw, op, rule)
    session.sync()
    waited.clear()
    known = len(session.memo)
    try:
        made = apply(op, args)
    except REFUSALS:  # an immediate refusal is right, whether PyTorch refuses or not
        return False
    if op in waited:
        return False
    session.sync()  # a refusal now would be late
    results = made if isinstance(made, tuple) else (made,)
    for result, message in zip(results, described(session, results), strict=True):
        assert result._spec is read_spec(message), (op, args, result._spec.strides, read_spec(message).strides)
        assert result._version == message.version
    return len(session.memo) > known


def test_a_repeated_call_binds_what_the_first_one_did(deferring):
    """A result that is a view of an intermediate one has no base, however the op was called."""
    described_views = []
    for _ in range(4):
        made = gradwire.nn.functional.linear(gradwire.ones(3), gradwire.ones(2, 3), gradwire.ones(2))
        described_views.append((made._spec.is_view, described(deferring, [made])[0].is_view))
    assert described_views == [(False, False)] * 4


def test_a_squeeze_that_drops_nothing_keeps_the_strides(deferring):
    for width in (2, 3, 4):
        x = gradwire.ones(2, 2, 2 * width)[:1, :1, :width]
        made = gradwire.squeeze(x, -1), gradwire.squeeze(x, (0,))
        assert [each._spec for each in made] == [read_spec(each) for each in described(deferring, made)]


def test_a_number_that_pad_refuses_is_refused_in_the_call(deferring):
    x = gradwire.ones(2, dtype=gradwire.uint8)

    def padded(value):
        return gradwire.nn.functional.pad(x, (1, 1), value=value)

    assert [padded(value)[0].item() for value in (1, 2)] == [1, 2]
    with pytest.raises(RuntimeError, match="overflow"):
        padded(300)


@pytest.mark.parametrize("op", sorted(ops.SHAPE_RULES))
def test_rules_take_any_arguments(deferring, waited, op):
    """They neither raise nor compare tensors by value, which applies ops."""
    rule, x = RULES[ops.SHAPE_RULES[op]], gradwire.ones(2, 3)
    names = [name for name in _parameters(op)[0] if name != "out"][1:]
    values = (None, True, 2, 0.5, 1j, "none", (0, 1), [x, None], [x, x], gradwire.ones(2, 3), gradwire.float64)
    deferring.sync()
    sent = next(deferring.ids)
    for value in values:
        for count in range(len(names) + 1):
            rule(op, x, *(2,) * count, *(value,) * (len(names) - count))
            rule(op, x, *(value,) * count)
            rule(op, x, **dict.fromkeys(names[count:], value))
    assert next(deferring.ids) == sent + 1


def test_every_rule_is_used(deferring):
    assert set(ops.SHAPE_RULES.values()) == set(RULES)
