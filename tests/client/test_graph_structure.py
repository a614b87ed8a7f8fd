"""Derivatives that do not wait: their results are those of the server and PyTorch, whatever the graph looks like."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gradwire
from gradwire._proxy.graph_structure import structure_of
from gradwire._proxy.memo import STRUCTURAL_OPS, read_spec
from gradwire.v1 import commands_pb2, service_pb2

F = gradwire.nn.functional


@pytest.fixture(autouse=True)
def own_session(deferring: gradwire.Session) -> gradwire.Session:
    """A default session that no other test has closed."""
    return deferring


@pytest.fixture
def waits(own_session: gradwire.Session, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of commands that waited."""
    session = own_session
    found: list[str] = []
    plain = type(session).wait

    def wait(self: Any, command: Any, *rest: Any) -> Any:
        found.append(command.WhichOneof("command"))
        return plain(self, command, *rest)

    monkeypatch.setattr(type(session), "wait", wait)
    return found


def as_described(*tensors: Any) -> None:
    """The server describes the tensors as their proxies do."""
    for each in tensors:
        if each is not None:
            request = commands_pb2.DescribeRequest(tensors=[each._id])
            answer = each._session.wait(service_pb2.Command(describe=request)).describe.tensors[0]
            assert read_spec(answer) is each._spec


X = gradwire.tensor
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    **{
        name: (lambda x, y, name=name: getattr(gradwire, name)(x))
        for name in (
            "abs", "acos", "asin", "atan", "cos", "cosh", "erf", "exp", "expm1", "log", "log1p", "neg", "reciprocal",
            "relu", "rsqrt", "sigmoid", "sin", "sinh", "sqrt", "square", "tan", "tanh", "sum", "mean",
        )
    },
    **{
        name: (lambda x, y, name=name: getattr(F, name)(x))
        for name in ("elu", "leaky_relu", "logsigmoid", "silu", "softplus")
    },
    **{
        name: (lambda x, y, name=name: getattr(gradwire, name)(x, y))
        for name in ("add", "atan2", "bmm", "div", "hypot", "matmul", "mul", "sub")
    },
    "addmm": lambda x, y: gradwire.addmm(x[0], x[0], y[0]),
    "cat": lambda x, y: gradwire.cat([x, y, x], 1),
    "clamp": lambda x, y: x.clamp(-0.5, 0.5),
    "expand": lambda x, y: x[:, :1].expand(2, 3, 3) * y,
    "getitem": lambda x, y: x[:, 1:] * y[:, :2],
    "linear": lambda x, y: F.linear(x, y[0], y[1, 0]),
    "mm": lambda x, y: gradwire.mm(x[0], y[1]),
    "mse_loss": lambda x, y: F.mse_loss(x, y),
    "mv": lambda x, y: gradwire.mv(x[0], y[0, 0]),
    "narrow": lambda x, y: x.narrow(1, 0, 2) * y.narrow(1, 1, 2),
    "permute": lambda x, y: x.permute(2, 0, 1) * y.permute(2, 0, 1),
    "pow": lambda x, y: x**2.0 + x**3.0 + y.abs() ** x,
    "reshape": lambda x, y: x.reshape(6, 3) * y.reshape(6, 3),
    "select": lambda x, y: x.select(0, 1) * y.select(0, 0),
    "softmax": lambda x, y: F.softmax(x * y, -1),
    "squeeze": lambda x, y: x[:1].squeeze(0) * y[1],
    "stack": lambda x, y: gradwire.stack([x, y, x * y]),
    "transpose": lambda x, y: x.transpose(0, 2) * y.transpose(0, 2),
    "unsqueeze": lambda x, y: x.unsqueeze(1) * y,
    "view": lambda x, y: x.view(6, 3) * y.view(6, 3),
    "where": lambda x, y: gradwire.where(x > 0, x, y * x),
}  # fmt: skip


def test_every_structural_op_is_called() -> None:
    assert set(CALLS) == STRUCTURAL_OPS


