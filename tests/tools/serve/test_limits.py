"""Limits, failures, and what the metrics count."""

import json

from plait.engine.error import MXNetError
from prometheus_client.parser import text_string_to_metric_families
from serving import Running, Twice, asking, busy, infer, request, waiting


def test_a_full_queue_answers_503_and_works_again(folder):
    with Running(folder, queue=4) as running:
        first = busy(running)
        others = waiting(running, 3)
        refused = running(*[infer(running.app, asking([1, 1, 1])) for _ in range(5)])
        assert {a.status for a in refused} == {503}
        assert refused[0].headers[b"retry-after"] == b"1" and "4 requests wait" in refused[0].error
        running.made[0].gate.set()
        assert {a.status for a in running(first, *others)} == {200}
        assert running(infer(running.app, asking([1, 1, 1]))).status == 200


def test_bodies_that_wait_have_a_limit_too(folder):
    body = asking([1, 1, 1])
    with Running(folder, body_bytes=len(json.dumps(body)) + 10) as running:
        first = busy(running)
        (second,) = waiting(running, 1)
        assert running(infer(running.app, body)).status == 503
        running.made[0].gate.set()
        assert {a.status for a in running(first, second)} == {200}


def test_what_waits_too_long_is_refused(folder):
    with Running(folder) as running:
        first = busy(running)
        others = waiting(running, 1)
        (queue,) = running.app._batcher._queues.values()
        queue.jobs[0].since -= 60
        running.made[0].gate.set()
        one, other = running(first, *others)
        assert (one.status, other.status) == (200, 503) and b"retry-after" in other.headers


def test_a_body_that_does_not_arrive(folder):
    with Running(folder, seconds=0.05) as running:
        answer = running(infer(running.app, b"", parts=[b'{"inputs"']))
        assert answer.status == 408 and answer.headers[b"connection"] == b"close"


def test_a_body_without_length_that_grows(folder):
    with Running(folder, body_bytes=100, seconds=0.05) as running:
        send = request(running.app, "POST", "/v2/models/m/infer", parts=[b" " * 60, b" " * 60])
        answer = running(send)
        assert answer.status == 413 and "100" in answer.error


class Broken:
    def __init__(self, folder):
        raise MXNetError(f"{folder}/net.onnx is damaged")


def test_a_model_that_fails_to_load_does_not_stop_the_others(folder):
    (folder / "bad").mkdir()
    (folder / "bad/net.onnx").touch()
    read = lambda place: (Broken if place.name == "bad" else Twice)(place)
    with Running(folder, read) as running:
        assert running.told[0].startswith("bad, version 1: failed: ")
        assert "bad/net.onnx is damaged" in running.told[0]
        assert running(request(running.app, "GET", "/v2/health/ready")).status == 200
        answer = running(request(running.app, "GET", "/v2/models/bad/ready"))
        assert answer.status == 503 and "is damaged" in answer.error
        assert running(infer(running.app, asking([1, 2, 3]), "bad")).status == 503
        assert running(infer(running.app, asking([1, 2, 3]))).status == 200
    with Running(folder, Broken) as running:
        assert running(request(running.app, "GET", "/v2/health/ready")).status == 503
        assert running(request(running.app, "GET", "/v2/health/live")).status == 200


class Crashes(Twice):
    """An error that is not the request's, after the first calls."""

    def run(self, arrays):
        if arrays[0].max() > 100:
            raise AttributeError("a secret of the server")
        return super().run(arrays)


def test_an_error_of_the_server_says_nothing_of_it(folder, capsys):
    with Running(folder, Crashes) as running:
        answer = running(infer(running.app, asking([1, 2, 300])))
        assert answer.status == 500 and "secret" not in answer.error
        assert running(infer(running.app, asking([1, 2, 3]))).status == 200
    assert "a secret of the server" in capsys.readouterr().err


def metrics(running):
    answer = running(request(running.app, "GET", "/metrics"))
    assert answer.status == 200
    found = {}
    for family in text_string_to_metric_families(answer.body.decode()):
        for sample in family.samples:
            labels = sample.labels
            found[sample.name, labels.get("code") or labels.get("le"), labels.get("what")] = (
                sample.value
            )
    return found


def test_metrics_count_requests_errors_and_batches(running):
    first = busy(running)
    others = waiting(running, 4)
    assert metrics(running)["plait_queue_length", None, None] == 4
    running.made[0].gate.set()
    running(first, *others)
    running(infer(running.app, b"{"))
    running(request(running.app, "GET", f"/v2/models/{'x' * 50}"))
    found = metrics(running)
    assert found["plait_requests_total", "200", "infer"] == 5
    assert found["plait_requests_total", "400", "infer"] == 1
    assert found["plait_requests_total", "404", "model"] == 1
    assert found["plait_request_seconds_count", None, None] == 6
    assert found["plait_queue_seconds_count", None, None] == 5
    assert found["plait_batch_rows_count", None, None] == 2
    assert found["plait_batch_rows_sum", None, None] == 5
    assert found["plait_batch_rows_bucket", "1.0", None] == 1
    assert found["plait_batch_rows_bucket", "4.0", None] == 2
    assert found["plait_queue_length", None, None] == 0
    assert found["plait_model_ready", None, None] == 1
