"""The profiler: the server's times of ops and nodes as events, their sums, tables and files."""

import gzip
import json
import random
import threading
from pathlib import Path

import pytest

import gradwire as gw
from gradwire import profiler
from gradwire.autograd import profiler as block_profiler
from gradwire.autograd.profiler_util import EventList, FunctionEvent, FunctionEventAvg
from gradwire.profiler import _recording


def names(events: EventList) -> list[str]:
    return [each.name for each in events if not each.name.startswith("gradwire::")]


@pytest.mark.usefixtures("session")
def test_a_block_has_an_event_for_each_op_and_node() -> None:
    x = gw.randn(4, 4, requires_grad=True)
    for _ in range(3):
        (x * 2).sum().backward()  # the memo knows these commands
    with block_profiler.profile(record_shapes=True) as found:
        assert gw.autograd._profiler_enabled()
        with profiler.record_function("outer"):
            y = x * 2
            with profiler.record_function("inner"):
                y.sub_(1)
        y.sum().backward()
    assert not gw.autograd._profiler_enabled()
    nodes = ["SumBackward0", "SubBackward0", "MulBackward0", "AccumulateGrad"]
    both = [name for node in nodes for name in (f"autograd::engine::evaluate_function: {node}", node)]
    assert names(found.function_events) == ["outer", "aten::mul", "inner", "aten::sub_", "aten::sum", *both]
    by_name = {each.name: each for each in found.function_events}
    assert by_name["aten::mul"].input_shapes[0] == [4, 4]
    assert by_name["aten::mul"].cpu_parent is by_name["outer"]
    assert by_name["aten::sub_"].cpu_parent is by_name["inner"]
    assert by_name["inner"] in by_name["outer"].cpu_children
    assert by_name["outer"].cpu_time_total > by_name["aten::mul"].cpu_time_total > 0
    assert "aten::mul" in str(found) and "Self CPU time total" in found.table()


@pytest.mark.usefixtures("session")
def test_ops_are_counted_also_in_compiled_functions_and_after_the_block_they_are_deferred_again() -> None:
    x = gw.ones(3)

    def work() -> gw.Tensor:
        y = x
        for _ in range(5):
            y = y * 2 + 1
        return y

    waits = gw.current_session().every_call_waits
    work()
    step = gw.compile(work)
    step()
    with profiler.profile() as found:
        work()
        step()
    sums = {each.key: each.count for each in found.key_averages()}
    assert sums["aten::mul"] == sums["aten::add"] == 10
    session = gw.current_session()
    work()
    assert (bool(session.memo), session.every_call_waits, session.timed) == (not waits, waits, ())


@pytest.mark.usefixtures("session")
def test_an_error_ends_a_profile() -> None:
    x = gw.ones(2)
    with pytest.raises(RuntimeError, match="shape"), profiler.profile() as found:
        (x * 3).reshape(7)
    assert "aten::mul" in names(found.events())
    with profiler.profile(), pytest.raises(RuntimeError, match="already enabled"):
        profiler.profile().start()
    with pytest.raises(RuntimeError, match="didn't finish"):
        profiler.profile().key_averages()


@pytest.mark.usefixtures("session")
def test_a_step_that_cannot_begin_to_record_leaves_nothing_to_end() -> None:
    plan = profiler.schedule(wait=1, warmup=0, active=1)
    with (
        profiler.profile(),
        pytest.raises(RuntimeError, match="already enabled"),
        profiler.profile(schedule=plan) as it,
    ):
        it.step()
    with profiler.profile() as found:
        gw.ones(2) * 3
    assert "aten::mul" in names(found.events())


def test_a_session_that_ends_in_a_profile_remembers_nothing(deferring: gw.Session) -> None:
    x = gw.ones(2)
    for _ in range(2):
        x = x * 2
    assert deferring.memo
    with pytest.raises(ConnectionError, match="closed"), profiler.profile():
        deferring.close()
    assert not deferring.memo and not deferring.models
    assert profiler.profiler_enabled() is False


@pytest.mark.usefixtures("session")
def test_ops_of_other_threads_are_recorded_with_their_thread() -> None:
    session = gw.current_session()

    def other() -> None:
        with session, profiler.record_function("there"):
            gw.ones(2) * 3

    with profiler.profile() as found:
        gw.ones(2) + 3
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    by_name = {each.name: each for each in found.events()}
    assert by_name["there"].thread != by_name["aten::add"].thread
    assert by_name["aten::mul"].cpu_parent is by_name["there"]


