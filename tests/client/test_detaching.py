"""detach, data, clone, grad modes, moves and casts: SEMANTICS 3 and 4, over a socket, compared with PyTorch."""

import asyncio
import threading
from typing import Any

import pytest

import gradwire
from tests.client.oracle import agree, refuse

pytestmark = pytest.mark.usefixtures("session")


def leaf(t, *values):
    return t.tensor(values or (1.0, 2.0, 3.0), requires_grad=True)


def test_detach_is_a_leaf_on_the_same_values():
    def case(t):
        x = leaf(t)
        y = x * 2.0
        d = y.detach()
        with t.no_grad():
            d[0] = 100.0
        return d.is_leaf, d.requires_grad, d, y.tolist()

    agree(case)


def test_detach_shares_the_version_counter():
    def case(t):
        x = leaf(t)
        y = x.exp()
        y.detach().mul_(2.0)
        y.sum().backward()

    refuse(case, RuntimeError, "modified by an inplace operation")


def test_data_has_a_version_counter_of_its_own():
    def case(t):
        x = leaf(t)
        y = x.exp()
        y.data.mul_(2.0)
        y.sum().backward()
        return y.tolist(), x.grad

    agree(case)


def test_data_can_be_assigned():
    def case(t):
        x = leaf(t)
        x.data = t.tensor([4.0, 5.0])
        (x * x).sum().backward()
        return x, x.is_leaf, x.shape, x.grad

    agree(case)


@pytest.mark.parametrize("reads_before", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        lambda t, x: setattr(x, "data", t.ones(2, 3, dtype=t.float32)),
        lambda t, x: setattr(x, "data", t.ones(5, dtype=t.float64)),
        lambda t, x: x.t_(),
        lambda t, x: x.unsqueeze_(0),
    ],
    ids=["dtype", "sizes", "t_", "unsqueeze_"],
)
def test_a_gradient_keeps_its_dtype_and_sizes_when_its_tensor_has_others(change, reads_before):
    def read(tensor):
        return tensor.grad

    def case(t):
        x = t.ones(2, 3, dtype=t.float64, requires_grad=True)
        (x * x).sum().backward()
        if reads_before:
            read(x)
        with t.no_grad():
            change(t, x)
        fresh = t.ones(x.shape, dtype=x.dtype, requires_grad=True)  # as the changed tensor: its gradient is like it
        fresh.sum().backward()
        return [(str(read(each).dtype), tuple(read(each).shape), read(each).tolist()) for each in (x, fresh)]

    agree(case)


def test_a_compiled_function_sees_the_dtype_of_a_gradient_that_is_unlike_its_tensor():
    def case(t):
        w = t.tensor([1.0, 2.0], requires_grad=True)
        (w * w).sum().backward()
        doubled = t.compile(lambda: w.grad * 2) if t.__name__ == "gradwire" else lambda: w.grad * 2
        seen = [str(doubled().dtype) for _ in range(4)]
        w.data, w.grad = w.data.double(), None
        (w * w).sum().backward()
        w.data = w.data.float()
        return seen + [str(doubled().dtype) for _ in range(4)]

    agree(case)


def test_clone_stays_in_the_graph():
    def case(t):
        x = leaf(t)
        y = x.clone()
        y.sum().backward()
        return y, x.grad

    agree(case)


@pytest.mark.parametrize("name", ["no_grad", "inference_mode"])
def test_nothing_is_recorded_without_grad(name):
    def case(t):
        x = leaf(t)
        with getattr(t, name)():
            y = x * 2.0
            inside = t.is_grad_enabled()
        return y, inside, t.is_grad_enabled(), x * 2.0

    agree(case)


def test_backward_from_what_was_not_recorded_is_refused():
    def case(t):
        x = leaf(t)
        with t.no_grad():
            y = (x * 2.0).sum()
        y.backward()

    refuse(case, RuntimeError, "does not require grad and does not have a grad_fn")


def test_modes_nest():
    def case(t):
        seen = [t.is_grad_enabled()]
        with t.no_grad():
            seen.append(t.is_grad_enabled())
            with t.enable_grad():
                seen.append((leaf(t) * 2.0).requires_grad)
                with t.set_grad_enabled(False):
                    seen.append(t.is_grad_enabled())
                seen.append(t.is_grad_enabled())
            seen.append(t.is_grad_enabled())
        seen.append(t.is_grad_enabled())
        return seen

    agree(case)


def test_modes_decorate_functions():
    def case(t):
        @t.no_grad()
        def without(x):
            return x * 2.0

        @t.no_grad
        def bare(x):
            return x * 2.0

        @t.enable_grad()
        def recorded(x):
            return x * 2.0

        @t.set_grad_enabled(False)
        def told(x):
            return x * 2.0

        x = leaf(t)
        with t.no_grad():
            inner = recorded(x)
        return [each.requires_grad for each in (without(x), bare(x), inner, told(x))], t.is_grad_enabled()

    agree(case)


def test_modes_decorate_generators_between_whose_steps_the_callers_mode_holds():
    def case(t):
        @t.no_grad()
        def steps(x):
            for _ in range(2):
                yield (x * 2.0).requires_grad

        return [(flag, t.is_grad_enabled()) for flag in steps(leaf(t))]

    agree(case)


