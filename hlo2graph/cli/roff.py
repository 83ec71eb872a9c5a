"""A manual page of click's commands, in roff with man(7)'s macros.

What the commands' help says is all there is, and the environment beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from inspect import cleandoc
from textwrap import wrap

import click

from hlo2graph.cli.voice import COMMON

ENVIRONMENT = (
    ("HLO2GRAPH_CACHE_DIR", "Where compiled kernels and plans are kept; empty, nowhere."),
    ("HLO2GRAPH_GRAPH_BUDGET", "Device memory that CUDA graphs may take, as 64MiB."),
    ("GITHUB_WORKSPACE", "Where the names of files begin in annotations."),
    ("NO_COLOR", "Where it is not empty, progress has no colours."),
    ("SOURCE_DATE_EPOCH", "The date of this page, in seconds."),
)
_ESCAPES = str.maketrans(
    {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"}
)


def page(root: click.Context, release: str, date: str) -> str:
    """Return the page of the group that `root` is of."""
    group = root.command
    assert isinstance(group, click.Group)
    summary, _, rest = cleandoc(group.help or "").partition("\n\n")
    name = str(root.info_name)
    lines = [
        f'.TH {_text(name.upper())} 1 {date} "{_text(release)}" "User Commands"',
        *(".nh", ".ad l"),
        *(".SH NAME", *_filled(f"{name} - {_sentence(summary)}")),
        *(".SH SYNOPSIS", *_usage(root)),
        *(".SH DESCRIPTION", *_help(rest)),
        *(".SH OPTIONS", *_options(root)),
        ".SH COMMANDS",
    ]
    for command in group.list_commands(root):
        lines += _command(root, command)
    lines.append(".SH ENVIRONMENT")
    for variable, meaning in ENVIRONMENT:
        lines += [".TP", f"\\fB{_text(variable)}\\fR", _text(meaning)]
    return "\n".join(lines) + "\n"


def _command(root: click.Context, name: str) -> Iterator[str]:
    assert isinstance(root.command, click.Group)
    command = root.command.get_command(root, name)
    assert command is not None
    context = click.Context(command, info_name=name, parent=root)
    yield f".SS {_text(f'{root.info_name} {name}')}"
    yield from _usage(context)
    yield ".PP"
    yield from _help(cleandoc(command.help or ""))
    yield from _options(context)


def _usage(context: click.Context) -> Iterator[str]:
    pieces = " ".join(context.command.collect_usage_pieces(context))
    yield from _filled(f"`{context.command_path}` {pieces}")


def _options(context: click.Context) -> Iterator[str]:
    """Yield the options; those of all commands stand in the group's list alone."""
    for option in context.command.get_params(context):
        is_shown = context.parent is None or (option not in COMMON and "--help" not in option.opts)
        if is_shown and isinstance(option, click.Option):
            flags, meaning = option.get_help_record(context) or ("", "")
            yield from (".TP", f"\\fB{_text(flags)}\\fR", *_filled(meaning))


def _help(text: str) -> Iterator[str]:
    """Yield click's paragraphs; one that begins with \\b keeps its lines."""
    for number, paragraph in enumerate(text.strip().split("\n\n")):
        if number:
            yield ".PP"
        if not paragraph.startswith("\b"):
            yield from _filled(paragraph)
            continue
        _, title, *kept = paragraph.splitlines()
        yield from (*_filled(title), ".RS 2", ".nf", *map(_text, kept), ".fi", ".RE")


def _sentence(summary: str) -> str:
    """Return a command's first sentence as man's NAME has it."""
    summary = " ".join(summary.split()).rstrip(".")
    return summary[:1].lower() + summary[1:]


def _filled(text: str) -> Iterator[str]:
    """Yield a paragraph in lines of a length that editors like."""
    for line in wrap(_escaped(text), 78, break_long_words=False, break_on_hyphens=False):
        yield _protected(line)


def _text(text: str) -> str:
    """Return a line that roff prints as it is, what stands in backquotes bold."""
    return _protected(_escaped(text))


def _escaped(text: str) -> str:
    bold = re.sub(r"`([^`]+)`", "\1\\1\2", text).translate(_ESCAPES)
    return bold.replace("\1", r"\fB").replace("\2", r"\fR")


def _protected(line: str) -> str:
    """Keep a line of text from being taken for a macro."""
    return rf"\&{line}" if line.startswith(".") else line
