"""compile: ordinary training steps are replayed, and results share storage as the function's results do."""

import collections
import contextlib
import dataclasses
import functools
import gc
import math
import random
import sys
import types
import warnings
import weakref

import pytest

import gradwire
import gradwire.nn.functional as F
from gradwire import nn, optim


@pytest.fixture(scope="module")
def opened(server_address):
    session = gradwire.connect(server_address)
    yield session
    session.close()


@dataclasses.dataclass
class Config:
    width: int = 8
    rate: float = 0.1
    clip: float = 1.0
    verbose: bool = False


class Block(nn.Module):
    def __init__(self, width, drop=0.0):
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        self.drop, self.scale, self.history = nn.Dropout(drop), 0.5, []

    def forward(self, x):
        return x + self.scale * self.second(self.drop(F.gelu(self.first(x))))


def trained(model, make=lambda params: optim.SGD(params, lr=0.1), body=None):
    """A training step on the model, and its optimizer."""
    optimizer = make(model.parameters())

    def step(x):
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        if body is not None:
            body(model)
        optimizer.step()
        return loss

    return step, optimizer


def with_a_config():
    config, model = Config(), Block(8)
    optimizer = optim.SGD(model.parameters(), lr=config.rate)

    def step(x):
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean() * config.rate
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        optimizer.step()
        if config.verbose:
            print("loss", loss.item())
        return {"loss": loss.detach()}

    return step


def with_a_trainer():
    class Trainer:
        def __init__(self):
            self.model = nn.Sequential(Block(8, 0.2), Block(8, 0.2))
            self.optimizer = optim.AdamW(self.model.parameters(), lr=0.01)
            self.generator, self.losses = random.Random(1), []
            with open(__file__) as file:
                self.file = file

        def loss(self, x):
            return self.model(x).square().mean()

        def step(self, x):
            self.optimizer.zero_grad()
            loss = self.loss(x)
            loss.backward()
            self.optimizer.step()
            return loss.detach()

    return Trainer().step


def with_a_scheduler():
    step, optimizer = trained(Block(8))
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)

    def after():
        scheduler.step()

    step.after = after
    return step


def with_helpers():
    model, space = Block(8), {"math": math, "F": F}
    exec("def penalty(t, p=2.0):\n  return sum((t ** p).mean() * math.sqrt(k + 1.0) for k in range(3))", space)

    def decorate(function):
        @functools.wraps(function)
        def inner(*args, **kwargs):
            with contextlib.nullcontext():
                return function(*args, **kwargs)

        return inner

    penalty = space["penalty"]

    @decorate
    def step(x):
        return penalty(model(x)).detach()

    return step


def with_a_ledger_of_layers():
    layers = collections.OrderedDict(a=nn.Linear(8, 8), b=nn.Linear(8, 8))
    act = {"relu": gradwire.relu, "tanh": gradwire.tanh}
    return lambda x: functools.reduce(lambda h, layer: act["relu"](layer(h)), layers.values(), x).detach()


def with_normalization():
    return trained(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)))[0]


def with_momentum():
    return trained(Block(8), lambda params: optim.SGD(params, lr=0.1, momentum=0.9))[0]


def with_a_schedule_of_ones_own():
    w = gradwire.ones(8, requires_grad=True)

    def step(x):
        loss = ((x * w) ** 2).sum()
        loss.backward()
        with gradwire.no_grad():
            w.sub_(w.grad, alpha=0.01)
            w.grad.zero_()
        return loss.detach()

    return step


STEPS = [
    with_a_config, with_a_trainer, with_a_scheduler, with_helpers, with_a_ledger_of_layers, with_normalization,
    with_momentum, with_a_schedule_of_ones_own,
]  # fmt: skip


@pytest.mark.parametrize("make", STEPS)
def test_an_ordinary_step_is_replayed_without_a_word(opened, make):
    answers = []
    for wrap in (lambda step: step, gradwire.compile):
        gradwire.manual_seed(1)
        step = make()
        after, wrapped = getattr(step, "after", lambda: None), wrap(step)
        found = []
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(8):
                answer = wrapped(gradwire.ones(4, 8))
                found.append((answer["loss"] if isinstance(answer, dict) else answer).detach().sum().item())
                after()
        answers.append(found)
    assert answers[0] == pytest.approx(answers[1], rel=1e-5)
    recordings = [one for held in wrapped._recordings.values() for one in held]
    assert wrapped.given_up is None
    assert 1 <= len(recordings) <= 3
    told = gradwire.explain(wrapped)
    assert "as a plan" in told or "step by step" in told


