"""Indexing: x[key] and x[key] = value. Basic keys give views where possible, arrays of indices give
copies.

A key is parsed into items, one for each axis of the array and one for each new axis. In nd boolean
arrays and True count as the integers 0 and 1, and an element is an array of shape (1,), as in
MXNet. In np they are masks, and an element has shape ().
"""

from __future__ import annotations

from collections.abc import Iterator
from math import copysign, prod
from typing import Any

import numpy as np

from ..engine.error import InvalidType
from ..engine.recent import Recent
from ..kernels import precision
from ..kernels.ops.index import places_now
from ..kernels.plan import Plan, make_plan
from ..kernels.record import NATIVE, NATIVE_INTS, lookup
from ..kernels.spec import ITEM_BYTES, NUMPY_DTYPES, Spec, spec
from ._part import Part, part_of
from .index_keys import (
    NEW_AXIS,
    ShapeMismatch,
    Span,
    as_python,
    check_mask,
    is_basic,
    mask_of,
    parse,
    warn_of_floats,
    without_masks,
)
from .invoke import call_known, invoke
from .launch import Plans, copy_into, launch, run, seen
from .ndarray import NDArray, from_memory, make_view, state
from .parts import part_plan, read_part, write_number, write_part
from .tape import record, refuse_recorded

MAX_PARTS = 4096
FEW = 1 << 14  # elements of a mask that NumPy reads faster than kernels are called
EXACT_FLOAT = 2**53  # larger integers are not exact in a double


# ---- basic keys ----------------------------------------------------------------------------------


def view(array: NDArray, name: str, attrs: dict) -> NDArray:
    """The output of a shape operator without a copy: shares memory, and is recorded. attrs:
    hashable values."""
    return seen(array, view_plan(array._spec, name, attrs))


_view_plans = Plans()


def view_plan(s: Spec, name: str, attrs: dict) -> Plan:
    """The plan of a shape operator on an array of a spec."""
    key = (s, name, *attrs.values())
    plan = _view_plans[key]
    if plan is None:
        op = lookup(name)
        plan = make_plan(op, op.parse(attrs), [s], s.device)
        _view_plans[key] = plan
    return plan


def _reshaped(array: NDArray, shape) -> NDArray:
    return array if array.shape == shape else view(array, "reshape_to", {"shape": shape})


def _memory(self, offset: int, shape) -> NDArray:
    """Contiguous memory of self under a shape, not recorded."""
    s = self._spec
    return make_view(self, spec(shape, s.dtype, s.device), offset * ITEM_BYTES[s.dtype])


def _basic_get(self, part: Part) -> NDArray:
    sizes, steps, at, size, contiguous = part
    if not contiguous:
        return read_part(self, sizes, steps, at)
    if not (state.recording and self._tape is not None):
        return _memory(self, at, sizes)
    if size == self.size:
        return view(self, "reshape_to", {"shape": sizes})
    out = _memory(self, at, sizes)
    record(part_plan(self._spec, sizes, steps), (self,), (at,), (out,))
    return out


def _basic_set(self, part: Part, value) -> None:
    sizes, steps, at, size, contiguous = part
    value = _fitted(value, sizes, self)
    if not size:
        return
    if contiguous:
        if _is_whole(part, self) and isinstance(value, NDArray):
            # recorded: the array now is the value
            copy_into(_reshaped(value, self.shape), self)
            return
        target = _memory(self, at, sizes)
        if isinstance(value, NDArray):
            copy_into(value, target)
        else:
            fill(target, value)
        return
    if isinstance(value, NDArray):
        write_part(self, sizes, steps, at, value)
    else:
        write_number(self, sizes, steps, at, _number(value, self._spec))


def _is_whole(part: Part, array: NDArray) -> bool:
    """Is it the whole array, in row-major order?"""
    return part.size == array.size and part.contiguous


_fills = Plans()


def fill(target: NDArray, value: float) -> None:
    """Writes a number into every element."""
    launch(_fill_plan(target._spec), (), (value,), [target])


_written = Recent(64)  # arrays of one element, which nobody writes to


def _number(value: float, s: Spec) -> NDArray:
    """An array of one element, of the dtype and device of a spec."""
    key = (s.dtype, s.device, value, copysign(1.0, value))
    one = _written[key]
    if one is None:
        one = launch(_fill_plan(spec((1,), s.dtype, s.device)), (), (value,))[0]
        _written[key] = one
    return one


def _fill_plan(s: Spec) -> Plan:
    plan = _fills[s]
    if plan is None:
        op = lookup("_full")
        attrs = op.parse({"shape": s.shape, "value": 0.0, "dtype": s.dtype})
        plan = make_plan(op, attrs, (), s.device)
        _fills.keep(s, plan)
    return plan


