"""Names of PyTorch's modules that gradwire refuses when they are used, and questions that it answers the same always.

A test compares the names with PyTorch.
"""

from dataclasses import dataclass
from datetime import timedelta
from types import SimpleNamespace
from typing import Any


class _NoTensors:
    """Class of PyTorch's tensors of a kind that does not exist here, for isinstance."""


@dataclass(frozen=True)
class _Replicate:
    """Says that each rank has the whole tensor (torch.distributed.tensor.Replicate). Imports of libraries make it."""


@dataclass(frozen=True)
class _Shard:
    """Says that each rank has a part, along a dimension (torch.distributed.tensor.Shard)."""

    dim: int


@dataclass(frozen=True)
class _Partial:
    """Says that the ranks' tensors are still to be reduced (torch.distributed.tensor.Partial)."""

    reduce_op: str = "sum"


# Why the names of a path and of the paths below it are refused.
REASONS: dict[str, str] = {
    "": "PyTorch's function of that name is missing here",
    "nn": "PyTorch's layer of that name is missing here",
    "nn.parameter": "parameters have their sizes from the beginning",
    "optim": "PyTorch's optimizer of that name is missing here",
    "cuda": "the server's GPUs are not controlled by its clients",
    "jit": "Python runs functions and modules here",
    "utils.data": "batches are made by DataLoader",
    "_C": "there is no C++ library",
    "backends": "the server chooses its kernels",
    "autograd": "derivatives are computed in reverse",
    "random": "there is one generator per session",
    "numa": "the server decides where it computes",
    "onnx": "a model has no graph of its own here that could be exported",
    "fx": "Python code is not traced symbolically; make_fx traces a call, torch.compile records its commands",
    "export": "torch.export.export records the commands of a call",
    "distributed": "the server exchanges tensors between ranks; see torch.distributed.all_reduce and its relatives",
    "quantization": "there are no quantized tensors; cast the model with model.half() or model.bfloat16()",
    "ao": "there are no quantized tensors; cast the model with model.half() or model.bfloat16()",
    "nested": "there are no nested tensors; use nn.utils.rnn.pad_sequence",
    "masked": "there are no masked tensors; its functions take a tensor and mask=",
    "sparse": "of sparse tensors there are few ops; call to_dense() for others",
    "package": "save the state_dict with torch.save",
    "futures": "use concurrent.futures",
    "monitor": "the server's metrics tell what it does",
    "xpu": "the server has no such device",
    "mps": "the server has no such device",
    "mtia": "the server has no such device",
    "cuda.graphs": "torch.compile records the commands of a call",
    "cuda.comm": "use tensor.to(device)",
    "nn.attention.flex_attention": "use torch.nn.functional.scaled_dot_product_attention with attn_mask",
    "nn.attention.bias": "use torch.nn.functional.scaled_dot_product_attention with attn_mask",
    "nn.parallel": "a process computes on one device; DistributedDataParallel uses several processes",
    "_tensor_str": "use repr(tensor)",
    "nn.intrinsic": "there are no quantized tensors",
    "nn.quantized": "there are no quantized tensors",
    "nn.qat": "there are no quantized tensors",
    "utils.cpp_extension": "the set of ops is closed, a client sends no code; write an autograd.Function in Python",
    "utils.benchmark": "use gradwire.timings() or the timeit module",
    "utils.mobile_optimizer": "a model has no graph of its own here that could be exported",
    "utils.collect_env": "use gradwire.server_info()",
    "utils.data.graph": "use Dataset and DataLoader",
    "backends.mkldnn": "the server computes with its own libraries",
    "_dynamo": "torch.compile records the commands of a call",
    "_ops": "the set of ops is closed and not dispatched in the client; write an autograd.Function in Python",
    "_prims_common": "there is no compiler of PyTorch's",
    "_inductor": "there is no compiler of PyTorch's",
    "_subclasses": "torch.compile records the commands of a call",
}

