"""In-place changes of sizes and strides: t_(), unsqueeze_() and similar, without recorded history."""

from typing import Any

import pytest

import gradwire
from tests.client.oracle import agree, refuse

TURNS = {
    "t_": lambda x: x.t_(),
    "unsqueeze_": lambda x: x.unsqueeze_(0),
    "squeeze_": lambda x: x.squeeze_(),
    "transpose_": lambda x: x.transpose_(0, 1),
    "swapaxes_": lambda x: x.swapaxes_(0, 1),
    "swapdims_": lambda x: x.swapdims_(0, -1),
    "as_strided_": lambda x: x.as_strided_((2, 2), (3, 1)),
}


def differentiate(tensor: Any, squared: bool = False) -> None:
    """All that may be refused, now."""
    (tensor * tensor if squared else tensor).sum().backward()
    gradwire.sync()


@pytest.mark.parametrize("turn", list(TURNS))
@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
def test_a_leaf_whose_sizes_are_changed_without_a_record_gets_its_gradient_in_the_new_ones(
    session: gradwire.Session, turn: str, mode: str
) -> None:
    def program(module: Any) -> Any:
        w = module.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
        heard = []
        w.register_hook(lambda g: heard.append(list(g.shape)))
        with getattr(module, mode)():
            TURNS[turn](w)
        (w * w).sum().backward()
        optimizer = module.optim.SGD([w], lr=0.1)
        optimizer.step()
        return [w.detach(), w.grad, w.is_leaf, w.requires_grad, w._version, heard]

    agree(program)


@pytest.mark.parametrize("turn", list(TURNS))
@pytest.mark.parametrize("of", ["leaf", "node"])
def test_a_view_whose_sizes_are_changed_without_a_record_follows_its_base(
    session: gradwire.Session, turn: str, of: str
) -> None:
    def program(module: Any) -> Any:
        w = module.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
        view = w[:] if of == "leaf" else (w * 2)[:]
        with module.no_grad():
            TURNS[turn](view)
        (view * view).sum().backward()
        return [view.detach(), w.grad, view.requires_grad]

    agree(program)


def test_what_saved_a_leaf_before_its_sizes_changed_refuses_it(session: gradwire.Session) -> None:
    def program(module: Any) -> Any:
        w = module.ones(2, 2, requires_grad=True)
        before = (w * w).sum()
        with module.no_grad():
            w.t_()
        before.backward()

    refuse(program, RuntimeError, "modified by an inplace operation")


def test_a_gradient_of_the_sizes_that_a_leaf_had_is_refused(session: gradwire.Session) -> None:
    for kept in (False, True):
        w = gradwire.ones(2, 3, requires_grad=True)
        before = (w + 1).sum()
        if kept:
            (w * 2).sum().backward()
        with gradwire.no_grad():
            w.t_()
        with pytest.raises(RuntimeError, match="invalid gradient"):
            differentiate((w * w).sum() if kept else before)
        assert w.grad is None or w.grad.tolist() == [[2.0] * 3] * 2


def test_a_view_follows_its_base_whose_sizes_changed_since(session: gradwire.Session) -> None:
    def of_a_leaf(module: Any) -> Any:
        w = module.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        row = w[0]
        with module.no_grad():
            w.t_()
            item = row[1]
        ((row * row).sum() + w[1, 0] * 5).backward()
        return [w.grad, row.detach(), item.item(), row._version]

    def written_over(module: Any) -> Any:
        base, scale = module.tensor([[1.0, 2.0], [3.0, 4.0]]), module.tensor([3.0, 5.0], requires_grad=True)
        row = base[0]
        base.t_()
        item = row[1:]
        row.mul_(scale)
        turned = base * module.tensor([[1.0, 10.0], [100.0, 1000.0]])
        (item * 7 + turned).sum().backward()
        return [scale.grad, row.detach(), base.detach(), item.detach()]

    def base_written(module: Any) -> Any:
        base, scale = module.arange(6.0).reshape(2, 3).clone(), module.tensor(3.0, requires_grad=True)
        part = base[:, 1:]
        deeper = part[1]
        base.t_()
        base.mul_(scale)
        (part.sum() + (deeper * module.tensor([10.0, 100.0])).sum()).backward()
        return [scale.grad, part.detach(), deeper.detach()]

    for program in (of_a_leaf, written_over, base_written):
        agree(program)


