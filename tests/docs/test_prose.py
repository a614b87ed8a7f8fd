"""The pages are plain technical English: no sentence is longer than MOST_WORDS, and none has a phrase of PHRASES.

Code, comments and pictures do not count. A run of names in backticks counts as one word: it is a list, not a sentence.
"""

import re
from collections.abc import Iterator
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
MOST_WORDS = 25
PHRASES = re.compile(
    r"\b(?:who has|who have|nobody|somebody|everybody|whoever|to be had|(?:go|goes|going|gone|went) on with|comes? at"
    r"|what is made of|of (?:its|their|his|your) own|all the same)\b",
    re.IGNORECASE,
)
_CODE = "\0"
_CODES = re.compile(rf"{_CODE}(?:(?:,| and| or|, and|, or)* {_CODE})+")
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


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """First line and text of each sentence."""
    for first, paragraph in paragraphs(text):
        begin = 0
        for end in [*(match.end() for match in _ENDS.finditer(paragraph)), len(paragraph)]:
            yield first + paragraph.count("\n", 0, begin), " ".join(paragraph[begin:end].split())
            begin = end


def faults(text: str) -> list[str]:
    found = []
    for line, sentence in sentences(text):
        count = sum(any(c.isalnum() or c == _CODE for c in word) for word in _CODES.sub(_CODE, sentence).split())
        shown = sentence.replace(_CODE, "`…`")
        if count > MOST_WORDS:
            found.append(f"line {line}: {count} words: {shown}")
        if PHRASES.search(sentence):
            found.append(f"line {line}: {PHRASES.findall(sentence)}: {shown}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_sentences_are_short_and_plain(page: Path) -> None:
    assert faults(page.read_text("utf-8")) == []


def test_what_is_no_prose_does_not_count() -> None:
    long = "word " * 40
    assert not faults(f"```\n{long}\n```\n\n<!-- {long}\n\n{long} -->\n\n- `{long}`\n\n![{long}](a.svg)\n")
    assert not faults(", ".join(["`name`"] * 40))
    assert not faults(" ".join(["A sentence has four words."] * 10))


def test_a_long_sentence_and_a_phrase_are_found() -> None:
    assert [fault.partition(":")[0] for fault in faults(f"One.\nTwo {'a word ' * 13}end.\n")] == ["line 2"]
    assert faults(f"| a |\n| --- |\n| {'word ' * 26} |\n")
    assert faults("- It can be read by\n  whoever asks.")
