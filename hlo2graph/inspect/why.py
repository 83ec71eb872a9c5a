"""Why kernels are what they are, as text and as JSON: what `plan --why` adds.

JSON, under the key `fusion` of a plan, a list with an entry for each computation that becomes
thunks, in the order of the module:

    computation  string
    kernels      [{"name", "form", "launch", "members": [{"name", "why"}]}]; launch: the name of the
                 kernel that runs it beside others, null where it is launched alone
    apart        [{"producer", "reader", "why"}]: kernels of which one reads the other

Names are those of instructions after fusion, before independent kernels are joined.
"""

from __future__ import annotations

from collections.abc import Iterator

from hlo2graph.passes.fusion.why import Apart, Decisions, Together, Why
from hlo2graph.program.text.json import Json


def why_text(why: Why) -> str:
    """Return the decisions, computation by computation; of one without kernels there are none."""
    if why.kept:
        return f"Nothing is fused: {why.kept}.\n"
    told = [made for made in why.decisions if made.together or made.apart]
    if not told:
        return "Nothing is fused: there is no kernel to make.\n"
    return "\n".join("\n".join(_lines(why, made)) + "\n" for made in told)


def why_json(why: Why) -> list[Json]:
    """Return what `json.dumps` takes; see the module's own text."""
    return [
        {
            "computation": made.computation,
            "kernels": [_kernel_json(why, made, kernel) for kernel in made.together],
            "apart": [
                {"producer": pair.producer, "reader": pair.reader, "why": pair.why}
                for pair in made.apart
            ],
        }
        for made in why.decisions
    ]


def _kernel_json(why: Why, made: Decisions, kernel: Together) -> dict[str, Json]:
    return {
        "name": kernel.kernel,
        "form": kernel.form,
        "launch": why.launches.get((made.computation, kernel.kernel)),
        "members": [{"name": m.name, "why": m.why} for m in kernel.members],
    }


def _lines(why: Why, made: Decisions) -> Iterator[str]:
    yield f"computation {made.computation}"
    for kernel in made.together:
        launch = why.launches.get((made.computation, kernel.kernel))
        beside = f", side by side with others in {launch}" if launch else ""
        yield ""
        yield f"kernel {kernel.kernel}: {kernel.form}{beside}"
        width = max(len(m.name) for m in kernel.members)
        for member in kernel.members:
            yield f"  {member.name:{width}}  {member.why}"
    if made.apart:
        yield ""
        yield "apart"
        yield from map(_pair, made.apart)


def _pair(pair: Apart) -> str:
    return f"  {pair.producer} -> {pair.reader}: {pair.why}"
