"""DFT and STFT, native, against numpy's double precision and onnxruntime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import flexnn

LENGTHS = [1, 2, 3, 4, 5, 7, 12, 16, 30, 97, 101, 128, 202, 240, 400, 509, 512, 1009, 1024, 2000]


def model_of(node, shape, constants, opset=17):
    tensors = [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()]
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "test", ports, made, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8).SerializeToString()


def run(tmp_path, model, x, memory=None):
    path = tmp_path / "m.onnx"
    path.write_bytes(model)
    with flexnn.Session(flexnn.compile(path), threads=2, memory=memory) as session:
        (y,) = session.run(None, {"x": x})
        assert session.statistics().get("hosted_operators", {}) == {}
    return y


def close(mine, exact):
    """Relative error of all elements together."""
    exact = np.stack([exact.real, exact.imag], -1) if np.iscomplexobj(exact) else exact
    assert (mine.shape, mine.dtype) == (exact.shape, np.float32)
    assert np.linalg.norm(mine - exact) <= 1e-6 * np.linalg.norm(exact) + 1e-9


def signal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def dft(n, opset=17, **attrs):
    inputs = ["x", "n" if n else "", *(["axis"] if opset >= 20 else [])]
    return helper.make_node("DFT", inputs, ["y"], **attrs)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("inverse", [0, 1])
def test_every_length(tmp_path, n, parts, inverse):
    x = signal(3, n, parts)
    values = x[..., 0] + (1j * x[..., 1].astype(np.float64) if parts == 2 else 0)
    y = run(tmp_path, model_of(dft(0, inverse=inverse), x.shape, {}), x)
    close(y, (np.fft.ifft if inverse else np.fft.fft)(values.astype(np.complex128), axis=1))


@pytest.mark.parametrize("shape", [(2, 3, 10, 4, 1), (1, 10, 2), (2, 10, 9, 2)])
@pytest.mark.parametrize("length", [0, 7, 16])
@pytest.mark.parametrize("opset", [17, 20])
def test_axes_and_lengths(tmp_path, shape, length, opset):
    x, axis = signal(*shape), shape.index(10)
    constants = {"n": np.int64(length)} if length else {}
    if opset >= 20:
        node, constants = dft(length, opset), {**constants, "axis": np.int64(axis - len(shape))}
    else:
        node = dft(length, axis=axis)
    values = x[..., 0].astype(np.complex128) if shape[-1] == 1 else x[..., 0] + 1j * x[..., 1].astype(np.float64)
    close(run(tmp_path, model_of(node, shape, constants, opset), x), np.fft.fft(values, length or None, axis))


@pytest.mark.parametrize("n", [8, 9, 30, 101])
def test_half_spectra(tmp_path, n):
    x = signal(2, n, 1)
    y = run(tmp_path, model_of(dft(0, onesided=1), x.shape, {}), x)
    close(y, np.fft.rfft(x[..., 0].astype(np.float64), axis=1))
    back = model_of(dft(n, onesided=1, inverse=1), y.shape, {"n": np.int64(n)})
    close(run(tmp_path, back, y), np.fft.irfft(y[..., 0] + 1j * y[..., 1].astype(np.float64), n, 1)[..., None])


@pytest.mark.parametrize(("samples", "length", "hop"), [(400, 400, 1), (1600, 400, 160), (1000, 101, 7), (60, 16, 40)])
@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("windowed", [False, True])
def test_frames(tmp_path, samples, length, hop, onesided, windowed):
    x, window = signal(3, samples, 1), np.hanning(length).astype(np.float32)
    constants = {"step": np.int64(hop), "length": np.int64(length)} | ({"window": window} if windowed else {})
    node = helper.make_node("STFT", ["x", "step", "window" if windowed else "", "length"], ["y"], onesided=onesided)
    model = model_of(node, x.shape, constants)
    y = run(tmp_path, model, x)
    cut = np.stack([x[:, i : i + length, 0] for i in range(0, samples - length + 1, hop)], 1).astype(np.float64)
    close(y, (np.fft.rfft if onesided else np.fft.fft)(cut * window if windowed else cut, axis=-1))
    theirs = onnxruntime.InferenceSession(model).run(None, {"x": x})[0]
    assert np.linalg.norm(y - theirs) <= 1e-4 * np.linalg.norm(y)


def test_open_samples(tmp_path):
    """Several lengths in one budget."""
    constants = {"step": np.int64(64), "window": np.hanning(256).astype(np.float32)}
    node = helper.make_node("STFT", ["x", "step", "window"], ["y"])
    path = tmp_path / "m.onnx"
    path.write_bytes(model_of(node, [1, "samples"], constants))
    with flexnn.Session(flexnn.compile(path), memory="8MiB") as session:
        for samples in (256, 1000, 16000):
            x = signal(1, samples)
            (y,) = session.run(None, {"x": x})
            cut = np.stack([x[0, i : i + 256] for i in range(0, samples - 255, 64)])
            close(y[0], np.fft.rfft(cut * np.float64(constants["window"])))
        assert session.statistics()["hosted_operators"] == {}


def test_frames_that_do_not_fit(tmp_path):
    node = helper.make_node("STFT", ["x", "step", "", "length"], ["y"])
    (tmp_path / "m.onnx").write_bytes(model_of(node, (1, 20), {"step": np.int64(4), "length": np.int64(21)}))
    with pytest.raises(flexnn.FlexNNError, match=r"frames of 21 samples every 4 do not fit into 20"):
        flexnn.Session(flexnn.compile(tmp_path / "m.onnx")).run(None, {"x": signal(1, 20)})
