"""`hlo2graph import`: HLO text of programs that come as something else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hlo2graph.cli.files import Input, emit, read_bytes, read_file
from hlo2graph.cli.options import output_option
from hlo2graph.cli.paths import Named
from hlo2graph.cli.programs import canonical
from hlo2graph.cli.voice import voice

if TYPE_CHECKING:
    from hlo2graph.hlo import AnyShape
    from hlo2graph.ops.spec import Array


@click.command("import", short_help="Print a program of another kind as HLO text.")
@click.argument("file", metavar="[FILE]", required=False, type=Named())
@click.option("--jax", "function", metavar="MODULE:FUNCTION", help="A function of JAX.")
@click.option(
    "--saved-model",
    metavar="DIR",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="A TensorFlow SavedModel; its weights go to an .npz file beside the output.",
)
@click.option(
    "--signature",
    metavar="NAME",
    help="Of the SavedModel.  [default: its only one, or serving_default]",
)
@click.option(
    "--shapes",
    metavar="SHAPES",
    help="Of the arguments, as in f32[8,4],s32[]; of a SavedModel's inputs, in order of name.",
)
@output_option
def command(
    file: str | None,
    function: str | None,
    saved_model: Path | None,
    signature: str | None,
    shapes: str | None,
    output: str | None,
) -> None:
    """Print a program as HLO text: FILE, a function of JAX, or a SavedModel.

    FILE is StableHLO or MHLO as text or bytecode, an HLO proto, a snapshot, or
    what jax.export serialized. The other commands take these too, except where
    --shapes must settle sizes. A SavedModel's weights, and a snapshot's
    arguments, are written to an .npz file of the output's name.

    \b
    Examples:
      hlo2graph import model.mlir -o model.hlo
      hlo2graph import --jax model:step --shapes f32[8,784],f32[784,10]
      hlo2graph import model.jax --shapes f32[32,784] -o model.hlo
      hlo2graph import --saved-model DIR --shapes f32[1,28,28,1] -o model.hlo
      hlo2graph run model.hlo --inputs model.npz
    """
    if sum(source is not None for source in (file, function, saved_model)) != 1:
        raise click.UsageError("give one of FILE, --jax and --saved-model")
    if signature is not None and saved_model is None:
        raise click.UsageError("--signature is for --saved-model")
    from hlo2graph.importers.shapes import read_shapes

    read = None if shapes is None else read_shapes(shapes)
    arrays: Mapping[str, Array] = {}
    if function is not None:
        from hlo2graph.importers.jax_function import from_function

        found = Input(function, from_function(function, read or ()), is_imported=True)
    elif saved_model is not None:
        found, arrays = _saved_model(saved_model, signature, read, output)
    else:
        assert file is not None
        found = _file(file, read)
        arrays = {f"arg{k}": array for k, array in enumerate(found.arguments)}
    text = canonical(found)
    if arrays:
        _save(output, arrays)
    emit(text, output)


def _file(file: str, shapes: tuple[AnyShape, ...] | None) -> Input:
    if shapes is None:
        return read_file(file)
    from hlo2graph.importers.jax_function import from_exported

    data, name = read_bytes(file)
    return Input(name, from_exported(data, shapes, name), is_imported=True)


def _saved_model(
    folder: Path, signature: str | None, shapes: tuple[AnyShape, ...] | None, output: str | None
) -> tuple[Input, Mapping[str, Array]]:
    if output in (None, "-"):
        raise click.UsageError("--saved-model needs -o FILE.hlo; the weights go to FILE.npz")
    from hlo2graph.importers.saved_model import from_saved_model

    found = from_saved_model(folder, signature, shapes)
    return Input(str(folder), found.text, is_imported=True), found.weights


def _save(output: str | None, arrays: Mapping[str, Array]) -> None:
    """Write arrays beside the output; where that is stdout, there is no place for them."""
    count = f"{len(arrays)} array{'s' * (len(arrays) != 1)}"
    if output is None or output == "-":
        voice().note(f"{count} left out; -o FILE.hlo writes FILE.npz beside it")
        return
    from hlo2graph.inspect.arrays import save_arrays

    path = Path(output).with_suffix(".npz")
    if path == Path(output):
        raise click.UsageError(f"the arrays go to {path}; give the text another name")
    save_arrays(path, arrays)
    voice().note(f"{count} in {path}")