# Functions that always return the same.
ANSWERS: dict[str, dict[str, Any]] = {
    "": {
        "_is_functional_tensor": False,
        "is_anomaly_enabled": False,
        "is_vulkan_available": False,
        "is_warn_always_enabled": False,
    },
    "onnx": {"is_in_onnx_export": False, "register_custom_op_symbolic": None, "unregister_custom_op_symbolic": None},
    "distributed.utils": {"_sync_module_states": None},
    "distributed.rpc": {"is_available": False},
    "distributed.tensor": {},
    "xpu": {"is_available": False, "is_initialized": False, "device_count": 0},
    "mps": {"is_available": False, "device_count": 0},
    "mtia": {"is_available": False, "is_initialized": False, "device_count": 0},
    "cpu": {"is_available": True, "device_count": 1, "current_device": "cpu", "synchronize": None},
    "profiler.itt": {"is_available": False},
    "backends.mkl": {"is_available": False},
    "backends.mkldnn": {"is_available": False},
    "backends.openmp": {"is_available": False},
    "backends.cpu": {"get_cpu_capability": "DEFAULT"},
    "backends.opt_einsum": {"is_available": False, "get_opt_einsum": None},
    "backends.xeon": {},
    "_C": {
        "_cuda_isInBadFork": False,
        "_log_api_usage_once": None,
        "_get_tracing_state": None,
        "_is_tracing": False,
        "_cuda_clearCublasWorkspaces": None,
    },
    "_dynamo": {
        "disallow_in_graph": None,
        "is_compiling": False,
        "is_dynamo_supported": False,
        "reset": None,
        "mark_dynamic": None,
        "mark_static": None,
        "mark_static_address": None,
        "graph_break": None,
    },
    "cuda": {"is_current_stream_capturing": False, "is_tf32_supported": False},
    "cuda.nvtx": {"mark": None, "range_push": 0, "range_pop": 0, "range_start": 0, "range_end": None},
    "_subclasses.fake_tensor": {"is_fake": False},
    "_dynamo.utils": {"is_compile_supported": False},
    "_dynamo.exc": {},
    "_dynamo.eval_frame": {"is_dynamo_supported": False},
    "utils._foreach_utils": {"_device_has_foreach_support": False, "_has_foreach_support": False},
    "utils.data.datapipes": {},
    "utils.data.datapipes.iter": {},
}


def _unchanged(*args: Any, **kwargs: Any) -> Any:
    """A decorator that returns its function, for registrations that have no effect."""
    return lambda function: function


def _same(function: Any) -> Any:
    """A decorator that returns its function."""
    return function


def _same_or_decorator(function: Any = None, *args: Any, **kwargs: Any) -> Any:
    """A decorator with options that returns its function."""
    return _same if function is None else function


# Settings and other values.
VALUES: dict[str, dict[str, Any]] = {
    "onnx.symbolic_helper": {"parse_args": _unchanged},
    "distributed.constants": {"default_pg_timeout": timedelta(minutes=30)},
    "distributed.distributed_c10d": {"_pg_map": {}},
    "backends.opt_einsum": {"enabled": False, "strategy": None},
    "backends.mkldnn": {"enabled": False},
    "backends.quantized": {"engine": "none", "supported_engines": []},
    "fx.graph_module": {"_USER_PRESERVED_ATTRIBUTES_KEY": "_user_preserved_attributes"},
    "fx.node": {"Target": object, "Argument": object},
    "cuda.sparse": dict.fromkeys(("FloatTensor", "DoubleTensor", "HalfTensor"), _NoTensors),
    "distributed.tensor": {"Partial": _Partial, "Replicate": _Replicate, "Shard": _Shard},
    "distributed.tensor.placement_types": {"Partial": _Partial, "Replicate": _Replicate, "Shard": _Shard},
    # Types in annotations.
    "serialization": {"MAP_LOCATION": Any, "FileLike": Any, "FILE_LIKE": Any, "Storage": Any},
    "_dynamo": {"allow_in_graph": _same, "assume_constant_result": _same, "disable": _same_or_decorator},
    "return_types": {},
    "classes": {},
    "onnx.symbolic_opset12": {},
    "nn.attention.flex_attention": {"_DEFAULT_SPARSE_BLOCK_SIZE": 128},
    "_dynamo.config": {},
    "_inductor": {},
    "_prims_common": {"NumberType": object, "TensorLike": object},
    "_C": {"_TensorMeta": type, "_distributed_c10d": SimpleNamespace()},
}

