"""Batches of sentences: encoding of words as numbers, and buckets of sentences of similar
length."""

from __future__ import annotations

import bisect
import logging
import random
from typing import Any

import numpy as np

from ... import ndarray as nd
from ...data.io import DataBatch, DataDesc, DataIter
from ...engine.error import InvalidValue, MXNetError


class UnknownToken(MXNetError, AssertionError):
    """A word that the vocabulary does not have."""


def encode_sentences(
    sentences: Any,
    vocab: Any = None,
    invalid_label: int = -1,
    invalid_key: str = "\n",
    start_label: int = 0,
    unknown_token: Any = None,
) -> Any:
    """(sentences as lists of numbers, vocabulary) of lists of words.

    vocab: word -> number; None makes one, with invalid_key -> invalid_label, numbers from
    start_label on. unknown_token: replaces words that a given vocab does not have; without it they
    raise an error.
    """
    new = vocab is None
    vocab = {invalid_key: invalid_label} if new else vocab
    number, coded = start_label, []
    for sentence in sentences:
        row = []
        for word in sentence:
            if word not in vocab:
                if not (new or unknown_token):
                    raise UnknownToken(f"Unknown token {word}")
                number += number == invalid_label
                word = unknown_token or word
                vocab[word] = number
                number += 1
            row.append(vocab[word])
        coded.append(row)
    return coded, vocab


class BucketSentenceIter(DataIter):
    """Batches of sentences of one bucket each; the label of a word is the next one.

    sentences: lists of numbers. buckets: lengths; None: those with enough sentences for a batch.
        Shorter sentences are padded with invalid_label, longer ones dropped. layout: NT (batch,
        length) or TN.
    """

    def __init__(
        self,
        sentences: Any,
        batch_size: int,
        buckets: Any = None,
        invalid_label: int = -1,
        data_name: str = "data",
        label_name: str = "softmax_label",
        dtype: str = "float32",
        layout: str = "NT",
    ):
        super().__init__()
        if layout.find("N") not in (0, 1):
            raise InvalidValue(
                f"Invalid layout {layout}: Must by NT (batch major) or TN (time major)"
            )
        if not buckets:
            counts = np.bincount([len(s) for s in sentences])
            buckets = [i for i, n in enumerate(counts) if n >= batch_size]
        buckets.sort()
        rows: list[list] = [[] for _ in buckets]
        discarded = 0
        for sentence in sentences:
            k = bisect.bisect_left(buckets, len(sentence))
            if k == len(buckets):
                discarded += 1
                continue
            row = np.full((buckets[k],), invalid_label, dtype=dtype)
            row[: len(sentence)] = sentence
            rows[k].append(row)
        if discarded:
            logging.warning("discarded %d sentences longer than the largest bucket.", discarded)
        self.batch_size, self.dtype, self.layout = batch_size, dtype, layout
        self.data_name, self.label_name = data_name, label_name
        self.invalid_label, self.major_axis = invalid_label, layout.find("N")
        self.buckets = [b for b, r in zip(buckets, rows) if r]
        self.data = [np.asarray(r, dtype=dtype) for r in rows if r]
        if not self.buckets:
            raise InvalidValue("BucketSentenceIter: no bucket holds a sentence")
        self.default_bucket_key = max(self.buckets)
        shape = (batch_size, self.default_bucket_key)
        shape = shape if self.major_axis == 0 else shape[::-1]
        self.provide_data = [DataDesc(name=data_name, shape=shape, layout=layout)]
        self.provide_label = [DataDesc(name=label_name, shape=shape, layout=layout)]
        self.idx = [
            (i, j)
            for i, bucket in enumerate(self.data)
            for j in range(0, len(bucket) - batch_size + 1, batch_size)
        ]
        self.curr_idx = 0
        self.reset()

    def reset(self) -> None:
        """Shuffles the sentences and starts from the beginning."""
        self.curr_idx = 0
        random.shuffle(self.idx)
        for bucket in self.data:
            np.random.shuffle(bucket)
        self._to_arrays()

    position = ("data", "idx", "curr_idx")

    def load_state_dict(self, state: Any) -> None:
        super().load_state_dict(state)
        self._to_arrays()

    def _to_arrays(self):
        self.nddata, self.ndlabel = [], []
        for bucket in self.data:
            label = np.full_like(bucket, self.invalid_label)
            label[:, :-1] = bucket[:, 1:]
            self.nddata.append(nd.array(bucket, dtype=self.dtype))
            self.ndlabel.append(nd.array(label, dtype=self.dtype))

    def next(self) -> Any:
        """The next DataBatch; its bucket_key is the length. Raises StopIteration."""
        if self.curr_idx == len(self.idx):
            raise StopIteration
        i, j = self.idx[self.curr_idx]
        self.curr_idx += 1
        pair = [a[i][j : j + self.batch_size] for a in (self.nddata, self.ndlabel)]
        data, label = pair if self.major_axis == 0 else [a.T for a in pair]
        return DataBatch(
            [data],
            [label],
            pad=0,
            bucket_key=self.buckets[i],
            provide_data=[DataDesc(name=self.data_name, shape=data.shape, layout=self.layout)],
            provide_label=[DataDesc(name=self.label_name, shape=label.shape, layout=self.layout)],
        )
