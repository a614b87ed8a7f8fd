"""Lazy layers, AdaptiveLogSoftmaxWithLoss, fractional pooling and skip_init, beside PyTorch's by the same seed."""

import copy
import pickle

import numpy as np
import pytest

import gradwire
from tests.client.oracle import agree, refuse

RNG = np.random.default_rng(0)  # conftest.py seeds it anew for each test

torch = pytest.importorskip("torch", reason="PyTorch is what is compared with")

pytestmark = [pytest.mark.usefixtures("session"), pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")]

LAZY = {
    "LazyLinear(3)": (2, 4),
    "LazyLinear(3, bias=False)": (2, 2, 4),
    "LazyConv1d(4, 2)": (2, 3, 6),
    "LazyConv2d(9, 3, padding=1, groups=3, bias=False)": (2, 6, 4, 5),
    "LazyConv2d(6, (2, 3), 2, dilation=2, groups=2)": (2, 4, 6, 7),
    "LazyConv3d(2, 2)": (1, 3, 3, 4, 3),
    "LazyConvTranspose1d(4, 2, stride=2)": (2, 3, 6),
    "LazyConvTranspose2d(4, 3, 2, 1, 1, 2)": (2, 6, 4, 5),
    "LazyConvTranspose3d(2, 2)": (1, 3, 3, 2, 3),
    "LazyBatchNorm1d()": (4, 3),
    "LazyBatchNorm2d(momentum=0.3)": (4, 3, 2, 2),
    "LazyBatchNorm3d(affine=False)": (2, 3, 2, 2, 2),
    "LazyBatchNorm1d(track_running_stats=False, bias=False)": (4, 3),
    "LazyInstanceNorm1d()": (2, 3, 4),
    "LazyInstanceNorm2d(affine=False)": (2, 3, 4, 2),
    "LazyInstanceNorm3d(track_running_stats=False)": (2, 3, 2, 2, 2),
}


@pytest.mark.parametrize("text", LAZY)
def test_lazy_layers_become_what_the_first_input_tells(text):
    random = RNG
    given = random.standard_normal(LAZY[text])
    factors = random.standard_normal(4000)
    double = text[:-1] + ("" if text.endswith("()") else ", ") + "dtype=t.float64)"

    def told(t):
        t.manual_seed(11)
        layer = eval(f"t.nn.{double}", {"t": t})
        before = repr(layer), sorted(layer.state_dict()), layer.has_uninitialized_params()
        x = t.tensor(given, requires_grad=True)
        made = layer(x)
        (made * t.tensor(factors)[: made.numel()].reshape(made.shape)).sum().backward()
        loaded = eval(f"t.nn.{double}", {"t": t})
        loaded.load_state_dict(layer.state_dict())
        # PyTorch's instance norms do not know their sizes after that.
        again = None if "Instance" in text else loaded.eval()(x.detach()).detach()
        state = {name: list(value.shape) for name, value in layer.state_dict().items()}
        grads = [each.grad for each in layer.parameters()]
        return before, repr(layer), made.detach(), x.grad, *grads, state, again

    agree(told)


def test_optimizers_keep_lazy_parameters():
    def told(t):
        t.manual_seed(2)
        net = t.nn.Sequential(t.nn.LazyLinear(4), t.nn.ReLU(), t.nn.LazyLinear(1))
        optimizer = t.optim.SGD(net.parameters(), lr=0.1)
        lazy = [t.nn.parameter.is_lazy(each) for each in net.parameters()]
        for _ in range(3):
            optimizer.zero_grad()
            net(t.ones(2, 3)).sum().backward()
            optimizer.step()
        return (
            lazy,
            [t.nn.parameter.is_lazy(each) for each in net.parameters()],
            *[p.detach() for p in net.parameters()],
        )

    agree(told)


def test_a_lazy_parameter_has_no_shape():
    refuse(lambda t: t.nn.LazyLinear(2).weight.shape, RuntimeError, "Can't access the shape of an uninitialized")
    refuse(lambda t: t.nn.LazyConv2d(2, 2)(t.ones(2)), RuntimeError, "Expected 3D .unbatched. or 4D .batched. input")


@pytest.mark.parametrize("head_bias", [False, True])
def test_adaptive_softmax_is_pytorchs(head_bias):
    random = RNG
    given, targets = random.standard_normal((7, 8)), random.integers(0, 20, 7)

    def told(t):
        t.manual_seed(4)
        layer = t.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10, 15], div_value=2.0, head_bias=head_bias)
        x = t.tensor(given, dtype=t.float32, requires_grad=True)
        output, loss = layer(x, t.tensor(targets))
        loss.backward()
        one = layer(x[0].detach(), t.tensor(3))
        return (
            repr(layer),
            output.detach(),
            loss.detach(),
            x.grad,
            layer.head.weight.grad,
            layer.log_prob(x).detach(),
            layer.predict(x),
            one.output.detach(),
            sorted(layer.state_dict()),
        )

    agree(told)


