"""What `make fuzz` has found, each as a test of its class."""

import json

import numpy as np
import plait as mx
import pytest
from plait import nd
from plait.kernels.record import REGISTRY, lookup
from plait.ndarray.invoke import invoke

COUNTED = sorted({op.name for op in REGISTRY.values() if op.variadic_key and op.samples})


def call(name, *arrays, **attrs):
    return invoke(lookup(name), [nd.array(a) for a in arrays], attrs)


def test_a_view_has_the_bytes_of_its_input():
    """_from_memory(shape=(2, 3)) of two elements read four that were not there."""
    with pytest.raises(mx.MXNetError, match="its output is its input's memory, of 8 bytes, not of"):
        call("_from_memory", np.ones((2, 1)), shape=(2, 3), layout="")
    x = mx.sym.Variable("x")
    symbol = mx.sym.Reshape(x, shape=(3, 2))
    text = (
        symbol.tojson()
        .replace('"Reshape"', '"_from_memory"')
        .replace('"attrs": {', '"attrs": {"layout": "", ')
    )
    with pytest.raises(mx.MXNetError, match="its output is its input's memory"):
        mx.sym.load_json(text).bind(mx.cpu(), {"x": nd.ones((2, 1))}).forward()


@pytest.mark.parametrize("layout", ["no such", "None", "aab", "aB8c", "ab", "abcd", "(0, 1)"])
def test_a_layout_that_names_other_axes_is_refused(layout):
    with pytest.raises(mx.MXNetError, match="layout"):
        call("_reorder", np.ones((2, 3, 4)), layout=layout)


@pytest.mark.parametrize("name", COUNTED)
def test_the_number_of_inputs_is_the_one_that_is_given(name):
    """nd refused what sym took, and the other way round."""
    op = lookup(name)
    attrs = {
        p.name: v for s in op.samples[:1] for p in op.params for v in [s.attrs.get(p.name)] if v
    }
    attrs[op.variadic_key] = 7
    for make in (
        lambda: invoke(op, [nd.ones((2, 2))] * 2, attrs),
        lambda: getattr(mx.sym, op.name, mx.sym._internal)(
            mx.sym.var("a"), mx.sym.var("b"), **attrs
        ),
    ):
        with pytest.raises(mx.MXNetError, match=f"{op.variadic_key} is 7, but 2 inputs are given"):
            make()


@pytest.mark.parametrize("head", ["", [], [0], {}, None, 3, "ab", [0, None], [[0], 0]])
def test_malformed_heads_of_a_symbol_file(head):
    graph = json.loads(mx.sym.relu(mx.sym.var("x")).tojson())
    with pytest.raises(mx.MXNetError, match="is no symbol|which is not there"):
        mx.sym.load_json(json.dumps({**graph, "heads": [head]}))


@pytest.mark.parametrize("name, count", [("SliceChannel", "num_outputs"), ("split", "num_outputs")])
def test_an_operator_without_outputs_is_refused(name, count):
    for n in (0, -1, -(2**31)):
        with pytest.raises(mx.MXNetError, match="at least one output|at least 1|must be"):
            getattr(mx.sym, name)(mx.sym.var("x"), **{count: n}).list_outputs()


@pytest.mark.parametrize("field", ["name", "op"])
def test_names_in_symbol_files_are_texts(field):
    graph = json.loads(mx.sym.relu(mx.sym.var("x")).tojson())
    for value in (None, 3, [0], {}):
        graph["nodes"][1][field] = value
        with pytest.raises(mx.MXNetError, match="its name and op must be texts"):
            mx.sym.load_json(json.dumps(graph))


def test_the_vector_of_the_unknown_token_has_the_size_of_the_others(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("<unk> 0 0 0\nthe 1 2\n")
    with pytest.raises(mx.MXNetError, match="line 1 of .*: the dimension of <unk> is 3 but that"):
        mx.contrib.text.embedding.CustomEmbedding(str(path))


@pytest.mark.parametrize("name, attrs", [("_diag_grad", {}), ("broadcast_to", {})])
def test_a_shape_that_no_machine_holds_is_out_of_memory(name, attrs):
    """NumPy's own MemoryError came from the array whose strides tell how to copy."""
    with pytest.raises(mx.MXNetError) as found:
        call(name, np.ones((1, 1)), shape=(1 << 20, 1 << 19), **attrs)
    assert isinstance(found.value, (MemoryError, ValueError))


def test_a_checkpoint_whose_keys_are_damaged(tmp_path):
    net = mx.gluon.nn.Dense(2, in_units=3)
    net.initialize()
    checkpoint = mx.checkpoint.Checkpoint(tmp_path / "run.ckpt", net=net)
    checkpoint.save()
    whole = (tmp_path / "run.ckpt").read_bytes()
    for word in (b'"values"', b'"grads"', b'"streams"', b'"parts"', b'"state"'):
        if word in whole:
            (tmp_path / "run.ckpt").write_bytes(whole.replace(word, word[:2] + b"-" + word[3:]))
            with pytest.raises(mx.checkpoint.StateError, match="damaged|holds"):
                checkpoint.restore()


@pytest.mark.parametrize("device", [1e30, True, "gpu(x)", "None(3)", b"x", ()])
def test_a_device_is_checked_wherever_attributes_are_parsed(device):
    for make in (mx.nd._internal._zeros, mx.sym._internal._zeros):
        with pytest.raises(
            mx.MXNetError, match="a device is written as|device_type must be one of"
        ):
            make(shape=(2,), ctx=device)
    for make in (mx.nd._internal._zeros, lambda **k: mx.sym._internal._zeros(**k).eval()[0]):
        assert make(shape=(2,), ctx="None").context == mx.cpu(0)


def test_bfloat16_of_one_number_keeps_its_shape():
    from plait.kernels.spec import from_bfloat16, round_to_bfloat16

    one = np.float32(1.5).reshape(())
    bits = round_to_bfloat16(one)
    assert bits.shape == () and from_bfloat16(bits).shape == () and from_bfloat16(bits) == 1.5