# ---- arrays of indices ---------------------------------------------------------------------------


def _places(self, items) -> tuple[NDArray, tuple[int, ...], tuple[int, ...]]:
    """Indices for gather_nd, (axes, ...), the shape they select (trailing axes whole), and the
    shape of the result.

    Spans among arrays become arrays themselves. Dropped ones (ints) count as arrays for the
    position of the broadcast axes: at the arrays' position if they are adjacent, else in front, as
        in NumPy.
    """
    shape, device = self.shape, self._spec.device
    at = [
        i
        for i, item in enumerate(items)
        if item is not NEW_AXIS and (type(item) is not Span or item.dropped)
    ]
    arrays = [i for i in at if type(items[i]) is not Span]
    shapes = {tuple(items[i].shape) for i in arrays}
    try:
        block = shapes.pop() if len(shapes) == 1 else np.broadcast_shapes(*shapes)
    except ValueError:
        raise ShapeMismatch(
            "indexing: arrays of indices must broadcast together, got shapes "
            + " and ".join(str(tuple(items[i].shape)) for i in arrays)
        ) from None
    first = at[0] if at[-1] - at[0] == len(at) - 1 else 0
    axis_of = [sum(j is not NEW_AXIS for j in items[:i]) for i in range(len(items))]
    n_lead = 1 + max(
        axis_of[i]
        for i, item in enumerate(items)
        if item is not NEW_AXIS and (i in arrays or item != Span(0, shape[axis_of[i]], 1))
    )
    # shape of the selected part, and the position of each axis of the array in it
    result: list[int] = []
    final: list[int] = []
    position: dict[int, int] = {}
    start = 0
    for i in range(len(items) + 1):
        if i == first:
            start = len(result)
            result += block
            final += block
        if i == len(items) or i in at:
            continue
        if items[i] is NEW_AXIS:
            final.append(1)
        else:
            position[axis_of[i]] = len(result)
            result.append(items[i].count)
            final.append(items[i].count)
    lead = result[: len(result) - (len(shape) - n_lead)]
    parts = []
    for i, item in enumerate(items):
        axis = axis_of[i]
        if item is NEW_AXIS or axis >= n_lead:
            continue
        if i in at:
            values = np.int64(item.start) if type(item) is Span else item
            aligned = tuple(values.shape) + (1,) * (len(lead) - start - len(block))
        else:
            values = item.start + item.step * np.arange(item.count)
            aligned = (-1,) + (1,) * (len(lead) - position[axis] - 1)
        parts.append((values, aligned))
    return _stacked(parts, tuple(lead), device), tuple(result), tuple(final) or self._element


def _stacked(parts, lead, device) -> NDArray:
    if not prod(lead):  # an empty selection, for any indices
        return from_memory(np.zeros((len(parts), *lead), np.int64), device)
    if not any(isinstance(v, NDArray) for v, _ in parts):
        host = np.stack(
            [np.broadcast_to(np.reshape(v, aligned), lead) for v, aligned in parts]
        ).astype(np.int64)
        return from_memory(host, device)
    rows = []
    for values, aligned in parts:
        if isinstance(values, NDArray):
            row = values if values._spec.dtype == "int64" else values.astype("int64")
            row = _reshaped(row, (1,) * (len(lead) - len(aligned)) + aligned)
            if row.shape != lead:
                row = invoke(lookup("broadcast_to"), (row,), {"shape": lead})
        else:
            row = from_memory(
                np.broadcast_to(np.reshape(values, aligned), lead).astype(np.int64), device
            )
        rows.append(row)
    if len(rows) == 1:
        return _reshaped(rows[0], (1, *lead))
    return invoke(lookup("stack"), rows, {"axis": 0})


def _advanced_get(self, items) -> NDArray:
    arrays = [i for i in items if type(i) is not Span]
    if (
        len(arrays) == 1
        and isinstance(arrays[0], np.ndarray)
        and self.size
        and all(i is arrays[0] or i == Span(0, n, 1) for i, n in zip(items, self.shape))
    ):
        axis = next(a for a, i in enumerate(items) if i is arrays[0])
        return invoke(lookup("take"), (self, from_memory(arrays[0], self.context)), {"axis": axis})
    if len(arrays) == 1 and isinstance(arrays[0], NDArray) and arrays[0].size and self.size:
        axis = next((a for a, i in enumerate(items) if i is arrays[0]), 0)
        if _are_whole(items[:axis] + items[axis + 1 :], self.shape[:axis] + self.shape[axis + 1 :]):
            at = arrays[0]
            if at._spec.dtype not in NATIVE:
                at = at.astype("int64")
            found = invoke(lookup("take"), (self, at), {"axis": axis, "mode": "index"})
            return _reshaped(found, found.shape or self._element)
    indices, _, final = _places(self, items)
    return _reshaped(invoke(lookup("gather_nd"), (self, indices), {}), final)


