"""Pages and the contract's comments are plain technical English: short sentences, and none with a phrase of PHRASES.

On pages code, comments and pictures do not count. A run of names in backticks counts as one word: it is a list, not a
sentence.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *(ROOT / "examples" / name for name in ("README.md", "node/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
PROTOS = sorted((ROOT / "proto").rglob("*.proto"))
MOST_WORDS = 20
PHRASES = re.compile(
    r"\b(?:who has|who have|nobody|somebody|everybody|whoever|to be had|(?:go|goes|going|gone|went) on with|comes? at"
    r"|what is made of|of (?:its|their|his|your) own|all the same)\b",
    re.IGNORECASE,
)
_CODE = "\0"
_CODES = re.compile(rf"{_CODE}(?:(?:,| and| or|, and|, or)* {_CODE})+")
_COMMENT = re.compile(r"(?:^|[;{] +)//(?P<text>.*)")
_ENDS = re.compile(r"(?<=[.!?])[)\"*]*\s+")


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """First line and words of each paragraph, heading, list item and table cell. Inline code is one character."""
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "inline" and token.map is not None:
            yield token.map[0] + 1, "".join(map(words, token.children or []))


def words(token: Token) -> str:
    if token.type == "code_inline":
        return _CODE
    if token.type == "softbreak":
        return "\n"
    return token.content if token.type == "text" else ""


def comments(text: str) -> Iterator[tuple[int, str]]:
    """First line and words of each paragraph of a proto's comments."""
    first, lines, alone = 0, [], True
    for number, line in enumerate([*text.splitlines(), ""], 1):
        found = _COMMENT.search(line.strip())
        words = found["text"].strip() if found else ""
        if lines and not (alone and words and found and found.start() == 0):
            yield first, "\n".join(lines)
            lines = []
        if found and words:
            first, alone = (first if lines else number), found.start() == 0
            lines.append(words)


def sentences(parts: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """First line and text of each sentence of paragraphs."""
    for first, paragraph in parts:
        begin = 0
        for end in [*(match.end() for match in _ENDS.finditer(paragraph)), len(paragraph)]:
            yield first + paragraph.count("\n", 0, begin), " ".join(paragraph[begin:end].split())
            begin = end


def faults(parts: Iterable[tuple[int, str]]) -> list[str]:
    found = []
    for line, sentence in sentences(parts):
        count = sum(any(c.isalnum() or c == _CODE for c in word) for word in _CODES.sub(_CODE, sentence).split())
        shown = sentence.replace(_CODE, "`…`")
        if count > MOST_WORDS:
            found.append(f"line {line}: {count} words: {shown}")
        if PHRASES.search(sentence):
            found.append(f"line {line}: {PHRASES.findall(sentence)}: {shown}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_sentences_are_short_and_plain(page: Path) -> None:
    assert faults(paragraphs(page.read_text("utf-8"))) == []


@pytest.mark.parametrize("proto", PROTOS, ids=lambda proto: proto.name)
def test_comments_of_the_contract_are_short_and_plain(proto: Path) -> None:
    assert faults(comments(proto.read_text("utf-8"))) == []


def test_what_is_no_prose_does_not_count() -> None:
    long = "word " * 40
    for page in (
        f"```\n{long}\n```\n\n<!-- {long}\n\n{long} -->\n\n- `{long}`\n\n![{long}](a.svg)\n",
        ", ".join(["`name`"] * 40),
        " ".join(["A sentence has four words."] * 10),
    ):
        assert not faults(paragraphs(page))
    words = "word " * 11
    assert not faults(comments(f"// {words}\n//\n// {words}\nstring a = 1; // {words}\n// {words}\n"))
    assert not faults(comments('string url = "https://a b c d e f g h i j k l m n o p q r s t u v w x y z" = 1;\n'))


def test_a_long_sentence_and_a_phrase_are_found() -> None:
    page = f"One.\nTwo {'a word ' * 13}end.\n"
    assert [fault.partition(":")[0] for fault in faults(paragraphs(page))] == ["line 2"]
    assert faults(paragraphs(f"| a |\n| --- |\n| {'word ' * 26} |\n"))
    assert faults(paragraphs("- It can be read by\n  whoever asks."))
    proto = f"message A {{\n  // One.\n  // Two {'a word ' * 13}\n  // end.\n  bool b = 1; // Whoever asks.\n}}\n"
    assert [fault.partition(":")[0] for fault in faults(comments(proto))] == ["line 3", "line 5"]
