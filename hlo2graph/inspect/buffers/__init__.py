"""Where every value lives, and who fills the arena."""
