from gradwire.v1 import collectives_pb2 as _collectives_pb2
from gradwire.v1 import commands_pb2 as _commands_pb2
from gradwire.v1 import errors_pb2 as _errors_pb2
from gradwire.v1 import files_pb2 as _files_pb2
from gradwire.v1 import hooks_pb2 as _hooks_pb2
from gradwire.v1 import programs_pb2 as _programs_pb2
from gradwire.v1 import snapshots_pb2 as _snapshots_pb2
from gradwire.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ViewKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VIEW_KIND_UNSPECIFIED: _ClassVar[ViewKind]
    VIEW_KIND_NEVER: _ClassVar[ViewKind]
    VIEW_KIND_SOMETIMES: _ClassVar[ViewKind]
    VIEW_KIND_ALWAYS: _ClassVar[ViewKind]

class ParameterKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PARAMETER_KIND_UNSPECIFIED: _ClassVar[ParameterKind]
    PARAMETER_KIND_TENSOR: _ClassVar[ParameterKind]
    PARAMETER_KIND_TENSOR_OR_NUMBER: _ClassVar[ParameterKind]
    PARAMETER_KIND_TENSORS: _ClassVar[ParameterKind]
    PARAMETER_KIND_NUMBER: _ClassVar[ParameterKind]
    PARAMETER_KIND_FLOAT: _ClassVar[ParameterKind]
    PARAMETER_KIND_INTEGER: _ClassVar[ParameterKind]
    PARAMETER_KIND_BOOLEAN: _ClassVar[ParameterKind]
    PARAMETER_KIND_STRING: _ClassVar[ParameterKind]
    PARAMETER_KIND_DTYPE: _ClassVar[ParameterKind]
    PARAMETER_KIND_DEVICE: _ClassVar[ParameterKind]
    PARAMETER_KIND_INTEGERS: _ClassVar[ParameterKind]
    PARAMETER_KIND_FLOATS: _ClassVar[ParameterKind]
    PARAMETER_KIND_INDEX: _ClassVar[ParameterKind]
    PARAMETER_KIND_NUMBER_OR_STRING: _ClassVar[ParameterKind]
    PARAMETER_KIND_INTEGERS_OR_STRING: _ClassVar[ParameterKind]
VIEW_KIND_UNSPECIFIED: ViewKind
VIEW_KIND_NEVER: ViewKind
VIEW_KIND_SOMETIMES: ViewKind
VIEW_KIND_ALWAYS: ViewKind
PARAMETER_KIND_UNSPECIFIED: ParameterKind
PARAMETER_KIND_TENSOR: ParameterKind
PARAMETER_KIND_TENSOR_OR_NUMBER: ParameterKind
PARAMETER_KIND_TENSORS: ParameterKind
PARAMETER_KIND_NUMBER: ParameterKind
PARAMETER_KIND_FLOAT: ParameterKind
PARAMETER_KIND_INTEGER: ParameterKind
PARAMETER_KIND_BOOLEAN: ParameterKind
PARAMETER_KIND_STRING: ParameterKind
PARAMETER_KIND_DTYPE: ParameterKind
PARAMETER_KIND_DEVICE: ParameterKind
PARAMETER_KIND_INTEGERS: ParameterKind
PARAMETER_KIND_FLOATS: ParameterKind
PARAMETER_KIND_INDEX: ParameterKind
PARAMETER_KIND_NUMBER_OR_STRING: ParameterKind
PARAMETER_KIND_INTEGERS_OR_STRING: ParameterKind

class OpenSessionRequest(_message.Message):
    __slots__ = ("session_id", "min_protocol", "max_protocol", "lease_ms", "client", "follows_endpoint", "device_type", "gang", "gang_size")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    MIN_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    MAX_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    FOLLOWS_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TYPE_FIELD_NUMBER: _ClassVar[int]
    GANG_FIELD_NUMBER: _ClassVar[int]
    GANG_SIZE_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    min_protocol: int
    max_protocol: int
    lease_ms: int
    client: str
    follows_endpoint: bool
    device_type: str
    gang: str
    gang_size: int
    def __init__(self, session_id: _Optional[str] = ..., min_protocol: _Optional[int] = ..., max_protocol: _Optional[int] = ..., lease_ms: _Optional[int] = ..., client: _Optional[str] = ..., follows_endpoint: bool = ..., device_type: _Optional[str] = ..., gang: _Optional[str] = ..., gang_size: _Optional[int] = ...) -> None: ...

class OpenSessionResponse(_message.Message):
    __slots__ = ("session_id", "writer", "epoch", "lease_ms", "endpoint", "protocol", "limits", "machine", "expires_unix_ms", "local_stream", "first_id", "last_id")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    LOCAL_STREAM_FIELD_NUMBER: _ClassVar[int]
    FIRST_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    writer: int
    epoch: int
    lease_ms: int
    endpoint: str
    protocol: int
    limits: Limits
    machine: str
    expires_unix_ms: int
    local_stream: str
    first_id: int
    last_id: int
    def __init__(self, session_id: _Optional[str] = ..., writer: _Optional[int] = ..., epoch: _Optional[int] = ..., lease_ms: _Optional[int] = ..., endpoint: _Optional[str] = ..., protocol: _Optional[int] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., machine: _Optional[str] = ..., expires_unix_ms: _Optional[int] = ..., local_stream: _Optional[str] = ..., first_id: _Optional[int] = ..., last_id: _Optional[int] = ...) -> None: ...

