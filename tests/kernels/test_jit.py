"""The compiler at run time: a cache, shared, private, bounded, that heals; all works without it."""

import ctypes
import os
import stat
import subprocess
import sys
import tempfile

import plait.kernels.cpu.backend  # noqa: F401
import pytest
from plait.kernels import cache as disk
from plait.kernels.cpu import jit

SOURCE = "int plk_compiled(void) {{ return {}; }}\n"
has_compiler = jit.compiler() is not None
needs_compiler = pytest.mark.skipif(not has_compiler, reason="no C compiler here")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of its own, nothing loaded."""

    def use(home=tmp_path, cc=None):
        monkeypatch.setenv("XDG_CACHE_HOME", str(home))
        if cc is not None:
            monkeypatch.setenv("PLAIT_CC", cc)
        forget()
        return tmp_path / "plait" / "kernels"

    def forget():
        monkeypatch.setattr(jit, "_loaded", {})
        monkeypatch.setattr(jit, "PAUSE_S", 0)
        monkeypatch.setattr(disk, "_sizes", {})
        disk.folder.cache_clear()
        jit.compiler.cache_clear()

    yield use
    monkeypatch.undo()
    disk.folder.cache_clear()
    jit.compiler.cache_clear()


def call(source):
    address = jit.function(source)
    return address and ctypes.CFUNCTYPE(ctypes.c_int)(address)()


@needs_compiler
def test_compiled_once_then_read(cache, monkeypatch):
    folder = cache()
    assert not jit.ready(SOURCE.format(42)) and call(SOURCE.format(42)) == 42
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert len(list(folder.iterdir())) == 1
    cache()
    monkeypatch.setattr(jit, "_Compilation", lambda *_: pytest.fail("it lies in the cache"))
    assert jit.ready(SOURCE.format(42)) and call(SOURCE.format(42)) == 42


@needs_compiler
@pytest.mark.parametrize("damage", [b"", b"short", None])
def test_a_damaged_file_is_made_again(cache, damage):
    folder = cache()
    assert call(SOURCE.format(7)) == 7
    (path,) = folder.glob("*.so")
    whole = path.read_bytes()
    path.unlink()  # a new file: the old one is mapped
    path.write_bytes(whole[:999] + b"?" + whole[1000:] if damage is None else damage)
    path.chmod(0o600)
    cache()
    assert call(SOURCE.format(7)) == 7
    assert path.stat().st_size == len(whole)


@needs_compiler
def test_a_folder_or_file_of_others_is_not_used(cache, tmp_path):
    folder = cache()
    folder.mkdir(parents=True, mode=0o755)
    folder.chmod(0o755)
    assert call(SOURCE.format(1)) == 1 and not list(folder.iterdir())
    folder.chmod(0o700)
    cache()
    assert call(SOURCE.format(1)) == 1
    (path,) = folder.iterdir()
    path.chmod(0o666)
    cache()
    assert not jit._open(path.stem)


@needs_compiler
def test_where_no_folder_can_be_made(cache, tmp_path):
    (tmp_path / "file").write_text("")
    cache(tmp_path / "file")
    assert call(SOURCE.format(3)) == 3
    assert not str(disk.folder()).startswith(str(tmp_path))


@needs_compiler
def test_source_that_does_not_compile(cache, caplog):
    cache()
    for wrong in ("this is no C", "nor is this"):
        assert jit.function(wrong) == 0 == jit.function(wrong)
    assert len(caplog.records) == 2 and caplog.text.count("stay unfused") == 2
    assert call(SOURCE.format(4)) == 4


def compiler_that(tmp_path, first: str) -> str:
    """A compiler that runs lines of a shell before it compiles; `$runs` counts its calls."""
    path, runs = tmp_path / "compiler", tmp_path / "runs"
    runs.write_text("")
    path.write_text(
        '#!/bin/sh\nif [ "$1" = --version ]; then echo 1; exit; fi\n'
        f'echo x >> {runs}; runs=$(wc -l < {runs})\n{first}\nexec {jit.compiler()[0]} "$@"\n'
    )
    path.chmod(0o700)
    return str(path)


@needs_compiler
def test_a_compiler_that_was_killed_is_started_again(cache, tmp_path, caplog):
    """It stayed unfused for the rest of the process, and the run had other last bits."""
    cache(cc=compiler_that(tmp_path, "[ $runs -gt 2 ] || kill -9 $$"))
    assert call(SOURCE.format(9)) == 9
    assert (tmp_path / "runs").read_text() == "x\n" * 3 and not caplog.records


@needs_compiler
def test_a_slow_compiler_is_waited_for(cache, tmp_path, monkeypatch, caplog):
    """It was given up after a minute. Here it goes on when plait has said that it waits."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    cache(cc=compiler_that(tmp_path, f"read line < {gate}"))
    monkeypatch.setattr(jit, "SLOW_S", 0.01)
    monkeypatch.setattr(jit.log, "warning", lambda *_: gate.write_text("go\n"))
    assert call(SOURCE.format(10)) == 10
    assert (tmp_path / "runs").read_text() == "x\n"


