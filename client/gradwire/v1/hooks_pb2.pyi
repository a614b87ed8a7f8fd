from gradwire.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PackStep(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PACK_STEP_UNSPECIFIED: _ClassVar[PackStep]
    PACK_STEP_BEGIN: _ClassVar[PackStep]
    PACK_STEP_SHOW: _ClassVar[PackStep]
    PACK_STEP_KEEP: _ClassVar[PackStep]

class CheckpointMark(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CHECKPOINT_MARK_UNSPECIFIED: _ClassVar[CheckpointMark]
    CHECKPOINT_MARK_BEGIN: _ClassVar[CheckpointMark]
    CHECKPOINT_MARK_END: _ClassVar[CheckpointMark]
    CHECKPOINT_MARK_BEGIN_AGAIN: _ClassVar[CheckpointMark]
    CHECKPOINT_MARK_END_AGAIN: _ClassVar[CheckpointMark]
PACK_STEP_UNSPECIFIED: PackStep
PACK_STEP_BEGIN: PackStep
PACK_STEP_SHOW: PackStep
PACK_STEP_KEEP: PackStep
CHECKPOINT_MARK_UNSPECIFIED: CheckpointMark
CHECKPOINT_MARK_BEGIN: CheckpointMark
CHECKPOINT_MARK_END: CheckpointMark
CHECKPOINT_MARK_BEGIN_AGAIN: CheckpointMark
CHECKPOINT_MARK_END_AGAIN: CheckpointMark

class RegisterHookRequest(_message.Message):
    __slots__ = ("session_id", "request_id", "hook", "tensor", "node", "kind")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    HOOK_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    request_id: str
    hook: int
    tensor: int
    node: int
    kind: _types_pb2.HookKind
    def __init__(self, session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., hook: _Optional[int] = ..., tensor: _Optional[int] = ..., node: _Optional[int] = ..., kind: _Optional[_Union[_types_pb2.HookKind, str]] = ...) -> None: ...

class RegisterHookResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RemoveHookRequest(_message.Message):
    __slots__ = ("session_id", "request_id", "hook")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    HOOK_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    request_id: str
    hook: int
    def __init__(self, session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., hook: _Optional[int] = ...) -> None: ...

class RemoveHookResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResumeBackwardRequest(_message.Message):
    __slots__ = ("session_id", "request_id", "backward", "replaces", "gradients", "abandon")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    BACKWARD_FIELD_NUMBER: _ClassVar[int]
    REPLACES_FIELD_NUMBER: _ClassVar[int]
    GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    ABANDON_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    request_id: str
    backward: int
    replaces: bool
    gradients: _containers.RepeatedScalarFieldContainer[int]
    abandon: bool
    def __init__(self, session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., backward: _Optional[int] = ..., replaces: bool = ..., gradients: _Optional[_Iterable[int]] = ..., abandon: bool = ...) -> None: ...

class ResumeBackwardResponse(_message.Message):
    __slots__ = ("due", "accumulated", "gradients")
    DUE_FIELD_NUMBER: _ClassVar[int]
    ACCUMULATED_FIELD_NUMBER: _ClassVar[int]
    GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    due: _types_pb2.HookCall
    accumulated: _containers.RepeatedScalarFieldContainer[int]
    gradients: _containers.RepeatedCompositeFieldContainer[_types_pb2.TensorSpec]
    def __init__(self, due: _Optional[_Union[_types_pb2.HookCall, _Mapping]] = ..., accumulated: _Optional[_Iterable[int]] = ..., gradients: _Optional[_Iterable[_Union[_types_pb2.TensorSpec, _Mapping]]] = ...) -> None: ...

class RecordFunctionRequest(_message.Message):
    __slots__ = ("session_id", "request_id", "hook", "name", "inputs", "outputs", "saved", "dirty", "non_differentiable", "keeps_undefined")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    HOOK_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    DIRTY_FIELD_NUMBER: _ClassVar[int]
    NON_DIFFERENTIABLE_FIELD_NUMBER: _ClassVar[int]
    KEEPS_UNDEFINED_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    request_id: str
    hook: int
    name: str
    inputs: _containers.RepeatedScalarFieldContainer[int]
    outputs: _containers.RepeatedScalarFieldContainer[int]
    saved: _containers.RepeatedScalarFieldContainer[int]
    dirty: _containers.RepeatedScalarFieldContainer[int]
    non_differentiable: _containers.RepeatedScalarFieldContainer[int]
    keeps_undefined: bool
    def __init__(self, session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., hook: _Optional[int] = ..., name: _Optional[str] = ..., inputs: _Optional[_Iterable[int]] = ..., outputs: _Optional[_Iterable[int]] = ..., saved: _Optional[_Iterable[int]] = ..., dirty: _Optional[_Iterable[int]] = ..., non_differentiable: _Optional[_Iterable[int]] = ..., keeps_undefined: bool = ...) -> None: ...

class RecordFunctionResponse(_message.Message):
    __slots__ = ("outputs",)
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    outputs: _containers.RepeatedCompositeFieldContainer[_types_pb2.TensorSpec]
    def __init__(self, outputs: _Optional[_Iterable[_Union[_types_pb2.TensorSpec, _Mapping]]] = ...) -> None: ...

class CheckpointRequest(_message.Message):
    __slots__ = ("session_id", "request_id", "hook", "mark", "outputs", "random_goes_on")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    HOOK_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    RANDOM_GOES_ON_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    request_id: str
    hook: int
    mark: CheckpointMark
    outputs: _containers.RepeatedScalarFieldContainer[int]
    random_goes_on: bool
    def __init__(self, session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., hook: _Optional[int] = ..., mark: _Optional[_Union[CheckpointMark, str]] = ..., outputs: _Optional[_Iterable[int]] = ..., random_goes_on: bool = ...) -> None: ...

class CheckpointResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NameEdgeRequest(_message.Message):
    __slots__ = ("session_id", "request_id", "tensor", "edge")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    EDGE_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    request_id: str
    tensor: int
    edge: int
    def __init__(self, session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., tensor: _Optional[int] = ..., edge: _Optional[int] = ...) -> None: ...

class NameEdgeResponse(_message.Message):
    __slots__ = ("edge",)
    EDGE_FIELD_NUMBER: _ClassVar[int]
    edge: _types_pb2.TensorSpec
    def __init__(self, edge: _Optional[_Union[_types_pb2.TensorSpec, _Mapping]] = ...) -> None: ...

class PackSavedRequest(_message.Message):
    __slots__ = ("session_id", "request_id", "number", "step", "outputs", "hooks")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    HOOKS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    request_id: str
    number: int
    step: PackStep
    outputs: _containers.RepeatedScalarFieldContainer[int]
    hooks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., number: _Optional[int] = ..., step: _Optional[_Union[PackStep, str]] = ..., outputs: _Optional[_Iterable[int]] = ..., hooks: _Optional[_Iterable[int]] = ...) -> None: ...

class PackSavedResponse(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[_types_pb2.TensorSpec]
    def __init__(self, values: _Optional[_Iterable[_Union[_types_pb2.TensorSpec, _Mapping]]] = ...) -> None: ...

class SavedValueRequest(_message.Message):
    __slots__ = ("session_id", "request_id", "tensor", "node", "name", "unpacked", "pack", "recomputed")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    UNPACKED_FIELD_NUMBER: _ClassVar[int]
    PACK_FIELD_NUMBER: _ClassVar[int]
    RECOMPUTED_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    request_id: str
    tensor: int
    node: int
    name: str
    unpacked: _containers.RepeatedScalarFieldContainer[int]
    pack: _containers.RepeatedScalarFieldContainer[int]
    recomputed: int
    def __init__(self, session_id: _Optional[str] = ..., request_id: _Optional[str] = ..., tensor: _Optional[int] = ..., node: _Optional[int] = ..., name: _Optional[str] = ..., unpacked: _Optional[_Iterable[int]] = ..., pack: _Optional[_Iterable[int]] = ..., recomputed: _Optional[int] = ...) -> None: ...

class SavedValueResponse(_message.Message):
    __slots__ = ("known", "tensors", "several", "hooks", "checkpoint", "nodes")
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    SEVERAL_FIELD_NUMBER: _ClassVar[int]
    HOOKS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    known: bool
    tensors: _containers.RepeatedCompositeFieldContainer[_types_pb2.TensorSpec]
    several: bool
    hooks: _containers.RepeatedScalarFieldContainer[int]
    checkpoint: int
    nodes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, known: bool = ..., tensors: _Optional[_Iterable[_Union[_types_pb2.TensorSpec, _Mapping]]] = ..., several: bool = ..., hooks: _Optional[_Iterable[int]] = ..., checkpoint: _Optional[int] = ..., nodes: _Optional[_Iterable[int]] = ...) -> None: ...
