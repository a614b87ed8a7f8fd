"""Tensors print as in PyTorch: compared with PyTorch where it is installed, and with literal texts."""

import html.parser
import math
from collections.abc import Iterator

import numpy as np
import pytest

from gradwire._base import printing


@pytest.fixture(autouse=True)
def default_options() -> Iterator[None]:
    printing.set_printoptions(profile="default")
    yield
    printing.set_printoptions(profile="default")


def show(values, dtype="float32", **facts):
    """Prints an array as a tensor on the CPU without history, but for the facts given."""
    values = np.asarray(values)
    defaults = {"shape": values.shape, "device": "cpu", "requires_grad": False, "grad_fn": None}
    return printing.format_tensor(values, dtype=dtype, **{**defaults, **facts})


def show_html(values, dtype="float32", **facts):
    values = np.asarray(values)
    defaults = {"shape": values.shape, "device": "cpu", "requires_grad": False, "grad_fn": None, "summarized": False}
    return printing.format_html(values, dtype=dtype, **{**defaults, **facts})


def corner(values):
    """Cuts an array to what a summary shows, as a client does that reads no more than that."""
    for axis, size in enumerate(values.shape):
        indices = printing.edge_indices(size, printing.PRINT_OPTIONS.edgeitems)
        if indices is not None:
            values = np.take(values, indices, axis)
    return values


@pytest.mark.parametrize(
    ("values", "dtype", "text"),
    [
        (3.5, "float32", "tensor(3.5000)"),
        ([1.0, 2.0], "float32", "tensor([1., 2.])"),
        ([1.0, 2.5], "float64", "tensor([1.0000, 2.5000], dtype=torch.float64)"),
        ([1.0, 1e5], "float32", "tensor([1.0000e+00, 1.0000e+05])"),
        ([99999999.0], "float64", "tensor([99999999.], dtype=torch.float64)"),
        ([0.00005], "float32", "tensor([5.0000e-05])"),
        ([1.5, math.nan, -math.inf, -0.0], "float32", "tensor([1.5000,    nan,   -inf, -0.0000])"),
        ([math.nan, math.inf, 0.0], "float32", "tensor([nan, inf, 0.])"),
        ([1, 2, -300], "int64", "tensor([   1,    2, -300])"),
        ([1, 2], "int32", "tensor([1, 2], dtype=torch.int32)"),
        ([True, False], "bool", "tensor([ True, False])"),
        ([1 + 2j, 3.5 - 4j], "complex64", "tensor([1.0000+2.j, 3.5000-4.j])"),
        ([[[1.0]], [[2.0]]], "float32", "tensor([[[1.]],\n\n        [[2.]]])"),
    ],
)
def test_values_print_as_these_texts(values, dtype, text):
    assert show(values, dtype) == text


def test_an_empty_tensor_names_its_size_and_dtype():
    assert show(np.zeros(0)) == "tensor([])"
    assert show(np.zeros((0, 3))) == "tensor([], size=(0, 3))"
    assert show(np.zeros(0), "int64") == "tensor([], dtype=torch.int64)"


def test_suffixes_come_in_the_order_device_size_dtype_grad():
    text = show(np.zeros((0, 3)), "float64", device="cuda:0", requires_grad=True)
    assert text == "tensor([], device='cuda:0', size=(0, 3), dtype=torch.float64,\n       requires_grad=True)"
    assert show([1.5], requires_grad=True, grad_fn="MulBackward0") == "tensor([1.5000], grad_fn=<MulBackward0>)"


def test_a_parameter_says_so_on_a_line_of_its_own():
    text = show([1.5], requires_grad=True, is_parameter=True)
    assert text == "Parameter containing:\ntensor([1.5000], requires_grad=True)"


def test_a_summary_needs_only_the_corner():
    values = np.arange(10_000).reshape(100, 100)
    text = show(corner(values), "int64", shape=(100, 100), summarized=True)
    assert text == show(values, "int64")
    assert text == (
        "tensor([[   0,    1,    2,  ...,   97,   98,   99],\n"
        "        [ 100,  101,  102,  ...,  197,  198,  199],\n"
        "        [ 200,  201,  202,  ...,  297,  298,  299],\n"
        "        ...,\n"
        "        [9700, 9701, 9702,  ..., 9797, 9798, 9799],\n"
        "        [9800, 9801, 9802,  ..., 9897, 9898, 9899],\n"
        "        [9900, 9901, 9902,  ..., 9997, 9998, 9999]])"
    )


def test_a_corner_of_the_wrong_size_is_refused():
    with pytest.raises(ValueError, match="shows 6 entries of a dimension of size 2000"):
        show(np.zeros(7), shape=(2000,), summarized=True)


