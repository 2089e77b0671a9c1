"""mx.io: iterators over arrays and files, and iterators around iterators. Expected values of
batches are MXNet 1.9.1's."""

import random
import struct
import threading

import numpy as np
import plait as mx
import pytest
from plait import nd
from plait.engine.error import MXNetError

X = np.arange(20).reshape(10, 2)
Y = np.arange(10)


def labels(iterator):
    return [(b.label[0].asnumpy().astype(int).tolist(), b.pad) for b in iterator]


class TestNDArrayIter:
    def test_pad_fills_up_from_the_beginning(self):
        it = mx.io.NDArrayIter(X, Y, 4)
        expected = [([0, 1, 2, 3], 0), ([4, 5, 6, 7], 0), ([8, 9, 0, 1], 2)]
        assert labels(it) == expected
        it.reset()
        assert labels(it) == expected

    def test_pad_of_more_than_all_samples(self):
        (batch,) = mx.io.NDArrayIter(X, Y, 24)
        assert batch.pad == 14
        assert batch.label[0].asnumpy().tolist() == [*range(10), *range(10), *range(4)]

    def test_discard(self):
        it = mx.io.NDArrayIter(X, Y, 4, last_batch_handle="discard")
        assert labels(it) == [([0, 1, 2, 3], 0), ([4, 5, 6, 7], 0)]

    def test_roll_over(self):
        it = mx.io.NDArrayIter(X, Y, 4, last_batch_handle="roll_over")
        assert len(labels(it)) == 2
        it.reset()
        assert labels(it) == [([8, 9, 0, 1], 2), ([2, 3, 4, 5], 0), ([6, 7, 8, 9], 0)]
        it.reset()
        assert labels(it)[0] == ([0, 1, 2, 3], 0)
        it.hard_reset()
        assert labels(it)[0] == ([0, 1, 2, 3], 0)

    def test_shuffle_follows_numpys_seed_and_keeps_pairs(self):
        np.random.seed(3)
        it = mx.io.NDArrayIter(X, Y, 4, shuffle=True)
        batches = list(it)
        assert batches[0].label[0].asnumpy().tolist() == [5, 4, 1, 2]  # the real MXNet's order
        for b in batches:
            np.testing.assert_array_equal(b.data[0].asnumpy()[:, 0], 2 * b.label[0].asnumpy())
        it.reset()
        assert labels(it)[0][0] != [5, 4, 1, 2]

    def test_names_dtypes_and_layout(self):
        it = mx.io.NDArrayIter({"b": X, "a": nd.array(X, dtype="int32")}, [Y, Y], 5)
        assert [(d.name, d.shape, np.dtype(d.dtype)) for d in it.provide_data] == [
            ("a", (5, 2), np.int32),
            ("b", (5, 2), np.float32),
        ]
        assert [d.name for d in it.provide_label] == ["_0_softmax_label", "_1_softmax_label"]
        it = mx.io.NDArrayIter(np.zeros((3, 8, 2)), batch_size=4, layout="TNC")
        assert it.provide_data == [("data", (3, 4, 2))]
        assert [b.data[0].shape for b in it] == [(3, 4, 2)] * 2

    def test_errors(self):
        with pytest.raises(MXNetError, match="last_batch_handle must be one of pad"):
            mx.io.NDArrayIter(X, last_batch_handle="wrap")
        with pytest.raises(TypeError, match="Invalid type '<class 'str'>' for data"):
            mx.io.NDArrayIter({"data": "x"})
        with pytest.raises(MXNetError, match="must have as many samples as 'data' .10."):
            mx.io.NDArrayIter(X, Y[:5])
        with pytest.raises(AssertionError, match="must be list of NDArrays"):
            mx.io.DataBatch(nd.zeros((2,)))
        with pytest.raises(MXNetError, match="no samples"):
            mx.io.NDArrayIter(np.zeros((0, 3)))


def test_data_desc():
    desc = mx.io.DataDesc("x", (3, 4), "int32", "TN")
    assert desc == ("x", (3, 4)) and (desc.dtype, desc.layout) == ("int32", "TN")
    assert repr(desc) == "DataDesc[x,(3, 4),int32,TN]"
    assert [mx.io.DataDesc.get_batch_axis(x) for x in ("NCHW", "TNC", None, "C")] == [0, 1, 0, -1]
    (made,) = mx.io.DataDesc.get_list([("a", (1, 2))], [("a", "int8")])
    assert made.dtype == "int8"


def test_resize_iter():
    it = mx.io.ResizeIter(mx.io.NDArrayIter(X, Y, 4), 5)
    first = labels(it)
    assert [pad for _, pad in first] == [0, 0, 2, 0, 0]
    it.reset()
    assert labels(it) == first
    it = mx.io.ResizeIter(mx.io.NDArrayIter(X, Y, 4), 2, reset_internal=False)
    assert labels(it)[0][0][0] == 0
    it.reset()
    assert labels(it)[0] == ([8, 9, 0, 1], 2)


