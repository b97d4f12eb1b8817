"""Which pod has which card: what the kubelet handed out, asked in a thread of its own and never by a scrape.

The service is the kubelet's PodResourcesLister. Its messages are built here from the few fields that are read, so that
no generated code is needed and a field that a newer kubelet adds is skipped.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
import urllib.parse
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import dtk

__all__ = ["Allocation", "PodResources", "devices_of"]

logger = logging.getLogger("dtk_exporter")

ANSWER_MAX = 16 << 20  # bytes; the kubelet's own clients take as much
ALLOCATIONS_MAX = 4096  # many times what a machine has
TURNS_KEPT = 3  # intervals for which an answer is good

# Numbers and types of the fields that are read. A message in another is repeated, and so are "strings".
_MESSAGES = {
    "Answer": {"pod_resources": (1, "Pod")},
    "Pod": {"name": (1, "string"), "namespace": (2, "string"), "containers": (3, "Container")},
    "Container": {"name": (1, "string"), "devices": (2, "Devices"), "dynamic_resources": (5, "Claim")},
    "Devices": {"resource_name": (1, "string"), "device_ids": (2, "strings")},
    "Claim": {"claim_resources": (4, "Claimed")},
    "Claimed": {"driver_name": (2, "string"), "device_name": (4, "string")},
}

# AMD names resources after partition modes where a machine has several. Hygon's plug-in can name them after the card's
# model, so all of Hygon's count. The last two are drivers of dynamic resources.
_RESOURCE = re.compile(r"amd\.com/(gpu|[a-z]px_nps)[\w.-]*|hygon\.(com|cn)/[\w.-]+|gpu\.amd\.com|dra\.hygon\.com")
_AMOUNT = re.compile(r"(cores|mem)$")  # shares of a card, whose ids are numbers and name no device


class Allocation(NamedTuple):
    """A device that the kubelet gave to a container, under a name that devices_of() takes."""

    device: str
    resource: str
    namespace: str
    pod: str
    container: str


class PodResources:
    """Asks the kubelet again and again which container has which AMD or Hygon device.

    interval: seconds between questions. timeout: seconds that an answer may take. root: of the machine.
    errors: how many questions failed so far. problem: why the last one did, "" when it did not.
    Raises LibraryError where grpcio or protobuf is not installed.
    """

    def __init__(self, socket: str, interval: float = 10.0, timeout: float = 2.0, root: str = "/") -> None:
        self.errors = 0
        self.problem = ""
        self._client = _Client(socket, timeout)
        self._interval = interval
        self._root = root
        self._answer: tuple[float, tuple[Allocation, ...]] = (0.0, ())  # until when it is good
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dtk-pod-resources", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def close(self) -> None:
        """Stop asking, also while the kubelet is silent."""
        self._closed.set()
        self._client.close()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def allocations(self) -> tuple[Allocation, ...]:
        """Who has what; empty while that is not known, which it is for three intervals."""
        good_until, allocations = self._answer
        return allocations if time.monotonic() < good_until else ()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                allocations = self._ask()
            except Exception as failure:  # noqa: BLE001 - whatever it is, the next answer may be good
                if not self._closed.is_set():
                    self._note(self._client.explain(failure))
            else:
                self._answer = (time.monotonic() + TURNS_KEPT * self._interval, allocations)
                self._note("")
            self._closed.wait(self._interval)

    def _ask(self) -> tuple[Allocation, ...]:
        found = _allocations(self._client.ask())
        return tuple(dict.fromkeys(each._replace(device=_plain(each.device, self._root)) for each in found))

    def _note(self, problem: str) -> None:
        """How a question went; a change is told."""
        before, self.problem = self.problem, problem
        if problem:
            self.errors += 1
        if problem and not before:
            logger.warning("the kubelet does not tell which pod has which card: %s", problem)
        elif before and not problem:
            logger.info("the kubelet tells again which pod has which card")


class _Client:
    """One question at a time, each over a connection of its own: a kubelet that restarts makes its socket anew."""

    def __init__(self, socket: str, timeout: float) -> None:
        try:
            import grpc
            from google.protobuf.message import DecodeError
        except ImportError as error:
            raise dtk.LibraryError(
                f"--collect.pod-resources needs grpcio and protobuf, and Python has no {error.name}",
                hint="pip install 'dtk-smi[kubernetes]'",
            ) from error
        self.failures = (grpc.RpcError, DecodeError, ValueError)
        self._grpc = grpc
        self._answer_type = _message_type("Answer")
        self._socket = socket
        self._timeout = timeout
        self._lock = threading.Lock()
        self._channel: Any = None
        self._closed = False

    def ask(self) -> Any:
        """An Answer. Raises one of `failures`."""
        options = [
            ("grpc.max_receive_message_length", ANSWER_MAX),
            ("grpc.default_authority", "localhost"),  # a server in Go refuses a path there
            ("grpc.use_local_subchannel_pool", 1),  # knows nothing of the last connection's failure
            ("grpc.enable_retries", 0),
        ]
        target = "unix:" + urllib.parse.quote(os.path.abspath(self._socket))
        with self._grpc.insecure_channel(target, options) as channel:
            with self._lock:
                if self._closed:
                    raise ValueError("closed")
                self._channel = channel
            try:
                content = self._call(channel, "v1")
            except self._grpc.RpcError as error:
                if error.code() is not self._grpc.StatusCode.UNIMPLEMENTED:
                    raise
                content = self._call(channel, "v1alpha1")  # a kubelet before 1.20
        return self._answer_type.FromString(content)

    def _call(self, channel: Any, version: str) -> bytes:
        """The answer as it comes: an invalid one must not become a traceback in grpc's log."""
        content: bytes = channel.unary_unary(f"/{version}.PodResourcesLister/List")(b"", timeout=self._timeout)
        return content

    def close(self) -> None:
        """End the question that is under way, and ask none any more."""
        with self._lock:
            self._closed = True
            if self._channel:
                self._channel.close()

    def explain(self, failure: Exception) -> str:
        """What went wrong, in a line."""
        details = failure.details() if isinstance(failure, self._grpc.RpcError) else failure
        return f"{self._socket}: {' '.join(str(details).split())[:300]}"


