"""Recurrent layers and transformers against PyTorch: same weights, same outputs, gradients, text, refusals."""

import copy
from collections import OrderedDict

import numpy as np
import pytest

import gradwire as gw
from gradwire import nn

torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
pytestmark = pytest.mark.usefixtures("deferring")

RNG = np.random.default_rng(3)


def draw(*shape):
    return RNG.standard_normal(shape)


def pair(text):
    """The same module of both libraries, with the same weights, in float64."""
    ours, theirs = (eval(text, dict(vars(library.nn), F=library.nn.functional)).double() for library in (gw, torch))
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict({key: gw.tensor(value.numpy().copy()) for key, value in theirs.state_dict().items()})
    return ours, theirs


def flat(result):
    """The tensors of nested tuples."""
    if result is None:
        return []
    if isinstance(result, tuple):
        return [tensor for part in result for tensor in flat(part)]
    return [result]


def assert_same(ours, theirs):
    assert tuple(ours.shape) == tuple(theirs.shape)
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-9, atol=1e-11)


def compare(text, *drawn, options=None):
    """Outputs, and gradients of inputs and parameters, of both; nested tuples of arrays are nested tuples of inputs."""
    ours, theirs = pair(text)
    results = []
    for library, module in ((gw, ours), (torch, theirs)):
        leaves = []

        def made(value, library=library, leaves=leaves):
            if isinstance(value, tuple):
                return tuple(made(part) for part in value)
            leaf = library.tensor(value, requires_grad=True)
            leaves.append(leaf)
            return leaf

        given = {name: library.tensor(value) if isinstance(value, np.ndarray) else value
                 for name, value in (options or {}).items()}  # fmt: skip
        found = flat(module(*[made(value) for value in drawn], **given))
        sum((tensor * tensor).sum() for tensor in found).backward()
        grads = [leaf.grad for leaf in leaves] + [param.grad for param in module.parameters()]
        results.append(found + [grad for grad in grads if grad is not None])
    assert len(results[0]) == len(results[1])
    for one, other in zip(*results, strict=True):
        assert_same(one, other)
    assert repr(ours) == repr(theirs)


SEQUENCE, BATCH_FIRST, ALONE = draw(5, 2, 3), draw(2, 5, 3), draw(5, 3)
RECURRENT = {
    "rnn": ("RNN(3, 4)", SEQUENCE),
    "rnn relu": ("RNN(3, 4, 2, 'relu', bias=False)", SEQUENCE),
    "rnn with a state": ("RNN(3, 4, num_layers=2, bidirectional=True)", SEQUENCE, draw(4, 2, 4)),
    "gru": ("GRU(3, 4)", SEQUENCE),
    "gru deep": ("GRU(3, 4, num_layers=3, bidirectional=True, batch_first=True)", BATCH_FIRST, draw(6, 2, 4)),
    "gru of one sequence": ("GRU(3, 4)", ALONE, draw(1, 4)),
    "lstm": ("LSTM(3, 4)", SEQUENCE),
    "lstm deep": ("LSTM(3, 4, 2, bidirectional=True, batch_first=True)", BATCH_FIRST, (draw(4, 2, 4), draw(4, 2, 4))),
    "lstm of one sequence": ("LSTM(3, 4, bias=False)", ALONE, (draw(1, 4), draw(1, 4))),
    "lstm projected": ("LSTM(3, 5, 2, proj_size=2, bidirectional=True)", SEQUENCE),
    "rnn cell": ("RNNCell(3, 4)", draw(2, 3)),
    "rnn cell relu": ("RNNCell(3, 4, nonlinearity='relu', bias=False)", draw(2, 3), draw(2, 4)),
    "gru cell": ("GRUCell(3, 4)", draw(2, 3), draw(2, 4)),
    "gru cell alone": ("GRUCell(3, 4)", draw(3), draw(4)),
    "lstm cell": ("LSTMCell(3, 4)", draw(2, 3), (draw(2, 4), draw(2, 4))),
    "lstm cell from nothing": ("LSTMCell(3, 4)", draw(3)),
}


@pytest.mark.parametrize("case", RECURRENT.values(), ids=RECURRENT.keys())
def test_recurrent_layer_is_pytorchs(case):
    compare(*case)


