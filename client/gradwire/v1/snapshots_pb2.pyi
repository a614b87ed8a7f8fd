from gradwire.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SaveSessionRequest(_message.Message):
    __slots__ = ("session_id", "name", "ttl_ms", "tensors")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    name: str
    ttl_ms: int
    tensors: _containers.RepeatedCompositeFieldContainer[NamedTensor]
    def __init__(self, session_id: _Optional[str] = ..., name: _Optional[str] = ..., ttl_ms: _Optional[int] = ..., tensors: _Optional[_Iterable[_Union[NamedTensor, _Mapping]]] = ...) -> None: ...

class NamedTensor(_message.Message):
    __slots__ = ("name", "id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    id: int
    def __init__(self, name: _Optional[str] = ..., id: _Optional[int] = ...) -> None: ...

class SaveSessionResponse(_message.Message):
    __slots__ = ("snapshot",)
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    snapshot: SnapshotSummary
    def __init__(self, snapshot: _Optional[_Union[SnapshotSummary, _Mapping]] = ...) -> None: ...

class SnapshotSummary(_message.Message):
    __slots__ = ("name", "bytes", "tensors", "saved_unix_ms", "ttl_left_ms", "client_nodes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    SAVED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    TTL_LEFT_MS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_NODES_FIELD_NUMBER: _ClassVar[int]
    name: str
    bytes: int
    tensors: int
    saved_unix_ms: int
    ttl_left_ms: int
    client_nodes: int
    def __init__(self, name: _Optional[str] = ..., bytes: _Optional[int] = ..., tensors: _Optional[int] = ..., saved_unix_ms: _Optional[int] = ..., ttl_left_ms: _Optional[int] = ..., client_nodes: _Optional[int] = ...) -> None: ...

class RestoreSessionRequest(_message.Message):
    __slots__ = ("name", "lease_ms", "client", "named_only", "follows_endpoint", "device_type")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    NAMED_ONLY_FIELD_NUMBER: _ClassVar[int]
    FOLLOWS_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TYPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    lease_ms: int
    client: str
    named_only: bool
    follows_endpoint: bool
    device_type: str
    def __init__(self, name: _Optional[str] = ..., lease_ms: _Optional[int] = ..., client: _Optional[str] = ..., named_only: bool = ..., follows_endpoint: bool = ..., device_type: _Optional[str] = ...) -> None: ...

class RestoredTensor(_message.Message):
    __slots__ = ("name", "spec", "has_grad")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    HAS_GRAD_FIELD_NUMBER: _ClassVar[int]
    name: str
    spec: _types_pb2.TensorSpec
    has_grad: bool
    def __init__(self, name: _Optional[str] = ..., spec: _Optional[_Union[_types_pb2.TensorSpec, _Mapping]] = ..., has_grad: bool = ...) -> None: ...

class ListSnapshotsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListSnapshotsResponse(_message.Message):
    __slots__ = ("snapshots",)
    SNAPSHOTS_FIELD_NUMBER: _ClassVar[int]
    snapshots: _containers.RepeatedCompositeFieldContainer[SnapshotSummary]
    def __init__(self, snapshots: _Optional[_Iterable[_Union[SnapshotSummary, _Mapping]]] = ...) -> None: ...

class DeleteSnapshotRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteSnapshotResponse(_message.Message):
    __slots__ = ("freed_bytes",)
    FREED_BYTES_FIELD_NUMBER: _ClassVar[int]
    freed_bytes: int
    def __init__(self, freed_bytes: _Optional[int] = ...) -> None: ...

class SnapshotHead(_message.Message):
    __slots__ = ("format", "version", "session_digest", "principal", "client", "lease_ms", "name", "saved_unix_ms", "ttl_ms", "bytes", "tensors", "client_nodes", "memory_bytes", "logged")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SESSION_DIGEST_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SAVED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_NODES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOGGED_FIELD_NUMBER: _ClassVar[int]
    format: int
    version: str
    session_digest: bytes
    principal: str
    client: str
    lease_ms: int
    name: str
    saved_unix_ms: int
    ttl_ms: int
    bytes: int
    tensors: int
    client_nodes: int
    memory_bytes: int
    logged: bool
    def __init__(self, format: _Optional[int] = ..., version: _Optional[str] = ..., session_digest: _Optional[bytes] = ..., principal: _Optional[str] = ..., client: _Optional[str] = ..., lease_ms: _Optional[int] = ..., name: _Optional[str] = ..., saved_unix_ms: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., bytes: _Optional[int] = ..., tensors: _Optional[int] = ..., client_nodes: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., logged: bool = ...) -> None: ...

class SessionState(_message.Message):
    __slots__ = ("epoch", "next_id", "transfer_seed", "downloads_begun", "generator", "next_node_seq", "writers", "answers", "memories", "arrays", "storages", "tensors", "steps", "nodes", "asks", "regions", "names", "failures", "programs", "moments", "transfers", "leaf_numbers", "next_leaf_number", "named", "next_backward", "has_unary")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NEXT_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_SEED_FIELD_NUMBER: _ClassVar[int]
    DOWNLOADS_BEGUN_FIELD_NUMBER: _ClassVar[int]
    GENERATOR_FIELD_NUMBER: _ClassVar[int]
    NEXT_NODE_SEQ_FIELD_NUMBER: _ClassVar[int]
    WRITERS_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    MEMORIES_FIELD_NUMBER: _ClassVar[int]
    ARRAYS_FIELD_NUMBER: _ClassVar[int]
    STORAGES_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    ASKS_FIELD_NUMBER: _ClassVar[int]
    REGIONS_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    PROGRAMS_FIELD_NUMBER: _ClassVar[int]
    MOMENTS_FIELD_NUMBER: _ClassVar[int]
    TRANSFERS_FIELD_NUMBER: _ClassVar[int]
    LEAF_NUMBERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_LEAF_NUMBER_FIELD_NUMBER: _ClassVar[int]
    NAMED_FIELD_NUMBER: _ClassVar[int]
    NEXT_BACKWARD_FIELD_NUMBER: _ClassVar[int]
    HAS_UNARY_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    next_id: int
    transfer_seed: bytes
    downloads_begun: int
    generator: bytes
    next_node_seq: int
    writers: _containers.RepeatedCompositeFieldContainer[StoredWriter]
    answers: _containers.RepeatedCompositeFieldContainer[StoredAnswer]
    memories: _containers.RepeatedCompositeFieldContainer[StoredMemory]
    arrays: _containers.RepeatedCompositeFieldContainer[StoredArray]
    storages: _containers.RepeatedCompositeFieldContainer[StoredStorage]
    tensors: _containers.RepeatedCompositeFieldContainer[StoredTensor]
    steps: _containers.RepeatedCompositeFieldContainer[StoredStep]
    nodes: _containers.RepeatedCompositeFieldContainer[StoredNode]
    asks: _containers.RepeatedScalarFieldContainer[int]
    regions: _containers.RepeatedCompositeFieldContainer[StoredRegion]
    names: _containers.RepeatedCompositeFieldContainer[StoredName]
    failures: _containers.RepeatedCompositeFieldContainer[StoredFailure]
    programs: _containers.RepeatedScalarFieldContainer[bytes]
    moments: _containers.RepeatedCompositeFieldContainer[StoredMoment]
    transfers: _containers.RepeatedCompositeFieldContainer[StoredTransfer]
    leaf_numbers: _containers.RepeatedCompositeFieldContainer[StoredLeafNumber]
    next_leaf_number: int
    named: _containers.RepeatedCompositeFieldContainer[NamedTensor]
    next_backward: int
    has_unary: bool
    def __init__(self, epoch: _Optional[int] = ..., next_id: _Optional[int] = ..., transfer_seed: _Optional[bytes] = ..., downloads_begun: _Optional[int] = ..., generator: _Optional[bytes] = ..., next_node_seq: _Optional[int] = ..., writers: _Optional[_Iterable[_Union[StoredWriter, _Mapping]]] = ..., answers: _Optional[_Iterable[_Union[StoredAnswer, _Mapping]]] = ..., memories: _Optional[_Iterable[_Union[StoredMemory, _Mapping]]] = ..., arrays: _Optional[_Iterable[_Union[StoredArray, _Mapping]]] = ..., storages: _Optional[_Iterable[_Union[StoredStorage, _Mapping]]] = ..., tensors: _Optional[_Iterable[_Union[StoredTensor, _Mapping]]] = ..., steps: _Optional[_Iterable[_Union[StoredStep, _Mapping]]] = ..., nodes: _Optional[_Iterable[_Union[StoredNode, _Mapping]]] = ..., asks: _Optional[_Iterable[int]] = ..., regions: _Optional[_Iterable[_Union[StoredRegion, _Mapping]]] = ..., names: _Optional[_Iterable[_Union[StoredName, _Mapping]]] = ..., failures: _Optional[_Iterable[_Union[StoredFailure, _Mapping]]] = ..., programs: _Optional[_Iterable[bytes]] = ..., moments: _Optional[_Iterable[_Union[StoredMoment, _Mapping]]] = ..., transfers: _Optional[_Iterable[_Union[StoredTransfer, _Mapping]]] = ..., leaf_numbers: _Optional[_Iterable[_Union[StoredLeafNumber, _Mapping]]] = ..., next_leaf_number: _Optional[int] = ..., named: _Optional[_Iterable[_Union[NamedTensor, _Mapping]]] = ..., next_backward: _Optional[int] = ..., has_unary: bool = ...) -> None: ...

class StoredWriter(_message.Message):
    __slots__ = ("number", "applied_seq", "answers_start", "answers", "prepared", "dropped_hooks")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    APPLIED_SEQ_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_START_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    PREPARED_FIELD_NUMBER: _ClassVar[int]
    DROPPED_HOOKS_FIELD_NUMBER: _ClassVar[int]
    number: int
    applied_seq: int
    answers_start: int
    answers: _containers.RepeatedCompositeFieldContainer[StoredRecall]
    prepared: _containers.RepeatedCompositeFieldContainer[StoredPrepared]
    dropped_hooks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, number: _Optional[int] = ..., applied_seq: _Optional[int] = ..., answers_start: _Optional[int] = ..., answers: _Optional[_Iterable[_Union[StoredRecall, _Mapping]]] = ..., prepared: _Optional[_Iterable[_Union[StoredPrepared, _Mapping]]] = ..., dropped_hooks: _Optional[_Iterable[int]] = ...) -> None: ...

class StoredRecall(_message.Message):
    __slots__ = ("last_seq", "response")
    LAST_SEQ_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    last_seq: int
    response: bytes
    def __init__(self, last_seq: _Optional[int] = ..., response: _Optional[bytes] = ...) -> None: ...

class StoredPrepared(_message.Message):
    __slots__ = ("number", "op")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    number: int
    op: bytes
    def __init__(self, number: _Optional[int] = ..., op: _Optional[bytes] = ...) -> None: ...

class StoredAnswer(_message.Message):
    __slots__ = ("request_id", "method", "request_digest", "response")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    REQUEST_DIGEST_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    method: str
    request_digest: bytes
    response: bytes
    def __init__(self, request_id: _Optional[str] = ..., method: _Optional[str] = ..., request_digest: _Optional[bytes] = ..., response: _Optional[bytes] = ...) -> None: ...

class StoredMemory(_message.Message):
    __slots__ = ("bytes", "offset", "crc", "dtype", "shape", "device")
    BYTES_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    CRC_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    offset: int
    crc: int
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    device: str
    def __init__(self, bytes: _Optional[int] = ..., offset: _Optional[int] = ..., crc: _Optional[int] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., device: _Optional[str] = ...) -> None: ...

class StoredArray(_message.Message):
    __slots__ = ("memory", "offset", "dtype", "shape", "strides", "read_only", "owner")
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    STRIDES_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    memory: int
    offset: int
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    strides: _containers.RepeatedScalarFieldContainer[int]
    read_only: bool
    owner: bool
    def __init__(self, memory: _Optional[int] = ..., offset: _Optional[int] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., strides: _Optional[_Iterable[int]] = ..., read_only: bool = ..., owner: bool = ...) -> None: ...

class StoredStorage(_message.Message):
    __slots__ = ("bytes", "version", "history", "owner", "inference")
    BYTES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    INFERENCE_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    version: int
    history: int
    owner: int
    inference: bool
    def __init__(self, bytes: _Optional[int] = ..., version: _Optional[int] = ..., history: _Optional[int] = ..., owner: _Optional[int] = ..., inference: bool = ...) -> None: ...

class StoredTensor(_message.Message):
    __slots__ = ("array", "storage", "requires_grad", "node", "output", "view", "grad", "accumulator", "retains_grad", "hooks", "has_state", "edge")
    ARRAY_FIELD_NUMBER: _ClassVar[int]
    STORAGE_FIELD_NUMBER: _ClassVar[int]
    REQUIRES_GRAD_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    GRAD_FIELD_NUMBER: _ClassVar[int]
    ACCUMULATOR_FIELD_NUMBER: _ClassVar[int]
    RETAINS_GRAD_FIELD_NUMBER: _ClassVar[int]
    HOOKS_FIELD_NUMBER: _ClassVar[int]
    HAS_STATE_FIELD_NUMBER: _ClassVar[int]
    EDGE_FIELD_NUMBER: _ClassVar[int]
    array: int
    storage: int
    requires_grad: bool
    node: int
    output: int
    view: StoredView
    grad: int
    accumulator: int
    retains_grad: bool
    hooks: StoredHooks
    has_state: bool
    edge: bool
    def __init__(self, array: _Optional[int] = ..., storage: _Optional[int] = ..., requires_grad: bool = ..., node: _Optional[int] = ..., output: _Optional[int] = ..., view: _Optional[_Union[StoredView, _Mapping]] = ..., grad: _Optional[int] = ..., accumulator: _Optional[int] = ..., retains_grad: bool = ..., hooks: _Optional[_Union[StoredHooks, _Mapping]] = ..., has_state: bool = ..., edge: bool = ...) -> None: ...

class StoredView(_message.Message):
    __slots__ = ("base", "step", "origin", "flagged", "version", "seen", "written", "left_behind")
    BASE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    FLAGGED_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_FIELD_NUMBER: _ClassVar[int]
    LEFT_BEHIND_FIELD_NUMBER: _ClassVar[int]
    base: int
    step: int
    origin: str
    flagged: bool
    version: int
    seen: int
    written: bool
    left_behind: bool
    def __init__(self, base: _Optional[int] = ..., step: _Optional[int] = ..., origin: _Optional[str] = ..., flagged: bool = ..., version: _Optional[int] = ..., seen: _Optional[int] = ..., written: bool = ..., left_behind: bool = ...) -> None: ...

class StoredStep(_message.Message):
    __slots__ = ("before", "op", "args", "input")
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    before: int
    op: str
    args: _containers.RepeatedCompositeFieldContainer[StoredValue]
    input: StoredMeta
    def __init__(self, before: _Optional[int] = ..., op: _Optional[str] = ..., args: _Optional[_Iterable[_Union[StoredValue, _Mapping]]] = ..., input: _Optional[_Union[StoredMeta, _Mapping]] = ...) -> None: ...

class StoredNode(_message.Message):
    __slots__ = ("op", "name", "needed", "saved_names", "saved", "edges", "seq", "freed", "command", "outputs", "has_outputs", "retained", "hooks", "leaf", "function", "work")
    OP_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NEEDED_FIELD_NUMBER: _ClassVar[int]
    SAVED_NAMES_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    EDGES_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    FREED_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    HAS_OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    RETAINED_FIELD_NUMBER: _ClassVar[int]
    HOOKS_FIELD_NUMBER: _ClassVar[int]
    LEAF_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    WORK_FIELD_NUMBER: _ClassVar[int]
    op: str
    name: str
    needed: int
    saved_names: _containers.RepeatedScalarFieldContainer[str]
    saved: _containers.RepeatedCompositeFieldContainer[StoredValue]
    edges: _containers.RepeatedCompositeFieldContainer[StoredEdge]
    seq: int
    freed: bool
    command: int
    outputs: _containers.RepeatedCompositeFieldContainer[StoredMeta]
    has_outputs: bool
    retained: _containers.RepeatedCompositeFieldContainer[StoredRetained]
    hooks: StoredHooks
    leaf: int
    function: StoredFunction
    work: float
    def __init__(self, op: _Optional[str] = ..., name: _Optional[str] = ..., needed: _Optional[int] = ..., saved_names: _Optional[_Iterable[str]] = ..., saved: _Optional[_Iterable[_Union[StoredValue, _Mapping]]] = ..., edges: _Optional[_Iterable[_Union[StoredEdge, _Mapping]]] = ..., seq: _Optional[int] = ..., freed: bool = ..., command: _Optional[int] = ..., outputs: _Optional[_Iterable[_Union[StoredMeta, _Mapping]]] = ..., has_outputs: bool = ..., retained: _Optional[_Iterable[_Union[StoredRetained, _Mapping]]] = ..., hooks: _Optional[_Union[StoredHooks, _Mapping]] = ..., leaf: _Optional[int] = ..., function: _Optional[_Union[StoredFunction, _Mapping]] = ..., work: _Optional[float] = ...) -> None: ...

class StoredFunction(_message.Message):
    __slots__ = ("differentiable", "materializes")
    DIFFERENTIABLE_FIELD_NUMBER: _ClassVar[int]
    MATERIALIZES_FIELD_NUMBER: _ClassVar[int]
    differentiable: _containers.RepeatedScalarFieldContainer[bool]
    materializes: bool
    def __init__(self, differentiable: _Optional[_Iterable[bool]] = ..., materializes: bool = ...) -> None: ...

class StoredEdge(_message.Message):
    __slots__ = ("node", "output", "meta")
    NODE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    node: int
    output: int
    meta: StoredMeta
    def __init__(self, node: _Optional[int] = ..., output: _Optional[int] = ..., meta: _Optional[_Union[StoredMeta, _Mapping]] = ...) -> None: ...

class StoredRetained(_message.Message):
    __slots__ = ("output", "tensor")
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    output: int
    tensor: int
    def __init__(self, output: _Optional[int] = ..., tensor: _Optional[int] = ...) -> None: ...

class StoredHooks(_message.Message):
    __slots__ = ("tensor", "before", "after", "accumulated", "formula", "region")
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    ACCUMULATED_FIELD_NUMBER: _ClassVar[int]
    FORMULA_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    tensor: _containers.RepeatedCompositeFieldContainer[StoredTensorHooks]
    before: _containers.RepeatedScalarFieldContainer[int]
    after: _containers.RepeatedScalarFieldContainer[int]
    accumulated: _containers.RepeatedScalarFieldContainer[int]
    formula: int
    region: int
    def __init__(self, tensor: _Optional[_Iterable[_Union[StoredTensorHooks, _Mapping]]] = ..., before: _Optional[_Iterable[int]] = ..., after: _Optional[_Iterable[int]] = ..., accumulated: _Optional[_Iterable[int]] = ..., formula: _Optional[int] = ..., region: _Optional[int] = ...) -> None: ...

class StoredTensorHooks(_message.Message):
    __slots__ = ("output", "asks")
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    ASKS_FIELD_NUMBER: _ClassVar[int]
    output: int
    asks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, output: _Optional[int] = ..., asks: _Optional[_Iterable[int]] = ...) -> None: ...