REFUSED: dict[str, str] = {
    "onnx": """
        ExportableModule InputObserver JitScalarType ONNXProgram OnnxExporterError OperatorExportTypes
        TensorProtoDataType TrainingMode export is_in_onnx_export register_custom_op_symbolic
        select_model_mode_for_export """,
    "onnx.operators": "shape_as_tensor",
    "onnx.symbolic_opset9": "unsqueeze",
    "onnx.symbolic_opset11": "select unsqueeze",
    "onnx.utils": "export",
    "onnx._internal.exporter": "",
    "fx": """
        CodeGen Proxy ProxyableClassMeta Tracer Transformer has_side_effect replace_pattern symbolic_trace""",
    "fx.node": "normalize_function normalize_module",
    "fx.proxy": "Attribute GraphAppendingTracer ParameterProxy Proxy Scope TraceError TracerBase",
    "fx.graph": "CodeGen",
    "fx.graph_module": "reduce_graph_module",
    "fx.experimental.symbolic_shapes": "ShapeEnv",
    "fx.passes.infra.pass_base": "PassBase PassResult",
    "fx.passes.shape_prop": "ShapeProp",
    "export": """
        AdditionalInputs CustomDecompTable ExportBackwardSignature ExportGraphSignature
        FlatArgsAdapter ModuleCallEntry ModuleCallSignature PassResult ShapesCollection UnflattenedModule
        default_decompositions draft_export register_dataclass unflatten""",
    "export._trace": "_export",
    "export.decomp_utils": "CustomDecompTable",
    "distributed": """
        AllToAllOptions AllreduceCoalescedOptions AllreduceOptions BackendConfig BarrierOptions
        BroadcastOptions BuiltinCommHookType DebugLevel DeviceMesh DistNetworkError DistStoreError FileStore
        GatherOptions GradBucket GroupName HashStore Logger PrefixStore ProcessGroupGloo ProcessGroupNCCL
        QueueEmptyError ReduceOptions ReduceScatterOptions Reducer ScatterOptions Store TCPStore
        all_gather_coalesced get_backend_config get_default_backend_for_device get_pg_count init_device_mesh
        new_subgroups new_subgroups_by_enumeration record_comm register_rendezvous_handler rendezvous
        set_debug_level set_debug_level_from_env shrink_group split_group""",
    "distributed.fsdp": """
        BackwardPrefetch CPUOffload CPUOffloadPolicy DataParallelMeshDims FSDPModule FlatParameter
        FullOptimStateDictConfig FullStateDictConfig FullyShardedDataParallel LocalOptimStateDictConfig
        LocalStateDictConfig MixedPrecision MixedPrecisionPolicy OffloadPolicy OptimStateDictConfig
        OptimStateKeyType ShardedOptimStateDictConfig ShardedStateDictConfig ShardingStrategy StateDictConfig
        StateDictSettings StateDictType UnshardHandle fully_shard register_fsdp_forward_method share_comm_ctx""",
    "distributed.fsdp.wrap": """
        CustomPolicy ModuleWrapPolicy always_wrap_policy enable_wrap lambda_auto_wrap_policy
        size_based_auto_wrap_policy transformer_auto_wrap_policy wrap""",
    "distributed.fsdp.api": """
        BackwardPrefetch CPUOffload FullOptimStateDictConfig FullStateDictConfig LocalOptimStateDictConfig
        LocalStateDictConfig MixedPrecision OptimStateDictConfig ShardedOptimStateDictConfig
        ShardedStateDictConfig ShardingStrategy StateDictConfig StateDictSettings StateDictType""",
    "distributed.fsdp.sharded_grad_scaler": "ShardedGradScaler",
    "distributed.fsdp.fully_sharded_data_parallel": """
        ActivationWrapper BackwardPrefetch CPUOffload CustomPolicy DeviceMesh FlatParamHandle FlatParameter
        FullOptimStateDictConfig FullStateDictConfig FullyShardedDataParallel HandleTrainingState
        LocalOptimStateDictConfig LocalStateDictConfig MixedPrecision ModuleWrapPolicy OptimStateDictConfig
        OptimStateKeyType ShardedOptimStateDictConfig ShardedStateDictConfig ShardingStrategy StateDictConfig
        StateDictSettings StateDictType TrainingState copy_method_params copy_method_sig""",
    "distributed.algorithms.join": "Join JoinHook Joinable",
    "distributed.algorithms.ddp_comm_hooks": "DDPCommHookType register_ddp_comm_hook",
    "distributed.algorithms.ddp_comm_hooks.default_hooks": """
        allreduce_hook bf16_compress_hook bf16_compress_wrapper fp16_compress_hook fp16_compress_wrapper""",
    "distributed.algorithms.ddp_comm_hooks.powerSGD_hook": "PowerSGDState powerSGD_hook",
    "distributed.algorithms.ddp_comm_hooks.post_localSGD_hook": "PostLocalSGDState post_localSGD_hook",
    "distributed.algorithms.model_averaging.averagers": "ModelAverager PeriodicModelAverager",
    "distributed.algorithms._checkpoint.checkpoint_wrapper": """
        ActivationWrapper CheckpointImpl CheckpointWrapper OffloadWrapper apply_activation_checkpointing
        checkpoint_wrapper offload_wrapper""",
    "distributed.device_mesh": "DeviceMesh init_device_mesh",
    "distributed.checkpoint": """
        BytesStorageMetadata CheckpointException ChunkStorageMetadata DefaultLoadPlanner DefaultSavePlanner
        FileSystemReader FileSystemWriter HuggingFaceStorageReader HuggingFaceStorageWriter LoadPlan LoadPlanner
        Metadata QuantizedHuggingFaceStorageReader ReadItem SavePlan SavePlanner StorageReader StorageWriter
        TensorStorageMetadata WriteItem async_save load load_sharded_optimizer_state_dict load_state_dict save
        save_state_dict""",
    "distributed.checkpoint.state_dict": """
        StateDictOptions get_model_state_dict get_optimizer_state_dict get_state_dict set_model_state_dict
        set_optimizer_state_dict set_state_dict""",
    "distributed.checkpoint.default_planner": "DefaultLoadPlanner DefaultSavePlanner",
    "distributed.checkpoint.format_utils": """
        _EmptyStateDictLoadPlanner _load_state_dict dcp_to_torch_save torch_save_to_dcp""",
    "distributed.checkpoint.optimizer": "load_sharded_optimizer_state_dict",
    "distributed.checkpoint.state_dict_loader": "_load_state_dict load load_state_dict",
    "distributed.checkpoint.hf_storage": "HuggingFaceStorageReader HuggingFaceStorageWriter",
    "distributed.optim": "DistributedOptimizer PostLocalSGDOptimizer ZeroRedundancyOptimizer",
    "distributed.rpc": "RRef get_worker_info init_rpc remote rpc_async rpc_sync shutdown",
    "distributed.tensor": """
        DTensor DeviceMesh Partial Placement Replicate Shard distribute_module distribute_tensor empty full
        init_device_mesh ones rand randn zeros""",
    "distributed.tensor._utils": "compute_local_shape_and_global_offset",
    "distributed.tensor.placement_types": "Placement _StridedShard",
    "distributed.tensor.parallel": """
        ColwiseParallel ParallelStyle PrepareModuleInput PrepareModuleInputOutput PrepareModuleOutput
        RowwiseParallel SequenceParallel loss_parallel parallelize_module""",
    "distributed.tensor.experimental": "context_parallel implicit_replication local_map register_sharding",
    "distributed._tensor": """
        DTensor DeviceMesh Partial Placement Replicate Shard distribute_module distribute_tensor empty full
        init_device_mesh ones rand randn zeros""",
    "distributed._composable.fsdp": """
        CPUOffloadPolicy FSDPModule MixedPrecisionPolicy OffloadPolicy fully_shard register_fsdp_forward_method""",
    "distributed._functional_collectives": """
        all_gather_tensor all_reduce all_to_all_single all_to_all_single_autograd reduce_scatter_tensor wait_tensor
        AsyncCollectiveTensor""",
    "distributed.nn": """
        all_gather all_reduce all_to_all all_to_all_single broadcast gather reduce reduce_scatter scatter""",
    "distributed.nn.functional": """
        all_gather all_reduce all_to_all all_to_all_single broadcast gather reduce reduce_scatter scatter""",
    "distributed.elastic.multiprocessing": "start_processes",
    "distributed.elastic.multiprocessing.errors": "ChildFailedError ErrorHandler get_error_handler",
    "distributed.pipelining": """
        Pipe PipelineStage Schedule1F1B ScheduleDualPipeV ScheduleGPipe ScheduleInterleaved1F1B
        ScheduleInterleavedZeroBubble ScheduleLoopedBFS ScheduleZBVZeroBubble SplitPoint build_stage pipe_split
        pipeline""",
    "distributed.launcher.api": "LaunchConfig elastic_launch launch_agent",
    "distributed.run": "config_from_args elastic_launch get_args_parser main run",
    "quantization": """
        DeQuantStub FakeQuantize HistogramObserver MinMaxObserver ObserverBase QConfig QuantStub QuantWrapper
        convert default_qconfig fuse_modules get_default_qat_qconfig get_default_qconfig prepare prepare_qat
        quantize quantize_dynamic""",
    "ao.quantization": """
        DeQuantStub FakeQuantize FakeQuantizeBase HistogramObserver MinMaxObserver ObserverBase QConfig
        QConfigMapping QuantStub QuantWrapper convert default_qconfig fuse_modules fuse_modules_qat
        get_default_qat_qconfig get_default_qconfig prepare prepare_qat quantize quantize_dynamic quantize_qat""",
    "ao.quantization.quantize_fx": "convert_fx fuse_fx prepare_fx prepare_qat_fx",
    "ao.nn.quantized": "Linear Conv2d",
    "ao.nn.intrinsic": "ConvReLU2d LinearReLU",
    "ao.nn.qat": "Conv2d Linear",
    "nested": """
        as_nested_tensor masked_select narrow nested_tensor nested_tensor_from_jagged to_padded_tensor""",
    "masked": "MaskedTensor as_masked_tensor is_masked_tensor masked_tensor",
    "package": "PackageExporter PackageImporter",
    "futures": "Future collect_all wait_all",
    "monitor": "Aggregation Event Stat log_event register_event_handler",
    "xpu": """
        Event Stream current_device empty_cache get_device_name get_device_properties manual_seed_all
        max_memory_allocated mem_get_info memory_allocated reset_peak_memory_stats set_device synchronize""",
    "mps": "empty_cache Event current_allocated_memory driver_allocated_memory synchronize",
    "mtia": "Event Stream current_device",
    "nn.attention.flex_attention": """
        AuxOutput AuxRequest
        BlockMask and_masks create_block_mask create_mask flex_attention or_masks noop_mask""",
    "nn.attention.bias": "CausalBias CausalVariant causal_lower_right causal_upper_left",
    "nn.intrinsic": "ConvReLU2d LinearReLU",
    "nn.quantized": "Linear Conv2d",
    "nn.qat": "Conv2d Linear",
    "nn.parallel.scatter_gather": "gather scatter scatter_kwargs",
    "_tensor_str": "_tensor_str _str",
    "utils.cpp_extension": """
        CUDAExtension CppExtension BuildExtension load load_inline include_paths library_paths""",
    "utils.benchmark": "Compare Fuzzer Measurement Timer",
    "utils.mobile_optimizer": "optimize_for_mobile",
    "utils.collect_env": "get_env_info get_pretty_env_info main",
    "utils.data.graph": "traverse traverse_dps",
    "cuda.graphs": "CUDAGraph graph graph_pool_handle make_graphed_callables",
    "cuda.comm": "broadcast broadcast_coalesced gather reduce_add reduce_add_coalesced scatter",
    "backends.mkldnn": "flags",
    "_dynamo": "OptimizedModule explain export optimize",
    "_dynamo.eval_frame": "OptimizedModule",
    "_dynamo.exc": "BackendCompilerFailed TensorifyScalarRestartAnalysis TorchDynamoException Unsupported",
    "_subclasses.fake_tensor": "FakeTensor FakeTensorMode",
    "sparse": """
        as_sparse_gradcheck spsolve to_sparse_semi_structured SparseSemiStructuredTensor""",
    "": "Future PyTorchFileReader PyTorchFileWriter",
    "nn": "CrossMapLRN2d",
    "cuda": """
        CUDAGraph MemPool get_device_capability graph make_graphed_callables max_memory_allocated max_memory_reserved
        mem_get_info memory_allocated memory_reserved memory_stats memory_summary reset_max_memory_allocated
        reset_peak_memory_stats set_per_process_memory_fraction utilization""",
    "numa.binding": "AffinityMode NumaOptions",
}
