"""Optimizer steps are batched: from the second step on they neither wait nor read.

What goes op by op at first and is recorded then is tested with notes left out (test_optim_noted.py).
"""

import pytest

import gradwire as gw
from gradwire import nn
from gradwire._compile.recordings import run_program
from gradwire._graph import commands
from gradwire._transport.link import Link
from gradwire.optim import _steps
from gradwire.v1 import programs_pb2, service_pb2

OPTIMIZERS = [
    "SGD(params, lr=0.1)",
    "SGD(params, lr=0.1, momentum=0.9, weight_decay=0.1, nesterov=True)",
    "Adam(params)",
    "Adam(params, amsgrad=True, weight_decay=0.1, maximize=True)",
    "AdamW(params)",
    "Adagrad(params, lr_decay=0.1)",
    "RMSprop(params, centered=True, momentum=0.9)",
    "Adadelta(params)",
    "Rprop(params)",
    "Adamax(params)",
    "NAdam(params)",
    "RAdam(params)",
]


@pytest.mark.parametrize("text", OPTIMIZERS)
def test_steps_wait_for_nothing_once_they_have_succeeded(text, deferring, monkeypatch):
    waits, wait, step = [], deferring.wait, -1

    def counted(*args):
        waits.append(step)
        return wait(*args)

    monkeypatch.setattr(deferring, "wait", counted)
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout(0.1), nn.Linear(5, 2))
    optimizer = eval(text, {**vars(gw.optim), "params": model.parameters()})
    x, target = gw.randn(8, 3), gw.arange(8) % 2
    for step in range(6):  # noqa: B007
        loss = nn.functional.cross_entropy(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert max(waits) < 3
    assert loss.isfinite()


def test_the_first_step_asks_for_all_gradients_in_one_round_trip(deferring, monkeypatch):
    """Gradients of tensors that are described alike are asked for once, and absent ones stay None."""
    monkeypatch.setattr(_steps, "note_step", lambda *_: None)
    shapes = [(2, 3), (4,), (2, 3), (5, 1), (4,), (6,)]
    params = [gw.ones(shape, requires_grad=True) for shape in shapes]
    unused = gw.ones(2, requires_grad=True)
    sum((param * param).sum() for param in params).backward()
    optimizer = gw.optim.SGD([*params, unused], lr=0.25)
    asked, send = [], deferring._retransmission.send

    def watched(batch):
        asked.append(sum(type(record).__name__ == "Waiter" for record in batch.records))
        send(batch)

    monkeypatch.setattr(deferring._retransmission, "send", watched)
    optimizer.step()
    assert [number for number in asked if number] == [4]
    for param, shape in zip(params, shapes, strict=True):
        assert param.grad.tolist() == gw.full(shape, 2.0).tolist()
        assert param.tolist() == gw.full(shape, 0.5).tolist()
    assert unused.grad is None


def test_the_recorded_step_waits_for_no_op_that_the_first_one_called(deferring, monkeypatch):
    """It takes their answers from the memo, and calls the ops as before: it changes the parameters likewise."""
    monkeypatch.setattr(_steps, "note_step", lambda *_: None)
    waits, wait, ends = [], deferring.wait, []

    def watched(command, *args):
        waits.append(command.op.op or command.WhichOneof("command"))
        return wait(command, *args)

    monkeypatch.setattr(deferring, "wait", watched)
    for recorded in (True, False):
        params = [gw.full(shape, 0.5, requires_grad=True) for shape in ((2, 3), (4,), (5, 1))]
        optimizer = gw.optim.Adam(params, lr=0.1)
        if not recorded:
            monkeypatch.setattr(optimizer._steps, "make", lambda optimizer, update: update())
        for step in range(4):
            optimizer.zero_grad()
            sum((param**2).sum() for param in params).backward()
            waits.clear()
            optimizer.step()
            if recorded and step == 1:
                assert not waits
        ends.append([param.tolist() for param in params])
    assert ends[0] == ends[1]


def test_a_scheduled_learning_rate_waits_for_nothing(deferring, monkeypatch):
    w = gw.ones(3, requires_grad=True)
    optimizer = gw.optim.SGD([w], lr=1.0)
    counts, wait = [], deferring.wait

    def counted(*args):
        counts.append(1)
        return wait(*args)

    monkeypatch.setattr(deferring, "wait", counted)
    for step in range(6):
        if step == 3:
            counts.clear()
        optimizer.param_groups[0]["lr"] = 1.0 / (step + 2)
        w.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert counts == []
    assert w.tolist() == pytest.approx([1 - sum(1 / (step + 2) for step in range(6))] * 3)


@pytest.mark.filterwarnings("ignore:compile")
@pytest.mark.parametrize("text", [text for text in OPTIMIZERS if not text.startswith(("SGD", "Adam(", "AdamW"))])
def test_a_compiled_step_goes_the_same_way(text, deferring):
    ends = []
    for compiled in (False, True):
        w = gw.tensor([1.0, -2.0, 0.5], dtype=gw.float64, requires_grad=True)
        optimizer = eval(text, {**vars(gw.optim), "params": [w]})
        scheduler = gw.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)

        def step(w=w, optimizer=optimizer):
            optimizer.zero_grad()
            loss = (w**4).sum()
            loss.backward()
            optimizer.step()
            return loss

        run = gw.compile(step) if compiled else step
        for _ in range(12):
            run()
            scheduler.step()
        ends.append([*w.tolist(), optimizer.state_dict()["state"][0]["step"].item()])
    assert ends[1] == pytest.approx(ends[0], rel=1e-12)


