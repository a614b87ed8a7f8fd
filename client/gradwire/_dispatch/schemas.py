"""Parameters of ATen's overloads: names, kinds and defaults, as PyTorch's dispatcher has them.

Each line gives a list of parameters and the overloads that have it, without ".default". What stands behind `*` is
keyword-only. Kinds: T tensor, i integer, f float, s number, b bool, c text, d dtype, g generator, x something else;
[] a list, ? or None.
"""

from __future__ import annotations

import ast
from functools import cache
from typing import Any, NamedTuple

_TEXT = """
self:T => _conj _conj_physical _local_scalar_dense abs abs_ acos acos_ acosh acosh_ alias alias_copy all angle any
    asin asin_ asinh asinh_ atan atan_ atanh atanh_ bitwise_not bitwise_not_ ceil ceil_ cos cos_ cosh cosh_ deg2rad
    deg2rad_ detach detach_ detach_copy digamma digamma_ erf erf_ erfc erfc_ erfinv erfinv_ exp exp2 exp2_ exp_ expm1
    expm1_ floor floor_ frac frac_ frexp.Tensor geqrf hardsigmoid hardsigmoid_ hardswish hardswish_ i0 i0_ isinf isnan
    isneginf isposinf lgamma lgamma_ lift_fresh linalg_eig linalg_matrix_exp log log10 log10_ log1p log1p_ log2 log2_
    log_ log_sigmoid_forward logical_not logical_not_ max median min mish mish_ nanmedian neg neg_ nonzero rad2deg
    rad2deg_ reciprocal reciprocal_ relu relu_ round round_ rsqrt rsqrt_ set_ sgn sgn_ sigmoid sigmoid_ sign sign_
    signbit silu silu_ sin sin_ sinc sinc_ sinh sinh_ special_bessel_j0 special_bessel_j1 special_bessel_y0
    special_bessel_y1 special_entr special_erfcx special_i0e special_i1 special_i1e special_log_ndtr
    special_modified_bessel_i0 special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1
    special_ndtri sqrt sqrt_ squeeze squeeze_ squeeze_copy t t_ t_copy tan tan_ tanh tanh_ trace trunc trunc_
    view_as_complex view_as_complex_copy view_as_real view_as_real_copy zero zero_
self:T other:T => atan2 atan2_ bitwise_and.Tensor bitwise_and_.Tensor bitwise_left_shift.Tensor
    bitwise_left_shift_.Tensor bitwise_or.Tensor bitwise_or_.Tensor bitwise_right_shift.Tensor
    bitwise_right_shift_.Tensor bitwise_xor.Tensor bitwise_xor_.Tensor copysign.Tensor copysign_.Tensor div.Tensor
    div_.Tensor eq.Tensor eq_.Tensor equal floor_divide floor_divide_.Tensor fmax fmin fmod.Tensor fmod_.Tensor gcd
    gcd_ ge.Tensor ge_.Tensor gt.Tensor gt_.Tensor hypot hypot_ igamma igamma_ igammac igammac_ is_same_size lcm lcm_
    ldexp.Tensor ldexp_ le.Tensor le_.Tensor logaddexp logaddexp2 logical_and logical_and_ logical_or logical_or_
    logical_xor logical_xor_ lt.Tensor lt_.Tensor maximum minimum mul.Tensor mul_.Tensor ne.Tensor ne_.Tensor
    nextafter nextafter_ remainder.Tensor remainder_.Tensor special_xlog1py special_zeta vdot xlogy.Tensor
    xlogy_.Tensor
self:T other:s => bitwise_and.Scalar bitwise_and_.Scalar bitwise_left_shift.Tensor_Scalar
    bitwise_left_shift_.Tensor_Scalar bitwise_or.Scalar bitwise_or_.Scalar bitwise_right_shift.Tensor_Scalar
    bitwise_right_shift_.Tensor_Scalar bitwise_xor.Scalar bitwise_xor_.Scalar copysign.Scalar copysign_.Scalar
    div.Scalar div_.Scalar eq.Scalar eq_.Scalar floor_divide.Scalar floor_divide_.Scalar fmod.Scalar fmod_.Scalar
    ge.Scalar ge_.Scalar gt.Scalar gt_.Scalar le.Scalar le_.Scalar lt.Scalar lt_.Scalar mul.Scalar mul_.Scalar
    ne.Scalar ne_.Scalar remainder.Scalar remainder_.Scalar special_xlog1py.other_scalar special_zeta.other_scalar
    xlogy.Scalar_Other xlogy_.Scalar_Other
x:T n:T => special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_chebyshev_polynomial_v
    special_chebyshev_polynomial_w special_hermite_polynomial_h special_hermite_polynomial_he
    special_laguerre_polynomial_l special_legendre_polynomial_p special_shifted_chebyshev_polynomial_t
    special_shifted_chebyshev_polynomial_u special_shifted_chebyshev_polynomial_v
    special_shifted_chebyshev_polynomial_w
x:T n:s => special_chebyshev_polynomial_t.n_scalar special_chebyshev_polynomial_u.n_scalar
    special_chebyshev_polynomial_v.n_scalar special_chebyshev_polynomial_w.n_scalar
    special_hermite_polynomial_h.n_scalar special_hermite_polynomial_he.n_scalar
    special_laguerre_polynomial_l.n_scalar special_legendre_polynomial_p.n_scalar
    special_shifted_chebyshev_polynomial_t.n_scalar special_shifted_chebyshev_polynomial_u.n_scalar
    special_shifted_chebyshev_polynomial_v.n_scalar special_shifted_chebyshev_polynomial_w.n_scalar
x:s n:T => special_chebyshev_polynomial_t.x_scalar special_chebyshev_polynomial_u.x_scalar
    special_chebyshev_polynomial_v.x_scalar special_chebyshev_polynomial_w.x_scalar
    special_hermite_polynomial_h.x_scalar special_hermite_polynomial_he.x_scalar
    special_laguerre_polynomial_l.x_scalar special_legendre_polynomial_p.x_scalar
    special_shifted_chebyshev_polynomial_t.x_scalar special_shifted_chebyshev_polynomial_u.x_scalar
    special_shifted_chebyshev_polynomial_v.x_scalar special_shifted_chebyshev_polynomial_w.x_scalar
self:T dim:i => cummax cummin logcumsumexp squeeze.dim squeeze_.dim squeeze_copy.dim unsqueeze unsqueeze_
    unsqueeze_copy
self:s other:T => bitwise_and.Scalar_Tensor bitwise_left_shift.Scalar_Tensor bitwise_or.Scalar_Tensor
    bitwise_right_shift.Scalar_Tensor bitwise_xor.Scalar_Tensor remainder.Scalar_Tensor special_xlog1py.self_scalar
    special_zeta.self_scalar xlogy.Scalar_Self
self:T dim:i keepdim:b=False => all.dim any.dim max.dim median.dim min.dim nanmedian.dim
self:T * dtype:d?=None layout:x?=None device:x?=None pin_memory:b?=None memory_format:x?=None => empty_like ones_like
    rand_like randn_like zeros_like
self:T other:T * alpha:s=1 => add.Tensor add_.Tensor rsub.Tensor sub.Tensor sub_.Tensor
self:T other:s alpha:s=1 => add.Scalar add_.Scalar rsub.Scalar sub.Scalar sub_.Scalar
self:T batch1:T batch2:T * beta:s=1 alpha:s=1 => addbmm addbmm_ baddbmm baddbmm_
self:T diagonal:i=0 => tril tril_ triu triu_
self:T dim:i * dtype:d?=None => cumprod cumprod_ cumsum cumsum_
self:T dim:i index:T src:T => scatter.src scatter_.src scatter_add scatter_add_
self:T dim:i index:T value:s => index_fill.int_Scalar index_fill_.int_Scalar scatter.value scatter_.value
self:T dim:i[] => count_nonzero.dim_IntList squeeze.dims squeeze_.dims squeeze_copy.dims
self:T dim:i[]?=None * correction:s?=None keepdim:b=False => std.correction std_mean.correction var.correction
    var_mean.correction
self:T output_size:i[] => _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d
self:T padding:i[] => reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d
self:T tensor1:T tensor2:T * value:s=1 => addcdiv addcdiv_ addcmul addcmul_
size:i[] * dtype:d?=None layout:x?=None device:x?=None pin_memory:b?=None => ones rand randn zeros
x:T => special_airy_ai special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1 special_spherical_bessel_j0
self:T * dtype:d?=None => mean prod sum
self:T * generator:g?=None => bernoulli random random_
self:T dim0:i dim1:i => transpose.int transpose_ transpose_copy.int
self:T dims:i[] => flip permute permute_copy
self:T p:f * generator:g?=None => bernoulli.p geometric geometric_
self:T size:i[] => _unsafe_view view view_copy
self:T size:i[] * dtype:d?=None layout:x?=None device:x?=None pin_memory:b?=None => new_empty new_ones new_zeros
self:T size:i[] stride:i[] storage_offset:i?=None => as_strided as_strided_ as_strided_copy
self:T split_size:i dim:i=0 => split.Tensor split_copy.Tensor unsafe_split.Tensor
self:T split_sizes:i[] dim:i=0 => split_with_sizes split_with_sizes_copy unsafe_split_with_sizes
A:T => _linalg_det _linalg_slogdet
grad_output:T output:T => sigmoid_backward tanh_backward
grad_output:T output:T dim:i input_dtype:d => _log_softmax_backward_data _softmax_backward_data
row:i col:i offset:i=0 * dtype:d?=4 layout:x?=None device:x?=None pin_memory:b?=None => tril_indices triu_indices
self:T * approximate:c='none' => gelu gelu_
self:T * decimals:i => round.decimals round_.decimals
self:T alpha:s=1 scale:s=1 input_scale:s=1 => elu elu_
self:T alpha:s=1. => celu celu_
self:T dim:i half_to_float:b => _log_softmax _softmax
self:T dim:i index:T source:T => index_copy index_copy_
self:T dim:i index:T source:T * alpha:s=1 => index_add index_add_
self:T dim:i index:T source:T reduce:c * include_self:b=True => index_reduce index_reduce_
self:T dim:i index:T src:T * reduce:c => scatter.reduce scatter_.reduce
self:T dim:i index:T src:T reduce:c * include_self:b=True => scatter_reduce.two scatter_reduce_.two
self:T dim:i index:T value:T => index_fill.int_Tensor index_fill_.int_Tensor
self:T dim:i index:T value:s * reduce:c => scatter.value_reduce scatter_.value_reduce
self:T dim:i index:i => select.int select_copy.int
self:T dim:i keepdim:b=False * values:T indices:T => median.dim_values nanmedian.dim_values
self:T dim:i=0 => unbind.int unbind_copy.int
self:T dim:i=0 start:i?=None end:i?=None step:i=1 => slice.Tensor slice_copy.Tensor
self:T dim:i?=None keepdim:b=False => argmax argmin
self:T dim:i[]=[] keepdim:b=False => amax amin
self:T dim:i[]? keepdim:b=False * dtype:d?=None => mean.dim sum.dim_IntList
self:T dim:i[]?=None keepdim:b=False => all.dims any.dims
self:T dimension:i size:i step:i => unfold unfold_copy
self:T dtype:d => view.dtype view_copy.dtype
self:T end:T weight:T => lerp.Tensor lerp_.Tensor
self:T end:T weight:s => lerp.Scalar lerp_.Scalar
self:T eps:f?=None => logit logit_
self:T exponent:T => pow.Tensor_Tensor pow_.Tensor
self:T exponent:s => pow.Tensor_Scalar pow_.Scalar
self:T from:f=0. to:f=1. * generator:g?=None => uniform uniform_
self:T from:i to:i? * generator:g?=None => random.from random_.from
self:T index:T source:T accumulate:b=False => put put_
self:T indices:T?[] values:T accumulate:b=False => index_put index_put_
self:T kernel_size:i[] stride:i[]=[] padding:i[]=0 ceil_mode:b=False count_include_pad:b=True divisor_override:i?=None
    => avg_pool2d avg_pool3d
self:T kernel_size:i[] stride:i[]=[] padding:i[]=0 dilation:i[]=1 ceil_mode:b=False => max_pool2d_with_indices
    max_pool3d_with_indices
self:T lambd:f=1. * generator:g?=None => exponential exponential_
self:T lambd:s=0.5 => hardshrink softshrink
self:T mask:T source:T => masked_scatter masked_scatter_
self:T mask:T value:T => masked_fill.Tensor masked_fill_.Tensor
self:T mask:T value:s => masked_fill.Scalar masked_fill_.Scalar
self:T mat1:T mat2:T * beta:s=1 alpha:s=1 => addmm addmm_
self:T mat2:T => bmm mm
self:T mat2:T out_dtype:d => bmm.dtype mm.dtype
self:T mat:T vec:T * beta:s=1 alpha:s=1 => addmv addmv_
self:T max:T => clamp_max.Tensor clamp_max_.Tensor
self:T max:s => clamp_max clamp_max_
self:T mean:f=0. std:f=1. * generator:g?=None => normal_ normal_functional
self:T mean:f=1. std:f=2. * generator:g?=None => log_normal log_normal_
self:T median:f=0. sigma:f=1. * generator:g?=None => cauchy cauchy_
self:T min:T => clamp_min.Tensor clamp_min_.Tensor
self:T min:T?=None max:T?=None => clamp.Tensor clamp_.Tensor
self:T min:s => clamp_min clamp_min_
self:T min:s?=None max:s?=None => clamp clamp_
self:T min_val:s=-1 max_val:s=1 => hardtanh hardtanh_
self:T nan:f?=None posinf:f?=None neginf:f?=None => nan_to_num nan_to_num_
self:T negative_slope:s=0.01 => leaky_relu leaky_relu_
self:T offset:i=0 dim1:i=0 dim2:i=1 => diagonal diagonal_copy
self:T other:T * rounding_mode:c? => div.Tensor_mode div_.Tensor_mode
self:T other:s * rounding_mode:c? => div.Scalar_mode div_.Scalar_mode
self:T output_size:i[] align_corners:b scales_h:f?=None scales_w:f?=None => upsample_bicubic2d upsample_bilinear2d
self:T p:T * generator:g?=None => bernoulli.Tensor bernoulli_.Tensor
self:T p:i => mvlgamma mvlgamma_
self:T p:s dim:i maxnorm:s => renorm renorm_
self:T size:i[] * implicit:b=False => expand expand_copy
self:T size:i[] * memory_format:x?=None => resize resize_
self:T src:T non_blocking:b=False => copy copy_
self:T target:T reduction:i=1 => mse_loss soft_margin_loss
self:T target:T weight:T? reduction:i ignore_index:i => nll_loss2d_forward nll_loss_forward
self:T target:T weight:T? reduction:i ignore_index:i * output:T total_weight:T => nll_loss2d_forward.output
    nll_loss_forward.output
self:T threshold:s value:s => threshold threshold_
self:T to:i * generator:g?=None => random.to random_.to
self:T value:T => fill.Tensor fill_.Tensor
self:T value:s => fill.Scalar fill_.Scalar
self:T values:T => heaviside heaviside_
self:T vec1:T vec2:T * beta:s=1 alpha:s=1 => addr addr_
tensors:T[] dim:i=0 => cat stack
A:T * check_errors:b=False => linalg_inv_ex
A:T * check_errors:b=False inverse:T info:T => linalg_inv_ex.inverse
A:T * pivot:b=True => linalg_lu
A:T * pivot:b=True check_errors:b=False => linalg_lu_factor_ex
A:T * result:T LU:T pivots:T => _linalg_det.result
A:T * sign:T logabsdet:T LU:T pivots:T => _linalg_slogdet.sign
A:T B:T * left:b=True check_errors:b=False => _linalg_solve_ex
A:T B:T * left:b=True check_errors:b=False result:T LU:T pivots:T info:T => _linalg_solve_ex.result
A:T UPLO:c='L' compute_v:b=True => _linalg_eigh
A:T UPLO:c='L' compute_v:b=True * eigenvalues:T eigenvectors:T => _linalg_eigh.eigenvalues
A:T full_matrices:b=False compute_uv:b=True * driver:c?=None => _linalg_svd
A:T full_matrices:b=False compute_uv:b=True * driver:c?=None U:T S:T Vh:T => _linalg_svd.U
A:T mode:c='reduced' => linalg_qr
LD:T pivots:T B:T * hermitian:b=False => linalg_ldl_solve
LU:T pivots:T B:T * left:b=True adjoint:b=False => linalg_lu_solve
abs:T angle:T => polar
condition:T self:T other:T => where.self
count:T prob:T generator:g?=None => binomial
element:s test_elements:T * assume_unique:b=False invert:b=False => isin.Scalar_Tensor
elements:T test_element:s * assume_unique:b=False invert:b=False => isin.Tensor_Scalar
elements:T test_elements:T * assume_unique:b=False invert:b=False => isin.Tensor_Tensor
end:s * dtype:d?=None layout:x?=None device:x?=None pin_memory:b?=None => arange
grad_out:T input:T mean:T rstd:T weight:T? N:i C:i HxW:i group:i output_mask:b[] => native_group_norm_backward
grad_out:T input:T normalized_shape:i[] mean:T rstd:T weight:T? bias:T? output_mask:b[] => native_layer_norm_backward
grad_out:T input:T weight:T? running_mean:T? running_var:T? save_mean:T? save_invstd:T? train:b eps:f output_mask:b[]
    => native_batch_norm_backward
grad_out:T query:T key:T value:T out:T logsumexp:T dropout_p:f is_causal:b * attn_mask:T?=None scale:f?=None =>
    _scaled_dot_product_flash_attention_for_cpu_backward
grad_output:T alpha:s scale:s input_scale:s is_result:b self_or_result:T => elu_backward
grad_output:T indices:T num_weights:i padding_idx:i scale_grad_by_freq:b => embedding_dense_backward
grad_output:T input:T weight:T bias_sizes:i[]? stride:i[] padding:i[] dilation:i[] transposed:b output_padding:i[]
    groups:i output_mask:b[] => convolution_backward
grad_output:T input_sizes:i[] dim:i index:i => select_backward
grad_output:T input_sizes:i[] dim:i start:i end:i step:i => slice_backward
grad_output:T mask:T scale:f => native_dropout_backward
grad_output:T self:T => _adaptive_avg_pool2d_backward
grad_output:T self:T * approximate:c='none' => gelu_backward
grad_output:T self:T kernel_size:i[] stride:i[] padding:i[] ceil_mode:b count_include_pad:b divisor_override:i? =>
    avg_pool2d_backward
grad_output:T self:T kernel_size:i[] stride:i[] padding:i[] dilation:i[] ceil_mode:b indices:T =>
    max_pool2d_with_indices_backward
grad_output:T self:T negative_slope:s self_is_result:b => leaky_relu_backward
grad_output:T self:T target:T reduction:i => mse_loss_backward
grad_output:T self:T target:T weight:T? reduction:i ignore_index:i total_weight:T => nll_loss_backward
grad_output:T self:T threshold:s => threshold_backward
high:i size:i[] * dtype:d?=4 layout:x?=None device:x?=None pin_memory:b?=None => randint
input:T grid:T interpolation_mode:i padding_mode:i align_corners:b => grid_sampler_2d
input:T normalized_shape:i[] weight:T? bias:T? eps:f => native_layer_norm
input:T p:f train:b? => native_dropout
input:T tau:T => linalg_householder_product
input:T weight:T bias:T? stride:i[] padding:i[] dilation:i[] transposed:b output_padding:i[] groups:i => convolution
input:T weight:T? bias:T? N:i C:i HxW:i group:i eps:f => native_group_norm
input:T weight:T? bias:T? running_mean:T running_var:T training:b momentum:f eps:f => _native_batch_norm_legit
input:T weight:T? bias:T? running_mean:T? running_var:T? training:b momentum:f eps:f => native_batch_norm
input:T weight:T? bias:T? training:b momentum:f eps:f => _native_batch_norm_legit.no_stats
low:i high:i size:i[] * dtype:d?=4 layout:x?=None device:x?=None pin_memory:b?=None => randint.low
mean:T std:T * generator:g?=None => normal.Tensor_Tensor
mean:T std:f=1. * generator:g?=None => normal.Tensor_float
mean:f std:T * generator:g?=None => normal.float_Tensor
mean:f std:f size:i[] * generator:g?=None dtype:d?=None layout:x?=None device:x?=None pin_memory:b?=None =>
    normal.float_float
n:i * dtype:d?=4 layout:x?=None device:x?=None pin_memory:b?=None => randperm
n:i * dtype:d?=None layout:x?=None device:x?=None pin_memory:b?=None => eye
n:i m:i * dtype:d?=None layout:x?=None device:x?=None pin_memory:b?=None => eye.m
n:i self:T => polygamma
query:T key:T value:T attn_bias:T? compute_log_sumexp:b dropout_p:f=0. is_causal:b=False * scale:f?=None =>
    _scaled_dot_product_efficient_attention
query:T key:T value:T dropout_p:f=0. is_causal:b=False * attn_mask:T?=None scale:f?=None =>
    _scaled_dot_product_flash_attention_for_cpu
real:T imag:T => complex
repeats:T * output_size:i?=None => repeat_interleave.Tensor
s:s * dtype:d?=None layout:x?=None device:x?=None pin_memory:b?=None => scalar_tensor
self:T * a:T tau:T => geqrf.a
self:T * atol:T?=None rtol:T?=None hermitian:b=False => linalg_pinv.atol_rtol_tensor
self:T * dim:i?=None keepdim:b=False => aminmax
self:T * dtype:d?=None layout:x?=None device:x?=None pin_memory:b?=None non_blocking:b=False memory_format:x?=None =>
    _to_copy
self:T * hermitian:b=False check_errors:b=False => linalg_ldl_factor_ex
self:T * memory_format:x?=None => clone
self:T * output:T buffer:T => log_sigmoid_forward.output
self:T * stable:b? dim:i=-1 descending:b=False => sort.stable
self:T * stable:b? dim:i=-1 descending:b=False values:T indices:T => sort.values_stable
self:T * upper:b=False check_errors:b=False => linalg_cholesky_ex
self:T * upper:b=False check_errors:b=False L:T info:T => linalg_cholesky_ex.L
self:T B:T * upper:b left:b=True unitriangular:b=False => linalg_solve_triangular
self:T b:T rcond:f?=None * driver:c?=None => linalg_lstsq
self:T batch1:T batch2:T out_dtype:d * beta:s=1 alpha:s=1 => baddbmm.dtype
self:T beta:s=1 threshold:s=20 => softplus
self:T bins:i=100 min:s=0 max:s=0 => histc
self:T boundaries:T * out_int32:b=False right:b=False => bucketize.Tensor
self:T dim:i index:T => index_select
self:T dim:i index:T * sparse_grad:b=False => gather
self:T dim:i keepdim:b=False * dtype:d?=None => prod.dim_int
self:T dim:i sorted:b=True return_inverse:b=False return_counts:b=False => unique_dim
self:T dim:i=-1 => glu
self:T dim:i=-1 descending:b=False => sort
self:T dim:i=-1 keepdim:b=False => mode
self:T dim:i?=None => count_nonzero
self:T dim:i[] keepdim:b=False => logsumexp
self:T dim:i[] normalization:i forward:b => _fft_c2c
self:T dim:i[] normalization:i last_dim_size:i => _fft_c2r
self:T dim:i[] normalization:i onesided:b => _fft_r2c
self:T dim:i[]?=None keepdim:b=False * dtype:d?=None => nansum
self:T downscale_factor:i => pixel_unshuffle
self:T fill_value:s * dtype:d?=None layout:x?=None device:x?=None pin_memory:b?=None memory_format:x?=None =>
    full_like
self:T generator:g?=None => poisson
self:T groups:i => channel_shuffle
self:T high:T * dtype:d?=None layout:x?=None device:x?=None pin_memory:b?=None memory_format:x?=None =>
    randint_like.Tensor
self:T high:T * generator:g? dtype:d?=None layout:x?=None device:x?=None pin_memory:b?=None memory_format:x?=None =>
    randint_like.Tensor_generator
self:T high:i * dtype:d?=None layout:x?=None device:x?=None pin_memory:b?=None memory_format:x?=None => randint_like
self:T index:T => take
self:T indices:T output_size:i[] => max_unpool2d
self:T indices:T output_size:i[] stride:i[] padding:i[] => max_unpool3d
self:T indices:T?[] => index.Tensor
self:T indices:T?[] values:T accumulate:b=False unsafe:b=False => _index_put_impl_
self:T input2:T upper:b=False => cholesky_solve
self:T k:i dim:i=-1 keepdim:b=False => kthvalue
self:T k:i dim:i=-1 largest:b=True sorted:b=True => topk
self:T kernel_size:i[] dilation:i[] padding:i[] stride:i[] => im2col
self:T low:i high:i * dtype:d?=None layout:x?=None device:x?=None pin_memory:b?=None memory_format:x?=None =>
    randint_like.low_dtype
self:T low:i high:i * generator:g? dtype:d?=None layout:x?=None device:x?=None pin_memory:b?=None
    memory_format:x?=None => randint_like.low_generator_dtype
self:T mask:T => masked_select
self:T mat1:T mat2:T out_dtype:d * beta:s=1 alpha:s=1 => addmm.dtype
self:T n:i => polygamma_
self:T num_samples:i replacement:b=False * generator:g?=None => multinomial
self:T offset:i=0 dim1:i=-2 dim2:i=-1 => diag_embed
self:T ord:s=2 dim:i[]?=None keepdim:b=False * dtype:d?=None => linalg_vector_norm
self:T other:T * dim:i=-1 => linalg_cross
self:T other:T * out:T => xlogy.OutTensor
self:T other:T p:s=2 => dist
self:T other:T rtol:f=1e-05 atol:f=1e-08 equal_nan:b=False => allclose
self:T other:s * out:T => xlogy.OutScalar_Other
self:T output_size:i[] align_corners:b scales:f?=None => upsample_linear1d
self:T output_size:i[] kernel_size:i[] dilation:i[] padding:i[] stride:i[] => col2im
self:T output_size:i[] scales:f?=None => upsample_nearest1d
self:T output_size:i[] scales_d:f?=None scales_h:f?=None scales_w:f?=None => upsample_nearest3d
self:T output_size:i[] scales_h:f?=None scales_w:f?=None => upsample_nearest2d
self:T p:f=0.5 * generator:g?=None => bernoulli_.float
self:T p:s=2 => norm.Scalar
self:T p:s? * dtype:d => norm.ScalarOpt_dtype
self:T p:s? dim:i[] keepdim:b * dtype:d => norm.ScalarOpt_dim_dtype
self:T p:s? dim:i[] keepdim:b=False => norm.ScalarOpt_dim
self:T pad:i[] value:s=0 => constant_pad_nd
self:T repeats:i[] => repeat
self:T return_inverse:b=False return_counts:b=False dim:i?=None => unique_consecutive
self:T shifts:i[] dims:i[]=[] => roll
self:T size:i[] fill_value:s * dtype:d?=None layout:x?=None device:x?=None pin_memory:b?=None => new_full
self:T size:i[] stride:i[] => _reshape_alias
self:T size:i[] stride:i[] * dtype:d?=None layout:x?=None device:x?=None pin_memory:b?=None => new_empty_strided
self:T sorted:b=True return_inverse:b=False return_counts:b=False => _unique2
self:T source:T => set_.source_Tensor
self:T src:T dim:i index:i => select_scatter
self:T src:T dim:i=0 start:i?=None end:i?=None step:i=1 => slice_inverse slice_scatter
self:T src:T offset:i=0 dim1:i=0 dim2:i=1 => diagonal_scatter
self:T target:T p:s=1 margin:s=1 weight:T?=None reduction:i=1 => multi_margin_loss
self:T target:T reduction:i=1 beta:f=1. => smooth_l1_loss
self:T target:T reduction:i=1 delta:f=1. => huber_loss
self:T target:T weight:T?=None pos_weight:T?=None reduction:i=1 => binary_cross_entropy_with_logits
self:T target:T weight:T?=None reduction:i=1 => binary_cross_entropy
self:T tensor:T => dot
self:T upper:b=False => cholesky_inverse
self:T upscale_factor:i => pixel_shuffle
self:T values:T indices:T dim:i => _cummax_helper
self:T vec:T => mv
self:T weights:T?=None minlength:i=0 => bincount
self:s boundaries:T * out_int32:b=False right:b=False => bucketize.Scalar
self:s exponent:T => pow.Scalar
self:s other:T * out:T => xlogy.OutScalar_Self
size:i[] * dtype:d?=None layout:x?=None device:x?=None pin_memory:b?=None memory_format:x?=None => empty.memory_format
size:i[] fill_value:s * dtype:d?=None layout:x?=None device:x?=None pin_memory:b?=None => full
size:i[] stride:i[] * dtype:d?=None layout:x?=None device:x?=None pin_memory:b?=None => empty_strided
sorted_sequence:T self:T * out_int32:b=False right:b=False side:c?=None sorter:T?=None => searchsorted.Tensor
sorted_sequence:T self:s * out_int32:b=False right:b=False side:c?=None sorter:T?=None => searchsorted.Scalar
start:T end:T steps:i * dtype:d?=None layout:x?=None device:x?=None pin_memory:b?=None => linspace.Tensor_Tensor
start:T end:T steps:i base:f=10. * dtype:d?=None layout:x?=None device:x?=None pin_memory:b?=None =>
    logspace.Tensor_Tensor
start:T end:s steps:i * dtype:d?=None layout:x?=None device:x?=None pin_memory:b?=None => linspace.Tensor_Scalar
start:T end:s steps:i base:f=10. * dtype:d?=None layout:x?=None device:x?=None pin_memory:b?=None =>
    logspace.Tensor_Scalar
start:s end:T steps:i * dtype:d?=None layout:x?=None device:x?=None pin_memory:b?=None => linspace.Scalar_Tensor
start:s end:T steps:i base:f=10. * dtype:d?=None layout:x?=None device:x?=None pin_memory:b?=None =>
    logspace.Scalar_Tensor
start:s end:s * dtype:d?=None layout:x?=None device:x?=None pin_memory:b?=None => arange.start
start:s end:s step:s=1 * dtype:d?=None layout:x?=None device:x?=None pin_memory:b?=None => arange.start_step
start:s end:s steps:i * dtype:d?=None layout:x?=None device:x?=None pin_memory:b?=None => linspace
start:s end:s steps:i base:f=10. * dtype:d?=None layout:x?=None device:x?=None pin_memory:b?=None => logspace
tensors:T[] => block_diag
weight:T indices:T offsets:T scale_grad_by_freq:b=False mode:i=0 sparse:b=False per_sample_weights:T?=None
    include_last_offset:b=False padding_idx:i=-1 => _embedding_bag
weight:T indices:T padding_idx:i=-1 scale_grad_by_freq:b=False sparse:b=False => embedding
x1:T x2:T p:f compute_mode:i? => _cdist_forward
"""


