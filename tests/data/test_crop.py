"""Parts of images, copied at once: what the operator gives."""

import numpy as np
import plait as mx
import pytest
from plait import autograd
from plait.data.image.crop import cropped


@pytest.mark.parametrize("shape", [(7, 9, 3), (2, 7, 9, 1)])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "float16", "bfloat16"])
def test_equals_the_operator(shape, dtype):
    image = mx.nd.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    part = cropped(image, 2, 1, 5, 4)
    want = mx.nd.image.crop(image, 2, 1, 5, 4)
    assert part.shape == want.shape and part.dtype == want.dtype
    np.testing.assert_array_equal(
        part.astype("float32").asnumpy(), want.astype("float32").asnumpy()
    )
    assert (cropped(image, 0, 0, 9, 7) == image).asnumpy().all()


def test_outside_is_the_operators_error():
    with pytest.raises(mx.MXNetError, match="crop"):
        cropped(mx.nd.zeros((4, 4, 3)), 2, 0, 3, 3)


def test_a_gradient_goes_through():
    image = mx.nd.zeros((3, 3, 1))
    image.attach_grad()
    with autograd.record():
        part = cropped(image, 1, 1, 2, 1)
    part.backward()
    assert image.grad.asnumpy()[..., 0].tolist() == [[0, 0, 0], [0, 1, 1], [0, 0, 0]]


def test_it_does_not_change_with_the_image():
    image = mx.nd.zeros((3, 3, 1))
    part = cropped(image, 0, 0, 2, 2)
    image[:] = 1
    assert not part.asnumpy().any()
