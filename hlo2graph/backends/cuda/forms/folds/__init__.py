"""Reduces: of rows, of columns, of all that is before an element, and what waits for them."""
