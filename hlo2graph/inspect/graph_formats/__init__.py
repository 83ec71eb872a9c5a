"""Pictures for other readers than Graphviz: JSON and Mermaid."""

from hlo2graph.inspect.graph_formats.json import json_text
from hlo2graph.inspect.graph_formats.mermaid import mermaid_text

__all__ = ["json_text", "mermaid_text"]
