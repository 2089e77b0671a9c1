"""The code generator: expressions become C, bad ones are refused, and every expression has its
loops."""

import plait.kernels.ops  # noqa: F401
import pytest
from plait.engine import lib
from plait.kernels import statements
from plait.kernels.cpu import generate
from plait.kernels.pointwise import Expression

NAMES = {"x": "v_x", "alpha": "s_alpha"}


@pytest.mark.parametrize(
    "text, dtype, c",
    [
        (
            "x > 0 ? x : alpha * expm1(x)",
            "float32",
            "v_x > 0.0f ? v_x : s_alpha * plk_expm1_f32 ( v_x )",
        ),
        ("1e-3 * x", "float32", "1e-3f * v_x"),
        ("1e-3 * x", "float64", "1e-3 * v_x"),
        ("mod(x, 2)", "int32", "plk_mod_int ( v_x , 2 )"),
        ("floor(x) + 1", "uint8", " ( v_x ) + 1"),
    ],
)
def test_translate(text, dtype, c):
    assert statements.translate(text, NAMES, dtype) == c


@pytest.mark.parametrize(
    "text, dtype, rule",
    [
        ("x + beta", "float32", "beta is neither an input nor a parameter"),
        ("exp(x)", "int32", "exp is no function of integers"),
        ("x @ x", "float32", "cannot read"),
    ],
)
def test_translate_refuses(text, dtype, rule):
    with pytest.raises(ValueError, match=rule):
        statements.translate(text, NAMES, dtype)


def test_unused_names_are_not_declared():
    text = generate.pointwise_loop("f", Expression("1 + k", 1, ("k", "l"), "all"), "int32").text()
    assert "in_v_x" not in text and "s_k" in text and "s_l" not in text


def test_every_expression_was_generated():
    names = [name for made in generate.loops() for name in made.names]
    missing = [name for name in names if lib.plk_pointwise_find(name.encode()) < 0]
    assert missing == []
    assert lib.plk_pointwise_find(b"no such operator") == -1


def test_writing_again_changes_nothing(tmp_path):
    generate.write(tmp_path)
    times = {p.name: p.stat().st_mtime_ns for p in tmp_path.iterdir()}
    (tmp_path / "left_over.c").write_text("")
    generate.write(tmp_path)
    assert {p.name: p.stat().st_mtime_ns for p in tmp_path.iterdir()} == times
