"""What the real MXNet infers from partly unknown shapes. Run by its Python, it writes the fixture
of tests/graph/test_partial_shapes.py:

    mxnet/python -W ignore tests/oracle/partial_shapes.py tests/fixtures/partial_shapes.json

A case is an expression over `sym` and variables, and what is given of the variables' whole shapes:
one size less, all batch sizes less, one variable less; and the same with the output held to its
whole shape by an elementwise sum. Left out (null) are errors of MXNet, whose rules of some
operators refuse unknown sizes, and answers that contradict the whole shapes, where a rule of MXNet
computes with the 0 of an unknown size.
"""

from __future__ import annotations

import json
import sys

# expression: whole shapes of its variables
CASES = {}


def add(expression: str, **shapes):
    CASES[expression] = shapes


for _op in ("relu", "sigmoid", "exp", "negative", "square", "softmax", "log_softmax", "BlockGrad",
            "identity", "zeros_like", "ones_like", "sign", "Dropout", "SoftmaxActivation",
            "MakeLoss", "gamma", "logical_not", "shuffle"):  # fmt: skip
    add(f"sym.{_op}(x)", x=(4, 6))
for _op in ("elemwise_add", "elemwise_sub", "elemwise_mul", "elemwise_div", "add_n", "maximum",
            "minimum", "power", "hypot", "_equal", "_greater", "_mod"):  # fmt: skip
    _call = f"sym.{_op}" if not _op.startswith("_") else f"getattr(sym._internal, {_op!r})"
    add(f"{_call}(x, y)", x=(4, 6), y=(4, 6))
add("sym.add_n(x, y, z)", x=(4, 6), y=(4, 6), z=(4, 6))
add("x + y * z", x=(4, 6), y=(4, 6), z=(4, 6))
add("(x - 1) / 2 > 0.5", x=(4, 6))
add("sym.Activation(x, act_type='tanh')", x=(4, 6, 2))
add("sym.LeakyReLU(x, act_type='leaky')", x=(4, 6, 2))
add("sym.LeakyReLU(x, act_type='elu')", x=(4, 6))
add("sym.LeakyReLU(x, y, act_type='prelu')", x=(4, 6, 2), y=(6,))
add("sym.clip(x, 0, 1)", x=(4, 6))
add("sym.Cast(x, dtype='float64')", x=(4, 6))
add("sym.smooth_l1(x, scalar=1.0)", x=(4, 6))
for _op in ("add", "mul", "maximum", "equal", "power"):
    add(f"sym.broadcast_{_op}(x, y)", x=(4, 6), y=(4, 6))
    add(f"sym.broadcast_{_op}(x, y) ", x=(4, 1, 5), y=(1, 6, 5))
add("sym.broadcast_to(x, shape=(4, 6))", x=(1, 6))
add("sym.broadcast_axis(x, axis=0, size=4)", x=(1, 6))
add("sym.broadcast_like(x, y)", x=(1, 6), y=(4, 6))
add("sym.where(x, y, z)", x=(4, 6), y=(4, 6), z=(4, 6))
add("sym.FullyConnected(x, num_hidden=8, name='f')", x=(4, 6))
add("sym.FullyConnected(x, num_hidden=8, name='f') ", x=(4, 6, 2, 3))
add("sym.FullyConnected(x, num_hidden=8, no_bias=True, name='f')", x=(4, 6))
add("sym.FullyConnected(x, num_hidden=8, flatten=False, name='f')", x=(4, 6, 5))
add("sym.FullyConnected(x, y, z, num_hidden=8)", x=(4, 6), y=(8, 6), z=(8,))
add("sym.dot(x, y)", x=(4, 6), y=(6, 5))
add("sym.dot(x, y, transpose_a=True)", x=(6, 4), y=(6, 5))
add("sym.dot(x, y, transpose_b=True)", x=(4, 6), y=(5, 6))
add("sym.batch_dot(x, y)", x=(2, 4, 6), y=(2, 6, 5))
add("sym.batch_dot(x, y, transpose_a=True)", x=(2, 6, 4), y=(2, 6, 5))
add("sym.batch_dot(x, y, transpose_b=True)", x=(2, 4, 6), y=(2, 5, 6))
add("sym.linalg.gemm2(x, y)", x=(2, 4, 6), y=(2, 6, 5))
for _more in ("", ", stride=(2, 2)", ", pad=(1, 1)", ", dilate=(2, 2)", ", no_bias=True",
              ", num_group=3", ", stride=(2, 1), pad=(1, 0)"):  # fmt: skip
    add(f"sym.Convolution(x, kernel=(3, 3), num_filter=6{_more}, name='c')", x=(2, 3, 9, 8))
    add(f"sym.Deconvolution(x, kernel=(3, 3), num_filter=6{_more}, name='c')", x=(2, 3, 9, 8))
