"""The baseline of `speed.step`: gradient descent as a loop over seeds and layers on contiguous arrays. A process of its own: JAX's threads would disturb it.

python -m benchmarks.speed._numpy_loop DIM WIDTH DEPTH BATCH SEEDS REPEATS      prints seconds a step, one line a repetition
"""

import sys
import time

import numpy as np


def step(us: np.ndarray, vs: np.ndarray, start: np.ndarray, readout: np.ndarray, targets: np.ndarray, rate: np.float32) -> None:
    """One step of one network, in place: weights (depth, width, dim), states (dim, batch)."""
    depth, width, dim = us.shape
    branch, inner = np.float32(1 / (depth * width)), np.float32(1 / dim)
    before = np.empty((depth, *start.shape), np.float32)
    acts = np.empty((depth, width, start.shape[1]), np.float32)
    h = start
    for layer in range(depth):
        before[layer] = h
        np.tanh((us[layer] @ h) * inner, out=acts[layer])
        h = h + (vs[layer].T @ acts[layer]) * branch
    b = readout @ ((readout.T @ h) * inner - targets) / np.float32(start.shape[1])
    for layer in range(depth - 1, -1, -1):
        act = acts[layer]
        back = (1 - act * act) * (vs[layer] @ b) * inner
        below = b + (us[layer].T @ back) * branch
        us[layer] -= rate * (back @ before[layer].T)
        vs[layer] -= rate * (act @ b.T)
        b = below


def main(dim: int, width: int, depth: int, batch: int, seeds: int, repeats: int) -> None:
    """Time it."""
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, dtype=np.float32)

    us, vs = np.float32(dim**0.5) * draw(seeds, depth, width, dim), np.float32(dim**0.5) * draw(seeds, depth, width, dim)
    start, readout, targets = draw(dim, batch), draw(dim, 1), draw(1, batch)
    step(us[0], vs[0], start, readout, targets, np.float32(0.1))
    print("ready", flush=True)
    sys.stdin.readline()  # several processes begin together
    for _ in range(repeats):
        begun = time.perf_counter()
        for seed in range(seeds):
            step(us[seed], vs[seed], start, readout, targets, np.float32(0.1))
        print(time.perf_counter() - begun, flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
