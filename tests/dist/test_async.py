"""dist_async: workers and servers as ranks."""

import launched
import pytest

# each in one job; a bound on staleness counts pushes from its start, and compression stays
CASES = {1: ["bounded", "sequence", "digits", "compressed"], 2: ["split", "sequence"]}


@pytest.mark.parametrize("servers", CASES)
def test_two_workers_and_servers(servers):
    cases = CASES[servers]
    out = launched.succeed(2 + servers, ["asynchronous.py", *cases], servers=servers)
    for case in cases:  # servers end where their script joins the job
        assert out.count(f"well {case}") == 2, out


@pytest.mark.parametrize(("servers", "later"), [(2, 2), (2, 1), (1, 3)])
def test_states_of_servers_come_back_on_any_number_of_them(servers, later, tmp_path):
    for n, case in ((servers, "states"), (later, "resumed")):
        command = ["asynchronous.py", f"{case}={tmp_path}"]
        assert launched.succeed(2 + n, command, servers=n).count("well") == 2


@pytest.mark.parametrize("case", ["trainers", "mistakes"])
def test_states_by_trainer_and_module_and_what_mistakes_are_told(case, tmp_path):
    command = ["asynchronous.py", f"{case}={tmp_path}"]
    assert launched.succeed(4, command, servers=2).count("well") == 2


def test_without_servers_it_says_how_to_start_them():
    status, out = launched.run(1, "import plait as mx; mx.kv.create('dist_async')")
    assert status == 1
    assert "kvstore='dist_async': this job has no servers" in out
    assert "fix: python -m plait launch -n WORKERS -s SERVERS script.py" in out


def test_servers_end_with_workers_that_do_not_use_them():
    code = (
        "import plait as mx; from plait import dist, nd\n"
        "kv = mx.kv.create('dist_sync'); kv.init(0, nd.zeros((2,)))\n"
        "x = nd.ones((2,)); kv.pushpull(0, x)\n"
        "print('sum', x.asnumpy().tolist())"
    )
    out = launched.succeed(3, code, servers=1)
    assert out.count("sum [2.0, 2.0]") == 2


def test_an_optimizer_that_a_server_lacks_is_named():
    code = (
        "import plait as mx; from plait import dist\n"
        "dist.init()\n"
        "@mx.optimizer.register\nclass Mine(mx.optimizer.SGD): pass\n"
        "mx.kv.create('dist_async').set_optimizer(Mine())"
    )
    status, out = launched.run(2, code, servers=1)
    assert status and "Mine" in out