class RestoreSessionResponse(_message.Message):
    __slots__ = ("session", "tensors", "client_nodes")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_NODES_FIELD_NUMBER: _ClassVar[int]
    session: OpenSessionResponse
    tensors: _containers.RepeatedCompositeFieldContainer[_snapshots_pb2.RestoredTensor]
    client_nodes: int
    def __init__(self, session: _Optional[_Union[OpenSessionResponse, _Mapping]] = ..., tensors: _Optional[_Iterable[_Union[_snapshots_pb2.RestoredTensor, _Mapping]]] = ..., client_nodes: _Optional[int] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("max_message_bytes", "max_inline_bytes", "max_tensor_bytes", "max_session_bytes", "max_session_tensors", "max_sessions", "max_batch_commands", "chunk_bytes", "max_prepared", "max_programs", "max_program_bytes", "max_program_steps", "max_principal_sessions", "max_principal_bytes", "max_principal_tensors", "max_principal_programs", "max_session_compute_seconds", "max_principal_compute_seconds", "max_session_inflight_bytes", "max_principal_inflight_bytes", "max_op_operations")
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_INLINE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_TENSOR_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_SESSION_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_SESSION_TENSORS_FIELD_NUMBER: _ClassVar[int]
    MAX_SESSIONS_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_COMMANDS_FIELD_NUMBER: _ClassVar[int]
    CHUNK_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_PREPARED_FIELD_NUMBER: _ClassVar[int]
    MAX_PROGRAMS_FIELD_NUMBER: _ClassVar[int]
    MAX_PROGRAM_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_PROGRAM_STEPS_FIELD_NUMBER: _ClassVar[int]
    MAX_PRINCIPAL_SESSIONS_FIELD_NUMBER: _ClassVar[int]
    MAX_PRINCIPAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_PRINCIPAL_TENSORS_FIELD_NUMBER: _ClassVar[int]
    MAX_PRINCIPAL_PROGRAMS_FIELD_NUMBER: _ClassVar[int]
    MAX_SESSION_COMPUTE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MAX_PRINCIPAL_COMPUTE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MAX_SESSION_INFLIGHT_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_PRINCIPAL_INFLIGHT_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_OP_OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    max_message_bytes: int
    max_inline_bytes: int
    max_tensor_bytes: int
    max_session_bytes: int
    max_session_tensors: int
    max_sessions: int
    max_batch_commands: int
    chunk_bytes: int
    max_prepared: int
    max_programs: int
    max_program_bytes: int
    max_program_steps: int
    max_principal_sessions: int
    max_principal_bytes: int
    max_principal_tensors: int
    max_principal_programs: int
    max_session_compute_seconds: float
    max_principal_compute_seconds: float
    max_session_inflight_bytes: int
    max_principal_inflight_bytes: int
    max_op_operations: int
    def __init__(self, max_message_bytes: _Optional[int] = ..., max_inline_bytes: _Optional[int] = ..., max_tensor_bytes: _Optional[int] = ..., max_session_bytes: _Optional[int] = ..., max_session_tensors: _Optional[int] = ..., max_sessions: _Optional[int] = ..., max_batch_commands: _Optional[int] = ..., chunk_bytes: _Optional[int] = ..., max_prepared: _Optional[int] = ..., max_programs: _Optional[int] = ..., max_program_bytes: _Optional[int] = ..., max_program_steps: _Optional[int] = ..., max_principal_sessions: _Optional[int] = ..., max_principal_bytes: _Optional[int] = ..., max_principal_tensors: _Optional[int] = ..., max_principal_programs: _Optional[int] = ..., max_session_compute_seconds: _Optional[float] = ..., max_principal_compute_seconds: _Optional[float] = ..., max_session_inflight_bytes: _Optional[int] = ..., max_principal_inflight_bytes: _Optional[int] = ..., max_op_operations: _Optional[int] = ...) -> None: ...

class KeepAliveRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    def __init__(self, session_id: _Optional[str] = ...) -> None: ...

class KeepAliveResponse(_message.Message):
    __slots__ = ("lease_ms", "epoch", "expires_unix_ms")
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    lease_ms: int
    epoch: int
    expires_unix_ms: int
    def __init__(self, lease_ms: _Optional[int] = ..., epoch: _Optional[int] = ..., expires_unix_ms: _Optional[int] = ...) -> None: ...

class CloseSessionRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    def __init__(self, session_id: _Optional[str] = ...) -> None: ...

class CloseSessionResponse(_message.Message):
    __slots__ = ("freed_bytes",)
    FREED_BYTES_FIELD_NUMBER: _ClassVar[int]
    freed_bytes: int
    def __init__(self, freed_bytes: _Optional[int] = ...) -> None: ...

class Command(_message.Message):
    __slots__ = ("create", "op", "backward", "retain_grad", "grad", "gradients", "set_grad", "set_requires_grad", "set_data", "manual_seed", "describe", "read", "release", "graph", "calls", "prepare", "register_program", "run_program", "register_hook", "remove_hook", "resume_backward", "record_function", "checkpoint", "name_edge", "pack_saved", "saved_value", "load_program", "save_program", "collective", "set_counters", "quiet", "timeout_ms")
    CREATE_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    BACKWARD_FIELD_NUMBER: _ClassVar[int]
    RETAIN_GRAD_FIELD_NUMBER: _ClassVar[int]
    GRAD_FIELD_NUMBER: _ClassVar[int]
    GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    SET_GRAD_FIELD_NUMBER: _ClassVar[int]
    SET_REQUIRES_GRAD_FIELD_NUMBER: _ClassVar[int]
    SET_DATA_FIELD_NUMBER: _ClassVar[int]
    MANUAL_SEED_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    PREPARE_FIELD_NUMBER: _ClassVar[int]
    REGISTER_PROGRAM_FIELD_NUMBER: _ClassVar[int]
    RUN_PROGRAM_FIELD_NUMBER: _ClassVar[int]
    REGISTER_HOOK_FIELD_NUMBER: _ClassVar[int]
    REMOVE_HOOK_FIELD_NUMBER: _ClassVar[int]
    RESUME_BACKWARD_FIELD_NUMBER: _ClassVar[int]
    RECORD_FUNCTION_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    NAME_EDGE_FIELD_NUMBER: _ClassVar[int]
    PACK_SAVED_FIELD_NUMBER: _ClassVar[int]
    SAVED_VALUE_FIELD_NUMBER: _ClassVar[int]
    LOAD_PROGRAM_FIELD_NUMBER: _ClassVar[int]
    SAVE_PROGRAM_FIELD_NUMBER: _ClassVar[int]
    COLLECTIVE_FIELD_NUMBER: _ClassVar[int]
    SET_COUNTERS_FIELD_NUMBER: _ClassVar[int]
    QUIET_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    create: _commands_pb2.CreateRequest
    op: _commands_pb2.OpRequest
    backward: _commands_pb2.BackwardRequest
    retain_grad: _commands_pb2.RetainGradRequest
    grad: _commands_pb2.GradRequest
    gradients: _commands_pb2.GradientsRequest
    set_grad: _commands_pb2.SetGradRequest
    set_requires_grad: _commands_pb2.SetRequiresGradRequest
    set_data: _commands_pb2.SetDataRequest
    manual_seed: _commands_pb2.ManualSeedRequest
    describe: _commands_pb2.DescribeRequest
    read: _commands_pb2.ReadRequest
    release: _commands_pb2.ReleaseRequest
    graph: _commands_pb2.GraphRequest
    calls: _commands_pb2.Calls
    prepare: _commands_pb2.Prepare
    register_program: _programs_pb2.RegisterProgramRequest
    run_program: _programs_pb2.RunProgramRequest
    register_hook: _hooks_pb2.RegisterHookRequest
    remove_hook: _hooks_pb2.RemoveHookRequest
    resume_backward: _hooks_pb2.ResumeBackwardRequest
    record_function: _hooks_pb2.RecordFunctionRequest
    checkpoint: _hooks_pb2.CheckpointRequest
    name_edge: _hooks_pb2.NameEdgeRequest
    pack_saved: _hooks_pb2.PackSavedRequest
    saved_value: _hooks_pb2.SavedValueRequest
    load_program: _programs_pb2.LoadProgramRequest
    save_program: _programs_pb2.SaveProgramRequest
    collective: _collectives_pb2.CollectiveRequest
    set_counters: _commands_pb2.SetCountersRequest
    quiet: bool
    timeout_ms: int
    def __init__(self, create: _Optional[_Union[_commands_pb2.CreateRequest, _Mapping]] = ..., op: _Optional[_Union[_commands_pb2.OpRequest, _Mapping]] = ..., backward: _Optional[_Union[_commands_pb2.BackwardRequest, _Mapping]] = ..., retain_grad: _Optional[_Union[_commands_pb2.RetainGradRequest, _Mapping]] = ..., grad: _Optional[_Union[_commands_pb2.GradRequest, _Mapping]] = ..., gradients: _Optional[_Union[_commands_pb2.GradientsRequest, _Mapping]] = ..., set_grad: _Optional[_Union[_commands_pb2.SetGradRequest, _Mapping]] = ..., set_requires_grad: _Optional[_Union[_commands_pb2.SetRequiresGradRequest, _Mapping]] = ..., set_data: _Optional[_Union[_commands_pb2.SetDataRequest, _Mapping]] = ..., manual_seed: _Optional[_Union[_commands_pb2.ManualSeedRequest, _Mapping]] = ..., describe: _Optional[_Union[_commands_pb2.DescribeRequest, _Mapping]] = ..., read: _Optional[_Union[_commands_pb2.ReadRequest, _Mapping]] = ..., release: _Optional[_Union[_commands_pb2.ReleaseRequest, _Mapping]] = ..., graph: _Optional[_Union[_commands_pb2.GraphRequest, _Mapping]] = ..., calls: _Optional[_Union[_commands_pb2.Calls, _Mapping]] = ..., prepare: _Optional[_Union[_commands_pb2.Prepare, _Mapping]] = ..., register_program: _Optional[_Union[_programs_pb2.RegisterProgramRequest, _Mapping]] = ..., run_program: _Optional[_Union[_programs_pb2.RunProgramRequest, _Mapping]] = ..., register_hook: _Optional[_Union[_hooks_pb2.RegisterHookRequest, _Mapping]] = ..., remove_hook: _Optional[_Union[_hooks_pb2.RemoveHookRequest, _Mapping]] = ..., resume_backward: _Optional[_Union[_hooks_pb2.ResumeBackwardRequest, _Mapping]] = ..., record_function: _Optional[_Union[_hooks_pb2.RecordFunctionRequest, _Mapping]] = ..., checkpoint: _Optional[_Union[_hooks_pb2.CheckpointRequest, _Mapping]] = ..., name_edge: _Optional[_Union[_hooks_pb2.NameEdgeRequest, _Mapping]] = ..., pack_saved: _Optional[_Union[_hooks_pb2.PackSavedRequest, _Mapping]] = ..., saved_value: _Optional[_Union[_hooks_pb2.SavedValueRequest, _Mapping]] = ..., load_program: _Optional[_Union[_programs_pb2.LoadProgramRequest, _Mapping]] = ..., save_program: _Optional[_Union[_programs_pb2.SaveProgramRequest, _Mapping]] = ..., collective: _Optional[_Union[_collectives_pb2.CollectiveRequest, _Mapping]] = ..., set_counters: _Optional[_Union[_commands_pb2.SetCountersRequest, _Mapping]] = ..., quiet: bool = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class RunRequest(_message.Message):
    __slots__ = ("session_id", "writer", "first_seq", "epoch", "acknowledged_seq", "commands", "timings", "op_times", "recorded")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQ_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_SEQ_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    OP_TIMES_FIELD_NUMBER: _ClassVar[int]
    RECORDED_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    writer: int
    first_seq: int
    epoch: int
    acknowledged_seq: int
    commands: _containers.RepeatedCompositeFieldContainer[Command]
    timings: bool
    op_times: bool
    recorded: bool
    def __init__(self, session_id: _Optional[str] = ..., writer: _Optional[int] = ..., first_seq: _Optional[int] = ..., epoch: _Optional[int] = ..., acknowledged_seq: _Optional[int] = ..., commands: _Optional[_Iterable[_Union[Command, _Mapping]]] = ..., timings: bool = ..., op_times: bool = ..., recorded: bool = ...) -> None: ...

class Result(_message.Message):
    __slots__ = ("seq", "error", "create", "op", "backward", "retain_grad", "grad", "gradients", "set_grad", "set_requires_grad", "set_data", "manual_seed", "describe", "read", "release", "graph", "prepare", "register_program", "run_program", "register_hook", "remove_hook", "resume_backward", "record_function", "checkpoint", "name_edge", "pack_saved", "saved_value", "load_program", "save_program", "collective", "set_counters")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CREATE_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    BACKWARD_FIELD_NUMBER: _ClassVar[int]
    RETAIN_GRAD_FIELD_NUMBER: _ClassVar[int]
    GRAD_FIELD_NUMBER: _ClassVar[int]
    GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    SET_GRAD_FIELD_NUMBER: _ClassVar[int]
    SET_REQUIRES_GRAD_FIELD_NUMBER: _ClassVar[int]
    SET_DATA_FIELD_NUMBER: _ClassVar[int]
    MANUAL_SEED_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    PREPARE_FIELD_NUMBER: _ClassVar[int]
    REGISTER_PROGRAM_FIELD_NUMBER: _ClassVar[int]
    RUN_PROGRAM_FIELD_NUMBER: _ClassVar[int]
    REGISTER_HOOK_FIELD_NUMBER: _ClassVar[int]
    REMOVE_HOOK_FIELD_NUMBER: _ClassVar[int]
    RESUME_BACKWARD_FIELD_NUMBER: _ClassVar[int]
    RECORD_FUNCTION_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    NAME_EDGE_FIELD_NUMBER: _ClassVar[int]
    PACK_SAVED_FIELD_NUMBER: _ClassVar[int]
    SAVED_VALUE_FIELD_NUMBER: _ClassVar[int]
    LOAD_PROGRAM_FIELD_NUMBER: _ClassVar[int]
    SAVE_PROGRAM_FIELD_NUMBER: _ClassVar[int]
    COLLECTIVE_FIELD_NUMBER: _ClassVar[int]
    SET_COUNTERS_FIELD_NUMBER: _ClassVar[int]
    seq: int
    error: _errors_pb2.Error
    create: _commands_pb2.CreateResponse
    op: _commands_pb2.OpResponse
    backward: _commands_pb2.BackwardResponse
    retain_grad: _commands_pb2.RetainGradResponse
    grad: _commands_pb2.GradResponse
    gradients: _commands_pb2.GradientsResponse
    set_grad: _commands_pb2.SetGradResponse
    set_requires_grad: _commands_pb2.SetRequiresGradResponse
    set_data: _commands_pb2.SetDataResponse
    manual_seed: _commands_pb2.ManualSeedResponse
    describe: _commands_pb2.DescribeResponse
    read: _commands_pb2.ReadResponse
    release: _commands_pb2.ReleaseResponse
    graph: _commands_pb2.GraphResponse
    prepare: _commands_pb2.PrepareResponse
    register_program: _programs_pb2.RegisterProgramResponse
    run_program: _programs_pb2.RunProgramResponse
    register_hook: _hooks_pb2.RegisterHookResponse
    remove_hook: _hooks_pb2.RemoveHookResponse
    resume_backward: _hooks_pb2.ResumeBackwardResponse
    record_function: _hooks_pb2.RecordFunctionResponse
    checkpoint: _hooks_pb2.CheckpointResponse
    name_edge: _hooks_pb2.NameEdgeResponse
    pack_saved: _hooks_pb2.PackSavedResponse
    saved_value: _hooks_pb2.SavedValueResponse
    load_program: _programs_pb2.LoadProgramResponse
    save_program: _programs_pb2.SaveProgramResponse
    collective: _collectives_pb2.CollectiveResponse
    set_counters: _commands_pb2.SetCountersResponse
    def __init__(self, seq: _Optional[int] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping]] = ..., create: _Optional[_Union[_commands_pb2.CreateResponse, _Mapping]] = ..., op: _Optional[_Union[_commands_pb2.OpResponse, _Mapping]] = ..., backward: _Optional[_Union[_commands_pb2.BackwardResponse, _Mapping]] = ..., retain_grad: _Optional[_Union[_commands_pb2.RetainGradResponse, _Mapping]] = ..., grad: _Optional[_Union[_commands_pb2.GradResponse, _Mapping]] = ..., gradients: _Optional[_Union[_commands_pb2.GradientsResponse, _Mapping]] = ..., set_grad: _Optional[_Union[_commands_pb2.SetGradResponse, _Mapping]] = ..., set_requires_grad: _Optional[_Union[_commands_pb2.SetRequiresGradResponse, _Mapping]] = ..., set_data: _Optional[_Union[_commands_pb2.SetDataResponse, _Mapping]] = ..., manual_seed: _Optional[_Union[_commands_pb2.ManualSeedResponse, _Mapping]] = ..., describe: _Optional[_Union[_commands_pb2.DescribeResponse, _Mapping]] = ..., read: _Optional[_Union[_commands_pb2.ReadResponse, _Mapping]] = ..., release: _Optional[_Union[_commands_pb2.ReleaseResponse, _Mapping]] = ..., graph: _Optional[_Union[_commands_pb2.GraphResponse, _Mapping]] = ..., prepare: _Optional[_Union[_commands_pb2.PrepareResponse, _Mapping]] = ..., register_program: _Optional[_Union[_programs_pb2.RegisterProgramResponse, _Mapping]] = ..., run_program: _Optional[_Union[_programs_pb2.RunProgramResponse, _Mapping]] = ..., register_hook: _Optional[_Union[_hooks_pb2.RegisterHookResponse, _Mapping]] = ..., remove_hook: _Optional[_Union[_hooks_pb2.RemoveHookResponse, _Mapping]] = ..., resume_backward: _Optional[_Union[_hooks_pb2.ResumeBackwardResponse, _Mapping]] = ..., record_function: _Optional[_Union[_hooks_pb2.RecordFunctionResponse, _Mapping]] = ..., checkpoint: _Optional[_Union[_hooks_pb2.CheckpointResponse, _Mapping]] = ..., name_edge: _Optional[_Union[_hooks_pb2.NameEdgeResponse, _Mapping]] = ..., pack_saved: _Optional[_Union[_hooks_pb2.PackSavedResponse, _Mapping]] = ..., saved_value: _Optional[_Union[_hooks_pb2.SavedValueResponse, _Mapping]] = ..., load_program: _Optional[_Union[_programs_pb2.LoadProgramResponse, _Mapping]] = ..., save_program: _Optional[_Union[_programs_pb2.SaveProgramResponse, _Mapping]] = ..., collective: _Optional[_Union[_collectives_pb2.CollectiveResponse, _Mapping]] = ..., set_counters: _Optional[_Union[_commands_pb2.SetCountersResponse, _Mapping]] = ...) -> None: ...

