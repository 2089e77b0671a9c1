"""gluon.utils.download: files, folders, checksums, attempts; from file:// addresses only."""

import hashlib
import io
import os
import urllib.request

import plait as mx
import pytest
from plait.data import download as utils


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source.bin"
    path.write_bytes(b"content")
    return path.as_uri(), hashlib.sha1(b"content").hexdigest()


@pytest.fixture
def pauses(monkeypatch):
    found = []
    monkeypatch.setattr(utils.time, "sleep", found.append)
    return found


def test_targets(source, tmp_path, monkeypatch):
    url, sha1 = source
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert utils.download(url) == "source.bin"
    assert utils.download(url, str(tmp_path)) == str(tmp_path / "source.bin")
    new = tmp_path / "a" / "b" / "c.bin"
    assert utils.download(url, str(new), sha1_hash=sha1) == str(new)
    assert new.read_bytes() == b"content" and os.listdir(new.parent) == ["c.bin"]
    assert utils.check_sha1(new, sha1) and not utils.check_sha1(new, "0")


def test_what_is_there_stays_unless_it_must_go(source, tmp_path):
    url, sha1 = source
    target = tmp_path / "t"
    target.write_bytes(b"mine")
    utils.download(url, str(target))
    assert target.read_bytes() == b"mine"
    utils.download(url, str(target), sha1_hash=sha1)
    assert target.read_bytes() == b"content"
    target.write_bytes(b"mine")
    utils.download(url, str(target), overwrite=True)
    assert target.read_bytes() == b"content"


def test_attempts(tmp_path, pauses, monkeypatch):
    answers = [OSError("down"), OSError("down"), io.BytesIO(b"late")]

    def urlopen(url, context=None):
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    target = str(tmp_path / "t")
    assert utils.download("http://nowhere/t", target) == target
    assert open_bytes(target) == b"late" and pauses == [2, 4]
    answers[:] = [OSError("down")] * 3
    with pytest.raises(mx.MXNetError, match="http://nowhere/t failed 3 times: down"):
        utils.download("http://nowhere/t", target, overwrite=True, retries=3)
    answers[:] = [OSError("down")]
    with pytest.raises(mx.MXNetError, match="failed 1 times"):
        utils.download("http://nowhere/t", target, overwrite=True, retries=0)
    assert open_bytes(target) == b"late" and os.listdir(tmp_path) == ["t"]


def open_bytes(path):
    with open(path, "rb") as f:
        return f.read()


def test_other_content(source, tmp_path, pauses):
    target = tmp_path / "t"
    with pytest.raises(mx.MXNetError, match="does not have the SHA-1 00"):
        utils.download(source[0], str(target), sha1_hash="00", retries=2)
    assert not target.exists() and pauses == [2]


def test_arguments(source):
    with pytest.raises(AssertionError, match="at least 0, currently it's -1"):
        utils.download(source[0], "t", retries=-1)
    with pytest.raises(ValueError, match="does not end with a file name"):
        utils.download("file:///tmp/")
