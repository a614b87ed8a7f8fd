"""The words that random programs are written in: names of ops, and lines with places for tensors and numbers."""

from __future__ import annotations

from typing import Any

#: Kinds of steps and how often each is drawn: while there are few tensors, and later.
FIRST = {"create": 10, "unary": 1, "binary": 1, "view": 1}
KINDS = {
    "create": 5, "unary": 8, "binary": 12, "reduce": 5, "join": 3, "product": 2, "call": 14, "view": 12, "change": 12,
    "assign": 7, "index": 6, "flag": 5, "hook": 3, "back": 8, "derive": 4, "grads": 3, "out": 2, "convert": 4,
    "glance": 2, "drop": 1, "optimize": 5, "turn": 5, "custom": 3, "unique": 1, "overlap": 2,
}  # fmt: skip


def homes(t: Any) -> tuple[tuple[str, Any], ...]:
    """Where functions are looked for, by the name that they have in a line."""
    return ("t", t), ("t.nn.functional", t.nn.functional), ("t.Tensor", t.Tensor)


CREATED = (
    "t.zeros({shape}, dtype=t.{dtype}{flag})",
    "t.ones({shape}, dtype=t.{dtype}{flag})",
    "t.full({shape}, 2, dtype=t.{dtype}{flag})",
    "t.zeros_like({x})",
    "t.ones_like({x}, dtype=t.{dtype})",
    "t.full_like({x}, 1.5)",
    "t.arange(6)",
    "t.arange(4, dtype=t.{dtype}{flag})",
    "t.linspace(-1, 1, 3, dtype=t.float64{flag})",
    "t.eye(3)",
    "t.eye(2, 3, dtype=t.float64)",
    "{x}.new_zeros({shape})",
    "{x}.new_ones(3)",
    "{x}.new_tensor([1, 2, 3])",
    "{x}.clone()",
    "{x}.detach().clone().requires_grad_()",
    "t.nn.Parameter({x}.detach().clone())",
    "t.nn.Parameter(t.ones(3, dtype=t.float64))",
    "t.empty(3).fill_(0.5)",
    "t.scalar_tensor(1.5)",
    "t.tensor(2)",
    "t.as_tensor([1.0, 2.0, 3.0])",
)

UNARY = [
    "abs",
    "neg",
    "square",
    "exp",
    "sin",
    "cos",
    "tanh",
    "sigmoid",
    "relu",
    "sqrt",
    "log",
    "reciprocal",
    "floor",
    "round",
    "trunc",
    "frac",
    "sign",
    "clone",
    "logical_not",
    "isnan",
    "sinh",
    "cosh",
    "atan",
    "expm1",
    "log1p",
    "erf",
    "rsqrt",
    "sgn",
    "angle",
    "positive",
    "ceil",
    "asinh",
    "isfinite",
    "exp2",
    "tan",
    "softplus_",
    "silu_",
    "nan_to_num",
    "deg2rad",
    "contiguous",
    "real",
    "conj_physical",
    "log2",
    "erfc",
]
UNARY = [name for name in UNARY if not name.endswith("_")]
OPERATORS = ("+", "-", "*", "/", "*", "+", "**", "//", "%", "==", "<", ">=", "!=", "&", "|", "^")
BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "pow",
    "maximum",
    "minimum",
    "atan2",
    "fmod",
    "remainder",
    "floor_divide",
    "true_divide",
    "eq",
    "lt",
    "logical_and",
    "logical_or",
    "hypot",
    "fmax",
    "fmin",
    "xlogy",
    "copysign",
    "float_power",
    "rsub",
    "logaddexp",
]
REDUCED = [
    "sum",
    "mean",
    "prod",
    "var",
    "std",
    "amax",
    "amin",
    "max",
    "min",
    "argmax",
    "argmin",
    "all",
    "any",
    "cumsum",
    "cumprod",
    "softmax",
    "log_softmax",
    "logsumexp",
    "median",
    "nansum",
    "norm",
    "count_nonzero",
    "sort",
    "cummax",
]
ALONG = ("cumsum", "cumprod", "softmax", "log_softmax", "sort", "cummax", "count_nonzero")

