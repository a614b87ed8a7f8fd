"""compile: a recording answers as the function does, and a function that cannot be recorded gives a warning."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gradwire
import gradwire.nn.functional as F
from gradwire import nn, optim
from gradwire._compile.recorder import varying
from tests.server.harness import running


def values(*tensors):
    return [None if each is None else each.detach().numpy() for each in tensors]


def assert_same(ours, theirs, tolerance=1e-6):
    for one, other in zip(ours, theirs, strict=True):
        if one is None or other is None:
            assert one is None and other is None
        else:
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def runs_of(compiled):
    """How many programs it has recorded."""
    return sum(map(len, compiled._recordings.values()))


def twice(make, calls=5, tolerance=1e-6):
    """Run what `make` makes plainly and compiled, each from the same seed, and compare all that the calls answer."""
    answers = []
    for wrap in (lambda step: step, gradwire.compile):
        gradwire.manual_seed(3)
        step, state = make()
        compiled = wrap(step)
        seen = []
        for _ in range(calls):
            answer = compiled()
            found = [answer] if isinstance(answer, gradwire.Tensor) else list(answer or ())
            seen.append(values(*found, *state()))
        answers.append(seen)
    for plain, replayed in zip(*answers, strict=True):
        assert_same(plain, replayed, tolerance)
    assert compiled.given_up is None
    assert runs_of(compiled) >= 1
    return compiled


def mlp_step(update):
    """The step of the benchmarks: a closure over its tensors."""

    def make():
        X, Y = gradwire.randn(16, 8), gradwire.randint(0, 4, (16,))
        params = []
        for a, b in ((8, 12), (12, 4)):
            params.append((gradwire.randn(a, b) * a**-0.5).requires_grad_())
            params.append(gradwire.zeros(b, requires_grad=True))

        def step():
            h = X
            for i in range(0, len(params), 2):
                h = h @ params[i] + params[i + 1]
                if i < len(params) - 2:
                    h = gradwire.relu(h)
            loss = F.cross_entropy(h, Y)
            loss.backward()
            update(params)
            return loss

        return step, lambda: [*params, *(p.grad for p in params)]

    return make


def plain_update(params):
    with gradwire.no_grad():
        for p in params:
            p -= 0.01 * p.grad
            p.grad = None


def test_the_step_of_the_benchmarks_compiles_unchanged(session):
    compiled = twice(mlp_step(plain_update))
    assert runs_of(compiled) == 1


def test_gradients_add_up_where_the_step_does_not_clear_them(session):
    twice(mlp_step(lambda params: None))


def test_a_step_that_zeroes_gradients_in_place_compiles(session):
    def update(params):
        with gradwire.no_grad():
            for p in params:
                p.sub_(p.grad, alpha=0.1)
                p.grad.zero_()

    twice(mlp_step(update))


OPTIMIZERS = {
    "sgd": lambda params: optim.SGD(params, lr=0.1),
    "momentum": lambda params: optim.SGD(params, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda params: optim.Adam(params, lr=0.01),
    "amsgrad": lambda params: optim.Adam(params, lr=0.01, amsgrad=True, weight_decay=0.1),
    "adamw": lambda params: optim.AdamW(params, lr=0.01),
}


def module_step(make_optimizer, dropout=0.0, normalize=False):
    def make():
        layers = [nn.Linear(6, 10), nn.BatchNorm1d(10) if normalize else nn.Identity(), nn.Tanh()]
        model = nn.Sequential(*layers, nn.Dropout(dropout), nn.Linear(10, 3))
        x, target = gradwire.randn(12, 6), gradwire.randn(12, 3)
        optimizer = make_optimizer(model.parameters())

        def step():
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), target)
            loss.backward()
            optimizer.step()
            return loss

        return step, lambda: [*model.parameters(), *model.buffers(), *(p.grad for p in model.parameters())]

    return make


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_step_as_they_do_alone(session, name):
    twice(module_step(OPTIMIZERS[name]), calls=7, tolerance=1e-5)


def test_dropout_draws_the_numbers_that_it_draws_alone(session):
    twice(module_step(OPTIMIZERS["sgd"], dropout=0.5))


def test_batch_norm_keeps_its_running_statistics(session):
    twice(module_step(OPTIMIZERS["sgd"], normalize=True), tolerance=1e-5)


class Attention(nn.Module):
    """A head that looks at all places, with an embedding before and a norm behind it."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 8)
        self.project = nn.Linear(8, 24)
        self.norm = nn.LayerNorm(8)

    def forward(self, tokens):
        x = self.table(tokens)
        q, k, v = self.project(x).split(8, -1)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return F.gelu(self.norm(x + mixed)).mean(1)


