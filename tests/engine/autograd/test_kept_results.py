"""Results that stay after a repeated step: their tensors and nodes are those that the calls would have made.

tests/server/session/test_steps.py compares whole sessions.
"""

import gc
import weakref

import numpy as np
import pytest

from gradwire_engine import REGISTRY, Account, Context, activate, backward, tensor
from gradwire_engine.autograd.kept_results import KeptResults, Symbol, UnlinkedNode, left_values
from gradwire_engine.core.context import CURRENT
from gradwire_engine.graph.graph import Node
from gradwire_engine.op.repeated import listing_of
from tests.engine.repeating import repeated_call


@pytest.fixture
def context():
    with activate(Context(account=Account(limit=1 << 30))):
        yield CURRENT.get()


def test_a_freed_and_an_unfreed_result_have_the_tensors_and_nodes_of_their_calls(context):
    """exp(x) * 2.0 leads to the loss; sin(x) does not."""
    leaf = tensor(np.array([0.5, -1.0]), True)
    names = [("exp", (0,), 1), ("mul", (1, 2.0), 2), ("sin", (0,), 3)]
    made, symbols = [leaf], []
    for call, (name, places, out) in enumerate(names):
        args = REGISTRY[name].bind([made[each] if type(each) is int else each for each in places], {})
        result, repeated = repeated_call(REGISTRY[name], args, context)
        result = repeated(args, context)
        made.append(result)
        ((part, _),) = listing_of(repeated).parts
        symbol = Symbol(part, [each if type(each) is int else 4 for each in places], out, context, call, ())
        symbol.edges = [symbols[0], None] if name == "mul" else [0]
        symbol.seq = call
        symbols.append(symbol)
    registers = [each.array for each in made] + [2.0]
    freed = {each: left_values(each, made[each.made].node, ()) for each in symbols[:2]}
    results = KeptResults(symbols, freed)
    results.check(registers, made)
    keeping = results.keeping((2, 3))
    assert keeping.registers == {2, 3}
    kept = keeping.tensors(registers, {0: leaf}, 100, 7)
    for place, real in ((2, made[2]), (3, made[3])):
        assert kept[place].array is real.array and kept[place].requires_grad
        assert (kept[place].node.name, kept[place].node.op) == (real.node.name, real.node.op)
        assert (kept[place].node.seq, kept[place].node.command) == (100 + place - 1, 7 + place - 1)
    assert kept[2].node.edges[0][0].name == made[1].node.name and kept[2].node.edges[0][0].freed
    alone = results.keeping((2,)).tensors(registers, {0: leaf}, 100, 7)[2].node
    assert type(alone) is UnlinkedNode
    ((behind, _), no_edge), again = alone.edges, alone.edges
    assert type(alone) is Node and again is alone.edges and no_edge is None
    assert (behind.name, behind.seq, behind.command, behind.freed) == (made[1].node.name, 100, 7, True)
    assert behind.edges == made[1].node.edges
    backward([kept[3]], [tensor(np.ones(2))])  # nothing has freed it
    np.testing.assert_array_equal(leaf.grad.array, np.cos(leaf.array))


def test_a_result_that_the_step_does_not_know_may_not_stay(context):
    results = KeptResults([], {})
    results.check([], [tensor(np.ones(1))])
    assert results.keeping((0,)) is None


def chain(leaves, context):
    """exp(a) * 2.0 + exp(b), then exp of it: what the calls make, and the results that may stay, by place."""
    names = [("exp", (0,), 2), ("mul", (2, 2.0), 3), ("exp", (1,), 4), ("add", (3, 4), 5), ("exp", (5,), 6)]
    made, symbols = list(leaves), []
    for call, (name, places, out) in enumerate(names):
        args = REGISTRY[name].bind([made[each] if type(each) is int else each for each in places], {})
        _, repeated = repeated_call(REGISTRY[name], args, context)
        made.append(repeated(args, context))
        ((part, _),) = listing_of(repeated).parts
        arguments = [each if type(each) is int else 7 for each in places]
        symbol = Symbol(part, arguments + [8] * (len(args) - len(arguments)), out, context, call, ())
        known = {each.made: each for each in symbols}
        symbol.edges = [known.get(each, each) if type(each) is int else None for each in places]
        symbol.seq = call
        symbols.append(symbol)
    registers = [each.array for each in made] + [2.0, 1]
    results = KeptResults(symbols, {each: left_values(each, made[each.made].node, ()) for each in symbols})
    results.check(registers, made)
    return made, registers, results


def test_a_dropped_result_ends_without_a_collection_and_its_leaves_too(context):
    leaves = [tensor(np.array([0.5, -1.0]), True), tensor(np.array([0.1, 0.2]), True)]
    made, registers, results = chain(leaves, context)
    held = {0: leaves[0], 1: leaves[1]}
    kept = results.keeping((3, 5, 6)).tensors(registers, held, 100, 7)
    assert all(type(each.node) is UnlinkedNode for each in kept.values())
    ends = [weakref.ref(each) for each in (*leaves, *(each.node for each in kept.values()))]
    made.clear(), leaves.clear(), held.clear()
    gc.disable()
    try:
        del kept[5], kept[6]  # the one that stays leads to the first leaf alone
        assert [each() is None for each in ends] == [False, True, False, True, True]
        kept.clear()
        assert all(each() is None for each in ends)
    finally:
        gc.enable()


def test_a_result_leads_to_what_lies_behind_it_when_others_are_gone(context):
    leaves = [tensor(np.array([0.5, -1.0]), True), tensor(np.array([0.1, 0.2]), True)]
    made, registers, results = chain(leaves, context)
    kept = results.keeping((3, 5, 6)).tensors(registers, {0: leaves[0], 1: leaves[1]}, 100, 7)
    del kept[6], kept[3]
    ((scaled, _), (other, _)) = kept[5].node.edges
    assert (scaled.seq, other.seq) == (101, 102)
    assert scaled.edges[0][0].edges == made[2].node.edges
    assert other.edges == made[4].node.edges
    kept = results.keeping((5, 6)).tensors(registers, {0: leaves[0], 1: leaves[1]}, 100, 7)
    middle = kept.pop(5).node
    assert kept[6].node.edges[0][0] is middle
    assert [type(each) for each in (middle, kept[6].node)] == [Node, Node]