def test_dropout_between_layers_is_only_there_in_training():
    ours, theirs = pair("GRU(3, 4, num_layers=2, dropout=0.5)")
    ours.eval()
    theirs.eval()
    assert_same(ours(gw.tensor(SEQUENCE))[0], theirs(torch.tensor(SEQUENCE))[0])
    ours.train()
    one, other = (ours(gw.tensor(SEQUENCE))[0].detach().numpy() for _ in range(2))
    assert (one != other).any()
    assert repr(ours) == repr(theirs)


CAUSAL = np.triu(np.full((5, 5), -np.inf), 1)
BLOCKED = np.triu(np.ones((5, 5), bool), 1)
PADDING = np.array([[False, False, False, False, True], [False, False, False, True, True]])
X, BX, MEMORY = draw(5, 2, 4), draw(2, 5, 4), draw(3, 2, 4)
TRANSFORMERS = {
    "attention": ("MultiheadAttention(4, 2)", (X, X.copy(), X.copy()), {}),
    "attention masked": ("MultiheadAttention(4, 2)", (X, X.copy(), X.copy()), {"attn_mask": BLOCKED}),
    "attention padded": (
        "MultiheadAttention(4, 2, batch_first=True, bias=False)",
        (BX, BX.copy(), BX.copy()),
        {"key_padding_mask": PADDING, "average_attn_weights": False},
    ),
    "attention of other sizes": ("MultiheadAttention(4, 1, kdim=3, vdim=5)", (X, draw(6, 2, 3), draw(6, 2, 5)), {}),
    "attention with more keys": (
        "MultiheadAttention(4, 2, add_bias_kv=True, add_zero_attn=True)",
        (X, X.copy(), X.copy()),
        {"need_weights": False},
    ),
    "attention of one sequence": ("MultiheadAttention(4, 2)", (draw(5, 4), draw(3, 4), draw(3, 4)), {}),
    "encoder layer": ("TransformerEncoderLayer(4, 2, 8, dropout=0.0)", (X,), {"src_mask": CAUSAL}),
    "encoder layer normalized first": (
        "TransformerEncoderLayer(4, 2, 8, dropout=0.0, activation='gelu', norm_first=True, batch_first=True)",
        (BX,),
        {"src_key_padding_mask": PADDING},
    ),
    "encoder layer without bias": ("TransformerEncoderLayer(4, 2, 8, dropout=0.0, bias=False)", (X,), {}),
    "decoder layer": ("TransformerDecoderLayer(4, 2, 8, dropout=0.0)", (X, MEMORY), {"tgt_mask": CAUSAL}),
    "decoder layer normalized first": (
        "TransformerDecoderLayer(4, 2, 8, 0.0, F.gelu, norm_first=True)",
        (X, MEMORY),
        {"tgt_mask": BLOCKED},
    ),
    "encoder": (
        "TransformerEncoder(TransformerEncoderLayer(4, 2, 8, 0.0), 2, LayerNorm(4), enable_nested_tensor=False)",
        (X,),
        {"mask": CAUSAL},
    ),
    "decoder": ("TransformerDecoder(TransformerDecoderLayer(4, 2, 8, 0.0), 2)", (X, MEMORY), {}),
    "transformer": ("Transformer(4, 2, 1, 2, 8, 0.0)", (MEMORY, X), {"tgt_mask": CAUSAL}),
    "transformer with the batch first": ("Transformer(4, 2, 1, 1, 8, 0.0, batch_first=True)", (BX, BX.copy()), {}),
}


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize(("text", "drawn", "options"), TRANSFORMERS.values(), ids=TRANSFORMERS.keys())
def test_attention_and_transformer_are_pytorchs(text, drawn, options):
    compare(text, *drawn, options=options)


def test_mask_of_what_comes_later_is_pytorchs():
    ours = nn.Transformer.generate_square_subsequent_mask(4)
    np.testing.assert_array_equal(ours.numpy(), torch.nn.Transformer.generate_square_subsequent_mask(4).numpy())


