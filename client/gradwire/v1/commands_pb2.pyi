from gradwire.v1 import errors_pb2 as _errors_pb2
from gradwire.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CreateRequest(_message.Message):
    __slots__ = ("session_id", "request_id", "id", "requires_grad", "device", "grad_mode", "payload", "transfer")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    REQUIRES_GRAD_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    GRAD_MODE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    request_id: str
    id: int
    requires_grad: bool
    device: str
    grad_mode: _types_pb2.GradMode
    payload: _types_pb2.Payload
    transfer: Transfer
    def __init__(self, session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., id: _Optional[int] = ..., requires_grad: bool = ..., device: _Optional[str] = ..., grad_mode: _Optional[_Union[_types_pb2.GradMode, str]] = ..., payload: _Optional[_Union[_types_pb2.Payload, _Mapping]] = ..., transfer: _Optional[_Union[Transfer, _Mapping]] = ...) -> None: ...

class CreateResponse(_message.Message):
    __slots__ = ("tensor",)
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    tensor: _types_pb2.TensorSpec
    def __init__(self, tensor: _Optional[_Union[_types_pb2.TensorSpec, _Mapping]] = ...) -> None: ...

class OpRequest(_message.Message):
    __slots__ = ("session_id", "request_id", "op", "args", "outputs", "grad_mode", "default_dtype")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    GRAD_MODE_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_DTYPE_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    request_id: str
    op: str
    args: _containers.RepeatedCompositeFieldContainer[_types_pb2.Argument]
    outputs: _containers.RepeatedScalarFieldContainer[int]
    grad_mode: _types_pb2.GradMode
    default_dtype: _types_pb2.Dtype
    def __init__(self, session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., op: _Optional[str] = ..., args: _Optional[_Iterable[_Union[_types_pb2.Argument, _Mapping]]] = ..., outputs: _Optional[_Iterable[int]] = ..., grad_mode: _Optional[_Union[_types_pb2.GradMode, str]] = ..., default_dtype: _Optional[_Union[_types_pb2.Dtype, str]] = ...) -> None: ...

class OpResponse(_message.Message):
    __slots__ = ("outputs",)
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    outputs: _containers.RepeatedCompositeFieldContainer[_types_pb2.TensorSpec]
    def __init__(self, outputs: _Optional[_Iterable[_Union[_types_pb2.TensorSpec, _Mapping]]] = ...) -> None: ...

class BackwardRequest(_message.Message):
    __slots__ = ("session_id", "request_id", "tensors", "gradients", "retain_graph", "create_graph", "inputs", "check_nan", "answers_hooks")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    RETAIN_GRAPH_FIELD_NUMBER: _ClassVar[int]
    CREATE_GRAPH_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    CHECK_NAN_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_HOOKS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    request_id: str
    tensors: _containers.RepeatedScalarFieldContainer[int]
    gradients: _containers.RepeatedScalarFieldContainer[int]
    retain_graph: bool
    create_graph: bool
    inputs: _containers.RepeatedScalarFieldContainer[int]
    check_nan: bool
    answers_hooks: bool
    def __init__(self, session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., tensors: _Optional[_Iterable[int]] = ..., gradients: _Optional[_Iterable[int]] = ..., retain_graph: bool = ..., create_graph: bool = ..., inputs: _Optional[_Iterable[int]] = ..., check_nan: bool = ..., answers_hooks: bool = ...) -> None: ...

class BackwardResponse(_message.Message):
    __slots__ = ("accumulated", "due")
    ACCUMULATED_FIELD_NUMBER: _ClassVar[int]
    DUE_FIELD_NUMBER: _ClassVar[int]
    accumulated: _containers.RepeatedScalarFieldContainer[int]
    due: _types_pb2.HookCall
    def __init__(self, accumulated: _Optional[_Iterable[int]] = ..., due: _Optional[_Union[_types_pb2.HookCall, _Mapping]] = ...) -> None: ...

class RetainGradRequest(_message.Message):
    __slots__ = ("session_id", "request_id", "tensor")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    request_id: str
    tensor: int
    def __init__(self, session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., tensor: _Optional[int] = ...) -> None: ...

class RetainGradResponse(_message.Message):
    __slots__ = ("tensor",)
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    tensor: _types_pb2.TensorSpec
    def __init__(self, tensor: _Optional[_Union[_types_pb2.TensorSpec, _Mapping]] = ...) -> None: ...

class GradRequest(_message.Message):
    __slots__ = ("session_id", "request_id", "tensor", "id")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    request_id: str
    tensor: int
    id: int
    def __init__(self, session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., tensor: _Optional[int] = ..., id: _Optional[int] = ...) -> None: ...

