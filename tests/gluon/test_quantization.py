"""mx.contrib.quantization: MXNet's files, what the pass makes, accuracy, and what is refused."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import plait as mx
import pytest
from plait import gluon, nd
from plait.contrib import quantization

FIXTURES = Path(__file__).parents[1] / "fixtures" / "quantization"


def imported(name):
    files = [str(FIXTURES / f"{name}{end}") for end in ("-symbol.json", "-0000.params")]
    return gluon.SymbolBlock.imports(files[0], ["data"], files[1])


def recorded(name):
    with np.load(FIXTURES / f"{name}-io.npz") as arrays:
        return {k: arrays[k] for k in arrays.files}


def operators(symbol):
    return Counter(n["op"] for n in json.loads(symbol.tojson())["nodes"] if n["op"] != "null")


def model(name):
    symbol = mx.sym.load(str(FIXTURES / f"{name}-fp32-symbol.json"))
    saved = nd.load(str(FIXTURES / f"{name}-fp32-0000.params"))
    split = lambda kind: {k[4:]: v for k, v in saved.items() if k.startswith(kind)}
    return symbol, split("arg:"), split("aux:")


def batches(name, size=25):
    return mx.io.NDArrayIter(recorded(name)["x"], batch_size=size)


def run(symbol, args, aux, x):
    net = gluon.SymbolBlock(symbol, [mx.sym.var("data")])
    for n, p in net.collect_params().items():
        value = {**args, **aux}[n]
        p.shape, p.dtype = value.shape, value.dtype
        p.initialize()
        p.set_data(value)
    return net(nd.array(x)).asnumpy()


# ---- MXNet's files -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lenet-int8-onednn", "lenet-int8-fc", "resnet18-int8-fc"])
def test_mxnet_files_give_its_outputs_within_one_step(name):
    net, _, kind = name.partition("-")
    data = recorded(net)
    want = data[f"y_{kind.replace('-', '_')}"]
    assert (
        np.abs(imported(name)(nd.array(data["x"])).asnumpy() - want).max()
        <= np.abs(want).max() / 127
    )


@pytest.mark.parametrize("name, off", [("lenet-int8-conv0-fc", 0.5), ("resnet18-int8-onednn", 0.3)])
def test_files_that_mxnet_runs_wrong_are_near_the_float_network(name, off):
    """MXNet takes uint8 data of a convolution for int8 (the outputs are 15 off), and cuts a sum of
    int8 with uint8 results at 127 (4 off). See docs/design/quantization.md."""
    data = recorded(name.partition("-")[0])
    y = imported(name)(nd.array(data["x"])).asnumpy()
    assert np.abs(y - data["y_fp32"]).max() < off


def test_a_file_is_written_as_it_was_read():
    text = (FIXTURES / "lenet-int8-onednn-symbol.json").read_text()
    symbol = mx.sym.load_json(text)
    again = json.loads(symbol.tojson())
    assert [n["op"] for n in again["nodes"]] == [n["op"] for n in json.loads(text)["nodes"]]
    assert sum("subgraphs" in n for n in again["nodes"]) == 4
    assert symbol.list_auxiliary_states() == [
        f"lenet_batchnorm0_running_{s}" for s in ("mean", "var")
    ]


# ---- what the pass makes -------------------------------------------------------------------------


def test_ranges_are_those_that_mxnet_finds():
    """Numbers of MXNet 1.9.1's quantize_net_v2 on the same pictures."""
    net = quantization.quantize_net_v2(
        imported("lenet-fp32"), calib_data=batches("lenet"), calib_mode="naive"
    )
    found = {}
    for n in json.loads(net._group.tojson())["nodes"]:
        attrs = n.get("attrs", {})
        if "max_calib_range" in attrs:
            found[n["name"]] = float(attrs["max_calib_range"])
    want = MXNET_RANGES
    assert found == pytest.approx(want, rel=1e-5)


MXNET_RANGES = {
    "data_quantize": 1.0,
    "quantized_sg_mkldnn_conv_act_0": 0.784378,
    "quantized_sg_mkldnn_conv_bn_act_1": 7.510426,
    "quantized_sg_mkldnn_fully_connected_eltwise_0": 9.470819,
}


@pytest.mark.parametrize("granularity", ["tensor-wise", "channel-wise"])
@pytest.mark.parametrize("dtype", ["auto", "int8", "uint8"])
@pytest.mark.parametrize("mode", ["none", "naive"])
@pytest.mark.parametrize("name", ["lenet", "resnet18"])
def test_networks_stay_near_their_floats(name, mode, dtype, granularity):
    data = recorded(name)
    made = quantization.quantize_net_v2(
        imported(f"{name}-fp32"),
        quantized_dtype=dtype,
        quantize_granularity=granularity,
        calib_mode=mode,
        calib_data=batches(name),
    )
    y = made(nd.array(data["x"])).asnumpy()
    assert np.abs(y - data["y_fp32"]).max() < 0.05 * np.abs(data["y_fp32"]).max()
    after = operators(made._group)
    assert (
        not {"Convolution", "BatchNorm", "FullyConnected", "_contrib_requantize"} & set(after)
        or mode == "none"
    )


