"""torch.backends.cuda: products of float32 are always computed in float32."""

from types import SimpleNamespace

matmul = SimpleNamespace(allow_tf32=False)


def is_built() -> bool:
    """Whether the server has a GPU."""
    from gradwire.cuda import is_available

    return is_available()
