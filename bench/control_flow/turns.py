"""Cost of a Loop's turn beyond its body, with bodies of 1, 10 and 200 nodes; beside onnxruntime.

python -m bench.control_flow turns                with 1 and 2 threads
python -m bench.control_flow turns --turns 200    fewer turns

``beyond``: the loop's time less that of as many runs of its body compiled as a closed model (medians), for each turn;
``at best``: the same of the shortest runs, where a busy machine hides the medians; ``beyond the engine's``: less what
the engine takes for the body, without the call. The last row: 501 turns of a recurrent decoder, 226 nodes in a turn.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import flexnn
from bench.cli import cli, table, tables, write_json
from bench.field.double import relative
from bench.field.peer import peer_session
from bench.models.loops import KINDS, OUTER, WIDTH, body_alone, decoder, looped
from bench.rounds import in_turns, ratio
from bench.summary import median

TURNS, DECODER_TURNS = 1000, 501
DECODER_NODES = 226
"""Nodes of the recurrent decoder's body, without those that name its outputs."""
BODIES = (1, 10, 200)
SECONDS = 1.0
TOLERANCE = 1e-3
CORE_RUNS = 200


def opened(path: Path, content: bytes, threads: int) -> flexnn.Session:
    """Return a session of a model."""
    path.write_bytes(content)
    return flexnn.Session(flexnn.compile(path), threads=threads)


def core_us(session: flexnn.Session, feed: dict[str, Any]) -> float:
    """Return the median microseconds that the engine takes for a run."""
    taken = []
    for _ in range(CORE_RUNS):
        session.run(None, feed)
        taken.append(1e-3 * session.last_run["run_ns"])
    return median(taken)


def measure(folder: Path, kind: str, nodes: int, *, threads: int, turns: int, seconds: float) -> dict[str, Any]:
    """Return a row: a kind of loop with bodies of a number of nodes. AssertionError: it is wrong."""
    x = np.random.default_rng(0).standard_normal((1, WIDTH), np.float32)
    feed = {"turns": np.array(turns // OUTER * OUTER), "x": x}
    content = looped(kind, nodes)
    peer = peer_session(content, threads)
    with (
        opened(folder / "loop.onnx", content, threads) as loop,
        opened(folder / "body.onnx", body_alone(nodes), threads) as body,
    ):
        error = relative(loop.run(None, feed), peer.run(None, feed))
        assert error <= TOLERANCE, f"{kind}, {nodes} nodes: relative L2 error {error:.1e}"
        runs = {
            "own": partial(loop.run, None, feed),
            "body": partial(body.run, None, {"x": x}),
            "onnxruntime": partial(peer.run, None, feed),
        }
        taken = in_turns(runs, seconds)
        core = core_us(body, {"x": x})
    turn = 1e3 * taken["own"].p50 / turns
    return {
        "kind": kind,
        "nodes": nodes,
        "threads": threads,
        "turns": turns,
        **{name: timed.row() for name, timed in taken.items()},
        "turn_us": turn,
        "body_us": 1e3 * taken["body"].p50,
        "body_core_us": core,
        "beyond_us": turn - 1e3 * taken["body"].p50,
        "beyond_best_us": 1e3 * (min(taken["own"].ms) / turns - min(taken["body"].ms)),
        "beyond_core_us": turn - core,
        "ratio": ratio(taken["own"], taken["onnxruntime"]),
    }


def measure_decoder(folder: Path, *, threads: int, turns: int, seconds: float) -> dict[str, Any]:
    """Return the row of the recurrent decoder. AssertionError: it is wrong."""
    frames = np.random.default_rng(0).standard_normal((DECODER_TURNS, WIDTH), np.float32)
    feed = {"turns": np.array(min(turns, DECODER_TURNS)), "frames": frames}
    content = decoder()
    peer = peer_session(content, threads)
    with opened(folder / "decoder.onnx", content, threads) as loop:
        error = relative(loop.run(None, feed), peer.run(None, feed))
        assert error <= TOLERANCE, f"the decoder: relative L2 error {error:.1e}"
        runs = {"own": partial(loop.run, None, feed), "onnxruntime": partial(peer.run, None, feed)}
        taken = in_turns(runs, seconds)
        core = 1e-3 * loop.last_run["run_ns"] / feed["turns"]
    return {
        "kind": "recurrent decoder",
        "nodes": DECODER_NODES,
        "threads": threads,
        "turns": int(feed["turns"]),
        **{name: timed.row() for name, timed in taken.items()},
        "turn_us": 1e3 * taken["own"].p50 / feed["turns"],
        "turn_core_us": core,
        "ratio": ratio(taken["own"], taken["onnxruntime"]),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.control_flow turns", __doc__, threads=(1, 2))
    parser.add_argument("--turns", type=int, default=TURNS, help=f"of a loop ({TURNS})")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"for each row ({SECONDS})")
    options = parser.parse_args(arguments)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for threads in options.threads or (1, 2):
            setting = {"threads": threads, "turns": options.turns, "seconds": options.seconds}
            for kind in KINDS:
                rows += [measure(Path(name), kind, nodes, **setting) for nodes in BODIES]
            rows.append(measure_decoder(Path(name), **setting))
    write_json(options.json, rows)
    columns = ("a turn, µs", "its body", "beyond", "at best", "beyond the engine's", "over onnxruntime's")
    keys = ("body_us", "beyond_us", "beyond_best_us", "beyond_core_us")
    grid = table(f"{options.turns} turns", "loop", "nodes", "threads", *columns)
    for row in rows:
        sizes = [f"{row[key]:.2f}" if key in row else "" for key in keys]
        cells = (str(row["nodes"]), str(row["threads"]), f"{row['turn_us']:.2f}", *sizes, f"{row['ratio']:.2f}")
        grid.add_row(row["kind"], *cells)
    tables(options.json).print(grid)
    return 0