@pytest.mark.parametrize("mode", ["none", "naive"])
@pytest.mark.parametrize("name", ["lenet", "resnet18"])
def test_models_stay_near_their_floats_with_every_operator_on_bytes(name, mode):
    symbol, args, aux = model(name)
    data = recorded(name)
    made = quantization.quantize_model(
        *(symbol, args, aux),
        label_names=None,
        calib_mode=mode,
        calib_data=batches(name),
        quantized_dtype="auto",
        quantize_mode="full",
    )
    y = run(*made, data["x"])
    assert np.abs(y - data["y_fp32"]).max() < 0.07 * np.abs(data["y_fp32"]).max()
    kinds = operators(made[0])
    assert kinds["Convolution"] == kinds["FullyConnected"] == 0
    assert (kinds["BatchNorm"] == 0) == (mode == "naive")  # on bytes it needs a range


def test_entropy_cuts_what_is_rare():
    rng = np.random.default_rng(0)
    x = np.append([8.0], rng.normal(size=20000)).astype("float32")
    collector = quantization._LayerHistogramCollector(501, include_layer=["x_output"])
    for part in np.array_split(x, 3):
        collector.collect("x_output", nd.array(part))
    low, high = collector.post_collect()["x_output"]
    assert low == -high and 2 < high < 7


def test_histograms_combine():
    rng = np.random.default_rng(1)
    parts = [rng.normal(scale=s, size=1000) for s in (1, 0.5, 3)]
    top = np.abs(parts[0]).max()
    hist, edges = np.histogram(parts[0], bins=101, range=(-top, top))
    old = (hist, edges, parts[0].min(), parts[0].max(), top)
    for p in parts[1:]:
        old = quantization.combine_histogram(old, p, p.min(), p.max(), np.abs(p).max())
    counts, edges, low, high, top = old
    assert counts.sum() == 3000 and len(edges) == len(counts) + 1 and len(counts) % 2 == 1
    assert (low, high) == (min(map(np.min, parts)), max(map(np.max, parts)))
    whole, _ = np.histogram(np.concatenate(parts), bins=len(counts), range=(-top, top))
    assert np.abs(np.cumsum(counts) - np.cumsum(whole)).max() < 60  # bins of another width


@pytest.mark.parametrize("labels", [False, True])
def test_data_loaders_with_and_without_labels(labels):
    data = recorded("lenet")
    arrays = (data["x"], data["label"]) if labels else (data["x"],)
    loader = gluon.data.DataLoader(gluon.data.ArrayDataset(*arrays), batch_size=20)
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Conv2D(4, 3, activation="relu"), gluon.nn.Dense(10))
    net.initialize(mx.init.Xavier())
    want = net(nd.array(data["x"])).asnumpy()
    made = quantization.quantize_net(
        net, calib_data=loader, calib_mode="naive", num_calib_examples=40
    )
    assert np.abs(made(nd.array(data["x"])).asnumpy() - want).max() < 0.05 * np.abs(want).max()
    np.testing.assert_array_equal(net(nd.array(data["x"])).asnumpy(), want)  # it stays as it was


def test_layers_and_operators_are_excluded():
    of = lambda **kw: operators(
        quantization.quantize_net_v2(
            imported("lenet-fp32"), calib_data=batches("lenet"), calib_mode="naive", **kw
        )._group
    )
    bytes_ = lambda found: sum(n for op, n in found.items() if op.startswith("_contrib_quantized"))
    everything = of()
    assert everything["_sg_mkldnn_conv"] == 2
    assert of(exclude_operators=["FullyConnected"])["_contrib_dequantize"] == 1
    less = of(exclude_layers_match=["pool"])
    assert less["Pooling"] == 2 and bytes_(less) < bytes_(everything)
    assert of(exclude_layers=["lenet_flatten0_flatten0"])["Flatten"] == 1


def test_smart_takes_what_lies_between_products():
    x = mx.sym.var("data")
    y = mx.sym.Pooling(x, kernel=(2, 2), name="before")
    y = mx.sym.Convolution(y, kernel=(1, 1), num_filter=2, name="one")
    y = mx.sym.Pooling(y, kernel=(2, 2), name="between")
    y = mx.sym.Convolution(y, kernel=(1, 1), num_filter=2, name="two")
    y = mx.sym.Pooling(y, kernel=(2, 2), name="behind")
    names = lambda mode: {
        s.name
        for s in quantization.quantize_graph(y, {}, {}, calib_mode="none", quantize_mode=mode)[
            0
        ].get_internals()
        if s.name.startswith("quantized_")
    }
    assert names("smart") == {"quantized_one", "quantized_between", "quantized_two"}
    assert names("full") == names("smart") | {"quantized_before", "quantized_behind"}


