"""``flexnn exec``: FlexNN in place of onnxruntime, under programs that nobody rewrites.

This package imports nothing of FlexNN before the program imports onnxruntime, so that a program which does not pays
nothing.
"""
