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
