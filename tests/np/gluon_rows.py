"""Every part of Gluon that was tried on the real MXNet under set_np, and the shape of its result.

A row is (kind, name, expected shape or nested shapes, function of a Mode). The function builds the
part in the mode that is on and returns what it computes."""

import numpy as onp
import plait as mx
from plait.gluon import contrib, loss, nn, rnn, utils
from plait.gluon.data.vision import transforms as T
from plait.gluon.model_zoo import vision

RNG = onp.random.RandomState(7)


def draw(*shape):
    return RNG.uniform(-1, 1, shape).astype("float32")


class Mode:
    """mx.nd or mx.np, eager or hybridized. Collects what tests look at beside the result."""

    def __init__(self, module, hybrid):
        self.module, self.hybrid = module, hybrid
        self.block, self.inputs = None, ()

    def A(self, values, dtype=None):
        values = onp.asarray(values)
        return self.module.array(values, dtype=dtype or values.dtype)

    def net(self, block):
        block.initialize(mx.init.Xavier() if isinstance(block, nn.Dense) else None)
        if self.hybrid and isinstance(block, mx.gluon.HybridBlock):
            block.hybridize()
        return block

    def __call__(self, block, *inputs):
        """Runs a block and keeps it, to export and differentiate it."""
        self.block, self.inputs = self.net(block), [self.A(x) for x in inputs]
        return self.block(*self.inputs)


ROWS: list = []


def rows(kind, table):
    ROWS.extend([(kind, name, shape, run) for name, (shape, run) in table.items()])


class block:
    """A row that is one Block, called once: it can be differentiated and exported."""

    def __init__(self, make, *inputs):
        self.make, self.inputs = make, inputs

    def __call__(self, m):
        return m(self.make(), *self.inputs)


FLAT, IMAGE, SEQUENCE = draw(2, 4), draw(2, 3, 4, 4), draw(4, 2, 5)
LINE, PLANE, SPACE = draw(1, 2, 8), draw(1, 2, 8, 8), draw(1, 2, 8, 8, 8)


def pools():
    for dims, x in enumerate((LINE, PLANE, SPACE), 1):
        for kind in ("Max", "Avg"):
            yield (
                f"{kind}Pool{dims}D",
                ((1, 2) + (4,) * dims, block(getattr(nn, f"{kind}Pool{dims}D"), x)),
            )
            name = f"Global{kind}Pool{dims}D"
            yield name, ((1, 2) + (1,) * dims, block(getattr(nn, name), x))


