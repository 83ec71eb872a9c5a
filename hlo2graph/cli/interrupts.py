"""What Ctrl-C does: the first unwinds the command, the second ends the process at once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import NoReturn

import click

from hlo2graph.cli.voice import INTERRUPTED


def listen() -> None:
    """Take interrupts from here on, unless whoever started the process has them ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        sys.unraisablehook = partial(_unraisable, sys.unraisablehook)
        _set(_first)


def finish() -> None:
    """Let nothing but one line come of an interrupt while Python itself ends."""
    if signal.getsignal(signal.SIGINT) is _first:
        _set(_end)


def say() -> None:
    """Say that the command was interrupted; interrupts from here on change nothing."""
    if signal.getsignal(signal.SIGINT) in (_first, _end):
        _set(signal.SIG_IGN)
    with suppress(OSError):
        click.echo("interrupted", err=True)


def _first(_number: int, _frame: FrameType | None) -> NoReturn:
    _set(_end)
    raise KeyboardInterrupt


def _end(_number: int = 0, _frame: FrameType | None = None) -> NoReturn:
    """End without unwinding, which the first interrupt may have left unable to."""
    _set(signal.SIG_IGN)
    with suppress(OSError):
        os.write(2, b"interrupted\n")  # stderr's own lock may be held by what this interrupts
    os._exit(INTERRUPTED)


def _unraisable(
    otherwise: Callable[[sys.UnraisableHookArgs], object], raised: sys.UnraisableHookArgs
) -> None:
    """End where an interrupt came inside a finalizer, out of which Python lets nothing rise."""
    if issubclass(raised.exc_type, KeyboardInterrupt):
        _end()
    otherwise(raised)


def _set(handler: signal.Handlers | object) -> None:
    signal.signal(signal.SIGINT, handler)  # type: ignore[arg-type]
