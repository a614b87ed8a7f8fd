"""What each command promises, sent alone."""

import json
from typing import Any

import numpy as np
import pytest

from gradwire.v1 import commands_pb2, service_pb2, types_pb2
from gradwire_engine.core import dtypes
from tests.server.harness import Id, Remote, Running, op, payload, refused, running

SERVER_IDS = 1 << 52


def test_a_leaf_an_op_backward_and_its_gradient(session: Remote) -> None:
    x = session.create([2.0, 3.0], requires_grad=True)
    y = session.op("mul", Id(x), Id(x), outputs=[100])
    assert (y.id, y.grad_fn, y.is_leaf, y.requires_grad) == (100, "MulBackward0", False, True)
    total = session.op("sum", Id(100), outputs=[101])
    assert list(total.shape) == []
    assert session.backward(101) == [x]
    np.testing.assert_array_equal(session.grad(x), [4.0, 6.0])


@pytest.mark.parametrize("dtype", sorted(dtypes.BY_NAME))
def test_every_dtype_is_read_as_it_was_created(session: Remote, dtype: str) -> None:
    values = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtypes.BY_NAME[dtype])
    made = session.create(values, dtype=dtype)
    read = session.read(made)
    assert read.dtype == values.dtype
    np.testing.assert_array_equal(read, values)
    described = session.describe(made).tensors[0]
    assert types_pb2.Dtype.Name(described.dtype) == f"DTYPE_{dtype.upper()}"
    assert described.device == "cpu"


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 1), (2, 3, 4)])
def test_every_shape_is_read_as_it_was_created(session: Remote, shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    assert session.read(session.create(values)).shape == shape


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_whole_number_changes_a_float_tensor_in_place(session: Remote, dtype: str) -> None:
    x = session.create([1.0, 2.0], dtype=dtype)
    session.op("mul_", Id(x), 3)
    session.op("add_", Id(x), True)
    assert session.read(x).tolist() == [4.0, 7.0]


def test_ids_the_server_chooses_are_above_the_clients(session: Remote) -> None:
    made = session.stub.Create(commands_pb2.CreateRequest(session_id=session.id, payload=payload(np.zeros(2))))
    other = session.op("add", Id(made.tensor.id), 1.0)
    assert SERVER_IDS <= made.tensor.id < other.id < 2 * SERVER_IDS


def test_an_id_is_given_once(session: Remote) -> None:
    x = session.create([1.0])
    assert refused(session.create, [2.0], tensor_id=x)[:2] == ("ALREADY_EXISTS", "TENSOR_EXISTS")
    assert refused(session.op, "add", Id(x), 1.0, outputs=[x])[:2] == ("ALREADY_EXISTS", "TENSOR_EXISTS")
    np.testing.assert_array_equal(session.read(x), [1.0])
    session.release(x)
    assert session.create([3.0], tensor_id=x) == x


def test_an_id_of_the_servers_range_is_refused(session: Remote) -> None:
    assert refused(session.create, [1.0], tensor_id=SERVER_IDS)[:2] == ("INVALID_ARGUMENT", "ARGUMENT_VALUE")


def test_in_place_answers_with_the_changed_tensor(session: Remote) -> None:
    x = session.create([1.0, 2.0])
    changed = session.op("add_", Id(x), 1.0)
    assert (changed.id, changed.version) == (x, 1)
    np.testing.assert_array_equal(session.read(x), [2.0, 3.0])
    assert session.describe().tensor_count == 1


def test_in_place_takes_no_output_ids_and_no_number(session: Remote) -> None:
    x = session.create([1.0])
    assert refused(session.op, "add_", Id(x), 1.0, outputs=[50])[1] == "ARGUMENT_VALUE"
    assert refused(session.op, "add_", 1.0, Id(x))[1] == "ARGUMENT_TYPE"
    np.testing.assert_array_equal(session.read(x), [1.0])


def test_grad_mode_is_the_commands(session: Remote) -> None:
    x = session.create([1.0], requires_grad=True)
    off = session.op("mul", Id(x), 2.0, grad_mode=types_pb2.GRAD_MODE_DISABLED)
    on = session.op("mul", Id(x), 2.0)
    assert (off.requires_grad, off.is_leaf, off.grad_fn) == (False, True, "")
    assert (on.requires_grad, on.is_leaf) == (True, False)


def test_a_list_of_results_takes_ids_in_order(session: Remote) -> None:
    x = session.create(np.arange(6.0))
    made = session.op("split", Id(x), 2, outputs=[70, 0, 72])
    assert [made[0].id, made[2].id] == [70, 72]
    assert made[1].id >= SERVER_IDS
    np.testing.assert_array_equal(session.read(72), [4.0, 5.0])


def test_results_whose_descriptions_pass_the_cap_are_not_named() -> None:
    with running(max_message_bytes=128 << 10) as server:
        small = server.open()
        x = small.create(np.zeros(1900), dtype="uint8")
        deep = small.op("reshape", Id(x), [1900] + [1] * 60).id
        assert refused(small.op, "unbind", Id(deep))[:2] == ("RESOURCE_EXHAUSTED", "MESSAGE_TOO_LARGE")
        assert small.describe().tensor_count == 2


def test_more_ids_than_results_are_refused(session: Remote) -> None:
    x = session.create([1.0])
    assert refused(session.op, "add", Id(x), 1.0, outputs=[60, 61])[1] == "ARGUMENT_VALUE"
    assert refused(session.op, "add", Id(x), 1.0, outputs=[60, 60])[1] in ("TENSOR_EXISTS", "ARGUMENT_VALUE")
    assert session.describe().tensor_count == 1


def test_a_view_tells_its_strides_and_that_it_is_one(session: Remote) -> None:
    x = session.create(np.arange(6.0).reshape(2, 3))
    view = session.op("transpose", Id(x), 0, 1)
    assert (list(view.shape), list(view.strides), view.is_view) == ([3, 2], [1, 3], True)
    assert not session.describe(x).tensors[0].strides
    np.testing.assert_array_equal(session.read(view.id), np.arange(6.0).reshape(2, 3).T)


def test_views_hold_no_bytes_of_their_own(session: Remote) -> None:
    x = session.create(np.arange(6.0))
    before = session.describe().bytes
    session.op("reshape", Id(x), [2, 3])
    assert session.describe().bytes == before == 24


def test_two_ids_may_name_one_tensor(session: Remote) -> None:
    x = session.create([1.0, 2.0], requires_grad=True)
    same = session.op("to", Id(x), named={"dtype": types_pb2.Argument(name="dtype", dtype=types_pb2.DTYPE_FLOAT32)})
    total = session.op("sum", Id(x))
    assert session.backward(total.id) == [x, same.id]
    assert session.release(x) == 1
    np.testing.assert_array_equal(session.grad(same.id), [1.0, 1.0])


def test_index_expressions_of_every_kind(session: Remote) -> None:
    values = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
    x = session.create(values)
    rows = session.create([1, 0], dtype="int64")
    mask = session.create([True, False], dtype="bool")
    items = types_pb2.IndexItem

    def get(*parts: types_pb2.IndexItem) -> types_pb2.TensorSpec:
        return session.op("getitem", Id(x), types_pb2.Argument(index=types_pb2.Index(items=parts)))

    whole = items(slice=types_pb2.Slice())
    cases = [
        ((items(integer=-1),), values[-1]),
        ((items(ellipsis=True), items(integer=2)), values[..., 2]),
        ((items(new_axis=True), items(integer=0)), values[None, 0]),
        ((whole, items(slice=types_pb2.Slice(start=1)), items(slice=types_pb2.Slice(stop=-1, step=2))),
         values[:, 1:, :-1:2]),
        ((items(tensor=rows), items(integer=1)), values[[1, 0], 1]),
        ((items(tensor=mask),), values[[True, False]]),
    ]  # fmt: skip
    for parts, wanted in cases:
        np.testing.assert_array_equal(session.read(get(*parts).id), wanted)
    assert get(items(tensor=mask)).data_dependent
    assert not get(items(integer=0)).data_dependent


def test_retain_grad_and_its_flag(session: Remote) -> None:
    x = session.create([3.0], requires_grad=True)
    y = session.op("mul", Id(x), 2.0)
    kept = session.stub.RetainGrad(commands_pb2.RetainGradRequest(session_id=session.id, tensor=y.id)).tensor
    assert kept.retains_grad
    z = session.op("mul", Id(y.id), Id(y.id))
    assert sorted(session.backward(z.id)) == sorted([x, y.id])
    np.testing.assert_array_equal(session.grad(y.id), [12.0])


def test_a_gradient_has_one_id_unless_given_another(session: Remote) -> None:
    x = session.create([3.0], requires_grad=True)
    request = commands_pb2.GradRequest(session_id=session.id, tensor=x)
    assert not session.stub.Grad(request).HasField("grad")
    session.backward(session.op("mul", Id(x), 2.0).id)
    first = session.stub.Grad(request).grad.id
    assert session.stub.Grad(request).grad.id == first
    request.id = 500
    assert session.stub.Grad(request).grad.id == 500
    np.testing.assert_array_equal(session.read(500), session.read(first))


def test_gradients_touches_no_leaf(session: Remote) -> None:
    x = session.create([3.0], requires_grad=True)
    other = session.create([1.0], requires_grad=True)
    y = session.op("mul", Id(x), Id(x))
    request = commands_pb2.GradientsRequest(
        session_id=session.id, outputs=[y.id], inputs=[x, other], allow_unused=True, results=[900, 901]
    )
    found = session.stub.Gradients(request).gradients
    assert [spec.id for spec in found] == [900, 0]
    np.testing.assert_array_equal(session.read(900), [6.0])
    assert session.grad(x) is None


def test_gradients_of_gradients(session: Remote) -> None:
    x = session.create([3.0], requires_grad=True)
    y = session.op("mul", Id(session.op("mul", Id(x), Id(x)).id), Id(x)).id
    for wanted in (27.0, 18.0, 6.0):
        request = commands_pb2.GradientsRequest(session_id=session.id, outputs=[y], inputs=[x], create_graph=True)
        y = session.stub.Gradients(request).gradients[0].id
        np.testing.assert_allclose(session.read(y), [wanted])


def test_a_gradient_can_be_set_and_cleared(session: Remote) -> None:
    x = session.create([3.0], requires_grad=True)
    g = session.create([5.0])
    session.stub.SetGrad(commands_pb2.SetGradRequest(session_id=session.id, tensor=x, grad=g))
    np.testing.assert_array_equal(session.grad(x), [5.0])
    session.stub.SetGrad(commands_pb2.SetGradRequest(session_id=session.id, tensor=x))
    assert session.grad(x) is None


def test_requires_grad_is_set_on_leaves_only(session: Remote) -> None:
    x = session.create([3.0])
    request = commands_pb2.SetRequiresGradRequest(session_id=session.id, tensor=x, requires_grad=True)
    assert session.stub.SetRequiresGrad(request).tensor.requires_grad
    request.tensor = session.op("mul", Id(x), 2.0).id
    request.requires_grad = False
    assert refused(session.stub.SetRequiresGrad, request)[:2] == ("FAILED_PRECONDITION", "REQUIRES_GRAD")


def test_set_data_shares_the_values(session: Remote) -> None:
    x, y = session.create([3.0]), session.create([4.0, 5.0])
    session.stub.SetData(commands_pb2.SetDataRequest(session_id=session.id, tensor=x, data=y))
    session.op("add_", Id(y), 1.0)
    np.testing.assert_array_equal(session.read(x), [5.0, 6.0])


def test_the_generator_is_seeded_saved_and_restored(session: Remote) -> None:
    seed = commands_pb2.ManualSeedRequest(session_id=session.id, seed=-1)
    state = session.stub.ManualSeed(seed)
    assert state.seed == 2**64 - 1
    first = session.read(session.op("rand", [4]).id)
    restore = commands_pb2.ManualSeedRequest(session_id=session.id, state=state.state)
    assert session.stub.ManualSeed(restore).state == state.state
    np.testing.assert_array_equal(session.read(session.op("rand", [4]).id), first)


@pytest.mark.parametrize("change", ["nonsense", "deep", "negative", "large", "zeros", "random"])
@pytest.mark.parametrize("algorithm", [types_pb2.RANDOM_ALGORITHM_PCG64, types_pb2.RANDOM_ALGORITHM_MT19937])
def test_a_generator_state_that_is_none_changes_nothing(session: Remote, change: str, algorithm: Any) -> None:
    read = commands_pb2.ManualSeedRequest(session_id=session.id)
    other = commands_pb2.ManualSeedRequest(session_id=session.id, seed=5, algorithm=types_pb2.RANDOM_ALGORITHM_PCG64)
    state = json.loads(session.stub.ManualSeed(other).state)
    session.stub.ManualSeed(commands_pb2.ManualSeedRequest(session_id=session.id, seed=7, algorithm=algorithm))
    before = session.stub.ManualSeed(read)
    states = {
        "zeros": bytes(5056),
        "random": np.random.default_rng(3).bytes(5056),
        "nonsense": b"nonsense",
        "deep": b"[" * 100_000,
        "negative": json.dumps({**state, "seed": -1}).encode(),
        "large": json.dumps({**state, "seed": 1 << 64}).encode(),
    }
    restore = commands_pb2.ManualSeedRequest(session_id=session.id, state=states[change])
    assert refused(session.stub.ManualSeed, restore)[:2] == ("INVALID_ARGUMENT", "ARGUMENT_VALUE")
    assert session.stub.ManualSeed(read) == before


def test_sessions_draw_their_own_numbers(server: Running) -> None:
    one, two = server.open(), server.open()
    for session in (one, two):
        session.stub.ManualSeed(commands_pb2.ManualSeedRequest(session_id=session.id, seed=3))
    drawn = one.read(one.op("rand", [4]).id)
    np.testing.assert_array_equal(two.read(two.op("rand", [4]).id), drawn)
    one.close()
    two.close()


def test_release_ignores_what_is_unknown_and_keeps_what_a_graph_needs(session: Remote) -> None:
    x = session.create([2.0], requires_grad=True)
    y = session.op("mul", Id(x), Id(x))
    z = session.op("exp", Id(y.id))
    assert session.release(y.id, 12345) == 1
    session.backward(z.id)
    np.testing.assert_allclose(session.grad(x), [4 * np.exp(4.0)], rtol=1e-6)


def test_named_arguments_and_defaults(session: Remote) -> None:
    x = session.create(np.arange(6.0).reshape(2, 3))
    made = session.op("sum", Id(x), named={"dim": [1], "keepdim": True})
    assert list(made.shape) == [2, 1]
    assert session.stub.Op(op("sum", session_id=session.id, named={"input": Id(x)})).outputs[0].shape == []


def test_list_ops_tells_every_signature(server: Running) -> None:
    ops = {each.name: each for each in server.stub.ListOps(service_pb2.ListOpsRequest()).ops}
    assert list(ops) == sorted(ops)
    assert [each.name for each in ops["mul"].parameters] == ["input", "other"]
    assert ops["mul"].differentiable
    assert not ops["mul"].in_place
    assert ops["mul_"].in_place
    keepdim = next(each for each in ops["sum"].parameters if each.name == "keepdim")
    assert keepdim.kind == service_pb2.PARAMETER_KIND_BOOLEAN
    assert keepdim.default.WhichOneof("kind") == "boolean"
    some = server.stub.ListOps(service_pb2.ListOpsRequest(prefix="mu")).ops
    assert {each.name for each in some} == {name for name in ops if name.startswith("mu")}


def test_server_info_tells_limits_devices_and_dtypes(server: Running) -> None:
    info = server.stub.ServerInfo(service_pb2.ServerInfoRequest())
    assert info.limits.max_inline_bytes == server.limits.max_inline_bytes
    assert info.devices[0].name == "cpu"
    assert len(info.dtypes) == len(dtypes.BY_NAME)
    assert info.build["numpy"] == np.__version__
    assert info.min_protocol == info.max_protocol == 1
