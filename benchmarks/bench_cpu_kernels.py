"""Pooling, convolutions and their gradients on CPU: as this project lowers them, as XLA does and under TensorFlow, in turn; as JSON.

`python benchmarks/bench_cpu_kernels.py [--rounds 15] [--out benchmarks/results/cpu_kernels.json]`

Milliseconds are medians; `xla / ours` and `tensorflow / ours` are medians of the ratios within a round.
"""

import os
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from _report import describe_machine, emit, parser

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

# Rows, height and width, channels in and out, size of the window, strides.
CONVOLUTIONS = {
    "1x1, wide": ("plain", 16, 56, 64, 256, 1, 1),
    "1x1, strided": ("plain", 32, 32, 64, 128, 1, 2),
    "3x3": ("plain", 32, 32, 64, 64, 3, 1),
    "3x3, strided": ("plain", 32, 32, 64, 128, 3, 2),
    "5x5 transposed, strided": ("transposed", 64, 7, 128, 64, 5, 2),
    "2x2 transposed, strided": ("transposed", 8, 32, 128, 64, 2, 2),
    "3x3 depthwise": ("depthwise", 32, 32, 96, 96, 3, 1),
    "3x3 depthwise, strided": ("depthwise", 32, 32, 144, 144, 3, 2),
    "3x3 depthwise, small": ("depthwise", 32, 8, 384, 384, 3, 1),
    "5x5 depthwise": ("depthwise", 8, 56, 64, 64, 5, 1),
    "3x3 in 32 groups": ("groups", 32, 16, 128, 128, 3, 1),
}
POOLS = {
    "2x2": (128, 28, 32, 2, 2),
    "3x3, strided": (16, 56, 64, 3, 2),
    "3x3": (32, 16, 128, 3, 1),
    "2x2, overlapping": (32, 16, 128, 2, 1),
}
GROUPS = 32
# As XLA computes convolutions where nobody says otherwise.
BY_YNNPACK: dict[str, str | bool] = {
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_CONVOLUTION"
}


def draw(*shape):
    """Return random numbers."""
    import numpy as np

    return np.random.default_rng(len(shape)).normal(size=shape).astype("f4")


