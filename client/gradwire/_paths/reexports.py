"""Module paths of PyTorch whose names are in other modules of gradwire.

Each value names the homes, searched in order, then pairs `name=home.name` for names that differ.
"""

_NN_HOMES = {
    "activation": "nn._activation nn._transformer",
    "adaptive": "nn",
    "batchnorm": "nn._norm nn._sync_norm nn._lazy _NormBase=nn._norm._BatchNorm",
    "channelshuffle": "nn._shape",
    "container": "nn._containers",
    "conv": "nn._conv nn._lazy",
    "distance": "nn._shape",
    "dropout": "nn._layers _DropoutNd=nn._layers._Dropout",
    "flatten": "nn._layers",
    "fold": "nn._shape",
    "instancenorm": "nn._norm nn._lazy",
    "linear": "nn._layers nn._transformer nn._lazy",
    "loss": "nn._loss nn._linear_loss",
    "linear_cross_entropy_options": "nn._linear_loss",
    "module": "nn._module nn._hooks.of_all_modules _global_forward_hooks=nn._hooks.of_all_modules.HOOKS "
    "_global_forward_pre_hooks=nn._hooks.of_all_modules.PRE_HOOKS "
    "_global_backward_hooks=nn._hooks.of_all_modules.BACKWARD_HOOKS "
    "_global_backward_pre_hooks=nn._hooks.of_all_modules.BACKWARD_PRE_HOOKS "
    "_global_forward_hooks_always_called=nn._hooks.of_all_modules.ALWAYS_CALLED "
    "_global_forward_hooks_with_kwargs=nn._hooks.of_all_modules.WITH_KWARGS "
    "_EXTRA_STATE_KEY_SUFFIX=nn._state.EXTRA_STATE_KEY "
    "_IncompatibleKeys=nn._state.IncompatibleKeys "
    "_addindent=nn._module.add_indent Parameter=nn.Parameter RemovableHandle=utils.hooks.RemovableHandle",
    "normalization": "nn._norm",
    "padding": "nn._shape _ConstantPadNd=nn._shape._ConstantPad",
    "pixelshuffle": "nn._shape",
    "pooling": "nn._pool",
    "rnn": "nn._rnn",
    "sparse": "nn._layers",
    "transformer": "nn._transformer",
    "upsampling": "nn._shape",
    "utils": "nn.utils._tuples",
}
_DISTRIBUTIONS = (
    "bernoulli", "beta", "binomial", "categorical", "cauchy", "chi2", "continuous_bernoulli", "dirichlet", "exp_family",
    "exponential", "fishersnedecor", "gamma", "generalized_pareto", "geometric", "gumbel", "half_cauchy", "half_normal",
    "independent", "inverse_gamma", "kumaraswamy", "laplace", "lkj_cholesky", "log_normal", "logistic_normal",
    "lowrank_multivariate_normal", "mixture_same_family", "multinomial", "multivariate_normal", "negative_binomial",
    "normal", "one_hot_categorical", "pareto", "poisson", "studentT", "transformed_distribution", "uniform",
    "von_mises", "weibull", "wishart",
)  # fmt: skip
_OPTIMIZERS = "_adafactor _muon adadelta adagrad adam adamax adamw asgd lbfgs nadam radam rmsprop rprop sgd sparse_adam"

