"""Transforms of images and their operators, against NumPy and known properties."""

import numpy as np
import plait as mx
import pytest
from plait.gluon.data.vision import transforms as T
from plait.kernels.ops.image_resize import resize_matrix

nd = mx.nd
rng = np.random.default_rng(0)
IMAGE = rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)


def array(values):
    return nd.array(values, dtype=values.dtype)


def test_to_tensor_and_normalize():
    for x in (IMAGE, np.stack([IMAGE, IMAGE])):
        y = T.ToTensor()(array(x))
        assert y.dtype == np.float32
        np.testing.assert_allclose(y.asnumpy(), np.moveaxis(x, -1, -3) / np.float32(255), rtol=1e-6)
        z = T.Normalize((0.1, 0.2, 0.3), (0.5, 1, 2))(y)
        mean, std = (
            np.array(v, np.float32).reshape(3, 1, 1) for v in ((0.1, 0.2, 0.3), (0.5, 1, 2))
        )
        np.testing.assert_allclose(z.asnumpy(), (y.asnumpy() - mean) / std, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        T.Normalize(0.5, 2.0)(y).asnumpy(), (y.asnumpy() - 0.5) / 2, rtol=1e-6
    )
    np.testing.assert_array_equal(T.Normalize()(y).asnumpy(), y.asnumpy())


def test_compose_cast_and_numpy_images():
    net = T.Compose([T.Cast("float32"), T.ToTensor(), T.Normalize(0.5, 0.5)])
    want = (np.moveaxis(IMAGE, -1, 0) / 255 - 0.5) / 0.5
    np.testing.assert_allclose(net(array(IMAGE)).asnumpy(), want, atol=1e-5)
    np.testing.assert_allclose(net(IMAGE).asnumpy(), want, atol=1e-5)
    assert len(net) == 3


def test_gradients_reach_images():
    x = nd.array(IMAGE.astype("float32"))
    x.attach_grad()
    with mx.autograd.record():
        y = T.Normalize((0.0,) * 3, (1.0, 2.0, 4.0))(T.ToTensor()(T.CropResize(1, 2, 3, 4)(x)))
    y.backward()
    want = np.zeros((6, 8, 3))
    want[2:6, 1:4] = 1 / 255 / np.array([1.0, 2.0, 4.0])
    np.testing.assert_allclose(x.grad.asnumpy(), want, rtol=1e-5)


@pytest.mark.parametrize("interp", [0, 1, 2, 3, 4])
def test_resizing_keeps_constants_and_the_identity(interp):
    flat = nd.full((5, 7, 3), 13.0)
    np.testing.assert_allclose(
        nd._image_resize(flat, size=(11, 4), interp=interp).asnumpy(), 13.0, rtol=1e-5
    )
    same = nd._image_resize(array(IMAGE), size=(8, 6), interp=interp)
    np.testing.assert_array_equal(same.asnumpy(), IMAGE)


def test_resizing_values():
    ramp = np.arange(4, dtype="float32").reshape(1, 4, 1)
    halves = nd._image_resize(nd.array(ramp), size=(2, 1), interp=3).asnumpy().ravel()
    np.testing.assert_allclose(halves, [0.5, 2.5])  # area: means of two
    double = nd._image_resize(nd.array(ramp), size=(8, 1), interp=1).asnumpy().ravel()
    # half-pixel centres
    np.testing.assert_allclose(double, [0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3])
    nearest = nd._image_resize(nd.array(ramp), size=(8, 1), interp=0).asnumpy().ravel()
    np.testing.assert_array_equal(nearest, [0, 0, 1, 1, 2, 2, 3, 3])
    np.testing.assert_allclose(resize_matrix(9, 4, 2).sum(axis=1), 1, rtol=1e-6)


