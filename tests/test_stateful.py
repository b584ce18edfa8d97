"""Sessions that keep keys and values as state, against onnxruntime with a past in the caller's hands."""

from __future__ import annotations

import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import flexnn
from bench.models.growing import empty_caches, write_decoder
from flexnn import compiler
from flexnn.artifact.writer import write_artifact
from flexnn.graph import load_model
from flexnn.graph.sources import ModelSource
from flexnn.graph.state import WIDTHS
from flexnn.graph.stateful import ATTENTION, stateful
from flexnn.measure import refine
from flexnn.planning import MachineProfile
from flexnn.run.stateful import StateRun
from flexnn.session import open_for_tests
from tests.support.decoders import USUAL, Caller, Sizes, write_eager, write_grouped

CHUNKS = (3, 1, 1, 8, 40, 1, 33, 5, 1, 100)


def ids_of(sizes: Sizes, count: int = 200, seed: int = 1) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, sizes.vocabulary, (1, count))


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A small decoder: the ONNX file, and its artifact."""
    folder = tmp_path_factory.mktemp("decoder")
    model = write_grouped(folder / "decoder.onnx")
    return str(model), flexnn.compile(model, folder / "decoder.flexnn")


def compared(model: str, session: flexnn.Session, sizes: Sizes = USUAL, count: int = 193) -> float:
    """Largest difference of logits over chunks of tokens."""
    caller, ids, at, worst = Caller(onnxruntime.InferenceSession(model), sizes), ids_of(sizes), 0, 0.0
    for n in CHUNKS:
        if at + n > count:
            break
        wanted = caller.run(ids[:, at : at + n])
        (made,) = session.run(None, {"input_ids": ids[:, at : at + n]})
        assert made.shape[1] in (1, n)
        worst = max(worst, float(np.abs(wanted[:, -made.shape[1] :] - made).max()))
        at += n
        assert session.state_length == at
    return worst


@pytest.mark.parametrize("all_logits", [False, True])
@pytest.mark.parametrize(("kv", "most"), [("f32", 1e-5), ("f16", 1e-2), ("s8", 5e-2)])
def test_logits_are_those_of_a_past_in_the_callers_hands(
    decoder: tuple[str, str], kv: str, most: float, all_logits: bool
) -> None:
    model, artifact = decoder
    with open_for_tests(artifact, kv_capacity=256, kv=kv, all_logits=all_logits, poison=True) as session:
        assert [arg.name for arg in session.get_inputs()] == ["input_ids"]
        assert compared(model, session) < most


@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("attrs", [{}, {"scale": 0.5, "softcap": 5.0}, {"local_window_size": 9}])
def test_attention_of_onnxruntime_genai(tmp_path: Path, rotary: bool, attrs: dict[str, Any]) -> None:
    model = write_grouped(tmp_path / "m.onnx", Sizes(heads=6, groups=3), rotary=rotary, **attrs)
    artifact = flexnn.compile(model)
    with flexnn.Session(artifact, kv_capacity=200, kv="f32", all_logits=True) as session:
        assert compared(str(model), session, Sizes(heads=6, groups=3)) < 2e-5


def grouped_feed(ids: np.ndarray[Any, Any], past: int, mask: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    batch = len(ids)
    shape = (batch, USUAL.groups, past, USUAL.dim)
    random = np.random.default_rng(3)
    pasts = [f"past.{i}.{name}" for i in range(USUAL.layers) for name in ("key", "value")]
    return {"input_ids": ids, "attention_mask": mask} | {
        name: random.standard_normal(shape).astype(np.float32) for name in pasts
    }


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("past", [0, 5])
def test_a_past_in_the_callers_hands(decoder: tuple[str, str], batch: int, past: int) -> None:
    """Each sequence is as long as the past and the new tokens."""
    count = 1 if batch > 1 and past else 3  # onnxruntime takes no more behind pasts of several sequences
    mask = np.ones((batch, past + count), np.int64)
    feed = grouped_feed(ids_of(USUAL, batch * count).reshape(batch, count), past, mask)
    wanted = onnxruntime.InferenceSession(decoder[0]).run(None, feed)
    with flexnn.Session(decoder[1]) as session:
        for _ in range(2):
            for want, made in zip(wanted, session.run(None, feed), strict=True):
                np.testing.assert_allclose(made, want, atol=2e-5)


@pytest.mark.parametrize("past", [0, 9])
@pytest.mark.parametrize(
    "attrs", [{"softcap": 2.0}, {"local_window_size": 4}, {"softcap": 1.0, "local_window_size": 6}]
)
def test_caps_and_windows_with_a_past_in_the_callers_hands(tmp_path: Path, attrs: dict[str, Any], past: int) -> None:
    """Was numpy's, of which compiling warned (gemma 2 and 3 as others export them)."""
    model = write_grouped(tmp_path / "m.onnx", **attrs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        artifact = flexnn.compile(model)
    reference = onnxruntime.InferenceSession(model)
    with flexnn.Session(artifact) as session:
        for count in (1, 7):
            feed = grouped_feed(ids_of(USUAL, count), past, np.ones((1, past + count), np.int64))
            for want, made in zip(reference.run(None, feed), session.run(None, feed), strict=True):
                np.testing.assert_allclose(made, want, atol=2e-5)


def test_a_past_with_room_for_more_tokens_is_refused(decoder: tuple[str, str]) -> None:
    """onnxruntime-genai gives buffers of the whole capacity, of which the mask says how much is used."""
    with flexnn.Session(decoder[1]) as session:
        with pytest.raises(flexnn.FlexNNError, match=r"is 6 for a past of 32 and 1 new tokens.*kv_capacity"):
            session.run(None, grouped_feed(ids_of(USUAL, 1), 32, np.ones((1, 6), np.int64)))
        session.run(None, grouped_feed(ids_of(USUAL, 1), 5, np.ones((1, 6), np.int64)))


@pytest.mark.parametrize("past", [0, 5])
def test_a_mask_with_zeros_is_refused(decoder: tuple[str, str], past: int) -> None:
    """The one sequence is shorter than the past and the new tokens: what a run computes says so, not shapes."""
    ids = ids_of(USUAL, 3)
    with flexnn.Session(decoder[1]) as session:
        for zeros in (1, 2, 3):
            mask = np.ones((1, past + 3), np.int64)
            (logits, *_) = session.run(None, grouped_feed(ids, past, mask))
            mask[0, :zeros] = 0
            with pytest.raises(flexnn.FlexNNError, match="seqlens_k, of a mask with zeros"):
                session.run(None, grouped_feed(ids, past, mask))
            mask[:] = 1
            np.testing.assert_array_equal(session.run(None, grouped_feed(ids, past, mask))[0], logits)


@pytest.mark.parametrize("past", [0, 5])
def test_sequences_of_several_lengths_are_refused(decoder: tuple[str, str], past: int) -> None:
    mask = np.ones((2, past + 3), np.int64)
    mask[1, -2:] = 0
    ids = ids_of(USUAL, 6).reshape(2, 3)
    with flexnn.Session(decoder[1]) as session:
        for _ in range(2):
            session.run(None, grouped_feed(ids, past, np.ones_like(mask)))
            with pytest.raises(flexnn.FlexNNError, match="sequences of several lengths"):
                session.run(None, grouped_feed(ids, past, mask))


@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize("window", [0, 20])
@pytest.mark.parametrize("groups", [2, 4])
def test_attention_step_by_step(tmp_path: Path, positions: bool, window: int, groups: int) -> None:
    sizes = Sizes(groups=groups)
    model = write_eager(tmp_path / "m.onnx", sizes, positions=positions, window=window)
    artifact = flexnn.compile(model)
    with open_for_tests(artifact, kv_capacity=200, kv="f32", all_logits=True, poison=True) as session:
        assert [arg.name for arg in session.get_inputs()] == ["input_ids"]
        assert compared(str(model), session, sizes) < 2e-5


def test_a_decoder_of_one_token_at_a_time(tmp_path: Path) -> None:
    """Its attention needs no mask, and its input has another name than usual."""
    model = write_decoder(tmp_path / "m.onnx")
    theirs, past = onnxruntime.InferenceSession(str(model)), empty_caches()
    with flexnn.Session(flexnn.compile(model), kv_capacity=20, kv="f32") as session:
        for token in ids_of(USUAL, 20)[0]:
            *present, wanted = theirs.run(None, {"token": token[None, None], **past})
            order = [name.removeprefix("present_") for name in (arg.name for arg in theirs.get_outputs()[:-1])]
            past = {f"past_{name}": value for name, value in zip(order, present, strict=True)}
            np.testing.assert_allclose(session.run(None, {"token": token[None, None]})[0], wanted, atol=1e-4)


def test_a_budget_that_follows_the_system(decoder: tuple[str, str]) -> None:
    with flexnn.Session(decoder[1], "auto", kv_capacity=64) as session:
        session.run(None, {"input_ids": ids_of(USUAL)[:, :9]})
        assert session.state_length == 9


def test_the_budget_changes_and_the_state_stays(decoder: tuple[str, str]) -> None:
    ids = ids_of(USUAL)
    with flexnn.Session(decoder[1], kv_capacity=64, deterministic=True) as session:
        session.run(None, {"input_ids": ids[:, :20]})
        session.memory = "20MiB"
        made = session.run(None, {"input_ids": ids[:, 20:21]})[0]
        session.reset(20)
        session.memory = None
        np.testing.assert_array_equal(session.run(None, {"input_ids": ids[:, 20:21]})[0], made)


def test_the_callers_manner_of_onnxruntime_still_works(decoder: tuple[str, str]) -> None:
    model, artifact = decoder
    with flexnn.Session(artifact) as session:
        ours, theirs = Caller(session), Caller(onnxruntime.InferenceSession(model))
        ids, at = ids_of(USUAL), 0
        for n in (5, 1, 1, 7):
            rows = ids[:, at : at + n]
            np.testing.assert_allclose(ours.run(rows), theirs.run(rows), atol=2e-5)
            at += n


def test_state_beyond_its_capacity_is_refused_and_stays(decoder: tuple[str, str]) -> None:
    ids = ids_of(USUAL)
    with flexnn.Session(decoder[1], kv_capacity=40, kv="f32") as session:
        session.run(None, {"input_ids": ids[:, :39]})
        with pytest.raises(flexnn.StateError, match=r"2 tokens after 39 are beyond the state's capacity of 40"):
            session.run(None, {"input_ids": ids[:, 39:41]})
        assert session.state_length == 39
        (last,) = session.run(None, {"input_ids": ids[:, 39:40]})
        with pytest.raises(flexnn.StateError):
            session.reset(41)
        session.reset(39)
        np.testing.assert_array_equal(session.run(None, {"input_ids": ids[:, 39:40]})[0], last)


def test_a_state_in_a_file_is_gone_on_from(decoder: tuple[str, str], tmp_path: Path) -> None:
    ids, path = ids_of(USUAL), tmp_path / "prompt.state"
    with flexnn.Session(decoder[1], kv_capacity=64) as session:
        session.run(None, {"input_ids": ids[:, :20]})
        session.save_state(path)
        (wanted,) = session.run(None, {"input_ids": ids[:, 20:23]})
    with flexnn.Session(decoder[1], kv_capacity=40) as session:
        session.load_state(path)
        assert session.state_length == 20
        np.testing.assert_array_equal(session.run(None, {"input_ids": ids[:, 20:23]})[0], wanted)
    with flexnn.Session(decoder[1], kv_capacity=16) as session, pytest.raises(flexnn.StateError, match="its 20 tokens"):
        session.load_state(path)
    wrong = pytest.raises(flexnn.StateError, match="another type or other sizes")
    with flexnn.Session(decoder[1], kv_capacity=64, kv="f32") as session, wrong:
        session.load_state(path)


@pytest.mark.parametrize("change", ["cut", "flip", "longer", "header"])
def test_a_damaged_file_of_a_state_is_refused_and_the_state_stays(
    decoder: tuple[str, str], tmp_path: Path, change: str
) -> None:
    ids, path = ids_of(USUAL), tmp_path / "prompt.state"
    with flexnn.Session(decoder[1], kv_capacity=64) as session:
        session.run(None, {"input_ids": ids[:, :5]})
        session.save_state(path)
        raw = bytearray(path.read_bytes())
        place = {"flip": len(raw) // 2, "header": 70}.get(change, 0)
        raw[place] ^= bool(place)
        path.write_bytes({"cut": raw[:-9], "longer": raw + b"x"}.get(change, raw))
        session.run(None, {"input_ids": ids[:, 5:9]})
        with pytest.raises(flexnn.StateError, match=r"cut|damaged"):
            session.load_state(path)
        assert session.state_length == 9


def test_a_session_without_state_has_none(decoder: tuple[str, str]) -> None:
    with (
        flexnn.Session(decoder[1]) as session,
        pytest.raises(flexnn.SessionError, match="keeps no state: open it with kv_capacity"),
    ):
        session.reset()


def test_text_is_the_same_in_any_budget(tmp_path: Path) -> None:
    sizes = Sizes(heads=8, groups=2, dim=32, inner=1024, layers=4)
    artifact = flexnn.compile(write_grouped(tmp_path / "m.onnx", sizes))
    ids, texts = ids_of(sizes, 45), []
    with pytest.raises(flexnn.BudgetError) as refused:
        flexnn.Session(artifact, memory="1MiB", kv_capacity=128)
    least = refused.value.minimum
    for memory in (None, least, least + (1 << 20), least + (4 << 20)):
        with open_for_tests(artifact, memory, kv_capacity=128, poison=True, deterministic=True) as session:
            assert memory is None or session.session_bytes <= memory
            (logits,) = session.run(None, {"input_ids": ids})
            text = []
            for _ in range(30):
                text.append(int(logits[0, -1].argmax()))
                (logits,) = session.run(None, {"input_ids": np.array([[text[-1]]])})
            texts.append(text)
    assert all(text == texts[0] for text in texts)


def test_programs_pin_the_same_weights_in_the_same_places(tmp_path: Path) -> None:
    """A change of program reads what its plan streams, and nothing that is pinned; the smallest budget pins nothing."""
    sizes = Sizes(heads=8, groups=2, dim=32, inner=1024, layers=4)
    artifact = flexnn.compile(write_grouped(tmp_path / "m.onnx", sizes))
    with pytest.raises(flexnn.BudgetError) as refused:
        flexnn.Session(artifact, memory="1MiB", kv_capacity=128)
    least = refused.value.minimum
    for more in (0, 2 << 20, 3 << 20):
        with flexnn.Session(artifact, least + more, kv_capacity=128, profile="analytic") as session:
            run = session._run
            assert isinstance(run, StateRun)
            programs = [width.program.plan.program for width in run._widths if width.program is not None]
            pinned = [program.pinned.tobytes() for program in programs]
            assert pinned == pinned[:1] * len(WIDTHS)
            assert session.plan.pinned_bytes >= more // 4
            for width in run._widths[1:]:  # the first one has read what is pinned
                assert width.program is not None
                assert width.program.pinning["moved"] == width.program.pinning["read"] == 0
            for count, program in zip((*WIDTHS, *WIDTHS), programs * 2, strict=True):
                session.run(None, {"input_ids": ids_of(sizes, count)})
                assert session.last_run["bytes_read"] <= program.loads["bytes"].sum()


def test_budgets_in_between_use_what_they_were_given(tmp_path: Path) -> None:
    """Plans near the memory that holds all weights were those of half as much, with more pinned, and took 1.7 times as
    long as the bound: the next plan that was looked for was that of all weights.
    """
    sizes = Sizes(vocabulary=8192, heads=8, groups=2, dim=32, inner=512, layers=24)
    artifact = flexnn.compile(write_grouped(tmp_path / "m.onnx", sizes))
    options: dict[str, Any] = {"kv_capacity": 128, "io": "direct", "profile": "analytic"}
    whole = flexnn.plan(artifact, **options).session_bytes
    least = flexnn.plan(artifact, **options).minimum_memory
    gaps = []
    for i in range(1, 11):
        memory = least + (whole - least) * i // 12
        plan = flexnn.plan(artifact, memory=memory, **options)
        assert plan.session_bytes <= memory
        assert plan.session_bytes >= memory - (1 << 20) or not plan.stall_ms  # more is of no use to what never waits
        gaps.append(plan.predicted_ms / plan.bound_ms)
    assert max(gaps) <= 1.7, gaps  # was up to 2.3


def test_a_new_budget_reads_no_weight_that_is_there(tmp_path: Path) -> None:
    """Was read again whole: all was given back before the new plans were bound."""
    sizes = Sizes(heads=8, groups=2, dim=32, inner=1024, layers=4)
    artifact = flexnn.compile(write_grouped(tmp_path / "m.onnx", sizes))
    options: dict[str, Any] = {"kv_capacity": 128, "kv": "f32", "profile": "analytic", "deterministic": True}
    with pytest.raises(flexnn.BudgetError) as refused:
        open_for_tests(artifact, 1 << 20, **options)
    least, ids = refused.value.minimum, ids_of(sizes, 20)
    with open_for_tests(artifact, poison=True, **options) as session:
        wanted = session.run(None, {"input_ids": ids})[0]
        assert session.statistics()["pinning"] == {"kept": 0, "moved": 0, "read": session.plan.pinned_bytes}
        before = session.plan.pinned_bytes
        for memory in (least + (3 << 20), least + (2 << 20), least, least + (2 << 20), None):
            session.memory = memory
            now, pinning = session.plan.pinned_bytes, session.statistics()["pinning"]
            assert sum(pinning.values()) == now
            assert pinning["read"] <= max(now - before, 0) + (512 << 10)  # other ones may be pinned now
            assert memory is None or session.session_bytes <= memory
            session.reset()
            np.testing.assert_array_equal(session.run(None, {"input_ids": ids})[0], wanted)
            before = now


def test_a_model_that_was_imported_with_state_needs_no_option(decoder: tuple[str, str], tmp_path: Path) -> None:
    """Importers write flexnn.CachedAttention themselves."""
    made = stateful(load_model(decoder[0]), 64, "f32").model
    made.graph.outputs = made.graph.outputs[:1]
    for node in made.graph.nodes:
        if node.op_type == ATTENTION:
            node.output = node.output[:1]
            node.attrs = {k: v for k, v in node.attrs.items() if k not in ("capacity", "dtype")}
    for number, constant in enumerate(made.graph.constants.values(), 1000):
        if not isinstance(constant.source, ModelSource):
            constant.source = ModelSource(number, constant.source)
    artifact = str(tmp_path / "m.flexnn")
    write_artifact(compiler._contents(made, {}), artifact, bytes(32))
    with flexnn.Session(artifact, kv="f32") as session:
        assert compared(decoder[0], session) < 1e-5
    with flexnn.Pool(memory=None) as pool, pytest.raises(flexnn.CompileError, match="sessions of a pool do not"):
        pool.open(artifact)


PROMISE = """
import sys
import warnings
import numpy as np
import flexnn

def status(name):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))

np.ones((4, 4)) @ np.ones((4, 4))
before, memory = status("VmRSS"), int(sys.argv[2])
with flexnn.Session(sys.argv[1], memory, 2, kv_capacity=512) as session:
    session.run(None, {"input_ids": np.zeros((1, 100), np.int64)})
    for token in range(300):
        session.run(None, {"input_ids": np.array([[token % 90]])})
print(status("VmHWM") - before - memory)
"""


def test_the_budget_is_kept_over_many_tokens(tmp_path: Path) -> None:
    sizes = Sizes(layers=6, heads=8, groups=4, dim=64, inner=1024, vocabulary=2000, longest=512)
    artifact = flexnn.compile(write_grouped(tmp_path / "m.onnx", sizes))
    with pytest.raises(flexnn.BudgetError) as refused:
        flexnn.Session(artifact, memory="1MiB", threads=2, kv_capacity=512)
    for more in (0, 8 << 20):
        memory = str(refused.value.minimum + more)
        call = [sys.executable, "-P", "-c", PROMISE, artifact, memory]
        over = int(subprocess.run(call, capture_output=True, text=True, check=True).stdout)
        assert over <= 1 << 20


@pytest.mark.parametrize("reuse", [False, True])
def test_runs_of_one_token_repeat_the_last_one(decoder: tuple[str, str], reuse: bool) -> None:
    """The session prepares such runs once; what is no such token takes the usual way, with its errors."""
    ids = ids_of(USUAL)
    with flexnn.Session(decoder[1], kv_capacity=12, reuse_outputs=reuse) as session:
        (whole,) = session.run(None, {"input_ids": ids[:, :12]})
        wanted = whole.copy()
        session.reset()
        made = [session.run(None, {"input_ids": ids[:, i : i + 1]})[0] for i in range(12)]
        np.testing.assert_allclose(made[-1], wanted, atol=1e-2)
        assert (made[-1] is made[-2]) == reuse
        assert session.last_run["run_ns"] > 0
        for wrong in (ids[:, :1], ids[:, :1].astype(np.int32), ids[0, :1]):
            with pytest.raises((ValueError, flexnn.StateError)):
                session.run(None, {"input_ids": wrong})
        with pytest.raises(ValueError, match="no input 'other'"):
            session.run(None, {"input_ids": ids[:, :1], "other": ids})
        assert session.state_length == 12
        session.reset(11)
        np.testing.assert_allclose(session.run(None, {"input_ids": ids[:, 11:12]})[0], wanted, atol=1e-2)


def test_plans_are_made_by_measured_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first session measures, and the next one finds what it kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    artifact = flexnn.compile(write_grouped(tmp_path / "m.onnx", Sizes(heads=8, groups=4, dim=64, inner=2048)))
    told: list[str] = []
    for _ in range(2):
        with flexnn.Session(artifact, kv_capacity=64, profile="measure", progress=told.append) as session:
            assert session.statistics()["machine"]["measured_times"]
    assert len(told) == 1


def test_runs_teach_later_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that was busy when it was measured would else be planned for as a slow one for ever."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    artifact = flexnn.compile(write_grouped(tmp_path / "m.onnx", Sizes(heads=8, groups=4, dim=64, inner=2048)))
    with pytest.raises(flexnn.BudgetError) as refused:
        flexnn.Session(artifact, 1, kv_capacity=64)
    memory, found = refused.value.minimum + (1 << 20), []
    learnt = refine.Watch.learnt

    def slow(watch: refine.Watch, machine: MachineProfile) -> MachineProfile | None:
        learnt(watch, machine)
        return replace(machine, storage_bytes_per_second=1e6) if len(watch._computed) >= refine.SAMPLES_MIN else None

    monkeypatch.setattr(refine.Watch, "learnt", slow)
    for _ in range(2):
        with flexnn.Session(artifact, memory, kv_capacity=64, profile="measure", trace=True) as session:
            found.append(session.statistics()["machine"]["storage_bytes_per_second"])
            for _ in range(32):
                session.run(None, {"input_ids": np.ones((1, 1), np.int64)})
            assert session.last_run["bytes_read"]
            events = session.trace_events()["traceEvents"]
            loads = [e for e in events if e["ph"] == "X" and "bytes" in e["args"]]
            assert len(loads) == len(session.plan.loads)
    assert found[0] != found[1] == 1e6
