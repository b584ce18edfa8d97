"""Templates in artifacts: they give what binding makes of the same shapes, and hostile bytes can only be refused."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import flexnn
from flexnn.artifact import open_artifact
from flexnn.artifact.model_section import StoredModel
from flexnn.artifact.stored_source import StoredSource
from flexnn.regions import Recorder, template_writer
from flexnn.regions.scope import Scope, Value, is_few
from flexnn.regions.template_reader import ALIGN, load_templates
from flexnn.regions.templates import Templates
from tests.regions.test_templates import CASES, Checked
from tests.support.regions import I64, Binds, check_run, compiled, graph_of, model_of, numbers, value

SHAPES: dict[str, list[dict[str, tuple[int, ...]]]] = {
    "images": [{"x": (n, 3, 32 * h, 32 * w)} for n, h, w in ((1, 1, 2), (1, 3, 4), (2, 2, 3), (4, 1, 7), (1, 6, 2))],
    "tokens": [{"past": (1, n, 16), "x": (1, t, 16)} for n, t in ((3, 1), (9, 3), (21, 4), (40, 2))],
    "recurrent": [{"x": (t, n, 4)} for t, n in ((9, 1), (17, 1), (40, 1), (12, 4), (33, 5))],
    "turned_round": [{"x": (t, 4)} for t in (9, 12, 40, 64)],
    "loops_in_turn": [{"x": (t, 1, 4)} for t in (9, 12, 40, 64)],
    "computed_sizes": [{"x": (m, n)} for m, n in ((1, 64), (3, 64), (1, 9), (4, 200))],
}

OTHERS = (-1, 0, 1, 3, 1 << 20, 1 << 70, 0.5, "", "f32", "0x0", "-0x1", None, [], {}, [1, [2]], True)


@pytest.mark.parametrize("name", SHAPES)
def test_first_runs_take_the_templates_of_the_artifact(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = CASES[name][0]()
    path = compiled(tmp_path, model)
    Checked(monkeypatch)  # compares each segment with the one that binding makes
    binds = Binds(monkeypatch)
    taken = 0
    for shapes in SHAPES[name]:
        with flexnn.Session(path) as session:
            before = binds.count
            check_run(session, model, {key: numbers(*shape) for key, shape in shapes.items()})
            taken += binds.count == before
    assert taken >= len(SHAPES[name]) - 1


def test_templates_may_be_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = CASES["images"][0]()
    path = compiled(tmp_path, model)
    monkeypatch.setattr("flexnn.regions.template_reader.layout", lambda ops: -1)  # another release's parameters
    binds = Binds(monkeypatch)
    with flexnn.Session(path) as session:
        check_run(session, model, {"x": numbers(2, 3, 32, 64)})
    assert binds.count == 1


def test_compiling_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    model = CASES["recurrent"][0]()
    first, second = (Path(compiled(folder, model)).read_bytes() for folder in folders(tmp_path))
    assert first == second


def folders(parent: Path) -> Iterator[Path]:
    for name in ("one", "two"):
        (parent / name).mkdir()
        yield parent / name


def changed(raw: bytes, rng: random.Random) -> bytes:
    """These bytes with one value changed: one of the JSON, or a word of an array, which may be JSON itself."""
    size = int.from_bytes(raw[:ALIGN], "little")
    at = ALIGN + -(-size // ALIGN) * ALIGN
    if rng.random() < 0.4:
        head = json.loads(raw[ALIGN : ALIGN + size])
        mutate(head, rng)
        text = json.dumps(head, separators=(",", ":")).encode("ascii")
        return len(text).to_bytes(ALIGN, "little") + text + bytes(-len(text) % ALIGN) + raw[at:]
    own = bytearray(raw)
    if rng.random() < 0.3:
        place = at + 4 * rng.randrange((len(raw) - at) // 4)
        word = rng.choice((0, 1, -1, 2, 7, 1 << 16, -(1 << 31), (1 << 31) - 1, rng.randrange(1 << 31)))
        own[place : place + 4] = word.to_bytes(4, "little", signed=True)
    else:  # a digit of the JSON of a body, most often
        places = [i for i in rng.sample(range(at, len(raw)), 4000) if 48 <= own[i] < 58]
        own[rng.choice(places or [at])] = rng.choice(b"0123456789-e[]{},")
    return bytes(own)


def mutate(value: Any, rng: random.Random) -> None:
    """Change one value somewhere in nested lists and objects."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    if not keys:
        return
    key = rng.choice(keys)
    if isinstance(value[key], list | dict) and rng.random() < 0.85:
        mutate(value[key], rng)
    else:
        value[key] = rng.choice(
            (-1, 0, 1, 3, 1 << 20, 1 << 70, 0.5, "", "f32", "0x0", "-0x1", None, [], {}, [1, [2]], True)
        )


