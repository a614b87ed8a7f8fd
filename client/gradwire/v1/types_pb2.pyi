from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Dtype(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DTYPE_UNSPECIFIED: _ClassVar[Dtype]
    DTYPE_FLOAT32: _ClassVar[Dtype]
    DTYPE_FLOAT64: _ClassVar[Dtype]
    DTYPE_FLOAT16: _ClassVar[Dtype]
    DTYPE_BFLOAT16: _ClassVar[Dtype]
    DTYPE_INT8: _ClassVar[Dtype]
    DTYPE_INT16: _ClassVar[Dtype]
    DTYPE_INT32: _ClassVar[Dtype]
    DTYPE_INT64: _ClassVar[Dtype]
    DTYPE_UINT8: _ClassVar[Dtype]
    DTYPE_BOOL: _ClassVar[Dtype]
    DTYPE_COMPLEX64: _ClassVar[Dtype]
    DTYPE_COMPLEX128: _ClassVar[Dtype]
    DTYPE_UINT16: _ClassVar[Dtype]
    DTYPE_UINT32: _ClassVar[Dtype]
    DTYPE_UINT64: _ClassVar[Dtype]

class RandomAlgorithm(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RANDOM_ALGORITHM_UNSPECIFIED: _ClassVar[RandomAlgorithm]
    RANDOM_ALGORITHM_PCG64: _ClassVar[RandomAlgorithm]
    RANDOM_ALGORITHM_MT19937: _ClassVar[RandomAlgorithm]

class GradMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GRAD_MODE_UNSPECIFIED: _ClassVar[GradMode]
    GRAD_MODE_ENABLED: _ClassVar[GradMode]
    GRAD_MODE_DISABLED: _ClassVar[GradMode]
    GRAD_MODE_INFERENCE: _ClassVar[GradMode]

class ViewOrigin(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VIEW_ORIGIN_UNSPECIFIED: _ClassVar[ViewOrigin]
    VIEW_ORIGIN_MULTIPLE: _ClassVar[ViewOrigin]
    VIEW_ORIGIN_NO_GRAD: _ClassVar[ViewOrigin]
    VIEW_ORIGIN_INFERENCE: _ClassVar[ViewOrigin]
    VIEW_ORIGIN_FUNCTION: _ClassVar[ViewOrigin]

class HookKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HOOK_KIND_UNSPECIFIED: _ClassVar[HookKind]
    HOOK_KIND_TENSOR: _ClassVar[HookKind]
    HOOK_KIND_BEFORE: _ClassVar[HookKind]
    HOOK_KIND_AFTER: _ClassVar[HookKind]
    HOOK_KIND_ACCUMULATED: _ClassVar[HookKind]
    HOOK_KIND_FUNCTION: _ClassVar[HookKind]
    HOOK_KIND_CHECKPOINT: _ClassVar[HookKind]
    HOOK_KIND_UNPACK: _ClassVar[HookKind]
DTYPE_UNSPECIFIED: Dtype
DTYPE_FLOAT32: Dtype
DTYPE_FLOAT64: Dtype
DTYPE_FLOAT16: Dtype
DTYPE_BFLOAT16: Dtype
DTYPE_INT8: Dtype
DTYPE_INT16: Dtype
DTYPE_INT32: Dtype
DTYPE_INT64: Dtype
DTYPE_UINT8: Dtype
DTYPE_BOOL: Dtype
DTYPE_COMPLEX64: Dtype
DTYPE_COMPLEX128: Dtype
DTYPE_UINT16: Dtype
DTYPE_UINT32: Dtype
DTYPE_UINT64: Dtype
RANDOM_ALGORITHM_UNSPECIFIED: RandomAlgorithm
RANDOM_ALGORITHM_PCG64: RandomAlgorithm
RANDOM_ALGORITHM_MT19937: RandomAlgorithm
GRAD_MODE_UNSPECIFIED: GradMode
GRAD_MODE_ENABLED: GradMode
GRAD_MODE_DISABLED: GradMode
GRAD_MODE_INFERENCE: GradMode
VIEW_ORIGIN_UNSPECIFIED: ViewOrigin
VIEW_ORIGIN_MULTIPLE: ViewOrigin
VIEW_ORIGIN_NO_GRAD: ViewOrigin
VIEW_ORIGIN_INFERENCE: ViewOrigin
VIEW_ORIGIN_FUNCTION: ViewOrigin
HOOK_KIND_UNSPECIFIED: HookKind
HOOK_KIND_TENSOR: HookKind
HOOK_KIND_BEFORE: HookKind
HOOK_KIND_AFTER: HookKind
HOOK_KIND_ACCUMULATED: HookKind
HOOK_KIND_FUNCTION: HookKind
HOOK_KIND_CHECKPOINT: HookKind
HOOK_KIND_UNPACK: HookKind

class TensorSpec(_message.Message):
    __slots__ = ("id", "dtype", "shape", "device", "requires_grad", "is_leaf", "grad_fn", "retains_grad", "strides", "is_view", "data_dependent", "version", "base", "view_origin", "inference", "outdated", "same_as", "output_nr", "storage_offset", "tangents", "has_grad")
    ID_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    REQUIRES_GRAD_FIELD_NUMBER: _ClassVar[int]
    IS_LEAF_FIELD_NUMBER: _ClassVar[int]
    GRAD_FN_FIELD_NUMBER: _ClassVar[int]
    RETAINS_GRAD_FIELD_NUMBER: _ClassVar[int]
    STRIDES_FIELD_NUMBER: _ClassVar[int]
    IS_VIEW_FIELD_NUMBER: _ClassVar[int]
    DATA_DEPENDENT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    VIEW_ORIGIN_FIELD_NUMBER: _ClassVar[int]
    INFERENCE_FIELD_NUMBER: _ClassVar[int]
    OUTDATED_FIELD_NUMBER: _ClassVar[int]
    SAME_AS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_NR_FIELD_NUMBER: _ClassVar[int]
    STORAGE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TANGENTS_FIELD_NUMBER: _ClassVar[int]
    HAS_GRAD_FIELD_NUMBER: _ClassVar[int]
    id: int
    dtype: Dtype
    shape: _containers.RepeatedScalarFieldContainer[int]
    device: str
    requires_grad: bool
    is_leaf: bool
    grad_fn: str
    retains_grad: bool
    strides: _containers.RepeatedScalarFieldContainer[int]
    is_view: bool
    data_dependent: bool
    version: int
    base: int
    view_origin: ViewOrigin
    inference: bool
    outdated: bool
    same_as: int
    output_nr: int
    storage_offset: int
    tangents: _containers.RepeatedCompositeFieldContainer[TangentSpec]
    has_grad: bool
    def __init__(self, id: _Optional[int] = ..., dtype: _Optional[_Union[Dtype, str]] = ..., shape: _Optional[_Iterable[int]] = ..., device: _Optional[str] = ..., requires_grad: bool = ..., is_leaf: bool = ..., grad_fn: _Optional[str] = ..., retains_grad: bool = ..., strides: _Optional[_Iterable[int]] = ..., is_view: bool = ..., data_dependent: bool = ..., version: _Optional[int] = ..., base: _Optional[int] = ..., view_origin: _Optional[_Union[ViewOrigin, str]] = ..., inference: bool = ..., outdated: bool = ..., same_as: _Optional[int] = ..., output_nr: _Optional[int] = ..., storage_offset: _Optional[int] = ..., tangents: _Optional[_Iterable[_Union[TangentSpec, _Mapping]]] = ..., has_grad: bool = ...) -> None: ...

class TangentSpec(_message.Message):
    __slots__ = ("depth", "tangent")
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    TANGENT_FIELD_NUMBER: _ClassVar[int]
    depth: int
    tangent: TensorSpec
    def __init__(self, depth: _Optional[int] = ..., tangent: _Optional[_Union[TensorSpec, _Mapping]] = ...) -> None: ...

class Payload(_message.Message):
    __slots__ = ("dtype", "shape", "data")
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    dtype: Dtype
    shape: _containers.RepeatedScalarFieldContainer[int]
    data: bytes
    def __init__(self, dtype: _Optional[_Union[Dtype, str]] = ..., shape: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ...) -> None: ...

class Complex(_message.Message):
    __slots__ = ("real", "imag")
    REAL_FIELD_NUMBER: _ClassVar[int]
    IMAG_FIELD_NUMBER: _ClassVar[int]
    real: float
    imag: float
    def __init__(self, real: _Optional[float] = ..., imag: _Optional[float] = ...) -> None: ...

class IntList(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, values: _Optional[_Iterable[int]] = ...) -> None: ...

class DoubleList(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, values: _Optional[_Iterable[float]] = ...) -> None: ...

class TensorList(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ids: _Optional[_Iterable[int]] = ...) -> None: ...

class Slice(_message.Message):
    __slots__ = ("start", "stop", "step")
    START_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    start: int
    stop: int
    step: int
    def __init__(self, start: _Optional[int] = ..., stop: _Optional[int] = ..., step: _Optional[int] = ...) -> None: ...

class IndexItem(_message.Message):
    __slots__ = ("integer", "slice", "ellipsis", "new_axis", "tensor", "boolean")
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    SLICE_FIELD_NUMBER: _ClassVar[int]
    ELLIPSIS_FIELD_NUMBER: _ClassVar[int]
    NEW_AXIS_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    BOOLEAN_FIELD_NUMBER: _ClassVar[int]
    integer: int
    slice: Slice
    ellipsis: bool
    new_axis: bool
    tensor: int
    boolean: bool
    def __init__(self, integer: _Optional[int] = ..., slice: _Optional[_Union[Slice, _Mapping]] = ..., ellipsis: bool = ..., new_axis: bool = ..., tensor: _Optional[int] = ..., boolean: bool = ...) -> None: ...

class Index(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[IndexItem]
    def __init__(self, items: _Optional[_Iterable[_Union[IndexItem, _Mapping]]] = ...) -> None: ...

class NoneValue(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Argument(_message.Message):
    __slots__ = ("name", "tensor", "float", "integer", "boolean", "string", "dtype", "integers", "tensors", "index", "complex", "floats", "none", "number")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    FLOAT_FIELD_NUMBER: _ClassVar[int]
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    BOOLEAN_FIELD_NUMBER: _ClassVar[int]
    STRING_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    INTEGERS_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    COMPLEX_FIELD_NUMBER: _ClassVar[int]
    FLOATS_FIELD_NUMBER: _ClassVar[int]
    NONE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    name: str
    tensor: int
    float: float
    integer: int
    boolean: bool
    string: str
    dtype: Dtype
    integers: IntList
    tensors: TensorList
    index: Index
    complex: Complex
    floats: DoubleList
    none: NoneValue
    number: int
    def __init__(self, name: _Optional[str] = ..., tensor: _Optional[int] = ..., float: _Optional[float] = ..., integer: _Optional[int] = ..., boolean: bool = ..., string: _Optional[str] = ..., dtype: _Optional[_Union[Dtype, str]] = ..., integers: _Optional[_Union[IntList, _Mapping]] = ..., tensors: _Optional[_Union[TensorList, _Mapping]] = ..., index: _Optional[_Union[Index, _Mapping]] = ..., complex: _Optional[_Union[Complex, _Mapping]] = ..., floats: _Optional[_Union[DoubleList, _Mapping]] = ..., none: _Optional[_Union[NoneValue, _Mapping]] = ..., number: _Optional[int] = ...) -> None: ...

class HookCall(_message.Message):
    __slots__ = ("backward", "hook", "kind", "gradients", "others", "leaf")
    BACKWARD_FIELD_NUMBER: _ClassVar[int]
    HOOK_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    LEAF_FIELD_NUMBER: _ClassVar[int]
    backward: int
    hook: int
    kind: HookKind
    gradients: _containers.RepeatedCompositeFieldContainer[TensorSpec]
    others: _containers.RepeatedCompositeFieldContainer[TensorSpec]
    leaf: TensorSpec
    def __init__(self, backward: _Optional[int] = ..., hook: _Optional[int] = ..., kind: _Optional[_Union[HookKind, str]] = ..., gradients: _Optional[_Iterable[_Union[TensorSpec, _Mapping]]] = ..., others: _Optional[_Iterable[_Union[TensorSpec, _Mapping]]] = ..., leaf: _Optional[_Union[TensorSpec, _Mapping]] = ...) -> None: ...
