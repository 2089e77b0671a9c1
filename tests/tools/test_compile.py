"""plait compile: networks as C give the bits that plait gives, run without allocating, and what
cannot be compiled is refused with the layer's name."""

import re
import shutil
import subprocess
from pathlib import Path

import compiled_check as check
import compiled_networks as networks
import numpy as np
import plait as mx
import pytest
from plait import nd, sym
from plait.__main__ import main
from plait.compat import onnx
from plait.gluon import nn
from plait.kernels.record import Type
from plait.tools.compile import CompileError, compile_block

EXAMPLES = Path(__file__).resolve().parents[2] / "docs/examples/compiled"
# Not -O3, which takes twice as long. What changes bits is as in plait: a product and a sum as one
# instruction, and how sums of one kernel are vectorized.
FLAGS = [
    "CFLAGS=-O1 -fexpensive-optimizations",
    "--eval=source/kernels/cpu/gemm_thin.o: override CFLAGS = -O3",
]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """name -> (folder, network, inputs, what plait computes); all in one folder, so that each
    kernel is compiled once."""
    folder, made = tmp_path_factory.mktemp("build"), {}

    def get(name):
        if name not in made:
            net, inputs = networks.make(name)
            network = check.build(net, inputs, folder, name, arguments=FLAGS)
            made[name] = folder, network, inputs, networks.frozen(net, inputs)
        return made[name]

    return get


@pytest.fixture(scope="module")
def example(built):
    """The example in C, which runs any compiled network."""
    folder, *_ = built("lenet")
    program = folder / "run"
    source = [EXAMPLES / "run.c", folder / "source/runtime/plait.c"]
    flags = ["-Wall", "-Wextra", "-Werror", f"-I{folder}", f"-I{folder}/source"]
    subprocess.run(["cc", *flags, *source, "-ldl", "-o", program], check=True)
    return program


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_results_are_plaits_bit_for_bit(name, built, example):
    folder, network, inputs, expected = built(name)
    assert [a.name for a in network.inputs] == list(inputs)
    for threads in "13":
        made = check.run([example, folder / f"lib{name}.so", threads], inputs, expected)
        for y, want in zip(made, expected, strict=True):
            assert y.tobytes() == want.tobytes()