class StoredRegion(_message.Message):
    __slots__ = ("ask", "generator", "nodes")
    ASK_FIELD_NUMBER: _ClassVar[int]
    GENERATOR_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    ask: int
    generator: bytes
    nodes: _containers.RepeatedCompositeFieldContainer[StoredRegionNode]
    def __init__(self, ask: _Optional[int] = ..., generator: _Optional[bytes] = ..., nodes: _Optional[_Iterable[_Union[StoredRegionNode, _Mapping]]] = ...) -> None: ...

class StoredRegionNode(_message.Message):
    __slots__ = ("name", "saved", "nodes", "offset", "saves", "behind")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SAVES_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    name: str
    saved: _containers.RepeatedCompositeFieldContainer[StoredMeta]
    nodes: _containers.RepeatedScalarFieldContainer[int]
    offset: int
    saves: bool
    behind: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., saved: _Optional[_Iterable[_Union[StoredMeta, _Mapping]]] = ..., nodes: _Optional[_Iterable[int]] = ..., offset: _Optional[int] = ..., saves: bool = ..., behind: _Optional[_Iterable[int]] = ...) -> None: ...

class StoredMoment(_message.Message):
    __slots__ = ("number", "first", "outer", "generator", "keeps_random")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    OUTER_FIELD_NUMBER: _ClassVar[int]
    GENERATOR_FIELD_NUMBER: _ClassVar[int]
    KEEPS_RANDOM_FIELD_NUMBER: _ClassVar[int]
    number: int
    first: int
    outer: bytes
    generator: bytes
    keeps_random: bool
    def __init__(self, number: _Optional[int] = ..., first: _Optional[int] = ..., outer: _Optional[bytes] = ..., generator: _Optional[bytes] = ..., keeps_random: bool = ...) -> None: ...

