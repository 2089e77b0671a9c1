"""Images resampled on a grid: GridGenerator, BilinearSampler, SpatialTransformer; and Correlation
of two images."""

from __future__ import annotations

from typing import Any

from ...engine.error import OperatorError, ShapeError
from ..record import REACH, Array, Param, Shape, Type, operator, sample, uniform
from ..shapes import float_dtype, must_be
from ..traits import Decomposition
from .deformable import reading_windows
from .resize import images
from .sampling import corners, first_order, gather, scatter, slopes

# ---- GridGenerator -------------------------------------------------------------------------------


def _target(op, target_shape):
    if len(target_shape) != 2 or min(target_shape) < 1:
        raise OperatorError(op, f"target_shape must be two positive numbers, got {target_shape}")
    return tuple(target_shape)


def _affine_shape(op, name, t, target_shape):
    if len(t.shape) != 2 or t.shape[1] != 6:
        raise ShapeError(op, f"{name} must be (N, 6) for an affine transform, got {t.shape}")
    return (t.shape[0], 2, *_target(op, target_shape))


def _grid_infer(ins, transform_type, target_shape):
    t = ins[0]
    float_dtype("GridGenerator", ins, ("data",))
    if transform_type == "affine":
        return [Type(_affine_shape("GridGenerator", "data", t, target_shape), t.dtype)]
    shape = images("GridGenerator", "data", t)
    if shape[1] != 2:
        raise ShapeError("GridGenerator", f"data must be (N, 2, H, W) for a warp, got {shape}")
    return [t]


def _line(xp, n, dtype):
    """n places from -1 to 1; one place is the middle."""
    return -1 + xp.arange(n).astype(dtype) * (2 / (n - 1)) if n > 1 else xp.zeros(1, dtype)


def _half(xp, shape, dtype):
    """Half the distance between the centres of the border pixels, for x and y: (2, 1, 1)."""
    half = [(n - 1) / 2 if n > 1 else 1.0 for n in shape[:1:-1]]
    return xp.asarray(half).reshape(2, 1, 1).astype(dtype)


def _homogeneous(xp, target_shape, dtype):
    """(3, H W): x, y and 1 of every pixel."""
    h, w = target_shape
    x = xp.broadcast_to(_line(xp, w, dtype), (h, w))
    y = xp.broadcast_to(_line(xp, h, dtype)[:, None], (h, w))
    return xp.stack([x, y, xp.ones((h, w), dtype)]).reshape(3, h * w)


def _affine_grid(xp, theta, target_shape):
    grid = theta.reshape(-1, 2, 3) @ _homogeneous(xp, target_shape, theta.dtype)
    return grid.reshape(-1, 2, *target_shape)


def _grid_ref(xp, data, transform_type, target_shape):
    if transform_type == "affine":
        return _affine_grid(xp, data, target_shape)
    h, w = data.shape[2:]
    x = xp.broadcast_to(xp.arange(w), (h, w))
    y = xp.broadcast_to(xp.arange(h)[:, None], (h, w))
    return (data + xp.stack([x, y]).astype(data.dtype)) / _half(xp, data.shape, data.dtype) - 1


def _line_of(F, n):
    return F._linspace(start=-1.0 if n > 1 else 0.0, stop=1.0, num=n)


def _points_of(F, h, w):
    """(3, H W): x, y and 1 of every pixel, float32."""
    x = F.broadcast_to(F.reshape_to(_line_of(F, w), shape=(1, w)), shape=(h, w))
    y = F.broadcast_to(F.reshape_to(_line_of(F, h), shape=(h, 1)), shape=(h, w))
    rows = [F.reshape_to(v, shape=(1, h * w)) for v in (x, y)]
    return F.Concat(*rows, F._ones(shape=(1, h * w)), dim=0)


