"""Higher derivatives, retained gradients and batch norm in compiled functions run as plans, with right results."""

import contextlib
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gradwire
import gradwire.nn.functional as F
from gradwire import nn, optim


@pytest.fixture(scope="module")
def opened(server_address):
    session = gradwire.connect(server_address)
    yield session
    session.close()


def planned(compiled):
    """How often it ran as a plan; step by step it ran no more than to make its plans."""
    told = gradwire.explain(compiled).splitlines()[1:]
    assert told
    for line in told:
        assert "since" not in line, line
        assert "step by step" not in line or "1 time step by step, of which the plan was made" in line, line
    return sum(int(re.search(r"run (\d+) times? as a plan", line)[1]) for line in told)


def arrays(*tensors):
    return [each.detach().numpy() for each in tensors]


def alone_and_compiled(make, calls=6, tolerance=1e-6):
    """Run the function of `make` plain and compiled from the same seed, and compare all results and state."""
    seen = []
    for wrap in (lambda step: step, gradwire.compile):
        gradwire.manual_seed(11)
        step, state = make()
        compiled = wrap(step)
        seen.append([arrays(*compiled(), *state()) for _ in range(calls)])
    for one, other in zip(*seen, strict=True):
        for mine, its in zip(one, other, strict=True):
            np.testing.assert_allclose(mine, its, rtol=tolerance, atol=tolerance)
    assert compiled.given_up is None
    assert planned(compiled) >= calls - 4  # two are recorded at most, and two plans made


def wave_step(torch, weights, points):
    """A physics-informed step of u_tt = u_xx with PyTorch's names, whichever `torch` is."""
    layers = []
    for weight, bias in weights:
        layer = torch.nn.Linear(weight.shape[1], weight.shape[0], dtype=torch.float64)
        with torch.no_grad():
            layer.weight.copy_(torch.tensor(weight))
            layer.bias.copy_(torch.tensor(bias))
        layers += [layer, torch.nn.Tanh()]
    net = torch.nn.Sequential(*layers[:-1])
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    xt = torch.tensor(points, requires_grad=True)

    def step():
        u = net(xt)
        ones = torch.ones_like(u)
        (du,) = torch.autograd.grad(u, xt, ones, create_graph=True)
        (dux,) = torch.autograd.grad(du[:, 0:1], xt, ones, create_graph=True)
        (dut,) = torch.autograd.grad(du[:, 1:2], xt, ones, create_graph=True)
        loss = (dut[:, 1:2] - dux[:, 0:1]).square().mean() + (u - xt[:, 0:1].sin()).square().mean()
        optimizer.zero_grad()
        loss.backward(inputs=list(net.parameters()))
        optimizer.step()
        return loss

    return step, list(net.parameters())


