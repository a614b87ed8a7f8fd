"""compile(step, data_parallel=N): the numbers of the undivided step and of PyTorch, refusals by name, and failures."""

import functools
import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import gradwire
from gradwire import nn
from gradwire._compile import data_parallel
from gradwire._compile.data_parallel import DataParallel
from gradwire._compile.workers import Workers
from gradwire._session.sessions import open_session
from tests.server.harness import Running, running, until

WORKERS = 2
Step = Callable[..., Any]


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(WORKERS) as started:
        yield started


@pytest.fixture
def here(server: Running) -> Iterator[gradwire.Session]:
    """A session at a server of two workers."""
    session = open_session(
        server.address, token=None, ca=None, cert=None, key=None, tls=None, patience=None, device_type=None
    )
    with session:
        yield session
    session.close()


def model(of: Any = gradwire) -> Any:
    """The same small model in gradwire and in PyTorch."""
    made = of.nn.Sequential(of.nn.Linear(6, 8), of.nn.Tanh(), of.nn.Linear(8, 3)).double()
    values = of.arange(1000, dtype=of.float64).mul(0.7).sin()
    with of.no_grad():
        for each in made.parameters():
            each.copy_(values[: each.numel()].reshape(each.shape) * 0.3)
    return made


def batch(rows: int = 16, of: Any = gradwire) -> tuple[Any, Any]:
    return of.arange(rows * 6, dtype=of.float64).mul(0.3).cos().reshape(rows, 6), of.arange(rows) % 3


def training(net: Any, optimizer: Any, of: Any = gradwire) -> Step:
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        out = net(x)
        loss = of.nn.functional.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        return loss, out

    return step


def workers_of(step: Any) -> Workers:
    assert isinstance(step, DataParallel) and step._workers is not None
    return step._workers


def weights(net: Any) -> list[float]:
    return [value for each in net.parameters() for value in each.detach().flatten().tolist()]


@pytest.mark.parametrize(("count", "optimizer"), [(2, "Adam"), (4, "SGD")])
def test_fifty_steps_give_pytorchs_weights_and_equal_copies(here: gradwire.Session, count: int, optimizer: str) -> None:
    torch = pytest.importorskip("torch")
    nets, losses = [], []
    for of in (gradwire, torch):
        net = model(of)
        step: Any = training(net, getattr(of.optim, optimizer)(net.parameters(), lr=0.02), of)
        if of is gradwire:
            step = divided = gradwire.compile(step, data_parallel=count, sliced=("x", "y"))
        for _ in range(50):
            loss, out = step(*batch(of=of))
        nets.append(net)
        losses.append((loss.item(), out.detach().flatten().tolist()))
    assert weights(nets[0]) == pytest.approx(weights(nets[1]), rel=1e-6, abs=1e-9)
    assert losses[0][0] == pytest.approx(losses[1][0], rel=1e-9)
    assert losses[0][1] == pytest.approx(losses[1][1], rel=1e-6, abs=1e-9)
    assert workers_of(divided).differing(list(nets[0].parameters())) == []
    assert "commands as one, run" in divided.describe()[-1]


