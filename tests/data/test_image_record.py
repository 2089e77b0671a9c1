"""Record iterators of images against results of MXNet 1.9.1 (fixtures/image_record.npz)."""

import inspect
import json
import os
import random
from pathlib import Path

import numpy as np
import plait as mx
import pytest
from plait.data.io.records import RecordFile

FIXTURE = Path(__file__).resolve().parent.parent / "fixtures" / "image_record.npz"
# what iterators were asked for, beside files, data_shape (3, 16, 16) and batch_size 4
CASES = {
    "plain": {},
    "normalised": dict(
        mean_r=123.0, mean_g=116.0, mean_b=103.0, std_r=58.0, std_g=57.0, std_b=56.0, scale=0.5
    ),
    "mirrored": dict(mirror=True),
    "resized": dict(resize=18),
    "area": dict(resize=17, inter_method=3),
    "turned": dict(rotate=30, fill_value=7),
    "enlarged": dict(max_random_scale=1.5, min_random_scale=1.5),
    "stretched": dict(max_aspect_ratio=1.5, min_aspect_ratio=1.5),
    "largest": dict(max_img_size=20.0),
    "padded": dict(pad=3, data_shape=(3, 28, 28)),
    "squares": dict(max_crop_size=18, min_crop_size=18),
    "whole": dict(random_resized_crop=True, min_random_area=1.0, max_random_area=1.0),
    "small": dict(data_shape=(3, 28, 20)),
    "bytes": dict(dtype="uint8"),
    "int8": dict(dtype="int8"),
    "listed": dict(path_imglist="LIST"),
    "part": dict(num_parts=2, part_index=1),
    "part_by_bytes": dict(num_parts=2, part_index=1, path_imgidx=""),
    "text": dict(data_shape="(3, 16, 16)", batch_size="4", mirror="True"),
}
DETECTION = {
    "det": {},
    "det_padded": dict(label_pad_width=30, label_pad_value=-3.0),
    "det_fit": dict(resize_mode="fit"),
    "det_shrink": dict(resize_mode="shrink", data_shape=(3, 30, 28)),
    "det_mirrored": dict(rand_mirror_prob=1.0),
    "det_normalised": dict(mean_r=10.0, mean_g=20.0, mean_b=30.0, std_r=2.0, scale=0.5),
}
EPOCHS = 3


def arguments(name, folder):
    """Keywords of a case."""
    detection = name in DETECTION
    chosen = {**CASES, **DETECTION}[name]
    files = {"path_imgrec": f"{folder}/{'det' if detection else 'images'}.rec"}
    if not detection:
        files["path_imgidx"] = f"{folder}/images.idx"
    found = {**files, "data_shape": (3, 16, 16), "batch_size": 4, **chosen}
    if "path_imglist" in found:
        found["path_imglist"] = f"{folder}/images.lst"
    return found


def results(mx, folder):
    """(name, array): the first batch of each case, and labels and pads of three epochs of one."""
    for name in (*CASES, *DETECTION):
        make = mx.io.ImageDetRecordIter if name in DETECTION else mx.io.ImageRecordIter
        batch = make(preprocess_threads=2, **arguments(name, folder)).next()
        yield f"{name}_data", batch.data[0][:2].asnumpy()
        yield f"{name}_label", batch.label[0].asnumpy()
        yield f"{name}_pad", np.array(batch.pad)
    it, epochs = mx.io.ImageRecordIter(**arguments("plain", folder)), []
    for _ in range(EPOCHS):
        epochs.append([(b.label[0].asnumpy().tolist(), b.pad) for b in it])
        it.reset()
    yield "epochs", np.array(json.dumps(epochs))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("records")
    stored = np.load(FIXTURE)
    for name in ("images.rec", "images.idx", "images.lst", "det.rec"):
        (where / name).write_bytes(stored[name].tobytes())
    return where


def test_as_mxnet(folder):
    expected = np.load(FIXTURE)
    for name, found in results(mx, folder):
        want = expected[name]
        if name == "epochs":
            assert found == want
            continue
        assert found.shape == want.shape, name
        if name.endswith("_data"):
            far = np.abs(found.astype(np.float64) - want)
            assert far.max() <= 1 and (far > 0.06).mean() < 0.03, name
        else:
            np.testing.assert_allclose(found, want, atol=1e-6, err_msg=name)


def labels(it):
    return np.concatenate([b.label[0].asnumpy()[: 4 - b.pad] for b in it]).tolist()