def list_convolutions():
    """Return functions of JAX and TensorFlow with their arguments, by name."""
    import jax
    import tensorflow as tf
    from jax import lax

    layout, cases = ("NHWC", "HWIO", "NHWC"), {}
    for name, (kind, rows, size, inputs, outputs, window, strides) in CONVOLUTIONS.items():
        groups = {"depthwise": inputs, "groups": GROUPS}.get(kind, 1)
        image, kernel = draw(rows, size, size, inputs), draw(window, window, inputs // groups, outputs)
        if kind == "transposed":
            convolve = lambda x, k, s=strides: lax.conv_transpose(x, k, (s, s), "SAME", dimension_numbers=layout)
            other = lambda x, k, s=strides, size=size * strides: tf.nn.conv2d_transpose(
                x, tf.transpose(k, (0, 1, 3, 2)), tf.stack((x.shape[0], size, size, k.shape[3])), s, "SAME"
            )
        else:
            convolve = lambda x, k, s=strides, groups=groups: lax.conv_general_dilated(
                x, k, (s, s), "SAME", dimension_numbers=layout, feature_group_count=groups
            )
            other = lambda x, k, s=strides: tf.nn.conv2d(x, k, s, "SAME")
            if kind == "depthwise":
                other = lambda x, k, s=strides: tf.nn.depthwise_conv2d(
                    x, tf.transpose(k, (0, 1, 3, 2)), (1, s, s, 1), "SAME"
                )
        slope = draw(*jax.eval_shape(convolve, image, kernel).shape)
        cases[name] = (convolve, other, (image, kernel))
        cases[f"{name}, gradient of the image"] = (
            lambda k, g, f=convolve, x=image: jax.linear_transpose(lambda x: f(x, k), x)(g)[0],
            lambda k, g, f=other, x=image: differentiate(lambda x: f(x, k), tf.convert_to_tensor(x), g),
            (kernel, slope),
        )
        cases[f"{name}, gradient of the kernel"] = (
            lambda x, g, f=convolve, k=kernel: jax.linear_transpose(lambda k: f(x, k), k)(g)[0],
            lambda x, g, f=other, k=kernel: differentiate(lambda k: f(x, k), tf.convert_to_tensor(k), g),
            (image, slope),
        )
    return cases


def list_pools():
    """Return functions of JAX and TensorFlow with their arguments, by name."""
    import jax
    import numpy as np
    import tensorflow as tf
    from jax import lax

    cases = {}
    for name, (rows, size, channels, window, strides) in POOLS.items():
        image = draw(rows, size, size, channels)
        for kind, fold, start, other in (
            ("largest", lax.max, -np.inf, tf.nn.max_pool2d),
            ("mean", lax.add, 0.0, tf.nn.avg_pool2d),
        ):
            pool = lambda x, fold=fold, start=start, w=window, s=strides: lax.reduce_window(
                x, start, fold, (1, w, w, 1), (1, s, s, 1), "SAME"
            )
            theirs = lambda x, other=other, w=window, s=strides: other(x, w, s, "SAME")
            slope = draw(*jax.eval_shape(pool, image).shape)
            cases[f"{kind} of {name}"] = (pool, theirs, (image,))
            cases[f"{kind} of {name}, gradient"] = (
                lambda x, g, f=pool: jax.vjp(f, x)[1](g)[0],
                lambda x, g, f=theirs: differentiate(f, x, g),
                (image, slope),
            )
    return cases


def differentiate(fn, x, slope):
    """Return the gradient by TensorFlow's tape."""
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch(x)
        y = fn(x)
    return tape.gradient(y, x, slope)


def measure(ours, theirs, args, rounds):
    """Return milliseconds of this project, XLA and TensorFlow, and ratios."""
    import jax
    import tensorflow as tf

    from tfdist_jax import _cpu_kernels

    arrays, tensors = [jax.numpy.asarray(x) for x in args], [tf.constant(x) for x in args]
    compiled = jax.jit(lambda *args: ours(*args)).lower(*arrays).compile()
    _cpu_kernels.uninstall()
    by_xla = jax.jit(lambda *args: ours(*args)).lower(*arrays).compile(compiler_options=BY_YNNPACK)
    _cpu_kernels.install()
    function = tf.function(theirs, autograph=False)
    runs = {
        "ours": lambda: jax.block_until_ready(compiled(*arrays)),
        "xla": lambda: jax.block_until_ready(by_xla(*arrays)),
        "tensorflow": lambda: function(*tensors).numpy(),
    }
    times = {name: [] for name in runs}
    for i in range(rounds + 2):  # The first ones warm up.
        order = [*runs]
        for name in order[i % 3 :] + order[: i % 3]:
            started = time.perf_counter()
            runs[name]()
            if i > 1:
                times[name].append((time.perf_counter() - started) * 1e3)
    ratio = lambda name: statistics.median(a / b for a, b in zip(times[name], times["ours"], strict=True))
    medians = {name: round(statistics.median(each), 3) for name, each in times.items()}
    return medians | {f"{name} / ours": round(ratio(name), 2) for name in ("xla", "tensorflow")}


def main():
    """Measure and print."""
    args = parser(__doc__, rounds=15).parse_args()

    import jax

    jax.config.update("jax_platforms", "cpu")
    cases = list_convolutions() | list_pools()
    results = {name: measure(ours, theirs, arrays, args.rounds) for name, (ours, theirs, arrays) in cases.items()}
    emit({"rounds": args.rounds, **describe_machine("jax", "tensorflow"), "ms": results}, args.out)


if __name__ == "__main__":
    main()
