"""Inference with partly unknown shapes against the real MXNet: 236 expressions, 3,518 questions.
The fixture is written by tests/oracle/partial_shapes.py."""

import json
from pathlib import Path

import plait as mx
import pytest
from oracle.partial_shapes import build, is_true

GROUPS = json.loads((Path(__file__).parents[1] / "fixtures/partial_shapes.json").read_text())


def knows(ours, theirs):
    """Is all that MXNet knows of shapes known?"""
    return all(
        not b or len(a) == len(b) and all(m in (0, n) for n, m in zip(a, b))
        for mine, its in zip(ours, theirs)
        for a, b in zip(mine, its)
    )


@pytest.mark.parametrize("group", GROUPS, ids=lambda g: f"{g[0].strip()}-{bool(g[2])}")
def test_partial_shapes_include_mxnets_and_are_correct(group):
    expression, shapes, like, truth, answers = group
    symbol = build(mx, expression, shapes, like)
    for given, theirs in answers:
        ours = symbol.infer_shape_partial(**given)
        assert is_true(ours, truth), (given, ours, truth)
        assert theirs is None or knows(ours, theirs), (given, ours, theirs)
        whole = all(s and 0 not in s for part in ours for s in part)
        assert symbol.infer_shape(**given) == (ours if whole else (None, None, None))
