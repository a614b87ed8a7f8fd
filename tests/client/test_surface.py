"""Names: every name of gradwire exists in PyTorch, and call forms that differ from an op's signature work."""

import importlib
import pickle

import pytest

import gradwire
from gradwire._base import absent
from gradwire._base.absent import PYTORCH, suggested
from gradwire._tensor.ops import TORCH_NAMES, TensorMethods
from gradwire.nn import functional
from tests.client.oracle import agree, refuse

torch = pytest.importorskip("torch", reason="PyTorch is what is compared with")


def _public(module):
    return {name for name in dir(module) if not name.startswith("_")}


def test_functions_are_those_of_pytorch():
    homes = ("_functions.functions", "nn.functional", "_functions.create", "_functions.random")
    ours = {name for name, home in gradwire._HOMES.items() if home in homes} | TORCH_NAMES
    assert ours - _public(torch) == set()


def test_methods_are_those_of_pytorch():
    assert _public(TensorMethods) - _public(torch.Tensor) == set()


def test_every_promised_name_can_be_reached():
    assert all(callable(getattr(functional, name)) for name in functional.__all__)
    missing = [name for name in dir(gradwire) if not name.startswith("__") and not hasattr(gradwire, name)]
    assert missing == []


def test_what_pytorch_has_and_gradwire_has_not_is_said_so():
    for home, names in PYTORCH.items():
        ours, theirs = _homes(home)
        missing = [name for name in names.split() if not hasattr(theirs, name)]
        here = [name for name in names.split() if hasattr(ours, name)]
        assert (missing, here) == ([], []), home


def _homes(home):
    if home == "Tensor":
        return gradwire.Tensor, torch.Tensor
    path = home.split(".")[1:]
    ours, theirs = importlib.import_module(home), torch
    for part in path:
        theirs = getattr(theirs, part)
    return ours, theirs


@pytest.mark.usefixtures("session")
def test_a_name_that_is_not_here_names_the_nearest():
    with pytest.raises(NotImplementedError, match=r"PyTorch's op .* not supported here$") as refused:
        gradwire.embedding_renorm_  # noqa: B018
    assert isinstance(refused.value, AttributeError)
    with pytest.raises(AttributeError, match=r"no attribute 'sigmoidd'. Did you mean: .*sigmoid"):
        gradwire.sigmoidd  # noqa: B018
    with pytest.raises(AttributeError, match=r"'Tensor' object has no attribute 'cumsumm'. Did you mean: .*cumsum"):
        gradwire.ones(2).cumsumm  # noqa: B018
    for wrong in ("data_pt", "cond_", "to_sparse_x"):  # what is like them is another function
        with pytest.raises(AttributeError) as refused:
            getattr(gradwire.ones(2), wrong)
        assert "atan_" not in str(refused.value) and "conj" not in str(refused.value)
    assert not hasattr(gradwire.ones(2), "reinforce") and not hasattr(gradwire, "lstsq")


def test_a_question_for_a_missing_name_looks_for_no_similar_ones(session, monkeypatch):
    def searched(name, known):
        raise AssertionError(name)

    monkeypatch.setattr(absent, "suggested", searched)
    assert not hasattr(gradwire.ones(1), "cumsumm")
    assert not hasattr(gradwire, "sigmoidd")
    assert getattr(gradwire.nn.functional, "conv22d", None) is None


