"""Sketches and digests: what must stay the same, what must change, how well a sketch stands for its vector."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vivace.measure.inside.comparing.sketch import BUCKETS, Sketcher, digest_of, folded


def random_tensor(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 1000), size=st.integers(1, 5000), factor=st.floats(-3, 3))
def test_a_sketch_is_linear(seed: int, size: int, factor: float):
    sketcher = Sketcher()
    x, y = random_tensor(seed, size).double(), random_tensor(seed + 1, size).double()
    together = sketcher.sketch(x + factor * y, 3)
    apart = sketcher.sketch(x, 3) + factor * sketcher.sketch(y, 3)
    assert torch.allclose(together, apart, atol=1e-9)


def test_the_norm_of_a_sketch_is_about_the_norm_of_its_vector():
    """By the number of buckets, to about 1 / sqrt(2 · 256) = 4 %; here to three times that."""
    sketcher = Sketcher()
    for seed in range(20):
        x = random_tensor(seed, 40, 1000)
        assert abs(float(sketcher.sketch(x, seed).norm()) / float(x.norm()) - 1) < 0.15
        assert abs(float(sketcher.norm(x)) / float(x.double().norm()) - 1) < 1e-12


def test_a_tensor_longer_than_the_signs_is_sketched_whole():
    x = torch.zeros(2**20 + 700)
    x[-1] = 2.0
    assert float(Sketcher().sketch(x, 0).norm()) == 2.0


def test_memory_format_makes_no_difference():
    sketcher, x = Sketcher(), random_tensor(0, 4, 3, 8, 8)
    other = x.contiguous(memory_format=torch.channels_last)
    assert torch.equal(sketcher.sketch(x, 0), sketcher.sketch(other, 0))
    assert digest_of(x) == digest_of(other)


def test_sparse_gradients_are_sketched_by_their_values():
    dense = torch.zeros(6, 4)
    dense[2] = 1.0
    assert float(Sketcher().sketch(dense.to_sparse(1), 0).norm()) > 0


def test_folding_keeps_the_sum():
    sketch = Sketcher().sketch(random_tensor(0, 999), 1)
    assert folded(sketch, 16).shape == (16,)
    assert torch.allclose(folded(sketch, BUCKETS // 4).sum(), sketch.sum())


def test_a_digest_sees_one_label_and_the_order_of_samples():
    images, labels = random_tensor(0, 8, 3, 4, 4), torch.arange(8)
    digest = digest_of([images, labels])
    other = labels.clone()
    other[5] = 7
    assert digest_of([images, other]) != digest
    order = torch.tensor([1, 0, 2, 3, 4, 5, 6, 7])
    assert digest_of([images[order], labels[order]]) != digest
    assert digest_of({"images": images, "labels": labels}) == digest_of({"images": images.clone(), "labels": labels})


def test_a_batch_that_is_cast_to_bf16_is_the_same_batch():
    x = random_tensor(0, 100)
    assert digest_of((x,)) == digest_of((x.to(torch.bfloat16),))
    assert digest_of((x,)) != digest_of((x * 1.02,))
