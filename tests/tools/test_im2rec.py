"""python -m plait im2rec: lists of a folder, record files from lists."""

import numpy as np
import plait as mx
import pytest
from plait.__main__ import main
from plait.ndarray import codec


@pytest.fixture
def root(tmp_path):
    """Two folders of four images each, every one of its own colour, 30 wide and 20 high."""
    for folder in "ab":
        (tmp_path / "images" / folder).mkdir(parents=True)
        for i in range(4):
            image = np.full((20, 30, 3), 40 * i + (10 if folder == "b" else 0), np.uint8)
            path = tmp_path / "images" / folder / f"{i}.png"
            path.write_bytes(codec.encode(image, ".png", 9))
    (tmp_path / "images" / "a" / "readme.txt").write_text("no image")
    return tmp_path


def run(*arguments):
    return main(["im2rec", *map(str, arguments)])


def test_lists(root, capsys):
    prefix = root / "all"
    assert run(prefix, root / "images", "--list", "--recursive", "--no-shuffle") == 0
    assert capsys.readouterr().out.splitlines()[:2] == ["a 0", "b 1"]
    lines = (root / "all.lst").read_text().splitlines()
    assert lines[0] == "0\t0.000000\ta/0.png" and lines[-1] == "7\t1.000000\tb/3.png"
    run(prefix, root / "images", "--list", "--recursive")
    shuffled = (root / "all.lst").read_text().splitlines()
    assert shuffled != lines and sorted(shuffled) == lines
    # MXNet's order: Python's shuffle from the seed 100
    assert [int(line.split("\t")[0]) for line in shuffled] == [0, 4, 7, 5, 1, 6, 3, 2]
    assert run(root / "none", root / "images", "--list") == 0
    assert (root / "none.lst").read_text() == ""


def test_parts_and_chunks(root):
    run(
        root / "p", root / "images", "--list", "--recursive", "--train-ratio", "0.5",
        "--test-ratio", "0.25", "--chunks", "2",
    )  # fmt: skip
    counts = {p.name: len(p.read_text().splitlines()) for p in root.glob("p*.lst")}
    assert counts == {
        f"p_{i}_{part}.lst": n
        for i in range(2)
        for part, n in (("train", 2), ("test", 1), ("val", 1))
    }


def test_records(root):
    prefix = root / "all"
    run(prefix, root / "images", "--list", "--recursive", "--no-shuffle")
    assert run(prefix, root / "images", "--resize", 10, "--num-thread", 2) == 0
    record = mx.recordio.MXIndexedRecordIO(f"{prefix}.idx", f"{prefix}.rec", "r")
    assert record.keys == list(range(8))
    header, image = mx.recordio.unpack_img(record.read_idx(5))
    assert (header.id, header.label, image.shape) == (5, 1.0, (10, 15, 3))
    assert abs(int(image[5, 5, 0]) - 50) <= 1
    run(prefix, root / "images", "--center-crop", "--encoding", ".png", "--quality", 3)
    record.reset()
    assert mx.recordio.unpack_img(record.read_idx(0))[1].shape == (20, 20, 3)
    run(prefix, root / "images", "--pass-through")
    record.reset()
    packed = mx.recordio.unpack(record.read_idx(2))[1]
    assert packed == (root / "images" / "a" / "2.png").read_bytes()
    run(prefix, root / "images", "--color", 0)
    record.reset()
    assert mx.recordio.unpack_img(record.read_idx(2))[1].shape == (20, 30)


def test_several_labels_and_what_cannot_be_read(root, capsys):
    (root / "s.lst").write_text("3\t1\t2\ta/0.png\n4\t1\t2\ta/missing.png\nno line\n")
    run(root / "s", root / "images", "--pack-label")
    record = mx.recordio.MXIndexedRecordIO(str(root / "s.idx"), str(root / "s.rec"), "r")
    assert record.keys == [3]
    assert mx.recordio.unpack(record.read_idx(3))[0].label.tolist() == [1, 2]
    captured = capsys.readouterr()
    assert "s.rec: 1 records" in captured.out
    assert "missing.png" in captured.err and "s.lst:3: left out" in captured.err


def test_no_list(root, capsys):
    assert run(root / "nothing", root / "images") == 1
    assert "no list file begins with" in capsys.readouterr().err
