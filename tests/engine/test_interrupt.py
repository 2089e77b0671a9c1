"""Ctrl-C ends a wait for a long operation, and the process, though the operation goes on."""

import signal
import subprocess
import sys

import pytest

SCRIPTS = {
    "Python": """
import threading
from plait import engine
x = engine.Var()
engine.push(threading.Event().wait, writes=[x])
print("ready", flush=True)
engine.wait_for_var(x)
""",
    "a kernel": """
from plait import nd
x = nd.ones((1, 64, 512, 512))
rois = nd.array([[0, 0, 0, 500, 500]] * 4000)
y = nd.contrib.ROIAlign(x, rois, pooled_size=(14, 14), spatial_scale=1.0, sample_ratio=256)
print("ready", flush=True)
y.wait_to_read()
""",
    "a full queue": """
import threading
from plait import engine, nd
started, x = threading.Event(), nd.ones((3,))
def block():
    started.set()
    threading.Event().wait()
engine.push(block, writes=[x])
started.wait()
while engine.stats()["pending"] < 4096:
    x += 1
print("ready", flush=True)
x += 1
""",
    "a full queue, Python": """
import threading
from plait import engine
x = engine.Var()
for _ in range(4096):
    engine.push(threading.Event().wait, writes=[x])
print("ready", flush=True)
engine.push(print, writes=[x])
""",
    "a full queue, a program": """
import threading
import plait as mx
from plait import engine, nd
started, x = threading.Event(), nd.ones((3,))
net = mx.gluon.nn.HybridLambda(lambda F, x: F.relu(x + 1))
net.hybridize()
net(x).wait_to_read()
def block():
    started.set()
    threading.Event().wait()
engine.push(block, writes=[x])
started.wait()
while engine.stats()["pending"] < 4096:
    net(x)
print("ready", flush=True)
net(x)
""",
    "caught, then at exit": """
import threading
from plait import engine
x = engine.Var()
engine.push(threading.Event().wait, writes=[x])
try:
    print("ready", flush=True)
    engine.wait_for_var(x)
except KeyboardInterrupt:
    print("ready", flush=True)
""",
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_ctrl_c_ends_the_process(script):
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        for _ in range(script.count('"ready"')):
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    caught = script.count('"ready"') == 2
    # the second signal may come before or after the engine's own handler of the exit
    assert process.returncode in ((0, -signal.SIGINT) if caught else (-signal.SIGINT,)), errors
    assert caught or errors.endswith("KeyboardInterrupt\n")
