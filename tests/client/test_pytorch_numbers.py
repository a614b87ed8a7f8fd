"""After `manual_seed` a program's random numbers are PyTorch's: weights, dropout, orders of data, training, states.

tests/engine/ops/random/test_pytorch_numbers.py compares each kind of draw.
"""

import numpy as np
import pytest

import gradwire as gw
import gradwire.utils.data
from gradwire.utils.data._permutation import MOST, permutation

torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")

BOTH = (torch, gw)
EXACT = torch.backends.cpu.get_cpu_capability() == "AVX2"  # elsewhere PyTorch's normal numbers end in other digits


@pytest.fixture(autouse=True)
def _seeded(deferring):
    for library in BOTH:
        library.manual_seed(3)


def values(tensor):
    held = tensor.detach()
    return (held.float() if "bfloat16" in str(held.dtype) else held).numpy()


def same(ours, theirs, rounding=0.0):
    """The same numbers; but for `rounding`, digit by digit where PyTorch's are those of this kind of CPU."""
    if rounding or not EXACT:
        np.testing.assert_allclose(values(ours), values(theirs), rounding or 1e-6, rounding or 1e-6)
    else:
        np.testing.assert_array_equal(values(ours), values(theirs))


def same_state():
    np.testing.assert_array_equal(gw.get_rng_state().numpy(), torch.get_rng_state().numpy())


LAYERS = [
    "Linear(50, 70)", "Linear(5, 7, dtype=float64)", "Linear(50, 60, dtype=bfloat16)", "Bilinear(3, 4, 5)",
    "Conv1d(4, 6, 3)", "Conv2d(4, 6, 3, groups=2)", "Conv3d(4, 6, 3, bias=False)", "ConvTranspose1d(4, 6, 3)",
    "ConvTranspose2d(4, 6, 3)", "ConvTranspose3d(2, 3, 3)", "Embedding(10, 5, padding_idx=2)", "EmbeddingBag(10, 5)",
    "RNN(4, 6, 2)", "LSTM(4, 6, 2, bidirectional=True, proj_size=3)", "GRU(4, 6, 2)", "RNNCell(4, 6)",
    "LSTMCell(4, 6)", "GRUCell(4, 6)", "MultiheadAttention(8, 2)", "MultiheadAttention(8, 2, kdim=4, vdim=6)",
    "MultiheadAttention(8, 2, add_bias_kv=True)", "TransformerEncoderLayer(8, 2, 16)",
    "TransformerDecoderLayer(8, 2, 16)", "TransformerEncoder(TransformerEncoderLayer(8, 2, 16), 2)",
    "Transformer(8, 2, 1, 1, 16)", "BatchNorm2d(4)", "LayerNorm(4)", "GroupNorm(2, 4)", "PReLU(3)",
    "Sequential(Linear(3, 4), ReLU(), Linear(4, 2))", "utils.weight_norm(Linear(5, 6))",
]  # fmt: skip


@pytest.mark.parametrize("text", LAYERS)
def test_weights_of_a_new_layer(text):
    names = [dict(vars(each.nn), float64=each.float64, bfloat16=each.bfloat16) for each in BOTH]
    theirs, ours = (eval(text, each).state_dict() for each in names)
    assert list(ours) == list(theirs)
    for name in theirs:
        same(ours[name], theirs[name])
    same_state()