def numbers():
    return gradwire.arange(1.0, 4.0)


def replayed(function, *given, calls=4):
    """What the last of some calls answers, which is a replay."""
    compiled = gradwire.compile(function)
    for _ in range(calls):
        answer = compiled(*[each() for each in given])
    assert sum(map(len, compiled._recordings.values())) >= 1
    return answer


def test_a_tensor_that_is_returned_twice_is_one_tensor(opened):
    def twice(x):
        y = x * 2
        return y, y, {"y": [y]}

    one, other, held = replayed(twice, numbers)
    assert one is other is held["y"][0]
    same = replayed(lambda x: (held := [x * 2], held), numbers)
    assert same[0] is same[1]


def test_views_that_are_returned_share_the_bytes_of_their_base(opened):
    def views(x):
        y = x * 2
        return y, y.view(3, 1), y.detach()

    y, column, bare = replayed(views, numbers)
    y.add_(1)
    assert column.tolist() == [[3.0], [5.0], [7.0]]
    assert bare.tolist() == [3.0, 5.0, 7.0]
    assert column._base is y
    assert column._version == y._version == bare._version


def test_what_is_changed_in_place_before_it_is_returned_counts_that(opened):
    def grown(x):
        y = x * 2
        y += 1
        y.mul_(2)
        return y, y.detach()

    y, bare = replayed(grown, numbers, calls=5)
    assert y._version == bare._version == 2


def test_a_view_of_what_is_not_returned_has_a_base(opened):
    found = replayed(lambda x: (x * 2).view(3, 1), numbers)
    found.add_(1)
    assert found._is_view()
    assert found._base.tolist() == [3.0, 5.0, 7.0]


def test_views_of_an_argument_are_views_of_that_argument(opened):
    compiled = gradwire.compile(lambda x: (x.view(3, 1), x[1:], x))
    for _ in range(4):
        x = numbers()
        column, tail, same = compiled(x)
        x.mul_(2)
        assert same is x
        assert column._base is x
        assert tail._base is x
        assert tail.tolist() == [4.0, 6.0]


def test_a_frozen_leafs_gradient_may_be_taken_away(opened):
    w = gradwire.ones(3, requires_grad=True)
    (w * 2).sum().backward()
    w.requires_grad_(False)
    compiled = gradwire.compile(lambda x: x if w.grad is None else x * w.grad)
    for _ in range(3):
        assert compiled(numbers()).tolist() == [2.0, 4.0, 6.0]
    w.grad = None
    assert compiled(numbers()).tolist() == [1.0, 2.0, 3.0]


def test_kinds_of_answers_stay_what_they_are(opened):
    Pair = collections.namedtuple("Pair", "a b")
    pair = replayed(lambda x: Pair(x * 2, x.shape), numbers)
    assert type(pair) is Pair
    assert pair.b == gradwire.Size([3])
    assert type(pair.b) is gradwire.Size
    ordered = replayed(lambda x: collections.OrderedDict(z=x, a=x * 2), numbers)
    assert type(ordered) is collections.OrderedDict
    assert list(ordered) == ["z", "a"]


def effect_on_a_list(held):
    def step(x):
        held.append(1)
        return x * 2

    return step


def effect_on_a_counter(held):
    def step(x):
        held[:] = [1] * (len(held) + 1)
        return x * 2

    return step


def effect_by_print(held):
    class Out:
        def write(self, text):
            held.extend([1] * (text == "\n"))

    out = Out()

    def step(x):
        print("here", file=out)
        return x * 2

    return step


def effect_by_a_warning(held):
    class Out:
        def __call__(self, *args, **kwargs):
            held.append(1)

    warn = Out()

    def step(x):
        warn("here")
        return x * 2

    return step


@pytest.mark.parametrize("make", [effect_on_a_list, effect_on_a_counter, effect_by_print, effect_by_a_warning])
def test_what_a_function_does_beside_computing_is_done_in_each_call(opened, make):
    held = []
    compiled = gradwire.compile(make(held))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for count in range(1, 9):
            compiled(numbers())
            assert len(held) == count
    assert any("runs uncompiled" in str(each.message) for each in caught)
    assert "uncompiled" in gradwire.explain(compiled)


