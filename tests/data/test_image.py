"""mx.image against results of MXNet 1.9.1 (fixtures/image.npz), and its errors."""

import io
import json
import random
from pathlib import Path

import numpy as np
import plait as mx
import pytest

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"


def results(mx, jpeg):
    """(name, result) of calls of mx.image that draw from seeded streams: what MXNet gave is in the
    fixture."""
    img = mx.image

    def seeded(n):
        random.seed(n)
        np.random.seed(n)

    a = img.imdecode(jpeg)
    f = a.astype("float32")
    yield "decoded", a
    yield "grey", img.imdecode(jpeg, flag=0)
    yield "bgr", img.imdecode(jpeg, to_rgb=0)
    for interp in range(5):
        yield f"resize{interp}", img.imresize(a, 23, 19, interp)
        yield f"enlarge{interp}", img.imresize(a[:16, :20], 31, 27, interp)
    yield "half", img.imresize(a, 32, 24, 1)
    yield "short", img.resize_short(a, 20, 9)
    yield "fixed", img.fixed_crop(a, 3, 5, 30, 20, (16, 12), 1)
    yield "border", img.copyMakeBorder(a[:8, :8], 1, 2, 3, 4, type=2)
    yield "border0", img.copyMakeBorder(a[:8, :8], 1, 0, 2, 1, type=0, values=(1.0, 2.0, 300.0))
    for n in range(3):
        seeded(n)
        for part, place in (
            img.random_crop(a, (24, 20)),
            img.random_crop(a, (80, 20)),
            img.random_size_crop(a, (20, 16), 0.08, (3 / 4, 4 / 3)),
        ):
            yield f"crop{n}{part.shape}", part
            yield f"place{n}{part.shape}", np.array(place)
    chw = mx.nd.transpose(f, axes=(2, 0, 1))[:, :20, :24]
    yield "turned", img.imrotate(chw, 30)
    yield "zoomed", img.imrotate(mx.nd.stack(chw, chw), mx.nd.array([20, -40]), zoom_in=True)
    s = f[:16, :16]
    augmenters = [
        img.ColorJitterAug(0.1, 0.2, 0.3),
        img.HueJitterAug(0.3),
        img.LightingAug(0.1, np.array([55.46, 4.794, 1.148]), np.ones((3, 3)) * 0.3),
        img.RandomGrayAug(0.6),
        img.HorizontalFlipAug(0.5),
        img.ColorNormalizeAug([1, 2, 3.0], [2, 2, 2.0]),
    ]
    for n, augmenter in enumerate(augmenters):
        seeded(n)
        yield f"{type(augmenter).__name__}{n}", augmenter(s.copy())
    everything = img.CreateAugmenter(
        (3, 16, 16), 20, True, True, True, True, True, 0.1, 0.1, 0.1, 0.1, 0.1, 0.3, 1
    )
    for n in range(3):
        seeded(n)
        out = a
        for augmenter in everything:
            out = augmenter(out)
        yield f"everything{n}", out
    objects = np.array(
        [[0, 0.1, 0.1, 0.4, 0.5], [2, 0.3, 0.2, 0.9, 0.8], [1, 0.6, 0.7, 0.7, 0.9]], "f4"
    )
    detection = img.CreateDetAugmenter(
        (3, 16, 16), rand_crop=0.8, rand_pad=0.5, rand_mirror=True, mean=True, inter_method=1
    )
    for n in range(4):
        seeded(n)
        out, label = a, objects.copy()
        for augmenter in detection:
            out, label = augmenter(out, label)
        yield f"detection{n}", out
        yield f"objects{n}", label


def test_as_mxnet():
    expected = np.load(FIXTURES / "image.npz")
    seen = set()
    for name, found in results(mx, expected["jpeg"].tobytes()):
        found = found.asnumpy() if isinstance(found, mx.nd.NDArray) else found
        want = expected[name]
        seen.add(name)
        assert found.shape == want.shape, name
        if found.dtype == np.uint8:
            assert want.dtype == np.uint8, name
            far = np.abs(found.astype(int) - want)
            assert far.max() <= 1 and (far > 0).mean() < 0.03, name
        else:  # of the colours 0 .. 255; fixtures of images are float16
            tolerance = 0.26 if want.dtype == np.float16 else 1e-5
            np.testing.assert_allclose(found, want, atol=tolerance, err_msg=name)
    assert seen == set(expected.files) - {"jpeg"}


