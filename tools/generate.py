"""Write what follows from the code: from the ops' registry the client's functions and docs/ops.md, from the settings
their table in docs/operations.md.

With --check nothing is written and stale files are named. Registry and settings are the one source of names,
parameters, defaults and descriptions; what is written here is only how Python and Markdown say them.
"""

import argparse
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gradwire_engine import REGISTRY, Composite, Op
from gradwire_engine.core.dtypes import NAMES
from gradwire_engine.core.schema import REQUIRED, Kind, Param
from gradwire_engine.ops.dtype_rules import dtype_rules
from gradwire_engine.ops.shape_rules import shape_rules
from gradwire_engine.ops.torch_names import (
    ALIASES,
    FUNCTION_ALIASES,
    function_names,
    group_of,
    has_in_place_method,
    is_method,
    takes_tensors_one_by_one,
    takes_varargs,
)
from gradwire_server.app.configuration import default_text as setting_default
from gradwire_server.app.configuration import flag
from gradwire_server.app.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
AnyOp = Op | Composite

ANNOTATIONS = {
    Kind.TENSOR: "Tensor",
    Kind.TENSOR_OR_NUMBER: "Tensor | Number",
    Kind.TENSORS: "Sequence[Tensor]",
    Kind.NUMBER: "Number",
    Kind.FLOAT: "float",
    Kind.INTEGER: "int",
    Kind.BOOLEAN: "bool",
    Kind.STRING: "str",
    Kind.DTYPE: "dtype",
    Kind.DEVICE: "device | str",
    Kind.INTEGERS: "int | Sequence[int]",
    Kind.FLOATS: "Sequence[float]",
    Kind.INDEX: "Index",
    Kind.NUMBER_OR_STRING: "Number | str",
    Kind.INTEGERS_OR_STRING: "int | Sequence[int] | str",
}
# Results that are Python bools in PyTorch, where the op's answer is a tensor of one bool.
BOOL_RESULTS = {"equal", "allclose"}
# Functions that take `out=`.
WITH_OUT = {
    "abs", "acos", "acosh", "add", "addbmm", "addcdiv", "addcmul", "addmm", "addmv", "addr", "all", "amax", "amin",
    "aminmax", "angle", "any", "argmax", "argmin", "asin", "asinh", "atan", "atan2", "atanh", "avg_pool2d",
    "avg_pool3d", "baddbmm", "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift",
    "bitwise_xor", "bmm", "bucketize", "cat", "ceil", "cholesky_inverse", "cholesky_solve", "clamp", "clamp_max",
    "clamp_min", "column_stack", "complex", "copysign", "cos", "cosh", "cross", "cummax", "cummin", "cumprod", "cumsum",
    "deg2rad", "diag", "diff", "digamma", "div", "dot", "dstack", "eq", "erf", "erfc", "erfinv", "exp", "exp2", "expm1",
    "fft.fft", "fft.fft2", "fft.fftn", "fft.hfft", "fft.ifft", "fft.ifft2", "fft.ifftn", "fft.ihfft", "fft.irfft",
    "fft.irfft2", "fft.irfftn", "fft.rfft", "fft.rfft2", "fft.rfftn", "float_power", "floor", "floor_divide", "fmax",
    "fmin", "fmod", "frac", "frexp", "gather", "gcd", "ge", "gelu", "geqrf", "gt", "hardshrink", "heaviside", "histc",
    "hstack", "hypot", "i0", "igamma", "igammac", "index_add", "index_copy", "index_reduce", "index_select", "inner",
    "inverse", "isin", "isneginf", "isposinf", "kron", "kthvalue", "lcm", "ldexp", "le", "lerp", "lgamma",
    "linalg.cholesky", "linalg.cond", "linalg.cross", "linalg.det", "linalg.eig", "linalg.eigh", "linalg.eigvals",
    "linalg.eigvalsh", "linalg.householder_product", "linalg.inv", "linalg.ldl_factor", "linalg.ldl_factor_ex",
    "linalg.ldl_solve", "linalg.lstsq", "linalg.lu", "linalg.lu_factor", "linalg.lu_factor_ex", "linalg.lu_solve",
    "linalg.matrix_norm", "linalg.matrix_power", "linalg.matrix_rank", "linalg.multi_dot", "linalg.norm", "linalg.pinv",
    "linalg.qr", "linalg.slogdet", "linalg.solve", "linalg.solve_triangular", "linalg.svd", "linalg.svdvals",
    "linalg.tensorinv", "linalg.tensorsolve", "linalg.vecdot", "linalg.vector_norm", "linear", "log", "log10", "log1p",
    "log2", "log_softmax", "logaddexp", "logaddexp2", "logcumsumexp", "logical_and", "logical_not", "logical_or",
    "logical_xor", "logit", "logsigmoid", "logsumexp", "lt", "masked_select", "matmul", "max", "maximum", "mean",
    "median", "min", "minimum", "mm", "mode", "msort", "mul", "mv", "mvlgamma", "nan_to_num", "nanmean", "nanmedian",
    "nanquantile", "nansum", "ne", "neg", "nextafter", "norm", "normalize", "outer", "polar", "polygamma", "pow",
    "prod", "quantile", "rad2deg", "reciprocal", "remainder", "renorm", "round", "rsqrt", "scatter", "scatter_add",
    "scatter_reduce", "searchsorted", "sgn", "sigmoid", "sign", "signbit", "sin", "sinc", "sinh", "slice_scatter",
    "softmax", "softplus", "softshrink", "sort", "special.airy_ai", "special.bessel_j0", "special.bessel_j1",
    "special.bessel_y0", "special.bessel_y1", "special.chebyshev_polynomial_t", "special.chebyshev_polynomial_u",
    "special.chebyshev_polynomial_v", "special.chebyshev_polynomial_w", "special.entr", "special.erfcx",
    "special.hermite_polynomial_h", "special.hermite_polynomial_he", "special.i0e", "special.i1", "special.i1e",
    "special.laguerre_polynomial_l", "special.legendre_polynomial_p", "special.log_ndtr", "special.modified_bessel_i0",
    "special.modified_bessel_i1", "special.modified_bessel_k0", "special.modified_bessel_k1", "special.ndtr",
    "special.ndtri", "special.scaled_modified_bessel_k0", "special.scaled_modified_bessel_k1",
    "special.shifted_chebyshev_polynomial_t", "special.shifted_chebyshev_polynomial_u",
    "special.shifted_chebyshev_polynomial_v", "special.shifted_chebyshev_polynomial_w", "special.spherical_bessel_j0",
    "special.xlog1py", "special.zeta", "sqrt", "square", "stack", "std", "sub", "sum", "take", "take_along_dim", "tan",
    "tanh", "topk", "tril", "triu", "trunc", "var", "vdot", "vstack", "xlogy",
}  # fmt: skip
# Ops whose numbers decide how many elements there are.
SHAPED_BY_NUMBERS = {"arange", "max", "min", "repeat_interleave"}
# PyTorch's old forms with the factor before the tensors: x.add_(2, y), torch.addmm(beta, input, alpha, a, b).
FACTOR_FIRST = {"add", "addbmm", "addcdiv", "addcmul", "addmm", "addmv", "addr", "baddbmm", "sub"}
# The first of these ops' arguments behind the tensor may be `unbiased`: x.std(False).
UNBIASED_FIRST = {"std", "std_mean", "var", "var_mean"}
# Ops whose results PyTorch returns without names.
PLAIN_TUPLES = {"std_mean", "var_mean"}
# Second names of parameters.
SECOND_NAMES = {"split": {"split_size_or_sections": "split_size"}}
TABLE_BEGINS = "<!-- The settings, by `make generate` from settings.py -->"
TABLE_ENDS = "<!-- end of the settings -->"
HEADER = (
    '"""The ops as functions and methods. Generated by tools/generate.py from the engine\'s registry; do not edit."""'
)


