"""Words of a Dockerfile: split, unquoted and expanded as Docker's own lexer does."""

import pytest

from tollbar.sandboxes.dockerfile_words import WordFault, expand, split_words

VALUES = {"A": "one", "B_2": "two words", "E": ""}


def expanded(word, escape="\\"):
    return expand(word, lambda name: VALUES.get(name, ""), escape)


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("plain", "plain"),
        ("$A", "one"),
        ("${A}", "one"),
        ("x$A", "xone"),
        ("${A}x", "onex"),
        ("$A$B_2", "onetwo words"),
        ("$A/${A}-$A", "one/one-one"),
        ("$E", ""),
        ("$UNKNOWN/x", "/x"),
        ("$", "$"),
        ("5$", "5$"),
        ("$.x", "$.x"),
        ("a$ b", "a$ b"),
        ("$$", ""),
        ("$1x", "x"),
        ("$@x", "x"),
        ("\\$A", "$A"),
        ("\\\\$A", "\\one"),
        ("a\\ b", "a b"),
        ("a\\", "a"),
        ("\\n", "n"),
        ("'$A'", "$A"),
        ("'a\\b'", "a\\b"),
        ("'it'\\''s'", "it's"),
        ('"$A"', "one"),
        ('"\\$A"', "$A"),
        ('"\\\\"', "\\"),
        ('"\\""', '"'),
        ('"\\n"', "\\n"),
        ('"it\'s"', "it's"),
        ("'say \"$A\"'", 'say "$A"'),
        ('a"b c"d', "ab cd"),
        ("~", "~"),
    ],
)
def test_a_word_is_expanded(word, text):
    assert expanded(word) == text


def test_another_escape_character_leaves_backslashes_alone():
    assert expanded("c:\\$A`$A", escape="`") == "c:\\one$A"


@pytest.mark.parametrize("word", ['"', "'", "a'b", '"$A', "${A:-x}", "${", "${A", '"${A:-x}"'])
def test_what_cannot_be_read_is_a_fault(word):
    with pytest.raises(WordFault):
        expanded(word)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("A=1 B=2", ["A=1", "B=2"]),
        ("  A=1\t B=2 ", ["A=1", "B=2"]),
        ('A="x y" B=z', ['A="x y"', "B=z"]),
        ("A='x \"y' B=z", ["A='x \"y'", "B=z"]),
        ("A=x\\ y B=z", ["A=x\\ y", "B=z"]),
        ('A="x \\" y" B', ['A="x \\" y"', "B"]),
        ('A="" B', ['A=""', "B"]),
        ("", []),
    ],
)
def test_words_keep_their_quotes(line, words):
    assert split_words(line, "\\") == words