REEXPORTS: dict[str, str] = {
    "": "_unique=_functions.counts._unique _unique2=_functions.counts._unique2 "
    "_functions.foreach _functions.asserts torch=. ScriptModule=jit.ScriptModule ScriptFunction=jit.ScriptFunction "
    "Stream=cuda.Stream Event=cuda.Event OutOfMemoryError=_base.errors.GradwireMemoryError "
    "legacy_contiguous_format=_functions.legacy.contiguous_format "
    "is_autocast_cpu_enabled=amp._autocast.is_autocast_cpu_enabled "
    "get_autocast_cpu_dtype=amp._autocast.get_autocast_cpu_dtype "
    "get_autocast_gpu_dtype=amp._autocast.get_autocast_gpu_dtype "
    "UntypedStorage=_tensor.storages.UntypedStorage TypedStorage=_tensor.storages.TypedStorage",
    "nn": "DataParallel=nn.parallel.DataParallel",
    "_vmap_internals": "_vmap=func._vmap.map_anything",
    "_functorch.make_functional": "func._make_functional",
    "_functorch.batch_norm_replacement": "func._make_functional",
    "_functorch.eager_transforms": "func._derivatives func",
    "_functorch.autograd_function": "func._wrapped_ctx func._generated_rule func._function_rule",
    "_functorch.pyfunctorch": "retrieve_current_functorch_interpreter=func._interpreters.peek_interpreter_stack",
    "_functorch.utils": "enable_single_level_autograd_function="
    "func._interpreters.enable_single_level_autograd_function",
    "_C._functorch": "func._interpreters",
    "nn.modules": "nn",
    "nn.grad": "nn._functional.conv_gradients",
    "nn.modules.lazy": "nn._lazy nn.parameter",
    **{f"nn.modules.{name}": homes for name, homes in _NN_HOMES.items()},
    "nn.parallel.data_parallel": "nn.parallel",
    "distributed.distributed_c10d": "distributed",
    "distributed.constants": "distributed",
    "nn.utils.clip_grad": "nn.utils._clip nn.utils",
    "nn.utils.convert_parameters": "nn.utils",
    "nn.utils.fusion": "nn.utils._fusion",
    "nn.utils.spectral_norm": "nn.utils._norm_hooks",
    "nn.utils.weight_norm": "nn.utils._norm_hooks",
    "optim.optimizer": "optim._optimizer ParamsT=optim._optimizer.Params "
    "_use_grad_for_differentiable=optim._optimizer.unchanged",
    **{f"optim.{name}": "optim" for name in _OPTIMIZERS.split()},
    "utils.data.distributed": "utils.data._distributed",
    "utils.data._utils": "",
    "utils.data._utils.collate": "utils.data._collate",
    "utils.data._utils.worker": "utils.data",
    "utils.dlpack": "_functions.exchange",
    "utils.model_zoo": "load_url=hub.load_state_dict_from_url tqdm=hub.tqdm",
    "utils._pytree": "func._tree_names",
    "fx": "wrap=jit.unused",
    "fx._pytree": "func._tree_names",
    "amp.autocast_mode": "amp",
    "amp.grad_scaler": "amp",
    "cuda.amp": "amp",
    "cuda.amp.autocast_mode": "cuda.amp",
    "cuda.amp.grad_scaler": "amp",
    "cpu.amp": "amp",
    "cuda.random": "cuda",
    "cuda.memory": "cuda",
    "autograd.gradcheck": "autograd.gradcheck",
    "autograd.profiler": "profile=profiler._profiles.op_profile profiler",
    "autograd.profiler_util": "profiler._events EventList=profiler._event_list.EventList "
    "_format_time=profiler._events.format_time",
    "autograd": "_profiler_enabled=profiler.profiler_enabled kineto_available=profiler.kineto_available torch=. "
    "is_multithreading_enabled=autograd.grad_mode.is_multithreading_enabled "
    "_force_original_view_tracking=_dispatch.view_replay.force_original_view_tracking "
    "is_view_replay_enabled=_dispatch.view_replay.is_view_replay_enabled "
    "_unsafe_preserve_version_counter=autograd._versions.unsafe_preserve_version_counter "
    "SavedTensor=_graph.saved_tensors.SavedTensor",
    "profiler.profiler": "profiler",
    "distributions.distribution": "distributions",
    "distributions.utils": "distributions._utils",
    "distributions.relaxed_bernoulli": "distributions distributions._relaxed",
    "distributions.relaxed_categorical": "distributions distributions._relaxed",
    **{f"distributions.{name}": "distributions" for name in _DISTRIBUTIONS},
    "functional": ".",
    "random": "_functions.random",
    "serialization": "_io.files _io.pytorch_globals",
    "storage": "UntypedStorage=_tensor.storages.UntypedStorage TypedStorage=_tensor.storages.TypedStorage",
    "_tensor": "_tensor.tensor",
    "__future__": "_functions.legacy",
    "_jit_internal": "jit",
    "_dynamo._trace_wrapped_higher_order_op": "TransformGetItemToIndex=_tensor.subclasses.DisableTorchFunction",
    "_C._nn": "nn.functional _parse_to=nn._module.parse_to",
    "_C._functions": "AccumulateGrad=autograd._nodes.AccumulateGrad UndefinedGrad=autograd._nodes.UndefinedGrad "
    "DelayedError=autograd._nodes.DelayedError",
    "_C._autograd": "_saved_tensors_hooks_is_enabled=_functions.saved_tensor_hooks._saved_tensors_hooks_is_enabled "
    "_get_current_graph_task_keep_graph=autograd._nodes.current_graph_task_keep_graph "
    "_unsafe_set_version_counter=autograd._versions.unsafe_set_version_counter "
    "SavedTensor=_graph.saved_tensors.SavedTensor",
    "_C": "_are_functorch_transforms_active=func._interpreters.are_transforms_active "
    "_AutoDispatchBelowAutograd=func._higher_order.below_autograd "
    "_dispatch_tls_local_exclude_set=_tensor.subclasses.excluded_keys "
    "_current_graph_task_id=autograd._nodes.current_graph_task_id "
    "_current_graph_task_execution_order=autograd._execution.current_graph_task_execution_order "
    "_will_engine_execute_node=autograd._execution.will_engine_execute_node "
    "is_grad_enabled=_base.modes.is_grad_enabled _WeakTensorRef=autograd._nodes.WeakTensorRef "
    "_set_fwd_grad_enabled=autograd.forward_ad.set_fwd_grad_enabled "
    "_set_cached_tensors_enabled=autograd._cached_tensors.set_cached_tensors_enabled "
    "_add_cached_tensor=autograd._cached_tensors.add_cached_tensor "
    "_remove_cached_tensor=autograd._cached_tensors.remove_cached_tensor "
    "_is_cached_tensor=autograd._cached_tensors.is_cached_tensor "
    "_is_fwd_grad_enabled=autograd.forward_ad._is_fwd_grad_enabled "
    "_is_view_replay_enabled=_dispatch.view_replay.is_view_replay_enabled "
    "_set_view_replay_enabled=_dispatch.view_replay.set_view_replay_enabled "
    "_is_multithreading_enabled=autograd.grad_mode.is_multithreading_enabled "
    "_disabled_torch_function_impl=_tensor.overrides.disabled_override "
    "DisableTorchFunctionSubclass=_tensor.subclasses.DisableTorchFunction "
    "DisableTorchFunction=_tensor.subclasses.DisableTorchFunction Generator=_functions.random.Generator "
    "DispatchKey=_tensor.subclasses.DispatchKey DispatchKeySet=_tensor.subclasses.DispatchKeySet "
    "_ExcludeDispatchKeyGuard=_tensor.subclasses.ExcludeDispatchKeyGuard "
    "TensorBase=_tensor.tensor.Tensor "
    "Size=_base.dtypes.Size dtype=_base.dtypes.dtype device=_base.dtypes.device _LinAlgError=linalg.LinAlgError",
    "utils._foreach_utils": "_group_tensors_by_device_and_dtype=_functions.foreach.grouped",
    "_tensor_str": "PRINT_OPTS=_base.printing.PRINT_OPTIONS set_printoptions=_base.printing.set_printoptions",
    "_custom_ops": "library",
    "_ops": "OpOverload=library.OpOverload OpOverloadPacket=library.OpOverloadPacket "
    "HigherOrderOperator=func._higher_order.HigherOrderOperator",
    "autograd.function": "_SingleLevelFunction=autograd.single_level._SingleLevelFunction",
    "autograd._functions": "Resize=autograd._nodes.Resize",
    "_VF": "unique_dim=_functions.counts.unique_dim",
    "masked._ops": "masked",
    "_utils": "_io.pytorch_globals",
    "signal.windows": "_functions.windows",
    "sparse": "",
}
