"""Breaks texts: `mutate(text, others, rng)` returns one with a few things wrong in it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

_TOKEN = re.compile(r"[A-Za-z_][\w.\-]*|\d+|\s+|.", re.DOTALL)
_NUMBER = re.compile(r"-?\d+")
_NUMBERS = (
    *(str(n) for n in (-1, 0, 1, 2, 7, 65, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64)),
    *("-0", "1e999", "9" * 40, "9" * 5000, "nan", "-inf", "0x10", "1.5", "\u0663"),
)
_INSERTS = (
    *("(", ")", "{", "}", "[", "]", "<", ">", ",", "=", "->", "%", "#", ":", '"', "'", "\\", "/"),
    *("/*", "*/", "//", "// -----\n", "\r\n", "\r", "\t", "\0", "\ufeff", "\u202e", "\u00e9"),
    *("\U0001f600", "\udc80", "\x85", "\u2028", "ENTRY ", "ROOT ", "HloModule ", "(((", "{{{"),
    *("f32[]", "f32[0]", "f32[4,4]{0,1}", "(f32[], token[])", "s4[3]", "to_apply=", "{...}"),
    *("constant(", "parameter(0)", "index=0", "dimensions={}", "tuple()", "while", "call"),
)
Mutation = Callable[[str, Sequence[str], random.Random], str]


def mutate(text: str, others: Sequence[str], rng: random.Random) -> str:
    """Return `text` after one to four mutations; `others` lend it pieces."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        text = rng.choice(_MUTATIONS)(text, others, rng)
    return text


def _cut(text: str, _: Sequence[str], rng: random.Random) -> str:
    return text[: rng.randint(0, len(text))]


def _insert(text: str, _: Sequence[str], rng: random.Random) -> str:
    at = rng.randint(0, len(text))
    return text[:at] + rng.choice(_INSERTS) + text[at:]


def _character(text: str, _: Sequence[str], rng: random.Random) -> str:
    at = rng.randint(0, len(text))
    return text[:at] + chr(rng.randrange(256)) + text[at + rng.randint(0, 2) :]


def _number(text: str, _: Sequence[str], rng: random.Random) -> str:
    found = list(_NUMBER.finditer(text))
    if not found:
        return text
    chosen = rng.choice(found)
    return text[: chosen.start()] + rng.choice(_NUMBERS) + text[chosen.end() :]


def _delete_token(text: str, _: Sequence[str], rng: random.Random) -> str:
    tokens = _TOKEN.findall(text)
    at = rng.randint(0, len(tokens))
    return "".join(tokens[:at] + tokens[at + rng.randint(1, 3) :])


def _repeat_token(text: str, _: Sequence[str], rng: random.Random) -> str:
    tokens = _TOKEN.findall(text)
    at, width = rng.randint(0, len(tokens)), rng.randint(1, 8)
    return "".join(tokens[: at + width] + tokens[at:])


def _replace_token(text: str, others: Sequence[str], rng: random.Random) -> str:
    tokens = _TOKEN.findall(text)
    lent = _TOKEN.findall(rng.choice(others)) if others and rng.random() < 0.5 else tokens
    if not tokens or not lent:
        return text
    tokens[rng.randrange(len(tokens))] = rng.choice(lent)
    return "".join(tokens)


def _swap_tokens(text: str, _: Sequence[str], rng: random.Random) -> str:
    tokens = [t for t in _TOKEN.findall(text) if t]
    if len(tokens) < 2:
        return text
    a, b = rng.randrange(len(tokens)), rng.randrange(len(tokens))
    tokens[a], tokens[b] = tokens[b], tokens[a]
    return "".join(tokens)


def _swap_names(text: str, _: Sequence[str], rng: random.Random) -> str:
    """Use one name of the text in the place of another: well spelled, ill meant."""
    places = list(re.finditer(r"[A-Za-z_][\w.\-]*", text))
    if not places:
        return text
    chosen, lent = rng.choice(places), rng.choice(places)
    return text[: chosen.start()] + lent[0] + text[chosen.end() :]


def _move_line(text: str, others: Sequence[str], rng: random.Random) -> str:
    lines = text.split("\n")
    source = rng.choice(others).split("\n") if others and rng.random() < 0.3 else lines
    line = rng.choice(source)
    if source is lines and rng.random() < 0.6:
        lines.remove(line)
    lines.insert(rng.randint(0, len(lines)), line)
    return "\n".join(lines)


_MUTATIONS: tuple[Mutation, ...] = (
    _cut,
    _insert,
    _insert,
    _character,
    _number,
    _number,
    _delete_token,
    _repeat_token,
    _replace_token,
    _replace_token,
    _swap_tokens,
    _swap_names,
    _swap_names,
    _move_line,
)