def test_adaptive_softmax_refuses_what_pytorchs_refuses():
    def layer(t):
        return t.nn.AdaptiveLogSoftmaxWithLoss(4, 10, [5])

    refuse(lambda t: t.nn.AdaptiveLogSoftmaxWithLoss(4, 10, []), ValueError, "larger than 0")
    refuse(lambda t: t.nn.AdaptiveLogSoftmaxWithLoss(4, 10, [7, 3]), ValueError, "unique, positive")
    refuse(lambda t: layer(t)(t.ones(2, 4), t.tensor([1, 10])), RuntimeError, r"should be in \[0, 9\]")
    refuse(lambda t: layer(t)(t.ones(2, 4), t.tensor([1])), RuntimeError, "same size in the batch")
    refuse(lambda t: layer(t)(t.ones(2, 4), t.ones(2, 2).long()), RuntimeError, "multi-target not supported")


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        (lambda t, x: t.nn.FractionalMaxPool2d(3, output_size=(4, 3), return_indices=True)(x), (2, 3, 9, 8)),
        (lambda t, x: t.nn.FractionalMaxPool2d((2, 3), output_ratio=(0.5, 0.6), return_indices=True)(x), (3, 9, 8)),
        (lambda t, x: t.nn.functional.fractional_max_pool2d(x, 2, output_size=1), (1, 2, 5, 5)),
        (lambda t, x: t.nn.FractionalMaxPool3d(2, output_size=3, return_indices=True)(x), (2, 2, 5, 6, 7)),
        (lambda t, x: t.nn.functional.fractional_max_pool3d_with_indices(x, (2, 1, 3), output_ratio=0.5), (2, 6, 5, 8)),
    ],
)
def test_fractional_pooling_is_pytorchs_by_the_same_numbers(call, shape):
    given = RNG.standard_normal(shape)

    def told(t):
        t.manual_seed(9)
        x = t.tensor(given, requires_grad=True)
        made = call(t, x)
        values = made[0] if isinstance(made, tuple) else made
        (values * values).sum().backward()
        return values.detach(), x.grad, *(list(made[1:]) if isinstance(made, tuple) else [])

    agree(told)


def test_fractional_pooling_is_refused_as_by_pytorch():
    refuse(lambda t: t.nn.functional.fractional_max_pool2d(t.ones(1, 1, 4, 4), 2), ValueError, "requires specifying")
    refuse(lambda t: t.nn.FractionalMaxPool2d(2), ValueError, "requires specifying either")
    refuse(lambda t: t.nn.FractionalMaxPool2d(2, 3, 0.5), ValueError, "only one of output_size")
    refuse(lambda t: t.nn.FractionalMaxPool3d(2, output_ratio=1.5), ValueError, "must be between 0 and 1")
    refuse(lambda t: t.nn.FractionalMaxPool2d(3, 4)(t.ones(1, 1, 4, 4)), RuntimeError, "too large relative to input")
    # In three dimensions windows that fill the input exactly are refused, too.
    refuse(lambda t: t.nn.FractionalMaxPool3d(3, 3)(t.ones(1, 1, 6, 6, 5)), RuntimeError, "pool width 3 too large")
    agree(lambda t: t.nn.FractionalMaxPool2d(3, 3)(t.arange(25.0).reshape(1, 1, 5, 5)))
    agree(lambda t: t.nn.FractionalMaxPool3d(3, 3)(t.ones(1, 1, 6, 6, 6)))


def test_fractional_pooling_takes_the_first_of_given_samples():
    places = RNG.random((3, 2, 3)).astype("float32")
    image = RNG.standard_normal((2, 5, 6, 7)).astype("float32")

    def told(t):
        layer = t.nn.FractionalMaxPool3d(2, output_size=3, _random_samples=t.tensor(places))
        return layer(t.tensor(image)), layer(t.tensor(image).unsqueeze(0).repeat(2, 1, 1, 1, 1))

    agree(told)