@pytest.mark.parametrize("text", OPTIMIZERS)
def test_a_step_is_one_command_however_many_parameters(text, without_maintenance, deferring):
    params = [gw.full((2, side), 0.5, requires_grad=True) for side in range(1, 12)]
    optimizer = eval(text, {**vars(gw.optim), "params": params})
    sent = []
    for _ in range(6):
        optimizer.zero_grad()
        sum((param**2).sum() for param in params).backward()
        deferring.sync()
        before = deferring.position()
        optimizer.step()
        sent.append(deferring.position() - before)
        deferring.sync()
    assert sent[0] > 1
    assert sent[-2:] == [1, 1]


@pytest.mark.parametrize("size", [3, 300_000])
def test_a_steps_program_is_registered_and_first_run_without_a_wait_if_it_is_not_large(
    size, without_maintenance, deferring, monkeypatch
):
    param = gw.ones(size, requires_grad=True)
    optimizer = gw.optim.Adam([param], lr=0.5)
    answers, receive = [], Link.receive_batch

    def counted(link):
        answers.append(step)
        return receive(link)

    monkeypatch.setattr(Link, "receive_batch", counted)
    for step in range(4):
        optimizer.zero_grad()
        (param**2).sum().backward()
        deferring.sync()
        answers.clear()
        optimizer.step()
        if step == 0:
            assert bool(answers) is (size > 3)
            assert len(deferring.programs) == 1
    assert answers == []
    known = gw.ones(size, requires_grad=True)
    plain = gw.optim.Adam([known], lr=0.5, foreach=False)
    plain._steps._failures = 2  # op by op
    for _ in range(4):
        plain.zero_grad()
        (known**2).sum().backward()
        plain.step()
    assert param.tolist() == known.tolist()


def test_a_registration_that_is_refused_later_is_reported_and_made_again(deferring):
    class Program:
        data, hash = b"\xff", bytes(32)

    run_program(deferring, Program, lambda: None, certain=True)
    with pytest.raises(gw.GradwireError) as caught:
        deferring.sync()
    assert caught.value.reason not in ("PROGRAM_UNKNOWN", "INTERNAL")
    assert not deferring.programs


def test_a_refused_registration_is_what_is_reported(deferring):
    class Program:
        data, hash = b"\xff", bytes(32)

    def build(values):
        request = programs_pb2.RunProgramRequest(hash=Program.hash, repeat=1)
        return service_pb2.Command(run_program=request)

    with pytest.raises(gw.GradwireError) as caught:
        run_program(deferring, Program, lambda: commands.run(deferring, "run_program", ("a",), [], build))
    assert caught.value.reason not in ("PROGRAM_UNKNOWN", "INTERNAL")
    assert Program.hash not in deferring.programs
    deferring.sync()


@pytest.mark.parametrize("ends", ["refused", "interrupted"])
def test_a_program_whose_first_run_fails_is_known_to_be_registered(without_maintenance, deferring, ends):
    """Otherwise the server's cache, which holds it, would drop another one that the client still runs."""

    class Program:
        hash, data = learned_program(deferring)

    deferring.programs.clear()

    def build(values):
        request = programs_pb2.RunProgramRequest(hash=Program.hash, repeat=1)
        return service_pb2.Command(run_program=request)

    def send():
        if ends == "interrupted":
            raise KeyboardInterrupt
        return commands.run(deferring, "run_program", ("a",), [], build)

    with pytest.raises(KeyboardInterrupt if ends == "interrupted" else gw.GradwireError):
        run_program(deferring, Program, send)
    deferring.sync()
    assert Program.hash in deferring.programs


def learned_program(session):
    """The hash and the bytes of a program of an optimizer."""
    param = gw.ones(3, requires_grad=True)
    optimizer = gw.optim.Adam([param], lr=0.5)
    for _ in range(4):
        optimizer.zero_grad()
        (param**2).sum().backward()
        optimizer.step()
    session.sync()
    ((name, data),) = session.programs.items()
    return name, data


@pytest.mark.parametrize(
    "text", ["SGD(params, lr=0.01, momentum=0.9)", "Adam(params, lr=0.1)", "RAdam(params, lr=0.1)"]
)
def test_what_is_changed_between_steps_is_not_missed(text, deferring):
    """Options, state, gradients that are missing, frozen parameters, new groups: as in PyTorch, from any step on."""
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")

    def run(library):
        params = [library.full((3,), 1.0 + k, dtype=library.float64, requires_grad=True) for k in range(3)]
        optimizer = eval(text, {**vars(library.optim), "params": params})
        ends = []
        for step in range(30):
            optimizer.zero_grad()
            used = params[:2] if step in (8, 9, 10, 11) else params
            sum((param**4).sum() for param in used).backward()
            if step == 5:
                optimizer.param_groups[0]["lr"] = 0.02
            if step == 13:
                optimizer.param_groups[0]["weight_decay"] = 0.1
            if step == 16:
                optimizer.load_state_dict(optimizer.state_dict())
            if step == 19:
                params[0].requires_grad_(False)
                params[0].grad = None
            if step == 22:
                params[0].requires_grad_(True)
                optimizer.add_param_group({"params": [library.ones(2, dtype=library.float64, requires_grad=True)]})
            if step == 25:
                params[1].grad = library.ones(3, dtype=library.float64)
            optimizer.step()
            ends.append([value for param in params for value in param.detach().tolist()])
        return ends

    expected, found = run(torch), run(gw)
    for step, (one, other) in enumerate(zip(expected, found, strict=True)):
        assert other == pytest.approx(one, rel=1e-12), step