class Parameter(NamedTuple):
    """One parameter of an overload. `required`: whether it has no default."""

    name: str
    kind: str
    is_keyword: bool
    required: bool
    default: Any


Schema = tuple[Parameter, ...]


@cache
def schemas() -> dict[str, dict[str, Schema]]:
    """Per op of ATen its overloads' parameters."""
    found: dict[str, dict[str, Schema]] = {}
    for line in _TEXT.strip().replace("\n    ", " ").splitlines():
        parameters, _, names = line.partition(" => ")
        schema = _schema(parameters)
        for each in names.split():
            name, _, overload = each.partition(".")
            found.setdefault(name, {})[overload or "default"] = schema
    return found


def schema_of(name: str, overload: str) -> Schema | None:
    """The parameters of an overload; None for one that the table lacks."""
    return schemas().get(name, {}).get(overload)


def _schema(text: str) -> Schema:
    is_keyword, found = False, []
    for part in text.split():
        if part == "*":
            is_keyword = True
            continue
        name, _, rest = part.partition(":")
        kind, equals, default = rest.partition("=")
        value = None if not equals or kind[0] == "x" or kind[0] == "d" else ast.literal_eval(_literal(default))
        found.append(Parameter(name, kind, is_keyword, not equals, value))
    return tuple(found)


def _literal(default: str) -> str:
    return repr(default) if default.isalpha() and default not in ("None", "True", "False") else default