class GradResponse(_message.Message):
    __slots__ = ("grad",)
    GRAD_FIELD_NUMBER: _ClassVar[int]
    grad: _types_pb2.TensorSpec
    def __init__(self, grad: _Optional[_Union[_types_pb2.TensorSpec, _Mapping]] = ...) -> None: ...

class GradientsRequest(_message.Message):
    __slots__ = ("session_id", "request_id", "outputs", "inputs", "grad_outputs", "retain_graph", "create_graph", "allow_unused", "materialize_grads", "results", "check_nan", "answers_hooks", "called_node")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    GRAD_OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    RETAIN_GRAPH_FIELD_NUMBER: _ClassVar[int]
    CREATE_GRAPH_FIELD_NUMBER: _ClassVar[int]
    ALLOW_UNUSED_FIELD_NUMBER: _ClassVar[int]
    MATERIALIZE_GRADS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    CHECK_NAN_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_HOOKS_FIELD_NUMBER: _ClassVar[int]
    CALLED_NODE_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    request_id: str
    outputs: _containers.RepeatedScalarFieldContainer[int]
    inputs: _containers.RepeatedScalarFieldContainer[int]
    grad_outputs: _containers.RepeatedScalarFieldContainer[int]
    retain_graph: bool
    create_graph: bool
    allow_unused: bool
    materialize_grads: bool
    results: _containers.RepeatedScalarFieldContainer[int]
    check_nan: bool
    answers_hooks: bool
    called_node: int
    def __init__(self, session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., outputs: _Optional[_Iterable[int]] = ..., inputs: _Optional[_Iterable[int]] = ..., grad_outputs: _Optional[_Iterable[int]] = ..., retain_graph: bool = ..., create_graph: bool = ..., allow_unused: bool = ..., materialize_grads: bool = ..., results: _Optional[_Iterable[int]] = ..., check_nan: bool = ..., answers_hooks: bool = ..., called_node: _Optional[int] = ...) -> None: ...

class GradientsResponse(_message.Message):
    __slots__ = ("gradients", "accumulated", "due")
    GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    ACCUMULATED_FIELD_NUMBER: _ClassVar[int]
    DUE_FIELD_NUMBER: _ClassVar[int]
    gradients: _containers.RepeatedCompositeFieldContainer[_types_pb2.TensorSpec]
    accumulated: _containers.RepeatedScalarFieldContainer[int]
    due: _types_pb2.HookCall
    def __init__(self, gradients: _Optional[_Iterable[_Union[_types_pb2.TensorSpec, _Mapping]]] = ..., accumulated: _Optional[_Iterable[int]] = ..., due: _Optional[_Union[_types_pb2.HookCall, _Mapping]] = ...) -> None: ...

class SetGradRequest(_message.Message):
    __slots__ = ("session_id", "request_id", "tensor", "grad")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    GRAD_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    request_id: str
    tensor: int
    grad: int
    def __init__(self, session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., tensor: _Optional[int] = ..., grad: _Optional[int] = ...) -> None: ...

class SetGradResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SetRequiresGradRequest(_message.Message):
    __slots__ = ("session_id", "request_id", "tensor", "requires_grad")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    REQUIRES_GRAD_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    request_id: str
    tensor: int
    requires_grad: bool
    def __init__(self, session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., tensor: _Optional[int] = ..., requires_grad: bool = ...) -> None: ...

class SetRequiresGradResponse(_message.Message):
    __slots__ = ("tensor",)
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    tensor: _types_pb2.TensorSpec
    def __init__(self, tensor: _Optional[_Union[_types_pb2.TensorSpec, _Mapping]] = ...) -> None: ...

class SetDataRequest(_message.Message):
    __slots__ = ("session_id", "request_id", "tensor", "data")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    request_id: str
    tensor: int
    data: int
    def __init__(self, session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., tensor: _Optional[int] = ..., data: _Optional[int] = ...) -> None: ...

class SetDataResponse(_message.Message):
    __slots__ = ("tensor",)
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    tensor: _types_pb2.TensorSpec
    def __init__(self, tensor: _Optional[_Union[_types_pb2.TensorSpec, _Mapping]] = ...) -> None: ...

class SetCountersRequest(_message.Message):
    __slots__ = ("session_id", "request_id", "tensor", "node", "version", "sequence")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    request_id: str
    tensor: int
    node: int
    version: int
    sequence: int
    def __init__(self, session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., tensor: _Optional[int] = ..., node: _Optional[int] = ..., version: _Optional[int] = ..., sequence: _Optional[int] = ...) -> None: ...

