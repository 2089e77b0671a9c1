"""SyncBatchNorm over ranks: against NumPy on the whole batch. Small gradients share collectives."""

import launched
import pytest


@pytest.mark.parametrize("case", ["normalisation", "alone", "collectives"])
def test_on_two_ranks(case, tmp_path):
    assert "done" in launched.succeed(2, ["summed.py", case, str(tmp_path)])
