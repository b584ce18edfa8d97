"""Operators of com.microsoft as onnxruntime 1.32.0 states them: attributes, inputs, outputs, types.

Made by ``python -m bench.field records``. An attribute is a name and its AttributeProto.AttributeType, with ``!``
where it must be stated. An input or output is the name of its type, with ``?`` where it is optional and ``...`` where
there may be many.
"""

from __future__ import annotations

RECORDS: dict[str, tuple[str, str, str]] = {
    "Attention": (
        "do_rotary:INT mask_filter_value:FLOAT num_heads:INT! past_present_share_buffer:INT "
        "qkv_hidden_sizes:INTS rotary_embedding_dim:INT scale:FLOAT unidirectional:INT",
        "T T T? M? T? T? M?",
        "T T?",
    ),
    "BiasGelu": (
        "",
        "T T",
        "T",
    ),
    "CDist": (
        "metric:STRING",
        "T T",
        "T",
    ),
    "DequantizeLinear": (
        "axis:INT",
        "T1 T2 T1?",
        "T2",
    ),
    "DynamicQuantizeLSTM": (
        "activation_alpha:FLOATS activation_beta:FLOATS activations:STRINGS clip:FLOAT "
        "direction:STRING hidden_size:INT input_forget:INT",
        "T T2 T2 T? T1? T? T? T? T T2 T T2",
        "T? T? T?",
    ),
    "DynamicQuantizeMatMul": (
        "",
        "T1 T2 T1 T2? T1?",
        "T1",
    ),
    "EmbedLayerNormalization": (
        "epsilon:FLOAT mask_index_type:INT",
        "T1 T1? T T T? T T T1? T1?",
        "T T1? T?",
    ),
    "ExpandDims": (
        "",
        "T tensor(int32)",
        "T",
    ),
    "FastGelu": (
        "",
        "T T?",
        "T",
    ),
    "FusedConv": (
        "activation:STRING activation_params:FLOATS auto_pad:STRING dilations:INTS group:INT "
        "kernel_shape:INTS pads:INTS strides:INTS",
        "T T T? T?",
        "T",
    ),
    "FusedGemm": (
        "activation:STRING activation_alpha:FLOAT activation_beta:FLOAT activation_gamma:FLOAT "
        "alpha:FLOAT beta:FLOAT transA:INT transB:INT",
        "T T T?",
        "T",
    ),
    "FusedMatMul": (
        "alpha:FLOAT transA:INT transB:INT transBatchA:INT transBatchB:INT",
        "T T",
        "T",
    ),
    "GatherBlockQuantized": (
        "bits:INT block_size:INT gather_axis:INT quantize_axis:INT",
        "T1 Tind T2 T1?",
        "T2",
    ),
    "Gelu": (
        "",
        "T",
        "T",
    ),
    "GridSample": (
        "align_corners:INT mode:STRING padding_mode:STRING",
        "T1 T1",
        "T2",
    ),
    "GroupQueryAttention": (
        "causal:INT do_rotary:INT k_norm_epsilon:FLOAT k_quant_type:STRING kv_cache_bit_width:INT "
        "kv_num_heads:INT! local_window_size:INT num_heads:INT! q_norm_epsilon:FLOAT "
        "qk_norm_epsilon:FLOAT qk_output:INT rotary_interleaved:INT scale:FLOAT "
        "sliding_window_cache:INT smooth_softmax:INT softcap:FLOAT v_quant_type:STRING",
        "T T? T? T_CACHE? T_CACHE? M M T? T? tensor(int64)? T? T? T_KV_SCALE? T_KV_SCALE? T? T? M?",
        "T T_CACHE? T_CACHE? T?",
    ),
    "MatMulIntegerToFloat": (
        "",
        "T1 T2 T3 T3 T1? T2? T3?",
        "T3",
    ),
    "MatMulNBits": (
        "K:INT! N:INT! accuracy_level:INT bits:INT block_size:INT! weight_prepacked:INT",
        "T1 T2 T1 T3? T4? T1?",
        "T1",
    ),
    "MultiHeadAttention": (
        "mask_filter_value:FLOAT num_heads:INT! scale:FLOAT unidirectional:INT",
        "T T? T? T? M? T? T? T? M? M?",
        "T T? T? QK?",
    ),
    "NhwcMaxPool": (
        "auto_pad:STRING ceil_mode:INT dilations:INTS kernel_shape:INTS! pads:INTS strides:INTS",
        "T",
        "T",
    ),
    "Pad": (
        "mode:STRING",
        "T tensor(int64) T?",
        "T",
    ),
    "QAttention": (
        "do_rotary:INT mask_filter_value:FLOAT num_heads:INT! past_present_share_buffer:INT "
        "scale:FLOAT unidirectional:INT",
        "T1 T2 T3 T3 T3 T4? T1? T2? T3?",
        "T3 T3?",
    ),
    "QEmbedLayerNormalization": (
        "epsilon:FLOAT",
        "T1 T1? T2 T2 T2? T2 T2 T1? T T T? T T T2 T2 T2? T2 T2",
        "T T1",
    ),
    "QGemm": (
        "alpha:FLOAT transA:INT transB:INT",
        "TA T TA TB T TB TC? T? TYZ?",
        "TY",
    ),
    "QLinearAdd": (
        "",
        "T tensor(float) T? T tensor(float) T? tensor(float) T?",
        "T",
    ),
    "QLinearAveragePool": (
        "auto_pad:STRING ceil_mode:INT channels_last:INT count_include_pad:INT kernel_shape:INTS! "
        "pads:INTS strides:INTS",
        "T tensor(float) T? tensor(float) T?",
        "T",
    ),
    "QLinearConcat": (
        "axis:INT!",
        "TF T8 TV...",
        "T8",
    ),
    "QLinearConv": (
        "auto_pad:STRING channels_last:INT dilations:INTS group:INT kernel_shape:INTS pads:INTS strides:INTS",
        "T1 tensor(float) T1 T2 tensor(float) T2 tensor(float) T3 T4?",
        "T3",
    ),
    "QLinearGlobalAveragePool": (
        "channels_last:INT",
        "T tensor(float) T tensor(float) T",
        "T",
    ),
    "QLinearLeakyRelu": (
        "alpha:FLOAT",
        "T tensor(float) T? tensor(float) T?",
        "T",
    ),
    "QLinearMul": (
        "",
        "T tensor(float) T? T tensor(float) T? tensor(float) T?",
        "T",
    ),
    "QLinearSigmoid": (
        "",
        "T tensor(float) T? tensor(float) T?",
        "T",
    ),
    "QLinearSoftmax": (
        "axis:INT opset:INT!",
        "T tensor(float) T? tensor(float) T",
        "T",
    ),
    "QLinearWhere": (
        "",
        "B T TF T T TF T TF T",
        "T",
    ),
    "QuantizeLinear": (
        "axis:INT",
        "T1 T1 T2?",
        "T2",
    ),
    "QuickGelu": (
        "alpha:FLOAT",
        "T",
        "T",
    ),
    "RotaryEmbedding": (
        "interleaved:INT is_packed_batching:INT num_heads:INT rotary_embedding_dim:INT scale:FLOAT",
        "T M T T",
        "T",
    ),
    "SkipLayerNormalization": (
        "epsilon:FLOAT",
        "T T T T? T?",
        "T U? U? T?",
    ),
    "SkipSimplifiedLayerNormalization": (
        "epsilon:FLOAT",
        "T T T T?",
        "T U? U? T?",
    ),
    "TransposeMatMul": (
        "alpha:FLOAT transA:INT transB:INT",
        "T T",
        "T",
    ),
    "Trilu": (
        "upper:INT",
        "T tensor(int64)?",
        "T",
    ),
}
"""Attributes, inputs and outputs of each operator."""
TYPES: dict[str, dict[str, str]] = {
    "Attention": {
        "M": ("int32"),
        "T": ("bfloat16 float float16"),
    },
    "BiasGelu": {
        "T": ("bfloat16 double float float16"),
    },
    "CDist": {
        "T": ("double float"),
    },
    "DequantizeLinear": {
        "T1": ("int16 int32 int4 int8 uint16 uint4 uint8"),
        "T2": ("float float16"),
    },
    "DynamicQuantizeLSTM": {
        "T": ("float"),
        "T1": ("int32"),
        "T2": ("int8 uint8"),
    },
    "DynamicQuantizeMatMul": {
        "T1": ("float"),
        "T2": ("int8 uint8"),
    },
    "EmbedLayerNormalization": {
        "T": ("float float16"),
        "T1": ("int32"),
    },
    "ExpandDims": {
        "T": (
            "bool complex128 complex64 double float float16 int16 int32 int64 int8 string uint16 uint32 uint64 uint8"
        ),
    },
    "FastGelu": {
        "T": ("bfloat16 double float float16"),
    },
    "FusedConv": {
        "T": ("double float float16"),
    },
    "FusedGemm": {
        "T": ("double float float16 int32 int64 uint32 uint64"),
    },
    "FusedMatMul": {
        "T": ("bfloat16 double float float16"),
    },
    "GatherBlockQuantized": {
        "T1": ("float4e2m1 float8e4m3fn float8e4m3fnuz float8e5m2 float8e5m2fnuz int4 uint4 uint8"),
        "T2": ("bfloat16 float float16"),
        "Tind": ("int32 int64"),
    },
    "Gelu": {
        "T": ("bfloat16 double float float16"),
    },
    "GridSample": {
        "T1": (
            "bool complex128 complex64 double float float16 int16 int32 int64 int8 string uint16 uint32 uint64 uint8"
        ),
        "T2": ("double float float16"),
    },
    "GroupQueryAttention": {
        "M": ("int32"),
        "T": ("bfloat16 float float16"),
        "T_CACHE": ("bfloat16 float float16 float8e4m3fn int8 uint8"),
        "T_KV_SCALE": ("float"),
    },
    "MatMulIntegerToFloat": {
        "T1": ("int8 uint8"),
        "T2": ("int8 uint8"),
        "T3": ("float float16"),
    },
    "MatMulNBits": {
        "T1": ("bfloat16 float float16"),
        "T2": ("uint8"),
        "T3": ("bfloat16 float float16 uint8"),
        "T4": ("int32"),
    },
    "MultiHeadAttention": {
        "M": ("int32"),
        "QK": ("bfloat16 float float16"),
        "T": ("bfloat16 float float16"),
    },
    "NhwcMaxPool": {
        "T": ("int8 uint8"),
    },
    "Pad": {
        "T": ("double float float16"),
    },
    "QAttention": {
        "T1": ("int8 uint8"),
        "T2": ("int8 uint8"),
        "T3": ("float float16"),
        "T4": ("int32"),
    },
    "QEmbedLayerNormalization": {
        "T": ("float"),
        "T1": ("int32"),
        "T2": ("int8 uint8"),
    },
    "QGemm": {
        "T": ("float"),
        "TA": ("int8 uint8"),
        "TB": ("int8 uint8"),
        "TC": ("int32"),
        "TY": ("float int8 uint8"),
        "TYZ": ("int8 uint8"),
    },
    "QLinearAdd": {
        "T": ("int8 uint8"),
    },
    "QLinearAveragePool": {
        "T": ("int8 uint8"),
    },
    "QLinearConcat": {
        "T8": ("int8 uint8"),
        "TF": ("float"),
        "TV": ("float int8 uint8"),
    },
    "QLinearConv": {
        "T1": ("int8 uint8"),
        "T2": ("int8 uint8"),
        "T3": ("int8 uint8"),
        "T4": ("int32"),
    },
    "QLinearGlobalAveragePool": {
        "T": ("int8 uint8"),
    },
    "QLinearLeakyRelu": {
        "T": ("int8 uint8"),
    },
    "QLinearMul": {
        "T": ("int8 uint8"),
    },
    "QLinearSigmoid": {
        "T": ("int8 uint8"),
    },
    "QLinearSoftmax": {
        "T": ("int8 uint8"),
    },
    "QLinearWhere": {
        "B": ("bool"),
        "T": ("int8 uint8"),
        "TF": ("float"),
    },
    "QuantizeLinear": {
        "T1": ("float float16"),
        "T2": ("int16 int4 int8 uint16 uint4 uint8"),
    },
    "QuickGelu": {
        "T": ("bfloat16 double float float16"),
    },
    "RotaryEmbedding": {
        "M": ("int64"),
        "T": ("bfloat16 float float16"),
    },
    "SkipLayerNormalization": {
        "T": ("bfloat16 float float16"),
        "U": ("float"),
    },
    "SkipSimplifiedLayerNormalization": {
        "T": ("bfloat16 float float16"),
        "U": ("float"),
    },
    "TransposeMatMul": {
        "T": ("bfloat16 double float float16"),
    },
    "Trilu": {
        "T": ("bfloat16 bool double float float16 int16 int32 int64 int8 uint16 uint32 uint64 uint8"),
    },
}
"""Element types that each named type may be."""