@pytest.mark.usefixtures("session")
def test_an_error_for_a_missing_name_has_its_sentence_as_argument():
    for ask in (lambda: gradwire.sigmoidd, lambda: gradwire.ones(1).cumsumm):
        with pytest.raises(AttributeError) as found:
            ask()
        assert found.value.args == (str(found.value),)
        assert found.value.args[0]
        assert pickle.loads(pickle.dumps(found.value)).args == found.value.args


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize(
    "case",
    [
        lambda t, x: t.einsum("ij,kj->ik", x, x),
        lambda t, x: t.einsum("ij,kj->ik", [x, x]),
        lambda t, x: t.tensordot(x, x, dims=([0, 1], [0, 1])),
        lambda t, x: t.tensordot(x, x, dims=([], [])),
        lambda t, x: t.linalg.svd(x, full_matrices=False).S,
        lambda t, x: t.linalg.slogdet(x[:, :2] + t.eye(2)).logabsdet,
        lambda t, x: t.linalg.lstsq(x.T, t.ones(3, 1)).solution,
        lambda t, x: t.meshgrid(x[0], x[1], indexing="xy"),
        lambda t, x: t.meshgrid([x[0], x[1]], indexing="ij"),
        lambda t, x: t.broadcast_tensors(x, x[:1]),
        lambda t, x: t.block_diag(x, x[0], x[0, 0]),
        lambda t, x: t.cartesian_prod(x[0], x[1]),
        lambda t, x: t.atleast_2d(x[0], x[0, 0]),
        lambda t, x: t.atleast_3d(x),
        lambda t, x: t.tensor_split(x, t.tensor([1, 2]), dim=1),
        lambda t, x: x.tensor_split(2, dim=1),
        lambda t, x: x.hsplit([1]),
        lambda t, x: x.clip(0.2, 0.5),
        lambda t, x: t.clip(x, max=0.5),
        lambda t, x: t.multiply(x, 2) + t.absolute(x),
        lambda t, x: t.sin_(x.clone()),
        lambda t, x: t.nn.functional.selu_(x.clone()),
        lambda t, x: t.nn.functional.hardtanh(x.clone(), -0.1, 0.2, inplace=True),
        lambda t, x: x.clone().unsqueeze_(0).transpose_(0, 1).squeeze_(1).t_(),
        lambda t, x: x.clone().unsqueeze_(0).mul_(3),
        lambda t, x: (x * 2).t_().mul_(x.t()).sin(),
        lambda t, x: (x * 2)[0].unsqueeze_(1).mul_(3),
        lambda t, x: (x + 1).as_strided_((2, 2), (1, 2)) * 2,
        lambda t, x: (x + 1).polygamma(1) + (x + 1).clone().polygamma_(2),
        lambda t, x: t.special.multigammaln(x + 3, 2),
        lambda t, x: x.new([1, 2]) + x.new(2).shape[0],
        lambda t, x: x.detach().view(t.int32),
        lambda t, x: (
            x.detach().view(t.complex128 if x.dtype == t.float64 else t.complex64)
            if x.shape[1] % 2 == 0
            else x.view(-1)
        ),
        lambda t, x: t.nn.functional.multi_head_attention_forward(
            x, x, x, 3, 1, t.ones(9, 3), None, None, None, False, 0.0, t.eye(3), None, need_weights=False
        )[0],
        lambda t, x: t.nn.functional.triplet_margin_with_distance_loss(
            x, x + 1, x - 1, distance_function=lambda a, b: (a - b).abs().sum(-1), swap=True
        ),
    ],
)
def test_forms_of_call_agree_with_pytorch(case):
    def told(t):
        x = t.tensor([[0.5, -0.25, 0.75], [0.3, 0.2, -0.1]], requires_grad=True)
        made = case(t, x)
        parts = list(made) if isinstance(made, (tuple, list)) else [made]
        floats = [part for part in parts if part.requires_grad]
        gradient = t.autograd.grad(sum(part.sum() for part in floats), x)[0] if floats else x.detach()
        return *[part.detach() for part in parts], gradient, *[part.grad_fn is None for part in parts]

    agree(told)


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda t: t.stack([]), RuntimeError),
        (lambda t: t.add(t.ones(2, dtype=t.uint8), t.ones(2, dtype=t.uint8), alpha=300), RuntimeError),
        (lambda t: t.nn.functional.hardtanh(t.ones(2, dtype=t.uint8)), RuntimeError),
        (lambda t: t.nn.functional.relu6(t.ones(2, dtype=t.bool)), RuntimeError),
        (lambda t: t.erf(t.ones(2, dtype=t.complex64)), NotImplementedError),
        (lambda t: t.frac(t.ones(2, dtype=t.int64)), NotImplementedError),
        (lambda t: t.isin(t.ones(2, dtype=t.bool), t.ones(2, dtype=t.bool)), RuntimeError),
        (lambda t: t.logaddexp(t.ones(2, dtype=t.int64), t.ones(2, dtype=t.int64)), NotImplementedError),
        (lambda t: t.hypot(t.ones(2, dtype=t.int64), t.ones(3, dtype=t.int64)), RuntimeError),
        (lambda t: t.lerp(t.ones(2), t.ones(2, dtype=t.float64), 0.5), RuntimeError),
        (lambda t: t.linalg.vector_norm(t.ones(0), -1), RuntimeError),
        (lambda t: t.kthvalue(t.ones(0), 1), IndexError),
        (lambda t: t.cat([]), ValueError),
        (lambda t: t.hstack([]), RuntimeError),
        (lambda t: t.cat([t.ones(1), 2]), TypeError),
        (lambda t: t.linalg.multi_dot([]), RuntimeError),
        (lambda t: t.einsum("ij"), ValueError),
        (lambda t: t.float_power(True, 64), TypeError),
        (lambda t: t.full((2,), 300, dtype=t.int8), RuntimeError),
        (lambda t: t.arange(0, 3, 1j), RuntimeError),
        (lambda t: t.ones(2).norm(1j), RuntimeError),
        (lambda t: t.tensordot(t.ones(2, 3), t.ones(3, 2), dims=([1], [0, 1])), RuntimeError),
        (lambda t: t.tensordot(t.ones(2, 3), t.ones(3, 2), 3), RuntimeError),
        (lambda t: t.polar(t.ones(2, dtype=t.int64), t.ones(2)), RuntimeError),
    ],
)
def test_bad_calls_are_refused_with_pytorchs_exception(call, error):
    for module in (torch, gradwire):
        with pytest.raises(error):
            call(module)


