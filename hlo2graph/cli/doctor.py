"""`hlo2graph doctor`: what is here of what CUDA takes."""

from __future__ import annotations

import json

import click

from hlo2graph.cli.files import emit
from hlo2graph.cli.options import json_option


@click.command("doctor", short_help="Say what is here of driver, compiler and GPU; what to fix.")
@json_option
def command(json_file: str | None) -> None:
    """Say what is here of driver, bindings, compiler, GPU and extras, and what to fix.

    Runs a small program on the GPU if there is one. Exits with 1 if something
    that is there does not work; what is missing is no error.
    """
    from hlo2graph.inspect.doctor import doctor_json, doctor_text, examine, works

    findings = examine()
    if json_file is not None:
        emit(json.dumps(doctor_json(findings), indent=2), json_file)
    if json_file != "-":
        click.echo(doctor_text(findings))
    if not works(findings):
        click.get_current_context().exit(1)
