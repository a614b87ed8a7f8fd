"""Cases: training."""

import copy

import gradwire
from gradwire import nn, optim
from tests.client.compile_cases.table import case


def training(make_optimizer, body=None, **extra):
    gradwire.manual_seed(2)
    model = nn.Linear(3, 2)
    optimizer = make_optimizer(model.parameters())

    def step(x):
        optimizer.zero_grad()
        loss = (model(x) ** 2).sum()
        loss.backward()
        optimizer.step()
        loss = loss.detach()
        if body is not None:
            loss = loss * body(optimizer, model)
        return loss, model.weight.detach() * 1

    return step, optimizer, model


@case
def a_learning_rate():
    step, optimizer, _ = training(lambda params: optim.SGD(params, lr=0.1))
    return step, lambda: optimizer.param_groups[0].update(lr=0.01)


@case
def a_learning_rate_that_user_code_reads():
    step, optimizer, _ = training(lambda p: optim.SGD(p, lr=0.1), lambda o, m: o.param_groups[0]["lr"])
    return step, lambda: optimizer.param_groups[0].update(lr=0.01)


@case
def a_learning_rate_of_a_group_that_is_held():
    held = []
    step, optimizer, _ = training(lambda p: optim.SGD(p, lr=0.1), lambda o, m: held[0]["lr"])
    held.append(optimizer.param_groups[0])
    return step, lambda: optimizer.param_groups[0].update(lr=0.01)


@case
def a_learning_rate_by_a_state_dict():
    step, optimizer, _ = training(lambda p: optim.SGD(p, lr=0.1), lambda o, m: o.state_dict()["param_groups"][0]["lr"])
    return step, lambda: optimizer.param_groups[0].update(lr=0.01)


@case
def a_learning_rate_in_a_text():
    step, optimizer, _ = training(lambda p: optim.SGD(p, lr=0.1), lambda o, m: len(f"{o}"))
    return step, lambda: optimizer.param_groups[0].update(lr=0.0125)


@case
def a_schedulers_last_rate():
    held = []
    step, optimizer, _ = training(lambda p: optim.SGD(p, lr=0.1), lambda o, m: held[0].get_last_lr()[0])
    held.append(optim.lr_scheduler.ExponentialLR(optimizer, 0.5))
    return step, lambda: held[0].step()


@case
def a_schedulers_epoch():
    held = []
    step, optimizer, _ = training(lambda p: optim.SGD(p, lr=0.1), lambda o, m: 1 + held[0].last_epoch)
    held.append(optim.lr_scheduler.ExponentialLR(optimizer, 0.5))
    return step, lambda: held[0].step()


@case
def a_scheduler_that_steps_inside():
    held = []

    def body(o, m):
        held[0].step()
        return 1.0

    step, optimizer, _ = training(lambda p: optim.SGD(p, lr=0.1), body)
    held.append(optim.lr_scheduler.StepLR(optimizer, 2, 0.5))
    return step, lambda: None


@case
def a_scheduler_that_steps_between():
    step, optimizer, _ = training(lambda p: optim.Adam(p, lr=0.1))
    scheduler = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    return step, lambda: scheduler.step()


@case
def a_count_of_steps_that_user_code_reads():
    def body(o, m):
        return o.state[m.weight]["step"] + 0.0

    step, _, _ = training(lambda p: optim.Adam(p, lr=0.1), body)
    return step, lambda: None


@case
def weight_decay():
    step, optimizer, _ = training(lambda p: optim.SGD(p, lr=0.1))
    return step, lambda: optimizer.param_groups[0].update(weight_decay=0.5)


@case
def momentum():
    step, optimizer, _ = training(lambda p: optim.SGD(p, lr=0.1, momentum=0.9))
    return step, lambda: optimizer.param_groups[0].update(momentum=0.1)


@case
def a_group_that_is_added():
    extra = gradwire.ones(2, requires_grad=True)
    step, optimizer, _ = training(lambda p: optim.SGD(p, lr=0.1), lambda o, m: extra.detach())
    (extra * 2).sum().backward()
    return step, lambda: optimizer.add_param_group({"params": [extra]})


@case
def an_optimizers_state_that_is_loaded():
    step, optimizer, _ = training(lambda p: optim.Adam(p, lr=0.1))
    early = []
    inner = step

    def noted(x):
        return inner(x)

    def change():
        early.append(copy.deepcopy(optimizer.state_dict()))
        saved = early[0]
        for state in saved["state"].values():
            state["step"] = gradwire.tensor(50.0)
        optimizer.load_state_dict(saved)

    return noted, change


@case
def an_optimizers_state_that_is_cleared():
    step, optimizer, _ = training(lambda p: optim.SGD(p, lr=0.1, momentum=0.9))
    return step, lambda: optimizer.state.clear()


@case
def a_parameter_that_is_frozen_in_training():
    step, _, model = training(lambda p: optim.SGD(p, lr=0.1))
    return step, lambda: model.bias.requires_grad_(False)


@case
def a_parameter_whose_gradient_is_taken_away():
    step, _, model = training(lambda p: optim.Adam(p, lr=0.1))
    return step, lambda: setattr(model.bias, "grad", None)


@case
def an_optimizers_hook():
    step, optimizer, model = training(lambda p: optim.SGD(p, lr=0.1))

    def hook(o, args, kwargs):
        with gradwire.no_grad():
            model.weight.mul_(0.5)

    return step, lambda: optimizer.register_step_post_hook(hook)


@case
def an_optimizer_of_ones_own():
    class Mine(optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        @gradwire.no_grad()
        def step(self):
            for group in self.param_groups:
                for param in group["params"]:
                    param -= group["lr"] * param.grad

    step, optimizer, _ = training(lambda p: Mine(p, 0.1))
    return step, lambda: optimizer.param_groups[0].update(lr=0.01)


@case
def gradients_that_add_up():
    w = gradwire.ones(3, requires_grad=True)

    def step(x):
        (w * x).sum().backward()
        return w.grad * 1

    return step, lambda: setattr(w, "grad", None)


@case
def a_gradient_that_is_set():
    w = gradwire.ones(3, requires_grad=True)

    def step(x):
        (w * x).sum().backward()
        return w.grad * 1

    return step, lambda: setattr(w, "grad", gradwire.full((3,), 5.0))


@case
def a_step_that_is_patched_on_a_class_of_optimizers():
    step, _, _ = training(lambda params: optim.SGD(params, lr=0.1))
    return step, (lambda: setattr(optim.SGD, "step", lambda self: None)), None, lambda: delattr(optim.SGD, "step")