@needs_compiler
def test_ctrl_c_ends_all_compilers(cache, tmp_path, monkeypatch):
    folder = cache(cc=compiler_that(tmp_path, "exec sleep 1000"))

    def interrupted(process, timeout=None):
        raise KeyboardInterrupt

    assert jit.compiler()
    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        jit.compile_all([SOURCE.format(k) for k in range(3)])
    assert not jit._processes and not list(folder.iterdir())
    assert not jit._loaded  # a later call tries again


@needs_compiler
@pytest.mark.parametrize("place", ["folder", "write"])
def test_where_the_disk_of_the_cache_is_full(cache, monkeypatch, place):
    folder = cache()

    def full(*args, **kwargs):
        if place == "write" or kwargs.get("dir") == folder:
            raise OSError(28, "No space left on device")
        return made(*args, **kwargs)

    made = tempfile.TemporaryDirectory
    where, name = (tempfile, "TemporaryDirectory") if place == "folder" else (disk, "write")
    monkeypatch.setattr(where, name, full)
    assert call(SOURCE.format(11)) == 11


def test_the_cache_is_counted_once(cache, monkeypatch):
    """Each write looked at every file of it."""
    folder = cache()
    counted = []
    trim = disk._trim
    monkeypatch.setattr(disk, "_trim", lambda kind: counted.append(kind) or trim(kind))
    for k in range(5):
        disk.write(f"{k}.so", b"x" * 100)
        disk.write(f"{k}.bin", b"x" * 100)
    assert sorted(counted) == [".bin", ".so"]
    monkeypatch.setattr(disk, "MAX_BYTES", 700)
    disk.write("last.so", b"x" * 100)
    assert counted[2:] == [".so"] and len(list(folder.glob("*.so"))) < 6


def test_no_compiler(cache, caplog):
    cache(cc="/nonexistent/cc")
    jit.compile_all([SOURCE.format(5), SOURCE.format(6)])
    assert jit.function(SOURCE.format(5)) == 0 and not jit.ready(SOURCE.format(5))
    assert len(caplog.records) == 1 and "no C compiler" in caplog.text
    caplog.clear()
    cache(cc="none")
    assert jit.function(SOURCE.format(5)) == 0 and not caplog.records


@needs_compiler
def test_the_oldest_go(cache, monkeypatch):
    folder = cache()
    for k in range(6):
        assert call(SOURCE.format(k)) == k
        newest = max(folder.glob("*.so"), key=lambda p: p.stat().st_mtime_ns)
        os.utime(newest, (k, k))
    monkeypatch.setattr(disk, "MAX_BYTES", newest.stat().st_size * 4)
    assert call(SOURCE.format(6)) == 6
    kept = sorted(int(p.stat().st_mtime) for p in folder.glob("*.so"))
    assert 2 <= len(kept) <= 4 and kept[0] >= 4


def test_what_killed_processes_left_goes(cache):
    folder = cache()
    disk.write("first.so", b"1")
    for name in ("new-old", "new-at-work"):
        (folder / name).mkdir()
        (folder / name / "group.c").write_text("")
        (folder / f"{name}.so").write_text("")
    for path in (folder / "new-old", folder / "new-old.so"):
        os.utime(path, (1, 1))
    disk._sizes.clear()  # another process
    disk.write("second.so", b"2")
    kept = ["first.so", "new-at-work", "new-at-work.so", "second.so"]
    assert sorted(p.name for p in folder.iterdir()) == kept


@needs_compiler
def test_processes_share_it(cache, tmp_path):
    folder = cache()
    script = (
        "from plait.kernels.cpu import jit\n"
        "import ctypes\n"
        f"sources = [{SOURCE!r}.format(k) for k in range(4)]\n"
        "jit.compile_all(sources)\n"
        "print([ctypes.CFUNCTYPE(ctypes.c_int)(jit.function(s))() for s in sources])\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    started = [
        subprocess.Popen([sys.executable, "-c", script], env=env, stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    for process in started:
        assert process.communicate(timeout=300)[0].decode().strip() == "[0, 1, 2, 3]"
    assert len(list(folder.iterdir())) == 4


@needs_compiler
def test_keys_tell_flags_apart(cache):
    from plait.engine import lib

    cache()
    best = jit._key(SOURCE.format(8))
    lib.plk_isa_set(lib.PLK_BASELINE)
    try:
        assert lib.plk_isa_best() == lib.PLK_BASELINE or jit._key(SOURCE.format(8)) != best
    finally:
        lib.plk_isa_set(lib.plk_isa_best())


def test_the_key_covers_included_headers():
    assert {"half.h", "vecmath.h", "inline.h", "generated/trig_table.h"} <= set(jit.headers())
