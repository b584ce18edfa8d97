"""Seeded damage to model files: bit flips, truncations, length edits; of artifacts also under valid checksums."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np

TEMPLATES, TEMPLATES_HEAD = "templates", 8
"""Name of the weight that holds templates, and the bytes before their text, which state its size."""
EXTREMES = (
    0,
    1,
    -1,
    2,
    7,
    255,
    256,
    4096,
    65535,
    2**31 - 1,
    2**31,
    -(2**31),
    2**32 - 1,
    2**40,
    2**53,
    2**62,
    2**63 - 1,
)


def damage(content: bytes, structure: list[range], rng: random.Random, share: float = 0.5) -> bytes:
    """One mutation of ``content``. This ``share`` of them hits ``structure``, the others any byte."""
    span = rng.choice(structure) if rng.random() < share else range(len(content))
    at = rng.randrange(span.start, span.stop)
    out = bytearray(content)
    match rng.choice(("flip", "flip", "flip", "truncate", "insert", "delete", "number", "copy")):
        case "flip":
            for _ in range(rng.choice((1, 1, 1, 4))):
                place = min(at + rng.randrange(64), len(out) - 1)
                out[place] ^= 1 << rng.randrange(8)
        case "truncate":
            del out[at:]
        case "insert":
            out[at:at] = rng.randbytes(rng.randint(1, 16))
        case "delete":
            del out[at : at + rng.randint(1, 16)]
        case "number":
            raw = (rng.choice(EXTREMES) % 2**64).to_bytes(8, "little")[: rng.choice((1, 4, 8))]
            out[at : at + len(raw)] = raw
        case "copy":
            size, source = rng.randint(1, 64), rng.randrange(len(out))
            out[at : at + size] = out[source : source + size]
    return bytes(out)


def break_rule(content: bytes, rng: random.Random) -> bytes:
    """An ONNX model in which one node breaks a rule of the standard."""
    import onnx
    from onnx import helper

    model = onnx.load_from_string(content)
    node = rng.choice([node for node in model.graph.node if node.input and node.domain == ""])
    match rng.choice(("attribute", "twice", "input", "output", "lost", "declared")):
        case "attribute":
            node.attribute.append(helper.make_attribute("nonsense", rng.choice((1, 0.5, "text", [1, 2]))))
        case "twice":
            node.attribute.extend([node.attribute[0]] if node.attribute else [helper.make_attribute("a", 1)] * 2)
        case "input":
            del node.input[:]
        case "output":
            node.output.extend(f"{node.output[0]}.more{i}" for i in range(1000))
        case "lost":
            node.input[rng.randrange(len(node.input))] = "a value that no node computes"
        case "declared":
            model.graph.value_info.append(helper.make_tensor_value_info(node.output[0], onnx.TensorProto.STRING, None))
    return bytes(model.SerializeToString())


def reseal(content: bytes, rng: random.Random) -> bytes:
    """An artifact changed in its header, graph, checksum table, templates or texts, with checksums that fit the change:
    what only the reader's deep checks, or the engine's at each read, can refuse."""
    from flexnn._core import crc32c
    from flexnn.artifact.format import ABOUT, HEADER_BYTES, LABELLED, LAYOUT, Header

    header = Header.unpack(content[:HEADER_BYTES], len(content))
    out = bytearray(content)
    graph = slice(header.graph_offset, header.graph_offset + header.graph_bytes)
    table = slice(header.crc_offset, header.crc_offset + 4 * header.crc_count)
    match rng.choice(("graph", "graph", "graph", "graph", "text", "table", "header", "stored", "stored")):
        case "graph":
            rows = json.loads(content[graph])
            for _ in range(rng.choice((1, 1, 2, 3))):
                _change(rows, rng)
            text = json.dumps(rows, separators=(",", ":")).encode()
            header.graph_bytes = len(text)
            graph = slice(header.graph_offset, header.graph_offset + len(text))
            crcs, header.crc_offset = content[table], -(-graph.stop // 4) * 4
            table = slice(header.crc_offset, header.crc_offset + len(crcs))
            if table.stop > header.data_offset:
                return reseal(content, rng)  # no room before the weights, which keep their places
            out[graph], out[table] = text, crcs
        case "text":
            at = rng.randrange(graph.start, graph.stop)
            out[at] = rng.randrange(256)
        case "stored":
            rows = json.loads(content[graph]).get("weights", [])
            stored = [row for row in rows if row[0] in (ABOUT, LABELLED, TEMPLATES) and row[1] == "raw"]
            if not stored:
                return reseal(content, rng)
            _, _, nbytes, chunk_bytes, offset, crc_first = row = rng.choice(stored)
            out[offset : offset + nbytes] = _changed_text(bytes(out[offset : offset + nbytes]), row[0], rng)
            for chunk, at in enumerate(range(offset, offset + nbytes, chunk_bytes)):
                crc = crc32c(bytes(out[at : min(at + chunk_bytes, offset + nbytes)]))
                place = header.crc_offset + 4 * (crc_first + chunk)
                out[place : place + 4] = crc.to_bytes(4, "little")
        case "table":
            at = rng.randrange(table.start, table.stop) if header.crc_count else table.start
            out[at] ^= 1 << rng.randrange(8)
        case "header":
            name = rng.choice([f for f in Header.__dataclass_fields__ if f != "source_sha256"])
            value = getattr(header, name)
            bits = 32 if LAYOUT[name] == "I" else 64
            new = rng.choice((rng.choice(EXTREMES), value + rng.choice((-4096, -4, -1, 1, 4, 4096))))
            setattr(header, name, new % 2**bits)
            out[:HEADER_BYTES] = header.pack()
            return bytes(out)
    header.graph_crc, header.crcs_crc = crc32c(bytes(out[graph])), crc32c(bytes(out[table]))
    out[:HEADER_BYTES] = header.pack()
    return bytes(out)


def _changed_text(raw: bytes, name: str, rng: random.Random) -> bytes:
    """Templates or texts of a model with another value, or another number in what lies behind, as many bytes long."""
    first = TEMPLATES_HEAD if name == TEMPLATES else 0
    size = int.from_bytes(raw[:first], "little") if first else len(raw)
    text = raw[first : first + size]
    if rng.random() < 0.5 or size == len(raw):
        for _ in range(100):
            rows = json.loads(text)
            _change(rows, rng)
            changed = json.dumps(rows, separators=(",", ":")).encode()
            if len(changed) <= size:
                return raw[:first] + changed.ljust(size) + raw[first + size :]
    at = rng.randrange(first, len(raw) - 3) // 4 * 4
    value = int.from_bytes(raw[at : at + 4], "little") + rng.choice((-64, -1, 1, 2, 16, 64))
    number = rng.choice((value, value, rng.choice(EXTREMES)))
    return raw[:at] + (number % 2**32).to_bytes(4, "little") + raw[at + 4 :]


def _room(value: Any) -> float:
    """How often a part of a section is changed, beside others."""
    return float(len(value)) ** 0.5 if isinstance(value, list | dict | str) else 1.0


def _change(rows: Any, rng: random.Random) -> None:
    """Changes one value somewhere inside nested lists and dictionaries, or drops or doubles it."""
    holder, key = rows, None
    while True:
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not keys:
            return
        key = rng.choices(keys, [_room(holder[k]) for k in keys])[0] if holder is rows else rng.choice(keys)
        if not isinstance(holder[key], list | dict) or (rng.random() < 0.05 and holder is not rows):
            break
        holder = holder[key]
    value = holder[key]
    action = rng.random()
    if action < 0.1 and isinstance(holder, list):
        holder.insert(key, value)
    elif action < 0.2:
        del holder[key]
    elif type(value) is int:
        near = value + rng.choice((-64, -1, 1, 2, 16, 64))
        holder[key] = rng.choice(
            (near, near, -value, value * 2, value * 4096, rng.choice(EXTREMES), rng.choice(EXTREMES))
        )
    elif isinstance(value, str):
        holder[key] = rng.choice(("", "conv", "f64", "bool", "raw", "panels", "pool", "copy", value + "x", "\x00" * 9))
    else:
        holder[key] = rng.choice((None, 0, -1, 1e308, [], {}, "x", [value]))


def structure_of_onnx(content: bytes) -> list[range]:
    """The bytes of an ONNX file between the weights."""
    import onnx

    model = onnx.load_from_string(content)
    tensors = [*model.graph.initializer, *(a.t for n in model.graph.node for a in n.attribute)]
    blobs = [t.raw_data or np.asarray(t.float_data, "<f4").tobytes() for t in tensors]
    places = [(content.find(blob), len(blob)) for blob in blobs if len(blob) >= 256]
    spans, start = [], 0
    for low, high in sorted((at, at + size) for at, size in places if at >= 0):
        if low > start:
            spans.append(range(start, low))
        start = max(start, high)
    if start < len(content):
        spans.append(range(start, len(content)))
    return spans


def structure_of_artifact(content: bytes) -> list[range]:
    """Header, graph and checksum table."""
    from flexnn.artifact.format import HEADER_BYTES, Header

    header = Header.unpack(content[:HEADER_BYTES], len(content))
    return [range(HEADER_BYTES), range(HEADER_BYTES, header.data_offset)]


def meaning_of_artifact(path: Path) -> list[range]:
    """Header, graph, checksum table and each weight, without the zeros that fill pages and the model's texts."""
    from flexnn.artifact.format import HEADER_BYTES
    from flexnn.artifact.reader import open_artifact

    with open_artifact(str(path)) as artifact:
        header, weights = artifact.header, artifact.contents.weights
        graph, table = header.graph_offset, header.crc_offset
        spans = [range(HEADER_BYTES), range(graph, graph + header.graph_bytes)]
        spans.append(range(table, table + 4 * header.crc_count))
        spans += [range(weight.offset, weight.offset + weight.nbytes) for weight in weights]
    return [span for span in spans if span]
