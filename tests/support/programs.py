"""Hand-made programs for the engine: chains of convolutions whose weights stream through a ring of slots."""

from __future__ import annotations

import itertools
import os
import tempfile
from dataclasses import dataclass, field

import numpy as np

from flexnn import _core

ALIGN = 64


def up(n: int, align: int = ALIGN) -> int:
    return -(-n // align) * align


def conv_params(side: int, channels: int, kernel: int = 1, act: str = "relu") -> np.ndarray:
    row = side * channels
    return _core.encode_params(
        "conv",
        {
            "n": 1,
            "h": side,
            "w": side,
            "cin": channels,
            "oh": side,
            "ow": side,
            "cout": channels,
            "kh": kernel,
            "kw": kernel,
            "sh": 1,
            "sw": 1,
            "dh": 1,
            "dw": 1,
            "pt": kernel // 2,
            "pl": kernel // 2,
            "group": 1,
            "cin_panel": channels,
            "cin_block": channels,
            "nr": _core.NR,
            "x_sn": side * row,
            "x_sh": row,
            "x_sw": channels,
            "y_sn": side * row,
            "y_sh": row,
            "y_sw": channels,
            "has_residual": 0,
            "r_sn": 0,
            "r_sh": 0,
            "r_sw": 0,
            "tile_block": 0,
            "wtype": 0,
            "sums": 0,
            "act": _core.ENUMS["act"].index(act),
            "alpha": 0.0,
            "beta": 0.0,
        },
    )


@dataclass
class Chain:
    """``layers`` convolutions in a row; each panel is a slice, pinned or streamed; each step is a window of rows of one
    slice. ``file`` holds the panels one after the other, each on a page of its own."""

    layers: int
    side: int
    channels: int
    slots: int
    kernel: int = 1
    pinned_every: int = 0
    row_windows: int = 1
    threads_max: int = 4
    seed: int = 0
    program: dict = field(init=False)
    weights: list[np.ndarray] = field(init=False)
    params: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        self.params = conv_params(self.side, self.channels, self.kernel)
        panels, panel_bytes = _core.op_panels("conv", self.params), _core.op_panel_bytes("conv", self.params)
        stride = up(panel_bytes, 4096)
        scale = 1.5 / np.sqrt(self.channels * self.kernel**2)
        self.weights = [
            (rng.standard_normal(panels * panel_bytes // 4) * scale).astype(np.float32) for _ in range(self.layers)
        ]
        self.file = tempfile.TemporaryFile()
        for weight in self.weights:
            for panel in weight.reshape(panels, -1):
                self.file.write(panel.tobytes().ljust(stride, b"\xee"))
        self.file.flush()

        map_bytes = 4 * self.side**2 * self.channels
        workspace_bytes = up(max(_core.op_workspace("conv", "direct", self.params, isa) for isa in _core.isa_levels()))
        zeros_count = _core.op_zeros("conv", self.params)
        at = 0

        def take(size: int, align: int = ALIGN) -> int:
            nonlocal at
            start = up(at, align)
            at = start + size
            return start

        maps = [take(map_bytes), take(map_bytes)]
        zeros, workspace = take(4 * zeros_count), take(workspace_bytes * self.threads_max)
        slots = [take(stride, 4096) for _ in range(self.slots)]

        nodes = np.zeros(self.layers, _core.NODE_DTYPE)
        nodes["op"] = _core.OPS.index("conv")
        nodes["in"]["base"] = -1
        nodes["workspace_offset"], nodes["workspace_bytes"], nodes["params"] = workspace, workspace_bytes, self.params
        for i in range(self.layers):
            nodes[i]["in"][0] = (1, 0, 0) if i == 0 else (0, 0, maps[i % 2])
            nodes[i]["out"] = (2, 0, 0) if i == self.layers - 1 else (0, 0, maps[(i + 1) % 2])

        steps, pinned, loads, crcs, last_use = [], [], [], [], {}
        edges = np.linspace(0, self.side, min(self.row_windows, self.side) + 1).astype(int)
        for index in range(self.layers * panels):
            layer, panel = divmod(index, panels)
            data = self.weights[layer].reshape(panels, -1)[panel]
            chunk = 1 + int(rng.integers(panel_bytes)) if index % 3 else panel_bytes
            load = np.zeros((), _core.LOAD_DTYPE)
            load["file_offset"], load["bytes"], load["crc_first"] = index * stride, stride, len(crcs)
            load["chunk_bytes"], load["check_bytes"] = chunk, panel_bytes
            crcs += [_core.crc32c(data.tobytes()[i : i + chunk]) for i in range(0, panel_bytes, chunk)]
            if self.pinned_every and index % self.pinned_every == 0:
                load["address"] = take(stride, 4096)
                pinned.append(load)
            else:
                slot = len(loads) % self.slots
                load["address"] = slots[slot]
                load["wait_steps"] = last_use.get(slot, -1) + 1
                last_use[slot] = (index + 1) * (len(edges) - 1) - 1
                loads.append(load)
            for y0, y1 in itertools.pairwise(edges):
                c0 = panel * _core.NR
                window = (y0, y1, c0, min(c0 + _core.NR, self.channels))
                steps.append((layer, len(loads), window, int(load["address"])))
        for i, load in enumerate(loads[: self.slots]):  # the slot's last use in the run before
            load["wait_steps"] = last_use[i] + 1 - len(steps)
        self.program = {
            "fd": self.file.fileno(),
            "nodes": nodes,
            "steps": np.array(steps, _core.STEP_DTYPE),
            "pinned": np.array(pinned, _core.LOAD_DTYPE),
            "loads": np.array(loads, _core.LOAD_DTYPE),
            "crcs": np.array(crcs, np.uint32),
            "arena_bytes": up(at, 4096),
            "zeros_offset": zeros,
            "zeros_count": zeros_count,
            "io_bytes": [map_bytes, map_bytes],
            "input_count": 1,
        }

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.side, self.side, self.channels

    @property
    def streamed_bytes(self) -> int:
        return int(self.program["loads"]["bytes"].sum())

    def open(self, **options) -> _core.EngineSession:
        return _core.EngineSession(**{**self.program, **options})

    def reference(self, x: np.ndarray, isa: str | None = None) -> np.ndarray:
        """The same by whole operators, one by one."""
        for weight in self.weights:
            y = np.empty_like(x)
            _core.run_op("conv", "direct", self.params, [x], y, weight, isa=isa)
            x = y
        return x

    def restore(self) -> None:
        """Writes a damaged file anew."""
        stride = int(self.program["loads"]["bytes"][0])
        index = 0
        for weight in self.weights:
            for panel in weight.reshape(_core.op_panels("conv", self.params), -1):
                os.pwrite(self.file.fileno(), panel.tobytes().ljust(stride, b"\xee"), index * stride)
                index += 1


def run(session: _core.EngineSession, x: np.ndarray) -> tuple[np.ndarray, dict[str, int]]:
    y = np.full_like(x, np.nan)
    stats = session.run([x, y])
    return y, stats
