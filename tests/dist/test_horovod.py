"""Scripts written for Horovod and BytePS, in compatibility mode: on several ranks they give the
weights of one process."""

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


def trained(n, cases, folder):
    folder.mkdir()
    printed = launched.succeed(n, [*SCRIPT, str(folder), *cases])
    assert printed.count(f"same weights on {n} ranks") == len(cases)
    return {case: np.load(folder / f"{case}.npz") for case in cases}


@pytest.mark.parametrize("n", launched.RANKS)
def test_ranks_give_the_weights_of_one_process(n, tmp_path):
    alone = trained(1, ["horovod trainer", "horovod module"], tmp_path / "alone")
    found = trained(n, [*CASES, "horovod trainer, fp16"], tmp_path / "found")
    for case in CASES:
        one = alone["horovod module" if "module" in case else "horovod trainer"]
        for name in one:
            atol = 1e-6 * np.abs(one[name]).max()
            np.testing.assert_allclose(found[case][name], one[name], 1e-6, atol, err_msg=case)
    one, half = alone["horovod trainer"], found["horovod trainer, fp16"]
    apart = [np.abs(one[name] - half[name]).max() for name in one]
    assert 0 < max(apart) < 1e-3


@pytest.mark.parametrize("n", [n for n in launched.FEW if n < 4])  # of six rows
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
