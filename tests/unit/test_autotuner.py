"""The tuner and the profiler, as public programs use them."""

# An eager kernel declares its parameters again, as tensors.
# pyright: reportRedeclaration=false

import pytest

import tilelang
import tilelang.language as T
from tilelang.autotuner import AutoTuner, set_autotune_inputs
from tilelang.errors import TileRuntimeError, TileValueError

torch = pytest.importorskip("torch")

CONFIGS = [{"block": 16}, {"block": 24}, {"block": 100}]
QUICK = {"warmup": 0, "rep": 1}


def double(N, block, wrong=-1):
    """Y = 2 X, but for one size of blocks where it is 3 X."""

    @T.prim_func
    def kernel(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
            for i in T.Parallel(block):
                Y[bx * block + i] = X[bx * block + i] * (3.0 if block == wrong else 2.0)

    return kernel


def reference(x):
    return 2 * x


@tilelang.autotune(configs=CONFIGS, **QUICK)
@tilelang.jit(out_idx=-1)
def lazy(N, block=16):
    return double(N, block)


@tilelang.autotune(configs=CONFIGS, **QUICK)
@tilelang.jit
def eager(X, block=16):
    N = T.const("N")
    X: T.Tensor((N,), "float32")
    Y = T.empty((N,), "float32")
    with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
        for i in T.Parallel(block):
            Y[bx * block + i] = X[bx * block + i] * 2.0
    return Y


def test_a_lazy_function_gives_its_fastest_kernel():
    kernel = lazy(127)
    assert kernel.config in CONFIGS and kernel.latency > 0
    x = torch.randn(127)
    torch.testing.assert_close(kernel(x), 2 * x)
    assert lazy(127) is kernel


def test_what_is_given_is_not_tuned():
    kernel = lazy(40, block=24)
    assert kernel.config is None
    with pytest.raises(TileValueError, match="not tuned"):
        kernel.get_tuner_result()


def test_settings_of_the_compiler_belong_to_a_configuration():
    configs = [{**c, "pass_configs": {"tl.disable_warp_specialized": True}} for c in CONFIGS]
    tuner = AutoTuner.from_kernel(lambda block: double(100, block), [*configs, CONFIGS[0]])
    tuner.set_compile_args(out_idx=-1, pass_configs={"tl.enable_fast_math": True})
    result = tuner.run(**QUICK)
    assert [bool(c.error) for c in result.candidates] == [False] * 4
    assert result.kernel.options.enable_fast_math
    tuned = "pass_configs" in result.config
    assert result.kernel.options.disable_warp_specialized == tuned


def test_one_given_parameter_leaves_the_others_at_their_defaults():
    @tilelang.autotune(configs=[{"block": 16, "threads": 32}, {"block": 24, "threads": 64}])
    @tilelang.jit(out_idx=-1)
    def kernel(n, block=8, threads=96):
        return double(n, block)

    assert kernel(40, block=24).config is None


@pytest.mark.parametrize("N", [1, 96])
def test_an_eager_function_is_tuned_by_its_call(N):
    x = torch.randn(N)
    torch.testing.assert_close(eager(x), 2 * x)


def test_an_eager_function_is_compiled_for_sizes_given_by_name():
    kernel = eager.compile(N=48)
    assert kernel.config in CONFIGS
    assert eager.compile(N=48) is kernel
    assert eager.compile(N=100) is not kernel
    assert eager.compile(N=48, block=24).config is None


def test_every_candidate_is_in_the_result_with_its_reason():
    tuner = AutoTuner.from_kernel(lambda block: double(100, block, wrong=24), CONFIGS)
    tuner.set_compile_args(out_idx=-1).set_profile_args(ref_prog=reference)
    result = tuner.run(**QUICK, enable_grouped_compile=True)
    assert [bool(c.error) for c in result.candidates] == [False, True, False]
    assert result.config != {"block": 24} and result.ref_latency > 0


def test_no_usable_candidate_is_an_error_with_the_reasons():
    tuner = AutoTuner.from_kernel(lambda block: double(100, block, wrong=block), CONFIGS)
    tuner.set_compile_args(out_idx=-1).set_profile_args(ref_prog=reference)
    with pytest.raises(TileRuntimeError, match="no configuration is usable"):
        tuner.run(**QUICK)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"configs": []}, "empty list"), ({"configs": CONFIGS, "warm": 3}, "unknown setting warm")],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(TileValueError, match=message):
        tilelang.autotune(**settings)(tilelang.jit(double))(100)


def test_the_profiler_runs_compares_and_times():
    kernel = tilelang.compile(double(100, 24), out_idx=-1)
    profiler = kernel.get_profiler()
    profiler.assert_allclose(reference)
    assert profiler.do_bench(warmup=0, rep=1) > 0
    x = torch.randn(100)
    torch.testing.assert_close(profiler.func(x), 2 * x)
    with pytest.raises(AssertionError):
        profiler.assert_allclose(lambda x: 3 * x)


def added(N=64, threads=32):
    @T.prim_func
    def kernel(A: T.Tensor((N,), "float32"), s: T.float32):
        with T.Kernel(1, threads=threads):
            for i in T.Parallel(N):
                A[i] += s

    return kernel


def test_a_scalar_parameter_is_given_and_never_made_up():  # 2084
    tuned = tilelang.autotune(configs=[{"threads": 32}, {"threads": 64}], **QUICK)(
        tilelang.jit(added)
    )
    with pytest.raises(ValueError, match="set_autotune_inputs"):
        tuned()
    with set_autotune_inputs(torch.zeros(64), 0.5):
        kernel = tuned()
    a = torch.zeros(64)
    kernel(a, 0.5)
    assert (a == 0.5).all()


def test_a_supply_gets_scalar_parameters_too():
    asked = []

    def supply(params):
        asked.extend((p.name, p.is_scalar()) for p in params)
        return [2.0 if p.is_scalar() else torch.zeros(p.shape) for p in params]

    tuner = AutoTuner.from_kernel(kernel=added, configs=[{"threads": 32}])
    tuner.set_compile_args(target="cpu").set_profile_args(supply_prog=supply)
    assert tuner.run(warmup=0, rep=1).config == {"threads": 32}
    assert asked[:2] == [("A", False), ("s", True)]