def test_a_view_that_its_base_left_behind_tells_what_it_is(session: gradwire.Session) -> None:
    w = gradwire.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    row = w[0]
    w.data = gradwire.zeros(2, 2)
    row.detach().add_(1.0)
    assert row._version == 1
    assert row.tolist() == [2.0, 3.0]
    with pytest.raises(RuntimeError, match="the view cannot follow its base"):
        differentiate(row, squared=True)


@pytest.mark.parametrize("turn", list(TURNS))
@pytest.mark.parametrize("kind", ["plain", "view", "detached", "data", "gradient"])
def test_what_records_nothing_takes_the_sizes_itself_and_counts_it(
    session: gradwire.Session, turn: str, kind: str
) -> None:
    def program(module: Any) -> Any:
        w = module.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
        (w * w).sum().backward()
        base = w.detach().clone()
        ways = {"plain": base, "view": base[:], "detached": base.detach(), "data": base.data, "gradient": w.grad}
        target = ways[kind]
        before = target._version
        TURNS[turn](target)
        after = target._version
        target.mul_(2.0)
        return [target, base, w.grad, list(target.stride()), after - before, base._version, target._is_view()]

    agree(program)


def test_a_gradient_whose_sizes_were_changed_is_what_backward_adds_to(session: gradwire.Session) -> None:
    def program(module: Any) -> Any:
        w = module.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        (w * w).sum().backward()
        w.grad.t_()
        (w * w).sum().backward()
        module.optim.SGD([w], lr=0.5).step()
        return [w.grad, w.detach()]

    agree(program)


@pytest.mark.parametrize("turn", list(TURNS))
def test_a_recorded_change_of_sizes_counts_as_a_change(session: gradwire.Session, turn: str) -> None:
    def told(module: Any) -> Any:
        w = module.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
        y = w * 2
        row = y[0]
        TURNS[turn](y)
        y.mul_(3)
        (row * row).sum().backward()
        return [w.grad, y._version, row.detach()]

    def saved(module: Any) -> Any:
        y = module.ones(2, 3, requires_grad=True).exp()
        TURNS[turn](y)
        y.sum().backward()

    if turn != "as_strided_":  # of what the new sizes do not show PyTorch loses the gradient
        agree(told)
    refuse(saved, RuntimeError, "modified by an inplace operation")


def test_a_change_of_sizes_that_pytorch_does_not_record_is_refused(session: gradwire.Session) -> None:
    def of_a_leaf(module: Any) -> Any:
        module.ones(2, 2, requires_grad=True)[:].t_()

    def of_many(module: Any) -> Any:
        (module.ones(2, 2, requires_grad=True) * 2).unbind(0)[0].unsqueeze_(0)

    refuse(of_a_leaf, RuntimeError, "a view of a leaf Variable that requires grad")
    refuse(of_many, RuntimeError, "is a view and is being modified inplace")
    y = gradwire.ones(2, 2, requires_grad=True) * 2
    refuse(lambda module: (module.ones(2, requires_grad=True) * 2).unsqueeze_(7), IndexError, "Dimension out of range")
    with pytest.raises(IndexError):
        y.unsqueeze_(7)
    assert y._version == 0


@pytest.mark.parametrize("turn", list(TURNS))
def test_a_retained_gradient_has_the_sizes_that_its_tensor_has_by_then(session: gradwire.Session, turn: str) -> None:
    """PyTorch's has the sizes from before the change."""
    for _ in range(3):
        w = gradwire.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
        y = w * 2
        y.retain_grad()
        TURNS[turn](y)
        (y * y).sum().backward()
        assert y.retains_grad
        assert y.grad.tolist() == (y * 2).tolist()


def test_a_view_follows_a_base_whose_sizes_changed_since(session: gradwire.Session) -> None:
    def by_leaf(t: Any) -> Any:
        w = t.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        row = w[0]
        with t.no_grad():
            w.t_()
        (row * row).sum().backward()
        return w.grad

    def by_node(t: Any) -> Any:
        w = t.arange(6.0).requires_grad_()
        x = (w * 2).view(2, 3).clone()
        row = x[0]
        part = row[1:]
        x.t_()
        row.mul_(3)
        part[:1].add_(1)
        x.unsqueeze_(0)
        ((x * x).sum() + (part**2).sum()).backward()
        return w.grad, x.grad_fn.name(), row.grad_fn.name(), x._version

    for case in (by_leaf, by_node):
        agree(case)


