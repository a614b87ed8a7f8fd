"""PyTorch's names: in which module PyTorch has each op, whether as a function or a method, and its second names."""

from __future__ import annotations

from gradwire_engine.core.schema import REQUIRED, Kind, Param
from gradwire_engine.op.signature import REGISTRY, Signature

# Modules of functions of torch.nn.functional that are no methods of Tensor; its other activations are both.
FUNCTIONAL_MODULES = {
    "adaptive_max", "attention", "bilinear", "blocks", "classification", "conv", "ctc", "dropout", "embedding",
    "embedding_bag", "grid", "instance_norm", "labels", "likelihood", "local_norm", "loss", "margin", "norm", "padding",
    "pool", "resize", "shuffle", "unpool",
}  # fmt: skip
# Ops of the other modules that PyTorch's Tensor has no method for ...
NO_METHODS = {
    "atleast_1d", "atleast_2d", "atleast_3d", "binomial", "block_diag", "bucketize", "cartesian_prod", "cauchy",
    "cdist", "check_all", "combinations", "complex", "copy", "cumulative_trapezoid", "dirichlet_grad", "dual_primal",
    "dual_tangent", "empty_like", "exit_dual_level", "exponential", "fill", "full_like", "geometric", "getitem",
    "gru_layer", "isin", "linear", "log_normal", "lstm_layer", "make_dual", "normal", "ones_like", "poisson", "polar",
    "rand_like", "randint_like", "randn_like", "random", "rnn_layer", "rsub", "sample_dirichlet", "searchsorted",
    "setitem", "softmin", "standard_gamma", "standard_gamma_grad", "std_mean", "take_geometry", "tensordot",
    "trapezoid", "uniform", "var_mean", "view_as_complex", "view_as_real", "view_dtype", "zero", "zeros_like",
}  # fmt: skip
# ... no in-place method, though nn.functional takes `inplace` ...
NO_IN_PLACE_METHODS = {
    "celu", "elu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "mish", "relu6", "rrelu", "selu", "setitem",
    "silu", "take_geometry", "threshold", "dropout",
}  # fmt: skip
# ... and those that are methods only.
NO_FUNCTIONS = {
    "H", "T", "bernoulli_", "cauchy", "check_all", "contiguous", "copy", "dirichlet_grad", "dual_primal",
    "dual_tangent", "elu", "exit_dual_level", "expand", "expand_as", "exponential", "gelu", "geometric", "getitem",
    "glu", "gru_layer", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "linear", "log_normal", "logsigmoid",
    "lstm_layer", "mH", "mT", "make_dual", "mish", "new_empty", "new_full", "new_ones", "new_zeros", "normal_",
    "random", "relu6", "repeat", "reshape_as", "rnn_layer", "sample_dirichlet", "setitem", "silu", "softmin",
    "softplus", "softshrink", "softsign", "standard_gamma", "standard_gamma_grad", "sum_to_size", "take_geometry",
    "tanhshrink", "to", "type_as", "unfold", "uniform", "view", "view_as", "view_dtype", "zero",
}  # fmt: skip
# PyTorch's second names: functions and methods, with their in-place forms where the first has one ...
ALIASES = {
    "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan",
    "arctan2": "atan2", "arctanh": "atanh", "clip": "clamp", "divide": "div", "fix": "trunc", "ger": "outer",
    "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le", "multiply": "mul", "negative": "neg",
    "not_equal": "ne", "subtract": "sub", "true_divide": "div",
}  # fmt: skip
# ... and functions alone.
FUNCTION_ALIASES = {"concat": "cat", "concatenate": "cat", "row_stack": "vstack", "trapz": "trapezoid"}
# Functions that take their list of tensors one by one: block_diag(a, b); or as one list.
TENSORS_ONE_BY_ONE = {"block_diag", "broadcast_tensors", "cartesian_prod", "einsum", "meshgrid"}
# Functions of torch.nn.functional from other modules than these.
FUNCTIONS_OF_NN = {"linear", "softmin"}
ACTIVATION_METHODS = {"relu", "softmax", "log_softmax", "sigmoid", "tanh", "hardshrink", "prelu"}
# Methods whose sizes or dimensions may be given one by one: x.reshape(2, -1); not x.split(2, 1).
VARARGS = {
    "broadcast_to", "expand", "flip", "new_empty", "new_ones", "new_zeros", "permute", "repeat", "reshape",
    "sum_to_size", "tile", "view",
}  # fmt: skip


