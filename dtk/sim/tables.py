"""The gpu_metrics table of a card, in the revision of its model."""

from __future__ import annotations

from .gpu_metrics import Stats, Value, pack
from .machine import Card, Machine, State

Table = dict[str, Value]


def gpu_metrics(machine: Machine, card: Card) -> bytes:
    """What the card's gpu_metrics file holds."""
    assert card.model.gpu_metrics is not None
    revision, content = card.model.gpu_metrics
    tables = {(1, 3): _table_v1_3, (1, 6): _table_v1_6, (2, 1): _table_v2_1}
    return pack(revision, content, tables[revision, content](machine, card))


def _nanoseconds(machine: Machine) -> int:
    return int(machine.uptime * 1e9)


def _celsius(state: State, label: str) -> int | None:
    value = state.temperatures.get(label)
    return None if value is None else round(value)


def _sum(*activity: float) -> int:
    """An activity accumulator of 32 bits: of several partitions their mean."""
    return int(sum(activity) / len(activity)) % (1 << 32)


def _table_v1_3(machine: Machine, card: Card) -> Table:
    model, state = card.model, card.state
    clocks = state.clocks
    speed, width = state.link
    memory = _celsius(state, "mem")
    return {
        "temperature_edge": _celsius(state, "edge"),
        "temperature_hotspot": _celsius(state, "junction"),
        "temperature_mem": memory,
        "temperature_vrgfx": _celsius(state, "vrgfx"),
        "temperature_vrsoc": _celsius(state, "vrsoc"),
        "temperature_vrmem": _celsius(state, "vrmem"),
        "average_gfx_activity": state.busy,
        "average_umc_activity": state.memory_utilization,
        "average_mm_activity": 0,
        "average_socket_power": round(state.power),
        "energy_accumulator": round(state.energy * 65536),
        "system_clock_counter": _nanoseconds(machine),
        "average_gfxclk_frequency": clocks["sclk"],
        "average_socclk_frequency": clocks["socclk"],
        "average_uclk_frequency": clocks["mclk"],
        "average_vclk0_frequency": clocks["vclk"],
        "average_dclk0_frequency": clocks["dclk"],
        "current_gfxclk": clocks["sclk"],
        "current_socclk": clocks["socclk"],
        "current_uclk": clocks["mclk"],
        "current_vclk0": clocks["vclk"],
        "current_dclk0": clocks["dclk"],
        "throttle_status": 0,
        "current_fan_speed": round(model.fan.rpm_max * state.fan_share) if model.fan else None,
        "pcie_link_width": width,
        "pcie_link_speed": round(float(speed.split()[0]) * 10),
        "gfx_activity_acc": _sum(*state.activity),
        "mem_activity_acc": _sum(state.memory_activity),
        "temperature_hbm": None if model.fan or memory is None else [memory, memory - 1, memory, memory - 2],
        "firmware_timestamp": _nanoseconds(machine) // 10,
        "voltage_soc": 800,
        "voltage_gfx": state.voltage,
        "voltage_mem": 1200,
        "indep_throttle_status": state.throttle,
    }


def _table_v1_6(machine: Machine, card: Card) -> Table:
    model, state = card.model, card.state
    clocks = state.clocks
    speed, width = state.link
    each = model.xccs // model.partitions
    partitions: list[Stats] = [
        {
            "gfx_busy_inst": [busy] * each,
            "vcn_busy": [0],
            "jpeg_busy": [0] * 4,
            "gfx_busy_acc": [_sum(activity)] * each,
        }
        for busy, activity in zip(state.utilization, state.activity, strict=True)
    ]
    return {
        "temperature_hotspot": _celsius(state, "junction"),
        "temperature_mem": _celsius(state, "mem"),
        "temperature_vrsoc": _celsius(state, "vrsoc"),
        "curr_socket_power": round(state.power),
        "average_gfx_activity": state.busy,
        "average_umc_activity": state.memory_utilization,
        "energy_accumulator": round(state.energy * 65536),
        "system_clock_counter": _nanoseconds(machine),
        "prochot_residency_acc": 0,
        "socket_thm_residency_acc": 0,
        "vr_thm_residency_acc": 0,
        "hbm_thm_residency_acc": 0,
        **state.residencies,
        "pcie_link_width": width,
        "pcie_link_speed": round(float(speed.split()[0]) * 10),
        "xgmi_link_width": 16,
        "xgmi_link_speed": 32,
        "gfx_activity_acc": _sum(*state.activity),
        "mem_activity_acc": _sum(state.memory_activity),
        "pcie_bandwidth_acc": int(machine.uptime) * 3,
        "pcie_bandwidth_inst": 6 * state.busy // 100,
        "pcie_l0_to_recov_count_acc": 0,
        "pcie_replay_count_acc": state.replays,
        "pcie_replay_rover_count_acc": 0,
        "pcie_nak_sent_count_acc": 0,
        "pcie_nak_rcvd_count_acc": 0,
        "xgmi_read_data_acc": [0] * 8,
        "xgmi_write_data_acc": [0] * 8,
        "firmware_timestamp": _nanoseconds(machine) // 10,
        "current_gfxclk": [clocks["sclk"]] * model.xccs,
        "current_socclk": [clocks["socclk"]] * 4,
        "current_vclk0": [clocks["vclk"]] * 4,
        "current_dclk0": [clocks["dclk"]] * 4,
        "current_uclk": clocks["mclk"],
        "num_partition": model.partitions,
        "xcp_stats": partitions,
    }


def _table_v2_1(machine: Machine, card: Card) -> Table:
    state = card.state
    clocks = state.clocks
    edge = round(state.temperatures["edge"] * 100)
    milliwatts = round(state.power * 1000)
    return {
        "temperature_gfx": edge,
        "temperature_soc": round(state.temperatures["soc"] * 100),
        "temperature_core": [edge + 150] * 8,
        "temperature_l3": [edge + 50],
        "average_gfx_activity": 100 * state.busy,  # hundredths of a percent
        "average_mm_activity": 0,
        "system_clock_counter": _nanoseconds(machine),
        "average_socket_power": milliwatts,
        "average_cpu_power": milliwatts // 3,
        "average_soc_power": milliwatts // 6,
        "average_gfx_power": milliwatts // 3,
        "average_core_power": [milliwatts // 24] * 8,
        "average_gfxclk_frequency": clocks["sclk"],
        "average_socclk_frequency": clocks["socclk"],
        "average_uclk_frequency": clocks["mclk"],
        "average_fclk_frequency": clocks["fclk"],
        "average_vclk_frequency": clocks["vclk"],
        "average_dclk_frequency": clocks["dclk"],
        "current_gfxclk": clocks["sclk"],
        "current_socclk": clocks["socclk"],
        "current_uclk": clocks["mclk"],
        "current_fclk": clocks["fclk"],
        "current_vclk": clocks["vclk"],
        "current_dclk": clocks["dclk"],
        "current_coreclk": [1400] * 8,
        "current_l3clk": [1400],
        "throttle_status": 0,
    }
