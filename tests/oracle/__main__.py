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
from .compare import Call, Difference, differences
from .differences import KNOWN, explanation
from .graph import graph_differences

HERE = Path(__file__).resolve().parent
PATIENCE = 30  # seconds without progress: the call hangs


def run_all(python: str, framework: str, folder: Path):
    """Starts the runner as often as it crashes. Yields while it runs (for two at a time)."""
    journal, log = folder / framework / "done.jsonl", folder / f"{framework}.log"
    stuck = 0
    while True:
        with log.open("a") as out:
            child = subprocess.Popen(
                [python, "-W", "ignore", str(HERE / "run.py"), framework, str(folder)],
                stdout=out,
                stderr=out,
            )
        at_start = journal.stat().st_size if journal.exists() else 0
        size, since = at_start, time.monotonic() + PATIENCE  # it takes time to start
        while child.poll() is None:
            now = journal.stat().st_size if journal.exists() else 0
            if now != size:
                size, since = now, time.monotonic()
            elif time.monotonic() - since > PATIENCE:
                child.kill()
            yield
        lines = journal.read_text().splitlines() if journal.exists() else []
        last = json.loads(lines[-1]) if lines else {}
        grown = bool(lines) and journal.stat().st_size > at_start
        stuck = 0 if grown else stuck + 1
        if not last.get("begin"):
            if not child.returncode:
                return
            if stuck > 3:
                raise SystemExit(f"{framework} does not start:\n{log.read_text()[-2000:]}")
            continue
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


def call_of(case, ours: dict, theirs: dict, folder: Path) -> Call:
    given = arrays_of(folder / f"{case['id']}.npz")
    made = [
        arrays_of(folder / framework / f"{case['id']}.npz") if result["ok"] else {}
        for framework, result in (("plait", ours), ("mxnet", theirs))
    ]
    return Call(case, given, *made)


def found_in(call: Call, ours: dict, theirs: dict) -> tuple[str, list[Difference]]:
    """What became of one call: an outcome, and the differences."""
    graphs = ours.get("graph", {}), theirs.get("graph", {})
    found = [Difference("symbol", text) for text in graph_differences(*graphs, runs=theirs["ok"])]
    if theirs["ok"] and ours["ok"]:
        return "compared", found + differences(call)
    if theirs["ok"]:
        return "compared", [*found, Difference("refusal", f"plait refuses: {ours['error']}")]
    if not ours["ok"] and not ours.get("clean"):
        found.append(Difference("failure", f"plait fails badly: {ours['error']}"))
    kind = "crashed" if theirs.get("crashed") else "refuses" if theirs["clean"] else "fails badly"
    return f"MXNet {kind}" + (", ours answers" if ours["ok"] else ""), found


def compare_all(cases, folder: Path, options) -> int:
    """Prints what differs; returns how many differences are unexplained."""
    ours, theirs = (results_of(folder, f) for f in ("plait", "mxnet"))
    outcome: Counter = Counter()
    by_operator: Counter = Counter()
    used: Counter = Counter()
    for case in cases:
        results = ours[case["id"]], theirs[case["id"]]
        call = call_of(case, *results, folder)
        kind, found = found_in(call, *results)
        if kind == "MXNet crashed":
            print(f"MXNet crashed: {case['id']} {case['operator']} {case['attrs']}")
        known = [explanation(call, d) for d in found]
        used.update(k for k in known if k)
        state = "differ" if None in known else "explained" if found else "equal"
        outcome[f"{kind}: {state}"] += 1
        for d, k in zip(found, known):
            if k is None:
                by_operator[case["ours"]] += 1
                if by_operator[case["ours"]] <= options.shown:
                    print(f"DIFFERS {case['id']}: {d.what}: {d.text}\n    {call}")
    print("\n".join(f"{n:6} {what}" for what, n in outcome.most_common()))
    if by_operator:
        print("operators that differ:", dict(by_operator.most_common()))
    if not options.operators:
        for k in KNOWN:
            print(f"{used[k] or 'STALE':>6} {k.operator} | {k.what} | {k.reason}")
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
        wrong = compare_all(cases, folder, options)
    n = len({case["ours"] for case in cases})
    print(f"{len(cases)} calls of {n} operators compared; {len(own)} operators are plait's own")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