def test_short_batch_and_reset_in_the_middle(folder):
    it = mx.io.ImageRecordIter(round_batch=False, **arguments("plain", folder))
    batches = list(it)
    assert [b.pad for b in batches] == [0, 2]
    assert (batches[1].data[0].asnumpy()[2:] == 0).all()
    it.reset()
    it.next()
    it.reset()
    assert labels(it) == [0, 1, 2, 3, 4, 5]


def test_shuffle_repeats_by_seed_and_differs_by_epoch(folder):
    def epochs(seed):
        it = mx.io.ImageRecordIter(
            shuffle=True, seed=seed, round_batch=False, **arguments("plain", folder)
        )
        found = [labels(it)]
        for _ in range(3):
            it.reset()
            found.append(labels(it))
        return found

    first = epochs(5)
    assert first == epochs(5) and all(sorted(e) == [0, 1, 2, 3, 4, 5] for e in first)
    assert any(e != first[0] for e in first)


def test_augmentation_repeats_whatever_the_threads(folder):
    chosen = dict(
        rand_crop=True, rand_mirror=True, brightness=0.3, contrast=0.3, saturation=0.3,
        pca_noise=0.1, random_h=30, random_s=30, random_l=30, max_rotate_angle=20,
        max_random_contrast=0.2, max_random_illumination=5.0, inter_method=10,
        max_shear_ratio=0.1,
    )  # fmt: skip

    def data(threads, seed):
        it = mx.io.ImageRecordIter(
            preprocess_threads=threads, seed_aug=seed, **chosen, **arguments("plain", folder)
        )
        return np.concatenate([b.data[0].asnumpy() for b in it])

    one = data(1, 3)
    np.testing.assert_array_equal(one, data(4, 3))
    assert np.abs(one - data(1, 4)).max() > 5
    mx.random.seed(7)
    first = data(1, None)
    mx.random.seed(7)
    np.testing.assert_array_equal(first, data(1, None))


def test_colour_changes_keep_what_they_should(folder):
    """A change by +-0 in hue, saturation, lightness gives the image back (within rounding)."""
    from plait.data.io.augmentation import shifted_hls

    image = np.random.RandomState(0).randint(0, 256, (9, 9, 3)).astype(np.uint8)
    assert np.abs(shifted_hls(image, 0, 0, 0).astype(int) - image).max() <= 6  # hue: 2 degrees
    grey = shifted_hls(image, 0, 0, -255)
    assert (grey.max(axis=2) - grey.min(axis=2) == 0).all()
    white = shifted_hls(image, 0, 255, 0)
    assert (white == 255).all()


def test_mean_image_is_made_and_read(folder, tmp_path):
    path = str(tmp_path / "mean.bin")
    made = mx.io.ImageRecordIter(mean_img=path, **arguments("plain", folder)).next()
    mean = mx.nd.load(path)["mean_img"].asnumpy()
    plain = mx.io.ImageRecordIter(round_batch=False, **arguments("plain", folder))
    images = np.concatenate([b.data[0].asnumpy()[: 4 - b.pad] for b in plain])
    np.testing.assert_allclose(mean, images.mean(axis=0), atol=1e-3)
    np.testing.assert_allclose(made.data[0].asnumpy(), images[:4] - mean, atol=1e-3)
    again = mx.io.ImageRecordIter(mean_img=path, **arguments("plain", folder)).next()
    np.testing.assert_array_equal(again.data[0].asnumpy(), made.data[0].asnumpy())


def test_large_jpeg_is_decoded_small(tmp_path):
    image = np.kron(np.arange(100, dtype=np.uint8).reshape(10, 10, 1) * 2, np.ones((80, 80, 3)))
    record = mx.recordio.MXIndexedRecordIO(str(tmp_path / "a.idx"), str(tmp_path / "a.rec"), "w")
    packed = mx.recordio.pack_img(mx.recordio.IRHeader(0, 1.0, 0, 0), image.astype(np.uint8))
    record.write_idx(0, packed)
    record.close()
    it = mx.io.ImageRecordIter(
        path_imgrec=str(tmp_path / "a.rec"), data_shape=(3, 50, 50), batch_size=1, resize=50
    )
    found = it.next().data[0].asnumpy()[0, :, 2::5, 2::5]
    expected = np.broadcast_to(np.arange(100).reshape(10, 10) * 2.0, (3, 10, 10))
    np.testing.assert_allclose(found, expected, atol=3)


