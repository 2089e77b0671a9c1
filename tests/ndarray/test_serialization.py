"""nd.save, nd.load: bytes of the real MXNet, every version and dtype, damaged files, atomic
writing, pickling."""

import copy
import io
import pickle
import struct
from pathlib import Path

import numpy as np
import plait as mx
import pytest
from plait import nd

FIXTURES = Path(__file__).parents[1] / "fixtures"
DTYPES = [
    "float32",
    "float64",
    "float16",
    "uint8",
    "int32",
    "int8",
    "int64",
    "bool",
    "int16",
    "uint16",
    "uint32",
    "uint64",
    "bfloat16",
]


@pytest.mark.parametrize("name", ["list.nd", "dtypes.nd"])
def test_files_of_mxnet_round_trip_byte_for_byte(name, tmp_path):
    content = (FIXTURES / name).read_bytes()
    data = nd.load(FIXTURES / name)
    assert nd.save_tobuffer(data) == content
    nd.save(tmp_path / "again", data)
    assert (tmp_path / "again").read_bytes() == content


def test_list_and_dtypes_of_mxnet():
    a, b = nd.load(str(FIXTURES / "list.nd"))
    np.testing.assert_array_equal(a.asnumpy(), np.arange(5))
    np.testing.assert_array_equal(b.asnumpy(), np.ones((2, 2, 2)))
    for name, array in nd.load(FIXTURES / "dtypes.nd").items():
        assert np.dtype(array.dtype).name == name and array.shape == (2, 3)


def test_known_bytes():
    content = nd.save_tobuffer({"arg:w": nd.array([[1, 2, 3], [4, 5, 6]])})
    assert content.hex() == (
        "1201000000000000"
        "0000000000000000"
        "0100000000000000"
        "c9fa93f9"
        "00000000"
        "02000000"
        "0200000000000000"
        "0300000000000000"
        "01000000"
        "00000000"
        "00000000"
        + np.arange(1, 7, dtype="<f4").tobytes().hex()
        + "01000000000000000500000000000000"
        + b"arg:w".hex()
    )


def test_versions_0_1_and_3():
    (old,) = nd.load(FIXTURES / "legacy_ndarray.v0")[:1]
    np.testing.assert_array_equal(old.asnumpy().reshape(-1), np.arange(old.size))
    new = nd.load(FIXTURES / "numpy.npx")
    assert new["scalar"].shape == () and float(new["scalar"]) == 3 and new["empty"].shape == (0, 4)
    v1 = (
        struct.pack("<QQQIi2qiii", 0x112, 0, 1, 0xF993FAC8, 2, 1, 2, 1, 0, 4)
        + struct.pack("<2i", 7, 8)
        + bytes(8)
    )
    (loaded,) = nd.load_frombuffer(v1)
    assert (
        loaded.shape == (1, 2)
        and loaded.asnumpy().tolist() == [[7, 8]]
        and loaded.dtype == np.int32
    )


def test_sparse_arrays_are_read_and_written_byte_for_byte():
    expected = np.load(FIXTURES / "expected.npz")
    loaded = nd.load(FIXTURES / "sparse.nd")
    for name in ("row_sparse", "csr"):
        assert loaded[name].stype == name
        np.testing.assert_array_equal(loaded[name].asnumpy(), expected[name])
    assert nd.save_tobuffer(loaded) == (FIXTURES / "sparse.nd").read_bytes()


def test_files_whose_sparse_indices_do_not_fit_are_refused():
    csr = nd.sparse.csr_matrix(([1, 2], [0, 2], [0, 1, 2]), shape=(2, 3))
    rows = nd.sparse.row_sparse_array(([[1, 2]], [1]), shape=(2, 2))
    for array, good, bad in ((csr, 2, 3), (csr, 2, -1), (rows, 1, 2)):
        content = nd.save_tobuffer([array])
        at = content.rindex(struct.pack("<q", good), 0, len(content) - 8)
        assert nd.load_frombuffer(content)[0].stype == array.stype
        with pytest.raises(mx.MXNetError, match="do not fit its shape"):
            nd.load_frombuffer(content[:at] + struct.pack("<q", bad) + content[at + 8 :])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 3), (1,)])