@pytest.mark.usefixtures("session")
def test_steps_of_a_schedule_and_files(tmp_path: Path) -> None:
    ready = []

    def on_ready(found: profiler.profile) -> None:
        ready.append([each.name for each in found.events() if each.is_user_annotation])

    plan = profiler.schedule(wait=1, warmup=1, active=2, repeat=2)
    with profiler.profile(schedule=plan, on_trace_ready=on_ready, with_stack=True) as found:
        for _ in range(10):
            gw.ones(2) * 3
            found.step()
    assert ready == [["ProfilerStep#2", "ProfilerStep#3"], ["ProfilerStep#6", "ProfilerStep#7"]]
    found.export_chrome_trace(tmp_path / "trace.json.gz")
    with gzip.open(tmp_path / "trace.json.gz") as file:
        events = json.load(file)["traceEvents"]
    assert {"aten::mul", "ProfilerStep#7"} <= {each["name"] for each in events}
    assert any("test_profiler.py" in line for each in events for line in each["args"].get("Call stack", ()))
    found.export_stacks(tmp_path / "stacks.txt")
    assert "test_steps_of_a_schedule" in (tmp_path / "stacks.txt").read_text()
    profiler.tensorboard_trace_handler(str(tmp_path / "logs"))(found)
    assert [path.name.endswith(".pt.trace.json") for path in (tmp_path / "logs").iterdir()] == [True]
    with pytest.raises(ValueError, match="sorted by"):
        found.key_averages().table(sort_by="name")
    with pytest.warns(UserWarning, match="measures time alone"):
        profiler.profile(profile_memory=True)


def test_schedules_are_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    draw = random.Random(1)
    for _ in range(60):
        options = {name: draw.randrange(3) for name in ("wait", "warmup", "repeat", "skip_first", "skip_first_wait")}
        options["active"] = draw.randrange(1, 4)
        ours, theirs = profiler.schedule(**options), torch.profiler.schedule(**options)
        assert [ours(step).name for step in range(20)] == [theirs(step).name for step in range(20)], options


def test_sums_and_nesting_are_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    util = torch.autograd.profiler_util
    draw = random.Random(2)
    for _ in range(30):
        lists = [EventList(), util.EventList(use_device=None)]
        for number in range(40):
            start = draw.randrange(60)
            fields = {
                "id": number, "name": draw.choice("abc"), "thread": draw.randrange(2), "start_us": start,
                "end_us": start + draw.randrange(1, 20), "node_id": 0, "input_shapes": [[draw.randrange(2)]],
                "stack": [draw.choice("xy"), "main"], "is_async": draw.random() < 0.1,
            }  # fmt: skip
            lists[0].append(FunctionEvent(**fields))
            lists[1].append(util.FunctionEvent(**fields))
        for events in lists:
            events._populate_cpu_children()
        lists[1]._tree_built = True
        children = [[[child.id for child in each.cpu_children] for each in events] for events in lists]
        assert children[0] == children[1]
        for shapes, stack in ((False, 0), (True, 0), (True, 1)):
            ours, theirs = (
                {
                    (each.key, str(each.input_shapes) if shapes else "", tuple(each.stack)): (
                        each.count, each.cpu_time_total, each.self_cpu_time_total, each.cpu_time,
                    )
                    for each in events.key_averages(group_by_input_shapes=shapes, group_by_stack_n=stack)
                }
                for events in lists
            )  # fmt: skip
            assert ours == theirs
        assert lists[0].self_cpu_time_total == lists[1].self_cpu_time_total
        assert lists[0].total_average().count == lists[1].total_average().count


def test_a_sum_takes_events_of_its_key() -> None:
    total = FunctionEventAvg()
    total.add(FunctionEvent(id=0, name="a", thread=0, start_us=10, end_us=15))
    total.add(FunctionEvent(id=0, name="a", thread=0, start_us=20, end_us=30))
    total.add(total)
    assert (total.count, total.cpu_time_total, total.cpu_time) == (4, 30, 7.5)
    with pytest.raises(ValueError, match="sums of 'a'"):
        total.add(FunctionEvent(id=0, name="b", thread=0, start_us=10, end_us=15))


@pytest.mark.usefixtures("session")
def test_a_decorated_function_is_a_range_each_time() -> None:
    @profiler.record_function("work")
    def work(depth: int) -> None:
        if depth:
            work(depth - 1)

    with profiler.profile() as found:
        work(2)
    assert names(found.events()) == ["work"] * 3


@pytest.mark.usefixtures("session")
def test_a_profile_keeps_so_many_events_and_warns_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_recording, "_MOST_EVENTS", 3)
    x = gw.ones(2)
    found = profiler.profile()
    found.start()
    for _ in range(5):
        x = x + 1
    with pytest.warns(UserWarning, match=r"its first 3 events, and not \d+ later ones"):
        found.stop()
    assert len(found.events()) == 3
    assert x.tolist() == [6.0, 6.0]
