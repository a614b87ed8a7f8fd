"""torch.version: which release this is. `cuda` is None: what the server has, `gradwire.cuda` tells."""

from gradwire._base.version import __version__

__all__ = ["__version__", "cuda", "debug", "git_version", "hip"]
cuda: str | None = None
hip: str | None = None
debug = False
git_version: str | None = None
