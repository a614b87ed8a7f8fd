"""gradwire: gradients over the wire. `import gradwire as torch`, and the tensors live on a server.

Everything is loaded on first use, so that importing the generated messages (gradwire.v1) loads no client.
"""

import sys as _sys
from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from gradwire import accelerator as accelerator
    from gradwire import aio as aio
    from gradwire import amp as amp
    from gradwire import array_api as array_api
    from gradwire import autograd as autograd
    from gradwire import backends as backends
    from gradwire import compiler as compiler
    from gradwire import cuda as cuda
    from gradwire import distributions as distributions
    from gradwire import fft as fft
    from gradwire import func as func
    from gradwire import hub as hub
    from gradwire import jit as jit
    from gradwire import library as library
    from gradwire import linalg as linalg
    from gradwire import multiprocessing as multiprocessing
    from gradwire import nn as nn
    from gradwire import optim as optim
    from gradwire import overrides as overrides
    from gradwire import profiler as profiler
    from gradwire import sparse as sparse
    from gradwire import special as special
    from gradwire import testing as testing
    from gradwire import torch_version as torch_version
    from gradwire import types as types
    from gradwire import utils as utils
    from gradwire import version as version
    from gradwire._alias.imports import alias as alias
    from gradwire._base.dtypes import *  # noqa: F403
    from gradwire._base.errors import *  # noqa: F403
    from gradwire._base.modes import *  # noqa: F403
    from gradwire._base.printing import set_printoptions as set_printoptions
    from gradwire._base.timeouts import timeout as timeout
    from gradwire._base.version import __version__ as __version__
    from gradwire._compile.compile import compile as compile
    from gradwire._functions.composed import *  # noqa: F403
    from gradwire._functions.copies import *  # noqa: F403
    from gradwire._functions.counts import *  # noqa: F403
    from gradwire._functions.create import *  # noqa: F403
    from gradwire._functions.exchange import from_dlpack as from_dlpack
    from gradwire._functions.exchange import from_torch as from_torch
    from gradwire._functions.exchange import to_torch as to_torch
    from gradwire._functions.functions import nonzero as nonzero
    from gradwire._functions.functions import where as where
    from gradwire._functions.legacy import *  # noqa: F403
    from gradwire._functions.matrix_factors import *  # noqa: F403
    from gradwire._functions.random import *  # noqa: F403
    from gradwire._graph.anomaly import is_anomaly_check_nan_enabled as is_anomaly_check_nan_enabled
    from gradwire._graph.anomaly import is_anomaly_enabled as is_anomaly_enabled
    from gradwire._graph.nodes import graph as graph
    from gradwire._io.explain import explain as explain
    from gradwire._io.files import load as load
    from gradwire._io.files import save as save
    from gradwire._io.studio import studio as studio
    from gradwire._session.session import Session as Session
    from gradwire._session.sessions import connect as connect
    from gradwire._session.sessions import current_session as current_session
    from gradwire._session.sessions import restore as restore
    from gradwire._session.sessions import server_info as server_info
    from gradwire._session.sessions import sync as sync
    from gradwire._session.timings import timings as timings
    from gradwire._tensor.ops import *  # type: ignore[assignment]  # noqa: F403
    from gradwire._tensor.tensor import Tensor as Tensor
    from gradwire._transport.bulk import progress as progress
    from gradwire.amp import GradScaler as GradScaler
    from gradwire.amp import autocast as autocast
    from gradwire.export import load_program as load_program
    from gradwire.func import vmap as vmap
    from gradwire.library import ops as ops
    from gradwire.nn._summary import summary as summary
    from gradwire.sparse import sparse_bsc_tensor as sparse_bsc_tensor
    from gradwire.sparse import sparse_bsr_tensor as sparse_bsr_tensor
    from gradwire.sparse import sparse_compressed_tensor as sparse_compressed_tensor
    from gradwire.sparse import sparse_coo_tensor as sparse_coo_tensor
    from gradwire.sparse import sparse_csc_tensor as sparse_csc_tensor
    from gradwire.sparse import sparse_csr_tensor as sparse_csr_tensor
    from gradwire.sparse import spmm as spmm

