"""What computes ATen's overloads that have no function of the same name: by tensors' methods and composed functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from inspect import signature
from typing import Any

from gradwire._base.modes import no_grad
from gradwire._base.refused import refusal
from gradwire._dispatch.view_replay import slice_inverse
from gradwire._proxy.handle import Handle
from gradwire._tensor import ops

Tensor = Any
_EVERYTHING = slice(None)


def kernel(name: str, overload: str) -> Callable[..., Any]:
    """The function that computes an op of ATen. Refuses one that has none."""
    found: Any = _KERNELS.get(f"{name}.{overload}") or _KERNELS.get(name) or _of_that_name(name)
    if found is None:
        raise refusal(f"ops.aten.{name}", "no function here computes this op of ATen")
    return found  # type: ignore[no-any-return]


@cache
def kernel_parameters(name: str) -> tuple[str, ...]:
    """The parameters' names of what computes an op in its default form; none if that is unknown, or takes any."""
    found = _KERNELS.get(name) or _of_that_name(name)
    if found is None:
        return ()
    listed = signature(found).parameters.values()
    return () if any(each.kind is each.VAR_POSITIONAL for each in listed) else tuple(each.name for each in listed)


def _of_that_name(name: str) -> Any:
    """The method or function of the library that has the op's name; None if there is none."""
    torch: Any = import_module("gradwire")
    if name.endswith("_") and not name.startswith("_"):
        return getattr(torch.Tensor, name, None) or _in_place(name.removesuffix("_"))
    inner = import_module("gradwire.nn._functional.aten")
    if name in inner.__all__:
        return getattr(inner, name)
    home, short = _home(torch, name)
    if short.startswith("_"):
        return None
    homes = [(home, short), (torch.Tensor, name), (torch.nn.functional, name), (ops, name)]
    return next((each for each in (getattr(owner, one, None) for owner, one in homes) if callable(each)), None)


def _in_place(name: str) -> Any:
    """The function of layers that changes its input, for an op without a method; None if there is none."""
    function = getattr(_functional(), name, None)
    if function is None or "inplace" not in signature(function).parameters:
        return None
    return lambda *args, **kwargs: function(*args, **kwargs, inplace=True)


def _home(torch: Any, name: str) -> tuple[Any, str]:
    for prefix in ("linalg", "fft", "special"):
        if name.startswith(f"{prefix}_"):
            return getattr(torch, prefix), name.removeprefix(f"{prefix}_")
    return torch, name


def _functional() -> Any:
    return import_module("gradwire.nn.functional")


def _index(self: Tensor, indices: Sequence[Any]) -> Any:
    return self[_key(indices)]


def _key(indices: Any) -> Any:
    """The key of x[...] for a list of indices, None for a whole dimension; a tensor stands for its items."""
    return tuple(_EVERYTHING if each is None else each for each in indices)


