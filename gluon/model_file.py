"""Block.save and Block.load: `-model.json` (structure and traced graphs) beside `-model.params`."""

from __future__ import annotations

import json
from typing import Any

from ..engine import files
from ..engine.error import MXNetError, parse_json
from ..ndarray.nesting import as_lists


def save_model(block: Any, prefix: str) -> None:
    """Writes the two files."""
    counter = iter(range(1 << 30))
    described = {f"{type(block).__name__.lower()}{next(counter)}": _describe(block, counter)}
    files.write(f"{prefix}-model.json", json.dumps(described).encode())
    block.save_parameters(f"{prefix}-model.params")


def _describe(block, counter) -> dict:
    found: dict = {"orig_name": block.name}
    trace = next(iter(getattr(block, "_traces", {}).values()), None)
    if trace is not None:
        found.update(
            in_format=as_lists(trace.in_structure),
            out_format=as_lists(trace.structure),
            inputs=[s.tojson() for s in trace.data],
            symbol=trace.symbol.tojson(),
        )
    found["hybridized"] = trace is not None
    found["children"] = {child.name: attribute for attribute, child in block._children.items()}
    for child in block._children.values():
        found[f"{type(child).__name__.lower()}{next(counter)}"] = _describe(child, counter)
    return found


def load_model(block: Any, prefix: str) -> None:
    """Checks that the structure matches the file, gives the children their names in the file, and
    loads the parameters. Raises MXNetError and leaves the block unchanged."""
    name = f"{prefix}-model.json"
    saved = parse_json(files.read(name, "load"), f"load: {name} is not JSON: it")
    if not isinstance(saved, dict) or len(saved) != 1:
        raise MXNetError(f"load: {name} is not a model file\n  fix: write it with Block.save")
    renamed: list = []
    _check(block, next(iter(saved.items())), name, renamed)
    for parent, names in renamed:
        children = list(parent._children.values())
        parent._children.clear()
        parent._children.update(zip(names, children))
    block.load_parameters(f"{prefix}-model.params")


def _check(block, entry, file, renamed: list) -> None:
    """Appends (block, names of its children in the file) if they differ."""
    key, saved = entry
    kind = type(block).__name__.lower()
    if not key.startswith(kind) or not key[len(kind) :].isdigit():
        raise MXNetError(
            f"load: {file} has a {key.rstrip('0123456789')} where the block has"
            f" {type(block).__name__} {block.name!r}"
        )
    parts = [(k, v) for k, v in saved.items() if isinstance(v, dict) and k != "children"]
    attributes = list(saved.get("children", {}).values())
    if len(parts) != len(block._children):
        raise MXNetError(
            f"load: {file} has {len(parts)} children ({', '.join(attributes) or 'none'}) where"
            f" {block.name!r} has {len(block._children)} ({', '.join(block._children) or 'none'})"
        )
    if attributes != list(block._children) and len(attributes) == len(parts):
        renamed.append((block, attributes))
    for child, part in zip(block._children.values(), parts):
        _check(child, part, file, renamed)