JOINED = (
    "t.cat([{x}, {y}])",
    "t.cat(({x}, {y}), {d})",
    "t.stack([{x}, {y}, {x}])",
    "t.where({m}, {x}, {z})",
    "t.where({m}, {z}, {x})",
    "{x}.clamp(-0.5, 1)",
    "{x}.clamp(min=0)",
    "{x}.masked_fill({m}, 0.5)",
    "t.lerp({x}, {y}, 0.25)",
    "t.addcmul({x}, {x}, {y}, value=0.5)",
    "t.einsum('...i,...i->...', {x}, {y})",
    "{x}.masked_select({m})",
    "t.outer({x}.reshape(-1), {y}.reshape(-1))",
    "t.nn.functional.mse_loss({x}, {y})",
    "t.nn.functional.softmax({x}, -1)",
    "t.nn.functional.linear({x}, {y})",
    "t.dot({x}.flatten(), {y}.flatten())",
    "{x}.repeat(2, 1)",
    "{x}.flip(0)",
    "{x}.roll(1)",
    "{x}.tril()",
    "t.nn.functional.pad({x}, (1, 1))",
)

VIEWS = (
    "{x}[{i}]",
    "{x}[1:]",
    "{x}[:, 1:]",
    "{x}[..., ::2]",
    "{x}[None]",
    "{x}.t()",
    "{x}.T",
    "{x}.mT",
    "{x}.transpose({d}, {e})",
    "{x}.permute({dims})",
    "{x}.expand({wide})",
    "{x}.expand_as(t.ones({wide}))",
    "{x}.unfold({d}, {half}, {s})",
    "{x}.as_strided((2, 2), (1, 1))",
    "{x}.as_strided((2,), (2,), 1)",
    "{x}.as_strided({sizes}, {x}.stride())",
    "{x}.diagonal()",
    "{x}.diagonal(1)",
    "{x}.unbind({d})",
    "{x}.split(1)",
    "{x}.split([1, {half}])",
    "{x}.chunk(2)",
    "{x}.chunk(2, {d})",
    "{x}.tensor_split(2)",
    "{x}.narrow({d}, 0, {half})",
    "{x}.squeeze()",
    "{x}.squeeze({d})",
    "{x}.unsqueeze({d})",
    "{x}.view(-1)",
    "{x}.view({turned})",
    "{x}.view({sizes})",
    "{x}.reshape(-1)",
    "{x}.reshape({turned})",
    "{x}.reshape({sizes})",
    "{x}.flatten()",
    "{x}.ravel()",
    "{x}.select({d}, {i})",
    "{x}.movedim(0, -1)",
    "{x}.swapaxes({d}, {e})",
    "{x}.detach()",
    "{x}.detach()",
    "{x}.data",
    "{x}.real",
    "{x}.imag",
    "{x}.view_as({x})",
    "{x}.contiguous()",
    "t.view_as_real({x})",
    "t.atleast_2d({x})",
    "t.broadcast_to({x}, {wide})",
    "{x}.unflatten({d}, (1, -1))",
    "list({x})",
    "{x}.real.H",
    "{x}.conj().resolve_conj()",
    "{x}.real.adjoint()",
    "{x}.view_as({x}).view_as({x})",
    "{x}.hsplit(1)",
    "{x}.to({x}.dtype)",
    "t.broadcast_tensors({x}, t.ones({wide}))",
    "({x}.conj() * {x})",
    "{x}.conj().clone()",
    "{x}.mH + 0",
    "{x}.conj().sum()",
    "({x}.conj() + {x}).real",
    "{x}.mH.contiguous() * 2",
    "t.vdot({x}.flatten(), {x}.flatten())",
)

#: Changes of sizes and strides in place.
TURNS = (
    "{x}.t_()", "{x}.squeeze_()", "{x}.squeeze_({d})", "{x}.unsqueeze_({d})", "{x}.transpose_({d}, {e})",
    "{x}.swapaxes_({d}, {e})", "{x}.swapdims_({d}, {e})", "{x}.as_strided_({turned}, {strides})",
)  # fmt: skip

UNIQUES = (
    "{x}.unique()", "t.unique({x}, return_counts=True)", "t.unique({x}, return_inverse=True)",
    "t.unique_consecutive({x})", "t.unique({x}, dim=0)", "{x}.unique(return_inverse=True, return_counts=True)",
)  # fmt: skip

