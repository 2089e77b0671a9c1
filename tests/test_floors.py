"""The checks of the floors find each kind of import of a room that stands later, circles, and code
that depends on the kind of a device; the package has none of them."""

import floors
import pytest

ROOT = floors.Path(floors.__file__).resolve().parent.parent
WAYS = {
    "top": "from ..ndarray import tape\n",
    "inside a function": "def f():\n    from ..ndarray.tape import record\n",
    "importlib": "import importlib\nx = importlib.import_module('..ndarray.tape', __package__)\n",
    "text": "x = 'ndarray.tape'\n",
}
KINDS = {
    "name": 'def f(x):\n    return x.name == "gpu"\n',
    "dict": 'LIMITS = {"cpu": 1}\n',
    "type": "def f(x):\n    return x.device_typeid & 1\n",
    "variable": "def f(on_gpu):\n    return 1 if on_gpu else 2\n",
    "lane": "from ..engine import lib\nx = lib.PL_LANE_GPU_COMM\n",
    "import": "def f():\n    from ..kernels.cuda import launch\n",
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


@pytest.mark.parametrize("way", sorted(KINDS))
def test_a_question_for_the_kind_of_a_device_is_found(house, way, monkeypatch):
    (house / "kernels" / "cuda").mkdir(parents=True)
    (house / "kernels" / "cuda" / "launch.py").write_text(KINDS["name"])
    monkeypatch.setattr(floors, "NAMED", {})
    assert floors.device_tests(floors.every_import(house), house) == []
    text = KINDS[way]
    (house / "graph" / "program.py").write_text(text)
    (wrong,) = floors.device_tests(floors.every_import(house), house)
    line = text.splitlines()[-1].strip()
    place = f"graph/program.py:{text.count(chr(10))}"
    assert wrong == f"{place}: depends on the kind of a device: {line}"
    monkeypatch.setattr(floors, "NAMED", {("graph/program.py", line[:9]): "why"})
    assert floors.device_tests(floors.every_import(house), house) == []
    monkeypatch.setattr(floors, "NAMED", {("graph/program.py", line): "why", ("a.py", "b"): "why"})
    assert floors.device_tests(floors.every_import(house), house) == ["a.py: no line has 'b'"]


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


def test_only_backends_depend_on_the_kind_of_a_device():
    assert floors.device_tests(floors.every_import(ROOT), ROOT) == []
