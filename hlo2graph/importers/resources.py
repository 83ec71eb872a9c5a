"""Constants that MLIR text keeps behind the module, in a table, put back where they belong.

Exporters write weights so: `dense_resource<name>` in the module, and at its end the table, which
has their bytes in hexadecimal behind a number that says how they are aligned. jaxlib's converter
takes them in place alone.
"""

from __future__ import annotations

import re

TABLE = "{-#"
ALIGNMENT = 8  # hexadecimal digits of the number in front
_ENTRY = re.compile(r'(?:"([^"\n]*)"|([A-Za-z_][\w.$\-]*)):\s*"0x([0-9A-Fa-f]*)"')
_USE = re.compile(
    r'dense_resource<(?:"(?P<quoted>[^"\n]*)"|(?P<name>[^>"\n]*))>(?!\s*:\s*tensor<(?:\d+x)*i1>)'
)


def inlined(text: str) -> str:
    """Return MLIR text with its table's constants in place; predicates, packed there, stay."""
    end = text.rfind(TABLE)
    if end < 0 or "dense_resource<" not in text:
        return text
    known = {
        quoted or name: digits[ALIGNMENT:] for quoted, name, digits in _ENTRY.findall(text, end)
    }

    def put(found: re.Match[str]) -> str:
        digits = known.get(found["quoted"] or found["name"])
        return found[0] if digits is None else f'dense<"0x{digits}">'

    return _USE.sub(put, text[:end])
