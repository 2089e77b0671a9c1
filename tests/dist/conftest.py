"""What make dist-test says at its end: which MPI ran what, and how often each fault was seen."""

import collections
import os
import re


def pytest_terminal_summary(terminalreporter):
    if "DIST_FAULTS" not in os.environ:
        return
    from mpi4py import MPI

    counts = collections.defaultdict(collections.Counter)
    for result in ("passed", "failed", "skipped", "error"):
        for report in terminalreporter.stats.get(result, ()):
            file, _, test = report.nodeid.rpartition("/")[2].partition("::")
            if fault := re.fullmatch(r"test_a_job_goes_on.*\[\d+-(?:(\w+)-)?(\d+)\]", test):
                file = f"{fault[1] or 'cut link'}, {fault[2]} ranks"
            counts[file][result] += 1
    terminalreporter.section(MPI.Get_library_version().splitlines()[0].strip())
    for part, results in sorted(counts.items()):
        said = ", ".join(f"{n} {result}" for result, n in results.items())
        terminalreporter.write_line(f"{part}: {said}")
