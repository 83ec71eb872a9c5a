"""What commands say on stderr: notes, faults and errors, and these again as annotations.

A command's results go to stdout and are not said here.
"""

from __future__ import annotations

import signal
from contextlib import suppress
from dataclasses import dataclass

import click

from hlo2graph.cli.annotations import FORMS, github
from hlo2graph.errors import BackendError, HloError, Span

USAGE, NO_BACKEND, INTERRUPTED = 2, 3, 128 + signal.SIGINT


@dataclass(slots=True)
class Voice:
    """How to say it, as the options that all commands share have it."""

    quiet: bool = False
    annotations: str | None = None

    def note(self, text: str) -> None:
        """Say what is good to know; --quiet leaves it out."""
        if not self.quiet:
            _say(text)

    def fault(self, text: str, span: Span | None = None, file: str | None = None) -> None:
        """Say what is wrong with the program, at `span` or with all of `file`."""
        _say(text)
        self.annotate(text, span, file)

    def annotate(self, text: str, span: Span | None = None, file: str | None = None) -> None:
        """Say only as an annotation, if any are asked for, what a result has said already."""
        if self.annotations is not None:
            _say(github(text, span, file))

    def error(self, error: HloError | BackendError | OSError | MemoryError) -> int:
        """Say what kept the command from its work; return the exit code."""
        match error:
            case HloError():
                notes = [f"note: {note.message}" for note in error.notes]
                _say(str(error))
                self.annotate("\n".join([error.message, *notes]), error.span)
                return USAGE
            case BackendError():
                text, code = str(error), NO_BACKEND
            case OSError():
                named = f"{error.filename}: " if error.filename else ""
                text, code = f"{named}{error.strerror or error}", USAGE
            case _:
                text, code = "out of memory", NO_BACKEND
        _say(f"error: {text}")
        self.annotate(text)
        return code


def _say(text: str) -> None:
    """Write to stderr; where that cannot be written to, the exit code says it all the same."""
    with suppress(OSError):
        click.echo(text, err=True)


def voice() -> Voice:
    """Return the voice of the command that runs."""
    context = click.get_current_context(silent=True)
    return Voice() if context is None else context.ensure_object(Voice)


def _hear(context: click.Context, option: click.Parameter, value: object) -> None:
    """Keep what is given before a command's name or behind it."""
    if value:
        assert option.name is not None
        setattr(context.ensure_object(Voice), option.name, value)


COMMON = (
    click.Option(
        ["-q", "--quiet"],
        is_flag=True,
        expose_value=False,
        is_eager=True,  # heard before another option is found to be wrong
        callback=_hear,
        help="Say no progress and no notes, only results and errors.",
    ),
    click.Option(
        ["--annotations"],
        metavar="|".join(FORMS),
        type=click.Choice(FORMS),
        expose_value=False,
        is_eager=True,  # heard before another option is found to be wrong
        callback=_hear,
        help="Say errors and faults also in a form that marks their lines: on GitHub.",
    ),
)
