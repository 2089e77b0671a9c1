"""Datasets, samplers and the loader: here, in threads, in processes; errors, deaths and
reproducibility."""

import os
import random
import signal
import threading
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import numpy as np
import plait as mx
import pytest
from plait.gluon.data import (
    ArrayDataset,
    BatchSampler,
    DataLoader,
    Dataset,
    FilterSampler,
    IntervalSampler,
    RandomSampler,
    RecordFileDataset,
    SequentialSampler,
    SimpleDataset,
)
from plait.gluon.data.dataloader import default_batchify_fn, default_mp_batchify_fn
from plait.gluon.data.shared import Receiver, Sender

FIXTURES = Path(__file__).parent.parent / "fixtures"
WAYS = {
    "here": {},
    "threads": {"num_workers": 2, "thread_pool": True},
    "processes": {"num_workers": 2},
}


@pytest.fixture(params=WAYS)
def way(request):
    return WAYS[request.param]


def numbers(n=10):
    return ArrayDataset(np.arange(n, dtype="float32"), np.arange(n))


# ---- datasets ------------------------------------------------------------------------------------


def test_dataset_methods():
    data = SimpleDataset(list(range(10)))
    assert [data.shard(3, i)[0] for i in range(3)] == [0, 4, 7]
    assert [len(data.shard(3, i)) for i in range(3)] == [4, 3, 3]
    assert len(data.take(3)) == 3 and len(data.take(99)) == len(data.take(None)) == 10
    thirds = data.filter(lambda x: x % 3 == 0)
    assert [thirds[i] for i in range(4)] == [0, 3, 6, 9]
    assert data.sample(SequentialSampler(3, start=4))[0] == 4
    pairs = data.transform(lambda x: (x, -x))
    assert pairs[3] == (3, -3)
    assert pairs.transform_first(lambda x: x + 1)[3] == (4, -3)
    assert pairs.transform(lambda a, b: a * b, lazy=False)[3] == -9
    with pytest.raises(ValueError, match=r"index must be in \[0, num_shards\) = \[0, 3\), got 3"):
        data.shard(3, 3)
    with pytest.raises(TypeError, match="must be a Sampler"):
        data.sample([1, 2])
    with pytest.raises(TypeError, match="must define __len__"):
        len(Dataset())


def test_transform_is_lazy_by_default():
    seen = []
    data = SimpleDataset([1, 2]).transform(seen.append)
    assert seen == []
    data[0], data[0]
    assert seen == [1, 1]
    SimpleDataset([1, 2]).transform(seen.append, lazy=False)
    assert seen == [1, 1, 1, 2]


def test_array_dataset():
    data = ArrayDataset(mx.nd.ones((4, 3)), mx.nd.arange(4), list("abcd"))
    x, y, name = data[2]
    assert x.shape == (3,) and y == 2.0 and not isinstance(y, mx.nd.NDArray) and name == "c"
    assert ArrayDataset([5, 6])[1] == 6
    with pytest.raises(ValueError, match="same length, got 2, 3"):
        ArrayDataset([1, 2], [1, 2, 3])


def test_record_file_dataset():
    data = RecordFileDataset(FIXTURES / "records.rec")
    assert len(data) >= 5 and data[0] == b"abc" and data[2] == b""


# ---- samplers ------------------------------------------------------------------------------------


def test_samplers():
    assert list(SequentialSampler(3, 2)) == [2, 3, 4]
    assert list(FilterSampler(lambda x: x > 7, list(range(10)))) == [8, 9]
    assert list(IntervalSampler(13, 3)) == [0, 3, 6, 9, 12, 1, 4, 7, 10, 2, 5, 8, 11]
    assert list(IntervalSampler(13, 3, rollover=False)) == [0, 3, 6, 9, 12]
    assert len(IntervalSampler(13, 3)) == 13 and len(IntervalSampler(13, 3, rollover=False)) == 5
    with pytest.raises(ValueError, match="interval must be in"):
        IntervalSampler(3, 4)


@pytest.mark.parametrize(
    "last_batch, first, second, length",
    [
        ("keep", [[0, 1, 2], [3, 4]], [[0, 1, 2], [3, 4]], 2),
        ("discard", [[0, 1, 2]], [[0, 1, 2]], 1),
        ("rollover", [[0, 1, 2]], [[3, 4, 0], [1, 2, 3]], 1),
    ],
)
def test_batch_sampler(last_batch, first, second, length):
    sampler = BatchSampler(SequentialSampler(5), 3, last_batch)
    assert len(sampler) == length
    assert list(sampler) == first
    if last_batch == "rollover":
        assert len(sampler) == 2
    assert list(sampler) == second


