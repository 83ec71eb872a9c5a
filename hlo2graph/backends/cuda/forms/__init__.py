"""Kernel forms for operations whose elements are not computed one by one."""

from hlo2graph.backends.cuda.forms.form import Form, own_root
from hlo2graph.backends.cuda.forms.table import OWN_FORMS

__all__ = ["OWN_FORMS", "Form", "own_root"]
