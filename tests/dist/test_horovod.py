"""Scripts written for Horovod and BytePS, in compatibility mode: on two ranks they give the weights
of one process."""

import launched
import numpy as np
import pytest

SCRIPT = ["-m", "plait.compat", str(launched.HERE / "mxnet_job.py")]
CASES = [
    "horovod trainer",
    "horovod trainer, predivided",
    "horovod store",
    "horovod module",
    "horovod module, predivided",
    "horovod module, store",
    "byteps trainer",
    "byteps store",
    "byteps module",
]


def train(n, case, file):
    printed = launched.succeed(n, [*SCRIPT, case, str(file)])
    assert f"same weights on {n} ranks" in printed
    return np.load(file)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The weights of one process, by the kind of the script."""
    folder = tmp_path_factory.mktemp("alone")
    return {
        kind: train(1, f"horovod {kind}", folder / f"{kind}.npz") for kind in ("trainer", "module")
    }


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_give_the_weights_of_one_process(case, alone, tmp_path):
    one = alone["module" if "module" in case else "trainer"]
    two = train(2, case, tmp_path / "two.npz")
    for name in one:
        scale = np.abs(one[name]).max()
        np.testing.assert_allclose(two[name], one[name], rtol=1e-6, atol=1e-6 * scale)


def test_gradients_in_float16_give_about_the_same_weights(alone, tmp_path):
    one, two = alone["trainer"], train(2, "horovod trainer, fp16", tmp_path / "two.npz")
    apart = [np.abs(one[name] - two[name]).max() for name in one]
    assert 0 < max(apart) < 1e-3


@pytest.mark.parametrize("n", [2, 3])
def test_collectives_have_the_values_of_numpy(n):
    script = str(launched.HERE / "mxnet_collectives.py")
    assert launched.succeed(n, ["-m", "plait.compat", script]).count("equal") == n


def test_only_compatibility_mode_provides_horovod(tmp_path):
    """An installed one is not shadowed."""
    (tmp_path / "horovod").mkdir()
    (tmp_path / "horovod" / "__init__.py").write_text("installed = True")
    code = (
        "import plait, plait.compat, sys; sys.path.insert(0, sys.argv[1]); import horovod;"
        "assert horovod.installed\n"
        "try:\n    import byteps.mxnet\nexcept ImportError as error: assert 'byteps' in str(error)"
        "\nelse: raise AssertionError('byteps is there')"
    )
    launched.succeed(1, ["-c", code, str(tmp_path)])
