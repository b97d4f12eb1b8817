"""KFD's topology: a node for each processor and for each device, their memory and their links."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .files import DIRECTORY, Files, Link, line, lines
from .machine import Card, Machine

KFD = "sys/devices/virtual/kfd/kfd"
TOPOLOGY = f"{KFD}/topology"

_HYPERTRANSPORT, _PCIE, _XGMI = 1, 2, 11
_CPU_DISTANCE = 32  # weight of the way from socket to socket
_BUS = 20  # weight of the way from a socket to its card


@dataclass(frozen=True)
class _Gpu:
    """A node of a card: the whole card or one of its partitions."""

    card: Card
    part: int
    cpu: int  # node of the processor it hangs on

    @property
    def node(self) -> int:
        return self.card.kfd_node[self.part]


@dataclass(frozen=True)
class _LinkTo:
    node: int
    kind: int
    weight: int
    bandwidth: tuple[int, int] = (0, 0)  # MB/s, least and most
    flags: int = 1


def _gpus(machine: Machine) -> list[_Gpu]:
    return [
        _Gpu(card, part, max(machine.numa_node(card), 0))
        for card in machine.cards
        for part in range(card.model.partitions)
    ]


def kfd_files(machine: Machine) -> Files:
    """Everything below KFD's directory that stands still."""
    gpus = _gpus(machine)
    files: Files = {
        "sys/class/kfd/kfd": Link(KFD),
        f"{KFD}/dev": line("237:0"),
        f"{KFD}/uevent": lines("MAJOR=237", "MINOR=0", "DEVNAME=kfd"),
        f"{KFD}/subsystem": Link("sys/class/kfd"),
        f"{KFD}/power/control": line("auto"),
        f"{KFD}/power/runtime_status": line("unsupported"),
        f"{KFD}/proc": DIRECTORY,
        f"{TOPOLOGY}/generation_id": line(len(gpus) + 1 + machine.changes),
        f"{TOPOLOGY}/system_properties": lines(
            "platform_oem 35498446626881", "platform_id 71791775140929", "platform_rev 2"
        ),
    }
    for socket in range(machine.platform.sockets):
        files |= _cpu_node(machine, socket, gpus)
    for gpu in gpus:
        files |= _gpu_node(machine, gpu, gpus)
    return files


def kfd_readings(machine: Machine) -> Files:
    """What follows the cards' states: the memory in use of each node."""
    return {
        f"{TOPOLOGY}/nodes/{gpu.node}/mem_banks/0/used_memory": line(gpu.card.state.memory_used[gpu.part])
        for gpu in _gpus(machine)
    }


def _table(values: Mapping[str, int]) -> bytes:
    return lines(*(f"{key} {value}" for key, value in values.items()))


def _node(number: int, gpu_id: int, name: str, properties: Mapping[str, int], bank: Mapping[str, int]) -> Files:
    path = f"{TOPOLOGY}/nodes/{number}"
    return {
        f"{path}/gpu_id": line(gpu_id),
        f"{path}/name": line(name),
        f"{path}/properties": _table(properties),
        f"{path}/caches": DIRECTORY,
        f"{path}/mem_banks/0/properties": _table(bank),
        f"{path}/io_links": DIRECTORY,
        f"{path}/p2p_links": DIRECTORY,
    }


def _cpu_node(machine: Machine, socket: int, gpus: list[_Gpu]) -> Files:
    platform = machine.platform
    others = range(platform.sockets)
    near = [_LinkTo(n, _HYPERTRANSPORT, _CPU_DISTANCE, flags=0) for n in others if n != socket]
    near += [_LinkTo(gpu.node, _PCIE, _BUS, _bus_bandwidth(gpu), flags=3) for gpu in gpus if gpu.cpu == socket]
    far = [_LinkTo(gpu.node, _PCIE, _BUS + _CPU_DISTANCE, flags=3) for gpu in gpus if gpu.cpu != socket]
    properties = {
        "cpu_cores_count": platform.threads,
        "simd_count": 0,
        "mem_banks_count": 1,
        "caches_count": 0,
        "io_links_count": len(near),
        "p2p_links_count": len(far),
        "cpu_core_id_base": socket * platform.threads,
        "simd_id_base": 0,
        "max_waves_per_simd": 0,
        "lds_size_in_kb": 0,
        "gds_size_in_kb": 0,
        "num_gws": 0,
        "wave_front_size": 0,
        "array_count": 0,
        "simd_arrays_per_engine": 0,
        "cu_per_simd_array": 0,
        "simd_per_cu": 0,
        "max_slots_scratch_cu": 0,
        "gfx_target_version": 0,
        "vendor_id": 0,
        "device_id": 0,
        "location_id": 0,
        "domain": 0,
        "drm_render_minor": 0,
        "hive_id": 0,
        "num_sdma_engines": 0,
        "num_sdma_xgmi_engines": 0,
        "num_sdma_queues_per_engine": 0,
        "num_cp_queues": 0,
        "max_engine_clk_ccompute": platform.cpu_mhz,
    }
    bank = {"heap_type": 0, "size_in_bytes": platform.memory, "flags": 0, "width": 64, "mem_clk_max": 3200}
    files = _node(socket, 0, "", properties, bank)
    files |= _links(socket, "io_links", near)
    return files | _links(socket, "p2p_links", far)


