"""Print the five likeliest classes of a picture: python examples/classify.py MODEL.flexnn PICTURE"""

import sys

import numpy as np
from PIL import Image

import flexnn

with flexnn.Session(sys.argv[1], memory="32MiB") as session:
    name, (_, _, height, width) = session.get_inputs()[0].name, session.get_inputs()[0].shape
    pixels = np.asarray(Image.open(sys.argv[2]).convert("RGB").resize((width, height)), np.float32)
    x = (pixels / 255 - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)  # mean and deviation of ImageNet's pictures
    (scores,) = session.run(None, {name: x.transpose(2, 0, 1)[None].astype(np.float32)})
for index in scores[0].argsort()[:-6:-1]:
    print(f"class {index:4}  score {scores[0, index]:.4f}")
