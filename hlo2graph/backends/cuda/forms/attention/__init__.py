"""Attention: scores, what is made of them row by row, and the values so weighed, in one kernel."""
