"""Plans, and the stages before them, as text and as JSON."""