def _grid_body(F, data, transform_type, target_shape):
    if data.dtype == "float64" or 0 in data.shape:
        return None
    if transform_type == "affine":
        n, (h, w) = data.shape[0], target_shape
        grid = F.dot(F.reshape_to(data, shape=(2 * n, 3)), _points_of(F, h, w))
        return [F.reshape_to(grid, shape=(n, 2, h, w))]
    h, w = data.shape[2:]
    y = F.broadcast_to(F.reshape_to(F._arange(start=h), shape=(1, h, 1)), shape=(1, h, w))
    x = F.broadcast_to(F.reshape_to(F._arange(start=w), shape=(1, 1, w)), shape=(1, h, w))
    moved = F.broadcast_add(data, F.Concat(x, y, dim=0))
    return [F._minus_scalar(F.broadcast_mul(moved, _per_half(F, h, w)), scalar=1.0)]


def _per_half(F, h, w):
    """One by half the distance between the border pixels, for x and y: (2, 1, 1)."""
    parts = [F._full(shape=(1, 1, 1), value=2 / (n - 1) if n > 1 else 1.0) for n in (w, h)]
    return F.Concat(*parts, dim=0)


def _transformer_body(F, data, loc, *, target_shape, **_):
    if data.dtype == "float64" or 0 in (*data.shape, *loc.shape):
        return None
    (grid,) = _grid_body(F, loc, "affine", target_shape)
    return [F.BilinearSampler(data, grid), grid]


def _grid_back_body(F, dy, transform_type, target_shape):
    n, _, h, w = dy.shape
    if dy.dtype == "float64" or 0 in dy.shape:
        return None
    if transform_type == "affine":
        found = F.dot(F.reshape_to(dy, shape=(2 * n, h * w)), _points_of(F, h, w), transpose_b=True)
        return [F.reshape_to(found, shape=(n, 6))]
    return [F.broadcast_mul(dy, _per_half(F, h, w))]


def _grid_grad(F, dys, xs, ys, **attrs):
    return [F._grid_grad(dys[0], **attrs)]


_KINDS = ("affine", "warp")
_TARGET = Param("target_shape", "shape", (0, 0))

operator(
    "GridGenerator",
    params=(Param("transform_type", _KINDS), _TARGET),
    infer=_grid_infer,
    ref=_grid_ref,
    traits=(Decomposition(_grid_body),),
    grad=_grid_grad,
    samples=(
        sample((2, 6), transform_type="affine", target_shape=(3, 4)),
        sample((2, 2, 3, 4), transform_type="warp"),
    ),
    doc=(
        "The grid (N, 2, H, W) of x and y, -1 to 1 from border to border, at which BilinearSampler"
        " reads. affine: data (N, 6) holds the rows of a 2 x 3 matrix for (x, y, 1) of every pixel"
        " of target_shape; warp: data (N, 2, H, W) is a flow in pixels."
    ),
)


def _grid_back_infer(ins, transform_type, target_shape):
    shape = images("_grid_grad", "dy", ins[0])
    if shape[1] != 2:
        raise ShapeError("_grid_grad", f"dy must be (N, 2, H, W), got {shape}")
    return [Type((shape[0], 6) if transform_type == "affine" else shape, ins[0].dtype)]


def _grid_back_ref(xp, dy, transform_type, target_shape):
    if transform_type == "affine":
        h, w = dy.shape[2:]
        points = _homogeneous(xp, (h, w), dy.dtype)
        return (dy.reshape(-1, 2, h * w) @ points.T).reshape(-1, 6)
    return dy / _half(xp, dy.shape, dy.dtype)


def _grid_back_grad(F, dys, xs, ys, transform_type, target_shape):
    a = dys[0]
    if transform_type == "affine":
        return [F.GridGenerator(a, transform_type="affine", target_shape=xs[0].shape[2:])]
    return [F._grid_grad(a, transform_type=transform_type)]


