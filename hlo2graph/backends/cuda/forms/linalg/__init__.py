"""Linear algebra: matrices that a block factors or solves with."""
