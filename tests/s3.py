"""A real S3 server in a process of its own, and a proxy of TCP that stands in for a bad network."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jobs import free_port

SECRET = "wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY"
KEY_ID = "AKIAIOSFODNN7EXAMPLE"
_PATIENCE_S = 60


class Bucket:
    """One bucket of a running server."""

    def __init__(self, port: int, name: str) -> None:
        import boto3

        self.name = name
        self.port = port
        self.url = f"s3://{name}/runs"
        self._client: Any = boto3.client("s3", **_client_options(port))
        self._client.create_bucket(Bucket=name)

    def environment(self, port: int = 0) -> dict[str, str]:
        """What a job needs to reach it, through ``port``. The host's name has to be looked up."""
        return {
            "ACCELPROF_OUTPUT_DIR": self.url,
            "AWS_ENDPOINT_URL": f"http://localhost:{port or self.port}",
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def names(self) -> list[str]:
        """Names of the objects, without the folder of the runs."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.name)
        found = [each["Key"] for page in pages for each in page.get("Contents", [])]
        assert all(name.startswith("runs/") for name in found)
        return sorted(name.removeprefix("runs/") for name in found)

    def read(self, name: str) -> bytes:
        content: bytes = self._client.get_object(Bucket=self.name, Key=f"runs/{name}")["Body"].read()
        return content

    def write(self, name: str, content: bytes) -> None:
        self._client.put_object(Bucket=self.name, Key=f"runs/{name}", Body=content)

    def download(self, folder: Path) -> None:
        """Copy every object into a folder, as a person would before reading."""
        for name in self.names():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.read(name))


def _client_options(port: int) -> dict[str, str]:
    return {
        "endpoint_url": f"http://127.0.0.1:{port}",
        "aws_access_key_id": KEY_ID,
        "aws_secret_access_key": SECRET,
        "region_name": "us-east-1",
    }


@contextlib.contextmanager
def s3_server() -> Iterator[int]:
    """Run a server; yields its port."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + _PATIENCE_S
        while not _answers(port):
            assert process.poll() is None, "moto has ended"
            assert time.monotonic() < deadline, "moto does not answer"
            time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def pass_on(client: socket.socket, server: socket.socket) -> None:
    """Carry bytes both ways until either side ends."""
    other = threading.Thread(target=_copy, args=(server, client), daemon=True)
    other.start()
    _copy(client, server)
    other.join()


def hang(client: socket.socket, server: socket.socket) -> None:
    """Take everything and never answer."""
    while client.recv(65536):
        pass


def drop_half_way(client: socket.socket, server: socket.socket) -> None:
    """Take the beginning of what is sent and cut the connection."""
    server.sendall(client.recv(4096))
    # A reset, as from a machine that went down.
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


Behaviour = Callable[[socket.socket, socket.socket], None]


class Proxy:
    """Listens on ``port`` and treats each connection to the server as ``behave`` says at that time."""

    def __init__(self, server_port: int, behave: Behaviour = pass_on) -> None:
        self.behave = behave
        self.connections = 0
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        # accept() in the other thread would keep a socket alive that is only closed.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._treat, args=(client, self.behave), daemon=True).start()

    def _treat(self, client: socket.socket, behave: Behaviour) -> None:
        address = ("127.0.0.1", self._server_port)
        with contextlib.suppress(OSError), client, socket.create_connection(address) as server:
            behave(client, server)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def every_byte(*folders: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield every file below the folders, unpacked where it is compressed."""
    import gzip

    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file():
                raw = path.read_bytes()
                yield path, gzip.decompress(raw) if path.suffix == ".gz" else raw


def user_folder(scratch: Path) -> Path:
    """Where a job puts its run together below ``scratch``."""
    return scratch / f"autoprof-{os.getuid()}"
