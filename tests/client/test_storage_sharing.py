"""Shared storage: views know their elements, conflicting writes are refused, out= resizes unshared tensors."""

import copy
import operator
import warnings
from typing import Any

import pytest

import gradwire
from gradwire._tensor.warnings import WARNED_ONCE
from tests.client.oracle import agree, messages, refuse, torch

pytestmark = pytest.mark.usefixtures("session")
OVERLAP = "some elements of the input tensor and the written-to tensor refer to a single memory location"
SHARED = "more than one element of the written-to tensor refers to a single memory location"


def test_a_view_of_one_of_several_tensors_follows_that_one():
    def case(t):
        w = t.ones(2, requires_grad=True)
        x = t.zeros(2)
        first, second = t.broadcast_tensors(x, t.ones(3, 2))
        grid = t.meshgrid(x, t.ones(3), indexing="ij")
        x.add_(w)
        first.sum().backward()
        return first._base is x, first, second, grid, w.grad, first._version

    agree(case)


def test_a_view_of_a_product_follows_it():
    def case(t):
        w = t.ones(2, requires_grad=True)
        made = t.matmul(t.ones(2), t.ones(2, 2))
        shown = made.unsqueeze(-1)
        made.mul_(w)
        shown.sum().backward()
        return shown, shown._base is None, w.grad

    agree(case)


def test_an_empty_view_knows_its_base():
    agree(lambda t: [(x := t.zeros(0, 2)).reshape(2, 0)._base is x, x.flatten()._base is x, x.contiguous() is x])


def test_what_changes_nothing_is_the_tensor_itself():
    agree(lambda t: [t.real(x := t.ones(2)) is x, t.conj(x) is x, x.sum_to_size(2) is x, x.sum_to_size(1) is x])


def test_views_of_inference_tensors_have_no_base():
    def case(t):
        with t.inference_mode():
            made = t.ones(2, 2) * 1
        with t.inference_mode():
            inside = made[0]
        return made[0]._base is None, inside._base is None, made.data.is_inference(), t.ones(2)[0]._base is None

    agree(case)


def test_a_gradient_that_passes_unchanged_is_the_tensor_that_was_given():
    def case(t):
        x = t.ones(2, requires_grad=True)
        first, second = t.autograd.grad(x + 1, [x, x], x, create_graph=True)
        x.sum().backward()
        return first is x, second is x, first.grad

    agree(case)


def test_operands_that_share_the_memory_they_are_written_to_are_refused():
    index = lambda t: t.tensor([1, 0])  # noqa: E731
    for change in (
        lambda t, x: x.__setitem__(index(t), x),
        lambda t, x: x.__setitem__(x > 1, x),
        lambda t, x: x.index_put_((t.tensor([0]),), x[:1]),
        lambda t, x: x.index_add_(0, index(t), x),
        lambda t, x: x.index_copy_(0, index(t), x),
        lambda t, x: x.scatter_(0, index(t), x),
        lambda t, x: x.scatter_add_(0, index(t), x),
        lambda t, x: x.scatter_reduce_(0, index(t), x, "sum"),
        lambda t, x: x.index_reduce_(0, index(t), x, "prod"),
        lambda t, x: x.put_(index(t), x),
    ):
        refuse(lambda t, change=change: change(t, t.tensor([1.0, 2.0])), RuntimeError, OVERLAP)


def test_a_single_value_of_the_same_memory_may_be_written_where_a_mask_holds():
    def case(t):
        x = t.tensor([1.0, 2.0])
        x[x > 1] = x[0]
        x[True] = x
        return x

    agree(case)


def test_elements_that_share_memory_are_not_assigned_to():
    for key in (slice(None), ..., (slice(None), 0), None):
        refuse(lambda t, key=key: t.zeros(2).expand(3, 2).__setitem__(key, 1.0), RuntimeError, SHARED)

    def case(t):
        x = t.zeros(2)
        x.expand(3, 2)[0] = 1.0
        x.expand(1, 2)[:] = 2.0
        return x

    agree(case)