def test_edge_indices_are_none_where_everything_is_shown():
    assert printing.edge_indices(6, 3) is None
    assert printing.edge_indices(7, 3) == [0, 1, 2, 4, 5, 6]
    assert printing.edge_indices(5, 0) == []


def test_needs_summary_follows_the_threshold():
    assert not printing.needs_summary(1000)
    assert printing.needs_summary(1001)
    printing.set_printoptions(profile="full")
    assert not printing.needs_summary(10**9)


def test_printoptions_stay_until_changed_but_sci_mode_falls_back():
    printing.set_printoptions(precision=2, sci_mode=True)
    assert show([1.5]) == "tensor([1.50e+00])"
    printing.set_printoptions(linewidth=120)
    assert show([1.5]) == "tensor([1.50])"
    printing.set_printoptions(profile="default")
    assert show([1.5]) == "tensor([1.5000])"


class Tags(html.parser.HTMLParser):
    """Checks that tags nest and collects the cells' texts."""

    def __init__(self):
        super().__init__()
        self.open, self.cells, self.text = [], [], ""

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if self.open[-1] == "td":
            self.cells.append(data)


def parsed(page: str) -> Tags:
    tags = Tags()
    tags.feed(page)
    tags.close()
    assert tags.open == []
    return tags


def test_html_shows_every_value_of_a_small_matrix_and_what_it_is():
    page = parsed(show_html([[1.5, -2.0], [0.25, 4.0]], requires_grad=True))
    assert page.cells == ["1.5000", "-2.0000", "0.2500", "4.0000"]
    for fact in ("2 × 2", "float32", "cpu", "leaf, requires grad"):
        assert fact in page.text


@pytest.mark.parametrize("shape", [(), (0,), (1,), (0, 3), (40,), (30, 40), (2000,), (100, 100), (2, 3, 4)])
@pytest.mark.parametrize("options", [{}, {"edgeitems": 0}, {"edgeitems": 1}, {"profile": "full"}])
def test_html_is_well_formed_and_short_for_any_shape(shape, options):
    printing.set_printoptions(**options)
    values = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    page = parsed(show_html(values))
    if options.get("profile") != "full":
        assert len(page.cells) <= 17 * 13
    elif 0 < len(shape) <= 2:
        assert len(page.cells) == values.size


def test_html_of_a_summary_elides_the_middle_and_keeps_the_corners():
    values = np.arange(10_000).reshape(100, 100)
    page = parsed(show_html(corner(values), "int64", shape=(100, 100), summarized=True))
    assert page.cells[0] == "0"
    assert page.cells[3] == "…"
    assert page.cells[6] == "99"
    assert page.cells[-1] == "9999"
    assert "9997" in page.cells
    assert len(page.cells) == 49


def test_html_escapes_its_text():
    page = show_html([1.0], requires_grad=True, grad_fn="<script>&")
    assert "<script>" not in page
    assert "&lt;script&gt;&amp;" in page


# From here on PyTorch is the judge.