def test_set_grad_enabled_works_as_a_function():
    def case(t):
        t.set_grad_enabled(False)
        off = t.is_grad_enabled(), (leaf(t) * 2.0).requires_grad
        t.set_grad_enabled(True)
        return off, t.is_grad_enabled()

    agree(case)


def test_an_exception_restores_the_mode():
    def case(t):
        try:
            with t.no_grad():
                raise KeyError
        except KeyError:
            return t.is_grad_enabled()

    agree(case)


def test_a_new_thread_starts_enabled():
    def case(t):
        seen = []
        with t.no_grad():
            thread = threading.Thread(target=lambda: seen.append(t.is_grad_enabled()))
            thread.start()
            thread.join()
        return seen

    agree(case)


def test_a_task_keeps_its_own_mode():
    async def without(entered, leave):
        with gradwire.no_grad():
            entered.set()
            await leave.wait()
            return gradwire.is_grad_enabled()

    async def beside():
        entered, leave = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(without(entered, leave))
        await entered.wait()
        mine = gradwire.is_grad_enabled()
        leave.set()
        return mine, await task

    assert asyncio.run(beside()) == (True, False)


def test_a_view_made_under_no_grad_still_says_that_it_requires_grad():
    def case(t):
        x = leaf(t)
        with t.no_grad():
            v = x[0:2]
            y = x * 1.0
        return v.requires_grad, v.grad_fn, y.requires_grad

    agree(case)


def test_a_leaf_is_updated_in_place_under_no_grad_and_stays_the_leaf():
    def case(t):
        w = leaf(t)
        for _ in range(3):
            (w * w).sum().backward()
            with t.no_grad():
                w -= 0.1 * w.grad
                w.grad = None
        return w, w.is_leaf, w.grad

    agree(case)


def test_in_place_on_a_leaf_is_refused_with_grad_mode_on():
    def case(t):
        w = leaf(t)
        w += 1.0

    refuse(case, RuntimeError, "a leaf Variable that requires grad is being used in an in-place operation")


# Moves and casts.


@pytest.mark.parametrize("name", ["double", "half", "bfloat16"])
def test_a_cast_is_a_differentiable_copy(name):
    def case(t):
        x = leaf(t)
        y = getattr(x, name)()
        (y * y).sum().backward()
        return y, x.grad

    agree(case)


def test_a_cast_to_whole_numbers_is_a_leaf():
    agree(lambda t: [leaf(t).long(), leaf(t).int(), leaf(t).bool(), leaf(t).to(t.uint8)])


def test_nothing_to_change_is_the_same_tensor():
    def case(t):
        x = leaf(t)
        y = x.double()
        same = [x.float() is x, x.to(t.float32) is x, x.to("cpu") is x, x.cpu() is x, x.to(x) is x, x.type_as(x) is x]
        return same, y.to(x.dtype) is x, x.to(t.float32, copy=True) is x, x.contiguous() is x

    agree(case)


def test_a_cast_without_grad_is_a_leaf():
    agree(lambda t: t.tensor([1.5, 2.5]).double())


def test_to_takes_dtype_device_and_other():
    def case(t):
        x = leaf(t)
        return [x.to(t.float64), x.to("cpu", t.float64), x.to(dtype=t.float16), x.to(t.ones(1, dtype=t.float64))]

    agree(case)
    agree(lambda t: leaf(t).to(t.float32, copy=True))


def test_a_device_that_is_not_there_is_refused_and_nothing_changes():
    if gradwire.cuda.is_available():
        pytest.skip("the server has a GPU")
    x = gradwire.tensor([1.0, 2.0], requires_grad=True)
    for attempt in (x.cuda, lambda: x.to("cuda"), lambda: gradwire.ones(2, device="cuda")):
        with pytest.raises(RuntimeError, match=r"(?i)cuda|gpu"):
            attempt()
    (x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]


def test_type_names_what_it_is_and_casts():
    agree(
        lambda t: [leaf(t).type(), leaf(t).type(t.float64), leaf(t).type("torch.DoubleTensor"), t.ones(1).long().type()]
    )


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_view_of_an_inference_tensor_has_no_history_outside_of_inference_mode(requires_grad: bool) -> None:
    makers = [
        lambda x: x.view(-1),
        lambda x: x[0],
        lambda x: x.transpose(0, 1),
        lambda x: x.split(1, 2)[1],
        lambda x: x.expand(2, 2, 3),
        lambda x: x.reshape(3, 2),
        lambda x: x.mT.reshape(6),
        lambda x: x.contiguous(),
        lambda x: x.detach(),
        lambda x: x + 1,
        lambda x: x.clone(),
    ]

    def told(t: Any) -> Any:
        with t.inference_mode():
            x = t.ones(1, 2, 3, requires_grad=requires_grad)
            small = t.ones(1, 2, 3, requires_grad=requires_grad).resize_(1, 2)
        made = [make(x) for make in makers]
        flags = [(each.requires_grad, each.is_inference(), each._is_view(), each.is_leaf) for each in made]
        return [*flags, small.requires_grad, tuple(small.shape)]

    agree(told)
