"""Small values that the client finds out itself: they are the server's and PyTorch's, and take no wait each."""

import itertools
import random
import threading

import numpy as np
import pytest

import gradwire
from gradwire._proxy.draw_order import DrawOrder
from gradwire._tensor import values as reading
from gradwire._tensor.values import read_array
from tests.client.oracle import torch


def _drawn(t, choice, chances):
    """A random tensor, by one of many ops that draw."""
    shape = choice.choice([(), (1,), (3,), (2, 5)])
    normal = choice.choice([(), (1,), (3,), (15,), (16,), (17,), (40,)])
    draws = [
        lambda: t.rand(shape),
        lambda: t.rand(shape, dtype=t.float64),
        lambda: t.rand_like(chances),
        lambda: t.randint(choice.choice([0, -5]), choice.choice([7, 1000]), shape),
        lambda: t.randint(0, 1 << 40, shape),
        lambda: t.randint_like(t.zeros(shape, dtype=t.int64), 3, 9),
        lambda: t.randperm(choice.choice([0, 1, 2, 17, 300])),
        lambda: t.randn(normal),
        lambda: t.randn(normal, dtype=t.float64),
        lambda: t.multinomial(chances, 1),
        lambda: t.bernoulli(chances),
        lambda: t.empty(shape, dtype=t.int64).random_(),
        lambda: t.empty(shape, dtype=t.int64).random_(2, 9),
        lambda: t.empty(shape, dtype=t.int64).random_(4),
    ]
    others = [
        lambda: t.rand_like(chances.t()),
        lambda: t.nn.functional.dropout(chances, 0.5),
        lambda: t.multinomial(chances, 2, replacement=True),
        lambda: t.empty(shape).uniform_(1, 2),
        lambda: t.rand(5000),
        lambda: t.manual_seed(choice.randrange(99)) and t.rand(1),
        lambda: t.rand(shape, generator=t.Generator().manual_seed(3))[..., None],
    ]
    return (choice.choice(others) if choice.random() < 0.04 else choice.choice(draws))()


@pytest.mark.parametrize("seed", range(30))
def test_random_numbers_that_the_client_draws_are_the_servers_and_pytorchs(deferring, seed):
    def run(t, seen):
        choice = random.Random(seed)
        t.manual_seed(seed)
        weights = [[0.1, 0.3, 0.6], [0.2, 0.5, 0.3]]
        chances = t.tensor(weights, dtype=choice.choice([t.float32, t.float64]))
        for _ in range(60):
            made = _drawn(t, choice, chances)
            if choice.random() < 0.8:
                seen.append((made, made.tolist()))

    theirs, ours = [], []
    run(torch, theirs)
    run(gradwire, ours)
    known = 0
    for (_, expected), (made, values) in zip(theirs, ours, strict=True):
        np.testing.assert_allclose(values, expected, rtol=1e-6)  # normal numbers may differ in the last digit
        np.testing.assert_array_equal(values, read_array(made))
        held = getattr(made, "_known", None)
        known += held is not None and held.drawn and held.values() is not None
    assert known > 3


def test_a_loop_that_draws_and_reads_does_not_wait(deferring, reads):
    def run(t):
        t.manual_seed(5)
        return [
            (t.rand(1).item(), t.randint(7, (2,)).tolist(), bool(t.rand(()) < 0.3), t.randperm(5).tolist())
            for _ in range(100)
        ]

    assert run(gradwire) == run(torch)
    assert reads[0] <= 4


def test_items_of_drawn_indices_take_no_read(deferring, reads):
    data, parts = gradwire.arange(50), []
    for _ in range(20):
        start = gradwire.randint(40, (8,))
        parts.append((start, [data[each : each + 3] for each in start]))
    assert reads[0] <= 4
    for start, shown in parts:
        assert [part.tolist() for part in shown] == [[each, each + 1, each + 2] for each in read_array(start).tolist()]


def test_drawn_values_follow_changes_of_their_tensor(deferring):
    def run(t):
        t.manual_seed(1)
        seen = []
        for step in range(12):
            x, y = t.rand(1), t.randint(9, (4,))
            if step % 3 == 0:
                x.mul_(2)
                y[1] = 70
            elif step % 3 == 1:
                x[0] = 5
                y.view(2, 2).t_().add_(1)
            else:
                x.data = t.ones(1)
                y.resize_(2)
            seen.append((x.item(), y.tolist(), bool(x < 1)))
        return seen

    assert run(gradwire) == run(torch)


