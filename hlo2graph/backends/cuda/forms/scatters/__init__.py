"""Scatters: which thread takes in which updates, in an order that gives the same bits each time."""
