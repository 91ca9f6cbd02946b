"""Processes that prove to each other who they are."""

import shutil
import socket
import ssl
import subprocess
import threading

import jax
import pytest
from environment import LIMIT_S

import tfdist_jax as td

needs_tls = pytest.mark.skipif(
    tuple(map(int, jax.__version__.split(".")[:2])) < (0, 12) or shutil.which("openssl") is None,
    reason="TLS between processes needs jax 0.12, and openssl makes the certificates.",
)

PROGRAM = """
import sys
import numpy as np
import tfdist_jax as td
from jax.experimental import multihost_utils
files = sys.argv[1:4] if os.environ["RESULTS"].endswith("0") else sys.argv[4:7]
prefix = sys.argv[7] if len(sys.argv) > 7 else None
tls = None if "PLAIN" in os.environ else td.TLS(*files, peer_uri_prefix=prefix)
mine = td.initialize(tls=tls, timeouts=td.Timeouts(start_s=20))
result("seen", multihost_utils.process_allgather(np.array([mine.process_id]))[:, 0].tolist())
"""


class Authority:
    """Signs certificates."""

    def __init__(self, folder, name):
        self._folder = folder
        self.ca_file = str(folder / f"{name}-ca.pem")
        self._key = str(folder / f"{name}-ca.key")
        self._run("req", "-x509", "-keyout", self._key, "-out", self.ca_file, "-subj", f"/CN={name}", "-days", "2")

    def _run(self, command, *options):
        new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"] if command == "req" else []
        subprocess.run(
            ["openssl", command, *new, *options], cwd=self._folder, check=True, capture_output=True, timeout=LIMIT_S
        )

    def certificate(self, name, alternative):
        """The files of `TLS`: certificate, key, authority."""
        cert, key, request, extra = [str(self._folder / f"{name}.{kind}") for kind in ("pem", "key", "csr", "ext")]
        with open(extra, "w") as file:
            file.write(f"subjectAltName={alternative}\n")
        self._run("req", "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        signed = ["-CA", self.ca_file, "-CAkey", self._key, "-CAcreateserial", "-days", "2", "-extfile", extra]
        self._run("x509", "-req", "-in", request, "-out", cert, *signed)
        return cert, key, self.ca_file


@needs_tls
def test_processes_that_trust_each_other_meet(cluster, tmp_path):
    authority = Authority(tmp_path, "one")
    workers = cluster(2)
    files = [authority.certificate(f"worker{i}", "IP:127.0.0.1") for i in range(2)]
    workers.start(PROGRAM, *files[0], *files[1])
    workers.succeed()
    assert workers.results("seen") == [[0, 1], [0, 1]]


@needs_tls
def test_identities_may_be_uris(cluster, tmp_path):
    authority = Authority(tmp_path, "one")
    workers = cluster(2)
    files = [authority.certificate(f"worker{i}", f"URI:spiffe://example.org/{i}") for i in range(2)]
    workers.start(PROGRAM, *files[0], *files[1], "spiffe://example.org/")
    workers.succeed()


@needs_tls
@pytest.mark.parametrize("stranger", [0, 1])
def test_a_stranger_is_not_let_in(cluster, tmp_path, stranger):
    one, two = Authority(tmp_path, "one"), Authority(tmp_path, "two")
    workers = cluster(2)
    files = [(two if i == stranger else one).certificate(f"worker{i}", "IP:127.0.0.1") for i in range(2)]
    workers.start(PROGRAM, *files[0], *files[1])
    codes = workers.wait()
    assert all(codes)
    assert "do not trust each other" in workers.workers[1].log or "did not arrive" in workers.workers[0].log


@needs_tls
def test_a_connection_without_tls_is_not_heard(cluster, tmp_path):
    authority = Authority(tmp_path, "one")
    files = authority.certificate("worker0", "IP:127.0.0.1")
    workers = cluster(2)
    workers.start(PROGRAM, *files, *files, env=lambda index: {"PLAIN": ""} if index else {})
    assert all(workers.wait())
    assert "did not arrive: worker 1" in workers.workers[0].log


def test_tls_needs_a_new_jax(monkeypatch):
    monkeypatch.setattr(jax.distributed, "initialize", lambda coordinator_address=None: None)
    with pytest.raises(NotImplementedError, match=r"needs jax 0\.12 or newer"):
        td.TLS("cert", "key", "ca")


@needs_tls
def test_a_server_wants_a_certificate(tmp_path):
    """Against a mistake in the context's settings: a client without a certificate is refused."""
    files = Authority(tmp_path, "one").certificate("worker0", "IP:127.0.0.1")
    refused = []

    def serve(connection):
        try:
            td.TLS(*files).wrap_server(connection)
        except ssl.SSLError as error:
            refused.append(error)

    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=serve, args=(theirs,))
    thread.start()
    context = ssl.create_default_context(cafile=files[2])
    with context.wrap_socket(ours, server_hostname="127.0.0.1") as client:
        client.settimeout(10)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            client.recv(1)
            raise ConnectionError
    thread.join()
    theirs.close()
    assert refused
