"""RecordIO: MXNet's files, round trips, broken files, pickling, forking."""

import json
import os
import pickle
import struct
import warnings
from pathlib import Path

import numpy as np
import plait as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plait.data import recordio
from plait.data.recordio import IRHeader, MXIndexedRecordIO, MXRecordIO

FIXTURES = Path(__file__).parent.parent / "fixtures"
MAGIC = struct.pack("<I", 0xCED7230A)


def read_all(path):
    with MXRecordIO(path, "r") as file:
        records = []
        while (record := file.read()) is not None:
            records.append(record)
    return records


def test_reads_what_mxnet_wrote():
    want = [
        bytes.fromhex(r) for r in json.loads((FIXTURES / "records.json").read_text())["records"]
    ]
    records = read_all(FIXTURES / "records.rec")
    assert records[:5] == want
    headers = [recordio.unpack(r) for r in records[5:]]
    assert len(headers) == 2
    assert all(isinstance(h, IRHeader) for h, _ in headers)


def test_writes_the_bytes_that_mxnet_writes(tmp_path):
    records = read_all(FIXTURES / "records.rec")
    with MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "w") as out:
        for i, record in enumerate(records):
            out.write_idx(i, record)
    assert (tmp_path / "a.rec").read_bytes() == (FIXTURES / "records.rec").read_bytes()
    assert (tmp_path / "a.idx").read_text() == (FIXTURES / "records.idx").read_text()


@settings(max_examples=60)
@given(
    parts=st.lists(
        st.lists(st.sampled_from([b"", b"a", b"abcd", b"12345", MAGIC, MAGIC[:2]]), max_size=8),
        max_size=5,
    )
)
def test_round_trip_of_records_with_magics_inside(tmp_path_factory, parts):
    path = tmp_path_factory.mktemp("rec") / "x.rec"
    records = [b"".join(p) for p in parts]
    with MXRecordIO(path, "w") as out:
        for record in records:
            out.write(record)
    assert read_all(path) == records
    data = path.read_bytes()
    assert len(data) % 4 == 0


def test_only_magics_at_multiples_of_four_split_a_record(tmp_path):
    with MXRecordIO(tmp_path / "x.rec", "w") as out:
        out.write(b"ab" + MAGIC + b"cd")
    assert (tmp_path / "x.rec").read_bytes() == MAGIC + struct.pack("<I", 8) + b"ab" + MAGIC + b"cd"


def test_index_reads_in_any_order():
    with MXIndexedRecordIO(FIXTURES / "records.idx", FIXTURES / "records.rec", "r") as file:
        forwards = [file.read_idx(k) for k in file.keys]
        backwards = [file.read_idx(k) for k in reversed(file.keys)]
        assert forwards == backwards[::-1] == read_all(FIXTURES / "records.rec")
        file.seek(file.keys[1])
        assert file.read() == forwards[1]
        with pytest.raises(KeyError):
            file.read_idx(99)


@pytest.mark.parametrize("label", [3.5, np.array([1.0, 2.0, 4.0], np.float32)])
def test_pack_and_unpack(label):
    header, data = recordio.unpack(recordio.pack(IRHeader(0, label, 7, 9), b"bytes"))
    assert data == b"bytes" and header.id == 7 and header.id2 == 9
    np.testing.assert_array_equal(header.label, label)
    assert header.flag == (0 if np.isscalar(label) else 3)


def test_images_in_records():
    pytest.importorskip("PIL")
    image = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    header, decoded = recordio.unpack_img(
        recordio.pack_img(IRHeader(0, 1.0, 2, 0), image, 3, ".png")
    )
    np.testing.assert_array_equal(decoded, image)
    assert header.label == 1.0
    _, grey = recordio.unpack_img(
        recordio.pack_img(IRHeader(0, 1.0, 2, 0), image[..., 0], 3, ".png")
    )
    np.testing.assert_array_equal(grey, image[..., 0])
    with pytest.raises(mx.MXNetError, match="format must be one of .jpg"):
        recordio.pack_img(IRHeader(0, 1.0, 2, 0), image, img_fmt=".webm")
    with pytest.raises(mx.MXNetError, match="cannot decode 3 bytes"):
        recordio.unpack_img(recordio.pack(IRHeader(0, 1.0, 2, 0), b"abc"))