class RunResponse(_message.Message):
    __slots__ = ("results", "applied_seq", "durable_seq", "epoch", "dropped_hooks", "joined", "timings", "op_times")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    APPLIED_SEQ_FIELD_NUMBER: _ClassVar[int]
    DURABLE_SEQ_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    DROPPED_HOOKS_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    OP_TIMES_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[Result]
    applied_seq: int
    durable_seq: int
    epoch: int
    dropped_hooks: _containers.RepeatedScalarFieldContainer[int]
    joined: JoinedStep
    timings: Timings
    op_times: _containers.RepeatedCompositeFieldContainer[_commands_pb2.OpTime]
    def __init__(self, results: _Optional[_Iterable[_Union[Result, _Mapping]]] = ..., applied_seq: _Optional[int] = ..., durable_seq: _Optional[int] = ..., epoch: _Optional[int] = ..., dropped_hooks: _Optional[_Iterable[int]] = ..., joined: _Optional[_Union[JoinedStep, _Mapping]] = ..., timings: _Optional[_Union[Timings, _Mapping]] = ..., op_times: _Optional[_Iterable[_Union[_commands_pb2.OpTime, _Mapping]]] = ...) -> None: ...

class JoinedStep(_message.Message):
    __slots__ = ("commands", "seconds")
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    commands: int
    seconds: float
    def __init__(self, commands: _Optional[int] = ..., seconds: _Optional[float] = ...) -> None: ...

