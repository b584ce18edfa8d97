"""Models that each break one rule of the ONNX standard, beside twins that keep it: bench/field/broken.py."""
