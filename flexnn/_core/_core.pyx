# cython: language_level=3, boundscheck=True, binding=False, auto_pickle=False, embedsignature=True, embedsignature.format=clinic
"""Binding of the C core. Thin: it checks what Python hands over, and turns a status into an exception."""

include "records.pxi"
include "files.pxi"
include "ops.pxi"
include "calls.pxi"
include "engine.pxi"
include "ending.pxi"
include "waiting.pxi"
include "recording.pxi"
include "place.pxi"
include "plan.pxi"
include "trail.pxi"
include "refit.pxi"
include "bands.pxi"

# Public is what is defined above without an underscore: flexnn._core imports it all, _core.pyi gives the types.
__all__ = sorted([_name for _name, _value in dict(globals()).items()
                  if not _name.startswith("_") and not isinstance(_value, type(os))])
