"""einsum: contractions of pairs, each one matrix product or a product that broadcasts."""

from __future__ import annotations

from collections.abc import Collection
from math import prod
from typing import Any

import numpy as np

from ...einsum import Labels, Parsed, order, parse
from ...front import alike, cast, dtype_of, front, reshaped
from ...record import Array, Param, sample


def permuted(F: Any, x: Array, axes: tuple[int, ...]) -> Array:
    """x with its axes in another order."""
    return x if axes == tuple(range(len(axes))) else F.transpose(x, axes=axes)


def product(F: Any, a: Array, b: Array, **transposes: bool) -> Array:
    """F.dot with NumPy's shape () of two vectors; of others the very call that nd makes."""
    vectors = len(a.shape) == len(b.shape) == 1
    return whole(F, F.dot, a, b, **({"to_scalar": True} if vectors else transposes))


def whole(F: Any, multiply: Any, a: Array, b: Array, **attrs: bool) -> Array:
    """A product; of 8-bit integers the low bits of the sums, as in NumPy."""
    dtype = dtype_of(a)
    if dtype in ("int8", "uint8"):
        return cast(F, multiply(cast(F, a, "int32"), cast(F, b, "int32"), **attrs), dtype)
    return multiply(a, b, **attrs)


def _arranged(F: Any, x: Array, labels: Labels, to: Labels) -> Array:
    return permuted(F, x, tuple([labels.index(a) for a in to]))


def _prepared(F: Any, x: Array, labels: Labels, sizes: dict) -> tuple[Array, Labels]:
    """An operand whose labels differ: diagonals taken, broadcast axes dropped."""
    for a in dict.fromkeys(labels):
        while labels.count(a) > 1:
            i = labels.index(a)
            j = labels.index(a, i + 1)
            x = F.diag(x, axis1=i, axis2=j)
            labels = (*labels[:i], *labels[i + 1 : j], *labels[j + 1 :], a)
    wide = [x.shape[i] == sizes[a] for i, a in enumerate(labels)]
    shape = tuple([n for n, keep in zip(x.shape, wide) if keep])
    return reshaped(F, x, shape), tuple([a for a, keep in zip(labels, wide) if keep])


def _summed(F: Any, x: Array, labels: Labels, keep: Collection) -> tuple[Array, Labels]:
    """x summed over the labels that nothing else needs."""
    axes = tuple([i for i, a in enumerate(labels) if a not in keep])
    if axes:
        x = F.sum(x, axis=axes, to_scalar=True)
    return x, tuple([a for a in labels if a in keep])


def _contracted(
    F: Any, a: Array, la: Labels, b: Array, lb: Labels, keep: Collection, output: Labels
) -> tuple[Array, Labels]:
    """The product of two operands, summed over what is not kept."""
    a, la = _summed(F, a, la, {*keep, *lb})
    b, lb = _summed(F, b, lb, {*keep, *la})
    over = tuple([x for x in (la if prod(a.shape) >= prod(b.shape) else lb) if x in la and x in lb])
    over = tuple([x for x in over if x not in keep])
    if not over:
        return _multiplied(F, a, la, b, lb, output)
    batch = tuple([x for x in la if x in lb and x in keep])
    free_a = tuple([x for x in la if x not in lb])
    free_b = tuple([x for x in lb if x not in la])
    if output == (*batch, *free_b, *free_a):
        a, la, free_a, b, lb, free_b = b, lb, free_b, a, la, free_a
    sizes = dict(zip((*la, *lb), (*a.shape, *b.shape)))

    def size(labels: Labels) -> int:
        return prod(sizes[x] for x in labels)

    def arranged(x: Array, labels: Labels, free: Labels, over_first: bool) -> tuple[Array, bool]:
        """x as (batch, over, free) or (batch, free, over), each of one axis, and whether it is the
        other one than asked for: what moves no memory."""
        orders = ((*batch, *free, *over), (*batch, *over, *free))
        turned = bool(free) and labels == orders[not over_first]
        first = over_first != turned
        inner = (size(free),) if batch else tuple([sizes[x] for x in free])
        shape = (size(over), *inner) if first else (*inner, size(over))
        x = _arranged(F, x, labels, orders[first])
        return reshaped(F, x, (*[sizes[x] for x in batch], *shape)), turned

    a, turned_a = arranged(a, la, free_a, False)
    b, turned_b = arranged(b, lb, free_b, True)
    made = (*batch, *free_a, *free_b)
    if not batch:
        return product(F, a, b, transpose_a=turned_a, transpose_b=turned_b), made
    y = whole(F, F.batch_dot, a, b, transpose_a=turned_a, transpose_b=turned_b)
    return reshaped(F, y, tuple([sizes[x] for x in made])), made


