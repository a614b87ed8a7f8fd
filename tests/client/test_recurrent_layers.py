"""Recurrent layers beside PyTorch with random options and sizes: values, derivatives, nodes, refusals, transforms."""

import gc
import threading
from typing import Any

import numpy as np
import pytest

import gradwire as gw

torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
pytestmark = pytest.mark.usefixtures("deferring")

KINDS = ("LSTM", "GRU", "RNN")


def pair(kind: str, *sizes: int, seed: int = 0, dtype: str = "float64", **options: Any) -> tuple[Any, Any]:
    """The same layer of both libraries, with the same weights."""
    torch.manual_seed(seed)
    theirs = getattr(torch.nn, kind)(*sizes, dtype=getattr(torch, dtype), **options)
    ours = getattr(gw.nn, kind)(*sizes, dtype=getattr(gw, dtype), **options)
    ours.load_state_dict({key: gw.tensor(value.numpy().copy()) for key, value in theirs.state_dict().items()})
    return ours, theirs


def drawn_options(rng: np.random.Generator, kind: str) -> dict[str, Any]:
    options: dict[str, Any] = {
        "num_layers": int(rng.integers(1, 4)), "bias": bool(rng.integers(2)), "bidirectional": bool(rng.integers(2))
    }  # fmt: skip
    if kind == "RNN":
        options["nonlinearity"] = str(rng.choice(["tanh", "relu"]))
    return options


def flat(result: Any) -> list[Any]:
    """Tensors of nested tuples and packed sequences."""
    if hasattr(result, "batch_sizes"):
        return [result.data]
    return [each for part in result for each in flat(part)] if isinstance(result, tuple) else [result]


def answers(library: Any, module: Any, values: dict[str, Any], lengths: list[int] | None, sort: bool) -> list[Any]:
    """Results, first derivatives by all leaves, and the derivatives of their squares."""
    leaves = {name: library.tensor(value, requires_grad=True) for name, value in values.items()}
    given = leaves["input"]
    if lengths is not None:
        pack = library.nn.utils.rnn.pack_padded_sequence
        given = pack(given, lengths, batch_first=module.batch_first, enforce_sorted=not sort)
    state = tuple(leaves[name] for name in ("h", "c") if name in leaves)
    found = flat(module(given, *([state if len(state) > 1 else state[0]] if state else [])))
    inputs = [*leaves.values(), *module.parameters()]
    loss = sum((each * each * each).sum() for each in found)
    first = library.autograd.grad(loss, inputs, create_graph=True)
    second = library.autograd.grad(sum((each * each).sum() for each in first), inputs)
    return [*found, *first, *second]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", KINDS)
def test_values_and_both_derivatives_are_pytorchs(kind: str, seed: int) -> None:
    rng = np.random.default_rng([KINDS.index(kind), seed])
    options = drawn_options(rng, kind)
    width, hidden, rows, length = (int(each) for each in rng.integers(1, 5, 4))
    if kind == "LSTM" and hidden > 1 and rng.integers(2):
        options["proj_size"] = hidden - 1
    options["batch_first"] = bool(rng.integers(2))
    ours, theirs = pair(kind, width, hidden, seed=seed, **options)
    lead = (rows, length) if options["batch_first"] else (length, rows)
    values = {"input": rng.standard_normal((*lead, width))}
    if rng.integers(2):
        count = options["num_layers"] * (2 if options["bidirectional"] else 1)
        values["h"] = rng.standard_normal((count, rows, options.get("proj_size") or hidden))
        if kind == "LSTM":
            values["c"] = rng.standard_normal((count, rows, hidden))
    lengths, sort = None, bool(rng.integers(2))
    if rng.integers(2):
        lengths = [length, *[int(each) for each in rng.integers(1, length + 1, rows - 1)]]
        lengths = lengths[::-1] if sort else sorted(lengths, reverse=True)
    mine = answers(gw, ours, values, lengths, sort)
    peer = answers(torch, theirs, values, lengths, sort)
    assert len(mine) == len(peer)
    for one, other in zip(mine, peer, strict=True):
        assert tuple(one.shape) == tuple(other.shape)
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_derivatives_are_the_differences_of_values(kind: str) -> None:
    layer, _ = pair(kind, 1, 2)
    x = gw.tensor(np.random.default_rng(1).standard_normal((2, 1, 1)), requires_grad=True)

    def outputs(x: Any, weight: Any) -> Any:
        return gw.func.functional_call(layer, {"weight_hh_l0": weight}, (x,))[0]

    assert gw.autograd.gradcheck(outputs, (x, layer.weight_hh_l0))
    assert gw.autograd.gradgradcheck(outputs, (x, layer.weight_hh_l0))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
