"""Every reader of files, given files that were cut, changed and mixed: a reader gives what is there
or refuses with an error of plait's; it neither crashes nor takes more memory or time than a file of
that size can ask for."""

from __future__ import annotations

import functools
import io
import json
import os
import random
import tempfile
import zlib
from pathlib import Path

import numpy as np
import plait as mx
from plait.kernels import cache
from plait.kernels.cpu import jit
from plait.ndarray.serialization import save_tobuffer

KERNEL = b"what was compiled" * 5
FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"

# ---- whole files ---------------------------------------------------------------------------------


def _arrays() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.nd")
        sparse = mx.nd.sparse.csr_matrix(np.eye(3, dtype="float32"))
        rows = mx.nd.sparse.row_sparse_array((np.ones((2, 3), "float32"), [0, 2]), shape=(4, 3))
        mx.nd.save(path, {"a": mx.nd.ones((2, 3)), "b": mx.nd.array(1.0), "c": sparse, "d": rows})
        return Path(path).read_bytes()


def _older(version: int) -> bytes:
    """Two arrays as MXNet wrote them before: V1, or V0, which has 32-bit dimensions."""
    values = np.arange(6, dtype="<f4").tobytes()
    head = {
        0: np.array([2, 2, 3], "<u4").tobytes(),
        1: np.array([0xF993FAC9, 2], "<u4").tobytes() + np.array([2, 3], "<i8").tobytes(),
    }[version]
    one = head + np.array([1, 0, 0], "<i4").tobytes() + values
    return np.array([0x112, 0, 2], "<u8").tobytes() + one * 2 + np.array([0], "<u8").tobytes()


def _records(n: int = 4) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.rec")
        file = mx.recordio.MXRecordIO(path, "w")
        rng = np.random.default_rng(3)
        for i in range(n):
            picture = rng.integers(0, 255, (9, 8, 3)).astype("uint8")
            header = mx.recordio.IRHeader(0, float(i), i, 0)
            file.write(mx.recordio.pack_img(header, picture, img_fmt=".png"))
        file.close()
        return Path(path).read_bytes()


def _picture(kind: str) -> bytes:
    from PIL import Image

    x = np.random.default_rng(1).integers(0, 255, (13, 11, 3)).astype("uint8")
    file = io.BytesIO()
    Image.fromarray(x).save(file, kind)
    return file.getvalue()


def _states() -> bytes:
    optimizer = mx.optimizer.create("adam", learning_rate=0.1)
    updater = mx.optimizer.get_updater(optimizer)
    for i in range(2):
        updater(i, mx.nd.ones((3,)), mx.nd.ones((3,)))
    return updater.get_states(dump_optimizer=True)


def _checkpoint(path: str):
    """A training run of two steps, and its Checkpoint."""
    net = mx.gluon.nn.Dense(2, in_units=3)
    net.initialize()
    trainer = mx.gluon.Trainer(net.collect_params(), "adam")
    data = mx.gluon.data.ArrayDataset(np.arange(12, dtype="float32").reshape(4, 3))
    loader = mx.gluon.data.DataLoader(data, batch_size=2, shuffle=True)
    metric = mx.metric.Accuracy()
    parts = {"net": net, "trainer": trainer, "loader": loader, "metric": metric}
    checkpoint = mx.checkpoint.Checkpoint(path, **parts, best=0.5, note=["a", 1, None])
    return checkpoint, net, trainer, loader


def _train(net, trainer, loader) -> None:
    for batch in loader:
        with mx.autograd.record():
            loss = net(batch).sum()
        loss.backward()
        trainer.step(2)


def _run() -> bytes:
    mx.seed_all(1)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint, *run = _checkpoint(os.path.join(folder, "run.ckpt"))
        _train(*run)
        checkpoint.save()
        return Path(checkpoint.path).read_bytes()


def _idx(axes: int) -> bytes:
    shape = (6, 4, 5)[:axes]
    head = bytes([0, 0, 8, axes]) + np.array(shape, ">u4").tobytes()
    return head + (np.arange(np.prod(shape)) % 10).astype("uint8").tobytes()


def _kernel() -> bytes:
    cache.write("fuzz.bin", KERNEL)
    return (cache.folder() / "fuzz.bin").read_bytes()


