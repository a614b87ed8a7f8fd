"""torch.backends.cudnn: the GPU's work is CuPy's here, and these settings change nothing."""

enabled = False
deterministic = False
benchmark = False
allow_tf32 = False


def is_available() -> bool:
    """False: there is no cuDNN."""
    return False


def version() -> None:
    """None: there is no cuDNN."""
    return
