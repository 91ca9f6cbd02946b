"""Certificates for the connections between processes."""

import dataclasses
import inspect
import socket
import ssl
from typing import Any, final

import jax


@final
@dataclasses.dataclass(frozen=True)
class TLS:
    """Certificates with which the processes prove to each other who they are; all connections to process 0 are encrypted.

    What XLA's collectives send from device to device is not encrypted.

    Attributes:
        cert_file: This process's certificates, as PEM.
        key_file: The key that belongs to them.
        ca_file: The certificates that sign the others'.
        peer_uri_prefix: What a URI in the others' certificates begins with, such as "spiffe://example.org/"; if None,
            process 0's certificate must name its host.

    Raises:
        NotImplementedError: Before jax 0.12.

    Example:
        >>> import jax, tfdist_jax as td
        >>> tls = td.TLS("worker.pem", "worker.key", "ca.pem") if jax.__version_info__ >= (0, 12) else None
        >>> td.initialize(tls=tls)  # Alone, it connects to nobody and reads no file.
    """

    cert_file: str
    key_file: str
    ca_file: str
    peer_uri_prefix: str | None = None

    def __post_init__(self) -> None:
        """Check that JAX can do it."""
        if "mtls_cert_file" not in inspect.signature(jax.distributed.initialize).parameters:
            raise NotImplementedError(
                f"TLS between processes needs jax 0.12 or newer, this is {jax.__version__}. Until then keep the processes' "
                "ports inside a network that you trust."
            )

    def jax_options(self) -> dict[str, str | None]:
        """Return the arguments of `jax.distributed.initialize`."""
        return {f"mtls_{name}": value for name, value in dataclasses.asdict(self).items()}

    def wrap_server(self, connection: socket.socket) -> ssl.SSLSocket:
        """Speak TLS with a process that has connected.

        Raises:
            ssl.SSLError: If it cannot prove who it is.
        """
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.ca_file)
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(self.cert_file, self.key_file)
        return self._checked(context.wrap_socket(connection, server_side=True))

    def wrap_client(self, connection: socket.socket, host: str) -> ssl.SSLSocket:
        """Speak TLS with process 0 on `host`.

        Raises:
            ssl.SSLError: If it cannot prove who it is.
        """
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=self.ca_file)
        context.check_hostname = self.peer_uri_prefix is None
        context.load_cert_chain(self.cert_file, self.key_file)
        return self._checked(context.wrap_socket(connection, server_hostname=host))

    def _checked(self, connection: ssl.SSLSocket) -> ssl.SSLSocket:
        certificate: dict[str, Any] = connection.getpeercert() or {}
        uris = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"]
        if self.peer_uri_prefix is not None and not any(uri.startswith(self.peer_uri_prefix) for uri in uris):
            connection.close()
            raise ssl.SSLCertVerificationError(f"the certificate has the URIs {uris}, none in {self.peer_uri_prefix}")
        return connection
