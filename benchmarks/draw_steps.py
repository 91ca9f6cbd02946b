"""The README's table and picture of what training steps cost, from `benchmarks/results/steps_*_{1,4}.json`.

`python benchmarks/draw_steps.py`, after `bench_steps.py --out benchmarks/results` and the same with `--devices 1`.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

sys.path.insert(0, str(Path(__file__).parent))
from bench_steps import MODELS
from models import MODELS as BUILT

ROOT = Path(__file__).parents[1]
TITLES = {
    "mlp": "MLP",
    "cnn": "CNN",
    "dcgan": "DCGAN",
    "resnet": "ResNet, 3 stages",
    "resnet18": "ResNet-18",
    "resnet50": "ResNet-50",
    "mobilenet": "MobileNetV2",
    "lstm": "LSTM",
    "transformer": "Transformer",
}
MEASURES = {"speed of hand-written JAX": "speed_of_hand_written", "speed of TensorFlow": "times_faster_than_tensorflow"}
COLORS = {"fit": "tab:blue", "custom loop": "tab:orange"}
DEVICES = {1: "one device", 4: "four virtual devices"}
BEGIN, END = "<!-- steps: benchmarks/draw_steps.py writes this table -->", "<!-- end of steps -->"


def load(devices: int) -> dict[str, Any]:
    """Return what was measured of each model."""
    folder = ROOT / "benchmarks/results"
    return {model: json.loads((folder / f"steps_{model}_{devices}.json").read_text()) for model in MODELS}


def write_cells(result: Any) -> Iterator[str]:
    """Give a model's cells of the table for a number of devices."""
    yield f"{result['ms_per_step'][result['faster_hand_written']]['median']:.3g} ms"
    for key in MEASURES.values():
        yield " / ".join(f"{result[key][name]['median']:.2f}" for name in COLORS)


def write_table(results: dict[int, dict[str, Any]]) -> str:
    """Return the table."""
    columns = [
        title
        for devices in results
        for title in (f"hand-written JAX, {DEVICES[devices]}", "speed of it", "speed of TensorFlow")
    ]
    lines = [["step", *columns], ["---"] * (1 + len(columns))]
    for model in MODELS:
        cells = (cell for each in results.values() for cell in write_cells(each[model]))
        lines.append([f"{TITLES[model]}, {BUILT[model].rows} rows", *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def draw(results: dict[int, dict[str, Any]], path: Path) -> None:
    """Draw medians of the ratios, and quartiles, one line a model."""
    figure, rows = plt.subplots(2, 2, figsize=(9, 8), sharex="col", sharey=True, layout="constrained")
    for axes, (devices, models) in zip(rows, results.items(), strict=True):
        for axis, (title, key) in zip(axes, MEASURES.items(), strict=True):
            draw_ratios(axis, [result[key] for result in models.values()])
            axis.set_title(f"{title}, {DEVICES[devices]}")
        axes[0].set_yticks(range(len(models)), [TITLES[model] for model in models])
    rows[0][0].invert_yaxis()
    rows[0][1].legend(loc="lower right")
    figure.savefig(path, dpi=110)


def draw_ratios(axis: Any, ratios: list[Any]) -> None:
    """Draw one line for each model."""
    for shift, (name, color) in zip((-0.15, 0.15), COLORS.items(), strict=True):
        medians = [each[name]["median"] for each in ratios]
        errors = [[abs(each[name]["median"] - each[name]["quartiles"][end]) for each in ratios] for end in (0, 1)]
        lines = [line + shift for line in range(len(ratios))]
        axis.errorbar(medians, lines, xerr=errors, fmt="o", color=color, markersize=5, capsize=2, label=name)
    axis.axvline(1, color="gray", linewidth=1)
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_xticks([0.5, 1, 2, 5, 10, 20], minor=False)
    axis.minorticks_off()
    axis.grid(axis="x", alpha=0.3)


def main() -> None:
    """Write both."""
    results = {devices: load(devices) for devices in DEVICES}
    readme = ROOT / "README.md"
    text, count = re.subn(
        f"{re.escape(BEGIN)}.*?{re.escape(END)}",
        f"{BEGIN}\n\n{write_table(results)}\n\n{END}",
        readme.read_text(),
        flags=re.DOTALL,
    )
    if count != 1:
        raise SystemExit(f"README.md has {count} places between {BEGIN!r} and {END!r}; it must have one.")
    readme.write_text(text)
    draw(results, ROOT / "docs/steps.png")


if __name__ == "__main__":
    main()
