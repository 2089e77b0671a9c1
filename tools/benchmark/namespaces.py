"""Two network namespaces with a link between them stand for two machines (Linux, as root)."""

from __future__ import annotations

import itertools
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Self

from .. import mpiexec

_count = itertools.count()
# what ip says where this process or this kernel may not make them; all else is a fault of ours
REFUSALS = ("not permitted", "Permission denied", "not supported", "Unknown device type")


class NotAllowed(Exception):
    """This machine does not let us make namespaces; says why."""


class Namespaces:
    """As a context manager: two namespaces, `names`, of the addresses 192.0.2.1 and 192.0.2.2.

    Raises NotAllowed.
    """

    def __init__(self) -> None:
        number = next(_count)
        self.names = [f"plait-{os.getpid()}-{number}{side}" for side in "ab"]

    def __enter__(self) -> Self:
        if not shutil.which("ip"):
            raise NotAllowed("network namespaces need ip, of iproute2")
        try:
            for name in self.names:
                self.ip("netns", "add", name)
            a, b = self.names
            pair = ("type", "veth", "peer", "name", "eth0", "netns", b)
            self.ip("link", "add", "eth0", "netns", a, *pair)
            for number, name in enumerate(self.names, 1):
                self.ip("-n", name, "addr", "add", f"192.0.2.{number}/24", "dev", "eth0")
                self.ip("-n", name, "link", "set", "eth0", "up")
                self.ip("-n", name, "link", "set", "lo", "up")
        except subprocess.CalledProcessError as error:
            self.__exit__()
            message = error.stderr.strip()
            if not any(text in message for text in REFUSALS):
                error.add_note(message)
                raise
            raise NotAllowed(f"network namespaces are not allowed here: {message}") from error
        return self

    def __exit__(self, *error: object) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    @staticmethod
    def ip(*words: str) -> None:
        """Runs ip."""
        subprocess.run(["ip", *words], check=True, capture_output=True, text=True)

    def within(self, number: int) -> list[str]:
        """What starts a command in a namespace, under a host name of its own."""
        name = self.names[number]
        renamed = ["unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', name]
        return ["ip", "netns", "exec", name, *renamed]

    def launch_options(self, folder: Path) -> list[str]:
        """What `plait launch`, started in the first namespace, needs for a rank in each: mpiexec
        takes a script in this folder for ssh. The script mends a link that was cut."""
        words = " ".join(map(shlex.quote, self.within(1)))
        skipped = 'while :; do case "$1" in -*) shift;; *) break;; esac; done; shift'
        mended = f"ip -n {self.names[1]} link set eth0 up"
        script = folder / "ssh"
        script.write_text(f'#!/bin/sh\n{skipped}\n{mended}\nexec {words} sh -c "$*"\n')
        script.chmod(0o755)
        kind = mpiexec.find().kind
        agent = {
            "mpich": f"-launcher ssh -launcher-exec {script}",
            "openmpi": f"--prtemca plm_ssh_agent {script}",
        }
        # by TCP alone: MPICH's library sees that both are one machine, and takes its memory
        transport = ["--env", "UCX_TLS=tcp,self", "--env", "MPIR_CVAR_NOLOCAL=1"]
        hosts = ["-H", "192.0.2.1:1,192.0.2.2:1"]
        return [*hosts, f"--mpi-args={agent[kind]}", *(transport if kind == "mpich" else [])]

    def limit(self, mbit: int) -> None:
        """Each direction carries so many Mbit/s. The queue holds 50 ms, as a switch's may."""
        for number in range(2):
            subprocess.run(
                [*self.within(number), "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf"]
                + ["rate", f"{mbit}mbit", "burst", f"{max(mbit * 1000 // 8, 32000)}"]
                + ["latency", "50ms"],
                check=True,
                capture_output=True,
            )