def test_every_dtype_and_shape_round_trips(dtype, shape):
    x = nd.array(np.arange(np.prod(shape, dtype=int)).reshape(shape) % 2, dtype=dtype)
    (y,) = nd.load_frombuffer(nd.save_tobuffer([x]))
    assert (
        y.shape == shape and y.dtype == x.dtype and y.asnumpy().tobytes() == x.asnumpy().tobytes()
    )


def test_names_and_empty_collections(tmp_path):
    path = str(tmp_path / "x.params")
    nd.save(path, {"ключ": nd.ones((1,))})
    assert list(nd.load(path)) == ["ключ"]
    nd.save(path, nd.ones((2,)))
    assert nd.load(path)[0].shape == (2,)
    nd.save(path, [])
    assert nd.load(path) == []


def test_every_truncation_is_noticed():
    content = (FIXTURES / "dtypes.nd").read_bytes()
    for n in range(len(content)):
        with pytest.raises(mx.MXNetError, match="no whole MXNet array file"):
            nd.load_frombuffer(content[:n])


@pytest.mark.parametrize(
    "at, value, rule",
    [
        (0, 0x113, "must start with the number 0x112"),
        (16, 1 << 60, "arrays"),
        (24, 0xF993FACB, "unknown number"),
        (28, 7, "unknown storage type"),
        (32, 65, "dimensions"),
        (32, 0xFFFFFFFF, "dimensions"),
    ],
)
def test_foreign_bytes_are_refused(at, value, rule):
    content = bytearray((FIXTURES / "list.nd").read_bytes())
    size = 8 if value >= 1 << 32 or at == 0 else 4
    content[at : at + size] = value.to_bytes(size, "little")
    with pytest.raises(mx.MXNetError, match=rule):
        nd.load_frombuffer(content)


def test_random_damage_never_crashes():
    content = (FIXTURES / "dtypes.nd").read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(300):
        damaged = bytearray(content)
        damaged[rng.integers(len(content))] = rng.integers(256)
        try:
            nd.load_frombuffer(damaged)
        except mx.MXNetError:
            refused += 1
    assert refused > 50


def test_missing_and_foreign_files(tmp_path):
    with pytest.raises(mx.MXNetError, match="cannot read 'nowhere.params'"):
        nd.load("nowhere.params")
    with pytest.raises(mx.MXNetError, match="cannot write"):
        nd.save(tmp_path / "no" / "x", nd.ones((1,)))
    with pytest.raises(mx.MXNetError, match="cannot read"):
        nd.load(tmp_path)
    (tmp_path / "x.txt").write_text("hello, this is no array")
    with pytest.raises(mx.MXNetError, match="must start with"):
        nd.load(tmp_path / "x.txt")


@pytest.mark.parametrize(
    "data, kind",
    [
        (5, ValueError),
        ((nd.ones((1,)),), ValueError),
        ([1], TypeError),
        ({"a": 1}, TypeError),
        ({1: nd.ones((1,))}, TypeError),
    ],
)
def test_bad_data_leaves_the_old_file(data, kind, tmp_path):
    path = tmp_path / "x.params"
    nd.save(path, nd.ones((2,)))
    before = path.read_bytes()
    with pytest.raises(kind, match="save: "):
        nd.save(path, data)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["x.params"]


def test_a_failed_array_leaves_the_old_file(tmp_path):
    path = tmp_path / "x.params"
    nd.save(path, nd.ones((2,)))
    broken = nd.ones((2, 3))[nd.array([5])]
    with pytest.raises(mx.MXNetError, match="indices"):
        nd.save(path, broken)
    assert nd.load(path)[0].asnumpy().tolist() == [1, 1]


def test_pickle_and_copy_keep_values_and_device():
    x = nd.array([[1, 2], [3, 4]], ctx=mx.cpu(1), dtype="float16")
    x.attach_grad()
    for again in (pickle.loads(pickle.dumps(x)), copy.copy(x), copy.deepcopy(x)):
        assert again.context == mx.cpu(1) and again.dtype == np.float16 and again.grad is None
        again[:] = 0
    assert x.asnumpy().tolist() == [[1, 2], [3, 4]]


