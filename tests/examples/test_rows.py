"""Examples that go along rows: quantisation, Hadamard, top-k, scans, histograms, convolution."""

import ml_dtypes
import numpy as np
import pytest

from example_run import EXAMPLES, load
from tilelang.errors import TileError

conv, quantize, hadamard, topk, scan, counting = (
    load(name)
    for name in (
        "conv_im2col",
        "quantize_fp8_per_token",
        "hadamard",
        "topk",
        "cumulative_scan",
        "histogram",
    )
)

# -- conv_im2col.py --------------------------------------------------------------------------------


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("pad", [0, 1, 4])
def test_convolutions(stride, dilation, pad):
    image, filters = (2, 9, 12, 3), (3, 3, 3, 40)
    random = np.random.default_rng(stride)
    x, w = (random.integers(-4, 5, shape).astype(np.float16) for shape in (image, filters))
    got = conv.conv2d(image, filters, stride, dilation, pad, (24, 48, 16))(x, w)
    want = conv.reference(x, w, stride, dilation, pad)
    np.testing.assert_array_equal(got.reshape(want.shape), want)


@pytest.mark.parametrize(("r", "c", "f"), [(1, 72, 24), (5, 1, 1), (7, 2, 100)])
def test_filters_of_any_size(r, c, f):
    image, filters = (1, 7, 8, c), (r, r, c, f)
    random = np.random.default_rng(r)
    x, w = (random.integers(-4, 5, shape).astype(np.float16) for shape in (image, filters))
    got = conv.conv2d(image, filters)(x, w)
    want = conv.reference(x, w, 1, 1, 0)
    np.testing.assert_array_equal(got.reshape(want.shape), want)


def test_the_reference_convolution_by_hand():
    x = np.arange(9).reshape(1, 3, 3, 1)
    w = np.array([[1, 0], [0, 10]]).reshape(2, 2, 1, 1)
    assert conv.reference(x, w, 1, 1, 0).ravel().tolist() == [40, 51, 73, 84]
    assert conv.reference(x, w, 1, 2, 0).ravel().tolist() == [80]


# -- quantize_fp8_per_token.py ---------------------------------------------------------------------


def rows_of_sizes(m, n):
    random = np.random.default_rng(m)
    x = random.standard_normal((m, n)) * np.exp(3 * random.standard_normal((m, 1)))
    return x.clip(-60000, 60000).astype(np.float16)


@pytest.mark.parametrize("size", [(100, 127), (1, 1), (24, 40), (7, 200)])
def test_quantised_rows(size):
    x = rows_of_sizes(*size)
    q, scale = quantize.per_token(x)
    want, scales = quantize.reference(x, size[1])
    assert q.dtype == ml_dtypes.float8_e4m3fn
    np.testing.assert_array_equal(q.view(np.uint8), want.view(np.uint8))
    np.testing.assert_array_equal(scale, scales[:, 0])
    error = abs(q.astype(np.float32) * scale[:, None] - x.astype(np.float32))
    assert (error <= abs(x.astype(np.float32)) / 16 + scale[:, None] * 2.0**-10).all()


@pytest.mark.parametrize("group", [1, 24, 32, 128])
@pytest.mark.parametrize("size", [(100, 127), (1, 1), (9, 72)])
def test_quantised_groups(size, group):
    x = rows_of_sizes(*size)
    q, scale = quantize.per_group(x, group)
    want, scales = quantize.reference(x, group)
    np.testing.assert_array_equal(q.view(np.uint8), want.view(np.uint8))
    np.testing.assert_array_equal(scale, scales)


def test_the_largest_of_a_row_fills_the_range_and_zeros_stay():
    x = np.zeros((3, 40), np.float16)
    x[0, 3], x[1, 5] = -7, 60000
    q, scale = quantize.per_token(x)
    assert abs(q.astype(np.float32)).max(1).tolist() == [448, 448, 0]
    assert scale[2] == np.float32(quantize.LEAST) / np.float32(448)


