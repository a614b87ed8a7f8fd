"""torch.backends.mps: Apple's GPUs, which no server has."""


def is_available() -> bool:
    """False."""
    return False


def is_built() -> bool:
    """False."""
    return False
