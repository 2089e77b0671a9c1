"""Behaviours of neural-network operators that the tests derived from records cannot show."""

import itertools

import numpy as np
import plait as mx
import pytest
from plait import autograd, nd
from plait.engine.error import OperatorError, ShapeError
from plait.kernels.record import lookup
from plait.kernels.reference import generator, run_reference

rng = np.random.default_rng(3)


def array(*shape):
    return nd.array(rng.normal(size=shape))


def run(name, *arrays, train=False, seed=1, **attrs):
    """The reference of an operator on NumPy arrays: outputs, hidden ones too, then mutated
    inputs."""
    op = lookup(name)
    full = op.parse(attrs)
    if op.train_aware:
        full["train"] = train
    return run_reference(op, full, arrays, generator(seed, 0))


# BatchNorm


def batch_norm_arrays():
    return [nd.array(v) for v in ([1.0, 2.0], [0.5, -0.5], [0.1, 0.2], [2.0, 3.0])]


def test_batch_norm_training_moves_statistics():
    x, (gamma, beta, mean, var) = array(6, 2, 3), batch_norm_arrays()
    before_mean, before_var = mean.asnumpy(), var.asnumpy()
    with autograd.train_mode():
        y = nd.BatchNorm(x, gamma, beta, mean, var, fix_gamma=False, momentum=0.7, eps=1e-5)
    v = x.asnumpy()
    batch_mean, batch_var = v.mean(axis=(0, 2)), v.var(axis=(0, 2))
    expected = (v - batch_mean[:, None]) / np.sqrt(batch_var[:, None] + 1e-5) * [[1.0], [2.0]] + [
        [0.5],
        [-0.5],
    ]
    np.testing.assert_allclose(y.asnumpy(), expected, atol=1e-5)
    np.testing.assert_allclose(mean.asnumpy(), 0.7 * before_mean + 0.3 * batch_mean, atol=1e-6)
    np.testing.assert_allclose(var.asnumpy(), 0.7 * before_var + 0.3 * batch_var, atol=1e-6)


def test_batch_norm_reference_moves_statistics_too():
    x, one = rng.normal(size=(6, 2, 3)), np.ones(2)
    *_, mean, var = run("BatchNorm", x, one, one, 2 * one, 3 * one, train=True, momentum=0.7)
    np.testing.assert_allclose(mean, 0.7 * 2 + 0.3 * x.mean(axis=(0, 2)), rtol=1e-12)
    np.testing.assert_allclose(var, 0.7 * 3 + 0.3 * x.var(axis=(0, 2)), rtol=1e-12)


@pytest.mark.parametrize("train, use_global_stats", [(False, False), (True, True)])
def test_batch_norm_uses_moving_statistics(train, use_global_stats):
    x, (gamma, beta, mean, var) = array(4, 2, 3), batch_norm_arrays()
    with autograd.record(train_mode=train):
        y = nd.BatchNorm(x, gamma, beta, mean, var, use_global_stats=use_global_stats, eps=0.0)
    # gamma counts as 1
    expected = (x.asnumpy() - [[0.1], [0.2]]) / np.sqrt([[2.0], [3.0]]) + [[0.5], [-0.5]]
    np.testing.assert_allclose(y.asnumpy(), expected, atol=1e-5)
    np.testing.assert_array_equal(mean.asnumpy(), np.float32([0.1, 0.2]))
    np.testing.assert_array_equal(var.asnumpy(), np.float32([2.0, 3.0]))


def test_batch_norm_gives_inverse_deviation():
    x, (gamma, beta, mean, var) = array(4, 2), batch_norm_arrays()
    _, m, r = nd.BatchNorm(x, gamma, beta, mean, var, output_mean_var=True, eps=0.0)
    np.testing.assert_allclose(m.asnumpy(), [0.1, 0.2], atol=1e-7)
    np.testing.assert_allclose(r.asnumpy(), 1 / np.sqrt([2.0, 3.0]), rtol=1e-6)


def test_batch_norm_names_the_wrong_parameter():
    x, (gamma, beta, mean, var) = array(4, 3), batch_norm_arrays()
    with pytest.raises(ShapeError, match=r"gamma must have shape \(data.shape\[1\],\) = \(3,\)"):
        nd.BatchNorm(x, gamma, beta, mean, var)


