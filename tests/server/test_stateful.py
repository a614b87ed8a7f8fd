"""Random commands against a model, through the real server: what is there, what it holds, what is refused and why.

The model is NumPy: values, which ids share memory, which leaves have which gradients of sums of products. Commands go
alone or in batches, from two writers, are repeated, cancelled and refused, and the session is closed in the end.
"""

from __future__ import annotations

import os
from typing import Any

import grpc
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import errors_pb2
from gradwire.v1 import service_pb2 as s
from tests.server.harness import Id, Remote, Running, array_of, command, op, payload, refusal, running

EXAMPLES = int(os.environ.get("GRADWIRE_STATEFUL_EXAMPLES", "25"))
STEPS = int(os.environ.get("GRADWIRE_STATEFUL_STEPS", "30"))
FLOATS = st.integers(-3, 3).map(float)
SHAPES = st.sampled_from([(), (2,), (3,), (2, 3), (1, 3)])
GONE = 99_999


class Value:
    """A tensor: its values, and for those made of one leaf by products and sums, the derivative by it."""

    def __init__(self, array: np.ndarray, leaf: bool = False) -> None:
        self.array = array
        self.leaf = leaf
        self.grad: np.ndarray | None = None
        self.parts: list[tuple[Value, np.ndarray]] = []  # leaves, and d(sum of self) / d(leaf)