def _index_put(self: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Any:
    if not all(isinstance(each, Handle) for each in indices):
        if accumulate:
            raise refusal("ops.aten.index_put_", "accumulation takes only tensors as indices")
        self[_key(indices)] = values
        return self
    return self.index_put_(tuple(indices), values, accumulate)


def _convolution(
    input: Tensor,
    weight: Tensor,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Any:
    functional, dims = _functional(), weight.ndim - 2
    stride, padding, dilation = (tuple(each) for each in (stride, padding, dilation))
    if transposed:
        function = getattr(functional, f"conv_transpose{dims}d")
        return function(input, weight, bias, stride, padding, tuple(output_padding), groups, dilation)
    return getattr(functional, f"conv{dims}d")(input, weight, bias, stride, padding, dilation, groups)


def _to_copy(self: Tensor, *, dtype: Any = None, device: Any = None, memory_format: Any = None, **_: Any) -> Any:
    made = self.to(dtype=self.dtype if dtype is None else dtype, device=device, copy=True)
    return made if memory_format is None else made.contiguous(memory_format=memory_format)


def _clone(self: Tensor, *, memory_format: Any = None) -> Any:
    if memory_format is None:
        return self.clone()
    return self.clone(memory_format=memory_format)


def _softmax(self: Tensor, dim: int, half_to_float: bool) -> Any:
    return _functional().softmax(self, dim)


def _log_softmax(self: Tensor, dim: int, half_to_float: bool) -> Any:
    return _functional().log_softmax(self, dim)


_REDUCTIONS = ("none", "mean", "sum")


def _nll_loss_forward(self: Tensor, target: Tensor, weight: Any, reduction: int, ignore_index: int) -> Any:
    made = _functional().nll_loss(self, target, weight, ignore_index=ignore_index, reduction=_REDUCTIONS[reduction])
    kept = target != ignore_index
    total = kept.sum().to(self.dtype) if weight is None else weight[target * kept].mul(kept).sum()
    return made, total if reduction == 1 else self.new_zeros(())


def _max_pool2d_with_indices(self: Tensor, kernel_size: Any, stride: Any = (), *rest: Any) -> Any:
    return _functional().max_pool2d(self, _whole(kernel_size), _whole(stride) or None, *rest, return_indices=True)


def _avg_pool2d(self: Tensor, kernel_size: Any, stride: Any = (), *rest: Any) -> Any:
    return _functional().avg_pool2d(self, _whole(kernel_size), _whole(stride) or None, *rest)


def _whole(value: Any) -> Any:
    return tuple(value) if isinstance(value, (list, tuple)) else value


def _mean_square(name: str) -> Callable[..., Any]:
    def loss(self: Tensor, target: Tensor, reduction: int = 1, *rest: Any) -> Any:
        extra = dict(zip({"smooth_l1_loss": ["beta"], "huber_loss": ["delta"]}.get(name, []), rest, strict=False))
        return getattr(_functional(), name)(self, target, reduction=_REDUCTIONS[reduction], **extra)

    return loss


def _cross_entropy_of_bits(name: str, more: Sequence[str]) -> Callable[..., Any]:
    def loss(self: Tensor, target: Tensor, *rest: Any) -> Any:
        given = dict(zip((*more, "reduction"), rest, strict=False))
        given["reduction"] = _REDUCTIONS[given.get("reduction", 1)]
        return getattr(_functional(), name)(self, target, **given)

    return loss


def _attention(
    query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0, is_causal: bool = False, **rest: Any
) -> Any:
    """Attention and the logarithm of its sums, as PyTorch's fused kernel gives them."""
    mask, scale = rest.get("attn_mask"), rest.get("scale")
    made = _functional().scaled_dot_product_attention(query, key, value, mask, dropout_p, is_causal, scale=scale)
    torch: Any = import_module("gradwire")
    scores = query.detach() @ key.detach().transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype is torch.bool else scores + mask
    if is_causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    return made, scores.logsumexp(-1)


def _constant_pad_nd(self: Tensor, pad: Any, value: Any = 0) -> Any:
    return _functional().pad(self, tuple(pad), value=value)


def _padding(mode: str) -> Callable[..., Any]:
    return lambda self, padding: _functional().pad(self, tuple(padding), mode=mode)


def _upsample(mode: str) -> Callable[..., Any]:
    def upsample(self: Tensor, output_size: Any, *rest: Any) -> Any:
        corners = {"align_corners": rest[0]} if mode != "nearest" and rest else {}
        factors = rest if mode == "nearest" else rest[1:]
        if factors and all(each is not None for each in factors):
            return _functional().interpolate(self, scale_factor=tuple(factors), mode=mode, **corners)
        return _functional().interpolate(self, size=tuple(output_size), mode=mode, **corners)

    return upsample


def _native_layer_norm(input: Tensor, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    torch: Any = import_module("gradwire")
    return torch.native_layer_norm(input, tuple(shape), weight, bias, eps)


def _embedding(weight: Tensor, indices: Tensor, padding_idx: int = -1, *rest: Any) -> Any:
    scale, sparse = (*rest, False, False)[:2]
    padding = None if padding_idx == -1 else padding_idx
    return _functional().embedding(indices, weight, padding, scale_grad_by_freq=scale, sparse=sparse)


def _embedding_renorm(self: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Any:
    """Scale the rows of the indices to the largest norm, as the op of embeddings does first."""
    with no_grad():
        _functional().embedding(indices, self, max_norm=max_norm, norm_type=norm_type)
    return self


def _variance(name: str) -> Callable[..., Any]:
    def compute(self: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
        torch: Any = import_module("gradwire")
        given = 1 if correction is None else correction
        return getattr(torch, name)(self, _whole(dim), correction=given, keepdim=keepdim)

    return compute


def _vector_norm(self: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    torch: Any = import_module("gradwire")
    return torch.linalg.vector_norm(self, ord, _whole(dim), keepdim, dtype=dtype)


def _elu(self: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
    if input_scale == 1 and scale == 1:
        return _functional().elu(self, alpha)
    if alpha == 1.6732632423543772 and scale == 1.0507009873554805 and input_scale == 1:
        return _functional().selu(self)
    return scale * _functional().elu(self * input_scale, alpha)


def _elu_in_place(self: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
    if input_scale == 1 and scale == 1:
        return _functional().elu(self, alpha, inplace=True)
    if alpha == 1.6732632423543772 and scale == 1.0507009873554805 and input_scale == 1:
        return _functional().selu(self, inplace=True)
    raise refusal("ops.aten.elu_", "scales of elu and selu only")


def _kl_div(self: Tensor, target: Tensor, *rest: Any, **named: Any) -> Any:
    """With ATen's arguments, or those of the function of layers."""
    if not rest or type(rest[0]) is not int:
        return _functional().kl_div(self, target, *rest, **named)
    return _functional().kl_div(self, target, None, None, _REDUCTIONS[rest[0]], *rest[1:], **named)


def _threshold_backward(grad_output: Tensor, self: Tensor, threshold: Any) -> Any:
    return grad_output.masked_fill(self <= threshold, 0)


def _factory(name: str) -> Callable[..., Any]:
    def make(*args: Any, dtype: Any = None, device: Any = None, **_: Any) -> Any:
        torch: Any = import_module("gradwire")
        return getattr(torch, name)(*args, dtype=dtype, device=device)

    return make


def _new_factory(name: str) -> Callable[..., Any]:
    def make(self: Tensor, *args: Any, dtype: Any = None, device: Any = None, **_: Any) -> Any:
        return getattr(self, name)(*args, dtype=dtype, device=device)

    return make


def _normal_functional(self: Tensor, mean: float = 0.0, std: float = 1.0, **_: Any) -> Any:
    return self.clone().normal_(mean, std)


def _drawn(name: str) -> Callable[..., Any]:
    """A new tensor of drawn numbers."""
    return lambda self, *args, **_: getattr(self.clone(), name)(*args)


def _fill(self: Tensor, value: Any) -> Any:
    return self.clone().fill_(value)


def _copy(self: Tensor, src: Tensor, non_blocking: bool = False) -> Any:
    return self.clone().copy_(src)


def _resize(self: Tensor, size: Any, **_: Any) -> Any:
    return self.clone().resize_(tuple(size))


def _set_item_sizes(name: str) -> Callable[..., Any]:
    return lambda self, size, *rest, **named: getattr(self, name)(tuple(size), *rest, **named)


def _conv_pool_size(name: str) -> Callable[..., Any]:
    return lambda self, output_size: getattr(_functional(), name)(self, tuple(output_size))


def _copied(name: str) -> Callable[..., Any]:
    """A view's values in memory of their own."""

    def compute(*args: Any, **kwargs: Any) -> Any:
        made = kernel(name, "default")(*args, **kwargs)
        return [each.clone() for each in made] if isinstance(made, (tuple, list)) else made.clone()

    return compute


def _aminmax(self: Tensor, *, dim: Any = None, keepdim: bool = False) -> Any:
    torch: Any = import_module("gradwire")
    return torch.aminmax(self, dim=dim, keepdim=keepdim)


def _check_errors(info: Tensor, api_name: str, *, is_matrix: bool) -> None:
    """Raise LinAlgError if an error code is not 0."""
    if bool((info != 0).any()):
        raise import_module("gradwire").linalg.LinAlgError(f"{api_name}: the computation failed for a matrix")


def _fused_dropout(input: Tensor, p: float, train: Any) -> Any:
    torch: Any = import_module("gradwire")
    return torch.native_dropout(input, p, train)


def _sort_stable(self: Tensor, *, stable: Any = None, dim: int = -1, descending: bool = False) -> Any:
    return self.sort(dim=dim, descending=descending, stable=bool(stable))


_FACTORIES = [
    "arange",
    "empty_like",
    "eye",
    "full",
    "full_like",
    "linspace",
    "ones",
    "ones_like",
    "rand",
    "rand_like",
    "randint",
    "randn",
    "randn_like",
    "randperm",
    "zeros",
    "zeros_like",
]
#: Ops whose results are views of their first argument.
VIEWS = frozenset(
    [
        "alias",
        "as_strided",
        "detach",
        "diagonal",
        "expand",
        "permute",
        "select",
        "slice",
        "split",
        "split_with_sizes",
        "squeeze",
        "t",
        "transpose",
        "unbind",
        "unfold",
        "unsqueeze",
        "view",
        "view_as_complex",
        "view_as_real",
    ]
)
_KERNELS: dict[str, Callable[..., Any]] = {
    "_adaptive_avg_pool2d": _conv_pool_size("adaptive_avg_pool2d"),
    "_adaptive_avg_pool3d": _conv_pool_size("adaptive_avg_pool3d"),
    "_cdist_forward": lambda x1, x2, p, mode: import_module("gradwire").cdist(x1, x2, p),
    "_conj": lambda self: self.conj(),
    "_linalg_check_errors": _check_errors,
    "_linalg_det": lambda A: (import_module("gradwire").linalg.det(A), *import_module("gradwire").linalg.lu_factor(A)),
    "_linalg_eigh": lambda A, UPLO="L", compute_v=True: import_module("gradwire").linalg.eigh(A, UPLO),
    "_linalg_svd": lambda A, full_matrices=False, compute_uv=True, **_: import_module("gradwire").linalg.svd(
        A, full_matrices
    ),
    "_local_scalar_dense": lambda self: self.item(),
    "_log_softmax": _log_softmax,
    "_reshape_alias": lambda self, size, stride: self.view(tuple(size)),
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_softmax": _softmax,
    "_to_copy": _to_copy,
    "_unsafe_view": lambda self, size: self.reshape(tuple(size)),
    "alias": lambda self: self[...],
    "aminmax": _aminmax,
    "avg_pool2d": _avg_pool2d,
    "binary_cross_entropy": _cross_entropy_of_bits("binary_cross_entropy", ["weight"]),
    "binary_cross_entropy_with_logits": _cross_entropy_of_bits(
        "binary_cross_entropy_with_logits", ["weight", "pos_weight"]
    ),
    "clone": _clone,
    "constant_pad_nd": _constant_pad_nd,
    "convolution": _convolution,
    "copy": _copy,
    "detach": lambda self: self.detach(),
    "elu": _elu,
    "elu_": _elu_in_place,
    "embedding": _embedding,
    "embedding_renorm_": _embedding_renorm,
    "empty.memory_format": _factory("empty"),
    "expand": lambda self, size, implicit=False: self.expand(tuple(size)),
    "fill": _fill,
    "huber_loss": _mean_square("huber_loss"),
    "index.Tensor": _index,
    "index_put_": _index_put,
    "index_put": lambda self, indices, values, accumulate=False: _index_put(self.clone(), indices, values, accumulate),
    "kl_div": _kl_div,
    "lift_fresh": lambda self: self,
    "lift_fresh_copy": lambda self: self.clone(),
    "linalg_cholesky_ex": lambda self, upper=False, check_errors=False: import_module("gradwire").linalg.cholesky_ex(
        self, upper=upper, check_errors=check_errors
    ),
    "linalg_inv_ex": lambda A, check_errors=False: import_module("gradwire").linalg.inv_ex(
        A, check_errors=check_errors
    ),
    "linalg_vector_norm": _vector_norm,
    "log_sigmoid_forward": lambda self: (_functional().logsigmoid(self), self.new_empty((0,))),
    "max_pool2d_with_indices": _max_pool2d_with_indices,
    "mse_loss": _mean_square("mse_loss"),
    "native_dropout": _fused_dropout,
    "native_layer_norm": _native_layer_norm,
    "new_empty": _new_factory("new_empty"),
    "new_full": _new_factory("new_full"),
    "new_ones": _new_factory("new_ones"),
    "new_zeros": _new_factory("new_zeros"),
    "nll_loss_forward": _nll_loss_forward,
    "normal_functional": _normal_functional,
    "permute": lambda self, dims: self.permute(tuple(dims)),
    "reflection_pad1d": _padding("reflect"),
    "reflection_pad2d": _padding("reflect"),
    "repeat": lambda self, repeats: self.repeat(tuple(repeats)),
    "replication_pad1d": _padding("replicate"),
    "replication_pad2d": _padding("replicate"),
    "resize": _resize,
    "slice_inverse": slice_inverse,
    "smooth_l1_loss": _mean_square("smooth_l1_loss"),
    "sort.stable": _sort_stable,
    "split_with_sizes": lambda self, split_sizes, dim=0: self.split(list(split_sizes), dim),
    "std.correction": _variance("std"),
    "std_mean.correction": _variance("std_mean"),
    "threshold_backward": _threshold_backward,
    "upsample_bicubic2d": _upsample("bicubic"),
    "upsample_bilinear2d": _upsample("bilinear"),
    "upsample_linear1d": _upsample("linear"),
    "upsample_nearest1d": _upsample("nearest"),
    "upsample_nearest2d": _upsample("nearest"),
    "upsample_nearest3d": _upsample("nearest"),
    "var.correction": _variance("var"),
    "var_mean.correction": _variance("var_mean"),
    **{name: _drawn(f"{name}_") for name in ["cauchy", "exponential", "geometric", "log_normal", "random", "uniform"]},
    "bernoulli.p": lambda self, p=0.5, **_: self.clone().bernoulli_(p),
    "zero": lambda self: self.clone().zero_(),
    "view": lambda self, size: self.view(tuple(size)) if not _is_dtype(size) else self.view(size),
    **{name: _factory(name) for name in _FACTORIES},
    **{f"{name}_copy": _copied(name) for name in sorted(VIEWS)},
}


def _is_dtype(value: Any) -> bool:
    return not isinstance(value, (tuple, list, int))