@pytest.mark.usefixtures("session")
def test_default_dtype_is_what_whole_numbers_become_beside_floats():
    def case(t):
        t.set_default_dtype(t.float64)
        try:
            whole = t.tensor([1, 2])
            wide = [whole * 1.5, whole / 2, whole.sqrt(), whole * 1j, t.fft.fft(whole), t.arange(0, 1, 0.5), whole + 1]
        finally:
            t.set_default_dtype(t.float32)
        return *wide, *[t.tensor([1, 2]) * 1.5 for _ in range(2)]

    agree(case)


@pytest.mark.usefixtures("session")
def test_reshaping_a_leaf_in_place_is_refused():
    def case(t):
        x = t.zeros(3, requires_grad=True)
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            x.unsqueeze_(0)
        with t.no_grad():
            x.unsqueeze_(0)
        return (x.detach(),)

    agree(case)


def test_a_factory_writes_to_an_out_tensor_of_its_dtype(deferring):
    agree(lambda t: [t.ones(2, out=t.zeros(2, dtype=t.int32)), t.eye(2, out=t.empty(0))])
    refuse(lambda t: t.ones(2, dtype=t.int64, out=t.ones(2)), RuntimeError, "does not match dtype of out parameter")


def test_a_slip_of_the_finger_is_told_and_nothing_else():
    names = [name for name in dir(gradwire.Tensor) if not name.startswith("_") and len(name) > 4]
    for name in names:
        assert name in suggested(name + name[-1], names), name
        swapped = name[:2] + name[3] + name[2] + name[4:]
        assert swapped in names or name in suggested(swapped, names), name
    for wrong in ("cond", "bit", "ipu", "to_mkldnn", "hash_tensor", "frobnicate", "x", "data"):
        assert suggested(wrong, ["conj", "jit", "cpu", "is_mkldnn", "as_tensor", "atan_", "y", "dim", "dist"]) == []
