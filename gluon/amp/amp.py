"""Mixed precision for eager code, blocks and symbols: casts by a policy, and loss scaling for a
Trainer."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import Any

from ...engine import Context, gpu
from ...engine.error import InvalidType, MXNetError
from ...graph.graph import topological
from ...graph.passes.precision import reduce_precision
from ...kernels import precision
from ...kernels.record import DTYPES, REGISTRY, dtype_name
from ...kernels.traits import LossLayer
from ...symbol.symbol import Symbol
from ...training.module.bucketing_module import BucketingModule
from ...training.optimizer import Optimizer
from .. import trainer
from ..hybrid import HybridBlock
from ..symbol_block import SymbolBlock
from .loss_scaler import LossScaler

__all__ = [
    "autocast",
    "convert_bucketing_module",
    "convert_hybrid_block",
    "convert_model",
    "convert_symbol",
    "init",
    "init_trainer",
    "list_conditional_fp32_ops",
    "list_fp32_ops",
    "list_loss_output_functions",
    "list_lp16_fp32_ops",
    "list_lp16_ops",
    "list_lp16_use_fp32_params",
    "list_widest_type_cast",
    "scale_loss",
    "unscale",
]

# under MXNet's names, for libraries that read them
_amp_initialized = False
_loss_scaler: LossScaler | None = None  # one per process, taken by the first trainer
_amp_loss_scale_initialized = False  # has one?


class AmpError(MXNetError, AssertionError):
    """Mixed precision used before it is initialised."""


def init(
    target_dtype: str = "float16",
    target_precision_ops: Sequence[str] | None = None,
    conditional_fp32_ops: Sequence[tuple[str, str, Sequence[str]]] | None = None,
    fp32_ops: Sequence[str] | None = None,
) -> None:
    """From now on every call, eager or traced, casts its inputs according to the lists.

    Args:
        target_dtype: 'float16' or 'bfloat16'.
        target_precision_ops, fp32_ops: names of operators that compute in it, or in float32,
            instead of the lists of list_lp16_ops and list_fp32_ops.
        conditional_fp32_ops: (operator, parameter, values) instead of list_conditional_fp32_ops.
    Raises: MXNetError for another dtype or an unknown operator.
    """
    global _amp_initialized, _loss_scaler
    chosen = precision.policy(target_dtype, target_precision_ops, conditional_fp32_ops, fp32_ops)
    if _loss_scaler is None:
        _loss_scaler = LossScaler()
        logging.info("Using AMP")
    precision.set_default(chosen, _loss_scaler)
    _amp_initialized = True


def autocast(target_dtype: str = "float16", enabled: bool = True) -> Any:
    """`with amp.autocast():` inside, calls of this thread cast as after `init`; with enabled=False
    they do not. plait's addition. Raises MXNetError for another dtype."""
    return precision.forced(precision.policy(target_dtype) if enabled else None)


def _check_trainer(given) -> trainer.Trainer:
    if isinstance(given, Optimizer):
        raise InvalidType("AMP is currently only compatible with Gluon Trainer")
    if not isinstance(given, trainer.Trainer):
        raise InvalidType(f"amp: expected a Gluon Trainer, got {type(given).__name__}")
    return given


def init_trainer(optimizer_or_trainer: Any) -> None:
    """Gives a Trainer a dynamic loss scale; it then skips steps whose gradients overflow.

    Raises AmpError (AssertionError) before init, InvalidType (TypeError) for anything but a
    Trainer.
    """
    global _amp_loss_scale_initialized
    if _loss_scaler is None:
        raise AmpError("AMP not initialized, did you forget to call amp.init()?")
    chosen = _check_trainer(optimizer_or_trainer)
    chosen._amp_loss_scaler = LossScaler() if _amp_loss_scale_initialized else _loss_scaler
    chosen._amp_original_scale = chosen._scale
    if not chosen._kv_initialized and chosen._kvstore_params["update_on_kvstore"] is None:
        # the store would update before the gradients are checked
        chosen._kvstore_params["update_on_kvstore"] = False
    _amp_loss_scale_initialized = True


@contextlib.contextmanager
def scale_loss(loss: Any, optimizer_or_trainer: Any) -> Iterator[Any]:
    """`with amp.scale_loss(loss, trainer) as scaled: autograd.backward(scaled)`: the loss, or a
    list of losses, times the loss scale; the trainer divides the gradients by it. Raises
    AmpError."""
    scaler = getattr(optimizer_or_trainer, "_amp_loss_scaler", None)
    if scaler is None:
        raise AmpError("Loss scaler is not initialized, did you forget to call amp.init_trainer()?")
    scale = scaler.loss_scale
    optimizer_or_trainer._scale = optimizer_or_trainer._amp_original_scale / scale
    yield [part * scale for part in loss] if isinstance(loss, (list, tuple)) else loss * scale


