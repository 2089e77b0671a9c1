"""What test_horovod.py runs in compatibility mode on ranks: Horovod's collectives against NumPy."""

import horovod.mxnet as hvd
import mxnet as mx
import numpy as np
from horovod.mxnet.mpi_ops import allreduce_ as reduce_in_place
from mxnet import nd

try:
    hvd.rank()
except ValueError as error:
    assert "has not been initialized" in str(error)
else:
    raise AssertionError("rank() before init()")

pair = hvd.ProcessSet([0, 1])
hvd.init(process_sets=[pair])
rank, size = hvd.rank(), hvd.size()
assert (hvd.local_rank(), hvd.local_size()) == (rank, size)  # one machine
assert (hvd.cross_rank(), hvd.cross_size(), hvd.is_homogeneous()) == (0, 1, True)
assert hvd.is_initialized() and hvd.mpi_threads_supported()

every = [np.random.RandomState(r).randn(6, 2).astype("float32") for r in range(size)]
x = nd.array(every[rank])


def same(got, wanted):
    np.testing.assert_allclose(got.asnumpy(), wanted, rtol=1e-6, atol=1e-7)


mean, total = np.mean(every, 0), np.sum(every, 0)
same(hvd.allreduce(x), mean)
same(hvd.allreduce(x, average=False, name="sum", priority=3), total)
same(hvd.allreduce(x, op=hvd.Max), np.max(every, 0))
same(hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0), 2 * total)
same(x, every[rank])
y = x.copy()
assert reduce_in_place(y, average=False, prescale_factor=0.5) is y
same(y, total / 2)
for a, b in zip(hvd.grouped_allreduce([x, x * 2]), [mean, 2 * mean]):
    same(a, b)
group = [x.copy(), x * 2]
hvd.grouped_allreduce_(group, average=False)
same(group[1], 2 * total)

same(hvd.allgather(x), np.concatenate(every))
same(hvd.allgather(x[: rank + 1]), np.concatenate([v[: r + 1] for r, v in enumerate(every)]))
same(hvd.allgather(x[:rank]), np.concatenate([v[:r] for r, v in enumerate(every)]))
same(hvd.broadcast(x, size - 1), every[-1])
same(x, every[rank])
same(hvd.broadcast_(x.copy(), root_rank=1), every[1])

splits = np.full(size, 1)
splits[(rank + 1) % size] = 6 - (size - 1)  # of each rank's six rows, most go to the next one
table = [np.roll(np.array([6 - (size - 1)] + [1] * (size - 1)), r + 1) for r in range(size)]
starts = [np.cumsum(t) - t for t in table]
got, received = hvd.alltoall(x, splits=splits)
wanted = [v[s[rank] :][: t[rank]] for v, s, t in zip(every, starts, table)]
same(got, np.concatenate(wanted))
assert received.asnumpy().tolist() == [t[rank] for t in table]
equal = x[: 2 * size]
parts = [v[: 2 * size].reshape(size, 2, 2)[rank] for v in every]
same(hvd.alltoall(equal), np.concatenate(parts))

same(hvd.reducescatter(x[:size]), mean[:size][rank : rank + 1])
rows = np.array_split(np.arange(5), size)[rank]  # the first ranks have one more
same(hvd.reducescatter(x[:5], op=hvd.Sum), total[:5][rows])

assert hvd.broadcast_object({"from": rank}, root_rank=1) == {"from": 1}
assert hvd.allgather_object(rank * 10) == [10 * r for r in range(size)]
if pair.included():
    same(hvd.allreduce(x, process_set=pair), np.mean(every[:2], 0))
    same(hvd.broadcast(x, 1, process_set=pair), every[1])
    assert (pair.rank(), pair.size()) == (rank, 2)
else:
    try:
        hvd.allreduce(x, process_set=pair)
    except ValueError as error:
        assert f"rank {rank} is not in" in str(error)
    else:
        raise AssertionError("a rank that is not in the process set")
assert hvd.remove_process_set(pair) and not hvd.remove_process_set(hvd.global_process_set)
params = {"a": nd.array(every[rank]), "b": nd.full((3,), rank)}
hvd.broadcast_parameters(params, root_rank=1)
same(params["a"], every[1])
same(params["b"], np.ones(3))
for wrong in ({"op": hvd.Adasum}, {"op": hvd.Sum, "average": True}):
    try:
        hvd.allreduce(x, **wrong)
    except mx.MXNetError:
        continue
    raise AssertionError(wrong)
hvd.barrier()
hvd.shutdown()
assert not hvd.is_initialized()
print("equal", flush=True)