def test_a_physics_informed_step_does_what_pytorchs_does(opened):
    theirs = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    rng = np.random.default_rng(0)
    sizes = ((2, 12), (12, 12), (12, 1))
    weights = [(rng.standard_normal((b, a)) * a**-0.5, rng.standard_normal(b) * 0.1) for a, b in sizes]
    points = rng.random((20, 2))
    expected, parameters = wave_step(theirs, weights, points)
    alone, mine = wave_step(gradwire, weights, points)
    step, compiled_parameters = wave_step(gradwire, weights, points)
    compiled = gradwire.compile(step)
    for _ in range(12):
        losses = [expected().item(), alone().item(), compiled().item()]
        np.testing.assert_allclose(losses, losses[0], rtol=1e-10, atol=1e-12)
    for one, other, third in zip(parameters, mine, compiled_parameters, strict=True):
        np.testing.assert_allclose(other.detach().numpy(), one.detach().numpy(), rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(third.detach().numpy(), one.detach().numpy(), rtol=1e-10, atol=1e-10)
    assert planned(compiled) >= 9


def test_points_that_are_drawn_in_each_step_are_differentiated_by():
    def make():
        net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
        optimizer = optim.SGD(net.parameters(), lr=0.05)

        def step():
            x = gradwire.rand(16, 2, requires_grad=True)
            (slope,) = gradwire.autograd.grad(net(x).sum(), x, create_graph=True)
            (bend,) = gradwire.autograd.grad(slope[:, 0].sum(), x, create_graph=True)
            loss = (bend[:, 0] - slope[:, 1]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss, slope.detach()

        return step, lambda: list(net.parameters())

    alone_and_compiled(make)


def critic(opened):
    net = nn.Sequential(nn.Linear(3, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    optimizer = optim.Adam(net.parameters())
    real = gradwire.randn(8, 3)

    def step():
        share = gradwire.rand(8, 1)
        mixed = (share * real + (1 - share) * gradwire.randn(8, 3)).requires_grad_(True)
        (slope,) = gradwire.autograd.grad(net(mixed).sum(), mixed, create_graph=True)
        loss = (slope.norm(2, dim=1) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return (loss,)

    return step, lambda: list(net.parameters())


def hessian_vector(opened):
    w, direction = gradwire.randn(4, 4, requires_grad=True), gradwire.randn(4, 4)

    def step():
        value = (w @ w).tanh().sum()
        (slope,) = gradwire.autograd.grad(value, w, create_graph=True)
        (bent,) = gradwire.autograd.grad((slope * direction).sum(), w)
        with gradwire.no_grad():
            w.sub_(0.1 * bent)
        return value.detach(), slope.detach(), bent

    return step, lambda: [w]


def given_gradients(opened):
    net = nn.Linear(3, 2)
    optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    x = gradwire.randn(5, 3)

    def step():
        loss = net(x).square().sum()
        for p, g in zip(net.parameters(), gradwire.autograd.grad(loss, list(net.parameters())), strict=True):
            p.grad = g / 2
        optimizer.step()
        return (loss,)

    return step, lambda: [*net.parameters(), *(p.grad for p in net.parameters())]


def retained(opened):
    w = gradwire.randn(3, 3, requires_grad=True)

    def step():
        h = (w @ w).tanh()
        h.retain_grad()
        first = h.square().sum()
        first.backward(retain_graph=True)
        second = h.sum()
        second.backward()
        with gradwire.no_grad():
            w.sub_(w.grad, alpha=0.01)
            w.grad = None
        return first, second, h.grad

    return step, lambda: [w]


def defaults(opened):
    counts = gradwire.arange(1, 5)
    w = gradwire.randn(4, dtype=gradwire.float64, requires_grad=True)

    def step():
        value = (w * counts.sqrt() + counts / 3).sum()
        value.backward()
        with gradwire.no_grad():
            w.sub_(w.grad, alpha=0.1)
            w.grad = None
        return value, counts / 3, counts.sqrt()

    return step, lambda: [w]


@pytest.mark.parametrize("make", [critic, hessian_vector, given_gradients, retained])
def test_gradients_in_the_middle_are_planned(opened, make):
    alone_and_compiled(lambda: make(opened), tolerance=1e-5)


def test_a_plan_keeps_the_default_dtype(opened):
    gradwire.set_default_dtype(gradwire.float64)
    try:
        alone_and_compiled(lambda: defaults(opened), tolerance=1e-13)
    finally:
        gradwire.set_default_dtype(gradwire.float32)


def test_each_default_dtype_has_recordings_of_its_own(opened):
    counts = gradwire.arange(1, 5)
    compiled = gradwire.compile(lambda: (counts / 3, gradwire.ones(2) * 0.1))
    try:
        for dtype in [*[gradwire.float32] * 3, *[gradwire.float64] * 3, gradwire.float32]:
            gradwire.set_default_dtype(dtype)
            for found, expected in zip(compiled(), (counts / 3, gradwire.ones(2) * 0.1), strict=True):
                assert found.dtype is dtype
                np.testing.assert_array_equal(found.numpy(), expected.numpy())
    finally:
        gradwire.set_default_dtype(gradwire.float32)
    assert planned(compiled) >= 3


@pytest.mark.parametrize(
    "step",
    [
        lambda x: gradwire.autograd.grad(y := (x * 1.5).tanh(), x, y.detach().t())[0],
        lambda x: gradwire.autograd.grad((h := x * 1.5).square(), h, h.detach().t())[0],
        lambda x: gradwire.add((h := x.detach() * 1.5).t(), h, alpha=0.5),
        lambda x: gradwire.sub((h := x.detach() * 1.5).t(), h, alpha=0.5),
    ],
    ids=["tanh", "square", "add", "sub"],
)
def test_operands_that_show_the_same_memory_transposed_are_not_written_to(opened, step):
    x = gradwire.randn(8, 8, requires_grad=True)
    compiled = gradwire.compile(step)
    for _ in range(4):
        np.testing.assert_array_equal(compiled(x).numpy(), step(x).numpy())
    assert planned(compiled) >= 2


@pytest.mark.parametrize("clears", ["before", "after", "never"])
def test_a_plan_that_fails_leaves_the_gradients_that_the_steps_before_left(opened, clears):
    def run(wrap):
        w, table = gradwire.ones(3, requires_grad=True), gradwire.randn(4, 3)

        def step(rows):
            if clears == "before":
                w.grad = None
            (w * w).sum().backward()
            if clears == "after":
                w.grad = None
            return F.embedding(rows, table) * 1

        step, seen = wrap(step), []
        for rows in ([0, 1], [1, 2], [2, 3], [0, 9], [1, 1], [9, 0]):
            with gradwire.no_grad():
                w.add_(1)
            with contextlib.suppress(IndexError):
                step(gradwire.tensor(rows))
                gradwire.sync()
            seen.append(None if w.grad is None else w.grad.tolist())
        return seen, step

    (alone, _), (found, compiled) = run(lambda step: step), run(gradwire.compile)
    assert found == alone
    assert planned(compiled) >= 2


NORMED = {
    "rows": (lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)), (7, 4)),
    "images": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5), nn.BatchNorm1d(5)
        ),
        (6, 1, 6, 6),
    ),
    "instances": (
        lambda: nn.Sequential(
            nn.Conv1d(2, 3, 3), nn.InstanceNorm1d(3, affine=True, track_running_stats=True), nn.Flatten()
        ),
        (5, 2, 6),
    ),
}


