"""Sparse gradients of dense leaves, gradients of sparse tensors, and gradcheck of them: as in PyTorch, or refused."""

import copy
import pickle

import numpy as np
import pytest

import gradwire
from tests.client.oracle import agree, refuse

pytestmark = [
    pytest.mark.usefixtures("deferring"),
    pytest.mark.filterwarnings("ignore:.*(Sparse invariant checks|Sparse CSR tensor|SparseTensor).*:UserWarning"),
]
LAYOUTS = ["sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"]


def numbers(*shape, seed=3):
    return np.random.default_rng(seed).normal(size=shape)


def sixteenths(*shape, seed=3):
    """Random numbers whose sums are exact, in whatever order."""
    return np.round(numbers(*shape, seed=seed) * 16) / 16


def shown(gradient):
    """What a program can see of a gradient."""
    if str(gradient.layout) == "torch.strided":
        return "dense", gradient.detach()
    if not gradient.is_sparse:
        return str(gradient.layout), gradient.detach().to_dense()
    return "sparse", gradient.is_coalesced(), gradient._indices(), gradient._values()


def given(t):
    """A function of a tensor whose gradient is the one that it is given."""

    class Given(t.autograd.Function):
        @staticmethod
        def forward(ctx, x, gradient):
            ctx.save_for_backward(gradient)
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            return ctx.saved_tensors[0], None

    return Given.apply