INITS = [
    "uniform_(t, -1.0, 3.0)", "normal_(t, 2.0, 0.5)", "xavier_uniform_(t, gain=2.0)", "xavier_normal_(t)",
    "kaiming_uniform_(t, nonlinearity='relu')", "kaiming_normal_(t, mode='fan_out')", "kaiming_uniform_(t, a=5**0.5)",
    "trunc_normal_(t, 0.5, 1.0, -0.5, 2.0)", "trunc_normal_(t)", "trunc_normal_(t, 0.0, 1.0, 0.5, 1.0)",
    "trunc_normal_(t, std=0.02)", "sparse_(t, 0.3)",
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("text", INITS)
def test_initial_values(text, dtype):
    made = []
    for library in BOTH:
        made.append(library.empty(6, 9, dtype=getattr(library, dtype)))
        eval(text, dict(vars(library.nn.init), t=made[-1]))
    same(*reversed(made))
    same_state()


@pytest.mark.parametrize("shape", [(6, 9), (9, 4), (5, 5), (3, 2, 4)])
def test_orthogonal_initial_values_but_for_rounding(shape):
    theirs, ours = (each.nn.init.orthogonal_(each.empty(shape, dtype=each.float64)) for each in BOTH)
    same(ours, theirs, 1e-12)
    same_state()


def test_a_generator_for_initial_values():
    theirs, ours = (
        each.nn.init.trunc_normal_(each.empty(40, 30), generator=each.Generator().manual_seed(4)) for each in BOTH
    )
    same(ours, theirs)
    same_state()


def loaded(library, epochs=3, **options):
    data = library.utils.data
    loader = data.DataLoader(data.TensorDataset(library.arange(23)), batch_size=4, **options)
    return [batch.tolist() for _ in range(epochs) for (batch,) in loader]


ORDERS = {
    "in order": lambda each: loaded(each),
    "shuffled": lambda each: loaded(each, shuffle=True),
    "without the last": lambda each: loaded(each, shuffle=True, drop_last=True),
    "by a generator": lambda each: loaded(each, shuffle=True, generator=each.Generator().manual_seed(9)),
    "one by one": lambda each: list(each.utils.data.DataLoader(range(9), batch_size=None, shuffle=True)),
    "with replacement": lambda each: [
        list(each.utils.data.RandomSampler(range(50), True, count)) for count in (10, 32, 70)
    ],
    "counted": lambda each: [list(each.utils.data.RandomSampler(range(20), False, count)) for count in (10, 20, 45)],
    "of a subset": lambda each: list(each.utils.data.SubsetRandomSampler([3, 4, 5, 6, 7])),
    "weighted": lambda each: [
        list(each.utils.data.WeightedRandomSampler([0.1, 0.5, 0.2, 0.9], count, replacement))
        for count, replacement in ((10, True), (3, False), (1, True))
    ],
    "split": lambda each: [part.indices for part in each.utils.data.random_split(range(20), [5, 15])],
    "split by a generator": lambda each: [
        part.indices
        for part in each.utils.data.random_split(range(20), [0.5, 0.5], generator=each.Generator().manual_seed(42))
    ],
    "first batch only": lambda each: (
        next(iter(each.utils.data.DataLoader(range(9), 2, shuffle=True))).tolist(),
        each.rand(2).tolist(),
    ),
}


@pytest.mark.parametrize("name", ORDERS)
def test_the_order_of_data(name):
    theirs, ours = (ORDERS[name](each) for each in BOTH)
    assert (
        [list(each) for each in ours] == [list(each) for each in theirs] if name.startswith("split") else ours == theirs
    )
    same_state()


def trained(library):
    """A network with dropout, trained a few steps on shuffled data."""
    nn, data = library.nn, library.utils.data
    x, y = library.randn(60, 12), library.randint(0, 3, (60,))
    model = nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Dropout(0.4), nn.Linear(20, 3))
    optimizer = library.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        for inputs, labels in data.DataLoader(data.TensorDataset(x, y), batch_size=16, shuffle=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
    return model


def test_a_training_run():
    theirs, ours = (trained(each).state_dict() for each in BOTH)
    for name in theirs:
        same(ours[name], theirs[name], 1e-5)
    same_state()


def test_a_transformer_in_training():
    """Its dropouts draw in the order of the memory of what they drop, in both layouts."""
    for batch_first in (False, True):
        made = []
        for library in BOTH:
            layer = library.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=batch_first)
            made.append(layer(library.randn(4, 6, 8)))
        same(made[1], made[0], 1e-5)
        same_state()


def _stack(library):
    return library.tensor([0.3, 0.6])