def stored_of(path: str) -> tuple[StoredModel, bytes]:
    with open_artifact(path) as artifact:
        stored = artifact.contents
        assert isinstance(stored, StoredModel)
        assert stored.template_source is not None
        return stored, stored.template_source.load().tobytes()


def scope_of(stored: StoredModel, shapes: dict[str, tuple[int, ...]]) -> Scope:
    values = {}
    for port in stored.model.graph.inputs:
        dtype = np.dtype(np.float32)
        values[port.name] = Value(shapes[port.name], dtype)
        values[port.name].is_steady = is_few(dtype, values[port.name].nbytes)
    return Scope(values)


@pytest.mark.parametrize("name", SHAPES)
def test_hostile_templates_are_refused_or_make_a_graph(name: str, tmp_path: Path) -> None:
    model = CASES[name][0]()
    stored, raw = stored_of(compiled(tmp_path, model))
    rng, refused = random.Random(0), 0
    for number in range(150):
        recorder = Recorder(stored.model)
        bytes_ = changed(raw, rng)

        def read(bytes_: bytes = bytes_, recorder: Recorder = recorder) -> Any:
            return load_templates(bytes_, recorder.region, stored.constants, stored.model.opset)

        recorder.templates = Templates(stored.model.opset, read)
        shapes = SHAPES[name][number % len(SHAPES[name])]
        try:
            stretch = recorder.record(recorder.region, scope_of(stored, shapes), recorder.region.all)
            for segment in stretch.tape.segments:
                assert segment.graph is not None
        except flexnn.FlexNNError:
            refused += 1
    assert refused > 5