def default_text(value: Any) -> str:
    """A default as Python source."""
    return f"_dtypes.{NAMES[value]}" if isinstance(value, np.dtype) else repr(value)


def result_of(op: AnyOp) -> tuple[str, str]:
    """The annotation of what it returns, and the `result` argument of `_call`."""
    if op.name in BOOL_RESULTS:
        return "bool", '"bool"'
    if op.outputs == ("...",) or op.name in PLAIN_TUPLES:
        return "tuple[Tensor, ...]", '"tuple"'
    if op.outputs:
        return "Any", repr(op.outputs)
    return "Tensor", ""


def numpy_names(op: AnyOp) -> dict[str, str]:
    """PyTorch's names of parameters to NumPy's, which PyTorch takes too: x.sum(axis=0, keepdims=True).

    None where a parameter without default stands behind `dim`, which then can have none either.
    """
    seconds = dict(SECOND_NAMES.get(op.name, {}))
    names = [param.name for param in op.params]
    if "dim" not in names or "axis" in names:
        return seconds
    behind = op.params[names.index("dim") + 1 :]
    if any(param.default is REQUIRED for param in behind):
        return seconds
    return seconds | {name: numpy for name, numpy in (("dim", "axis"), ("keepdim", "keepdims")) if name in names}


def kind_text(param: Param) -> str:
    """A parameter's annotation."""
    return ANNOTATIONS[param.kind] + (" | None" if param.optional else "")