operator(
    "_grid_grad",
    inputs=("dy",),
    params=(Param("transform_type", _KINDS), _TARGET),
    infer=_grid_back_infer,
    ref=_grid_back_ref,
    traits=(Decomposition(_grid_back_body),),
    grad=_grid_back_grad,
    samples=(
        sample((2, 2, 3, 4), transform_type="affine", target_shape=(3, 4)),
        sample((2, 2, 3, 4), transform_type="warp"),
    ),
    doc="Gradient of GridGenerator with respect to its data.",
)


# ---- BilinearSampler -----------------------------------------------------------------------------


def _check_sampled(op, data, grid):
    n, c, _, _ = images(op, "data", data)
    shape = images(op, "grid", grid)
    if shape[:2] != (n, 2):
        raise ShapeError(op, f"grid must be (N, 2, H, W) for data {data.shape}, got {grid.shape}")
    if 0 in data.shape[2:]:
        raise ShapeError(op, f"data must not be empty, got {data.shape}")
    return (n, c, *shape[2:]), float_dtype(op, (data, grid), ("data", "grid"))


def _places(xp, grid, shape):
    """(batch, y, x) of every place of a grid over planes of this shape, in pixels."""
    height, width = shape[2:]
    n, _, h, w = grid.shape
    x = (grid[:, 0] + 1) * ((width - 1) / 2)
    y = (grid[:, 1] + 1) * ((height - 1) / 2)
    return xp.repeat(xp.arange(n), h * w), y.reshape(-1), x.reshape(-1)


def _points(xp, images_):
    """(N, C, H, W) as (N H W, C)."""
    return xp.moveaxis(images_, 1, -1).reshape(-1, images_.shape[1])


def _images(xp, points, shape):
    """(N H W, C) as (N, C, H, W)."""
    n, c, h, w = shape
    return xp.moveaxis(points.reshape(n, h, w, c), -1, 1)


def _sampler_ref(xp, data, grid, **_):
    batch, y, x = _places(xp, grid, data.shape)
    c = corners(xp, y, x, *data.shape[2:])
    return _images(xp, gather(xp, data, batch, c), (*data.shape[:2], *grid.shape[2:]))


operator(
    "BilinearSampler",
    inputs=("data", "grid"),
    params=(Param("cudnn_off", "bool?", None),),
    infer=lambda ins, cudnn_off: [Type(*_check_sampled("BilinearSampler", *ins))],
    ref=_sampler_ref,
    grad=lambda F, dys, xs, ys, cudnn_off: list(F._bilinear_sampler_grad(dys[0], *xs)),
    samples=(
        sample((2, 3, 4, 5), uniform((2, 2, 3, 2), -1.3, 1.3)),
        sample((1, 2, 5, 4), uniform((1, 2, 2, 6), -0.9, 0.9)),
    ),
    doc=(
        "data (N, C, H, W) read at grid (N, 2, H', W'): x and y from -1 to 1 across the centres of"
        " the border pixels; what lies outside is 0. Gradients of both. Source: Jaderberg et al."
        " 2015, arXiv:1506.02025."
    ),
)


def _sampler_back_infer(ins):
    dy, data, grid = ins
    shape, _ = _check_sampled("_bilinear_sampler_grad", data, grid)
    must_be("_bilinear_sampler_grad", "dy", dy, shape)
    return [data, grid]


def _sampler_back_ref(xp, dy, data, grid):
    batch, y, x = _places(xp, grid, data.shape)
    height, width = data.shape[2:]
    c = corners(xp, y, x, height, width)
    points = _points(xp, dy)
    along_y, along_x = slopes(xp, points, data, batch, c)
    dgrid = xp.stack([along_x * ((width - 1) / 2), along_y * ((height - 1) / 2)], axis=1)
    n, _, h, w = grid.shape
    return scatter(xp, points, data.shape, batch, c), _images(xp, dgrid, (n, 2, h, w))


operator(
    "_bilinear_sampler_grad",
    inputs=("dy", "data", "grid"),
    n_outputs=2,
    output_names=("ddata", "dgrid"),
    infer=_sampler_back_infer,
    ref=_sampler_back_ref,
    grad=first_order("BilinearSampler"),
    samples=(sample((2, 3, 3, 2), (2, 3, 4, 5), uniform((2, 2, 3, 2), -1.3, 1.3)),),
    doc="Gradients of BilinearSampler with respect to data and grid.",
)


