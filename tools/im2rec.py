"""im2rec: list files (.lst) of the images in a folder, and record files (.rec, .idx) from them."""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from ..data import recordio
from ..data.io.augmentation import resize_bytes
from ..data.io.image_list import parse_line
from ..engine import files
from ..engine.error import MXNetError
from ..kernels.ops.image_resize import LINEAR
from ..ndarray import codec

SHUFFLE_SEED = 100  # MXNet's: the same folder gives the same list
EXTENSIONS = [".jpeg", ".jpg", ".png"]


# ---- lists ---------------------------------------------------------------------------------------


def find_images(root: str, recursive: bool, exts: Any) -> tuple[list[tuple[str, int]], list[str]]:
    """((path from root, label) of every image, the folders by label). Without `recursive` only the
    folder itself, with label 0."""
    images: list[tuple[str, int]] = []
    folders: list[str] = []
    walk = os.walk(root, followlinks=True) if recursive else [(root, [], os.listdir(root))]
    for folder, inner, names in walk:
        inner.sort()
        found = [n for n in sorted(names) if os.path.splitext(n)[1].lower() in exts]
        paths = [p for p in (os.path.join(folder, n) for n in found) if os.path.isfile(p)]
        if paths:
            images += [(os.path.relpath(p, root), len(folders)) for p in paths]
            folders.append(os.path.relpath(folder, root))
    return images, folders


def write_list(path: str, items: Any) -> None:
    """Lines "index<TAB>label<TAB>path"."""
    lines = [f"{index}\t{label:f}\t{name}\n" for index, name, label in items]
    files.write(path, "".join(lines).encode())