def test_draws_after_backward_checkpoints_and_states_are_pytorchs(deferring):
    def run(t):
        t.manual_seed(2)
        weight = t.ones(3, requires_grad=True)
        seen = []
        for step in range(8):
            seen += [t.rand(1).item() for _ in range(4)]
            if step % 4 == 0:
                loss = t.utils.checkpoint.checkpoint(
                    lambda x: t.nn.functional.dropout(x, 0.5) * x, weight, use_reentrant=False
                ).sum()
                seen.append(t.rand(1).item())
                loss.backward()
            elif step % 4 == 1:
                state = t.get_rng_state()
                seen.append(t.rand(1).item())
                t.set_rng_state(state)
            elif step % 4 == 2:
                with t.random.fork_rng():
                    t.manual_seed(9)
                    seen += [t.rand(1).item() for _ in range(4)]
            else:
                seen += list(itertools.chain.from_iterable(t.utils.data.DataLoader(range(9), shuffle=True)))
        return [float(each) for each in seen]

    assert run(gradwire) == run(torch)


def test_draws_of_several_threads_are_read_from_the_server(deferring):
    wrong = []

    def draw():
        with deferring:
            for _ in range(60):
                made = gradwire.rand(1)
                if made.item() != read_array(made).item():
                    wrong.append(made)

    draw()
    threads = [threading.Thread(target=draw) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


def _draw_after_multinomial(chances):
    gradwire.multinomial(chances, 1)
    made = gradwire.rand(1)
    return made, made.item()


def test_a_refused_op_does_not_shift_the_draws(deferring):
    def draw_until_told(chances):
        gradwire.multinomial(chances, 1)
        deferring.sync()

    gradwire.manual_seed(4)
    for step in range(30):
        chances = gradwire.tensor([0.5, 0.5]) * (-1.0 if step % 10 == 9 else 1.0)
        if step % 10 == 9:
            with pytest.raises(RuntimeError, match="probability"):
                draw_until_told(chances)
            continue
        made, value = _draw_after_multinomial(chances)
        assert value == read_array(made).item()


def test_single_items_of_a_small_tensor_take_one_read(deferring, reads):
    labels, table = gradwire.arange(90) % 7, gradwire.arange(12.0).reshape(3, 4)
    assert [int(labels[i]) for i in range(-90, 90)] == [i % 90 % 7 for i in range(-90, 90)]
    assert reads[0] == 1
    assert [table[i, -j].item() for i in range(3) for j in range(1, 5)] == [
        4 * i + 4 - j for i in range(3) for j in range(1, 5)
    ]
    assert reads[0] == 2
    same = [(i, j) for i in range(9) for j in range(9) if labels[i] == labels[j]]
    assert same == [(i, j) for i in range(9) for j in range(9) if i % 7 == j % 7]
    assert reads[0] == 2


@pytest.mark.parametrize("seed", range(12))
def test_single_items_follow_changes(deferring, seed):
    def run(t):
        choice, seen = random.Random(seed), []
        x = t.arange(6.0).reshape(2, 3)
        leaf = t.tensor([1.0, 2.0], requires_grad=True)
        optimizer = t.optim.SGD([leaf], lr=0.5, momentum=0.9)
        for _ in range(40):
            change = choice.randrange(9)
            if change == 0:
                x[choice.randrange(2), choice.randrange(3)] += 1
            elif change == 1:
                x.view(-1)[choice.randrange(6)] = 9
            elif change == 2:
                x[0].mul_(2)
            elif change == 3:
                x.t_()
                x.t_() if choice.random() < 0.5 else x.resize_(2, 3)
            elif change == 4:
                x.data = t.arange(6.0).reshape(2, 3) + choice.randrange(5)
            elif change == 5:
                optimizer.zero_grad()
                (leaf * leaf).sum().backward()
                optimizer.step()
            elif change == 6:
                t.add(x, 1, out=x)
            i, j = choice.randrange(2), choice.randrange(3)
            item = x[i, j]
            less = item < x[j % 2, i]
            seen += [item.item(), leaf[i].item(), x[i][j].item()]
            if choice.random() < 0.5:
                x[j % 2, i] = 4
            item += 1
            seen += [bool(less), item.item(), x[i, j].item(), bool(x[i, j] >= 4)]
        return seen

    np.testing.assert_allclose(run(gradwire), run(torch), rtol=1e-6)


def test_comparisons_of_known_values_are_pytorchs(deferring):
    values = [0.1, 0.3, 1.0, -2.0, float("nan"), float("inf"), 16777217.0, 0.0]
    whole = [0, 1, -3, 2**31 - 1, 2**53 + 1, 7]
    numbers = [0.1, 0.30000001192092896, 1, -2, 16777217, 2**53 + 1, 0.5, float("nan"), float("inf"), 1e39, True, 0]

    def run(t):
        seen = []
        for kind, given in ((t.float32, values), (t.float64, values), (t.int64, whole), (t.int32, whole[:4])):
            x = t.tensor(given, dtype=kind)
            other = t.tensor([1.0, 16777216.0, 3.0], dtype=t.float64)
            for i in range(len(given)):
                x[i].item()
                for number in [*numbers, *(x[j] for j in range(len(given))), other[0], other[1]]:
                    each = x[i]
                    pairs = (each == number, each != number, each < number, each <= number, each > number)
                    seen.append([bool(one) for one in (*pairs, each >= number)])
        return seen

    assert run(gradwire) == run(torch)


def test_a_value_that_was_read_is_read_again_only_after_a_change(deferring, reads):
    x, count = gradwire.tensor(2.5), gradwire.tensor([3])
    leaf = gradwire.ones(2, requires_grad=True)
    (leaf * 2).sum().backward()
    first = leaf.grad[0]
    assert [x.item(), x.item(), count.item(), float(x), first.item()] == [2.5, 2.5, 3, 2.5, 2.0]
    assert reads[0] == 3
    (leaf * 2).sum().backward()  # adds to gradients, and to no whole numbers
    assert [count.item(), first.item(), leaf.grad[0].item()] == [3, 4.0, 4.0]
    assert reads[0] == 5
    x.add_(1)
    count[0] = 8
    assert [x.item(), count.item()] == [3.5, 8]


def test_a_session_that_other_clients_may_join_reads_each_value(deferring, reads):
    labels = gradwire.arange(9)
    for _ in range(6):
        gradwire.rand(1).item()
    assert deferring.session_id
    reads[0] = 0
    assert [labels[3].item(), labels[3].item(), int(labels[4])] == [3, 3, 4]
    made = gradwire.rand(1)
    assert made.item() == read_array(made).item()
    assert reads[0] == 5


def test_draws_follow_steps_of_optimizers_that_draw_nothing(deferring, reads):
    def run(t, noisy):
        class Noisy(t.optim.SGD):
            def step(self):
                super().step()
                with t.no_grad():
                    for group in self.param_groups:
                        for each in group["params"]:
                            each.add_(t.rand(3), alpha=0.1 * noisy)
                            _ = t.nn.functional.dropout(each, 0.5 if noisy else 0.0)

        t.manual_seed(3)
        weight = t.ones(3, requires_grad=True)
        optimizer = Noisy([weight], lr=0.1) if noisy else t.optim.Adam([weight], lr=0.1)
        seen = []
        for _ in range(20):
            seen.append([t.rand(1).item(), t.randint(9, (2,)).tolist()])
            optimizer.zero_grad()
            (weight * weight).sum().backward()
            optimizer.step()
        return seen

    for noisy in (False, True):
        reads[0] = 0
        assert run(gradwire, noisy) == run(torch, noisy)
        assert noisy or reads[0] <= 6


def test_whole_numbers_that_show_gradients_memory_follow_backward(deferring):
    def run(t):
        leaf = t.tensor([1.0, 2.0], requires_grad=True)
        (leaf * leaf).sum().backward()
        bits = leaf.grad.view(t.int32)
        other = t.zeros(2, dtype=t.int32)
        other.data = bits
        first, seen = bits[0], []
        for _ in range(3):
            seen += [first.item(), bits[1].item(), other[0].item(), bits.tolist()]
            (leaf * leaf).sum().backward()
        return seen

    assert run(gradwire) == run(torch)


@pytest.mark.parametrize("share", ["data", "set_"])
def test_tensors_that_were_given_anothers_memory_follow_its_changes(deferring, share):
    def run(t):
        one, other = t.tensor([1.0, 2.0]), t.tensor([5.0, 7.0])
        before, single, given = other[1], t.tensor(3.0), t.tensor(4.0)
        seen = [before.item(), single.item(), given.item()]
        if share == "data":
            one.data, given.data = other, single
        else:
            one.set_(other)
            given.set_(single)
        item = one[0]
        seen += [item.item(), given.item()]
        for step in range(4):
            other.add_(1) if step % 2 else one.mul_(2)
            single.add_(1) if step % 2 else given.mul_(2)
            seen += [item.item(), before.item(), one[1].item(), other[0].item(), single.item(), given.item()]
        return seen

    assert run(gradwire) == run(torch)


def test_views_in_inference_mode_follow_changes_of_their_base(deferring):
    def run(t):
        with t.inference_mode():
            base = t.tensor([1.0, 2.0])
            item, part = base[0], base[1:]
            seen = [item.item(), part.item(), bool(item < 2)]
            base.add_(1)
            seen += [item.item(), part.item(), bool(item < 2)]
            part.mul_(3)
            return [*seen, base[1].item(), base.tolist()]

    assert run(gradwire) == run(torch)


def test_a_value_that_another_thread_writes_while_it_is_read_is_read_again(deferring, monkeypatch):
    x, y = gradwire.tensor(0.0), gradwire.tensor([1.0, 2.0])
    item = y[0]

    def read_and_write(source):
        found = read(source)

        def write():
            with deferring:
                x.add_(1)
                y.add_(1)

        thread = threading.Thread(target=write)
        thread.start()
        thread.join()
        return found

    read = reading._read
    with monkeypatch.context() as patch:
        patch.setattr(reading, "_read", read_and_write)
        assert [x.item(), item.item()] == [0.0, 2.0]
    assert [x.item(), item.item(), y[1].item()] == [2.0, 3.0, 4.0]


@pytest.mark.parametrize("op", ["bernoulli", "multinomial"])
def test_draws_after_a_refused_one_are_not_told_before_the_refusal(deferring, op):
    good, bad = gradwire.tensor([0.5, 0.5]), gradwire.tensor([-1.0, 2.0])
    draw = getattr(gradwire, op)
    more = (1,) if op == "multinomial" else ()

    def draw_three(chances):
        draw(chances, *more)
        return [gradwire.rand(()) for _ in range(3)]

    gradwire.manual_seed(6)
    for chances in (good, good, good, good, good, bad, good, good):
        made = []
        try:
            made = draw_three(chances)
            first = made[0].item()
            assert first == read_array(made[0]).item()
        except RuntimeError:
            assert chances is bad
        assert [each.item() for each in made] == [read_array(each).item() for each in made]


def test_saved_values_follow_changes_of_what_was_saved(deferring):
    def run(t):
        leaf = t.tensor([1.0, 2.0], requires_grad=True)
        made = leaf * leaf
        made = made.exp()
        saved = made.grad_fn._saved_result
        item, part = saved[0], saved[1:]
        seen = [item.item(), part[0].item()]
        made.detach().mul_(2)
        return [*seen, item.item(), part[0].item(), saved[1].item()]

    np.testing.assert_allclose(run(gradwire), run(torch), rtol=1e-6)


def test_items_follow_changes_by_views_that_inference_mode_made(deferring):
    def run(t):
        base = t.arange(4)
        item, seen = base[1], []
        for make in (t.Tensor.detach, lambda x: x.view(-1), lambda x: x.reshape(-1), lambda x: x[:3]):
            seen += [item.item(), base[2].item()]
            with t.inference_mode():
                shown = make(base)
                shown.add_(1)
            seen += [item.item(), base[2].item(), shown[1].item()]
        return seen

    assert run(gradwire) == run(torch)


def test_items_follow_changes_through_data(deferring):
    def run(t):
        base = t.arange(4)
        item, seen = base[1], [base[1].item()]
        seen.append(item.item())
        bare = base.data
        bare.add_(2)
        seen += [item.item(), base[0].item()]
        other = bare[0]
        seen.append(other.item())
        base.mul_(3)
        return [*seen, other.item(), item.item(), bare[2].item()]

    assert run(gradwire) == run(torch)


def test_draws_that_another_client_may_make_are_not_followed_from_the_first_on():
    order = DrawOrder()
    order.apart = True  # as the program has asked for the session's id
    order.begin()
    assert order.apart
    threads_own = DrawOrder()
    threads_own.begin()
    assert not threads_own.apart
    thread = threading.Thread(target=threads_own.begin)
    thread.start()
    thread.join()
    threads_own.begin()
    assert threads_own.apart and threads_own.calls == 3