# Dropout


def test_dropout_rate_scale_and_gradient():
    x = nd.ones((200, 500))
    x.attach_grad()
    with autograd.record():
        y = nd.Dropout(x, p=0.3)
    y.backward()
    values = y.asnumpy()
    assert abs((values == 0).mean() - 0.3) < 0.01
    np.testing.assert_allclose(values[values != 0], 1 / 0.7, rtol=1e-6)
    np.testing.assert_array_equal(x.grad.asnumpy(), values)


def test_dropout_is_identity_outside_training_unless_always():
    x = nd.ones((100,))
    np.testing.assert_array_equal(nd.Dropout(x, p=0.5).asnumpy(), x.asnumpy())
    assert (nd.Dropout(x, p=0.5, mode="always").asnumpy() == 0).any()


def test_dropout_axes_share_the_mask():
    y = nd.Dropout(nd.ones((4, 50, 3)), p=0.5, axes=(0, 2), mode="always").asnumpy()
    assert (y == y[:1, :, :1]).all() and len(np.unique(y)) == 2


def test_dropout_rejects_a_rate_above_one():
    with pytest.raises(OperatorError, match=r"p must be between 0 and 1, got 1.5"):
        nd.Dropout(nd.ones((2,)), p=1.5)


# RNN


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def cell(mode, x, h, c, w, u, b, bu):
    """One step of one cell, written as in the papers."""
    zx, zh = x @ w.T + b, h @ u.T + bu
    if mode == "lstm":
        i, f, g, o = np.split(zx + zh, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c
    if mode == "gru":
        (rx, zx, nx), (rh, zh, nh) = np.split(zx, 3, axis=1), np.split(zh, 3, axis=1)
        z = sigmoid(zx + zh)
        return (1 - z) * np.tanh(nx + sigmoid(rx + rh) * nh) + z * h, c
    return np.tanh(zx + zh) if mode == "rnn_tanh" else np.maximum(zx + zh, 0), c


GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def packed(mode, inputs, hidden, layers, directions):
    """Cells' arrays, and the packed vector: all weights first, then all biases."""
    rows, cells = GATES[mode] * hidden, []
    for layer in range(layers):
        k = inputs if layer == 0 else directions * hidden
        cells += [
            [rng.normal(size=s) * 0.5 for s in ((rows, k), (rows, hidden), (rows,), (rows,))]
            for _ in range(directions)
        ]
    parts = [a.ravel() for c in cells for a in c[:2]] + [a for c in cells for a in c[2:]]
    return cells, np.concatenate(parts)


@pytest.mark.parametrize("mode", GATES)
@pytest.mark.parametrize("lengths", [None, [4, 2]])
def test_rnn_equals_hand_written_cells(mode, lengths):
    steps, n, inputs, hidden, layers, directions = 4, 2, 3, 2, 2, 2
    cells, params = packed(mode, inputs, hidden, layers, directions)
    x = rng.normal(size=(steps, n, inputs))
    h0 = rng.normal(size=(layers * directions, n, hidden))
    c0 = rng.normal(size=h0.shape)
    below, last_h, last_c = x, [], []
    for layer in range(layers):
        sides = []
        for d in range(directions):
            i = layer * directions + d
            out = np.zeros((steps, n, hidden))
            last = [np.zeros((n, hidden)), np.zeros((n, hidden))]
            for e in range(n):  # every example alone, over its own length
                length = steps if lengths is None else lengths[e]
                h, c = h0[i, e : e + 1], c0[i, e : e + 1]
                for t in range(length)[::-1] if d else range(length):
                    h, c = cell(mode, below[t, e : e + 1], h, c, *cells[i])
                    out[t, e] = h[0]
                last[0][e], last[1][e] = h[0], c[0]
            sides.append(out)
            last_h.append(last[0])
            last_c.append(last[1])
        below = np.concatenate(sides, axis=2)
    arrays = [x, params, h0] + ([c0] if mode == "lstm" else [])
    arrays = [nd.array(a, dtype="float64") for a in arrays]
    extra = {}
    if lengths:
        arrays.append(nd.array(lengths, dtype="int32"))
        extra["use_sequence_length"] = True
    y, h, *c = nd.RNN(
        *arrays,
        mode=mode,
        state_size=hidden,
        num_layers=layers,
        bidirectional=True,
        state_outputs=True,
        **extra,
    )
    np.testing.assert_allclose(y.asnumpy(), below, atol=1e-12)
    np.testing.assert_allclose(h.asnumpy(), last_h, atol=1e-12)
    if c:
        np.testing.assert_allclose(c[0].asnumpy(), last_c, atol=1e-12)


def test_rnn_projection_equals_hand_written_cell():
    hidden, out, inputs = 3, 2, 4
    w, u, proj = (
        rng.normal(size=(12, inputs)),
        rng.normal(size=(12, out)),
        rng.normal(size=(out, hidden)),
    )
    b, bu = rng.normal(size=12), rng.normal(size=12)
    x, h, c = rng.normal(size=(3, 1, inputs)), np.zeros((1, out)), np.zeros((1, hidden))
    params = np.concatenate([a.ravel() for a in (w, u, proj, b, bu)])
    given = [nd.array(a, dtype="float64") for a in (x, params, h[None], c[None])]
    y = nd.RNN(*given, mode="lstm", state_size=hidden, num_layers=1, projection_size=out)
    for t in range(3):
        wide, c = cell("lstm", x[t], h, c, w, u, b, bu)
        h = wide @ proj.T
        np.testing.assert_allclose(y.asnumpy()[t], h, atol=1e-12)


def test_rnn_dropout_lies_between_layers_only():
    cells, params = packed("rnn_tanh", 3, 4, 2, 1)
    x, h0 = np.float32(rng.normal(size=(2, 3, 3))), np.zeros((2, 3, 4), "float32")
    y, reserve = run(
        "RNN",
        x,
        np.float32(params),
        h0,
        train=True,
        mode="rnn_tanh",
        state_size=4,
        num_layers=2,
        p=0.5,
    )
    mask = reserve[:24].reshape(2, 3, 4)
    assert set(np.unique(mask)) == {0.0, 2.0}
    below, above = np.zeros((3, 4)), np.zeros((3, 4))
    for t in range(2):
        below, _ = cell("rnn_tanh", x[t], below, None, *cells[0])
        above, _ = cell("rnn_tanh", below * mask[t], above, None, *cells[1])
        np.testing.assert_allclose(y[t], above, atol=1e-5)


def test_rnn_says_how_many_parameters_it_needs():
    with pytest.raises(ShapeError, match=r"parameters must have shape \(96,\), got \(95,\)"):
        nd.RNN(array(5, 2, 2), array(95), array(1, 2, 4), mode="gru", state_size=4, num_layers=1)


# CTCLoss


def ctc_by_enumeration(p, label, blank):
    """-log of the summed probability of every path that collapses to the label."""
    total = 0.0
    for path in itertools.product(range(p.shape[1]), repeat=p.shape[0]):
        collapsed = [k for k, _ in itertools.groupby(path) if k != blank]
        if collapsed == list(label):
            total += np.prod([p[t, k] for t, k in enumerate(path)])
    return -np.log(total)


@pytest.mark.parametrize("blank_label", ["first", "last"])
def test_ctc_sums_over_all_paths(blank_label):
    x = rng.normal(size=(5, 3, 4))
    p = np.exp(x) / np.exp(x).sum(axis=2, keepdims=True)
    if blank_label == "first":
        labels, padded, blank = [[1, 1], [2], [3, 1]], [[1, 1], [2, 0], [3, 1]], 0
    else:
        labels, padded, blank = [[0, 0], [2], [1, 0]], [[0, 0], [2, -1], [1, 0]], 3
    loss = nd.CTCLoss(nd.array(x), nd.array(padded), blank_label=blank_label).asnumpy()
    np.testing.assert_allclose(
        loss, [ctc_by_enumeration(p[:, i], labels[i], blank) for i in range(3)], rtol=1e-5
    )


def test_ctc_lengths():
    x = rng.normal(size=(5, 2, 3))
    p = np.exp(x) / np.exp(x).sum(axis=2, keepdims=True)
    loss = nd.CTCLoss(
        nd.array(x),
        nd.array([[1, 2], [2, 1]]),
        nd.array([4, 3]),
        nd.array([2, 1]),
        use_data_lengths=True,
        use_label_lengths=True,
    ).asnumpy()
    expected = [ctc_by_enumeration(p[:4, 0], [1, 2], 0), ctc_by_enumeration(p[:3, 1], [2], 0)]
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


# Loss layers


def test_softmax_output_ignores_the_head_gradient_unless_told():
    x, label, head = array(3, 4), nd.array([0, 2, 3]), array(3, 4)
    x.attach_grad()
    grads = []
    for out_grad in (False, True):
        with autograd.record():
            y = nd.SoftmaxOutput(x, label, out_grad=out_grad)
        y.backward(head)
        grads.append(x.grad.asnumpy())
    expected = y.asnumpy() - np.eye(4)[[0, 2, 3]]
    np.testing.assert_allclose(grads[0], expected, atol=1e-6)
    np.testing.assert_allclose(grads[1], expected * head.asnumpy(), atol=1e-6)


@pytest.mark.parametrize(
    "name, expected",
    [
        ("LinearRegressionOutput", lambda x, d: (x - d) / 4),
        ("LogisticRegressionOutput", lambda x, d: (sigmoid(x) - d) / 4),
        ("MAERegressionOutput", lambda x, d: np.sign(x - d) / 4),
    ],
)
def test_regression_outputs(name, expected):
    x, label = array(3, 4), array(3, 4)
    x.attach_grad()
    with autograd.record():
        y = getattr(nd, name)(x, label)
    y.backward(array(3, 4))
    np.testing.assert_allclose(x.grad.asnumpy(), expected(x.asnumpy(), label.asnumpy()), atol=1e-6)


def test_softmax_output_normalization_counts_valid_labels():
    x = array(4, 3)
    x.attach_grad()
    with autograd.record():
        y = nd.SoftmaxOutput(x, nd.array([0, -1, 2, -1]), use_ignore=True, normalization="valid")
    y.backward()
    expected = (y.asnumpy() - np.eye(3)[[0, 0, 2, 0]]) / 2
    expected[[1, 3]] = 0
    np.testing.assert_allclose(x.grad.asnumpy(), expected, atol=1e-6)


# Optimizers


def test_adam_sequence_equals_the_paper():
    w, target = np.float32([1.0, -2.0, 3.0]), np.float32([0.0, 0.5, 1.0])
    weight, mean, var = nd.array(w), nd.zeros((3,)), nd.zeros((3,))
    m = v = np.zeros(3)
    expected = w.astype("float64")
    for t in range(1, 6):
        g = expected - target
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        rate = 0.1 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        expected = expected - rate * m / (np.sqrt(v) + 1e-8)
        nd.adam_update(weight, weight - nd.array(target), mean, var, lr=rate, out=weight)
    np.testing.assert_allclose(weight.asnumpy(), expected, rtol=1e-5)
    np.testing.assert_allclose(mean.asnumpy(), m, rtol=1e-4)
    np.testing.assert_allclose(var.asnumpy(), v, rtol=1e-4)


def test_multi_precision_momentum_keeps_a_float32_weight():
    w32 = np.float32([1.0, 2.0, 3.0])
    weight, mom, master = nd.array(w32, dtype="float16"), nd.zeros((3,)), nd.array(w32)
    expected, m = w32.copy(), np.zeros(3, "float32")
    for _ in range(3):
        grad = np.float16([1e-4, 2e-4, -1e-4])
        nd.mp_sgd_mom_update(
            weight, nd.array(grad, dtype="float16"), mom, master, lr=0.1, momentum=0.9, out=weight
        )
        m = 0.9 * m - 0.1 * grad.astype("float32")
        expected = expected + m
    np.testing.assert_allclose(master.asnumpy(), expected, rtol=1e-6)
    np.testing.assert_array_equal(weight.asnumpy(), expected.astype("float16"))


def test_multi_tensor_update_equals_single_updates():
    shapes = [(3, 4), (5,)]
    given = [[rng.normal(size=s).astype("float32") for s in shapes] for _ in range(3)]
    w, g, m = ([nd.array(a) for a in arrays] for arrays in given)
    nd.multi_sgd_mom_update(
        w[0],
        g[0],
        m[0],
        w[1],
        g[1],
        m[1],
        lrs=(0.1, 0.2),
        wds=(0.0, 0.1),
        momentum=0.9,
        num_weights=2,
        out=w,
    )
    for i, (lr, wd) in enumerate(((0.1, 0.0), (0.2, 0.1))):
        ws, ms = nd.array(given[0][i]), nd.array(given[2][i])
        nd.sgd_mom_update(ws, nd.array(given[1][i]), ms, lr=lr, wd=wd, momentum=0.9, out=ws)
        np.testing.assert_array_equal(w[i].asnumpy(), ws.asnumpy())
        np.testing.assert_array_equal(m[i].asnumpy(), ms.asnumpy())


def test_multi_tensor_update_counts_its_arrays():
    with pytest.raises(OperatorError, match=r"needs 4 inputs \(weight_0, grad_0, .*\), got 3"):
        nd.multi_sgd_update(
            array(2), array(2), array(2), lrs=(0.1, 0.1), wds=(0.0, 0.0), num_weights=2
        )


# Random numbers


@pytest.mark.parametrize(
    "name, attrs, mean, var",
    [
        ("uniform", {"low": -1, "high": 3}, 1, 16 / 12),
        ("normal", {"loc": 2, "scale": 3}, 2, 9),
        ("exponential", {"lam": 4}, 1 / 4, 1 / 16),
        ("gamma", {"alpha": 3, "beta": 0.5}, 1.5, 0.75),
        ("poisson", {"lam": 4}, 4, 4),
        ("negative_binomial", {"k": 4, "p": 0.4}, 6, 15),
        ("generalized_negative_binomial", {"mu": 2, "alpha": 0.5}, 2, 4),
        ("randint", {"low": -2, "high": 3}, 0, 2),
    ],
)
def test_random_moments(name, attrs, mean, var):
    n = 100_000
    x = np.asarray(run("_random_" + name, shape=(n,), **attrs)[0], "float64")
    assert abs(x.mean() - mean) < 5 * np.sqrt(var / n)
    assert abs(x.var() / var - 1) < 0.05


def test_sample_takes_its_parameters_from_arrays():
    (y,) = run("_sample_normal", np.array([0.0, 100.0]), np.array([1.0, 0.1]), shape=(1000,))
    assert y.shape == (2, 1000)
    np.testing.assert_allclose(y.mean(axis=1), [0, 100], atol=0.2)
    np.testing.assert_allclose(y.std(axis=1), [1, 0.1], rtol=0.1)


def test_multinomial_frequencies_and_gradient():
    p = nd.array([[0.1, 0.9, 0.0], [0.5, 0.25, 0.25]])
    p.attach_grad()
    with autograd.record():
        index, log_prob = nd.sample_multinomial(p, shape=(4000,), get_prob=True)
    log_prob.backward()
    counts = np.stack([np.bincount(row, minlength=3) for row in index.asnumpy()])
    np.testing.assert_allclose(counts / 4000, p.asnumpy(), atol=0.04)
    chosen = np.where(counts > 0, counts / np.maximum(p.asnumpy(), 1e-20), 0)
    np.testing.assert_allclose(p.grad.asnumpy(), chosen, rtol=1e-4)


def test_shuffle_permutes_rows():
    x = np.arange(60).reshape(20, 3)
    y = nd.shuffle(nd.array(x)).asnumpy()
    assert (y != x).any() and sorted(map(tuple, y)) == sorted(map(tuple, x))


def test_a_seed_repeats_the_numbers():
    def draw():
        mx.random.seed(11)
        return [
            nd.random_normal(shape=(5,)).asnumpy(),
            nd.random_gamma(alpha=0.5, shape=(5,)).asnumpy(),
        ]

    first, second = draw(), draw()
    assert all((a == b).all() for a, b in zip(first, second))
    assert (nd.random_normal(shape=(5,)).asnumpy() != first[0]).any()


def test_random_rejects_bad_parameters():
    with pytest.raises(OperatorError, match="scale must be at least 0, got -1.0"):
        nd.random_normal(scale=-1.0, shape=(2,))
    with pytest.raises(OperatorError, match="low must be smaller than high"):
        nd.random_randint(low=3, high=3)


# Convolution and pooling: errors that name the fix


def test_convolution_errors():
    with pytest.raises(ShapeError, match=r"weight must have shape .* = \(4, 3, 3, 3\)"):
        nd.Convolution(
            array(1, 3, 5, 5), array(4, 2, 3, 3), kernel=(3, 3), num_filter=4, no_bias=True
        )
    with pytest.raises(ShapeError, match="the dilated kernel must fit the padded input"):
        nd.Convolution(
            array(1, 3, 5, 5), array(4, 3, 7, 7), kernel=(7, 7), num_filter=4, no_bias=True
        )
    with pytest.raises(ShapeError, match=r"data must have 4 dimensions \(NCHW\)"):
        nd.Convolution(array(3, 5, 5), array(4, 3, 3, 3), kernel=(3, 3), num_filter=4, no_bias=True)
    with pytest.raises(OperatorError, match="adj must be at least 0 and smaller than stride"):
        nd.Deconvolution(
            array(1, 2, 5), array(2, 1, 3), kernel=(3,), num_filter=1, stride=(2,), adj=(2,)
        )


def test_pooling_errors():
    with pytest.raises(ShapeError, match="kernel must fit the padded data"):
        nd.Pooling(array(1, 1, 4, 4), kernel=(5, 5))
    with pytest.raises(OperatorError, match="kernel must have 2 entries"):
        nd.Pooling(array(1, 1, 4, 4))


def test_max_pooling_gradient_goes_to_the_first_of_equals():
    x = nd.ones((1, 1, 4))
    x.attach_grad()
    with autograd.record():
        y = nd.Pooling(x, kernel=(2,), stride=(2,))
    y.backward()
    np.testing.assert_array_equal(x.grad.asnumpy(), [[[1, 0, 1, 0]]])


def test_mixed_derivative_of_a_convolution():
    x, w = array(1, 2, 4, 4), array(3, 2, 3, 3)
    x.attach_grad()
    w.attach_grad()
    with autograd.record():
        y = nd.Convolution(x, w, kernel=(3, 3), num_filter=3, no_bias=True)
        (dx,) = autograd.grad(y, [x], create_graph=True)
    # d/dw of sum(dx): every weight element reaches each of the 2 x 2 outputs
    dx.backward()
    np.testing.assert_allclose(w.grad.asnumpy(), np.full((3, 2, 3, 3), 4.0), rtol=1e-6)


def test_second_order_on_another_device():
    x, state = (
        nd.array(rng.normal(size=(3, 2, 2)), ctx=mx.cpu(1)),
        nd.zeros((1, 2, 2), ctx=mx.cpu(1)),
    )
    params = nd.array(rng.normal(size=36), ctx=mx.cpu(1))
    x.attach_grad()
    with autograd.record():
        y = nd.RNN(x, params, state, mode="gru", state_size=2, num_layers=1)
        (dx,) = autograd.grad(y, [x], create_graph=True)
    dx.backward()
    assert x.grad.context == mx.cpu(1) and (x.grad.asnumpy() != 0).any()


@pytest.mark.parametrize("dtype, step", [("bfloat16", 2.0**-8), ("float16", 2.0**-11)])
def test_rows_of_16_bits_are_rounded_once(dtype, step):
    """Softmax, its gradient and LayerNorm beside float64."""
    rng = np.random.default_rng(0)
    x = mx.nd.array(rng.normal(size=(5, 37)) * 3).astype(dtype)
    gamma, beta = (mx.nd.array(rng.normal(size=37)).astype(dtype) for _ in range(2))
    a, g, b = (v.astype("float32").asnumpy().astype("float64") for v in (x, gamma, beta))
    near = lambda got, want: np.testing.assert_allclose(
        got.astype("float32").asnumpy(), want, rtol=step, atol=1e-6
    )
    e = np.exp(a - a.max(axis=1, keepdims=True))
    soft = e / e.sum(axis=1, keepdims=True)
    near(mx.nd.softmax(x), soft)
    near(mx.nd.log_softmax(x), np.log(soft))
    centred = a - a.mean(axis=1, keepdims=True)
    norm = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
    near(mx.nd.LayerNorm(x, gamma, beta), norm * g + b)
    x.attach_grad()
    with mx.autograd.record():
        y = mx.nd.softmax(x)
    y.backward(beta.reshape((1, 37)).broadcast_to((5, 37)))
    stored = y.astype("float32").asnumpy().astype("float64")  # what the gradient reads
    want = stored * (b - (stored * b).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(x.grad.astype("float32").asnumpy(), want, rtol=step, atol=1e-6)