def parameter_text(param: Param, may_be_left_out: bool = False) -> str:
    """One parameter as Python source."""
    kind = kind_text(param)
    default = "" if param.default is REQUIRED else f" = {default_text(param.default)}"
    if may_be_left_out and not default:
        kind += "" if param.optional else " | None"  # the server refuses it, unless it comes under its other name
        default = " = None"
    return f"{param.name}: {kind}{default}"


def signature(op: AnyOp, method: bool, numpy: bool = True) -> str:
    """The parameter list as Python source, with or without NumPy's names of what has two."""
    seconds = numpy_names(op) if numpy else {}
    params = list(op.params)
    parts = ["self"] if method else []
    params = params[1:] if method else params
    if takes_varargs(op, method):
        parts.append(f"*{params[0].name}: int | Sequence[int]")
        return ", ".join(parts + [parameter_text(param) for param in params[1:]])
    star = False
    for param in params:
        if takes_tensors_one_by_one(op, param):
            parts.append(f"*{param.name}: Tensor | Sequence[Tensor]")
            star = True
            continue
        if param.keyword_only and not star:
            parts.append("*_old: Any" if op.name in FACTOR_FIRST else "*")
            star = True
        parts.append(parameter_text(param, param.name in seconds))
    if seconds and not star:
        parts.append("*")
    if op.name == "scatter":
        parts.append("reduce: str | None = None")
    return ", ".join(parts + [f"{name}: Any = None" for name in seconds.values()])


def args_text(op: AnyOp, method: bool) -> str:
    """The tuple of positional arguments in the call that the function makes, as Python source."""
    names = [
        f"_tensors({param.name})" if takes_tensors_one_by_one(op, param) else param.name
        for param in op.params
        if not param.keyword_only
    ]
    if takes_varargs(op, method):
        place = 1 if method else 0
        names[place] = f"_sizes({names[place]})"
    if method:
        names[0] = "self"
    return f"({', '.join(names)}{',' if len(names) == 1 else ''})"


def call_text(op: AnyOp, name: str, method: bool, result: str) -> str:
    """The call that the function makes, as Python source."""
    named = [f'("{param.name}", {param.name})' for param in op.params if param.keyword_only]
    kwargs = f"({', '.join(named)},)" if named else "()"
    tail = f", {kwargs}" if named or result else ""
    return f'_call("{name}", {args_text(op, method)}{tail}{f", {result}" if result else ""})'


def function_text(op: AnyOp, method: bool, in_place: bool = False) -> str:
    """A function or method as Python source."""
    name = op.name + ("_" if in_place else "")
    annotation, result = ("Tensor", "") if in_place else result_of(op)
    doc = f"In-place form of `{op.name}`." if in_place else op.doc
    if method and not in_place:
        doc = f"See `gradwire.{op.name}`: {doc.splitlines()[0]}" if doc else ""
    body = textwrap.indent(f'"""{doc}"""\n' if "\n" not in doc else f'"""{doc}\n"""\n', "    ")
    if op.name in FACTOR_FIRST:
        given = args_text(op, method)[:-1] + ", *_old)"
        body += f'    if _old:\n        return _factor_first("{name}", {given}{"" if method else ", out"})\n'
    if op.name in UNBIASED_FIRST:
        body += "    if dim is True or dim is False:\n        dim, unbiased = None, dim\n"
    if op.name == "scatter":
        given = f'"{name}", {args_text(op, method)[1:-1]}, value, reduce'
        body += f"    if reduce is not None:\n        return _scatter_reduced({given})\n"
    for own, numpy in numpy_names(op).items():
        default = next(param.default for param in op.params if param.name == own)
        unset = "None" if default is REQUIRED else default_text(default)
        body += f'    if {numpy} is not None:\n        {own} = _renamed("{own}", {own}, {unset}, "{numpy}", {numpy})\n'
    params, call = signature(op, method), call_text(op, name, method, result)
    if not method and op.name in WITH_OUT:
        star = "" if ", *" in params else ", *"
        target = "Any" if op.outputs else "Tensor | None"
        head = f"def {name.replace('.', '_')}({params}{star}, out: {target} = None) -> {annotation}:\n"
        into = f'_into{"_each" if op.outputs else ""}("{name}", out, made, {args_text(op, method)})'
        return head + body + f"    made = {call}\n    return made if out is None else {into}\n"
    head = f"def {name.replace('.', '_')}({params}) -> {annotation}:\n"
    return head + body + f"    return {call}\n"


