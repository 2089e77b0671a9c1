"""pytest --may-skip REGEX: a test that skips for another reason fails the run. CI names what its
machine may lack (.ci/run); so a test that always skips is noticed."""

import re


def pytest_addoption(parser):
    parser.addoption("--may-skip", metavar="REGEX", help="the only reasons for which tests skip")


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