class Timings(_message.Message):
    __slots__ = ("queue_seconds", "compute_seconds", "serialize_seconds")
    QUEUE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SERIALIZE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    queue_seconds: float
    compute_seconds: float
    serialize_seconds: float
    def __init__(self, queue_seconds: _Optional[float] = ..., compute_seconds: _Optional[float] = ..., serialize_seconds: _Optional[float] = ...) -> None: ...

class StreamRequest(_message.Message):
    __slots__ = ("attach", "batch", "acknowledge", "traceparent")
    ATTACH_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGE_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    attach: StreamAttach
    batch: RunRequest
    acknowledge: StreamAcknowledge
    traceparent: str
    def __init__(self, attach: _Optional[_Union[StreamAttach, _Mapping]] = ..., batch: _Optional[_Union[RunRequest, _Mapping]] = ..., acknowledge: _Optional[_Union[StreamAcknowledge, _Mapping]] = ..., traceparent: _Optional[str] = ...) -> None: ...

class StreamAttach(_message.Message):
    __slots__ = ("session_id", "writer", "epoch", "acknowledged_seq", "attempt", "joined_answers")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_SEQ_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    JOINED_ANSWERS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    writer: int
    epoch: int
    acknowledged_seq: int
    attempt: int
    joined_answers: bool
    def __init__(self, session_id: _Optional[str] = ..., writer: _Optional[int] = ..., epoch: _Optional[int] = ..., acknowledged_seq: _Optional[int] = ..., attempt: _Optional[int] = ..., joined_answers: bool = ...) -> None: ...

