"""Devices: names, equality, the current one of each thread, a GPU that is not there."""

import pickle
import threading

import pytest
from plait.engine import device
from plait.engine.device import Context, cpu, cpu_pinned, cpu_shared, current_context, gpu
from plait.engine.error import DeviceError


def test_names_numbers_and_equality():
    for context, text, number in [
        (cpu(), "cpu(0)", 1),
        (gpu(3), "gpu(3)", 2),
        (cpu_pinned(), "cpu_pinned(0)", 3),
        (cpu_shared(1), "cpu_shared(1)", 5),
    ]:
        assert repr(context) == str(context) == text and context.device_typeid == number
        copy = pickle.loads(pickle.dumps(context))
        assert copy == context == Context(context) and hash(copy) == hash(context)
    assert (
        cpu(0) != cpu(1)
        and cpu(0) != gpu(0)
        and cpu(0) != "cpu(0)"
        and cpu(100) == Context("cpu", 100)
    )
    assert Context.devstr2type[cpu().device_type] == 1 and Context.devtype2str[5] == "cpu_shared"


def test_the_current_context_is_a_stack_for_each_thread():
    assert current_context() == cpu(0)
    one = cpu(1)
    with one as inner:
        assert inner is one
        with gpu(2), one:
            assert current_context() is one == Context.default_ctx
        assert current_context() is one
        seen = []
        thread = threading.Thread(target=lambda: seen.append(current_context()))
        thread.start()
        thread.join()
        assert seen == [cpu(0)]
    assert current_context() == cpu(0)


@pytest.mark.skipif(device.num_gpus() > 0, reason="this machine has a GPU")
def test_a_gpu_may_be_named_but_not_used():
    cpu().check()
    for use in (lambda: gpu(0).check(), lambda: device.gpu_memory_info(0)):
        with pytest.raises(
            DeviceError, match=r'(?s)gpu\(0\): .*fix: pip install "plait\[cuda13\]"'
        ):
            use()


def test_bad_devices():
    with pytest.raises(DeviceError, match="device_type must be one of cpu, gpu, .*got 'tpu'"):
        Context("tpu")
    with pytest.raises(DeviceError, match="device_id must be >= 0, got -1"):
        cpu(-1)
