"""Sparse tensors in COO form: values, structure, gradients, text and refusals are those of PyTorch."""

import copy

import numpy as np
import pytest

import gradwire
from tests.client.oracle import agree, refuse

pytestmark = [
    pytest.mark.usefixtures("deferring"),
    pytest.mark.filterwarnings("ignore:.*(Sparse invariant checks|Sparse CSR tensor|SparseTensor).*:UserWarning"),
]


def part(t, **options):
    """A matrix with an element that is stored twice."""
    indices = t.tensor([[0, 1, 1, 1], [2, 0, 2, 2]])
    return t.sparse_coo_tensor(indices, t.tensor([3.0, 4.0, 5.0, 1.0]), (2, 3), **options)


def structure(sparse):
    """Everything that a program can see of a sparse tensor, whatever the order of its elements."""
    whole = sparse.coalesce()
    return sparse.is_coalesced(), tuple(sparse.shape), whole.indices(), whole.values(), sparse.to_dense()


# PyTorch 2.13 reads beside its memory for other sizes than squares, and for what it refuses.
@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc"])
@pytest.mark.parametrize("offsets", [[0, -1, -2], [2, 0, -1], [1, -3, 3]])
def test_matrices_of_diagonals(layout, offsets):
    def case(t):
        made = t.sparse.spdiags(t.arange(9.0).reshape(3, 3), t.tensor(offsets), (3, 3), getattr(t, layout))
        return made.to_dense(), str(made.layout), made._nnz(), repr(made)

    agree(case)


@pytest.mark.parametrize("shape", [(4, 2), (2, 5), (6, 6), (0, 3)])
@pytest.mark.parametrize("offsets", [[0, -1, -2], [2, 0, -1], [1, -3, 3]])
def test_diagonals_of_other_matrices_and_their_gradients(shape, offsets):
    diagonals = gradwire.arange(1.0, 10.0).reshape(3, 3).requires_grad_()
    wanted, stored = np.zeros(shape), np.zeros((3, 3))
    for row, column, number in np.ndindex(*shape, 3):
        if column < 3 and column - row == offsets[number]:
            wanted[row, column] = number * 3 + column + 1
            stored[number, column] = 1
    made = gradwire.sparse.spdiags(diagonals, gradwire.tensor(offsets), shape)
    made.to_dense().sum().backward()
    assert made.detach().to_dense().tolist() == wanted.tolist()
    assert diagonals.grad.tolist() == stored.tolist()


REFUSED_DIAGONALS = {
    "count": (lambda t: (t.ones(3, 3), t.tensor([0, 1]), (3, 3)), "does not match the number of offsets"),
    "twice": (lambda t: (t.ones(2, 3), t.tensor([1, 1]), (3, 3)), "Offset tensor contains duplicate values"),
    "rank": (lambda t: (t.ones(1, 3), t.tensor([0]), (3, 3, 3)), "Output shape must be 2d"),
    "floats": (lambda t: (t.ones(1, 3), t.tensor([0.0]), (3, 3)), "Offset Tensor must have"),
    "layout": (lambda t: (t.ones(1, 3), t.tensor([0]), (3, 3), t.sparse_bsr), "Only output layouts"),
}


@pytest.mark.parametrize("name", REFUSED_DIAGONALS)
def test_diagonals_that_make_no_matrix_are_refused(name):
    with pytest.raises(RuntimeError, match=REFUSED_DIAGONALS[name][1]):
        gradwire.sparse.spdiags(*REFUSED_DIAGONALS[name][0](gradwire))


