"""Which instructions become one kernel: one cost rule, and the groups it allows."""
