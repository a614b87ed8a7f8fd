"""Pretrained models (torch.hub): files by URL, and models of a local folder's hubconf.py."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import urllib.request
from collections.abc import Mapping
from types import ModuleType
from typing import Any
from urllib.parse import urlparse

from gradwire._base.refused import refusal
from gradwire._base.wiring import wired

__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir"]


class _Silent:
    """A progress bar that shows nothing."""

    def __init__(self, iterable: Any = (), *args: Any, **options: Any) -> None:
        self._iterable = iterable

    def __iter__(self) -> Any:
        return iter(self._iterable)

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def update(self, n: int = 1) -> None:
        """Do nothing."""


def tqdm(*args: Any, **options: Any) -> Any:
    """A bar of the tqdm package; without that package one that shows nothing."""
    try:
        from tqdm.auto import tqdm as bar
    except ImportError:
        return _Silent(*args, **options)
    return bar(*args, **options)


HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
_list = list
_dir: str | None = None


def _get_torch_home() -> str:
    """$TORCH_HOME, else ~/.cache/torch."""
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.environ.get("TORCH_HOME", os.path.join(cache, "torch")))


def get_dir() -> str:
    """The folder of downloaded files: `set_dir`, else "hub" in $TORCH_HOME or in ~/.cache/torch."""
    return os.path.join(_get_torch_home(), "hub") if _dir is None else _dir


def set_dir(d: str | os.PathLike[str]) -> None:
    """Set the folder of downloaded files."""
    global _dir
    _dir = os.path.expanduser(os.fspath(d))


def download_url_to_file(url: str, dst: str, hash_prefix: str | None = None, progress: bool = True) -> None:
    """Download a file. It appears under its name once it is complete.

    Raises OSError if it cannot be downloaded, RuntimeError if its SHA-256 does not begin with `hash_prefix`.
    """
    path = os.path.expanduser(dst)
    handle, beside = tempfile.mkstemp(prefix=".gradwire-", dir=os.path.dirname(os.path.abspath(path)))
    digest = hashlib.sha256()
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "torch.hub"})
        with os.fdopen(handle, "wb") as file, urllib.request.urlopen(request) as answer:
            while piece := answer.read(1 << 20):
                file.write(piece)
                digest.update(piece)
        if hash_prefix and not digest.hexdigest().startswith(hash_prefix):
            raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{digest.hexdigest()}")')
        shutil.move(beside, path)
    finally:
        if os.path.exists(beside):
            os.unlink(beside)


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = True,
) -> Any:
    """Load a file of torch.save from a URL, downloading it once (torch.hub.load_state_dict_from_url)."""
    folder = os.path.join(get_dir(), "checkpoints") if model_dir is None else model_dir
    os.makedirs(folder, exist_ok=True)
    name = file_name or os.path.basename(urlparse(url).path)
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        found = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, path, found.group(1) if found else None, progress)
    return wired("load")(path, map_location, weights_only=weights_only)


def load(repo_or_dir: str, model: str, *args: Any, source: str = "github", **kwargs: Any) -> Any:
    """The result of a function of a local folder's hubconf.py: `load(folder, name, source="local")`.

    Raises NotImplementedError for a repository, RuntimeError if hubconf.py has no such function.
    """
    return _entry(_hubconf(repo_or_dir, source), model)(*args, **_without_options(kwargs))


def list(github: str, source: str = "github", **options: Any) -> _list[str]:
    """Names of the functions of a folder's hubconf.py."""
    module = _hubconf(github, source)
    return [name for name, held in vars(module).items() if callable(held) and not name.startswith("_")]


def help(github: str, model: str, source: str = "github", **options: Any) -> str | None:
    """Documentation of a function of a folder's hubconf.py."""
    doc: str | None = _entry(_hubconf(github, source), model).__doc__
    return doc


def _without_options(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    options = ("trust_repo", "force_reload", "verbose", "skip_validation")
    return {name: value for name, value in kwargs.items() if name not in options}


def _hubconf(repo_or_dir: str, source: str) -> ModuleType:
    if source != "local":
        raise refusal(
            "hub.load", f"it does not download and run code; clone {repo_or_dir} and load it with source='local'"
        )
    path = os.path.join(repo_or_dir, "hubconf.py")
    spec = importlib.util.spec_from_file_location("hubconf", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, repo_or_dir)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(repo_or_dir)
    return module


def _entry(module: ModuleType, name: str) -> Any:
    found = getattr(module, name, None)
    if not callable(found):
        raise RuntimeError(f"Cannot find callable {name} in hubconf")
    return found