LAYERS = {
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 8)),
        lambda: gradwire.randn(3, 2, 8, 8),
    ),
    "attention": (Attention, lambda: gradwire.randint(0, 11, (3, 6))),
    "activations": (
        lambda: nn.Sequential(
            nn.Linear(5, 6), nn.GELU(), nn.Linear(6, 6), nn.LeakyReLU(), nn.Linear(6, 8), nn.Sigmoid()
        ),
        lambda: gradwire.randn(3, 5),
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_steps_of_all_kinds_of_layers_compile(session, name):
    def make():
        build, draw = LAYERS[name]
        model, x, target = build(), draw(), gradwire.randint(0, 8, (3,))
        # Not Adam: it blows rounding up where a gradient is nothing else, as that of an attention's key bias.
        optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step():
            optimizer.zero_grad()
            logits = model(x)
            loss = F.cross_entropy(logits, target)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss.detach(), logits.detach().argmax(1)

        return step, lambda: [*model.parameters(), *(p.grad for p in model.parameters())]

    twice(make, calls=6, tolerance=1e-4)


def test_random_tensors_are_new_in_each_call_and_reproducible(session):
    noise = gradwire.compile(lambda: gradwire.randn(3))
    gradwire.manual_seed(5)
    first = [noise().tolist() for _ in range(4)]
    gradwire.manual_seed(5)
    assert [gradwire.randn(3).tolist() for _ in range(4)] == first
    assert len({tuple(each) for each in first}) == 4


def test_a_changed_learning_rate_needs_no_new_recording(session):
    weight = gradwire.ones(3, requires_grad=True)
    optimizer = optim.SGD([weight], lr=0.5)

    @gradwire.compile
    def step():
        optimizer.zero_grad()
        weight.sum().backward()
        optimizer.step()

    for rate in (0.5, 0.5, 0.25, 0.125, 0.0625):
        optimizer.param_groups[0]["lr"] = rate
        step()
    assert weight.tolist() == [1 - 0.5 - 0.5 - 0.25 - 0.125 - 0.0625] * 3
    assert runs_of(step) == 2  # with and without a gradient to clear


@pytest.mark.parametrize("dtype", [gradwire.float32, gradwire.float64])
def test_numbers_that_vary_change_captured_tensors_in_place(session, dtype):
    weight = gradwire.ones(3, dtype=dtype)

    @gradwire.compile
    def step():
        weight.mul_(varying(weight, "factor", lambda ahead: 2.0))
        weight.add_(varying(weight, "term", lambda ahead: 1.0))

    for _ in range(4):
        step()
    assert weight.tolist() == [31.0] * 3


def test_steps_of_adam_are_counted(session):
    weight = gradwire.ones(3, requires_grad=True)
    optimizer = optim.Adam([weight])

    @gradwire.compile(repeat=4)
    def step():
        optimizer.zero_grad()
        (weight * weight).sum().backward()
        optimizer.step()

    step()
    step()
    assert optimizer.state[weight]["step"] == 8


def test_replays_do_not_wait(deferring, monkeypatch):
    step = gradwire.compile(mlp_step(plain_update)()[0])
    for _ in range(2):
        step()
    waits = []
    wait = deferring.wait
    monkeypatch.setattr(deferring, "wait", lambda *args, **kwargs: waits.append(1) or wait(*args, **kwargs))

    def loop():
        return [step() for _ in range(20)]

    loop()
    assert len(waits) <= 1  # the first call at this place
    assert all(loss.item() > 0 for loss in loop())


# Guards.


def test_arguments_of_another_shape_or_dtype_are_recorded_anew(session):
    double = gradwire.compile(lambda x: x * 2)
    for shape in ((2,), (3,), (2, 2), (2,), (3,)):
        assert double(gradwire.ones(shape)).tolist() == (gradwire.ones(shape) * 2).tolist()
    assert double(gradwire.ones(2, dtype=gradwire.float64)).dtype is gradwire.float64
    assert runs_of(double) == 4


def test_numbers_among_arguments_and_closed_over_are_guarded(session):
    factor = 2.0

    def scaled(x, power):
        return x**power * factor

    compiled = gradwire.compile(scaled)
    x = gradwire.tensor([3.0])
    assert [compiled(x, p).item() for p in (1, 2, 1, 2)] == [6, 18, 6, 18]
    factor = 10.0
    assert compiled(x, 2).item() == 90


def test_a_branch_on_a_flag_takes_the_other_side(session):
    model = nn.Sequential(nn.Dropout(0.5))
    x = gradwire.ones(1000)
    compiled = gradwire.compile(lambda: model(x))
    assert compiled().eq(0).any() and compiled().eq(0).any()
    model.eval()
    assert compiled().eq(1).all() and compiled().eq(1).all()


def test_a_closed_over_tensor_may_be_exchanged(session):
    x = gradwire.ones(2)
    compiled = gradwire.compile(lambda: x + 1)
    assert [compiled().tolist(), compiled().tolist()] == [[2, 2], [2, 2]]
    x = gradwire.zeros(2)
    assert [compiled().tolist(), compiled().tolist()] == [[1, 1], [1, 1]]


def test_the_same_tensor_twice_is_not_two_tensors(session):
    @gradwire.compile
    def grow(a, b):
        a.add_(1)
        return a + b

    def tensors():
        return gradwire.zeros(2), gradwire.zeros(2)

    for _ in range(2):
        assert grow(*tensors()).tolist() == [1, 1]
        same = gradwire.zeros(2)
        assert grow(same, same).tolist() == [2, 2]


def test_grad_mode_is_guarded(session):
    w = gradwire.ones(2, requires_grad=True)
    compiled = gradwire.compile(lambda: w * 2)
    assert [compiled().requires_grad, compiled().requires_grad] == [True, True]
    with gradwire.no_grad():
        assert [compiled().requires_grad, compiled().requires_grad] == [False, False]


def test_more_recordings_than_the_cache_holds_run_plainly_and_say_so(session):
    compiled = gradwire.compile(lambda x, n: x * n, cache_size=2)
    x = gradwire.ones(1)
    with pytest.warns(UserWarning, match="recorded 2 times"):
        assert [compiled(x, n).item() for n in (1, 2, 3, 4)] == [1, 2, 3, 4]
    assert compiled.given_up is not None


def test_a_function_that_changes_what_it_closes_over_runs_plainly(session):
    seen = []

    def step():
        loss = gradwire.ones(1) * len(seen)
        seen.append(loss)
        return loss

    compiled = gradwire.compile(step)
    with pytest.warns(UserWarning, match="closes over"):
        assert [compiled().item() for _ in range(6)] == [0, 1, 2, 3, 4, 5]
    assert len(seen) == 6


def test_verify_finds_what_guards_cannot_see(session):
    turns = iter([1.0, 1.0, 2.0])

    compiled = gradwire.compile(lambda x: x * next(turns), verify=True)
    x = gradwire.ones(1)
    compiled(x)
    compiled(x)
    with pytest.raises(RuntimeError, match="from command 0 on"):
        compiled(x)


# Refusals.


@pytest.mark.parametrize(
    "read", [lambda t: t.item(), bool, float, lambda t: t.tolist(), repr], ids=["item", "bool", "float", "list", "repr"]
)
def test_reading_a_value_in_the_middle_is_refused_with_the_line(session, read):
    @gradwire.compile(fullgraph=True)
    def step(x):
        return x * read(x.sum())

    with pytest.raises(gradwire.GradwireRuntimeError, match="a value is read in the middle"):
        step(gradwire.ones(2))
    with pytest.raises(gradwire.GradwireRuntimeError, match="test_compile"):
        step(gradwire.ones(2))
    assert gradwire.ones(2).sum().item() == 2  # the session goes on, and outside values may be read


def test_shapes_that_follow_from_values_are_refused(session):
    positive = gradwire.compile(lambda x: x[x > 0], fullgraph=True)
    with pytest.raises(gradwire.GradwireRuntimeError, match="follows from values"):
        positive(gradwire.tensor([1.0, -1.0]))


def fallback_step(library, x, w, held, seen):
    """Branches on values, draws, writes in place, differentiates, and has a side effect."""
    seen.append(len(seen))
    y = library.dropout(x @ w, 0.5, True)
    if y.sum() > 0:
        held += y.detach().mean()
    else:
        held.mul_(0.5)
    scale = held.mean().item()
    if scale > 1.5:
        raise ValueError("too large")
    (y * scale).pow(2).sum().backward()
    return y[y > 0], scale


def run_fallback(library, step, calls):
    library.manual_seed(3)
    w, held, seen, found = library.ones(3, 2, requires_grad=True), library.zeros(2), [], []
    for call in range(calls):
        x = library.randn(4, 3) + call / 8
        try:
            result, scale = step(library, x, w, held, seen)
            found.append([result.tolist(), scale, w.grad.tolist(), held.tolist()])
        except ValueError as error:
            found.append(str(error))
    return found, len(seen)


@pytest.mark.filterwarnings("ignore:compile")
def test_a_call_that_reads_values_is_the_uncompiled_call(session):
    found, effects = run_fallback(gradwire, gradwire.compile(fallback_step), 12)
    assert (found, effects) == run_fallback(gradwire, fallback_step, 12)
    assert effects == 12
    assert {True, False} == {each == "too large" for each in found}  # both ends were reached


def test_a_call_that_reads_values_warns_once_for_each_place(session):
    @gradwire.compile
    def step(x):
        if x.sum() > 0:
            return x * x.mean().item()
        return x

    with pytest.warns(UserWarning, match="a value is read in the middle") as warned:
        results = [step(gradwire.ones(2)).tolist() for _ in range(8)]
    assert results == [[1, 1]] * 8
    lines = [str(each.message).splitlines()[-1].strip() for each in warned]
    assert lines == ["if x.sum() > 0:", "return x * x.mean().item()"]
    assert "runs uncompiled" in "".join(step.describe())


def test_a_value_read_in_the_first_call_only_costs_no_later_program(session):
    seen = []

    def step(x, first):
        if first:
            seen.append(x.sum().item())
        return x * 2

    compiled = gradwire.compile(step)
    with pytest.warns(UserWarning, match="a value is read in the middle"):
        compiled(gradwire.ones(2), True)
    results = [compiled(gradwire.ones(2), False).tolist() for _ in range(3)]
    assert results == [[2, 2]] * 3 and seen == [2]
    assert len(compiled._recordings) == 1


def test_an_error_in_the_function_surfaces_as_it_is(session):
    compiled = gradwire.compile(lambda a, b: a @ b)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            compiled(gradwire.ones(2, 3), gradwire.ones(2, 3))
    assert (gradwire.ones(2) * 2).tolist() == [2, 2]


def test_an_error_of_a_replay_names_the_line(deferring):
    look_up = gradwire.compile(lambda table, at: table[at])
    table = gradwire.arange(3)

    def call(at):
        return look_up(table, at)

    for at in ([0], [1], [2]):
        call(gradwire.tensor(at))
    with pytest.raises(IndexError, match="out of"):
        call(gradwire.tensor([7])).tolist()


# Feeds, repetitions, slices.


def test_repeat_runs_as_often_and_answers_the_last(session):
    x = gradwire.zeros(2)

    @gradwire.compile(repeat=5)
    def count():
        x.add_(1)
        return x * 10

    assert count().tolist() == [50, 50]
    assert count().tolist() == [100, 100]
    assert x.tolist() == [10, 10]


def test_stacked_answers_all_repetitions(session):
    x = gradwire.zeros(2)

    @gradwire.compile(repeat=4, stacked=True)
    def count():
        x.add_(1)
        return {"x": x * 1, "sum": x.sum()}

    assert count()["x"].tolist() == [[1, 1], [2, 2], [3, 3], [4, 4]]
    assert count()["sum"].tolist() == [10, 12, 14, 16]


def test_repetitions_clear_gradients_as_a_loop_would(session):
    def make():
        w = gradwire.ones(2, requires_grad=True)
        optimizer = optim.SGD([w], lr=0.1)

        def step():
            optimizer.zero_grad()
            (w * w).sum().backward()
            optimizer.step()
            return w.grad

        return w, step

    one, step = make()
    for _ in range(6):
        step()
    other, again = make()
    gradwire.compile(again, repeat=6)()
    np.testing.assert_allclose(one.tolist(), other.tolist(), rtol=1e-6)
    np.testing.assert_allclose(one.grad.tolist(), other.grad.tolist(), rtol=1e-6)


def test_an_epoch_is_one_call_over_slices(session):
    x, y = gradwire.randn(20, 3), gradwire.randn(20, 1)

    def make():
        w = gradwire.zeros(3, 1, requires_grad=True)

        def step(batch, target):
            loss = ((batch @ w - target) ** 2).mean()
            loss.backward()
            with gradwire.no_grad():
                w.sub_(w.grad, alpha=0.1)
                w.grad = None
            return loss

        return w, step

    w, step = make()
    losses = [step(x[k : k + 4], y[k : k + 4]).item() for _ in range(2) for k in range(0, 20, 4)]
    other, again = make()
    epoch = gradwire.compile(again, batch_size=4, stacked=True)
    found = [loss for _ in range(2) for loss in epoch(x, y).tolist()]
    np.testing.assert_allclose(losses, found, rtol=1e-5)
    np.testing.assert_allclose(w.tolist(), other.tolist(), rtol=1e-5)
    assert runs_of(epoch) == 1


def test_slices_that_are_not_there_are_refused(session):
    epoch = gradwire.compile(lambda x: x.sum(), batch_size=8)
    with pytest.raises(ValueError, match="fewer rows"):
        epoch(gradwire.ones(4, 2))
    with pytest.raises(ValueError, match="whole number"):
        gradwire.compile(lambda x: x, repeat=0)


# What it can be put around.


def test_a_module_may_be_compiled_and_differentiated_outside(session):
    model = nn.Linear(3, 2)
    x = gradwire.randn(4, 3)
    compiled = gradwire.compile(model)
    expected = None
    for _ in range(3):
        model.zero_grad()
        compiled(x).sum().backward()
        found = values(model.weight.grad, model.bias.grad)
        expected = expected or found
        assert_same(expected, found)
    assert compiled.weight is model.weight


def test_methods_and_pytorchs_options_are_taken(session):
    class Model:
        def __init__(self, factor):
            self.factor = factor

        @gradwire.compile(mode="max-autotune", fullgraph=True)
        def scale(self, x):
            return x * self.factor

    assert [Model(f).scale(gradwire.ones(1)).item() for f in (2, 3, 2, 3)] == [2, 3, 2, 3]

    def plain(x):
        return x

    assert gradwire.compile(plain, disable=True) is plain
    assert gradwire.compile(plain).__name__ == "plain"


def test_arguments_that_are_returned_are_the_same_objects(session):
    w = gradwire.ones(2)

    @gradwire.compile
    def same(x, more):
        return x, w, [more["y"], x + 1]

    for _ in range(3):
        x, y = gradwire.ones(2), gradwire.zeros(2)
        first, second, (third, fourth) = same(x, {"y": y})
        assert first is x and second is w and third is y
        assert fourth.tolist() == [2, 2]


def test_grad_is_the_same_object_while_nothing_takes_its_place(session):
    w = gradwire.ones(2, requires_grad=True)
    step = gradwire.compile(lambda: (w * w).sum().backward())
    step()
    grad = w.grad
    for _ in range(3):
        step()
    assert w.grad is grad
    assert grad.tolist() == [8, 8]


def test_leaf_arguments_receive_gradients(session):
    step = gradwire.compile(lambda a: (a * a).sum().backward())
    for value in (1.0, 2.0, 3.0):
        a = gradwire.full((2,), value, requires_grad=True)
        step(a)
        assert a.grad.tolist() == [2 * value] * 2


def test_an_unknown_program_is_registered_again(session):
    double = gradwire.compile(lambda x: x * 2)
    double(gradwire.ones(1))
    (recording,) = next(iter(double._recordings.values()))
    session.programs[recording.trace.hash] = None  # as if the server had forgotten it
    assert double(gradwire.ones(1)).item() == 2


def test_create_graph_and_functional_gradients_compile(session):
    x = gradwire.tensor([0.5, 1.5], requires_grad=True)

    @gradwire.compile
    def second():
        (first,) = gradwire.autograd.grad((x**3).sum(), x, create_graph=True)
        (again,) = gradwire.autograd.grad(first.sum(), x)
        return first.detach(), again

    for _ in range(3):
        first, again = second()
        assert_same(values(first, again), [np.array([0.75, 6.75]), np.array([3.0, 9.0])])


# Programs of all kinds.

UNARY = ("neg", "sin", "tanh", "sigmoid", "relu", "exp", "abs", "square")
BINARY = ("add", "sub", "mul", "maximum")


@st.composite
def programs(draw):
    """A list of instructions over three tensors of shape (3, 3)."""
    count = draw(st.integers(2, 10))
    kinds = st.sampled_from(("unary", "binary", "matmul", "scalar", "row", "in_place", "backward", "update"))
    return [
        (draw(kinds), draw(st.integers(0, 99)), draw(st.integers(0, 99)), draw(st.integers(0, 99)))
        for _ in range(count)
    ]


def interpret(instructions, leaves, data):
    """Do the instructions; answers all results."""
    held = [*leaves, data]
    for kind, which, left, right in instructions:
        a, b = held[left % len(held)], held[right % len(held)]
        if kind == "unary":
            held.append(getattr(gradwire, UNARY[which % len(UNARY)])(a.clamp(-3, 3)))
        elif kind == "binary":
            held.append(getattr(gradwire, BINARY[which % len(BINARY)])(a, b))
        elif kind == "matmul":
            held.append((a @ b).clamp(-5, 5))
        elif kind == "scalar":
            held.append(a * (which / 50) + 0.25)
        elif kind == "row":
            held.append(a + b.mean(0))
        elif kind == "in_place":
            with gradwire.no_grad():
                data.mul_(0.5).add_(a.detach().clamp(-2, 2), alpha=0.1)
        elif kind == "backward":
            loss = (a * b).sum() + sum(leaf.sum() for leaf in leaves)
            loss.backward(retain_graph=True)
        else:
            with gradwire.no_grad():
                for leaf in leaves:
                    if leaf.grad is not None:
                        leaf -= 0.01 * leaf.grad.clamp(-1, 1)
                        if which % 2:
                            leaf.grad = None
    return [each.detach() for each in held]


@pytest.fixture(scope="module")
def shared(server_address):
    opened = gradwire.connect(server_address)
    yield opened
    opened.close()


@given(instructions=programs())
@settings(max_examples=40)
def test_random_programs_answer_as_they_do_alone(shared, instructions):
    found = []
    for wrap in (lambda f: f, lambda f: gradwire.compile(f, cache_size=20)):
        gradwire.manual_seed(1)
        leaves = [gradwire.rand(3, 3, requires_grad=True) for _ in range(2)]
        data = gradwire.rand(3, 3)
        run = wrap(lambda leaves=leaves, data=data: interpret(instructions, leaves, data))
        seen = []
        for _ in range(4):
            try:
                seen.extend(values(*run()))
            except RuntimeError as error:
                seen.append(np.array(len(str(error)) > 0))
                break
            seen.extend(values(*[leaf.grad for leaf in leaves]))
        found.append(seen)
    assert len(found[0]) == len(found[1])
    assert_same(*found, tolerance=1e-4)


def test_compiling_warns_of_nothing_where_it_works(session):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        twice(mlp_step(plain_update))


def test_a_function_may_make_tensors_of_values_in_every_call(session):
    w = gradwire.tensor([1.0, 2.0], requires_grad=True)

    @gradwire.compile
    def weighted(x):
        return (x * gradwire.tensor([3.0, 4.0]) * w).sum()

    for _ in range(4):
        loss = weighted(gradwire.ones(2))
        loss.backward()
        assert loss.item() == 11.0
    assert w.grad.tolist() == [12.0, 16.0]
    assert 1 <= runs_of(weighted) <= 2  # with and without a gradient of w


def test_inference_mode_is_kept_in_replays(session):
    w = gradwire.tensor([1.0, 2.0], requires_grad=True)

    @gradwire.compile
    def inside(x):
        with gradwire.inference_mode():
            return x * w

    @gradwire.compile
    def around(x):
        return x * w

    for _ in range(4):
        with gradwire.inference_mode():
            outer = around(gradwire.ones(2))
        inner = inside(gradwire.ones(2))
        assert outer.is_inference() and inner.is_inference()
        assert not outer.requires_grad and not inner.requires_grad
        assert outer.tolist() == inner.tolist() == [1.0, 2.0]
    x = gradwire.ones(2)
    assert around(x).requires_grad


def test_what_a_result_keeps_of_gradients_is_as_without_compile(session):
    def make():
        w = gradwire.tensor([1.0, 2.0], requires_grad=True)

        def step():
            kept = w * 3.0
            kept.retain_grad()
            made = w.detach().clone().requires_grad_()
            (made * made * kept).sum().backward()
            later = w * 5.0
            later.retain_grad()
            return kept, made, later

        return step, w

    seen = []
    for wrap in (lambda step: step, gradwire.compile):
        step, w = make()
        step = wrap(step)
        for _ in range(4):
            kept, made, later = step()
            (later * later).sum().backward()
            assert kept.retains_grad and later.retains_grad
            seen.append(values(kept.grad, made.grad, later.grad, w.grad))
    for plain, replayed in zip(seen[:4], seen[4:], strict=True):
        assert_same(plain, replayed)


@pytest.mark.parametrize("sync", ["0", "1"])
def test_a_session_may_compile_more_programs_than_the_server_keeps(monkeypatch, sync):
    monkeypatch.setenv("GRADWIRE_SYNC", sync)
    with running(max_programs=3) as server, gradwire.connect(server.address) as session:
        steps = [gradwire.compile(lambda x, factor=float(number): x * factor + factor) for number in range(6)]
        x = gradwire.ones(2)
        for turn in range(4):
            answers = [step(x) for number, step in enumerate(steps) if turn < 2 or number % 2]
            for number, answer in enumerate(answers):
                factor = number if turn < 2 else 2 * number + 1
                assert answer.tolist() == [2.0 * factor] * 2
        session.close()


@pytest.mark.parametrize("size", [255, 256, 300])
@pytest.mark.parametrize("change", ["itself", "transposed", "transposed factor"])
def test_a_large_update_by_what_is_not_flat_and_apart_is_right_each_time(session, size, change):
    def update(p, q):
        with gradwire.no_grad():
            p.sub_(q, alpha=2)
            if change == "itself":
                p.add_(p, alpha=-0.25)
            elif change == "transposed":
                p.add_(q.t(), alpha=0.5)
            else:
                p.addcmul_(q.t(), q, value=0.5)
        return p.sum()

    q = gradwire.arange(size * size, dtype=gradwire.float32).reshape(size, size) / size**2
    mine, eager = gradwire.ones(size, size), gradwire.ones(size, size)
    compiled = gradwire.compile(update)
    for _ in range(5):
        compiled(mine, q)
        update(eager, q)
        assert gradwire.allclose(mine, eager)
    assert runs_of(compiled)
