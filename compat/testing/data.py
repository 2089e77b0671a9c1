"""Data sets and files for tests and examples: MNIST, CIFAR-10, downloads; local files first."""

from __future__ import annotations

import bz2
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from ...engine import files
from ...gluon import utils
from ...gluon.data.vision.datasets import SHARED, find, read_bytes, read_idx

SERVER = "http://data.mxnet.io/"  # MXNet's; mirrors keep the paths
MNIST_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def download(
    url: Any,
    fname: str | None = None,
    dirname: Any = None,
    overwrite: bool = False,
    retries: int = 5,
) -> str:
    """Fetches a file, unless it is there. Returns its path.

    fname: default the end of the URL. dirname: folder, made when missing. Raises MXNetError.
    """
    path = fname or url.split("/")[-1]
    if dirname is not None:
        path = os.path.join(dirname, path)
    return utils.download(url, path, overwrite, retries=retries)


def _fetch_zip(url: str, folder: str) -> None:
    with zipfile.ZipFile(download(url, dirname=folder)) as archive:
        archive.extractall(folder)


def get_mnist_ubyte() -> None:
    """Puts the four IDX files of MNIST into ./data: from the folders that gluon.data.vision.MNIST
    searches, else from the network. Raises MXNetError."""
    folders = [Path("~/.mxnet/datasets/mnist").expanduser(), SHARED / "mnist"]
    os.makedirs("data", exist_ok=True)
    for name in MNIST_FILES:
        target = Path("data", name)
        if target.exists():
            continue
        source = find(folders, [name, name.replace("-idx", ".idx")])
        if source is None:
            _fetch_zip(SERVER + "mxnet/data/mnist.zip", "data")
            return
        files.write(target, read_bytes(source))


def get_mnist() -> dict[str, np.ndarray]:
    """MNIST as float32 images (N, 1, 28, 28) in [0, 1] and int8 labels (N,), under train_data,
    train_label, test_data and test_label; see get_mnist_ubyte for the files."""
    get_mnist_ubyte()
    images, labels, test_images, test_labels = (read_idx(Path("data", n)) for n in MNIST_FILES)
    return {
        "train_data": images[:, None].astype(np.float32) / 255,
        "train_label": labels.astype(np.int8),
        "test_data": test_images[:, None].astype(np.float32) / 255,
        "test_label": test_labels.astype(np.int8),
    }


def get_mnist_iterator(
    batch_size: int, input_shape: Any, num_parts: int = 1, part_index: int = 0
) -> Any:
    """(training, test) iterators over MNIST; flat unless input_shape has three axes."""
    from ...data.io import MNISTIter

    get_mnist_ubyte()

    def iterator(part: str, **kwargs):
        return MNISTIter(
            image=f"data/{part}-images-idx3-ubyte",
            label=f"data/{part}-labels-idx1-ubyte",
            input_shape=input_shape,
            batch_size=batch_size,
            flat=len(input_shape) != 3,
            num_parts=num_parts,
            part_index=part_index,
            **kwargs,
        )

    return iterator("train", shuffle=True), iterator("t10k")


def get_mnist_pkl() -> None:
    """Fetches data/mnist.pkl.gz, an old form of MNIST that only other programs read."""
    download("http://deeplearning.net/data/mnist/mnist.pkl.gz", dirname="data")


def get_cifar10() -> None:
    """Puts CIFAR-10 as record files into ./data/cifar. Raises MXNetError without network."""
    names = ("train.rec", "test.rec", "train.lst", "test.lst")
    if not all(os.path.exists(os.path.join("data", "cifar", n)) for n in names):
        _fetch_zip(SERVER + "mxnet/data/cifar10.zip", "data")


def get_zip_data(data_dir: Any, url: Any, data_origin_name: Any) -> None:
    """Fetches a zip archive into data_dir and unpacks it there, unless the archive is there."""
    if not os.path.exists(os.path.join(data_dir, data_origin_name)):
        _fetch_zip(url, data_dir)


def get_bz2_data(data_dir: Any, data_name: Any, url: Any, data_origin_name: Any) -> None:
    """Fetches a bz2 file into data_dir and unpacks it as data_name, unless that is there."""
    target = os.path.join(data_dir, data_name)
    if not os.path.exists(target):
        packed = download(url, fname=data_origin_name, dirname=data_dir)
        with files.replacing(target) as part:
            with bz2.open(packed) as source, open(part, "wb") as out:
                shutil.copyfileobj(source, out)
        os.remove(packed)


IMAGENET = {  # model -> files on the server, without -symbol.json and .params
    "imagenet1k-inception-bn": ("imagenet/inception-bn/Inception-BN", 126),
    **{
        f"imagenet1k-resnet-{n}": (f"imagenet/resnet/{n}-layers/resnet-{n}", 0)
        for n in (18, 34, 50, 101, 152)
    },
    **{
        f"imagenet1k-resnext-{n}": (f"imagenet/resnext/{n}-layers/resnext-{n}", 0)
        for n in (50, 101)
    },
}


def download_model(
    model_name: Any, dst_dir: str = "./", meta_info: Any = None
) -> tuple[str | None, int]:
    """Fetches a symbol and its parameters. Returns (prefix, epoch), (None, 0) for unknown names.

    meta_info: {name: {"symbol": URL, "params": URL}}; default MXNet's ImageNet models.
    """
    if meta_info is None:
        base = SERVER + "models/"
        meta_info = {
            name: {
                "symbol": f"{base}{path}-symbol.json",
                "params": f"{base}{path}-{epoch:04d}.params",
            }
            for name, (path, epoch) in IMAGENET.items()
        }
    if model_name not in meta_info:
        return None, 0
    meta = meta_info[model_name]
    prefix = os.path.join(dst_dir, model_name)
    utils.download(meta["symbol"], prefix + "-symbol.json")
    epoch = int(meta["params"].rsplit("-", 1)[-1].split(".")[0]) if "-" in meta["params"] else 0
    utils.download(meta["params"], f"{prefix}-{epoch:04d}.params")
    return prefix, epoch


def get_im2rec_path(home_env: str = "MXNET_HOME") -> str:
    """The module that replaces MXNet's tools/im2rec.py; `python -m plait im2rec` runs it.

    Raises OSError when $home_env is set and holds no tools/im2rec.py.
    """
    home = os.environ.get(home_env)
    path = (
        os.path.join(home, "tools", "im2rec.py")
        if home
        else str(Path(__file__).resolve().parents[1] / "data" / "im2rec.py")
    )
    if not os.path.isfile(path):
        raise OSError(f"get_im2rec_path: no file {path}")
    return path
