"""Word vectors: read from GloVe, fastText or custom files, looked up by token, concatenated."""

from __future__ import annotations

import logging
import os
import shutil
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from ...engine import files
from ...engine.error import MissingKey, MXNetError, compose
from ...engine.registry import get_create_func, get_register_func, table
from ...ndarray import NDArray, functions
from ...ndarray.ndarray import from_memory
from ...ndarray.numpy_mode import is_np_array  # noqa: F401
from ..download import _get_repo_file_url, download, local_folder
from . import pretrained
from .vocab import UNKNOWN_INDEX, Vocabulary, VocabularyError

ROOT = os.path.join("~", ".mxnet", "embeddings")  # ~/.mxnet: $MXNET_HOME where that is set
LINES_AT_ONCE = 1000  # lines parsed by one call


def _unpack(source, path) -> None:
    """Extracts a member of an archive to the file `path`, atomically."""
    with files.replacing(path) as part, open(part, "wb") as target:
        shutil.copyfileobj(source, target)


class _TokenEmbedding(Vocabulary):
    """Base of word vectors: tokens have indices, as in a vocabulary, and rows of `idx_to_vec`.

    Row 0, of unknown tokens, is the vector that the file has for unknown_token, else
    init_unknown_vec(shape=vec_len).
    """

    pretrained_file_name_sha1: ClassVar[dict[str, str]] = {}

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self._vec_len = 0
        self._idx_to_vec: NDArray | None = None

    # ---- files -----------------------------------------------------------------------------------

    @classmethod
    def _get_download_file_name(cls, pretrained_file_name):
        """The archive that a file comes in."""
        return pretrained_file_name

    @classmethod
    def _get_pretrained_file_url(cls, pretrained_file_name):
        archive = cls._get_download_file_name(pretrained_file_name)
        return _get_repo_file_url(f"gluon/embeddings/{cls.__name__.lower()}", archive)

    @classmethod
    def _get_pretrained_file(cls, embedding_root, pretrained_file_name):
        """The path of a file below embedding_root/<name of the class>; unpacked from its archive
        there, or fetched from $MXNET_GLUON_REPO. Raises EmbeddingFileError."""
        folder = local_folder(embedding_root) / cls.__name__.lower()
        path = folder / pretrained_file_name
        if path.is_file():
            return str(path)
        archive_name = cls._get_download_file_name(pretrained_file_name)
        archive = folder / archive_name
        if not archive.is_file():
            if not os.environ.get("MXNET_GLUON_REPO"):
                raise EmbeddingFileError(
                    compose(
                        f"word vectors: no file {pretrained_file_name} or {archive_name} in"
                        f" {folder}",
                        fix=f"put {archive_name} there, or set MXNET_GLUON_REPO to a repository"
                        " that has it",
                    )
                )
            sums = getattr(cls, "pretrained_archive_name_sha1", cls.pretrained_file_name_sha1)
            folder.mkdir(parents=True, exist_ok=True)
            download(
                cls._get_pretrained_file_url(pretrained_file_name),
                str(archive),
                sha1_hash=sums.get(archive_name),
            )
        try:
            if archive.suffix == ".zip":
                with zipfile.ZipFile(archive) as z, z.open(pretrained_file_name) as source:
                    _unpack(source, path)
            elif archive.suffix == ".gz":
                with tarfile.open(archive, "r:gz") as t:
                    _unpack(t.extractfile(pretrained_file_name), path)
        except (zipfile.BadZipFile, tarfile.TarError, KeyError, EOFError) as error:
            raise EmbeddingFileError(f"word vectors: {archive} is damaged: {error}") from None
        return str(path)

    @classmethod
    def _check_pretrained_file_names(cls, pretrained_file_name):
        if pretrained_file_name not in cls.pretrained_file_name_sha1:
            name = cls.__name__.lower()
            raise MissingKey(
                f"Cannot find pretrained file {pretrained_file_name} for token embedding {name}."
                f" Valid pretrained files for embedding {name}:"
                f" {', '.join(cls.pretrained_file_name_sha1)}"
            )

    def _load_embedding(
        self, pretrained_file_path, elem_delim, init_unknown_vec, encoding="utf8"
    ) -> None:
        """Reads lines of a token and its vector. If a token has several vectors, the first is used;
        a line of one number is a header."""
        path = os.path.expanduser(pretrained_file_path)
        if not os.path.isfile(path):
            raise VocabularyError(
                f"`pretrained_file_path` must be a valid path to the pre-trained token embedding"
                f" file, got {pretrained_file_path!r}"
            )
        logging.info("Loading pre-trained token embedding vectors from %s", path)
        n, unknown, unknown_at, seen = None, None, 0, set()
        rows, waiting, first_waiting = bytearray(), [], 0
        with files.reading(path, "word vectors"), open(path, encoding=encoding) as f:
            for at, line in enumerate(f, 1):
                token, _, rest = line.rstrip().partition(elem_delim)
                if not rest:
                    raise _line(at, path, "a token and its vector are expected")
                size = rest.count(elem_delim) + 1
                if token == self.unknown_token and unknown is None:
                    unknown, unknown_at = _numbers([rest], size, elem_delim, at, path), at
                    seen.add(token)
                elif token in seen:
                    warnings.warn(
                        f"At line {at} of the pre-trained token embedding file: the embedding"
                        f" vector for token {token} has been loaded and a duplicate embedding for"
                        " the  same token is seen and skipped.",
                        stacklevel=3,
                    )
                elif size == 1:
                    warnings.warn(
                        f"At line {at} of the pre-trained text embedding file: token {token} with"
                        f" 1-dimensional vector {[rest]} is likely a header and is skipped.",
                        stacklevel=3,
                    )
                else:
                    n = n or size
                    if size != n:
                        raise _line(
                            at,
                            path,
                            f"the dimension of token {token} is {size} but the dimension of"
                            f" previous tokens is {n}. Dimensions of all the tokens must be the"
                            " same.",
                        )
                    self._token_to_idx[token] = len(self._idx_to_token)
                    self._idx_to_token.append(token)
                    seen.add(token)
                    first_waiting = first_waiting or at
                    waiting.append(rest)
                    if len(waiting) == LINES_AT_ONCE:
                        rows += _numbers(waiting, n, elem_delim, first_waiting, path).tobytes()
                        waiting, first_waiting = [], 0
        if n is None:
            raise VocabularyError(f"word vectors: {path} has no vectors")
        if unknown is not None and unknown.size != n:
            raise _line(
                unknown_at,
                path,
                f"the dimension of {self.unknown_token} is {unknown.size} but that of other tokens"
                f" is {n}",
            )
        rows += _numbers(waiting, n, elem_delim, first_waiting, path).tobytes()
        first = np.zeros((len(self._idx_to_token) - len(rows) // (4 * n), n), np.float32)
        first[UNKNOWN_INDEX] = (
            unknown if unknown is not None else init_unknown_vec(shape=n).asnumpy()
        )
        self._vec_len = n
        self._idx_to_vec = from_memory(
            np.concatenate([first, np.frombuffer(rows, np.float32).reshape(-1, n)])
        )

    # ---- vectors for a vocabulary ----------------------------------------------------------------

    def _index_tokens_from_vocabulary(self, vocabulary) -> None:
        self._token_to_idx = dict(vocabulary.token_to_idx)
        self._idx_to_token = list(vocabulary.idx_to_token)
        self._unknown_token = vocabulary.unknown_token
        reserved = vocabulary.reserved_tokens
        self._reserved_tokens = None if reserved is None else list(reserved)

    def _set_idx_to_vec_by_embeddings(self, embeddings, tokens) -> None:
        """Concatenates the tokens' vectors of all embeddings; token 0 is the unknown token."""
        parts = [
            functions.concat(e.idx_to_vec[0:1], e.get_vecs_by_tokens(tokens[1:]), dim=0)
            if len(tokens) > 1
            else e.idx_to_vec[0:1].copy()
            for e in embeddings
        ]
        self._idx_to_vec = functions.concat(*parts, dim=1)
        self._vec_len = self._idx_to_vec.shape[1]

    def _build_embedding_for_vocabulary(self, vocabulary) -> None:
        """Keeps only the vectors of a vocabulary's tokens, by the vocabulary's indices."""
        if vocabulary is None:
            return
        _check_vocabulary(vocabulary)
        self._set_idx_to_vec_by_embeddings([self], vocabulary.idx_to_token)
        self._index_tokens_from_vocabulary(vocabulary)

    # ---- use -------------------------------------------------------------------------------------

    @property
    def vec_len(self) -> int:
        """The length of a vector."""
        return self._vec_len

    @property
    def idx_to_vec(self) -> NDArray | None:
        """(tokens, vec_len): row i is the vector of token i. None before there are any."""
        return self._idx_to_vec

    def _vectors(self) -> NDArray:
        if self._idx_to_vec is None:
            raise VocabularyError("The property `idx_to_vec` has not been properly set.")
        return self._idx_to_vec

    def get_vecs_by_tokens(self, tokens: Any, lower_case_backup: bool = False) -> NDArray:
        """The vector of a token (vec_len,), or those of a list of tokens (n, vec_len).

        lower_case_backup: a token that is unknown is looked up in lower case.
        """
        several = isinstance(tokens, list)
        known = self._token_to_idx
        numbers = [
            known.get(t.lower(), UNKNOWN_INDEX)
            if lower_case_backup and t not in known
            else known.get(t, UNKNOWN_INDEX)
            for t in (tokens if several else [tokens])
        ]
        rows = functions.take(self._vectors(), functions.array(numbers, dtype="int64"))
        return rows if several else rows[0]

    def update_token_vectors(self, tokens: Any, new_vectors: Any) -> None:
        """Replaces the vectors of known tokens.

        new_vectors: (len(tokens), vec_len), or (vec_len,) for a single token.
        Raises: ValueError for an unknown token; name unknown_token itself to change its vector.
        """
        vectors = self._vectors()
        tokens = tokens if isinstance(tokens, list) else [tokens]
        if isinstance(new_vectors, NDArray) and new_vectors.ndim == 1 and len(tokens) == 1:
            new_vectors = new_vectors.reshape((1, -1))
        wanted = (len(tokens), self.vec_len)
        if not isinstance(new_vectors, NDArray) or new_vectors.shape != wanted:
            raise VocabularyError(
                f"update_token_vectors: new_vectors must be an NDArray of shape {wanted}, got"
                f" {getattr(new_vectors, 'shape', new_vectors)}"
            )
        for token in tokens:
            if token not in self._token_to_idx:
                raise VocabularyError(
                    f"Token {token} is unknown. To update the embedding vector for an unknown"
                    f" token, please specify it explicitly as the `unknown_token`"
                    f" {self._idx_to_token[UNKNOWN_INDEX]} in `tokens`."
                )
        numbers = [self._token_to_idx[token] for token in tokens]
        vectors[functions.array(numbers, dtype="int64")] = new_vectors


class EmbeddingFileError(MXNetError, FileNotFoundError):
    """A file of word vectors is not there."""


def _line(at: int, path: str, problem: str) -> VocabularyError:
    return VocabularyError(f"word vectors: line {at} of {path}: {problem}")


def _numbers(lines: list[str], n: int, delimiter: str, at: int, path: str) -> np.ndarray:
    """(lines, n): the numbers of some lines; `at`: the line number of the first."""
    if not lines:
        return np.zeros((0, n), np.float32)
    if len(delimiter) > 1:
        lines, delimiter = [line.replace(delimiter, " ") for line in lines], " "
    try:
        numbers = np.loadtxt(lines, np.float32, comments=None, delimiter=delimiter, ndmin=2)
    except ValueError:
        if len(lines) == 1:
            raise _line(at, path, f"not all of {lines[0][:60]} are numbers") from None
        # one by one, for the line number: approximate if lines between were skipped
        for i, line in enumerate(lines):
            _numbers([line], n, delimiter, at + i, path)
        raise
    return numbers


def _check_vocabulary(vocabulary) -> None:
    if not isinstance(vocabulary, Vocabulary):
        raise VocabularyError(
            "The argument `vocabulary` must be an instance of mxnet.contrib.text.vocab.Vocabulary,"
            f" got {type(vocabulary).__name__}"
        )


# ---- by name -------------------------------------------------------------------------------------

_register = get_register_func(_TokenEmbedding, "token embedding")
_create = get_create_func(_TokenEmbedding, "token embedding")


def register(embedding_cls: Any) -> Any:
    """Class decorator: makes word vectors known to `create` under their name in lower case."""
    return _register(embedding_cls)


def create(embedding_name: str, **kwargs: Any) -> Any:
    """Word vectors by name: create("glove", pretrained_file_name="glove.6B.50d.txt")."""
    return _create(embedding_name, **kwargs)


def get_pretrained_file_names(embedding_name: str | None = None) -> Any:
    """The names of files of some word vectors; without a name, of all, as a dict. Raises KeyError
    for an unknown name."""
    known = table(_TokenEmbedding)
    if embedding_name is None:
        return {name: list(klass.pretrained_file_name_sha1) for name, klass in known.items()}
    if embedding_name not in known:
        raise MissingKey(
            f"Cannot find `embedding_name` {embedding_name}, it must be one of {', '.join(known)}"
        )
    return list(known[embedding_name].pretrained_file_name_sha1)


@register
class GloVe(_TokenEmbedding):
    """Word vectors of Pennington et al. 2014 (https://nlp.stanford.edu/projects/glove/), from
    embedding_root/glove.

    vocabulary: keeps the vectors of its tokens only.
    """

    pretrained_archive_name_sha1 = pretrained.GLOVE_ARCHIVES
    pretrained_file_name_sha1 = pretrained.GLOVE_FILES

    @classmethod
    def _get_download_file_name(cls, pretrained_file_name):
        corpus = pretrained_file_name.split(".")[1]
        return next(a for a in cls.pretrained_archive_name_sha1 if a.split(".")[1] == corpus)

    def __init__(
        self,
        pretrained_file_name: str = "glove.840B.300d.txt",
        embedding_root: str = ROOT,
        init_unknown_vec: Callable[..., Any] = functions.zeros,
        vocabulary: Any = None,
        **kwargs: Any,
    ):
        self._check_pretrained_file_names(pretrained_file_name)
        super().__init__(**kwargs)
        path = self._get_pretrained_file(embedding_root, pretrained_file_name)
        self._load_embedding(path, " ", init_unknown_vec)
        self._build_embedding_for_vocabulary(vocabulary)


@register
class FastText(_TokenEmbedding):
    """Word vectors of Bojanowski et al. 2017 (https://fasttext.cc), from embedding_root/fasttext.

    vocabulary: keeps the vectors of its tokens only.
    """

    pretrained_archive_name_sha1 = pretrained.FASTTEXT_ARCHIVES
    pretrained_file_name_sha1 = pretrained.FASTTEXT_FILES

    @classmethod
    def _get_download_file_name(cls, pretrained_file_name):
        return pretrained_file_name.removesuffix(".vec") + ".zip"

    def __init__(
        self,
        pretrained_file_name: str = "wiki.simple.vec",
        embedding_root: str = ROOT,
        init_unknown_vec: Callable[..., Any] = functions.zeros,
        vocabulary: Any = None,
        **kwargs: Any,
    ):
        self._check_pretrained_file_names(pretrained_file_name)
        super().__init__(**kwargs)
        path = self._get_pretrained_file(embedding_root, pretrained_file_name)
        self._load_embedding(path, " ", init_unknown_vec)
        self._build_embedding_for_vocabulary(vocabulary)


class CustomEmbedding(_TokenEmbedding):
    """Word vectors from a text file: one line per token: the token and its numbers, separated by
    elem_delim."""

    def __init__(
        self,
        pretrained_file_path: Any,
        elem_delim: str = " ",
        encoding: str = "utf8",
        init_unknown_vec: Callable[..., Any] = functions.zeros,
        vocabulary: Any = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self._load_embedding(pretrained_file_path, elem_delim, init_unknown_vec, encoding)
        self._build_embedding_for_vocabulary(vocabulary)


class CompositeEmbedding(_TokenEmbedding):
    """Concatenates the vectors of several embeddings for the tokens of a vocabulary."""

    def __init__(self, vocabulary: Any, token_embeddings: Any):
        _check_vocabulary(vocabulary)
        several = token_embeddings if isinstance(token_embeddings, list) else [token_embeddings]
        for embedding in several:
            if not isinstance(embedding, _TokenEmbedding):
                raise VocabularyError(
                    "The argument `token_embeddings` must be an instance or a list of instances of"
                    f" _TokenEmbedding, got {type(embedding).__name__}"
                )
        super().__init__()
        self._index_tokens_from_vocabulary(vocabulary)
        self._set_idx_to_vec_by_embeddings(several, self.idx_to_token)