def _multiplied(
    F: Any, a: Array, la: Labels, b: Array, lb: Labels, output: Labels
) -> tuple[Array, Labels]:
    """The product of two operands without a sum, in the output's order of axes."""
    every = (*la, *[x for x in lb if x not in la])
    made = tuple([x for x in output if x in every])
    made = (*made, *[x for x in every if x not in made])

    def spread(x: Array, labels: Labels) -> Array:
        x = _arranged(F, x, labels, tuple([m for m in made if m in labels]))
        sizes = iter(x.shape)
        return reshaped(F, x, tuple([next(sizes) if m in labels else 1 for m in made]))

    return F.broadcast_mul(spread(a, la), spread(b, lb)), made


def contract(F: Any, xs: list[Array], parsed: Parsed, optimize: str) -> Array:
    """The result of what `parse` found."""
    pairs = [_prepared(F, x, labels, parsed.sizes) for x, labels in zip(xs, parsed.operands)]
    for i, j in order(parsed, optimize) if len(pairs) > 1 else ():
        (b, lb), (a, la) = pairs.pop(j), pairs.pop(i)
        needed = {*parsed.output}.union(*[labels for _, labels in pairs])
        output = () if pairs else parsed.output
        pairs.append(_contracted(F, a, la, b, lb, needed, output))
    y, labels = _summed(F, *pairs[0], parsed.output)
    return _arranged(F, y, labels, parsed.output)


def _einsum(F: Any, *data: Array, num_args: int, subscripts: str, optimize: str) -> Array:
    parsed = parse(subscripts, [tuple(x.shape) for x in data])
    xs = alike(F, *data)
    if dtype_of(xs[0]) == "bool":
        y = contract(F, [cast(F, x, "int32") for x in xs], parsed, optimize)
        return cast(F, y, "bool")
    return contract(F, xs, parsed, optimize)


front(
    "_npi_einsum",
    _einsum,
    inputs=("*data",),
    variadic_key="num_args",
    params=(
        Param("num_args", "int"),
        Param("subscripts", "str", ""),
        Param("optimize", "str", "0"),
    ),
    ref=lambda xp, *data, num_args, subscripts, optimize: np.einsum(subscripts, *data),
    samples=(
        sample((2, 3), (3, 4), num_args=2, subscripts="ij,jk"),
        sample((2, 3), (4, 3), num_args=2, subscripts="ij,kj->ki"),
        sample((2, 3, 4), (2, 4, 5), num_args=2, subscripts="bij,bjk->bik"),
        sample((2, 3, 4), (4, 3, 5), num_args=2, subscripts="ijk,kjl->li"),
        sample((3, 3), num_args=1, subscripts="ii"),
        sample((2, 3, 3), num_args=1, subscripts="...ii->...i"),
        sample((2, 3), num_args=1, subscripts="ij->ji"),
        sample((2, 3), (2, 3), num_args=2, subscripts="ij,ij->"),
        sample((3,), (4,), num_args=2, subscripts="i,j->ji"),
        sample((2, 1, 3, 4), (5, 4, 2), num_args=2, subscripts="...ij,...jk->...ik"),
        sample((2, 3), (3, 4), (4, 2), (2,), num_args=4, subscripts="ab,bc,cd,d->a"),
        sample((1, 3), (2, 3), num_args=2, subscripts="ij,ij->i"),
    ),
    doc=(
        "Einstein's summation over the operands. The order of contractions is searched for, each is"
        " one matrix product. optimize: 0 or 1, optimal, greedy, or pairs (0,1)(0,1)."
    ),
)
