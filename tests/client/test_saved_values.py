"""saved_tensors_hooks over the server: memory, threads, vmap, programs. The scenarios test their rules."""

import gc
import threading
import weakref
from typing import Any

import pytest

import gradwire
from gradwire.autograd.graph import save_on_cpu, saved_tensors_hooks
from tests.client.oracle import agree


def _bytes(session: gradwire.Session) -> int:
    gc.collect()
    return session.describe().bytes


def test_the_server_lets_go_of_what_is_packed(session: gradwire.Session) -> None:
    with session:
        x = gradwire.ones(100_000, requires_grad=True)
        start = _bytes(session)
        y = x.exp().log().sum()
        plain = _bytes(session) - start
        del y
        with saved_tensors_hooks(lambda t: t.shape, lambda shape: gradwire.full(shape, 2.0)):
            y = x.exp().log().sum()
        assert plain >= 400_000
        assert _bytes(session) - start == 4
        y.backward()
        assert x.grad is not None
        assert x.grad[0].item() == 1.0  # exp' of a result of 2, over log' of an argument of 2


def test_what_pack_returned_goes_with_the_graph(session: gradwire.Session) -> None:
    class Box:
        def __init__(self, tensor: Any) -> None:
            self.tensor = tensor

    boxes: list[weakref.ref[Box]] = []

    def pack(tensor: Any) -> Box:
        box = Box(tensor)
        boxes.append(weakref.ref(box))
        return box

    with session:
        start = _bytes(session)
        x = gradwire.ones(1000, requires_grad=True)
        with saved_tensors_hooks(pack, lambda box: box.tensor):
            y, z = x.exp().sum(), (x * x).sum()
        assert len(boxes) == 3
        y.backward()
        del z
        for _ in range(3):  # the server says in an answer what went with the batch before
            session.describe()
        assert [box() for box in boxes] == [None] * 3
        assert not session.hooks
        del x, y
        for _ in range(2):
            session.describe()
        assert _bytes(session) == start