rows(
    "nn",
    {
        "Dense": ((2, 3), block(lambda: nn.Dense(3), FLAT)),
        "Dense(flatten=False)": (
            (2, 4, 3),
            block(lambda: nn.Dense(3, flatten=False), draw(2, 4, 5)),
        ),
        "Activation(relu)": ((2, 4), block(lambda: nn.Activation("relu"), FLAT)),
        "Activation(tanh)": ((2, 4), block(lambda: nn.Activation("tanh"), FLAT)),
        "LeakyReLU": ((2, 4), block(lambda: nn.LeakyReLU(0.1), FLAT)),
        "PReLU": ((2, 4), block(nn.PReLU, FLAT)),
        "ELU": ((2, 4), block(nn.ELU, FLAT)),
        "SELU": ((2, 4), block(nn.SELU, FLAT)),
        "GELU": ((2, 4), block(nn.GELU, FLAT)),
        "Swish": ((2, 4), block(nn.Swish, FLAT)),
        "Dropout": ((2, 4), block(lambda: nn.Dropout(0.5), FLAT)),
        "BatchNorm": ((2, 3, 4, 4), block(nn.BatchNorm, IMAGE)),
        "BatchNormReLU": ((2, 3, 4, 4), block(nn.BatchNormReLU, IMAGE)),
        "LayerNorm": ((2, 4), block(nn.LayerNorm, FLAT)),
        "GroupNorm": ((2, 4, 3, 3), block(lambda: nn.GroupNorm(2), draw(2, 4, 3, 3))),
        "InstanceNorm": ((2, 3, 4, 4), block(nn.InstanceNorm, IMAGE)),
        "Embedding": ((3, 2), block(lambda: nn.Embedding(5, 2), onp.float32([0, 4, 2]))),
        "Flatten": ((2, 12), block(nn.Flatten, draw(2, 3, 4))),
        "Conv1D": ((1, 2, 6), block(lambda: nn.Conv1D(2, 3), LINE)),
        "Conv2D": ((1, 2, 6, 6), block(lambda: nn.Conv2D(2, 3), PLANE)),
        "Conv3D": ((1, 2, 6, 6, 6), block(lambda: nn.Conv3D(2, 3), SPACE)),
        "Conv1DTranspose": ((1, 2, 10), block(lambda: nn.Conv1DTranspose(2, 3), LINE)),
        "Conv2DTranspose": ((1, 2, 10, 10), block(lambda: nn.Conv2DTranspose(2, 3), PLANE)),
        "Conv3DTranspose": (
            (1, 2, 6, 6, 6),
            block(lambda: nn.Conv3DTranspose(2, 3), draw(1, 2, 4, 4, 4)),
        ),
        **dict(pools()),
        "ReflectionPad2D": ((1, 2, 6, 6), block(lambda: nn.ReflectionPad2D(1), draw(1, 2, 4, 4))),
        "HybridLambda(relu)": ((2, 3), block(lambda: nn.HybridLambda("relu"), draw(2, 3))),
        "Lambda(relu)": ((2, 3), block(lambda: nn.Lambda("relu"), draw(2, 3))),
        "Sequential": ((2, 3), block(lambda: sequential(nn.Sequential), FLAT)),
        "HybridSequential": ((2, 3), block(lambda: sequential(nn.HybridSequential), FLAT)),
    },
)


def sequential(cls):
    net = cls()
    net.add(nn.Dense(5, activation="relu"), nn.Dense(3))
    return net


# ---- recurrent -----------------------------------------------------------------------------------


def step(make):
    def run(m):
        cell = m.net(make())
        x = m.A(FIVE)
        return cell(x, cell.begin_state(2))

    return run


def unrolled(make, **given):
    def run(m):
        cell = m.net(make())
        given_here = {k: m.A(v) if isinstance(v, onp.ndarray) else v for k, v in given.items()}
        outputs, states = cell.unroll(3, m.A(draw_once), layout="NTC", **given_here)
        return outputs

    return run


FIVE, draw_once = draw(2, 5), draw(2, 3, 5)
SEQ = draw(4, 2, 5)


def stacked(make):
    cell = rnn.SequentialRNNCell()
    cell.add(make())
    return cell


rows(
    "rnn",
    {
        "RNN": ((4, 2, 3), block(lambda: rnn.RNN(3), SEQ)),
        "LSTM": ((4, 2, 6), block(lambda: rnn.LSTM(3, bidirectional=True), SEQ)),
        "GRU(NTC)": ((4, 2, 3), block(lambda: rnn.GRU(3, layout="NTC"), draw(4, 2, 5))),
        "LSTM(projection)": ((4, 2, 2), block(lambda: rnn.LSTM(3, projection_size=2), SEQ)),
        "RNNCell": ([(2, 3), [(2, 3)]], step(lambda: rnn.RNNCell(3))),
        "LSTMCell": ([(2, 3), [(2, 3), (2, 3)]], step(lambda: rnn.LSTMCell(3))),
        "GRUCell": ([(2, 3), [(2, 3)]], step(lambda: rnn.GRUCell(3))),
        "LSTMCell.unroll": ([(2, 3)] * 3, unrolled(lambda: rnn.LSTMCell(3))),
        "LSTMCell.unroll(valid_length)": (
            (2, 3, 3),
            unrolled(lambda: rnn.LSTMCell(3), valid_length=onp.float32([2, 3]), merge_outputs=True),
        ),
        "DropoutCell": ([(2, 5), []], step(lambda: rnn.DropoutCell(0.5))),
        "ZoneoutCell": (
            [(2, 5), [(2, 5)]],
            step(lambda: rnn.ZoneoutCell(rnn.RNNCell(5), 0.5, 0.5)),
        ),
        "ResidualCell": ([(2, 5), [(2, 5)]], step(lambda: rnn.ResidualCell(rnn.RNNCell(5)))),
        "BidirectionalCell.unroll": (
            [(2, 10)] * 3,
            unrolled(lambda: rnn.BidirectionalCell(rnn.LSTMCell(5), rnn.LSTMCell(5))),
        ),
        "SequentialRNNCell": (
            [(2, 5), [(2, 5)]],
            step(lambda: stacked(lambda: rnn.RNNCell(5))),
        ),
    },
)