RESULTS = {
    "coalesce": lambda t, s: s.coalesce(),
    "t": lambda t, s: s.t(),
    "transpose": lambda t, s: s.transpose(-1, 0),
    "neg": lambda t, s: -s,
    "times a number": lambda t, s: 2 * s / 3,
    "sum of itself": lambda t, s: s + s,
    "sum": lambda t, s: s.coalesce() + t.eye(3)[:2].to_sparse(),
    "difference": lambda t, s: t.eye(3)[:2].to_sparse() - s.coalesce(),
    "product": lambda t, s: s.coalesce() * t.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 4.0]]).to_sparse(),
    "times dense": lambda t, s: s * t.arange(6.0).reshape(2, 3),
    "dense times": lambda t, s: t.arange(6.0).reshape(2, 3) * s,
    "square": lambda t, s: s**2,
    "abs": lambda t, s: (-s).abs(),
    "sqrt": lambda t, s: t.sqrt(s),
    "relu": lambda t, s: t.relu(-s),
    "sum of rows": lambda t, s: s.sum(0),
    "sum of columns": lambda t, s: t.sparse.sum(s, dim=-1),
    "softmax": lambda t, s: t.sparse.softmax(s, 1),
    "log_softmax": lambda t, s: t.sparse.log_softmax(s, 0),
    "sparse product": lambda t, s: t.sparse.mm(s, s.t()),
    "cat": lambda t, s: t.cat([s, s], 1),
    "stack": lambda t, s: t.stack([s, s]),
    "unsqueeze": lambda t, s: s.unsqueeze(1),
    "select": lambda t, s: s[1],
    "select column": lambda t, s: s[:, 2],
    "index_select": lambda t, s: s.index_select(0, t.tensor([1, 0, 1])),
    "narrow": lambda t, s: t.narrow_copy(s, 0, 1, 1),
    "double": lambda t, s: s.double(),
    "to": lambda t, s: s.to("cpu", t.float64),
    "clone": lambda t, s: s.clone(),
    "zeros_like": lambda t, s: t.zeros_like(s),
    "sparse_mask": lambda t, s: t.arange(6.0).reshape(2, 3).sparse_mask(s.coalesce()),
    "to_sparse": lambda t, s: t.tensor([[0.0, 2.0], [1.0, 0.0]]).to_sparse(),
    "to_sparse of rows": lambda t, s: t.tensor([[0.0, 0.0], [1.0, 0.0]]).to_sparse(1),
    "inferred size": lambda t, s: t.sparse_coo_tensor([[0, 4], [2, 0]], [1.0, 2.0]),
    "without values": lambda t, s: t.sparse_coo_tensor((2, 3)),
    "legacy": lambda t, s: t.sparse.FloatTensor(s._indices(), s._values(), t.Size([2, 3])),
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_sparse_result_is_that_of_pytorch(name):
    agree(lambda t: structure(RESULTS[name](t, part(t))))


def test_products_with_dense_matrices_agree():
    def case(t):
        s, d = part(t), t.arange(6.0).reshape(3, 2)
        return [
            *(
                s @ d,
                t.mm(s, d),
                t.spmm(s, d),
                t.sparse.mm(s, d),
                s.matmul(d),
                d.t() @ s.t(),
                s @ d[:, 0],
                s.mv(d[:, 1]),
            ),
            t.addmm(t.ones(2, 2), s, d, beta=0.5, alpha=2),
            t.sparse.addmm(t.ones(2, 2), s, d),
            t.nn.functional.linear(s, d.t()),
            *(t.ones(2, 3) + s, t.ones(2, 3) - s, s.sum(), t.sparse.sum(s), s.norm(), s[1, 2]),
        ]

    agree(case)


@pytest.mark.parametrize("coalesced", [False, True])
def test_gradients_flow_to_sparse_and_dense_matrices(coalesced):
    def case(t):
        s = part(t)
        s = (s.coalesce() if coalesced else s).detach().requires_grad_()
        d = t.arange(6.0).reshape(3, 2).requires_grad_()
        (t.sparse.mm(s, d) ** 2).sum().backward()
        return structure(s.grad)[1:], d.grad, s.is_leaf, s.requires_grad

    agree(case)


def test_gradients_pass_from_dense_through_sparse_to_dense():
    def case(t):
        x = t.tensor([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]], requires_grad=True)
        weights = t.arange(6.0).reshape(2, 3)
        (t.sparse.softmax(x.to_sparse(), 1).to_dense() * weights).sum().backward()
        first, x.grad = x.grad, None
        values = (x * 2).to_sparse().values()
        (t.sparse_coo_tensor([[0, 0, 1], [1, 1, 0]], values, (2, 2)).to_dense() ** 2).sum().backward()
        return first, x.grad

    agree(case)


