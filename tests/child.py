"""A script in a process of its own."""

import os
import subprocess
import sys

START = """
import os, signal, sys, threading, time
from plait import engine
from plait.engine import Var
"""


def run(code, status=0, **env):
    """What the script prints: (stdout, stderr). env: settings besides this process's."""
    done = subprocess.run(
        [sys.executable, "-c", START + code],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **env},
        check=False,
    )
    assert done.returncode == status, done.stderr
    return done.stdout, done.stderr