@pytest.mark.parametrize("name", sorted(STRUCTURAL_OPS))
def test_derivatives_of_an_op_are_what_the_server_says(name: str, waits: list[str]) -> None:
    rng = np.random.default_rng(0)
    shape = (2, 3, 3)
    values = [rng.standard_normal(shape), rng.random(shape), np.zeros(shape), np.ones(shape), -np.ones(shape)]
    values += [rng.random(shape), rng.random(shape)]
    counts = []
    for given in values:
        x, y = X(given, requires_grad=True), X(np.roll(given, 1), requires_grad=True)
        del waits[:]
        out = gradwire.tanh(CALLS[name](x, y)) * 1.5
        slopes = gradwire.autograd.grad(out.sum(), [x, y], create_graph=True, allow_unused=True)
        bends: Any = ()
        if slopes[0].requires_grad:
            bends = gradwire.autograd.grad(slopes[0].sum(), [x, y], create_graph=True, allow_unused=True)
            if bends[0] is not None and bends[0].requires_grad:
                (bends[0] * bends[0]).sum().backward(inputs=[x])
        counts.append(len([each for each in waits if each in ("gradients", "backward")]))
        as_described(out, *slopes, *bends)
    assert counts[0] > 0
    assert counts[-1] == (3 if name == "add" else 0)  # both gradients of a sum are one tensor, which is not remembered


def drawn(lib: Any, seed: int, leaves: list[Any]) -> list[Any]:
    """A graph of a seed, made at the same lines as any other seed's."""
    rng = np.random.default_rng(seed)
    made = list(leaves)
    for _ in range(int(rng.integers(2, 7))):
        kind, one, other = (int(each) for each in rng.integers(1 << 16, size=3))
        x, y = made[one % len(made)], made[other % len(made)]
        if kind % 6 == 0:
            new = x * y
        elif kind % 6 == 1:
            new = lib.tanh(x)
        elif kind % 6 == 2:
            new = x + y * (2.0 if other % 2 else 0.5)
        elif kind % 6 == 3:
            new = lib.sin(x) - y
        elif kind % 6 == 4:
            new = x ** (2.0 if other % 2 else 1.0)
        else:
            new = (x @ y).transpose(0, 1)
        made.append(new)
    return made[len(leaves) :]


