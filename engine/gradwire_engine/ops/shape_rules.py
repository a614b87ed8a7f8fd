"""Shape rules: which rule gives the sizes of an op's results, for clients that do not wait for them.

A rule is known by its name; the Python client has its code (`gradwire/_tensor/shape_rules/`). A rule may say that it
does not know. An op may have one only if dtype, device, views and nodes of its results do not depend on sizes and
numbers, beyond the ranks and kinds of the arguments. `tests/client/test_shape_rules.py` compares each with the server.
"""

from __future__ import annotations

from gradwire_engine.op.declaration import Declaration
from gradwire_engine.op.signature import REGISTRY, Signature

# Elementwise ops without a derivative or with one that does not say so, besides those of `rule_of`.
_POINTWISE = {
    "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "clone",
    "eq", "gcd", "ge", "gt", "isclose", "isfinite", "isinf", "isnan", "lcm", "le", "logical_and", "logical_not",
    "logical_or", "logical_xor", "lt", "masked_fill", "ne", "signbit", "where",
}  # fmt: skip
# Elementwise ops whose further arguments may be refused, or whose draws depend on them.
_WITH_CONDITIONS = {
    "bernoulli", "cauchy", "copysign", "exponential", "geometric", "heaviside", "hardtanh", "ldexp", "lerp",
    "log_normal", "logit", "nextafter", "normal", "poisson", "polygamma", "random", "round", "uniform",
}  # fmt: skip
_RULES = {
    "like": {
        "empty_like", "fill", "full_like", "leaky_relu", "ones_like", "rand_like", "randn_like", "zero", "zeros_like",
    },
    "triangle": {"tril", "triu"},
    "length": {"linalg.vector_norm", "norm"},
    "along": {"argsort", "cumprod", "cumsum", "log_softmax", "logcumsumexp", "softmax"},
    "reduction": {
        "all", "amax", "amin", "any", "argmax", "argmin", "count_nonzero", "mean", "nansum", "prod", "sum",
    },
    "extremum": {"max", "min"},
    "creation": {"empty", "full", "ones", "rand", "randn", "zeros"},
    "creation_like": {"new_empty", "new_full", "new_ones", "new_zeros"},
    "random_integers": {"randint"},
    "number_range": {"arange"},
    "steps": {"linspace", "logspace"},
    "identity": {"eye"},
    "permutation": {"randperm"},
    "getitem": {"getitem"},
    "setitem": {"setitem_"},
    "select": {"select"},
    "narrow": {"narrow"},
    "reshape": {"reshape", "view"},
    "flatten": {"flatten"},
    "expand": {"broadcast_to", "expand"},
    "unsqueeze": {"unsqueeze"},
    "squeeze": {"squeeze"},
    "transpose": {"swapaxes", "swapdims", "transpose"},
    "last_two": {"mT"},
    "matrix_t": {"T", "t"},
    "permute": {"permute"},
    "unbind": {"unbind"},
    "split": {"split"},
    "chunk": {"chunk"},
    "diagonal": {"diagonal"},
    "matmul": {"bmm", "matmul", "mm", "mv"},
    "linear": {"linear"},
    "stack": {"stack"},
    "cat": {"cat"},
    "index_select": {"index_select"},
    "gather": {"gather"},
    "embedding": {"embedding"},
    "repeat": {"repeat"},
    "pad": {"pad"},
    "topk": {"topk"},
    "sort": {"sort"},
    "roll": {"roll"},
    "dropout": {"dropout"},
    "layer_norm": {"layer_norm"},
    "attention": {"scaled_dot_product_attention"},
    "transposed_convolution": {"conv_transpose1d", "conv_transpose2d", "conv_transpose3d"},
    "dot": {"dot"},
    "all_close": {"allclose"},
    "contiguous": {"contiguous"},
    "viewed_as": {"view_as"},
    "expanded_as": {"expand_as"},
    "log_of_sums": {"logsumexp"},
    "drawn_integers": {"random_"},
    "batch_norm": {"batch_norm"},
    "pooling": {"avg_pool2d", "avg_pool3d", "max_pool2d", "max_pool3d"},
    "adaptive_pooling": {"adaptive_avg_pool2d"},
    "recurrent": {"gru_layer", "lstm_layer", "rnn_layer"},
    "convolution": {"conv1d", "conv2d", "conv3d"},
    "deviation": {"std", "var"},
    "detach": {"detach"},
    "copied": {"copy_"},
    "converted": {"to"},
    "elementwise_loss": {"binary_cross_entropy_with_logits", "l1_loss", "mse_loss", "smooth_l1_loss"},
    "class_loss": {"cross_entropy", "nll_loss"},
    "embedding_bag": {"embedding_bag"},
    "drawn": {"normal_", "uniform_"},
}  # fmt: skip
_BY_NAME = {name: rule for rule, names in _RULES.items() for name in names}


def rule_of(op: Signature) -> str:
    """The name of an op's shape rule; "" if it has none."""
    if op.name in _BY_NAME:
        return _BY_NAME[op.name]
    if op.name in _POINTWISE:
        return "pointwise"
    if not isinstance(op, Declaration) or op.name in _WITH_CONDITIONS or op.view or op.outputs or op.data_dependent:
        return ""
    return "pointwise" if op.tangent_rule in ("holomorphic", "pointwise") else ""


def shape_rules() -> dict[str, str]:
    """Rule names by the names of ops; an in-place form has a name that ends in an underscore."""
    rules = {name: rule_of(op) for name, op in sorted(REGISTRY.items())}
    written = {
        f"{name}_": rules[name]
        for name, op in sorted(REGISTRY.items())
        if op.has_in_place and rules[name] in ("pointwise", "like", "triangle")
    }
    named = {name: rule for name, rule in _BY_NAME.items() if name.endswith("_")}
    return {name: rule for name, rule in sorted((rules | written | named).items()) if rule}