def test_later_calls_are_one_program_per_worker_and_do_not_wait(
    here: gradwire.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = model()
    step: Any = gradwire.compile(training(net, gradwire.optim.SGD(net.parameters(), lr=0.1)), data_parallel=2)
    x, y = batch()
    waits: list[int] = []
    for number in range(13):
        step(x, y)
        if number == 9:  # at the eighth run of all workers their tensors were compared
            sessions = workers_of(step).sessions
            for each in sessions:
                monkeypatch.setattr(each, "wait", lambda command, *rest: waits.append(1))
            before = [each.next_command() for each in sessions]
    assert waits == []
    assert all(0 < each.next_command() - had <= 3 * 12 for each, had in zip(sessions, before, strict=True))


def test_the_last_steps_of_a_dropped_function_are_made(here: gradwire.Session, server: Running) -> None:
    found = []
    for dropped in (False, True):
        net = model()
        step = gradwire.compile(training(net, gradwire.optim.SGD(net.parameters(), lr=0.1)), data_parallel=2)
        x, y = batch()
        for _ in range(20):
            step(x, y)
        if dropped:
            step = None
        found.append(weights(net))
    assert found[0] == found[1]
    gc.collect()  # a compiled function may be in a cycle
    until(lambda: len(server.backend.registry.entries) == 1, "the end of the other sessions")


def test_a_step_with_collectives_runs_as_a_plan(here: gradwire.Session) -> None:
    net = model()
    step = gradwire.compile(training(net, gradwire.optim.Adam(net.parameters())), data_parallel=WORKERS)
    for _ in range(5):
        step(*batch())
    (described,) = step.describe()[3:]
    assert "as a plan and 1 time step by step, of which the plan was made" in described
    step.close()


def test_results_are_means_of_the_values_at_the_end_of_the_step(here: gradwire.Session) -> None:
    """Also those that the step changes after its backward, or that share memory."""
    nets = [model(), model()]

    def stepping(net: Any) -> Step:
        optimizer = gradwire.optim.SGD(net.parameters(), lr=0.1)

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            doubled = (loss * 2).detach()
            shown = doubled.detach()
            loss.backward()
            optimizer.step()
            shown.add_(1)
            half = x.float().mean()
            return loss, doubled, loss.detach(), net(x).mean(), half

        return step

    divided, whole = gradwire.compile(stepping(nets[0]), data_parallel=2), stepping(nets[1])
    for number in range(5):
        found, expected = divided(*batch()), whole(*batch())
        for one, other in zip(found, expected, strict=True):
            assert one.dtype is other.dtype and one.item() == pytest.approx(other.item(), rel=1e-6)
        if number > 1:  # it is divided
            found[0].add_(1)
            assert found[2].item() == pytest.approx(expected[2].item(), rel=1e-9)  # they share nothing
    divided.close()


@pytest.mark.parametrize("dtypes", ["equal", "different", "strided"])
def test_rows_of_all_dtypes_and_layouts_reach_their_workers(here: gradwire.Session, dtypes: str) -> None:
    weight = gradwire.ones(3, dtype=gradwire.float64, requires_grad=True)
    bool_or_float = gradwire.bool if dtypes == "different" else gradwire.float64

    def step(x: Any, mask: Any, scale: Any) -> Any:
        weight.grad = None
        made = x * weight * scale * mask
        made.mean().backward()
        return made.detach(), {"positive": made.detach() > 0}

    divided = gradwire.compile(step, data_parallel=2, sliced=("x", "mask"))
    for number in range(5):
        x = gradwire.arange(12, dtype=gradwire.float64).reshape(4, 3) + number
        if dtypes == "strided":
            x = x.t().contiguous().t()
        mask = (gradwire.arange(12).reshape(4, 3) % 2).to(bool_or_float)
        scale = gradwire.full((3,), 2.0 + number, dtype=gradwire.float64)
        found, others = divided(x, mask, scale)
        assert others["positive"].tolist() == (x * scale * mask > 0).tolist()
        assert found.tolist() == (x * scale * mask).tolist()
        assert weight.grad.tolist() == pytest.approx((x * scale * mask).sum(0).div(12).tolist())
    divided.close()


def test_changes_between_the_steps_reach_all_workers(here: gradwire.Session) -> None:
    """Whatever changes a parameter: an op, loaded values, `data`, another compiled function."""
    nets = [model(), model()]
    steps: list[Any] = []
    for number, net in enumerate(nets):
        plain = training(net, gradwire.optim.SGD(net.parameters(), lr=0.1, momentum=0.9))
        steps.append(gradwire.compile(plain, data_parallel=2) if number else plain)

    def scaled(value: Any) -> None:
        with gradwire.no_grad():
            nets[0][0].weight.mul_(value)
            nets[1][0].weight.mul_(value)

    other = gradwire.compile(scaled)
    changes = [
        lambda: scaled(gradwire.tensor(0.5, dtype=gradwire.float64)),
        lambda: [net.load_state_dict(model().state_dict()) for net in nets],
        lambda: [setattr(net[2].bias, "data", gradwire.ones(3, dtype=gradwire.float64)) for net in nets],
        *[lambda: other(gradwire.tensor(0.9, dtype=gradwire.float64))] * 3,
        lambda: [net.zero_grad() for net in nets],
    ]
    for change in changes:
        for _ in range(4 if change is changes[0] else 2):
            for step in steps:
                step(*batch())
        change()
    for _ in range(3):  # the first of them is recorded undivided: it begins without gradients
        for step in steps:
            step(*batch())
    assert weights(nets[1]) == pytest.approx(weights(nets[0]), rel=1e-9, abs=1e-12)
    assert workers_of(steps[1]).differing(list(nets[1].parameters())) == []


def test_each_worker_draws_its_own_random_numbers_and_weights_stay_equal(here: gradwire.Session) -> None:
    gradwire.manual_seed(3)
    net = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3)).double()
    optimizer = gradwire.optim.SGD(net.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        mask = nn.functional.dropout(gradwire.ones_like(x))
        net(x).square().mean().backward()
        optimizer.step()
        return mask

    divided: Any = gradwire.compile(step, data_parallel=2)
    masks = [divided(batch()[0]).tolist() for _ in range(6)]
    assert masks[-1][:8] != masks[-1][8:] and masks[-1] != masks[-2]
    assert workers_of(divided).differing(list(net.parameters())) == []


def _with_autograd_grad(net: Any, x: Any, y: Any) -> None:
    found = gradwire.autograd.grad(nn.functional.cross_entropy(net(x), y), list(net.parameters()))
    with gradwire.no_grad():
        for each, gradient in zip(net.parameters(), found, strict=True):
            each.sub_(gradient)


def _with_a_sum(net: Any, x: Any, y: Any) -> None:
    net.zero_grad()
    nn.functional.cross_entropy(net(x), y, reduction="sum").backward()


def _with_a_sum_and_dropout(net: Any, x: Any, y: Any) -> None:
    net.zero_grad()
    nn.functional.cross_entropy(nn.functional.dropout(net(x), 0.1), y, reduction="sum").backward()


def _with_rows_that_depend_on_others(net: Any, x: Any, y: Any) -> None:
    net.zero_grad()
    out = net(x)
    (out - out.mean(0)).square().mean().backward()


def _with_gradients_of_before(net: Any, x: Any, y: Any) -> None:
    nn.functional.cross_entropy(net(x), y).backward()


def _with_a_count(net: Any, x: Any, y: Any) -> Any:
    net.zero_grad()
    out = net(x)
    nn.functional.cross_entropy(out, y).backward()
    return (out.argmax(1) == y).sum()


def _with_a_value_that_is_read(net: Any, x: Any, y: Any) -> Any:
    net.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    return net[0].weight.sum().item()


def _with_a_change_of_a_slice(net: Any, x: Any, y: Any) -> None:
    net.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    x.mul_(2)


REFUSED: list[tuple[Step, str]] = [
    (_with_autograd_grad, r"autograd\.grad"),
    (_with_a_sum, r"the gradient of float64\[.*differs by .* The loss must be a mean"),
    (_with_a_sum_and_dropout, "the norm of its gradients is .* The loss must be a mean"),
    (_with_rows_that_depend_on_others, "no row may depend on others"),
    (_with_gradients_of_before, r"begin with zero_grad\(\)"),
    (_with_a_change_of_a_slice, "it changes an argument in place"),
    (_with_a_count, r"it returns int64\[\] for any number of rows"),
    (_with_a_value_that_is_read, "a value is read in the middle"),
]


@pytest.mark.parametrize(("function", "told"), REFUSED, ids=lambda each: getattr(each, "__name__", ""))
def test_what_cannot_be_divided_is_refused_and_changes_nothing(
    here: gradwire.Session, function: Step, told: str
) -> None:
    net = model()
    step: Any = gradwire.compile(lambda x, y: function(net, x, y), data_parallel=2)
    whole = 0
    with pytest.raises(NotImplementedError, match=told):  # noqa: PT012
        for _ in range(5):
            before = weights(net)
            step(*batch())
            whole += 1
    if function is not _with_autograd_grad:  # which made its undivided step before it was refused
        assert weights(net) == before
    assert whole < 5


@pytest.mark.parametrize(
    ("reduction", "seed"), [("sum", 18), ("sum", 59), ("mean", 18), ("mean", 27), ("mean", 58), ("mean", 3)]
)
def test_random_numbers_neither_hide_a_sum_nor_refuse_a_mean(here: gradwire.Session, reduction: str, seed: int) -> None:
    """With these seeds one step's gradients have a misleading size."""
    net = model()
    gradwire.manual_seed(seed)

    def function(x: Any, y: Any) -> None:
        net.zero_grad()
        out = nn.functional.dropout(net(x), 0.4)
        nn.functional.cross_entropy(out, y, reduction=reduction).backward()

    step: Any = gradwire.compile(function, data_parallel=2)
    if reduction == "sum":
        with pytest.raises(NotImplementedError, match="the norm of its gradients"):  # noqa: PT012
            for _ in range(3):
                step(*batch())
    else:
        for _ in range(3):
            step(*batch())
    step.close()


def test_closing_waits_for_the_steps_before(here: gradwire.Session) -> None:
    net = model()
    optimizer = gradwire.optim.SGD(net.parameters(), lr=0.1)
    step: Any = gradwire.compile(training(net, optimizer), data_parallel=2)
    reference = model()
    other = gradwire.optim.SGD(reference.parameters(), lr=0.1)
    for _ in range(6):
        step(*batch())
        training(reference, other)(*batch())
    step.close()
    for one, wanted in zip(net.parameters(), reference.parameters(), strict=True):
        assert gradwire.allclose(one, wanted)


def test_batch_statistics_are_refused_in_training_only(here: gradwire.Session) -> None:
    net = nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)).double()
    step: Any = gradwire.compile(training(net, gradwire.optim.SGD(net.parameters(), lr=0.1)), data_parallel=2)
    with pytest.raises(NotImplementedError, match=r"batch_norm\(\) takes the statistics of the batch"):
        step(*batch())
    net.eval()
    for _ in range(4):
        step(*batch())
    assert workers_of(step).differing(list(net.parameters())) == []


