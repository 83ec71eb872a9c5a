"""`hlo2graph fmt`: canonical HLO text."""

from __future__ import annotations

import click

from hlo2graph.cli.files import emit, joined, read_file, write_whole
from hlo2graph.cli.options import output_option
from hlo2graph.cli.paths import Named
from hlo2graph.cli.programs import canonical
from hlo2graph.cli.voice import voice
from hlo2graph.errors import BackendError, HloError, InputError, Source, Span


@click.command("fmt", short_help="Print each FILE as canonical HLO text.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=Named())
@output_option
@click.option("--check", is_flag=True, help="Print nothing; exit with 1 if one is not canonical.")
@click.option("--in-place", is_flag=True, help="Write anew each FILE that is not canonical.")
def command(files: tuple[str, ...], output: str | None, check: bool, in_place: bool) -> None:
    """Print each FILE as canonical HLO text, which XLA's own parser reads back.

    Comments are not kept. Several are printed as one text, split at `// -----`.
    --check and --in-place look at each FILE, whatever is wrong with another, and
    end with exit code 2 if one cannot be read.

    \b
    Examples:
      hlo2graph fmt model.hlo
      hlo2graph fmt models/*.hlo --in-place
      hlo2graph fmt models/*.hlo --check --annotations github

    \b
    In .pre-commit-config.yaml, with --check in place of --in-place to change nothing:
      - repo: local
        hooks:
          - id: hlo2graph-fmt
            name: canonical HLO
            entry: hlo2graph fmt --in-place
            language: system
            files: \\.hlo$
    """
    if check + in_place + (output is not None) > 1:
        raise click.UsageError("--check, --in-place and --output exclude each other; give one")
    if in_place and "-" in files:
        raise click.UsageError("--in-place needs a file, not stdin; leave it out to print")
    if files.count("-") > 1:
        raise click.UsageError("only one FILE can be stdin")
    if check or in_place:
        code = max(_settle(file, in_place) for file in files)
        click.get_current_context().exit(code)
    emit(joined(canonical(read_file(file)) for file in files), output)


def _settle(file: str, in_place: bool) -> int:
    """Write the file anew or say that it is not canonical; return the exit code."""
    named = "<stdin>" if file == "-" else file
    try:
        given = read_file(file)
        if given.is_imported or given.saved:
            raise InputError(f"{named} is no HLO text; print it with -o FILE.hlo")
        text = canonical(given)
        if given.text == text:
            return 0
        if in_place:
            write_whole(file, text)
            return 0
    except (HloError, BackendError, OSError) as error:
        return voice().error(error)
    pairs = enumerate(zip(given.text, text, strict=False))
    differ = next((at for at, (a, b) in pairs if a != b), min(len(given.text), len(text)))
    span = Span(Source(given.filename, given.text), differ, differ)
    voice().fault(f"{named} is not canonical; hlo2graph fmt --in-place makes it so", span)
    return 1