#: What may be done to elements that share memory: what stays is the same in any order, or it is refused.
OVERLAPS = (
    "{x}.fill_({c})", "{x}.zero_()", "{x}[...] = {c}", "{x}.add_(1)", "{x}.copy_({x}.clone())", "{x}[0] = {c}",
    "{x}.mul_(2)", "{x}[:] = {c}", "{x}.fill_(t.tensor(1.0))", "{x}.neg_()", "{x}.masked_fill_({x} > 0, {c})",
)  # fmt: skip
#: The same for tensors whose elements share memory with neighbours'.
PARTLY = ("{x}.fill_({c})", "{x}.zero_()", "{x}[...] = {c}", "{x}[0] = {c}", "{x}[:] = {c}")

#: Custom functions and checkpoints. `Cube`, `Same`, `Pair`, `Shown` are those of `customs`.
CUSTOMS = (
    "Cube.apply({x})", "Cube.apply({x})", "Same.apply({x})", "Pair.apply({x}, {y})", "Shown.apply({x})",
    "t.utils.checkpoint.checkpoint(lambda a: a.sin() * a, {x}, use_reentrant=False)",
    "t.utils.checkpoint.checkpoint(lambda a, b: (a * b).exp(), {x}, {y}, use_reentrant=False)",
)  # fmt: skip