@pytest.mark.parametrize(
    ("shape", "phrase"),
    [
        ((1, 3, 2), "no less then input batch size"),
        ((2, 2, 2), "equals to input channel size"),
        ((2, 3, 3), r"size\(2\) equals to 2; got 3"),
        ((2, 3), "3 dimensions, got 2"),
    ],
)
def test_fractional_pooling_refuses_samples_of_other_sizes(shape, phrase):
    def pool(t, dtype):
        return t.nn.FractionalMaxPool2d(2, 3, _random_samples=t.full(shape, 0.5, dtype=dtype))(t.ones(2, 3, 6, 6))

    refuse(lambda t: pool(t, t.float32), RuntimeError, phrase)
    refuse(lambda t: pool(t, t.float64), RuntimeError, "same dtype as input")


@pytest.mark.parametrize(
    "call",
    [
        lambda t, x: t.nn.functional.max_pool2d_with_indices(x, 2),
        lambda t, x: t.nn.functional.max_pool1d_with_indices(x[0], 2, 1),
        lambda t, x: t.nn.functional.max_pool3d_with_indices(x, 2),
        lambda t, x: t.nn.functional.adaptive_max_pool2d_with_indices(x, 2),
        lambda t, x: t.nn.functional.adaptive_max_pool1d_with_indices(x[0], 2),
        lambda t, x: t.nn.functional.adaptive_max_pool3d_with_indices(x, 2),
        lambda t, x: [t.nn.functional.upsample_nearest(x, scale_factor=2)],
        lambda t, x: [t.nn.functional.upsample_bilinear(x, (7, 9))],
    ],
)
def test_functions_with_indices_and_upsampling_are_pytorchs(call):
    given = RNG.standard_normal((2, 3, 4, 6))
    agree(lambda t: list(call(t, t.tensor(given))))


def test_skip_init_draws_nothing():
    def told(t):
        t.manual_seed(5)
        layer = t.nn.utils.skip_init(t.nn.Linear, 3, 2, dtype=t.float64)
        return repr(layer), layer.weight.shape, repr(layer.weight.dtype), t.rand(2)

    agree(told)
    refuse(lambda t: t.nn.utils.skip_init(t.nn.ReLU), RuntimeError, "must support a 'device' arg")
    refuse(lambda t: t.nn.utils.skip_init(int), RuntimeError, "Expected a Module")


def test_module_paths_have_the_lazy_names():
    assert gradwire.nn.parameter.UninitializedParameter is gradwire.nn.UninitializedParameter
    assert gradwire.nn.modules.lazy.LazyModuleMixin in gradwire.nn.LazyLinear.__mro__


@pytest.mark.parametrize(
    ("places", "bias", "options"),
    [((), False, {}), ((), True, {"label_smoothing": 0.1}), ((2, 3), True, {"ignore_index": 1, "reduction": "none"})],
)
def test_linear_cross_entropy_loss_is_pytorchs(places, bias, options):
    values, targets = RNG.standard_normal((4, 5)).astype("float32"), RNG.integers(0, 3, (4, *places))
    weight = RNG.random(3).astype("float32")

    def told(t):
        t.manual_seed(0)
        layer = t.nn.LinearCrossEntropyLoss(5, 3, out_features=places, bias=bias, weight=t.tensor(weight), **options)
        x = t.tensor(values, requires_grad=True)
        loss = layer(x, t.tensor(targets))
        loss.sum().backward()
        return loss.detach(), x.grad, layer.linear.weight.grad, list(layer.state_dict()), repr(layer)

    agree(told)


def test_linear_cross_entropy_refuses_what_pytorchs_refuses():
    loss = "LinearCrossEntropyLoss"
    refuse(lambda t: getattr(t.nn, loss)(2, 3, weight=t.ones(2)), RuntimeError, "expected weight shape to be")
    refuse(lambda t: getattr(t.nn, loss)(2, 3, label_smoothing=1.5), RuntimeError, "to be in range")
    for wrong, phrase in (
        ({"acc_policy": "best"}, "invalid acc_policy: 'best'"),
        ({"chunking_method": "aspect_ratio:0"}, "invalid chunking_method: 'aspect_ratio:0'"),
        ({"chunking_method": "aspect_ratio:"}, "invalid chunking_method: 'aspect_ratio:'"),
        ({"batch_chunk_size": 0}, "batch_chunk_size must be positive int or None, got 0"),
    ):
        refuse(lambda t, wrong=wrong: t.nn.LinearCrossEntropyOptions(**wrong), ValueError, phrase)
    refuse(lambda t: t.nn.LinearCrossEntropyOptions(acc_dtype=t.int64), ValueError, "acc_dtype must be one of")
    agree(lambda t: repr(t.nn.LinearCrossEntropyOptions(batch_chunk_size=4)))


