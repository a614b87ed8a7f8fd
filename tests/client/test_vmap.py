"""vmap: values, dtypes and refusals equal PyTorch's, alone, nested, and combined with derivatives."""

import pytest

import gradwire
from tests.client.oracle import alike, refuse, torch
from tests.client.test_func import bare, same

pytestmark = pytest.mark.usefixtures("deferring")


def data(t, *shape, dtype=None, shift=0.0):
    count = 1
    for size in shape:
        count *= size
    made = ((t.arange(count, dtype=t.float64) * 0.7 + shift).sin() * 2).reshape(shape)
    return made if dtype is None else made.to(dtype)


def many(cases):
    """Parameters named by their function's source position."""
    return [pytest.param(each, id=str(place)) for place, each in enumerate(cases)]


@pytest.mark.parametrize(
    "function",
    many(
        [
            lambda t, x: x.sin() * 2 + 1,
            lambda t, x: x.sum(),
            lambda t, x: x.sum(0),
            lambda t, x: x.sum(-1, keepdim=True),
            lambda t, x: x.mean((0, 1), keepdim=True),
            lambda t, x: x.sum(keepdim=True, dim=None),
            lambda t, x: x.max(),
            lambda t, x: tuple(x.max(0)),
            lambda t, x: t.max(x, -x),
            lambda t, x: x.argmax(),
            lambda t, x: x.argmin(1),
            lambda t, x: (x.var(), x.std(0, correction=0), x.norm(), x.norm(1, 1)),
            lambda t, x: (x.prod(), x.prod(0), x.amin((0, 1)), x.logsumexp(1), (x > 0).any(), (x > 0).all(0)),
            lambda t, x: (x.median(), x.median(0).values),
            lambda t, x: (x.softmax(-1), x.log_softmax(0), x.cumsum(1), t.logcumsumexp(x, 0)),
            lambda t, x: (x.sort(0).values, x.argsort(-1), x.topk(2, 1).indices),
            lambda t, x: (x.T, x.t(), x.mT, x.transpose(0, -1), x.permute(1, 0), x.movedim(0, 1)),
            lambda t, x: (x.reshape(-1), x.reshape(2, -1), x.view(2, 3, 2), x.flatten(), x.ravel()),
            lambda t, x: (x.unsqueeze(0), x.unsqueeze(-1).squeeze(-1), x[None].squeeze(), x.unsqueeze(1).squeeze(1)),
            lambda t, x: (x.expand(2, 3, 4), x[0].expand(3, 4), x.repeat(2, 1, 1), x.tile(2)),
            lambda t, x: (x.flip(0), x.flip((0, 1)), x.roll(1, 0), x.roll(2), x.diagonal(), x.trace(), x.tril()),
            lambda t, x: tuple(x.unbind(1)) + tuple(x.split(2, 1)) + tuple(x.chunk(2, -1)),
            lambda t, x: (t.cat([x, x[:1]]), t.stack([x, -x], -1), t.hstack([x, x]), t.vstack([x[0], x])),
            lambda t, x: (x @ x.T, x.mv(x[0]), x[0].dot(x[1]), t.outer(x[0], x[1]), t.einsum("ij,kj->ik", x, x)),
            lambda t, x: (t.einsum("ij", x), t.addmm(x[:, :3], x, x.T, beta=2, alpha=0.5), x[0] @ x.T),
            lambda t, x: (x[0], x[-1, 2], x[1:, ::2], x[..., 0], x[None, :, None], x[:, [0, 2]], x[[0, 1], [1, 1]]),
            lambda t, x: (
                x[:, t.tensor([[0, 1], [2, 3]])],
                x[t.tensor([0]), :, None],
                x[t.tensor([True, False, True])],
            ),
            lambda t, x: t.where(x > 0, x, 0.0) + x.clamp(-0.5, 0.5) + x.masked_fill(x < 0, 3.0),
            lambda t, x: (x.gather(1, (x > 0).long()), x.index_select(1, t.tensor([2, 0]))),
            lambda t, x: t.zeros_like(x).scatter_add(1, (x > 0).long(), x),
            lambda t, x: (x.to(t.float32), x.int(), x.clone(), x.detach(), x.new_zeros(2) + x[0, 0]),
            lambda t, x: (t.nn.functional.layer_norm(x, (4,)), t.nn.functional.pad(x, (1, 2)), x.diff(dim=0)),
            lambda t, x: (t.nn.functional.normalize(x, dim=0), t.nn.functional.gelu(x), t.linalg.det(x[:, :3])),
            lambda t, x: (x[0, 0].softmax(0), x[0, 0].sum(), x[0, 0].reshape(1), x[0, 0] * x, x[0, 0].max()),
        ]
    ),
)
def test_ops_map_as_in_pytorch(function):
    same(lambda t: t.func.vmap(lambda x: function(t, x))(data(t, 5, 3, 4)))