def test_batch_sampler_refuses():
    with pytest.raises(ValueError, match="last_batch must be one of"):
        BatchSampler(SequentialSampler(5), 3, "drop")
    with pytest.raises(ValueError, match="batch_size must be positive"):
        BatchSampler(SequentialSampler(5), 0)


def test_shuffling_follows_the_seed():
    def orders():
        sampler = RandomSampler(20)
        return [list(sampler), list(sampler)]

    mx.random.seed(5)
    first = orders()
    assert sorted(first[0]) == list(range(20))
    assert first[0] != first[1]
    mx.random.seed(5)
    assert orders() == first
    mx.random.seed(6)
    assert orders() != first


# ---- the loader ----------------------------------------------------------------------------------


def test_batches_are_equal_with_threads_processes_and_none(way):
    batches = list(DataLoader(numbers(), 4, **way))
    assert [len(b) for b in batches] == [2, 2, 2]
    np.testing.assert_array_equal(batches[2][0].asnumpy(), [8, 9])
    assert batches[0][0].dtype == np.float32 and batches[0][1].dtype == np.int64
    assert all(isinstance(x, mx.nd.NDArray) for b in batches for x in b)


def test_many_epochs_and_nested_iteration(way):
    loader = DataLoader(numbers(), 3, **way)
    assert len(loader) == 4
    for _ in range(3):
        assert sum(int(y.asnumpy().sum()) for _, y in loader) == 45
    pairs = [(int(a[1].asnumpy()[0]), int(b[1].asnumpy()[0])) for a, b in zip(loader, loader)]
    assert pairs == [(0, 0), (3, 3), (6, 6), (9, 9)]


def test_leaving_an_epoch_early(way):
    loader = DataLoader(numbers(100), 3, prefetch=20, **way)
    for _, y in loader:
        assert y.asnumpy().tolist() == [0, 1, 2]
        break
    assert sum(int(y.asnumpy().sum()) for _, y in loader) == 4950


def test_shuffled_epochs_repeat_with_the_seed(way):
    def order():
        mx.random.seed(11)
        return [
            int(v) for _, y in DataLoader(numbers(), 3, shuffle=True, **way) for v in y.asnumpy()
        ]

    first = order()
    assert sorted(first) == list(range(10)) and first != list(range(10))
    assert order() == first


class Noisy(Dataset):
    """Items that draw from every random stream."""

    def __len__(self):
        return 12

    def __getitem__(self, i):
        return np.array(
            [random.random(), np.random.rand(), mx.nd.random.uniform(shape=(1,)).asscalar()]
        )


def test_random_transforms_do_not_depend_on_the_number_of_workers():
    def values(n):
        mx.random.seed(3)
        return np.concatenate([b.asnumpy() for b in DataLoader(Noisy(), 2, num_workers=n)])

    one, three = values(1), values(3)
    np.testing.assert_array_equal(one, three)
    # no two batches alike, as forked copies of one stream would be
    assert len(np.unique(one)) == one.size


def test_own_batchify_and_nested_batches(way):
    def batchify(items):
        return {
            "x": mx.nd.array([x for x, _ in items]),
            "names": [f"item {y}" for _, y in items],
            "raw": np.ones(2),
        }

    batches = list(DataLoader(numbers(), 5, batchify_fn=batchify, **way))
    assert batches[1]["names"] == [f"item {i}" for i in range(5, 10)]
    assert isinstance(batches[1]["x"], mx.nd.NDArray) and isinstance(batches[1]["raw"], np.ndarray)
    np.testing.assert_array_equal(batches[0]["x"].asnumpy(), np.arange(5))


