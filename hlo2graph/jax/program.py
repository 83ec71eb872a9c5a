"""One compiled program of a JAX function: arguments of certain types in, results out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax

from hlo2graph.errors import BackendError, InputError
from hlo2graph.jax.leaves import PLAIN, plain
from hlo2graph.jax.lowering import lower
from hlo2graph.jax.on_host import HostCalls
from hlo2graph.pipeline import compile, machine_for

if TYPE_CHECKING:
    from hlo2graph.backends.cuda.executable import CudaExecutable
    from hlo2graph.backends.host import HostExecutable
    from hlo2graph.jax.on_device import DeviceCalls


class CompiledFunction:
    """A function compiled for arguments of certain shapes and types, as `jax.stages.Compiled` is.

    `text` is its HLO, `executable` what runs it, with what the function closes over in front.
    """

    def __init__(self, traced: Any, platform: str, options: dict[str, Any]) -> None:
        """Compile what `jax.jit(f).trace(...)` returned for cpu or cuda.

        Raises:
            HloError: it cannot run here.
            BackendError: there is no room on the device.
        """
        lowered = lower(traced, platform)
        backend = "host" if platform == "cpu" else "cuda"
        self.text = lowered.text
        self.device = device_of(platform)
        self._lowered = lowered
        self._avals = tuple(traced.jaxpr.in_avals)
        self._tree = traced.in_tree
        self.executable: HostExecutable | CudaExecutable = compile(
            lowered.text, backend, filename=lowered.name, **options
        )
        self._run: HostCalls | DeviceCalls
        if platform == "cpu":
            self._run = HostCalls(self.executable, lowered)  # type: ignore[arg-type]
        else:
            from hlo2graph.jax.on_device import DeviceCalls

            self._run = DeviceCalls(self.executable, lowered, self.device)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"<CompiledFunction on {self.executable!r}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run with arguments of the types it is for, static ones left out.

        Raises:
            InputError: they are of others.
        """
        leaves, tree = jax.tree.flatten((args, kwargs))
        if tree != self._tree:
            raise InputError(f"compiled for arguments {self._tree}, got {tree}")
        for position, (want, leaf) in enumerate(zip(self._avals, leaves, strict=True)):
            got = jax.typeof(leaf)
            if (want.shape, want.dtype) != (got.shape, got.dtype):
                raise InputError(
                    f"compiled for {want.str_short()} as leaf {position}, got {got.str_short()}"
                )
        return self.run(leaves, is_here=False)

    def run(self, leaves: Sequence[Any], *, is_here: bool) -> Any:
        """Run with leaves of its types; `is_here`: arrays of JAX's among them are on its device."""
        if not is_here or not PLAIN.issuperset(map(type, leaves)):
            leaves = [
                plain(leaf, aval, self.device)
                for leaf, aval in zip(leaves, self._avals, strict=True)
            ]
        return jax.tree.unflatten(self._lowered.tree, self._run(leaves))


def device_of(platform: str) -> Any:
    """Return JAX's device for cpu or cuda."""
    return jax.devices(platform)[0]


def platform_for(backend: str) -> str:
    """Return what JAX calls the backend: cpu or cuda; for auto, cuda where JAX and we have it.

    Raises:
        BackendError: cuda was asked for, and something that it takes is missing.
    """
    if machine_for(backend) == "host":
        return "cpu"
    try:
        jax.devices("cuda")
    except RuntimeError:
        if backend == "cuda":
            raise BackendError(
                "this JAX has no CUDA device; pip install 'jax[cuda13]' brings what it takes"
            ) from None
        return "cpu"
    return "cuda"
