"""Operators that come again at one line: the short way gives what `_call` gives, in each mode, for each operand."""

import operator
import threading
from contextlib import nullcontext

import pytest

import gradwire
from gradwire._tensor import operators, repeats
from gradwire._tensor.call import _number_places
from tests.client.oracle import agree

OPERATORS = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "pow": operator.pow,
}
NUMBERS = [2.0, -0.5, 3, 0, 1e5, -70000.0, 1e39, float("inf"), float("nan"), True, 1 << 60]


@pytest.fixture
def short(deferring, monkeypatch):
    """The operators that went the short way, in order."""
    taken = []
    plain_result = repeats.plain_result

    def noted(session, entry, *given):
        taken.append(entry.name)
        return plain_result(session, entry, *given)

    monkeypatch.setattr(repeats, "plain_result", noted)
    return taken


def facts(tensor):
    return [tensor, tensor.dtype, tensor.requires_grad, tensor.is_leaf, type(tensor.grad_fn).__name__, tensor._version]


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_numbers_of_all_kinds_are_operands_as_in_pytorch(name, dtype):
    def case(t):
        found = []
        for number in NUMBERS * 2:
            for flag in (False, True):
                x = t.tensor([1, 2, 3], dtype=getattr(t, dtype))
                if flag and x.is_floating_point():
                    x.requires_grad_()
                try:
                    y = OPERATORS[name](x, number)
                except (RuntimeError, OverflowError):
                    found.append("refused")
                    continue
                found.append(facts(y))
                if y.requires_grad:
                    y.sum().backward()
                    found.append(x.grad)
        return found

    agree(case)


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize("name", [*OPERATORS, "matmul"])
def test_two_tensors_are_operands_as_in_pytorch(name):
    apply = OPERATORS.get(name, operator.matmul)

    def case(t):
        found = []
        for first, second in [(False, False), (True, False), (False, True), (True, True)] * 2:
            for dtype in (t.float32, t.float64):
                x = t.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=first)
                y = t.tensor([[0.5, 2.0], [1.0, 3.0]], dtype=dtype if name != "matmul" else t.float32)
                y.requires_grad_(second)
                z = apply(x, y)
                found.append(facts(z))
                if z.requires_grad:
                    z.sum().backward()
                found += [x.grad, y.grad]
        x = t.ones(2, 2, requires_grad=True)
        for _ in range(4):
            apply(x, x).sum().backward()
        return [*found, x.grad]

    agree(case)


@pytest.mark.usefixtures("session")
def test_the_same_line_follows_the_mode_it_runs_in():
    def once(x):
        return x * 1.5

    def case(t):
        found = []
        for _ in range(3):
            x = t.ones(2, requires_grad=True)
            found.append(facts(once(x)))
            with t.no_grad():
                found.append(facts(once(x)))
            with t.inference_mode():
                found.append(once(x).is_inference())
            t.set_default_dtype(t.float64)
            try:
                found += [facts(once(x)), once(t.ones(2, dtype=t.int64)).dtype]
            finally:
                t.set_default_dtype(t.float32)
            found += [once(t.ones(2, dtype=t.int64)).dtype, t.vmap(once)(t.ones(3, 2)), t.func.grad(once)(t.ones(()))]
            with t.autocast("cpu", dtype=t.bfloat16):
                found.append(facts(x @ x))
            found.append(t.func.jvp(once, (x.detach(),), (x.detach(),)))
        return found

    agree(case)


@pytest.mark.usefixtures("session")
def test_a_view_of_a_changed_base_is_an_operand_with_its_new_node():
    def case(t):
        found = []
        for _ in range(3):
            w = t.ones(4, requires_grad=True)
            base = w * 2.0
            view = base[:2]
            for factor in (2.0, 3.0):
                y = view * factor
                found.append([y, view._version, type(view.grad_fn).__name__])
                base.mul_(2.0)
                y = y + view
            y.sum().backward()
            found.append(w.grad)
        return found

    agree(case)


@pytest.mark.usefixtures("session")
def test_what_an_operand_was_saved_as_is_checked_in_backward():
    def case(t):
        found = []
        for _ in range(4):
            x = t.ones(2, requires_grad=True)
            y = x + 1.0
            z = y * y
            with t.no_grad():
                y += 1.0
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                z.sum().backward()
            found.append(x.grad)
        return found

    agree(case)


def test_an_operator_that_comes_again_goes_the_short_way(short):
    x = gradwire.ones(2, requires_grad=True)
    for _ in range(4):
        y = x * 2.0
        y = y + 1
        y = 3.0 - y
        y = y / x
        y = y @ y
    assert [short.count(op) for op in ("mul", "add", "rsub", "div", "matmul")] == [2] * 5


def test_the_short_way_sends_what_the_long_one_sends(deferring, monkeypatch):
    def loop(x):
        for step in range(3):
            x = x * 1.5 + x
            x = x - 2
            x = x / (x * x + 0.25 * step)
        return x

    def sent():
        x = gradwire.ones(3, requires_grad=True)
        deferring.sync()
        deferring.check_at = 1 << 30
        first = next(deferring.ids)
        y = loop(x)
        items = [(data, entry) for data, entry, is_call in deferring.buffer if is_call]
        nodes, waiting = [], [y._edge]
        while waiting:
            node = waiting.pop()
            nodes.append((node.entry, node.order - first, len(node), [type(each) for each in node.values]))
            waiting.extend(each for each in node if isinstance(each, list))
        deferring.sync()
        words = [memoryview(data).cast("Q").tolist() for data, _ in items]
        near = range(first - 1, first + 1000)
        return [entry for _, entry in items], [[w - first if w in near else w for w in each] for each in words], nodes

    for _ in range(3):
        loop(gradwire.ones(3, requires_grad=True))
    short = sent()
    monkeypatch.setattr(operators, "repeated", lambda *given: None)
    assert short == sent()
    assert len(short[0]) == 18


def test_operands_of_two_sessions_are_refused_each_time(server_address, deferring):
    x = gradwire.ones(2)
    with gradwire.connect(server_address) as other:
        y = gradwire.ones(2)
        for second in (x, x, x, y, x, y):
            with nullcontext() if second is x else pytest.raises(ValueError, match="session"):
                x + second
        other.close()


def test_threads_that_share_a_tensor_repeat_its_operators(short):
    x = gradwire.ones(4)
    found = {}

    def work(number):
        y = x
        for _ in range(200):
            y = y * 1.0 + float(number)
        found[number] = y

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [found[number].tolist() for number in range(4)] == [[1.0 + 200 * number] * 4 for number in range(4)]
    assert len(short) > 1000


def test_a_whole_number_is_an_operand_of_each_operator_with_a_short_way():
    assert all(1 in _number_places(op) for op in ("add", "sub", "rsub", "mul", "div", "pow"))
