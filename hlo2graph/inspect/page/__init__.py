"""A picture as a page: one file that needs nothing but a browser, and never the network.

In: a picture, and of a plan also its memory, its timeline and its place among other plans. Out:
HTML with its style, its program and its data inside; all text of the module stays text.
"""

from hlo2graph.inspect.page.build import Choice, page

__all__ = ["Choice", "page"]
