"""Memory against concurrency and time: plans over a range of arena sizes."""
