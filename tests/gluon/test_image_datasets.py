"""Data sets of images: IDX files, CIFAR, the digits, folders and records of images."""

import gzip
import importlib.util
import struct
import tarfile

import numpy as np
import plait as mx
import pytest
from plait.gluon.data import (
    DataLoader,
)
from plait.gluon.data.vision import (
    CIFAR10,
    CIFAR100,
    MNIST,
    Digits,
    FashionMNIST,
    ImageFolderDataset,
    ImageRecordDataset,
)
from plait.gluon.data.vision import datasets as vision_datasets


def idx(array, code=8):
    return (
        struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape) + array.tobytes()
    )


@pytest.fixture
def fashion(tmp_path):
    images = np.arange(6 * 4 * 5, dtype=np.uint8).reshape(6, 4, 5)
    labels = np.array([3, 1, 4, 1, 5, 9], np.uint8)
    for part in ("train", "t10k"):
        (tmp_path / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(idx(labels))
    return tmp_path, images, labels


@pytest.mark.parametrize("cls", [MNIST, FashionMNIST])
@pytest.mark.parametrize("train", [True, False])
def test_idx_files(fashion, cls, train):
    root, images, labels = fashion
    data = cls(root, train=train)
    image, label = data[2]
    assert len(data) == 6 and isinstance(image, mx.nd.NDArray) and image.dtype == np.uint8
    assert label == 4 and label.dtype == np.int32
    np.testing.assert_array_equal(image.asnumpy(), images[2][..., None])
    x, y = next(iter(DataLoader(data, 6)))
    assert x.shape == (6, 4, 5, 1) and y.dtype == np.int32
    np.testing.assert_array_equal(y.asnumpy(), labels)
    assert cls(root, transform=lambda x, y: y)[0] == 3


def test_shared_folder_is_looked_at_after_root(fashion, monkeypatch, tmp_path_factory):
    root, *_ = fashion
    shared = tmp_path_factory.mktemp("shared")
    (shared / "fashion-mnist").symlink_to(root)
    monkeypatch.setattr(vision_datasets, "SHARED", shared)
    empty = tmp_path_factory.mktemp("empty")
    assert len(FashionMNIST(empty)) == 6
    with pytest.raises(FileNotFoundError, match="MNIST: no file train-images-idx3-ubyte") as caught:
        MNIST(empty)
    assert str(empty) in str(caught.value) and str(shared / "mnist") in str(caught.value)


def test_missing_fashion_mnist_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr(vision_datasets, "SHARED", tmp_path / "none")
    with pytest.raises(mx.MXNetError, match="fix: apt-get install dataset-fashion-mnist"):
        FashionMNIST(tmp_path)


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda b: b[:20], "gzip file is broken"),
        (
            lambda b: gzip.compress(gzip.decompress(b)[:-7]),
            r"truncated: shape \(6, 4, 5\) needs 120 bytes of values, got 113",
        ),
        (lambda b: gzip.compress(b"hello"), "begins with 0, 0 and a type code"),
        (
            lambda b: gzip.compress(idx(np.zeros((5, 2, 2), np.uint8))),
            r"images must be \(N, H, W\) and labels \(N,\)",
        ),
    ],
)
def test_broken_idx_files(fashion, damage, message):
    root, *_ = fashion
    path = root / "train-images-idx3-ubyte.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(mx.MXNetError, match=message):
        FashionMNIST(root)


def test_cifar(tmp_path):
    rows = np.random.default_rng(0).integers(0, 10, (4, 1 + 3072), dtype=np.uint8)
    for i in range(1, 6):
        (tmp_path / f"data_batch_{i}.bin").write_bytes(rows.tobytes())
    data = CIFAR10(tmp_path)
    assert len(data) == 20
    np.testing.assert_array_equal(
        data[1][0].asnumpy(), rows[1, 1:].reshape(3, 32, 32).transpose(1, 2, 0)
    )
    assert data[1][1] == rows[1, 0]
    (tmp_path / "data_batch_3.bin").write_bytes(b"123")
    with pytest.raises(mx.MXNetError, match="rows of 3073 bytes, got 3 bytes"):
        CIFAR10(tmp_path)
    with pytest.raises(FileNotFoundError, match="no file test_batch.bin or cifar-10-binary.tar.gz"):
        CIFAR10(tmp_path, train=False)


def test_cifar100_from_its_archive(tmp_path):
    rows = np.random.default_rng(0).integers(0, 100, (3, 2 + 3072), dtype=np.uint8)
    (tmp_path / "test.bin").write_bytes(rows.tobytes())
    with tarfile.open(tmp_path / "cifar-100-binary.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "test.bin", "cifar-100-binary/test.bin")
    (tmp_path / "test.bin").unlink()
    assert [CIFAR100(tmp_path, fine, train=False)[2][1] for fine in (False, True)] == rows[
        2, :2
    ].tolist()


def test_digits():
    if importlib.util.find_spec("sklearn") is None:  # importing it takes seconds
        pytest.skip("needs scikit-learn's file")
    train, test = Digits(), Digits(train=False)
    assert (len(train), len(test)) == (1437, 360)
    image, label = train[0]
    assert image.shape == (8, 8, 1) and image.dtype == np.uint8 and label == 1
    # every fifth of 0, 1, 2, 3, 4, 5, ...
    assert [test[i][1] for i in range(2)] == [0, 5]
    assert max(int(train[i][0].asnumpy().max()) for i in range(10)) == 255
    counts = np.bincount(np.concatenate([train._label, test._label]))
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    values = np.rint(np.concatenate([train._data, test._data]) * (16 / 255.0))
    assert values.sum() == 561718  # of load_digits().data


def test_digits_missing(tmp_path):
    with pytest.raises(
        FileNotFoundError, match="no file digits.csv.*\n  fix: pip install scikit-learn"
    ):
        Digits(root=tmp_path)
    (tmp_path / "digits.csv").write_text("1,2,3\n")
    with pytest.raises(mx.MXNetError, match="rows of 64 values and a label"):
        Digits(root=tmp_path)


def test_image_folder(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for name, value in (("cat", 10), ("dog", 200)):
        (tmp_path / name).mkdir()
        image.fromarray(np.full((3, 4, 3), value, np.uint8)).save(tmp_path / name / "a.png")
    data = ImageFolderDataset(tmp_path)
    assert data.synsets == ["cat", "dog"] and len(data) == 2
    x, label = data[1]
    assert label == 1 and x.shape == (3, 4, 3) and int(x.asnumpy()[0, 0, 0]) == 200
    assert ImageFolderDataset(tmp_path, flag=0)[0][0].shape == (3, 4, 1)
    (tmp_path / "dog" / "notes.txt").write_text("x")
    with pytest.warns(UserWarning, match="notes.txt: its name must end with"):
        assert len(ImageFolderDataset(tmp_path)) == 2


def test_image_records(tmp_path):
    pytest.importorskip("PIL")
    from plait.data import recordio

    image = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    with recordio.MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "w") as out:
        out.write_idx(
            0, recordio.pack_img(recordio.IRHeader(0, 3.0, 0, 0), image[..., ::-1], 3, ".png")
        )
    x, label = ImageRecordDataset(tmp_path / "a.rec")[0]
    np.testing.assert_array_equal(x.asnumpy(), image)
    assert label == 3.0