def defaults_text(ops: list[AnyOp]) -> Iterator[str]:
    """The table of defaults, which need not travel."""
    yield "# What a parameter has when it is left out: arguments equal to it need not travel."
    yield "DEFAULTS: dict[str, dict[str, Any]] = {"
    for op in ops:
        held = [f'"{p.name}": {default_text(p.default)}' for p in op.params if p.default is not REQUIRED]
        if held:
            yield f'    "{op.name}": {{{", ".join(held)}}},'
    yield "}"
    numbers = {
        op.name: [p.name for p in op.params if p.kind in (Kind.NUMBER, Kind.TENSOR_OR_NUMBER)]
        for op in ops
        if op.name not in SHAPED_BY_NUMBERS
    }
    yield "# Parameters whose number's value says nothing about the result's shape or dtype."
    yield "NUMBERS: dict[str, frozenset[str]] = {"
    for name, params in numbers.items():
        if params:
            yield f'    "{name}": frozenset({{{", ".join(repr(param) for param in params)}}}),'
    yield "}"
    yield "_WRITING_OPS.update("
    yield "    {"
    for op in ops:
        if isinstance(op, Composite) and op.updated_places:
            yield f'        "{op.name}": {op.updated_places},'
    yield "    }"
    yield ")"
    yield "_DRAWING_OPS.update("
    yield "    {"
    for op in ops:
        if op.draws:
            yield f'        "{op.name}",'
            if not op.name.endswith("_"):
                yield f'        "{op.name}_",'
    yield "    }"
    yield ")"
    yield "# The rule in shape_rules/ that gives the sizes of an op's results."
    yield "SHAPE_RULES: dict[str, str] = {"
    for name, rule in shape_rules().items():
        yield f'    "{name}": "{rule}",'
    yield "}"
    yield "# The rule in foretelling/ that gives the dtypes of an op's results, its node, and its kind of views."
    yield "DTYPE_RULES: dict[str, tuple[str, str, str]] = {"
    for name, told in dtype_rules().items():
        yield f'    "{name}": ("{told[0]}", "{told[1]}", "{told[2]}"),'
    yield "}"
    yield "# The kinds of the parameters of ops that have such a rule."
    yield "PARAMETER_KINDS: dict[str, dict[str, str]] = {"
    for name in sorted({name if name in REGISTRY else name.removesuffix("_") for name in dtype_rules()}):
        kinds = [f'"{param.name}": "{kind_text(param)}"' for param in REGISTRY[name].params]
        yield f'    "{name}": {{{", ".join(kinds)}}},'
    yield "}"