def _message_type(name: str) -> Any:
    """The class of one of our messages."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field_types = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="pods.proto", package="dtk", syntax="proto3")
    for message, fields in _MESSAGES.items():
        entry = file.message_type.add(name=message)
        for field, (number, kind) in fields.items():
            is_text = kind in ("string", "strings")
            entry.field.add(
                name=field,
                number=number,
                label=field_types.LABEL_OPTIONAL if kind == "string" else field_types.LABEL_REPEATED,
                type=field_types.TYPE_STRING if is_text else field_types.TYPE_MESSAGE,
                type_name=None if is_text else f".dtk.{kind}",
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"dtk.{name}"))


def _allocations(answer: Any) -> Iterator[Allocation]:
    """What an answer says of cards. Raises ValueError when it says more than can be true."""
    count = 0
    for pod in answer.pod_resources:
        for container in pod.containers:
            for device, resource in _devices(container):
                if not _RESOURCE.fullmatch(resource) or _AMOUNT.search(resource):
                    continue
                count += 1
                if count > ALLOCATIONS_MAX:
                    raise ValueError(f"the kubelet names more than {ALLOCATIONS_MAX} devices")
                yield Allocation(device, resource, pod.namespace, pod.name, container.name)


def _devices(container: Any) -> Iterator[tuple[str, str]]:
    """Devices of a container with their resources: of plug-ins, then of drivers of dynamic resources."""
    for devices in container.devices:
        for device in devices.device_ids:
            yield device, devices.resource_name
    for claim in container.dynamic_resources:
        for claimed in claim.claim_resources:
            yield claimed.device_name, claimed.driver_name


# ---- what a plug-in's id means ----

_SLICE = re.compile(r"-slice-\d+$")  # AMD's plug-in shares a card by names such as 0000:43:00.0-slice-2
_ADDRESS = re.compile(r"(?:hcu-)?([0-9a-f]{4,8})[:-]([0-9a-f]{2})[:-]([0-9a-f]{2})[.-]([0-7])", re.ASCII | re.I)
_RENDER = re.compile(r"(?:renderD|gpu-\d{1,9}-)(\d{1,9})", re.ASCII)
_CARD = re.compile(r"card(\d{1,9})", re.ASCII)
_PARTITION = re.compile(r"amdgpu_xcp_\d{1,9}", re.ASCII)


def devices_of(name: str, readings: Iterable[dtk.Reading]) -> list[str]:
    """The uuids of those devices that a plug-in's id means; none when it means none of them.

    An id is a uuid; a PCI address (the plug-ins of AMD and Hygon), which of a partitioned card means the first
    partition, the others having names of their own; a card or render node; "gpu-1-128" or "hcu-0000-43-00-0" (their
    drivers of dynamic resources). What HAMi's plug-ins tell the kubelet, "DCU-0-fake-1" or "0000:43:00.0#1", means
    nothing: the scheduler chose the card, and the kubelet does not know it.
    """
    if found := _ADDRESS.fullmatch(name):
        bdf = "{}:{}:{}.{}".format(*found.groups()).lower()
        return [r.uuid for r in readings if r.bdf == bdf and r.partition in (None, 0)]
    if found := _RENDER.fullmatch(name):
        return [r.uuid for r in readings if r.drm_render == int(found[1])]
    if found := _CARD.fullmatch(name):
        return [r.uuid for r in readings if r.drm_card == int(found[1])]
    return [r.uuid for r in readings if r.uuid.lower() == name.lower()]


def _plain(name: str, root: str) -> str:
    """An id without the number of its time slice, and the render node in the place of "amdgpu_xcp_3", which is what
    AMD's plug-in calls a further partition: the platform device below `root` tells which it is.
    """
    name = _SLICE.sub("", name)
    if not _PARTITION.fullmatch(name):
        return name
    try:
        nodes = os.listdir(os.path.join(root, "sys/devices/platform", name, "drm"))
    except OSError:
        return name
    return next((node for node in nodes if _RENDER.fullmatch(node)), name)
