"""hlo2graph: compile HLO text into graphs whose edges are exactly the data-flow hazards."""
