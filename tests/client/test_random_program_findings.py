"""Differences from PyTorch that random programs found, one test each."""

import warnings
from math import prod
from typing import Any

import pytest

import gradwire
from gradwire._tensor import tensor
from tests.client.oracle import agree, messages, refuse, torch


def test_a_truth_value_in_a_tensor_as_key_is_no_mask(session: gradwire.Session) -> None:
    """So a value of another dtype is refused, as PyTorch has it of numbers in a key."""
    for flag in (True, False):
        refuse(
            lambda t, flag=flag: t.zeros(2).__setitem__(t.tensor(flag), t.tensor(1.0, dtype=t.float64)),
            RuntimeError,
            "Index put requires the source and destination dtypes match",
        )

    def case(t: Any) -> Any:
        x = t.zeros(2, 2)
        x[t.tensor(True)] = t.ones(2)
        x[t.tensor(False)] = t.ones(2) * 9
        x[t.tensor(True), 0] = 3.0
        return x, x[t.tensor(True)], x[t.tensor(False)], x[True, 1], x[False]

    agree(case)


def test_a_value_in_the_memory_that_is_written_is_refused_where_pytorch_sees_it(session: gradwire.Session) -> None:
    message = "some elements of the input tensor and the written-to tensor refer to a single memory location"
    refuse(lambda t: _assigned(t, (1,), (..., None), ...), RuntimeError, message)
    refuse(lambda t: _assigned(t, (3, 3), (slice(1), slice(1)), (0, slice(1))), RuntimeError, message)
    refuse(lambda t: _assigned(t, (1, 1), slice(None), 0), RuntimeError, message)

    def case(t: Any) -> Any:
        return [
            _assigned(t, (3, 3), slice(None, None, 2), 0), _assigned(t, (3, 3), slice(None), 0),
            _assigned(t, (3, 3), slice(1), 0), _assigned(t, (1, 3), slice(None), 0), _assigned(t, (3,), None, ...),
            _assigned(t, (3, 3), (0, 0), (0, slice(1))), _assigned(t, (), True, ...),
        ]  # fmt: skip

    agree(case)


def _assigned(t: Any, shape: tuple[int, ...], key: Any, of: Any) -> Any:
    x = t.arange(9.0)[: t.ones(shape).numel()].reshape(shape).clone()
    x[key] = x[of]
    return x


@pytest.mark.parametrize("view", ["view(6)", "mT", "unsqueeze(0)", "permute(1, 0)", "sum()", "mT.contiguous()"])
def test_a_gradient_that_is_a_view_of_what_was_given_knows_it(session: gradwire.Session, view: str) -> None:
    """And is changed with it."""

    def case(t: Any) -> Any:
        x = t.ones(2, 3, requires_grad=True) * 2
        y = eval(f"x.{view}", {"x": x})
        (g,) = t.autograd.grad(y, x, y, create_graph=True)
        base = y if y._base is None else y._base
        told = (g._base is base, g.grad_fn.name(), g._version)
        with t.no_grad():
            y.mul_(5)
        return told, g._version, g.detach() * 1, g.grad_fn.name()

    agree(case)


def test_a_hook_on_a_view_made_under_no_grad_is_taken_and_never_called(session: gradwire.Session) -> None:
    def case(t: Any) -> Any:
        called: list[Any] = []
        w = t.ones(3, requires_grad=True)
        with t.no_grad():
            v = w[1:]
        handle = v.register_hook(called.append)
        v.register_post_accumulate_grad_hook(called.append)
        (v * 2).sum().backward()
        handle.remove()
        return called, v.grad, w.grad

    agree(case)

    def place(t: Any) -> Any:
        w = t.ones(3, requires_grad=True)
        with t.no_grad():
            v = w[1:]
        t.autograd.graph.get_gradient_edge(v)

    refuse(place, AssertionError, "Expected gradient function to be set")


def test_a_leafs_gradient_edge_is_known_under_no_grad(session: gradwire.Session) -> None:
    def case(t: Any) -> Any:
        w = t.ones(2, requires_grad=True)
        with t.no_grad():
            edge = t.autograd.graph.get_gradient_edge(w)
        return edge.output_nr, edge.node.name().rpartition("::")[2]

    agree(case)


def test_a_custom_functions_result_in_inference_mode_is_an_inference_tensor(session: gradwire.Session) -> None:
    def case(t: Any) -> Any:
        class Double(t.autograd.Function):  # type: ignore[misc, name-defined]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x * 2

        with t.inference_mode():
            made = Double.apply(t.ones(2, requires_grad=True))
        return made.is_inference(), made.requires_grad, made

    agree(case)