def test_a_graph_convolution_learns_the_same():
    def case(t):
        t.manual_seed(0)
        adjacency = t.sparse_coo_tensor([[0, 1, 1, 2, 3], [1, 0, 2, 1, 3]], t.ones(5), (4, 4)).coalesce()
        layers = t.nn.Linear(3, 5), t.nn.Linear(5, 2)
        features, labels = t.randn(4, 3), t.tensor([0, 1, 0, 1])
        optimizer = t.optim.Adam([p for each in layers for p in each.parameters()], lr=0.1)
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            hidden = t.relu(t.spmm(adjacency, layers[0](features)))
            loss = t.nn.functional.cross_entropy(t.sparse.mm(adjacency, layers[1](hidden)), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses

    agree(case)


def test_dense_dimensions_follow_the_sparse_ones():
    def case(t):
        s = t.sparse_coo_tensor([[0, 1, 1]], t.arange(6.0).reshape(3, 2), (3, 2))
        return structure(s), structure(s.sum(1)), t.sparse.sum(s, 0), s.sparse_dim(), s.dense_dim(), s.numel(), len(s)

    agree(case)


def test_text_is_that_of_pytorch():
    def case(t):
        wide = t.sparse_coo_tensor(t.arange(40).reshape(2, 20) % 7, t.arange(20.0) * 1.5, (7, 7))
        return [str(each) for each in (part(t), part(t).double(), part(t, requires_grad=True), wide.coalesce())] + [
            str(t.sparse_coo_tensor((2, 3))),
            str(t.sparse_coo_tensor(t.arange(3000).reshape(1, -1), t.ones(3000))),
            str(part(t, requires_grad=True) * 2),
            str(copy.deepcopy(part(t))),
            str(part(t).layout),
            part(t).type(),
            isinstance(part(t), t.sparse.FloatTensor),
        ]

    agree(case)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "float64"])
def test_parts_and_sums_have_the_dtypes_of_pytorch(dtype):
    def case(t):
        s = part(t).to(getattr(t, dtype)).coalesce()
        rows = t.sparse_coo_tensor([[0, 1, 1]], t.arange(6).reshape(3, 2).to(s.dtype), (3, 2))
        return (
            s[1, 2],
            rows[1],
            rows[0, 1],
            structure(s.sum(1)),
            structure(t.sparse.sum(s, 1)),
            s.sum(),
            t.sparse.sum(s),
        )

    agree(case)


def test_selected_indices_count_from_the_end():
    def case(t):
        s = part(t)
        return structure(s.index_select(0, t.tensor([-1, 0, -2]))), structure(
            s.index_select(1, t.tensor([], dtype=t.long))
        )

    agree(case)


def test_selected_indices_keep_their_order_and_repeat_what_is_stored_twice():
    def case(t):
        s = t.sparse_coo_tensor(t.tensor([[2, 0, 2, 1], [1, 3, 0, 1]]), t.arange(1.0, 5.0), (4, 5))
        chosen = [s.index_select(0, t.tensor([2, 3, 0, 2])), s.index_select(1, t.tensor([1, 1, 4]))]
        return [[each._indices(), each._values(), each.to_dense()] for each in chosen]

    agree(case)


def test_sparse_tensors_of_no_dimensions_and_no_elements():
    def case(t):
        nothing = t.empty(2, 0, dtype=t.int64)
        twice = t.sparse_coo_tensor(t.empty(0, 2, dtype=t.int64), t.tensor([1.0, 2.0]), ())
        made = [
            *(t.tensor(3.0).to_sparse(), t.tensor(0.0).to_sparse(), twice),
            *(t.sparse_coo_tensor(nothing, t.empty(0)), t.sparse_coo_tensor(nothing, t.empty(0, 3))),
            t.eye(2, dtype=t.complex64).to_sparse() * t.sparse_coo_tensor((2, 2), dtype=t.float64),
            t.ones(3).to_sparse().t(),
        ]
        return [structure(each) for each in made]

    agree(case)


def test_a_matrix_times_beta_0_does_not_count():
    agree(lambda t: t.addmm(t.full((2, 2), float("nan")), part(t), t.arange(6.0).reshape(3, 2), beta=0, alpha=2))


def test_sums_are_computed_in_the_dtype_of_the_result():
    def case(t):
        wide, narrow = t.tensor([[300, 2, -1]]), t.tensor([[3, 0, 200]], dtype=t.uint8).to_sparse()
        truth = t.tensor([[True, False, True]])
        return (
            *(wide - narrow, wide.half() - narrow, t.add(wide, narrow, alpha=100), t.sub(wide, narrow, alpha=2)),
            *(structure(wide.to_sparse() - narrow), structure(narrow - wide.to_sparse())),
            t.add(truth, truth.to_sparse(), alpha=2),
        )

    agree(case)


SHARING = {
    "made of values": lambda t, v, s: t.sparse_coo_tensor(s._indices(), v, (2, 3)),
    "transposed": lambda t, v, s: s.t(),
    "unsqueezed": lambda t, v, s: s.unsqueeze(0),
    "its values": lambda t, v, s: s.values(),
    "compressed": lambda t, v, s: s.to_sparse_csr(),
    "compressed and transposed": lambda t, v, s: s.to_sparse_csr().t(),
    "of compressed parts": lambda t, v, s: t.sparse_csr_tensor([0, 1, 3], [2, 0, 2], v, (2, 3)),
}


