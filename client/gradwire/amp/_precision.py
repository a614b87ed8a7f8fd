"""Precision of ops under autocast: the table of what PyTorch casts, by kind of device and op."""

from __future__ import annotations

_PRODUCTS = (
    "addbmm addmm baddbmm bmm conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d "
    "linalg.multi_dot linalg.vecdot linear lstm_layer matmul mm "
    "multi_head_attention_forward prelu rnn_layer scaled_dot_product_attention"
)
_LOSSES = (
    "binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss cross_entropy ctc_loss "
    "hinge_embedding_loss huber_loss kl_div l1_loss margin_ranking_loss mse_loss multi_margin_loss "
    "multilabel_margin_loss nll_loss poisson_nll_loss smooth_l1_loss soft_margin_loss triplet_margin_loss"
)
_DECOMPOSITIONS = (
    "cholesky_inverse cholesky_solve inverse linalg.cholesky linalg.cond linalg.eig linalg.eigh linalg.eigvals "
    "linalg.eigvalsh linalg.householder_product linalg.inv linalg.lstsq linalg.lu linalg.lu_factor "
    "linalg.lu_factor_ex linalg.lu_solve linalg.matrix_rank linalg.pinv linalg.qr linalg.solve "
    "linalg.solve_triangular linalg.svd linalg.svdvals linalg.tensorinv linalg.tensorsolve"
)
_TRANSFORMS = (
    "fft.fft fft.fft2 fft.fftn fft.hfft fft.ifft fft.ifft2 fft.ifftn fft.ihfft fft.irfft fft.irfft2 fft.irfftn "
    "fft.rfft fft.rfft2 fft.rfftn stft"
)
_OF_HALVES = (
    "acos asin cdist cosh cosine_similarity cumprod cumsum dist erfinv exp expm1 group_norm layer_norm log log10 log1p "
    "log2 log_softmax logsumexp norm normalize pairwise_distance pdist pow prod reciprocal renorm rsqrt sinh softmax "
    "softmin softplus sum tan"
)
_OF_PROCESSORS = (
    "adaptive_avg_pool3d adaptive_max_pool3d avg_pool3d cdist grid_sample max_pool3d max_unpool1d max_unpool2d "
    "max_unpool3d nanquantile polar prod quantile trace view_as_complex"
)
_JOINS = "cat index_copy stack"

#: Ops that compute in the region's dtype.
LOW: dict[str, frozenset[str]] = {
    "cpu": frozenset(_PRODUCTS.split()),
    "cuda": frozenset(f"{_PRODUCTS} addmv addr gru_layer mv".split()),
}
#: Ops that compute in float32.
HIGH: dict[str, frozenset[str]] = {
    "cpu": frozenset(f"{_LOSSES} {_DECOMPOSITIONS} {_TRANSFORMS} {_OF_PROCESSORS}".split()),
    "cuda": frozenset(f"{_LOSSES} {_OF_HALVES}".split()),
}
#: Ops that compute in the widest dtype of their tensors.
WIDEST: dict[str, frozenset[str]] = {
    "cpu": frozenset(_JOINS.split()),
    "cuda": frozenset(f"{_JOINS} addcdiv addcmul atan2 bilinear cross dot grid_sample index_put scatter_add".split()),
}
#: Ops with an argument `dtype`; with it PyTorch's autocast leaves them alone.
WITH_DTYPE = frozenset(["cumprod", "cumsum", "log_softmax", "norm", "prod", "softmax", "softmin", "sum"])