class StreamAcknowledge(_message.Message):
    __slots__ = ("acknowledged_seq",)
    ACKNOWLEDGED_SEQ_FIELD_NUMBER: _ClassVar[int]
    acknowledged_seq: int
    def __init__(self, acknowledged_seq: _Optional[int] = ...) -> None: ...

class StreamResponse(_message.Message):
    __slots__ = ("attached", "batch", "credit_bytes", "batches")
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    CREDIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    attached: StreamAttached
    batch: RunResponse
    credit_bytes: int
    batches: int
    def __init__(self, attached: _Optional[_Union[StreamAttached, _Mapping]] = ..., batch: _Optional[_Union[RunResponse, _Mapping]] = ..., credit_bytes: _Optional[int] = ..., batches: _Optional[int] = ...) -> None: ...

class StreamAttached(_message.Message):
    __slots__ = ("applied_seq", "durable_seq", "epoch", "local_stream")
    APPLIED_SEQ_FIELD_NUMBER: _ClassVar[int]
    DURABLE_SEQ_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LOCAL_STREAM_FIELD_NUMBER: _ClassVar[int]
    applied_seq: int
    durable_seq: int
    epoch: int
    local_stream: str
    def __init__(self, applied_seq: _Optional[int] = ..., durable_seq: _Optional[int] = ..., epoch: _Optional[int] = ..., local_stream: _Optional[str] = ...) -> None: ...

