"""Which attributes an instruction may have."""

from __future__ import annotations

from hlo2graph.ops import OPS

COMMON_ATTRS = frozenset(
    {
        "backend_config",
        "control-predecessors",
        "frontend_attributes",
        "metadata",
        "origin",
        "parameter_replication",
        "sharding",
        "statistics",
    }
)  # of any instruction
ALLOWED_ATTRS = {opcode: spec.attrs | COMMON_ATTRS for opcode, spec in OPS.items()}
