"""Which commands wait, which are deferred, and where an error is raised: the first rule of SEMANTICS."""

import time

import pytest

import gradwire
from gradwire._session.session import BATCH_COMMANDS, EARLY_COMMANDS
from gradwire._tensor import call, inference


class Waits:
    """Counts the commands of a session that wait for their answer."""

    def __init__(self, session, monkeypatch):
        self.count = 0
        wait = session.wait

        def counted(*args, **kwargs):
            self.count += 1
            return wait(*args, **kwargs)

        monkeypatch.setattr(session, "wait", counted)

    def during(self, function, *args):
        before = self.count
        function(*args)
        return self.count - before


@pytest.fixture
def waits(deferring, monkeypatch):
    return Waits(deferring, monkeypatch)


def training_step(x, target, params):
    w, b = params
    loss = ((x @ w + b).relu() - target).pow(2).mean()
    loss.backward()
    with gradwire.no_grad():
        for p in params:
            p -= 0.01 * p.grad
            p.grad = None
    return loss


def parts():
    x, target = gradwire.ones(4, 3), gradwire.zeros(4, 2)
    return x, target, (gradwire.ones(3, 2, requires_grad=True), gradwire.zeros(2, requires_grad=True))


def test_the_first_execution_at_a_place_waits_and_repeats_do_not(untold, waits):
    x = gradwire.tensor([1.0, 2.0])
    counts = []
    for _ in range(3):
        before = waits.count
        x = x * 1.5
        counts.append(waits.count - before)
    assert counts == [1, 0, 0]


