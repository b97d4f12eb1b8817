"""Asks AMD's librocm_smi64 (the ABI of ROCm 5) for everything that DTK has too, for cards of all vendors; prints JSON.

Run on its own, under bubblewrap. Arguments: the library, and the flags of rsmi_init (1: cards of all vendors).
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

SENSORS = {"edge": 0, "junction": 1, "memory": 2}  # rsmi_temperature_type_t
CURRENT, CRITICAL, EMERGENCY = 0, 5, 7  # rsmi_temperature_metric_t
CLOCKS = {"gfx": 0, "soc": 3, "memory": 4}  # rsmi_clk_type_t
MEMORY = {"": 0, "visible_": 1, "gtt_": 2}  # rsmi_memory_type_t

u32, u64, i64 = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int64


class Frequencies(ctypes.Structure):
    """rsmi_frequencies_t of ROCm 5."""

    _fields_ = [("count", u32), ("current", u32), ("hertz", u64 * 32)]


library = ctypes.CDLL(sys.argv[1])


def number(function: str, card: int, *arguments: int, kind: Any = u64) -> int | None:
    """What a function writes to its last argument; None where it fails."""
    ret = kind()
    status = getattr(library, function)(u32(card), *map(u32, arguments), ctypes.byref(ret))
    return ret.value if status == 0 else None


def text(function: str, card: int) -> str | None:
    buffer = ctypes.create_string_buffer(256)
    return buffer.value.decode() if getattr(library, function)(u32(card), buffer, u32(256)) == 0 else None


def clock(card: int, kind: int) -> float | None:
    ret = Frequencies()
    status = library.rsmi_dev_gpu_clk_freq_get(u32(card), u32(kind), ctypes.byref(ret))
    return ret.hertz[ret.current] / 1e6 if status == 0 else None


def card(index: int) -> dict[str, Any]:
    """Everything of a card, by our names."""
    found: dict[str, Any] = {
        "bdfid": number("rsmi_dev_pci_id_get", index),
        "unique_id": number("rsmi_dev_unique_id_get", index),
        "vendor_id": number("rsmi_dev_vendor_id_get", index, kind=ctypes.c_uint16),
        "device_id": number("rsmi_dev_id_get", index, kind=ctypes.c_uint16),
        "serial": text("rsmi_dev_serial_number_get", index),
        "numa_node": number("rsmi_topo_get_numa_node_number", index, kind=u32),
        "utilization_gpu": number("rsmi_dev_busy_percent_get", index, kind=u32),
        "power_average": number("rsmi_dev_power_ave_get", index, 0),
        "power_limit": number("rsmi_dev_power_cap_get", index, 0),
        "pcie_replay_count": number("rsmi_dev_pci_replay_counter_get", index),
        "voltage_gfx": number("rsmi_dev_volt_metric_get", index, 0, 0, kind=i64),
    }
    for name, sensor in SENSORS.items():
        found[f"temperature_{name}"] = number("rsmi_dev_temp_metric_get", index, sensor, CURRENT, kind=i64)
        found[f"temperature_{name}_critical"] = number("rsmi_dev_temp_metric_get", index, sensor, CRITICAL, kind=i64)
        found[f"temperature_{name}_emergency"] = number("rsmi_dev_temp_metric_get", index, sensor, EMERGENCY, kind=i64)
    for name, kind in CLOCKS.items():
        found[f"clock_{name}"] = clock(index, kind)
    for name, kind in MEMORY.items():
        found[f"memory_{name}total"] = number("rsmi_dev_memory_total_get", index, kind)
        found[f"memory_{name}used"] = number("rsmi_dev_memory_usage_get", index, kind)
    return found


def main() -> None:
    status = library.rsmi_init(u64(int(sys.argv[2])))
    count = u32()
    if status == 0:
        library.rsmi_num_monitor_devices(ctypes.byref(count))
    print(json.dumps({"status": status, "cards": [card(index) for index in range(count.value)]}))


if __name__ == "__main__":
    main()