class SetCountersResponse(_message.Message):
    __slots__ = ("version", "sequence")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    version: int
    sequence: int
    def __init__(self, version: _Optional[int] = ..., sequence: _Optional[int] = ...) -> None: ...

class ManualSeedRequest(_message.Message):
    __slots__ = ("session_id", "request_id", "seed", "state", "algorithm")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    request_id: str
    seed: int
    state: bytes
    algorithm: _types_pb2.RandomAlgorithm
    def __init__(self, session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., seed: _Optional[int] = ..., state: _Optional[bytes] = ..., algorithm: _Optional[_Union[_types_pb2.RandomAlgorithm, str]] = ...) -> None: ...

class ManualSeedResponse(_message.Message):
    __slots__ = ("seed", "state", "algorithm")
    SEED_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    seed: int
    state: bytes
    algorithm: _types_pb2.RandomAlgorithm
    def __init__(self, seed: _Optional[int] = ..., state: _Optional[bytes] = ..., algorithm: _Optional[_Union[_types_pb2.RandomAlgorithm, str]] = ...) -> None: ...

class DescribeRequest(_message.Message):
    __slots__ = ("session_id", "tensors", "list", "after", "page_size", "activity")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    LIST_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    ACTIVITY_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    tensors: _containers.RepeatedScalarFieldContainer[int]
    list: bool
    after: int
    page_size: int
    activity: bool
    def __init__(self, session_id: _Optional[str] = ..., tensors: _Optional[_Iterable[int]] = ..., list: bool = ..., after: _Optional[int] = ..., page_size: _Optional[int] = ..., activity: bool = ...) -> None: ...

class DescribeResponse(_message.Message):
    __slots__ = ("tensors", "tensor_count", "bytes", "more", "activity")
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    TENSOR_COUNT_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    ACTIVITY_FIELD_NUMBER: _ClassVar[int]
    tensors: _containers.RepeatedCompositeFieldContainer[_types_pb2.TensorSpec]
    tensor_count: int
    bytes: int
    more: bool
    activity: SessionActivity
    def __init__(self, tensors: _Optional[_Iterable[_Union[_types_pb2.TensorSpec, _Mapping]]] = ..., tensor_count: _Optional[int] = ..., bytes: _Optional[int] = ..., more: bool = ..., activity: _Optional[_Union[SessionActivity, _Mapping]] = ...) -> None: ...

class SessionActivity(_message.Message):
    __slots__ = ("op_times", "refused", "refusals", "programs")
    OP_TIMES_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    PROGRAMS_FIELD_NUMBER: _ClassVar[int]
    op_times: _containers.RepeatedCompositeFieldContainer[OpTime]
    refused: int
    refusals: _containers.RepeatedCompositeFieldContainer[LoggedRefusal]
    programs: _containers.RepeatedCompositeFieldContainer[ProgramStatistics]
    def __init__(self, op_times: _Optional[_Iterable[_Union[OpTime, _Mapping]]] = ..., refused: _Optional[int] = ..., refusals: _Optional[_Iterable[_Union[LoggedRefusal, _Mapping]]] = ..., programs: _Optional[_Iterable[_Union[ProgramStatistics, _Mapping]]] = ...) -> None: ...

class OpTime(_message.Message):
    __slots__ = ("kind", "name", "seconds", "calls")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    seconds: float
    calls: int
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ..., seconds: _Optional[float] = ..., calls: _Optional[int] = ...) -> None: ...

class LoggedRefusal(_message.Message):
    __slots__ = ("at_unix_ms", "command", "op", "reason", "message")
    AT_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    at_unix_ms: int
    command: str
    op: str
    reason: _errors_pb2.Reason
    message: str
    def __init__(self, at_unix_ms: _Optional[int] = ..., command: _Optional[str] = ..., op: _Optional[str] = ..., reason: _Optional[_Union[_errors_pb2.Reason, str]] = ..., message: _Optional[str] = ...) -> None: ...

