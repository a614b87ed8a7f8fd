"""The ops that gradwire promises, by PyTorch's names, group by group: FIRST, then SECOND.

`find` says where a module (gradwire or torch) has a name: at the top, in nn.functional, or as a method of Tensor.
"""

from __future__ import annotations

from typing import Any

FIRST: dict[str, str] = {
    "unary": """
        abs neg sign sgn square sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin
        acos atan sinh cosh tanh asinh acosh atanh sigmoid logit erf erfc erfinv lgamma digamma floor ceil
        round trunc frac sinc nan_to_num isnan isinf isfinite logical_not""",
    "binary": """
        add sub mul div floor_divide remainder fmod pow atan2 hypot maximum minimum fmax fmin logaddexp
        xlogy copysign lerp addcmul addcdiv clamp where masked_fill heaviside""",
    "compare": "eq ne lt le gt ge isclose allclose equal isin logical_and logical_or logical_xor",
    "reduce": """
        sum nansum mean prod var std var_mean amax amin max min argmax argmin median quantile logsumexp all
        any count_nonzero cumsum cumprod cummax cummin logcumsumexp diff topk kthvalue sort argsort unique
        bincount searchsorted""",
    "linalg": """
        matmul mm bmm mv dot outer addmm baddbmm einsum tensordot kron cross trace cdist linalg.inv
        linalg.pinv linalg.det linalg.slogdet linalg.solve linalg.solve_triangular linalg.lstsq
        linalg.cholesky linalg.qr linalg.svd linalg.svdvals linalg.eigh linalg.eigvalsh linalg.vector_norm
        linalg.matrix_norm linalg.matrix_power linalg.multi_dot""",
    "shape": """
        view reshape permute transpose t mT movedim squeeze unsqueeze expand broadcast_to flatten unflatten
        select narrow Tensor.__getitem__ split chunk unbind Tensor.unfold diagonal diag diag_embed
        as_strided contiguous cat stack flip roll rot90 repeat tile repeat_interleave tril triu meshgrid
        clone""",
    "index": """
        Tensor.__setitem__ index_put index_select index_add index_copy index_fill gather scatter scatter_add
        scatter_reduce take take_along_dim masked_select masked_scatter nonzero select_scatter slice_scatter
        diagonal_scatter""",
    "complex": "complex polar real imag conj angle view_as_real view_as_complex",
    "fft": "fft.fft fft.ifft fft.rfft fft.irfft fft.fft2 fft.ifft2 fft.fftn fft.ifftn",
    "activation": """
        relu relu6 leaky_relu prelu elu selu celu gelu silu mish glu hardtanh hardsigmoid hardswish
        hardshrink softplus softsign softshrink tanhshrink logsigmoid softmax log_softmax""",
    "conv": """
        conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d avg_pool1d avg_pool2d
        avg_pool3d max_pool1d max_pool2d max_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
        adaptive_max_pool2d nn.functional.unfold nn.functional.fold pad interpolate grid_sample
        pixel_shuffle""",
    "layers": """
        linear bilinear embedding embedding_bag one_hot batch_norm layer_norm group_norm instance_norm
        rms_norm normalize cosine_similarity scaled_dot_product_attention dropout""",
    "loss": """
        mse_loss l1_loss smooth_l1_loss huber_loss nll_loss poisson_nll_loss gaussian_nll_loss
        hinge_embedding_loss margin_ranking_loss triplet_margin_loss ctc_loss cross_entropy
        binary_cross_entropy binary_cross_entropy_with_logits kl_div""",
    "creation": """
        tensor zeros ones full empty eye arange linspace zeros_like ones_like full_like rand randn randint
        randperm bernoulli normal multinomial Tensor.uniform_ manual_seed Generator""",
}

SECOND: dict[str, str] = {
    "unary": """
        positive signbit polygamma deg2rad rad2deg i0 special.ndtr special.ndtri special.log_ndtr
        special.erfcx special.entr special.i0e special.i1 special.i1e special.xlog1py special.zeta isposinf
        isneginf isreal bitwise_not""",
    "binary": """
        float_power rsub logaddexp2 ldexp nextafter igamma igammac mvlgamma gcd lcm bitwise_and bitwise_or
        bitwise_xor bitwise_left_shift bitwise_right_shift""",
    "reduce": """
        nanmean std_mean aminmax nanmedian nanquantile norm mode msort unique_consecutive histc bucketize
        cov corrcoef dist renorm trapezoid cumulative_trapezoid""",
    "linalg": """
        vdot inner addmv addr addbmm matrix_exp logdet cholesky_solve cholesky_inverse linalg.cross
        linalg.eig linalg.eigvals linalg.lu linalg.lu_factor linalg.lu_solve linalg.norm linalg.matrix_rank
        linalg.cond linalg.vander linalg.vecdot linalg.diagonal linalg.tensorinv linalg.tensorsolve
        linalg.householder_product""",
    "shape": """
        view_as reshape_as T mH H expand_as broadcast_tensors ravel split_with_sizes tensor_split hsplit
        vsplit dsplit diagflat hstack vstack dstack column_stack fliplr flipud block_diag cartesian_prod
        combinations atleast_1d atleast_2d atleast_3d sum_to_size""",
    "index": "index_reduce put argwhere tril_indices triu_indices",
    "nn": """
        threshold rrelu softmin adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool3d max_unpool2d
        pixel_unshuffle channel_shuffle local_response_norm multi_head_attention_forward dropout2d dropout3d
        alpha_dropout feature_alpha_dropout pairwise_distance pdist cosine_embedding_loss soft_margin_loss
        triplet_margin_with_distance_loss multi_margin_loss multilabel_margin_loss
        multilabel_soft_margin_loss""",
    "fft": """
        fft.hfft fft.ihfft fft.rfft2 fft.irfft2 fft.rfftn fft.irfftn fft.fftshift fft.ifftshift stft istft""",
    "random": """
        randn_like rand_like randint_like Tensor.exponential_ logspace Tensor.new_zeros Tensor.new_ones
        Tensor.new_full Tensor.new_empty Tensor.new_tensor scalar_tensor""",
}


def names(groups: dict[str, str]) -> list[str]:
    """All names of a list, in its order."""
    return [name for group in groups.values() for name in group.split()]


def find(module: Any, name: str) -> Any:
    """What `module` calls this op, or None: `torch.x`, `torch.linalg.x`, `torch.nn.functional.x` or `Tensor.x`."""
    for home in (module, module.nn.functional, module.Tensor):
        found = home
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is not None:
            return found
    return None
