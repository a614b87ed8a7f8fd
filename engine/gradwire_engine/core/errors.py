"""Errors: the engine's one exception, with a reason from a closed set, a message and machine-readable details."""

from enum import Enum


class Reason(Enum):
    """Why the engine refused. Names equal those of `gradwire.v1.Reason` without the prefix."""

    NOT_SUPPORTED = "NOT_SUPPORTED"
    OP_UNKNOWN = "OP_UNKNOWN"
    ARGUMENT_TYPE = "ARGUMENT_TYPE"
    ARGUMENT_VALUE = "ARGUMENT_VALUE"
    SHAPE = "SHAPE"
    DTYPE = "DTYPE"
    DIM_OUT_OF_RANGE = "DIM_OUT_OF_RANGE"
    INDEX_OUT_OF_RANGE = "INDEX_OUT_OF_RANGE"
    DEVICE_UNAVAILABLE = "DEVICE_UNAVAILABLE"
    DEVICE_MISMATCH = "DEVICE_MISMATCH"
    GRADIENT_NEEDS_SCALAR = "GRADIENT_NEEDS_SCALAR"
    NO_GRAD_FN = "NO_GRAD_FN"
    GRAPH_FREED = "GRAPH_FREED"
    VERSION_CONFLICT = "VERSION_CONFLICT"
    LEAF_IN_PLACE = "LEAF_IN_PLACE"
    UNUSED_INPUT = "UNUSED_INPUT"
    REQUIRES_GRAD = "REQUIRES_GRAD"
    MEMORY_LIMIT = "MEMORY_LIMIT"
    OP_LIMIT = "OP_LIMIT"
    COMPUTE_LIMIT = "COMPUTE_LIMIT"
    CANCELLED = "CANCELLED"
    RUNTIME = "RUNTIME"


class EngineError(Exception):
    """A refusal that changed no state, except saved values that backward may already have freed.

    `metadata` holds strings: the op, the shapes, the argument.
    """

    def __init__(self, reason: Reason, message: str, **metadata: object) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.metadata = {key: str(value) for key, value in metadata.items()}