def unscale(optimizer_or_trainer: Any) -> None:
    """Divides the gradients by the loss scale now, e.g. to clip them before `step`."""
    chosen = _check_trainer(optimizer_or_trainer)
    for p in chosen._params:
        for grad in p.list_grad() if p.grad_req != "null" else ():
            grad *= chosen._scale
    chosen._scale = 1.0


# ---- conversion ----------------------------------------------------------------------------------


def convert_symbol(
    sym: Any,
    target_dtype: str = "float16",
    target_dtype_ops: Sequence[str] | None = None,
    fp32_ops: Sequence[str] | None = None,
    conditional_fp32_ops: Sequence[tuple[str, str, Sequence[str]]] | None = None,
    excluded_sym_names: Sequence[str] | None = None,
    data_names: Sequence[str] | None = None,
    cast_optional_params: bool = False,
) -> Any:
    """A float32 Symbol with casts inserted according to the lists.

    Args:
        target_dtype: 'float16' or 'bfloat16'.
        target_dtype_ops, fp32_ops, conditional_fp32_ops: instead of the lists, as for init.
        excluded_sym_names: names of nodes that stay in float32.
        data_names: the variables that are not parameters; default: all.
        cast_optional_params: convert parameters that are only used in the target dtype.
    Returns: a Symbol; parameters have the attribute __dtype__.
    Raises: InvalidType (TypeError), MXNetError.
    """
    if not isinstance(sym, Symbol):
        raise InvalidType(f"convert_symbol: sym must be a Symbol, got {type(sym).__name__}")
    excluded = _names("excluded_sym_names", excluded_sym_names)
    data = set(sym.list_inputs() if data_names is None else _names("data_names", data_names))
    missing = excluded - {node.name for node in topological(sym._outputs)}
    if missing:
        raise MXNetError(
            f"convert_symbol: excluded_sym_names: there is no node {', '.join(sorted(missing))}"
        )
    policy = precision.policy(target_dtype, target_dtype_ops, conditional_fp32_ops, fp32_ops)
    with precision.forced(None):
        return Symbol(
            reduce_precision(
                sym._outputs,
                policy,
                excluded,
                set(sym.list_inputs()) - data,
                cast_optional_params,
            )
        )


def _names(argument: str, names) -> set[str]:
    if names is not None and not isinstance(names, (list, tuple, set)):
        raise InvalidType(f"amp: {argument} must be a list of names, got {type(names).__name__}")
    return set(names or ())


def _cast_to_declared(sym, arrays: dict) -> dict:
    """Arrays by name, in the dtypes that the symbol's variables declare."""
    attrs = sym.attr_dict()
    flags = {n: attrs.get(n, {}).get("__dtype__", "-1") for n in arrays}
    return {
        n: a if flags[n] == "-1" or a.stype != "default" else a.astype(DTYPES[int(flags[n])])
        for n, a in arrays.items()
    }


def convert_model(
    sym: Any,
    arg_params: Any,
    aux_params: Any,
    target_dtype: str = "float16",
    target_dtype_ops: Sequence[str] | None = None,
    fp32_ops: Sequence[str] | None = None,
    conditional_fp32_ops: Sequence[tuple[str, str, Sequence[str]]] | None = None,
    excluded_sym_names: Sequence[str] | None = None,
    cast_optional_params: bool = False,
) -> Any:
    """convert_symbol for a model: (symbol, arg_params, aux_params), the parameters in the dtypes of
    the new symbol. Arguments and errors: as convert_symbol."""
    for argument, given in (("arg_params", arg_params), ("aux_params", aux_params)):
        if not isinstance(given, dict):
            raise InvalidType(
                f"convert_model: {argument} must be a dict, got {type(given).__name__}"
            )
    if not isinstance(sym, Symbol):
        raise InvalidType(f"convert_model: sym must be a Symbol, got {type(sym).__name__}")
    lists = target_dtype_ops, fp32_ops, conditional_fp32_ops, excluded_sym_names
    data = [n for n in sym.list_inputs() if n not in arg_params and n not in aux_params]
    sym = convert_symbol(sym, target_dtype, *lists, data, cast_optional_params)
    return sym, _cast_to_declared(sym, arg_params), _cast_to_declared(sym, aux_params)


