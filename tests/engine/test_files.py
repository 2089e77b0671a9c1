"""Files are read with an error that names them, and written whole or not at all."""

import os
import resource
import signal
import subprocess
import sys

import plait as mx
import pytest
from plait import MXNetError, gluon, nd
from plait.engine import files


def test_a_missing_file_is_named_and_is_a_file_not_found_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="lists: cannot read '.*none': No such file") as e:
        files.read(tmp_path / "none", "lists")
    assert isinstance(e.value, MXNetError)
    with pytest.raises(MXNetError, match="Is a directory\n  fix: name a file"):
        files.read(tmp_path, "lists", fix="name a file")


def test_bytes_that_are_no_text_are_reported(tmp_path):
    (tmp_path / "a").write_bytes(b"\xff\xfe")
    with pytest.raises(MXNetError, match="lists: '.*a' is no utf-8 text: invalid start byte"):
        with files.reading(tmp_path / "a", "lists"), open(tmp_path / "a", encoding="utf-8") as f:
            f.read()


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path):
    target = tmp_path / "a"
    files.write(target, b"old")
    with pytest.raises(ZeroDivisionError), files.replacing(target) as part:
        with open(part, "wb") as file:
            file.write(b"new")
        raise ZeroDivisionError
    assert target.read_bytes() == b"old" and os.listdir(tmp_path) == ["a"]


def test_a_link_stays_and_a_pipe_is_written_itself(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "real")
    files.write(tmp_path / "link", b"x")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_bytes() == b"x"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    files.write(tmp_path / "pipe", b"through")
    assert os.read(reader, 99) == b"through"
    os.close(reader)


def test_a_missing_folder_is_named_in_an_os_error(tmp_path):
    for save in (
        lambda path: files.write(path, b""),
        lambda path: nd.save(path, nd.ones(1)),
        lambda path: gluon.Trainer({}, "sgd").save_states(path),
    ):
        with pytest.raises(FileNotFoundError, match=r"the folder '.*/no' does not exist") as e:
            save(str(tmp_path / "no" / "where" / "x"))
        assert isinstance(e.value, MXNetError)
        assert f"fix: os.makedirs({str(tmp_path / 'no' / 'where')!r}" in str(e.value)


def test_what_a_killed_writer_left_is_overwritten_and_a_living_ones_is_not(tmp_path):
    code = (
        "import os, sys\nfrom plait.engine import files\n"
        "with files.replacing(sys.argv[1]) as part, open(part, 'wb') as file:\n"
        "    file.write(b'half a file'), file.flush(), os.kill(os.getpid(), 9)"
    )
    target = tmp_path / "a"
    killed = subprocess.run([sys.executable, "-c", code, target])
    assert killed.returncode == -signal.SIGKILL and os.listdir(tmp_path) == ["a.part"]
    with files.replacing(target) as first:
        assert first == f"{target}.part"  # the one that was left
        with files.replacing(target) as second:  # while another writes
            assert second == f"{target}.1.part"
            with open(second, "wb") as file:
                file.write(b"second")
        assert target.read_bytes() == b"second"
        with open(first, "wb") as file:
            file.write(b"first")
    assert target.read_bytes() == b"first" and os.listdir(tmp_path) == ["a"]


def test_leftovers_of_a_series_are_removed(tmp_path):
    for name in ("run-1.params.part", "run-2.params.1.part", "run-1.params", "other.part"):
        (tmp_path / name).write_bytes(b"")
    with files.replacing(tmp_path / "run-3.params"):
        files.remove_leftovers(tmp_path, "run-")
        left = {"run-1.params", "other.part", "run-3.params.part"}
        assert set(os.listdir(tmp_path)) == left


def test_a_full_disk_is_reported_and_leaves_nothing(tmp_path):
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    files.write(tmp_path / "a", b"old")
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
        with pytest.raises(MXNetError, match="cannot write '.*a': File too large") as e:
            files.write(tmp_path / "a", bytes(2000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert isinstance(e.value, OSError)
    assert (tmp_path / "a").read_bytes() == b"old" and os.listdir(tmp_path) == ["a"]


def test_what_is_no_arrays_by_name_is_not_named_as_a_safetensors_file(tmp_path):
    net = gluon.nn.Dense(2, in_units=3)
    net.initialize()
    trainer, path = gluon.Trainer(net.collect_params(), "sgd"), str(tmp_path / "x.safetensors")
    for call in (
        lambda: trainer.save_states(path),
        lambda: trainer.load_states(path),
        lambda: mx.sym.var("x").save(path),
    ):
        with pytest.raises(ValueError, match="safetensors.*\n  fix: another ending") as e:
            call()
        assert isinstance(e.value, MXNetError)
    assert os.listdir(tmp_path) == []
