"""`hlo2graph man`: the manual page."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime

import click

from hlo2graph import __version__
from hlo2graph.cli.files import emit
from hlo2graph.cli.options import output_option
from hlo2graph.errors import InputError


@click.command("man")
@output_option
def command(output: str | None) -> None:
    """Print the manual page, for `man -l` or a folder of such pages.

    It has today's date, or SOURCE_DATE_EPOCH's.

    \b
    Examples:
      hlo2graph man -o hlo2graph.1
      hlo2graph man -o ~/.local/share/man/man1/hlo2graph.1
    """
    from hlo2graph.cli.roff import page

    root = click.get_current_context().find_root()
    emit(page(root, f"hlo2graph {__version__}", _date()), output)


def _date() -> str:
    seconds = os.environ.get("SOURCE_DATE_EPOCH") or time.time()
    try:
        return datetime.fromtimestamp(int(seconds), UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):
        raise InputError(f"SOURCE_DATE_EPOCH is {seconds!r}, no number of seconds") from None