DTYPES = (
    *("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "uint64", "bool"),
    *("complex64", "complex128"),
)
SHAPES = ((), (1,), (7,), (60,), (0,), (2, 0, 3), (3, 4), (2, 40), (13, 1), (2, 3, 4), (2, 1, 2, 3))
LARGE = ((1001,), (3, 500), (40, 40), (7, 5, 50), (8, 2, 9, 11))
KINDS = ("normal", "whole", "wide", "mostly zero", "large", "small", "not finite")
OPTIONS = (
    {"precision": 2},
    {"precision": 0},
    {"profile": "short"},
    {"profile": "full"},
    {"sci_mode": True},
    {"sci_mode": False},
    {"linewidth": 24},
    {"linewidth": 200},
    {"threshold": 5, "edgeitems": 1},
    {"threshold": 5, "edgeitems": 0},
    {"edgeitems": 0},
)


def sample(kind: str, dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Draw values of a kind that needs a notation; they are rounded to the dtype if NumPy has it."""
    rng = np.random.default_rng([seed, KINDS.index(kind), len(shape)])
    values = rng.standard_normal(shape)
    if dtype.startswith("complex"):
        values = values + 1j * rng.standard_normal(shape)
    values = {
        "normal": values,
        "whole": np.round(values * 30),
        "wide": values * 10 ** rng.normal(0, 3, shape),
        "mostly zero": values * (rng.random(shape) > 0.7),
        "large": values * 1e9,
        "small": values * 1e-5,
        "not finite": np.where(rng.random(shape) > 0.5, values, rng.choice([np.nan, np.inf, -np.inf, -0.0], shape)),
    }[kind]
    if dtype.startswith(("float", "complex")):
        return values.astype(dtype)
    if dtype == "bfloat16":
        return values.astype(np.float32)
    limit = {"uint8": 255, "int32": 2**30}.get(dtype, 2**40)
    values = np.clip(np.nan_to_num(values * 20), 0 if dtype.startswith("uint") else -limit, limit)
    return np.asarray(values).astype(dtype)


def both(values, dtype, *, requires_grad=False, op=False, parameter=False, default_dtype="float32"):
    """Prints the same tensor by PyTorch and by gradwire, whose caller cuts a summary itself."""
    torch = pytest.importorskip("torch", reason="comparing with PyTorch needs PyTorch")
    tensor = torch.tensor(values).to(getattr(torch, dtype))
    if dtype == "bfloat16":
        values = tensor.float().numpy()
    if parameter:
        tensor = torch.nn.Parameter(tensor, requires_grad=requires_grad)
    elif requires_grad:
        tensor.requires_grad_()
    grad_fn = None
    if op:
        tensor = tensor * 1
        grad_fn = type(tensor.grad_fn).__name__
    torch.set_default_dtype(getattr(torch, default_dtype))
    try:
        theirs = repr(tensor)
    finally:
        torch.set_default_dtype(torch.float32)

    summarized = printing.needs_summary(values.size)
    ours = show(
        corner(values) if summarized else values,
        dtype,
        shape=values.shape,
        requires_grad=requires_grad,
        grad_fn=grad_fn,
        is_parameter=parameter,
        default_dtype=default_dtype,
        summarized=summarized,
    )
    return ours, theirs


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_prints_as_pytorch(dtype, kind):
    for shape in SHAPES + LARGE:
        with np.errstate(over="ignore"):
            values = sample(kind, dtype, shape)
        ours, theirs = both(values, dtype)
        assert ours == theirs


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("shape", [(), (0,), (0, 2), (4,), (8,), (9,), (3, 5), (3, 6), (3, 7), (2, 3, 4), (40, 40)])
def test_prints_history_as_pytorch(dtype, shape):
    values = sample("normal", dtype, shape)
    for facts in (
        {"requires_grad": True},
        {"requires_grad": True, "op": True},
        {"requires_grad": True, "parameter": True},
        {"parameter": True},
    ):
        ours, theirs = both(values, dtype, **facts)
        assert ours == theirs


@pytest.mark.parametrize("default_dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_prints_dtypes_as_pytorch_under_another_default(dtype, default_dtype):
    for shape in ((2,), (0,)):
        ours, theirs = both(sample("whole", dtype, shape), dtype, default_dtype=default_dtype)
        assert ours == theirs


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "complex64", "bool"])
def test_prints_as_pytorch_under_printoptions(dtype, options):
    torch = pytest.importorskip("torch", reason="comparing with PyTorch needs PyTorch")
    torch.set_printoptions(**options)
    printing.set_printoptions(**options)
    try:
        for shape in (*SHAPES, (40, 40), (7, 5, 3)):
            for kind in ("normal", "whole", "wide", "not finite"):
                ours, theirs = both(sample(kind, dtype, shape), dtype, requires_grad=dtype == "float32")
                assert ours == theirs
    finally:
        torch.set_printoptions(profile="default")


@pytest.mark.parametrize(
    "values",
    [
        [1e8],
        [1.1e8],
        [99999999.5],
        [1.0, 1000.0],
        [1.0, 1001.0],
        [1.5, 1500.0],
        [1.5, 1501.0],
        [1e-4],
        [1.1e-4],
        [9e-5],
    ],
)
def test_chooses_scientific_notation_where_pytorch_does(values):
    for dtype in ("float32", "float64"):
        ours, theirs = both(np.array(values, dtype), dtype)
        assert ours == theirs


def test_set_printoptions_keeps_and_drops_what_pytorch_does():
    torch = pytest.importorskip("torch", reason="comparing with PyTorch needs PyTorch")
    values = np.array([[1.23456789, 123.0]] * 4, np.float32)
    try:
        for options in (
            {"precision": 2, "sci_mode": True},
            {"threshold": 3},
            {"profile": "short", "linewidth": 30},
            {"profile": "unknown", "edgeitems": 1},
            {"profile": "full"},
            {},
        ):
            torch.set_printoptions(**options)
            printing.set_printoptions(**options)
            ours, theirs = both(values, "float32")
            assert ours == theirs
    finally:
        torch.set_printoptions(profile="default")
