"""The words that an attribute may have as its value."""

from __future__ import annotations

import difflib

from hlo2graph.frontend.scan import Fault, shown

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
    "padding_type": ("PADDING_INVALID", "PADDING_VALID", "PADDING_SAME"),
    "schedule": ("SCHEDULE_NONE", "SCHEDULE_LATEST", "SCHEDULE_EARLIEST"),
    "transpose_a": ("TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"),
    "type": ("FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"),
}
_ANY_CASE = frozenset({"algorithm", "api_version", "distribution", "schedule", "transpose_a"})


def choose(name: str, text: str) -> str:
    """Return the word `text` of attribute `name`, in its usual case; raises Fault."""
    words = WORDS[name]
    word = text
    if name in _ANY_CASE:
        word = text.upper() if words[0].isupper() else text.lower()
    if word in words:
        return word
    near = difflib.get_close_matches(text, words, 3) or words[:6]
    raise Fault(f"expected {' or '.join(near)}, found {shown(text)}", 0, max(1, len(text)))