def test_detection_crops_and_pads_keep_objects_on_their_pixels(tmp_path):
    """Objects are painted in their class's colour: after any augmentation the middle of a box has
    it."""
    rng = random.Random(0)
    record = mx.recordio.MXIndexedRecordIO(str(tmp_path / "d.idx"), str(tmp_path / "d.rec"), "w")
    for i in range(8):
        image, objects = np.zeros((60, 80, 3), np.uint8), []
        for kind in (1, 2):
            x, y = rng.uniform(0.4 * (kind - 1), 0.4 * (kind - 1) + 0.1), rng.uniform(0, 0.5)
            objects += [kind, x, y, x + 0.4, y + 0.4]
            image[int(y * 60) : int((y + 0.4) * 60), int(x * 80) : int((x + 0.4) * 80)] = 100 * kind
        header = mx.recordio.IRHeader(0, [2, 5, *objects], i, 0)
        record.write_idx(i, mx.recordio.pack_img(header, image, quality=9, img_fmt=".png"))
    record.close()
    it = mx.io.ImageDetRecordIter(
        path_imgrec=str(tmp_path / "d.rec"), data_shape=(3, 60, 60), batch_size=8, seed_aug=1,
        rand_crop_prob=0.9, min_crop_scales=0.4, max_crop_scales=0.9, min_crop_object_coverages=0.5,
        min_crop_aspect_ratios=0.5, max_crop_aspect_ratios=2.0, rand_pad_prob=0.5,
        max_pad_scale=1.6, rand_mirror_prob=0.5, crop_emit_mode="overlap", emit_overlap_thresh=0.4,
    )  # fmt: skip
    n_objects = 0
    for _ in range(4):
        it.reset()
        batch = it.next()
        for image, label in zip(batch.data[0].asnumpy(), batch.label[0].asnumpy()):
            assert label[:3].tolist() == [3, 60, 60] and label[3] in (7, 12)
            for kind, x1, y1, x2, y2 in label[6 : 4 + int(label[3])].reshape(-1, 5):
                middle = image[0, int((y1 + y2) * 30), int((x1 + x2) * 30)]
                assert abs(middle - 100 * kind) < 30
                n_objects += 1
    assert n_objects > 40


@pytest.mark.parametrize(
    "keywords, message",
    [
        (dict(path_imgrec=""), "path_imgrec must name"),
        (dict(path_imgrec="/no/such.rec"), "cannot open '/no/such.rec'"),
        (dict(data_shape=(4, 8, 8)), "1 or 3 channels"),
        (dict(label_width=2), "label_width is 2, but the record 100 has 1 labels"),
        (dict(part_index=3), "part_index must be in"),
        (dict(dtype="float16"), "dtype must be one of"),
        (dict(inter_method=7), "invalid inter_method 7"),
        (dict(random_resized_crop=True, rand_crop=True), "random_resized_crop conflicts"),
        (dict(max_random_scale=0.5), "min_random_scale = 1.0 is above"),
        (dict(rand_crop="perhaps"), "rand_crop must be bool"),
    ],
)
def test_errors(folder, keywords, message):
    with pytest.raises((mx.MXNetError, ValueError), match=message):
        mx.io.ImageRecordIter(**{**arguments("plain", folder), **keywords})


def test_missing_and_unknown_parameters(folder):
    with pytest.raises(TypeError, match="'data_shape' is required"):
        mx.io.ImageRecordIter(path_imgrec="x.rec", batch_size=2)
    with pytest.warns(UserWarning, match="ignores colour"):
        mx.io.ImageRecordIter(colour=3, **arguments("plain", folder))
    names = inspect.signature(mx.io.ImageRecordIter).parameters
    assert names["rand_mirror"].default is False and names["resize"].default == -1
    assert "rand_mirror" in mx.io.ImageRecordIter.__doc__


def test_cut_off_file(folder, tmp_path):
    whole = (folder / "images.rec").read_bytes()
    path = tmp_path / "cut.rec"
    path.write_bytes(whole[:-10])
    with pytest.raises(mx.MXNetError, match="is cut off"):
        mx.io.ImageRecordIter(path_imgrec=str(path), data_shape=(3, 16, 16), batch_size=2)
    path.write_bytes(whole[:20] + b"x" * 40 + whole[60:])
    with pytest.raises(mx.MXNetError, match="cannot decode"):
        mx.io.ImageRecordIter(path_imgrec=str(path), data_shape=(3, 16, 16), batch_size=6)


def test_a_file_that_is_cut_off_while_it_is_read_is_an_error(tmp_path):
    path = tmp_path / "a.rec"
    with mx.recordio.MXRecordIO(path, "w") as out:
        for _ in range(3):
            out.write(b"x" * 100000)
    file = RecordFile(path)
    second = file.starts()[1]
    os.truncate(path, second + 5000)
    with pytest.raises(mx.MXNetError, match=f"the frame at byte {second} is cut off: 100000 bytes"):
        file.read(second)
    assert file.read(0) == b"x" * 100000