# ---- pickles of MXNet ----------------------------------------------------------------------------


class Foreign(pickle.Unpickler):
    """Reads what MXNet pickled as if plait were installed under its name."""

    def find_class(self, module, name):
        return super().find_class(module.replace("mxnet", "plait"), name)


def from_mxnet(content: bytes):
    return Foreign(io.BytesIO(content)).load()


def test_arrays_that_mxnet_pickled():
    """arrays.pkl: pickle.dump of MXNet 1.9.1, a dict with arrays of every storage type."""
    data = from_mxnet((FIXTURES / "arrays.pkl").read_bytes())
    assert sorted(data) == ["csr", "dense", "half", "ints", "rows"]
    assert data["dense"].asnumpy().tolist() == [[1.5, 2], [3, 4]]
    assert data["half"][0].dtype == np.float16
    assert data["half"][0].asnumpy().tolist() == [1, 2]
    assert data["ints"].dtype == np.int64
    assert (data["csr"].stype, data["rows"].stype) == ("csr", "row_sparse")
    assert data["csr"].asnumpy().tolist() == [[0, 1], [2, 0]]
    assert data["rows"].asnumpy().tolist() == [[0, 0], [5, 6]]
    for x in (data["dense"], data["csr"], data["rows"]):
        again = pickle.loads(pickle.dumps(x))
        assert again.stype == x.stype
        assert again.asnumpy().tolist() == x.asnumpy().tolist()


def mxnet_pickle(content) -> bytes:
    """What MXNet writes for an array whose bytes are these; None: for one without memory."""
    made = pickle.dumps({"handle": content}, 2)[2:-1]
    return b"\x80\x02cmxnet.ndarray.ndarray\nNDArray\nN\x85R" + made + b"b."


def test_old_forms_of_arrays_in_pickles():
    values = np.arange(3, dtype="<f4").tobytes()
    v0 = struct.pack("<II", 1, 3) + struct.pack("<iii", 1, 0, 0) + values
    v1 = struct.pack("<Iiq", 0xF993FAC8, 1, 3) + struct.pack("<iii", 1, 0, 0) + values
    for content in (v0, v1):
        assert from_mxnet(mxnet_pickle(bytearray(content))).asnumpy().tolist() == [0, 1, 2]
    assert from_mxnet(mxnet_pickle(None)).shape == (0,)


@pytest.mark.parametrize("content", [b"", b"abc", 3, "text", b"\xc9\xfa\x93\xf9" + b"\xff" * 40])
def test_damaged_pickles_are_refused(content):
    with pytest.raises(mx.MXNetError, match="pickle: an NDArray"):
        from_mxnet(mxnet_pickle(content))


def test_a_pickle_of_another_storage_type_is_refused():
    sparse = nd.array([[0, 1.0]]).tostype("csr")
    with pytest.raises(mx.MXNetError, match="holds a"):
        nd.sparse.RowSparseNDArray(None).__setstate__({"handle": nd.save_tobuffer(sparse)[24:-8]})


@pytest.mark.parametrize("value", [[1, 2], 3, np.ones(2)])
def test_the_class_makes_no_arrays(value):
    with pytest.raises(TypeError, match="cannot be called to make an array"):
        nd.NDArray(value)


@pytest.mark.parametrize("shape", [(0, 1 << 62), (0, 2**63 - 1), (1 << 40, 0, 1 << 40)])
def test_impossible_shapes_in_files_raise(shape):
    """It costs no bytes in the file; NumPy's own error came out."""
    head = struct.pack(f"<Iii{len(shape)}q", 0xF993FAC9, 0, len(shape), *shape)
    content = struct.pack("<QQQ", 0x112, 0, 1) + head + struct.pack("<iiiQ", 1, 0, 0, 0)
    with pytest.raises(ValueError, match=r"array 0 of 1 has the shape \(") as e:
        nd.load_frombuffer(content)
    assert isinstance(e.value, mx.MXNetError)