def make_lists(args: Any) -> list[str]:
    """Writes the list files of a folder, in chunks, each optionally split into training, validation
    and test parts. Returns their paths."""
    images, folders = find_images(args.root, args.recursive, args.exts)
    if args.recursive:
        for label, folder in enumerate(folders):
            print(folder, label)
    items = [(i, name, label) for i, (name, label) in enumerate(images)]
    if args.shuffle:
        random.Random(SHUFFLE_SEED).shuffle(items)
    size = -(-len(items) // args.chunks)
    written = []

    def write(name, part):
        path = f"{args.prefix}{name}.lst"
        write_list(path, part)
        written.append(path)

    for i in range(args.chunks):
        chunk, name = items[i * size : (i + 1) * size], f"_{i}" if args.chunks > 1 else ""
        n_train, n_test = int(size * args.train_ratio), int(size * args.test_ratio)
        if args.train_ratio == 1.0:
            write(name, chunk)
            continue
        if args.test_ratio:
            write(f"{name}_test", chunk[:n_test])
        if args.train_ratio + args.test_ratio < 1.0:
            write(f"{name}_val", chunk[n_test + n_train :])
        write(f"{name}_train", chunk[n_test : n_test + n_train])
    return written


def items_of(path: str) -> Iterator[Any]:
    """Gives (index, path, labels) of a list file; reports invalid lines."""
    with open(path) as lines:
        for n, line in enumerate(lines, 1):
            try:
                index, labels, name = parse_line(line)
                if not labels:
                    raise ValueError("expected index<TAB>label<TAB>path")
                yield index, name, labels
            except ValueError as error:
                print(f"{path}:{n}: left out: {error}", file=sys.stderr)


# ---- records -------------------------------------------------------------------------------------


def make_record(args: Any, item: Any) -> bytes | None:
    """The record of one item of a list; None, with a message, where the image cannot be read."""
    index, name, labels = item
    path = os.path.join(args.root, name)
    several = len(labels) > 1 and args.pack_label
    label = np.array(labels, np.float32) if several else labels[0]
    header = recordio.IRHeader(0, label, index, 0)
    try:
        if args.pass_through:
            return recordio.pack(header, Path(path).read_bytes())
        image = _fitted(codec.read(path, args.color), args.center_crop, args.resize)
        return recordio.pack(header, codec.encode(image, args.encoding, args.quality))
    except (OSError, MXNetError) as error:
        print(f"left out: {error}", file=sys.stderr)
        return None


def _fitted(image: np.ndarray, center_crop: bool, resize: int) -> np.ndarray:
    """Crops the centre square if requested, then resizes the shorter edge to `resize` pixels."""
    height, width = image.shape[:2]
    if center_crop:
        edge = min(height, width)
        y, x = (height - edge) // 2, (width - edge) // 2
        image, height, width = image[y : y + edge, x : x + edge], edge, edge
    if not resize:
        return image
    if height > width:
        height, width = height * resize // width, resize
    else:
        height, width = resize, width * resize // height
    pixels = image if image.ndim == 3 else image[..., None]
    return resize_bytes(pixels, height, width, LINEAR)


def make_records(args: Any, path: str) -> int:
    """Writes the .rec and .idx files of a list file beside it. Returns the number of records."""
    base, written = os.path.splitext(path)[0], 0
    ahead: deque = deque()
    record = recordio.MXIndexedRecordIO(f"{base}.idx", f"{base}.rec", "w")
    with record, ThreadPoolExecutor(max(1, args.num_thread)) as pool:

        def write_first():
            index, future = ahead.popleft()
            found = future.result()
            if found is None:
                return 0
            record.write_idx(index, found)
            return 1

        for item in items_of(path):
            ahead.append((item[0], pool.submit(make_record, args, item)))
            if len(ahead) > 4 * args.num_thread:
                written += write_first()
        while ahead:
            written += write_first()
    return written


# ---- command line --------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m plait im2rec",
        description="Makes lists of the images in a folder (--list), or record files from lists.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    top.add_argument("prefix", help="beginning of the names of .lst, .rec and .idx files")
    top.add_argument("root", help="folder of the images")
    lists = top.add_argument_group("lists")
    lists.add_argument("--list", action="store_true", help="make lists instead of record files")
    lists.add_argument("--exts", nargs="+", default=EXTENSIONS, help="extensions of images")
    lists.add_argument("--chunks", type=int, default=1, help="number of lists")
    lists.add_argument("--train-ratio", type=float, default=1.0, help="fraction for training")
    lists.add_argument("--test-ratio", type=float, default=0.0, help="fraction for testing")
    lists.add_argument("--recursive", action="store_true", help="subfolders too: each is a class")
    lists.add_argument("--shuffle", dest="shuffle", action="store_true", help="in random order")
    lists.add_argument("--no-shuffle", dest="shuffle", action="store_false", help="in name order")
    records = top.add_argument_group("record files")
    records.add_argument("--pass-through", action="store_true", help="pack the files as they are")
    records.add_argument("--resize", type=int, default=0, help="pixels of the shorter edge")
    records.add_argument("--center-crop", action="store_true", help="crop the centre square")
    records.add_argument("--quality", type=int, default=95, help="JPEG 1-100, PNG 1-9")
    records.add_argument("--num-thread", type=int, default=1, help="threads that encode")
    records.add_argument(
        "--color", type=int, default=1, choices=[-1, 0, 1], help="1 colour, 0 grey, -1 as stored"
    )
    records.add_argument("--encoding", default=".jpg", choices=[".jpg", ".png"], help="format")
    records.add_argument(
        "--pack-label", action="store_true", help="pack all labels of a line, not the first only"
    )
    top.set_defaults(shuffle=True)
    return top


def main(argv: list[str]) -> int:
    """Runs the command. Raises MXNetError if no list has the prefix."""
    args = parser().parse_args(argv)
    args.prefix, args.root = os.path.abspath(args.prefix), os.path.abspath(args.root)
    if args.chunks < 1:
        raise MXNetError(f"im2rec: --chunks must be 1 or more, got {args.chunks}")
    if args.list:
        for path in make_lists(args):
            print(path)
        return 0
    folder = args.prefix if os.path.isdir(args.prefix) else os.path.dirname(args.prefix)
    paths = sorted(str(p) for p in Path(folder).glob("*.lst") if str(p).startswith(args.prefix))
    if not paths:
        raise MXNetError(
            f"im2rec: no list file begins with {args.prefix}\n  fix: make one with --list"
        )
    for path in paths:
        print(f"{os.path.splitext(path)[0]}.rec: {make_records(args, path)} records")
    return 0
