"""What Python runs first in a child of `gradwire run`, since PYTHONPATH begins with its folder: `torch` is gradwire.

A sitecustomize of the system's own that this one hides runs after it.
"""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

_here = os.path.dirname(os.path.abspath(__file__))
# A child that does not see the parent's installation, but its environment, finds the package by its own place.
_home = os.path.dirname(os.path.dirname(_here))

if os.environ.get("GRADWIRE_ALIAS_TORCH") == "1":
    _is_lacking = _home not in sys.path
    if _is_lacking:
        sys.path.append(_home)
    try:
        from gradwire._alias.imports import alias
    except ImportError as missing:
        sys.stderr.write(f"gradwire: `torch` is not gradwire in this process, for {missing}\n")
    else:
        alias()
    finally:
        if _is_lacking:
            sys.path.remove(_home)

_others = [path for path in sys.path if os.path.abspath(path) != _here]
_hidden = PathFinder.find_spec("sitecustomize", _others)
if _hidden is not None and _hidden.loader is not None:
    _hidden.loader.exec_module(module_from_spec(_hidden))
