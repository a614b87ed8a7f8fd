"""The table of cases, and what several of them are made of."""

import types

import gradwire

CASES = {}


def case(make):
    """Note a case under its name."""
    assert make.__name__ not in CASES
    CASES[make.__name__] = make
    return make


def setting(value, name, item):
    """A change: it sets an attribute."""
    return lambda: setattr(value, name, item)


def nothing():
    """No change."""


def run_in(text, **held):
    """A module's globals, of the code given."""
    space = {"__name__": "made_up", "torch": gradwire, "gradwire": gradwire, **held}
    exec(compile(text, "made_up.py", "exec"), space)
    return space


def module(name="config", **held):
    made = types.ModuleType(name)
    made.__dict__.update(held)
    return made


class Holder:
    def __init__(self, **held):
        self.__dict__.update(held)