def test_nodes_have_pytorchs_names(kind: str, dtype: str) -> None:
    for bidirectional in (False, True):
        layers = pair(kind, 3, 4, dtype=dtype, bidirectional=bidirectional) if dtype != "bfloat16" else (
            getattr(gw.nn, kind)(3, 4, bidirectional=bidirectional, dtype=gw.bfloat16),
            getattr(torch.nn, kind)(3, 4, bidirectional=bidirectional, dtype=torch.bfloat16),
        )  # fmt: skip
        found = []
        for library, layer in zip((gw, torch), layers, strict=True):
            x = library.zeros(5, 2, 3, dtype=getattr(library, dtype))
            with torch.backends.mkldnn.flags(enabled=dtype != "bfloat16"):  # whose use of oneDNN depends on the CPU
                names = [each.grad_fn.name() for each in flat(layer(x))]
            if dtype != "bfloat16":
                packed = library.nn.utils.rnn.pack_padded_sequence(x, [5, 3])
                names += [each.grad_fn.name() for each in flat(layer(packed))]
            found.append(names)
        assert found[0] == found[1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_weight_changed_before_backward_is_refused_as_by_pytorch(kind: str) -> None:
    for place in range(4):
        refused: list[str] = []
        for library, layer in zip((gw, torch), pair(kind, 3, 4), strict=True):
            x = library.ones(3, 2, 3, dtype=library.float64, requires_grad=True)
            loss = layer(x)[0].sum()
            with library.no_grad():
                list(layer.parameters())[place].mul_(2)
            try:
                loss.backward()
                x.grad.sum().item()
                refused.append("")
            except RuntimeError as error:
                refused.append("modified by an inplace operation" if "modified by" in str(error) else str(error))
        assert refused[0] == refused[1], place


def test_a_changed_output_is_refused() -> None:
    layer, _ = pair("GRU", 3, 4)
    output, _ = layer(gw.ones(3, 2, 3, dtype=gw.float64))
    loss = output.sum()
    with gw.no_grad():
        output.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_graph_is_kept_or_freed() -> None:
    layer, _ = pair("LSTM", 3, 4, 2)
    loss = layer(gw.ones(3, 2, 3, dtype=gw.float64))[0].sum()
    loss.backward(retain_graph=True)
    first = [each.grad.clone() for each in layer.parameters()]
    loss.backward()
    for weight, one in zip(layer.parameters(), first, strict=True):
        np.testing.assert_allclose(weight.grad.numpy(), 2 * one.numpy())
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_hooks_see_gradients_and_change_them() -> None:
    found = []
    for library, layer in zip((gw, torch), pair("LSTM", 3, 4, 2), strict=True):
        x = library.ones(3, 2, 3, dtype=library.float64, requires_grad=True)
        output, (h, c) = layer(x)
        seen: list[Any] = []
        output.register_hook(lambda grad, seen=seen: seen.append(grad) or grad * 3)
        layer.weight_hh_l0.register_hook(lambda grad: grad * 2)
        h.retain_grad()
        (output.sum() + (h * h).sum() + c.sum()).backward()
        found.append([seen[0], h.grad, x.grad, *[each.grad for each in layer.parameters()]])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-10)


def test_a_checkpoint_computes_a_layer_again() -> None:
    layer, _ = pair("LSTM", 3, 4)
    x = gw.randn(4, 2, 3, dtype=gw.float64, requires_grad=True)
    layer(x)[0].pow(2).sum().backward()
    expected = [x.grad.clone(), *[each.grad.clone() for each in layer.parameters()]]
    for leaf in (x, *layer.parameters()):
        leaf.grad = None
    output = gw.utils.checkpoint.checkpoint(lambda x: layer(x)[0], x, use_reentrant=False)
    output.pow(2).sum().backward()
    for leaf, one in zip((x, *layer.parameters()), expected, strict=True):
        np.testing.assert_allclose(leaf.grad.numpy(), one.numpy(), rtol=1e-12)


def test_saved_values_are_packed_by_hooks() -> None:
    layer, _ = pair("GRU", 3, 4)
    packed: list[Any] = []
    with gw.autograd.graph.saved_tensors_hooks(lambda x: packed.append(x) or len(packed) - 1, packed.__getitem__):
        loss = layer(gw.ones(3, 2, 3, dtype=gw.float64))[0].pow(2).sum()
    assert len(packed) > 3
    loss.backward()
    grads = [each.grad.clone() for each in layer.parameters()]
    layer.zero_grad()
    layer(gw.ones(3, 2, 3, dtype=gw.float64))[0].pow(2).sum().backward()
    for weight, one in zip(layer.parameters(), grads, strict=True):
        np.testing.assert_allclose(weight.grad.numpy(), one.numpy())


