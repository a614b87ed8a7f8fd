"""`out=`, tensor types by name, and small composed functions behave as in PyTorch."""

import pytest

from tests.client.oracle import agree, refuse, warn

pytestmark = pytest.mark.usefixtures("session")


def test_results_are_written_into_out():
    def case(t):
        a, empty = t.arange(6.0).reshape(2, 3), t.empty(0)
        same = t.add(a, a, out=empty) is empty
        kept = t.zeros(2, 2)
        view = kept.view(-1)
        t.matmul(a, a.T, out=kept)
        into_double = t.exp(a, out=t.zeros(2, 3, dtype=t.float64))
        return same, empty, kept, view, into_double, t.sum(a, dim=0, out=t.empty(3)), t.linalg.inv(t.eye(2), out=kept)

    agree(case)


def test_out_is_refused_where_gradients_would_pass_or_the_dtype_does_not_fit():
    refuse(
        lambda t: t.mul(t.ones(2, requires_grad=True), 2, out=t.zeros(2)),
        RuntimeError,
        "out=... arguments don't support automatic differentiation",
    )
    refuse(
        lambda t: t.add(t.ones(2), 1, out=t.zeros(2, dtype=t.int64)),
        RuntimeError,
        "result type Float can't be cast to the desired output type Long",
    )
    refuse(lambda t: t.exp(t.ones(2), out=[1]), TypeError, "argument 'out' must be Tensor")
    warn(lambda t: t.exp(t.ones(3), out=t.zeros(5)), "An output with one or more elements was resized")
    warn(lambda t: t.exp(t.ones(3), out=t.empty(0)))


OVERLAPPING = {
    "behind": (lambda x: x[:4], lambda x: x[1:5]),
    "before": (lambda x: x[1:5], lambda x: x[:4]),
    "transposed": (lambda x: x[:4].view(2, 2).t(), lambda x: x[:4].view(2, 2)),
}
APART = {
    "the same elements": (lambda x: x.view(3, 4)[0], lambda x: x[:4]),
    "others": (lambda x: x[:4], lambda x: x[4:8]),
    "with gaps": (lambda x: x[::2], lambda x: x[1:7]),
    "one beside the other": (lambda x: x[::3], lambda x: x[1::3]),
}
INTO = {
    "exp": lambda t, a, out: t.exp(a, out=out),
    "maximum": lambda t, a, out: t.maximum(t.full(a.shape, 2.0), a, out=out),
    "cat": lambda t, a, out: t.cat([a[:2], t.zeros(a[2:].shape)], out=out),
    "cumsum": lambda t, a, out: t.cumsum(a, 0, out=out),
}


def _write(t, op, read, written):
    x = t.arange(12.0)
    INTO[op](t, read(x), written(x))
    return x


@pytest.mark.parametrize("op", INTO)
@pytest.mark.parametrize("how", OVERLAPPING)
def test_out_that_overlaps_an_operand_partly_is_refused(op, how):
    refuse(lambda t: _write(t, op, *OVERLAPPING[how]), RuntimeError, "refer to a single memory location")


@pytest.mark.parametrize("op", ["exp", "maximum", "cumsum"])
@pytest.mark.parametrize("how", APART)
def test_out_that_shares_memory_otherwise_is_written(op, how):
    agree(lambda t: _write(t, op, *APART[how]).sum(dtype=t.float64).float())


def test_joined_tensors_are_not_written_over_one_of_them():
    refuse(lambda t: _write(t, "cat", lambda x: x[:4], lambda x: x[:4]), RuntimeError, "a single memory")


@pytest.mark.parametrize("op", ["exp", "cumsum"])
def test_an_output_that_is_laid_out_anew_counts_as_changed_once(op):
    def case(t):
        whole = t.zeros(4)
        part = whole[:2]
        INTO[op](t, t.ones(3), part)
        return part._version, whole._version, whole

    agree(case)


