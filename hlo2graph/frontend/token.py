"""The token that the lexer yields."""

from __future__ import annotations


class Token:
    """A token: its kind, its text without punctuation, and where that begins.

    `typed` is the text of the shape written before an operand, `shape` the one before an opcode.
    """

    __slots__ = ("shape", "start", "text", "type", "typed")
    line = column = end_line = end_column = start_pos = end_pos = 0  # Lark copies them for `$END`

    def __init__(self, kind: str, text: str, start: int, typed: str | None = None) -> None:
        self.type = kind
        self.text = text
        self.start = start
        self.typed = typed
        self.shape: Token | None = None

    @property
    def end(self) -> int:
        """The offset behind the text."""
        return self.start + len(self.text)
