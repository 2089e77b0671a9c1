"""Texts for language models: WikiText-2 and WikiText-103, from local files."""

from __future__ import annotations

import os
import shutil
import zipfile
from typing import Any

import numpy as np

from ....data import text
from ....data.download import _get_repo_file_url, check_sha1, download, local_folder  # noqa: F401
from ....engine import files
from ....engine.error import InvalidValue, MXNetError, compose
from ....ndarray.ndarray import from_memory
from ....ndarray.numpy_mode import in_mode
from ...data.dataset import Dataset

__all__ = ["WikiText2", "WikiText103"]

END_OF_SENTENCE = "<eos>"


class TextFileError(MXNetError, FileNotFoundError):
    """The file of a text is missing."""


class _WikiText(Dataset):
    """Item i: (data, label), each seq_len token numbers (int32), label one token later."""

    archive, archive_sha1 = "", ""
    files = {
        "train": "wiki.train.tokens",
        "validation": "wiki.valid.tokens",
        "test": "wiki.test.tokens",
    }

    def __init__(self, root: str, segment: Any, vocab: Any, seq_len: Any):
        if segment not in self.files:
            raise InvalidValue(
                f"{type(self).__name__}: segment must be one of {', '.join(self.files)}, got"
                f" {segment!r}"
            )
        self._root, self._segment, self._seq_len = local_folder(root), segment, seq_len
        content = self._file().read_text(encoding="utf8")
        self._counter = text.utils.count_tokens_from_str(content)
        self._vocab = vocab or text.vocab.Vocabulary(
            self._counter, reserved_tokens=[END_OF_SENTENCE]
        )
        tokens: list[str] = []
        for line in content.splitlines():
            words = line.split()
            tokens += [*words, END_OF_SENTENCE] if words else []
        numbers = np.array(self._vocab.to_indices(tokens), np.int32)
        n = (len(numbers) - 1) // seq_len
        if n < 1:
            raise InvalidValue(
                f"{type(self).__name__}: seq_len={seq_len} is longer than the text of"
                f" {len(numbers)} tokens"
            )
        self._data = in_mode(from_memory(numbers[: n * seq_len].reshape(n, seq_len)))
        self._label = in_mode(from_memory(numbers[1 : n * seq_len + 1].reshape(n, seq_len)))

    def _file(self):
        """The segment's file; extracted from the archive, or downloaded from $MXNET_GLUON_REPO."""
        path = self._root / self.files[self._segment]
        if path.is_file():
            return path
        archive = self._root / self.archive
        if not archive.is_file():
            if not os.environ.get("MXNET_GLUON_REPO"):
                raise TextFileError(
                    compose(
                        f"{type(self).__name__}: no file {path.name} or {self.archive} in"
                        f" {self._root}",
                        fix=f"put {self.archive} or {path.name} there, or set MXNET_GLUON_REPO to"
                        " a repository that has it",
                    )
                )
            folder = f"gluon/dataset/{self.archive.removesuffix('-v1.zip')}"
            self._root.mkdir(parents=True, exist_ok=True)
            url = _get_repo_file_url(folder, self.archive)
            download(url, str(archive), sha1_hash=self.archive_sha1)
        with zipfile.ZipFile(archive) as z:
            for member in z.namelist():
                if os.path.basename(member) == path.name:
                    with files.replacing(path) as part:
                        with z.open(member) as source, open(part, "wb") as target:
                            shutil.copyfileobj(source, target)
                    return path
        raise TextFileError(f"{type(self).__name__}: {archive} has no {path.name}")

    @property
    def vocabulary(self) -> Any:
        """The Vocabulary that maps tokens to indices."""
        return self._vocab

    @property
    def frequencies(self) -> Any:
        """collections.Counter of the tokens."""
        return self._counter

    def __getitem__(self, idx):
        return self._data[idx], self._label[idx]

    def __len__(self):
        return len(self._label)


class WikiText2(_WikiText):
    """2 million words of Wikipedia, a sequence of seq_len tokens an item; sentences end with
    `<eos>`.

    Args:
        root: folder of wikitext-2-v1.zip, or of wiki.train.tokens, wiki.valid.tokens and
            wiki.test.tokens.
        segment: train, validation or test.
        vocab: Vocabulary; None makes one of the segment's tokens.
    Source: Merity et al. 2016, arXiv:1609.07843.
    """

    archive, archive_sha1 = "wikitext-2-v1.zip", "3c914d17d80b1459be871a5039ac23e752a53cbe"

    def __init__(
        self,
        root: str = os.path.join("~", ".mxnet", "datasets", "wikitext-2"),
        segment: str = "train",
        vocab: Any = None,
        seq_len: int = 35,
    ):
        super().__init__(root, segment, vocab, seq_len)


class WikiText103(_WikiText):
    """103 million words of Wikipedia; see WikiText2.

    root: folder of wikitext-103-v1.zip, or of wiki.train.tokens, wiki.valid.tokens and
        wiki.test.tokens.
    """

    archive, archive_sha1 = "wikitext-103-v1.zip", "0aec09a7537b58d4bb65362fee27650eeaba625a"

    def __init__(
        self,
        root: str = os.path.join("~", ".mxnet", "datasets", "wikitext-103"),
        segment: str = "train",
        vocab: Any = None,
        seq_len: int = 35,
    ):
        super().__init__(root, segment, vocab, seq_len)
