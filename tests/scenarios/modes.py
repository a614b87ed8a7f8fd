"""Grad modes: nested, as decorators, in generators, threads and async tasks; inference mode."""

import asyncio
import threading

from tests.scenarios.kit import Client, leaf, over_the_wire_only, refused


def nested(torch):
    seen = [torch.is_grad_enabled()]
    with torch.no_grad():
        seen.append(torch.is_grad_enabled())
        with torch.enable_grad():
            seen.append((leaf(torch) * 2).requires_grad)
            with torch.set_grad_enabled(False):
                seen.append(torch.is_grad_enabled())
            seen.append(torch.is_grad_enabled())
        seen.append((leaf(torch) * 2).requires_grad)
    return [*seen, torch.is_grad_enabled()]


def after_an_exception(torch):
    try:
        with torch.no_grad():
            raise ValueError
    except ValueError:
        pass
    return torch.is_grad_enabled()


def as_a_function(torch):
    torch.set_grad_enabled(False)
    inside = torch.is_grad_enabled(), (leaf(torch) * 2).requires_grad
    torch.set_grad_enabled(True)
    return inside, torch.is_grad_enabled()


@over_the_wire_only(Client.DECORATORS)
def as_decorators(torch):
    x = leaf(torch)

    @torch.no_grad()
    def quiet():
        return (x * 2).requires_grad

    @torch.no_grad
    def quiet_without_brackets():
        return (x * 2).requires_grad

    @torch.enable_grad()
    def loud():
        return (x * 2).requires_grad

    @torch.set_grad_enabled(False)
    def set_off():
        return (x * 2).requires_grad

    @torch.inference_mode()
    def inferring():
        return (x * 2).is_inference(), torch.is_inference_mode_enabled()

    with torch.no_grad():
        inside = loud()
    return quiet(), quiet_without_brackets(), inside, set_off(), inferring(), torch.is_grad_enabled(), quiet.__name__


def one_object_used_twice(torch):
    mode = torch.no_grad()
    seen = []
    for _ in range(2):
        with mode:
            seen.append(torch.is_grad_enabled())
        seen.append(torch.is_grad_enabled())
    return seen


@over_the_wire_only(Client.DECORATORS)
def generators_keep_their_own(torch):
    @torch.no_grad()
    def quiet():
        yield torch.is_grad_enabled()
        got = yield torch.is_grad_enabled()
        yield got, torch.is_grad_enabled()

    steps = quiet()
    seen = [next(steps), torch.is_grad_enabled(), next(steps), torch.is_grad_enabled()]
    seen.append(steps.send("sent"))
    return seen, torch.is_grad_enabled()


@over_the_wire_only(Client.DECORATORS)
def a_generator_closes_in_its_mode(torch):
    seen = []

    @torch.no_grad()
    def quiet():
        try:
            yield 1
        finally:
            seen.append(torch.is_grad_enabled())

    steps = quiet()
    next(steps)
    steps.close()
    return seen, torch.is_grad_enabled()


def threads_start_enabled(torch):
    seen = []
    with torch.no_grad():
        worker = threading.Thread(target=lambda: seen.append(torch.is_grad_enabled()))
        worker.start()
        worker.join()
        seen.append(torch.is_grad_enabled())
    return seen


def a_task_does_not_change_its_caller(torch):
    async def quiet():
        with torch.no_grad():
            return torch.is_grad_enabled()

    async def all_of_it():
        inside = await quiet()
        return inside, torch.is_grad_enabled()

    return asyncio.run(all_of_it())


def views_under_no_grad(torch):
    x = leaf(torch)
    with torch.no_grad():
        v, w, d = x[0], x * 1, x.detach()
    return [(t.requires_grad, t.is_leaf, t.grad_fn is None) for t in (v, w, d)]


def constructors_under_no_grad(torch):
    with torch.no_grad():
        x = torch.ones(2, requires_grad=True)
        y = torch.tensor([1.0], requires_grad=True)
    return x.requires_grad, y.requires_grad, (x * 2).requires_grad


def inference_tensors(torch):
    x = leaf(torch)
    with torch.inference_mode():
        a, b, c = torch.ones(2), x * 2, x[0]
        d = torch.tensor([1.0])
        inside = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
    flags = [t.is_inference() for t in (a, b, c, d, a[0], a + 1, a.clone(), a.detach())]
    return flags, inside, torch.is_inference_mode_enabled(), b.requires_grad, c.requires_grad


def inference_tensors_in_arithmetic_that_saves_nothing(torch):
    with torch.inference_mode():
        a = torch.ones(3)
    x = leaf(torch)
    (a + x).sum().backward()
    return x.grad


def a_clone_of_an_inference_tensor_is_a_normal_one(torch):
    with torch.inference_mode():
        a = torch.ones(3) * 2
    b, x = a.clone(), leaf(torch)
    (b * x).sum().backward()
    return b.is_inference(), x.grad


def inference_changes_normal_tensors(torch):
    x = torch.zeros(3)
    with torch.inference_mode():
        x.add_(1)
        a = torch.zeros(3)
        a.add_(x)
        a[0] = 7.0
    return x, x._version, x.is_inference(), a, a.is_inference()


def inference_mode_off(torch):
    x = leaf(torch)
    with torch.inference_mode(), torch.inference_mode(False):
        y = x * 2
    return y.requires_grad, y.is_inference()


@refused(RuntimeError, "Inference tensors cannot be saved for backward")
def inference_tensors_are_not_saved(torch):
    with torch.inference_mode():
        a = torch.ones(3)
    return a * leaf(torch)


@refused(RuntimeError, "Inplace update to inference tensor outside InferenceMode is not allowed")
def inference_tensors_do_not_change_outside(torch):
    with torch.inference_mode():
        a = torch.ones(3)
    a.add_(1)


@refused(RuntimeError, "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed")
def inference_tensors_do_not_require_grad_outside(torch):
    with torch.inference_mode():
        a = torch.ones(3)
    a.requires_grad_()


@refused(RuntimeError, "Inference tensors do not track version counter")
def inference_tensors_have_no_version(torch):
    with torch.inference_mode():
        a = torch.ones(3)
    return a._version


@refused(RuntimeError, "A view was created in inference mode and is being modified inplace in normal mode")
def a_view_made_in_inference_mode_refuses(torch):
    y = leaf(torch) * 2
    with torch.inference_mode():
        v = y[0]
    v.add_(1)
