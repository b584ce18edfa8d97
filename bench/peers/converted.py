"""Peers with file formats of their own, ncnn and MNN: the ONNX file is converted once, by their own converters."""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import ARTIFACTS
from bench.models.inputs import Feed, Shapes


def _program(name: str) -> Path:
    """A converter that was installed beside this Python."""
    return Path(sys.executable).parent / name


def has_pnnx() -> bool:
    """Return whether ncnn's converter is installed here."""
    return _program("pnnx").exists()


def _convert(path: Path, ending: str, command: list[str]) -> Path:
    """Return the file <stem><ending> that ``command`` makes from the ONNX file; it is kept until that changes.

    Raises:
        RuntimeError: it makes no such file.
    """
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    target = ARTIFACTS / f"{path.stem}{ending}"
    if target.exists() and target.stat().st_mtime >= path.stat().st_mtime:
        return target
    with tempfile.TemporaryDirectory(dir=ARTIFACTS) as folder:
        # pnnx writes beside its input.
        (Path(folder) / path.name).symlink_to(path.resolve())
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        made = [p for p in Path(folder).iterdir() if p.name.startswith(target.name.removesuffix(".param"))]
        if not made:
            raise RuntimeError(f"{command[0]} does not convert {path}: {done.stdout[-500:]}{done.stderr[-500:]}")
        for file in made:
            file.replace(ARTIFACTS / file.name)
    return target


def ncnn_net(threads: int) -> Any:
    """An empty net of ncnn: its defaults, but fp32 throughout."""
    import ncnn

    net: Any = ncnn.Net()
    net.opt.num_threads = threads
    for half in ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic", "use_bf16_storage"):
        setattr(net.opt, half, False)
    return net


def ncnn_file(path: Path, shapes: Shapes) -> Path:
    """Convert the ONNX file for ncnn; return the .ncnn.param, which the .ncnn.bin lies beside."""
    ((_, shape),) = shapes.items()
    dims = ",".join(map(str, shape))
    return _convert(path, ".ncnn.param", [str(_program("pnnx")), path.name, "fp16=0", f"inputshape=[{dims}]"])


def mnn_file(path: Path) -> Path:
    """Convert the ONNX file for MNN; return the .mnn."""
    # Not by its script: that has pip install what reports its use, into whatever Python pip belongs to.
    command = [sys.executable, "-c", "import MNN, _tools, sys; _tools.mnnconvert(['mnnconvert', *sys.argv[1:]])"]
    command += ["-f", "ONNX", "--modelFile", path.name, "--MNNModel", f"{path.stem}.mnn", "--bizCode", "bench"]
    return _convert(path, ".mnn", command)


class Ncnn:
    """ncnn: one input, batch 1. ``path`` may be converted already (.ncnn.param)."""

    def __init__(self, path: Path, shapes: Shapes, threads: int) -> None:
        import ncnn

        param = path if path.suffix == ".param" else ncnn_file(path, shapes)
        self._mat: Any = ncnn.Mat
        self._net = ncnn_net(threads)
        if self._net.load_param(str(param)) or self._net.load_model(str(param.with_suffix(".bin"))):
            raise RuntimeError(f"ncnn cannot load {param}")

    def run(self, feed: Feed) -> list[NDArray[Any]]:
        (x,) = feed.values()
        extractor = self._net.create_extractor()
        extractor.input("in0", self._mat(np.ascontiguousarray(x[0])))
        return [np.array(extractor.extract(name)[1]) for name in self._net.output_names()]

    def close(self) -> None:
        self._net.clear()


class Mnn:
    """MNN's module interface in fp32. ``path`` may be converted already (.mnn)."""

    def __init__(self, path: Path, shapes: Shapes, threads: int) -> None:
        import MNN

        model = path if path.suffix == ".mnn" else mnn_file(path)
        self._mnn: Any = MNN
        config = {"backend": "CPU", "numThread": threads, "precision": "high"}
        self._runtime = self._mnn.nn.create_runtime_manager((config,))
        self._inputs = {
            name: self._mnn.expr.placeholder(list(shape), self._mnn.expr.NCHW) for name, shape in shapes.items()
        }
        self._net: Any = self._mnn.nn.load_module_from_file(str(model), [], [], runtime_manager=self._runtime)

    def run(self, feed: Feed) -> list[NDArray[Any]]:
        for name, value in self._inputs.items():
            value.write(feed[name])
        results = self._net.forward([self._inputs[name] for name in self._net.get_info()["inputNames"]])
        return [self._mnn.expr.convert(y, self._mnn.expr.NCHW).read() for y in results]

    def close(self) -> None:
        self._net = None


def worst_error(outputs: list[NDArray[Any]], right: list[NDArray[Any]]) -> float:
    """Largest difference relative to the largest element; shapes may differ in ones."""
    pairs = zip(outputs, right, strict=True)
    errors = [float(np.abs(a.reshape(b.shape) - b).max() / np.abs(b).max()) for a, b in pairs]
    return max(errors, default=math.nan)