def test_what_a_node_made_keeps_its_node_when_its_sizes_change_under_no_grad(session: gradwire.Session) -> None:
    """So a gradient of the same sizes is the node's own, and of others refused unless it broadcasts from them."""

    def case(t: Any, shape: tuple[int, ...] = (2, 2), turn: str = "t_", *args: int) -> Any:
        w = t.ones(shape, requires_grad=True)
        y = w * 2
        with t.no_grad():
            getattr(y, turn)(*args)
        (y * t.arange(y.numel()).reshape(y.shape)).sum().backward()
        return w.grad, y.grad_fn.name(), y.shape, y._version, y.is_leaf

    agree(case)
    agree(lambda t: case(t, (2, 3), "unsqueeze_", 0))
    for shape, turn in (((2, 3), "t_"), ((1, 3), "squeeze_")):
        refuse(lambda t, shape=shape, turn=turn: case(t, shape, turn), RuntimeError, "invalid gradient")


def test_sizes_changed_in_place_leave_the_tensor_what_it_is(session: gradwire.Session) -> None:
    """It is no view, its version counts the change, and its node has PyTorch's name."""

    def case(t: Any) -> Any:
        told = []
        for turn in TURNS.values():
            made = t.ones(6, requires_grad=True) * 2
            for x in (t.ones(2, 3), t.ones(2, 3, requires_grad=True) * 2, made.view(2, 3)):
                turn(x)
                node = x.grad_fn and x.grad_fn.name()
                told.append((node, x._base is not None, x._version, tuple(x.shape), x.stride()))
        return told

    agree(case)


def test_an_inference_tensors_sizes_are_not_changed_outside_of_inference_mode(session: gradwire.Session) -> None:
    def case(t: Any) -> Any:
        with t.inference_mode():
            x = t.ones(2, 3)
            x.t_()
        assert x.shape == (3, 2)
        x.t_()

    refuse(case, RuntimeError, "Inplace update to inference tensor outside InferenceMode is not allowed")


def test_the_sizes_of_a_view_of_a_leaf_and_of_one_of_several_are_not_changed_in_grad_mode(
    session: gradwire.Session,
) -> None:
    def of_leaf(t: Any) -> Any:
        t.ones(2, 3, requires_grad=True).mT.transpose_(0, 1)

    def of_several(t: Any) -> Any:
        (t.ones(2, 3, requires_grad=True) * 2).split(1)[1].t_()

    refuse(of_leaf, RuntimeError, "a view of a leaf Variable that requires grad is being used in an in-place operation")
    refuse(of_several, RuntimeError, "Output 1 of Split is a view and is being modified inplace")


def test_a_compiled_function_that_changes_a_leafs_sizes_does_what_eager_does(session: gradwire.Session) -> None:
    def step(w: Any) -> Any:
        with gradwire.no_grad():
            w.t_()
        loss = (w * w).sum()
        loss.backward()
        return loss

    results = []
    for function in (step, gradwire.compile(step)):
        told = []
        for _ in range(4):
            w = gradwire.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
            loss = function(w)
            told.append((loss.item(), w.tolist(), w.grad.tolist(), w.is_leaf))
        results.append(told)
    assert results[0] == results[1]


def test_a_compiled_function_that_changes_the_sizes_of_its_argument_does_what_eager_does(
    session: gradwire.Session,
) -> None:
    def step(x: Any) -> Any:
        x.t_()
        return x * 2

    results = []
    for function in (step, gradwire.compile(step)):
        told = []
        for _ in range(4):
            x = gradwire.tensor([[1.0, 2.0], [3.0, 4.0]])
            told.append((function(x).tolist(), x.tolist(), x._version))
        results.append(told)
    assert results[0] == results[1]


