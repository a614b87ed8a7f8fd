"""Steps of an optimizer go into the batch: from the second on they wait for nothing and read nothing."""

import pytest

import gradwire as gw
from gradwire import nn

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


def test_a_scheduled_learning_rate_waits_for_nothing(deferring, monkeypatch):
    w = gw.ones(3, requires_grad=True)
    optimizer = gw.optim.SGD([w], lr=1.0)
    counts, wait = [], deferring.wait

    def counted(*args):
        counts.append(1)
        return wait(*args)

    monkeypatch.setattr(deferring, "wait", counted)
    for step in range(5):
        if step == 2:
            counts.clear()
        optimizer.param_groups[0]["lr"] = 1.0 / (step + 2)
        w.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert counts == []
    assert w.tolist() == pytest.approx([1 - sum(1 / (step + 2) for step in range(5))] * 3)


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
