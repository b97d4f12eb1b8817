"""Which pod has which card: the kubelet's pod-resources, from a double of the kubelet on a real socket."""

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

import pytest
from exporting import exporting
from kubelet import Container, Kubelet, Pod, serve

import dtk
from dtk_exporter.pods import ANSWER_MAX, Allocation, PodResources, devices_of

Get = Callable[[str], Path]

TRAINING = Pod("train-0", [Container("main", [("amd.com/gpu", ["0000:43:00.0", "0000:44:00.0"])])], "ml")
ALLOCATION = Allocation("0000:43:00.0", "amd.com/gpu", "ml", "train-0", "main")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kubelet.sock"


@contextlib.contextmanager
def asking(path: Path, interval: float = 0.05, timeout: float = 0.5, root: Path = Path("/")) -> Iterator[PodResources]:
    resources = PodResources(str(path), interval, timeout, str(root))
    resources.start()
    try:
        yield resources
    finally:
        resources.close()


def until(condition: Callable[[], object], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


# ---- what the kubelet says ----


def test_pods_and_containers(path: Path) -> None:
    pods = [
        TRAINING,
        Pod("web", [Container("nginx"), Container("side", [("nvidia.com/gpu", ["GPU-8a7b"]), ("amd.com/nic", ["0"])])]),
        Pod(
            "two",
            [Container("a", [("hygon.com/dcu", ["0000:05:00.0"])]), Container("b", [("amd.com/cpx_nps4", ["x"])])],
        ),
        Pod("model", [Container("m", [("hygon.com/K100-AI_64G_120CU", ["0000:25:00.0"])])]),
    ]
    with serve(path, Kubelet(pods)), asking(path) as resources:
        until(lambda: resources.allocations)
        assert resources.allocations == (
            ALLOCATION,
            ALLOCATION._replace(device="0000:44:00.0"),
            Allocation("0000:05:00.0", "hygon.com/dcu", "default", "two", "a"),
            Allocation("x", "amd.com/cpx_nps4", "default", "two", "b"),
            Allocation("0000:25:00.0", "hygon.com/K100-AI_64G_120CU", "default", "model", "m"),
        )
        assert (resources.errors, resources.problem) == (0, "")


def test_amounts_are_no_devices(path: Path) -> None:
    shares = [
        ("hygon.com/dcunum", ["DCU-0-fake-1"]),
        ("hygon.com/hcucores", ["0", "1", "2"]),
        ("hygon.com/dcumem", ["3"]),
    ]
    with serve(path, Kubelet([Pod("p", [Container("c", shares)])])), asking(path) as resources:
        until(lambda: resources.allocations)
        assert [each.device for each in resources.allocations] == ["DCU-0-fake-1"]


def test_dynamic_resources(path: Path) -> None:
    claims = [("gpu.amd.com", "gpu-1-128"), ("gpu.nvidia.com", "gpu-0"), ("dra.hygon.com", "hcu-0000-05-00-0")]
    with serve(path, Kubelet([Pod("p", [Container("c", claims=claims)])])), asking(path) as resources:
        until(lambda: resources.allocations)
        assert resources.allocations == (
            Allocation("gpu-1-128", "gpu.amd.com", "default", "p", "c"),
            Allocation("hcu-0000-05-00-0", "dra.hygon.com", "default", "p", "c"),
        )


def test_a_device_that_is_told_twice_is_one(path: Path) -> None:
    twice = [("amd.com/gpu", ["0000:43:00.0"]), ("amd.com/gpu", ["0000:43:00.0"])]  # one entry a NUMA node
    with serve(path, Kubelet([Pod("train-0", [Container("main", twice)], "ml")])), asking(path) as resources:
        until(lambda: resources.allocations)
        assert resources.allocations == (ALLOCATION,)


def test_older_kubelet(path: Path) -> None:
    with serve(path, Kubelet([TRAINING], versions=["v1alpha1"])) as kubelet, asking(path) as resources:
        until(lambda: resources.allocations)
        assert resources.errors == 0
        assert kubelet.asked.keys() == {"v1", "v1alpha1"}


def test_newer_kubelet_is_asked_once_a_turn(path: Path) -> None:
    with serve(path, Kubelet([TRAINING])) as kubelet, asking(path, interval=60) as resources:
        until(lambda: resources.allocations)
        assert kubelet.asked == {"v1": 1}


def test_neither_service(path: Path) -> None:
    with serve(path, Kubelet(versions=[])), asking(path) as resources:
        until(lambda: resources.errors)
        assert "PodResourcesLister" in resources.problem


def test_pods_come_and_go(path: Path) -> None:
    with serve(path, Kubelet([TRAINING])) as kubelet, asking(path) as resources:
        until(lambda: resources.allocations)
        kubelet.pods = []
        until(lambda: not resources.allocations)
        assert resources.errors == 0


# ---- what may go wrong ----


def test_absent_socket_and_what_is_none(path: Path) -> None:
    with asking(path) as resources:
        until(lambda: resources.errors > 1)
        assert resources.problem.startswith(f"{path}: ")
        assert resources.allocations == ()
        path.write_text("no socket")
        before = resources.errors
        until(lambda: resources.errors > before + 1)


def test_odd_paths(tmp_path: Path) -> None:
    odd = tmp_path / "a b%20c#d?e.sock"
    plain = tmp_path / "plain.sock"
    with serve(plain, Kubelet([TRAINING])):
        odd.symlink_to(plain)
        with asking(odd) as resources:
            until(lambda: resources.allocations)
    with asking(tmp_path / ("x" * 200)) as resources:
        until(lambda: resources.errors)


def test_kubelet_that_restarts(path: Path) -> None:
    with asking(path) as resources:
        with serve(path, Kubelet([TRAINING])):
            until(lambda: resources.allocations)
        until(lambda: not resources.allocations)  # the answer grew old
        assert resources.errors
        with serve(path, Kubelet([TRAINING])):
            until(lambda: resources.allocations)
            assert resources.problem == ""


def test_an_answer_grows_old(path: Path) -> None:
    with serve(path, Kubelet([TRAINING])) as kubelet, asking(path, interval=0.2, timeout=0.1) as resources:
        until(lambda: resources.allocations)
        kubelet.silent.set()
        asked = time.monotonic()
        until(lambda: resources.errors)
        assert resources.allocations  # one failure is none
        until(lambda: not resources.allocations)
        assert 0.3 < time.monotonic() - asked < 5
        kubelet.silent.clear()
        until(lambda: resources.allocations)


def test_silent_kubelet_delays_nobody(path: Path) -> None:
    with serve(path, Kubelet([TRAINING])) as kubelet:
        kubelet.silent.set()
        with asking(path, timeout=60) as resources:
            until(lambda: kubelet.asked)
            began = time.monotonic()
            assert resources.allocations == ()
            resources.close()
            assert time.monotonic() - began < 1
            assert resources.errors == 0


@pytest.mark.parametrize(
    "says", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", os.urandom(4096)], ids=["hush", "http", "noise"]
)
def test_something_else_behind_the_socket(path: Path, says: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(10)

        def talk() -> None:
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.sendall(says)
                    connection.recv(1)
                    ended.wait(10)

        ended = threading.Event()
        speaker = threading.Thread(target=talk)
        speaker.start()
        with asking(path, interval=60, timeout=0.3) as resources:
            until(lambda: resources.errors)
            assert resources.allocations == ()
        ended.set()
        speaker.join()


@pytest.mark.parametrize(
    "content",
    [
        b"\x0a\x7f",  # a pod that is longer than the answer
        b"\x0a\x04\x0a\x02\xff\xfe",  # a name that is no UTF-8
        b"\x0a" * 1000,
        os.urandom(1000) + b"\x07",
    ],
    ids=["cut", "utf8", "nested", "noise"],
)
def test_broken_answers(path: Path, content: bytes) -> None:
    with serve(path, Kubelet([TRAINING])) as kubelet, asking(path) as resources:
        until(lambda: resources.allocations)
        kubelet.content = content
        until(lambda: resources.errors and not resources.allocations)
        kubelet.content = None
        until(lambda: resources.allocations)


def test_huge_answers(path: Path) -> None:
    many = [f"{number:x}" for number in range(5000)]
    pod = Pod("p", [Container("c", [("amd.com/gpu", many)])])
    with serve(path, Kubelet([pod])) as kubelet, asking(path) as resources:
        until(lambda: resources.errors)
        assert "4096" in resources.problem
        kubelet.content = bytes(ANSWER_MAX + 1)
        until(lambda: "larger" in resources.problem)
        assert resources.allocations == ()


def test_nothing_is_left_behind(path: Path) -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    with serve(path, Kubelet([TRAINING])) as kubelet, asking(path, interval=0.001) as resources:
        until(lambda: kubelet.asked.get("v1", 0) > 20)
        files, threads = open_files(), threading.active_count()
        until(lambda: kubelet.asked.get("v1", 0) > 300)
        assert open_files() <= files + 8
        assert threading.active_count() <= threads + 3
        assert resources.errors == 0


def python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd="/", capture_output=True, text=True, check=True
    )
    return done.stdout


def test_needs_its_packages(tmp_path: Path) -> None:
    (tmp_path / "grpc.py").write_text("raise ModuleNotFoundError('gone', name='grpc')\n")
    code = """
import dtk
from dtk_exporter.pods import PodResources
try:
    PodResources("kubelet.sock")
except dtk.LibraryError as error:
    print(error)
"""
    said = python(code, PYTHONPATH=str(tmp_path))
    assert "--collect.pod-resources needs grpcio and protobuf, and Python has no grpc" in said
    assert "pip install 'dtk-smi[kubernetes]'" in said


def test_is_imported_for_who_asks() -> None:
    code = "import sys, dtk_exporter.pods\nprint({'grpc', 'google.protobuf'} & set(sys.modules))"
    assert python(code) == "set()\n"


# ---- what an id means ----


def test_ids_of_whole_cards(machine: Get) -> None:
    readings = dtk.take_snapshot(machine("mi210")).devices
    card = readings[2]
    assert (card.bdf, card.drm_card, card.drm_render) == ("0000:43:00.0", 2, 129)
    names = [
        card.uuid,
        card.uuid.lower(),
        "0000:43:00.0",
        "card2",
        "renderD129",
        "gpu-2-129",
        "hcu-0000-43-00-0",
    ]
    for name in names:
        assert devices_of(name, readings) == [card.uuid], name


def test_ids_that_name_no_device(machine: Get) -> None:
    readings = dtk.take_snapshot(machine("mi210")).devices
    names = [
        "",
        "2",
        "GPU-",
        "0000:99:00.0",
        "card99",
        "renderD",
        "vdev0",
        "gpu-vfio-0",
        "amdgpu_xcp_0",
        "renderD" + "9" * 5000,
        "0000:43:00.0\n",
        # the scheduler of HAMi chose the card; this is what the kubelet chose
        "DCU-2-fake-1",
        f"HCU-{readings[2].serial}-fake-1",
        "0000:43:00.0#1",
    ]
    for name in names:
        assert devices_of(name, readings) == [], name


def test_ids_of_partitions(machine: Get) -> None:
    readings = dtk.take_snapshot(machine("mi300x-cpx")).devices
    uuids = [reading.uuid for reading in readings]
    assert devices_of(readings[0].bdf, readings) == uuids[:1]
    assert devices_of(uuids[4], readings) == [uuids[4]]
    assert devices_of("renderD130", readings) == [uuids[2]]


def test_further_partitions_and_time_slices(machine: Get, path: Path) -> None:
    root = machine("mi300x-cpx")
    readings = dtk.take_snapshot(root).devices
    ids = [readings[0].bdf, *(f"amdgpu_xcp_{number}" for number in range(7))]
    with serve(path, Kubelet()) as kubelet, asking(path, root=root) as resources:
        for suffix in ("", "-slice-3"):
            devices = [f"{name}{suffix}" for name in ids]
            kubelet.pods = [Pod(suffix or "whole", [Container("c", [("amd.com/cpx_nps1", devices)])])]
            until(lambda: resources.allocations and resources.allocations[0].pod == kubelet.pods[0].name)
            found = [devices_of(each.device, readings) for each in resources.allocations]
            assert found == [[reading.uuid] for reading in readings]
        odd = ["amdgpu_xcp_99", "amdgpu_xcp_../../..", "amdgpu_xcp_", "-slice-1"]
        kubelet.pods = [Pod("odd", [Container("c", [("amd.com/gpu", odd)])])]
        until(lambda: resources.allocations and resources.allocations[0].pod == "odd")
        assert [devices_of(each.device, readings) for each in resources.allocations] == [[]] * 4


# ---- dtk-exporter ----


def test_exporter_tells_pods(machine: Get, path: Path) -> None:
    root = machine("mi210")
    uuid = next(each.uuid for each in dtk.take_snapshot(root).devices if each.bdf == "0000:43:00.0")
    labels = {"source": "k8s", "namespace": "ml", "pod": "train-0", "container": "main"}
    with serve(path, Kubelet([TRAINING])), exporting(root, f"--collect.pod-resources={path}") as exporter:
        page = exporter.until(lambda page: page.of("dtk_device_allocation_info", **labels))
        (others,) = page.of("dtk_device_allocation_info", **labels)
        assert dict(others)["uuid"] == uuid  # the pod's other card is none of this machine
        assert page.one("dtk_collect_errors_total", source="kubelet") == 0


def test_exporter_without_a_kubelet(machine: Get, path: Path) -> None:
    with exporting(machine("mi210"), f"--collect.pod-resources={path}") as exporter:
        exporter.until(lambda page: page.one("dtk_collect_errors_total", source="kubelet"))
        assert any("kubelet" in line and str(path) in line for line in exporter.log)
        assert exporter.metrics().of("dtk_device_up")