@pytest.mark.parametrize("kind", NORMED)
def test_batch_norm_trains_for_twenty_steps_as_it_does_alone(opened, kind):
    build, shape = NORMED[kind]

    def make():
        net = build()
        optimizer = optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        x, target = gradwire.randn(*shape), gradwire.randint(0, 3, shape[:1])

        def step():
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), target)
            loss.backward()
            optimizer.step()
            return (loss,)

        return step, lambda: [*net.parameters(), *net.buffers()]

    alone_and_compiled(make, calls=20, tolerance=1e-4)


def test_explain_says_why_a_function_is_run_step_by_step(opened):
    x = gradwire.randn(3, requires_grad=True)
    alive = gradwire.compile(lambda: (x * x).sum())
    for _ in range(3):
        alive()
    told = gradwire.explain(alive)
    assert "2 times step by step, since an output has a graph that backward has not passed." in told
    assert str(gradwire.explain(gradwire.compile(lambda: x * 2))).endswith("0 recordings of 8 that it may have.")


# Programs of all kinds.

UNARY = ("sin", "tanh", "sigmoid", "exp", "square", "relu")
KINDS = ("unary", "mul", "matmul", "slice", "grad", "create", "norm", "retain", "inner", "update")


def interpret(instructions, leaves, running):
    """Do the instructions; answers all results, out of their graphs."""
    held = list(leaves)
    for kind, which, left, right in instructions:
        a, b = held[left % len(held)], held[right % len(held)]
        leaf = leaves[which % len(leaves)]
        if kind == "unary":
            held.append(getattr(gradwire, UNARY[which % len(UNARY)])(a.clamp(-2, 2)))
        elif kind == "mul":
            held.append(a * b)
        elif kind == "matmul":
            held.append((a @ b).clamp(-4, 4))
        elif kind == "slice":
            held.append(gradwire.cat([a[:, 1:], b[:, :1]], 1))
        elif kind == "grad":
            held.append(gradwire.autograd.grad((a * leaf).sum(), leaf, retain_graph=True)[0].clamp(-4, 4))
        elif kind == "create":
            (slope,) = gradwire.autograd.grad((a * b + leaf).sin().sum(), leaf, create_graph=True)
            held.append(slope.clamp(-4, 4))
        elif kind == "norm":
            held.append(F.batch_norm(a + leaf, *running, training=True))
        elif kind == "retain":
            h = a * leaf
            h.retain_grad()
            h.tanh().sum().backward(retain_graph=True)
            held.append(h.grad)
        elif kind == "inner":
            inner = b.detach().requires_grad_(True)
            (slope,) = gradwire.autograd.grad((inner * a).exp().clamp(0, 9).sum(), inner, create_graph=True)
            held.append(slope.clamp(-4, 4))
        else:
            (a * a).sum().backward(retain_graph=True) if a.requires_grad else None
            with gradwire.no_grad():
                for one in leaves:
                    if one.grad is not None:
                        one -= 0.01 * one.grad.clamp(-1, 1)
                        one.grad = None
    loss = sum((each * each).sum() for each in held) + sum(leaf.sum() for leaf in leaves)
    loss.backward()
    return [loss, *(each.detach() + 0.0 for each in held)]