# ---- losses --------------------------------------------------------------------------------------

PRED, LABEL = draw(2, 4), draw(2, 4)
UNIT = onp.abs(LABEL)
SHARE = UNIT / UNIT.sum(1, keepdims=True)
SIGN = onp.sign(LABEL)
CLASS = onp.float32([1, 3])

rows(
    "loss",
    {
        "L2Loss": ((2,), block(loss.L2Loss, PRED, LABEL)),
        "L1Loss": ((2,), block(loss.L1Loss, PRED, LABEL)),
        "SigmoidBCELoss": ((2,), block(loss.SigmoidBCELoss, PRED, UNIT)),
        "SigmoidBCELoss(from_sigmoid)": (
            (2,),
            block(lambda: loss.SigmoidBCELoss(from_sigmoid=True), UNIT, UNIT),
        ),
        "SoftmaxCELoss": ((2,), block(loss.SoftmaxCELoss, PRED, CLASS)),
        "SoftmaxCELoss(dense)": (
            (2,),
            block(lambda: loss.SoftmaxCELoss(sparse_label=False), PRED, SHARE),
        ),
        "SoftmaxCELoss(sample_weight)": (
            (2,),
            block(loss.SoftmaxCELoss, PRED, CLASS, onp.float32([[1], [0.5]])),
        ),
        "KLDivLoss": ((2,), block(loss.KLDivLoss, onp.log(SHARE), SHARE)),
        "KLDivLoss(from_logits=False)": (
            (2,),
            block(lambda: loss.KLDivLoss(from_logits=False), PRED, SHARE),
        ),
        "CTCLoss": ((1,), block(loss.CTCLoss, draw(1, 6, 4), onp.float32([[0, 1, 2]]))),
        "HuberLoss": ((2,), block(loss.HuberLoss, 3 * PRED, LABEL)),
        "HingeLoss": ((2,), block(loss.HingeLoss, PRED, SIGN)),
        "SquaredHingeLoss": ((2,), block(loss.SquaredHingeLoss, PRED, SIGN)),
        "LogisticLoss": ((2,), block(loss.LogisticLoss, PRED, SIGN)),
        "TripletLoss": ((2,), block(loss.TripletLoss, PRED, LABEL, draw(2, 4))),
        "PoissonNLLLoss": (
            (1,),
            block(lambda: loss.PoissonNLLLoss(compute_full=True), PRED, 3 * UNIT),
        ),
        "CosineEmbeddingLoss": (
            (2, 1),
            block(loss.CosineEmbeddingLoss, PRED, LABEL, onp.float32([1, -1])),
        ),
        "SDMLLoss": ((2,), block(loss.SDMLLoss, PRED, LABEL)),
    },
)

# ---- metrics -------------------------------------------------------------------------------------

SCORES = onp.float32([[0.3, 0.7], [0.6, 0.4], [0.1, 0.9]])
TRUTH, GUESS = onp.float32([1, 1, 0]), onp.float32([1, 0, 0])


def measured(make, label, pred):
    def run(m):
        metric = make()
        metric.update([m.A(label)], [m.A(pred)])
        return metric.get()[1]

    return run


