"""NumPy over the plan's own byte arena: the definition of correct."""
