"""Kernel forms for operations whose elements are not computed one by one."""

from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.table import SHARED_FORMS, own_kernel

__all__ = ["SHARED_FORMS", "Form", "own_kernel"]
