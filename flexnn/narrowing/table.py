"""The text of a choice: a row for each layer, and what it comes to. The artifact keeps it; ``flexnn plan`` shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flexnn.errors import printable
from flexnn.graph.ir import Weight
from flexnn.units import format_bytes

from .layers import Layer
from .wanted import Feed, Wanted

_NAME_MAX, _INPUTS_MAX = 48, 8


def table(
    weights: Sequence[Weight],
    layers: Sequence[Layer],
    forms: Mapping[int, str],
    wanted: Wanted,
    error: float | None,
    noise: Sequence[Feed] = (),
) -> str:
    """Return the text. ``weights``: all of the artifact without a choice; ``error``: measured with all layers, where no
    inputs are given on ones like ``noise``.
    """
    rows = [("layer", "form", "bytes", "of f32", "rounding", "output" if not wanted.form else "")]
    before = after = 0
    for at, layer in enumerate(layers):
        form = forms.get(at, layer.own)
        wide, own = layer.nbytes["f32"], layer.nbytes[form]
        before, after = before + layer.nbytes[layer.own], after + own
        off = layer.rounding.get(form, 0.0)
        base = layer.rounding.get("s8") or 0.0
        output = layer.error * (off / base if base else 1.0)
        rows.append(
            (
                layer.name[:_NAME_MAX],
                form,
                format_bytes(own),
                f"{own / wide:.2f}",
                f"{off:.1e}" if off else "",
                f"{output:.1e}" if not wanted.form and off else "",
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(v.rjust(w) for v, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
    total = sum({weight.offset: weight.nbytes for weight in weights}.values())
    on = f"{len(wanted.feeds)} given inputs" if wanted.feeds else f"seeded noise{_sizes(noise)}"
    said = f"error {error:.2e} on {on}" if error is not None else f"error not measured: the model does not run on {on}"
    kept = sum(forms.get(at, layer.own) != layer.own for at, layer in enumerate(layers))
    of = "f32" if all(layer.own == "f32" for layer in layers) else "the model's own weights"
    lines.append(
        f"weights {wanted}: {kept} of {len(layers)} layers narrowed, weights {format_bytes(total)} ->"
        f" {format_bytes(total - before + after)}, {said} (relative L2 of the worst output against {of})"
    )
    return "\n".join(line.rstrip() for line in lines)


def _sizes(feeds: Sequence[Feed]) -> str:
    """Return the shapes of inputs: an error that was measured on other sizes than those of use may be another."""
    each = []
    for name in feeds[0] if feeds else ():
        shapes = dict.fromkeys("x".join(map(str, feed[name].shape)) or "scalar" for feed in feeds)
        each.append(f"{printable(name, _NAME_MAX)} {' and '.join(shapes)}")
    more = f" and {len(each) - _INPUTS_MAX} more" if len(each) > _INPUTS_MAX else ""
    return f" ({', '.join(each[:_INPUTS_MAX])}{more})" if each else ""
