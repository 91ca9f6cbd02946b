"""Pooling and convolutions on CPU by other programs than XLA's: which are used, and that the numbers are XLA's."""

import contextlib
import functools
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

from tfdist_jax import _cpu_kernels, _internals

examples = settings(max_examples=4 * int(os.environ.get("TFDIST_EXAMPLES", "3")), deadline=None, derandomize=True)


@contextlib.contextmanager
def by_xla():
    _cpu_kernels.uninstall()
    try:
        yield
    finally:
        _cpu_kernels.install()


def compute(fn, *args, other=None):
    """Return what a function gives, and what it, or another one, gives as XLA lowers it."""
    found = jax.jit(lambda *args: fn(*args))(*args)
    with by_xla():
        wanted = jax.jit(lambda *args: (other or fn)(*args))(*args)
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    # NumPy does not know that NaN is NaN in 16 bits.
    return tuple(
        np.asarray(each.astype(each.dtype if each.dtype.itemsize > 2 else np.float32)) for each in (found, wanted)
    )


def assert_close(found, wanted, *, relative):
    """Compare with the largest number that is wanted."""
    np.testing.assert_allclose(found, wanted, rtol=0, atol=relative * np.abs(wanted).max(initial=1e-30))


def draw_array(seed, shape, dtype=np.float64):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), dtype)


def in_order(kernel_layout):
    """Return the spatial axes in the order in which strides and padding are given."""
    return [name for name in kernel_layout if name in "XYZ"]


@st.composite
def convolutions(draw):
    """Draw shapes of image and kernel, and the arguments of `conv_general_dilated`."""
    rank = draw(st.sampled_from([1, 2, 2, 2, 3]))
    several = lambda values: draw(st.lists(st.sampled_from(values), min_size=rank, max_size=rank))
    kind = draw(st.sampled_from(["one position", "transposed", "depthwise", "groups", "any"]))
    groups = {"depthwise": draw(st.integers(2, 5)), "groups": draw(st.integers(2, 3))}.get(kind, 1)
    inputs = 1 if kind == "depthwise" else draw(st.sampled_from([1, 2, 9]))
    outputs = draw(st.sampled_from([1, 2] if kind == "depthwise" else [1, 3, 8]))
    sizes = several([1, 3, 5] if rank == 3 else [1, 4, 7, 17, 18])
    window = [1] * rank if kind == "one position" else several([1, 2, 3, 5])
    dilation = several([1, 2, 3]) if kind == "transposed" or draw(st.booleans()) else [1] * rank
    strides = several([1, 1, 2, 3]) if kind != "transposed" else [1] * rank
    kernel_dilation = several([1, 1, 2])
    padding = draw(st.lists(st.tuples(st.integers(-1, 2), st.integers(-1, 3)), min_size=rank, max_size=rank))
    spatial = "XYZ"[:rank]
    layouts = [
        "".join(draw(st.permutations(names))) if draw(st.booleans()) else names
        for names in (f"N{spatial}C", f"{spatial}IO", f"N{spatial}C")
    ]
    image = dict(zip(spatial, sizes, strict=True)) | {"N": draw(st.sampled_from([1, 2, 3, 4])), "C": inputs * groups}
    kernel = dict(zip(spatial, window, strict=True)) | {"I": inputs, "O": outputs * groups}
    axes = in_order(layouts[1])
    sizes, window = [image[name] for name in axes], [kernel[name] for name in axes]
    for size, width, apart, kernel_apart, around in zip(sizes, window, dilation, kernel_dilation, padding, strict=True):
        assume((size - 1) * apart + 1 + sum(around) >= (width - 1) * kernel_apart + 1)
        assume(size + min(around) > 0)
    return (
        [image[name] for name in layouts[0]],
        [kernel[name] for name in layouts[1]],
        {
            "window_strides": strides,
            "padding": padding,
            "lhs_dilation": dilation,
            "rhs_dilation": kernel_dilation,
            "dimension_numbers": tuple(layouts),
            "feature_group_count": groups,
        },
    )


