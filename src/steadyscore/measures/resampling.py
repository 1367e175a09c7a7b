"""Means of bootstrap samples of one collection, without drawing its queries one by one.

A bootstrap mean of n values is the mean of n draws with replacement: the sum of n independent draws from the empirical
distribution, divided by n. The distribution of a sum of independent draws is the convolution of theirs, so that of n draws is
the n-fold convolution of the values' histogram, and one Fourier transform gives all n folds:

    values ──► histogram ──► FFT ──► n-th power ──► inverse FFT ──► cumulative sum ──► quantiles of uniform numbers
     (n,)      mass / n      n-fold convolution     histogram of the sum               = `count` sums, / n = means

The cost does not depend on n, where literal resampling draws n numbers for every mean. Two corrections keep mean and variance
exact: each value is split between its two neighbouring bins, so that the mean stays what it was, and the sums are scaled by what
this adds to their variance. What the bins smooth over is how often a mean is one exact number, and that matters where it is often
0: of a difference that most queries do not have. Values with few levels are therefore drawn by how often each level comes up.
tests/measures/test_intervals.py holds all three ways against literal resampling and against scipy.
"""

from __future__ import annotations

import numpy as np

from ..terms import Array

LITERAL = 64
"""Up to this many values are drawn one by one: their few possible means form a lattice that must stay exact."""
LEVELS = 32
"""Up to this many distinct values: with more of them, no exact number is likely to come up twice."""
BINS, REACH = 1 << 15, 16.0
"""The grid of the sum's distribution: 32,768 bins over ±16 of its SDs, wide enough that nothing wraps around."""


def resample_means(values: Array, count: int, rng: np.random.Generator) -> Array:
    """`count` independent means of len(values) draws with replacement, (count,)."""
    n, mean, sd = len(values), values.mean(), values.std()
    if sd <= 1e-15 * np.abs(values).max():  # rounding of the mean, not variation
        return np.full(count, mean)
    levels, counts = np.unique(values, return_counts=True)
    means: Array
    if n <= LITERAL:
        means = values[rng.integers(0, n, (count, n))].mean(axis=1)
    elif len(levels) <= LEVELS:
        means = rng.multinomial(n, counts / n, count) @ levels / n
    else:
        means = np.clip(mean + _draw_sums(values - mean, sd, count, rng) / n, values.min(), values.max())
    return means


def _draw_sums(centred: Array, sd: float, count: int, rng: np.random.Generator) -> Array:
    """`count` sums of len(centred) draws with replacement from values of mean 0 and this SD."""
    n = len(centred)
    step = 2 * REACH * sd * np.sqrt(n) / BINS
    place = centred / step
    floor = np.floor(place)
    part = place - floor
    bins = floor.astype(np.int64) % BINS
    mass = np.bincount(bins, 1 - part, BINS) + np.bincount((bins + 1) % BINS, part, BINS)
    total = np.fft.irfft(np.fft.rfft(mass / n) ** n, BINS)
    cumulative = np.cumsum(np.maximum(np.fft.fftshift(total), 0))
    edges = np.arange(BINS) - BINS // 2 + 0.5
    sums = np.interp(rng.random(count) * cumulative[-1], cumulative, edges)
    scaled: Array = sums * (step * sd / np.sqrt(sd**2 + step**2 * np.mean(part * (1 - part))))
    return scaled