def test_a_collector_of_the_user():
    class Halved(quantization.CalibrationCollector):
        def collect(self, name, arr):
            name = self._sees(name)
            if name:
                top = float(abs(arr).max().asscalar()) / 2
                self.min_max_dict[name] = (-top, top)

    made = quantization.quantize_net_v2(
        imported("lenet-fp32"),
        calib_data=batches("lenet"),
        calib_mode="customize",
        LayerOutputCollector=Halved(),
    )
    attrs = {n["name"]: n.get("attrs", {}) for n in json.loads(made._group.tojson())["nodes"]}
    assert float(attrs["data_quantize"]["max_calib_range"]) == 0.5


def test_graph_and_calibration_in_two_steps():
    symbol, args, aux = model("lenet")
    data = recorded("lenet")
    qsym, qargs, aux, collector = quantization.quantize_graph(symbol, args, aux, calib_mode="naive")
    executor = symbol.simple_bind(mx.cpu(), grad_req="null", data=data["x"].shape)
    executor.copy_params_from(args, aux)
    executor.set_monitor_callback(collector.collect, monitor_all=True)
    executor.forward(data=nd.array(data["x"]))
    made = quantization.calib_graph(qsym, args, aux, collector, calib_mode="naive")
    assert np.abs(run(*made, data["x"]) - data["y_fp32"]).max() < 1
    assert {"lenet_dense0_weight_quantize", "lenet_dense0_weight_quantize_min"} <= set(qargs)


def test_saved_and_read_again(tmp_path):
    data = recorded("lenet")
    made = quantization.quantize_net(
        imported("lenet-fp32"), calib_data=batches("lenet"), calib_mode="naive"
    )
    y = made(nd.array(data["x"])).asnumpy()
    made.hybridize()
    made(nd.array(data["x"]))
    made.export(str(tmp_path / "net"))
    back = gluon.SymbolBlock.imports(
        str(tmp_path / "net-symbol.json"), ["data"], str(tmp_path / "net-0000.params")
    )
    np.testing.assert_array_equal(back(nd.array(data["x"])).asnumpy(), y)


def test_a_compiled_network_gives_the_same_numbers():
    data = recorded("resnet18")
    made = quantization.quantize_net(
        imported("resnet18-fp32"), calib_data=batches("resnet18"), calib_mode="naive"
    )
    x = nd.array(data["x"])
    first = made(x).asnumpy()
    made.hybridize()
    for _ in range(3):
        made(x)
    mx.wait_compiled()
    assert np.abs(made(x).asnumpy() - first).max() <= np.abs(first).max() / 127


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, rule",
    [
        ({"calib_mode": "best"}, "calib_mode must be one of none, naive, entropy, customize"),
        ({"quantized_dtype": "int4"}, "quantized_dtype must be one of int8, uint8, auto"),
        ({"quantize_mode": "half"}, "quantize_mode must be one of full, smart"),
        ({"quantize_granularity": "row"}, "quantize_granularity must be one of"),
        ({"calib_mode": "naive", "calib_data": None}, "calib_data must be provided"),
        ({"calib_data": None}, "data_shapes must be given"),
        ({"calib_data": 5}, "calib_data must be a DataIter or a DataLoader"),
        ({"calib_data": []}, "at least one batch"),
        ({"exclude_layers": "conv0"}, "exclude_layers must be a list of strings"),
        ({"calib_mode": "customize"}, "needs LayerOutputCollector"),
        ({"ctx": "cpu"}, "ctx must be one device"),
    ],
)
def test_options_that_are_refused(options, rule):
    options = {"calib_data": batches("lenet"), **options}
    with pytest.raises(mx.MXNetError, match=rule):
        quantization.quantize_net_v2(imported("lenet-fp32"), **options)


def test_calibration_that_is_refused():
    symbol, args, aux = model("lenet")
    qsym, _, _, collector = quantization.quantize_graph(symbol, args, aux, calib_mode="naive")
    with pytest.raises(ValueError, match="there is no range of .*_output"):
        quantization.calib_graph(qsym, args, aux, collector, calib_mode="naive")
    with pytest.raises(ValueError, match="must be finite"):
        collector.collect("lenet_conv0_fwd_output", nd.array([np.nan, 1]))
    collector.min_max_dict["data"] = (2.0, 1.0)
    with pytest.raises(ValueError, match="range of data must be finite and its minimum at most"):
        quantization.calib_graph(qsym, args, aux, collector, calib_mode="naive")
    args["lenet_dense0_weight"][:] = np.inf
    with pytest.raises(ValueError, match="'lenet_dense0_weight' must be finite"):
        quantization.quantize_graph(symbol, args, aux)


def test_a_fused_layer_without_its_graph_is_refused():
    text = (FIXTURES / "lenet-int8-onednn-symbol.json").read_text()
    graph = json.loads(text)
    for n in graph["nodes"]:
        n.pop("subgraphs", None)
    with pytest.raises(mx.MXNetError, match="_sg_mkldnn_conv: needs a subgraph"):
        mx.sym.load_json(json.dumps(graph))
