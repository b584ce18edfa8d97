"""Read a page: find its lines and spell them, both models inside one budget each.

    python -m bench.models fetch ppocr_v4_det ppocr_v4_rec          (or any PP-OCR models as ONNX)
    python examples/ocr.py ppocr_v4_det.onnx ppocr_v4_rec.onnx page.png --memory 48MiB

The first model makes a map of how likely a pixel is text; lines are its connected parts, cut out and given to the
second, whose alphabet is among the model's texts about itself (``get_modelmeta``). Shapes differ from page to page and
from line to line: each session binds and plans them inside its budget.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from PIL import Image

import flexnn

SCORE_MIN = 0.3
CELL = 4
"""Pixels of the map that are looked at together."""
HEIGHT = 48
"""Height of a line as the second model takes it."""


def find_lines(session: flexnn.Session, page: Image.Image) -> list[Image.Image]:
    """Return pictures of the lines, from top to bottom."""
    width, height = (max(32, round(size / 32) * 32) for size in page.size)
    x = np.asarray(page.resize((width, height)), np.float32)[..., ::-1] / 255
    x = (x - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)
    (heat,) = session.run(None, {session.get_inputs()[0].name: x.transpose(2, 0, 1)[None].astype(np.float32)})
    cells = heat[0, 0].reshape(height // CELL, CELL, width // CELL, CELL).max((1, 3)) > SCORE_MIN
    boxes = []
    for top, left, bottom, right in parts(cells):
        margin = 0.6 * (bottom - top)  # the map shows the middle of a line
        box = [(left - margin) / len(cells[0]), (top - margin) / len(cells)]
        box += [(right + margin) / len(cells[0]), (bottom + margin) / len(cells)]
        boxes.append([edge * page.size[i % 2] for i, edge in enumerate(box)])
    boxes.sort(key=lambda box: (round(box[1] / 20), box[0]))
    return [page.crop(tuple(round(edge) for edge in box)) for box in boxes]


def parts(cells: Any) -> list[tuple[int, int, int, int]]:
    """Return the boxes (top, left, bottom, right) of connected cells, small ones left out."""
    found, left = [], {(int(y), int(x)) for y, x in np.argwhere(cells)}
    while left:
        reached = [left.pop()]
        for y, x in reached:
            near = {(y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)} & left
            left -= near
            reached += near
        rows, columns = [y for y, _ in reached], [x for _, x in reached]
        if len(reached) >= 6:
            found.append((min(rows), min(columns), max(rows) + 1, max(columns) + 1))
    return found


def spell(session: flexnn.Session, line: Image.Image, alphabet: list[str]) -> str:
    """Return the text of a line: the likeliest character of each column, repeated ones once."""
    width = max(HEIGHT, round(line.width * HEIGHT / line.height))
    x = np.asarray(line.resize((width, HEIGHT)), np.float32)[..., ::-1] / 127.5 - 1
    (scores,) = session.run(None, {session.get_inputs()[0].name: x.transpose(2, 0, 1)[None].astype(np.float32)})
    best = scores[0].argmax(-1)
    kept = best[(best != 0) & (best != np.concatenate([[0], best[:-1]]))]
    return "".join(alphabet[i] for i in kept)


def peak_rss() -> int:
    """Most bytes that this process has had resident (VmHWM)."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM:"))


def main() -> None:
    """Read the command line and the page; print its text and the memory that it took."""
    parser = argparse.ArgumentParser(description="Reads a page inside a memory budget.")
    parser.add_argument("detector")
    parser.add_argument("recogniser")
    parser.add_argument("page")
    parser.add_argument("--memory", help="budget of each session; default: no limit")
    options = parser.parse_args()
    page = Image.open(options.page).convert("RGB")
    before = peak_rss()
    with flexnn.Session(options.detector, options.memory) as session:
        lines = find_lines(session, page)
    with flexnn.Session(options.recogniser, options.memory) as session:
        characters = session.get_modelmeta().custom_metadata_map["character"].splitlines()
        alphabet = ["", *characters, " "]
        for line in lines:
            print(f"line     {spell(session, line, alphabet)}")
    print(f"memory   {(peak_rss() - before) / 2**20:.1f} MiB added to the process; budget {options.memory or 'none'}")


if __name__ == "__main__":
    main()