def convert_hybrid_block(
    block: Any,
    target_dtype: str = "float16",
    target_dtype_ops: Sequence[str] | None = None,
    fp32_ops: Sequence[str] | None = None,
    conditional_fp32_ops: Sequence[tuple[str, str, Sequence[str]]] | None = None,
    excluded_sym_names: Sequence[str] | None = None,
    ctx: Context | Sequence[Context] = gpu(0),
    cast_optional_params: bool = False,
) -> Any:
    """A SymbolBlock for mixed-precision inference from a hybridized block that has run once.

    ctx: the device of its parameters. Other arguments and errors: as convert_symbol; RuntimeError
    (MXNetError) for a block that was not hybridized.
    """
    if not isinstance(block, HybridBlock):
        raise InvalidType(f"convert_hybrid_block: got {type(block).__name__}, not a HybridBlock")
    traced, inputs = block._traced_symbol()
    lists = target_dtype_ops, fp32_ops, conditional_fp32_ops, excluded_sym_names
    data = [v.name for v in inputs]
    sym = convert_symbol(traced, target_dtype, *lists, data, cast_optional_params)
    names = set(sym.list_inputs())
    arrays = {n: p._reduce() for n, p in block.collect_params().items() if n in names}
    made = SymbolBlock(sym, inputs)
    params = made.collect_params()
    for name, array in _cast_to_declared(sym, arrays).items():
        params[name].dtype = dtype_name(array.dtype)
        params[name]._load_init(array, ctx, cast_dtype=True, dtype_source="saved")
    return made


def convert_bucketing_module(
    bucketing_mod: Any,
    target_dtype: str = "float16",
    target_dtype_ops: Sequence[str] | None = None,
    fp32_ops: Sequence[str] | None = None,
    conditional_fp32_ops: Sequence[tuple[str, str, Sequence[str]]] | None = None,
    excluded_sym_names: Sequence[str] | None = None,
    cast_optional_params: bool = False,
) -> Any:
    """A BucketingModule whose buckets compute in mixed precision. Arguments: as convert_symbol.

    Raises AmpError (AssertionError) for a module that is not bound or has no parameters yet.
    """
    if not isinstance(bucketing_mod, BucketingModule):
        raise InvalidType(f"convert_bucketing_module: got {type(bucketing_mod).__name__}")
    if not bucketing_mod.binded or not bucketing_mod.params_initialized:
        raise AmpError("convert_bucketing_module: bind the module and init_params first")
    params, aux = bucketing_mod.get_params()
    lists = target_dtype_ops, fp32_ops, conditional_fp32_ops, excluded_sym_names
    models = {
        key: convert_model(module.symbol, params, aux, target_dtype, *lists, cast_optional_params)
        for key, module in bucketing_mod._buckets.items()
    }
    arguments = {n: a for m in models.values() for n, a in m[1].items()}
    auxiliary = {n: a for m in models.values() for n, a in m[2].items()}
    return BucketingModule.load_dict(
        {key: m[0] for key, m in models.items()},
        sym_gen=bucketing_mod._sym_gen,
        default_bucket_key=bucketing_mod._default_bucket_key,
        arg_params=arguments,
        aux_params=auxiliary,
        **bucketing_mod._arguments,
    )


# ---- the lists -----------------------------------------------------------------------------------


def list_lp16_ops(target_dtype: str) -> list[str]:
    """Operators whose inputs are cast to the target dtype."""
    return sorted(precision.policy(target_dtype).low)


def list_fp32_ops(target_dtype: str) -> list[str]:
    """Operators whose inputs are cast to float32."""
    return sorted(precision.policy(target_dtype).full)


def list_lp16_fp32_ops(target_dtype: str) -> list[str]:
    """Operators that run in the dtype of their inputs."""
    chosen = precision.policy(target_dtype)
    cast = {*chosen.low, *chosen.full, *chosen.widest, *(name for name, *_ in chosen.conditional)}
    return sorted({op.name for op in REGISTRY.values()} - cast)


def list_conditional_fp32_ops(target_dtype: str) -> list[tuple[str, str, list[str]]]:
    """(operator, parameter, values) for which inputs are cast to float32."""
    return [(n, p, list(values)) for n, p, values in precision.policy(target_dtype).conditional]


def list_widest_type_cast(target_dtype: str) -> list[str]:
    """Operators whose inputs are cast to the widest dtype among them."""
    return sorted(precision.policy(target_dtype).widest)


def list_loss_output_functions(target_dtype: str) -> list[str]:
    """Losses whose gradient is scaled by their parameter grad_scale."""
    precision.policy(target_dtype)
    losses = {op.name: op.trait(LossLayer) for op in REGISTRY.values()}
    return [name for name, loss in losses.items() if loss is not None and loss.scaled]


def list_lp16_use_fp32_params(target_dtype: str) -> dict[str, list[str]]:
    """Operators of list_lp16_ops with inputs that stay in float32: none, since those that mix
    dtypes, such as BatchNorm, are in list_lp16_fp32_ops."""
    precision.policy(target_dtype)
    return {}
