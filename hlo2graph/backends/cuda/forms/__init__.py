"""Kernel forms: how operations are computed whose elements do better than one thread each.

- `products`: dots and convolutions.
- `attention`: two products and the softmax between them, in one kernel.
- `folds`: reduces, scans and what waits for them, along rows or columns.
- `transposes`: loops that read across the grain.
- `sorts`, `scatters`, `linalg`: what their names say. `fft`, `sweeps` (rounds of a stencil).
- `side_by_side`: several of these in one launch.

`form` is what a form is given, `table` which form an operation has; what several of them use stands
beside these: `line_order`, `pattern`, `read_ahead`, `windows`.
"""

from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.table import SHARED_FORMS, own_kernel

__all__ = ["SHARED_FORMS", "Form", "own_kernel"]