def transpose(convolve, image, kernel):
    """Return the functions that convolve, and that give the gradients of both arguments, with their arguments."""
    slope = draw_array(2, jax.eval_shape(convolve, image, kernel).shape, image.dtype)
    return {
        "forward": (convolve, image, kernel),
        "image": (lambda k, g: jax.linear_transpose(lambda x: convolve(x, k), image)(g)[0], kernel, slope),
        "kernel": (lambda x, g: jax.linear_transpose(lambda k: convolve(x, k), kernel)(g)[0], image, slope),
    }


def pad_first(image, kernel, *, padding, lhs_dilation, **options):
    """Convolve an image that has its padding already: the one that is part of a convolution XLA may get wrong, if negative."""
    image_layout, kernel_layout, _ = options["dimension_numbers"]
    around = dict(zip(in_order(kernel_layout), zip(padding, lhs_dilation, strict=True), strict=True))
    layout = [(*low_high, apart - 1) for low_high, apart in (around.get(axis, ((0, 0), 1)) for axis in image_layout)]
    return lax.conv_general_dilated(
        lax.pad(image, np.zeros((), image.dtype), layout), kernel, padding="VALID", **options
    )


@pytest.mark.parametrize(("dtype", "relative"), [(np.float64, 1e-13), (np.float32, 2e-6)])
@examples
@given(drawn=convolutions())
def test_convolutions_and_their_gradients_are_those_of_xla(dtype, relative, drawn):
    image_shape, kernel_shape, options = drawn
    with jax.enable_x64(True):
        arrays = draw_array(0, image_shape, dtype), draw_array(1, kernel_shape, dtype)
        ours = transpose(functools.partial(lax.conv_general_dilated, **options), *arrays)
        others = transpose(functools.partial(pad_first, **options), *arrays)
        for (fn, *args), (other, *_) in zip(ours.values(), others.values(), strict=True):
            assert_close(*compute(fn, *args, other=other), relative=relative)


@pytest.mark.parametrize("padding", [(-2, 1), (-3, 2), (1, -2), (-1, -1), (-4, 8)])
@pytest.mark.parametrize("apart", [1, 2])
def test_negative_padding_takes_elements_away(padding, apart):
    """XLA of jaxlib 0.10 computes with what lies behind the image in memory."""
    image, kernel = draw_array(0, (1, 5, 3), np.float32), draw_array(1, (1, 3, 2), np.float32)
    found = jax.jit(
        lambda image, kernel: lax.conv_general_dilated(
            image, kernel, (1,), [padding], lhs_dilation=(apart,), dimension_numbers=("NWC", "WIO", "NWC")
        )
    )(image, kernel)
    wanted = lax.pad(image, np.float32(0), [(0, 0, 0), (*padding, apart - 1), (0, 0, 0)]) @ kernel[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@st.composite
def pools(draw):
    """Draw a shape and the arguments of `reduce_window`."""
    rank = draw(st.sampled_from([1, 2, 2, 3]))
    several = lambda values: draw(st.lists(st.sampled_from(values), min_size=rank, max_size=rank))
    window, strides = several([1, 2, 3]), several([1, 2, 3, 4])
    padding = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=rank, max_size=rank))
    sizes = several([3, 4, 7])
    where = draw(st.integers(0, rank))  # The batch lies before, the channels after the spatial axes, or elsewhere.
    put = lambda values, outer, inner: (*values[:where], outer, *values[where:], inner)
    return put(sizes, 2, 3), put(window, 1, 1), put(strides, 1, 1), put(padding, (0, 0), (0, 0))


def draw_ties(shape, dtype, specials=()):
    """Return few different numbers, some of them special ones."""
    rng = np.random.default_rng(0)
    values = rng.integers(-2, 3, shape).astype(np.float64)
    for special in specials:
        values[rng.random(shape) < 0.1] = special
    return jnp.asarray(values, dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, jnp.bfloat16, np.float16, np.int32])