add("sym.Convolution(x, kernel=(3,), num_filter=6, name='c')", x=(2, 3, 9))
add("sym.Convolution(x, kernel=(2, 3, 3), num_filter=6, name='c')", x=(2, 3, 4, 9, 8))
add("sym.Convolution(x, y, z, kernel=(3, 3), num_filter=6)", x=(2, 3, 9, 8), y=(6, 3, 3, 3), z=(6,))
for _more in ("", ", stride=(2, 2)", ", pad=(1, 1)", ", pool_type='avg'",
              ", stride=(2, 2), pooling_convention='full'"):  # fmt: skip
    add(f"sym.Pooling(x, kernel=(3, 3){_more})", x=(2, 3, 9, 8))
add("sym.Pooling(x, global_pool=True, pool_type='avg')", x=(2, 3, 9, 8))
add("sym.Pooling(x, kernel=(3,))", x=(2, 3, 9))
add("sym.UpSampling(x, scale=2, sample_type='nearest')", x=(2, 3, 4, 5))
for _axis in (0, 1, 2):
    _y = tuple(5 if i == _axis else n for i, n in enumerate((4, 6, 2)))
    add(f"sym.Concat(x, y, dim={_axis})", x=(4, 6, 2), y=_y)
add("sym.Concat(x, y, z, dim=1)", x=(4, 6), y=(4, 5), z=(4, 3))
add("sym.stack(x, y, axis=1)", x=(4, 6), y=(4, 6))
add("sym.stack(x, y, z)", x=(4, 6), y=(4, 6), z=(4, 6))
add("sym.slice(x, begin=(1, 2), end=(3, 5))", x=(4, 6))
add("sym.slice(x, begin=(None, 2), end=(None, 5))", x=(4, 6))
add("sym.slice_axis(x, axis=1, begin=1, end=4)", x=(4, 6, 2))
add("sym.slice_axis(x, axis=1, begin=1, end=None)", x=(4, 6, 2))
add("sym.slice_axis(x, axis=-1, begin=-2, end=None)", x=(4, 6, 2))
add("sym.slice_like(x, y)", x=(4, 6), y=(3, 2))
add("sym.slice_like(x, y, axes=(1,))", x=(4, 6), y=(3, 2))
for _k in (0, 1, 2):
    add(f"sym.SliceChannel(x, num_outputs=3, axis=1)[{_k}]", x=(4, 6, 2))
add("sym.SliceChannel(x, num_outputs=2, axis=0, squeeze_axis=True)[0]", x=(2, 6, 2))
add("sym.split_v2(x, 3, axis=1)[1]", x=(4, 6, 2))
add("sym.split_v2(x, (2, 3), axis=1)[2]", x=(4, 6, 2))
for _shape in ("(-1, 12)", "(0, -1)", "(0, 0, -1)", "(-2,)", "(-3, 0)", "(0, -3)", "(-1,)", "(48,)",
               "(0, -4, 2, 3, 0)", "(-4, 2, -1, -2)", "(4, 12)", "(0, 12)", "(-1, 0, 2)",
               "(0, -2)", "(2, 2, 0, -1)", "(-3, -1)"):  # fmt: skip
    add(f"sym.Reshape(x, shape={_shape})", x=(4, 6, 2))
for _shape in ("(-1, 0)", "(0, -1)", "(-1, 0, 0)", "(-3, 0)"):
    add(f"sym.Reshape(x, shape={_shape}, reverse=True)", x=(4, 6, 2))
add("sym.Flatten(x)", x=(4, 6, 2))
add("sym.reshape_like(x, y)", x=(4, 6), y=(8, 3))
add("sym.transpose(x)", x=(4, 6, 2))
add("sym.transpose(x, axes=(1, 2, 0))", x=(4, 6, 2))
add("sym.SwapAxis(x, dim1=0, dim2=2)", x=(4, 6, 2))
add("sym.expand_dims(x, axis=1)", x=(4, 6))
add("sym.expand_dims(x, axis=-1)", x=(4, 6))
add("sym.squeeze(x, axis=1)", x=(4, 1, 6))
add("sym.squeeze(x)", x=(4, 1, 6))
add("sym.tile(x, reps=(2, 3))", x=(4, 6))
add("sym.repeat(x, repeats=2, axis=1)", x=(4, 6))
add("sym.flip(x, axis=1)", x=(4, 6))
add("sym.Pad(x, mode='constant', pad_width=(0, 0, 0, 0, 1, 2, 3, 4))", x=(2, 3, 4, 5))
add("sym.depth_to_space(x, block_size=2)", x=(2, 8, 3, 4))
add("sym.space_to_depth(x, block_size=2)", x=(2, 3, 4, 6))
for _op in ("sum", "mean", "max", "prod", "norm", "argmax", "nansum"):
    add(f"sym.{_op}(x, axis=1)", x=(4, 6, 2))
    add(f"sym.{_op}(x, axis=1, keepdims=True)", x=(4, 6, 2))