rows(
    "metric",
    {
        "Accuracy": ("number", measured(mx.metric.Accuracy, TRUTH, SCORES)),
        "Accuracy(label,pred arrays)": ("number", measured(mx.metric.Accuracy, TRUTH, GUESS)),
        "TopKAccuracy": (
            "number",
            measured(lambda: mx.metric.TopKAccuracy(2), onp.float32([2, 0]), PRED),
        ),
        "F1": ("number", measured(mx.metric.F1, TRUTH, SCORES)),
        "MCC": ("number", measured(mx.metric.MCC, TRUTH, SCORES)),
        "PCC": ("number", measured(mx.metric.PCC, TRUTH, SCORES)),
        "MAE": ("number", measured(mx.metric.MAE, LABEL, PRED)),
        "MSE": ("number", measured(mx.metric.MSE, LABEL, PRED)),
        "RMSE": ("number", measured(mx.metric.RMSE, LABEL, PRED)),
        "CrossEntropy": ("number", measured(mx.metric.CrossEntropy, TRUTH, SCORES)),
        "NegativeLogLikelihood": (
            "number",
            measured(mx.metric.NegativeLogLikelihood, TRUTH, SCORES),
        ),
        "Perplexity": ("number", measured(lambda: mx.metric.Perplexity(None), TRUTH, SCORES)),
        "PearsonCorrelation": ("number", measured(mx.metric.PearsonCorrelation, LABEL, PRED)),
        "Loss": ("number", measured(mx.metric.Loss, LABEL, PRED)),
        "CustomMetric": (
            "number",
            measured(lambda: mx.metric.CustomMetric(lambda a, b: abs(a - b).sum()), LABEL, PRED),
        ),
    },
)

# ---- transforms ----------------------------------------------------------------------------------

PICTURE = RNG.randint(0, 255, (8, 8, 3)).astype("uint8")
TENSOR = onp.abs(draw(3, 8, 8))


def applied(make, x=PICTURE):
    def run(m):
        transform = make()
        if m.hybrid and isinstance(transform, mx.gluon.HybridBlock):
            transform.hybridize()
        onp.random.seed(3)
        return transform(m.A(x))

    return run


rows(
    "transforms",
    {
        "ToTensor": ((3, 8, 8), applied(T.ToTensor)),
        "Normalize": ((3, 8, 8), applied(lambda: T.Normalize(0.5, 0.2), TENSOR)),
        "Resize": ((4, 4, 3), applied(lambda: T.Resize(4))),
        "CenterCrop": ((4, 4, 3), applied(lambda: T.CenterCrop(4))),
        "RandomResizedCrop": ((4, 4, 3), applied(lambda: T.RandomResizedCrop(4))),
        "CropResize": ((4, 4, 3), applied(lambda: T.CropResize(1, 1, 6, 6, 4))),
        "RandomFlipLeftRight": ((8, 8, 3), applied(T.RandomFlipLeftRight)),
        "RandomFlipTopBottom": ((8, 8, 3), applied(T.RandomFlipTopBottom)),
        "RandomBrightness": ((8, 8, 3), applied(lambda: T.RandomBrightness(0.5))),
        "RandomContrast": ((8, 8, 3), applied(lambda: T.RandomContrast(0.5))),
        "RandomSaturation": ((8, 8, 3), applied(lambda: T.RandomSaturation(0.5))),
        "RandomHue": ((8, 8, 3), applied(lambda: T.RandomHue(0.5))),
        "RandomColorJitter": ((8, 8, 3), applied(lambda: T.RandomColorJitter(0.5, 0.5, 0.5, 0.5))),
        "RandomLighting": ((8, 8, 3), applied(lambda: T.RandomLighting(0.5))),
        "Cast": ((8, 8, 3), applied(lambda: T.Cast("float32"))),
        "Compose": ((3, 4, 4), applied(lambda: T.Compose([T.Resize(4), T.ToTensor()]))),
        "Rotate": ((3, 8, 8), applied(lambda: T.Rotate(30), TENSOR)),
        "RandomRotation": ((3, 8, 8), applied(lambda: T.RandomRotation((-30, 30)), TENSOR)),
        "RandomApply": ((8, 8, 3), applied(lambda: T.RandomApply(T.RandomFlipLeftRight(), 0.5))),
    },
)