@pytest.mark.parametrize("mode", ["enable_grad", "no_grad", "inference_mode"])
def test_an_input_that_a_custom_function_returns_is_another_tensor(session: gradwire.Session, mode: str) -> None:
    """A view of it, or where no history may be had, what is detached from it."""

    def case(t: Any) -> Any:
        class Same(t.autograd.Function):  # type: ignore[misc, name-defined]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g * 2

        told = []
        for x in (t.ones(2), t.tensor(2), t.ones(2, requires_grad=True), t.ones(2, requires_grad=True) * 2):
            with getattr(t, mode)():
                made = Same.apply(x)
            told.append((made is x, made._base is x, made.requires_grad, made.is_leaf, made.is_inference()))
        return told

    agree(case)


def test_an_input_that_is_named_twice_has_one_gradient(session: gradwire.Session) -> None:
    def case(t: Any) -> Any:
        w = t.ones(2, requires_grad=True)
        one, other = t.autograd.grad((w * w).sum(), [w, w])
        one.mul_(3)
        return one is other, other

    agree(case)


def test_a_node_of_a_change_in_place_has_pytorchs_name(session: gradwire.Session) -> None:
    def case(t: Any) -> Any:
        told = []
        for change in (
            lambda x: x.asinh_(), lambda x: x.eq_(x.detach()), lambda x: x.eq_(1), lambda x: x.ge_(x.detach()),
            lambda x: t.nn.functional.elu(x, inplace=True), lambda x: t.nn.functional.leaky_relu_(x),
            lambda x: t.nn.functional.threshold(x, 0.1, 0.2, inplace=True), lambda x: x.sin_(),
        ):  # fmt: skip
            x = t.ones(2, requires_grad=True) * 1
            change(x)
            told.append(x.grad_fn.name())
        return told

    agree(case)


def test_a_hook_on_a_view_that_was_left_behind_is_refused(session: gradwire.Session) -> None:
    def case(t: Any) -> Any:
        w = t.ones(2, 2, requires_grad=True)
        with t.no_grad():
            v = w[1:]
            w.add_(1)
        v.register_hook(lambda g: g)

    refuse(case, RuntimeError, "A view was created in no_grad mode")


def test_a_tensor_of_the_same_data_counts_its_own_changes(session: gradwire.Session) -> None:
    def case(t: Any) -> Any:
        x = t.zeros(2)
        x.add_(1)
        bare = x.data
        before = bare._version
        bare.add_(1)
        return before, bare._version, x._version

    agree(case)


def test_targets_that_are_no_probabilities_are_refused(session: gradwire.Session) -> None:
    for wrong in (2.0, -1.0, float("nan")):
        refuse(
            lambda t, wrong=wrong: t.nn.functional.binary_cross_entropy(t.ones(1) / 2, t.tensor([wrong])),
            RuntimeError,
            "all elements of target should be between 0 and 1",
        )


def test_a_range_of_complex_numbers_is_refused(session: gradwire.Session) -> None:
    refuse(lambda t: t.arange(3, dtype=t.complex64), NotImplementedError, '"arange_cpu" not implemented for \'Complex')


def test_inference_tensors_require_grad_where_inference_mode_allows_it(session: gradwire.Session) -> None:
    def case(t: Any) -> Any:
        with t.inference_mode():
            leaf = t.ones(2).abs().requires_grad_()
            view = t.ones(2).abs().view(2).requires_grad_()
            view.add_(1)
        (leaf + 1).sum().backward()
        with t.inference_mode():
            flag = leaf.view(2).requires_grad_().requires_grad
        return leaf, leaf.grad, leaf.is_inference(), view, flag, leaf.requires_grad_(False).requires_grad

    agree(case)


def test_a_checkpoint_of_complex_numbers_does_not_warn(session: gradwire.Session) -> None:
    from gradwire.utils.checkpoint import checkpoint

    x = gradwire.tensor([1 + 2j, 0.5 - 1j], requires_grad=True)
    assert (
        messages(lambda t: checkpoint(lambda a: a.sin() * a, x, use_reentrant=False).abs().sum().backward(), gradwire)
        == []
    )
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        _changed_checkpoint(x)


def _changed_checkpoint(x: Any) -> None:
    from gradwire.utils.checkpoint import checkpoint

    input = x * 1
    made = checkpoint(lambda a: a.sin() * a, input, use_reentrant=False)
    with gradwire.no_grad():
        input.mul_(2)
    made.abs().sum().backward()