# ---- SpatialTransformer --------------------------------------------------------------------------


def _transformer_infer(ins, target_shape, **_):
    op = "SpatialTransformer"
    data, loc = ins
    grid = Type(_affine_shape(op, "loc", loc, target_shape), loc.dtype)
    return [Type(*_check_sampled(op, data, grid)), grid]


def _transformer_ref(xp, data, loc, *, target_shape, **_):
    grid = _affine_grid(xp, loc, target_shape)
    return _sampler_ref(xp, data, grid), grid


def _transformer_grad(F, dys, xs, ys, target_shape, **_):
    ddata, dgrid = F._bilinear_sampler_grad(dys[0], xs[0], ys[1])
    return [ddata, F._grid_grad(dgrid, transform_type="affine", target_shape=target_shape)]


operator(
    "SpatialTransformer",
    inputs=("data", "loc"),
    params=(
        _TARGET,
        Param("transform_type", ("affine",)),
        Param("sampler_type", ("bilinear",)),
        Param("cudnn_off", "bool?", None),
    ),
    n_outputs=2,
    n_visible=1,
    output_names=("output", "grid"),
    infer=_transformer_infer,
    ref=_transformer_ref,
    traits=(Decomposition(_transformer_body),),
    grad=_transformer_grad,
    samples=(
        sample(
            (2, 3, 4, 5),
            uniform((2, 6), -0.8, 0.8),
            target_shape=(3, 4),
            transform_type="affine",
            sampler_type="bilinear",
        ),
    ),
    doc=(
        "BilinearSampler of data (N, C, H, W) on the grid that GridGenerator makes of the affine"
        " transforms loc (N, 6). Source: Jaderberg et al. 2015, arXiv:1506.02025."
    ),
)


# ---- Correlation ---------------------------------------------------------------------------------

_CORRELATION = "Correlation"


def _shifts(max_displacement, stride2):
    reach = max_displacement // stride2
    return [i * stride2 for i in range(-reach, reach + 1)]