def test_sizes():
    x = array(IMAGE)  # height 6, width 8
    assert T.Resize((4, 5))(x).shape == (5, 4, 3)
    assert T.Resize(4)(x).shape == (4, 4, 3)
    assert T.Resize(3, keep_ratio=True)(x).shape == (3, 4, 3)
    assert T.Resize(3)(array(np.stack([IMAGE] * 2))).shape == (2, 3, 3, 3)
    assert T.CenterCrop((4, 2))(x).shape == (2, 4, 3)
    np.testing.assert_array_equal(T.CenterCrop((4, 2))(x).asnumpy(), IMAGE[2:4, 2:6])
    assert T.CenterCrop(12)(x).shape == (12, 12, 3)
    np.testing.assert_array_equal(T.CropResize(1, 2, 3, 4)(x).asnumpy(), IMAGE[2:6, 1:4])
    assert T.CropResize(1, 2, 3, 4, size=(5, 6))(x).shape == (6, 5, 3)
    assert T.RandomResizedCrop((5, 7))(x).shape == (7, 5, 3)


def outcomes(transform, x, n=40):
    return [transform(array(x)).asnumpy() for _ in range(n)]


@pytest.mark.parametrize(
    "transform, axis", [(T.RandomFlipLeftRight(), 1), (T.RandomFlipTopBottom(), 0)]
)
def test_flips_happen_half_of_the_time(transform, axis):
    mx.random.seed(1)
    flipped = [np.array_equal(y, np.flip(IMAGE, axis)) for y in outcomes(transform, IMAGE)]
    kept = [np.array_equal(y, IMAGE) for y in outcomes(transform, IMAGE)]
    assert 10 < sum(flipped) < 30 and 10 < sum(kept) < 30
    np.testing.assert_array_equal(nd._image_flip_left_right(array(IMAGE)).asnumpy(), IMAGE[:, ::-1])


def test_colour_operators():
    x = rng.random((3, 4, 3)).astype("float32") * 255
    grey = (x * np.array([0.299, 0.587, 0.114], "float32")).sum(-1, keepdims=True)

    def run(name, factor, values=x):
        return getattr(nd, "_image_random_" + name)(
            array(values), min_factor=factor, max_factor=factor
        ).asnumpy()

    np.testing.assert_allclose(run("brightness", 0.3), x * 0.3, rtol=1e-5)
    np.testing.assert_allclose(run("contrast", 0.3), x * 0.3 + 0.7 * grey.mean(), rtol=1e-4)
    np.testing.assert_allclose(run("saturation", 0.3), x * 0.3 + 0.7 * grey, rtol=1e-4)
    np.testing.assert_allclose(run("saturation", 0.0), np.broadcast_to(grey, x.shape), rtol=1e-4)
    np.testing.assert_allclose(run("hue", 1.0), x, rtol=1e-3, atol=1e-2)
    np.testing.assert_allclose(run("hue", 1 / 3), x[..., [2, 0, 1]], rtol=1e-3, atol=1e-2)
    assert (
        run("brightness", 3.0, IMAGE).max() == 255
        and run("brightness", 3.0, IMAGE).dtype == np.uint8
    )
    np.testing.assert_allclose(nd._image_adjust_lighting(array(x), alpha=(0, 0, 0)).asnumpy(), x)
    shift = nd._image_adjust_lighting(array(x), alpha=(1, 0, 0)).asnumpy() - x
    np.testing.assert_allclose(
        shift[0, 0], [55.46 * v for v in (-0.5675, -0.5808, -0.5836)], rtol=1e-3
    )


@pytest.mark.parametrize(
    "transform",
    [
        T.RandomBrightness(0.5),
        T.RandomContrast(0.5),
        T.RandomSaturation(0.5),
        T.RandomHue(0.5),
        T.RandomColorJitter(0.4, 0.4, 0.4, 0.4),
        T.RandomLighting(0.5),
        T.RandomResizedCrop((8, 6)),
    ],
)
def test_random_transforms_vary_and_repeat_with_the_seed(transform):
    mx.random.seed(2)
    first = outcomes(transform, IMAGE, 4)
    mx.random.seed(2)
    again = outcomes(transform, IMAGE, 4)
    assert all(a.shape == IMAGE.shape and a.dtype == np.uint8 for a in first)
    assert all(np.array_equal(a, b) for a, b in zip(first, again))
    assert not all(np.array_equal(first[0], a) for a in first)


