"""Dtype rules: which rule gives the dtype of an op's results, for clients that know no answer of the op yet.

A rule is known by its name; the Python client has its code (`gradwire/_tensor/foretelling/`). It may say that it does
not know. Only ops with a shape rule have one. `tests/client/test_foretelling.py` compares each with the server.
"""

from __future__ import annotations

from gradwire_engine.op.composite import Composite
from gradwire_engine.op.declaration import Declaration
from gradwire_engine.op.op import NAMED_APART
from gradwire_engine.op.signature import REGISTRY, Signature
from gradwire_engine.ops.shape_rules import shape_rules

# Dtype rules by shape rule.
_BY_SHAPE_RULE = {
    "floats": {
        "along", "convolution", "deviation", "dot", "dropout", "elementwise_loss", "layer_norm", "length", "linear",
        "log_of_sums", "matmul", "pointwise", "pooling", "reduction", "transposed_convolution",
    },
    "full_precision": {"adaptive_pooling", "attention", "batch_norm", "recurrent"},
    "first": {
        "cat", "chunk", "contiguous", "creation_like", "detach", "diagonal", "drawn", "drawn_integers", "expand",
        "flatten", "getitem", "last_two", "like", "matrix_t", "narrow", "pad", "permute", "repeat", "reshape", "roll",
        "select", "setitem", "split", "squeeze", "stack", "transpose", "triangle", "unbind", "unsqueeze",
    },
    "close": {"all_close"},
    "classes": {"class_loss"},
    "rows": {"embedding"},
    "copied": {"copied"},
    "given": {"converted", "creation", "identity", "steps"},
    "of_first": {"expanded_as", "viewed_as"},
    "ranged": {"number_range"},
    "whole": {"permutation", "random_integers"},
    "ordered": {"extremum", "sort", "topk"},
}  # fmt: skip
_RULE_OF = {shape: rule for rule, shapes in _BY_SHAPE_RULE.items() for shape in shapes}
# Ops with another rule than the rest of those with their shape rule.
_BY_NAME = {
    **dict.fromkeys(("add", "mul", "rsub", "sub"), "numbers"),
    **dict.fromkeys(
        (
            "all", "any", "eq", "ge", "gt", "isfinite", "isinf", "isnan", "le", "logical_and", "logical_not",
            "logical_or", "logical_xor", "lt", "ne", "signbit",
        ),
        "truth",
    ),
    **dict.fromkeys(("argmax", "argmin", "argsort", "count_nonzero"), "whole"),
    **dict.fromkeys(("bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor"), "same"),
    "masked_fill": "masked",
    "where": "chosen",
    **dict.fromkeys(("rand", "rand_like", "randn", "randn_like"), "drawn"),
    "clone": "first",
    "full": "filled",
    **dict.fromkeys(("nansum", "prod", "sum"), "sums"),
    "leaky_relu": "floats",
    **dict.fromkeys(("special.erfcx", "special.log_ndtr", "special.ndtri", "special.zeta"), "full_precision"),
}  # fmt: skip
# Ops that refuse what neither rule tells: ranks, floating operands, or numbers out of a range.
_UNTOLD = {
    "bitwise_left_shift", "bitwise_right_shift", "celu", "gcd", "isclose", "lcm", "softshrink",
}  # fmt: skip
# Nodes of ops whose declaration does not tell them: of composites, and of ops whose node depends on the arguments.
# `gradwire/_tensor/foretelling/nodes.py` has those for which the client needs the arguments.
_NODES = {
    "T": "PermuteBackward0",
    "adaptive_avg_pool2d": "MeanBackward1",
    "avg_pool2d": "AvgPool2DBackward0",
    "avg_pool3d": "AvgPool3DBackward0",
    "batch_norm": "NativeBatchNormBackward0",
    "broadcast_to": "ExpandBackward0",
    "chunk": "SplitBackward0",
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), "ConvolutionBackward0"),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), "ConvolutionBackward0"),
    "contiguous": "CloneBackward0",
    "cross_entropy": "NllLossBackward0",
    "div": "DivBackward0",
    "embedding": "EmbeddingBackward0",
    "expand_as": "ExpandBackward0",
    "layer_norm": "NativeLayerNormBackward0",
    "mT": "TransposeBackward0",
    "max_pool2d": "MaxPool2DWithIndicesBackward0",
    "max_pool3d": "MaxPool3DWithIndicesBackward0",
    "narrow": "SliceBackward0",
    "norm": "LinalgVectorNormBackward0",
    **dict.fromkeys(("new_empty", "new_full", "new_ones", "new_zeros"), "-"),
    **dict.fromkeys(("empty_like", "full_like", "ones_like", "rand_like", "randn_like", "zeros_like"), "-"),
    "nll_loss": "NllLossBackward0",
    "pad": "ConstantPadNdBackward0",
    "scaled_dot_product_attention": "ScaledDotProductFlashAttentionForCpuBackward0",
    "smooth_l1_loss": "SmoothL1LossBackward0",
    "sort": "SortBackward0",
    "split": "SplitBackward0",
    "swapaxes": "TransposeBackward0",
    "swapdims": "TransposeBackward0",
    "to": "ToCopyBackward0",
    "view_as": "ViewBackward0",
    "where": "WhereBackward0",
}
# Shape rules of ops that are views, or of several of one tensor.
_NO_VIEWS = ("contiguous", "converted", "detach", "dropout")
_MANY = ("chunk", "split", "unbind")


def node_of(op: Signature) -> str:
    """The name of the node that records the op for every tensor input; "" if the arguments decide, "-" if none does."""
    if op.name in _NODES:
        return _NODES[op.name]
    differentiable = isinstance(op, (Composite, Declaration)) and op.differentiable
    if op.name == "detach" or not (differentiable or op.has_in_place):
        return "-"
    if not isinstance(op, Declaration) or not isinstance(op.node_name, str):
        return ""
    inputs = {op.params[place].name for place in op.tensor_positions}
    return op.node_name if inputs <= set(op.formulas) and op.differentiable_outputs in (None, (0,)) else ""


def dtype_rules() -> dict[str, tuple[str, str, str]]:
    """By the names of ops: the dtype rule, the node, and whether the results are views, as "", "one" or "many"."""
    found = {}
    for name, shape_rule in shape_rules().items():
        in_place = name.endswith("_") and name not in REGISTRY
        op = REGISTRY[name.removesuffix("_") if in_place else name]
        rule = _BY_NAME.get(op.name) or _RULE_OF.get(shape_rule)
        if rule is None or op.name in _UNTOLD or (in_place and rule in ("truth", "same")):
            continue
        node = "" if in_place and op.name in NAMED_APART else node_of(op)
        views = "" if op.views == "never" or in_place or shape_rule in _NO_VIEWS else "one"
        found[name] = rule, node, "many" if shape_rule in _MANY else views
    return found