def test_several_results_are_written_into_out():
    def case(t):
        a = t.tensor([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0], [1.0, 1.0, 7.0]], dtype=t.float64)
        places = t.empty(0, dtype=t.float64), t.empty(0, dtype=t.int64)
        made = t.sort(a, out=places)
        kept = t.zeros_like(a), t.zeros_like(a)
        factors = t.linalg.qr(a, out=kept), t.svd(a, out=(kept[0], a.new_zeros(3), kept[1]))[1]
        largest = t.max(a, 0, keepdim=True, out=places), t.max(a, a.T, out=kept[0])
        others = t.tensordot(a, a, 2, out=a.new_zeros(())), t.softmax(a, 1, out=kept[1])
        return made.values is places[0], factors, largest, others

    agree(case)


def test_out_of_several_results_has_as_many_tensors_of_their_dtypes():
    places = lambda t, dtype: (t.zeros(2), t.zeros(2, dtype=dtype))  # noqa: E731
    refuse(lambda t: t.sort(t.ones(2), out=places(t, t.int32)), RuntimeError, "out tensor to have dtype")
    refuse(lambda t: t.sort(t.ones(2), out=t.zeros(2)), TypeError, "must be tuple of Tensors")
    refuse(lambda t: t.sort(t.ones(2), out=(t.zeros(2),)), TypeError, "")


def test_types_by_name_make_tensors_and_tell_them_apart():
    def case(t):
        made = t.LongTensor([1, 2]), t.FloatTensor(2, 3).shape, t.DoubleTensor([1]), t.BoolTensor([True, False])
        return made, [isinstance(made[0], kind) for kind in (t.LongTensor, t.FloatTensor)]

    agree(case)
    refuse(lambda t: t.LongTensor(t.ones(1)), TypeError, "expected")


def test_functions_made_of_others():
    def case(t):
        a = t.tensor([[2.0, 1.0], [1.0, 3.0]])
        filled = t.zeros(5, 2).fill_diagonal_(1.0, wrap=True), t.zeros(3, 3, 3).fill_diagonal_(2.0)
        powers = a.matrix_power(3), t.vander(t.tensor([1.0, 2.0]), 3), t.pinverse(a), t.chain_matmul(a, a, a)
        windows = [
            getattr(t, f"{name}_window")(6, periodic=periodic)
            for name in ("hann", "hamming", "blackman", "bartlett")
            for periodic in (True, False)
        ]
        return filled, powers, windows, t.broadcast_shapes((2, 1), (3,), 1), t.adjoint(a)

    agree(case)
    refuse(lambda t: t.broadcast_shapes((2,), (3,)), RuntimeError, "Shape mismatch: objects cannot be broadcast")
    refuse(lambda t: t.zeros(3).fill_diagonal_(1.0), RuntimeError, "dimensions must larger than 1")


def test_packed_sequences_loaders_and_parametrizations_refuse_what_pytorch_refuses():
    def pack(lengths, **options):
        return lambda t: t.nn.utils.rnn.pack_padded_sequence(t.ones(3, 2, 1), lengths, **options)

    refuse(pack([1, 3]), RuntimeError, "sorted in decreasing order")
    refuse(pack([3, 0]), RuntimeError, "greater than 0")
    refuse(pack([3]), RuntimeError, "batch_size")
    refuse(lambda t: t.nn.utils.rnn.pad_sequence([]), RuntimeError, "empty list")
    refuse(lambda t: t.utils.data.DataLoader([1], batch_size=0), ValueError, "positive integer value")
    refuse(lambda t: t.utils.data.DataLoader([1], shuffle=True, sampler=[0]), ValueError, "mutually exclusive")
    refuse(lambda t: t.utils.data.default_collate([object()]), TypeError, "default_collate: batch must contain")
    refuse(lambda t: t.utils.data.random_split([1, 2], [1, 2]), ValueError, "Sum of input lengths")

    def wrong_shape(t):
        class Cut(t.nn.Module):
            def forward(self, x):
                return x[:1]

        t.nn.utils.parametrize.register_parametrization(t.nn.Linear(2, 2), "weight", Cut())

    refuse(wrong_shape, ValueError, "may not change the shape of the tensor")
    refuse(
        lambda t: t.nn.utils.parametrize.register_parametrization(t.nn.Linear(2, 2), "no", t.nn.Identity()),
        ValueError,
        "does not have a parameter, a buffer, or a parametrized element",
    )
    refuse(lambda t: t.distributions.Normal(t.tensor(0.0), t.tensor(-1.0)), ValueError, "to satisfy the constraint")
    refuse(lambda t: t.distributions.Categorical(), ValueError, "but not both")
    refuse(
        lambda t: t.distributions.Normal(0.0, 1.0).log_prob(t.tensor(float("nan"))), ValueError, "within the support"
    )


