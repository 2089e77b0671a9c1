"""Vocabulary: tokens and their indices, most frequent first."""

from __future__ import annotations

import collections
import numbers
from typing import Any

from ...engine.error import InvalidValue

UNKNOWN_INDEX = 0


class VocabularyError(InvalidValue):
    """Invalid arguments or use of a vocabulary or word vectors."""


class Vocabulary:
    """Indices of tokens: 0 for the unknown token, then the reserved tokens, then those of a counter
    by decreasing frequency; equal frequencies in ascending order.

    Args:
        counter: collections.Counter of tokens (any hashable things of one kind).
        most_freq_count: the maximum number of its tokens to index.
        min_freq: how often a token must have been counted.
        unknown_token: represents all other tokens. reserved_tokens: list of tokens that are always
            there.
    """

    def __init__(
        self,
        counter: Any = None,
        most_freq_count: int | None = None,
        min_freq: int = 1,
        unknown_token: str = "<unk>",
        reserved_tokens: list[str] | None = None,
    ):
        if min_freq <= 0:
            raise VocabularyError(f"`min_freq` must be set to a positive value, got {min_freq}")
        if counter is not None and not isinstance(counter, collections.Counter):
            raise VocabularyError(
                f"`counter` must be an instance of collections.Counter, got {counter!r}"
            )
        reserved = [] if reserved_tokens is None else list(reserved_tokens)
        if unknown_token in reserved:
            raise VocabularyError("`reserved_token` cannot contain `unknown_token`.")
        if len(set(reserved)) != len(reserved):
            raise VocabularyError("`reserved_tokens` cannot contain duplicate reserved tokens.")
        self._unknown_token = unknown_token
        self._reserved_tokens = None if reserved_tokens is None else reserved
        special = [unknown_token, *reserved]
        counted = {t: n for t, n in (counter or {}).items() if n >= min_freq}
        for token in special:
            counted.pop(token, None)
        frequent = sorted(sorted(counted), key=counted.__getitem__, reverse=True)
        self._idx_to_token = special + frequent[:most_freq_count]
        self._token_to_idx = {t: i for i, t in enumerate(self._idx_to_token)}

    def __len__(self):
        return len(self._idx_to_token)

    @property
    def token_to_idx(self) -> dict:
        """token -> index"""
        return self._token_to_idx

    @property
    def idx_to_token(self) -> list:
        """The tokens in index order."""
        return self._idx_to_token

    @property
    def unknown_token(self) -> Any:
        """The token that represents unknown tokens."""
        return self._unknown_token

    @property
    def reserved_tokens(self) -> Any:
        """The reserved tokens, or None."""
        return self._reserved_tokens

    def to_indices(self, tokens: Any) -> Any:
        """The index of a token, or a list of indices for a list of tokens; unknown tokens have
        0."""
        if not isinstance(tokens, list):
            return self._token_to_idx.get(tokens, UNKNOWN_INDEX)
        return [self._token_to_idx.get(token, UNKNOWN_INDEX) for token in tokens]

    def to_tokens(self, indices: Any) -> Any:
        """The token of an index, or a list of tokens for a list of indices. Raises VocabularyError
        for invalid indices."""
        for i in indices if isinstance(indices, list) else [indices]:
            if not isinstance(i, numbers.Integral) or not 0 <= int(i) < len(self):
                raise VocabularyError(
                    f"Token index {i} in the provided `indices` is invalid: it must be a whole"
                    f" number in [0, {len(self)})"
                )
        if not isinstance(indices, list):
            return self._idx_to_token[indices]
        return [self._idx_to_token[i] for i in indices]
