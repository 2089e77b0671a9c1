import pytest
from serving import Running


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m/net.onnx").touch()  # the tests' `read` opens no file
    return tmp_path


@pytest.fixture
def running(folder):
    with Running(folder) as running:
        yield running