def test_arguments_containers_are_changed_in_each_call(opened):
    def step(batch):
        batch["x"] = batch["x"] * 2
        batch["seen"] = True
        return batch["x"].sum()

    compiled = gradwire.compile(step)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(6):
            batch = {"x": numbers()}
            compiled(batch)
            assert batch["x"].tolist() == [2.0, 4.0, 6.0]
            assert batch["seen"]
    assert any("its arguments" in str(each.message) for each in caught)


def test_the_warning_names_what_cannot_be_compared_and_its_line_once(opened):
    turns = iter(range(1, 100))

    def step(x):
        return x * next(turns)

    compiled = gradwire.compile(step)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert [compiled(gradwire.ones(1)).item() for _ in range(6)] == [1, 2, 3, 4, 5, 6]
    (warning,) = caught
    assert "'turns' (range_iterator), which cannot be compared" in str(warning.message)
    assert "return x * next(turns)" in str(warning.message)
    assert "'turns' (range_iterator)" in gradwire.explain(compiled)


def test_a_branch_that_is_not_taken_does_not_count(opened):
    turns, verbose = iter(range(100)), False

    def step(x):
        if verbose:
            print(next(turns))
        return x * 2

    compiled = gradwire.compile(step)
    for _ in range(3):
        compiled(numbers())
    assert compiled.given_up is None
    assert compiled._recordings


def test_an_equal_object_in_the_place_of_another_needs_no_new_recording(opened):
    class Settings:
        scale = 1.0

    settings = Settings()
    settings.scale, settings.sizes = 2.5, [1, 2]
    compiled = gradwire.compile(lambda x, config: x * settings.scale * settings.sizes[1] * config.rate)
    for turn in range(6):
        settings.scale = float(f"2.{5 + 0 * turn}")
        settings.sizes = [1, 2]
        assert compiled(gradwire.ones(1), Config()).item() == pytest.approx(0.5)
    assert sum(map(len, compiled._recordings.values())) == 1


def test_a_tracer_that_is_at_work_stays(opened):
    import sys

    seen = []

    def tracer(frame, event, arg):
        seen.append(frame.f_code.co_name)
        return

    scale = [2.0]

    def traced_step(x):
        return x * scale[0]

    compiled = gradwire.compile(traced_step)
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        compiled(numbers())
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)
    assert "traced_step" in seen
    assert compiled(numbers()).tolist() == [2.0, 4.0, 6.0]
    scale[0] = 3.0
    assert compiled(numbers()).tolist() == [3.0, 6.0, 9.0]


def test_a_recording_keeps_no_tensor_that_its_first_call_was_given(opened):
    step = gradwire.compile(lambda x: x * 2)

    def call():
        given = gradwire.ones(100)
        step(given)
        return weakref.ref(given)

    held = [call() for _ in range(3)]
    gc.collect()
    assert [each() for each in held] == [None, None, None]


def test_a_call_whose_trace_function_is_exchanged_is_not_replayed(opened):
    held = Config()

    def exchange():
        sys.settrace(None)
        return 1.0

    step = gradwire.compile(lambda x: x * exchange() * held.rate * 2)
    with pytest.warns(UserWarning, match="settrace"):
        step(gradwire.ones(2))
    held.rate = 0.5
    assert step(gradwire.ones(2)).tolist() == [1.0, 1.0]
    assert sys.getprofile() is None


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_error_in_a_recorded_call_leaves_no_trace_function(opened, error):
    def step(x):
        raise error

    compiled = gradwire.compile(step)
    with pytest.raises(error):
        compiled(gradwire.ones(2))
    assert (sys.gettrace(), sys.getprofile()) == (None, None)
    assert opened.recorder is None


def test_what_reaches_more_than_can_be_compared_runs_step_by_step(opened):
    many = [types.SimpleNamespace(scale=2.0) for _ in range(60_000)]
    step = gradwire.compile(lambda x: x * many[-1].scale)
    x = gradwire.ones(2)
    with pytest.warns(UserWarning, match="more than 50000 objects"):
        assert step(x).tolist() == [2.0, 2.0]
    step(x), step(x)
    many[-1].scale = 3.0
    assert step(x).tolist() == [3.0, 3.0]
