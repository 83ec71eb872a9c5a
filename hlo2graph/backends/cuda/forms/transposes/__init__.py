"""Loops that read across the grain: what lies side by side in a result does not in an operand."""