def test_large_lists_do_not_block_the_pipes():
    n = 30000  # tasks and replies of more than a pipe holds
    loader = DataLoader(
        SimpleDataset(range(n)), n // 3, num_workers=1, prefetch=3, batchify_fn=list
    )
    assert [len(b) for b in loader] == [n // 3] * 3


@pytest.mark.parametrize("batchify", [default_batchify_fn, default_mp_batchify_fn])
def test_batchify(batchify):
    x, (y, z) = batchify([(mx.nd.ones((2,)), (1, 2.0)), (mx.nd.zeros((2,)), (3, 4.0))])
    np.testing.assert_array_equal(x.asnumpy(), [[1, 1], [0, 0]])
    assert y.dtype == np.int64 and z.dtype == np.float64
    with pytest.raises(ValueError, match=r"must have one shape, got \(2,\), \(3,\)"):
        batchify([np.ones(2), np.ones(3)])


def fails_at_five(x, y):
    if y == 5:
        raise KeyError("five")
    return x, y


def test_dataset_errors_reach_the_caller(way):
    loader = DataLoader(numbers().transform(fails_at_five), 2, **way)
    with pytest.raises(KeyError, match="five") as caught:
        list(loader)
    if way is WAYS["processes"]:
        assert "fails_at_five" in str(caught.value.__cause__) and "test_data.py" in str(
            caught.value.__cause__
        )
    assert next(iter(loader))[1].asnumpy().tolist() == [0, 1]  # the loader goes on living


def stops(x, y):
    raise StopIteration


def test_stop_iteration_in_a_dataset_is_an_error(way):
    with pytest.raises(RuntimeError):
        list(DataLoader(numbers().transform(stops), 2, **way))


class Unpicklable(Exception):
    def __init__(self, a, b):
        super().__init__(f"{a} and {b}")
        self.lock = threading.Lock()


def raises_unpicklable(x, y):
    raise Unpicklable(1, 2)


def test_unpicklable_worker_errors_are_reported_as_text():
    with pytest.raises(mx.MXNetError, match="a worker failed: .*Unpicklable: 1 and 2"):
        list(DataLoader(numbers().transform(raises_unpicklable), 2, num_workers=1))


def kills_itself(x, y):
    if y == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return x, y


def test_a_killed_worker_is_an_error():
    loader = DataLoader(numbers().transform(kills_itself), 2, num_workers=2)
    with pytest.raises(mx.MXNetError, match="died by signal SIGKILL"):
        list(loader)
    loader._dataset = numbers()
    assert len(list(loader)) == 5  # new workers


@pytest.mark.parametrize("n_workers", [1, 2])
def test_a_dead_worker_with_a_living_child_is_an_error(n_workers):
    """The child holds the worker's ends of all pipes: nothing at their other ends tells that the
    worker has died."""
    read, write = os.pipe()
    done = threading.Event()

    def forks_and_dies(x, y):
        if y == 5:
            child = os.fork()
            if child == 0:
                os.close(write)
                os.read(read, 1)  # until the test ends
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)
        return x, y

    def iterate():
        loader = DataLoader(numbers().transform(forks_and_dies), 2, num_workers=n_workers)
        with pytest.raises(mx.MXNetError, match="died by signal SIGKILL"):
            list(loader)
        done.set()

    thread = threading.Thread(target=iterate, daemon=True)
    thread.start()
    found = done.wait(60)
    os.close(write)
    os.close(read)
    thread.join(60)
    assert found


def exits(x, y):
    os._exit(7)


def test_a_worker_that_exits_is_an_error():
    with pytest.raises(mx.MXNetError, match="died with exit status 7"):
        list(DataLoader(numbers().transform(exits), 2, num_workers=1))


class Waits(Dataset):
    """Items that come only when `event` is set, which nobody does."""

    def __init__(self, event):
        self.event = event

    def __len__(self):
        return 2

    def __getitem__(self, i):
        self.event.wait(20)
        return 1.0


@pytest.mark.parametrize("thread_pool", [False, True])
def test_timeout(thread_pool):
    event = threading.Event()
    loader = DataLoader(Waits(event), 1, num_workers=1, timeout=0.2, thread_pool=thread_pool)
    with pytest.raises(mx.MXNetError, match=r"no batch within timeout = 0.2 s"):
        list(loader)
    event.set()


def double(x, y):
    return x * 2, y


def test_spawned_workers():
    loader = DataLoader(
        ArrayDataset(np.arange(4.0), np.arange(4)).transform(double),
        2,
        num_workers=1,
        multiprocessing_context="spawn",
    )
    assert [x.asnumpy().tolist() for x, _ in loader] == [[0, 2], [4, 6]]


def test_spawned_workers_need_a_dataset_that_can_be_pickled():
    loader = DataLoader(
        numbers().transform(lambda x, y: x), 2, num_workers=1, multiprocessing_context="spawn"
    )
    with pytest.raises(
        mx.MXNetError, match="must be picklable for worker processes started by 'spawn'"
    ):
        list(loader)