_takes, _stacks, _gathers = Plans(), Plans(), Plans()


def _at_points(self: NDArray, key: tuple) -> NDArray | None:
    """x[rows] and x[rows, columns]: arrays of whole numbers, of one shape, for the first axes; None
    for other keys."""
    first = key[0] if key else None
    if not isinstance(first, NDArray) or not first.size or not self.size:
        return None
    s = first._spec
    if s.dtype not in NATIVE_INTS or any([getattr(k, "_spec", None) is not s for k in key]):
        return None
    if len(key) > self.ndim or s.stype != "default" or self._spec.stype != "default":
        return None
    if len(key) == 1:
        attrs = {"axis": 0, "mode": "index"}
        found = _kept(_takes, (self._spec, s), "take", (self, first), attrs)
        return found if found.shape else _reshaped(found, self._element)
    at = _kept(_stacks, (s, len(key)), "stack", key, {"axis": 0})
    found = _kept(_gathers, (self._spec, at._spec), "gather_nd", (self, at), {})
    return found if found.shape else _reshaped(found, self._element)


def _kept(plans: Plans, key: Any, name: str, inputs: tuple, attrs: dict) -> NDArray:
    """A call of an operator whose plan is kept by the specs of its inputs."""
    plan = None if precision.used else plans[key]
    if plan is not None:
        return run(plan, inputs)
    return call_known(lookup(name), inputs, attrs, plans, key)


def _are_whole(items, shape) -> bool:
    """Do items select all of axes of these sizes?"""
    return len(items) == len(shape) and all(
        type(i) is Span and i == Span(0, n, 1) for i, n in zip(items, shape)
    )


def _advanced_set(self, items, value) -> None:
    indices, picked, final = _places(self, items)
    value = _fitted(value, final, self)
    if not prod(picked):
        return
    if not isinstance(value, NDArray):
        value = invoke(
            lookup("_full"),
            (),
            {"shape": picked, "value": value, "dtype": self._spec.dtype},
            None,
            self._spec.device,
        )
    invoke(
        lookup("_scatter_set_nd"),
        (self, _reshaped(value, picked), indices),
        {"shape": self.shape},
        self,
    )


# ---- values --------------------------------------------------------------------------------------


def _fitted(value, shape, target: NDArray):
    """A value to assign: a float, or an NDArray of the shape, and of target's dtype and device.

    Raises ValueError when it does not broadcast to the shape, TypeError when it holds no numbers.
    """
    s = target._spec
    if isinstance(value, NDArray):
        if value._spec.device != s.device:
            value = value.as_in_context(s.device)
        if value._spec.dtype != s.dtype:
            value = invoke(lookup("Cast"), (value,), {"dtype": s.dtype})
    else:
        if _is_number(value):
            return float(value)
        value = from_memory(_numbers(value), s.device, s.dtype)
    have = value.shape
    while len(have) > len(shape) and have[0] == 1:
        have = have[1:]
    if len(have) > len(shape) or any(
        h not in (1, n) for h, n in zip(reversed(have), reversed(shape))
    ):
        raise ShapeMismatch(
            f"assignment: cannot broadcast a value of shape {value.shape} to the indexed part of"
            f" shape {shape}"
        )
    value = _reshaped(value, (1,) * (len(shape) - len(have)) + have)
    if value.shape == shape or not prod(shape):
        return value
    return invoke(lookup("broadcast_to"), (value,), {"shape": shape})


def _is_number(value) -> bool:
    """Is it a real number that a double represents exactly?"""
    if isinstance(value, (int, np.integer)):
        return abs(int(value)) <= EXACT_FLOAT
    return isinstance(value, (float, np.floating, np.bool_))


def _numbers(value) -> np.ndarray:
    try:
        if isinstance(value, (list, tuple)):
            value = [v.asnumpy() if isinstance(v, NDArray) else v for v in value]
        values = np.asarray(value)
    except ValueError as error:
        raise InvalidType(
            f"assignment: the value must be a number, an array or a regular list: {error}"
        ) from None
    if values.dtype.kind not in "biuf" and values.dtype != NUMPY_DTYPES["bfloat16"]:
        raise InvalidType(
            f"assignment: the value must hold numbers, got {type(value).__name__} of dtype"
            f" {values.dtype}"
        )
    return values


