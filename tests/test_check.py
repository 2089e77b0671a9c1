"""What make check counts as a line that is too long, and as a function without types."""

import importlib.util
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location("check", Path(__file__).with_name("check.py"))
check = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check)

WORDS = "a word " * 17  # 119 columns
LINK = f"[{'name ' * 20}](http://localhost/{'x' * 40})"


@pytest.mark.parametrize(
    "name, text, numbers",
    [
        ("prose.md", f"{WORDS}\n\n{WORDS}ab\n{'x' * 121}", [3]),
        ("list.md", f"- {WORDS}", [1]),
        ("code.md", f"```python\n{WORDS}ab\n```\n{WORDS}ab\n", [2, 4]),
        ("table.md", f"| {WORDS} | {WORDS} |\n", [1]),
        ("link.md", f"{LINK}\n{LINK}.\nsee {LINK}\n", [3]),
        ("chinese.md", f"{'宽' * 59}，\n{'宽' * 59}，宽\n{'宽' * 61}\n", [2]),
        ("kernel.c", f"{'x' * 120}\n{'x' * 121}\n", [2]),
        ("kernel.cuh", f"/* {WORDS}*/\n", [1]),
    ],
)
def test_long_lines(tmp_path, name, text, numbers):
    path = tmp_path / name
    path.write_text(text)
    found = check.long_lines(path)
    assert [line.split()[0] for line in found] == [f"{path}:{n}" for n in numbers]


TYPED = """
class A:
    def __init__(self, x: int): ...
    def f(self, *args: int) -> int: ...
    def _g(self, x): ...
    @staticmethod
    def h(x: int) -> None: ...
def f(x: int = 1, *, y: str) -> None: ...
def _f(x): ...
"""


def test_functions_without_types(tmp_path):
    path = tmp_path / "typed.py"
    path.write_text(TYPED)
    assert check.unannotated(path) == []
    for typed, untyped, missing in (
        ("x: int):", "x):", "x"),
        ("*args: int", "*args", "args"),
        ("h(x: int)", "h(x)", "x"),
        ("y: str) -> None", "y)", "y, return"),
    ):
        path.write_text(TYPED.replace(typed, untyped))
        assert [line.split(" of ")[1] for line in check.unannotated(path)] == [missing], typed
