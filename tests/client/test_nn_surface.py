"""docs/nn.md lists exactly the names of PyTorch's nn and optim that are missing."""

import inspect
import re
from pathlib import Path

import pytest

import gradwire as gw
from gradwire._base.refused import RefusedClass

torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
PAGE = (Path(__file__).parents[2] / "docs" / "nn.md").read_text(encoding="utf-8")


def told(section):
    """The names that the page lists in a section."""
    found = re.search(rf"<!-- missing: {section} -->\n(.*?)<!-- missing:", PAGE, re.DOTALL)
    assert found is not None
    _, names = found[1].split(":", 1)
    return set(re.findall(r"`([\w.]+)`", names))


def classes(module):
    return [name for name in dir(module) if inspect.isclass(getattr(module, name)) and not name.startswith("_")]


def absent(ours, names):
    """Names that are missing, or stand for what is refused when it is used."""
    return {name for name in names if not hasattr(ours, name) or isinstance(getattr(ours, name), RefusedClass)}


CASES = {
    "nn": lambda: absent(gw.nn, classes(torch.nn)),
    "optim": lambda: absent(gw.optim, classes(torch.optim)),
    "utils": lambda: absent(gw.nn.utils, torch.nn.utils.__all__),
    "module": lambda: absent(gw.nn.Module, [name for name in dir(torch.nn.Module) if not name.startswith("_")]),
}


@pytest.mark.parametrize("section", CASES)
def test_the_page_lists_exactly_what_is_missing(section):
    assert told(section) == CASES[section]()


def test_every_schedule_and_first_value_is_here():
    assert not absent(gw.optim.lr_scheduler, torch.optim.lr_scheduler.__all__)
    assert not absent(gw.nn.init, [name for name in dir(torch.nn.init) if re.fullmatch(r"[a-z]\w*_", name)])