@pytest.mark.parametrize("name", ["conv.LazyConv2d", "batchnorm.LazyBatchNorm1d", "instancenorm.LazyInstanceNorm3d"])
def test_lazy_layers_are_where_pytorch_has_them(name):
    module, layer = name.split(".")
    assert getattr(getattr(gradwire.nn.modules, module), layer) is getattr(gradwire.nn, layer)


def test_fractional_pooling_takes_lists():
    def case(t):
        t.manual_seed(0)
        x = t.rand(2, 3, 6, 7)
        samples = t.rand(2, 3, 2)
        layer = t.nn.FractionalMaxPool2d([2, 3], output_size=[3, 2], _random_samples=samples)
        return layer(x), t.nn.FractionalMaxPool2d(2, output_ratio=[0.5, 0.6], _random_samples=samples)(x)

    agree(case)


def test_unpooling_of_no_samples():
    def case(t):
        x = t.zeros(0, 3, 4, 4, requires_grad=True)
        values, places = t.nn.functional.max_pool2d(x, 2, return_indices=True)
        made = t.nn.functional.max_unpool2d(values, places, 2)
        made.sum().backward()
        return made.detach(), x.grad

    agree(case)


@pytest.mark.parametrize("copied", ["pickled", "copied"])
def test_copies_of_lazy_layers_take_their_sizes_apart(copied):
    def case(t):
        made = [t.nn.LazyLinear(2), t.nn.LazyConv2d(2, 3), t.nn.LazyConvTranspose1d(2, 3, bias=False)]
        found = []
        for layer, sizes in zip(made, [(3, 4), (1, 3, 5, 5), (1, 3, 5)], strict=True):
            other = pickle.loads(pickle.dumps(layer)) if copied == "pickled" else copy.deepcopy(layer)
            other(t.ones(sizes))
            still = layer.has_uninitialized_params()
            layer(t.ones(1, sizes[1] + 1, *sizes[2:]))
            found += [still, [type(each).__name__ for each in (layer, other)]]
            found += [tuple(each.shape) for one in (layer, other) for each in one.parameters()]
        return found

    agree(case)


def test_a_parameter_takes_one_size():
    def case(t):
        made = t.nn.UninitializedParameter()
        made.materialize(3)
        return type(made).__name__, tuple(made.shape), made.requires_grad

    agree(case)