def test_assigning_to_false_does_nothing():
    def case(t):
        x, w = t.zeros(2), t.ones(2, requires_grad=True)
        x[False] = w
        w[False] = 3.0
        return x, w, x._version

    agree(case)


def test_a_key_that_does_not_fit_is_refused_before_the_leaf_is():
    for key in (9, (0, 0), (slice(None), 0)):
        refuse(lambda t, key=key: t.ones(2, requires_grad=True).__setitem__(key, 1.0), IndexError, "ind")
    refuse(lambda t: t.ones(2, requires_grad=True).__setitem__(0, 1.0), RuntimeError, "a view of a leaf Variable")


def test_reversed_turns_the_first_dimension_only():
    agree(lambda t: list(reversed(t.arange(6).reshape(2, 3))))


def test_out_of_another_shape_counts_as_changed():
    def case(t):
        out = t.ones(3)
        saved = (t.ones(3, requires_grad=True) * out).sum()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            t.add(t.ones(2), 1, out=out)
        try:
            saved.backward()
        except RuntimeError as error:
            return out, out._version, "modified by an inplace operation" in str(error)
        return "not noticed"

    agree(case)


def test_out_is_not_resized_under_others_or_under_itself():
    def under_a_view(t, size):
        base = t.zeros(2, 3)
        kept = base.view(-1)
        t.add(t.ones(size), 1, out=base)
        return kept

    agree(lambda t: under_a_view(t, 2))  # the memory is large enough
    for _ in range(2):
        with pytest.raises(RuntimeError, match="shares its memory with other tensors"):
            under_a_view(gradwire, 7)
    refuse(lambda t: t.add(t.ones(2, 3), x := t.ones(3), out=x), RuntimeError, "doesn't match the broadcast shape")


def test_out_has_the_results_dtype_where_pytorch_wants_that():
    for op in ("clamp", "abs", "neg", "matmul", "amax"):
        more = {"clamp": (0, 1), "matmul": (gradwire.ones(2, 2), torch.ones(2, 2)), "amax": (0,)}.get(op, ())

        def call(t, op=op, more=more):
            given = more if op != "matmul" else (more[t is torch],)
            shape = (2,) if op == "amax" else (2, 2)
            return getattr(t, op)(t.ones(2, 2), *given, out=t.zeros(shape, dtype=t.float64))

        with pytest.raises(RuntimeError):
            call(torch)
        with pytest.raises(RuntimeError, match="Expected out tensor to have dtype"):
            call(gradwire)
    agree(lambda t: t.exp(t.ones(2), out=t.zeros(2, dtype=t.float64)))


def test_strides_are_pytorchs_for_dimensions_of_size_1_too():
    def case(t):
        x = t.ones(1, 3)
        made = [x.T, x.expand(2, 3), x.expand(1, 1, 3), t.ones(3, 1)[::2], t.ones(2, 3)[None, 1]]
        made.append(t.ones(2).expand(3, 2).double())
        return [(each.stride(), each.is_contiguous()) for each in made]

    agree(case)


@pytest.mark.parametrize(
    ("cause", "count"),
    [
        (lambda t: t.ones(3).T, 1),
        (lambda t: t.ones(()).adjoint(), 1),
        (lambda t: t.ones(2, dtype=t.complex64).float(), 1),
        (lambda t: t.ones(2).copy_(t.ones(2, dtype=t.complex64)), 1),
        (lambda t: t.ones(1).var(), 3),
        (lambda t: t.ones(2, 1).std(1, correction=0), 0),
        (lambda t: t.ones(2, 3).T, 0),
    ],
)
def test_ops_warn_as_pytorchs_do_each_time_or_once(cause, count, monkeypatch: pytest.MonkeyPatch):
    """Each time what depends on values' number, once a process what is deprecated; a repeated line warns, too."""
    monkeypatch.setattr("gradwire._tensor.warnings.WARNED_ONCE", set())
    torch.set_warn_always(True)
    assert len(messages(cause, torch)) == min(count, 1)
    torch.set_warn_always(False)
    assert sum(len(messages(cause, gradwire)) for _ in range(3)) == count
    WARNED_ONCE.clear()