@pytest.mark.parametrize("name", SHARING)
def test_tensors_that_share_values_have_flags_and_gradients_of_their_own(name):
    def case(t):
        v = t.tensor([3.0, 4.0, 5.0])
        s = t.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], v, (2, 3)).coalesce()
        one, other = (SHARING[name](t, v, s).requires_grad_() for _ in range(2))
        first = v.requires_grad, s.requires_grad, one.is_leaf, other.is_leaf
        for each in (one, other, other):
            (each * 2).sum().backward()
        # A gradient is dense in PyTorch where it is of equal elements, and has the tensor's layout here.
        largest = [(grad if grad.layout is t.strided else grad.to_dense()).max() for grad in (one.grad, other.grad)]
        return first, v.grad, *largest

    agree(case)


@pytest.mark.parametrize("name", SHARING)
def test_what_is_made_of_a_leaf_is_none_and_has_no_history_without_gradients(name):
    def case(t):
        v = t.tensor([3.0, 4.0, 5.0], requires_grad=True)
        s = t.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], v.detach(), (2, 3), is_coalesced=True).requires_grad_()
        made = SHARING[name](t, v, s)
        with t.no_grad():
            constant = SHARING[name](t, v, s)
        return made.is_leaf, made.requires_grad, constant.requires_grad

    agree(case)


def test_quotients_are_rounded():
    agree(lambda t: structure(t.div(part(t), 2, rounding_mode="floor")))


REFUSED = {
    "Cannot get indices on an uncoalesced": lambda t, s: s.indices(),
    "Use add\\(dense, sparse\\)": lambda t, s: s + t.ones(2, 3),
    "same nnz": lambda t, s: t.sparse_coo_tensor([[0, 1]], [1.0], (3,)),
    "sparse_dim \\+ dense_dim": lambda t, s: t.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (3, 2)),
    "found negative index": lambda t, s: t.sparse_coo_tensor([[-1]], [1.0], (3,), check_invariants=True),
    "size is inconsistent": lambda t, s: t.sparse_coo_tensor([[5]], [1.0], (3,), check_invariants=True),
    "more than one value is ambiguous": lambda t, s: bool(s),
    "coalesce expected sparse": lambda t, s: t.ones(2).coalesce(),
    "requires a scalar": lambda t, s: s / t.ones(2, 3),
    "found negative index -1 for dim 0": lambda t, s: t.sparse_coo_tensor([[-1, 2]], [1.0, 2.0]),
    "(?i)size.* \\[1, 3\\] ": lambda t, s: t.ones(1, 3) + s,
    "(?i)size.* \\[4, 2, 3\\] ": lambda t, s: t.ones(4, 2, 3) - s,
    "dim 0 appears multiple times": lambda t, s: t.sparse.sum(s, (0, -2)),
    "sparse_dim argument must be in": lambda t, s: t.ones(2, 3).to_sparse(3),
    "sparse_dim argument must be in >?": lambda t, s: t.ones(2, 3).to_sparse(0),
    "Subtraction, the `-` operator, with": lambda t, s: s.bool() - s.bool(),
    "alpha must not be a floating point": lambda t, s: t.add(t.ones(2, 3).int(), s.int(), alpha=1.5),
    "the number of sizes provided": lambda t, s: t.addmm(t.ones(4, 2, 2), s, t.ones(3, 2)),
    "must match the existing size": lambda t, s: t.addmm(t.ones(5, 2), s, t.ones(3, 2), beta=0),
    "expected scalar type Float": lambda t, s: t.addmm(t.ones(2, 2).double(), s, t.ones(3, 2)),
}


@pytest.mark.parametrize("words", REFUSED)
def test_misuse_raises_as_in_pytorch(words):
    refuse(lambda t: REFUSED[words](t, part(t)), RuntimeError, words)


@pytest.mark.parametrize("index", [2, -3])
def test_an_index_out_of_range_is_refused(index):
    words = f"index contains {index} that is out of range for tensor of size \\[2, 3\\] at dimension 0"
    refuse(lambda t: part(t).index_select(0, t.tensor([0, index])), IndexError, words)


MISSING = {
    "mm of sparse tensors": lambda s: gradwire.ones(2, 2, 2) @ s,
    "exp": lambda s: s.exp(),
    "max": lambda s: gradwire.max(s),
    "eq": lambda s: s == s,
    "masked_grad": lambda s: s.requires_grad_().to_dense(masked_grad=False),
    "sparse.spsolve": lambda s: gradwire.sparse.spsolve(s, s),
}


@pytest.mark.parametrize("name", MISSING)
def test_what_is_missing_is_refused_by_name(name):
    with pytest.raises(NotImplementedError, match=name):
        MISSING[name](part(gradwire))
