"""Compares every operator with the real MXNet: `python -m tests.oracle [operator ...] [--seed N]
[--count N]`, or `make oracle`. Prints every difference that differences.py does not explain, with
the call that shows it; exit status 1 if there is one."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

from .cases import all_cases
from .compare import Call, differences
from .differences import explanation

HERE = Path(__file__).resolve().parent
PATIENCE = 40  # seconds without progress: the call hangs


def run_all(python: str, framework: str, folder: Path):
    """Starts the runner as often as it crashes. Yields while it runs (for two at a time)."""
    journal, log = folder / framework / "done.jsonl", folder / f"{framework}.log"
    while True:
        with log.open("a") as out:
            child = subprocess.Popen(
                [python, "-W", "ignore", str(HERE / "run.py"), framework, str(folder)],
                stdout=out,
                stderr=out,
            )
        size, since = -1, time.monotonic()
        while child.poll() is None:
            now = journal.stat().st_size if journal.exists() else 0
            if now != size:
                size, since = now, time.monotonic()
            elif time.monotonic() - since > PATIENCE:
                child.kill()
            yield
        lines = journal.read_text().splitlines() if journal.exists() else []
        last = json.loads(lines[-1]) if lines else {}
        if not last.get("begin"):
            if child.returncode and not lines:
                raise SystemExit(f"{framework} does not start:\n{log.read_text()[-2000:]}")
            return
        died = {"id": last["id"], "ok": False, "crashed": True, "error": "crashed or hung"}
        with journal.open("a") as out:
            print(json.dumps(died), file=out)


def results_of(folder: Path, framework: str) -> dict:
    lines = (folder / framework / "done.jsonl").read_text().splitlines()
    return {r["id"]: r for r in map(json.loads, lines) if "begin" not in r}


def arrays_of(file: Path) -> dict:
    with np.load(file) as held:
        return {k: held[k] for k in held.files}


def prepare(python: str, folder: Path, options) -> tuple[list, list]:
    subprocess.run([python, "-W", "ignore", str(HERE / "run.py"), "names", str(folder)], check=True)
    theirs = set(json.loads((folder / "names.json").read_text()))
    cases, own = all_cases(theirs, options.operators, options.seed, options.count)
    for case in cases:
        arrays = case.pop("arrays")
        np.savez(folder / f"{case['id']}.npz", **{f"a{i}": a for i, a in enumerate(arrays)})
    (folder / "cases.json").write_text(json.dumps(cases))
    return cases, own


def compare_all(cases, folder: Path, shown: int) -> int:
    """Prints what differs; returns how many differences are unexplained."""
    ours, theirs = (results_of(folder, f) for f in ("plait", "mxnet"))
    outcome: Counter = Counter()
    by_operator: Counter = Counter()
    for case in cases:
        a, b = ours[case["id"]], theirs[case["id"]]
        if not b["ok"]:
            kind = "crashed" if b.get("crashed") else "refuses" if b["clean"] else "fails badly"
            outcome[f"MXNet {kind}"] += 1
            if b.get("crashed"):
                print(f"MXNet crashed: {case['id']} {case['operator']} {case['attrs']}")
            if not a["ok"] and not a.get("clean"):
                outcome["plait fails badly"] += 1
                print(f"DIFFERS {case['id']}: plait fails badly: {a['error']}")
                by_operator[case["ours"]] += 1
            continue
        call = Call(case, arrays_of(folder / f"{case['id']}.npz"))
        if a["ok"]:
            pair = [arrays_of(folder / f / f"{case['id']}.npz") for f in ("plait", "mxnet")]
            found = differences(call, *pair)
        else:
            found = [("refusal", f"plait refuses: {a['error']}")]
        unexplained = [d for d in found if not explanation(call, *d)]
        outcome["equal" if not found else "differ" if unexplained else "explained"] += 1
        for what, text in unexplained:
            by_operator[case["ours"]] += 1
            if by_operator[case["ours"]] <= shown:
                print(f"DIFFERS {case['id']}: {what}: {text}\n    {call}")
    print(", ".join(f"{n} {what}" for what, n in outcome.most_common()))
    if by_operator:
        print("operators that differ:", dict(by_operator.most_common()))
    return sum(by_operator.values())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.add_argument("operators", nargs="*", help="only these; default: all")
    parser.add_argument("--python", default=".oracle/bin/python", help="where MXNet 1.9.1 is")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=12, help="variations of each operator")
    parser.add_argument("--shown", type=int, default=3, help="differences of each operator")
    parser.add_argument("--keep", type=Path, help="folder for calls and results")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as room:
        folder = options.keep or Path(room)
        folder.mkdir(parents=True, exist_ok=True)
        cases, own = prepare(options.python, folder, options)
        running = [
            run_all(options.python, "mxnet", folder),
            run_all(sys.executable, "plait", folder),
        ]
        while running:
            running = [r for r in running if next(r, "over") != "over"]
            time.sleep(0.2)
        wrong = compare_all(cases, folder, options.shown)
    n = len({case["ours"] for case in cases})
    print(f"{len(cases)} calls of {n} operators compared; {len(own)} operators are plait's own")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