def _gpu_node(machine: Machine, gpu: _Gpu, gpus: list[_Gpu]) -> Files:
    card, model, kfd = gpu.card, gpu.card.model, gpu.card.model.kfd
    xccs = model.xccs // model.partitions
    near, far = _ways(machine, gpu, gpus)
    units = model.compute_units // model.partitions
    properties = {
        "cpu_cores_count": 0,
        "simd_count": units * kfd.simd_per_cu,
        "mem_banks_count": 1,
        "caches_count": 0,
        "io_links_count": len(near),
        "p2p_links_count": len(far),
        "cpu_core_id_base": 0,
        "simd_id_base": 2147487744 + units * gpu.part,
        "max_waves_per_simd": kfd.max_waves,
        "lds_size_in_kb": 64,
        "gds_size_in_kb": 0,
        "num_gws": 64,
        "wave_front_size": kfd.wave_front,
        "array_count": kfd.arrays * xccs,
        "simd_arrays_per_engine": kfd.arrays_per_engine,
        "cu_per_simd_array": kfd.cu_per_array,
        "simd_per_cu": kfd.simd_per_cu,
        "max_slots_scratch_cu": 32,
        "gfx_target_version": gfx_target_version(model.gfx),
        "vendor_id": model.pci[0],
        "device_id": model.pci[1],
        # A partition's number stands in the function bits.
        "location_id": card.slot.bus << 8 | gpu.part,
        "domain": card.slot.domain,
        "drm_render_minor": card.drm_render[gpu.part],
        "hive_id": card.hive_id,
        "num_sdma_engines": kfd.sdma,
        "num_sdma_xgmi_engines": kfd.sdma_xgmi if model.partitions == 1 else 0,
        "num_sdma_queues_per_engine": kfd.sdma_queues,
        "num_cp_queues": kfd.cp_queues,
        "max_engine_clk_fcompute": model.clocks["sclk"].levels[-1],
        "local_mem_size": 0,
        "fw_version": kfd.firmware,
        "capability": kfd.capability,
        "debug_prop": kfd.debug_prop,
        "sdma_fw_version": kfd.sdma_firmware,
        "unique_id": card.unique_id or 0,
        "num_xcc": xccs,
        "max_engine_clk_ccompute": machine.platform.cpu_mhz,
    }
    bank = {
        "heap_type": 1,
        "size_in_bytes": card.banks[gpu.part],
        "flags": 0,
        "width": kfd.bank_width,
        "mem_clk_max": model.clocks["mclk"].levels[-1],
    }
    files = _node(gpu.node, card.gpu_id[gpu.part], kfd.asic, properties, bank)
    files |= _links(gpu.node, "io_links", near)
    return files | _links(gpu.node, "p2p_links", far)


def gfx_target_version(gfx: str) -> int:
    """90010 of "gfx90a": major, minor and stepping, the last two as hexadecimal digits."""
    major, minor, stepping = gfx[3:-2], gfx[-2], gfx[-1]
    return int(major) * 10000 + int(minor, 16) * 100 + int(stepping, 16)


def _bus_bandwidth(gpu: _Gpu) -> tuple[int, int]:
    return 312, 64000 if gpu.card.model.link[0].startswith("32") else 32000


def _ways(machine: Machine, gpu: _Gpu, gpus: list[_Gpu]) -> tuple[list[_LinkTo], list[_LinkTo]]:
    """A device's direct links, and those by way of the processors."""
    near = [_LinkTo(gpu.cpu, _PCIE, _BUS, _bus_bandwidth(gpu))]
    far = [_LinkTo(n, _PCIE, _BUS + _CPU_DISTANCE) for n in range(machine.platform.sockets) if n != gpu.cpu]
    for other in gpus:
        if other is gpu:
            continue
        if other.card is gpu.card:
            near.append(_LinkTo(other.node, _XGMI, 13, (819200, 819200)))
        elif gpu.card.hive_id and other.card.hive_id == gpu.card.hive_id:
            near.append(_LinkTo(other.node, _XGMI, 15, (50000, 50000)))
        else:
            between = 0 if other.cpu == gpu.cpu else _CPU_DISTANCE
            far.append(_LinkTo(other.node, _PCIE, 2 * _BUS + between, flags=3))
    return near, far


def _links(node: int, directory: str, links: list[_LinkTo]) -> Files:
    return dict(_link_files(node, directory, links))


def _link_files(node: int, directory: str, links: list[_LinkTo]) -> Iterator[tuple[str, bytes]]:
    for number, link in enumerate(links):
        values = {
            "type": link.kind,
            "version_major": 0,
            "version_minor": 0,
            "node_from": node,
            "node_to": link.node,
            "weight": link.weight,
            "min_latency": 0,
            "max_latency": 0,
            "min_bandwidth": link.bandwidth[0],
            "max_bandwidth": link.bandwidth[1],
            "recommended_transfer_size": 0,
            "recommended_sdma_engine_id_mask": 0,
            "flags": link.flags,
        }
        yield f"{TOPOLOGY}/nodes/{node}/{directory}/{number}/properties", _table(values)
