# cython: language_level=3, boundscheck=True, embedsignature=False
"""Binding of the C core. Thin: it checks what Python hands over, and turns a status into an exception."""

include "records.pxi"
include "ops.pxi"
include "engine.pxi"
include "place.pxi"
include "plan.pxi"
