"""Addresses of processes: "host:port"."""

import contextlib
import ipaddress
import socket
from collections.abc import Iterable

DEFAULT_PORT = 2222
"""The port of an address that names none."""


def full_address(address: str, source: str = "the arguments") -> str:
    """Return "host:port" with the default port where there is none, and with brackets around IPv6 addresses.

    Raises:
        ValueError: If it is no address.

    Example:
        >>> full_address("host-a"), full_address("[::1]:80"), full_address("::1")
        ('host-a:2222', '[::1]:80', '[::1]:2222')
    """
    if _is_ip(address) and ":" in address:
        address = f"[{address}]"
    host, colon, port = (address, "", "") if address.endswith("]") else address.rpartition(":")
    host, port = (host, port) if colon else (address, str(DEFAULT_PORT))
    if not host or any(c.isspace() or c == "/" for c in host) or (":" in host and not host.startswith("[")):
        raise ValueError(f'{source} has {address!r} where an address belongs; write "host:port".')
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{source} has the address {address!r}, whose port is not a number from 1 to 65535.")
    return f"{host}:{int(port)}"


def host_and_port(address: str) -> tuple[str, int]:
    """Return the parts of "host:port", the host without brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def connection_to(address: str, timeout_s: float) -> socket.socket:
    """Connect to "host:port".

    Raises:
        OSError: If nobody listens there.
    """
    connection = socket.create_connection(host_and_port(address), timeout=timeout_s)
    if connection.getsockname() == connection.getpeername():
        # On this machine, where nobody listens, a connection can be given the very port it goes to: it meets itself.
        connection.close()
        raise ConnectionRefusedError(f"nobody listens on {address}")
    return connection


def address_to_bind(address: str, others: Iterable[str]) -> str:
    """Return the address of this machine, in numbers, at which processes on `others` reach `address`.

    Raises:
        OSError: If the host has no address.

    Example:
        >>> address_to_bind("localhost:80", ["127.0.0.1:81"])
        '127.0.0.1:80'
    """
    host, port = host_and_port(address)
    own = resolve(host)
    if is_loopback(own) and not _is_ip(host):
        # Some systems give a machine's own name a loopback address, which nobody else can reach.
        own = next((_towards(peer) for peer in _elsewhere(others)), own)
    return f"[{own}]:{port}" if ":" in own else f"{own}:{port}"


def find_own_address(name: str | None, peer: str) -> str | None:
    """Return the address, in numbers, at which another process reaches this one; None if that is not known.

    Args:
        name: How the others know this process, as "host:port". A name of something before it, such as a service's, is passed over.
        peer: Where the other process is.
    """

    def by_name() -> str:
        return host_and_port(address_to_bind(name, [peer]))[0] if name else ""

    def on_the_way() -> str:
        return _towards(resolve(host_and_port(peer)[0]))

    for find in (by_name, on_the_way):
        with contextlib.suppress(OSError):
            if (address := find()) and _is_of_this_machine(address):
                return address
    return None


def _is_of_this_machine(address: str) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((address, 0))
    return not ipaddress.ip_address(address).is_unspecified


def resolve(host: str) -> str:
    """Return a host's address in numbers, of IPv4 if it has one.

    Raises:
        OSError: If it has none.
    """
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise OSError(error.errno, f"The host {host!r} is not known on this machine: {error.strerror}.") from error
    return str(min(found, key=lambda entry: entry[0] != socket.AF_INET)[4][0])


def is_loopback(address: str) -> bool:
    """Tell whether an address in numbers is one that only this machine can reach."""
    return ipaddress.ip_address(address).is_loopback


def _elsewhere(others: Iterable[str]) -> Iterable[str]:
    for other in others:
        try:
            found = resolve(host_and_port(other)[0])
        except OSError:
            continue  # It is the other machine's business; the rendezvous names it if it does not come.
        if not is_loopback(found):
            yield found


def _towards(peer: str) -> str:
    """Return this machine's address on the way to another one; connecting a datagram socket sends nothing."""
    with socket.socket(socket.AF_INET6 if ":" in peer else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((peer, 9))
        return str(probe.getsockname()[0])


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
