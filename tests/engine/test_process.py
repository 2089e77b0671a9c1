"""The engine and its process: fork, exit, naive mode, settings, Ctrl-C."""

import os

import pytest
from child import run
from plait.engine import settings


def test_a_forked_child_runs_operations_and_so_does_the_parent():
    out, _ = run("""
x, log = Var(), []
for i in range(50):
    engine.push(lambda i=i: log.append(i), writes=[x])        # Python callbacks pend while we fork
child = os.fork()
assert log == list(range(50)), log
engine.push(lambda: log.append("after"), reads=[x], writes=[x], lane="io")
engine.wait_for_var(x)
assert log[-1] == "after"
if child == 0:
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""")
    assert out == "7\n"


def test_a_fork_waits_for_the_imports_of_other_threads(tmp_path):
    """The child would wait for ever for the lock of a module that its parent was importing."""
    (tmp_path / "slow.py").write_text(
        "import __main__, time; __main__.started.set(); time.sleep(0.3); value = 3"
    )
    out, _ = run(
        """
started = threading.Event()
def use():
    import slow
threading.Thread(target=use).start()
started.wait()
child = os.fork()
if child == 0:
    signal.alarm(60)
import slow
if child == 0:
    os._exit(slow.value)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""",
        PYTHONPATH=str(tmp_path),
    )
    assert out == "3\n"


def test_a_child_of_a_busy_process_says_that_operations_are_lost():
    out, _ = run("""
x, held, go = Var(), threading.Event(), threading.Event()
def fork():
    held.set()
    child = os.fork()                         # from a lane: nothing can be waited for
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
engine.push(fork, writes=[x])
engine.wait_for_var(x)
print("parent goes on")
""")
    assert out == "parent goes on\n"


def test_multiprocessing_workers():
    out, _ = run("""
import multiprocessing
def work(i):
    x, log = Var(), []
    engine.push(lambda: log.append(i * i), writes=[x])
    engine.wait_for_var(x)
    return log[0]
engine.push(lambda: None)
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map(work, range(5)))
""")
    assert out == "[0, 1, 4, 9, 16]\n"


def test_exit_runs_what_is_pending_and_tells_errors():
    out, err = run(
        """
x = Var()
for i in range(3):
    engine.push(lambda i=i: print("ran", i, flush=True), writes=[x])
def fail():
    raise ValueError("at the end")
engine.push(fail, writes=[x], name="last")
""",
        status=1,
    )
    assert out == "ran 0\nran 1\nran 2\n"
    assert (
        "an error that nothing waited for: ValueError: at the end" in err
        and 'operator "last"' in err
    )


FAILS = """
import atexit
def fail():
    raise ValueError("at the end")
x = Var()
engine.push(fail, writes=[x])
"""


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("", 1),
        ("sys.exit(0)", 1),
        ("sys.exit(3)", 3),
        ("raise KeyError", 1),
        ("atexit.register(print, 'mine')", 1),
        # reported: no longer the process's business
        ("try: engine.wait_for_var(x)\nexcept ValueError: pass", 0),
        ("del x\ntry: engine.waitall()\nexcept ValueError: pass", 0),
    ],
)
def test_an_error_that_was_not_reported_ends_the_process_with_status_1(end, status):
    out, err = run(FAILS + end, status=status)
    assert ("an error that nothing waited for" in err) == (status != 0)
    assert out == ("mine\n" if "mine" in end else "")


def test_errors_of_a_process_are_not_those_of_its_forked_children():
    out, err = run(
        FAILS
        + """
while engine.stats()["pending"]:
    pass
child = os.fork()
if child == 0:
    sys.exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""",
        status=1,
    )
    assert out == "0\n"
    assert err.count("an error that nothing waited for") == 1


def test_exit_with_a_daemon_thread_that_keeps_pushing():
    run("""
x = Var()
def forever():
    while True:
        engine.push(lambda: None, writes=[x])
threading.Thread(target=forever, daemon=True).start()
while x.version < 10:
    pass
""")


def test_a_push_after_the_end_runs_at_once():
    out, _ = run("""
import atexit
class Late:
    def __del__(self):
        x = Var()
        engine.push(lambda: print("late"), writes=[x])
        engine.wait_for_var(x)
late = Late()
""")
    assert out == "late\n"


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_ends_a_wait():
    out, _ = run("""
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a job of the background
x, go = Var(), threading.Event()
engine.push(go.wait, writes=[x])
try:
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    engine.wait_for_var(x)
except KeyboardInterrupt:
    print("interrupted")
go.set()
""")
    assert out == "interrupted\n"


def test_naive_mode_runs_on_the_caller_with_the_same_results():
    code = """
x, y, log = Var(), Var(), []
def note(i):
    log.append((i, threading.current_thread() is threading.main_thread()))
def fail():
    raise KeyError("k")
engine.push(lambda: note(1), writes=[x], lane="io")
immediate = len(log) == 1
def nested():
    engine.push(lambda: note(2), reads=[x], lane="comm")      # waits for this one's end
    note(3)
engine.push(nested, writes=[x])
engine.push(fail, writes=[y])
try:
    engine.wait_for_var(y)
except KeyError as error:
    print(error)
engine.waitall()
print([i for i, main in log])
print(immediate, all(main for i, main in log), file=sys.stderr)
"""
    naive, naive_err = run(code, PLAIT_ENGINE="naive")
    threaded, _ = run(code)
    assert naive == threaded and naive.endswith("[1, 3, 2]\n")
    assert naive_err == "True True\n"


def test_naive_mode_with_several_threads():
    out, _ = run(
        """
x, total = Var(), [0]
def add():
    total[0] += 1
def work():
    for _ in range(500):
        engine.push(add, writes=[x])
threads = [threading.Thread(target=work) for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()
engine.wait_for_var(x)
print(total)
""",
        PLAIT_ENGINE="naive",
    )
    assert out == "[2000]\n"


def test_there_are_at_most_ten_settings():
    assert len(settings.SETTINGS) <= 10


def test_a_setting_that_means_nothing_is_an_error():
    _, err = run("", status=1, PLAIT_ENGINE="quick")
    assert "PLAIT_ENGINE=quick: not a value" in err and "threaded, or naive" in err
    _, err = run("", status=1, PLAIT_PENDING_OPS="-3")
    assert "PLAIT_PENDING_OPS=-3" in err


def test_a_profile_of_the_whole_process(tmp_path):
    import json

    file = tmp_path / "trace.json"
    run('engine.push(lambda: None, name="only")', PLAIT_PROFILE=str(file))
    assert "only" in [e["name"] for e in json.loads(file.read_text())["traceEvents"]]