@given(
    instructions=st.lists(
        st.tuples(st.sampled_from(KINDS), st.integers(0, 99), st.integers(0, 99), st.integers(0, 99)), max_size=8
    )
)
@settings(max_examples=15, deadline=None)
def test_random_programs_are_planned_and_answer_as_they_do_alone(opened, instructions):
    def run(wrap):
        gradwire.manual_seed(5)
        leaves = [gradwire.randn(3, 3, dtype=gradwire.float64, requires_grad=True) for _ in range(2)]
        running = [gradwire.zeros(3, dtype=gradwire.float64), gradwire.ones(3, dtype=gradwire.float64)]

        def step():
            answer = interpret(instructions, leaves, running)
            with gradwire.no_grad():
                for leaf in leaves:
                    leaf.grad = None
            return answer

        step = wrap(step)
        seen = []
        try:
            seen.extend(arrays(*step(), *leaves, *running) for _ in range(4))
        except RuntimeError as error:  # a version conflict, both ways alike
            seen.append(type(error))
        return seen, step

    (alone, _), (replayed, compiled) = run(lambda step: step), run(gradwire.compile)
    assert len(alone) == len(replayed)
    for one, other in zip(alone, replayed, strict=True):
        if isinstance(one, type):
            assert one is other
            continue
        for mine, its in zip(one, other, strict=True):
            np.testing.assert_allclose(its, mine, rtol=1e-9, atol=1e-9)
    if not any(isinstance(one, type) for one in alone):
        assert planned(compiled) >= 1


@pytest.mark.parametrize("view", ["view", "t", "chain"])
def test_a_view_of_a_gradient_outlives_the_gradient(opened, view):
    rng = np.random.default_rng(0)
    values, inputs = (rng.standard_normal((64, 64)).astype(np.float32) for _ in range(2))

    def make():
        with opened:
            w, x = gradwire.tensor(values, requires_grad=True), gradwire.tensor(inputs)

        def step():
            w.grad = None
            (x @ w).tanh().square().sum().backward()
            shown = w.grad.t() if view == "t" else w.grad.view(-1)
            shown = shown.view(8, -1).narrow(0, 2, 4) if view == "chain" else shown
            w.grad = None
            other = (x @ x).tanh().square()  # the plan may use memory again that nothing reads later
            return (shown * shown).sum(), other.sum()

        return step, list

    alone_and_compiled(make, calls=8, tolerance=1e-5)


def test_inputs_that_share_memory_are_seen_by_their_plan(opened):
    def make():
        with opened:
            whole = gradwire.zeros(64)
            parts = [whole[place : place + 8] for place in range(0, 60, 4)]
            rows = [gradwire.ones(8) * place for place in range(40)]

        def step():
            total = rows[0] * 0
            for part in parts:
                part.add_(1.0)
                total = total + whole[:8] + part
            for row in rows:
                row.mul_(1.01)
                total = total + row
            return total * 1

        return step, lambda: [whole, *rows]

    alone_and_compiled(make, calls=6)
