"""The process that runs the cases of one target, and the verdict on a case: `python -m
tests.fuzz.worker SCRIPT` runs one script by itself.

A case is the text of a script. A case passes when its script ends, or is refused with an error of
plait's. All else is a finding: another exception, a failed assertion, a crash, too much time.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import itertools
import json
import os
import random
import re
import resource
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from . import conditions

MEMORY_BYTES = 4 << 30  # of one worker: what asks for more must say so
TIER = os.environ.get("PLAIT_TIER", "1")
TARGETS = ("operators", "sizes", "graphs", "files", "nets", "processes")


class Verdict(NamedTuple):
    """kind: ok, refused, differs or error. signature: equal for findings of one cause."""

    kind: str
    signature: str = ""
    text: str = ""

    @property
    def is_finding(self) -> bool:
        return self.kind not in ("ok", "refused")


def signature_of(kind: str, text: str) -> str:
    """A finding's text without what differs from case to case: its numbers, and all but its first
    lines."""
    head = " ".join(text.split("\n")[:2])[:200]
    return f"{kind}: {re.sub(r'[-+]?[0-9][0-9.e+-]*|nan|inf', 'N', head)}"


def run(script: str) -> Verdict:
    """Runs the text of a case in this process."""
    import plait as mx

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(script, "<case>", "exec"), {"__name__": "__case__"})
            mx.nd.waitall()
        return Verdict("ok")
    except mx.MXNetError as error:
        if str(error).strip():
            return Verdict("refused", text=str(error))
        return Verdict("error", f"error: {type(error).__name__} without a text", repr(error))
    except AssertionError as error:
        return Verdict("differs", signature_of("differs", str(error)), str(error)[:3000])
    except Exception as error:
        lines = traceback.format_exception(error)
        text = f"{type(error).__name__}: {error}"
        return Verdict("error", signature_of("error", text), "".join(lines)[-3000:])
    finally:
        for _ in range(100):  # errors that nothing waited for belong to this case
            with contextlib.suppress(mx.MXNetError):
                mx.nd.waitall()
                break
        mx.cpu().empty_cache()  # large arrays of one case must not leave too little for the next


def compiled(seconds: float = 100) -> bool:
    """Waits for tier 1. What fails to compile is a finding, of whatever kind its error is. Returns
    False when the time was over."""
    import plait as mx

    try:
        return mx.wait_compiled(seconds)
    except Exception as error:
        raise AssertionError(f"tier 1 fails to compile: {error!r}") from error


def case(target: str, seed: int, index: int) -> tuple[str, str]:
    """(label, script) of one case: a function of its three numbers."""
    module = importlib.import_module(f"{__package__}.{target}")
    return module.script(random.Random(f"{target} {seed} {index}"), seed, index)


def limit() -> None:
    """What holds for every process that runs cases: its conditions, limits of memory; graphs are
    verified after every pass, and what fails to compile is an error."""
    faulthandler.enable()
    conditions.apply()
    importlib.import_module("plait.graph.passes").checking = True
    if "ASAN_OPTIONS" not in os.environ:  # its own memory is counted too
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@contextlib.contextmanager
def quiet() -> Iterator[Callable[[dict], None]]:
    """Gives a function that sends a message to the parent; what cases print goes nowhere."""
    pipe = os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)

    def send(message: dict) -> None:
        pipe.write(json.dumps(message) + "\n")
        pipe.flush()

    yield send


def main(target: str, seed: int, first: int, seconds: float, n_cases: int) -> None:
    limit()
    end = time.monotonic() + seconds
    with quiet() as send:
        for index in itertools.count(first):
            if time.monotonic() > end or index >= n_cases:
                send({"done": index})
                return
            label, script = case(target, seed, index)
            send({"begin": index, "label": label, "script": script})
            send({"end": index, "verdict": run(script)})


if __name__ == "__main__":
    if len(sys.argv) == 2:
        limit()
        found = run(Path(sys.argv[1]).read_text())
        print(found.kind, found.signature, found.text, sep="\n")
        sys.exit(found.is_finding)
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