def test_the_same_op_at_another_place_waits_if_a_value_may_be_refused(untold, waits):
    x, index = gradwire.tensor([1.0, 2.0]), gradwire.tensor([0])
    assert [waits.during(lambda: x * 2.0), waits.during(lambda: x * 2.0)] == [1, 0]
    assert [waits.during(lambda: x.gather(0, index)), waits.during(lambda: x.gather(0, index))] == [1, 1]
    whole = gradwire.tensor([4, 6])
    assert [waits.during(lambda: whole // whole), waits.during(lambda: whole // whole)] == [1, 1]
    assert [waits.during(lambda: x[index]), waits.during(lambda: x[index])] == [1, 1]


def test_a_large_result_waits_at_each_place(waits):
    """The server may lack the memory for it, which PyTorch says in the call."""
    x = gradwire.ones(600, 600)
    assert [waits.during(lambda: x * 2.0), waits.during(lambda: x * 2.0)] == [1, 1]


def test_a_first_call_prepares_its_repeats_while_the_server_computes(untold, deferring, monkeypatch):
    on_their_way = []
    for module, name in ((call, "make_template"), (inference, "make_pattern")):
        made = getattr(module, name)

        def prepared(*args, made=made):
            on_their_way.append(len(deferring._retransmission.in_flight))
            return made(*args)

        monkeypatch.setattr(module, name, prepared)
    monkeypatch.setattr(inference, "_PATTERNS", {})  # other sessions may have made such calls
    x = gradwire.tensor([1.0, 2.0])
    deferring.sync()
    assert (x * 2.0).tolist() == [2.0, 4.0]
    assert on_their_way == [1, 1]


def test_other_specs_or_attributes_wait_again(untold, waits):
    def apply(x, correction):
        return x.var(0, correction=correction)

    x, y = gradwire.ones(2, 3), gradwire.ones(3, 2)
    assert [waits.during(apply, x, 0), waits.during(apply, x, 0)] == [1, 0]
    assert [waits.during(apply, y, 0), waits.during(apply, x, 1), waits.during(apply, y, 0)] == [1, 1, 0]


def test_other_sizes_and_integers_do_not_wait_where_a_rule_gives_the_result(untold, waits):
    def apply(x, dim):
        return x.sum(dim)

    x, y, cube = gradwire.ones(2, 3), gradwire.ones(3, 2), gradwire.ones(2, 2, 2)
    assert [waits.during(apply, x, 0), waits.during(apply, y, 0), waits.during(apply, x, 1)] == [1, 0, 0]
    assert [waits.during(apply, cube, 0), waits.during(apply, x.double(), 0)] == [1, 1]
    with pytest.raises(IndexError, match="Dimension out of range"):
        apply(x, 2)


def test_an_index_that_varies_does_not_wait_and_one_out_of_range_is_refused_at_once(untold, waits):
    def row(x, index):
        return x[index]

    x = gradwire.arange(12).reshape(4, 3)
    assert [waits.during(row, x, index) for index in (0, 1, 3, -1)] == [1, 0, 0, 0]
    assert [row(x, index).tolist() for index in (2, -4)] == [[6, 7, 8], [0, 1, 2]]
    for index in (4, -5):
        with pytest.raises(IndexError, match="out of bounds"):
            row(x, index)
    for _ in range(20):  # Python's specialized instruction is another place
        count = waits.during(row, x, 2)
    assert count == 0


def test_a_written_index_that_varies_does_not_wait_and_a_value_that_does_not_fit_is_refused_at_once(untold, waits):
    def write(x, index, value):
        x[index] = value

    x = gradwire.zeros(4, 3)
    rows = [gradwire.full((3,), float(number)) for number in range(1, 4)]
    assert [waits.during(write, x, index, row) for index, row in enumerate(rows)] == [1, 0, 0]
    assert x.tolist() == [[1.0] * 3, [2.0] * 3, [3.0] * 3, [0.0] * 3]
    assert x._version == 3
    with pytest.raises(RuntimeError, match="shape mismatch"):
        write(x, 1, gradwire.zeros(2))
    with pytest.raises(IndexError):
        write(x, 4, rows[0])


def test_an_item_that_is_changed_in_place_does_not_wait(waits):
    def count(x, index):
        x[index] += 1

    x = gradwire.zeros(4)
    assert [waits.during(count, x, index) for index in (0, 1, 3)][1:] == [0, 0]
    assert x.tolist() == [1.0, 1.0, 0.0, 1.0]
    assert x._version == 6


def test_values_do_not_wait(waits):
    def made(values):
        return gradwire.tensor(values)

    assert [waits.during(made, [1.0] * count) for count in (2, 3, 5)] == [0, 0, 0]
    assert [waits.during(made, [[1.0]]), waits.during(made, [1])] == [0, 0]
    assert made([2.0, 3.0, 4.0]).tolist() == [2.0, 3.0, 4.0]


def test_flags_and_empty_gradients_do_not_wait(waits):
    def require(leaf):
        leaf.requires_grad_()

    def clear(leaf):
        leaf.grad = None

    leaves = [gradwire.ones(size) for size in (2, 3, 4)]
    assert [waits.during(require, leaf) for leaf in leaves] == [0, 0, 0]
    assert all(leaf.requires_grad for leaf in leaves)
    for leaf in leaves:
        (leaf * 2.0).sum().backward()
    assert [waits.during(clear, leaf) for leaf in leaves] == [0, 0, 0]
    assert [leaf.grad for leaf in leaves] == [None, None, None]
    (leaves[1] * 3.0).sum().backward()
    assert leaves[1].grad.tolist() == [3.0] * 3
    with pytest.raises(RuntimeError, match="floating point"):
        require(gradwire.arange(3))


def test_an_index_out_of_range_in_a_loop_names_no_later_line(waits):
    def select(x, index):
        return x.select(0, index)

    x = gradwire.arange(3)
    for index in range(3):
        select(x, index)
    with pytest.raises(IndexError, match="out of bounds") as refused:
        select(x, 3)
    assert not refused.value.late


def test_a_slice_of_another_length_keeps_the_gradient(deferring):
    x = gradwire.arange(6.0).requires_grad_()
    for stop in (2, 3, 5):
        (x[:stop] * stop).sum().backward()
    assert x.grad.tolist() == [10.0, 10.0, 8.0, 5.0, 5.0, 0.0]


def test_a_later_use_of_a_number_that_was_inferred_is_a_prepared_call(waits):
    def row(x, index):
        return x[index]

    x = gradwire.arange(6.0).reshape(3, 2)
    for _ in range(20):  # Python's specialized instruction is another place
        counts = [waits.during(row, x, index) for index in range(3)]
    assert counts == [0, 0, 0]
    assert [row(x, index).tolist() for index in range(3)] == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert all(entry.number for key, entry in deferring_entries(x) if entry.model and entry.integers)


def deferring_entries(x):
    return [(key, entry) for key, entry in x._session.memo.items() if entry.name == "getitem"]


def test_another_number_beside_a_floating_tensor_does_not_wait(untold, waits):
    def scaled(x, factor):
        return x * factor

    x = gradwire.tensor([1.0, 2.0])
    assert [waits.during(scaled, x, factor) for factor in (0.5, 0.25, 3, 3, 4)] == [1, 0, 0, 0, 0]
    assert [scaled(x, factor).tolist() for factor in (3, -4, 0.5)] == [[3.0, 6.0], [-4.0, -8.0], [0.5, 1.0]]


def test_another_number_beside_a_whole_tensor_does_not_wait_unless_it_is_refused(waits):
    def shared(x, count):
        return x // count

    x = gradwire.tensor([4, 6])
    assert [waits.during(shared, x, count) for count in (1, 2, 2)] == [1, 0, 0]
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        shared(x, 0)


def test_numbers_that_decide_a_shape_are_always_right(deferring):
    for count in (2, 3, 4, 3):
        assert gradwire.arange(count).shape == (count,)
        assert gradwire.arange(0.0, count).shape == (count,)
        assert gradwire.ones(2, 3, 4).max(count % 3).values.shape == ((3, 4), (2, 4), (2, 3))[count % 3]


def test_another_float_attribute_waits_if_it_may_be_refused(untold, waits):
    def shrunk(x, bound):
        return gradwire._tensor.ops.softshrink(x, bound)

    def leaking(x, slope):
        return gradwire._tensor.ops.leaky_relu(x, slope)

    x = gradwire.tensor([1.0, -2.0])
    assert [waits.during(shrunk, x, bound) for bound in (0.1, 0.1, 0.2)] == [1, 0, 1]
    assert [waits.during(leaking, x, slope) for slope in (0.1, 0.1, 0.2)] == [1, 0, 0]


def test_the_value_of_a_deferred_float_is_the_present_one(deferring):
    x = gradwire.tensor([1.0])
    found = [(x * factor).tolist() for factor in (2.0, 3.0, -0.0, float("inf"))]
    assert repr(found) == "[[2.0], [3.0], [-0.0], [inf]]"


def test_a_training_loop_waits_in_its_first_step_only(waits):
    x, target, params = parts()
    counts = [waits.during(training_step, x, target, params) for _ in range(5)]
    # The first gradients of a step that ran before are of another kind of place: once more for them.
    assert counts[0] > 0
    assert counts[2:] == [0, 0, 0]


def test_a_deferred_training_loop_computes_what_a_waiting_one_does(server_address, monkeypatch):
    found = []
    for flag in ("0", "1"):
        monkeypatch.setenv("GRADWIRE_SYNC", flag)
        session = gradwire.connect(server_address)
        x, target, params = parts()
        losses = [training_step(x, target, params) for _ in range(20)]
        found.append(([loss.item() for loss in losses], [p.tolist() for p in params]))
        session.close()
    assert found[0] == found[1]


def test_values_that_decide_a_shape_are_always_waited_for(waits):
    def positive(x):
        return x[x > 0]

    x, y = gradwire.tensor([1.0, -1.0, 2.0]), gradwire.tensor([-1.0, -1.0, 2.0])
    assert positive(x).shape == (2,)
    assert positive(y).shape == (1,)
    assert waits.during(positive, x) == 1  # the comparison is known by now, the selection never is


def test_with_gradwire_sync_every_call_waits(server_address, monkeypatch):
    monkeypatch.setenv("GRADWIRE_SYNC", "1")
    session = gradwire.connect(server_address)
    waits = Waits(session, monkeypatch)
    x, target, params = parts()
    counts = {waits.during(training_step, x, target, params) for _ in range(3)}
    assert len(counts) == 1
    assert counts.pop() > 10
    session.close()


# Errors.


def gather(x, index):
    return x.gather(0, index)  # this line fails


def fail_late():
    """A gather that has succeeded at its place fails for an index whose value only the server sees."""
    x = gradwire.tensor([1.0, 2.0, 3.0])
    made = [gather(x, index) for index in (gradwire.tensor([value]) for value in (0, 1, 99))]
    return made[-1]


def test_an_error_of_a_first_execution_is_raised_inside_the_call(deferring):
    with pytest.raises(RuntimeError, match="shapes"):
        gradwire.ones(2, 3) @ gradwire.ones(2, 3)


def test_an_error_found_late_is_typed_and_points_to_the_users_line(deferring):
    fail_late()
    with pytest.raises(gradwire.GradwireError) as caught:
        gradwire.sync()
    assert isinstance(caught.value, (IndexError, RuntimeError))
    assert __file__ in str(caught.value)
    assert "this line fails" in str(caught.value)


def test_an_error_found_late_is_raised_at_any_wait_and_once(deferring):
    fail_late()
    with pytest.raises(gradwire.GradwireError, match="this line fails"):
        gradwire.ones(3).tolist()
    gradwire.sync()
    assert gradwire.ones(1).tolist() == [1.0]


def test_what_depends_on_a_failure_tells_the_root_cause_only(deferring):
    bad = fail_late()
    with pytest.raises(gradwire.GradwireError, match="this line fails") as caught:
        (bad * 2.0).tolist()
    assert caught.value.reason != "DEPENDENCY_FAILED"
    with pytest.raises(gradwire.GradwireError, match="this line fails") as again:
        (bad + 1.0).tolist()
    assert type(again.value) is type(caught.value)


def test_after_a_late_error_that_place_waits_again(waits):
    fail_late()
    with pytest.raises(gradwire.GradwireError):
        gradwire.sync()
    x, good = gradwire.tensor([1.0, 2.0, 3.0]), gradwire.tensor([0])
    assert waits.during(gather, x, good) == 1
    assert waits.during(gather, x, good) == 0


def test_later_commands_are_applied_after_a_late_error(deferring):
    x = gradwire.tensor([1.0, 2.0], requires_grad=True)
    fail_late()
    with pytest.raises(gradwire.GradwireError, match="this line fails"):
        gradwire.sync()
    y = (x * x).sum()
    y.backward()
    assert x.grad.tolist() == [2.0, 4.0]


# Batches.


def test_a_full_batch_goes_without_being_asked_for(without_maintenance, deferring, monkeypatch):
    sent = []
    send = deferring._retransmission.send
    monkeypatch.setattr(deferring._retransmission, "send", lambda batch: sent.append(batch) or send(batch))
    x = gradwire.tensor([1.0])
    for _ in range(2 * BATCH_COMMANDS + 2):
        x = x * 1.0
    assert len(sent) >= 2
    assert x.tolist() == [1.0]


def test_a_batch_does_not_grow_while_the_server_has_nothing_to_do(without_maintenance, deferring, monkeypatch):
    retransmission, sent = deferring._retransmission, []
    send = retransmission.send

    def counted(batch):
        sent.append(sum(record is not None for record in batch.records))  # without releases
        send(batch)

    monkeypatch.setattr(retransmission, "send", counted)
    if retransmission._link is None or not retransmission._link.is_local:
        pytest.skip("of gRPC's streams, only what was read is known")
    x = gradwire.tensor([1.0])

    def commands(count):
        nonlocal x
        for _ in range(count):
            x = x * 1.0

    commands(3 * BATCH_COMMANDS)
    deferring.sync()
    sent.clear()
    has_answer = retransmission.has_answer
    monkeypatch.setattr(retransmission, "has_answer", lambda: False)
    commands(EARLY_COMMANDS)
    assert sent == [EARLY_COMMANDS]  # the server had nothing to do
    commands(2 * BATCH_COMMANDS)
    assert sent == [EARLY_COMMANDS, BATCH_COMMANDS]  # and a batch that grows, since two seem to be under way
    commands(BATCH_COMMANDS)
    assert sent == [EARLY_COMMANDS, BATCH_COMMANDS, 2 * BATCH_COMMANDS]
    deferring.sync()
    sent.clear()
    commands(EARLY_COMMANDS + BATCH_COMMANDS)
    assert len(retransmission.in_flight) == 2
    until = time.monotonic() + 20
    while not has_answer() and time.monotonic() < until:
        time.sleep(0.001)
    monkeypatch.setattr(retransmission, "has_answer", has_answer)
    commands(BATCH_COMMANDS)
    assert len(sent) > 2
    assert max(sent) <= BATCH_COMMANDS
    assert x.tolist() == [1.0]


def test_tensors_of_two_sessions_in_one_op_are_refused_by_name(server_address, monkeypatch):
    one, other = gradwire.connect(server_address), gradwire.connect(server_address)
    with one:
        x = gradwire.ones(2)
    with other:
        y = gradwire.ones(2)
    with pytest.raises(gradwire.GradwireValueError, match="two sessions"):
        x + y
    with pytest.raises(gradwire.GradwireValueError, match=r"cat\(\).*two sessions"):
        gradwire.cat([x, y])
    with pytest.raises(gradwire.GradwireValueError, match="two sessions"):
        gradwire.autograd.backward([x.requires_grad_().sum(), y.requires_grad_().sum()])
    assert (x + x).tolist() == [2.0, 2.0]
    assert (y + y).tolist() == [2.0, 2.0]
    one.close()
    other.close()


def test_one_sessions_error_is_not_anothers(server_address):
    one, other = gradwire.connect(server_address), gradwire.connect(server_address)
    with one:
        fail_late()
        one.flush()
    with other:
        assert gradwire.ones(2).tolist() == [1.0, 1.0]
        other.sync()
    with pytest.raises(gradwire.GradwireError):
        one.sync()
    one.close()
    other.close()


def test_a_closed_session_says_so(server_address):
    session = gradwire.connect(server_address)
    x = gradwire.ones(2)
    session.close()
    session.close()
    with pytest.raises(ConnectionError, match="closed"):
        x.tolist()
    with pytest.raises(ConnectionError, match="closed"):
        x + x