_MODULES = (
    "accelerator", "aio", "amp", "array_api", "autograd", "backends", "compiler", "cuda", "distributed",
    "distributions", "export", "fft", "func", "hub", "jit", "library", "linalg", "masked", "multiprocessing", "nn",
    "optim", "overrides", "profiler", "sparse", "special", "testing", "torch_version", "types", "utils", "version",
    "__config__",
)  # fmt: skip
# PyTorch's modules without a file: tables say what they have (`_paths`).
_TABLES = (
    "__future__", "_C", "_custom_ops", "_dynamo", "_jit_internal", "_subclasses", "_tensor", "_utils", "ao", "classes",
    "cpu", "functional", "futures", "fx", "monitor", "mps", "mtia", "nested", "numa",
    "onnx", "package", "quantization", "random", "return_types", "serialization", "signal", "storage",
    "xpu",
)  # fmt: skip
_NAMES = {
    "_base.version": "__version__",
    "_transport.bulk": "progress",
    "_session.sessions": "connect current_session restore server_info sync",
    "_session.snapshots": "Snapshot delete_snapshot snapshots",
    "_session.session": "Session",
    "_base.timeouts": "timeout",
    "_session.timings": "timings",
    "_tensor.tensor": "Tensor",
    "_tensor.warnings": "is_warn_always_enabled set_warn_always",
    "_graph.nodes": "graph",
    "_compile.compile": "compile",
    "_io.explain": "explain",
    "nn._summary": "summary",
    "_io.files": "load save",
    "_io.studio": "studio",
    "export._loaded": "load_program",
    "_session.saved_files": "SavedFile delete_saved_file saved_files",
    "func": "vmap",
    "_alias.imports": "alias",
    "library": "ops",
    "_functions.exchange": "asarray from_dlpack from_file from_torch frombuffer to_torch",
    "_base.printing": "set_printoptions",
    "_base.promotion": "can_cast promote_types",
    "_functions.create": (
        "arange as_tensor empty empty_like eye from_numpy full full_like is_tensor linspace logspace ones "
        "ones_like rand rand_like randint randint_like randn randn_like randperm scalar_tensor tensor zeros zeros_like"
    ),
    "_base.modes": "enable_grad inference_mode is_grad_enabled is_inference_mode_enabled no_grad set_grad_enabled",
    "_graph.anomaly": "is_anomaly_check_nan_enabled is_anomaly_enabled",
    "_functions.random": (
        "Generator bernoulli binomial default_generator get_rng_state initial_seed manual_seed multinomial normal "
        "poisson seed set_rng_state"
    ),
    "_base.dtypes": (
        "Size bfloat16 bool complex128 complex64 device dtype finfo float16 float32 float64 get_default_device "
        "get_default_dtype iinfo int16 int32 int64 int8 set_default_device set_default_dtype uint16 uint32 uint64 "
        "uint8"
    ),
    "_functions.legacy": (
        "BFloat16Tensor BoolTensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor IntTensor LongTensor "
        "ShortTensor are_deterministic_algorithms_enabled channels_last channels_last_3d contiguous_format "
        "get_float32_matmul_precision get_num_threads "
        "is_deterministic_algorithms_warn_only_enabled jagged layout memory_format preserve_format "
        "set_default_tensor_type sparse_bsc sparse_bsr sparse_coo sparse_csc sparse_csr strided "
        "set_float32_matmul_precision set_num_threads use_deterministic_algorithms"
    ),
    "amp": "GradScaler autocast",
    "amp._autocast": "clear_autocast_cache get_autocast_dtype is_autocast_cache_enabled is_autocast_enabled",
    "_functions.composed": (
        "adjoint bartlett_window blackman_window broadcast_shapes chain_matmul conj_physical hamming_window "
        "hann_window kaiser_window matrix_power pinverse qr range svd vander"
    ),
    "_functions.copies": (
        "alias_copy as_strided_copy as_strided_scatter detach_copy diagonal_copy empty_permuted empty_strided "
        "expand_copy narrow_copy permute_copy select_copy slice_copy split_copy split_with_sizes_copy squeeze_copy "
        "t_copy transpose_copy unbind_copy unfold_copy unsqueeze_copy view_as_complex_copy view_as_real_copy view_copy"
    ),
    "sparse": "spmm",
    "sparse._compressed": (
        "sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor sparse_csc_tensor sparse_csr_tensor"
    ),
    "sparse._coo": "sparse_coo_tensor",
    "_functions.counts": "gradient histogram histogramdd nonzero_static unravel_index",
    "_functions.quantized": "fake_quantize_per_channel_affine fake_quantize_per_tensor_affine",
    "_functions.quantized_tensors": (
        "dequantize per_channel_affine per_tensor_affine qscheme quantize_per_channel quantize_per_tensor "
        "quantize_per_tensor_dynamic quantized_batch_norm quantized_max_pool1d quantized_max_pool2d"
    ),
    "_functions.matrix_factors": (
        "cholesky frobenius_norm lobpcg lu lu_solve lu_unpack norm_except_dim nuclear_norm orgqr ormqr pca_lowrank "
        "svd_lowrank triangular_solve"
    ),
    "_functions.functions": (
        "atleast_1d atleast_2d atleast_3d clone conj dsplit einsum get_device hsplit imag is_complex is_conj "
        "is_floating_point is_inference is_neg is_nonzero is_same_size is_signed is_storage nonzero numel "
        "repeat_interleave resolve_conj resolve_neg result_type set_flush_denormal tensor_split tensordot typename "
        "vsplit where"
    ),
    "nn.functional": (
        "adaptive_avg_pool1d alpha_dropout avg_pool1d bilinear celu_ channel_shuffle conv1d conv2d conv3d "
        "conv_transpose1d conv_transpose2d conv_transpose3d cosine_similarity dropout feature_alpha_dropout group_norm "
        "layer_norm max_pool1d max_pool2d max_pool3d pairwise_distance pdist pixel_shuffle pixel_unshuffle rms_norm "
        "rrelu rrelu_ selu_ threshold_"
    ),
    "nn._functional.of_torch": (
        "adaptive_max_pool1d affine_grid_generator batch_norm binary_cross_entropy_with_logits constant_pad_nd "
        "convolution cosine_embedding_loss ctc_loss embedding embedding_bag grid_sampler hinge_embedding_loss "
        "instance_norm kl_div margin_ranking_loss max_pool1d_with_indices native_layer_norm poisson_nll_loss "
        "triplet_margin_loss"
    ),
    "nn._functional.sparse_tables": "gather",
    "nn._functional.native": (
        "grid_sampler_2d grid_sampler_3d gru_cell lstm_cell native_batch_norm native_channel_shuffle native_dropout "
        "native_group_norm rnn_relu_cell rnn_tanh_cell segment_reduce"
    ),
    "nn._functional.aten": (
        "_chunk_cat _log_softmax_backward_data _native_batch_norm_legit _safe_softmax _softmax_backward_data "
        "_unsafe_masked_index _unsafe_masked_index_put_accumulate hash_tensor"
    ),
    "_base.errors": (
        "GradwireConnectionError GradwireError GradwireIndexError GradwireLinAlgError GradwireMemoryError "
        "GradwireNotImplementedError GradwireOSError GradwirePermissionError GradwireRuntimeError "
        "GradwireTimeoutError GradwireTypeError GradwireValueError"
    ),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
# What lower packages call of higher ones besides public functions (`_base.wiring`), and where it is.
_WIRED = {
    "AUTOCAST_KINDS": "amp._autocast",
    "OpOverload": "library",
    "OpOverloadPacket": "library",
    "attribute": "_paths.modules",
    "backward": "_functions.backward",
    "base_again": "_dispatch.view_replay",
    "call_node": "autograd._node_calls",
    "call_with_casts": "amp._autocast",
    "compressed": "sparse._compressed",
    "legacy_tensor": "_functions.create",
    "make_fx": "fx.experimental.proxy_tensor",
    "make_tensor": "_functions.create",
    "map_anything": "func._vmap",
    "namespace": "array_api._info",
    "ops": "library",
    "record_function": "profiler",
    "reduce_tensor": "_functions.pickled",
    "register_module_forward_hook": "nn._hooks.of_all_modules",
    "register_module_forward_pre_hook": "nn._hooks.of_all_modules",
    "sparse_bsc": "_functions.legacy",
    "sparse_bsr": "_functions.legacy",
    "sparse_csc": "_functions.legacy",
    "sparse_csr": "_functions.legacy",
    "sparse_mask": "sparse._rules",
    "stored_array": "_functions.pickled",
    "to_sparse": "sparse._coo",
    "tree_flatten": "func._tree_names",
    "tree_unflatten": "func._tree_names",
    "view_again": "_dispatch.view_replay",
    "with_casts": "amp._autocast",
}
# PyTorch's second names of dtypes, and of functions.
_ALIASES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "int": "int32",
    "long": "int64",
    "short": "int16",
    "cfloat": "complex64",
    "cdouble": "complex128",
}
# In-place methods that PyTorch has as functions too.
_IN_PLACE_NAMES = (
    "abs_ acos_ acosh_ addmv_ arccos_ arccosh_ arcsin_ arcsinh_ arctan_ arctanh_ asin_ asinh_ atan_ atanh_ ceil_ "
    "clamp_ clamp_max_ clamp_min_ clip_ cos_ cosh_ deg2rad_ detach_ erf_ erfc_ exp2_ exp_ expm1_ fill_ fix_ floor_ "
    "frac_ gcd_ i0_ index_put_ lcm_ ldexp_ log10_ log1p_ log2_ log_ logit_ nan_to_num_ neg_ negative_ rad2deg_ "
    "reciprocal_ relu_ resize_as_ round_ rsqrt_ sigmoid_ sin_ sinc_ sinh_ sqrt_ square_ tan_ tanh_ trunc_ xlogy_ zero_ "
)
_IN_PLACE = frozenset(_IN_PLACE_NAMES.split())

