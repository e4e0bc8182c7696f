"""Tangent ODE for erf units in plain numpy: classical Runge-Kutta on a fixed grid, the drift's Jacobian by central differences."""

import math

import numpy as np

GRID = 64  # Runge-Kutta steps; states are kept at half steps as well


def kernel(a, b, rate_u, rate_v):
    """eta_v E erf erf + eta_u E erf' erf' a.b for all pairs of rows, g ~ N(0, I)."""
    dot = a @ b.T
    p, q = 1 + 2 * np.sum(a**2, 1)[:, None], 1 + 2 * np.sum(b**2, 1)[None]
    return rate_v * 2 / math.pi * np.arcsin(2 * dot / np.sqrt(p * q)) + rate_u * 4 / math.pi / np.sqrt(p * q - 4 * dot**2) * dot


def outputs(start, unembedding, targets, *, rate_u, rate_v, steps):
    """f after 0, ..., steps gradient steps, mean-square loss 1/(2 n d_out) |f - y|^2, states in reduced coordinates."""
    points = 2 * GRID + 1
    width = 1.0 / GRID
    past = []  # (h, b) at all half steps, one pair a gradient step
    found = []
    for _ in range(steps + 1):

        def drift(i, h, past=past):
            return -sum((kernel(h, ph[i], rate_u, rate_v) @ pb[i] for ph, pb in past), np.zeros_like(h))

        def pull(i, h, b, past=past):
            """-(D drift)^T b by central differences, coordinate by coordinate."""
            gradient = np.zeros_like(h)
            for x, c in np.ndindex(h.shape):
                up, down = h.copy(), h.copy()
                up[x, c] += 1e-6
                down[x, c] -= 1e-6
                gradient[x, c] = np.sum(b * (drift(i, up) - drift(i, down))) / 2e-6
            return -gradient

        h = np.zeros((points, *start.shape))
        h[0] = start
        for i in range(points - 2):  # Runge-Kutta over two half steps at a time, from every half step: the fields are known there only
            k1 = drift(i, h[i])
            k2 = drift(i + 1, h[i] + width / 2 * k1)
            k3 = drift(i + 1, h[i] + width / 2 * k2)
            k4 = drift(i + 2, h[i] + width * k3)
            if i == 0:
                h[1] = start + _half(drift, start, width)
            h[i + 2] = h[i] + width / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        f = h[-1] @ unembedding
        found.append(f)
        b = np.zeros_like(h)
        b[-1] = (f - targets) @ unembedding.T / targets.size
        b[-2] = b[-1] - _half_back(pull, h, b[-1], width)
        for i in range(points - 1, 1, -1):
            k1 = pull(i, h[i], b[i])
            k2 = pull(i - 1, h[i - 1], b[i] - width / 2 * k1)
            k3 = pull(i - 1, h[i - 1], b[i] - width / 2 * k2)
            k4 = pull(i - 2, h[i - 2], b[i] - width * k3)
            b[i - 2] = b[i] - width / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        past.append((h, b))
    return np.array(found)


def _half(drift, start, width):
    """The first half step, by Heun's rule with a corrector: its error is of third order and made once."""
    k1 = drift(0, start)
    guess = width / 2 * k1
    for _ in range(3):
        guess = width / 4 * (k1 + drift(1, start + guess))
    return guess


def _half_back(pull, h, b, width):
    k1 = pull(len(h) - 1, h[-1], b)
    guess = width / 2 * k1
    for _ in range(3):
        guess = width / 4 * (k1 + pull(len(h) - 2, h[-2], b - guess))
    return guess