def leaf_and_gradients(t, dtype="float64"):
    dtype = getattr(t, dtype)
    x = t.tensor(sixteenths(5, 3, 2), dtype=dtype).requires_grad_()
    one = t.sparse_coo_tensor([[0, 3, 3], [0, 2, 2]], t.tensor(sixteenths(3, 2), dtype=dtype), (5, 3, 2))
    other = t.sparse_coo_tensor([[4, 1], [1, 0]], t.tensor(sixteenths(2, 2, seed=8), dtype=dtype), (5, 3, 2))
    return x, one, other, t.tensor(sixteenths(5, 3, 2, seed=9), dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("order", ["one", "one one", "one other", "one dense other", "dense one", "other one dense"])
def test_a_function_gives_sparse_gradients_which_add_up(order, dtype):
    def case(t):
        x, *gradients = leaf_and_gradients(t, dtype)
        by_name = dict(zip(("one", "other", "dense"), gradients, strict=True))
        total = sum(given(t)(x, by_name[name]) for name in order.split()).sum().abs()
        (found,) = t.autograd.grad(total, x, retain_graph=True)
        total.backward()
        first, seen = x.grad, [shown(found)[0], found.to_dense(), x.grad.to_dense()]
        for each in (by_name["one"], by_name["dense"], by_name["other"]):
            given(t)(x, each).sum().abs().backward()
            seen += [shown(x.grad)[0], x.grad.to_dense(), x.grad is first]
        return seen

    agree(case)


def test_a_saved_sparse_gradient_stays_as_it_is_when_the_leafs_changes():
    def case(t):
        x, one, other, _ = leaf_and_gradients(t)
        for each in (one, other):
            given(t)(x, each).sum().backward()
        x.grad.mul_(2)
        x.grad /= 4
        return shown(one), shown(x.grad.coalesce())

    agree(case)


def test_hooks_of_a_leaf_get_the_whole_gradient_and_replace_it():
    def case(t):
        x, one, other, dense = leaf_and_gradients(t)
        seen = []
        x.register_hook(lambda gradient: seen.append((shown(gradient)[0], gradient.to_dense())))
        x.register_hook(lambda gradient: gradient * 3)
        (given(t)(x, one) + given(t)(x, other)).sum().backward()
        (given(t)(x, one) + given(t)(x, dense)).sum().backward()
        (found,) = t.autograd.grad(given(t)(x, one).sum(), x)
        return seen, shown(x.grad), shown(found)

    agree(case)


def test_a_sparse_gradient_is_given_assigned_and_cleared():
    def case(t):
        x, one, other, dense = leaf_and_gradients(t)
        x.grad = one
        seen = [x.grad is one, shown(x.grad)]
        x.backward(other)
        seen.append(x.grad.to_dense())
        (x * 2).sum().backward()
        seen.append(shown(x.grad))
        x.backward(one)
        seen.append(shown(x.grad))
        x.grad = None
        x.backward(one, create_graph=True)
        seen.append(shown(x.grad))
        return [*seen, t.autograd.grad(x, x, one)[0].to_dense(), [each.to_dense() for each in t.autograd.grad(
            [x, x * 3], x, [one, dense])]]  # fmt: skip

    agree(case)


def test_second_order_gradients_pass_through_a_sparse_one():
    def case(t):
        w = t.tensor(numbers(4, 2)).requires_grad_()
        rows = t.nn.functional.embedding(t.tensor([1, 3, 1]), w, sparse=True)
        (gradient,) = t.autograd.grad(rows.pow(3).sum(), w, create_graph=True)
        (second,) = t.autograd.grad(gradient.to_dense().pow(2).sum(), w)
        return shown(gradient)[0], gradient.to_dense().detach(), shown(second)[0], second.to_dense()

    agree(case)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("options", [{}, {"padding_idx": 2}, {"max_norm": 1.0, "padding_idx": -1}])
@pytest.mark.parametrize("optimizer", ["SGD(p, lr=0.1)", "SGD(p, lr=0.1, maximize=True)", "SparseAdam(p, lr=0.1)",
                                       "SparseAdam(p, maximize=True, eps=1e-3, betas=(0.5, 0.9))",
                                       "SGD(p, lr=0.1, momentum=0.9)",
                                       "SGD(p, lr=0.1, momentum=0.5, dampening=0.25)",
                                       "SGD(p, lr=0.1, momentum=0.5, nesterov=True)", "Adagrad(p, lr=0.1)",
                                       "Adagrad(p, lr_decay=0.5, maximize=True, initial_accumulator_value=0.5)",
                                       ])  # fmt: skip
def test_embeddings_learn_from_sparse_gradients(optimizer, options, seed):
    random = np.random.default_rng(seed)
    table, looked_up = random.normal(size=(7, 3)).astype("f"), random.integers(0, 7, (4, 2, 4))
    weights = random.normal(size=(4, 2, 4, 3)).astype("f")

    def case(t):
        layer = t.nn.Embedding(7, 3, sparse=True, _weight=t.tensor(table), **options)
        made = eval(optimizer, {**vars(t.optim), "p": list(layer.parameters())})
        seen = [repr(layer)]
        for indices, weight in zip(looked_up, weights, strict=True):
            made.zero_grad()
            (layer(t.tensor(indices)) * t.tensor(weight)).sum().backward()
            seen.append(shown(layer.weight.grad))
            made.step()
        return [*seen, layer.weight.detach(), sorted(made.state_dict()["state"].get(0, {}))]

    agree(case)


@pytest.mark.parametrize("rows", [10, 0])
def test_rows_without_elements_have_a_sparse_gradient(rows):
    def case(t):
        layer = t.nn.Embedding(rows, 0, sparse=True)
        layer(t.tensor([[0, 2], [4, 0]] if rows else [], dtype=t.int64)).sum().backward()
        return layer.weight.grad.is_sparse, layer.weight.grad.shape

    agree(case)


def test_an_accumulated_gradient_stays_when_the_indices_change():
    def case(t):
        w = t.ones(10, 2, requires_grad=True)
        indices = t.tensor([[7, 1, 3]])
        t.nn.functional.embedding(indices[0], w, sparse=True).sum().backward()
        indices[0, 0] = 8
        return w.grad.to_dense()

    agree(case)


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_takes_sparse_gradients(search):
    def case(t):
        w = t.tensor(numbers(6, 3)).requires_grad_()
        optimizer = t.optim.LBFGS([w], lr=0.3, max_iter=4, line_search_fn=search)

        def closure():
            optimizer.zero_grad()
            loss = (t.nn.functional.embedding(t.tensor([1, 4, 1]), w, sparse=True) - 2).pow(4).sum()
            loss.backward()
            return loss

        for _ in range(2):
            optimizer.step(closure)
        return w.detach(), shown(w.grad)

    agree(case)


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("padding", [None, 2])
@pytest.mark.parametrize("form", ["matrix", "matrix, last offset", "offsets", "last offset", "weighted"])
def test_bags_have_sparse_gradients(form, padding, mode):
    random = np.random.default_rng(4)
    if form == "weighted" and mode == "mean":
        mode = "sum"  # weights are for sums alone

    def case(t):
        w = t.tensor(numbers(6, 3)).requires_grad_()
        indices = t.tensor([[1, 2, 5, 2], [0, 1, 1, 2]])
        options = {"mode": mode, "padding_idx": padding, "sparse": True}
        factors = t.tensor(numbers(8)).requires_grad_()
        if form.startswith("matrix"):
            made = t.nn.functional.embedding_bag(indices, w, include_last_offset="last" in form, **options)
        else:
            offsets = t.tensor([0, 3, 3, 8] if form == "last offset" else [0, 3, 3])
            options["include_last_offset"] = form == "last offset"
            options["per_sample_weights"] = factors if form == "weighted" else None
            made = t.nn.functional.embedding_bag(indices.reshape(-1), w, offsets, **options)
        (made * t.tensor(random_weights[: made.shape[0]])).sum().backward()
        return made.detach(), shown(w.grad), factors.grad

    random_weights = random.normal(size=(3, 3))
    agree(case)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags_shorten_all_rows_that_are_looked_up_also_the_paddings(mode, sparse):
    table = numbers(6, 3) * 3

    def case(t):
        w = t.tensor(table).requires_grad_()
        options = {"mode": mode, "padding_idx": 2, "max_norm": 1.5, "norm_type": 3.0, "sparse": sparse}
        made = t.nn.functional.embedding_bag(t.tensor([[1, 2], [5, 2]]), w, **options)
        (made * t.tensor(numbers(2, 3, seed=6))).sum().backward()
        return made.detach(), w.detach(), w.grad.to_dense()

    agree(case)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gathered_elements_have_a_sparse_gradient_on_demand(dim):
    def case(t):
        x, index = t.tensor(numbers(3, 4)).requires_grad_(), t.tensor([[0, 2], [1, 1]])
        weight = t.tensor(numbers(2, 2, seed=6))
        (t.gather(x, dim, index, sparse_grad=True) * weight).sum().backward()
        (found,) = t.autograd.grad((x.gather(dim, index, sparse_grad=True) * weight).sum(), x)
        return shown(x.grad), shown(found)

    agree(case)


@pytest.mark.parametrize(("size", "index"), [((), 0), ((), [0, 0]), ((4,), 2)])
def test_scalars_are_gathered_with_a_sparse_gradient(size, index):
    def case(t):
        x = t.tensor(numbers(*size)).requires_grad_()
        (t.gather(x, 0, t.tensor(index), sparse_grad=True) * 3).sum().backward()
        return shown(x.grad), x.grad.to_dense()

    agree(case)


def test_gradients_are_cleared_and_cast_with_their_layer():
    def case(t):
        layer = t.nn.Embedding(5, 2, sparse=True, _weight=t.tensor(numbers(5, 2)))
        layer(t.tensor([1, 1, 3])).sum().backward()
        copied = copy.deepcopy(layer.weight.detach().requires_grad_())
        layer.float()
        seen = [shown(layer.weight.grad), copied.grad]
        gradient = layer.weight.grad
        layer.zero_grad(set_to_none=False)
        layer(t.tensor([0])).sum().backward()
        return [*seen, layer.weight.grad is gradient, shown(gradient.coalesce())]

    agree(case)


def test_a_gradient_is_changed_in_place():
    def case(t):
        _, one, other, _ = leaf_and_gradients(t)
        alias, shared = one, one.detach()
        one *= 3
        one += other
        one.sub_(other, alpha=2)
        return alias is one, shared.to_dense(), one.to_dense(), one.zero_()._nnz()

    agree(case)


@pytest.mark.filterwarnings("ignore:compile:UserWarning")
def test_a_compiled_function_reads_the_gradient_of_each_call():
    def case(t):
        p, seen = t.tensor(sixteenths(4, 2)).requires_grad_(), []
        read = (t.compile if t is gradwire else lambda each: each)(lambda x: p.grad.to_dense().sum() + x)
        for k in range(6):
            p.grad = None
            rows = t.nn.functional.embedding(t.tensor([k % 4, 1]), p, sparse=True)
            ((p if k in (1, 2) else rows) * (k + 1)).sum().backward()
            seen.append(read(t.tensor(1.0)).item())
        return seen

    agree(case)


# Gradients of sparse tensors.


@pytest.mark.parametrize("source", ["strided", *LAYOUTS])
@pytest.mark.parametrize("target", LAYOUTS)
def test_conversions_take_and_give_gradients_in_their_layouts(source, target):
    def form(values, name):
        if name == "strided":
            return values
        blocks = {"blocksize": (2, 2)} if name in ("sparse_bsr", "sparse_bsc") else {}
        return values.to_sparse(layout=getattr(gradwire, name), **blocks)

    # PyTorch has not all of these conversions, and a conversion hands the gradient's elements on.
    dense = gradwire.tensor(numbers(4, 6, seed=5))
    start = form(gradwire.tensor(numbers(4, 6)), source).detach().requires_grad_()
    made = form(start, target)
    weight = form(dense, target)
    (found,) = gradwire.autograd.grad(made, start, weight, retain_graph=True)
    made.backward(weight)
    assert found.layout is getattr(gradwire, source)
    assert start.grad.layout is getattr(gradwire, source)
    assert found.to_dense().tolist() == start.grad.to_dense().tolist() == dense.tolist()


FUNCTIONS = {
    "mm": lambda t, s, d: t.sparse.mm(s, d),
    "addmm": lambda t, s, d: t.sparse.addmm(d[:, :3] @ d[:3] * 2, s, d, beta=0.5, alpha=3.0),
    "square": lambda t, s, d: t.sparse.mm(s, s).to_dense(),
    "sum": lambda t, s, d: t.sparse.sum(s, 0).to_dense(),
    "sum of rows": lambda t, s, d: t.sparse.sum(s, 1).to_dense() * d[:, 0],
    "softmax": lambda t, s, d: t.sparse.softmax(s, 0).to_dense() * d,
    "log_softmax": lambda t, s, d: t.sparse.log_softmax(s, 1).to_dense() * d,
    "product": lambda t, s, d: (s * s.t().coalesce().detach()).to_dense() * d,
    "sum of two": lambda t, s, d: (s + 2 * s.t()).to_dense() * d,
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_of_stored_elements_are_those_of_pytorch(name, seed):
    random = np.random.default_rng(seed)
    values = random.normal(size=(4, 4)) * (random.random((4, 4)) < 0.6)

    def case(t):
        s = t.tensor(values).to_sparse().detach().requires_grad_()
        d = t.tensor(numbers(4, 4, seed=seed)).requires_grad_()
        (FUNCTIONS[name](t, s, d) ** 2).sum().backward()
        # Elements that are not stored have gradients in PyTorch in some cases.
        stored = s.grad.to_dense()[tuple(s.detach().indices())]
        return stored, None if d.grad is None else d.grad

    agree(case)


def test_hooks_of_a_sparse_tensor_get_sparse_gradients():
    def case(t):
        s = t.tensor([[1.0, 0.0], [2.0, 3.0]]).to_sparse().requires_grad_()
        seen = []
        made = s * 2
        made.register_hook(lambda gradient: seen.append(shown(gradient.coalesce())))
        made.register_hook(lambda gradient: gradient * 5)
        made.to_dense().sum().backward()
        return seen, s.grad.to_dense()

    agree(case)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_saved_sparse_tensor_comes_back_whole(layout):
    def case(t):
        class Times(t.autograd.Function):
            @staticmethod
            def forward(ctx, x, kept):
                ctx.save_for_backward(x, None, kept)
                return x * 2

            @staticmethod
            def backward(ctx, grad):
                x, nothing, kept = ctx.saved_tensors
                return grad * kept.to_dense() * x + (nothing is None) * (kept.layout is getattr(t, layout)), None

        blocks = {"blocksize": (2, 2)} if layout.endswith(("bsr", "bsc")) else {}
        kept = t.tensor([[1.0, 0.0], [2.0, 3.0]]).to_sparse(layout=getattr(t, layout), **blocks)
        x = t.ones(2, 2, requires_grad=True)
        made = Times.apply(x, kept)
        read = made.grad_fn.saved_tensors
        made.sum().backward()
        return x.grad, [each if each is None else each.to_dense() for each in read], read[2].layout is kept.layout

    agree(case)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sparse_tensors_are_pickled_and_copied(layout):
    blocks = {"blocksize": (2, 2)} if layout.endswith(("bsr", "bsc")) else {}
    dense = gradwire.tensor([[1.0, 0.0], [2.0, 3.0]])
    s = dense.to_sparse(layout=getattr(gradwire, layout), **blocks).requires_grad_()
    for made in (pickle.loads(pickle.dumps(s)), copy.deepcopy(s)):
        assert made.layout is s.layout
        assert made.requires_grad
        assert made.is_leaf
        assert made.detach().to_dense().tolist() == dense.tolist()


def test_a_leaf_with_hooks_may_get_no_gradient():
    class Nothing(gradwire.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return None

    x, seen = gradwire.ones(2, requires_grad=True), []
    x.register_post_accumulate_grad_hook(seen.append)  # PyTorch calls it all the same
    made = Nothing.apply(x)
    leaf = made.grad_fn.next_functions[0][0]
    leaf.register_prehook(lambda gradients: seen.append(gradients))
    leaf.register_hook(lambda inputs, outputs: seen.append((inputs, outputs)))
    made.sum().backward()
    assert seen == [(None,), ((), (None,))]
    assert x.grad is None


def test_values_that_change_after_they_were_saved_are_refused():
    x, one, *_ = leaf_and_gradients(gradwire)
    made = given(gradwire)(x, one).sum()
    one.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        made.backward()


# gradcheck.


def some(t, layout, full, uncoalesced=False):
    values = t.tensor(numbers(4, 6)) if full else t.tensor(numbers(4, 6)) * (t.arange(24).reshape(4, 6) % 3 == 0)
    blocks = {"blocksize": (2, 2)} if layout.endswith(("bsr", "bsc")) else {}
    made = values.to_sparse(layout=getattr(t, layout), **blocks)
    return (made + made * 2 if uncoalesced else made).detach().requires_grad_()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("full", "masked"), [(True, False), (True, True), (False, True)])
def test_gradcheck_moves_the_stored_elements(layout, full, masked):
    def cube(sparse):
        return sparse.to_dense() ** 3

    x = some(gradwire, layout, full)
    check = gradwire.autograd.gradcheck
    assert check(cube, x, masked=masked)
    assert check(lambda x, y: cube(x) * y, (x, gradwire.ones(4, 6, dtype=gradwire.float64, requires_grad=True)),
                 masked=masked, fast_mode=True)  # fmt: skip


class Wrong(gradwire.autograd.Function):
    """A sum whose gradient is too large by a tenth."""

    @staticmethod
    def forward(ctx, x):
        ctx.size = x.shape
        return x.sum()

    @staticmethod
    def backward(ctx, grad):
        return (grad * 1.1).expand(ctx.size)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("masked", [False, True])
def test_gradcheck_finds_a_wrong_gradient_of_a_sparse_tensor(layout, masked):
    x = some(gradwire, layout, full=True)
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        gradwire.autograd.gradcheck(lambda x: Wrong.apply(x.to_dense()), x, masked=masked)


def test_gradcheck_without_mask_wants_gradients_of_all_elements():
    x = some(gradwire, "sparse_coo", full=False)
    assert not gradwire.autograd.gradcheck(lambda x: x.to_dense(), x, masked=False, raise_exception=False)


def test_gradcheck_refuses_what_pytorchs_does():
    def sparse_of_dense(t):
        x = t.ones(2, dtype=t.float64, requires_grad=True)
        return t.autograd.gradcheck(lambda x: t.gather(x, 0, t.tensor([0, 1]), sparse_grad=True), x)

    def other_dimensions(t):
        def function(x):
            made = x.clone()
            made.register_hook(lambda gradient: gradient.to_dense().to_sparse(1))
            return made.to_dense()

        return t.autograd.gradcheck(function, some(t, "sparse_coo", full=True), masked=True)

    def batched(t):
        x = some(t, "sparse_coo", full=True)
        return t.autograd.gradcheck(lambda x: x.to_dense(), x, masked=True, check_batched_grad=True)

    refuse(sparse_of_dense, RuntimeError, "grad is incorrect layout \\(torch.sparse_coo is not torch.strided\\)")
    refuse(other_dimensions, RuntimeError, "grad is sparse tensor, but has incorrect sparse_dim 1, expected 2")
    refuse(batched, RuntimeError, "failed while testing batched gradient")
    refuse(lambda t: t.autograd.gradcheck(lambda x: x * 2, some(t, "sparse_coo", True)), ValueError, "Sparse output is")


# Kinds, comparison, refusals.


def test_a_sparse_tensor_is_a_tensor_for_programs():
    def case(t):
        s = t.eye(2).to_sparse()
        kinds = [isinstance(each, t.Tensor) for each in (s, s.to_sparse_csr(), s.t(), [])]
        return kinds, t.is_tensor(s), t.as_tensor(s).layout is t.sparse_coo, isinstance(s, t.nn.Parameter)

    agree(case)


def test_sparse_tensors_are_compared():
    def case(t):
        close, s = t.testing.assert_close, t.eye(3).to_sparse()
        close(s, t.eye(3).to_sparse())
        close(s, t.eye(3), check_layout=False)
        close(s.to_sparse_csr(), t.eye(3).to_sparse_csr())
        return s.grad

    agree(case)
    for wrong, words in [
        (lambda t: t.eye(3), "(?i)layout"),
        (lambda t: t.eye(3).to_sparse() * 2, "not close"),
        (lambda t: t.eye(3)[:2].to_sparse(), "shape"),
        (lambda t: t.ones(3, 3).to_sparse(), "number of specified values"),
    ]:
        refuse(lambda t, wrong=wrong: t.testing.assert_close(t.eye(3).to_sparse(), wrong(t)), AssertionError, words)


def test_misuse_raises_as_in_pytorch():
    def incompatible(t):
        t.ones(2).data = t.eye(2).to_sparse()

    def other_shape(t):
        x, *_ = leaf_and_gradients(t)
        given(t)(x, t.eye(2).to_sparse()).sum().backward()

    def dense_step(t):
        p = t.ones(2, requires_grad=True)
        (p * 2).sum().backward()
        t.optim.SparseAdam([p]).step()

    def adam(t):
        layer = t.nn.Embedding(3, 2, sparse=True)
        layer(t.tensor([1])).sum().backward()
        t.optim.Adam(layer.parameters()).step()

    def decayed(t, kind):
        w = t.ones(3, 2, requires_grad=True)
        t.nn.functional.embedding(t.tensor([1]), w, sparse=True).sum().backward()
        kind([w], weight_decay=0.1).step()

    def scaled(t):
        w = t.ones(3, 2, requires_grad=True)
        t.nn.functional.embedding(t.tensor([1]), w, scale_grad_by_freq=True, sparse=True).sum().backward()

    def unused(t):
        x, one, *_ = leaf_and_gradients(t)
        t.autograd.grad(given(t)(x, one).sum(), [x, t.ones(1, requires_grad=True)])

    def largest(t):
        t.nn.functional.embedding_bag(t.tensor([[1]]), t.ones(3, 2, requires_grad=True), mode="max", sparse=True)

    refuse(incompatible, RuntimeError, "incompatible tensor type")
    refuse(other_shape, RuntimeError, "invalid gradient at index 0 - got \\[2, 2\\]")
    refuse(dense_step, RuntimeError, "SparseAdam does not support dense gradients")
    refuse(adam, RuntimeError, "Adam does not support sparse gradients, please consider SparseAdam instead")
    refuse(lambda t: decayed(t, t.optim.SGD), RuntimeError, "add\\(sparse, dense\\) is not supported")
    refuse(lambda t: decayed(t, t.optim.Adagrad), RuntimeError, "weight_decay option is not compatible with sparse")
    refuse(scaled, RuntimeError, "scale_grad_by_freq not supported with sparse gradients")
    refuse(unused, RuntimeError, "appears to not have been used in the graph")
    refuse(largest, ValueError, "max mode does not support sparse weights")


def test_what_would_lose_a_sparse_gradient_is_refused_by_name():
    x, one, other, _ = leaf_and_gradients(gradwire)
    of_one = given(gradwire)
    with pytest.raises(NotImplementedError, match="sparse gradient of a tensor that is no leaf"):
        of_one(x * 2, one).sum().backward()
    with pytest.raises(NotImplementedError, match="sparse gradient of a tensor that is no leaf"):
        (x * 2).backward(one)
    with pytest.raises(NotImplementedError, match="computed table"):
        gradwire.nn.functional.embedding(gradwire.tensor([1]), gradwire.ones(2, 2, requires_grad=True) * 2, sparse=True)
    with pytest.raises(NotImplementedError, match="a differentiable sparse argument or result"):
        of_one(x, other.requires_grad_())
    of_one(x, one).sum().backward()
    with pytest.raises(NotImplementedError, match="session with sparse gradients"):
        gradwire.current_session().save("sparse")
    made = of_one(x, one)
    made.grad_fn.next_functions[0][0].register_prehook(lambda gradients: None)
    with pytest.raises(NotImplementedError, match="hooks of a node that a sparse gradient reaches"):
        made.sum().backward()


def test_a_hook_that_waits_for_the_gradient_on_the_server_is_refused():
    x, one, *_ = leaf_and_gradients(gradwire)
    handle = x.register_post_accumulate_grad_hook(lambda leaf: None)
    with pytest.raises(NotImplementedError, match="register_post_accumulate_grad_hook"):
        given(gradwire)(x, one).sum().backward()
    assert x.grad is None
    handle.remove()
    given(gradwire)(x, one).sum().backward()
    assert x.grad.is_sparse
