"""Training in bfloat16 on NVIDIA GPUs: this project, hand-written JAX, Keras on JAX, PyTorch with `torch.compile`; as JSON.

`python benchmarks/bench_gpu.py [encoder resnet50] [--devices N] [--rounds 7] [--seconds 2] [--torch-python PATH] [--out FOLDER]`

Contenders take turns. It needs `pip install "tfdist-jax[cuda13]"`. PyTorch takes part on one GPU, in the interpreter of `--torch-python`
(this one if it is not given), so that its CUDA libraries can be of another environment. `--small` takes small models on the CPU, to see
that all of it runs.

The batch of hand-written JAX, of the custom loop and of PyTorch lies on the devices. Fed from the host in every step are hand-written JAX
again, `fit`, and Keras on JAX without this project. MFU counts a model's matrix products and convolutions, three times the forward pass,
against what the data sheet says for bfloat16.
"""

# pyright: basic
import os
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import contenders
import models
from _report import describe_machine, emit, parser
from _turns import command_of, find_quartiles, serve, take_turns

# A model of `models`, its rows on each device, what is counted of a row, and the operations of a row's forward pass.
WIDTH, DEPTH, HEADS, TOKENS = 768, 12, 12, 512
ENCODER = 2 * DEPTH * TOKENS * (12 * WIDTH**2 + 2 * TOKENS * WIDTH)
LARGE = {
    "encoder": (models.Model(32, (TOKENS,), models.make_encoder(WIDTH, DEPTH, HEADS), models.WORDS), "tokens", ENCODER),
    # Without those on the zeros around images.
    "resnet50": (models.MODELS["resnet50"]._replace(rows=128, shape=(224, 224, 3)), "images", 7.394e9),
}
SMALL = {
    "encoder": (models.Model(4, (16,), models.make_encoder(32, 2, 4), models.WORDS), "tokens", None),
    "resnet50": (models.MODELS["resnet50"]._replace(rows=4), "images", None),
}
RESIDENT, FED = ("hand-written", "custom loop", "pytorch"), ("hand-written, fed", "fit", "keras")


def make_contender(name, model, args):
    """Return what takes steps."""
    chosen = (SMALL if args.small else LARGE)[model][0]
    models.MODELS[model] = chosen._replace(rows=chosen.rows * args.devices)
    if name == "pytorch":
        import torch_models

        sizes = (32, 2, 4) if args.small else (WIDTH, DEPTH, HEADS)
        network = torch_models.ResNet50() if model == "resnet50" else torch_models.Encoder(*sizes)
        return torch_models.write_loop(network, models.MODELS[model].batch())
    if name == "keras":
        return _fit_with_keras(model, args)
    import tfdist_jax

    if args.small:
        tfdist_jax.use_cpu_devices(args.devices)
    import tfdist_jax.compat.tensorflow as tf

    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    if name.startswith("hand-written"):
        return contenders.hand_written(model, feed=name.endswith("fed"))[0]
    return (contenders.fit if name == "fit" else contenders.custom_loop)(tf, model)[0]


def _fit_with_keras(model, args):
    os.environ["KERAS_BACKEND"] = "jax"
    import jax

    if args.small:
        jax.config.update("jax_num_cpu_devices", args.devices)
    import keras

    keras.config.set_dtype_policy("mixed_bfloat16")
    if args.devices > 1:
        keras.distribution.set_distribution(keras.distribution.DataParallel())
    network = models.make_model(keras, model)
    network.compile(keras.optimizers.Adam(1e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    batch = models.MODELS[model].batch()

    def repeat():
        while True:
            yield batch

    return lambda steps: network.fit(repeat(), steps_per_epoch=steps, epochs=1, verbose=0)


def measure(model, args, gpu):
    """Return how fast each contender trains a model."""
    own = [model, "--devices", args.devices, *(["--small"] if args.small else [])]
    commands = {name: command_of(__file__, *own, "--worker", name) for name in (*RESIDENT, *FED)}
    if reason := _find_reason_against_torch(args):
        del commands["pytorch"]
    else:
        commands["pytorch"][0] = args.torch_python
    env = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **({"JAX_PLATFORMS": "cpu"} if args.small else {})}
    times = take_turns(commands, args.rounds, args.seconds, env=env)
    return {"left_out": {"pytorch": reason} if reason else {}, **summarize(model, times, args, gpu)}


def _find_reason_against_torch(args):
    if args.devices > 1:
        return "takes part on one GPU only"
    command = [args.torch_python, "-c", "import torch, numpy"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        return f"{args.torch_python} cannot import torch and numpy"
    return ""


def summarize(model, times, args, gpu):
    """Return milliseconds, rows or tokens per second, MFU, and speeds of hand-written JAX and of Keras, round by round."""
    from tfdist_jax._hardware import find_hardware

    chosen, unit, forward = (SMALL if args.small else LARGE)[model]
    rows = chosen.rows * args.devices
    counted = rows * (chosen.shape[0] if unit == "tokens" else 1)
    hardware = find_hardware(gpu)
    peak = hardware and hardware.flops
    result = {"ms_per_step": {}, f"{unit}_per_second": {}, "mfu": {}, "speed_of_hand_written": {}}
    for name, seconds in times.items():
        base = times["hand-written" if name in RESIDENT else "hand-written, fed"]
        middle = statistics.median(seconds)
        result["ms_per_step"][name] = find_quartiles([1000 * each for each in seconds])
        result[f"{unit}_per_second"][name] = round(counted / middle)
        if peak and forward:
            result["mfu"][name] = round(3 * forward * rows / middle / (peak * args.devices), 3)
        result["speed_of_hand_written"][name] = _find_ratios(base, seconds)
    result["fit_times_as_fast_as_keras"] = _find_ratios(times["keras"], times["fit"])
    if "pytorch" in times:
        result["loop_times_as_fast_as_pytorch"] = _find_ratios(times["pytorch"], times["custom loop"])
    return result


def _find_ratios(others, own):
    return find_quartiles([other / mine for other, mine in zip(others, own, strict=True)])


def _name_gpu():
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    return listed.stdout.splitlines()[0].strip()


def main():
    """Measure and print."""
    options = parser(__doc__, rounds=7)
    options.set_defaults(devices=None)
    options.add_argument("models", nargs="*", help=f"{', '.join(LARGE)} if none is named")
    options.add_argument("--seconds", type=float, default=2.0, help="about how long a contender takes steps in a round")
    options.add_argument("--torch-python", default=sys.executable, help="the interpreter that has PyTorch")
    options.add_argument("--small", action="store_true", help="small models on the CPU")
    options.add_argument("--worker")
    args = options.parse_args()
    if unknown := set(args.models) - set(LARGE):
        options.error(f"There is no model {', '.join(sorted(unknown))}; there are {', '.join(LARGE)}.")
    if args.worker:
        serve(lambda: make_contender(args.worker, args.models[0], args))
        return
    from tfdist_jax import _nvidia

    gpus = _nvidia.gpus()
    if not (gpus or args.small):
        options.error("There is no NVIDIA GPU that CUDA would use. `--small` runs small models on the CPU.")
    args.devices = args.devices or (1 if args.small else len(gpus))
    gpu = "CPU" if args.small else _name_gpu()
    for model in args.models or LARGE:
        about = {"model": model, "devices": args.devices, "device": gpu, "rounds": args.rounds}
        result = {**about, **describe_machine("jax", "keras"), **measure(model, args, gpu)}
        emit(result, args.out and args.out / f"gpu_{model}_{args.devices}.json")


if __name__ == "__main__":
    main()
