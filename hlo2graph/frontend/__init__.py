"""Text to Module or Plan: parsing, name checks, verification."""