def _onnx() -> bytes:
    """A network with computed shapes, branches, a loop and recurrence."""
    from onnx import TensorProto, helper, numpy_helper

    node, info = helper.make_node, helper.make_tensor_value_info
    real, whole_, flag = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
    ways = {
        f"{name}_branch": helper.make_graph(
            [node(op, ["c"], [name])], name, [], [info(name, real, None)]
        )
        for name, op in (("then", "Relu"), ("else", "Neg"))
    }
    steps = helper.make_graph(
        [node("Add", ["a", "a"], ["a2"]), node("Identity", ["go"], ["go2"])],
        "steps",
        [info("i", whole_, []), info("go", flag, []), info("a", real, None)],
        [info("go2", flag, []), info("a2", real, None)],
    )
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Size", ["c"], ["n"]),
        node("Greater", ["n", "zero"], ["some"]),
        node("If", ["some"], ["d"], **ways),
        node("Shape", ["d"], ["s"]),
        node("Slice", ["s", "zeros", "ones"], ["batch"]),
        node("Concat", ["batch", "rest"], ["to"], axis=0),
        node("Reshape", ["d", "to"], ["flat"]),
        node("LSTM", ["flat", "lw", "lr"], ["", "h"], hidden_size=2),
        node("Loop", ["three", "", "h"], ["y"], body=steps),
    ]
    random_ = np.random.default_rng(5)
    floats = {"w": (2, 1, 3, 3), "lw": (1, 8, 4), "lr": (1, 8, 2)}
    values = {n: random_.random(shape, np.float32) for n, shape in floats.items()}
    counts = {"zero": 0, "zeros": [0], "ones": [1], "rest": [2, 4], "three": 3}
    values.update((n, np.array(v, np.int64)) for n, v in counts.items())
    graph = helper.make_graph(
        nodes,
        "net",
        [info("x", real, ["batch", 1, 4, 4])],
        [info("y", real, None)],
        [numpy_helper.from_array(x, n) for n, x in values.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def _safetensors() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.safetensors")
        arrays = {"a": mx.nd.arange(12).reshape((3, 4)), "b": mx.nd.ones((2,), dtype="int8")}
        mx.nd.save(path, arrays)
        return Path(path).read_bytes()


PROTOTXT = """name: "net"
input: "data" input_shape { dim: 1 dim: 3 dim: 9 dim: 9 }
layer { name: "c" type: "Convolution" bottom: "data" top: "c"
        convolution_param { num_output: 4 kernel_size: 3 stride: 2 } }
layer { name: "b" type: "BatchNorm" bottom: "c" top: "c" batch_norm_param { eps: 1e-5 } }
layer { name: "s" type: "Scale" bottom: "c" top: "c" scale_param { bias_term: true } }
layer { name: "p" type: "Pooling" bottom: "c" top: "p" pooling_param { pool: MAX kernel_size: 2 } }
layer { name: "e" type: "Eltwise" bottom: "p" bottom: "p" top: "e"
        eltwise_param { operation: PROD } }
layer { name: "r" type: "Reshape" bottom: "e" top: "r" reshape_param { shape { dim: 0 dim: -1 } } }
layer { name: "f" type: "InnerProduct" bottom: "r" top: "f" inner_product_param { num_output: 2 } }
layer { name: "o" type: "Softmax" bottom: "f" top: "o" }
"""


def _caffemodel() -> bytes:
    from plait.compat.caffe.schema import messages

    found = messages()["NetParameter"]()
    shapes = {"c": [(4, 3, 3, 3), (4,)], "b": [(4,), (4,), (1,)], "s": [(4,), (4,)]}
    for name, blobs in {**shapes, "f": [(2, 36), (2,)]}.items():
        layer = found.layer.add()
        layer.name = name
        for shape in blobs:
            blob = layer.blobs.add()
            blob.shape.dim.extend(shape)
            blob.data.extend([0.5] * int(np.prod(shape)))
    return found.SerializeToString()


WHOLE = {
    "arrays": [
        _arrays,
        functools.partial(_older, 0),
        functools.partial(_older, 1),
        *("dtypes.nd", "list.nd", "sparse.nd", "legacy_ndarray.v0", "module-0012.params"),
    ],
    "symbol": [
        *("lenet-symbol.json", "module-symbol.json", "control-flow-symbol.json"),
        *("lstm-symbol.json", "save_000800.json"),
    ],
    "records": [_records, "records.rec"],
    "images": [_records],
    "index": ["records.idx", lambda: b"0\t0\n1\t84\n2\t200\n"],
    "picture": [functools.partial(_picture, kind) for kind in ("png", "jpeg", "bmp", "gif")],
    "csv": [lambda: b"1,2,3\n4,5,6\n-7.5,1e3,9\n", lambda: b"1\n2\n3\n"],
    "libsvm": [lambda: b"1 0:1 2:3.5\n0 1:2\n-1 0:1e3 3:4\n"],
    "mnist": [functools.partial(_idx, 3)],
    "labels": [functools.partial(_idx, 1)],
    "states": [_states],
    "checkpoint": [_run],
    "list": [lambda: b"0\t1.0\ta.png\n1\t2.0\t3.0\tb.png\n2\t0\tc d.png\n"],
    "embedding": [lambda: b"the 0.1 0.2 0.3\nof -1 2e3 0.5\n<unk> 0 0 0\n"],
    "kernel": [_kernel],
    "onnx": [_onnx],
    "safetensors": [_safetensors],
    "prototxt": [PROTOTXT.encode],
    "caffemodel": [_caffemodel],
}


@functools.cache
def whole(kind: str, number: int) -> bytes:
    source = WHOLE[kind][number]
    return (FIXTURES / source).read_bytes() if isinstance(source, str) else source()


# ---- what happens to them ------------------------------------------------------------------------


def cut(data: bytes, at: int) -> bytes:
    return data[:at]


def flip(data: bytes, at: int, mask: int) -> bytes:
    return put(data, at, bytes([data[at] ^ mask]) if at < len(data) else b"")


def put(data: bytes, at: int, piece: bytes) -> bytes:
    return data[:at] + piece + data[at + len(piece) :]


def insert(data: bytes, at: int, piece: bytes) -> bytes:
    return data[:at] + piece + data[at:]


def drop(data: bytes, at: int, n: int) -> bytes:
    return data[:at] + data[at + n :]


def edit(data: bytes, place: int, value) -> bytes:
    """JSON with one value replaced: the one of that number, counted through the tree."""
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        return data
    slots: list = []

    def walk(node):
        items = node.items() if isinstance(node, dict) else enumerate(node)
        for key, child in items:
            slots.append((node, key))
            if isinstance(child, (dict, list)):
                walk(child)

    if isinstance(tree, (dict, list)):
        walk(tree)
    if slots:
        node, key = slots[place % len(slots)]
        node[key] = value
    return json.dumps(tree).encode()


def edit_inside(data: bytes, place: int, value) -> bytes:
    """A file of arrays with one value of the JSON that it holds replaced."""
    try:
        arrays = mx.nd.load_frombuffer(data)
    except mx.MXNetError:
        return data
    for name, array in arrays.items() if isinstance(arrays, dict) else ():
        if array.dtype == np.uint8 and (text := array.asnumpy().tobytes())[:1] == b"{":
            arrays[name] = mx.nd.array(
                np.frombuffer(edit(text, place, value), np.uint8), dtype="uint8"
            )
    return save_tobuffer(arrays)


def reseal(data: bytes) -> bytes:
    """A PNG with right checksums, so that what was changed in it is looked at."""
    at, out = 8, data[:8]
    while at + 12 <= len(data):
        n = int.from_bytes(data[at : at + 4], "big")
        body = data[at + 4 : at + 8 + n]
        out += data[at : at + 4] + body + zlib.crc32(body).to_bytes(4, "big")
        at += 12 + n
    return out + data[at:]


# ---- readers -------------------------------------------------------------------------------------


def read(kind: str, data: bytes) -> None:
    """Reads a file of these bytes, and uses what it holds. Raises AssertionError if a file that was
    cut off is taken for a whole one."""
    held = _read(kind, data)
    for number in range(len(WHOLE[kind])) if kind in CUT_SHOWS else ():
        complete = whole(kind, number)
        if len(data) < len(complete) and complete.startswith(data):
            first = _read(kind, complete)[: len(held)] if held is not None else ()
            assert held == first, f"cut off after {len(data)} of {len(complete)} bytes, it is read"


def _read(kind: str, data: bytes):
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        path = os.path.join(folder, "file")
        Path(path).write_bytes(data)
        return READERS[kind](path, folder)


def _read_arrays(path, folder):
    loaded = mx.nd.load(path)
    for array in loaded.values() if isinstance(loaded, dict) else loaded:
        array.asnumpy()
    mx.nd.save(path, loaded)


def _read_symbol(path, folder):
    symbol = mx.sym.load(path)
    again = mx.sym.load_json(symbol.tojson())
    assert again.list_arguments() == symbol.list_arguments(), "written and read again it differs"
    symbol.list_auxiliary_states(), symbol.list_outputs(), symbol.attr_dict()
    shapes = {"data": (2, 1, 28, 28)} if "data" in symbol.list_arguments() else {}
    known, _, _ = symbol.infer_shape_partial(**shapes)
    if all(s and 0 < np.prod(s) < 1e6 for s in known):
        executor = symbol.simple_bind(mx.cpu(), grad_req="null", **shapes)
        for out in executor.forward():
            out.wait_to_read()


def _read_records(path, folder):
    records = []
    with mx.recordio.MXRecordIO(path, "r") as file:
        while (record := file.read()) is not None:
            records.append(record)
    return records


def _read_images(path, folder):
    with mx.recordio.MXRecordIO(path, "r") as file:
        while (record := file.read()) is not None:
            mx.recordio.unpack(record)
    batches = mx.io.ImageRecordIter(
        path_imgrec=path, data_shape=(3, 8, 8), batch_size=2, preprocess_threads=1
    )
    for _ in zip(range(5), batches):
        pass


def _read_index(path, folder):
    records = os.path.join(folder, "x.rec")
    Path(records).write_bytes(whole("records", 0))
    with mx.recordio.MXIndexedRecordIO(path, records, "r") as file:
        for key in file.keys[:10]:
            try:
                file.read_idx(key)
            except mx.MXNetError:
                pass


def _read_picture(path, folder):
    mx.image.imdecode(Path(path).read_bytes()).wait_to_read()
    mx.image.imread(path, flag=0).wait_to_read()


def _read_csv(path, folder):
    for dtype in ("float32", "int32"):
        for batch in mx.io.CSVIter(data_csv=path, data_shape=(3,), batch_size=2, dtype=dtype):
            batch.data[0].wait_to_read()


def _read_libsvm(path, folder):
    for batch in mx.io.LibSVMIter(data_libsvm=path, data_shape=(4,), batch_size=2):
        batch.data[0].asnumpy()


def _read_mnist(path, folder, images=True):
    other = os.path.join(folder, "other")
    Path(other).write_bytes(_idx(1 if images else 3))
    image, label = (path, other) if images else (other, path)
    for batch in mx.io.MNISTIter(image=image, label=label, batch_size=2, silent=True):
        batch.data[0].wait_to_read()


def _read_states(path, folder):
    updater = mx.optimizer.get_updater(mx.optimizer.create("adam"))
    updater.set_states(Path(path).read_bytes())
    updater(0, mx.nd.ones((3,)), mx.nd.ones((3,)))


def _read_checkpoint(path, folder):
    checkpoint, *run = _checkpoint(path)
    checkpoint.restore()
    _train(*run)
    checkpoint.save()


def _read_list(path, folder):
    iterator = mx.image.ImageIter(
        batch_size=1, data_shape=(3, 8, 8), path_imglist=path, path_root=folder
    )
    assert len(iterator.imglist) >= 0, "a list"


def _read_embedding(path, folder):
    made = mx.contrib.text.embedding.CustomEmbedding(path)
    made.get_vecs_by_tokens(["the", "no such"]).wait_to_read()


def _read_kernel(path, folder):
    """A file of the cache of kernels, and a compiled one, damaged on disk."""
    name = "fuzz.bin"
    cache.write(name, KERNEL)
    (cache.folder() / name).write_bytes(Path(path).read_bytes())
    assert cache.read(name) in (None, KERNEL), "a damaged file of the cache is taken"
    source = "void plk_compiled(void) {}\n/* fuzz */"
    jit.function(source)
    library = cache.folder() / f"{jit._key(source)}.so"
    if library.exists():
        data = bytearray(library.read_bytes())
        data[Path(path).stat().st_size * 131 % len(data)] ^= 0x41
        os.replace(_beside(library, bytes(data)), library)  # the loaded one stays as it is mapped
        assert cache.read(library.name) is None, "a damaged library is taken"


def _read_onnx(path, folder):
    net = mx.onnx.load(path)
    mx.onnx.get_model_metadata(path)
    shapes = [[n if isinstance(n, int) else 1 for n in i.shape or ()] for i in net.inputs]
    if all(np.prod(shape, dtype=float) < 1e6 for shape in shapes):
        found = net(*[mx.np.zeros(s, dtype=i.dtype) for s, i in zip(shapes, net.inputs)])
        for out in found if isinstance(found, list) else [found]:
            out.wait_to_read()


def _read_safetensors(path, folder):
    named = os.path.join(folder, "x.safetensors")
    os.rename(path, named)
    for array in mx.nd.load(named).values():
        array.asnumpy()


def _read_caffe(prototxt, caffemodel):
    symbol, args, aux, shapes = mx.caffe.convert_model(prototxt, caffemodel)
    if all(np.prod(shape, dtype=float) < 1e6 for shape in shapes):
        names = [n for n in symbol.list_arguments() if n not in args]
        data = {n: mx.nd.zeros(shape) for n, shape in zip(names, shapes)}
        for out in symbol.bind(mx.cpu(), {**data, **args}, aux_states=aux).forward():
            out.wait_to_read()


def _read_prototxt(path, folder):
    weights = os.path.join(folder, "net.caffemodel")
    Path(weights).write_bytes(_caffemodel())
    _read_caffe(path, weights)


def _read_caffemodel(path, folder):
    text = os.path.join(folder, "net.prototxt")
    Path(text).write_text(PROTOTXT)
    _read_caffe(text, path)


def _beside(path: Path, data: bytes) -> Path:
    other = path.with_suffix(".new")
    other.write_bytes(data)
    other.chmod(0o600)
    return other


READERS = {
    "arrays": _read_arrays,
    "symbol": _read_symbol,
    "records": _read_records,
    "images": _read_images,
    "index": _read_index,
    "picture": _read_picture,
    "csv": _read_csv,
    "libsvm": _read_libsvm,
    "mnist": _read_mnist,
    "labels": functools.partial(_read_mnist, images=False),
    "states": _read_states,
    "checkpoint": _read_checkpoint,
    "list": _read_list,
    "embedding": _read_embedding,
    "kernel": _read_kernel,
    "onnx": _read_onnx,
    "safetensors": _read_safetensors,
    "prototxt": _read_prototxt,
    "caffemodel": _read_caffemodel,
}

# of these a reader notices where they end; its result, if any, lists what came before
CUT_SHOWS = ("arrays", "symbol", "records", "mnist", "labels", "states", "checkpoint")

# ---- cases ---------------------------------------------------------------------------------------

KINDS = (
    ("arrays",) * 3
    + ("symbol",) * 4
    + ("records", "images") * 2
    + ("states", "checkpoint") * 2
    + tuple(READERS)
)
NUMBERS = (0, 1, -1, 2**31 - 1, -(2**31), 2**32 - 1, 2**40, 2**63 - 1, -(2**63), 255, 64, 65)
VALUES = (None, 0, -1, 1, 2**31, 2**63, 1e300, "", "x", "None", [], {}, [[]], [0, 0, 0], "[1, 2]")
TEXTS = (b"\0", b"\xff\xfe", b"nan", b"1e999", b"-", b"9" * 30, b"\t", b"\n\n", b",")
TEXTS = (*map(repr, TEXTS), 'b"[" * 3000', 'b"\\0" * 200')
ATTRS = ("(1000000000,)", "1000000000", "-1", "(0, 0)", "(3, 3, 3)", "nan", "1e30", "True", "()")


def script(rng: random.Random, *_) -> tuple[str, str]:
    kind = rng.choice(KINDS)
    number = rng.randrange(len(WHOLE[kind]))
    size = len(whole(kind, number))
    lines = ["from tests.fuzz.files import *", "", f"data = whole({kind!r}, {number})"]
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        at = rng.randrange(min(size, rng.choice((32, 200, size))) + 1)
        lines.append(f"data = {change(rng, kind, at, size)}")
    if kind == "picture" and rng.random() < 0.7:
        lines.append("data = reseal(data)")
    return kind, "\n".join([*lines, f"read({kind!r}, data)", ""])


def change(rng, kind: str, at: int, size: int) -> str:
    if kind == "symbol" and rng.random() < 0.7:
        value = rng.choice(VALUES + ATTRS)
        return f"edit(data, {rng.randrange(2000)}, {value!r})"
    if kind in ("states", "checkpoint") and rng.random() < 0.5:
        value = rng.choice(VALUES + ATTRS)
        return f"edit_inside(data, {rng.randrange(300)}, {value!r})"
    how = rng.randrange(7)
    if how == 0:
        return f"cut(data, {at})"
    if how == 1:
        return f"flip(data, {at}, {1 << rng.randrange(8)})"
    if how == 2:
        width = rng.choice((4, 8))
        order = rng.choice(("little", "big"))
        number = rng.choice(NUMBERS) % (1 << 8 * width)
        return f"put(data, {at // 4 * 4}, {number.to_bytes(width, order)!r})"
    if how == 3:
        return f"insert(data, {at}, {rng.choice(TEXTS)})"
    if how == 4:
        return f"drop(data, {at}, {rng.choice((1, 2, 4, 8, 50))})"
    if how == 5:
        return f"put(data, {at}, {rng.choice(TEXTS)})"
    return f"insert(data, {at}, data[{rng.randrange(size)}:][:{rng.choice((4, 24, 100))}])"