def test_samples_have_the_moments_of_their_distribution():
    import gradwire as gw

    gw.manual_seed(0)
    d = gw.distributions
    for made in (
        d.Normal(1.0, 2.0),
        d.Gamma(0.5, 2.0),
        d.Gamma(3.0, 0.5),
        d.Beta(2.0, 3.0),
        d.StudentT(8.0, 1.0, 0.5),
        d.Gumbel(0.0, 1.0),
        d.Laplace(1.0, 0.5),
        d.Poisson(4.0),
        d.Geometric(0.3),
        d.Binomial(6, gw.tensor(0.4)),
        d.LogNormal(0.0, 0.3),
        d.Exponential(2.0),
    ):
        drawn = made.sample((20_000,))
        spread = float(made.stddev)
        assert float(drawn.mean()) == pytest.approx(float(made.mean), abs=6 * spread / 20_000**0.5), made
        assert float(drawn.std()) == pytest.approx(spread, rel=0.15), made


def test_a_dimension_by_both_of_its_names_is_refused():
    for call in (lambda t: t.ones(2, 3).sum(dim=0, axis=1), lambda t: t.softmax(t.ones(2, 3), 0, axis=1)):
        refuse(call, TypeError, "axis")
    import gradwire

    with pytest.raises(TypeError, match="axis is another name of dim"):
        gradwire.mean(gradwire.ones(2, 3), 0, axis=1)


def test_a_vector_that_is_no_tensor_is_refused():
    refuse(lambda t: t.nn.utils.vector_to_parameters([1], [t.zeros(1)]), TypeError, "Tensor, but got")


FILLED = {
    "zeros": lambda t, out: t.zeros(2, 3, out=out),
    "ones": lambda t, out: t.ones((2, 3), out=out, requires_grad=True),
    "full": lambda t, out: t.full((2, 3), 1.5, out=out, requires_grad=True),
    "eye": lambda t, out: t.eye(3, out=out),
    "linspace": lambda t, out: t.linspace(0, 1, 7, out=out, requires_grad=True),
    "logspace": lambda t, out: t.logspace(0, 1, 7, out=out),
}


@pytest.mark.parametrize("name", FILLED)
def test_factories_resize_in_silence_and_set_the_flag(name):
    agree(lambda t: FILLED[name](t, t.ones(5)))
    warn(lambda t: FILLED[name](t, t.ones(5)))


@pytest.mark.parametrize("name", ["rand", "randn", "empty"])
def test_unspecified_values_resize_in_silence(name):
    warn(lambda t: getattr(t, name)(2, 3, out=t.ones(5)))
    warn(lambda t: t.normal(0.0, 1.0, (2, 3), out=t.ones(5)))


def test_arange_counts_the_elements_of_an_output_it_resizes():
    agree(lambda t: t.arange(9.0, out=t.ones(3, 3)))
    warn(
        lambda t: t.arange(50.0, out=t.ones(1, 49)),
        "is 49 which does not match the computed number of elements 50",
        r"The out tensor will be resized to a tensor of shape (50,)",
    )
    warn(lambda t: t.arange(9.0, out=t.ones(3, 3)))


def test_a_factorys_flag_is_refused_for_integers():
    refuse(lambda t: t.zeros(2, out=t.ones(2, dtype=t.int64), requires_grad=True), RuntimeError, "floating point")
