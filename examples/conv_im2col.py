"""A convolution as a matrix product: `T.im2col` gathers the patches of the image tile by tile.

Each output pixel is a row of the product, each (row, column, channel) of the filter an element of
K. The matrix of all patches, KH * KW times the image, is never stored.
"""

import numpy as np

import tilelang
import tilelang.language as T


def output_size(size, kernel, stride, dilation, pad):
    """How many places the filter takes along an axis of `size` pixels."""
    return (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1


@tilelang.jit(out_idx=-1)
def conv2d(image, filters, stride=1, dilation=1, pad=0, tiles=(64, 32, 32)):
    """A kernel for Y (pixels, F): `image` is (N, H, W, C), `filters` (R, R, C, F), all in fp16.

    `pixels` counts the outputs of all images, along H and then along W.
    """
    N, H, W, C = image
    R, _, _, F = filters
    BM, BN, BK = tiles
    rows, columns = (output_size(n, R, stride, dilation, pad) for n in (H, W))
    pixels, K = N * rows * columns, R * R * C

    @T.prim_func
    def kernel(
        Image: T.Tensor(image, "float16"),
        Filters: T.Tensor(filters, "float16"),
        Y: T.Tensor((pixels, F), "float32"),
    ):
        with T.Kernel(T.ceildiv(F, BN), T.ceildiv(pixels, BM), threads=128) as (bx, by):
            patches = T.alloc_shared((BM, BK), "float16")
            weights = T.alloc_shared((BK, BN), "float16")
            Y_f = T.alloc_fragment((BM, BN), "float32")
            flat = T.reshape(Filters, (K, F))  # the same memory, seen as a matrix
            T.clear(Y_f)
            for k in T.Pipelined(T.ceildiv(K, BK), num_stages=2):
                # Tile (by, k) of the matrix of patches; the border of `pad` pixels is 0.
                T.im2col(Image, patches, by, k, R, stride, dilation, pad)
                T.copy(flat[k * BK, bx * BN], weights)
                T.gemm(patches, weights, Y_f)
            T.copy(Y_f, Y[by * BM, bx * BN])

    return kernel


def reference(image, filters, stride, dilation, pad):
    """The convolution by its definition, in NumPy: one product per place in the filter."""
    R = filters.shape[0]
    wide = np.pad(image.astype(np.float32), ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    rows, columns = (output_size(n, R, stride, dilation, pad) for n in image.shape[1:3])
    total = np.zeros((image.shape[0], rows, columns, filters.shape[3]), np.float32)
    for r in range(R):
        for s in range(R):
            y, x = r * dilation, s * dilation
            seen = wide[:, y : y + rows * stride : stride, x : x + columns * stride : stride]
            total += seen[:, :rows, :columns] @ filters[r, s].astype(np.float32)
    return total


def main():
    """A 3x3 filter over two images: plain, padded, with stride, and dilated."""
    image, filters = (2, 13, 11, 8), (3, 3, 8, 40)
    random = np.random.default_rng(0)
    X, Weights = (random.integers(-4, 5, shape).astype(np.float16) for shape in (image, filters))
    cases = [(1, 1, 0), (1, 1, 1), (2, 1, 1), (2, 2, 3)]
    for stride, dilation, pad in cases:
        Y = conv2d(image, filters, stride, dilation, pad)(X, Weights)
        expected = reference(X, Weights, stride, dilation, pad)
        np.testing.assert_array_equal(Y.reshape(expected.shape), expected)
    print(f"conv_im2col: 3x3 over {image}, {len(cases)} kinds of stride, dilation and pad, exact")


if __name__ == "__main__":
    main()
