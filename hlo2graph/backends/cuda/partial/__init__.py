"""Partial graphs: some thunks of a plan in graphs, the rest enqueued one by one between these.

A capture policy (`policy`) says which thunks a graph may hold, and why not the others. A cut
(`cut`) orders a sequence's thunks, as its edges allow, so that those which graphs may hold come in
few long runs: the regions. Each region becomes one graph; what lies between is enqueued by itself,
in program order, on the same stream. A loop or a branch that is enqueued by itself is steered by
the host, and its own sequences are cut in their turn: so the body of a loop that no graph may hold
is itself a graph, or some.

    policy.Policy.of(text)     what may be in a graph
    cut.Cutter.parts(sequence) regions and lone thunks, in the order in which they run
    bind.Cut.bind(binder)      the same as steps: GraphStep is a region
    graphs.PartialGraph        those steps instantiated, with the interface of one graph
"""