def test_lenet_computes_what_numpy_computes(built, example):
    folder, _, inputs, expected = built("lenet")
    net, _ = networks.make("lenet")
    weights = [p.data().asnumpy().astype("float64") for p in net.collect_params().values()]

    def convolve(x, w, b, pad):
        x = np.pad(x, ((0, 0), (pad, pad), (pad, pad)))
        windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(1, 2))
        return np.maximum(np.einsum("chwij,fcij->fhw", windows, w) + b[:, None, None], 0)

    def pool(x):
        c, h, w = x.shape
        return x.reshape(c, h // 2, 2, w // 2, 2).max((2, 4))

    x = inputs["data"][0].astype("float64")
    x = pool(convolve(x, *weights[:2], 2))
    x = pool(convolve(x, *weights[2:4], 0)).reshape(-1)
    for w, b in (weights[4:6], weights[6:8]):
        x = np.maximum(w @ x + b, 0)
    (made,) = check.run([example, folder / "liblenet.so", "1"], inputs, expected)
    np.testing.assert_allclose(made[0], weights[8] @ x + weights[9], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["lenet", "lstm"])
def test_instances_run_at_once_and_allocate_nothing(name, built):
    folder, _, inputs, expected = built(name)
    program = check.link(folder, name, ["-DCOUNTS_MALLOC", "-Wall", "-Wextra", "-Werror"])
    for y, want in zip(check.run([program, "2"], inputs, expected), expected, strict=True):
        assert y.tobytes() == want.tobytes()


def test_lenet_is_small(built):
    folder, network, *_ = built("lenet")
    library = folder / "liblenet.so"
    assert library.stat().st_size - len(network.weights) < 1 << 20


def test_the_header_tells_the_arrays(built):
    folder, *_ = built("pair")
    program = folder / "typed.c"
    program.write_text(
        '#include "pair.h"\n#include <stdio.h>\n#include <string.h>\n'
        "static float a[5 * 70], b[70], y[5 * 70], z[5 * 70];\n"
        "int main(void)\n{\n"
        "    static const int shape[] = PAIR_A_SHAPE;\n"
        "    plait_net *net = pair_init(1);\n"
        "    int wrong = !net || PAIR_INPUTS != 2 || PAIR_A_BYTES != sizeof a || shape[1] != 70;\n"
        '    wrong = wrong || strcmp(PAIR_B_NAME, "b") || strcmp(PAIR_B_DTYPE, "float32");\n'
        "    wrong = wrong || pair_run(net, a, b, y, z);\n"
        "    pair_free(net);\n"
        '    printf("%.6f %.6f\\n", y[0], z[1]);\n'
        "    return wrong;\n}\n"
    )
    names = [a.name for a in built("pair")[1].outputs]
    assert len(set(names)) == 2
    command = ["cc", "-Wall", "-Wextra", "-Werror", f"-I{folder}", program, folder / "pair.o"]
    made = folder / "typed"
    subprocess.run([*command, "-lm", "-ldl", "-pthread", "-o", made], check=True)
    said = subprocess.run([made], capture_output=True, text=True, check=True).stdout
    # exp(-0) * 0 + sqrt(1) = 1 everywhere
    assert said == f"{-np.log(70):.6f} {np.sin(1):.6f}\n"


def test_a_program_in_rust(built, tmp_path):
    rustc = shutil.which("rustc")
    if rustc is None:
        pytest.skip("a machine without rustc does not run it")
    folder, _, inputs, expected = built("lenet")
    made = tmp_path / "run"
    linked = [f"-L{folder}", "-l", "lenet", "-C", f"link-arg=-Wl,-rpath,{folder}"]
    subprocess.run([rustc, EXAMPLES / "run.rs", *linked, "-o", made], check=True)
    for name in ("lenet", "resnet"):
        folder, _, inputs, expected = built(name)
        (y,) = check.run([made, folder / f"lib{name}.so", "2"], inputs, expected)
        assert y.tobytes() == expected[0].tobytes()
    said = subprocess.run([made, tmp_path / "none.so", "1"], capture_output=True, text=True)
    assert said.returncode == 1 and "none.so" in said.stderr


@pytest.mark.parametrize(
    ("library", "why"),
    [("absent.so", "absent.so: cannot open"), ("libm.so.6", "is no network that plait compiled")],
)
def test_a_library_that_is_no_network_is_refused(library, why, example):
    said = subprocess.run([example, library, "1"], capture_output=True, text=True)
    assert said.returncode == 1 and why in said.stderr


# ---- files ---------------------------------------------------------------------------------------


@pytest.fixture
def module_files(tmp_path, monkeypatch):
    """The files of a Module's network, which ends in a loss with a label."""
    monkeypatch.chdir(tmp_path)
    net = sym.FullyConnected(sym.var("data"), num_hidden=4, name="layer")
    net = sym.SoftmaxOutput(net, sym.var("softmax_label"), name="softmax")
    rng = np.random.RandomState(0)
    params = {"layer_weight": rng.normal(size=(4, 6)), "layer_bias": rng.normal(size=4)}
    net.save("net-symbol.json")
    nd.save("net-0000.params", {f"arg:{k}": nd.array(v) for k, v in params.items()})
    return ["net-symbol.json", "net-0000.params"]


def test_files_are_compiled_without_their_label(module_files, capsys):
    shape = ["--shape", "data=2,6"]
    assert main(["compile", *module_files, *shape, "-o", "made", "--target", "baseline"]) == 0
    said = capsys.readouterr().out
    assert "2 calls of 2 kernels" in said and "make -C made" in said
    header = Path("made/net.h").read_text()
    assert "net_run(plait_net *net, const float *data, float *softmax" in header
    assert "-mavx" not in Path("made/Makefile").read_text()


def test_an_onnx_file_is_compiled(module_files, capsys):
    pytest.importorskip("onnx")
    net = nn.HybridSequential()
    net.add(nn.Dense(3, in_units=4))
    net.initialize()
    net.hybridize()
    net(nd.ones((1, 4)))
    net.export("dense")
    onnx.export_model(
        "dense-symbol.json", "dense-0000.params", {"data": (1, 4)}, "float32", "d.onnx"
    )
    for shape in ([], ["--shape", "data=1,4"]):
        assert main(["compile", "d.onnx", *shape, "-o", "made"]) == 0
        assert "const float *data" in Path("made/net.h").read_text()
    assert main(["compile", "d.onnx", "--shape", "x=1,4", "-o", "made"]) == 1
    assert "has the inputs data, got --shape for x" in capsys.readouterr().err


def test_a_folder_is_written_again_only_where_it_changes(module_files):
    command = ["compile", *module_files, "-o", "made", "--shape", "data=2,6"]
    assert main(command) == 0
    times = {p: p.stat().st_mtime_ns for p in Path("made").rglob("*.[chS]")}
    assert main(command) == 0
    assert {p: p.stat().st_mtime_ns for p in Path("made").rglob("*.[chS]")} == times


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--shape", "data=2,x"], "--shape must be NAME=1,3,224,224, got '2,x'"),
        (["--shape", "data"], "--shape must be NAME=VALUE, got 'data'"),
        (["--shape", "data=2,6", "--dtype", "x=int8"], "--dtype x: no --shape has this name"),
        (["--shape", "image=2,6"], "no variable 'image'"),
        (["--shape", "data=2,7"], "layer"),
        (["--shape", "data=2,6", "--name", "plait"], "'plait' is plait's own"),
    ],
)
def test_wrong_arguments_are_told(module_files, arguments, why, capsys):
    assert main(["compile", *module_files, "-o", "made", *arguments]) == 1
    assert why in capsys.readouterr().err
    assert not Path("made").exists()