# ---- networks ------------------------------------------------------------------------------------


def network(name, size=64):
    return (1, 3), block(lambda: vision.get_model(name, classes=3), draw(1, 3, size, size))


rows(
    "model_zoo",
    {
        "alexnet": network("alexnet", 64),
        "vgg11": network("vgg11", 32),
        "squeezenet1.0": network("squeezenet1.0", 224),
        "densenet121": network("densenet121", 224),
        "inceptionv3": network("inceptionv3", 299),
        "resnet18_v1": network("resnet18_v1", 32),
        "resnet18_v2": network("resnet18_v2", 32),
        "mobilenet0.25": network("mobilenet0.25", 32),
        "mobilenetv2_0.25": network("mobilenetv2_0.25", 32),
    },
)

# ---- contrib -------------------------------------------------------------------------------------


def concurrent(cls):
    net = cls(axis=1)
    net.add(nn.Dense(2), nn.Dense(3))
    return net


rows(
    "contrib",
    {
        "Concurrent": ((2, 5), block(lambda: concurrent(contrib.nn.Concurrent), FLAT)),
        "HybridConcurrent": ((2, 5), block(lambda: concurrent(contrib.nn.HybridConcurrent), FLAT)),
        "Identity": ((2, 3), block(contrib.nn.Identity, draw(2, 3))),
        "SyncBatchNorm": (
            (2, 3, 4, 4),
            block(lambda: contrib.nn.SyncBatchNorm(in_channels=3), IMAGE),
        ),
        "PixelShuffle2D": (
            (1, 1, 4, 4),
            block(lambda: contrib.nn.PixelShuffle2D(2), draw(1, 4, 2, 2)),
        ),
        "DeformableConvolution": (
            (1, 2, 6, 6),
            block(lambda: contrib.cnn.DeformableConvolution(2, kernel_size=3), draw(1, 3, 8, 8)),
        ),
        "VariationalDropoutCell": (
            [(2, 5), [(2, 5)]],
            step(lambda: contrib.rnn.VariationalDropoutCell(rnn.RNNCell(5), 0.5)),
        ),
        "LSTMPCell": (
            [(2, 2), [(2, 2), (2, 5)]],
            step(lambda: contrib.rnn.LSTMPCell(5, 2)),
        ),
    },
)

# ---- optimizers, initializers --------------------------------------------------------------------

OPTIMIZERS = """adadelta adagrad adam adamax ccsgd dcasgd ftml ftrl groupadagrad lamb lars lbsgd
nadam nag rmsprop sgd sgld signum test""".split()
START = draw(3, 2)


def optimized(name):
    def run(m):
        net = nn.Dense(3, in_units=2, use_bias=False)
        net.initialize()
        net.weight.set_data(m.A(START))
        if m.hybrid:
            net.hybridize()
        wd = 0.0 if name == "groupadagrad" else 0.01
        trainer = mx.gluon.Trainer(net.collect_params(), name, {"learning_rate": 0.1, "wd": wd})
        x = m.A(draw_x)
        for _ in range(3):
            with mx.autograd.record():
                out = (net(x) ** 2).sum()
            out.backward()
            trainer.step(4)
        return net.weight.data()

    return run


draw_x = draw(4, 2)
rows("optimizer", {name: ((3, 2), optimized(name)) for name in OPTIMIZERS})


def initialized(make, shape=(4, 3)):
    def run(m):
        p = mx.gluon.Parameter("weight" if len(shape) > 1 else "bias", shape=shape, init=make(m))
        p.initialize()
        return p.data()

    return run