def lazy_module(t):
    class Scaled(t.nn.modules.lazy.LazyModuleMixin, t.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = t.nn.parameter.UninitializedParameter()
            self.register_buffer("seen", t.nn.parameter.UninitializedBuffer())

        def initialize_parameters(self, input, *, factor=1.0):
            with t.no_grad():
                self.scale.materialize(input.shape[-1:])
                self.scale.fill_(factor)
                self.seen.materialize(input.shape[-1:])
                self.seen.zero_()

        def forward(self, input, *, factor=1.0):
            return input * self.scale + self.seen

    return Scaled()


def test_modules_of_programs_become_ready_by_the_first_input():
    def told(t):
        module = lazy_module(t)
        before = [type(each).__name__ for each in (*module.parameters(), *module.buffers())], repr(module.scale)
        lazy = module.has_uninitialized_params()
        module.double()
        made = module(t.ones(2, 3, dtype=t.float64), factor=2.5)
        kinds = [type(each).__name__ for each in (*module.parameters(), *module.buffers())]
        return before, lazy, made.detach(), kinds, module.has_uninitialized_params(), module.scale.dtype is t.float64

    agree(told)


def test_states_of_lazy_modules_load_into_lazy_ones_alone():
    def told(t):
        first, second = lazy_module(t), lazy_module(t)
        second.load_state_dict(first.state_dict())
        still = second.has_uninitialized_params()
        first(t.ones(2, 3), factor=4.0)
        second.load_state_dict(first.state_dict())
        return still, second.has_uninitialized_params(), second.scale.detach(), second.seen

    agree(told)

    def into_sizes(t):
        module = lazy_module(t)
        module(t.ones(2, 3))
        module.load_state_dict(lazy_module(t).state_dict())

    refuse(into_sizes, RuntimeError, "shape of an uninitialized")
    refuse(lambda t: t.nn.Linear(2, 3).load_state_dict(t.nn.LazyLinear(3).state_dict()), RuntimeError, "shape of an un")
    refuse(lambda t: t.nn.BatchNorm1d(3).load_state_dict(t.nn.LazyBatchNorm1d().state_dict()), RuntimeError, "shape of")


def test_tensors_without_sizes_take_part_in_no_function():
    for kind in ("UninitializedParameter", "UninitializedBuffer"):
        for call in (
            lambda t, x: x + x,
            lambda t, x: t.add(x, 1),
            lambda t, x: t.empty_like(x),
            lambda t, x: x.sum(),
            lambda t, x: x.numel(),
            lambda t, x: x.dim(),
            lambda t, x: x.stride(),
            lambda t, x: x.tolist(),
        ):
            refuse(
                lambda t, kind=kind, call=call: call(t, getattr(t.nn.parameter, kind)()),
                ValueError,
                "use an uninitialized parameter",
            )
    refuse(lambda t: t.optim.Adagrad(t.nn.LazyLinear(2).parameters()), ValueError, "uninitialized parameter")


@pytest.mark.filterwarnings("ignore:.*weight_norm")
def test_lazy_layers_are_refused_by_norms_of_weights_and_scripts():
    refuse(lambda t: t.nn.utils.weight_norm(t.nn.LazyLinear(2)), ValueError, "have uninitialized parameters")
    refuse(lambda t: t.nn.utils.spectral_norm(t.nn.LazyLinear(2)), ValueError, "have uninitialized parameters")
    refuse(lambda t: t.jit.script(t.nn.LazyLinear(2)), RuntimeError, "run a forward pass")
    refuse(lambda t: lazy_module(t).to(t.int32), TypeError, "floating point or complex")


def test_fractional_pooling_of_empty_inputs_and_to_no_elements():
    agree(lambda t: list(t.nn.functional.fractional_max_pool2d(t.ones(0, 2, 7, 7), 2, output_size=3).shape))
    agree(lambda t: list(t.nn.functional.fractional_max_pool2d(t.ones(1, 2, 7, 7), 2, output_size=(0, 1)).shape))
    agree(lambda t: list(t.nn.functional.fractional_max_pool3d(t.ones(1, 2, 7, 7, 7), 2, output_size=(1, 1, 0)).shape))

    def pooled(size, kernel=2, output=3):
        return lambda t: t.nn.functional.fractional_max_pool2d(t.ones(size), kernel, output_size=output)

    refuse(pooled((1, 0, 7, 7)), RuntimeError, "dimension 1 being empty")
    refuse(pooled((1, 2, 7, 7), (1,)), RuntimeError, "kernel_size must either be a single Int")
    refuse(pooled((1, 2, 7, 7), 2, ()), RuntimeError, "output_size must either be a single Int")
    refuse(pooled((1, 2, 7, 7), 2, (3, 9)), RuntimeError, "pool width 2 too large relative to input width 7")


def test_packed_sequences_are_cast_and_never_empty():
    given = RNG.standard_normal((4, 3))

    def told(t):
        packed = t.nn.utils.rnn.pack_padded_sequence(t.tensor(given) * 5, [4, 3, 1])
        names = ("byte", "char", "short", "int", "long", "half", "float", "double")
        casts = [getattr(packed.to(t.float32), name)().data.float() for name in names[1:]]
        return casts, packed.is_pinned()

    agree(told)
    refuse(lambda t: t.nn.utils.rnn.pack_padded_sequence(t.ones(0, 0), []), RuntimeError, "empty tensor")
    refuse(lambda t: t.nn.utils.rnn.pack_padded_sequence(t.ones(3, 2, 0), [1, 1]), RuntimeError, "empty tensor")


def test_a_batch_norm_that_tracks_no_more_counts_no_batches():
    def counted(lib):
        layer = lib.nn.BatchNorm1d(2)
        layer(lib.arange(6.0).reshape(3, 2))
        layer.track_running_stats = False
        layer(lib.arange(6.0).reshape(3, 2))
        return layer.num_batches_tracked, layer.running_mean

    agree(counted)
