"""What is drawn, whatever it is drawn as: nodes, arrows and groups made of a module or a plan.

`of_graph`, which knows what the cuda backend makes of a plan, is loaded where it is asked for.
"""

from hlo2graph.inspect.picture.model import Arrow, Group, Node, Picture
from hlo2graph.inspect.picture.of_module import picture_of_module
from hlo2graph.inspect.picture.of_plan import picture_of_plan
from hlo2graph.inspect.picture.select import selected

__all__ = [
    "Arrow",
    "Group",
    "Node",
    "Picture",
    "picture_of_module",
    "picture_of_plan",
    "selected",
]