class ProgramStatistics(_message.Message):
    __slots__ = ("hash", "ops", "steps", "planned_runs", "stepwise_runs", "stepwise_because")
    HASH_FIELD_NUMBER: _ClassVar[int]
    OPS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    PLANNED_RUNS_FIELD_NUMBER: _ClassVar[int]
    STEPWISE_RUNS_FIELD_NUMBER: _ClassVar[int]
    STEPWISE_BECAUSE_FIELD_NUMBER: _ClassVar[int]
    hash: bytes
    ops: _containers.RepeatedScalarFieldContainer[str]
    steps: int
    planned_runs: int
    stepwise_runs: int
    stepwise_because: str
    def __init__(self, hash: _Optional[bytes] = ..., ops: _Optional[_Iterable[str]] = ..., steps: _Optional[int] = ..., planned_runs: _Optional[int] = ..., stepwise_runs: _Optional[int] = ..., stepwise_because: _Optional[str] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("session_id", "tensor")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    tensor: int
    def __init__(self, session_id: _Optional[str] = ..., tensor: _Optional[int] = ...) -> None: ...

class ReadResponse(_message.Message):
    __slots__ = ("payload", "transfer")
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_FIELD_NUMBER: _ClassVar[int]
    payload: _types_pb2.Payload
    transfer: Transfer
    def __init__(self, payload: _Optional[_Union[_types_pb2.Payload, _Mapping]] = ..., transfer: _Optional[_Union[Transfer, _Mapping]] = ...) -> None: ...

class Transfer(_message.Message):
    __slots__ = ("transfer_id", "dtype", "shape", "total_bytes")
    TRANSFER_ID_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    transfer_id: str
    dtype: _types_pb2.Dtype
    shape: _containers.RepeatedScalarFieldContainer[int]
    total_bytes: int
    def __init__(self, transfer_id: _Optional[str] = ..., dtype: _Optional[_Union[_types_pb2.Dtype, str]] = ..., shape: _Optional[_Iterable[int]] = ..., total_bytes: _Optional[int] = ...) -> None: ...

class Prepare(_message.Message):
    __slots__ = ("number", "op")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    number: int
    op: OpRequest
    def __init__(self, number: _Optional[int] = ..., op: _Optional[_Union[OpRequest, _Mapping]] = ...) -> None: ...

class PrepareResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Calls(_message.Message):
    __slots__ = ("count", "words")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    count: int
    words: bytes
    def __init__(self, count: _Optional[int] = ..., words: _Optional[bytes] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("session_id", "request_id", "tensors")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    request_id: str
    tensors: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., tensors: _Optional[_Iterable[int]] = ...) -> None: ...

class ReleaseResponse(_message.Message):
    __slots__ = ("released",)
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    released: int
    def __init__(self, released: _Optional[int] = ...) -> None: ...

class GraphRequest(_message.Message):
    __slots__ = ("session_id", "tensors", "page_size", "page_token", "with_saved")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    WITH_SAVED_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    tensors: _containers.RepeatedScalarFieldContainer[int]
    page_size: int
    page_token: str
    with_saved: bool
    def __init__(self, session_id: _Optional[str] = ..., tensors: _Optional[_Iterable[int]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., with_saved: bool = ...) -> None: ...

class GraphResponse(_message.Message):
    __slots__ = ("nodes", "roots", "next_page_token")
    NODES_FIELD_NUMBER: _ClassVar[int]
    ROOTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[GraphNode]
    roots: _containers.RepeatedScalarFieldContainer[int]
    next_page_token: str
    def __init__(self, nodes: _Optional[_Iterable[_Union[GraphNode, _Mapping]]] = ..., roots: _Optional[_Iterable[int]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GraphNode(_message.Message):
    __slots__ = ("id", "name", "edges", "leaf", "saved_bytes", "freed", "retains_grad", "command", "saved", "sequence")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    EDGES_FIELD_NUMBER: _ClassVar[int]
    LEAF_FIELD_NUMBER: _ClassVar[int]
    SAVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    FREED_FIELD_NUMBER: _ClassVar[int]
    RETAINS_GRAD_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    id: int
    name: str
    edges: _containers.RepeatedCompositeFieldContainer[GraphEdge]
    leaf: _types_pb2.TensorSpec
    saved_bytes: int
    freed: bool
    retains_grad: bool
    command: int
    saved: _containers.RepeatedCompositeFieldContainer[SavedValue]
    sequence: int
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., edges: _Optional[_Iterable[_Union[GraphEdge, _Mapping]]] = ..., leaf: _Optional[_Union[_types_pb2.TensorSpec, _Mapping]] = ..., saved_bytes: _Optional[int] = ..., freed: bool = ..., retains_grad: bool = ..., command: _Optional[int] = ..., saved: _Optional[_Iterable[_Union[SavedValue, _Mapping]]] = ..., sequence: _Optional[int] = ...) -> None: ...

class SavedValue(_message.Message):
    __slots__ = ("name", "shape", "dtype")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    dtype: _types_pb2.Dtype
    def __init__(self, name: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., dtype: _Optional[_Union[_types_pb2.Dtype, str]] = ...) -> None: ...

class GraphEdge(_message.Message):
    __slots__ = ("node", "output")
    NODE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    node: int
    output: int
    def __init__(self, node: _Optional[int] = ..., output: _Optional[int] = ...) -> None: ...
