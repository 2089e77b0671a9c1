"""safetensors files, beside those that the library writes and reads by itself."""

import json
import os
import struct
import sys

import numpy as np
import plait as mx
import pytest
from plait import gluon, nd
from plait.kernels.record import DTYPES
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file


def drawn(dtype, shape=(3, 5)):
    rng = np.random.default_rng(1)
    return rng.integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)


def written(path, header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return str(path)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "bfloat16"])
@pytest.mark.parametrize("shape", [(3, 5), (), (7,)])
def test_the_library_reads_what_plait_writes_and_the_other_way_round(tmp_path, dtype, shape):
    values, one, two = drawn(dtype, shape), tmp_path / "1.safetensors", tmp_path / "2.safetensors"
    x = mx.np.array(values).as_nd_ndarray()
    nd.save(one, {"x": x, "a.b": nd.ones(3)})
    back = load_file(one)
    assert back["x"].dtype == values.dtype and set(back) == {"a.b", "x"}
    np.testing.assert_array_equal(back["x"], values)
    save_file({"x": values, "odd": np.ones(3, np.int8)}, two)
    found = nd.load(str(two))
    assert type(found["x"]) is nd.NDArray and found["x"].dtype == values.dtype
    assert mx.npx.load(two)["x"].shape == shape
    np.testing.assert_array_equal(mx.npx.load(two)["x"].asnumpy(), values)


def test_bfloat16(tmp_path):
    path = tmp_path / "x.safetensors"
    nd.save(path, {"x": nd.array([1.5, -2]).astype("bfloat16")})
    with safe_open(path, "numpy") as file:
        assert file.get_slice("x").get_dtype() == "BF16"
    assert path.read_bytes()[-4:] == bytes.fromhex("c03f00c0")
    assert nd.load(path)["x"].astype("float32").asnumpy().tolist() == [1.5, -2]


def test_arrays_are_the_files_memory_which_stays_as_it_is(tmp_path):
    path = tmp_path / "x.safetensors"
    save_file({"x": drawn("float32"), "y": drawn("float64")}, path)
    before, used = path.read_bytes(), mx.engine.stats()["used_bytes"]
    found = nd.load(path)
    assert mx.engine.stats()["used_bytes"] == used  # nothing of ours was allocated
    found["x"] += 1
    np.testing.assert_array_equal(found["x"].asnumpy(), drawn("float32") + 1)
    assert path.read_bytes() == before
    nd.save(path, {"x": nd.zeros(2)})  # a new file: what was read keeps the old one
    np.testing.assert_array_equal(found["y"].asnumpy(), drawn("float64"))


def test_values_that_do_not_lie_at_multiples_of_their_size(tmp_path):
    header = {"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}
    header["b"] = {"dtype": "F32", "shape": [2], "data_offsets": [1, 9]}
    header["c"] = {"dtype": "BOOL", "shape": [3], "data_offsets": [9, 12]}
    data = b"\x07" + np.array([1, 2], "<f4").tobytes() + b"\x00\x02\x01"
    found = nd.load(written(tmp_path / "x.safetensors", header, data))
    assert found["b"].asnumpy().tolist() == [1, 2] and found["a"].asscalar() == 7
    assert found["c"].asnumpy().tolist() == [False, True, True]


def test_parameters(tmp_path):
    path = str(tmp_path / "x.safetensors")
    nets = [gluon.nn.HybridSequential() for _ in range(2)]
    for net in nets:
        net.add(gluon.nn.Dense(4, in_units=3), gluon.nn.BatchNorm(in_channels=4))
        net.initialize(mx.init.Xavier())
    nets[0].save_parameters(path)
    assert set(load_file(path)) == set(nets[0]._collect_params_with_prefix())
    nets[1].load_parameters(path)
    x = nd.ones((2, 3))
    np.testing.assert_array_equal(nets[0](x).asnumpy(), nets[1](x).asnumpy())


F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
BAD = {
    "empty": b"",
    "short": b"1234",
    "no header": struct.pack("<Q", 1 << 60),
    "no JSON": struct.pack("<Q", 4) + b"abcd",
    "cut": struct.pack("<Q", 200) + json.dumps({"x": F32}).encode(),
    **{
        name: struct.pack("<Q", len(t := json.dumps({"x": F32 | change}).encode())) + t + data
        for name, change, data in (
            ("values cut", {}, b"1234"),
            ("more values", {}, b"123456789"),
            ("a hole", {"data_offsets": [4, 12]}, b"123456789012"),
            ("sizes differ", {"shape": [3]}, b"12345678"),
            ("huge", {"shape": [1 << 62, 1 << 62]}, b"12345678"),
            ("below zero", {"shape": [-2]}, b"12345678"),
            ("unknown dtype", {"dtype": "Q3"}, b"12345678"),
            ("8-bit floats", {"dtype": "F8_E5M2", "shape": [8]}, b"12345678"),
        )
    },
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_a_damaged_file_is_one_clear_error(tmp_path, content):
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(mx.MXNetError, match=r"^load: '.*x.safetensors'") as e:
        nd.load(path)
    assert isinstance(e.value, ValueError) and not isinstance(e.value, SafetensorError)


def test_what_cannot_be_written_changes_nothing(tmp_path):
    path = tmp_path / "x.safetensors"
    nd.save(path, {"x": nd.ones(1)})
    before = path.read_bytes()
    sparse = nd.ones((2, 2)).tostype("csr")
    for data, kind in (([nd.ones(1)], ValueError), ({"x": sparse}, TypeError), ({1: 2}, TypeError)):
        with pytest.raises(kind, match="by name") as e:
            nd.save(path, data)
        assert isinstance(e.value, mx.MXNetError) and "fix:" in str(e.value)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["x.safetensors"]
    with pytest.raises(FileNotFoundError, match="missing.safetensors"):
        nd.load(tmp_path / "missing.safetensors")


def test_without_the_library_the_error_names_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ImportError, match="pip install 'plait\\[safetensors\\]'"):
        nd.load(tmp_path / "x.safetensors")
