"""Control flow: the names of the operators whose bodies are graphs. Each use has a record of its
own, made from its graphs (ndarray/control.py)."""

from __future__ import annotations

import functools

from ...engine import hooks
from ...engine.error import OperatorError
from ..record import Param, operator
from ..traits import Specialised


def _of_graphs(name: str, given, graphs=None):
    """The record of one use, from its attributes as text and its graphs."""
    if not graphs:
        _alone(name)
    return hooks.get("operator of graphs")(name, given, graphs)


def _alone(name: str, *_, **__):
    raise OperatorError(name, "needs subgraphs", fix=f"contrib.{name[1:]}(...) makes them")


def _control(name: str, params: str, doc: str) -> None:
    refuse = functools.partial(_alone, name)
    operator(
        name,
        infer=refuse,
        ref=refuse,
        inputs=("*data",),
        params=tuple(Param(p, "str") for p in params.split()),
        variadic_key="num_args",
        traits=(Specialised(functools.partial(_of_graphs, name)),),
        doc=f"{doc} Source: MXNet 1.9.1 control_flow.cc.",
    )


_control(
    "_foreach",
    "num_args num_outputs num_out_data in_state_locs in_data_locs remain_locs",
    "Runs a graph on every slice of arrays, with states from one to the next: contrib.foreach.",
)
_control(
    "_while_loop",
    "num_args num_outputs num_out_data max_iterations cond_input_locs func_input_locs"
    " func_var_locs",
    "Runs a graph while another one is true: contrib.while_loop.",
)
_control(
    "_cond",
    "num_args num_outputs cond_input_locs then_input_locs else_input_locs",
    "Runs one of two graphs: contrib.cond.",
)