def test_broken_files(tmp_path):
    data = (FIXTURES / "records.rec").read_bytes()
    (tmp_path / "cut.rec").write_bytes(data[:14])
    with MXRecordIO(tmp_path / "cut.rec", "r") as file:
        file.read()
        with pytest.raises(mx.MXNetError, match="frame at byte 12 is cut off"):
            file.read()
    (tmp_path / "short.rec").write_bytes(data[:9])
    with (
        MXRecordIO(tmp_path / "short.rec", "r") as file,
        pytest.raises(mx.MXNetError, match="3 bytes announced, 1 left"),
    ):
        file.read()
    (tmp_path / "foreign.rec").write_bytes(b"PK\x03\x04 not a record")
    with (
        MXRecordIO(tmp_path / "foreign.rec", "r") as file,
        pytest.raises(mx.MXNetError, match="has magic 0x04034b50, expected 0xced7230a"),
    ):
        file.read()
    (tmp_path / "bad.idx").write_text("0\t0\nnonsense\n")
    with pytest.raises(mx.MXNetError, match="line 2 must be key<TAB>position"):
        MXIndexedRecordIO(tmp_path / "bad.idx", FIXTURES / "records.rec", "r")
    with pytest.raises(mx.MXNetError, match="at least 24 bytes, got 2"):
        recordio.unpack(b"ab")
    with pytest.raises(mx.MXNetError, match="announces 5 labels"):
        recordio.unpack(struct.pack("<IfQQ", 5, 0, 0, 0) + b"abc")


def test_wrong_use(tmp_path):
    with pytest.raises(ValueError, match="flag must be 'r' or 'w'"):
        MXRecordIO(tmp_path / "x.rec", "a")
    with pytest.raises(FileNotFoundError):
        MXRecordIO(tmp_path / "none.rec", "r")
    out = MXRecordIO(tmp_path / "x.rec", "w")
    with pytest.raises(mx.MXNetError, match="cannot read from"):
        out.read()
    with pytest.raises(mx.MXNetError, match="cannot be pickled"):
        pickle.dumps(out)
    out.close()
    out.close()
    with pytest.raises(mx.MXNetError, match="is closed"):
        out.write(b"x")


def test_a_pickled_reader_opens_its_file_anew():
    with MXIndexedRecordIO(FIXTURES / "records.idx", FIXTURES / "records.rec", "r") as file:
        file.read()
        with pickle.loads(pickle.dumps(file)) as other:
            assert other.read() == bytes.fromhex("616263")
            assert other.read_idx(0) == file.read_idx(0)


def test_a_forked_reader_does_not_move_the_parents_place():
    with MXRecordIO(FIXTURES / "records.rec", "r") as file:
        first, here = file.read(), file.tell()
        pid = os.fork()
        if pid == 0:
            os._exit(0 if file.read() == first else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert file.tell() == here
        assert file.read() != first


def test_a_forked_child_does_not_write_what_the_parent_has_yet_to_write(tmp_path):
    path = tmp_path / "a.rec"
    record = MXRecordIO(path, "w")
    record.write(b"abcd")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads
        pid = os.fork()
    if pid == 0:
        record.close()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    record.close()
    reader = MXRecordIO(path, "r")
    assert [reader.read(), reader.read()] == [b"abcd", None]
    reader.close()


@pytest.mark.parametrize("at", [1000, 2**63 - 1, 2**63, 10**30])
def test_an_index_beyond_the_file_is_told(tmp_path, at):
    """It gave None, or Python's own error."""
    idx, rec = str(tmp_path / "a.idx"), str(tmp_path / "a.rec")
    with mx.recordio.MXIndexedRecordIO(idx, rec, "w") as records:
        records.write_idx(0, b"abc")
    (tmp_path / "a.idx").write_text(f"0\t{at}\n")
    rule = rf"byte {at} lies beyond the end of the file, which has 12 bytes\n  at: .*a.rec"
    for read in (
        lambda: mx.recordio.MXIndexedRecordIO(idx, rec, "r").read_idx(0),
        lambda: mx.gluon.data.RecordFileDataset(rec)[0],
        lambda: mx.io.ImageRecordIter(
            path_imgrec=rec, path_imgidx=idx, data_shape=(3, 2, 2), batch_size=1
        ),
    ):
        with pytest.raises(mx.MXNetError, match=rule):
            read()