def steps(lib: Any, seed: int) -> list[Any]:
    """Gradients with graphs, a backward through them, and the leaves' gradients."""
    rng = np.random.default_rng(seed % 7)
    leaves = [lib.tensor(rng.standard_normal((3, 3)), requires_grad=place != seed % 5) for place in range(3)]
    made = drawn(lib, seed // 2, leaves)
    out = made[-1]
    if not out.requires_grad:
        return []
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    first = lib.autograd.grad(out.sum(), wanted, create_graph=True, allow_unused=True)
    live = [each for each in first if each is not None and each.requires_grad]
    second: tuple[Any, ...] = ()
    if live and seed % 3:
        total = sum([(each * made[0]).sum() for each in live[1:]], live[0].sum())
        second = lib.autograd.grad(total, wanted, create_graph=bool(seed % 2), retain_graph=True, allow_unused=True)
        live = [*live, *(each for each in second if each is not None and each.requires_grad)]
    loss = sum([lib.tanh(each).sum() for each in live], out.sum())
    if seed % 4:
        loss.backward(inputs=wanted[: 1 + seed % 2])
    else:
        loss.backward()
    return [out, *first, *second, *(leaf.grad for leaf in leaves)]


def test_random_graphs_at_the_same_lines_are_pytorchs(waits: list[str]) -> None:
    torch = pytest.importorskip("torch")
    gradients = 0
    seeds = np.random.default_rng(19).integers(0, 400, 400)
    for seed in map(int, seeds):  # many seeds come again
        made, wanted = steps(gradwire, seed), steps(torch, seed)
        assert len(made) == len(wanted)
        gradients += 2 * bool(made)  # at least
        as_described(*(each for each in made if each is not None))
        for one, other in zip(made, wanted, strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                assert one.requires_grad == other.requires_grad
                assert one.is_leaf == other.is_leaf
                assert type(one.grad_fn).__name__ == "NoneType" or one.grad_fn.name() == other.grad_fn.name()
                np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=1e-9, atol=1e-9)
    assert len([each for each in waits if each in ("gradients", "backward")]) < gradients


def physics(lib: Any, count: int) -> Iterator[float]:
    """Training steps of a loss made of derivatives."""
    rng = np.random.default_rng(3)
    net = lib.nn.Sequential(lib.nn.Linear(2, 8), lib.nn.Tanh(), lib.nn.Linear(8, 1)).double()
    with lib.no_grad():
        for parameter in net.parameters():
            parameter.copy_(lib.tensor(rng.standard_normal(tuple(parameter.shape))))
    optimizer = lib.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(count):
        xt = lib.tensor(rng.random((5, 2)), requires_grad=True)
        u = net(xt)
        (slope,) = lib.autograd.grad(u, xt, lib.ones_like(u), create_graph=True)
        (bend,) = lib.autograd.grad(slope[:, 0].sum(), xt, create_graph=True)
        optimizer.zero_grad()
        loss = (slope[:, 1] - bend[:, 0]).square().mean()
        loss.backward()
        optimizer.step()
        yield loss


def test_a_step_of_derivatives_waits_for_its_loss_alone(waits: list[str]) -> None:
    torch = pytest.importorskip("torch")
    for step, (loss, wanted) in enumerate(zip(physics(gradwire, 8), physics(torch, 8), strict=True)):
        if step >= 5:
            assert [each for each in waits if each in ("gradients", "backward")] == []
        np.testing.assert_allclose(loss.item(), wanted.item(), rtol=1e-9)
        del waits[:]


def test_a_freed_graph_is_refused_in_the_call() -> None:
    x = X([1.0, 2.0], requires_grad=True)
    for _ in range(5):
        (slope,) = gradwire.autograd.grad((x * x * x).sum(), x, create_graph=True)
        loss = (slope * slope).sum()
        for turn in range(2):
            if turn == 0:
                loss.backward()
            else:
                with pytest.raises(RuntimeError, match="second time"):
                    loss.backward()


def test_numbers_are_part_of_the_structure() -> None:
    x = X([0.5, 0.0], requires_grad=True)
    keys = []
    for exponent, _ in itertools.product((2.0, 3.0, 0.0, -0.0), range(3)):
        y = x**exponent
        found = structure_of(gradwire.current_session(), [y._edge])
        keys.append(None if found is None else (exponent, found.key))
        (slope,) = gradwire.autograd.grad(y.sum(), x, create_graph=True)
        as_described(slope)
        assert slope.tolist() == [exponent * 0.5 ** (exponent - 1) if exponent else 0.0, 0.0]
    known = [each for each in keys if each is not None]
    assert len({str(exponent) for exponent, _ in known}) == len({key for _, key in known})


def test_a_retained_gradient_and_a_hook_wait(waits: list[str]) -> None:
    x = X([1.0, 2.0], requires_grad=True)
    for turn in range(5):
        y = x * x
        if turn == 4:
            y.retain_grad()
        del waits[:]
        (slope,) = gradwire.autograd.grad(y.sum(), x, create_graph=True)
        slope.sum().backward()
        assert (turn < 3) or bool([each for each in waits if each == "gradients"]) == (turn == 4)
    seen: list[Any] = []
    handle = x.register_hook(seen.append)
    (slope,) = gradwire.autograd.grad((x * x).sum(), x, create_graph=True)
    assert len(seen) == 1
    handle.remove()
    assert slope.tolist() == [2.0, 4.0]


def test_a_powers_layout_does_not_depend_on_the_exponent() -> None:
    x = X(np.arange(6.0).reshape(2, 3)).transpose(0, 1)
    for exponent in (2.0, 1.0, 3.0, 0.5, -1.0, 0.0):
        y = x**exponent
        as_described(y)
        assert y.stride() == (1, 3)


@pytest.mark.parametrize("change", ["set", "cleared", "detached", "viewed"])
def test_a_changed_flag_counts_although_the_node_is_older(change: str) -> None:
    """A leaf that a node saved is asked for its flag when the derivative is computed."""
    torch = pytest.importorskip("torch")

    def step(lib: Any, late: bool) -> list[Any]:
        x = lib.tensor([1.0, 2.0], requires_grad=change in ("cleared", "detached"))
        w = lib.tensor([3.0, 4.0], requires_grad=True)
        y = (x.view(2) * w if change == "viewed" else x * w).sum()
        if late and change == "detached":
            x.detach_()
        elif late:
            x.requires_grad_(change != "cleared")
        del x
        (slope,) = lib.autograd.grad(y, w, create_graph=True)
        return [slope.requires_grad, slope.is_leaf, slope.tolist()]

    for turn in range(6):
        assert step(gradwire, turn > 3) == step(torch, turn > 3)