@pytest.mark.parametrize("how", ["deleted", "killed"])
def test_shared_memory_is_removed_at_the_end(how):
    loader = DataLoader(numbers(100), 2, num_workers=2)
    workers = loader._pool.workers if loader._pool else None
    assert workers is None  # processes start with the first epoch
    iterator = iter(loader)
    next(iterator)
    workers = list(loader._pool.workers)

    def segments():
        return [n for n in os.listdir("/dev/shm") if any(n.startswith(w.prefix) for w in workers)]

    assert segments()
    if how == "killed":
        for worker in workers:
            worker.process.kill()
    del iterator, loader
    assert all(w.process.exitcode is not None for w in workers)
    assert not segments()


def test_unsized_segment_of_a_killed_worker_is_removed():
    prefix = f"plait-test-{os.getpid()}-"
    shared_memory = Path("/dev/shm", f"{prefix}0")
    shared_memory.touch()
    Receiver(prefix).close(sender_died=True)
    assert not shared_memory.exists()


def test_workers_send_through_the_pipe_where_shared_memory_is_full(monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    rows = np.arange(60.0).reshape(6, 10)
    dataset = ArrayDataset(rows, mx.nd.array(rows) * 2)
    for first, second in DataLoader(dataset, 3, num_workers=1):
        np.testing.assert_array_equal(second.asnumpy(), first.asnumpy() * 2)
    sender = Sender(f"plait-test-{os.getpid()}-full-")
    packed = sender.pack([mx.nd.arange(3), np.arange(4)])
    assert packed[1] is None and not sender._segments
    array, values = Receiver("").unpack(packed)
    assert array.asnumpy().tolist() == [0, 1, 2] and values.tolist() == [0, 1, 2, 3]


def test_segments_of_a_sender_killed_during_removal_are_removed(monkeypatch):
    prefix = f"plait-test-{os.getpid()}-killed-"
    sender, removed = Sender(prefix), []
    for _ in range(3):
        sender.pack(np.zeros(10))

    def unlink(segment):
        if removed:
            raise InterruptedError
        removed.append(segment.name)
        real(segment)

    real = SharedMemory.unlink
    monkeypatch.setattr(SharedMemory, "unlink", unlink)
    with pytest.raises(InterruptedError):
        sender.close()
    monkeypatch.setattr(SharedMemory, "unlink", real)
    Receiver(prefix).close(sender_died=True)
    assert not [n for n in os.listdir("/dev/shm") if n.startswith(prefix)]


def test_workers_get_arrays_of_the_parent():
    base = mx.nd.arange(12).reshape((6, 2)) * 2
    batches = [b.asnumpy() for b in DataLoader(SimpleDataset(base), 3, num_workers=1)]
    np.testing.assert_array_equal(np.concatenate(batches), np.arange(12).reshape(6, 2) * 2)


@pytest.mark.filterwarnings("ignore:storage fallback")
def test_sparse_items_make_dense_batches(way):
    rows = np.eye(4, 5, dtype="float32")
    loader = DataLoader(ArrayDataset(mx.nd.sparse.csr_matrix(rows), np.arange(4)), 2, **way)
    batches = [x for x, _ in loader]
    assert all(b.stype == "default" and b.shape == (2, 1, 5) for b in batches)
    np.testing.assert_array_equal(np.concatenate([b.asnumpy()[:, 0] for b in batches]), rows)


@pytest.mark.parametrize("workers", [0, 1])
def test_pinned_batches(workers):
    loader = DataLoader(
        numbers(), 5, num_workers=workers, thread_pool=True, pin_memory=True, pin_device_id=2
    )
    for x, y in loader:
        assert x.context == y.context == mx.cpu_pinned(2)


def test_auto_reload_starts_the_next_epoch():
    loader = DataLoader(numbers(), 5, num_workers=1, auto_reload=True)
    for _ in range(3):
        assert [y.asnumpy()[0] for _, y in loader] == [0, 5]
        assert loader._next_epoch is not None


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({}, "batch_size must be specified unless batch_sampler"),
        ({"batch_size": 2, "batch_sampler": [[1]]}, "must not be specified if batch_sampler"),
        (
            {"batch_size": 2, "shuffle": True, "sampler": SequentialSampler(3)},
            "shuffle must not be specified if sampler",
        ),
        ({"batch_size": 2, "timeout": 0}, "timeout must be positive"),
    ],
)
def test_loader_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        DataLoader(numbers(), **arguments)