class UploadRequest(_message.Message):
    __slots__ = ("start", "data")
    START_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    start: UploadStart
    data: bytes
    def __init__(self, start: _Optional[_Union[UploadStart, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class UploadStart(_message.Message):
    __slots__ = ("session_id", "transfer_id", "total_bytes", "offset", "request_id")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_ID_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    transfer_id: str
    total_bytes: int
    offset: int
    request_id: str
    def __init__(self, session_id: _Optional[str] = ..., transfer_id: _Optional[str] = ..., total_bytes: _Optional[int] = ..., offset: _Optional[int] = ..., request_id: _Optional[str] = ...) -> None: ...

class UploadResponse(_message.Message):
    __slots__ = ("transfer_id", "received_bytes")
    TRANSFER_ID_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    transfer_id: str
    received_bytes: int
    def __init__(self, transfer_id: _Optional[str] = ..., received_bytes: _Optional[int] = ...) -> None: ...

class DownloadRequest(_message.Message):
    __slots__ = ("session_id", "transfer_id", "offset")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    transfer_id: str
    offset: int
    def __init__(self, session_id: _Optional[str] = ..., transfer_id: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class DownloadResponse(_message.Message):
    __slots__ = ("offset", "data")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    offset: int
    data: bytes
    def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class ShareRequest(_message.Message):
    __slots__ = ("session_id", "nonce", "upload", "download", "moved")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_FIELD_NUMBER: _ClassVar[int]
    DOWNLOAD_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    nonce: str
    upload: UploadStart
    download: DownloadRequest
    moved: int
    def __init__(self, session_id: _Optional[str] = ..., nonce: _Optional[str] = ..., upload: _Optional[_Union[UploadStart, _Mapping]] = ..., download: _Optional[_Union[DownloadRequest, _Mapping]] = ..., moved: _Optional[int] = ...) -> None: ...

class ShareResponse(_message.Message):
    __slots__ = ("ring", "transfer_id", "moved")
    RING_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_ID_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    ring: Ring
    transfer_id: str
    moved: int
    def __init__(self, ring: _Optional[_Union[Ring, _Mapping]] = ..., transfer_id: _Optional[str] = ..., moved: _Optional[int] = ...) -> None: ...

class Ring(_message.Message):
    __slots__ = ("pid", "fd", "name", "bytes")
    PID_FIELD_NUMBER: _ClassVar[int]
    FD_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    pid: int
    fd: int
    name: str
    bytes: int
    def __init__(self, pid: _Optional[int] = ..., fd: _Optional[int] = ..., name: _Optional[str] = ..., bytes: _Optional[int] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("session_id", "writer", "through_seq")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    THROUGH_SEQ_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    writer: int
    through_seq: int
    def __init__(self, session_id: _Optional[str] = ..., writer: _Optional[int] = ..., through_seq: _Optional[int] = ...) -> None: ...

class CancelResponse(_message.Message):
    __slots__ = ("cancelled",)
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    cancelled: bool
    def __init__(self, cancelled: bool = ...) -> None: ...

class ServerInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ServerInfoResponse(_message.Message):
    __slots__ = ("version", "min_protocol", "max_protocol", "devices", "dtypes", "limits", "build", "sessions", "bytes")
    class BuildEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MIN_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    MAX_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    DTYPES_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    BUILD_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    version: str
    min_protocol: int
    max_protocol: int
    devices: _containers.RepeatedCompositeFieldContainer[Device]
    dtypes: _containers.RepeatedScalarFieldContainer[_types_pb2.Dtype]
    limits: Limits
    build: _containers.ScalarMap[str, str]
    sessions: int
    bytes: int
    def __init__(self, version: _Optional[str] = ..., min_protocol: _Optional[int] = ..., max_protocol: _Optional[int] = ..., devices: _Optional[_Iterable[_Union[Device, _Mapping]]] = ..., dtypes: _Optional[_Iterable[_Union[_types_pb2.Dtype, str]]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., build: _Optional[_Mapping[str, str]] = ..., sessions: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class Device(_message.Message):
    __slots__ = ("name", "description", "total_bytes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    total_bytes: int
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., total_bytes: _Optional[int] = ...) -> None: ...

class ListOpsRequest(_message.Message):
    __slots__ = ("prefix", "known_hash")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    KNOWN_HASH_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    known_hash: str
    def __init__(self, prefix: _Optional[str] = ..., known_hash: _Optional[str] = ...) -> None: ...

class ListOpsResponse(_message.Message):
    __slots__ = ("ops", "hash")
    OPS_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    ops: _containers.RepeatedCompositeFieldContainer[OpSchema]
    hash: str
    def __init__(self, ops: _Optional[_Iterable[_Union[OpSchema, _Mapping]]] = ..., hash: _Optional[str] = ...) -> None: ...

class ListSessionsRequest(_message.Message):
    __slots__ = ("principal", "page_size", "page_token", "stored", "nodes")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    principal: str
    page_size: int
    page_token: str
    stored: bool
    nodes: bool
    def __init__(self, principal: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., stored: bool = ..., nodes: bool = ...) -> None: ...

class ListSessionsResponse(_message.Message):
    __slots__ = ("sessions", "next_page_token", "nodes")
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    sessions: _containers.RepeatedCompositeFieldContainer[SessionSummary]
    next_page_token: str
    nodes: _containers.RepeatedCompositeFieldContainer[ClusterNode]
    def __init__(self, sessions: _Optional[_Iterable[_Union[SessionSummary, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., nodes: _Optional[_Iterable[_Union[ClusterNode, _Mapping]]] = ...) -> None: ...

class ClusterNode(_message.Message):
    __slots__ = ("endpoint", "sessions", "workers", "gpus", "bytes", "max_bytes", "draining", "silent_ms", "device_types", "version", "metrics")
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    SILENT_MS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TYPES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    endpoint: str
    sessions: int
    workers: int
    gpus: int
    bytes: int
    max_bytes: int
    draining: bool
    silent_ms: int
    device_types: _containers.RepeatedScalarFieldContainer[str]
    version: str
    metrics: str
    def __init__(self, endpoint: _Optional[str] = ..., sessions: _Optional[int] = ..., workers: _Optional[int] = ..., gpus: _Optional[int] = ..., bytes: _Optional[int] = ..., max_bytes: _Optional[int] = ..., draining: bool = ..., silent_ms: _Optional[int] = ..., device_types: _Optional[_Iterable[str]] = ..., version: _Optional[str] = ..., metrics: _Optional[str] = ...) -> None: ...

class SessionSummary(_message.Message):
    __slots__ = ("number", "principal", "client", "age_ms", "lease_left_ms", "writers", "pending", "worker", "bytes", "tensors", "commands", "compute_us", "stored", "unstored")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_LEFT_MS_FIELD_NUMBER: _ClassVar[int]
    WRITERS_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_US_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    UNSTORED_FIELD_NUMBER: _ClassVar[int]
    number: int
    principal: str
    client: str
    age_ms: int
    lease_left_ms: int
    writers: int
    pending: int
    worker: int
    bytes: int
    tensors: int
    commands: int
    compute_us: int
    stored: StoredSession
    unstored: str
    def __init__(self, number: _Optional[int] = ..., principal: _Optional[str] = ..., client: _Optional[str] = ..., age_ms: _Optional[int] = ..., lease_left_ms: _Optional[int] = ..., writers: _Optional[int] = ..., pending: _Optional[int] = ..., worker: _Optional[int] = ..., bytes: _Optional[int] = ..., tensors: _Optional[int] = ..., commands: _Optional[int] = ..., compute_us: _Optional[int] = ..., stored: _Optional[_Union[StoredSession, _Mapping]] = ..., unstored: _Optional[str] = ...) -> None: ...

class StoredSession(_message.Message):
    __slots__ = ("saved_unix_ms", "left_ms", "damage")
    SAVED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    LEFT_MS_FIELD_NUMBER: _ClassVar[int]
    DAMAGE_FIELD_NUMBER: _ClassVar[int]
    saved_unix_ms: int
    left_ms: int
    damage: str
    def __init__(self, saved_unix_ms: _Optional[int] = ..., left_ms: _Optional[int] = ..., damage: _Optional[str] = ...) -> None: ...

class EndSessionRequest(_message.Message):
    __slots__ = ("number", "stored")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    number: int
    stored: bool
    def __init__(self, number: _Optional[int] = ..., stored: bool = ...) -> None: ...

class EndSessionResponse(_message.Message):
    __slots__ = ("freed_bytes",)
    FREED_BYTES_FIELD_NUMBER: _ClassVar[int]
    freed_bytes: int
    def __init__(self, freed_bytes: _Optional[int] = ...) -> None: ...

class OpSchema(_message.Message):
    __slots__ = ("name", "parameters", "doc", "differentiable", "in_place", "data_dependent", "outputs", "namespace", "function", "method", "overloads", "aliases", "view", "random", "deprecated", "base")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    DOC_FIELD_NUMBER: _ClassVar[int]
    DIFFERENTIABLE_FIELD_NUMBER: _ClassVar[int]
    IN_PLACE_FIELD_NUMBER: _ClassVar[int]
    DATA_DEPENDENT_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    OVERLOADS_FIELD_NUMBER: _ClassVar[int]
    ALIASES_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    RANDOM_FIELD_NUMBER: _ClassVar[int]
    DEPRECATED_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    name: str
    parameters: _containers.RepeatedCompositeFieldContainer[Parameter]
    doc: str
    differentiable: bool
    in_place: bool
    data_dependent: bool
    outputs: _containers.RepeatedScalarFieldContainer[str]
    namespace: str
    function: bool
    method: bool
    overloads: _containers.RepeatedCompositeFieldContainer[Overload]
    aliases: _containers.RepeatedScalarFieldContainer[str]
    view: ViewKind
    random: bool
    deprecated: str
    base: str
    def __init__(self, name: _Optional[str] = ..., parameters: _Optional[_Iterable[_Union[Parameter, _Mapping]]] = ..., doc: _Optional[str] = ..., differentiable: bool = ..., in_place: bool = ..., data_dependent: bool = ..., outputs: _Optional[_Iterable[str]] = ..., namespace: _Optional[str] = ..., function: bool = ..., method: bool = ..., overloads: _Optional[_Iterable[_Union[Overload, _Mapping]]] = ..., aliases: _Optional[_Iterable[str]] = ..., view: _Optional[_Union[ViewKind, str]] = ..., random: bool = ..., deprecated: _Optional[str] = ..., base: _Optional[str] = ...) -> None: ...

class Overload(_message.Message):
    __slots__ = ("name", "parameters", "results", "returns_list")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    RETURNS_LIST_FIELD_NUMBER: _ClassVar[int]
    name: str
    parameters: _containers.RepeatedCompositeFieldContainer[Parameter]
    results: _containers.RepeatedScalarFieldContainer[str]
    returns_list: bool
    def __init__(self, name: _Optional[str] = ..., parameters: _Optional[_Iterable[_Union[Parameter, _Mapping]]] = ..., results: _Optional[_Iterable[str]] = ..., returns_list: bool = ...) -> None: ...

class Parameter(_message.Message):
    __slots__ = ("name", "kind", "optional", "default", "keyword_only", "choices", "fixed", "variadic")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    OPTIONAL_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_FIELD_NUMBER: _ClassVar[int]
    KEYWORD_ONLY_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    FIXED_FIELD_NUMBER: _ClassVar[int]
    VARIADIC_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: ParameterKind
    optional: bool
    default: _types_pb2.Argument
    keyword_only: bool
    choices: _containers.RepeatedScalarFieldContainer[str]
    fixed: _types_pb2.Argument
    variadic: bool
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[_Union[ParameterKind, str]] = ..., optional: bool = ..., default: _Optional[_Union[_types_pb2.Argument, _Mapping]] = ..., keyword_only: bool = ..., choices: _Optional[_Iterable[str]] = ..., fixed: _Optional[_Union[_types_pb2.Argument, _Mapping]] = ..., variadic: bool = ...) -> None: ...