class Sessions(RuleBasedStateMachine):
    """One session of a server that all examples share."""

    server: Running
    tensors = Bundle("tensors")

    @initialize()
    def open(self) -> None:
        self.session: Remote = self.server.open()
        self.other = Remote(
            self.session.channel, self.server.stub.OpenSession(s.OpenSessionRequest(session_id=self.session.id))
        )
        self.known: dict[int, Value] = {}
        self.ids = iter(range(1, 1 << 20))
        self.last: tuple[s.RunRequest, s.RunResponse] | None = None

    def add(self, value: Value) -> int:
        tensor_id = next(self.ids)
        self.known[tensor_id] = value
        return tensor_id

    def peek(self) -> int:
        """The id that `add` gives next."""
        tensor_id = next(self.ids)
        self.ids = iter(range(tensor_id, 1 << 20))
        return tensor_id

    def run(self, *commands: s.Command, writer: int = 0) -> s.RunResponse:
        """A batch, of the one writer or the other."""
        who = self.other if writer else self.session
        request = who.batch(*commands, writer=who.opened.writer)
        request.session_id = self.session.id
        response = self.server.stub.Run(request)
        self.last = (request, response)
        return response

    def reason(self, response: s.RunResponse, place: int = 0) -> str:
        """Why a command was refused."""
        error = response.results[place].error
        return errors_pb2.Reason.Name(error.reason).removeprefix("REASON_") if error.reason else ""

    @rule(target=tensors, shape=SHAPES, fill=FLOATS, leaf=st.booleans(), alone=st.booleans())
    def create(self, shape: tuple[int, ...], fill: float, leaf: bool, alone: bool) -> int:
        array = np.full(shape, fill, np.float32) + np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
        value = Value(array, leaf)
        if leaf:
            value.parts = [(value, np.ones_like(array))]
        request = c.CreateRequest(id=self.peek(), requires_grad=leaf, payload=payload(array))
        if alone:
            request.session_id = self.session.id
            self.server.stub.Create(request)
        else:
            assert not self.reason(self.run(command(request)))
        return self.add(value)

    @rule(target=tensors, x=tensors, y=tensors, writer=st.integers(0, 1))
    def product_summed(self, x: int, y: int, writer: int) -> Any:
        """sum(x * y): refused where the shapes do not go together."""
        one, two = self.known.get(x), self.known.get(y)
        first = self.peek()
        # What is made of results is not recorded: the model differentiates no further than that.
        mode = 2 if any(each is not None and each.parts and not each.leaf for each in (one, two)) else 0
        response = self.run(
            command(op("mul", Id(x), Id(y), outputs=[first], grad_mode=mode)),
            command(op("sum", Id(first), outputs=[first + 1], grad_mode=mode)),
            writer=writer,
        )
        if one is None or two is None:
            assert self.reason(response) in ("TENSOR_NOT_FOUND", "DEPENDENCY_FAILED")
            assert self.reason(response, 1) == "DEPENDENCY_FAILED"
            self.ids = iter(range(first + 2, 1 << 20))
            return multiple()
        try:
            made = one.array * two.array
        except ValueError:
            assert self.reason(response) == "SHAPE"
            assert self.reason(response, 1) == "DEPENDENCY_FAILED"
            self.ids = iter(range(first + 2, 1 << 20))
            return multiple()
        assert not self.reason(response) and not self.reason(response, 1)
        product, total = Value(made), Value(np.float32(made.sum()))
        if not mode and (one.leaf or two.leaf):
            total.parts = [
                (value, _reduced(np.broadcast_to(by, made.shape), value.array.shape))
                for value, by in ((one, two.array), (two, one.array))
                if value.leaf
            ]
            product.parts = list(total.parts)
        self.add(product)
        return multiple(self.add(total))

    @rule(x=tensors)
    def differentiate(self, x: int) -> None:
        """A scalar's backward, once: what it was made of is freed, or it never had a graph."""
        value = self.known.get(x)
        request = c.BackwardRequest(session_id=self.session.id, tensors=[x], retain_graph=True)
        try:
            self.server.stub.Backward(request)
        except grpc.RpcError as error:
            reason = refusal(error)[1]
            if value is None:
                assert reason in ("TENSOR_NOT_FOUND", "DEPENDENCY_FAILED")
            elif not value.parts:
                assert reason in ("NO_GRAD_FN", "GRADIENT_NEEDS_SCALAR")
            else:
                assert reason == "GRADIENT_NEEDS_SCALAR" and value.array.size != 1
            return
        assert value is not None and value.parts and value.array.size == 1
        for leaf, by in value.parts:
            leaf.grad = by.copy() if leaf.grad is None else leaf.grad + by

    @rule(x=tensors)
    def gradient(self, x: int) -> None:
        value = self.known.get(x)
        if value is None or not value.leaf:
            return
        response = self.server.stub.Grad(c.GradRequest(session_id=self.session.id, tensor=x))
        assert response.HasField("grad") == (value.grad is not None)
        if value.grad is not None:
            np.testing.assert_allclose(self.session.read(response.grad.id), value.grad, rtol=1e-5)
            self.session.release(response.grad.id)

    @rule(x=tensors, writer=st.integers(0, 1))
    def read(self, x: int, writer: int) -> None:
        response = self.run(command(c.ReadRequest(tensor=x)), writer=writer)
        value = self.known.get(x)
        if value is None:
            assert self.reason(response) in ("TENSOR_NOT_FOUND", "DEPENDENCY_FAILED")
        else:
            found = response.results[0].read.payload
            np.testing.assert_allclose(array_of(found, found.data), value.array, rtol=1e-5)

    @rule(x=consumes(tensors))
    def release(self, x: int) -> None:
        self.run(command(c.ReleaseRequest(tensors=[x])))
        self.known.pop(x, None)

    @precondition(lambda self: self.last is not None)
    @rule()
    def repeat(self) -> None:
        """The same batch again is answered as before, and applied once."""
        assert self.last is not None
        request, response = self.last
        again = self.server.stub.Run(request)
        assert [result.SerializeToString() for result in again.results] == [
            result.SerializeToString() for result in response.results
        ]

    @rule(x=tensors)
    def taken(self, x: int) -> None:
        """An id that names something is not given again."""
        if x in self.known:
            assert self.reason(self.run(command(op("zeros", [2], outputs=[x])))) == "TENSOR_EXISTS"

    @rule()
    def nonsense(self) -> None:
        response = self.run(command(op("no_such_op")), command(c.ReadRequest(tensor=GONE)), s.Command())
        assert [self.reason(response, place) for place in range(3)] == ["OP_UNKNOWN", "TENSOR_NOT_FOUND", "MALFORMED"]

    @rule()
    def cancel_nothing(self) -> None:
        assert not self.server.stub.Cancel(s.CancelRequest(session_id=self.session.id)).cancelled

    @invariant()
    def as_many_as_the_model_has(self) -> None:
        if hasattr(self, "known"):
            assert self.session.describe().tensor_count == len(self.known)

    def teardown(self) -> None:
        if hasattr(self, "session"):
            self.session.close()
            assert self.server.held() == 0


def _reduced(gradient: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Summed over what was broadcast."""
    while gradient.ndim > len(shape):
        gradient = gradient.sum(0)
    for axis, size in enumerate(shape):
        if size == 1 != gradient.shape[axis]:
            gradient = gradient.sum(axis, keepdims=True)
    return gradient


@pytest.mark.parametrize("workers", [0, 1], ids=["in-process", "1-worker"])
def test_random_commands_do_what_the_model_does(workers: int) -> None:
    with running(workers) as server:
        Sessions.server = server
        run_state_machine_as_test(Sessions, settings=settings(max_examples=EXAMPLES, stateful_step_count=STEPS))