def _correlation_size(shape, kernel_size, max_displacement, stride1, stride2, pad_size, **_):
    """(rows, columns) of the output. Raises OperatorError."""
    if kernel_size % 2 == 0 or kernel_size < 1:
        raise OperatorError(_CORRELATION, f"kernel_size must be odd, got {kernel_size}")
    if min(stride1, stride2) < 1 or min(max_displacement, pad_size) < 0:
        raise OperatorError(
            _CORRELATION,
            "stride1 and stride2 must be positive, max_displacement and pad_size not negative, got"
            f" {stride1}, {stride2}, {max_displacement}, {pad_size}",
        )
    border = max_displacement + kernel_size // 2
    size = tuple(-(-(n + 2 * pad_size - 2 * border) // stride1) for n in shape[2:])
    if min(size) < 1:
        raise ShapeError(
            _CORRELATION,
            f"data must be larger than twice max_displacement + kernel_size // 2 = {border}, less"
            f" twice pad_size = {pad_size}; got {shape}",
        )
    return size


def _correlation_infer(ins, **attrs):
    a, b = ins
    images(_CORRELATION, "data1", a)
    must_be(_CORRELATION, "data2", b, a.shape)
    dtype = float_dtype(_CORRELATION, ins, ("data1", "data2"))
    size = _correlation_size(a.shape, **attrs)
    n = len(_shifts(attrs["max_displacement"], attrs["stride2"])) ** 2
    return [Type((a.shape[0], n, *size), dtype)]


class _Windows:
    """Where Correlation reads the padded arrays."""

    def __init__(
        self,
        shape: Shape,
        kernel_size: int,
        max_displacement: int,
        stride1: int,
        stride2: int,
        pad_size: int,
        **_: Any,
    ):
        self.size = _correlation_size(
            shape, kernel_size, max_displacement, stride1, stride2, pad_size
        )
        self.kernel, self.pad, self.start = kernel_size, pad_size, max_displacement
        self.stride, self.step = stride1, stride2
        self.n = len(_shifts(max_displacement, stride2))  # shifts along an axis
        self.reach = (self.n // 2) * stride2
        # the last window may begin beyond what the padding holds
        self.grown = tuple(
            max(0, max_displacement * 2 + kernel_size + (o - 1) * stride1 - n - 2 * pad_size)
            for n, o in zip(shape[2:], self.size)
        )

    def padded(self, xp: Any, x: Array) -> Array:
        p, (h, w) = self.pad, self.grown
        return xp.pad(x, ((0, 0), (0, 0), (p, p + h), (p, p + w)))

    def patches(self, xp: Any, x: Array) -> Array:
        """(N, C, 1, 1, H', W', k, k): the patches that are not shifted."""
        found = windows(xp, x, (self.kernel,) * 2)
        at = (
            slice(self.start, self.start + (o - 1) * self.stride + 1, self.stride)
            for o in self.size
        )
        return found[(..., None, None, *at, slice(None), slice(None))]

    def shifted_patches(self, xp: Any, x: Array) -> Array:
        """(N, C, shifts, shifts, H', W', k, k)."""
        rows, columns = ((o - 1) * self.stride + 1 for o in self.size)
        found = xp.moveaxis(windows(xp, x, (self.kernel,) * 2), (4, 5), (2, 3))
        first, last = self.start - self.reach, self.start + self.reach
        at = slice(first, last + 1, self.step)
        found = windows(xp, found, (rows, columns), (4, 5))[..., at, at, :, :]
        found = found[..., :: self.stride, :: self.stride]
        return xp.moveaxis(found, (2, 3), (6, 7))

    def shifted(self, xp: Any, x: Array) -> Array:
        """(N, C, shifts, shifts, H, W): x moved against each shift, zeros beyond it."""
        r = self.reach
        wide = xp.pad(x, ((0, 0), (0, 0), (r, r), (r, r)))
        return windows(xp, wide, x.shape[2:])[:, :, :: self.step, :: self.step]

    def spread(self, xp: Any, dy: Array, shape: Shape) -> Array:
        """(N, shifts, shifts, H, W): for each place of the padded data the sum of dy over the
        patches that hold it."""
        at: list = []
        there: Any = True
        for axis, (n, o) in enumerate(zip(shape[2:], self.size)):
            window, ok = reading_windows(xp, n, self.kernel, o, self.stride, -self.start, 1)
            own = (self.kernel, 1, n, 1) if axis == 0 else (1, self.kernel, 1, n)
            at.append(window.reshape(own))
            there = there & ok.reshape(own)
        found = dy[(slice(None), slice(None), slice(None), *at)]
        return xp.where(there, found, 0).sum(axis=(3, 4), dtype=dy.dtype)

    def unshifted(self, xp: Any, x: Array) -> Array:
        """(N, shifts, shifts, H, W) of which each shift is moved along."""
        r, (h, w) = self.reach, x.shape[3:]
        wide = xp.pad(x, ((0, 0), (0, 0), (0, 0), (r, r), (r, r)))
        i = xp.arange(self.n)
        back = (self.n - 1 - i) * self.step
        rows = (back[:, None] + xp.arange(h)).reshape(-1, 1, h, 1)
        columns = (back[:, None] + xp.arange(w)).reshape(1, -1, 1, w)
        return wide[:, i.reshape(-1, 1, 1, 1), i.reshape(1, -1, 1, 1), rows, columns]

    def cropped(self, x: Array, shape: Shape) -> Array:
        return x[:, :, self.pad : self.pad + shape[2], self.pad : self.pad + shape[3]]


def windows(xp: Any, x: Array, size: Shape, axes: Shape = (2, 3)) -> Array:
    return xp.lib.stride_tricks.sliding_window_view(x, tuple(size), axes)


def _correlation_ref(xp, a, b, *, is_multiply, kernel_size, **attrs):
    win = _Windows(a.shape, kernel_size, **attrs)
    u = win.patches(xp, win.padded(xp, a))
    v = win.shifted_patches(xp, win.padded(xp, b))
    y = (u * v if is_multiply else xp.abs(u - v)).sum(axis=(1, 6, 7))
    y = y / (kernel_size * kernel_size * a.shape[1])
    return y.reshape(a.shape[0], win.n * win.n, *win.size)


_CORRELATION_PARAMS = (
    Param("kernel_size", "int", 1, limits=REACH),
    Param("max_displacement", "int", 1, limits=REACH),
    Param("stride1", "int", 1, limits=REACH),
    Param("stride2", "int", 1, limits=REACH),
    Param("pad_size", "int", 0, limits=REACH),
    Param("is_multiply", "bool", True),
)

operator(
    _CORRELATION,
    inputs=("data1", "data2"),
    params=_CORRELATION_PARAMS,
    infer=_correlation_infer,
    ref=_correlation_ref,
    grad=lambda F, dys, xs, ys, **attrs: list(F._correlation_grad(dys[0], *xs, **attrs)),
    samples=(
        sample((2, 3, 4, 5), (2, 3, 4, 5)),
        sample((1, 2, 5, 6), (1, 2, 5, 6), kernel_size=3, stride1=2, pad_size=2),
        sample(
            (1, 2, 4, 5), (1, 2, 4, 5), max_displacement=2, stride2=2, pad_size=2, is_multiply=False
        ),
    ),
    doc=(
        "How well patches (kernel_size square) of data1 fit those of data2 shifted by up to"
        " max_displacement in steps of stride2: output (N, shifts, H', W'), mean over the patch and"
        " the channels of products or, without is_multiply, of absolute differences. Source:"
        " Dosovitskiy et al. 2015, arXiv:1504.06852."
    ),
)


def _correlation_back_infer(ins, **attrs):
    dy, a, b = ins
    must_be("_correlation_grad", "dy", dy, _correlation_infer([a, b], **attrs)[0].shape)
    return [a, b]


def _correlation_back_ref(xp, dy, a, b, *, is_multiply, kernel_size, **attrs):
    win = _Windows(a.shape, kernel_size, **attrs)
    pa, pb = win.padded(xp, a), win.padded(xp, b)
    dy = dy / (kernel_size * kernel_size * a.shape[1])
    dy = win.spread(xp, dy.reshape(a.shape[0], win.n, win.n, *win.size), pa.shape)
    back = win.unshifted(xp, dy)[:, None]
    there, here = win.shifted(xp, pb), win.shifted(xp, pa)[:, :, ::-1, ::-1]
    if not is_multiply:
        there = xp.where(pa[:, :, None, None] >= there, 1, -1).astype(dy.dtype)
        here = xp.where(here >= pb[:, :, None, None], -1, 1).astype(dy.dtype)
    da, db = ((g * x).sum(axis=(2, 3)) for g, x in ((dy[:, None], there), (back, here)))
    return win.cropped(da, a.shape), win.cropped(db, b.shape)


operator(
    "_correlation_grad",
    inputs=("dy", "data1", "data2"),
    n_outputs=2,
    params=_CORRELATION_PARAMS,
    output_names=("ddata1", "ddata2"),
    infer=_correlation_back_infer,
    ref=_correlation_back_ref,
    grad=first_order(_CORRELATION),
    samples=(
        sample((2, 9, 2, 3), (2, 3, 4, 5), (2, 3, 4, 5)),
        sample(
            (1, 9, 2, 2),
            (1, 2, 5, 6),
            (1, 2, 5, 6),
            kernel_size=3,
            stride1=2,
            pad_size=1,
            is_multiply=False,
        ),
    ),
    doc="Gradients of Correlation with respect to data1 and data2.",
)