rows(
    "initializer",
    {
        "Xavier": ((4, 3), initialized(lambda m: mx.init.Xavier())),
        "Normal": ((4, 3), initialized(lambda m: mx.init.Normal(0.1))),
        "Uniform": ((4, 3), initialized(lambda m: mx.init.Uniform(0.1))),
        "Constant": ((4, 3), initialized(lambda m: mx.init.Constant(2.5))),
        "Constant(array)": ((4, 3), initialized(lambda m: mx.init.Constant(m.A(draw43)))),
        "Zero": ((4, 3), initialized(lambda m: mx.init.Zero())),
        "One": ((4, 3), initialized(lambda m: mx.init.One())),
        "Orthogonal": ((4, 3), initialized(lambda m: mx.init.Orthogonal())),
        "MSRAPrelu": ((4, 3), initialized(lambda m: mx.init.MSRAPrelu())),
        "Bilinear": ((1, 1, 4, 4), initialized(lambda m: mx.init.Bilinear(), (1, 1, 4, 4))),
        "LSTMBias": ((8,), initialized(lambda m: mx.init.LSTMBias(1.0), (8,))),
    },
)
draw43 = draw(4, 3)

# ---- utilities -----------------------------------------------------------------------------------

FOUR = draw(4, 2)
CPUS = [mx.cpu(0), mx.cpu(0)]


def clipped(m):
    arrays = [m.A(FOUR), m.A(PRED)]
    norm = utils.clip_global_norm(arrays, 0.5)
    return [m.A(onp.float32(norm).reshape(1)), *arrays]


def batches(**given):
    def run(m):
        data = mx.gluon.data.ArrayDataset(m.A(FOUR), onp.arange(4, dtype="float32"))
        return [part for batch in mx.gluon.data.DataLoader(data, 2, **given) for part in batch]

    return run


def iterated(m):
    return [b.data[0] for b in mx.io.NDArrayIter(m.A(FOUR), m.A(onp.arange(4.0)), 2)]


def looped(m):
    return mx.nd.contrib.foreach(lambda x, s: (x + s, x * s), m.A(FOUR), m.A(FOUR[0]))


def stored(m):
    store = mx.kv.create("local")
    store.init(3, m.A(FOUR))
    store.push(3, [m.A(FOUR), m.A(FOUR)])
    out = m.A(0 * FOUR)
    store.pull(3, out)
    return out


class Double(mx.autograd.Function):
    def forward(self, x):
        return x * 2

    def backward(self, dy):
        return dy * 3


def own_function(m):
    x = m.A(FOUR)
    x.attach_grad()
    with mx.autograd.record():
        y = Double()(x)
    y.backward()
    return [y, x.grad]


def decoded(m):
    from io import BytesIO

    from PIL import Image

    file = BytesIO()
    Image.fromarray(PICTURE).save(file, "PNG")
    return mx.image.imdecode(file.getvalue())


rows(
    "utils",
    {
        "clip_global_norm": ([(1,), (4, 2), (2, 4)], clipped),
        "split_and_load": ([(2, 2), (2, 2)], lambda m: utils.split_and_load(m.A(FOUR), CPUS)),
        "split_data": ([(2, 2), (2, 2)], lambda m: utils.split_data(m.A(FOUR), 2)),
        "NDArrayIter": ([(2, 2), (2, 2)], iterated),
        "DataLoader(np)": ([(2, 2), (2,), (2, 2), (2,)], batches()),
        "DataLoader(num_workers=2)": ([(2, 2), (2,), (2, 2), (2,)], batches(num_workers=2)),
        "DataLoader(threads)": (
            [(2, 2), (2,), (2, 2), (2,)],
            batches(num_workers=2, thread_pool=True),
        ),
        "contrib.foreach": ([(4, 2), (2,)], looped),
        "kvstore local push/pull": ((4, 2), stored),
        "autograd.Function": ([(4, 2), (4, 2)], own_function),
        "image.imread/imdecode type": ((8, 8, 3), decoded),
    },
)
