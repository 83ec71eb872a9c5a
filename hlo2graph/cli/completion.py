"""`hlo2graph completion`: what a shell needs to complete commands, options and their values."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_HLO2GRAPH_COMPLETE"  # by which the script asks: click's name for it


@click.command("completion", short_help="Print what completes command lines in a shell.")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the script that makes a shell complete hlo2graph's command lines.

    It completes commands, options, options' values and files.

    \b
    Examples:
      eval "$(hlo2graph completion bash)"
      hlo2graph completion zsh > ~/.zfunc/_hlo2graph
      hlo2graph completion fish > ~/.config/fish/completions/hlo2graph.fish
    """
    root = click.get_current_context().find_root()
    complete = get_completion_class(shell)
    assert complete is not None
    assert root.info_name is not None
    click.echo(complete(root.command, {}, root.info_name, VARIABLE).source())
