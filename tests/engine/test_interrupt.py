"""Ctrl-C ends a wait for a long operation, and the process, though the operation goes on."""

import signal
import subprocess
import sys

import pytest

# an operation that never ends, and a queue with no room behind it
FULL = """
import threading
import plait as mx
from plait import engine, nd
started, done, x = threading.Event(), threading.Event(), nd.ones((3,))
net = mx.gluon.nn.HybridLambda(lambda F, x: F.relu(x + 1))
net.hybridize()
net(x).wait_to_read()
def block():
    started.set()
    done.wait()
def add():
    global x
    x += 1
engine.push(block, writes=[x])
started.wait()
while engine.stats()["pending"] < 4096:
    push()
print("ready", flush=True)
push()
"""
FULL_OF_PYTHON = """
import threading
from plait import engine
x, done = engine.Var(), threading.Event()
for _ in range(4096):
    engine.push(done.wait, writes=[x])
print("ready", flush=True)
engine.push(lambda: None, writes=[x])
"""
PUSHES = {
    "an operation": FULL.replace("push()", "add()"),
    "a program": FULL.replace("push()", "net(x)"),
    "Python": FULL_OF_PYTHON,
}
EVALUATED = """
import atexit
atexit.register(lambda: eval("1"))  # as another thread may, in between
"""
KERNEL = """
from plait import nd
x = nd.ones((1, 64, 512, 512))
rois = nd.array([[0, 0, 0, 500, 500]] * 4000)
y = nd.contrib.ROIAlign(x, rois, pooled_size=(14, 14), spatial_scale=1.0, sample_ratio=256)
print("ready", flush=True)
"""
SCRIPTS = {
    "Python": """
import threading
from plait import engine
x = engine.Var()
engine.push(threading.Event().wait, writes=[x])
print("ready", flush=True)
engine.wait_for_var(x)
""",
    "a kernel": KERNEL + "y.wait_to_read()",
    "a kernel's values": KERNEL + "y.asnumpy()",
    "all kernels": KERNEL + "nd.waitall()",
    "a kernel's number": KERNEL + "float(y.sum())",
    **{f"a full queue, {what}": script for what, script in PUSHES.items()},
    "a kernel, and a string is evaluated at exit": KERNEL + EVALUATED + "y.wait_to_read()",
    # the exit looks at the clock while it waits: so the second Ctrl-C comes then, not before
    "caught, then at exit": """
import threading, types
from plait import engine
def clock():
    print("ready", flush=True)
    return 0.0
engine.time = types.SimpleNamespace(monotonic=clock)
x = engine.Var()
engine.push(threading.Event().wait, writes=[x])
try:
    print("ready", flush=True)
    engine.wait_for_var(x)
except KeyboardInterrupt:
    pass
""",
}


def started(script):
    return subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_ctrl_c_ends_the_process(script):
    process = started(script)
    try:
        for _ in range(script.count('"ready"')):
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    caught = script.count('"ready"') == 2
    assert process.returncode == (0 if caught else -signal.SIGINT), errors
    assert caught or errors.endswith("KeyboardInterrupt\n")


@pytest.mark.parametrize("script", PUSHES.values(), ids=PUSHES)
def test_a_push_goes_on_after_a_signal_that_raises_nothing(script):
    """The signal's handler, which Python runs while the push waits, makes room."""
    handler = "import signal\nsignal.signal(signal.SIGUSR1, lambda *_: done.set())\n"
    process = started(handler + script + "\nengine.waitall()\n")
    try:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGUSR1)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0 and not errors


def test_an_interrupt_at_a_prompt_does_not_end_python():
    """There it ends a statement; leaving Python later is no failure."""
    at_prompt = "import sys, plait.nd\nsys.ps1, sys.last_type = '> ', KeyboardInterrupt\n"
    assert subprocess.run([sys.executable, "-c", at_prompt], timeout=60).returncode == 0


def test_an_interrupt_while_a_worker_is_forked_is_not_lost():
    """Python ignores what functions raise that it calls around a fork."""
    script = """
import os, signal
from plait import gluon
os.register_at_fork(before=lambda: os.kill(os.getpid(), signal.SIGINT))
for batch in gluon.data.DataLoader(list(range(6)), batch_size=2, num_workers=1):
    pass
print("lost")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.returncode in (130, -signal.SIGINT) and "lost" not in done.stdout, done.stderr
    assert "KeyboardInterrupt" in done.stderr and "Exception ignored" not in done.stderr