def test_numbers_are_those_of_the_network(tmp_path):
    """Calls that differ in numbers alone have one plan in plait."""
    x = {"x": Type((2, 3), "float32")}
    for number in ("0.125", "0.375"):
        net = nn.HybridLambda(lambda F, x, n=float(number): F.sqrt(F.abs(x) + n) * n)
        net.initialize()
        compile_block(net, tmp_path, x)
        text = (tmp_path / "source/network.c").read_text()
        assert re.search(rf"scalars\[\] = {{{number}, {number}}};", text)


SMALL = {
    "pointwise": lambda F, a, b: F.relu(a - b),
    "a kernel on one thread": lambda F, a, b: F._internal._among(a, b),
    "nothing": lambda F, a, b: F.identity(a),
}


@pytest.mark.parametrize("f", SMALL.values(), ids=SMALL)
def test_headers_of_small_networks_are_there(f, tmp_path):
    net = nn.HybridLambda(f)
    net.initialize()
    compile_block(net, tmp_path, {"a": Type((2, 3), "int32"), "b": Type((2, 3), "int32")})
    folders = [tmp_path, tmp_path / "source", tmp_path / "source/kernels/cpu"]
    for path in tmp_path.rglob("*.[ch]"):
        for name in re.findall(r'^#include "(.*)"', path.read_text(), re.MULTILINE):
            assert any((folder / name).is_file() for folder in (path.parent, *folders)), name


def test_another_target_compiles_everything_again(module_files):
    command = ["compile", *module_files, "-o", "made", "--shape", "data=2,6", "--target"]
    assert main([*command, "baseline"]) == 0
    make = ["make", "-C", "made", "CC=true"]
    said = subprocess.run(make, capture_output=True, text=True, check=True).stdout
    compiled = re.findall(r"-c (\S+\.c)", said)
    for path in compiled:  # `true` wrote nothing
        Path("made", path).with_suffix(".o").touch()
    Path("made/source/weights.o").touch()
    again = subprocess.run(make, capture_output=True, text=True, check=True).stdout
    assert not re.search(r"-c \S+\.c", again)
    assert main([*command, "aarch64"]) == 0
    again = subprocess.run(make, capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"-c (\S+\.c)", again)) == set(compiled)


# ---- what is refused -----------------------------------------------------------------------------


def refused(net, shape, dtype="float32", **kwargs):
    net.initialize()
    with pytest.raises(CompileError) as error:
        compile_block(net, "never", {"x": Type(shape, dtype)}, **kwargs)
    assert not Path("never").exists()
    return str(error.value)


def test_a_layer_in_numpy_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    net = nn.HybridLambda(lambda F, x: F.contrib.fft(x))
    assert re.search("operator _contrib_fft.*no kernel in C", refused(net, (3, 4)))


def test_shapes_that_depend_on_values_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    net = nn.HybridLambda(lambda F, x: F.contrib.boolean_mask(x, x[:, 0] > 0))
    assert "net has shapes that depend on values: " in refused(net, (3, 4))


def test_random_numbers_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    net = nn.HybridLambda(lambda F, x: F.sample_multinomial(F.softmax(x)))
    assert "draws random numbers" in refused(net, (3, 4))


def test_an_unknown_target_is_refused():
    with pytest.raises(ValueError, match="the target must be one of native"):
        compile_block(nn.Dense(2), "never", {"x": Type((1, 2), "float32")}, target="z80")


def test_a_target_beyond_this_machine_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(mx.tools.compile.LEVELS, "avx512", mx.engine.lib.PLK_ISA_COUNT)
    assert "this processor cannot run" in refused(nn.Dense(2), (1, 2), target="avx512")
