"""Graph breaks: a compiled function that reads values runs in parts, each a program, with the uncompiled results."""

import copy
import pickle
import random
import warnings

import numpy as np
import pytest

import gradwire

pytestmark = pytest.mark.filterwarnings("ignore:compile")


def segments_of(compiled, deferring):
    return compiled._segmented._segments[deferring]


def programs_of(compiled, deferring):
    return [each for seen in segments_of(compiled, deferring)._seen.values() for each in seen.programs]


def train_and_log(library, log):
    """A training step that logs its loss, as people write it."""
    library.manual_seed(2)
    layers = library.nn.Sequential(library.nn.Linear(6, 8), library.nn.Tanh(), library.nn.Linear(8, 1))
    with library.no_grad():
        for number, parameter in enumerate(layers.parameters()):
            parameter.copy_(library.arange(float(parameter.numel())).reshape(parameter.shape).sin() / (1 + number))
    optimizer = library.optim.Adam(layers.parameters(), lr=0.05)

    def step(x, y):
        optimizer.zero_grad()
        loss = ((layers(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        log.append(loss.item())
        return log[-1] * 2

    return step, layers


def test_a_training_step_that_logs_its_loss_is_one_program(deferring):
    torch = pytest.importorskip("torch")
    logs, answers, parameters = ([], []), [], []
    for library, log in zip((torch, gradwire), logs, strict=True):
        step, layers = train_and_log(library, log)
        step = gradwire.compile(step) if library is gradwire else step
        x = library.linspace(-1, 1, 30).reshape(5, 6)
        answers.append([step(x, x[:, :1] ** 2) for _ in range(40)])
        parameters.append([each.detach().numpy() for each in layers.parameters()])
    np.testing.assert_allclose(logs[1], logs[0], rtol=1e-4)
    np.testing.assert_allclose(answers[1], answers[0], rtol=1e-4)
    for ours, theirs in zip(*reversed(parameters), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    (used,) = [each for each in programs_of(step, deferring) if each.runs > 10]
    assert used.count > 30
    assert "as a plan" in "".join(step.describe())


def branching(x, w, call):
    y = (x * w + call / 4).sin()
    if y.sum() > 0:
        z = (y * y).exp()
    else:
        z = y.cos() - w
    loss = z.mean() * float(z.detach().max())
    loss.backward()
    return loss.item()


def test_a_branch_on_a_value_leads_to_the_next_part(deferring):
    torch = pytest.importorskip("torch")
    found = []
    for library in (torch, gradwire):
        x = library.arange(12.0).reshape(4, 3).cos()
        w = library.tensor([0.3, -0.7, 1.1], requires_grad=True)
        step = gradwire.compile(branching) if library is gradwire else branching
        found.append([[step(x, w, call), w.grad.tolist()] for call in range(40)])
    for ours, theirs in zip(found[1], found[0], strict=True):
        assert ours[0] == pytest.approx(theirs[0], rel=1e-4)
        assert ours[1] == pytest.approx(theirs[1], rel=1e-4)
    assert len([each for each in programs_of(step, deferring) if each.runs]) >= 3


def random_program(seed):
    """A function of two leaves and a number, with reads, branches and in-place changes at random places."""
    chosen = random.Random(seed)
    unary = ["sin", "cos", "tanh", "sigmoid", "exp", "abs"]
    lines = []
    for number in range(chosen.randint(6, 14)):
        kind = chosen.choice(["unary", "binary", "read", "branch", "in place", "scale"])
        one, two = (f"v{chosen.randint(0, number + 1)}" for _ in range(2))
        name = f"v{number + 2}"
        if kind == "unary":
            lines.append(f"{name} = {one}.{chosen.choice(unary)}()")
        elif kind == "binary":
            lines.append(f"{name} = {one} {chosen.choice('+-*')} {two}")
        elif kind == "read":
            lines.append(f"{name} = {one} * ({two}.sum().item() / 16)")
        elif kind == "branch":
            lines.append(f"{name} = ({one}.sin() if {two}.mean() > 0.1 else {one} - {two})")
        elif kind == "in place":
            lines.append(f"{name} = {one} * 0.5; {name}.add_({two}, alpha=0.25)")
        else:
            lines.append(f"{name} = {one} * (0.1 + call / 50)")
    last = len(lines) + 1
    body = "\n    ".join([*lines, f"loss = (v{last}.tanh() + v0 * v1).mean()", "loss.backward()", "return loss.item()"])
    names = {}
    exec(f"def program(v0, v1, call):\n    {body}\n", names)
    return names["program"]


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_with_reads_are_pytorchs(deferring, seed):
    torch = pytest.importorskip("torch")
    values = np.random.default_rng(seed).normal(size=(2, 3, 2))
    answers, gradients = [], []
    for library in (torch, gradwire):
        leaves = [library.tensor(each, requires_grad=True) for each in values]
        program = random_program(seed)
        program = gradwire.compile(program) if library is gradwire else program
        answers.append([program(*leaves, call % 5) for call in range(30)])
        gradients.append([each.grad.numpy() for each in leaves])
    np.testing.assert_allclose(answers[1], answers[0], rtol=1e-9)
    np.testing.assert_allclose(gradients[1], gradients[0], rtol=1e-9)
    assert any(each.runs for each in programs_of(program, deferring))


def test_a_part_keeps_what_is_still_used(deferring):
    kept = []

    @gradwire.compile
    def step(x, keep):
        y = x * 2
        z = y + 1
        if keep:
            kept.append(y)
        return z.sum().item()

    x = gradwire.ones(3)
    for call in range(30):
        assert step(x, call % 3 == 0) == 9
    assert [each.tolist() for each in kept] == [[2.0] * 3] * 10


def test_a_part_tells_one_tensor_given_twice_from_two(deferring):
    @gradwire.compile
    def step(a, b):
        a.mul_(2)
        b.add_(1)
        return (a + b).sum().item()

    for call in range(24):
        a, b = gradwire.ones(2), gradwire.ones(2)
        assert step(a, b) == 8
        if call % 2:
            assert step(a, a) == 20
    assert any(each.runs for each in programs_of(step, deferring))


def test_an_error_in_a_part_names_the_line_and_later_calls_are_right(deferring):
    table = gradwire.arange(4.0)

    @gradwire.compile
    def step(at):
        scaled = table * 2
        row = scaled[at]  # here
        return (row + 1).sum().item()

    for _ in range(16):
        assert step(gradwire.tensor([1, 3])) == 10
    with pytest.raises(IndexError, match="here"):
        step(gradwire.tensor([1, 9]))
    for _ in range(16):
        assert step(gradwire.tensor([1, 2])) == 8


def test_a_program_that_the_server_dropped_is_registered_again(deferring):
    @gradwire.compile
    def step(x):
        return (x * 2 + 1).sum().item()

    x = gradwire.ones(2)
    for _ in range(12):
        assert step(x) == 6
    (program,) = [each for each in programs_of(step, deferring) if each.runs]
    before = program.runs
    deferring.programs.clear()
    for _ in range(6):
        assert step(x) == 6
    assert program.hash in deferring.programs and program.runs >= before + 4


def test_parts_leave_no_tensors_behind(deferring):
    @gradwire.compile
    def step(x):
        y = (x * 2).exp()
        if y.sum() > 100:
            return None
        return (y / 3).log().sum().item()

    x = gradwire.zeros(3)
    for _ in range(12):
        step(x)
    held = deferring.describe().tensors
    for _ in range(20):
        step(x)
    assert deferring.describe().tensors == held


def test_a_break_warns_once_and_names_its_line(deferring):
    @gradwire.compile
    def step(x):
        if x.sum() > 0:
            return x * 2
        return x

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(12):
            step(gradwire.ones(2))
    (warning,) = caught
    assert "graph break" in str(warning.message)
    assert str(warning.message).splitlines()[-1].strip() == "if x.sum() > 0:"


def test_a_long_part_is_sent_in_pieces_and_one_over_the_limits_as_commands(deferring):
    w = gradwire.ones(3, requires_grad=True)

    def train(steps):
        x = gradwire.ones(3)
        for _ in range(steps):
            x = (x * w * 0.5 + 0.1).detach()
        return x.sum().item()

    compiled = gradwire.compile(train)
    for steps in (5, 5, 5, 5, 5, 900, 900, 900):
        assert compiled(steps) == train(steps)
    deferring.limits.max_program_steps = 3
    other = gradwire.compile(train)
    for _ in range(10):
        assert other(2) == train(2)
    assert not programs_of(other, deferring)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_of_a_compiled_model_is_compiled_and_has_its_own_parameters(deferring, copied):
    model = gradwire.compile(gradwire.nn.Linear(2, 1))
    x = gradwire.ones(3, 2)
    with warnings.catch_warnings(record=True):
        for _ in range(3):
            before = model(x).tolist()
    other = copied(model)
    assert type(other) is type(model)
    with gradwire.no_grad():
        other.weight.add_(1)
    assert model(x).tolist() == before and other(x).tolist() != before


def test_a_result_that_a_custom_function_takes_before_it_is_released_stays(deferring):
    """The functions' call ends a segment, so the segment before it must not drop what the call reads."""

    class Doubled(gradwire.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    def trained():
        w, found = gradwire.ones(3, requires_grad=True), []

        @gradwire.compile
        def loss(x):
            h = x * w
            h = Doubled.apply(h)
            return (h * h).sum()

        for step in range(8):
            loss(gradwire.arange(3.0) + step).backward()
            found.append(w.grad.tolist())
            w.grad = None
        return found

    expected = [[8.0 * (each + step) ** 2 for each in range(3)] for step in range(8)]
    for _ in range(3):
        assert trained() == expected
