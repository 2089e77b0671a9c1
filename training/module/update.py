"""The update step of modules: gradients of all devices through a store or an updater."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..kvstore import KVStore


def fill_store(
    kvstore: Any,
    param_arrays: Any,
    arg_params: dict,
    param_names: Sequence[str],
    update_on_kvstore: bool,
) -> None:
    """Gives the parameters to a store; with update_on_kvstore the devices then pull them.

    param_arrays: for each parameter one NDArray per device.
    """
    for name, arrays in zip(param_names, param_arrays):
        alone = isinstance(kvstore, KVStore) and kvstore.num_workers == 1
        wanted = update_on_kvstore or not alone  # other processes have other first values
        if wanted and arg_params[name].stype == "default":
            kvstore.broadcast(name, arg_params[name], out=arrays)
            if isinstance(kvstore, KVStore) and update_on_kvstore:
                kvstore.share(name, arrays)
        else:
            kvstore.init(name, arg_params[name])


def update_on_store(
    param_arrays: Any, grad_arrays: Any, kvstore: Any, param_names: Sequence[str]
) -> None:
    """Pushes gradients and pulls the weights that the store has updated."""
    _exchange(kvstore, param_names, grad_arrays, param_arrays)


def update_here(
    param_arrays: Any,
    grad_arrays: Any,
    updater: Any,
    num_device: int,
    kvstore: Any = None,
    param_names: Sequence[str] | None = None,
) -> None:
    """Sums gradients on the store, if there is one, and updates each device's weights.

    The updater's index of parameter i on device k is i * num_device + k.
    """
    if kvstore is not None:
        _exchange(kvstore, param_names, grad_arrays, grad_arrays)
    for k in range(num_device):
        known = [i for i, grads in enumerate(grad_arrays) if grads[0] is not None]
        if known:
            updater(
                [i * num_device + k for i in known],
                [grad_arrays[i][k] for i in known],
                [param_arrays[i][k] for i in known],
            )


def _exchange(kvstore, names, grad_arrays, targets) -> None:
    """Pushes the gradients that exist and pulls into targets."""
    known = [
        (i, name, grads, outs)
        for i, (name, grads, outs) in enumerate(zip(names, grad_arrays, targets))
        if grads[0] is not None
    ]
    dense = [x for x in known if x[2][0].stype == x[3][0].stype == "default"]
    if isinstance(kvstore, KVStore):  # in one call, so that updates are batched
        keys, summed = [name for _, name, _, _ in dense], [grads for _, _, grads, _ in dense]
        if targets is grad_arrays:
            kvstore.sum_in_place(keys, summed)
        else:
            kvstore.pushpull(keys, summed, out=[outs for *_, outs in dense])
    else:
        for i, name, grads, outs in dense:
            kvstore.pushpull(name, grads, out=outs, priority=-i)
    for i, name, grads, outs in known:
        if not grads[0].stype == outs[0].stype == "default":
            kvstore.push(name, grads, priority=-i)
            # rows of sparse weights are fetched for each batch by Module.prepare
            if outs is grads or outs[0].stype == "default":
                kvstore.pull(name, out=outs, priority=-i, ignore_sparse=False)
