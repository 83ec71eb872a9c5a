"""Graphs of the fake driver: adding nodes, instantiating, updating, running.

It refuses what CUDA refuses: a dependency given twice, a node of another graph, a conditional
handle of another graph, an empty body on an old driver, an update of a node that the instantiated
graph was not made of or that is of another kind, memory that is not allocated.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

from cuda.bindings import driver as real

OK = real.CUresult.CUDA_SUCCESS
BAD = real.CUresult.CUDA_ERROR_INVALID_VALUE
REFUSED = real.CUresult.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE
KINDS = real.CUgraphConditionalNodeType
UPDATES = real.CUgraphExecUpdateResult


@dataclass
class Node:
    id: int
    graph: int
    after: tuple
    kind: str
    early: tuple = ()  # those of `after` that come by programmatic edges
    run: object = None
    name: str = ""
    handle: int = 0
    bodies: tuple = ()
    conditional: object = None


@dataclass
class Graph:
    id: int
    nodes: dict = field(default_factory=dict)
    is_body: bool = False


@dataclass
class Exec:
    """A copy of a graph and of those in its conditional nodes, as they were instantiated."""

    top: int
    graphs: dict

    def node(self, id):
        return next((g.nodes[id] for g in self.graphs.values() if id in g.nodes), None)


class FakeGraphs:
    """The part of FakeDriver that deals with graphs."""

    def __init__(self) -> None:
        self.graphs: dict[int, Graph] = {}
        self.execs: dict[int, Exec] = {}
        self.handles: dict[int, int] = {}  # handle -> graph
        self.conditions: dict[int, int] = {}
        self.captures: dict[int, int] = {}  # stream -> graph

    def _graph(self, *, is_body=False):
        id = self._next()
        self.graphs[id] = Graph(id, is_body=is_body)
        return real.CUgraph(id)

    def cuGraphCreate(self, flags):
        return OK, self._graph()

    def cuGraphDestroy(self, graph):
        return (OK,)

    def cuGraphExecDestroy(self, exec_):
        self.execs.pop(int(exec_), None)  # an earlier fake's, where it is not here
        return (OK,)

    def _add(self, graph, after, count, **what):
        found = self.graphs[int(graph)]
        ids = tuple(int(a) for a in after)
        if count != len(ids) or len(set(ids)) != count or not set(ids) <= set(found.nodes):
            return BAD, None
        id = self._next()
        found.nodes[id] = Node(id, found.id, ids, **what)
        return OK, real.CUgraphNode(id)

    def cuGraphAddDependencies(self, graph, sources, targets, data, count):
        """Edges to nodes that are there: here programmatic ones, between kernels alone."""
        nodes = self.graphs[int(graph)].nodes
        for source, target, kind in zip(sources, targets, data, strict=True):
            before, after = nodes[int(source)], nodes[int(target)]
            assert kind.type == real.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
            if (before.kind, after.kind) != ("kernel", "kernel") or before.id in after.after:
                return (BAD,)
            after.after, after.early = (*after.after, before.id), (*after.early, before.id)
        return (OK,)

    def cuGraphAddKernelNode(self, graph, after, count, params):
        if "cuGraphAddKernelNode" in self.fail:
            return self.fail["cuGraphAddKernelNode"], None
        what = self._kernel_node(params)
        return self._add(graph, after, count, kind="kernel", **what)

    def cuGraphAddMemcpyNode(self, graph, after, count, params, context):
        what = self._memcpy_node(params)
        return self._add(graph, after, count, kind="memcpy", **what) if what else (BAD, None)

    def cuGraphAddMemsetNode(self, graph, after, count, params, context):
        what = self._memset_node(params)
        return self._add(graph, after, count, kind="memset", **what) if what else (BAD, None)

    def _kernel_node(self, params):
        name, run = self.kernel(int(params.func), kernel_params(params))
        return {"run": run, "name": name}

    def _memcpy_node(self, params):
        target, source = int(params.dstDevice), int(params.srcDevice)
        size = params.WidthInBytes
        if size <= 0 or not self.is_known(target, size) or not self.is_known(source, size):
            return None
        return {"run": lambda: ctypes.memmove(target, source, size)}

    def _memset_node(self, params):
        what = (int(params.dst), params.value, params.elementSize, params.width)
        if what[3] <= 0 or not self.is_known(what[0], what[2] * what[3]):
            return None
        return {"run": lambda: self._fill(*what)}

    def cuGraphConditionalHandleCreate(self, graph, context, default, flags):
        handle = self._next()
        self.handles[handle] = int(graph)
        return OK, real.CUgraphConditionalHandle(handle)

    def CUgraphNodeParams(self):
        return SimpleNamespace(conditional=SimpleNamespace())

    def cuGraphAddNode(self, graph, after, data, count, params):
        assert params.type == real.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
        wish = params.conditional
        old = self.version < 12080
        if self.handles.pop(int(wish.handle), None) != int(graph):
            return BAD, None
        if old and (wish.type == KINDS.CU_GRAPH_COND_TYPE_SWITCH or wish.size != 1):
            return BAD, None
        bodies = tuple(self._graph(is_body=True) for _ in range(wish.size))
        wish.phGraph_out = list(bodies)
        return self._add(
            graph,
            after,
            count,
            kind="conditional",
            handle=int(wish.handle),
            bodies=tuple(int(b) for b in bodies),
            conditional=wish.type,
        )

    def cuStreamBeginCapture(self, stream, mode):
        self.captures[int(stream)] = int(self._graph())
        return (OK,)

    def cuStreamEndCapture(self, stream):
        return OK, real.CUgraph(self.captures.pop(int(stream)))

    def enqueue(self, stream, run, name):
        """Run what a library enqueues, or put it into the graph that is being captured."""
        if stream not in self.captures:
            run()
            return
        graph = self.captures[stream]
        self._add(graph, (), 0, kind="kernel", run=run, name=name)

    def cuGraphAddChildGraphNode(self, graph, after, count, child):
        return self._add(graph, after, count, kind="child", **self._child_node(child))

    def _child_node(self, child):
        inside = list(self.graphs[int(child)].nodes.values())

        def run():
            for node in inside:
                node.run()

        return {"run": run, "name": " ".join(n.name for n in inside)}

    def cuGraphExecChildGraphNodeSetParams(self, exec_, node, child):
        self.api.append("set child")
        found, what = self.execs[int(exec_)].node(int(node)), self._child_node(child)
        if found is None or found.kind != "child" or found.name != what["name"]:
            return (BAD,)
        found.run = what["run"]
        return (OK,)

    def cuGraphDebugDotPrint(self, graph, path, flags):
        with open(path, "w") as file:
            file.write("digraph dot {\n")
            for node in self.graphs[int(graph)].nodes.values():
                file.write(f'"{node.id}" [label="{node.kind} {node.name}"];\n')
                file.writelines(f'"{before}" -> "{node.id}";\n' for before in node.after)
            file.write("}\n")
        return (OK,)

    # ---- instantiated graphs -------------------------------------------------------------------

    def cuGraphInstantiateWithParams(self, graph, params):
        self.api.append("cuGraphInstantiateWithParams")
        failures = self.fail.get("cuGraphInstantiateWithParams", [])
        if failures:
            return failures.pop(0), None
        if self.allocates(int(graph)) and any(e.top == int(graph) for e in self.execs.values()):
            return BAD, None
        copies = {g.id: replace(g, nodes=copied(g)) for g in self._reached(int(graph))}
        if self.version < 12080 and any(g.is_body and not g.nodes for g in copies.values()):
            return BAD, None
        id = self._next()
        self.execs[id] = Exec(int(graph), copies)
        return OK, real.CUgraphExec(id)

    def _reached(self, id):
        graph = self.graphs[id]
        yield graph
        for node in graph.nodes.values():
            for body in node.bodies:
                yield from self._reached(body)

    def cuGraphUpload(self, exec_, stream):
        return (OK,)

    def set_params(self, kind, exec_, node, params):
        """Give a node of an instantiated graph the parameters that lie at an address."""
        self.api.append(f"set {kind}")
        if failures := self.fail.get(f"set {kind}"):
            return failures.pop(0)
        found = self.execs[exec_].node(node)
        if found is None or found.kind != kind:
            return BAD
        structs = {
            "kernel": (real.CUDA_KERNEL_NODE_PARAMS, self._kernel_node),
            "memcpy": (real.CUDA_MEMCPY3D, self._memcpy_node),
            "memset": (real.CUDA_MEMSET_NODE_PARAMS, self._memset_node),
        }
        struct, read = structs[kind]
        what = read(struct(_ptr=params))
        if what is None:
            return BAD
        vars(found).update(what)
        return OK

    def cuGraphExecUpdate(self, exec_, graph):
        self.api.append("cuGraphExecUpdate")
        held = self.execs[int(exec_)]
        if failures := self.fail.get("cuGraphExecUpdate"):
            why = failures.pop(0)
        else:
            why = self._difference(held, held.top, int(graph))
        result, node = why or (UPDATES.CU_GRAPH_EXEC_UPDATE_SUCCESS, None)
        if why is None:
            self._take_over(held, held.top, int(graph))
        node = real.CUgraphNode(node) if node else None
        info = SimpleNamespace(result=result, errorNode=node, errorFromNode=None)
        return OK if why is None else REFUSED, info

    def _difference(self, held, old, new):
        """Return why the graph `old` of an exec cannot be updated to `new`, and the node."""
        if self.allocates(new):
            return UPDATES.CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED, None
        ours, theirs = held.graphs[old].nodes, self.graphs[new].nodes
        if len(ours) != len(theirs):
            return UPDATES.CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, None
        place = {id: k for k, id in enumerate(ours)}
        place |= {id: k for k, id in enumerate(theirs)}
        for a, b in zip(ours.values(), theirs.values(), strict=True):
            if (a.kind, len(a.bodies), a.conditional) != (b.kind, len(b.bodies), b.conditional):
                return UPDATES.CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, b.id
            if [place[n] for n in a.after] != [place[n] for n in b.after]:
                return UPDATES.CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, b.id
            for mine, its in zip(a.bodies, b.bodies, strict=True):
                if why := self._difference(held, mine, its):
                    return why
        return None

    def _take_over(self, held, old, new):
        ours, theirs = held.graphs[old].nodes, self.graphs[new].nodes
        for a, b in zip(ours.values(), theirs.values(), strict=True):
            a.run, a.name, a.handle = b.run, b.name, b.handle
            for mine, its in zip(a.bodies, b.bodies, strict=True):
                self._take_over(held, mine, its)

    def run_exec(self, id):
        """Execute an instantiated graph."""
        held = self.execs[id]
        self._run_graph(held, held.top)

    def _run_graph(self, held, id):
        """Execute a graph in a random order that its dependencies allow."""
        left = dict(held.graphs[id].nodes)
        while left:
            ready = [n for n in left.values() if not any(a in left for a in n.after)]
            node = self.rng.choice(ready)
            del left[node.id]
            if node.kind == "conditional":
                self._run_conditional(held, node)
            else:
                node.run()

    def _run_conditional(self, held, node):
        if node.conditional == KINDS.CU_GRAPH_COND_TYPE_WHILE:
            while self.conditions[node.handle]:
                self._run_graph(held, node.bodies[0])
            return
        chosen = self.conditions.pop(node.handle)  # must have been set in this run
        if node.conditional == KINDS.CU_GRAPH_COND_TYPE_IF:
            chosen = 0 if chosen else 1
        if chosen < len(node.bodies):
            self._run_graph(held, node.bodies[chosen])


def copied(graph):
    return {id: replace(node) for id, node in graph.nodes.items()}


def kernel_params(params):
    """Return the address of the array of pointers, whoever wrote it into the struct."""
    return (
        int(params.kernelParams or 0)
        or ctypes.c_uint64.from_address(params.getPtr() + KERNEL_PARAMS_AT).value
    )


KERNEL_PARAMS_AT = 8 + 7 * 4 + 4  # behind a function and seven numbers, on a whole word
