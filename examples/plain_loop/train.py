"""A training loop without a Trainer: a network in NumPy that learns to continue text, byte by byte, from its own source.

It knows nothing of Tunebench. After every optimizer step it prints a line of JSON, and at the end its results.
Run it by hand: python train.py --optimizer adam --steps 20
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

BYTES, CONTEXT, WIDTH, ROWS = 256, 8, 64, 32

parser = argparse.ArgumentParser()
parser.add_argument("--optimizer", choices=["sgd", "momentum", "adam"], default="sgd")
parser.add_argument("--steps", type=int, default=200)
options = parser.parse_args()

random = np.random.default_rng(0)
text = np.frombuffer(Path(__file__).read_bytes(), dtype=np.uint8)
shapes = [(CONTEXT * BYTES, WIDTH), (WIDTH, BYTES)]
layers = [(random.standard_normal(shape) / shape[0] ** 0.5).astype(np.float32) for shape in shapes]
first, second = ([np.zeros_like(layer) for layer in layers] for _ in range(2))  # the optimizer's averages


def batch():
    """Return rows of text, each byte as a vector with a single 1, and the byte that follows each row."""
    starts = random.integers(0, len(text) - CONTEXT, ROWS)
    rows = text[starts[:, None] + np.arange(CONTEXT)]
    return np.eye(BYTES, dtype=np.float32)[rows].reshape(ROWS, -1), text[starts + CONTEXT]


def gradients(inputs, targets):
    """Return the loss, and its gradient for each layer."""
    hidden = np.tanh(inputs @ layers[0])
    scores = hidden @ layers[1]
    likely = np.exp(scores - scores.max(axis=1, keepdims=True))
    likely /= likely.sum(axis=1, keepdims=True)
    picked = likely[np.arange(ROWS), targets]
    error = likely.copy()
    error[np.arange(ROWS), targets] -= 1
    error /= ROWS
    return -np.log(picked).mean(), [inputs.T @ (error @ layers[1].T * (1 - hidden**2)), hidden.T @ error]


def update(number, place, gradient):
    """Change one layer by its gradient."""
    if options.optimizer == "sgd":
        layers[place] -= 0.5 * gradient
    elif options.optimizer == "momentum":
        first[place] = 0.9 * first[place] + gradient
        layers[place] -= 0.1 * first[place]
    else:
        first[place] = 0.9 * first[place] + 0.1 * gradient
        second[place] = 0.999 * second[place] + 0.001 * gradient**2
        mean, square = first[place] / (1 - 0.9**number), second[place] / (1 - 0.999**number)
        layers[place] -= 0.003 * mean / (np.sqrt(square) + 1e-8)


losses = []
began = time.perf_counter()
for number in range(1, options.steps + 1):
    start = time.perf_counter()
    loss, by_layer = gradients(*batch())
    for place, gradient in enumerate(by_layer):
        update(number, place, gradient)
    losses.append(float(loss))
    seconds = time.perf_counter() - start
    print(json.dumps({"step": number, "seconds": seconds, "tokens": ROWS * CONTEXT, "samples": ROWS}))
print(json.dumps({"loss": sum(losses) / len(losses), "runtime": time.perf_counter() - began}))
