"""Files are read with an error that names them, and written whole or not at all."""

import os

import pytest
from plait import MXNetError
from plait.engine import files


def test_a_missing_file_is_named_and_is_a_file_not_found_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="lists: cannot read '.*none': No such file") as e:
        files.read(tmp_path / "none", "lists")
    assert isinstance(e.value, MXNetError)
    with pytest.raises(MXNetError, match="Is a directory\n  fix: name a file"):
        files.read(tmp_path, "lists", fix="name a file")


def test_bytes_that_are_no_text_are_told(tmp_path):
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