add("sym.sum(x)", x=(4, 6, 2))
add("sym.sum(x, axis=(0, 2))", x=(4, 6, 2))
add("sym.sum(x, axis=0, exclude=True)", x=(4, 6, 2))
add("sym.BatchNorm(x, name='b')", x=(4, 6, 2, 3))
add("sym.BatchNorm(x, axis=-1, name='b')", x=(4, 6, 2, 3))
add("sym.BatchNorm(x, y, z, name='b')", x=(4, 6), y=(6,), z=(6,))
add("sym.LayerNorm(x, name='b')", x=(4, 6, 2))
add("sym.LayerNorm(x, axis=1, name='b')", x=(4, 6, 2))
add("sym.InstanceNorm(x, name='b')", x=(4, 6, 2))
add("sym.GroupNorm(x, num_groups=2, name='b')", x=(4, 6, 2))
add("sym.L2Normalization(x)", x=(4, 6, 2))
add("sym.LRN(x, nsize=3)", x=(4, 6, 2, 3))
add("sym.Embedding(x, input_dim=9, output_dim=5, name='e')", x=(4, 6))
add("sym.take(x, y)", x=(4, 6), y=(2, 3))
add("sym.take(x, y, axis=1)", x=(4, 6), y=(2, 3))
add("sym.batch_take(x, y)", x=(4, 6), y=(4,))
add("sym.pick(x, y, axis=1)", x=(4, 6), y=(4,))
add("sym.one_hot(x, depth=5)", x=(4, 6))
add("sym.gather_nd(x, y)", x=(4, 6), y=(2, 3))
add("sym.topk(x, k=2, axis=1)", x=(4, 6))
add("sym.sort(x, axis=1)", x=(4, 6))
add("sym.argsort(x, axis=1)", x=(4, 6))
add("sym.RNN(x, y, z, state_size=8, num_layers=1, mode='rnn_tanh')",
    x=(5, 2, 3), y=(104,), z=(1, 2, 8))  # fmt: skip
add("sym.RNN(x, state_size=8, num_layers=1, mode='lstm', name='r')", x=(5, 2, 3))
add("sym.RNN(x, state_size=8, num_layers=2, bidirectional=True, mode='gru', name='r')", x=(5, 2, 3))
add("sym.SequenceMask(x, y, use_sequence_length=True)", x=(5, 2, 3), y=(2,))
add("sym.SequenceLast(x)", x=(5, 2, 3))
add("sym.SequenceReverse(x)", x=(5, 2, 3))
add("sym.SoftmaxOutput(x, name='s')", x=(4, 6))
add("sym.SoftmaxOutput(x, multi_output=True, name='s')", x=(4, 6, 2))
add("sym.SoftmaxOutput(x, preserve_shape=True, name='s')", x=(4, 6, 2))
add("sym.SoftmaxOutput(x, y)", x=(4, 6), y=(4,))
for _op in ("LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput"):
    add(f"sym.{_op}(x, name='s')", x=(4, 6))
    add(f"sym.{_op}(x, y)", x=(4, 6), y=(4, 6))
    add(f"sym.{_op}(x, y) ", x=(4, 1), y=(4,))
