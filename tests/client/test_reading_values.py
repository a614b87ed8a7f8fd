"""Reading tensors: SEMANTICS 7, over a socket, compared with PyTorch."""

import math
import re

import numpy as np
import pytest

import gradwire
from tests.client.oracle import agree, plain, refuse, torch

pytestmark = pytest.mark.usefixtures("session")


def leaf(t, *values):
    return t.tensor(values or (1.0, 2.0, 3.0), requires_grad=True)


def test_repr_is_pytorchs():
    def case(t):
        x = leaf(t)
        y = x * 2.0
        y.sum().backward()
        shown = [
            x,
            y,
            x.grad,
            x.detach(),
            x.double(),
            t.tensor([[1, 2], [3, 4]]),
            t.tensor(True),
            t.zeros(0),
            t.zeros(2, 0),
        ]
        return [repr(each) for each in shown] + [f"{x.grad=}", f"{x.sum():.3f}", f"{x}", str(x.shape), str(x.dtype)]

    agree(case)


@pytest.mark.parametrize("shape", [(2000,), (40, 50), (3, 40, 50), (1001, 2)])
def test_a_large_tensors_repr_is_pytorchs_though_only_its_corner_travels(shape):
    def case(t):
        return repr(t.arange(math.prod(shape)).reshape(shape) * 0.5)

    agree(case)


def test_html_shows_the_values():
    shown = gradwire.tensor([[1.0, 2.5]], requires_grad=True)._repr_html_()
    assert "2.5" in shown
    assert "float32" in shown


def test_a_nodes_repr_and_name_are_pytorchs():
    def case(t):
        y = leaf(t).sum()
        return re.sub(r"0x[0-9a-f]+", "0x", repr(y.grad_fn)), y.grad_fn.name(), type(y.grad_fn).__name__

    agree(case)


def test_nodes_of_the_last_op_have_pytorchs_names():
    def case(t):
        x, w = leaf(t), t.ones(3, 3, requires_grad=True)
        made = [
            x + x,
            w.mm(w),
            x.sum(),
            x.sum(0),
            x.relu(),
            x / 2.0,
            x**2,
            w.t(),
            x[0],
            w.reshape(9),
            -x,
            x.exp(),
            x.mean(),
        ]
        return [each.grad_fn.name() for each in made]

    agree(case)


def test_next_functions_walk_the_graph():
    def case(t):
        x = leaf(t)
        y = (x * x + t.ones(3)).sum()
        names = []
        node = y.grad_fn
        while node is not None:
            names.append((node.name(), [index for _, index in node.next_functions]))
            following = [each for each, _ in node.next_functions if each is not None]
            node = following[0] if following else None
        return names

    agree(case)


def test_accumulate_grad_knows_its_leaf():
    def case(t):
        x = leaf(t)
        y = x.exp()
        node = y.grad_fn.next_functions[0][0]
        return node.name(), node.variable is x, node.next_functions, y.grad_fn is y.grad_fn, y.grad_fn == y.grad_fn

    agree(case)