def customs(t: Any) -> dict[str, Any]:
    """The same custom functions for either library, by name."""

    class Cube(t.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 3 * x * x * g

    class Same(t.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    class Pair(t.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(x, y)
            return x * y, x + y

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            x, y = ctx.saved_tensors
            return g * y + h, g * x + h

    class Shown(t.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.view(-1)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return None

    return {each.__name__: each for each in (Cube, Same, Pair, Shown)}


CHANGES = (
    "q += {y}", "q -= {y}", "q *= {y}", "q /= {y}", "q **= 2", "q //= {y}", "q %= {y}", "q |= {y}",
    "{x}.add_({y})", "{x}.mul_({y})", "{x}.sub_({y}, alpha=2)", "{x}.div_({y})", "{x}.pow_(2)",
    "{x}.copy_({same})", "{x}.copy_({same})", "{x}.zero_()", "{x}.fill_({c})", "{x}.sin_()", "{x}.exp_()",
    "{x}.clamp_(-1, 1)", "{x}.clamp_(min=0)", "{x}.neg_()", "{x}.abs_()", "{x}.sigmoid_()", "{x}.tanh_()",
    "{x}.relu_()", "{x}.masked_fill_({m}, {c})", "{x}.sqrt_()", "{x}.square_()", "{x}.floor_()", "{x}.round_()",
    "{x}.addcmul_({x}, {same}, value=0.5)", "{x}.lerp_({same}, 0.5)", "{x}.cumsum_({d})",
    "{x}.index_fill_(0, t.tensor([0]), {c})", "{x}.logical_not_()", "{x}.eq_({y})",
    "{x}.index_add_(0, t.tensor([0]), {x}[:1].clone())",
    "{x}.scatter_(0, t.zeros_like({x}, dtype=t.int64), {c})", "{x}.data.mul_(2)", "{x}.data = {same}",
    "{x}.detach().add_(1)", "{x}[0].mul_(2)", "{x}.view(-1)[:1].add_({c})", "{x}.t().mul_({c})",
    "{x}.diagonal().fill_({c})",
    "{x}.masked_scatter_({m}, {x}.clone())", "{x}.reciprocal_()", "{x}.triu_()", "{x}.fill_diagonal_({c})",
    "{x}.index_put_((t.tensor([0]),), {same})", "{x}.fill_({same})",
    "{x}.remainder_({y})", "{x}.fmod_({y})", "{x}.floor_divide_({y})", "{x}.erf_()", "{x}.log_()", "{x}.ceil_()",
    "{x}.requires_grad_().mul_(2)", "{x}.addcdiv_({same}, {x})", "{x}.atan2_({same})", "{x}.clamp_({c}, {c})",
    "t.relu_({x})", "t.nn.functional.relu({x}, inplace=True)", "t.nn.functional.leaky_relu_({x})",
    "t.nn.functional.elu({x}, inplace=True)", "t.nn.functional.silu({x}, inplace=True)",
)  # fmt: skip

KEYS = (
    "{i}", "{i}", "{j}:", ":{j}", "::2", "...", ":", "None", "..., 0", "0, ...", "[0]", "[0, {j}]", "({i},)", ":, 0",
    ":, -1:", "{x} > 0.5", "{x} != {x}", "t.tensor({j})", "t.tensor([{j}, 0])", "t.tensor([{i}]), None", "0, None",
    "None, {i}", "True", "False", "[True]", "t.tensor(True)", "..., None", "{j}:{j}", "t.tensor([[0, {j}]])",
    "[0], [0]", ":, [0]", "[[0, {j}]]", "[]", "{x}[0] > 0", "1.5", "(slice(None), 0)", "t.arange({x}.shape[0]), 0",
    "None, ..., 0", "9",
)  # fmt: skip

FLAGS = (
    "{x}.requires_grad_()", "{x}.requires_grad_()", "{x}.requires_grad_(False)", "{x}.requires_grad = True",
    "{x}.requires_grad = False", "{x}.detach_()", "{x}.detach_()", "{x}.retain_grad()", "{x}.retain_grad()",
    "{x}.detach().requires_grad_()", "{x}.view({x}.shape).requires_grad_()",
)  # fmt: skip

HOOKS = (
    "{x}.register_hook(lambda g: g * 2)",
    "{x}.register_hook(lambda g: seen.append(g.sum().item()))",
    "{x}.register_hook(lambda g: g.clone().zero_())",
    "{x}.register_hook(lambda g: g.to(t.float32))",
    "{x}.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.sum().item()))",
    "{x}.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(3))",
    "{x}.register_post_accumulate_grad_hook(lambda p: setattr(p, 'grad', None))",
    "h = {x}.register_hook(lambda g: g + 1); h.remove()",
    "{x}.retain_grad(); {x}.register_hook(lambda g: g * -1)",
    "{x}.grad_fn.register_hook(lambda gi, go: seen.append(len(go)))",
    "{x}.grad_fn.register_prehook(lambda go: tuple(g * 2 for g in go))",
    "seen.append(t.autograd.graph.get_gradient_edge({x}).output_nr)",
    "{x}.register_hook(lambda g: g.reshape(-1))",
)

BACKWARDS = (
    "{x}.sum().backward()", "{x}.sum().backward()", "({x} * {x}).sum().backward(retain_graph=True)", "{x}.backward()",
    "{x}.backward(t.ones_like({x}))", "{x}.backward(t.ones_like({x}), retain_graph=True)",
    "({x}.sum() + {y}.sum()).backward()", "{x}.sum().backward(inputs=[{leaf}])", "{x}.sum().backward(inputs=[{y}])",
    "t.autograd.backward([{x}.sum(), {y}.sum()])",
    "t.autograd.backward([{x}, {y}], [t.ones_like({x}), 2 * t.ones_like({y})])",
    "t.autograd.backward([{x}, {x}], [t.ones_like({x}), t.ones_like({x})])",
    "({x} ** 2).mean().backward(create_graph=True)", "{x}.abs().sum().backward()", "{x}.norm().backward()",
    "{x}.mean().backward(t.tensor(2.0))", "{x}.backward({x}.detach().clone())",
)  # fmt: skip

DERIVED = (
    "t.autograd.grad({x}.sum(), {leaf})",
    "t.autograd.grad({x}.sum(), {y}, allow_unused=True)",
    "t.autograd.grad({x}.sum(), [{leaf}, {y}], allow_unused=True)",
    "t.autograd.grad(({x} * {x}).sum(), {leaf}, create_graph=True)",
    "t.autograd.grad({x}, {leaf}, t.ones_like({x}), retain_graph=True)",
    "t.autograd.grad({x}, {leaf}, {x}, create_graph=True, allow_unused=True)",
    "t.autograd.grad({x}.sum(), {y}, materialize_grads=True)",
    "t.autograd.grad([{x}.sum(), {y}.sum()], [{leaf}], retain_graph=True)",
    "t.autograd.grad(({x} ** 3).sum(), {y}, create_graph=True)",
    "t.autograd.grad([{x}, {y}], [{leaf}], [t.ones_like({x}), {y}.detach()], create_graph=True, allow_unused=True)",
    "t.autograd.grad({x}, {x}, {x}, create_graph=True)",
    "t.autograd.grad({x}.exp().sum(), {x}, create_graph=True)[0].sin()",
    "t.autograd.grad(t.autograd.grad(({x} ** 3).sum(), {x}, create_graph=True)[0].sum(), {x})",
    "t.autograd.grad({x}.T, {leaf}, {x}.T, create_graph=True)",
    "t.autograd.grad({x}.reshape(-1), {x}, t.ones_like({x}).reshape(-1), create_graph=True)",
)

GRADS = (
    "{x}.grad = None", "{x}.grad = None", "{x}.grad = t.ones_like({x})", "{x}.grad.zero_()", "{x}.grad.mul_(2)",
    "{x}.grad = {x}.detach() * 2", "r{n} = {x}.grad", "r{n} = {x}.grad * 2", "{x}.grad = {x}",
    "{x}.grad = t.zeros(3)", "r{n} = {x}.grad.view(-1)", "{x}.grad.requires_grad_()", "{x}.data -= 0.1 * {x}.grad",
    "with t.no_grad(): {x} -= 0.1 * {x}.grad", "{x}.grad.detach_()", "{x}.grad += 1", "del {x}.grad",
)  # fmt: skip

OUTS = (
    "r{n} = t.add({x}, {y}, out={out})",
    "t.mul({x}, {y}, out={out}.detach())",
    "t.sin({x}, out={out})",
    "with t.no_grad(): t.exp({x}, out={out})",
    "r{n} = t.sum({x}, 0, out={out})",
    "t.cat([{x}, {x}], out={out})",
    "with t.no_grad(): t.sub({x}, {y}, out={out})",
    "t.matmul({x}.detach(), {x}.detach().t(), out={out})",
    "with t.no_grad(): t.clamp({x}, 0, 1, out={out})",
)

CONVERSIONS = (
    "{x}.double()", "{x}.float()", "{x}.to(t.{dtype})", "{x}.to(t.{dtype})", "{x}.int()", "{x}.long()", "{x}.bool()",
    "{x}.half()", "{x}.type_as({y})", "{x}.to({y})", "{x}.to({x}.dtype, copy=True)", "{x}.type(t.{dtype})", "{x}.cpu()",
    "{x}.to('cpu')", "t.complex({x}, {x})", "{x}.type()", "{x}.bfloat16()", "{x}.cfloat()",
)  # fmt: skip

GLANCES = (
    "{x}.item()", "float({x})", "int({x})", "bool({x})", "len({x})", "{x}.tolist()", "repr({x})", "t.equal({x}, {y})",
    "t.allclose({x}, {y})", "{x}.numpy().sum()", "copy.deepcopy({x})", "copy.copy({x})", "0 in {x}", "{x}.nelement()",
    "t.is_tensor({x})", "t.result_type({x}, {y})", "{x}.is_same_size({y})", "t.is_nonzero({x})", "{x}.size(0)",
    "{x}.stride(0)", "hash({x}) == hash({y})", "{x} is {y}", "list(reversed({x}))",
    "[each for each in {x}]", "{x}.numel()", "format({x}.sum(), '.3f')", "{x}.element_size()", "{x}.nonzero()",
    "t.promote_types({x}.dtype, {y}.dtype)",
)  # fmt: skip

OPTIMIZERS = (
    "SGD([{p}], lr=0.1)", "SGD([{p}], lr=0.1, momentum=0.9)", "SGD([{p}], lr=0.1, weight_decay=0.01)",
    "Adam([{p}], lr=0.1)", "Adam([{p}], lr=0.1, amsgrad=True)", "AdamW([{p}])",
    "SGD([{p}], lr=0.1, momentum=0.9, nesterov=True)", "RMSprop([{p}], lr=0.1)", "Adagrad([{p}], lr=0.1)",
    "NAdam([{p}], lr=0.1)", "Adamax([{p}], lr=0.1)", "SGD([{p}], lr=0.1, maximize=True)", "Adadelta([{p}])",
    "RMSprop([{p}], lr=0.1, momentum=0.9, centered=True)", "AdamW([{p}], lr=0.1, amsgrad=True)",
)  # fmt: skip
