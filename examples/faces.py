"""Finds faces in a picture inside a memory budget, and draws them.

    flexnn compile centerface.onnx --shape input.1=1,3,512,512
    python examples/faces.py centerface.flexnn people.png --memory 40MiB --output faces.png

The model is CenterFace (Xu et al. 2019, "CenterFace: Joint Face Detection and Alignment Using Face as Point"): four
maps at a quarter of the picture's size: how likely a face's centre is here, its size, the centre's offset, and five
landmarks.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

import flexnn

SIZE = 512
"""Height and width of the model's input, as compiled."""
STRIDE = 4
"""Pixels of the picture for one cell of the maps."""
SCORE_MIN = 0.5
OVERLAP_MAX = 0.3
RUNS = 20


@dataclass(frozen=True, slots=True)
class Face:
    """Pixels of the picture: the box's corners and five landmarks (eyes, nose, corners of the mouth) as (x, y)."""

    score: float
    box: tuple[float, float, float, float]
    landmarks: list[tuple[float, float]]


def load(path: str) -> tuple[Image.Image, NDArray[np.float32]]:
    """The picture, shrunk to fit ``SIZE`` if it must be, and the model's input: RGB, 0 to 255, filled up with black."""
    picture = Image.open(path).convert("RGB")
    picture.thumbnail((SIZE, SIZE))
    batch = np.zeros((1, 3, SIZE, SIZE), np.float32)
    batch[0, :, : picture.height, : picture.width] = np.asarray(picture).transpose(2, 0, 1)
    return picture, batch


def decode(maps: Sequence[NDArray[np.float32]], picture: Image.Image) -> list[Face]:
    """Faces, the likeliest first, of which no two overlap much."""
    heat, size, offset, points = maps
    found = []
    for y, x in np.argwhere(heat[0, 0] >= SCORE_MIN):
        high, wide = np.exp(size[0, :, y, x]) * STRIDE
        middle_y, middle_x = (np.array([y, x]) + offset[0, :, y, x] + 0.5) * STRIDE
        left, top = max(0.0, float(middle_x - wide / 2)), max(0.0, float(middle_y - high / 2))
        box = (left, top, min(left + float(wide), picture.width), min(top + float(high), picture.height))
        pairs = points[0, :, y, x].reshape(5, 2)
        landmarks = [(float(left + px * wide), float(top + py * high)) for py, px in pairs]
        found.append(Face(float(heat[0, 0, y, x]), box, landmarks))
    found.sort(key=lambda face: -face.score)
    kept: list[Face] = []
    for face in found:
        if all(overlap(face.box, other.box) <= OVERLAP_MAX for other in kept):
            kept.append(face)
    return kept


def overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> float:
    """Intersection over union of two boxes."""
    wide = min(a[2], b[2]) - max(a[0], b[0])
    high = min(a[3], b[3]) - max(a[1], b[1])
    common = max(0.0, wide) * max(0.0, high)
    return common / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - common)


def draw(picture: Image.Image, faces: list[Face], path: str) -> None:
    """Boxes and landmarks onto the picture, saved to ``path``."""
    pen = ImageDraw.Draw(picture)
    for face in faces:
        pen.rectangle(face.box, outline=(0, 255, 0), width=3)
        for x, y in face.landmarks:
            pen.ellipse((x - 3, y - 3, x + 3, y + 3), fill=(255, 0, 0))
    picture.save(path)


def peak_rss() -> int:
    """Most bytes that this process has had resident (VmHWM)."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM:"))


def main() -> None:
    """Reads the command line, runs, prints and draws."""
    parser = argparse.ArgumentParser(description="Finds faces in a picture inside a memory budget.")
    parser.add_argument("model", help="centerface.flexnn")
    parser.add_argument("picture")
    parser.add_argument("--memory", help="budget, like 40MiB; default: no limit")
    parser.add_argument("--threads", type=int, help="default: the CPUs there are")
    parser.add_argument("--output", default="faces.png")
    options = parser.parse_args()

    picture, batch = load(options.picture)
    before = peak_rss()
    try:
        session = flexnn.Session(options.model, memory=options.memory, threads=options.threads)
    except flexnn.BudgetError as error:
        raise SystemExit(f"error: {error}") from None
    with session:
        times = []
        for _ in range(RUNS):
            start = time.perf_counter()
            maps = session.run(None, {session.get_inputs()[0].name: batch})
            times.append(1e3 * (time.perf_counter() - start))
        added = peak_rss() - before
        threads = session.threads
    faces = decode(maps, picture)
    draw(picture, faces, options.output)
    for face in faces:
        left, top, right, bottom = (round(c) for c in face.box)
        print(f"face     {face.score:.2f} sure, from ({left}, {top}) to ({right}, {bottom})")
    if not faces:
        print("face     none found")
    print(f"memory   {added / 2**20:.1f} MiB added to the process; budget {options.memory or 'none'}")
    print(f"latency  {statistics.median(times):.1f} ms, median of {RUNS} runs, {threads} threads")
    print(f"picture  {options.output}")


if __name__ == "__main__":
    main()
