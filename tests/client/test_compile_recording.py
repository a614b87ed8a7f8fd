"""Recording of a compiled function: ops whose answer is known from the call do not wait, and a refusal ends it."""

import functools

import pytest

import gradwire
from gradwire._compile.recorder import Recorder
from gradwire._transport import wire
from tests.client.test_compile import assert_same, runs_of


def counted_waits(session, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    waits: list[int] = []
    wait = session.wait
    monkeypatch.setattr(session, "wait", lambda *args, **kwargs: waits.append(1) or wait(*args, **kwargs))
    return waits


WEIGHTS = [0.1 * place for place in range(20)]


def stepped(weights, x):
    for weight in weights:
        x = (x * weight).tanh()
        x = x + 0.5
    with gradwire.no_grad():
        for weight in weights:
            weight.mul_(0.9)
    return x.sum()


@pytest.mark.filterwarnings("ignore:compile")  # the function that counts is Python that no program has
def test_a_recording_waits_once_for_ops_with_one_answer(deferring, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = [gradwire.full((3,), each, requires_grad=True) for each in WEIGHTS]
    waits = counted_waits(deferring, monkeypatch)
    gradwire.compile(lambda x: stepped(weights, x))(gradwire.ones(3))
    assert len(waits) < 30  # of more than 80 commands


def test_a_recording_that_does_not_wait_answers_as_the_function(deferring) -> None:
    answers = []
    for wrap in (lambda function: function, gradwire.compile):
        weights = [gradwire.full((3,), each, requires_grad=True) for each in WEIGHTS]
        function = wrap(lambda x, weights=weights: stepped(weights, x))
        answers.append([*[function(gradwire.ones(3)).item() for _ in range(4)], weights[-1].sum().item()])
    assert answers[0] == answers[1]
    assert runs_of(function) == 1


SIZES = [(3,), (4,), (5,), (2, 3), (3, 4), (4, 5)]


def updated(weights):
    with gradwire.no_grad():
        for weight in weights:
            half = gradwire.zeros_like(weight).add_(weight, alpha=0.5)
            weight.mul_(0.9).addcmul_(half, half, value=2.0)
    return sum((weight * weight.flatten()[0]).sum() for weight in weights)


@pytest.mark.filterwarnings("ignore:compile")  # the function that counts is Python that no program has
def test_a_recording_waits_once_for_ops_that_differ_in_sizes(deferring, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = [gradwire.ones(sizes) for sizes in SIZES]
    waits = counted_waits(deferring, monkeypatch)
    gradwire.compile(lambda: updated(weights))()
    assert len(waits) < 30  # of more than 50 commands


def test_ops_of_other_sizes_answer_as_the_function(deferring) -> None:
    answers = []
    for wrap in (lambda function: function, gradwire.compile):
        weights = [gradwire.full(sizes, 0.1 + place) for place, sizes in enumerate(SIZES)]
        function = wrap(lambda weights=weights: updated(weights))
        answers.append([*[function().item() for _ in range(4)], *[weight.tolist() for weight in weights]])
    assert answers[0] == answers[1]
    assert runs_of(function) == 1


def test_a_refusal_that_values_decide_ends_a_recording_that_does_not_wait(deferring) -> None:
    factors = [1.0, 2.0, 0.0, 3.0]

    def step(matrix):
        return [gradwire.linalg.inv(matrix * factor) for factor in factors]

    compiled, matrix = gradwire.compile(step), gradwire.eye(2)
    with pytest.raises(gradwire.linalg.LinAlgError, match="singular"):
        compiled(matrix)
    assert runs_of(compiled) == 0
    factors[2] = 4.0
    for _ in range(3):
        assert_same(compiled(matrix), [gradwire.eye(2) / factor for factor in factors])
    assert runs_of(compiled) == 1


def test_a_session_that_waits_for_each_command_records_so(server_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADWIRE_SYNC", "1")
    with gradwire.connect(server_address) as session:
        waits = counted_waits(session, monkeypatch)

        def step(x):
            for _ in range(10):
                x = x.tanh()
            return x

        gradwire.compile(step)(gradwire.ones(2))
        assert len(waits) > 10


@pytest.mark.filterwarnings("ignore:compile")  # the function that counts is Python that no program has
def test_a_second_recording_waits_for_nothing_that_the_first_one_knows(untold, deferring, monkeypatch) -> None:
    weights = [gradwire.full((3,), each, requires_grad=True) for each in WEIGHTS]
    waits = counted_waits(deferring, monkeypatch)
    compiled, x = gradwire.compile(lambda x: stepped(weights, x)), gradwire.ones(3)
    compiled(x)
    first = len(waits)
    compiled(x)
    assert len(waits) - first < 5 < first


@pytest.mark.filterwarnings("ignore:compile")  # the function that counts is Python that no program has
def test_a_recording_waits_once_for_gradients_of_one_kind(deferring, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = [gradwire.full((3,), each, requires_grad=True) for each in WEIGHTS]

    def step():
        gradwire.stack(weights).prod(0).sum().backward()
        with gradwire.no_grad():
            for weight in weights:
                weight.sub_(weight.grad, alpha=0.1)

    waits = counted_waits(deferring, monkeypatch)
    gradwire.compile(step)()
    assert len(waits) < 12  # of more than 40 commands


def test_gradients_named_without_waiting_are_the_functions(deferring) -> None:
    answers = []
    for wrap in (lambda function: function, gradwire.compile):
        weights = [gradwire.full((place % 3 + 1, 2), 0.5 + place, requires_grad=True) for place in range(9)]

        def step(weights=weights):
            loss = sum((weight * weight).sum() for weight in weights)
            for weight in weights:
                weight.grad = None
            loss.backward()
            given = gradwire.autograd.grad(sum(weight.sum() for weight in weights), weights)
            with gradwire.no_grad():
                for weight, more in zip(weights, given, strict=True):
                    weight.sub_(weight.grad * 0.1 + more)
            return loss

        function = wrap(step)
        answers.append([[function().item() for _ in range(5)], *[weight.grad.tolist() for weight in weights]])
    assert answers[0] == answers[1]
    assert runs_of(function) >= 1


def test_another_session_is_asked_anew(deferring, server_address: str) -> None:
    function = gradwire.compile(lambda x: (x * 2).tanh().sum())
    assert function(gradwire.ones(3)).item() == function(gradwire.ones(3)).item()
    with gradwire.connect(server_address):
        assert function(gradwire.ones(3)).item() == pytest.approx(3 * 0.9640276)


def test_a_warning_of_an_op_keeps_a_function_from_being_replayed(deferring) -> None:
    function = gradwire.compile(lambda x: x.std(0, correction=2))
    for _ in range(3):
        with pytest.warns(UserWarning, match="degrees of freedom"):
            function(gradwire.ones(2, 3))
    assert runs_of(function) == 0


@pytest.mark.filterwarnings("ignore:compile")  # the function that counts is Python that no program has
def test_a_recording_waits_for_no_op_without_history_on_tensors_of_one_dtype(deferring, monkeypatch) -> None:
    x, y = gradwire.full((2, 3), 0.5), gradwire.full((3,), 2.0)

    def update():
        mean = gradwire.zeros_like(x)
        mean.mul_(0.9).add_(x, alpha=0.1).addcmul_(x, x, value=0.5)
        return ((mean.sqrt() / 0.7).add_(1e-8) * y).sub(x).neg()

    expected = update().tolist()
    waits = counted_waits(deferring, monkeypatch)
    made = gradwire.compile(update)()
    assert len(waits) == 0
    assert made.tolist() == expected


@pytest.mark.filterwarnings("ignore:compile")
def test_a_recording_waits_once_for_an_op_at_several_places(deferring, monkeypatch: pytest.MonkeyPatch) -> None:
    weight, given = gradwire.full((3,), 0.5, requires_grad=True), gradwire.ones(3)

    def function(x):
        x = x * weight
        x = x.tanh() * weight  # the operand was made by another node
        x = x * weight
        return x.tanh()

    waits = counted_waits(deferring, monkeypatch)
    made = gradwire.compile(function)(given)
    assert len(waits) <= 3  # mul with a leaf that requires grad, with a result, and tanh
    assert made.tolist() == function(given).tolist()
    assert made.grad_fn.name() == "TanhBackward0"


@pytest.mark.filterwarnings("ignore:compile")  # the function that counts is Python that no program has
def test_a_recording_prepares_each_op_that_it_foretells_once(deferring, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that is sent once is cheaper as it is."""
    prepared: list[str] = []
    prepare = deferring._prepare
    monkeypatch.setattr(deferring, "_prepare", lambda entry, op: prepared.append(entry.name) or prepare(entry, op))

    def layers(x):
        for _ in range(10):
            x = (x + 1.0).relu()
        return x.neg().sum()

    assert gradwire.compile(layers)(gradwire.ones(3, requires_grad=True)).item() == -33.0
    assert sorted(prepared) == ["add", "relu"]


def test_results_that_a_recording_foretells_are_described_as_the_functions(deferring) -> None:
    def made():
        x, h = gradwire.ones(3, 2), gradwire.ones(2, dtype=gradwire.float16)
        yield from (x * 2, x + x.t().contiguous().t(), x / 3, -x, x.sqrt(), gradwire.zeros_like(x))
        yield gradwire.maximum(x, -x)
        yield from (h + 1, x * h, x * gradwire.ones(2, dtype=gradwire.float64), gradwire.zeros_like(x.t()))
        yield from (x.add_(1, alpha=2), x.t().mul_(2), x.div_(x))

    def described(tensors):
        return [(t.dtype, t.shape, t.stride(), t.requires_grad, t.is_leaf, t.tolist()) for t in tensors]

    wanted = described(list(made()))
    assert described(gradwire.compile(lambda: list(made()))()) == wanted
    with gradwire.no_grad():
        assert described(gradwire.compile(lambda: list(made()))()) == wanted


@pytest.mark.parametrize(
    "call",
    [
        lambda x: gradwire.maximum(x, 3),
        lambda x: gradwire.minimum(x, 0.5),
        lambda x: gradwire.addcmul(x, 2, x),
        lambda x: x.clone().addcdiv_(x, 2.0),
    ],
)
def test_a_recording_foretells_no_call_with_a_number_for_a_tensor(deferring, call) -> None:
    def function(x):
        try:
            return call(x)
        except TypeError:
            return x * 2

    assert gradwire.compile(function)(gradwire.ones(2)).tolist() == [2.0, 2.0]


@pytest.mark.filterwarnings("ignore:compile")  # the factor is read
def test_a_recording_reads_a_factor_that_is_a_tensor(deferring) -> None:
    function = gradwire.compile(lambda x, factor: gradwire.add(x, x, alpha=factor))
    assert function(gradwire.ones(2), gradwire.tensor(2.0)).tolist() == [3.0, 3.0]


@pytest.mark.parametrize("own", [None, lambda update: update, gradwire.no_grad(), functools.partialmethod])
def test_a_recording_sees_the_users_code_in_an_optimizer(deferring, own) -> None:
    class Factor:
        value = 0.5

    def update(self, group):
        group = {**group, "lr": group["lr"] * Factor.value}
        gradwire.optim.SGD._update(self, group)

    class Scaled(gradwire.optim.SGD):
        if own:
            _update = own(update)

    weight = gradwire.ones(2, requires_grad=True)
    optimizer = (Scaled if own else gradwire.optim.SGD)([weight], lr=1.0)

    def step():
        optimizer.zero_grad()
        (weight * 3).sum().backward()
        optimizer.step()
        return weight.detach().clone()

    compiled = gradwire.compile(step)
    seen = [compiled().tolist()[0] for _ in range(3)]
    Factor.value = 1.0
    seen += [compiled().tolist()[0] for _ in range(2)]
    change = [1.5, 1.5, 1.5, 3.0, 3.0] if own else [3.0] * 5
    expected = [1.0 - sum(change[: place + 1]) for place in range(5)]
    assert seen == expected


def commands_waited_for(session, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    wait = session.wait

    def noted(command, *args, **kwargs):
        names.append(command.WhichOneof("command"))
        return wait(command, *args, **kwargs)

    monkeypatch.setattr(session, "wait", noted)
    return names


@pytest.mark.filterwarnings("ignore:compile")  # the function that counts is Python that no program has
@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW"])
def test_a_recorded_step_waits_neither_for_its_backward_nor_for_its_update(kind, deferring, monkeypatch) -> None:
    weight = gradwire.ones(3, 2, requires_grad=True)
    optimizer = getattr(gradwire.optim, kind)([weight], lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = (x @ weight).tanh().sum()
        loss.backward()
        optimizer.step()
        return loss

    x = gradwire.ones(2, 3)
    names = commands_waited_for(deferring, monkeypatch)
    gradwire.compile(step)(x)
    assert names == []


def test_a_recorded_step_that_does_not_wait_changes_what_the_function_changes(deferring) -> None:
    found = []
    for wrap in (lambda function: function, gradwire.compile):
        weight = gradwire.full((3, 2), 0.5, requires_grad=True)
        optimizer = gradwire.optim.AdamW([weight], lr=0.1)

        def step(x, weight=weight, optimizer=optimizer):
            optimizer.zero_grad()
            loss = (x @ weight).tanh().sum()
            loss.backward()
            optimizer.step()
            return loss

        function = wrap(step)
        losses = [function(gradwire.ones(2, 3)).item() for _ in range(5)]
        found.append((losses, weight.tolist(), weight.grad.tolist()))
    assert found[0] == found[1]


def changed_behind_its_node(x):
    y = x.exp()
    y.mul_(2.0)
    y.sum().backward()


def freed_before(x):
    y = x.exp().sum()
    y.backward()
    y.backward()


def changed_by_a_layer(x):
    mean, variance = gradwire.zeros(3), gradwire.ones(3)
    y = x * mean
    z = gradwire.nn.functional.batch_norm(x.expand(2, 3), mean, variance, training=True)
    (y.sum() + z.sum()).backward()


@pytest.mark.filterwarnings("ignore:compile")  # what was refused is no part of a program
@pytest.mark.parametrize("function", [changed_behind_its_node, freed_before, changed_by_a_layer])
def test_a_recorded_backward_that_is_refused_raises_where_it_is_called(function, deferring) -> None:
    caught = []

    def catching(x):
        try:
            function(x)
        except RuntimeError as error:
            caught.append(str(error))
        return x.sum()

    x = gradwire.ones(3, requires_grad=True)
    gradwire.compile(catching)(x)
    with pytest.raises(RuntimeError) as refused:
        function(gradwire.ones(3, requires_grad=True))
    assert [each.partition("\n")[0] for each in caught] == [str(refused.value).partition("\n")[0]]


def test_a_recorded_step_that_fails_updates_nothing_by_the_gradients_of_before(deferring) -> None:
    weight = gradwire.ones(3, 2, requires_grad=True)
    weight.grad = gradwire.ones(3, 2)
    optimizer = gradwire.optim.SGD([weight], lr=0.1)

    def step(*labels):
        loss = 0.0
        for each in labels:
            loss = loss + gradwire.nn.functional.cross_entropy(weight, each)
        loss.backward()
        optimizer.step()
        return loss

    good, bad = gradwire.tensor([0, 1, 0]), gradwire.tensor([0, 7, 0])
    with pytest.raises(IndexError, match="Target 7 is out of bounds"):
        gradwire.compile(step)(good, good, bad)
    assert weight.tolist() == [[1.0, 1.0]] * 3
    assert weight.grad.tolist() == [[1.0, 1.0]] * 3


@pytest.mark.filterwarnings("ignore:compile")
@pytest.mark.parametrize("verify", [False, True])
def test_batches_of_a_recording_say_that_their_commands_hardly_come_again(verify, deferring, monkeypatch) -> None:
    """With verify they do: each call runs op by op."""
    said: list[bool] = []
    pack = wire.stream_batch

    def noted(*args, recorded=False):
        said.append(recorded)
        return pack(*args, recorded=recorded)

    monkeypatch.setattr(wire, "stream_batch", noted)
    weights = [gradwire.full((3,), each, requires_grad=True) for each in WEIGHTS]
    compiled = gradwire.compile(lambda x: stepped(weights, x), verify=verify)
    x = gradwire.ones(3)
    deferring.sync()
    said.clear()
    compiled(x)
    assert said[-1] is not verify
    said.clear()
    (x + 1).sum().item()
    assert not any(said)


def test_a_recording_waits_for_no_gradient_that_it_drops(deferring, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = [gradwire.full((3,), each, requires_grad=True) for each in WEIGHTS]
    for weight in weights:
        weight.grad = gradwire.ones(3)

    def dropped(x):
        for weight in weights:
            weight.grad = None
        return x + weights[0]

    waits = counted_waits(deferring, monkeypatch)
    compiled = gradwire.compile(dropped)
    assert compiled(gradwire.ones(3)).tolist() == [1.0, 1.0, 1.0]
    assert len(waits) == 1  # for the values
    assert all(weight.grad is None for weight in weights)


def test_a_batch_is_whole_though_a_recording_ends_while_it_is_made(deferring) -> None:
    """As where the maintenance thread sends it."""
    recorders = iter([Recorder(deferring)])

    class Ending(type(deferring)):
        recorder = property(lambda self: next(recorders, None))

    usual = type(deferring)
    made = gradwire.ones(3) * 2
    deferring.__class__ = Ending
    try:
        deferring.flush()
    finally:
        deferring.__class__ = usual
    assert made.tolist() == [2.0, 2.0, 2.0]
