"""What proc tells of a process: stat, status, cmdline, cgroup, fdinfo, and etc/passwd."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from native_library import library
from test_parsers import ABSENT, MALFORMED, U32_MAX, U64_MAX, parse, prove

ID = "0123456789abcdef" * 4
OTHER = "f" * 64
POD = "a4faced8-a576-4d79-ad3e-1caeb5f2ec69"
POD_ = POD.replace("-", "_")


def string(array: Any) -> str:
    return bytes(library().ffi.string(array)).decode()


def fill(name: str, *arguments: object, size: int = 256) -> tuple[int, str]:
    """Status, and what a parser wrote that fills a string of `size` bytes."""
    ffi, lib = library()
    ret = ffi.new("char[]", size)
    status = getattr(lib, f"parse_{name}")(*arguments[:-1], ret, size, *arguments[-1:])
    return status, string(ret)


# ---- stat ----

REST = "1 4711 4711 0 -1 {flags} 90210 0 12 0 100 200 0 0 20 0 24 0 {start} 21474836480 524288 18446744073709551615 0\n"


def stat(name: str, state: str = "S", flags: int = 4194304, start: int = 123456) -> bytes:
    return f"4711 ({name}) {state} {REST.format(flags=flags, start=start)}".encode()


@pytest.mark.parametrize("name", ["python3", "a b", "a) S 1 (b", "((", "))", "进程", "x" * 63])
def test_stat(name: str) -> None:
    result = parse("process_stat", "struct process_stat", stat(name, "D"))
    assert (string(result.name), result.state, result.parent, result.start_ticks) == (name, b"D", 1, 123456)
    assert not result.kernel


def test_stat_of_a_kernel_thread() -> None:
    assert parse("process_stat", "struct process_stat", stat("kworker/0:1", "I", 0x00200040)).kernel


def test_stat_of_a_nameless_process() -> None:
    assert string(parse("process_stat", "struct process_stat", stat("")).name) == ""


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"4711",
        b"4711 (x",
        b"4711 x) S",
        b"4711 (x) S 1 2 3",
        stat("x", ""),
        stat("x", "SS"),
        stat("x", "5"),
        stat("x").replace(b" 1 4711", b" -1 4711"),
        stat("x").replace(b" 1 4711", b" 4294967296 4711"),
        stat("x", start=2**64),
    ],
)
def test_stat_refuses(text: bytes) -> None:
    assert parse("process_stat", "struct process_stat", text) == MALFORMED


@prove
@given(
    st.text(st.characters(exclude_categories=["Cc", "Cs"], exclude_characters=" "), min_size=1, max_size=15),
    st.integers(0, U64_MAX),
)
def test_stat_of_any_name(name: str, start: int) -> None:
    result = parse("process_stat", "struct process_stat", stat(name, start=start))
    assert (string(result.name), result.start_ticks) == (name.strip(), start) or not name.isprintable()


# ---- status ----


@pytest.mark.parametrize(
    ("text", "uid", "ns_pid"),
    [
        ("Name:\tx\nUid:\t1\t2\t3\t4\nNSpid:\t4711\n", 2, -1),
        ("Name:\tx\nUid:\t0\t0\t0\t0\nGroups:\t1 2 3 \nNSpid:\t4711\t12\t1\n", 0, 1),
        (f"Uid:\t{U32_MAX}\t{U32_MAX}\t0\t0\n", U32_MAX, -1),  # of a kernel before 4.1
        ("Uid:\t5\t5\t5\t5\nNSpid:\tmany\n", 5, -1),
    ],
)
def test_status(text: str, uid: int, ns_pid: int) -> None:
    result = parse("process_status", "struct process_status", text.encode())
    assert (result.uid, result.ns_pid) == (uid, ns_pid)


def test_status_refuses() -> None:
    assert parse("process_status", "struct process_status", b"") == MALFORMED
    assert parse("process_status", "struct process_status", b"Name:\tx\n") == ABSENT
    assert parse("process_status", "struct process_status", b"Uid:\t0\t0\t0\n") == MALFORMED
    assert parse("process_status", "struct process_status", b"Uid:\t0\t4294967296\t0\t0\n") == MALFORMED


# ---- cmdline and passwd ----


@pytest.mark.parametrize(
    ("text", "size", "command", "cut"),
    [
        (b"python3\0train.py\0--x\0", 256, "python3 train.py --x", False),
        (b"sh\0-c\0a\nb\tc\0", 256, "sh -c a b c", False),
        (b"title without end", 256, "title without end", False),
        (b"a\0" + "进程".encode() + b"\0\xff\x1b[31m\0", 256, "a 进程 ??[31m", False),
        (b"abcdefgh\0", 8, "abcdefg", True),
        ("进进进".encode(), 8, "进进", True),
        (b"x" * 255 + b"\0", 256, "x" * 255, False),
        (b"x" * 256 + b"\0", 256, "x" * 255, True),
        (b"x\0" * 5000, 2000, "x " * 511 + "x", True),
    ],
)
def test_command(text: bytes, size: int, command: str, cut: bool) -> None:
    ffi, _ = library()
    flag = ffi.new("bool *", not cut)
    assert fill("command", ffi.from_buffer("char[]", text), len(text), flag, size=size) == (0, command)
    assert flag[0] == cut


def test_command_that_is_empty() -> None:
    ffi, _ = library()
    for text in (b"", b"\0\0", b"  \n"):
        assert fill("command", ffi.from_buffer("char[]", text), len(text), ffi.new("bool *")) == (MALFORMED.status, "")


def user(text: str, uid: int) -> tuple[int, str]:
    ffi, lib = library()
    raw, ret = text.encode(), ffi.new("char[32]")
    return lib.parse_user(ffi.from_buffer("char[]", raw), len(raw), uid, ret, 32), string(ret)


def test_user() -> None:
    text = "root:x:0:0:root:/root:/bin/sh\n\n# note\nbroken\n+::::::\nliwei:x:1004:1004::/:\nagain:x:1004:1::/:\n"
    assert user(text, 0) == (0, "root")
    assert user(text, 1004) == (0, "liwei")
    assert user(text, 7) == (ABSENT.status, "")
    assert user(text, -1) == (ABSENT.status, "")
    assert user("", 0) == (MALFORMED.status, "")


# ---- cgroup ----

V1 = "12:devices:{0}\n11:freezer:/\n5:cpu,cpuacct:{0}\n1:name=systemd:{0}\n"
V2 = "0::{0}\n"


@pytest.mark.parametrize("form", [V1, V2], ids=["v1", "v2"])
@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("/", {}),
        ("/../../kubepods", {}),
        # Kubernetes, with cgroupfs and with systemd; guaranteed, burstable, static pod; k3s; kind
        (f"/kubepods/pod{POD}/{ID}", {"pod": POD, "container": ID}),
        (f"/kubepods/burstable/pod{POD}/{ID}", {"pod": POD, "container": ID}),
        (f"/kubepods/besteffort/pod{'ab' * 16}/{ID}", {"pod": "ab" * 16, "container": ID}),
        (
            f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD_}.slice/cri-containerd-{ID}.scope",
            {"pod": POD, "container": ID, "runtime": "containerd"},
        ),
        (
            f"/kubepods.slice/kubepods-pod{POD_}.slice/crio-{ID}.scope",
            {"pod": POD, "container": ID, "runtime": "crio"},
        ),
        (
            f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{POD_}.slice/docker-{ID}.scope",
            {"pod": POD, "container": ID, "runtime": "docker"},
        ),
        (
            f"/system.slice/containerd.service/kubepods-besteffort-pod{POD_}.slice:cri-containerd:{ID}",
            {"pod": POD, "container": ID, "runtime": "containerd", "unit": "containerd.service"},
        ),
        (
            f"/docker/{OTHER}/kubelet/kubepods/burstable/pod{POD}/{ID}",
            {"pod": POD, "container": ID},
        ),
        # Docker, Podman, nerdctl, LXC
        (f"/docker/{ID}", {"container": ID, "runtime": "docker"}),
        (f"/system.slice/docker-{ID}.scope", {"container": ID, "runtime": "docker"}),
        (
            f"/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{ID}.scope",
            {"container": ID, "runtime": "docker", "unit": "user@1000.service"},
        ),
        (f"/machine.slice/libpod-{ID}.scope/container", {"container": ID, "runtime": "podman"}),
        (f"/libpod_parent/libpod-{ID}", {"container": ID, "runtime": "podman"}),
        (f"/system.slice/nerdctl-{ID}.scope", {"container": ID, "runtime": "containerd"}),
        (f"/default/{ID}", {"container": ID}),
        (
            "/lxc.payload.train-1/system.slice/ssh.service",
            {"container": "train-1", "runtime": "lxc", "unit": "ssh.service"},
        ),
        ("/lxc/train-1", {"container": "train-1", "runtime": "lxc"}),
        # What watches over a container is not in it
        (f"/machine.slice/libpod-conmon-{ID}.scope", {"unit": f"libpod-conmon-{ID}.scope"[:63]}),
        ("/lxc.monitor.train-1", {}),
        (f"/docker/{ID[1:]}", {}),
        (f"/docker/{ID}0", {}),
        (f"/kubepods/pod{POD}0", {}),
        # Slurm: cgroup/v1, with the name of the node, cgroup/v2
        ("/slurm/uid_1000/job_1234/step_0/task_0", {"slurm_job": "1234", "slurm_step": "0"}),
        ("/slurm_n1/uid_1000/job_1234/step_extern", {"slurm_job": "1234", "slurm_step": "extern"}),
        (
            "/system.slice/slurmstepd.scope/job_1234/step_batch/user/task_0",
            {"slurm_job": "1234", "slurm_step": "batch", "unit": "slurmstepd.scope"},
        ),
        (
            "/system.slice/n1_slurmstepd.scope/job_7/step_0+1/slurm",
            {"slurm_job": "7", "slurm_step": "0+1", "unit": "n1_slurmstepd.scope"},
        ),
        ("/slurm/uid_1000/job_x/step_0", {}),
        ("/user.slice/job_1234/step_0", {}),
        # systemd
        ("/system.slice/ollama.service", {"unit": "ollama.service"}),
        ("/user.slice/user-1000.slice/session-3.scope", {"unit": "session-3.scope"}),
        ("/.service/.scope", {}),
    ],
)
def test_cgroup(form: str, path: str, known: dict[str, str]) -> None:
    result = parse("cgroup", "struct process_group", form.format(path).encode())
    names = ("container", "runtime", "pod", "slurm_job", "slurm_step", "unit")
    assert {name: text for name in names if (text := string(getattr(result, name)))} == known


def test_cgroup_of_both_versions() -> None:
    text = f"9:devices:/slurm/uid_0/job_5/step_0\n1:name=systemd:/docker/{ID}\n0::/system.slice/slurmd.service\n"
    result = parse("cgroup", "struct process_group", text.encode())
    assert (string(result.slurm_job), string(result.container)) == ("5", ID)
    assert string(result.unit) == "slurmd.service"


def test_cgroup_that_is_empty() -> None:
    assert parse("cgroup", "struct process_group", b"\n \n") == MALFORMED


# ---- fdinfo ----

MODERN = """pos:\t0
flags:\t02100002
mnt_id:\t26
ino:\t1125
drm-driver:\tamdgpu
drm-client-id:\t42
drm-pdev:\t0000:43:00.0
pasid:\t32771
drm-total-vram:\t5 GiB
drm-shared-vram:\t0
drm-resident-vram:\t12 MiB
drm-purgeable-vram:\t0
drm-resident-gtt:\t4096
drm-memory-vram:\t99 KiB
drm-memory-gtt: \t2048 KiB
drm-memory-cpu: \t0 KiB
amd-requested-vram:\t99 KiB
drm-engine-gfx:\t123456 ns
drm-engine-dec:\t1 ns
drm-engine-enc:\t5 ns
drm-engine-enc_1:\t7 ns
drm-engine-capacity-gfx:\t2
drm-engine-npu:\t3 ns
"""
GFX, DECODE, ENCODE = 0, 3, 4


def fdinfo(text: str) -> Any:
    return parse("fdinfo", "struct fdinfo", text.encode())


def test_fdinfo() -> None:
    result = fdinfo(MODERN)
    assert (result.client, result.pasid) == (42, 32771)
    address = result.address
    assert (address.domain, address.bus, address.device, address.function) == (0, 0x43, 0, 0)
    assert (result.vram, result.gtt) == (12 << 20, 4096)
    assert result.engines == 1 << GFX | 1 << DECODE | 1 << ENCODE
    assert (result.engine[GFX], result.engine[DECODE], result.engine[ENCODE]) == (123456, 1, 12)


def test_fdinfo_in_any_order() -> None:
    lines = MODERN.splitlines(keepends=True)
    assert bytes(library().ffi.buffer(fdinfo("".join(reversed(lines))))) == bytes(library().ffi.buffer(fdinfo(MODERN)))


def test_fdinfo_of_linux_5_19() -> None:
    result = fdinfo("drm-client-id:\t7\ndrm-memory-vram:\t12 KiB\ndrm-memory-gtt: \t3 KiB\n")
    assert (result.client, result.vram, result.gtt, result.engines) == (7, 12 << 10, 3 << 10, 0)


def test_fdinfo_of_linux_5_14() -> None:
    result = fdinfo(
        "pdev:\t0000:0b:00.0\npasid:\t32770\nvram mem:\t1024 kB\ngtt mem:\t8 kB\ncpu mem:\t0 kB\ngfx0:\t1.00%\n"
    )
    assert (result.has_client, result.has_pasid, result.has_address) == (False, True, True)
    assert (result.vram, result.gtt, result.address.bus) == (1 << 20, 8 << 10, 0xB)


def test_fdinfo_without_a_word_of_the_driver() -> None:
    result = fdinfo("pos:\t0\nflags:\t02\nmnt_id:\t5\n")
    assert not any((result.has_client, result.has_address, result.has_pasid, result.has_vram, result.has_gtt))


@pytest.mark.parametrize(
    "value", ["", "x", "-1 KiB", "1 kib", "1 GiB", "1.5 MiB", f"{2**64} KiB", f"{2**54} KiB", "1 KiB x"]
)
def test_fdinfo_leaves_out_what_is_no_size(value: str) -> None:
    result = fdinfo(f"drm-resident-vram:\t{value}\ndrm-memory-vram:\t3 KiB\ndrm-engine-gfx:\t{value}\n")
    assert (result.vram, result.engines) == (3 << 10, 0)


def test_fdinfo_engine_time_does_not_wrap() -> None:
    assert fdinfo(f"drm-engine-gfx:\t{U64_MAX} ns\ndrm-engine-gfx:\t5 ns\n").engine[GFX] == U64_MAX
