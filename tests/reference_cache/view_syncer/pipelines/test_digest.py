"""The sketch of durations that the inspector draws."""

from __future__ import annotations

from random import Random

import pytest

from reference_cache.view_syncer.pipelines.digest import COMPRESSION, Digest


def test_a_digest_stays_small_and_keeps_its_extremes() -> None:
    random, digest = Random(1), Digest()
    values = [random.expovariate(1) for _ in range(20_000)]
    for value in values:
        digest.add(value)
    compression, *centroids = digest.to_json()
    means, weights = centroids[0::2], centroids[1::2]
    assert compression == COMPRESSION
    assert sum(weights) == len(values)
    assert (means[0], means[-1]) == (min(values), max(values))
    assert means == sorted(means)
    assert len(means) < 1500
    half = sorted(values)[len(values) // 2]
    below = sum(weight for mean, weight in zip(means, weights, strict=True) if mean <= half)
    assert below == pytest.approx(len(values) / 2, rel=0.02)