@pytest.mark.parametrize("kind", [float, complex])
def test_a_number_of_a_tensor_of_the_graph_warns_before_it_is_refused(
    session: gradwire.Session, kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def case(t: Any) -> Any:
        monkeypatch.setattr(tensor, "_scalar_warned", False)
        with pytest.raises(ValueError, match="only one element"):
            kind(t.ones(3, requires_grad=True))

    torch.set_warn_always(True)
    try:
        (theirs,), (ours,) = messages(case, torch), messages(case, gradwire)
    finally:
        torch.set_warn_always(False)
    assert ours[:60] == theirs[:60]
    with gradwire.no_grad():
        assert messages(lambda t: kind(t.ones(1, requires_grad=True)), gradwire) == []


def test_powers_of_truth_values_by_one_truth_value(session: gradwire.Session) -> None:
    for flag in (True, False):
        agree(lambda t, flag=flag: (t.tensor([True, False]) ** flag, t.tensor([False, True]).pow_(flag)))
    refuse(
        lambda t: t.pow(t.tensor([True]), t.tensor([True])), NotImplementedError, "\"pow\" not implemented for 'Bool'"
    )
    refuse(lambda t: True ** t.tensor([True]), NotImplementedError, "\"pow\" not implemented for 'Bool'")


@pytest.mark.parametrize(
    ("left", "right"), [((2, 0), (0, 3)), ((0, 3), (3,)), ((2, 3), (3, 0)), ((1, 2, 0), (1, 0, 3))]
)
def test_an_empty_product_of_truth_values_is_no_work(session: gradwire.Session, left: Any, right: Any) -> None:
    agree(lambda t: (t.ones(left) > 0) @ (t.ones(right) > 0))
    refuse(lambda t: t.addmm(*(t.ones(each) > 0 for each in ((2, 2), (2, 0), (0, 2)))), RuntimeError, "Bool")
    refuse(lambda t: (t.ones(2, 2) > 0) @ (t.ones(2, 2) > 0), NotImplementedError, "not implemented for 'Bool'")


@pytest.mark.parametrize(
    "equation", ["i,j->ij", "i,k->ik", "ik,k->i", "ik,kj->j", "i,i->i", "k,->", "ik,jk->ij", "kk,k->"]
)
def test_an_einsum_that_adds_no_products_multiplies_operands_of_any_dtypes(
    session: gradwire.Session, equation: str
) -> None:
    """Operands are added up only where the other has one element."""
    first, second = equation.partition("->")[0].split(",")
    sizes = {"i": 3, "j": 2, "k": 1}

    def case(t: Any) -> Any:
        a = t.arange(9.0)[: prod(sizes[each] for each in first)].reshape([sizes[each] for each in first])
        b = t.arange(9)[: prod(sizes[each] for each in second)].reshape([sizes[each] for each in second])
        a.requires_grad_()
        made = t.einsum(equation, a, b)
        (made * made).sum().backward()
        return (
            made.detach(),
            a.grad,
            t.einsum(equation, a.detach().long(), b),
            t.einsum(equation, a.detach() > 1, b > 1),
        )

    agree(case)


def test_an_einsum_that_adds_products_refuses_two_dtypes(session: gradwire.Session) -> None:
    refuse(lambda t: t.einsum("i,i->", t.ones(2), t.arange(2)), RuntimeError, "same dtype|expected scalar type")


def test_a_whole_tensor_is_assigned_to_itself_with_another_dimension(session: gradwire.Session) -> None:
    """The same elements in the same places, whatever the strides of dimensions of size 1."""
    agree(lambda t: [_assigned(t, (1,), (0, None), ...), _assigned(t, (1, 3), (0, None), ...)])


def test_too_many_indices_are_refused_before_a_value_of_another_dtype(session: gradwire.Session) -> None:
    refuse(
        lambda t: t.tensor(1.0).index_put_((t.tensor([0]),), t.tensor(1, dtype=t.float64)),
        IndexError,
        "too many indices",
    )


def test_nll_loss_of_no_positions(session: gradwire.Session) -> None:
    def case(t: Any) -> Any:
        input, target = t.zeros(2, 2, 0, requires_grad=True), t.zeros(2, 0, dtype=t.int64)
        losses = [t.nn.functional.nll_loss(input, target, reduction=each) for each in ("none", "sum", "mean")]
        losses[1].backward()
        return losses, input.grad

    agree(case)


def test_cat_into_a_tensor_of_a_dtype_that_cannot_hold_it_is_a_type_error(session: gradwire.Session) -> None:
    refuse(
        lambda t: t.cat([t.ones(2)] * 2, out=t.ones(4, dtype=t.bool)),
        TypeError,
        "input types can't be cast to the desired output type Bool",
    )


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.usefixtures("session")
def test_a_selective_checkpoint_has_pytorchs_gradients_and_policies() -> None:
    from torch.utils import checkpoint as theirs

    from gradwire.utils import checkpoint as mine

    def case(t: Any, which: Any) -> Any:
        x = t.ones(3, requires_grad=True)

        def contexts() -> Any:
            return which.create_selective_checkpoint_contexts(lambda *given, **named: which.CheckpointPolicy.MUST_SAVE)

        which.checkpoint(lambda v: (v @ v).sin() * v.sum(), x, use_reentrant=False, context_fn=contexts).backward()
        return x.grad.tolist()

    assert case(gradwire, mine) == pytest.approx(case(torch, theirs))
    assert [each.name for each in mine.CheckpointPolicy] == [each.name for each in theirs.CheckpointPolicy]
    with pytest.raises(TypeError, match="must be either a function or a list of ops"):
        mine.create_selective_checkpoint_contexts(3)  # type: ignore[arg-type]
