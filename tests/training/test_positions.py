"""Iterators and loaders continue from a saved position in their data."""

import random

import numpy as np
import plait as mx
import pytest
from plait import nd
from plait.gluon.data import ArrayDataset, DataLoader, Sampler
from plait.ndarray import saved_state


def resumes(make, n_batches, tmp_path, values):
    """Every position of two epochs goes on with the batches that would have followed."""

    def batches(data, n, first=True):
        found = []
        while len(found) < n:
            found += [values(b) for _, b in zip(range(n - len(found)), data)]
            if len(found) < n and hasattr(data, "reset"):
                data.reset()
        if isinstance(data, mx.io.DataIter):
            data.state_dict()  # waits for what is made ahead, which draws from the streams
        return found

    for at in range(2 * n_batches):
        mx.seed_all(at)
        data = make()
        iterator = data if hasattr(data, "reset") else iter(data)
        for _ in range(at):
            batch = next(iterator, None)
            if batch is None:
                if iterator is data:
                    data.reset()
                else:
                    iterator = iter(data)
                next(iterator)
        mx.checkpoint.Checkpoint(tmp_path / "c", data=data).save()
        expected = batches(data if iterator is data else _Rest(iterator, data), n_batches + 2)
        mx.seed_all(99)
        again = make()
        assert mx.checkpoint.Checkpoint(tmp_path / "c", data=again).restore()
        assert batches(again, n_batches + 2) == expected, at


class _Rest:
    """A pass that has begun, and then new ones."""

    def __init__(self, iterator, loader):
        self._iterator, self._loader = iterator, loader

    def __iter__(self):
        iterator, self._iterator = self._iterator, None
        return iter(self._loader) if iterator is None else iterator


def noisy(x):
    return x + nd.random.uniform(shape=(1,)).asnumpy()[0] + np.random.rand() + random.random()


class Alternating(Sampler):
    """Shuffles its own list, with its own generator."""

    def __init__(self):
        self.numbers, self.rng = list(range(11)), random.Random(3)

    def __iter__(self):
        self.rng.shuffle(self.numbers)
        return iter(list(self.numbers))

    def __len__(self):
        return 11


@pytest.mark.parametrize(
    "options",
    [
        {"shuffle": True},
        {"shuffle": True, "last_batch": "rollover"},
        {"sampler": Alternating, "last_batch": "discard"},
        {"shuffle": True, "num_workers": 2},
        {"shuffle": True, "num_workers": 1, "auto_reload": True},
    ],
    ids=str,
)
def test_loaders_resume_inside_a_pass(tmp_path, options):
    def make():
        data = ArrayDataset(np.arange(11.0, dtype="float32")).transform(noisy)
        own = {k: v() if isinstance(v, type) else v for k, v in options.items()}
        return DataLoader(data, 4, **own)

    resumes(make, 3, tmp_path, lambda b: b.asnumpy().tolist())


@pytest.mark.parametrize("n_workers", [0, 1])
def test_interleaved_loaders_resume(tmp_path, n_workers):
    """Both draw their order when the pass begins, one after the other."""

    def made(**more):
        x, y = np.arange(8.0), np.arange(8.0, 16.0)
        loaders = [DataLoader(ArrayDataset(v), 2, True, num_workers=n_workers) for v in (x, y)]
        parts = {"first": loaders[0], "second": loaders[1]}
        return loaders, mx.checkpoint.Checkpoint(tmp_path / "c", **parts)

    def rest(pairs):
        return [[a.asnumpy().tolist() for a in pair] for pair in pairs]

    for at in range(4):
        mx.seed_all(at)
        loaders, checkpoint = made()
        pairs = zip(*loaders)
        for _ in range(at):
            next(pairs)
        checkpoint.save()
        expected = rest(pairs)
        mx.seed_all(99)
        loaders, checkpoint = made()
        assert checkpoint.restore()
        assert rest(zip(*loaders)) == expected, at


def test_a_loader_of_other_data_is_refused(tmp_path):
    mx.checkpoint.Checkpoint(tmp_path / "c", data=DataLoader(ArrayDataset([1, 2]), 1)).save()
    other = mx.checkpoint.Checkpoint(tmp_path / "c", data=DataLoader(ArrayDataset([1]), 1))
    with pytest.raises(saved_state.StateError, match="for 2 items, this data set has 1"):
        other.restore()


def images(tmp_path):
    path = str(tmp_path / "a")
    with mx.recordio.MXIndexedRecordIO(f"{path}.idx", f"{path}.rec", "w") as records:
        for i in range(7):
            picture = np.random.RandomState(i).randint(0, 255, (6, 6, 3), np.uint8)
            header = mx.recordio.IRHeader(0, float(i), i, 0)
            records.write_idx(i, mx.recordio.pack_img(header, picture, img_fmt=".png"))
    return {"path_imgrec": f"{path}.rec", "path_imgidx": f"{path}.idx", "data_shape": (3, 4, 4)}


def iterators(tmp_path):
    x, y = np.arange(22.0).reshape(11, 2), np.arange(11.0)
    np.savetxt(tmp_path / "x.csv", x, delimiter=",")
    records = images(tmp_path)
    sentences = [[1, 2, 3]] * 3 + [[i, i + 1, i + 2] for i in range(8)]
    return {
        "arrays": lambda: mx.io.NDArrayIter(x, y, 4, shuffle=True),
        "rolling": lambda: mx.io.NDArrayIter(x, y, 4, True, last_batch_handle="roll_over"),
        "csv": lambda: mx.io.CSVIter(
            data_csv=str(tmp_path / "x.csv"), data_shape=(2,), batch_size=4
        ),
        "records": lambda: mx.io.ImageRecordIter(
            **records, batch_size=3, shuffle=True, rand_crop=True, rand_mirror=True
        ),
        "ImageIter": lambda: mx.image.ImageIter(
            3, shuffle=True, rand_crop=True, rand_mirror=True, **records
        ),
        "resized": lambda: mx.io.ResizeIter(mx.io.NDArrayIter(x, y, 4, shuffle=True), 5),
        "ahead": lambda: mx.io.PrefetchingIter(mx.io.NDArrayIter(x, y, 4)),
        "images ahead": lambda: mx.io.PrefetchingIter(
            mx.image.ImageIter(3, shuffle=True, rand_crop=True, rand_mirror=True, **records)
        ),
        "sentences": lambda: mx.rnn.BucketSentenceIter(sentences, 4, buckets=[3]),
    }


@pytest.mark.parametrize(
    "kind",
    [
        "arrays",
        "rolling",
        "csv",
        "records",
        "ImageIter",
        "resized",
        "ahead",
        "images ahead",
        "sentences",
    ],
)
def test_iterators_resume_inside_an_epoch(tmp_path, kind):
    make = iterators(tmp_path)[kind]
    resumes(make, 3, tmp_path, lambda b: [a.asnumpy().tolist() for a in (b.data + (b.label or []))])


def test_iterator_without_a_position_raises(tmp_path):
    class Mine(mx.io.DataIter):
        pass

    with pytest.raises(NotImplementedError, match="Mine cannot report its position\n  fix: define"):
        mx.checkpoint.Checkpoint(tmp_path / "c", data=Mine()).save()
