"""Attention of every kind, norms and softmax, at odd sizes, against NumPy in float64."""

import numpy as np
import pytest

from example_run import load

forward, backward, decoding, mla, sparse, linear, softmax, norms = (
    load(name)
    for name in (
        "attention_forward",
        "attention_backward",
        "flash_decoding",
        "mla_decode",
        "block_sparse_attention",
        "linear_attention",
        "softmax",
        "norms",
    )
)


@pytest.mark.parametrize(
    ("lengths", "heads", "kv_heads", "D", "tiles"),
    [
        ((1,), 1, 1, 40, (64, 64)),
        ((127, 24, 1), 6, 3, 96, (48, 40)),
        ((72, 0, 65), 2, 1, 64, (100, 24)),
        ((64, 128), 2, 2, 64, (64, 64)),
    ],
)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sinks", [False, True])
def test_forward(lengths, heads, kv_heads, D, tiles, causal, sinks):
    args = forward.problem(lengths, heads, kv_heads, D)
    O, LSE = forward.attention(heads, kv_heads, D, causal, sinks, tiles)(*args)
    sink = args[4] if sinks else None
    out, lse = forward.reference(*args[:4], causal=causal, sink=sink)
    np.testing.assert_allclose(O, out, atol=5e-3)
    np.testing.assert_allclose(LSE, lse, atol=5e-3)


@pytest.mark.parametrize("stages", [0, 1, 3])
def test_stages_change_no_bit_of_the_forward_pass(stages):
    args = forward.problem((100,), 2, 1, 40)
    plain = forward.attention(2, 1, 40, num_stages=2)(*args)
    other = forward.attention(2, 1, 40, num_stages=stages)(*args)
    assert all((a == b).all() for a, b in zip(plain, other, strict=True))


@pytest.mark.parametrize(("S", "heads", "kv_heads", "D"), [(1, 1, 1, 40), (127, 4, 2, 64)])
@pytest.mark.parametrize(("causal", "tiles"), [(False, (32, 64)), (True, (48, 24))])
def test_backward(S, heads, kv_heads, D, causal, tiles):
    args = backward.problem(S, heads, kv_heads, D)
    got = backward.gradients(*args, causal=causal, tiles=tiles)
    want = backward.backward_reference(*args, causal=causal)
    for ours, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=4e-2)


def test_the_backward_reference_is_the_derivative_of_the_forward_one():
    Q, K, V, dO = (x.astype(np.float64) for x in backward.problem(7, 2, 1, 4))
    gradients = backward.backward_reference(Q, K, V, dO, causal=True)
    random, step = np.random.default_rng(3), 1e-6

    def loss(*args):
        return (forward.reference(*args, [0, 7], causal=True)[0] * dO).sum()

    for n, gradient in enumerate(gradients):
        way = random.normal(size=gradient.shape)
        up, down = [Q, K, V], [Q, K, V]
        up[n], down[n] = up[n] + step * way, down[n] - step * way
        slope = (loss(*up) - loss(*down)) / (2 * step)
        assert abs(slope - (gradient * way).sum()) < 1e-6 * max(1, abs(slope))


@pytest.mark.parametrize("splits", [1, 3, 8])
@pytest.mark.parametrize("lengths", [(1, 40), (127, 300)])
def test_decoding(splits, lengths):
    args = decoding.problem(lengths, 320, 6, 2, 40)
    O = decoding.flash_decoding(2, 6, 2, 40, splits=splits, block=48)(*args)
    np.testing.assert_allclose(O, decoding.reference(*args), atol=3e-3)


@pytest.mark.parametrize(("capacity", "splits"), [(1, 2), (127, 1), (200, 5)])
def test_latent_decoding(capacity, splits):
    args = mla.problem(1, 10, 96, 24, capacity)
    O = mla.mla_decode(*args, splits=splits, block=40, block_heads=24)
    np.testing.assert_allclose(O, mla.reference(*args), atol=3e-3)


@pytest.mark.parametrize(("S", "block"), [(127, 24), (64, 64), (100, 48)])
def test_block_sparse(S, block):
    args = sparse.problem(2, S, 40, block)
    O = sparse.block_sparse_attention(2, S, 40, block=block)(*args)
    np.testing.assert_allclose(O, sparse.reference(*args, block=block), atol=5e-3)
    assert (O[0, (-(-S // block) - 1) * block :] == 0).all()


@pytest.mark.parametrize(("length", "chunk"), [(1, 64), (127, 24), (96, 48)])
def test_linear_attention(length, chunk):
    args = linear.problem(2, length, 24, 40)
    O, state = linear.linear_attention(2, length, 24, 40, chunk=chunk)(*args)
    out, last = linear.reference(*args)
    np.testing.assert_allclose(O, out, atol=5e-3)
    np.testing.assert_allclose(state, last, atol=5e-3)


@pytest.mark.parametrize("shape", [(1, 1), (5, 127), (3, 300)])
@pytest.mark.parametrize("tile", [(4, 128), (2, 40)])
def test_softmax(shape, tile):
    X = np.random.default_rng(1).normal(size=shape).astype(np.float16) * 8
    Y = softmax.softmax(*shape, tile=tile)(X)
    np.testing.assert_allclose(Y, softmax.reference(X), atol=1e-3)


@pytest.mark.parametrize("shape", [(1, 1), (5, 127), (3, 40)])
def test_norms(shape):
    random = np.random.default_rng(2)
    X, W, B = (random.normal(size=s).astype(np.float16) for s in (shape, shape[1:], shape[1:]))
    np.testing.assert_allclose(
        norms.rms_norm(*shape)(X, W), norms.rms_reference(X, W), atol=1e-2, rtol=1e-2
    )
    got, want = norms.layer_norm(*shape)(X, W, B), norms.layer_reference(X, W, B)
    for ours, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-2, rtol=1e-2)
