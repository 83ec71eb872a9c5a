"""Arrays of a size that only a run knows, turned into whole ones and numbers beside them."""