def group_of(op: Signature) -> str:
    """The registry module that declares it: "reduce", "conv"."""
    return op.function.__module__.rsplit(".", 1)[-1]


def is_method(op: Signature) -> bool:
    """Whether Tensor has it as a method."""
    if "." in op.name or not op.params or op.params[0].kind not in (Kind.TENSOR, Kind.TENSOR_OR_NUMBER):
        return False
    group = group_of(op)
    if group in FUNCTIONAL_MODULES or op.name in NO_METHODS:
        return False
    return group != "activation" or op.name in ACTIVATION_METHODS


def is_function(op: Signature) -> bool:
    """Whether it is a function of gradwire itself, as it is one of torch."""
    return "." not in op.name and group_of(op) not in FUNCTIONAL_MODULES and op.name not in NO_FUNCTIONS


def takes_varargs(op: Signature, method: bool) -> bool:
    """Whether the sizes may be given one by one: zeros(2, 3), x.reshape(2, -1)."""
    place = 1 if method else 0
    if len(op.params) <= place:
        return False
    first = op.params[place]
    required = first.kind is Kind.INTEGERS and first.default is REQUIRED
    return required and (op.name in VARARGS if method else first.name == "size")


def takes_tensors_one_by_one(op: Signature, param: Param) -> bool:
    """Whether this is the list of tensors that may be given one by one: meshgrid(a, b)."""
    return param.kind is Kind.TENSORS and op.name in TENSORS_ONE_BY_ONE


def namespace_of(op: Signature) -> str:
    """The module below torch that has the op: "", "linalg", "nn.functional"."""
    before, _, _ = op.name.rpartition(".")
    if before or is_function(op):
        return before
    group = group_of(op)
    in_nn = group in FUNCTIONAL_MODULES or group == "activation" or op.name in FUNCTIONS_OF_NN
    return "nn.functional" if in_nn else ""


def is_function_somewhere(op: Signature) -> bool:
    """Whether PyTorch has it as a function, of torch or of another module."""
    return bool(namespace_of(op)) or is_function(op)


def has_in_place_method(op: Signature) -> bool:
    """Whether Tensor has its in-place form as a method."""
    return op.has_in_place and op.name not in NO_IN_PLACE_METHODS


def aliases_of(op: Signature) -> list[str]:
    """PyTorch's other names of the op, sorted."""
    return sorted(alias for alias, name in (ALIASES | FUNCTION_ALIASES).items() if name == op.name)


def in_place_aliases_of(op: Signature) -> list[str]:
    """PyTorch's other names of its in-place form, sorted."""
    return sorted(f"{alias}_" for alias, name in ALIASES.items() if name == op.name) if op.has_in_place else []


def is_variadic(op: Signature, param: Param) -> bool:
    """Whether PyTorch takes the items of this list one by one: zeros(2, 3), x.view(2, 3), einsum("i,i", a, b)."""
    if takes_tensors_one_by_one(op, param):
        return True
    method = is_method(op)
    if op.name == "full":  # its sizes are followed by the value
        return False
    return takes_varargs(op, method) and op.params.index(param) == int(method)


def function_names() -> set[str]:
    """The names of torch's own functions among the ops, aliases included."""
    aliases = {alias for alias, name in (ALIASES | FUNCTION_ALIASES).items() if name in REGISTRY}
    return {op.name for op in REGISTRY.values() if is_function(op)} | aliases