class TestPrefetching:
    def test_joins_and_renames(self):
        inner = [mx.io.NDArrayIter({"data": X + i}, Y, 4) for i in range(2)]
        it = mx.io.PrefetchingIter(
            inner,
            rename_data=[{"data": "d1"}, {"data": "d2"}],
            rename_label=[{"softmax_label": "l1"}, {"softmax_label": "l2"}],
        )
        assert [d.name for d in it.provide_data + it.provide_label] == ["d1", "d2", "l1", "l2"]
        for _ in range(2):
            batches = list(it)
            assert [b.pad for b in batches] == [0, 0, 2]
            for b in batches:
                np.testing.assert_array_equal(b.data[0].asnumpy() + 1, b.data[1].asnumpy())
            it.reset()
        assert it.iter_next() and it.getpad() == 0 and len(it.getdata()) == 2

    def test_iterators_of_different_length(self):
        it = mx.io.PrefetchingIter([mx.io.NDArrayIter(X, Y, 4), mx.io.NDArrayIter(X[:6], Y[:6], 4)])
        it.next()
        with pytest.raises(MXNetError, match="Number of entry mismatches"):
            it.next()

    def test_an_error_in_the_thread_reaches_the_caller(self):
        class Broken(mx.io.NDArrayIter):
            def getdata(self):
                raise OSError("disk")

        with pytest.raises(OSError, match="disk"):
            mx.io.PrefetchingIter(Broken(X, Y, 4)).next()

    def test_what_the_loop_draws_meanwhile_changes_nothing(self):
        """The thread drew from the streams of the loop: which of them drew first depended on the
        load of the machine."""

        class Augmented(mx.io.NDArrayIter):
            """Its batches are random places of an image. They wait for `goes`."""

            goes = threading.Event()

            def next(self):
                batch = super().next()
                assert self.goes.wait(60)
                picture = nd.arange(10000).reshape((100, 100, 1))
                crop = mx.image.random_crop(picture, (2, 2))[0]
                turned = mx.image.LightingAug(1.0, np.ones(3), np.eye(3))(nd.zeros((1, 1, 3)))
                batch.data = [crop, turned]
                return batch

        def run(loop_first):
            mx.seed_all(3)
            Augmented.goes.clear()
            it = mx.io.PrefetchingIter([Augmented(X, Y, 4), Augmented(X, Y, 4)])
            found = []
            for k in range(2):
                if not loop_first:
                    Augmented.goes.set()
                    for future in it._pending:
                        future.result()
                drawn = [random.random(), np.random.rand()]
                Augmented.goes.set()
                found += [drawn, *(x.asnumpy().tolist() for x in it.next().data)]
            Augmented.goes.set()
            return found

        first = run(True)
        assert first == run(False) and first[1] != first[3]  # each iterator has its own


@pytest.fixture
def csv(tmp_path):
    (tmp_path / "a.csv").write_text("".join(f"{i},{i + 1}, {i + 2}\n" for i in range(1, 5)))
    (tmp_path / "l.csv").write_text("".join(f"{i},{10 * i}\n" for i in range(1, 5)))
    return tmp_path


def rows(iterator):
    return [(b.data[0].asnumpy()[:, 0].astype(int).tolist(), b.pad) for b in iterator]