def test_results_of_one_node_have_one_node_object():
    def case(t):
        class Both(t.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 1, x * 2

            @staticmethod
            def backward(ctx, g, h):
                return g + h * 2

        x = t.tensor([[3.0, 1.0], [2.0, 5.0]], requires_grad=True)
        made = (
            *(x.unbind(), x.split(1), t.var_mean(x), t.linalg.eigh(x), Both.apply(x), t.meshgrid(x[0], x[1])),
            *(x.unbind()[::-1], (x.exp(), x.exp()), (x.unbind()[0], x.unbind()[1])),
        )
        told = [(a.grad_fn is b.grad_fn, len({a.grad_fn, b.grad_fn})) for a, b in made]
        one, other = x.unbind()
        held = other.grad_fn
        (one.sum() + other.sum()).backward()
        return told, one.grad_fn is held

    agree(case)


def test_the_graph_is_drawn():
    x, w = leaf(gradwire), leaf(gradwire)
    drawn = gradwire.graph((x * w).sum(), params={"x": x})
    text = str(drawn.dot())
    assert all(word in text for word in ("MulBackward0", "SumBackward0", "x"))
    assert drawn.svg().startswith("<svg")


def test_iteration():
    def case(t):
        x = t.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        return [row.tolist() for row in x], len(x), [row.grad_fn.name() for row in x]

    agree(case)
    refuse(lambda t: list(t.tensor(1.0)), TypeError, "iteration over a 0-d tensor")
    refuse(lambda t: len(t.tensor(1.0)), TypeError, "0-d tensor")


def test_bool_of_one_element():
    agree(lambda t: [bool(t.tensor([0.0])), bool(t.tensor(2)), bool(t.tensor([[True]]))])
    refuse(lambda t: bool(leaf(t)), RuntimeError, "Boolean value of Tensor with more than one value is ambiguous")
    refuse(lambda t: bool(t.zeros(0)), RuntimeError, "Boolean value of Tensor with no values is ambiguous")


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True")
def test_python_numbers():
    def case(t):
        return [
            float(t.tensor([1.5])), int(t.tensor(2.9)), complex(t.tensor(1 + 2j)), t.tensor(3).item(),
            t.tensor(2.5).item(), [10, 20, 30][t.tensor(1)], t.tensor(True).item(), round(float(t.tensor(0.1)), 3),
        ]  # fmt: skip

    agree(case)
    refuse(lambda t: float(leaf(t)), ValueError, "only one element tensors can be converted to Python scalars")
    refuse(lambda t: leaf(t).item(), RuntimeError, "a Tensor with 3 elements cannot be converted to Scalar")
    refuse(lambda t: range(3)[t.tensor(1.0)], TypeError, "only integer tensors of a single element can be converted")


def test_tolist_and_numpy():
    def case(t):
        x = t.tensor([[1, 2], [3, 4]])
        return x.tolist(), x.numpy().tolist(), str(x.numpy().dtype), np.asarray(x.double()).tolist(), leaf(t).tolist()

    agree(case)


def test_numpy_is_refused_while_it_requires_grad():
    def case(t):
        x = leaf(t)
        with t.no_grad():
            inside = x.numpy().tolist()
        return inside, x.detach().numpy().tolist(), x.numpy(force=True).tolist()

    agree(case)
    refuse(lambda t: leaf(t).numpy(), RuntimeError, r"Can't call numpy\(\) on Tensor that requires grad.*detach")
    refuse(lambda t: np.asarray(leaf(t)), RuntimeError, "requires grad")
    refuse(lambda t: t.zeros(1, dtype=t.bfloat16).numpy(), TypeError, "BFloat16")


def test_in():
    agree(lambda t: [2.0 in leaf(t), 5.0 in leaf(t), t.tensor(1.0) in leaf(t)])
    refuse(lambda t: "a" in leaf(t), RuntimeError, "only supports Tensor or scalar")


def test_comparison():
    def case(t):
        x = leaf(t)
        return [x == 2.0, x != x, x < 2.0, x >= x, x == None, x == "a", hash(x) == id(x) or hash(x) == hash(x)]  # noqa: E711

    agree(case)


def test_foreign_operands_are_refused_as_python_does():
    refuse(lambda t: leaf(t) + "a", TypeError, "unsupported operand")
    refuse(lambda t: leaf(t) + None, TypeError, "unsupported operand")
    refuse(lambda t: leaf(t) < "a", TypeError, "not supported between")


def test_indexing():
    def case(t):
        x = t.arange(24).reshape(2, 3, 4)
        mask = x > 20
        return [
            x[0], x[1, 2, 3], x[:, 1], x[..., -1], x[None].shape, x[:, ::2], x[[0, 1]], x[t.tensor([1, 0])], x[mask],
            x[0, [0, 2]], x[:, t.tensor([True, False, True])], x[np.array([1])], x[1:, None, 0],
        ]  # fmt: skip

    agree(case)


def test_indices_that_no_tensor_takes():
    refuse(lambda t: leaf(t)[5], IndexError, "out of (bounds|range)")
    refuse(lambda t: leaf(t)[0, 0], IndexError, "too many indices")
    refuse(lambda t: leaf(t)[::-1], ValueError, "step must be greater than zero")
    refuse(lambda t: leaf(t)[1.0], IndexError, "only integers, slices")
    refuse(lambda t: t.tensor(1.0)[0], IndexError, "invalid index of a 0-dim tensor")
    refuse(lambda t: leaf(t)[t.tensor([0.0])], IndexError, "tensors used as indices must be long")
    with pytest.raises(TypeError, match="invalid data type 'str'"):
        leaf(gradwire)["a"]


def test_positions_of_what_is_not_zero():
    def case(t):
        x = t.tensor([[1.0, 0.0], [0.0, 2.0]])
        mask = t.tensor([True, False])
        return [
            x.nonzero(), t.nonzero(x), x.nonzero(as_tuple=True), t.nonzero(mask, as_tuple=True), t.where(x > 0.0),
            t.where(mask), t.where(mask, 1.0, x), x.where(mask, -x),
        ]  # fmt: skip

    agree(case)
    refuse(lambda t: t.where(t.tensor([True]), 1.0), TypeError, r"where\(\)")


def test_inversion_is_for_whole_numbers_and_bools():
    agree(lambda t: [~t.tensor([True, False]), ~t.tensor([1, 2])])
    refuse(lambda t: ~leaf(t), TypeError, "only implemented on integer and Boolean-type tensors")


def test_item_assignment():
    def case(t):
        x = t.zeros(2, 3)
        x[0] = 1.0
        x[:, 1] = t.tensor([5.0, 6.0])
        x[x > 5.5] = -1.0
        x[[0, 1], [2, 0]] = t.tensor([7.0, 8.0])
        z = t.zeros(3)
        w = leaf(t)
        z[0] = w[1] * 2.0
        flags = z.is_leaf, z.requires_grad
        z.sum().backward()
        return x, flags, w.grad

    agree(case)


def test_results_with_names():
    def case(t):
        found = leaf(t).max(0)
        values, indices = t.sort(t.tensor([3.0, 1.0, 2.0]))
        return found.values, found.indices, type(found).__name__, values, indices, leaf(t).max()

    agree(case)


def test_values_decide_a_tensors_dtype():
    values = [
        1,
        1.0,
        True,
        1j,
        [1, 2],
        [1, 2.5],
        [True, 2],
        [[1.0, 2.0], [3.0, 4.0]],
        [],
        [[], []],
        np.float64(1),
        np.ones(2),
    ]
    values += [
        [np.float64(1)],
        np.array([1, 2], dtype=np.int16),
        np.float32(2),
        (1, 2),
        range(3),
        [1, 2j],
        float("nan"),
    ]
    for value in values:
        assert repr(plain(gradwire.tensor(value))) == repr(plain(torch.tensor(value)))


def test_values_that_make_no_tensor():
    refuse(lambda t: t.tensor([[1, 2], [3]]), ValueError, r"expected sequence of length 2 at dim 1 \(got 1\)")
    refuse(lambda t: t.tensor("a"), TypeError, "invalid data type 'str'")
    refuse(lambda t: t.tensor([1, "a"]), TypeError, "invalid data type 'str'")
    refuse(lambda t: t.tensor(None), RuntimeError, "Could not infer dtype of NoneType")
    refuse(lambda t: t.tensor([object()]), RuntimeError, "Could not infer dtype of object")


def test_a_tensor_of_a_tensor_warns():
    with pytest.warns(UserWarning, match="To copy construct from a tensor"):
        gradwire.tensor(leaf(gradwire))


def test_every_dtype_goes_there_and_back():
    for name in ("float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool"):
        agree(lambda t, name=name: t.tensor([0, 1, 2, 1], dtype=getattr(t, name)))
    agree(
        lambda t: [
            t.tensor([1 + 2j, -1j]),
            t.tensor([1 + 2j], dtype=t.complex128),
            t.tensor([1.00390625, 3e38], dtype=t.bfloat16),
        ]
    )


def test_one_read_brings_all_items_of_an_iteration(reads):
    data = gradwire.arange(20)
    for kind in (gradwire.int64, gradwire.float32, gradwire.bool, gradwire.bfloat16):
        reads[0] = 0
        items = gradwire.tensor([3, 0, 5], dtype=kind)
        assert [each.item() for each in items] == [kind is gradwire.bool or 3, 0, kind is gradwire.bool or 5]
        assert reads[0] == 1
    reads[0] = 0
    starts = gradwire.tensor([3, 4, 5])
    parts = [data[start : start + 2 - 1 + 1] for start in starts]
    assert reads[0] == 1
    assert [part.tolist() for part in parts] == [[3, 4], [4, 5], [5, 6]]


def test_items_and_their_sums_follow_changes():
    def changed(t):
        x = t.tensor([3, 4, 5])
        items = list(x)
        known = items[0].item(), (items[1] + 1).item()
        one, two = items[0] + 5, 1 + items[1] - 3
        x.add_(10)
        first = [each.item() for each in items], one.item(), two.item()
        items[1].mul_(2)
        second = [each.item() for each in items]
        items = list(x)
        three = items[2] + 1
        three.add_(100)
        view = (items[1] + 1).view(1)
        view[0] = 7
        items[0].data = t.tensor(9)
        return known, first, second, three.item(), view.item(), [each.item() for each in items], (items[0] + 1).item()

    agree(changed)


def test_sums_of_items_have_their_dtypes_range():
    agree(lambda t: [int(each + 10) for each in t.tensor([250, 1], dtype=t.uint8)])
    agree(lambda t: [int(each + 1) for each in t.tensor([2**63 - 1, 0])])
    agree(lambda t: [int(each - 2**31) for each in t.tensor([-(2**63), 0])])


def test_an_optimizers_step_changes_items():
    def steps(t):
        weight = t.tensor([1.5, 2.5], requires_grad=True)
        optimizer, seen = t.optim.SGD([weight], lr=1.0), []
        for _ in range(4):
            items = list(weight.detach())
            before = items[0].item()
            weight.sum().backward()
            optimizer.step()
            seen.append((before, [each.item() for each in items], [each.item() for each in weight]))
        return seen

    agree(steps)


def _items_around(t, tensors, write):
    """The items of tensors before and after `write`, twice."""
    items = [each for one in tensors for each in one]
    found = [[each.item() for each in items]]
    for _ in range(2):
        write()
        found.append([round(each.item(), 4) for each in items])
    return found


def test_items_follow_ops_that_write_to_operands():
    def normalized(t, kind, shape):
        mean, variance = t.zeros(3), t.ones(3)
        data = t.arange(24.0).reshape(shape)
        run = getattr(t.nn.functional, kind)
        return _items_around(t, (mean, variance), lambda: run(data, mean, variance, None, None, True))

    def shortened(t, run):
        table = t.ones(4, 1) * 3
        return _items_around(t, [table.view(4)], lambda: run(table))

    agree(lambda t: normalized(t, "batch_norm", (8, 3)))
    agree(lambda t: normalized(t, "instance_norm", (2, 3, 4)))
    agree(lambda t: shortened(t, lambda table: t.nn.functional.embedding(t.tensor([1]), table, max_norm=2.0)))
    offsets = [0]
    agree(
        lambda t: shortened(
            t,
            lambda table: t.nn.functional.embedding_bag(t.tensor([1, 2]), table, t.tensor(offsets), max_norm=2.0),
        )
    )


def test_items_of_a_gradient_follow_what_accumulates():
    def accumulated(t):
        x = t.arange(3.0).requires_grad_()
        (x * x).sum().backward()
        return _items_around(t, [x.grad], lambda: (x * 3).sum().backward())

    def between_hooks(t):
        x, y = t.ones(2).requires_grad_(), t.ones(2).requires_grad_()
        (x * y).sum().backward()
        items = list(x.grad)
        made = y * 2
        made.register_hook(lambda g: [each.item() for each in items] and None)
        (x * made).sum().backward()
        return [each.item() for each in items]

    agree(accumulated)
    agree(between_hooks)


def test_items_follow_programs(session):
    norm = gradwire.nn.BatchNorm1d(3)
    data = gradwire.arange(12.0).reshape(4, 3)
    step = gradwire.compile(norm)
    step(data)
    items = list(norm.running_mean)
    for _ in range(3):
        step(data)
        assert [each.item() for each in items] == norm.running_mean.tolist()
