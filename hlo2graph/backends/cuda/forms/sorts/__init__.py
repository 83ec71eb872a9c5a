"""Sorts, the steps that long ones are taken apart into, and the first elements of rows."""
