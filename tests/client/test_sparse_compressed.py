"""Sparse matrices in compressed form: parts, values, products, gradients, text and refusals are those of PyTorch."""

import pytest

import gradwire
from tests.client.oracle import agree, refuse, torch

pytestmark = [
    pytest.mark.usefixtures("deferring"),
    pytest.mark.filterwarnings("ignore:.*(Sparse|sparse).*:UserWarning"),
]
BLOCKED = {"sparse_bsr": (2, 1), "sparse_bsc": (2, 3)}
LAYOUTS = ["sparse_csr", "sparse_csc", *BLOCKED]


def dense(t, **options):
    """A matrix with a column and a row that have no elements."""
    values = [[0.0, 2.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [3.0, 4.0, 0.0]]
    return t.tensor(values, **options)


def converted(t, matrix, layout):
    """The matrix in this layout."""
    return matrix.to_sparse(layout=getattr(t, layout), blocksize=BLOCKED.get(layout))


def parts(t, sparse):
    """Indices, values and sizes."""
    rows = sparse.layout in (t.sparse_csr, t.sparse_bsr)
    indices = (sparse.crow_indices(), sparse.col_indices()) if rows else (sparse.ccol_indices(), sparse.row_indices())
    return [*indices, sparse.values(), tuple(sparse.shape), sparse.to_dense(), sparse._nnz(), str(sparse.layout)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_conversions_have_the_parts_and_text_of_pytorch(layout):
    def case(t):
        made = converted(t, dense(t), layout)
        again = converted(t, dense(t).to_sparse(), layout)
        back = made.to_sparse_coo().coalesce()
        facts = (made.dim(), made.sparse_dim(), made.dense_dim(), made.numel(), made.is_sparse, made.is_sparse_csr)
        return parts(t, made), parts(t, again), back.indices(), back.values(), str(made), facts, parts(t, made.t())

    agree(case)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_matrix_is_made_of_its_parts(layout):
    def case(t):
        made = converted(t, dense(t), layout)
        *indices, values, size, _, _, _ = parts(t, made)
        whole = getattr(t, f"{layout}_tensor")(*indices, values, size)
        inferred = t.sparse_compressed_tensor(*indices, values.double(), layout=getattr(t, layout))
        return parts(t, whole), parts(t, inferred), str(inferred)

    agree(case)


def test_values_may_have_dense_dimensions():
    def case(t):
        x = t.arange(12.0).reshape(3, 2, 2)
        made = [
            x.to_sparse_csr(dense_dim=1),
            x.to_sparse_csc(1),
            x.to_sparse_bsr((3, 1), 1),
            x.to_sparse_bsc((1, 2), 1),
        ]
        return [parts(t, each) for each in made], [str(each) for each in made]

    agree(case)


def test_products_and_elementwise_ops_agree():
    def case(t):
        s, d = dense(t).to_sparse_csr(), t.arange(6.0).reshape(3, 2)
        both = s @ dense(t).t().to_sparse_csr()
        return [
            *(s @ d, t.mm(s, d), t.sparse.mm(s, d), s.matmul(d), s @ d[:, 0], s.sum(), dense(t).to_sparse_csc() @ d),
            t.addmm(t.ones(4, 2), s, d, beta=0.5, alpha=2),
            both.to_dense(),
            *(parts(t, each) for each in (s + s, s * 2, -s, t.sin(s), s.abs(), s.double(), s.to(t.float64))),
        ]

    agree(case)


@pytest.mark.parametrize("layout", ["sparse_csr", "sparse_bsr"])
def test_gradients_flow_to_values_and_dense_matrices(layout):
    def case(t):
        x, d = dense(t, requires_grad=True), t.arange(6.0).reshape(3, 2).requires_grad_()
        (converted(t, x, layout).to_dense() @ d).square().sum().backward()
        return x.grad, d.grad

    agree(case)


def test_a_compressed_leaf_has_a_compressed_gradient():
    def case(t):
        s, d = dense(t).to_sparse_csr().requires_grad_(), t.arange(6.0).reshape(3, 2).requires_grad_()
        t.sparse.mm(s, d).square().sum().backward()
        (alone,) = t.autograd.grad(t.sparse.mm(s, d).sum(), [s])
        return parts(t, s.grad), d.grad, s.is_leaf, alone.to_dense()

    agree(case)


def test_only_the_wanted_elements_of_a_product_are_computed():
    def case(t):
        s = dense(t).to_sparse_csr().requires_grad_()
        a, b = t.arange(8.0).reshape(4, 2).requires_grad_(), t.arange(6.0).reshape(2, 3).requires_grad_()
        made = t.sparse.sampled_addmm(s, a, b, beta=0.5, alpha=2.0)
        weights = t.sparse_csr_tensor(made.crow_indices(), made.col_indices(), t.arange(1.0, 5.0), (4, 3))
        return parts(t, made.detach()), t.sparse.sampled_addmm(weights, a, b, beta=0).values().detach()

    agree(case)


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_products_are_reduced_along_rows(reduce):
    def case(t):
        s, d = dense(t).to_sparse_csr(), t.tensor([[1.0, -2.0], [0.5, 3.0], [4.0, 5.0]], requires_grad=True)
        made = t.sparse.mm(s, d, reduce)
        (made * t.arange(8.0).reshape(4, 2)).sum().backward()
        return made.detach(), d.grad

    agree(case)


REFUSED = {
    "parts of another layout": (lambda t: dense(t).to_sparse_csr().ccol_indices(), "expected sparse"),
    "a block that does not fit": (lambda t: dense(t).to_sparse_bsr((3, 1)), "divisible by given blocksize"),
    "a wrong count": (
        lambda t: t.sparse_csr_tensor([0, 1, 3], [0, 1], [1.0, 2.0], (2, 2), check_invariants=True),
        "is not satisfied",
    ),
    "a reduction without a name": (lambda t: t.sparse.mm(dense(t).to_sparse_csr(), t.ones(3, 2), "prod"), "reduce"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_is_that_of_pytorch(name):
    case, phrase = REFUSED[name]
    refuse(case, (RuntimeError, ValueError), phrase)


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
@pytest.mark.parametrize("sizes", [(5, 2), (2, 2), (3,)])
def test_a_reduced_product_needs_sizes_that_fit(reduce, sizes):
    for t in (torch, gradwire):
        with pytest.raises(RuntimeError):
            t.sparse.mm(dense(t).to_sparse_csr(), t.ones(*sizes), reduce)
        with pytest.raises(RuntimeError):
            t.sparse.mm(dense(t).to_sparse_csr(), t.ones(3, 2, dtype=t.float64), reduce)


@pytest.mark.parametrize("layout", ["sparse_csr", "sparse_csc"])
def test_an_index_selects_from_a_matrix(layout):
    def case(t):
        s = converted(t, dense(t), layout)
        return s[1].to_dense(), s[:, 1].to_dense(), s[-1, 0]

    agree(case)


def test_what_is_missing_is_refused_by_name():
    s = gradwire.ones(2, 2).to_sparse_csr()
    with pytest.raises(NotImplementedError, match="blocks to other sizes"):
        gradwire.ones(2, 2).to_sparse_bsr((1, 1)).to_sparse_bsr((2, 1))
    with pytest.raises(NotImplementedError, match="alpha"):
        gradwire.add(s, gradwire.ones(2, 2), alpha=2)  # PyTorch multiplies the first operand
    assert (gradwire.ones(2, 2) - s).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    with pytest.raises(NotImplementedError, match="exp of a sparse tensor"):
        gradwire.exp(s)
    with pytest.raises(NotImplementedError, match="a batch"):
        gradwire.ones(2, 2, 2).to_sparse_csr()
    assert not hasattr(s, "exp")
