"""The trace that a thread is making, in which parameters are Symbols."""

from __future__ import annotations

import threading
from typing import Any


class _TracingState(threading.local):
    """The current trace of this thread, in which parameters are Symbols; `eager`: hybridized blocks
    run eagerly."""

    tracer: Any = None  # a trace.Tracer
    eager = False


tracing_state = _TracingState()
