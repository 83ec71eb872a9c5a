"""The rules of simplification, a family of opcodes a file."""
