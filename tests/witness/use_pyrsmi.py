"""Asks pyrsmi 0.2.0 for the readings that DTK has too; prints JSON. Run on its own, under bubblewrap."""

from __future__ import annotations

import json

from pyrsmi import rocml


def main() -> None:
    rocml.smi_initialize()
    cards = [
        {
            "bdfid": rocml.smi_get_device_pci_id(card),
            "device_id": rocml.smi_get_device_id(card),
            "unique_id": rocml.smi_get_device_unique_id(card),
            "utilization_gpu": rocml.smi_get_device_utilization(card),
            "utilization_memory": rocml.smi_get_device_memory_busy(card),
            "memory_total": rocml.smi_get_device_memory_total(card),
            "memory_used": rocml.smi_get_device_memory_used(card),
            "memory_visible_total": rocml.smi_get_device_memory_total(card, "VIS_VRAM"),
            "memory_gtt_used": rocml.smi_get_device_memory_used(card, "GTT"),
            "power_average": rocml.smi_get_device_average_power(card),
            "pcie_replay_count": rocml.smi_get_device_pci_replay_counter(card),
            "hive_id": rocml.smi_get_device_xgmi_hive_id(card),
            "numa_node": rocml.smi_get_device_topo_numa_node_number(card),
        }
        for card in range(rocml.smi_get_device_count())
    ]
    print(json.dumps(cards))


if __name__ == "__main__":
    main()