pi = 3.141592653589793
e = 2.718281828459045
inf = 1e999
nan = inf - inf
newaxis = None


class _Paths:
    """Finder, after the files, of the modules of `_paths`."""

    @staticmethod
    def find_spec(name: str, path: _Any = None, target: _Any = None) -> _Any:
        if not name.startswith("gradwire."):
            return None
        return _import_module("gradwire._paths.finder").find(name)


_sys.meta_path.append(_Paths)


def __getattr__(name: str) -> _Any:
    if name in _MODULES or name in _TABLES:
        return _import_module(f"gradwire.{name}")
    name_there = _ALIASES.get(name, name)
    home = _HOMES.get(name_there)
    if home is not None:
        found = getattr(_import_module(f"gradwire.{home}"), name_there)
    elif name in _IN_PLACE and hasattr(_import_module("gradwire._tensor.tensor").Tensor, name):
        found = getattr(_import_module("gradwire._tensor.tensor").Tensor, name)
    elif name.startswith("__"):
        raise AttributeError(f"module 'gradwire' has no attribute '{name}'")
    else:
        ops = _import_module("gradwire._tensor.ops")
        if name_there in ops.TORCH_NAMES:
            found = getattr(ops, name_there)
        elif (found := _import_module("gradwire._paths.modules").of_root(name)) is None:
            raise _import_module("gradwire._base.absent").absent("gradwire", name, lambda: {*_HOMES, *ops.TORCH_NAMES})
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    in_place = {name for name in _IN_PLACE if hasattr(_import_module("gradwire._tensor.tensor").Tensor, name)}
    names = {
        *globals(),
        *_MODULES,
        *_TABLES,
        *_HOMES,
        *_ALIASES,
        *in_place,
        *_import_module("gradwire._tensor.ops").TORCH_NAMES,
    }
    return [*sorted(name for name in names if not name.startswith("_")), "__version__"]
