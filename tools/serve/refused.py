"""Refused: why a request gets no result, as an HTTP status and a text."""

from __future__ import annotations


class Refused(Exception):
    """A request that is not answered with a result.

    status: of HTTP. text: what is wrong, where, how to fix it. retry_after: seconds after which
    the same request may succeed, None where it will not. unread: whether a part of the body was not
    read, so that the connection ends.
    """

    def __init__(
        self, status: int, text: str, retry_after: int | None = None, unread: bool = False
    ):
        super().__init__(text)
        self.status, self.text = status, text
        self.retry_after, self.unread = retry_after, unread
