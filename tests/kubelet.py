"""A double of the kubelet: its pod-resources service on a socket, with pods that a test makes up.

It is not a kubelet. It writes messages by hand, so that nothing here repeats a mistake of the code under test.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

CPU = 127  # of a container's cpu_ids: a field that nobody asks for


@dataclass
class Container:
    """devices: (resource, ids); claims: (driver, device)."""

    name: str
    devices: Sequence[tuple[str, Sequence[str]]] = ()
    claims: Sequence[tuple[str, str]] = ()


@dataclass
class Pod:
    name: str
    containers: Sequence[Container]
    namespace: str = "default"


@dataclass
class Kubelet:
    """What a double answers; a test may change it at any time.

    versions: of the service that it has. content: bytes to answer in place of the pods. silent: while set, it answers
    nothing. asked: how often it was, by version.
    """

    pods: Sequence[Pod] = ()
    versions: Sequence[str] = ("v1", "v1alpha1")
    content: bytes | None = None
    silent: threading.Event = field(default_factory=threading.Event)
    asked: dict[str, int] = field(default_factory=dict)

    def answer(self, version: str, context: grpc.ServicerContext) -> bytes:
        self.asked[version] = self.asked.get(version, 0) + 1
        if version not in self.versions:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, f"unknown service {version}.PodResourcesLister")
        while self.silent.is_set() and context.is_active():
            time.sleep(0.01)
        if self.content is not None:
            return self.content
        return b"".join(_field(1, _pod(pod)) for pod in self.pods)


@contextlib.contextmanager
def serve(path: Path, kubelet: Kubelet) -> Iterator[Kubelet]:
    """Have a double listen on a socket, until the end of the block; then the socket is gone."""

    def method(version: str) -> Any:
        handler = grpc.unary_unary_rpc_method_handler(lambda request, context: kubelet.answer(version, context))
        return grpc.method_handlers_generic_handler(f"{version}.PodResourcesLister", {"List": handler})

    server = grpc.server(ThreadPoolExecutor(2), options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers([method("v1"), method("v1alpha1")])
    server.add_insecure_port(f"unix:{path}")
    server.start()
    try:
        yield kubelet
    finally:
        kubelet.silent.clear()
        server.stop(None).wait()
        path.unlink(missing_ok=True)


# ---- messages ----


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _field(number: int, value: str | bytes) -> bytes:
    """A string or a message."""
    content = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _pod(pod: Pod) -> bytes:
    return _field(1, pod.name) + _field(2, pod.namespace) + b"".join(_field(3, _container(c)) for c in pod.containers)


def _container(container: Container) -> bytes:
    topology = _field(3, _field(1, b"\x08\x01"))  # NUMA node 1
    devices = (
        _field(1, resource) + b"".join(_field(2, device) for device in ids) + topology
        for resource, ids in container.devices
    )
    claims = (
        _field(2, "claim") + _field(3, "default") + _field(4, _claimed(driver, device))
        for driver, device in container.claims
    )
    return b"".join(
        [
            _field(1, container.name),
            *(_field(2, each) for each in devices),
            _field(3, _varint(CPU)),
            *(_field(5, each) for each in claims),
        ]
    )


def _claimed(driver: str, device: str) -> bytes:
    return (
        _field(1, _field(1, f"k8s.{driver}/gpu={device}")) + _field(2, driver) + _field(3, "pool") + _field(4, device)
    )