# ---- masks, in np --------------------------------------------------------------------------------


def _without_masks(self: NDArray, key: Any) -> tuple[NDArray, tuple]:
    """The array and a key where indices stand for masks. True and False index a new axis."""
    for k in key if key.__class__ is tuple else (key,):
        warn_of_floats(k, self.shape)
    keys, shape = without_masks(key, self.shape)
    return _reshaped(self, shape), tuple(keys)


def _host_mask(self: NDArray, key: Any) -> np.ndarray | None:
    """A mask of all axes, for `_chosen`."""
    if key.__class__ is tuple or not self.shape:
        return None
    mask = mask_of(key)
    return mask if mask is not None and mask.shape == self.shape else None


def _chosen(self: NDArray, mask: np.ndarray) -> NDArray:
    """The elements where a mask is True, as a vector. Their number waits for the mask in any case,
    so that a small call without gradients computes it there."""
    recorded = state.recording and self._tape is not None
    if self._spec.device.on_host and not recorded and mask.size < FEW:
        made = from_memory(self._values()[mask], self.context, self._spec.dtype)
        made.__class__ = self.__class__
        return made
    flags = from_memory(mask.reshape(-1), self.context)
    call = lambda name, x, **attrs: invoke(lookup(name), (x,), attrs)
    whole = _reshaped(self, (self.size,))
    return invoke(lookup("take"), (whole, places_now(call, flags, vector=True)), {"axis": 0})


def _set_where(self: NDArray, key: Any, value: Any) -> bool:
    """Writes one number where a mask of the first axes is True. False: it is another assignment."""
    if not isinstance(key, NDArray) or key._spec.dtype != "bool" or not 0 < key.ndim <= self.ndim:
        return False
    if not (_is_number(value) or isinstance(value, NDArray) and value.shape == ()):
        return False
    check_mask(key.shape, self.shape[: key.ndim], 0)
    ones = (1,) * self.ndim
    value = _fitted(value, ones, self)
    if not isinstance(value, NDArray):
        value = launch(_fill_plan(spec(ones, self._spec.dtype, self._spec.device)), (), (value,))[0]
    key = key if key._spec.device == self._spec.device else key.as_in_context(self.context)
    mask = _reshaped(key, key.shape + ones[key.ndim :])
    invoke(lookup("where"), (mask, value, self), {}, self)
    return True


# ---- the methods ---------------------------------------------------------------------------------


def _basic_part(items: list, array: NDArray) -> Part:
    """The part that items without arrays select."""
    part = part_of(tuple(map(as_python, items)), array.shape, array._element)
    assert part is not None
    return part


def getitem(self: NDArray, key: Any) -> NDArray:
    """x[key]. Whole ranges, ints and contiguous slices give views; steps and arrays of indices give
    copies."""
    part = part_of(key, self.shape, self._element)
    if part is None:
        found = _at_points(self, key if key.__class__ is tuple else (key,))
        if found is not None:
            return found
        if not self._element:
            mask = _host_mask(self, key)
            if mask is not None:
                return _chosen(self, mask)
            self, key = _without_masks(self, key)
        items = parse(key, self.shape)
        if not is_basic(items):
            return _advanced_get(self, items)
        part = _basic_part(items, self)
    return _basic_get(self, part)


def setitem(self: NDArray, key: Any, value: Any) -> None:
    """x[key] = value; the value broadcasts and is converted to x's dtype.

    Raises IndexError, ValueError or TypeError and leaves x unchanged, and MXNetError for arrays
    that autograd has recorded.
    """
    part = part_of(key, self.shape, self._element)
    if part is None:
        if not self._element:
            refuse_recorded(self, value)
            if _set_where(self, key, value):
                return
            self, key = _without_masks(self, key)
        items = parse(key, self.shape)
        if not is_basic(items):
            refuse_recorded(self, value)
            return _advanced_set(self, items, value)
        part = _basic_part(items, self)
    refuse_recorded(self, value, _is_whole(part, self))
    _basic_set(self, part, value)


def iterate(self: NDArray) -> Iterator[NDArray]:
    """Iterates over views along the first axis. Raises TypeError for a 0-d array."""
    if not self.shape:
        raise InvalidType("iteration over a 0-d array")
    return (self[i] for i in range(self.shape[0]))


def contains(self: NDArray, value: Any) -> bool:
    """Is any element equal to value?"""
    return bool((self == value).asnumpy().any())


_METHODS = {
    "__getitem__": getitem,
    "__setitem__": setitem,
    "__iter__": iterate,
    "__contains__": contains,
}
for _name, _method in _METHODS.items():
    setattr(NDArray, _name, _method)
