"""The package as it is installed: what it imports, what it ships, which version it has."""

import importlib
import importlib.metadata
import inspect
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path, PurePath

import numpy as np
import plait
import pytest
from plait.kernels.record import REGISTRY

ROOT = Path(__file__).resolve().parent.parent
HEAVY = {
    "sklearn",
    "matplotlib",
    "tqdm",
    "torch",
    "cupy",
    "PIL",
    "graphviz",
    "onnx",
    "mpi4py",
    "asyncio",
    "multiprocessing",
    "subprocess",
    "logging",
    "pathlib",
    "difflib",
    "simplejpeg",
}


def modules_after(statement: str) -> list[str]:
    code = (
        f"import json, sys, numpy\nbefore = set(sys.modules)\n{statement}\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


def test_import_is_light():
    assert len(modules_after("import plait")) < 10


def test_nd_needs_numpy_alone():
    loaded = modules_after("import plait; plait.nd.zeros((1,))")
    assert not HEAVY & {m.split(".")[0] for m in loaded}
    assert len([m for m in loaded if not m.startswith("plait")]) < 40


def test_calls_on_cpus_load_nothing_of_gpus():
    """The tables of kernels name CUDA's launches; they are imported when a GPU needs them."""
    loaded = modules_after("import plait; plait.nd.softmax(plait.nd.ones((2, 2))).asnumpy()")
    found = {m for m in loaded if m.startswith("plait.kernels.cuda")}
    assert "plait.kernels.tables.softmax" in loaded and found == {"plait.kernels.cuda"}


def test_records_are_read_before_there_is_a_core():
    """The build makes C from the records: nothing that they import may need the core."""
    code = f"""
import importlib, sys, types
for name, path in (("plait", {str(ROOT)!r}), ("plait.engine", {str(ROOT / "engine")!r})):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
sys.modules["plait.engine._core"] = None  # not built yet
importlib.import_module("plait.kernels.ops")
for name in ("cpu.generate", "stubs"):
    importlib.import_module(f"plait.kernels.{{name}}")
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_modules_are_found_under_both_names():
    """`import plait.io` is what mx.io is, wherever it lives, and a module of its own for none."""
    loaded = modules_after(
        "import plait.io, plait.contrib.text.vocab, plait.autograd\n"
        "from plait.contrib import amp\n"
        "assert plait.io is sys.modules['plait.data.io'] and amp is plait.contrib.amp\n"
        "assert plait.io.__spec__.name == plait.io.__name__ == 'plait.data.io'"
    )
    assert {"plait.io", "plait.data.text.vocab"} <= set(loaded)
    for name in plait.MODULES:
        assert importlib.import_module(f"plait.{name}") is getattr(plait, name)
    for name in ("plait.foo", "plait.io.foo"):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(name)


def test_no_second_copy():
    loaded = modules_after("import plait; plait.nd, plait.sym, plait.gluon, plait.autograd")
    assert not {"symbol", "engine", "kernels", "ndarray", "gluon"} & set(loaded)


def test_numpy_aliases_stay_removed_unasked():
    assert not hasattr(np, "float_")
    assert "mxnet" not in sys.modules or "mxnet" in getattr(
        sys.modules["mxnet"], "__file__", "mxnet"
    )


def test_version_is_the_distribution_version():
    assert plait.__version__ == importlib.metadata.version("plait")


@pytest.mark.parametrize("name", sorted(plait.MODULES))
def test_every_module_of_the_top_level_loads(name):
    assert getattr(plait, name).__name__.startswith("plait.")


@pytest.mark.parametrize("name", sorted(plait.NAMES))
def test_every_name_of_the_top_level_loads(name):
    assert getattr(plait, name) is not None


def test_dir_lists_what_there_is():
    assert {"nd", "sym", "gluon", "cpu", "Context"} <= set(dir(plait))
    with pytest.raises(AttributeError, match="plait.*nosuch"):
        plait.nosuch  # noqa: B018


def packages() -> list[str]:
    """What setup.py hands to setuptools, found by running it with a setup() that only prints."""
    code = (
        "import json, setuptools\nsetuptools.setup = lambda **k: print(json.dumps(k['packages']))\n"
        "__file__ = 'setup.py'\nexec(open('setup.py').read())"
    )
    pytest.importorskip("setuptools")
    return json.loads(
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
    )


def test_every_folder_of_the_package_is_shipped():
    shipped = packages()
    assert {
        "plait",
        "plait.engine",
        "plait.kernels.ops",
        "plait.graph.passes",
        "plait.gluon.model_zoo.vision",
    } <= set(shipped)
    assert not [p for p in shipped if p.split(".")[1:2] in (["tests"], ["docs"], ["build"])]


def test_generated_stubs_are_there():
    for package in ("ndarray", "symbol"):
        text = (Path(plait.__file__).parent / package / "_operators.pyi").read_text()
        assert "def relu(" in text and "def Convolution(" in text
    assert (Path(plait.__file__).parent / "py.typed").exists()


def test_installed_files_have_the_headers_of_the_jit():
    from plait.kernels.cpu import jit

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    package = ".".join(["plait", *jit.CPU.relative_to(ROOT).parts])
    patterns = [PurePath(p) for p in settings["package-data"][package]]
    for header in map(PurePath, jit.headers()):
        assert (jit.CPU / header).is_file()
        assert any(header.match(str(p)) and len(header.parts) == len(p.parts) for p in patterns), (
            f"{header} is not installed"
        )


def test_installed_files_have_what_is_copied_into_compiled_networks():
    from plait.tools.compile import sources, writer

    functions = sources.CPU.joinpath("generated/kernels.h").read_text()
    found = sources.needed(re.findall(r"^int (\w+)\(", functions, re.MULTILINE))
    runtime = writer.RUNTIME.iterdir()
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    patterns = [
        str(PurePath(*package.split(".")[1:], pattern))
        for package, of_package in settings["package-data"].items()
        for pattern in of_package
    ]
    for path in (*found.sources, *found.headers, *runtime):
        name = path.relative_to(ROOT)
        assert any(name.match(p) and len(name.parts) == p.count("/") + 1 for p in patterns), (
            f"{name} is not installed"
        )


def test_signatures_show_no_address_of_a_sentinel():
    shown = [
        inspect.signature(getattr(space, name))
        for space in (plait.nd, plait.sym)
        for name in REGISTRY
        if name.isidentifier() and callable(getattr(space, name))
    ]
    assert len(shown) > 900
    assert not [s for s in shown if "<object object" in str(s)]
    assert "axis=<required>" in str(inspect.signature(plait.nd.expand_dims))