@pytest.fixture
def jpeg():
    return np.load(FIXTURES / "image.npz")["jpeg"].tobytes()


def test_imread_and_out(tmp_path, jpeg):
    path = tmp_path / "x.jpg"
    path.write_bytes(jpeg)
    a = mx.image.imread(str(path))
    assert a.dtype == np.uint8
    out = mx.nd.zeros(a.shape, dtype="uint8")
    assert mx.image.imread(str(path), out=out) is out
    np.testing.assert_array_equal(out.asnumpy(), a.asnumpy())
    np.testing.assert_array_equal(mx.nd._internal._cvimread(str(path)).asnumpy(), a.asnumpy())
    old = mx.nd.imdecode(jpeg, clip_rect=(2, 3, 12, 9))
    np.testing.assert_array_equal(old.asnumpy(), a.asnumpy()[3:9, 2:12].transpose(2, 0, 1))


def test_damaged_jpeg_warns_and_gives_what_there_is(jpeg):
    with pytest.warns(UserWarning, match="damaged JPEG"):
        assert mx.image.imdecode(jpeg[: len(jpeg) * 2 // 3]).shape == (48, 64, 3)


def test_pictures_of_16_bits_and_with_clear_colours():
    """MXNet 1.9.1 gives the upper 8 bits, and takes no notice of what is transparent."""
    image = pytest.importorskip("PIL.Image")

    def decoded(picture, **options):
        picture.save(file := io.BytesIO(), "PNG", **options)
        return mx.image.imdecode(file.getvalue()).asnumpy()

    values = np.array([[0, 128, 255, 256, 511, 0x7FFF, 0xFFFF]], np.uint16)
    made = decoded(image.fromarray(values))
    assert made.shape == (1, 7, 3) and made[0, :, 0].tolist() == [0, 0, 0, 1, 1, 0x7F, 0xFF]
    palette = image.new("P", (2, 1), 1)
    palette.putpalette([0, 0, 0, 10, 20, 30])
    assert decoded(palette, transparency=bytes([255, 0])).tolist() == [[[10, 20, 30]] * 2]


def test_dumps():
    assert json.loads(mx.image.ResizeAug(30).dumps()) == ["resizeaug", {"size": 30, "interp": 2}]
    flip = mx.image.SequentialAug([mx.image.HorizontalFlipAug(0.5)])
    assert flip.dumps() == ["sequentialaug", ['["horizontalflipaug", {"p": 0.5}]']]
    crops = mx.image.CreateMultiRandCropAugmenter([0.1, 0.5], area_range=(0.2, 1.0))
    assert [json.loads(d)[1]["min_object_covered"] for d in crops.dumps()[1]] == [0.1, 0.5]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: mx.image.imdecode("text"), "buf must be bytes"),
        (lambda: mx.image.imdecode(b""), "the buffer is empty"),
        (lambda: mx.image.imdecode(b"no image"), "cannot decode 8 bytes"),
        (lambda: mx.image.imread("/no/such/file.jpg"), "cannot read '/no/such/file.jpg'"),
        (lambda: mx.image.imresize(mx.nd.zeros((4, 4, 3)), 2, 2, 7), "Unknown interp method 7"),
        (lambda: mx.image.imresize(mx.nd.zeros((4, 4, 3)), 0, 2), "size must be"),
        (lambda: mx.image.imrotate(mx.nd.zeros((3, 4, 4)), 3, True, True), "cannot be both"),
        (lambda: mx.image.CreateAugmenter((3, 4, 4), rand_resize=True), "needs rand_crop"),
        (lambda: mx.image.DetBorrowAug(3), "must be an Augmenter"),
        (lambda: mx.image.ImageIter(2, (3, 4, 4)), "needs path_imgrec"),
        (lambda: mx.image.ImageIter(2, (1, 4, 4), imglist=[]), "3 channels"),
    ],
)
def test_errors(call, message):
    with pytest.raises((mx.MXNetError, ValueError), match=message):
        call()


# ---- iterators -----------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """Ten images of one colour each, as files, list file and record file."""
    record = mx.recordio.MXIndexedRecordIO(str(tmp_path / "r.idx"), str(tmp_path / "r.rec"), "w")
    lines = []
    for i in range(10):
        image = np.full((20, 24, 3), 10 * i, np.uint8)
        packed = mx.recordio.pack_img(
            mx.recordio.IRHeader(0, float(i), i, 0), image, img_fmt=".png", quality=9
        )
        record.write_idx(i, packed)
        (tmp_path / f"{i}.png").write_bytes(mx.recordio.unpack(packed)[1])
        lines.append(f"{i}\t{float(i)}\t{i}.png\n")
    record.close()
    (tmp_path / "r.lst").write_text("".join(lines))
    return tmp_path