def losses(name, **options):
    """The loss with each reduction, so that a rule's own mean is compared, too."""
    return lambda t, x, y: [
        getattr(t.nn.functional, name)(x, y, reduction=reduction, **options) for reduction in ("mean", "sum", "none")
    ]


def of_classes(**options):
    def function(t, x, y):
        weight = t.tensor([1.0, 2.0, 3.0, 4.0], dtype=t.float64) if options.get("weighted") else None
        named = {key: value for key, value in options.items() if key != "weighted"}
        return [
            t.nn.functional.cross_entropy(x, y.argmax(1), weight, reduction=reduction, **named)
            for reduction in ("mean", "sum", "none")
        ]

    return function


TWO = {
    "arithmetic": lambda t, x, y: (x + y, x[0] - y, x / y[0, 0], x**2 * y, 2 - x, 1 / (x + 9), 2**x, x % 2, x // 0.3),
    "comparisons": lambda t, x, y: (x > y, x.eq(x), t.logical_and(x > 0, y > 0), t.isclose(x, y), ~(x > y)),
    "binary": lambda t, x, y: (t.atan2(x, y), t.hypot(x, y), t.fmax(x, y[0]), t.logaddexp(x, y), t.copysign(x, y)),
    "ternary": lambda t, x, y: (
        t.addcmul(x, x, y, value=2),
        t.lerp(x, y, y),
        x.clamp(y, y + 1),
        t.where(x > 0, x, y[0]),
    ),
    "in place": lambda t, x, y: (
        x.clone().sub_(x[0], alpha=2),
        x.clone().clamp_(0, 1),
        x.clone().masked_fill_(x > 0, 1),
    ),
    "losses": losses("mse_loss"),
    "huber": losses("huber_loss", delta=0.3),
    "smooth": losses("smooth_l1_loss"),
    "margin": losses("soft_margin_loss"),
    "bce": lambda t, x, y: losses("binary_cross_entropy")(t, x.sigmoid(), y.sigmoid()),
    "logits": lambda t, x, y: losses("binary_cross_entropy_with_logits", pos_weight=y[0].exp())(t, x, y.sigmoid()),
    "kl": lambda t, x, y: t.nn.functional.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"),
    "classes": of_classes(),
    "weighted classes": of_classes(weighted=True),
    "smoothed classes": lambda t, x, y: of_classes(label_smoothing=0.2)(t, x + 0 * y, y),
    "ignored class": of_classes(ignore_index=1, weighted=True),
    "probabilities": lambda t, x, y: losses("cross_entropy")(t, x, y.softmax(1)),
    "one sample": lambda t, x, y: t.nn.functional.cross_entropy(x[0], y[0].argmax()),
    "conv1d": lambda t, x, y: t.nn.functional.conv1d(x, y[:, :3].reshape(1, 3, 3), bias=y[0, :1]),
    "conv2d": lambda t, x, y: t.nn.functional.conv2d(x.reshape(1, 1, 3, 4), y[:2, :2].reshape(1, 1, 2, 2), padding=1),
    "pools": lambda t, x, y: (
        t.nn.functional.max_pool2d(x.reshape(1, 1, 3, 4), 2),
        t.nn.functional.avg_pool2d(x.reshape(1, 3, 4), 2),
        t.nn.functional.adaptive_avg_pool2d(x.reshape(1, 1, 3, 4), 1),
    ),
    "norms": lambda t, x, y: (
        t.nn.functional.layer_norm(x, (4,), y[0], y[1]),
        t.nn.functional.rms_norm(x, (4,), y[0]),
        t.nn.functional.group_norm(x.reshape(1, 4, 3), 2, y[0], y[1]),
    ),
    "attention": lambda t, x, y: t.nn.functional.scaled_dot_product_attention(x[None], y[None], y[None]),
    "embedding": lambda t, x, y: t.nn.functional.embedding((x > 0).long(), y),
    "gather": lambda t, x, y: (
        x.gather(0, (y > 0).long()),
        t.take_along_dim(x, x.argsort(1), dim=1),
        x.take((y > 0).long()),
    ),
    "scatter": lambda t, x, y: (x.scatter(1, (y > 0).long(), 2.0), x.scatter_add(0, (y > 0).long(), y)),
    "index_select": lambda t, x, y: (x.index_select(0, (y[0] > 0).long()), x.index_select(1, (y[:, 0] > 0).long())),
    "indices": lambda t, x, y: (
        x[:, (y[0] > 0).long()],
        x[(y[0] > 0).long(), (y[0] > 1).long()],
        x[None, (y[0] > 0).long()],
        x.reshape(1, 3, 4)[(y[:2, :2] > 9).long(), :, (x[0, 0] > 0).long()],
    ),
    "products": lambda t, x, y: (
        x.inner(y),
        t.bmm(x[None], y.T[None]),
        t.addmv(x[:, 0], x, y[0]),
        t.addr(x, x[:, 0], y[0]),
        t.linalg.vecdot(x, y),
        t.tensordot(x, y, ([1], [1])),
        t.tensordot(x, y, 0),
        t.cdist(x, y),
    ),
    "complex": lambda t, x, y: (t.complex(x, y).abs(), (t.complex(x, y) @ t.complex(y, x).mH).imag, t.fft.fft(x).abs()),
    "linear algebra": lambda t, x, y: (
        t.linalg.inv(x[:, :3] + 3 * t.eye(3, dtype=x.dtype)),
        t.linalg.solve(x[:, :3] + 3 * t.eye(3, dtype=x.dtype), y),
        t.linalg.norm(x),
        t.linalg.vector_norm(x, 1, dim=0),
        t.linalg.matrix_norm(x),
        t.cross(x[:, :3], y[:, :3], dim=1),
    ),
    "joins": lambda t, x, y: (
        t.dstack([x, y]),
        t.hstack([x[0], y[0]]),
        t.vstack([x[0], y]),
    ),
    "grids": lambda t, x, y: (*t.meshgrid(x[0], y[:, 0], indexing="xy"), *t.broadcast_tensors(x, y[0])),
    "shapes": lambda t, x, y: (
        x.unflatten(1, (2, 2)),
        x.expand_as(y),
        x.reshape_as(y.reshape(2, 6)),
        t.diag(x[0]),
        t.diag_embed(x),
        x.unfold(1, 2, 1),
        x.repeat_interleave(2, 0),
        t.atleast_2d(x[0]),
    ),
    "layers": lambda t, x, y: (
        t.nn.functional.prelu(x, y[0, :1]),
        t.nn.functional.glu(x),
        t.nn.functional.one_hot((x > 0).long(), 3),
        t.nn.functional.pad(x, (1, 1), mode="reflect"),
        t.nn.functional.cosine_similarity(x, y, dim=1),
    ),
    "statistics": lambda t, x, y: (
        t.cummax(x, 1).values,
        x.kthvalue(2, 1).values,
        x.nansum(0),
        *t.std_mean(x, 0),
        x.count_nonzero(),
        x.index_add(0, t.tensor([0, 1, 0]), y),
    ),
}


@pytest.mark.parametrize("in_dims", [(0, 0), (0, None), (None, 0)])
@pytest.mark.parametrize("name", TWO)
def test_rules_hold_for_operands_of_each_kind(name, in_dims):
    def case(t):
        x, y = data(t, 3, 3, 4), data(t, 3, 3, 4, shift=1.3)
        given = [each if dim is not None else each[0] for each, dim in zip((x, y), in_dims, strict=True)]

        def function(a, b):
            found = TWO[name](t, a, b)
            return tuple(found) if isinstance(found, (tuple, list)) else found

        return t.vmap(function, in_dims)(*given)

    same(case)


@pytest.mark.parametrize("in_dims", [(0, None), (None, 0), (0, 0), (-1, 0), (1, None)])
@pytest.mark.parametrize(
    "function",
    many(
        [
            lambda t, a, b: a * b + 1,
            lambda t, a, b: a @ b,
            lambda t, a, b: t.nn.functional.linear(a, b),
            lambda t, a, b: (t.outer(a[0], b[0]), a[0] @ b, a @ b[0], t.nn.functional.mse_loss(a, b)),
            lambda t, a, b: t.einsum("ij,jk", a, b),
            lambda t, a, b: t.where(a > b, a, b).sum(),
            lambda t, a, b: a[(b[0] > 0).long()],
            lambda t, a, b: a[:, (b > 0).long()],
            lambda t, a, b: t.cat([a, b]),
        ]
    ),
)
def test_operands_that_samples_share(function, in_dims):
    def case(t):
        x, y = data(t, 3, 3, 3), data(t, 3, 3, 3, shift=1.0)
        given = [each if dim is not None else each[0] for each, dim in zip((x, y), in_dims, strict=True)]
        return t.func.vmap(lambda a, b: function(t, a, b), in_dims=in_dims)(*given)

    same(case)


def test_a_sample_without_dimensions_promotes_as_one():
    def case(t):
        points = t.tensor([1.0, 2.0], dtype=t.float64)
        row = t.ones(3, dtype=t.float32)
        whole = t.tensor([1, 2, 3])
        vmap = t.func.vmap
        return (
            vmap(lambda p: p * row)(points),
            vmap(lambda p: p * whole)(points),
            vmap(lambda p: p + t.tensor(1.0))(points.float()),
            vmap(lambda p, w: p * w, (0, None))(points.float(), t.tensor(2.0, dtype=t.float64)),
            vmap(lambda p: p / 2)(whole),
        )

    same(case)


def test_structures_and_out_dims():
    def case(t):
        def function(given, scale):
            return {"a": given["x"] * scale, "b": (given["y"].sum(), scale)}

        given = {"x": data(t, 2, 5), "y": data(t, 5, 3)}
        inner = t.func.vmap(lambda x, y: (x.T, y), in_dims=(1, 0), out_dims=(-1, 1))
        return (
            t.func.vmap(function, in_dims=({"x": 1, "y": 0}, None))(given, t.tensor(2.0)),
            inner(data(t, 2, 5, 3), data(t, 5, 2)),
            t.vmap(lambda x: t.ones(2))(data(t, 3)),
        )

    same(case)


def test_levels_nest():
    def case(t):
        x, y = data(t, 2, 3), data(t, 4, 3)
        pairs = t.vmap(t.vmap(lambda a, b: (a - b).norm(), (None, 0)), (0, None))(x, y)
        table = t.vmap(lambda a: t.vmap(lambda b: a @ b + a.sum(), out_dims=0)(y))(x)
        return pairs, table, t.vmap(t.vmap(t.vmap(lambda p: p * p)))(data(t, 2, 2, 2))

    same(case)


@pytest.mark.parametrize("chunk_size", [1, 2, 5, 9])
def test_chunks_answer_the_same(chunk_size):
    same(lambda t: t.vmap(lambda x: (x.sum(), x * 2), out_dims=(0, 1), chunk_size=chunk_size)(data(t, 5, 3)))


def test_gradients_per_sample():
    def case(t):
        def loss(params, x, y):
            hidden = t.tanh(t.nn.functional.linear(x, params["w"], params["b"]))
            return t.nn.functional.cross_entropy(hidden.unsqueeze(0), y.unsqueeze(0))

        params = {"w": data(t, 4, 3), "b": data(t, 4)}
        gradient = t.vmap(t.func.grad(loss), in_dims=(None, 0, 0))
        return gradient(params, data(t, 5, 3), t.tensor([0, 1, 2, 3, 0]))

    same(case)


def test_gradients_per_sample_of_a_network_with_convolutions():
    def case(t):
        class Net(t.nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = t.nn.Conv2d(1, 2, 3, padding=1)
                self.last = t.nn.Linear(8, 3)

            def forward(self, x):
                hidden = t.nn.functional.group_norm(self.conv(x), 2).relu()
                return self.last(t.nn.functional.max_pool2d(hidden, 2).flatten(1))

        net = Net().double()
        params = {
            name: data(t, *p.shape, shift=float(at)).reshape(p.shape)
            for at, (name, p) in enumerate(net.named_parameters())
        }

        def loss(params, x, y):
            return t.nn.functional.cross_entropy(t.func.functional_call(net, params, (x.unsqueeze(0),)), y.unsqueeze(0))

        return t.vmap(t.func.grad(loss), (None, 0, 0))(params, data(t, 3, 1, 4, 4), t.tensor([2, 0, 1]))

    same(case)


def test_derivatives_per_point():
    def case(t):
        w = data(t, 2, 4)

        def field(point):
            return (t.tanh(point @ w) ** 2).sum()

        points = data(t, 3, 2)
        f = t.func
        return (
            t.vmap(f.grad(field))(points),
            t.vmap(f.jacrev(lambda p: t.tanh(p @ w)))(points),
            t.vmap(f.jacfwd(lambda p: t.tanh(p @ w)))(points),
            t.vmap(f.hessian(field))(points),
            t.vmap(lambda p, v: f.jvp(field, (p,), (v,))[1])(points, data(t, 3, 2, shift=2.0)),
            f.grad(lambda w: t.vmap(lambda p: t.tanh(p @ w).sum())(points).sum())(w),
        )

    same(case)


def test_many_cotangents_of_one_graph():
    def case(t):
        _, product = t.func.vjp(lambda x: (x * x).cumsum(0), t.tensor([1.0, 2.0, 3.0]))
        return t.vmap(product)(t.eye(3))

    same(case)


def test_an_ensemble_of_modules():
    def case(t):
        nets = [t.nn.Linear(3, 2) for _ in range(4)]
        with t.no_grad():
            for at, net in enumerate(nets):
                net.weight.copy_(data(t, 2, 3, shift=at, dtype=t.float32))
                net.bias.fill_(at)
        params, buffers = t.func.stack_module_state(nets)
        call = lambda p, b, x: t.func.functional_call(nets[0], (p, b), (x,))  # noqa: E731
        answer = t.vmap(call, (0, 0, None))(params, buffers, data(t, 5, 3, dtype=t.float32))
        answer.sum().backward()
        return answer.detach(), params["weight"].grad

    same(case)


def test_samples_are_changed_in_place_each_by_itself():
    def case(t):
        def function(x, y):
            made = x.clone()
            made += y
            made[0] = y[1]
            made[1:] = 0.5
            fresh = x.new_zeros(3)
            fresh[1] = x[0]
            return made, fresh.mul_(2)

        return t.vmap(function)(data(t, 2, 3), data(t, 2, 3, shift=1.0))

    same(case)


def test_random_numbers_are_refused_the_same_or_different():
    x = gradwire.zeros(4, 100)
    with pytest.raises(RuntimeError, match="randomness error mode"):
        gradwire.vmap(lambda x: x + gradwire.rand(100))(x)
    for function in (lambda x: x + gradwire.rand(100), lambda x: x + gradwire.rand_like(x)):
        different = gradwire.vmap(function, randomness="different")(x)
        once = gradwire.vmap(function, randomness="same")(x)
        assert not gradwire.equal(different[0], different[1])
        assert gradwire.equal(once[0], once[3])
    dropped = gradwire.vmap(gradwire.nn.functional.dropout, randomness="same")(x + 1)
    assert gradwire.equal(dropped[0], dropped[1]) and 0 < dropped[0].sum().item() < 200
    dropped = gradwire.vmap(gradwire.nn.functional.dropout, randomness="different")(x + 1)
    assert not gradwire.equal(dropped[0], dropped[1])


@pytest.mark.parametrize(
    ("case", "error", "phrase"),
    [
        (lambda t: t.vmap(lambda x: x)(3), ValueError, "non-Tensor"),
        (lambda t: t.vmap(lambda: 1)(), ValueError, "no inputs"),
        (lambda t: t.vmap(lambda x, y: x)(t.ones(2), t.ones(3)), ValueError, "same size"),
        (lambda t: t.vmap(lambda x: x, in_dims=2)(t.ones(2)), ValueError, "dimensionality 1"),
        (lambda t: t.vmap(lambda x: x, in_dims=None)(t.ones(2)), ValueError, "at least one|must be mapped"),
        (lambda t: t.vmap(lambda x: 3)(t.ones(2)), ValueError, "only return Tensors"),
        (lambda t: t.vmap(lambda x: x, randomness="maybe")(t.ones(2)), RuntimeError, "randomness"),
        (lambda t: t.vmap(lambda x: x.item())(t.ones(2)), RuntimeError, "item"),
        (lambda t: t.vmap(lambda x: x if x > 0 else -x)(t.ones(2)), RuntimeError, "data-dependent"),
        (lambda t: t.vmap(lambda x: t.zeros(()).add_(x))(t.ones(2)), RuntimeError, "inplace"),
        (lambda t: t.vmap(lambda x: x[x > 0])(t.ones(2, 2)), RuntimeError, "vmap"),
        (lambda t: t.vmap(lambda x: x.sum(1))(t.ones(2, 2)), IndexError, "Dimension out of range"),
    ],
)
def test_what_cannot_be_mapped_is_refused(case, error, phrase):
    refuse(case, error, phrase)


def test_an_op_without_a_rule_is_named():
    with pytest.raises(RuntimeError, match="no batching rule for histc"):
        gradwire.vmap(lambda x: x.histc(3))(gradwire.ones(2, 3))
    assert (gradwire.ones(2) + 1).tolist() == [2.0, 2.0]


def test_loops_of_per_sample_gradients_wait_for_nothing_new():
    def run(t):
        w = t.tensor([0.5, -0.5], dtype=t.float64)
        step = t.vmap(t.func.grad(lambda w, x: (w * x).sin().sum()), (None, 0))
        for _ in range(4):
            w = w - 0.1 * step(w, data(t, 3, 2)).mean(0)
        return w

    assert alike(bare(run(gradwire)), bare(run(torch)))


def test_batch_norm_of_samples():
    def told(t):
        x, w, b = data(t, 2, 4, 3), data(t, 2, 3), data(t, 2, 3, shift=1.0)
        mean, var = t.zeros(2, 3, dtype=t.float64), t.ones(2, 3, dtype=t.float64)

        def norm(x, *rest, training=True):
            return t.nn.functional.batch_norm(x, *rest, training=training)

        made = [
            t.func.vmap(lambda x, w, b: norm(x, None, None, w, b))(x, w, b),
            t.func.vmap(lambda w: norm(x[0], None, None, w))(w),
            t.func.vmap(norm)(x, mean, var),
            t.func.vmap(lambda x: norm(x, mean[0], var[0], training=False))(x),
        ]
        slopes = t.func.vmap(t.func.grad(lambda x, w: norm(x, None, None, w).pow(3).sum(), (0, 1)))(x, w)
        return made, mean, var, slopes

    same(told)
    refuse(
        lambda t: t.func.vmap(lambda x: t.nn.functional.batch_norm(x, t.zeros(3), t.ones(3), training=True))(
            t.ones(2, 4, 3)
        ),
        RuntimeError,
        "running_mean",
    )


def test_custom_functions_have_rules_of_their_own():
    def told(t, both=False, answer=lambda made, dims: (made, dims[0])):
        calls = []

        class Cube(t.autograd.Function):
            generate_vmap_rule = both

            @staticmethod
            def forward(x, factor):
                return x**3 * factor

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.save_for_backward(inputs[0])
                ctx.factor = inputs[1]

            @staticmethod
            def backward(ctx, g):
                return 3 * ctx.saved_tensors[0] ** 2 * g * ctx.factor, None

            @staticmethod
            def vmap(info, in_dims, x, factor):
                calls.append((info.batch_size, info.randomness, in_dims))
                return answer(Cube.apply(x, factor), in_dims)

        x = data(t, 3, 2)
        made = t.func.vmap(lambda x: Cube.apply(x, 2.0))(x)
        twice = t.func.vmap(t.func.vmap(lambda x: Cube.apply(x, 2.0)))(x)
        slopes = t.func.vmap(t.func.grad(lambda x: Cube.apply(x, 2.0).sum()))(x)
        return made, twice, slopes, calls

    same(told)
    refuse(lambda t: told(t, both=True), RuntimeError, "generate_vmap_rule=True and an overridden")
    refuse(lambda t: told(t, answer=lambda made, dims: made), RuntimeError, "to have two returns")
    refuse(lambda t: told(t, answer=lambda made, dims: (made, (None,))), RuntimeError, "returned an incompatible")