@pytest.mark.parametrize("name", ["images", "recurrent"])
def test_sessions_run_hostile_templates_or_refuse_them(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = CASES[name][0]()
    path = compiled(tmp_path, model)
    _, raw = stored_of(path)
    own = StoredSource.load
    rng, ran = random.Random(1), 0
    for number in range(60):
        hostile = changed(raw, rng)

        def load(source: StoredSource, hostile: bytes = hostile) -> Any:
            return np.frombuffer(hostile, np.uint8) if source.weight.name == "templates" else own(source)

        monkeypatch.setattr(StoredSource, "load", load)
        shapes = SHAPES[name][number % len(SHAPES[name])]
        with flexnn.Session(path) as session:
            try:
                session.run(None, {key: numbers(*shape) for key, shape in shapes.items()})
                ran += 1
            except flexnn.FlexNNError:
                pass
    assert ran > 5


def test_a_damaged_template_fails_its_checksum(tmp_path: Path) -> None:
    model = CASES["images"][0]()
    path = compiled(tmp_path, model)
    with open_artifact(path) as artifact:
        contents = artifact.contents
        assert isinstance(contents, StoredModel)
        offset = contents.weights[contents.templates].offset
    raw = bytearray(Path(path).read_bytes())
    raw[offset + 40] ^= 1
    Path(path).write_bytes(raw)
    with flexnn.Session(path) as session, pytest.raises(flexnn.FlexNNError, match="checksum"):
        session.run(None, {"x": numbers(1, 3, 32, 64)})


def test_a_model_without_templates_is_traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = CASES["recurrent"][0]()
    monkeypatch.setattr("flexnn.regions.template_writer.LARGEST", 0)
    path = compiled(tmp_path, model)
    with open_artifact(path) as artifact:
        contents = artifact.contents
        assert isinstance(contents, StoredModel)
        assert contents.templates == -1
    with flexnn.Session(path) as session:
        check_run(session, model, {"x": numbers(5, 2, 4)})


def parts(count: int, *, known: bool = False) -> onnx.ModelProto:
    """A model of so many nodes, a number that only the run knows, and as many nodes over that many rows, which that
    number makes alone if ``known``.
    """
    chains = [("x", "a"), ("rows", "b")]
    before, behind = (
        [
            helper.make_node(("Sin", "Softsign")[i % 2], [f"{end}{i}" if i else begin], [f"{end}{i + 1}"])
            for i in range(count)
        ]
        for begin, end in chains
    )
    counted = [
        helper.make_node("Abs", [f"a{count}"], ["sizes"]),
        helper.make_node("Ceil", ["sizes"], ["ones"]),
        helper.make_node("ReduceSum", ["ones"], ["total"], keepdims=0),
        helper.make_node("Cast", ["total"], ["length"], to=I64),
        helper.make_node("Range", ["nought", "length", "one"], ["times"]),
        helper.make_node("Cast", ["times"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["float", "float" if known else "total"], ["rows"]),
    ]
    constants = {"nought": np.array(0, np.int64), "one": np.array(1, np.int64)}
    outputs = [value(f"b{count}", dims=["m"])]
    return model_of(graph_of([*before, *counted, *behind], [value("x", dims=["n"])], outputs, constants))


def test_models_of_many_nodes_have_more_room_for_templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The template of what comes behind a number that only a run knows was left out, and each first run traced it."""
    model = parts(200)
    monkeypatch.setattr("flexnn.regions.template_writer.BYTES_MAX", 64 << 10)
    path = compiled(tmp_path, model)
    binds = Binds(monkeypatch)
    for n in (30, 51):
        with flexnn.Session(path) as session:
            before = binds.count
            check_run(session, model, {"x": numbers(n)})
            assert binds.count == before


def dilated(blocks: int) -> onnx.ModelProto:
    """A model of so many convolutions that pad rows and columns to multiples of 64, as converters write dilated ones:
    the graph is another one where a multiple needs no padding.
    """
    constants = {
        "multiple": np.array([64]), "none": np.array([0]), "two": np.zeros(2, np.int64), "few": np.zeros(5, np.int64),
        "middle": np.array([1, 2]), "starts": np.array([1]), "ends": np.array([3]), "w": numbers(4, 4, 3, 3),
    }  # fmt: skip
    nodes = []
    for i in range(blocks):
        nodes += [
            helper.make_node("Shape", [f"x{i}"], [f"shape{i}"]),
            helper.make_node("Slice", [f"shape{i}", "starts", "ends", "none"], [f"sizes{i}"]),
            helper.make_node("Neg", [f"sizes{i}"], [f"less{i}"]),
            helper.make_node("Mod", [f"less{i}", "multiple"], [f"pads{i}"]),
            helper.make_node("Concat", ["few", f"pads{i}", "none"], [f"all{i}"], axis=0),
            helper.make_node("Pad", [f"x{i}", f"all{i}"], [f"padded{i}"]),
            helper.make_node("Transpose", [f"padded{i}"], [f"image{i}"], perm=[0, 3, 1, 2]),
            helper.make_node("Conv", [f"image{i}", "w"], [f"conv{i}"], pads=[1, 1, 1, 1]),
            helper.make_node("Transpose", [f"conv{i}"], [f"back{i}"], perm=[0, 2, 3, 1]),
            helper.make_node("Slice", [f"back{i}", "two", f"sizes{i}", "middle"], [f"cut{i}"]),
            helper.make_node("Tanh", [f"cut{i}"], [f"x{i + 1}"]),
        ]
    dims = ["n", "h", "w", 4]
    return model_of(graph_of(nodes, [value("x0", dims=dims)], [value(f"x{blocks}", dims=dims)], constants))


def test_large_graphs_have_room_for_all_templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some were left out for their bytes, so the first run of a size that needs padding, or none, bound the model: a
    network of fingerprints took five times as long as without.
    """
    model, made = dilated(100), []
    for folder, most in zip(folders(tmp_path), (template_writer.BYTES_MAX, template_writer.LARGEST), strict=True):
        monkeypatch.setattr(template_writer, "BYTES_MAX", most)
        made.append(Path(compiled(folder, model)).read_bytes())
    assert made[0] == made[1]


def test_constants_that_are_nested_too_deeply_are_traced(tmp_path: Path) -> None:
    """A template was stored that no session could read: its first run failed."""
    model = parts(40, known=True)
    path = compiled(tmp_path, model)
    with flexnn.Session(path) as session:
        for n in (30, 51):
            check_run(session, model, {"x": numbers(n)})


def test_shapes_too_large_for_an_operator_are_left_out(tmp_path: Path) -> None:
    # Sizes that the compiler tries make 2 ** 31 numbers and more of a tensor here, which no operator reduces.
    nodes = [
        helper.make_node("Unsqueeze", ["x", "last"], ["columns"]),
        helper.make_node("Mul", ["columns", "w"], ["products"]),
        helper.make_node("DynamicQuantizeLinear", ["products"], ["y", "scale", "zero"]),
    ]
    inputs, outputs = [value("x", dims=["batch", "n"])], [value("y", TensorProto.UINT8, ["batch", "n", 1 << 17])]
    constants = {"w": numbers(1 << 17), "last": np.array([2])}
    model = model_of(graph_of(nodes, inputs, outputs, constants))
    with flexnn.Session(compiled(tmp_path, model)) as session:
        check_run(session, model, {"x": numbers(2, 3)})


def codec() -> onnx.ModelProto:
    """Sounds [b, 1, t], padded by what is inside and shortened to a quarter, four times."""
    nodes, constants, last = [], {"pads": np.array([0, 0, 3, 0, 0, 3])}, "x"
    for i, channels in enumerate((1, 4, 8, 16)):
        constants[f"w{i}"] = numbers(4 << i, channels, 7, seed=i) / np.float32(np.sqrt(7 * channels))
        nodes += [
            helper.make_node("Pad", [last, "pads"], [f"p{i}"], mode="reflect"),
            helper.make_node("Conv", [f"p{i}", f"w{i}"], [f"c{i}"], strides=[4]),
            helper.make_node("Elu", [f"c{i}"], [f"e{i}"]),
        ]
        last = f"e{i}"
    ports = [value("x", dims=["b", 1, "t"])], [value(last, dims=["b", 32, "s"])]
    return model_of(graph_of(nodes, *ports, constants))


def mask() -> onnx.ModelProto:
    """Images made smaller, and larger again by a transposed convolution and by scales."""
    constants = {
        "w": numbers(8, 3, 3, 3) / 5,
        "v": numbers(8, 4, 2, 2, seed=1) / 5,
        "scales": np.array([1, 1, 2, 2], np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["small"], strides=[4, 4], pads=[1] * 4),
        helper.make_node("Relu", ["small"], ["seen"]),
        helper.make_node("ConvTranspose", ["seen", "v"], ["larger"], strides=[2, 2]),
        helper.make_node(
            "Resize", ["larger", "", "scales"], ["y"], mode="linear", coordinate_transformation_mode="align_corners"
        ),
    ]
    ports = [value("x", dims=["b", 3, "h", "w"])], [value("y", dims=["b", 4, "h", "w"])]
    return model_of(graph_of(nodes, *ports, constants))


def likeness() -> onnx.ModelProto:
    """How alike means of words x are to rows of y, of which there are other numbers."""
    nodes = [
        helper.make_node("Tanh", ["x"], ["words"]),
        helper.make_node("ReduceMean", ["words"], ["x.mean"], axes=[1], keepdims=0),
        helper.make_node("Identity", ["y"], ["y.mean"]),
        *(
            made
            for own, side in (("x", "a"), ("y", "b"))
            for made in (
                helper.make_node("Shape", [f"{own}.mean"], [f"{own}.size"]),
                helper.make_node("Expand", ["class", f"{own}.size"], [f"{own}.class"]),
                helper.make_node("Concat", [f"{own}.class", f"{own}.mean"], [f"{own}.both"], axis=1),
                helper.make_node("MatMul", [f"{own}.both", "w"], [side]),
            )
        ),
        helper.make_node("Transpose", ["b"], ["c"], perm=[1, 0]),
        helper.make_node("MatMul", ["a", "c"], ["z"]),
        helper.make_node("Softmax", ["z"], ["alike"]),
    ]
    constants = {"class": numbers(1, 8), "w": numbers(16, 8)}
    inputs = [value("x", dims=["n", "words", 8]), value("y", dims=["m", 8])]
    return model_of(graph_of(nodes, inputs, [value("alike", dims=["n", "m"])], constants))


@pytest.mark.parametrize("t", [16000, 9001, 48000])
@pytest.mark.parametrize("b", [1, 4])
def test_codecs_trace_no_first_run(b: int, t: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the windows that the compiler tried, pads were longer than what was left, so numpy computed them."""
    check_first_run(codec(), {"x": numbers(b, 1, t)}, tmp_path, monkeypatch)


@pytest.mark.parametrize("size", [(1, 96, 64), (1, 64, 96), (3, 64, 64), (2, 160, 96)])
def test_masks_of_any_sides_trace_no_first_run(
    size: tuple[int, int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A template held for images of one orientation alone, and scales between corners had none at all."""
    b, h, w = size
    check_first_run(mask(), {"x": numbers(b, 3, h, w)}, tmp_path, monkeypatch)


@pytest.mark.parametrize("m", [1, 5])
@pytest.mark.parametrize("n", [1, 7])
def test_batches_of_their_own(n: int, m: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One text and several pictures, several texts and one picture."""
    check_first_run(likeness(), {"x": numbers(n, 12, 8), "y": numbers(m, 8)}, tmp_path, monkeypatch)


def check_first_run(
    model: onnx.ModelProto, feed: dict[str, np.ndarray], folder: Path, patch: pytest.MonkeyPatch
) -> None:
    path = compiled(folder, model)
    binds = Binds(patch)
    with flexnn.Session(path) as session:
        check_run(session, model, feed)
        assert not session.statistics()["hosted_operators"]
    assert not binds.count
