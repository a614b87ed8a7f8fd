"""Text width: how wide a text can be in a drawing, so that it stays inside its card."""

# Widths of the characters from " " to "~" in DejaVu Sans, in hundredths of the size. It is the widest of the fonts that
# a drawing names, so a text fits in each of them.
# fmt: off
_REGULAR = (
    32, 41, 46, 84, 64, 96, 78, 28, 40, 40, 50, 84, 32, 37, 32, 34, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 34,
    34, 84, 84, 84, 54, 100, 69, 69, 70, 77, 64, 58, 78, 76, 30, 30, 66, 56, 87, 75, 79, 61, 79, 70, 64, 62, 74,
    69, 99, 69, 62, 69, 40, 34, 40, 84, 50, 50, 62, 64, 55, 64, 62, 36, 64, 64, 28, 28, 58, 28, 98, 64, 62, 64,
    64, 42, 53, 40, 64, 60, 82, 60, 60, 53, 64, 34, 64, 84,
)
_BOLD = (
    35, 46, 53, 84, 70, 101, 88, 31, 46, 46, 53, 84, 38, 42, 38, 37, 70, 70, 70, 70, 70, 70, 70, 70, 70, 70, 40,
    40, 84, 84, 84, 58, 100, 78, 77, 74, 83, 69, 69, 83, 84, 38, 38, 78, 64, 100, 84, 85, 74, 85, 77, 73, 69,
    82, 78, 111, 78, 73, 73, 46, 37, 46, 84, 50, 50, 68, 72, 60, 72, 68, 44, 72, 72, 35, 35, 67, 35, 105, 72,
    69, 72, 72, 50, 60, 48, 72, 66, 93, 65, 66, 59, 72, 37, 72, 84,
)
# fmt: on
# Of all other characters, ideographs and Cyrillic among them.
_OTHER, _OTHER_BOLD = 110, 125


def text_width(text: str, size: float, *, bold: bool) -> float:
    """The width of a text in pixels, in a font of a size in pixels."""
    table, other = (_BOLD, _OTHER_BOLD) if bold else (_REGULAR, _OTHER)
    return sum(table[ord(char) - 32] if 32 <= ord(char) < 127 else other for char in text) * size / 100