@pytest.mark.parametrize("kind", KINDS)
def test_without_gradients_values_are_the_same(kind: str) -> None:
    layer, _ = pair(kind, 3, 4, 2, bidirectional=True)
    x = gw.randn(4, 2, 3, dtype=gw.float64)
    expected = [each.detach().numpy() for each in flat(layer(x))]
    for mode in (gw.no_grad, gw.inference_mode):
        with mode():
            found = flat(layer(x))
        assert not any(each.requires_grad for each in found)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one.numpy(), other)


def training(kind: str) -> Any:
    """A function that trains a layer by one step and returns its loss."""
    layer, _ = pair(kind, 3, 4, 2, bidirectional=True)
    optimizer = gw.optim.Adam(layer.parameters(), lr=0.1)
    x = gw.tensor(np.random.default_rng(0).standard_normal((5, 2, 3)))

    def step() -> Any:
        optimizer.zero_grad()
        loss = layer(x)[0].pow(2).sum()
        loss.backward()
        optimizer.step()
        return loss

    return step


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", KINDS)
def test_compiled_training_is_that_of_eager_steps(kind: str) -> None:
    losses = [[step().item() for _ in range(8)] for step in (training(kind), gw.compile(training(kind)))]
    np.testing.assert_allclose(*losses, rtol=1e-10)
    assert losses[0][-1] < losses[0][0]


@pytest.mark.parametrize("kind", KINDS)
def test_vmap_has_gradients_per_sample_and_ensembles(kind: str) -> None:
    layer, _ = pair(kind, 3, 4, bidirectional=True)
    weights = {name: value.detach() for name, value in layer.named_parameters()}
    xs = gw.randn(3, 5, 2, 3, dtype=gw.float64)

    def loss(weights: Any, x: Any) -> Any:
        return gw.func.functional_call(layer, weights, (x,))[0].pow(2).sum()

    found = gw.vmap(gw.func.grad(loss), in_dims=(None, 0))(weights, xs)
    for place in range(3):
        alone = gw.func.grad(loss)(weights, xs[place])
        for name, value in alone.items():
            np.testing.assert_allclose(found[name][place].numpy(), value.numpy(), rtol=1e-9, atol=1e-12)
    layers = [pair(kind, 3, 4, bidirectional=True, seed=seed)[0] for seed in range(3)]
    stacked, _ = gw.func.stack_module_state(layers)
    for dims, given in ((None, xs[0]), (0, xs)):
        together = gw.vmap(loss, in_dims=(0, dims))(stacked, given)
        for place, one in enumerate(layers):
            x = xs[0] if dims is None else xs[place]
            np.testing.assert_allclose(together[place].item(), one(x)[0].pow(2).sum().item(), rtol=1e-10)


def test_transforms_of_a_layer_are_pytorchs() -> None:
    found = []
    for library, layer in zip((gw, torch), pair("LSTM", 2, 3), strict=True):
        x = library.tensor(np.random.default_rng(2).standard_normal((2, 1, 2)))

        def last(x: Any, layer: Any = layer) -> Any:
            return layer(x)[0][-1, 0]

        jacobian = library.func.jacrev(last)(x)
        hessian = library.autograd.functional.hessian(lambda x, last=last: last(x).pow(2).sum(), x)
        found.append([jacobian, hessian])
        tangent = library.ones(2, 1, 2, dtype=library.float64)
        if library is gw:
            found[-1].append(gw.func.jvp(last, (x,), (tangent,))[1])
        else:
            found[-1].append((jacobian * tangent).sum((1, 2, 3)))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=1e-9, atol=1e-12)


def test_a_long_sequence_is_cancelled_between_steps(deferring: gw.Session) -> None:
    layer = gw.nn.LSTM(256, 512)
    x = gw.zeros(2000, 32, 256)
    gw.sync()
    timer = threading.Timer(0.5, deferring.cancel)
    timer.start()
    with pytest.raises(gw.GradwireRuntimeError) as caught:
        layer(x)[0].sum().item()
    assert caught.value.reason == "CANCELLED"
    del x
    gc.collect()
    assert layer(gw.ones(2, 1, 256))[0].shape == (2, 1, 512)
