"""The differential test itself (tests/oracle), without MXNet: its calls, comparison and table."""

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from plait.engine.error import DynamicShape
from plait.kernels.plan import infer
from plait.kernels.record import REGISTRY, Type
from plait.kernels.traits import Front

FOLDER = Path(__file__).resolve().parent / "oracle"


@pytest.fixture(scope="module")
def oracle():
    spec = importlib.util.spec_from_file_location(
        "oracle", FOLDER / "__init__.py", submodule_search_locations=[str(FOLDER)]
    )
    package = sys.modules["oracle"] = importlib.util.module_from_spec(spec)
    for name in ("cases", "compare", "conditions", "differences"):
        importlib.import_module(f"oracle.{name}")
    yield package
    for name in [m for m in sys.modules if m.split(".")[0] == "oracle"]:
        del sys.modules[name]


def test_every_record_gives_calls_and_a_seed_gives_the_same(oracle):
    ours = {op.name for op in REGISTRY.values() if not op.has(Front)}
    theirs = {"softmax", "Convolution", "mp_sgd_update", "_linalg_potrf", "_random_normal"}
    cases, own = oracle.cases.all_cases(theirs, [], seed=3, count=4)
    assert {c["ours"] for c in cases} == theirs and set(own) == ours - theirs
    again, _ = oracle.cases.all_cases(theirs, [], seed=3, count=4)
    for a, b in zip(cases, again, strict=True):
        assert a["attrs"] == b["attrs"]
        for x, y in zip(a["arrays"], b["arrays"], strict=True):
            np.testing.assert_array_equal(x, y)
    weights = next(c for c in cases if c["ours"] == "mp_sgd_update")
    assert [a.dtype.name for a in weights["arrays"]] == ["float16", "float16", "float32"]
    np.testing.assert_array_equal(weights["arrays"][0], weights["arrays"][2])
    for op in {op for op in REGISTRY.values() if not op.has(Front)}:
        assert bool(oracle.cases.cases_of(op, op.name, 0, 0)) == bool(op.samples), op.name


def found(oracle, ours, theirs, random=False):
    case = {"operator": "f", "ours": "f", "attrs": {}, "random": random}
    as_arrays = lambda d: {k: np.asarray(v) for k, v in d.items()}
    given = {"a0": np.ones(2, np.float32)}
    call = oracle.compare.Call(case, given, as_arrays(ours), as_arrays(theirs))
    return [d.what for d in oracle.compare.differences(call)]


def test_what_counts_as_a_difference(oracle):
    y = np.array([1, np.nan, np.inf, 1e-9], np.float32)
    close = y * np.float32(1 + 1e-5)
    assert found(oracle, {"y0": y, "g0": y}, {"y0": close, "g0": y}) == []
    assert found(oracle, {"y0": y}, {"y0": np.nan_to_num(y)}) == ["values"]
    assert found(oracle, {"y0": y}, {"y0": y * np.float32(1.01)}) == ["values"]
    assert found(oracle, {"y0": y}, {"y0": y.astype("float64")}) == ["dtype"]
    assert found(oracle, {"y0": y}, {"y0": y[:2]}) == ["shape"]
    assert found(oracle, {"y0": y, "x0": y}, {"y0": y, "x0": -y}) == ["input after"]
    assert found(oracle, {"y0": y, "g0": y}, {"y0": y, "g0": -y}) == ["gradient"]
    assert found(oracle, {"y0": y}, {"y0": y, "y1": y}) == ["outputs"]
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 4000))
    assert found(oracle, {"y0": a}, {"y0": b}, random=True) == []
    assert found(oracle, {"y0": a}, {"y0": b + 0.5}, random=True) == ["moments"]
    assert found(oracle, {"y0": a}, {"y0": b * 1.5}, random=True) == ["moments"]


def test_every_explanation_has_a_reason_and_an_operator(oracle):
    names = {op.name for op in REGISTRY.values()}
    for known in oracle.differences.KNOWN:
        assert known.reason
        re.compile(known.text)
        assert any(re.fullmatch(known.operator, n) for n in names), known.operator


def wrong_answers(oracle, case):
    """(call, difference) for each way in which plait may answer a call wrongly."""
    given = {f"a{i}": a for i, a in enumerate(case["arrays"])}
    op = REGISTRY[case["ours"]]
    attrs = op.parse(case["attrs"]) | ({"train": True} if op.train_aware else {})
    try:
        types = infer(op, attrs, [Type(a.shape, a.dtype.name) for a in case["arrays"]])
    except DynamicShape:
        types = [Type((2,), "float32")]
    expected = {
        f"y{i}": np.ones(t.shape, t.dtype.replace("bfloat16", "uint16"))
        for i, t in enumerate(types)
    }
    expected |= {f"h{i}": expected[f"y{i}"] for i in range(len(types))}
    expected |= {f"x{i}": a + a.dtype.type(2) for i, a in enumerate(case["arrays"])}
    expected |= {f"g{i}": 3 + 0 * case["arrays"][i] for i in case["smooth"]}
    with np.errstate(all="ignore"):
        made = {k: a + a.dtype.type(5) for k, a in expected.items()}
    call = oracle.compare.Call(case, given, made, expected)
    for key, a in expected.items():
        if key[0] != "h" and not (case["random"] and key[0] != "x"):
            text = f"{key}{[0] * a.ndim} plait 5, MXNet 0 ({a.size} of {a.size} elements)"
            what = oracle.compare.KINDS[key[0]]
            yield call, oracle.compare.Difference(what, text, key, np.ones(a.shape, bool))
    yield call, oracle.compare.Difference("shape", "y0 plait (2,), MXNet (3,)", "y0")
    yield call, oracle.compare.Difference("dtype", "y0 plait float32, MXNet float64", "y0")
    yield call, oracle.compare.Difference("refusal", "plait refuses: f: too few")
    yield call, oracle.compare.Difference("failure", "plait fails badly: IndexError")
    yield (
        call,
        oracle.compare.Difference("symbol", "shapes: plait refused, MXNet [[[2]], [[2]], []]"),
    )


def test_no_wrong_answer_is_explained_for_every_sample(oracle):
    """Of each operator and kind of difference, one of its samples at least has no excuse."""
    hidden = []
    whole = {op for op in REGISTRY.values() if op.pointwise and op.pointwise.dtypes == "whole"}
    fronts = {op for op in REGISTRY.values() if op.has(Front)}
    for op in sorted({*REGISTRY.values()} - whole - fronts, key=lambda op: op.name):
        excuses = {}
        for case in oracle.cases.cases_of(op, op.name, 0, 0)[: len(op.samples)]:
            for call, d in wrong_answers(oracle, case):
                if excuses.get((d.what, d.key), "not seen") is not None:
                    excuses[d.what, d.key] = oracle.differences.explanation(call, d)
            if not any(excuses.values()):
                break
        hidden += [(op.name, *kind, k.reason) for kind, k in excuses.items() if k]
    assert not hidden, "\n".join(map(str, hidden))