@pytest.mark.usefixtures("session")
def test_tensors_take_other_sizes_and_other_memory() -> None:
    def sizes(t: Any) -> Any:
        x = t.arange(6.0)
        start, seen = x._version, []
        x.resize_(2, 2)
        seen.append((x.tolist(), x.stride(), x._version - start))
        x.resize_((2, 2))
        seen.append(x._version - start)
        y = t.arange(3).resize_as_(t.zeros(2, 3))
        seen.append((y[0].tolist(), list(y.shape), str(y.dtype)))
        return seen

    def memory(t: Any) -> Any:
        x, y = t.ones(3, 2), t.arange(4.0)
        x.set_(y)
        y[0] = 9
        w = t.nn.Parameter(t.ones(4))
        with t.no_grad():
            w.set_(w[1:])
        (t.cat((w, w)) * 2).sum().backward()
        return x.tolist(), w.grad.tolist(), list(t.ones(3).set_().shape)

    def saved(t: Any) -> Any:
        a, b = t.ones(3, requires_grad=True), t.ones(3) * 2
        product = (a * b).sum()
        b.set_(t.zeros(3))
        product.backward()
        return product.item()

    agree(sizes)
    agree(memory)
    refuse(saved, RuntimeError, "modified by an inplace operation")
    refuse(
        lambda t: t.ones(2, requires_grad=True).resize_(3), RuntimeError, "cannot resize variables that require grad"
    )
    refuse(lambda t: t.nn.Parameter(t.ones(4)).set_(t.ones(2)), RuntimeError, "a leaf Variable that requires grad")


def test_a_tensor_resized_within_its_memory_shows_the_elements_there(deferring: gradwire.Session) -> None:
    def resized(t: Any) -> Any:
        whole, part, across = t.arange(10.0), t.arange(10.0)[2:4], t.arange(6.0).view(3, 2).t()
        whole.resize_(3).resize_(10)
        return whole.tolist(), part.resize_(5).tolist(), across.resize_(6).tolist()

    agree(resized)


def test_set_of_tensors_that_require_grad_is_refused(deferring: gradwire.Session) -> None:
    made = gradwire.ones(3, requires_grad=True) * 2
    for target, source in ((made, gradwire.ones(3)), (gradwire.ones(3), made)):
        with pytest.raises(RuntimeError, match="derivative for set_ is not implemented"):
            target.set_(source)


def test_set_shares_memory_with_its_offset_and_strides(deferring: gradwire.Session) -> None:
    def taken(t: Any) -> Any:
        x, y, e = t.zeros(2), t.arange(12.0).view(3, 4), t.zeros(1).expand(3)
        x.set_(y.t()[1:])
        z = x[0]
        x.add_(1)
        e.set_(y[1])
        told = [x.storage_offset(), x.stride(), x.is_set_to(y.t()[1:]), z.data_ptr() - y.data_ptr(), y.tolist()]
        return [*told, x._base is None, y._version, e.tolist(), e.storage_offset()]

    def storages(t: Any) -> Any:
        y = t.arange(12.0).view(3, 4)
        sources = [(y.untyped_storage(),), (y.storage(), 1, (2, 2), (3, 1)), (y, 1, (2, 2)), (y, 2, (2, 2), (1, 3))]
        return [t.zeros(2).set_(*each).tolist() for each in sources]

    agree(taken)
    agree(storages)
    refuse(lambda t: t.zeros(2).set_([1.0]), TypeError, "set_")


def test_resize_takes_a_memory_format(deferring: gradwire.Session) -> None:
    def resized(t: Any) -> Any:
        four, same = t.arange(24.0).resize_(1, 2, 3, 4, memory_format=t.channels_last), t.arange(8.0).view(1, 2, 2, 2)
        same.resize_(1, 2, 2, 2, memory_format=t.channels_last)
        five = t.arange(24.0).resize_(1, 2, 3, 2, 2, memory_format=t.channels_last_3d)
        like = t.arange(24.0).resize_as_(four, memory_format=t.preserve_format)
        plain = t.resize_as_(t.arange(24.0), four)
        return [(each.tolist(), each.stride()) for each in (four, same, five, like, plain)]

    agree(resized)
    refuse(lambda t: t.ones(4).resize_(2, 2, memory_format=t.channels_last), RuntimeError, "required rank 4")
    refuse(
        lambda t: t.ones(4).resize_(2, 2, memory_format=t.preserve_format), RuntimeError, "Unsupported memory format"
    )


def test_views_of_a_view_that_was_given_other_data(deferring: gradwire.Session) -> None:
    """Their versions are counted from the view's own: its data is no longer the base's."""

    def trained(t: Any) -> Any:
        weight = t.ones(4).reshape(2, 2).requires_grad_()
        found = []
        for step in range(4):
            if step == 1:
                weight.data = t.full((2, 2), 3.0)
            if step > 1:
                with t.no_grad():
                    weight.mul_(0.5)
            turned, flat = weight.t(), weight.view(4)
            (turned * turned + flat[:2]).sum().backward()
            found.append((turned.grad_fn.name(), flat.grad_fn.name(), weight.grad.tolist()))
            weight.grad = None
        return found

    agree(trained)
