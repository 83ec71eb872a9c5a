"""`hlo2graph fmt`: canonical HLO text."""

from __future__ import annotations

import click

import hlo2graph
from hlo2graph.cli.files import emit, joined, modules_in, read_file, write_whole
from hlo2graph.cli.options import file_argument, output_option
from hlo2graph.cli.programs import text_of


@click.command("fmt")
@file_argument
@output_option
@click.option("--check", is_flag=True, help="Print nothing; exit with 1 if FILE is not canonical.")
@click.option("--in-place", is_flag=True, help="Write FILE itself anew.")
def command(file: str, output: str | None, check: bool, in_place: bool) -> None:
    """Print FILE as canonical HLO text, which XLA's own parser reads back.

    Comments are not kept.

    \b
    Examples:
      hlo2graph fmt model.hlo
      hlo2graph fmt model.hlo --in-place
      hlo2graph fmt model.hlo --check
    """
    if check + in_place + (output is not None) > 1:
        raise click.UsageError("--check, --in-place and --output exclude each other; give one")
    if in_place and file == "-":
        raise click.UsageError("--in-place needs a file, not stdin; leave it out to print")

    from hlo2graph.hlo.printer import format_module

    given = read_file(file)
    if (given.is_imported or given.saved) and (check or in_place):
        raise click.UsageError(f"{file} is no HLO text; print it with -o FILE.hlo")
    modules = (hlo2graph.parse(text_of(m), m.filename, verify=False) for m in modules_in(given))
    text = joined(format_module(module) for module in modules)
    if check:
        if given.text != text:
            click.echo(f"{file} is not canonical; hlo2graph fmt --in-place makes it so", err=True)
            click.get_current_context().exit(1)
    elif in_place:
        write_whole(file, text)
    else:
        emit(text, output)
