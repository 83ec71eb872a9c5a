"""The command group, and the one place where errors become messages and exit codes.

0 ok; 1 the program is at fault; 2 usage, parse or verify error, or what is not supported; 3 what it
takes is not installed here, or fails.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from keyword import iskeyword
from typing import NoReturn

import click

from hlo2graph import __version__
from hlo2graph.cli import interrupts
from hlo2graph.cli.voice import COMMON, INTERRUPTED, Voice
from hlo2graph.errors import BackendError, HloError

COMMANDS = (
    *("run", "plan", "dot", "buffers", "budget", "check", "explain", "diff", "xla"),
    *("import", "compile", "kernels", "pointers", "fmt", "doctor"),
    *("completion", "man"),
)


class _Commands(click.Group):
    """Loads a command's file when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        file = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name
        command = import_module(f"hlo2graph.cli.{file}").command
        assert isinstance(command, click.Command)
        command.params += [option for option in COMMON if option not in command.params]
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            if near := get_close_matches(name, COMMANDS):
                hint = f"did you mean {' or '.join(near)}?"
                raise click.UsageError(f"No such command {name!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # of which click makes an Abort too, and writes an empty line
            raise click.Abort from None


@click.command(
    cls=_Commands, params=[*COMMON], context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__)
def group() -> None:
    """Compile HLO text into a graph whose edges are exactly the data-flow hazards.

    FILE is HLO text, as JAX and XLA print it (`lowered.as_text("hlo")`,
    `compiled.as_text()`, XLA's dumps) or written by hand, or thunk-sequence
    text, as `plan` prints it, or a .h2g file, as `compile` writes it; or, where
    jax is installed, StableHLO as text or bytecode, an HLO proto, a snapshot.
    `-` reads stdin. Several modules in one text are split at `// -----` lines;
    their JSON is a list. Options of all commands stand before or behind COMMAND.

    \b
    Exit codes:
      0  ok
      1  the program is at fault: a mismatch, slower than asked; of `doctor`,
         what is installed does not work
      2  usage, parse or verify error, or what is not supported
      3  what it takes is not here (a GPU, an extra), or fails: its memory is
         full; a mistake in the input is 2, whatever is here

    \b
    Examples:
      hlo2graph run model.hlo
      hlo2graph plan model.hlo --max-buffer-reuse -1
      hlo2graph dot model.hlo -o model.dot
    """


def main() -> NoReturn:
    """Run the command line; every error ends here, as a message and an exit code."""
    _open_streams()
    voice = Voice()
    try:
        interrupts.listen()
        code = group.main(prog_name="hlo2graph", standalone_mode=False, obj=voice)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        voice.annotate(error.format_message())
        code = error.exit_code
    except BrokenPipeError:  # as `plan FILE | head` leaves it
        _drop_output()
        code = 128 + signal.SIGPIPE
    except (HloError, BackendError, OSError, MemoryError) as error:
        _drop_output()
        code = voice.error(error)
    except (KeyboardInterrupt, click.Abort):
        interrupts.say()
        code = INTERRUPTED
    interrupts.finish()
    sys.exit(code)


def _open_streams() -> None:
    """Let stdout and stderr take any text; to write to a stdout that the caller closed is an error.

    Both stay open as long as the process.
    """
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _drop_output() -> None:
    """Keep Python from flushing at exit what it cannot write."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
