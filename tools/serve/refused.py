"""Refused: why a request gets no result, as an HTTP status and a text."""

from __future__ import annotations


class Refused(Exception):
    """A request that is not answered with a result.

    status: of HTTP. text: what is wrong, where, how to fix it. retry_after: seconds after which
    the same request may succeed, None where it will not.
    """

    def __init__(self, status: int, text: str, retry_after: int | None = None):
        super().__init__(text)
        self.status, self.text, self.retry_after = status, text, retry_after
