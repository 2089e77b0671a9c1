"""The check of the floors finds each kind of import of a room that stands later, and circles; the
package has neither."""

import floors
import pytest

ROOT = floors.Path(floors.__file__).resolve().parent.parent
WAYS = {
    "top": "from ..ndarray import tape\n",
    "inside a function": "def f():\n    from ..ndarray.tape import record\n",
    "importlib": "import importlib\nx = importlib.import_module('..ndarray.tape', __package__)\n",
    "text": "x = 'ndarray.tape'\n",
}


@pytest.fixture
def house(tmp_path):
    """A small package with two rooms."""
    for room in ("graph", "ndarray"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "__init__.py").touch()
    (tmp_path / "__init__.py").touch()
    (tmp_path / "__main__.py").touch()
    (tmp_path / "ndarray" / "tape.py").write_text("from ..graph import program\n")
    (tmp_path / "graph" / "program.py").touch()
    return tmp_path


@pytest.mark.parametrize("way", sorted(WAYS))
def test_an_import_of_a_later_room_is_found(house, way):
    assert floors.problems(house) == []
    (house / "graph" / "program.py").write_text(WAYS[way])
    wrong = floors.upward(floors.every_import(house), house)
    assert len(wrong) == 1 and wrong[0].startswith("graph/program.py:"), wrong
    assert "graph/ must not import ndarray.tape: ndarray/ stands on it" in wrong[0]


def test_an_include_of_a_later_room_is_found(house):
    (house / "graph" / "walk.h").touch()
    (house / "graph" / "walk.c").write_text('#include "walk.h"\n')
    (house / "ndarray" / "array.c").write_text('#include "graph/walk.h"\n')
    assert floors.upward([*floors.every_include(house)], house) == []
    (house / "graph" / "walk.h").write_text('#include "../ndarray/array.c"\n')
    wrong = floors.upward([*floors.every_include(house)], house)
    assert len(wrong) == 1 and "graph/ must not import ndarray.array.c" in wrong[0]


def test_a_circle_is_found(house):
    (house / "ndarray" / "a.py").write_text("def f():\n    from . import b\n")
    (house / "ndarray" / "b.py").write_text("from .c import x\n")
    (house / "ndarray" / "c.py").write_text("from .a import f\n")
    assert floors.circles(floors.every_import(house)) == ["ndarray.a <-> ndarray.b <-> ndarray.c"]


def test_a_file_ending_is_no_module(house):
    (house / "ndarray" / "tape.py").write_text("x = '.part'\n")
    (house / "ndarray" / "__init__.py").write_text("from . import tape\n")
    assert floors.circles(floors.every_import(house)) == []


def test_every_room_is_a_folder_and_imports_only_what_stands_before_it():
    found = {p.parent.name for p in ROOT.glob("*/__init__.py")}
    assert found == set(floors.ROOMS)
    assert floors.upward([*floors.every_import(ROOT), *floors.every_include(ROOT)], ROOT) == []


def test_no_files_import_each_other():
    assert floors.circles([*floors.every_import(ROOT), *floors.every_include(ROOT)]) == []
