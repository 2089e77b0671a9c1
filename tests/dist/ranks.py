"""A job whose ranks are processes that a test starts, without MPI."""

import os
import subprocess
import sys

SIZE = 3
START = """
import os, pickle, signal, sys, threading, time
from plait import engine
from plait.dist import heartbeat

rank, size, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
ready = lambda: os.write(int(sys.argv[4]), b"x")

def exchange(value):  # by one named pipe for each rank
    others = range(1, size) if rank == 0 else [rank]
    for r in others:
        with open(f"{folder}/{r}", "wb" if rank == 0 else "rb") as pipe:
            if rank == 0:
                pickle.dump(value, pipe)
            else:
                value = pickle.load(pipe)
    return value

heartbeat.GRACE_S = 0.3
heartbeat.start(rank, size, exchange, abandon=lambda: print("abandoned", flush=True))
ready()
"""


class Job:
    """The ranks of a program. within: what each is started by, such as a network namespace."""

    def __init__(self, folder, code, within=None, **env):
        for rank in range(1, SIZE):
            os.mkfifo(folder / str(rank))
        self.script = folder / "train.py"
        self.script.write_text(START + code)
        self.ranks, self.pipes = [], []
        for rank in range(SIZE):
            reads, writes = os.pipe()
            command = [
                *(within[rank] if within else ()),
                sys.executable,
                self.script,
                str(rank),
                str(SIZE),
                folder,
                str(writes),
            ]
            self.ranks.append(
                subprocess.Popen(
                    command,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    env={**os.environ, **env},
                    pass_fds=[writes],
                )
            )
            os.close(writes)
            self.pipes.append(reads)
        for rank in range(SIZE):
            self.wait_ready(rank)

    def wait_ready(self, rank):
        assert os.read(self.pipes[rank], 1), self.ranks[rank].communicate()[1]

    def ends(self, *ranks):
        """Status, stdout and stderr of these ranks; of all by default."""
        found = []
        for rank in ranks or range(SIZE):
            out, err = self.ranks[rank].communicate(timeout=300)
            found.append((self.ranks[rank].returncode, out, err))
        return found

    def line(self, text):
        """train.py:41 of the line that holds a text."""
        lines = self.script.read_text().splitlines()
        return f"{self.script}:{next(n for n, line in enumerate(lines, 1) if text in line)}"

    def close(self):
        for rank, pipe in zip(self.ranks, self.pipes):
            rank.kill()
            rank.communicate()
            os.close(pipe)