# -- hadamard.py -----------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [1, 40])
@pytest.mark.parametrize("n", [1, 2, 24, 100, 127, 256])
def test_the_transform_is_the_product_with_the_matrix(m, n):
    x = np.random.default_rng(n).integers(-100, 101, (m, n)).astype(np.float32)
    got = hadamard.transform(x)
    length = got.shape[1]
    want = x @ hadamard.matrix(length)[:n].astype(np.float32) * np.float32(length**-0.5)
    np.testing.assert_array_equal(got, want)


def test_twice_is_the_identity():
    x = np.random.default_rng(0).standard_normal((24, 64)).astype(np.float32)
    np.testing.assert_allclose(hadamard.transform(hadamard.transform(x)), x, atol=1e-5)


def test_the_matrix_of_four():
    want = [[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]
    assert hadamard.matrix(4).tolist() == want


# -- topk.py ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "k"), [(127, 1), (127, 8), (40, 40), (1, 1), (72, 5)])
@pytest.mark.parametrize("m", [1, 24, 100])
def test_the_largest_and_their_columns(m, n, k):
    x = np.random.default_rng(n).integers(-9, 10, (m, n)).astype(np.float32)
    for got, want in zip(topk.topk(m, n, k)(x), topk.reference(x, k), strict=True):
        np.testing.assert_array_equal(got, want)


def test_more_than_there_are_is_refused():
    with pytest.raises(ValueError, match="the 41 largest of 40"):
        topk.topk(3, 40, 41)


# -- cumulative_scan.py ----------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["sum", "max"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("size", [(100, 127), (1, 1), (24, 32), (3, 72)])
def test_running_sums_and_maxima(size, reverse, what):
    x = np.random.default_rng(1).integers(-(2**30), 2**30, size).astype(np.int32)
    got = scan.running(x, what, width=24, reverse=reverse)
    turned = x[:, ::-1] if reverse else x
    with np.errstate(over="ignore"):  # sums wrap
        want = {"sum": np.add, "max": np.maximum}[what].accumulate(turned, axis=1, dtype=np.int32)
    np.testing.assert_array_equal(got[:, ::-1] if reverse else got, want)


# -- histogram.py ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 100, 127, 1000])
@pytest.mark.parametrize("bins", [1, 24, 40])
def test_counts(n, bins):
    x = (np.random.default_rng(n).integers(-80, 81, n) / 16).astype(np.float32)
    counts = np.full(bins, 7, np.int32)  # the kernel adds to what is there
    counting.histogram(x, counts, low=-3.0, high=bins - 3.0)
    want = np.histogram(x[(x >= -3) & (x < bins - 3)], bins, range=(-3.0, bins - 3.0))[0]
    np.testing.assert_array_equal(counts, want + 7)


def test_the_ends_of_the_range():
    inside = np.nextafter(np.float32(1), np.float32(0))
    x = np.array([0, 1, inside, np.nan, -1e-30, np.inf], np.float32)
    counts = np.zeros(3, np.int32)
    counting.histogram(x, counts, low=0.0, high=1.0)
    assert counts.tolist() == [1, 0, 1]


def test_counting_without_atomics_is_a_race(tmp_path, monkeypatch):
    # Machine code does not look whether two iterations store one element.
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "emulate")
    text = (EXAMPLES / "histogram.py").read_text()
    atomic = "T.atomic_add(own[T.min(part, bins - 1)], 1)"
    assert text.count(atomic) == 1
    racy = tmp_path / "racy.py"
    racy.write_text(text.replace(atomic, "own[T.min(part, bins - 1)] += 1"))
    module = load(str(racy.with_suffix("")))
    x, counts = np.zeros(10, np.float32), np.zeros(3, np.int32)
    with pytest.raises(TileError, match="race"):
        module.histogram(x, counts, low=0.0, high=1.0)
