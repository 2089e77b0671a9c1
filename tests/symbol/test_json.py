"""Files that MXNet wrote, old ones too: they load, compute what MXNet computed, and are written
back."""

import json
from pathlib import Path

import numpy as np
import plait as mx
import pytest

FIXTURES = Path(__file__).parent.parent / "fixtures"
PAIRS = {
    "lenet": ("lenet", "lenet-0003"),
    "mobilenet": ("mobilenet0.25", "mobilenet0.25-0000"),
    "lstm": ("lstm", "lstm-0000"),
    "module": ("module", "module-0012"),
}
EXPECTED = np.load(FIXTURES / "expected.npz")


@pytest.mark.parametrize("name", PAIRS)
def test_file_of_mxnet_computes_the_same(name):
    symbol_file, params_file = PAIRS[name]
    net = mx.sym.load(str(FIXTURES / f"{symbol_file}-symbol.json"))
    params = mx.nd.load(str(FIXTURES / f"{params_file}.params"))
    x = EXPECTED[f"{name}_x"]
    ex = net.simple_bind(mx.cpu(), grad_req="null", data=x.shape)
    ex.copy_params_from(
        {k[4:]: v for k, v in params.items() if k.startswith("arg:")},
        {k[4:]: v for k, v in params.items() if k.startswith("aux:")},
    )
    y = ex.forward(data=mx.nd.array(x))[0].asnumpy()
    np.testing.assert_allclose(y, EXPECTED[f"{name}_y"], atol=1e-4)


@pytest.mark.parametrize(
    "name", ["mobilenet0.25-symbol.json", "module-symbol.json", "control-flow-symbol.json"]
)
def test_file_round_trips_exactly(name):
    text = (FIXTURES / name).read_text()
    assert mx.sym.load_json(text).tojson() == text


def test_save_and_load(tmp_path):
    net = mx.sym.relu(mx.sym.var('\u00e4 "x"\n', shape=(2,)), name="r")
    net.save(str(tmp_path / "net-symbol.json"))
    again = mx.sym.load(str(tmp_path / "net-symbol.json"))
    assert again.tojson() == net.tojson() and again.list_arguments() == ['\u00e4 "x"\n']


def test_version_0_8_is_upgraded():
    net = mx.sym.load(str(FIXTURES / "save_000800.json"))
    assert net.list_auxiliary_states() == ["batchnorm0_moving_mean", "batchnorm0_moving_var"]
    attrs = net.attr_dict()
    assert (
        attrs["fc1_weight"]["__lr_mult__"] == "1.2" and attrs["fc1_weight"]["__wd_mult__"] == "0.3"
    )
    assert (
        attrs["data"]["lr_mult"] == "0.2"
        and attrs["batchnorm0_moving_var"]["__init__"] == '["one", {}]'
    )
    assert "weight_lr_mult" not in attrs["fc1"]
    assert net.infer_shape(data=(2, 8))[1] == [(2, 10)]


def graph(*nodes, version=10901, heads=None):
    attrs = {"attrs": {"mxnet_version": ["int", version]}} if version else {}
    return json.dumps(
        {
            "nodes": [{"op": "null", "name": "x", "inputs": []}, *nodes],
            "arg_nodes": [0],
            "heads": heads or [[len(nodes), 0, 0]],
            **attrs,
        }
    )


@pytest.mark.parametrize("version, axis", [(None, None), (904, None), (905, "-1"), (10901, "-1")])
def test_argmax_of_old_files_has_no_axis(version, axis):
    node = {"op": "argmax", "name": "m", "attr": {"axis": "-1"}, "inputs": [[0, 0]]}
    assert mx.sym.load_json(graph(node, version=version)).attr("axis") == axis


def test_unknown_attributes_are_kept():
    net = mx.sym.load_json(
        graph(
            {
                "op": "relu",
                "name": "r",
                "attrs": {"novel": "2", "__k__": "v"},
                "inputs": [[0, 0, 0]],
            }
        )
    )
    assert net.attr("novel") == "2" and json.loads(net.tojson())["nodes"][1]["attrs"] == {
        "__k__": "v",
        "novel": "2",
    }


def test_control_flow_of_a_file_runs():
    net = mx.sym.load(str(FIXTURES / "control-flow-symbol.json"))
    a, b = mx.nd.array([[1, 2, 3], [4, 5, 6]]), mx.nd.ones((2, 3))
    found, blocked = net.eval(a=a, b=b, init=mx.nd.zeros(3))
    assert found.asnumpy().tolist() == [[2, 3, 4], [7, 9, 11]]
    assert blocked.asnumpy().tolist() == [[2, 3, 4], [5, 6, 7]]
    cut = net.get_internals()["s_output"]
    assert cut.eval(a=mx.nd.ones((2, 3)), b=mx.nd.ones((2, 3)))[0].asnumpy().sum() == 12


@pytest.mark.parametrize(
    "text, rule",
    [
        ("{", "is not a symbol, its JSON is broken"),
        ("[]", 'must have the lists "nodes" and "heads"'),
        ('{"nodes": [], "heads": []}', '"heads" must not be empty'),
        (graph({"op": "nope", "name": "n", "inputs": []}), "node 'n': operator 'nope' is unknown"),
        (
            graph({"op": "relu", "name": "n", "inputs": [[7, 0, 0]]}),
            "reads output 0 of node 7, which does not exist",
        ),
        (graph({"op": "relu", "name": "n", "inputs": [[0, 1, 0]]}), "reads output 1 of node 0"),
        (graph({"op": "relu", "name": "n", "inputs": 3}), "node 1 is malformed"),
        (graph({"op": "relu"}), "node 1 is malformed"),
        (graph(heads=[[4, 0, 0]]), "heads reads output 0 of node 4"),
        (
            graph(
                {
                    "op": "Activation",
                    "name": "a",
                    "attrs": {"act_type": "bad"},
                    "inputs": [[0, 0, 0]],
                }
            ),
            "act_type must be one of",
        ),
    ],
)
def test_broken_json_errors_say_what_is_wrong(text, rule):
    with pytest.raises(mx.MXNetError) as error:
        mx.sym.load_json(text)
    assert rule in str(error.value)


def test_missing_file_and_wrong_types(tmp_path):
    with pytest.raises(mx.MXNetError, match="symbol file: cannot read|no utf-8 text"):
        mx.sym.load(str(tmp_path / "none.json"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(mx.MXNetError, match="symbol file: cannot read|no utf-8 text"):
        mx.sym.load(str(tmp_path / "binary"))
    with pytest.raises(TypeError):
        mx.sym.load_json(3)


def test_amp_casts_are_left_out():
    a, b = mx.sym.var("a"), mx.sym.var("b")
    both = mx.sym.amp_multicast(a, mx.sym.amp_cast(b, dtype="float16"), num_outputs=2)
    net = both[0] + both[1]
    assert [n["op"] for n in json.loads(net.tojson())["nodes"]] == ["null", "null", "elemwise_add"]
    assert "amp_cast" in net.tojson(remove_amp_cast=False)