def client_module() -> str:
    """The text of client/gradwire/_tensor/ops.py."""
    ops: list[AnyOp] = [REGISTRY[name] for name in sorted(REGISTRY)]
    lines = [
        HEADER,
        "",
        "# ruff: noqa",
        '# mypy: disable-error-code="no-any-return"',
        "from __future__ import annotations",
        "",
        "import sys as _sys",
        "from collections.abc import Sequence",
        "from typing import TYPE_CHECKING, Any",
        "",
        "from gradwire._base import dtypes as _dtypes",
        "from gradwire._proxy.memo import DRAWING_OPS as _DRAWING_OPS",
        "from gradwire._proxy.memo import WRITING_OPS as _WRITING_OPS",
        "from gradwire._tensor.call import OPS as _OPS",
        "from gradwire._tensor.call import _call, _renamed, _sizes, _tensors, use_rules",
        "from gradwire._tensor.old_forms import _factor_first, _scatter_reduced",
        "from gradwire._tensor.out import _into, _into_each",
        "",
        "if TYPE_CHECKING:",
        "    from gradwire._base.dtypes import device, dtype",
        "    from gradwire._tensor.indexing import Index",
        "    from gradwire._tensor.tensor import Number, Tensor",
        "",
        "_OPS.append(_sys.modules[__name__])",
        *defaults_text(ops),
        "use_rules(SHAPE_RULES, DTYPE_RULES, PARAMETER_KINDS)",
        f"TORCH_NAMES = frozenset({sorted(function_names())!r})",
        "",
        "",
    ]
    lines += [function_text(op, method=False) + "\n" for op in ops]
    lines += [f"{alias} = {name}" for alias, name in sorted((ALIASES | FUNCTION_ALIASES).items()) if name in REGISTRY]
    lines += ["", ""]
    lines += ["class TensorMethods:", '    """The ops that are methods of Tensor."""', "", "    __slots__ = ()", ""]
    for op in ops:
        if is_method(op):
            lines.append(textwrap.indent(function_text(op, method=True), "    "))
        if has_in_place_method(op):
            lines.append(textwrap.indent(function_text(op, method=True, in_place=True), "    "))
    for alias, name in sorted(ALIASES.items()):
        if name in REGISTRY and is_method(REGISTRY[name]):
            lines.append(f"    {alias} = {name}")
        if name in REGISTRY and REGISTRY[name].has_in_place:
            lines.append(f"    {alias}_ = {name}_")
    return "\n".join(lines)


def docs_page() -> str:
    """The text of docs/ops.md."""
    lines = [
        "# The ops",
        "",
        "Generated from the engine's registry by `make generate`; the same list is what the `ListOps` RPC answers.",
        "A name with `_` after it has an in-place form. Ops marked ∂ are differentiable, to any order.",
        "",
    ]
    groups: dict[str, list[AnyOp]] = {}
    for name in sorted(REGISTRY):
        groups.setdefault(group_of(REGISTRY[name]), []).append(REGISTRY[name])
    for group in sorted(groups):
        lines += [f"## {group}", "", "| op | parameters | ∂ | what |", "| --- | --- | --- | --- |"]
        for op in groups[group]:
            first = op.doc.splitlines()[0] if op.doc else ""
            shown = f"`{op.name}`" + (f", `{op.name}_`" if op.has_in_place else "")
            parameters = signature(op, method=False, numpy=False).replace("|", "\\|").replace("_dtypes.", "")
            what = first.replace("|", "\\|")
            lines.append(f"| {shown} | `{parameters}` | {'∂' if op.differentiable else ''} | {what} |")
        lines.append("")
    return "\n".join(lines)


def operations_page() -> str:
    """The text of docs/operations.md: as it is, but for the table of settings."""
    before, _, rest = (ROOT / "docs/operations.md").read_text("utf-8").partition(TABLE_BEGINS)
    _, _, after = rest.partition(TABLE_ENDS)
    rows = []
    for name, field in Settings.model_fields.items():
        default = f"`{setting_default(name)}`" if setting_default(name) else ""
        rows.append(f"| `{flag(name)}` | {default} | {field.description} |")
    table = "\n".join(("| setting | default | what |", "| --- | --- | --- |", *rows))
    return f"{before}{TABLE_BEGINS}\n{table}\n{TABLE_ENDS}{after}"


def outputs() -> dict[Path, str]:
    """The generated files and their texts."""
    return {
        ROOT / "client/gradwire/_tensor/ops.py": client_module(),
        ROOT / "docs/ops.md": docs_page(),
        ROOT / "docs/operations.md": operations_page(),
    }


def stale() -> list[str]:
    """Names of generated files that differ from what the registry gives."""
    return [
        str(path.relative_to(ROOT))
        for path, text in outputs().items()
        if not path.exists() or path.read_text("utf-8") != text
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is stale")
    if parser.parse_args().check:
        if names := stale():
            sys.exit(f"stale: {', '.join(names)}; run `make generate`")
        return
    for path, text in outputs().items():
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
