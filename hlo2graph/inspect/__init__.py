"""Looking at plans and runs: dot, reports, comparisons."""
