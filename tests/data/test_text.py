"""mx.contrib.text and WikiText: vocabularies and word vectors as MXNet 1.9.1 makes them."""

import collections
import zipfile

import numpy as np
import plait as mx
import pytest
from plait.gluon.contrib.data import text as wiki

nd, text = mx.nd, mx.contrib.text
Vocabulary, embedding = text.vocab.Vocabulary, text.embedding
COUNTER = collections.Counter(["a", "b", "b", "c", "c", "c", "some_word$"])


@pytest.mark.parametrize(
    "arguments, tokens",
    [
        ({}, ["<unk>", "c", "b", "a", "some_word$"]),
        ({"most_freq_count": 3}, ["<unk>", "c", "b", "a"]),
        ({"most_freq_count": 0}, ["<unk>"]),
        ({"min_freq": 2}, ["<unk>", "c", "b"]),
        ({"most_freq_count": 1, "reserved_tokens": ["b"]}, ["<unk>", "b", "c"]),
        (
            {"most_freq_count": 2, "unknown_token": "<u>", "reserved_tokens": ["<pad>", "c"]},
            ["<u>", "<pad>", "c", "b", "a"],
        ),
        ({"min_freq": 100, "reserved_tokens": ["z"]}, ["<unk>", "z"]),
    ],
)
def test_vocabulary(arguments, tokens):
    vocabulary = Vocabulary(COUNTER, **arguments)
    assert vocabulary.idx_to_token == tokens and len(vocabulary) == len(tokens)
    assert vocabulary.token_to_idx == {t: i for i, t in enumerate(tokens)}
    assert vocabulary.reserved_tokens == arguments.get("reserved_tokens")


def test_tokens_and_numbers():
    v = Vocabulary(COUNTER)
    assert v.to_indices("c") == 1 and v.to_indices(["a", "zz", "b"]) == [3, 0, 2]
    assert v.to_tokens(0) == "<unk>" and v.to_tokens([1, np.int64(2)]) == ["c", "b"]
    for wrong in (9, [1, 77], -1, 0.5):
        with pytest.raises(ValueError, match="is invalid"):
            v.to_tokens(wrong)


@pytest.mark.parametrize(
    "arguments",
    [
        {"min_freq": 0},
        {"reserved_tokens": ["a", "a"]},
        {"unknown_token": "q", "reserved_tokens": ["q"]},
        {"counter": {"a": 1}},
    ],
)
def test_impossible_vocabularies(arguments):
    with pytest.raises(AssertionError):
        Vocabulary(**{"counter": COUNTER, **arguments})


def test_counting():
    count = text.utils.count_tokens_from_str
    assert count(" a b\nB  c ", to_lower=True) == {"a": 1, "b": 2, "c": 1}
    counter = collections.Counter("aa")
    assert count("*a*b*\n", r"\*", counter_to_update=counter) is counter
    assert counter == {"a": 3, "b": 1}


# ---- word vectors --------------------------------------------------------------------------------


@pytest.fixture
def vectors(tmp_path):
    path = tmp_path / "vectors.txt"
    lines = ["header 3", "a 0.1 0.2 0.3", "b 1 2 3", "<unk> 9 9 9", "a 7 7 7", "C 4 5 6"]
    path.write_text("\n".join(lines))
    with pytest.warns(UserWarning) as warned:
        made = embedding.CustomEmbedding(str(path))
    assert [str(w.message)[:9] for w in warned] == ["At line 1", "At line 5"]
    return made


def test_reading(vectors):
    assert vectors.idx_to_token == ["<unk>", "a", "b", "C"] and vectors.vec_len == 3
    expected = np.array([[9, 9, 9], [0.1, 0.2, 0.3], [1, 2, 3], [4, 5, 6]], "float32")
    np.testing.assert_array_equal(vectors.idx_to_vec.asnumpy(), expected)
    look_up = vectors.get_vecs_by_tokens
    np.testing.assert_array_equal(look_up("b").asnumpy(), expected[2])
    np.testing.assert_array_equal(look_up(["B", "C"]).asnumpy(), expected[[0, 3]])
    np.testing.assert_array_equal(look_up(["B", "c"], True).asnumpy(), expected[[2, 0]])


def test_new_vectors(vectors):
    vectors.update_token_vectors("a", nd.array([5, 5, 5]))
    vectors.update_token_vectors(["b", "<unk>"], nd.array([[1, 1, 1], [2, 2, 2]]))
    np.testing.assert_array_equal(
        vectors.idx_to_vec.asnumpy(), [[2, 2, 2], [5, 5, 5], [1, 1, 1], [4, 5, 6]]
    )
    with pytest.raises(ValueError, match="Token x is unknown"):
        vectors.update_token_vectors("x", nd.ones(3))
    with pytest.raises(AssertionError, match=r"shape \(2, 3\)"):
        vectors.update_token_vectors(["a", "b"], nd.ones(3))