class StoredName(_message.Message):
    __slots__ = ("id", "tensor", "first")
    ID_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    id: int
    tensor: int
    first: bool
    def __init__(self, id: _Optional[int] = ..., tensor: _Optional[int] = ..., first: bool = ...) -> None: ...

class StoredFailure(_message.Message):
    __slots__ = ("id", "seq", "writer", "reason", "message")
    ID_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    id: int
    seq: int
    writer: int
    reason: str
    message: str
    def __init__(self, id: _Optional[int] = ..., seq: _Optional[int] = ..., writer: _Optional[int] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class StoredTransfer(_message.Message):
    __slots__ = ("transfer_id", "array", "request_id", "upload")
    TRANSFER_ID_FIELD_NUMBER: _ClassVar[int]
    ARRAY_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_FIELD_NUMBER: _ClassVar[int]
    transfer_id: str
    array: int
    request_id: str
    upload: bool
    def __init__(self, transfer_id: _Optional[str] = ..., array: _Optional[int] = ..., request_id: _Optional[str] = ..., upload: bool = ...) -> None: ...

class StoredLeafNumber(_message.Message):
    __slots__ = ("node", "number")
    NODE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    node: int
    number: int
    def __init__(self, node: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...

class StoredMeta(_message.Message):
    __slots__ = ("shape", "dtype", "device")
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    shape: _containers.RepeatedScalarFieldContainer[int]
    dtype: str
    device: str
    def __init__(self, shape: _Optional[_Iterable[int]] = ..., dtype: _Optional[str] = ..., device: _Optional[str] = ...) -> None: ...

class StoredValue(_message.Message):
    __slots__ = ("none", "boolean", "integer", "large", "number", "complex", "text", "data", "tuple", "list", "slice", "dtype", "array", "tensor", "saved", "meta", "route", "scalar", "packed")
    NONE_FIELD_NUMBER: _ClassVar[int]
    BOOLEAN_FIELD_NUMBER: _ClassVar[int]
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    LARGE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    COMPLEX_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    TUPLE_FIELD_NUMBER: _ClassVar[int]
    LIST_FIELD_NUMBER: _ClassVar[int]
    SLICE_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    ARRAY_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    SCALAR_FIELD_NUMBER: _ClassVar[int]
    PACKED_FIELD_NUMBER: _ClassVar[int]
    none: bool
    boolean: bool
    integer: int
    large: str
    number: float
    complex: _types_pb2.Complex
    text: str
    data: bytes
    tuple: StoredValues
    list: StoredValues
    slice: StoredValues
    dtype: str
    array: int
    tensor: int
    saved: StoredSaved
    meta: StoredMeta
    route: StoredRoute
    scalar: int
    packed: StoredPacked
    def __init__(self, none: bool = ..., boolean: bool = ..., integer: _Optional[int] = ..., large: _Optional[str] = ..., number: _Optional[float] = ..., complex: _Optional[_Union[_types_pb2.Complex, _Mapping]] = ..., text: _Optional[str] = ..., data: _Optional[bytes] = ..., tuple: _Optional[_Union[StoredValues, _Mapping]] = ..., list: _Optional[_Union[StoredValues, _Mapping]] = ..., slice: _Optional[_Union[StoredValues, _Mapping]] = ..., dtype: _Optional[str] = ..., array: _Optional[int] = ..., tensor: _Optional[int] = ..., saved: _Optional[_Union[StoredSaved, _Mapping]] = ..., meta: _Optional[_Union[StoredMeta, _Mapping]] = ..., route: _Optional[_Union[StoredRoute, _Mapping]] = ..., scalar: _Optional[int] = ..., packed: _Optional[_Union[StoredPacked, _Mapping]] = ...) -> None: ...

class StoredValues(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[StoredValue]
    def __init__(self, values: _Optional[_Iterable[_Union[StoredValue, _Mapping]]] = ...) -> None: ...

class StoredSaved(_message.Message):
    __slots__ = ("array", "storage", "version", "output", "requires_grad", "node", "index", "leaf")
    ARRAY_FIELD_NUMBER: _ClassVar[int]
    STORAGE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    REQUIRES_GRAD_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    LEAF_FIELD_NUMBER: _ClassVar[int]
    array: int
    storage: int
    version: int
    output: int
    requires_grad: bool
    node: int
    index: int
    leaf: int
    def __init__(self, array: _Optional[int] = ..., storage: _Optional[int] = ..., version: _Optional[int] = ..., output: _Optional[int] = ..., requires_grad: bool = ..., node: _Optional[int] = ..., index: _Optional[int] = ..., leaf: _Optional[int] = ...) -> None: ...

class StoredPacked(_message.Message):
    __slots__ = ("ask", "meta", "output", "requires_grad", "node", "index")
    ASK_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    REQUIRES_GRAD_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    ask: int
    meta: StoredMeta
    output: int
    requires_grad: bool
    node: int
    index: int
    def __init__(self, ask: _Optional[int] = ..., meta: _Optional[_Union[StoredMeta, _Mapping]] = ..., output: _Optional[int] = ..., requires_grad: bool = ..., node: _Optional[int] = ..., index: _Optional[int] = ...) -> None: ...

class StoredRoute(_message.Message):
    __slots__ = ("device", "steps", "geometry")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    GEOMETRY_FIELD_NUMBER: _ClassVar[int]
    device: str
    steps: _containers.RepeatedScalarFieldContainer[int]
    geometry: StoredValue
    def __init__(self, device: _Optional[str] = ..., steps: _Optional[_Iterable[int]] = ..., geometry: _Optional[_Union[StoredValue, _Mapping]] = ...) -> None: ...

class LogRecord(_message.Message):
    __slots__ = ("batch", "call", "writer", "upload", "finished_download", "load", "refusals", "resumptions", "outcome", "received")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_FIELD_NUMBER: _ClassVar[int]
    FINISHED_DOWNLOAD_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    RESUMPTIONS_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    batch: bytes
    call: LogCall
    writer: int
    upload: LogUpload
    finished_download: str
    load: LogLoad
    refusals: _containers.RepeatedCompositeFieldContainer[LogRefusal]
    resumptions: _containers.RepeatedCompositeFieldContainer[LogResumption]
    outcome: LogOutcome
    received: _containers.RepeatedCompositeFieldContainer[LogReceived]
    def __init__(self, batch: _Optional[bytes] = ..., call: _Optional[_Union[LogCall, _Mapping]] = ..., writer: _Optional[int] = ..., upload: _Optional[_Union[LogUpload, _Mapping]] = ..., finished_download: _Optional[str] = ..., load: _Optional[_Union[LogLoad, _Mapping]] = ..., refusals: _Optional[_Iterable[_Union[LogRefusal, _Mapping]]] = ..., resumptions: _Optional[_Iterable[_Union[LogResumption, _Mapping]]] = ..., outcome: _Optional[_Union[LogOutcome, _Mapping]] = ..., received: _Optional[_Iterable[_Union[LogReceived, _Mapping]]] = ...) -> None: ...

class LogReceived(_message.Message):
    __slots__ = ("values", "peer")
    VALUES_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    values: bytes
    peer: int
    def __init__(self, values: _Optional[bytes] = ..., peer: _Optional[int] = ...) -> None: ...

class LogCall(_message.Message):
    __slots__ = ("method", "request")
    METHOD_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    method: str
    request: bytes
    def __init__(self, method: _Optional[str] = ..., request: _Optional[bytes] = ...) -> None: ...

class LogLoad(_message.Message):
    __slots__ = ("creations", "answer")
    CREATIONS_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    creations: _containers.RepeatedScalarFieldContainer[bytes]
    answer: StoredAnswer
    def __init__(self, creations: _Optional[_Iterable[bytes]] = ..., answer: _Optional[_Union[StoredAnswer, _Mapping]] = ...) -> None: ...

class LogOutcome(_message.Message):
    __slots__ = ("applied", "tensors", "next_id")
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    NEXT_ID_FIELD_NUMBER: _ClassVar[int]
    applied: int
    tensors: int
    next_id: int
    def __init__(self, applied: _Optional[int] = ..., tensors: _Optional[int] = ..., next_id: _Optional[int] = ...) -> None: ...

class LogUpload(_message.Message):
    __slots__ = ("transfer_id", "request_id", "total_bytes", "offset", "data")
    TRANSFER_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    transfer_id: str
    request_id: str
    total_bytes: int
    offset: int
    data: bytes
    def __init__(self, transfer_id: _Optional[str] = ..., request_id: _Optional[str] = ..., total_bytes: _Optional[int] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class LogRefusal(_message.Message):
    __slots__ = ("seq", "reason", "message", "metadata", "root_seq", "generator", "next_id", "applied", "began")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SEQ_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    ROOT_SEQ_FIELD_NUMBER: _ClassVar[int]
    GENERATOR_FIELD_NUMBER: _ClassVar[int]
    NEXT_ID_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    BEGAN_FIELD_NUMBER: _ClassVar[int]
    seq: int
    reason: str
    message: str
    metadata: _containers.ScalarMap[str, str]
    root_seq: int
    generator: bytes
    next_id: int
    applied: bool
    began: bool
    def __init__(self, seq: _Optional[int] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., root_seq: _Optional[int] = ..., generator: _Optional[bytes] = ..., next_id: _Optional[int] = ..., applied: bool = ..., began: bool = ...) -> None: ...

class LogResumption(_message.Message):
    __slots__ = ("after_seq", "node_seq", "generator")
    AFTER_SEQ_FIELD_NUMBER: _ClassVar[int]
    NODE_SEQ_FIELD_NUMBER: _ClassVar[int]
    GENERATOR_FIELD_NUMBER: _ClassVar[int]
    after_seq: int
    node_seq: int
    generator: bytes
    def __init__(self, after_seq: _Optional[int] = ..., node_seq: _Optional[int] = ..., generator: _Optional[bytes] = ...) -> None: ...