def test_a_new_dimension_in_a_key_is_no_whole_key():
    refuse(lambda t: t.ones(1, 3).__setitem__((..., None), t.ones(1, 3)), RuntimeError, "must match the existing size")
    refuse(lambda t: t.ones(3, 1).__setitem__((..., None), t.ones(3, 1)), RuntimeError, "must match the existing size")


def test_a_copy_made_in_inference_mode_is_an_inference_tensor_and_out_stays_what_it_was():
    def case(t):
        x, out = t.ones(2), t.ones(3)
        with t.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            copied = copy.deepcopy(x)
            t.add(x, 1, out=out)
        return copied.is_inference(), out.is_inference(), out

    agree(case)


def test_data_has_the_memory_of_its_tensor():
    def case(t):
        x = t.arange(5.0)
        one, other = t.ones(3), t.zeros(3)
        one.data = other
        same = x.data.data_ptr() == x.data_ptr(), one.data_ptr() == other.data_ptr()
        return same, x.data.is_set_to(x), x[2:].data.storage_offset(), one._version

    agree(case)


@pytest.mark.usefixtures("session")
def test_a_storage_has_elements_that_can_be_read_and_written() -> None:
    def told(t: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TypedStorage is deprecated
            points = t.tensor([[4.0, 1.0], [5.0, 3.0], [2.0, 1.0]])
            storage = points[1:].T.storage()
            storage[0] = 2.0
            storage[1:3] = 7.0
            counts = t.arange(3).storage()
            return [
                len(storage), storage.size(), storage.nbytes(), storage.element_size(), storage[1], storage[-1],
                list(storage), storage.tolist(), points, storage.data_ptr() == points.data_ptr(),
                storage.untyped().nbytes(), str(storage.device), storage.is_cuda, counts.tolist(), counts.fill_(4)[1],
                str(counts.dtype).split(".")[-1], points[2].storage_offset(),
            ]  # fmt: skip

    agree(told)


def test_a_detached_part_shows_all_memory():
    def program(m):
        whole = m.arange(6.0)
        parts = [whole[:4].detach(), whole[2:].data, whole[1:3].view_as(whole[:2]), whole.clone()[1:].detach()]
        return [each.untyped_storage().nbytes() for each in parts]

    agree(program)


def test_a_view_whose_history_is_unknown_prints_that():
    def program(m):
        leaf = m.ones(2, requires_grad=True)
        with m.no_grad():
            view, other = leaf[:1], leaf[1:]
            texts = [repr(view), repr(other)]
            view.mul_(2)
        return [*texts, repr(view), repr(other), repr(leaf)]

    agree(program)


def test_all_names_of_a_tensor_have_values():
    names = dir(gradwire.ones(2, 2))
    assert {"shape", "backward", "_version"} <= set(names)
    missing = [name for name in names if name != "imag" and not hasattr(gradwire.ones(2, 2), name)]
    assert not missing


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool", "complex64", "int16"])
def test_the_bytes_of_a_storage_are_those_of_all_its_elements(dtype):
    def told(t):
        x = t.tensor([[1.5, -2.0], [0.0, 4.0]]).to(getattr(t, dtype))
        return [each.untyped_storage().tolist() for each in (x, x[1], x.t())]

    agree(told)


def test_sizes_are_joined_with_what_knows_how():
    class Joined:
        def __radd__(self, other):
            return list(other)

    agree(lambda t: t.Size([1, 2]) + Joined())
    refuse(
        lambda t: operator.add(t.Size([1, 2]), [3]), TypeError, r"can only concatenate tuple \(not list\) to torch.Size"
    )
    refuse(lambda t: 3 + t.Size([1, 2]), TypeError, "unsupported operand type")