def sources(folder):
    return [
        {"path_imgrec": str(folder / "r.rec")},
        {"path_imgrec": str(folder / "r.rec"), "path_imgidx": str(folder / "r.idx")},
        {"path_imglist": str(folder / "r.lst"), "path_root": str(folder)},
        {"imglist": [[float(i), f"{i}.png"] for i in range(10)], "path_root": str(folder)},
    ]


@pytest.mark.parametrize("source", range(4))
@pytest.mark.parametrize(
    "last, epochs",
    [
        ("pad", [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]]),
        ("discard", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("roll_over", [[0, 1, 2, 3], [4, 5, 6, 7]]),
    ],
)
def test_image_iter(folder, source, last, epochs):
    it = mx.image.ImageIter(4, (3, 16, 16), last_batch_handle=last, **sources(folder)[source])
    assert it.provide_data == [("data", (4, 3, 16, 16))]
    assert it.provide_label == [("softmax_label", (4,))]
    batches = list(it)
    assert [b.label[0].asnumpy().tolist() for b in batches] == epochs
    for batch in batches:
        colours = batch.data[0].asnumpy()
        np.testing.assert_array_equal(
            colours, 10 * batch.label[0].asnumpy()[:, None, None, None] + 0 * colours
        )
    assert [b.pad for b in batches] == [0, 0, 2][: len(epochs)]
    it.reset()
    first = [8, 9, 0, 1] if last == "roll_over" else [0, 1, 2, 3]
    assert it.next().label[0].asnumpy().tolist() == first
    it.hard_reset()
    assert it.next().label[0].asnumpy().tolist() == [0, 1, 2, 3]


def test_image_iter_shuffles_and_parts(folder):
    index = sources(folder)[1]
    random.seed(1)
    it = mx.image.ImageIter(5, (3, 16, 16), shuffle=True, **index)
    labels = np.concatenate([b.label[0].asnumpy() for b in it])
    assert sorted(labels) == list(range(10)) and list(labels) != sorted(labels)
    part = mx.image.ImageIter(5, (3, 16, 16), num_parts=2, part_index=1, **index)
    assert part.next().label[0].asnumpy().tolist() == [5, 6, 7, 8, 9]
    with pytest.raises(ValueError, match="need path_imgidx"):
        mx.image.ImageIter(5, (3, 16, 16), shuffle=True, **sources(folder)[0])


def test_broken_image_is_named(folder):
    (folder / "3.png").write_bytes(b"nothing")
    it = mx.image.ImageIter(4, (3, 16, 16), **sources(folder)[3])
    with pytest.raises(RuntimeError, match="Broken image filename: 3.png"):
        it.next()


def test_image_det_iter(folder):
    label = [4, 5, 7, 9, 0, 0.25, 0.5, 0.75, 1.0]
    items = [[label + ([1, 0.1, 0.1, 0.2, 0.2] if i % 2 else []), f"{i}.png"] for i in range(10)]
    it = mx.image.ImageDetIter(
        4, (3, 16, 16), imglist=items, path_root=str(folder), aug_list=None, rand_mirror=True
    )
    assert it.label_shape == (2, 5)
    batch = it.next()
    boxes = batch.label[0].asnumpy()
    assert boxes.shape == (4, 2, 5)
    np.testing.assert_allclose(boxes[0, 0], [0, 0.25, 0.5, 0.75, 1.0])  # symmetric
    assert (boxes[[0, 2], 1] == -1).all() and (boxes[[1, 3], 1, 0] == 1).all()
    short = mx.image.ImageDetIter(
        4, (3, 16, 16), imglist=items[::2], path_root=str(folder), aug_list=None
    )
    assert it.sync_label_shape(short).label_shape == (2, 5)
    short.reshape(label_shape=(4, 5))
    assert short.next().label[0].shape == (4, 4, 5)
    with pytest.raises(ValueError, match="reduce label count"):
        short.reshape(label_shape=(1, 5))
    drawn = next(short.draw_next(color=(255, 0, 0), thickness=1))
    assert drawn.dtype == np.uint8 and (drawn == [0, 0, 255]).all(axis=2).any()
