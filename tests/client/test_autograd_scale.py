"""Threads on one session, concurrent sessions, deep and wide graphs: none of them leaves tensors behind."""

import gc
import threading
from collections.abc import Callable, Iterator

import pytest

import gradwire


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run the work in that many threads at once; what one raises is raised here."""
    failures: list[BaseException] = []
    start = threading.Barrier(count)

    def run(number: int) -> None:
        try:
            start.wait(timeout=200)
            work(number)
        except BaseException as error:  # noqa: BLE001 - told to the test
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=200)
    assert not any(thread.is_alive() for thread in threads)
    if failures:
        raise failures[0]


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_no_gradient_is_lost_where_many_threads_add_to_one_leaf(session: gradwire.Session) -> None:
    x = gradwire.tensor([1.0, 2.0], requires_grad=True)

    def work(number: int) -> None:
        for _ in range(25):
            (x * (number + 1)).sum().backward()

    in_threads(4, work)
    assert x.grad.tolist() == [25.0 * (1 + 2 + 3 + 4)] * 2


def test_threads_that_share_a_graph_each_get_their_own_gradients(session: gradwire.Session) -> None:
    x = gradwire.tensor([1.0, 2.0, 3.0], requires_grad=True)
    h = x * x
    found: dict[int, list[float]] = {}

    def work(number: int) -> None:
        for _ in range(10):
            (g,) = gradwire.autograd.grad((h * number).sum(), x, retain_graph=True)
            found[number] = g.tolist()

    in_threads(4, work)
    assert found == {number: [2.0 * number, 4.0 * number, 6.0 * number] for number in range(4)}


def test_in_place_changes_of_several_threads_all_happen(session: gradwire.Session) -> None:
    x = gradwire.zeros(4)

    def work(number: int) -> None:
        row = x[number]
        for _ in range(25):
            row.add_(1.0)
            x.add_(1.0)

    in_threads(4, work)
    assert x.tolist() == [125.0] * 4


def test_sessions_side_by_side_keep_apart(server_address: str) -> None:
    found: dict[int, float] = {}

    def work(number: int) -> None:
        with gradwire.connect(server_address) as session:
            x = gradwire.tensor([float(number)], requires_grad=True)
            for _ in range(20):
                (x * x).backward()
            found[number] = x.grad.item()
        session.close()

    in_threads(2, work)
    assert found == {0: 0.0, 1: 40.0}


def test_grad_mode_is_the_threads_own(session: gradwire.Session) -> None:
    x = gradwire.tensor([1.0], requires_grad=True)
    seen: dict[int, set[bool]] = {0: set(), 1: set()}

    def work(number: int) -> None:
        for _ in range(50):
            with gradwire.set_grad_enabled(bool(number)):
                seen[number].add((x * 2).requires_grad)

    in_threads(2, work)
    assert seen == {0: {False}, 1: {True}}


def test_a_chain_of_a_hundred_thousand_goes_forward_and_back(deferring: gradwire.Session) -> None:
    x = gradwire.tensor(1.0, requires_grad=True)
    y = x
    for _ in range(100_000):
        y = y + 1.0
    y.backward()
    assert (y.item(), x.grad.item()) == (100_001.0, 1.0)


def test_a_long_chain_of_changes_of_one_view(deferring: gradwire.Session) -> None:
    x = gradwire.ones(2, requires_grad=True)
    y = x * 1.0
    v = y[0]
    for _ in range(3_000):
        v.add_(1.0)
    y.sum().backward()
    assert (y.tolist(), x.grad.tolist()) == ([3001.0, 1.0], [1.0, 1.0])


def test_ten_thousand_consumers_of_one_tensor(deferring: gradwire.Session) -> None:
    x = gradwire.tensor(1.0, requires_grad=True)
    h = x * 2.0
    parts = [h * 1.5 for _ in range(10_000)]
    gradwire.stack(parts).sum().backward()
    assert x.grad.item() == 30_000.0


def test_a_graph_goes_with_its_last_proxy(deferring: gradwire.Session, no_collector: None) -> None:
    x = gradwire.ones(1000, requires_grad=True)
    before = deferring.describe()
    for _ in range(3):
        y = x * x
        v = y[10:]
        v.mul_(x[10:])
        w = y.view(10, 100).t()[3]
        z = (y * y).sum() + w.sum() + v.detach().sum()
        z.backward(retain_graph=True)
        (first,) = gradwire.autograd.grad(z, x, create_graph=True)
        x.grad = None
        del y, v, w, z, first
    after = deferring.describe()
    assert (after.bytes, after.tensor_count) == (before.bytes, before.tensor_count)


@pytest.mark.filterwarnings("ignore:backward.. with create_graph")
def test_the_cycle_of_create_graph_is_broken_by_dropping_the_gradient(
    deferring: gradwire.Session, no_collector: None
) -> None:
    x = gradwire.ones(1000, requires_grad=True)
    before = deferring.describe().bytes
    (x.exp() * x).sum().backward(create_graph=True)
    assert deferring.describe().bytes > before
    x.grad = None
    assert deferring.describe().bytes == before


def test_a_version_conflict_names_the_lines_that_made_and_need_the_value(session: gradwire.Session) -> None:
    for _ in range(3):
        x = gradwire.tensor([1.0, 2.0], requires_grad=True)
        y = x.exp()  # the value
        z = y * x  # its use
        y.add_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation") as refusal:
            z.sum().backward()
        assert "y = x.exp()  # the value" in str(refusal.value)
        assert "z = y * x  # its use" in str(refusal.value)
        assert "test_autograd_scale.py" in str(refusal.value)


def test_anomaly_mode_names_the_line_that_made_a_nan(session: gradwire.Session) -> None:
    x = gradwire.tensor([0.0], requires_grad=True)
    for _ in range(3):
        with gradwire.autograd.set_detect_anomaly(True):
            y = (x * 1.0).sqrt()  # the culprit
            with pytest.raises(RuntimeError, match=r"SqrtBackward0.*returned nan") as refusal:
                (y * 0.0).sum().backward()
            assert "y = (x * 1.0).sqrt()  # the culprit" in str(refusal.value)
    assert x.grad is None
