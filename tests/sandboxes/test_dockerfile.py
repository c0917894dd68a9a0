"""Dockerfiles as a plan: what is honoured, what is passed over, and what is refused by name and line."""

import pytest

from tollbar.sandboxes.dockerfile import Arg, Copy, Env, Inert, Run, Workdir, parse
from tollbar.sandboxes.errors import EnvironmentRefused


def steps(text: str):
    return parse(f"FROM base\n{text}\n".encode()).steps


def refusal(text: str | bytes) -> str:
    with pytest.raises(EnvironmentRefused) as refused:
        parse(text if isinstance(text, bytes) else text.encode())
    assert refused.value.detail == "key"
    return refused.value.message


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("WORKDIR /app", Workdir(2, "/app")),
        ("workdir sub/dir", Workdir(2, "sub/dir")),
        ("WORKDIR /with space", Workdir(2, "/with space")),
        ("ENV A=1", Env(2, (("A", "1"),))),
        ('ENV A=1 B="x y" C=', Env(2, (("A", "1"), ("B", '"x y"'), ("C", "")))),
        ("ENV A one two  three", Env(2, (("A", "one two  three"),))),
        ("ENV PATH=/opt/bin:$PATH", Env(2, (("PATH", "/opt/bin:$PATH"),))),
        ("ARG A", Arg(2, (("A", None),))),
        ("ARG A=", Arg(2, (("A", ""),))),
        ('ARG A=1 B="x y" C', Arg(2, (("A", "1"), ("B", '"x y"'), ("C", None)))),
        ("COPY a /b", Copy(2, ("a",), "/b")),
        ("COPY a b c/ /d/", Copy(2, ("a", "b", "c/"), "/d/")),
        ("COPY a b .", Copy(2, ("a", "b"), ".")),
        ('COPY ["a b", "c", "/d e/"]', Copy(2, ("a b", "c"), "/d e/")),
        ("COPY --chmod=0755 a /b", Copy(2, ("a",), "/b", "0755")),
        ("COPY --chown=0:0 --chmod=644 a /b", Copy(2, ("a",), "/b", "644")),
        ("COPY --chown=root a /b", Copy(2, ("a",), "/b")),
        ('COPY --chmod=600 ["a", "/b"]', Copy(2, ("a",), "/b", "600")),
        ("RUN make && make install", Run(2, "make && make install")),
        ('RUN ["make", "all"]', Run(2, ("make", "all"))),
        ("RUN [ -f x ] && true", Run(2, "[ -f x ] && true")),
        ('RUN echo "${X:-y}" "it\'s"', Run(2, 'echo "${X:-y}" "it\'s"')),
        ("RUN echo $((1 << 2)) <<<word", Run(2, "echo $((1 << 2)) <<<word")),
    ],
)
def test_an_honoured_instruction_is_read(line, step):
    assert steps(line) == (step,)


@pytest.mark.requirement("G-SBX-14.build_inert")
@pytest.mark.parametrize(
    "word", ["LABEL a=b", "EXPOSE 80", "MAINTAINER me", "STOPSIGNAL TERM", 'CMD ["x"]', "ENTRYPOINT x"]
)
def test_an_inert_instruction_is_recorded_and_passed_over(word):
    plan = parse(f"FROM base\n{word}\nWORKDIR /app\n".encode())
    assert plan.steps == (Workdir(3, "/app"),)
    assert plan.inert == (Inert(2, word.split()[0]),)


def test_comments_and_directives_are_recorded_apart():
    plan = parse(b"# syntax=docker/dockerfile:1\n# escape=\\\n# words\nFROM base\n# check=skip=all\n")
    assert plan.inert == (Inert(1, "directive"), Inert(2, "directive"), Inert(3, "comment"), Inert(5, "comment"))


def test_lines_go_on_with_comments_between_and_numbers_stay_right():
    plan = parse(b"FROM base\n\nCOPY a \\\n  # why\n  b \\\n  /c/\nENV A=1\n")
    assert plan.steps == (Copy(3, ("a", "b"), "/c/"), Env(7, (("A", "1"),)))