def test_vectors_for_a_vocabulary_and_side_by_side(vectors, tmp_path):
    path = tmp_path / "two.csv"
    path.write_text("a,1,2\nq,3,4")
    two = embedding.CustomEmbedding(str(path), ",", init_unknown_vec=nd.ones, unknown_token="<U>")
    assert two.idx_to_token == ["<U>", "a", "q"]
    v = Vocabulary(collections.Counter(["a", "q", "q"]), reserved_tokens=["<pad>"])
    both = embedding.CompositeEmbedding(v, [vectors, two])
    assert both.idx_to_token == ["<unk>", "<pad>", "q", "a"] and both.vec_len == 5
    np.testing.assert_array_equal(
        both.idx_to_vec.asnumpy(),
        np.array(
            [[9, 9, 9, 1, 1], [9, 9, 9, 1, 1], [9, 9, 9, 3, 4], [0.1, 0.2, 0.3, 1, 2]], "float32"
        ),
    )
    few = embedding.CustomEmbedding(str(path), ",", vocabulary=v)
    np.testing.assert_array_equal(few.idx_to_vec.asnumpy(), [[0, 0], [0, 0], [3, 4], [1, 2]])
    assert few.token_to_idx == v.token_to_idx


def test_reserved_tokens_have_rows(tmp_path):
    """In MXNet their rows are missing, and the vectors belong to the wrong tokens."""
    path = tmp_path / "v.txt"
    path.write_text("a 1 2")
    made = embedding.CustomEmbedding(str(path), reserved_tokens=["<pad>"])
    np.testing.assert_array_equal(
        made.get_vecs_by_tokens(["<pad>", "a"]).asnumpy(), [[0, 0], [1, 2]]
    )


@pytest.mark.parametrize(
    "lines, rule",
    [
        ("a 1 2\nb 1 2 3", "line 2 .* dimension of token b is 3"),
        ("a 1 2\nb", "line 2 .* a token and its vector"),
        ("a 1 x", "line 1 .* not all of 1 x are numbers"),
        ("", "has no vectors"),
    ],
)
def test_files_that_hold_no_vectors(lines, rule, tmp_path):
    path = tmp_path / "v.txt"
    path.write_text(lines)
    with pytest.raises(AssertionError, match=rule):
        embedding.CustomEmbedding(str(path))


def test_files_by_name(tmp_path, monkeypatch):
    monkeypatch.delenv("MXNET_GLUON_REPO", raising=False)
    monkeypatch.setenv("MXNET_HOME", str(tmp_path))
    names = embedding.get_pretrained_file_names()
    assert len(names["glove"]) == 10 and len(names["fasttext"]) == 327
    assert embedding.get_pretrained_file_names("glove") == names["glove"]
    folder = tmp_path / "embeddings" / "glove"
    with pytest.raises(FileNotFoundError, match=r"glove.6B.50d.txt or glove.6B.zip in .*glove"):
        embedding.create("GloVe", pretrained_file_name="glove.6B.50d.txt")
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "glove.6B.zip", "w") as z:
        z.writestr("glove.6B.50d.txt", "a 1 2\nb 3 4\n")
        z.writestr("glove.6B.100d.txt", "")
    made = embedding.create("GloVe", pretrained_file_name="glove.6B.50d.txt")
    np.testing.assert_array_equal(made.idx_to_vec.asnumpy(), [[0, 0], [1, 2], [3, 4]])
    assert {p.name for p in folder.iterdir()} == {"glove.6B.zip", "glove.6B.50d.txt"}
    with pytest.raises(KeyError, match="Cannot find pretrained file x"):
        embedding.create("fasttext", pretrained_file_name="x")
    with pytest.raises(KeyError, match="Cannot find `embedding_name` foo"):
        embedding.get_pretrained_file_names("foo")


def test_classes_of_ones_own():
    @embedding.register
    class Mine(embedding._TokenEmbedding):
        pretrained_file_name_sha1 = {"m": "1"}

    assert type(embedding.create("mine")) is Mine
    assert embedding.get_pretrained_file_names("mine") == ["m"]


# ---- WikiText ------------------------------------------------------------------------------------

TEXT = " = hello = \n \n the cat sat on the mat \n the dog <unk> @-@ ran \n"


def test_wikitext(tmp_path):
    (tmp_path / "wiki.train.tokens").write_text(TEXT)
    data = wiki.WikiText2(root=tmp_path, seq_len=4)
    assert [[part.asnumpy().tolist() for part in item] for item in data] == [
        [[3, 7, 3, 1], [7, 3, 1, 2]],
        [[2, 5, 11, 9], [5, 11, 9, 2]],
        [[2, 8, 1, 2], [8, 1, 2, 6]],
        [[6, 0, 4, 10], [0, 4, 10, 1]],
    ]
    assert data.vocabulary.idx_to_token[:4] == ["<unk>", "<eos>", "the", "="]
    assert data.frequencies["the"] == 3 and data[0][0].dtype == np.int32
    shared = wiki.WikiText2(root=tmp_path, seq_len=4, vocab=Vocabulary(collections.Counter("a")))
    assert shared[0][0].asnumpy().max() == 0


def test_wikitext_from_its_archive(tmp_path, monkeypatch):
    monkeypatch.delenv("MXNET_GLUON_REPO", raising=False)
    monkeypatch.setenv("MXNET_HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"put wikitext-103-v1.zip or wiki.valid.tokens"):
        wiki.WikiText103(segment="validation")
    folder = tmp_path / "datasets" / "wikitext-103"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "wikitext-103-v1.zip", "w") as z:
        z.writestr("wikitext-103/wiki.valid.tokens", TEXT)
    assert len(wiki.WikiText103(segment="validation", seq_len=5)) == 3
    with pytest.raises(ValueError, match="segment must be one of train, validation, test"):
        wiki.WikiText2(root=tmp_path, segment="valid")
    with pytest.raises(ValueError, match="seq_len=35 is longer"):
        wiki.WikiText103(segment="validation")
