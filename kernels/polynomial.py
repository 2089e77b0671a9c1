"""Polynomials of numbered unknowns with whole coefficients."""

from __future__ import annotations

import itertools

Terms = dict  # {sorted tuple of unknowns, each as often as its power: int coefficient}; 0 is {}


def plus(a: Terms, b: Terms, factor: int = 1) -> Terms:
    """a + factor * b."""
    made = dict(a)
    for m, c in b.items():
        n = made.pop(m, 0) + factor * c
        if n:
            made[m] = n
    return made


def product(a: Terms, b: Terms) -> Terms:
    made: Terms = {}
    for (m, c), (k, n) in itertools.product(a.items(), b.items()):
        key = tuple(sorted(m + k))
        coefficient = made.pop(key, 0) + c * n
        if coefficient:
            made[key] = coefficient
    return made


def without(monomial: tuple, divisor: tuple) -> tuple | None:
    """A product of unknowns without some of them; None where they are not in it."""
    rest = list(monomial)
    for v in divisor:
        if v not in rest:
            return None
        rest.remove(v)
    return tuple(rest)


def substituted(terms: Terms, v: int, by: Terms) -> Terms:
    """A polynomial with another one in the place of the unknown v."""
    made: Terms = {}
    for m, c in terms.items():
        part = {tuple(k for k in m if k != v): c}
        for _ in range(m.count(v)):
            part = product(part, by)
        made = plus(made, part)
    return made