REFUSALS = [
    ("RNN(3, 4)(ones(2, 2, 5))", RuntimeError, "input.size\\(-1\\) must be equal to input_size. Expected 3, got 5"),
    ("GRU(3, 4)(ones(2))", ValueError, "Expected input to be 2D or 3D, got 1D"),
    ("LSTM(3, 4)(ones(5, 2, 3), (ones(1, 3, 4), ones(1, 2, 4)))", RuntimeError, "Expected hidden\\[0\\] size"),
    ("GRU(3, 4)(ones(5, 2, 3), ones(2, 2, 4))", RuntimeError, "Expected hidden size"),
    ("GRU(3, 4)(ones(5, 2, 3), ones(2, 4))", RuntimeError, "hx should also be 3-D"),
    ("LSTM(3, 0)", ValueError, "hidden_size must be greater than zero"),
    ("LSTM(3, 4, proj_size=4)", ValueError, "proj_size has to be smaller than hidden_size"),
    ("GRU(3, 4, proj_size=2)", ValueError, "proj_size argument is only supported for LSTM"),
    ("RNN(3, 4, nonlinearity='x')", ValueError, "Unknown nonlinearity 'x'"),
    ("GRU(3, 4, dropout=2.0)", ValueError, "dropout should be a number in range"),
    ("LSTM(3, 4, colour=1)", TypeError, "unexpected keyword argument 'colour'"),
    ("LSTMCell(3, 4)(ones(1, 1, 3))", ValueError, "Expected input to be 1D or 2D, got 3D"),
    ("MultiheadAttention(5, 2)", AssertionError, "embed_dim must be divisible by num_heads"),
    ("MultiheadAttention(0, 2)", ValueError, "embed_dim and num_heads must be greater than 0"),
    ("TransformerEncoderLayer(4, 2, activation='x')", RuntimeError, "activation should be relu/gelu, not x"),
    ("Transformer(4, 2, 1, 1, 8)(ones(2, 3, 4), ones(2, 2, 4))", RuntimeError, "batch number of src and tgt"),
    ("Transformer(4, 2, 1, 1, 8)(ones(2, 3, 5), ones(2, 3, 5))", RuntimeError, "feature number of src and tgt"),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("text", "error", "phrase"), REFUSALS)
def test_refusals_are_pytorchs(text, error, phrase):
    for library in (gw, torch):
        with pytest.raises(error, match=phrase):
            eval(text, {**vars(library.nn), "ones": library.ones})


def test_the_error_of_a_refused_input_names_the_path_of_the_layer():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.ModuleDict({"words": nn.GRU(3, 4)})

    model = Model()
    with pytest.raises(RuntimeError, match=r"Expected 3, got 5\n  in encoder.words \(GRU\)"):
        model.encoder["words"](gw.ones(2, 2, 5))


FIRST = ["LSTM(8, 30)", "GRU(8, 40, 2)", "RNNCell(20, 40)", "MultiheadAttention(30, 2)", "Transformer(16, 2, 1, 1, 64)"]


@pytest.mark.parametrize("text", FIRST)
@pytest.mark.filterwarnings("ignore")
def test_first_values_have_pytorchs_distribution(text):
    gw.manual_seed(1)
    torch.manual_seed(1)
    ours, theirs = (eval(text, dict(vars(library.nn))) for library in (gw, torch))
    for (name, p), (other, q) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        assert name == other
        a, b = p.detach().numpy().ravel(), q.detach().numpy().ravel()
        tolerance = 6 * b.std() / np.sqrt(len(b))
        assert abs(a.mean() - b.mean()) <= tolerance
        assert abs(a.std() - b.std()) <= tolerance
        assert abs(a).max() <= abs(b).max() * 1.3 + 1e-12


def test_orthogonal_rows_are_orthonormal():
    for shape in ((3, 5), (5, 3), (4, 2, 3)):
        made = nn.init.orthogonal_(gw.empty(*shape, dtype=gw.float64), gain=2.0).numpy().reshape(shape[0], -1)
        short = made @ made.T if made.shape[0] <= made.shape[1] else made.T @ made
        np.testing.assert_allclose(short, 4 * np.eye(len(short)), atol=1e-12)


@pytest.mark.parametrize(("shape", "groups"), [((4, 3, 3), 1), ((4, 2, 3, 2), 2), ((2, 2, 3, 3, 3), 1)])
def test_dirac_is_pytorchs(shape, groups):
    ours = nn.init.dirac_(gw.ones(*shape), groups).numpy()
    np.testing.assert_array_equal(ours, torch.nn.init.dirac_(torch.ones(*shape), groups).numpy())


