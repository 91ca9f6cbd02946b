"""Which share of published training code needs no TensorFlow name that is missing here, as `tfdist-jax lint` reads it.

`python benchmarks/measure_compatibility.py [--folder F] [--out benchmarks/results/compatibility.json]` downloads packages from
PyPI into a folder, unpacks them, runs nothing of them, and prints JSON. A file counts if it imports TensorFlow or Keras and trains or
distributes: it calls `fit`, or has a `GradientTape`, `tf.distribute` or a `train_step`. Unit tests (`*_test.py`) do not count.
"""

import argparse
import collections
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from _report import emit

from tfdist_jax.cli._lint import examine

PACKAGES = (
    "autokeras==1.0.20 edward2==0.0.2 keras-cv==0.6.4 keras-nlp==0.6.4 keras-rl2==1.0.5 keras-tuner==1.4.8 keras-unet==0.1.2 "
    "larq==0.14.0 neural-structured-learning==1.4.0 spektral==1.3.1 tensorflow-addons==0.23.0 tensorflow-gan==2.1.0 "
    "tensorflow-model-optimization==0.8.1 tensorflow-privacy==0.8.12 tensorflow-ranking==0.5.5 tensorflow-recommenders==0.7.7 "
    "tensorflow-similarity==0.17.1 tensorlayer==2.2.5 tf-agents==0.19.0 tf-models-official==2.15.0 tf-slim==1.1.0"
)
_IMPORTS = re.compile(r"^\s*(import|from) (tensorflow|keras)\b", re.MULTILINE)
_TRAINS = re.compile(r"\.fit\(|GradientTape|tf\.distribute\b|def train_step\b")


def download(package: str, folder: Path) -> Path:
    """Download a package's wheel, unless it is there, and return the folder into which it is unpacked."""
    place = folder / package
    if not place.is_dir():
        fetched = folder / f"{package}.download"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(fetched), package]
        subprocess.run(command, check=True)
        (wheel,) = fetched.glob("*.whl")
        zipfile.ZipFile(wheel).extractall(place)
    return place


def measure(place: Path, missing: collections.Counter[str]) -> dict[str, int]:
    """Return how many of a package's training files need nothing that is missing, and count in how many a name is."""
    texts = {
        file: file.read_text(errors="replace") for file in sorted(place.rglob("*.py")) if not file.match("*_test.py")
    }
    files = [file for file, text in texts.items() if _is_training(text)]
    complete = older = 0
    for file in files:
        findings = list(examine(file))
        names = {finding.name for finding in findings if finding.is_problem}
        missing.update(names)
        complete += not names
        older += any(finding.kind == "older form" for finding in findings)
    return {"files": len(files), "complete": complete, "with_older_forms": older}


def _is_training(text: str) -> bool:
    return bool(_IMPORTS.search(text) and _TRAINS.search(text))


def main() -> None:
    """Download, read and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where packages are kept; a temporary folder if none is named")
    parser.add_argument("--out", type=Path, help="write the JSON to this file, too")
    arguments = parser.parse_args()
    missing = collections.Counter[str]()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        packages = {package: measure(download(package, folder), missing) for package in PACKAGES.split()}
    total: dict[str, Any] = {
        key: sum(one[key] for one in packages.values()) for key in ("files", "complete", "with_older_forms")
    }
    total["share"] = round(total["complete"] / total["files"], 3)
    emit({"total": total, "packages": packages, "most_missing": dict(missing.most_common(40))}, arguments.out)


if __name__ == "__main__":
    main()
