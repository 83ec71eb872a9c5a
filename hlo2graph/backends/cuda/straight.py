"""The commonest call: all arguments are arrays of ours, ready, and used where they lie.

What a call with new arrays costs the host is spent here.
"""

from __future__ import annotations

from hlo2graph.backends.cuda.device_array import DeviceArray
from hlo2graph.backends.cuda.memory import Stream
from hlo2graph.backends.cuda.route import Route, Router
from hlo2graph.program.plan import Plan


class Straight:
    """Finds the routes of such calls of one instance."""

    __slots__ = ("_layouts", "_router", "_stream")

    def __init__(self, plan: Plan, router: Router, stream: Stream) -> None:
        self._router, self._stream = router, stream
        self._layouts = [bound.shape for bound in plan.inputs]

    def route(self, args: tuple[object, ...]) -> Route | None:
        """Return where all lies, None for any other call."""
        layouts, stream = self._layouts, self._stream
        if len(args) != len(layouts):
            return None
        inputs = [
            arg.address
            for arg, layout in zip(args, layouts, strict=True)
            if type(arg) is DeviceArray
            and (arg.layout is layout or arg.layout == layout)
            and arg.stream is stream
        ]
        return self._router.straight(inputs) if len(inputs) == len(layouts) else None
