"""Thunks, lowering, buffer assignment, edges, and the Plan with its text."""