def test_nothing_changes_at_amount_zero():
    for transform in (T.RandomBrightness(0), T.RandomColorJitter(), T.RandomLighting(0.0)):
        np.testing.assert_array_equal(transform(array(IMAGE)).asnumpy(), IMAGE)


def test_random_apply():
    mx.random.seed(4)
    done = [
        not np.array_equal(y, IMAGE)
        for y in outcomes(T.RandomApply(T.CropResize(0, 0, 4, 4), 0.3), IMAGE)
    ]
    assert 4 < sum(done) < 22
    assert T.RandomApply([T.ToTensor(), T.Normalize(0.5, 1.0)], p=1.0)(array(IMAGE)).shape == (
        3,
        6,
        8,
    )


def test_rotation():
    x = rng.random((2, 5, 5)).astype("float32")
    np.testing.assert_allclose(
        T.Rotate(90)(nd.array(x)).asnumpy(), np.rot90(x, axes=(1, 2)), atol=1e-5
    )
    np.testing.assert_allclose(T.Rotate(0)(nd.array(x)).asnumpy(), x, atol=1e-6)
    ones = nd.ones((1, 9, 9))
    assert T.Rotate(45)(ones).asnumpy()[0, 0, 0] == 0  # the padding shows
    np.testing.assert_allclose(T.Rotate(45, zoom_in=True)(ones).asnumpy(), 1, atol=1e-5)
    assert T.Rotate(45, zoom_out=True)(ones).asnumpy().sum() < T.Rotate(45)(ones).asnumpy().sum()
    mx.random.seed(0)
    angles = {T.RandomRotation((-30, 30))(nd.array(x)).asnumpy().tobytes() for _ in range(3)}
    assert len(angles) == 3
    np.testing.assert_array_equal(
        T.RandomRotation((-30, 30), rotate_with_proba=0)(nd.array(x)).asnumpy(), x
    )


@pytest.mark.parametrize(
    "wrong, message",
    [
        (
            lambda: T.ToTensor()(nd.ones((3, 4))),
            r"data must be \(H, W, C\) or \(N, H, W, C\), got \(3, 4\)",
        ),
        (
            lambda: T.Normalize((1, 2), 1)(nd.ones((3, 4, 4))),
            "mean must have 1 or channels = 3 values, got 2",
        ),
        (lambda: T.Normalize(0, 0)(nd.ones((3, 4, 4))), "std must not hold 0"),
        (
            lambda: T.CropResize(5, 0, 4, 4)(array(IMAGE)),
            "the crop must lie inside the image of width 8 and height 6",
        ),
        (lambda: T.Resize(0)(array(IMAGE)), "size must be one or two positive numbers"),
        (
            lambda: T.Resize(3, interpolation=9)(array(IMAGE)),
            "interp must be one of 0, 1, 2, 3, 4, got 9",
        ),
        (lambda: T.RandomHue(0.1)(nd.ones((4, 4, 2))), "data must have 1 or 3 channels, got 2"),
        (lambda: T.CenterCrop(3)(nd.ones((4, 4))), r"CenterCrop: data must be \(H, W, C\)"),
        (lambda: T.Rotate(10)(array(IMAGE)), "images must be float32"),
        (lambda: T.Rotate(10, True, True), "cannot be both True"),
        (lambda: T.RandomRotation((3, 1)), "must be an ordered tuple"),
    ],
)
def test_wrong_use(wrong, message):
    with pytest.raises((mx.MXNetError, ValueError, TypeError), match=message):
        wrong()
