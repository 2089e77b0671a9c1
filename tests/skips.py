"""pytest --may-skip REGEX: a test that skips for another reason fails the run. In CI (the variable
CI is set) these are what a machine may lack; so a test that always skips is noticed."""

import os
import re

MAY_LACK = "GPU|no tests in this part|does not run it|network namespaces|smaps_rollup"


def pytest_addoption(parser):
    default = MAY_LACK if os.environ.get("CI") else None
    parser.addoption(
        "--may-skip", metavar="REGEX", default=default, help="the only reasons for which tests skip"
    )


def pytest_sessionfinish(session):
    allowed = session.config.getoption("--may-skip")
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if allowed is None or reporter is None:  # a worker of xdist has none
        return
    skipped = reporter.stats.get("skipped", [])
    reasons = {f"{r.nodeid}: {r.longrepr[2]}" for r in skipped}
    wrong = sorted(reason for reason in reasons if not re.search(allowed, reason))
    for reason in wrong:
        reporter.write_line(f"\nskipped, which --may-skip does not allow: {reason}")
    if wrong:
        session.exitstatus = 1