add("sym.SVMOutput(x, name='s')", x=(4, 6))
add("sym.softmax_cross_entropy(x, y)", x=(4, 6), y=(4,))
add("sym.CTCLoss(x, y)", x=(5, 2, 4), y=(2, 3))
add("sym.Crop(x, y, num_args=2)", x=(2, 3, 8, 8), y=(2, 3, 5, 6))
add("sym.ROIPooling(x, y, pooled_size=(2, 2), spatial_scale=1.0)", x=(2, 3, 8, 8), y=(4, 5))
add("sym.BilinearSampler(x, y)", x=(2, 3, 8, 8), y=(2, 2, 5, 6))
add("sym.GridGenerator(x, transform_type='affine', target_shape=(5, 6))", x=(2, 6))
add("sym.contrib.MultiBoxPrior(x, sizes=(0.5,))", x=(2, 3, 4, 5))
add("sym.contrib.AdaptiveAvgPooling2D(x, output_size=3)", x=(2, 3, 8, 8))
add("sym.contrib.BilinearResize2D(x, height=4, width=5)", x=(2, 3, 8, 8))
add("sym.contrib.box_iou(x, y)", x=(4, 4), y=(5, 4))
add("sym.diag(x)", x=(4, 6))
add("sym.khatri_rao(x, y)", x=(4, 6), y=(3, 6))
add("sym.scatter_nd(x, y, shape=(5, 6))", x=(3,), y=(2, 3))
add("sym._internal._arange(start=0, stop=6) + x", x=(6,))
add("sym.zeros((0, 6)) + x", x=(4, 6))
add("sym.ones((4, 0)) * x", x=(4, 6))
# several operators
add("sym.relu(sym.FullyConnected(x, num_hidden=8, name='f')) + y", x=(4, 6), y=(4, 8))
_CONV = "sym.Convolution(x, kernel=(3, 3), num_filter=4, name='c')"
_POOL = f"sym.Pooling({_CONV}, kernel=(2, 2), stride=(2, 2))"
add(f"sym.FullyConnected(sym.Flatten({_POOL}), num_hidden=5, name='f')", x=(2, 3, 9, 8))
add("sym.Concat(sym.relu(x), y + 1, dim=1)", x=(4, 6), y=(4, 5))
add("sym.Reshape(x, shape=(0, -1)) + y", x=(4, 6, 2), y=(4, 12))
add("sym.transpose(x) + y", x=(4, 6), y=(6, 4))
add("sym.expand_dims(x, axis=0) + y", x=(4, 6), y=(1, 4, 6))
add("sym.slice_axis(x, axis=0, begin=0, end=1) * y", x=(4, 6), y=(1, 6))
add("sym.SoftmaxOutput(sym.FullyConnected(x, num_hidden=8, name='f'), y)", x=(4, 6), y=(4,))
add("sym.dot(sym.relu(x), y) + z", x=(4, 6), y=(6, 5), z=(4, 5))
add("sym.Concat(*[sym.Reshape(v, shape=(-1,)) for v in (x, y)], dim=0) + z",
    x=(4, 6), y=(2, 3), z=(30,))  # fmt: skip
for _cell in ("RNNCell(8, prefix='c_')", "LSTMCell(8, prefix='c_')", "GRUCell(8, prefix='c_')"):
    add(f"mx.rnn.{_cell}(x, mx.rnn.{_cell}.begin_state())[0]", x=(4, 6))
    add(f"mx.rnn.{_cell}.unroll(1, x, merge_outputs=True)[0]", x=(4, 1, 6))
    add(f"mx.rnn.{_cell}.unroll(3, x, merge_outputs=True)[0]", x=(4, 3, 6))


def masks(shapes: dict):
    """What is given: all; less one size; less the first size of all; less a variable."""
    yield dict(shapes)
    for name, shape in shapes.items():
        for i in range(len(shape)):
            yield {**shapes, name: (*shape[:i], 0, *shape[i + 1 :])}
        if len(shape) > 1:
            yield {**shapes, name: (0,) * len(shape)}
        yield {k: v for k, v in shapes.items() if k != name}
    if len(shapes) > 1:
        yield {k: (0, *v[1:]) for k, v in shapes.items()}


def build(mx, expression: str, shapes: dict, like=None):
    """The symbol of a case, with its output held to a shape."""
    with mx.name.NameManager():
        names = {n: mx.sym.Variable(n) for n in shapes}
        made = eval(expression, {"mx": mx, "sym": mx.sym, **names})
        if like is not None:
            made = mx.sym.elemwise_add(made[0], mx.sym.Variable("like", shape=tuple(like)))
    return made


def is_true(found, truth) -> bool:
    """Are the known sizes of shapes (of arguments, outputs, auxiliary states) the true ones?"""
    return all(
        not shape or len(shape) == len(whole) and all(n in (0, w) for n, w in zip(shape, whole))
        for group, wholes in zip(found, truth)
        for shape, whole in zip(group, wholes)
    )


def main(path: str):
    import mxnet as mx

    groups, counts = [], {"true": 0, "untrue": 0, "refused": 0}
    for expression, shapes in CASES.items():
        s = build(mx, expression, shapes)
        whole = s.infer_shape(**shapes)
        if whole[0] is None:
            raise SystemExit(f"{expression}: MXNet does not infer it from {shapes}")
        held = build(mx, expression, shapes, whole[1][0])
        for like, symbol in ((None, s), (whole[1][0], held)):
            truth = symbol.infer_shape(**shapes)
            truth = truth if truth[0] else symbol.infer_shape_partial(**shapes)
            answers = []
            for given in masks(shapes):
                try:
                    found = symbol.infer_shape_partial(**given)
                    kind = "true" if is_true(found, truth) else "untrue"
                except mx.MXNetError:
                    kind = "refused"
                counts[kind] += 1
                answers.append([given, found if kind == "true" else None])
            groups.append([expression, shapes, like, truth, answers])
    with open(path, "w") as out:
        lines = [json.dumps(g, separators=(",", ":")) for g in groups]
        out.write("[\n" + ",\n".join(lines) + "\n]\n")
    print(len(CASES), "expressions, answers:", counts)


if __name__ == "__main__":
    main(sys.argv[1])
