"""The words that an attribute may have as its value."""

from __future__ import annotations

import difflib

from hlo2graph.frontend.cursor import Cursor

_DOT = (
    "any_f8_any_f8_f32 any_f8_any_f8_f32_fast_accum "
    "bf16_bf16_bf16 bf16_bf16_f32 bf16_bf16_f32_x3 bf16_bf16_f32_x6 bf16_bf16_f32_x9 f16_f16_f16 "
    "f16_f16_f32 f32_f32_f32 f64_f64_f64 tf32_tf32_f32 tf32_tf32_f32_x3"
)
_RNG = ("rng_default", "rng_three_fry", "rng_philox")
_VERSIONS = "ORIGINAL STATUS_RETURNING STATUS_RETURNING_UNIFIED TYPED_FFI"

WORDS: dict[str, tuple[str, ...]] = {
    "algorithm": (*_RNG, *(f"dot_{kind}" for kind in _DOT.split()), "unset"),
    "api_version": tuple(f"API_VERSION_{version}" for version in _VERSIONS.split()),
    "convolution_kind": ("unset", "fprop", "dgrad", "wgrad"),
    "direction": ("EQ", "NE", "GE", "GT", "LE", "LT"),
    "distribution": ("rng_invalid", "rng_uniform", "rng_normal"),
    "fft_type": ("FFT", "IFFT", "RFFT", "IRFFT"),
    "kind": ("kLoop", "kInput", "kOutput", "kCustom"),
    "mode": ("cross_replica", "cross_partition", "cross_replica_and_partition", "flattened_id"),
    "operand_precision": ("default", "high", "highest"),
    "order": ("TOTAL", "PARTIAL"),
    "padding_type": ("PADDING_INVALID", "PADDING_VALID", "PADDING_SAME"),
    "result_accuracy": ("default", "highest"),
    "schedule": ("SCHEDULE_NONE", "SCHEDULE_LATEST", "SCHEDULE_EARLIEST"),
    "transpose_a": ("TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"),
    "type": ("FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"),
}
_ANY_CASE = frozenset(
    {
        "algorithm",
        "api_version",
        "distribution",
        "operand_precision",
        "result_accuracy",
        "schedule",
        "transpose_a",
    }
)


def choose(name: str, cursor: Cursor) -> str:
    """Read a word of attribute `name`, and return it in its usual case; raises Fault."""
    words = WORDS[name]
    written = word = cursor.text
    if name in _ANY_CASE:
        word = written.upper() if words[0].isupper() else written.lower()
    if cursor.kind != "word" or word not in words:
        near = difflib.get_close_matches(written, words, 3) or words[:6]
        cursor.fail(" or ".join(near))
    cursor.advance()
    return word