@examples
@given(drawn=pools(), largest=st.booleans())
def test_gradients_of_pooling_go_where_xla_puts_them_bit_for_bit(dtype, drawn, largest):
    shape, window, strides, padding = drawn
    with jax.enable_x64(True):
        specials = () if dtype is np.int32 else (np.nan, np.inf, -np.inf, -0.0)
        image = draw_ties(shape, dtype, specials)
        select = lax.ge_p if largest else lax.le_p
        pool = lambda x: lax.reduce_window(
            x, *((-np.inf, lax.max) if largest else (np.inf, lax.min)), window, strides, padding
        )
        slope = draw_array(1, jax.eval_shape(pool, image.astype(np.float32)).shape).astype(dtype)
        scatter = lambda slope, image: lax.select_and_scatter_add_p.bind(
            slope, image, select_prim=select, window_dimensions=window, window_strides=strides, padding=padding
        )
        np.testing.assert_array_equal(*compute(scatter, slope, image))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, jnp.bfloat16, np.int32])
@examples
@given(drawn=pools())
def test_pooling_gives_what_xla_gives(dtype, drawn):
    shape, window, strides, padding = drawn
    with jax.enable_x64(True):
        image = draw_ties(shape, dtype, () if dtype is np.int32 else (np.nan, np.inf, -np.inf, -0.0))
        low, high = (np.iinfo(dtype).min, np.iinfo(dtype).max) if dtype is np.int32 else (-np.inf, np.inf)
        for start, fold in ((low, lax.max), (high, lax.min)):
            start = np.asarray(start, dtype)
            pool = lambda x, start=start, fold=fold: lax.reduce_window(x, start, fold, window, strides, padding)
            found, wanted = compute(pool, image)
            np.testing.assert_array_equal(found, wanted)
        add = lambda x: lax.reduce_window(x, np.zeros((), dtype), lax.add, window, strides, padding)
        relative = 1e-6 if dtype is np.float32 else 1e-14
        assert_close(*compute(add, draw_ties(shape, dtype)), relative=relative)


IMAGE = (4, 8, 8, 16)


def convolve_with(kernel_shape, strides=1, groups=1):
    layout = ("NHWC", "HWIO", "NHWC")
    convolve = lambda x, k: lax.conv_general_dilated(
        x, k, (strides, strides), "SAME", dimension_numbers=layout, feature_group_count=groups
    )
    return convolve, draw_array(0, IMAGE, np.float32), draw_array(1, kernel_shape, np.float32)


