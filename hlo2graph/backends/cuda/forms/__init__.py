"""Kernel forms for operations whose elements are not computed one by one."""

from hlo2graph.backends.cuda.forms.form import Form, form_for, own_root
from hlo2graph.backends.cuda.forms.table import OWN_FORMS, SHARED_FORMS

__all__ = ["OWN_FORMS", "SHARED_FORMS", "Form", "form_for", "own_root"]
