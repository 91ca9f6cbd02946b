"""NVIDIA's GPUs, asked for without starting JAX, whose devices would be fixed then."""

import itertools
import os
import shutil
import subprocess


def visible() -> list[str] | None:
    """Return what CUDA_VISIBLE_DEVICES names, as CUDA reads it: up to the first entry that is none. None if it is not set."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return None
    entries = (entry.strip() for entry in chosen.split(","))
    return list(itertools.takewhile(lambda entry: entry not in ("", "-1"), entries))


def gpus() -> list[str]:
    """Return the names of the GPUs that CUDA would use, as CUDA_VISIBLE_DEVICES takes them."""
    chosen = visible()
    if chosen is not None:
        return chosen
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    listed = subprocess.run([tool, "--list-gpus"], capture_output=True, text=True, check=False, timeout=60)
    return [str(i) for i, line in enumerate(x for x in listed.stdout.splitlines() if x.startswith("GPU "))]