def test_hooks_are_those_of_the_thread_that_is_inside(session: gradwire.Session) -> None:
    counts = {0: 0, 1: 0, 2: 0}
    inside = threading.Barrier(3, timeout=120)
    gradients: dict[int, Any] = {}

    def work(number: int) -> None:
        def pack(tensor: Any) -> Any:
            counts[number] += 1
            return tensor.clone()

        with session:
            x = gradwire.tensor([1.0, 2.0], requires_grad=True)
            with saved_tensors_hooks(pack, lambda t: t):
                inside.wait()
                y = x
                for _ in range(number):
                    y = y.exp()
                inside.wait()
            y.sum().backward()
            assert x.grad is not None
            gradients[number] = x.grad.tolist()

    threads = [threading.Thread(target=work, args=(number,)) for number in counts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert counts == {0: 0, 1: 1, 2: 2}
    assert gradients[0] == [1.0, 1.0]
    assert len(gradients) == 3


def test_transforms_refuse_them(session: gradwire.Session) -> None:
    with session:
        x = gradwire.tensor([[1.0, 2.0], [3.0, 4.0]])
        mapped = gradwire.func.vmap(gradwire.func.grad(lambda v: (v**3).sum()))
        with saved_tensors_hooks(lambda t: t, lambda t: t), pytest.raises(RuntimeError, match="saved tensor hooks"):
            mapped(x)
        assert mapped(x).tolist() == [[3.0, 12.0], [27.0, 48.0]]


def test_a_compiled_function_refuses_them(session: gradwire.Session) -> None:
    with session:
        x = gradwire.ones(3, requires_grad=True)

        @gradwire.compile(fullgraph=True)
        def step(x: gradwire.Tensor) -> gradwire.Tensor:
            with save_on_cpu():
                return x.exp() * 2

        with pytest.raises(RuntimeError, match="compiled function"):
            step(x)
        assert (x * 2).tolist() == [2.0] * 3


@pytest.mark.parametrize("given", [(2,), (3, 1)])
def test_what_is_unpacked_has_to_be_like_what_was_packed(session: gradwire.Session, given: tuple[int, ...]) -> None:
    with session:
        x = gradwire.ones(3, requires_grad=True)
        with saved_tensors_hooks(lambda t: t, lambda t: gradwire.ones(given)):
            y = x.exp().sum()
        with pytest.raises(RuntimeError, match="unpack_hook has changed the size"):
            y.backward(retain_graph=True)
        assert x.grad is None
        with saved_tensors_hooks(lambda t: t, lambda t: gradwire.ones(3, dtype=gradwire.float64)):
            y = x.exp().sum()
        with pytest.raises(RuntimeError, match="unpack_hook has changed the type"):
            y.backward()
        assert x.grad is None


@pytest.mark.usefixtures("session")
def test_saved_values_may_be_changed_in_place_where_it_is_allowed() -> None:
    def told(t: Any) -> Any:
        allowed = t.autograd.graph.allow_mutation_on_saved_tensors
        a = t.tensor([1.0, 2.0], requires_grad=True)
        with allowed():
            b = a.clone()
            first = (b**3).sum()
            b[:1].mul_(10)
            slope = t.autograd.grad(first + b.sum(), a, create_graph=True)[0]
            second = t.autograd.grad(slope.sum(), a)[0]
            late = (a**2).sum()
            with pytest.raises(RuntimeError, match="cannot be nested"), allowed():
                pass
        with pytest.raises(AssertionError, match="outside of the 'allow_mutation_on_saved_tensors' context"):
            late.backward()
        return slope.detach(), second

    agree(told)


@pytest.mark.usefixtures("session")
def test_a_saved_value_is_copied_only_when_it_is_changed() -> None:
    def told(t: Any) -> Any:
        counts = []
        with t.autograd.graph.allow_mutation_on_saved_tensors() as held:

            def note() -> None:
                counts.append(len(list(held.cloned.items())))

            a = t.tensor([1.0, 2.0, 3.0], requires_grad=True)
            b = a * 1
            x, y = b**2, b**3
            note()
            b.add_(1)  # one copy for both
            note()
            z = b**2
            b.zero_()
            note()
            with t.no_grad():
                b.data.mul_(2)  # nothing new was saved
            note()
            slope = t.autograd.grad((x + y + z).sum(), a)
            note()
            del x, y, z
            note()
            c, d = t.ones(3).requires_grad_(), t.ones(3) * 2
            out, other = c * d, (c.exp() * d[1:].sum()).sum()
            t.sin(t.ones(3), out=d)
            note()
            further = t.autograd.grad(out.sum() + other, c)
            del out, other
            note()
        return counts, slope, further, b.detach(), d

    agree(told)


def test_a_saved_value_is_copied_when_a_view_is_changed(session: gradwire.Session) -> None:
    """PyTorch gives 9, 16 and 33 here."""
    with session, gradwire.autograd.graph.allow_mutation_on_saved_tensors():
        a = gradwire.tensor([1.0, 2.0, 3.0], requires_grad=True)
        b = a * 1
        y = b**2 + b**3
        b.add_(1)
        z = b**2
        b[1:].zero_()
        (slope,) = gradwire.autograd.grad((y + z).sum(), a)
    assert slope.tolist() == [9.0, 22.0, 41.0]  # 2a + 3a² + 2(a + 1)


def test_running_statistics_may_change_after_they_were_saved(session: gradwire.Session) -> None:
    """PyTorch gives the gradient of the later statistics here."""
    with session, gradwire.autograd.graph.allow_mutation_on_saved_tensors():
        x = gradwire.tensor([[1.0, 2.0], [3.0, 5.0], [4.0, 1.0]], requires_grad=True)
        mean, var = gradwire.tensor([0.5, 0.25]), gradwire.tensor([1.5, 2.0])
        expected = 3 * (x.detach() - mean) ** 2 / (var + 1e-5) ** 1.5
        y = gradwire.nn.functional.batch_norm(x, mean, var, training=False)
        gradwire.nn.functional.batch_norm(x.detach(), mean, var, training=True)
        (slope,) = gradwire.autograd.grad((y**3).sum(), x)
    assert gradwire.allclose(slope, expected)


@pytest.mark.usefixtures("session")
def test_an_optimizer_may_step_before_backward() -> None:
    def told(t: Any) -> Any:
        weight = t.nn.Parameter(t.ones(3))
        optimizer = t.optim.Adam([weight], lr=0.5)
        with t.autograd.graph.allow_mutation_on_saved_tensors():
            y, other = (weight**2).sum(), (weight * 3).sum()
            other.backward()
            optimizer.step()
            return t.autograd.grad(y, weight), weight.detach()

    agree(told)


def test_a_change_that_the_context_does_not_see_is_refused(session: gradwire.Session) -> None:
    with session, gradwire.autograd.graph.allow_mutation_on_saved_tensors():
        a = gradwire.ones(3, requires_grad=True)
        b = a * 2
        y = (b**2).sum()
        other = threading.Thread(target=b.detach().mul_, args=(3,))  # a thread has no contexts of another
        other.start()
        other.join()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()


def test_a_saved_value_is_no_second_handle_of_the_programs_tensor(session: gradwire.Session) -> None:
    x = gradwire.ones(3, requires_grad=True)
    mask = x > 0
    y = gradwire.where(mask, x, x * 2)
    shown = y.grad_fn._saved_condition
    assert shown.tolist() == [True] * 3
    del shown
    gc.collect()
    session.sync()
    assert mask.tolist() == [True] * 3


def test_a_saved_value_outlives_the_programs_tensor(session: gradwire.Session) -> None:
    x = gradwire.ones(3, requires_grad=True)
    assert gradwire.where(x > 0, x, x * 2).grad_fn._saved_condition.tolist() == [True] * 3
    assert (x * x).grad_fn._saved_self is x


def test_the_variable_of_a_node_outlives_the_programs_tensor(session: gradwire.Session) -> None:
    def made() -> gradwire.Tensor:
        return gradwire.full((3,), 4.0, requires_grad=True) * 2

    y = made()
    gc.collect()
    leaf = y.grad_fn.next_functions[0][0].variable
    assert leaf.tolist() == [4.0] * 3
    assert leaf.is_leaf and leaf.requires_grad
    assert leaf.grad is None
    z = y.sum()
    for times in (1, 2):
        z.backward(retain_graph=True)
        assert leaf.grad.tolist() == [2.0 * times] * 3


@pytest.mark.usefixtures("session")
def test_saved_values_of_sparse_results_are_sparse() -> None:
    def shown(torch: Any) -> Any:
        found = []
        places = torch.tensor([[0, 1, 1], [2, 0, 1]])

        def note(tensor: Any) -> None:
            found.append((str(tensor.layout).rpartition(".")[2], tensor.detach().to_dense()))

        for inside in (False, True):
            a = torch.sparse_coo_tensor(places, torch.tensor([1.0, 2.0, 3.0]), (3, 3)).coalesce().requires_grad_()
            twice = torch.sparse_coo_tensor(torch.tensor([[1, 1]]), torch.tensor([1.0, 1.0]), requires_grad=True)
            with save_on_cpu_of(torch) if inside else torch.enable_grad():
                for made in (a * a, twice * twice):
                    note(made.grad_fn._saved_self)
                    note(made.grad_fn._saved_other)
                    made.to_dense().sum().backward()
                note(a.sin().grad_fn._saved_self)
            note(a.grad)
            note(twice.grad)
        return found

    def save_on_cpu_of(torch: Any) -> Any:
        return torch.autograd.graph.save_on_cpu()

    agree(shown)
