"""Patterns of build contexts: wildcards as Go's `filepath.Match` has them, and the lines of `.dockerignore`."""

import pytest

from tollbar.sandboxes.dockerignore import PatternFault, go_match, has_wildcards, read_ignore, unescaped


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("abc", "abc", True),
        ("*", "abc", True),
        ("*c", "abc", True),
        ("a*", "a", True),
        ("a*", "ab/c", False),
        ("a*/b", "abc/b", True),
        ("a*/b", "a/c/b", False),
        ("a*b*c*d*e*/f", "axbxcxdxe/f", True),
        ("a*b?c*x", "abxbbxdbxebxczzx", True),
        ("a*b?c*x", "abxbbxdbxebxczzy", False),
        ("*", ".hidden", True),
        ("ab[c]", "abc", True),
        ("ab[b-d]", "abc", True),
        ("ab[e-g]", "abc", False),
        ("ab[^c]", "abc", False),
        ("ab[^e-g]", "abc", True),
        ("a\\*b", "a*b", True),
        ("a\\*b", "ab", False),
        ("a?b", "a☺b", True),
        ("a[^a]b", "a☺b", True),
        ("a???b", "a☺b", False),
        ("[a-ζ]*", "α", True),
        ("*[a-ζ]", "A", False),
        ("a?b", "a/b", False),
        ("a*b", "a/b", False),
        ("[\\]a]", "]", True),
        ("[\\-]", "-", True),
        ("[x\\-]", "-", True),
        ("[!a]", "!", True),
        ("[!a]", "b", False),
        ("*x", "xxx", True),
        ("**", "a/b", False),
        ("a.c", "abc", False),
    ],
)
def test_a_wildcard_matches_as_in_go(pattern, text, matches):
    assert (go_match(pattern).fullmatch(text) is not None) is matches


@pytest.mark.parametrize("pattern", ["[", "[^", "[^bc", "a[", "[]a]", "[-]", "[x-]", "[-x]", "a\\", "[a-b-c]"])
def test_a_malformed_pattern_is_a_fault(pattern):
    with pytest.raises(PatternFault):
        go_match(pattern)


@pytest.mark.parametrize(
    ("word", "wild"), [("a*", True), ("a?", True), ("[a]", True), ("a\\*", False), ("\\[a]", False), ("plain", False)]
)
def test_an_escaped_sign_is_no_wildcard(word, wild):
    assert has_wildcards(word) is wild


def test_an_escaped_sign_stands_for_itself():
    assert unescaped("a\\*b\\\\") == "a*b\\"


@pytest.mark.parametrize(
    ("lines", "ignored", "kept"),
    [
        ("node_modules", ["node_modules", "node_modules/a/b"], ["x/node_modules", "node_modules2"]),
        ("/build", ["build", "build/x"], ["x/build"]),
        ("./build/", ["build/x"], ["x/build"]),
        ("*.md\n!README.md", ["a.md"], ["README.md", "x/a.md"]),
        ("*/temp*", ["a/temp", "a/temporary/x"], ["temp", "a/b/temp"]),
        ("**/*.pyc", ["a.pyc", "a/b/c.pyc"], ["a.py"]),
        ("**/cache", ["cache", "a/cache/x"], ["mycache"]),
        ("a/**/z", ["a/z", "a/b/c/z"], ["a/zz"]),
        ("a/**", ["a/x", "a/b/c"], ["a", "ab"]),
        ("**", ["a", "a/b"], []),
        ("**foo", ["foo", "xfoo", "a/xfoo"], ["food"]),
        ("temp?", ["temp1"], ["temp", "temp12"]),
        ("[ab].txt", ["a.txt"], ["c.txt"]),
        ("# a comment\n\n  spaced  ", ["spaced"], ["# a comment", "a"]),
        ("secret\n!secret/public", ["secret/x"], ["secret/public", "secret/public/y"]),
        ("!a\na", ["a"], ["b"]),
        ("a+b(c)", ["a+b(c)"], ["aab"]),
        (".", [], ["a"]),
        ("\ufeffa", ["a"], ["b"]),
    ],
)
def test_the_last_line_that_matches_decides(lines, ignored, kept):
    rules = read_ignore(lines)
    assert [path for path in ignored if not rules.ignores(path.split("/"))] == []
    assert [path for path in kept if rules.ignores(path.split("/"))] == []


@pytest.mark.parametrize("line", ["[", "!", "a\\"])
def test_a_malformed_line_is_a_fault(line):
    with pytest.raises(PatternFault):
        read_ignore(line)
