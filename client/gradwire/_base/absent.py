"""Absent names: suggests the nearest names and marks the ops of PyTorch that gradwire lacks."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from gradwire._base.errors import GradwireNotImplementedError

# PyTorch's ops and functions that gradwire lacks, keyed by module. A test compares them with PyTorch.
PYTORCH: dict[str, str] = {
    "gradwire": """
        as_strided_ dequantize eig embedding_bag embedding_renorm_ gru gru_cell lstm lstm_cell lstsq
        native_batch_norm native_dropout native_group_norm quantize_per_channel quantize_per_tensor rnn_relu
        rnn_tanh segment_reduce solve sparse_bsr_tensor sparse_coo_tensor sparse_csc_tensor sparse_csr_tensor
        symeig""",
    "gradwire.linalg": "ldl_factor ldl_factor_ex ldl_solve",
    "gradwire.special": """
        airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 chebyshev_polynomial_t chebyshev_polynomial_u
        chebyshev_polynomial_v chebyshev_polynomial_w hermite_polynomial_h hermite_polynomial_he
        laguerre_polynomial_l legendre_polynomial_p modified_bessel_i0 modified_bessel_i1 modified_bessel_k0
        modified_bessel_k1 scaled_modified_bessel_k0 scaled_modified_bessel_k1 shifted_chebyshev_polynomial_t
        shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w
        spherical_bessel_j0""",
    "gradwire.nn.functional": "conv_tbc grouped_mm linear_cross_entropy scaled_grouped_mm scaled_mm",
    "Tensor": "coalesce indices lstsq reinforce resize_ set_ sparse_mask to_sparse values",
}


class GradwireAbsentError(GradwireNotImplementedError, AttributeError):
    """A name that PyTorch has and gradwire lacks."""


def absent(home: str, name: str, known: Iterable[str]) -> AttributeError:
    """The error for a name that `home` lacks. It suggests the nearest names and says if PyTorch has the name."""
    near = difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.55)
    hint = f". Did you mean: {', '.join(near)}?" if near else ""
    if name in PYTORCH.get(home, "").split():
        error = GradwireAbsentError(f"{home} has no '{name}': PyTorch's op of that name is not supported here{hint}")
        error.reason, error.code = "OP_UNKNOWN", 12
        return error
    owner = "'Tensor' object" if home == "Tensor" else f"module '{home}'"
    return AttributeError(f"{owner} has no attribute '{name}'{hint}", name=name)