def test_the_escape_directive_changes_continuations_and_words():
    plan = parse(b"# escape=`\nFROM base\nENV A=c:\\x `\n  B=x` y\n")
    assert plan.escape == "`"
    assert plan.steps == (Env(3, (("A", "c:\\x"), ("B", "x` y"))),)


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_the_last_line_counts_whatever_ends_it(end):
    assert parse(b"FROM base\nWORKDIR /app" + end).steps == (Workdir(2, "/app"),)


def test_windows_line_ends_and_a_byte_order_mark_are_read():
    plan = parse(b"\xef\xbb\xbfFROM base\r\nCOPY a \\\r\n  /b\r\n")
    assert (plan.declared, plan.steps) == ("base", (Copy(2, ("a",), "/b"),))


@pytest.mark.parametrize(
    ("line", "image"),
    [
        ("FROM python:3.12-slim@sha256:57cd", "python:3.12-slim@sha256:57cd"),
        ("from ghcr.io/a/b:1 as stage", "ghcr.io/a/b:1"),
        ("FROM  localhost:5000/x  AS  y", "localhost:5000/x"),
    ],
)
def test_the_declared_image_is_kept_as_it_is_written(line, image):
    plan = parse(f"ARG V=1\n{line}\n".encode())
    assert (plan.declared, plan.declared_line) == (image, 2)
    assert plan.globals == (Arg(1, (("V", "1"),)),)


@pytest.mark.requirement("G-SBX-14.build_refused")
@pytest.mark.parametrize(
    "name", ["USER", "ADD", "SHELL", "VOLUME", "HEALTHCHECK", "ONBUILD", "COMMENT", "FOO", "RUNN", "INCLUDE+"]
)
def test_every_other_instruction_is_refused_by_name_and_line(name):
    for value in (" x y", "", " \\\n x"):
        message = refusal(f"FROM base\nENV A=1\n{name.lower()}{value}\n")
        assert message.startswith("Dockerfile line 3: "), value
        assert name in message


@pytest.mark.requirement("G-SBX-14.build_syntax")
@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("FROM base\nFROM other", "line 2: FROM stands a second time"),
        ("FROM --platform=linux/amd64 base", "line 1: FROM --platform"),
        ("FROM scratch", "line 1: FROM scratch"),
        ("ARG V=1\nFROM base:$V", "line 2: FROM takes its image from a variable"),
        ("FROM base AS", "line 1: FROM must name one image"),
        ("FROM base other", "line 1: FROM must name one image"),
        ('FROM "base"', "line 1: FROM does not name an image"),
        ("WORKDIR /app\nFROM base", "line 1: WORKDIR stands before FROM"),
        ("LABEL a=b\nFROM base", "line 1: LABEL stands before FROM"),
        ("# only words\n", "there is no FROM"),
        ("ARG A=1", "there is no FROM"),
        ("", "the file is empty"),
        (" \n\t\n", "the file is empty"),
        (b"FROM base\nENV A=\xff", "not UTF-8"),
        (b"FROM base\nENV A=\x00", "line 2: the line holds a control character"),
        (b"FROM base\nENV A=1\rRUN x", "line 2: the line holds a control character"),
        ("# escape=x\nFROM base", "line 1: the escape directive"),
        ("FROM base\nCOPY --from=other a /b", "line 2: COPY --from"),
        ("FROM base\nCOPY --link a /b", "line 2: COPY --link"),
        ("FROM base\nCOPY --parents a /b", "line 2: COPY --parents"),
        ("FROM base\nCOPY --exclude=x a /b", "line 2: COPY --exclude"),
        ("FROM base\nCOPY --chown=1000:1000 a /b", "line 2: COPY --chown"),
        ("FROM base\nCOPY --chown=root:1000 a /b", "line 2: COPY --chown"),
        ("FROM base\nCOPY --chown a /b", "line 2: COPY --chown"),
        ("FROM base\nCOPY --chmod=u+x a /b", "line 2: COPY --chmod must be an octal number"),
        ("FROM base\nCOPY --chmod=888 a /b", "line 2: COPY --chmod must be an octal number"),
        ("FROM base\nCOPY a", "line 2: COPY names no source or no destination"),
        ('FROM base\nCOPY ["a"]', "line 2: COPY names no source or no destination"),
        ("FROM base\nCOPY a b /c", "line 2: COPY of several sources needs a destination that ends with /"),
        ('FROM base\nCOPY ["a", 1]', "line 2: COPY has a JSON form"),
        ("FROM base\nRUN []", "line 2: RUN has a JSON form"),
        ("FROM base\nRUN --mount=type=cache,target=/x make", "line 2: RUN --mount"),
        ("FROM base\nRUN --network=none make", "line 2: RUN --network"),
        ("FROM base\nRUN --security=insecure make", "line 2: RUN --security"),
        ("FROM base\nENV A", "line 2: ENV must be written NAME=value"),
        ("FROM base\nENV A=1 B", "line 2: ENV must be written NAME=value"),
        ("FROM base\nENV =1", "line 2: ENV must be written NAME=value"),
        ("FROM base\nARG =1", "line 2: ARG must be written NAME or NAME=default"),
        ("FROM base\nWORKDIR\n", "line 2: WORKDIR has no value"),
        ("FROM base\nRUN", "line 2: RUN has no value"),
    ],
)
def test_a_form_that_is_not_honoured_is_refused(text, part):
    assert part in refusal(text)


