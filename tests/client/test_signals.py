"""Deferred signals: each is handled once, whatever C code or profiler the main thread runs."""

import pytest

from tests.client.test_processes import run

# A call of the package that is struck in its midst, and goes on in `then`.
PROGRAM = """
    import cProfile, hashlib, os, signal, sys, threading, time
    from gradwire._base import signals as _signals

    _signals.wrap_handlers()
    handled = []
    signal.signal(signal.SIGUSR1, lambda number, frame: handled.append(number))
    inside = {"__name__": "gradwire._inside", "os": os, "signal": signal}
    exec("def call(then): os.kill(os.getpid(), signal.SIGUSR1); return then()", inside)

    def until(reached):
        ends = time.monotonic() + 30
        while not reached():
            assert time.monotonic() < ends
            time.sleep(0.001)
"""


def outcome(program: str) -> str:
    code, out, err = run(PROGRAM + program)
    assert code == 0, err
    return out.strip()


def test_signals_after_one_that_waited_for_c_code_are_all_handled() -> None:
    shown = outcome("""
    _signals._LONGEST_DEFERRAL = 0.05

    from functools import partial  # C code, so that no frame is between
    inside["call"](partial(hashlib.pbkdf2_hmac, "sha256", b"", b"", 3_000_000))
    until(lambda: len(handled) == 1)
    for count in range(2, 12):
        os.kill(os.getpid(), signal.SIGUSR1)
        until(lambda: len(handled) == count)
    print(len(handled))
    """)
    assert shown == "11"


def test_a_signal_that_comes_with_the_helpers_is_handled_once() -> None:
    shown = outcome("""
    from functools import partial

    def strike():
        _signals._wake_main()
        os.kill(os.getpid(), signal.SIGUSR1)

    for count in range(1, 6):
        thread = threading.Thread(target=strike)
        thread.start()
        hashlib.pbkdf2_hmac("sha256", b"", b"", 300_000)  # so that both are seen at once
        thread.join()
        until(lambda: len(handled) == count)
    assert signal.getsignal(signal.SIGURG) == signal.SIG_DFL
    print(len(handled))
    """)
    assert shown == "5"


@pytest.mark.parametrize("set_before", ["signal.SIG_DFL", "signal.SIG_IGN"])
def test_a_program_sees_what_it_set_for_the_helpers_signal(set_before: str) -> None:
    shown = outcome(f"""
    signal.signal(signal.SIGURG, {set_before})
    _signals.wrap_new_handlers()
    assert _signals._get_before(signal.SIGURG) is _signals._wake
    assert signal.getsignal(signal.SIGURG) is {set_before}
    assert signal.signal(signal.SIGURG, signal.default_int_handler) is {set_before}
    print(signal.signal(signal.SIGURG, {set_before}) is signal.default_int_handler)
    """)
    assert shown == "True"


def test_a_signal_that_waited_long_is_handled_after_the_call_while_the_helpers_is_blocked() -> None:
    shown = outcome("""
    from functools import partial

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGURG})
    _signals._LONGEST_DEFERRAL = 0.01
    sys.setprofile(lambda *each: None)  # so that the call's end is not seen
    inside["call"](partial(hashlib.pbkdf2_hmac, "sha256", b"", b"", 3_000_000))
    until(lambda: handled)
    print(len(handled))
    """)
    assert shown == "1"


@pytest.mark.parametrize("again", [False, True])
def test_an_exception_behind_a_signal_that_waited_long_is_raised_after_the_call(again: bool) -> None:
    shown = outcome(f"""
    def go_on():
        _signals._forced = True
        _signals.defer_exception(LookupError("after the call"))
        if {again}:
            os.kill(os.getpid(), signal.SIGUSR1)
        else:
            _signals._wake(signal.SIGURG, sys._getframe())
        done.append(1)

    done = []
    _signals._LONGEST_DEFERRAL = -1.0  # the helper would set _forced, too
    inside.update(_signals=_signals, sys=sys, done=done, LookupError=LookupError)
    go_on = type(go_on)(go_on.__code__, inside)
    try:
        inside["call"](go_on)
    except LookupError as error:
        print(error, done, set(handled) == {{signal.SIGUSR1}})
    """)
    assert shown == "after the call [1] True"


@pytest.mark.parametrize("profiled", [False, True])
def test_an_exception_that_waits_is_raised_after_the_call_also_under_a_profiler(profiled: bool) -> None:
    shown = outcome(f"""
    def fail(number, frame):
        raise LookupError("by the handler")

    signal.signal(signal.SIGUSR1, fail)
    inside["_signals"] = _signals
    exec("def note():\\n    try: _signals.deliver()\\n    except LookupError as e: _signals.defer_exception(e)", inside)
    profiler = cProfile.Profile()
    if {profiled}:
        profiler.enable()
    try:
        inside["call"](inside["note"])
        until(lambda: False)
    except LookupError as error:
        profiler.disable()
        print(error)
    """)
    assert shown == "by the handler"


def test_a_signal_held_back_in_a_callback_is_handled_before_the_next_c_call() -> None:
    shown = outcome("""
    import weakref

    table, named = weakref.WeakKeyDictionary(), {"__name__": "weakref", "os": os, "signal": signal}
    weakref.WeakKeyDictionary.struck = eval("lambda self: os.kill(os.getpid(), signal.SIGUSR1)", named)
    table.struck()
    print(len(handled))
    """)
    assert shown == "1"


def test_a_signal_within_a_named_tuple_that_the_package_makes_waits_for_the_end_of_the_call() -> None:
    shown = outcome("""
    from collections import namedtuple

    Pair = namedtuple("Pair", "first second")

    exec("def make(): pair = Pair(1, 2); seen.append(len(handled)); return pair", inside)
    inside.update(Pair=Pair, seen=[], handled=handled)
    inside["call"](inside["make"])
    print(inside["seen"], len(handled))
    """)
    assert shown == "[0] 1"


@pytest.mark.parametrize("library", ["numpy.random", "opentelemetry.trace", "json"])
def test_a_signal_within_a_library_that_the_package_calls_waits_for_the_end_of_the_call(library: str) -> None:
    shown = outcome(f"""
    called = {{"__name__": {library!r}, "handled": handled, "inside": inside}}
    exec("def seen(): return inside['call'](lambda: len(handled))", called)
    exec("def count(): return seen()", inside)
    inside["seen"] = called["seen"]
    print(inside["count"](), len(handled))
    """)
    assert shown == "0 1"


def test_a_child_forked_by_a_thread_is_in_none_of_the_main_threads_blocks() -> None:
    shown = outcome("""
    def fork():
        child = os.fork()
        if not child:
            os._exit(_signals._deferring_blocks)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    codes = []
    with _signals.deferring_signals():
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
    with _signals.wake_on_signal(lambda: None):
        child = os.fork()
    if not child:
        os._exit(0)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    print(codes)
    """)
    assert shown == "[0, 0]"