def convolve_transposed(kernel_shape, strides):
    convolve = lambda x, k: lax.conv_transpose(
        x, k, (strides, strides), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return convolve, draw_array(0, IMAGE, np.float32), draw_array(1, kernel_shape, np.float32)


def count_ops(fn, *args):
    """Return how many convolutions, windowed operations and loops are in a lowered program, and how many of XLA's own."""
    names = ("stablehlo.convolution", "stablehlo.dot_general", "stablehlo.while", "reduce_window", "select_and_scatter")
    count = lambda: [jax.jit(lambda *args: fn(*args)).lower(*args).as_text().count(name) for name in names]
    found = count()
    with by_xla():
        return found, count()


XLA_CONVOLUTION = [1, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("case", "forward", "image", "kernel"),
    [
        (convolve_with((1, 1, 16, 8)), [0, 1, 0, 0, 0], [0, 1, 0, 0, 0], [0, 1, 0, 0, 0]),
        (convolve_with((1, 1, 16, 8), strides=2), [0, 1, 0, 0, 0], [0, 1, 0, 0, 0], [0, 1, 0, 0, 0]),
        (convolve_with((3, 3, 1, 16), groups=16), [0] * 5, [0] * 5, [0, 0, 1, 0, 0]),
        (convolve_with((3, 3, 1, 16), strides=2, groups=16), [0] * 5, [0] * 5, [0, 0, 1, 0, 0]),
        (convolve_with((3, 3, 4, 8), groups=4), [4, 0, 0, 0, 0], [4, 0, 0, 0, 0], [4, 0, 0, 0, 0]),
        (convolve_transposed((3, 3, 16, 8), strides=2), XLA_CONVOLUTION, XLA_CONVOLUTION, [0, 9, 0, 0, 0]),
        # What XLA does well stays.
        (convolve_with((3, 3, 16, 8)), XLA_CONVOLUTION, XLA_CONVOLUTION, XLA_CONVOLUTION),
        (convolve_with((5, 5, 16, 8), strides=2), XLA_CONVOLUTION, XLA_CONVOLUTION, XLA_CONVOLUTION),
    ],
)
def test_the_form_is_chosen_by_shape(case, forward, image, kernel):
    for wanted, (fn, *args) in zip((forward, image, kernel), transpose(*case).values(), strict=True):
        assert count_ops(fn, *args) == (wanted, XLA_CONVOLUTION)


@pytest.mark.parametrize("height", [6, 17])
@pytest.mark.parametrize("strides", [1, 2])
def test_infinite_numbers_spread_as_in_xlas_convolution_by_channel(height, strides):
    """Also where they meet the zeros around the image; those between elements, by which XLA multiplies, are left out."""
    convolve, _, kernel = convolve_with((3, 3, 1, 4), strides, groups=4)
    image = draw_array(0, (2, height, 6, 4), np.float32)
    slope = draw_array(2, convolve(image, kernel).shape, np.float32)
    _, by_image, by_kernel = transpose(convolve, image, kernel).values()
    for fn, *args in (
        (convolve, image.at[0, -1, 0, 1].set(np.inf), kernel.at[0, 0, 0, 0].set(np.inf)),
        (by_image[0], kernel.at[0, 0, 0, 0].set(np.nan), slope.at[1, 0, 0, 1].set(-np.inf)),
        (by_kernel[0], image.at[0, -1, 0, 1].set(np.inf), slope.at[1, 0, 0, 2].set(np.inf)),
    ):
        found, wanted = compute(fn, *args)
        is_same = np.isfinite(wanted) | (strides == 1)
        assert is_same.any() and not np.isfinite(found).all()
        np.testing.assert_allclose(found[is_same], wanted[is_same], rtol=1e-4, atol=1e-4)


def test_gradients_within_shard_map_have_the_same_forms():
    convolve, image, kernel = convolve_with((1, 1, 16, 8), strides=2)
    mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Auto,))
    gradient = jax.grad(lambda x, k: (convolve(x, k) ** 2).sum(), (0, 1))
    mapped = jax.shard_map(
        gradient, mesh=mesh, in_specs=(P("data"), P()), out_specs=(P("data"), P("data")), check_vma=False
    )
    assert count_ops(mapped, image, kernel) == ([0, 3, 0, 0, 0], [3, 0, 0, 0, 0])


def pool_of(fold, start, window, strides):
    return lambda x: lax.reduce_window(x, start, fold, (1, window, window, 1), (1, strides, strides, 1), "SAME")


@pytest.mark.parametrize(
    ("window", "strides", "folded"), [(2, 2, False), (2, 1, False), (3, 2, True), (3, 1, True), (7, 1, False)]
)
def test_pooling_is_folded_where_windows_overlap_and_are_small(window, strides, folded):
    image = draw_array(0, IMAGE, np.float32)
    for fold, start in ((lax.max, -np.inf), (lax.min, np.inf), (lax.add, 0.0)):
        found, wanted = count_ops(pool_of(fold, start, window, strides), image)
        assert (found[3], wanted[3]) == (0 if folded else 1, 1)
    gradient = jax.grad(lambda x: pool_of(lax.max, -np.inf, window, strides)(x).sum())
    found, wanted = count_ops(gradient, image)
    assert (found[4], wanted[4]) == (1 if window == 7 else 0, 1)


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_programs_for_accelerators_do_not_change(platform):
    convolve, image, kernel = convolve_with((3, 3, 1, 16), groups=16)
    loss = lambda x, k: pool_of(lax.max, -np.inf, 3, 2)(convolve(x, k)).sum()
    lower = lambda: (
        jax.jit(lambda x, k: jax.grad(loss, (0, 1))(x, k))
        .trace(image, kernel)
        .lower(lowering_platforms=(platform,))
        .as_text()
    )
    ours = lower()
    with by_xla():
        assert lower() == ours and "stablehlo.convolution" in ours