class TestCSV:
    def test_round_batch_goes_on_into_the_next_epoch(self, csv):
        it = mx.io.CSVIter(data_csv=str(csv / "a.csv"), data_shape=(3,), batch_size=3)
        epochs = []
        for _ in range(4):
            epochs.append(rows(it))
            it.reset()
        assert epochs == [
            [([1, 2, 3], 0), ([4, 1, 2], 2)],
            [([3, 4, 1], 1)],
            [([2, 3, 4], 0)],
            [([1, 2, 3], 0), ([4, 1, 2], 2)],
        ]

    def test_without_round_batch_old_rows_stay(self, csv):
        it = mx.io.CSVIter(
            data_csv=str(csv / "a.csv"), data_shape="(3,)", batch_size="3", round_batch="False"
        )
        for _ in range(2):
            assert rows(it) == [([1, 2, 3], 0), ([4, 2, 3], 2)]
            it.reset()

    def test_labels_shapes_and_dtypes(self, csv):
        it = mx.io.CSVIter(
            data_csv=str(csv / "a.csv"),
            data_shape=(3, 1),
            label_csv=str(csv / "l.csv"),
            label_shape=(2,),
            batch_size=2,
            dtype="int64",
            data_name="x",
            label_name="y",
        )
        assert it.provide_data == [("x", (2, 3, 1))] and it.provide_label == [("y", (2, 2))]
        batch = it.next()
        assert batch.data[0].dtype == batch.label[0].dtype == np.int64
        assert batch.label[0].asnumpy().tolist() == [[1, 10], [2, 20]]
        assert batch.index.tolist() == [0, 1]

    def test_folder_and_missing_labels(self, csv):
        (csv / "l.csv").rename(csv.parent / "l.csv")
        (csv / "b.csv").write_text("7,8,9\n")
        it = mx.io.CSVIter(data_csv=str(csv), data_shape=(3,), batch_size=5)
        (batch,) = it
        assert batch.data[0].asnumpy()[:, 0].tolist() == [1, 2, 3, 4, 7]
        assert batch.label[0].asnumpy().tolist() == [0] * 5

    @pytest.mark.parametrize(
        "given, message",
        [
            ({"data_csv": "nope.csv"}, "cannot read 'nope.csv'"),
            ({"data_shape": (4,)}, "specified data_shape=\\(4,\\), the csv row-length=3"),
            ({"dtype": "float64"}, "float64 is not supported"),
            ({"batch_size": 10}, "bigger than batch size"),
            ({"batch_size": 0}, "batch_size must be an integer above 0"),
        ],
    )
    def test_errors(self, csv, given, message):
        full = {"data_csv": str(csv / "a.csv"), "data_shape": (3,), "batch_size": 2} | given
        with pytest.raises(MXNetError, match=message):
            mx.io.CSVIter(**full)

    def test_only_keywords(self, csv):
        with pytest.raises(TypeError, match="CSVIter can only accept keyword arguments"):
            mx.io.CSVIter(str(csv / "a.csv"), data_csv="x", data_shape=(3,), batch_size=2)

    def test_unknown_parameters_warn(self, csv):
        with pytest.warns(UserWarning, match="CSVIter: ignores shufle"):
            mx.io.CSVIter(data_csv=str(csv / "a.csv"), data_shape=(3,), batch_size=2, shufle=1)


@pytest.fixture
def idx(tmp_path):
    images = np.random.RandomState(0).randint(0, 256, (11, 2, 3)).astype(np.uint8)
    (tmp_path / "im").write_bytes(b"\0\0\x08\x03" + struct.pack(">3I", 11, 2, 3) + images.tobytes())
    (tmp_path / "lb").write_bytes(b"\0\0\x08\x01" + struct.pack(">I", 11) + bytes(range(11)))
    return {"image": str(tmp_path / "im"), "label": str(tmp_path / "lb"), "silent": True}, images


class TestMNIST:
    def test_batches(self, idx):
        files, images = idx
        it = mx.io.MNISTIter(**files, batch_size=3, shuffle=False)
        assert it.provide_data == [("data", (3, 1, 2, 3))]
        for _ in range(2):
            batches = list(it)
            assert [b.label[0].asnumpy().tolist() for b in batches] == [
                [0, 1, 2],
                [3, 4, 5],
                [6, 7, 8],
            ]
            it.reset()
        np.testing.assert_array_equal(batches[2].data[0].asnumpy()[0, 0] * 256, images[6])

    def test_flat_and_shuffle(self, idx):
        files, images = idx
        it = mx.io.MNISTIter(**files, batch_size=3, flat=True, seed=4)
        found = [(x, int(y)) for b in it for x, y in zip(b.data[0].asnumpy(), b.label[0].asnumpy())]
        assert len({y for _, y in found}) == 9 and [y for _, y in found] != list(range(9))
        for x, y in found:
            np.testing.assert_array_equal(x * 256, images[y].ravel())

    def test_parts(self, idx):
        files, _ = idx
        seen = []
        for part in range(3):
            it = mx.io.MNISTIter(**files, batch_size=1, shuffle=False, num_parts=3, part_index=part)
            seen.append([int(b.label[0].asscalar()) for b in it])
        assert seen == [[0, 1, 2], [3, 4, 5, 6], [7, 8, 9, 10]]

    def test_errors(self, idx):
        files, _ = idx
        with pytest.raises(MXNetError, match="image: cannot read 'nope'"):
            mx.io.MNISTIter(image="nope")
        with pytest.raises(MXNetError, match="batch_size=20 is more than the 11 images"):
            mx.io.MNISTIter(**files, batch_size=20)
        with pytest.raises(MXNetError, match="part_index must be in"):
            mx.io.MNISTIter(**files, num_parts=2, part_index=2)


def test_source_iterator_skips_loading(idx):
    it = mx.io.MNISTIter(**idx[0], batch_size=3, shuffle=False)
    it.next()
    it.debug_skip_load()
    assert [it.next().label[0].asnumpy()[0] for _ in range(7)] == [0] * 7


def test_signatures_name_the_same_modules():
    assert mx.io.io.NDArrayIter is mx.io.NDArrayIter
    assert isinstance(mx.io.NDArrayIter(X), mx.io.DataIter)