def test_tensors_that_differ_between_workers_are_told(here: gradwire.Session) -> None:
    """Here a number of the rows, which the gradients do not show."""
    net, seen = model(), gradwire.zeros(1, dtype=gradwire.float64)

    def step(x: Any, y: Any) -> None:
        net.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        seen.copy_(x.sum())

    divided: Any = gradwire.compile(step, data_parallel=2)
    divided(*batch())
    with pytest.raises(NotImplementedError, match=r"other values on each worker \(float64\[1\]\)"):  # noqa: PT012
        for _ in range(3):
            divided(*batch())
    assert seen.item() == pytest.approx(batch()[0].sum().item())  # as the undivided steps left it


def test_an_interrupted_step_leaves_no_worker_behind(here: gradwire.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    net = model()
    step: Any = gradwire.compile(training(net, gradwire.optim.SGD(net.parameters(), lr=0.1)), data_parallel=2)
    for _ in range(4):
        step(*batch())

    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("gradwire._compile.recordings.Recording.run", interrupted)  # the other has its commands
        with pytest.raises(KeyboardInterrupt):
            step(*batch())
    for _ in range(3):
        step(*batch())
    assert workers_of(step).differing(list(net.parameters())) == []


def test_bad_arguments_are_refused(here: gradwire.Session) -> None:
    step: Any = gradwire.compile(lambda x: x.sum(), data_parallel=3)
    for given, told in ((gradwire.ones(4), "4 rows, which 3 workers cannot share"), (gradwire.ones(()), "fewer rows")):
        with pytest.raises(ValueError, match=told):
            step(given)
    with pytest.raises(ValueError, match="no tensor argument that is sliced"):
        step(1)
    with pytest.raises(ValueError, match="may not require a gradient"):
        step(gradwire.ones(3, requires_grad=True))
    for options in ({"repeat": 2}, {"batch_size": 2}, {"verify": True}):
        with pytest.raises(ValueError, match="data_parallel is not combined"):
            gradwire.compile(len, data_parallel=2, **options)
    with pytest.raises(ValueError, match="data_parallel must be a whole number"):
        gradwire.compile(len, data_parallel=0)


def test_arguments_that_are_not_sliced_go_whole_to_every_worker(here: gradwire.Session) -> None:
    nets = [model(), model()]

    def step(net: Any, x: Any, y: Any, factor: Any) -> Any:
        net.zero_grad()
        loss = nn.functional.cross_entropy(net(x) * factor, y)
        loss.backward()
        with gradwire.no_grad():
            for each in net.parameters():
                each.sub_(each.grad)
        return loss

    divided: Any = gradwire.compile(functools.partial(step, nets[1]), data_parallel=2, sliced=(0, 1))
    for number in range(6):
        factor = gradwire.tensor([1.0, 2.0, 3.0], dtype=gradwire.float64) * (number + 1)
        x, y = batch()
        expected, given = step(nets[0], x, y, factor), divided(x, y, factor)
        assert given.item() == pytest.approx(expected.item(), rel=1e-9)
    assert weights(nets[1]) == pytest.approx(weights(nets[0]), rel=1e-9)


def test_a_whole_argument_that_the_step_changes_is_refused_once_the_change_was_made(here: gradwire.Session) -> None:
    net, factor = model(), gradwire.ones(1, dtype=gradwire.float64)

    def step(x: Any, y: Any, factor: Any) -> None:
        net.zero_grad()
        (nn.functional.cross_entropy(net(x), y) * factor).sum().backward()
        factor.mul_(0.5)

    divided: Any = gradwire.compile(step, data_parallel=2, sliced=(0, 1))
    with pytest.raises(NotImplementedError, match="it changes an argument in place"):
        divided(*batch(), factor)
    assert factor.tolist() == [0.5]


def test_a_dead_worker_is_told_by_name_and_the_next_call_begins_anew() -> None:
    with running(WORKERS) as server:
        session = open_session(
            server.address, token=None, ca=None, cert=None, key=None, tls=None, patience=None, device_type=None
        )
        with session:
            net = model()
            step: Any = gradwire.compile(training(net, gradwire.optim.SGD(net.parameters(), lr=0.1)), data_parallel=2)
            for _ in range(4):
                step(*batch())[0].item()
            other = workers_of(step).sessions[1]
            entry = server.backend.registry.entries[other.session_id]
            os.kill(entry.worker.pid, signal.SIGKILL)  # type: ignore[attr-defined]
            with pytest.raises(RuntimeError, match=r"rank 1|worker 1"):  # noqa: PT012
                for _ in range(1000):
                    step(*batch())[0].item()
            before = weights(net)
            for _ in range(4):
                step(*batch())
            assert weights(net) != before
            assert workers_of(step).sessions[1] is not other
            assert workers_of(step).differing(list(net.parameters())) == []
        session.close()


def test_arguments_that_require_grad_are_refused_since_only_gradients_of_captures_are_averaged(
    here: gradwire.Session,
) -> None:
    def step(x: Any, factor: Any) -> Any:
        loss = (x * factor).mean()
        loss.backward()
        return loss

    divided: Any = gradwire.compile(step, data_parallel=2, sliced=(0,))
    x, factor = gradwire.ones(4, 3), gradwire.ones(3, requires_grad=True)
    with pytest.raises(NotImplementedError, match="an argument that requires grad is not sliced"):
        divided(x, factor)
    with pytest.raises(ValueError, match="a sliced argument may not require a gradient"):
        divided(x.requires_grad_(), factor.detach())
    assert factor.grad is None


def test_a_full_memo_is_not_taken_for_a_refusal(here: gradwire.Session) -> None:
    net = model()
    step: Any = gradwire.compile(training(net, gradwire.optim.SGD(net.parameters(), lr=0.1)), data_parallel=2)
    for _ in range(4):
        step(*batch())
    workers = workers_of(step)
    for each in workers.sessions:
        each.memo.clear()  # as the 65,537th command of a program does
    step(*batch())
    assert workers_of(step) is workers


def test_a_later_seed_reaches_all_workers(here: gradwire.Session) -> None:
    def step(x: Any) -> Any:
        return nn.functional.dropout(x * weight, 0.5)

    weight = gradwire.ones(64)
    divided: Any = gradwire.compile(step, data_parallel=2)
    for _ in range(3):
        divided(gradwire.ones(4, 64))
    found: dict[Any, list[Any]] = {}
    for seed in (5, 6, 5):
        for algorithm in ("mt19937", "pcg64"):
            gradwire.manual_seed(seed, algorithm=algorithm)
            masks = [divided(gradwire.ones(4, 64)).tolist() for _ in range(2)]
            found.setdefault((seed, algorithm), []).append(masks)
    rows = [masks[0][2:] for each in found.values() for masks in each]  # of the other worker
    for masks in found.values():
        assert all(each == masks[0] for each in masks)
    assert len({str(each) for each in rows}) == 4
    assert all(masks[0][:2] != masks[0][2:] for each in found.values() for masks in each)


def test_threads_make_one_step_after_the_other(here: gradwire.Session) -> None:
    nets = [model(), model()]
    plain = training(nets[0], gradwire.optim.SGD(nets[0].parameters(), lr=0.1))
    step: Any = gradwire.compile(training(nets[1], gradwire.optim.SGD(nets[1].parameters(), lr=0.1)), data_parallel=2)
    x, y = batch()
    errors: list[BaseException] = []

    def work() -> None:
        try:
            with here:
                for _ in range(10):
                    step(x, y)
        except BaseException as error:  # noqa: BLE001 - shown below
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(200)
    assert errors == []
    for _ in range(30):
        plain(x, y)
    assert weights(nets[1]) == pytest.approx(weights(nets[0]), rel=1e-9, abs=1e-12)


def test_a_call_waits_for_another_threads_for_a_limited_time(
    here: gradwire.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_parallel, "_LOCK_SECONDS", 0.1)
    entered, ends = threading.Event(), threading.Event()
    divided: Any = gradwire.compile(lambda x: x * 2, data_parallel=2)
    real = DataParallel._call

    def slow(self: Any, args: Any, kwargs: Any) -> Any:
        entered.set()
        ends.wait(100)
        return real(self, args, kwargs)

    monkeypatch.setattr(DataParallel, "_call", slow)

    def work() -> None:
        with here:
            divided(gradwire.ones(2))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert entered.wait(100)
        with pytest.raises(TimeoutError, match=r"another thread has been making this step for 0\.1 seconds"):
            divided(gradwire.ones(2))
    finally:
        ends.set()
        thread.join(100)
    assert divided(gradwire.ones(2)).tolist() == [2, 2]