SAMPLES = {
    "Normal": lambda lib, d: d.Normal(_stack(lib), 2.0),
    "Bernoulli": lambda lib, d: d.Bernoulli(_stack(lib)),
    "Categorical": lambda lib, d: d.Categorical(_stack(lib)),
    "Uniform": lambda lib, d: d.Uniform(_stack(lib), 1.0),
    "Exponential": lambda lib, d: d.Exponential(_stack(lib)),
    "Laplace": lambda lib, d: d.Laplace(_stack(lib), 2.0),
    "Cauchy": lambda lib, d: d.Cauchy(_stack(lib), 2.0),
    "Gumbel": lambda lib, d: d.Gumbel(_stack(lib), 2.0),
    "LogNormal": lambda lib, d: d.LogNormal(_stack(lib), 0.5),
    "Geometric": lambda lib, d: d.Geometric(_stack(lib)),
    "Poisson": lambda lib, d: d.Poisson(_stack(lib) * 20),
    "Binomial": lambda lib, d: d.Binomial(10, _stack(lib)),
    "Multinomial": lambda lib, d: d.Multinomial(10, _stack(lib)),
    "OneHotCategorical": lambda lib, d: d.OneHotCategorical(_stack(lib)),
    "MultivariateNormal": lambda lib, d: d.MultivariateNormal(_stack(lib), lib.eye(2)),
    "HalfNormal": lambda lib, d: d.HalfNormal(_stack(lib)),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_of_distributions(name):
    theirs, ours = (SAMPLES[name](each, each.distributions).sample((20,)) for each in BOTH)
    same(ours, theirs, 1e-6)
    same_state()


def test_draws_into_permuted_memory():
    for library in BOTH:
        library.manual_seed(2)
    made = []
    for library in BOTH:
        x = library.ones(6, 5).t()
        library.nn.functional.dropout(x, 0.5, True, True)
        y = library.empty(3, 4).t().bernoulli_(library.tensor([0.3, 0.5, 0.7]))
        z = library.nn.functional.gumbel_softmax(library.zeros(4, 5).t(), 1.0)
        made.append((x, y, z, library.empty(3, 4, 2).permute(2, 0, 1).normal_()))
    for theirs, ours in zip(*made, strict=True):
        same(ours, theirs, 1e-6)
    same_state()


def test_states_are_exchanged():
    torch.rand(10)
    torch.randn(3)
    gw.set_rng_state(gw.tensor(torch.get_rng_state().numpy()))
    theirs, ours = (library.randn(3) for library in BOTH)
    same(ours, theirs)
    theirs, ours = (library.Generator().manual_seed(8) for library in BOTH)
    theirs_drawn, ours_drawn = torch.rand(4, generator=theirs), gw.rand(4, generator=ours)
    same(ours_drawn, theirs_drawn)
    np.testing.assert_array_equal(ours.get_state().numpy(), theirs.get_state().numpy())
    torch.set_rng_state(torch.from_numpy(gw.get_rng_state().numpy()))
    same_state()


def test_a_checkpoint_recomputes_with_the_same_numbers():
    gradients = []
    for library in BOTH:
        x = library.ones(40, requires_grad=True)
        y = library.utils.checkpoint.checkpoint(
            lambda t, f=library.nn.functional: f.dropout(t, 0.5) * t, x, use_reentrant=False
        )
        z = y.sum() + library.nn.functional.dropout(x, 0.3).sum()
        z.backward()
        gradients.append(x.grad)
    same(gradients[1], gradients[0], 1e-6)
    same_state()


def test_a_compiled_step_draws_as_pytorch():
    made = []
    for library in BOTH:
        x = library.linspace(0.0, 1.0, 30).reshape(5, 6).t()

        def step(x, library=library):
            return library.nn.functional.dropout(x * 2, 0.4) + library.nn.functional.dropout(x.exp(), 0.2).sin()

        run = gw.compile(step) if library is gw else step
        made.append([run(x) for _ in range(6)])
    for theirs, ours in zip(*made, strict=True):
        same(ours, theirs, 1e-5)
    same_state()


def test_the_algorithm_is_selected():
    numpys = np.random.Generator(np.random.PCG64(7))
    gw.manual_seed(7, algorithm="pcg64")
    np.testing.assert_array_equal(gw.rand(5, dtype=gw.float64).numpy(), numpys.random(5))
    state = gw.get_rng_state()
    following = gw.rand(3).tolist()
    gw.manual_seed(7)
    same(gw.rand(5), torch.manual_seed(7) and torch.rand(5))
    gw.set_rng_state(state)
    assert gw.rand(3).tolist() == following
    generator = gw.Generator(algorithm="pcg64").manual_seed(7)
    numpys = np.random.Generator(np.random.PCG64(7))
    np.testing.assert_array_equal(gw.rand(5, dtype=gw.float64, generator=generator).numpy(), numpys.random(5))
    with pytest.raises(ValueError, match="'mt19937', 'pcg64', not 'dice'"):
        gw.manual_seed(1, algorithm="dice")
    with pytest.raises(ValueError, match="not 'dice'"):
        gw.Generator(algorithm="dice")


@pytest.mark.parametrize("size", [1, 2, 3, 160, MOST, MOST + 1])
def test_orders_of_epochs_are_those_of_the_same_seed(size):
    """The client computes short ones itself."""
    for seed in (0, 1, 2**32 - 1, 2**32 + 5, 2**63 - 1):
        expected = torch.randperm(size, generator=torch.Generator().manual_seed(seed)).tolist()
        assert permutation(seed, size) == expected
        assert gw.randperm(size, generator=gw.Generator().manual_seed(seed)).tolist() == expected
    orders = []
    for each in BOTH:
        each.manual_seed(size)
        sampler = each.utils.data.RandomSampler(range(size))
        orders.append([list(sampler), list(sampler), each.rand(2).tolist()])
    assert orders[0] == orders[1]
