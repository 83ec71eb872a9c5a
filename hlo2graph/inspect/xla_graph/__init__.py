"""The graphs that XLA makes of its thunks, and ours beside them."""