def test_sparse_has_zeros_in_every_column():
    made = nn.init.sparse_(gw.empty(10, 50), 0.35, std=0.5).numpy()
    assert ((made == 0).sum(0) == 4).all()
    assert 0.4 < made[made != 0].std() < 0.6


def test_parameter_dict_is_pytorchs():
    results = []
    for library in (gw, torch):
        held = library.nn.ParameterDict({"a": library.nn.Parameter(library.zeros(2, 3))})
        held["b"] = library.ones(4)
        held.update({"c": library.nn.Parameter(library.zeros(1))})
        assert held.pop("a").shape == (2, 3)
        assert isinstance(held["b"], library.nn.Parameter)
        results.append((repr(held), list(held), len(held), "b" in held, list(held.state_dict())))
    assert results[0] == results[1]


def test_a_parameter_dict_has_pytorchs_order_of_names():
    results = []
    for library in (gw, torch):
        held, zeros = library.nn.ParameterDict, library.zeros
        made = held({"b": zeros(1), "a": zeros(2)})
        ordered = held(OrderedDict(d=zeros(1), c=zeros(1)))
        joined = ordered | {"f": zeros(1), "e": zeros(1)}
        ordered |= made
        plain = {"z": zeros(1)} | made
        orders = [list(each) for each in (made, made.copy(), ordered, joined, plain, reversed(ordered))]
        results.append([*orders, list(held([("b", zeros(1)), ("a", zeros(1))])), list(ordered.state_dict())])
    assert results[0] == results[1]


@pytest.mark.parametrize("given", [3, [("a",)], [3], {1: 2.0}, {"keys": 2.0}, {"a.b": 2.0}, {"": 2.0}])
def test_a_parameter_dict_refuses_what_pytorchs_refuses(given):
    told = []
    for library in (gw, torch):
        held = library.nn.ParameterDict({"a": library.zeros(1)})
        values = {key: library.full((1,), value) for key, value in given.items()} if isinstance(given, dict) else given
        with pytest.raises((TypeError, ValueError, KeyError)) as refused:
            held.update(values)
        told.append((refused.type, str(refused.value)))
        assert library is torch or list(held) == ["a"]  # PyTorch keeps the refused name
    assert told[0] == told[1]


def test_a_parameter_dict_holds_any_object_and_registers_tensors():
    def case(library):
        held = library.nn.ParameterDict({"a": library.nn.Parameter(library.ones(2)), "b": library.ones(2)})
        held["c"], held["d"], held["e"], held["f"] = 3, "text", [1], None
        told = [(type(held[key]).__name__, key in held) for key in held]
        told += [[name for name, _ in held.named_parameters()], sorted(held.state_dict()), repr(held), len(held)]
        held["c"] = library.zeros(3)
        del held["d"]
        held.update({"g": 1.5})
        told += [held.setdefault("h"), held.pop("e"), held.popitem(), held.get("z", 4), list(reversed(held))]
        copied = copy.deepcopy(held)
        held.clear()
        return told, list(held), [(key, type(value).__name__) for key, value in copied.items()]

    assert case(gw) == case(torch)


def test_a_parameter_dict_is_made_from_keys():
    for library in (gw, torch):
        made = library.nn.ParameterDict().fromkeys(["b", "a"], library.zeros(1))
        assert (list(made), [each.shape[0] for each in made.values()]) == (["b", "a"], [1, 1])


@pytest.mark.parametrize("kind", ["RNNCell", "GRUCell", "LSTMCell"])
def test_a_cell_says_which_sizes_it_takes(kind):
    for library in (gw, torch):
        cell = getattr(library.nn, kind)(4, 5)
        state = library.zeros(2, 3)
        with pytest.raises(RuntimeError, match="input has inconsistent input_size: got 3 expected 4"):
            cell(library.zeros(2, 3))
        with pytest.raises(RuntimeError, match="hidden0 has inconsistent hidden_size: got 3, expected 5"):
            cell(library.zeros(2, 4), (state, state) if kind == "LSTMCell" else state)
