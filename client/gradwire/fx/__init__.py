"""Graphs of calls, as data and as Python code (torch.fx): what `experimental.proxy_tensor.make_fx` traces."""

from gradwire._base.wiring import names_of_paths
from gradwire.fx.graph import Graph
from gradwire.fx.graph_module import GraphModule
from gradwire.fx.interpreter import Interpreter
from gradwire.fx.node import Node, map_arg

__all__ = ["Graph", "GraphModule", "Interpreter", "Node", "map_arg"]

__getattr__ = names_of_paths(__name__)