@pytest.mark.requirement("G-SBX-14.build_syntax")
@pytest.mark.parametrize(
    "line",
    [
        "RUN cat <<EOF",
        "RUN cat <<-EOF",
        "RUN cat << EOF",
        "RUN <<'EOF' sh",
        'RUN 3<<"EOF" cat',
        "RUN cat <<1",
        "COPY <<EOF /x",
        "COPY <<-'E' /x",
        "ADD <<EOF /x",
    ],
)
def test_a_heredoc_is_refused_before_its_lines_are_read_as_instructions(line):
    message = refusal(f"FROM base\n{line}\nWORKDIR /app\nEOF\n")
    assert message.startswith(f"Dockerfile line 2: {line.split()[0]} holds a heredoc")


@pytest.mark.requirement("G-SBX-14.build_syntax")
@pytest.mark.parametrize("form", ["${X:-y}", "${X:+y}", "${X-y}", "${X?}", "${X#a}", "${}", "${1}", "${X"])
@pytest.mark.parametrize("line", ["ENV A={}", "ENV A {}", "ARG A={}", "WORKDIR /{}", "COPY {} /x", "COPY x /{}"])
def test_a_braced_variable_is_a_plain_name_or_refused(line, form):
    assert "holds a ${...} form other than ${NAME}" in refusal(f"FROM base\n{line.format(form)}\n")


@pytest.mark.requirement("G-SBX-14.build_syntax")
@pytest.mark.parametrize(
    "line",
    ['ENV A="x', "ENV A='x", "ENV A=x\"y'", "ARG A='", 'WORKDIR "/a', 'COPY "a /b', 'COPY "a b" /c/', "ENV A 'x"],
)
def test_an_open_quote_is_refused(line):
    assert "holds an open quote" in refusal(f"FROM base\n{line}\n")


def test_single_quotes_and_escapes_keep_a_dollar_literal():
    assert steps("ENV A='${X:-y}' B=\\${X:-y}") == (Env(2, (("A", "'${X:-y}'"), ("B", "\\${X:-y}"))),)


@pytest.mark.parametrize("text", ["COPY a \\\n\n  /b", "RUN a \\", "RUN a \\\n", "RUN a \\\n  \n"])
def test_a_line_that_goes_on_into_nothing_is_refused(text):
    assert "line 2: " in (message := refusal(f"FROM base\n{text}"))
    assert "goes on over an empty line" in message


def test_two_escape_characters_at_the_end_of_a_line_are_refused():
    assert "line 3: RUN has a line that ends with two escape" in refusal("FROM base\nRUN a \\\n b\\\\\nWORKDIR /x\n")


def test_a_file_that_is_too_large_is_refused():
    assert "larger than" in refusal(b"FROM base\n" + b"#" * (1 << 20))
