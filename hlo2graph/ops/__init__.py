"""The one op table: an OpSpec per opcode, a file per family."""
