"""A bucket of Google Cloud Storage that an emulator keeps on this machine."""

import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from environment import LIMIT_S

NAME = "bucket"


def environ(server: str) -> dict[str, str]:
    """Return what leads the libraries that reach buckets to a server instead of to Google's."""
    return {
        "STORAGE_EMULATOR_HOST": server,
        "TENSORSTORE_GCS_HTTP_URL": server,
        "NO_GCE_CHECK": "true",
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
        "FSSPEC_GCS_TOKEN": "anon",
    }


@contextlib.contextmanager
def serve() -> Iterator[str]:
    """Yield the address of a server with a bucket `NAME` in its memory."""
    command = [sys.executable, str(Path(__file__).with_name("gcs_emulator.py")), NAME]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdin and process.stdout
        try:
            yield f"http://localhost:{int(process.stdout.readline())}"
        finally:
            process.kill()


def make(server: str) -> None:
    """Make the bucket, which is not there."""
    body = json.dumps({"name": NAME}).encode()
    request = urllib.request.Request(f"{server}/storage/v1/b?project=test", body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=LIMIT_S).close()


def remove(server: str) -> None:
    """Remove the bucket and all in it."""
    urllib.request.urlopen(f"{server}/wipe", timeout=LIMIT_S).close()