def test_batches_that_are_sharded_or_mapped_give_the_same():
    convolve, image, kernel = convolve_with((3, 3, 1, 16), groups=16)
    loss = lambda x, k: jnp.tanh(pool_of(lax.max, -np.inf, 3, 2)(convolve(x, k))).sum()
    _, wanted = compute(lambda x, k: jax.grad(loss, 1)(x, k), image, kernel)
    mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Auto,))
    rows = jax.device_put(image, NamedSharding(mesh, P("data")))
    assert_close(jax.jit(jax.grad(loss, 1))(rows, kernel), wanted, relative=1e-5)
    sums = jax.shard_map(
        lambda x, k: lax.psum(jax.grad(loss, 1)(x, k), "data"),
        mesh=mesh,
        in_specs=(P("data"), P()),
        out_specs=P(),
        check_vma=False,
    )
    assert_close(jax.jit(sums)(image, kernel), wanted, relative=1e-5)
    mapped = jax.jit(jax.vmap(jax.grad(loss, 1), (0, None)))(image[:, None], kernel)
    assert_close(mapped.sum(0), wanted, relative=1e-5)


def test_axes_that_are_sharded_by_type_are_left_to_xla():
    mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Explicit,))
    convolve, image, kernel = convolve_with((3, 3, 1, 16), groups=16)
    with jax.set_mesh(mesh):
        rows, kernel = jax.device_put(image, P("data")), jax.device_put(kernel, P())
        assert "stablehlo.convolution" in jax.jit(convolve).lower(rows, kernel).as_text()


def test_a_variable_turns_the_kernels_off(run_script):
    program = """
        import jax, tfdist_jax
        from jax import lax
        pool = lambda x: lax.reduce_window(x, -float("inf"), lax.max, (5,), (1,), "SAME")
        print("reduce_window" in jax.jit(pool).lower(jax.numpy.ones(8)).as_text())
    """
    assert run_script(program).stdout == "False\n"
    assert run_script(program, env={"TFDIST_CPU_KERNELS": "off"}).stdout == "True\n"


@pytest.mark.parametrize(
    ("env", "by_ynnpack"),
    [
        ({}, False),
        ({"XLA_FLAGS": "--xla_cpu_use_xnnpack=false"}, False),
        ({"XLA_FLAGS": "--xla_cpu_experimental_ynn_fusion_type=individual_convolution"}, True),
        ({"TFDIST_CPU_KERNELS": "off"}, True),
    ],
)
def test_convolutions_are_eigens_unless_the_user_decides(run_script, env, by_ynnpack):
    program = """
        import os
        flags = os.environ.get("XLA_FLAGS")
        import jax, jax.numpy as jnp, tfdist_jax
        from jax import lax
        convolve = lambda x, k: lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        compiled = jax.jit(convolve).lower(jnp.ones((8, 16, 16, 32)), jnp.ones((3, 3, 32, 32))).compile()
        print("ynn" in compiled.as_text(), os.environ.get("XLA_FLAGS") == flags)
    """
    ran = run_script(program, env=env)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == [str(by_ynnpack), "True"]


def test_installing_again_changes_nothing_about_how_the_client_is_made():
    made_by = _internals._xla_bridge._backend_factories["cpu"]
    for _ in range(3):
        with by_xla():
            pass
    assert _internals._xla_bridge._backend_factories["cpu"] is made_by
