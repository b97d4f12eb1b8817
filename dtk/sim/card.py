"""The files of one card: those that stand still, and those that follow its state."""

from __future__ import annotations

from .files import Files, Link, drm_connector, drm_node, hwmon, line, lines, pci_function
from .host import port_path
from .machine import Card, Machine, State, invent
from .models import MIB, Clock, Model
from .tables import gpu_metrics


def device_path(card: Card) -> str:
    """The card's directory in sys/devices, behind its root port and the switch ports of its own board."""
    path = port_path(card.slot)
    for place in range(len(card.model.switches)):
        path += f"/{_switch_bdf(card, place)}"
    return f"{path}/{card.bdf}"


def _switch_bdf(card: Card, place: int) -> str:
    bus = card.slot.bus - len(card.model.switches) + place
    return f"{card.slot.domain:04x}:{bus:02x}:00.0"


def hwmon_path(card: Card) -> str:
    """The card's hwmon directory."""
    return f"{device_path(card)}/hwmon/hwmon{card.hwmon}"


# ---- what stands still ----


def card_files(machine: Machine, card: Card) -> Files:
    """Everything of a card that does not follow its state."""
    model, path = card.model, device_path(card)
    files = pci_function(path, model.pci, model.pci_class, model.driver)
    for place, device in enumerate(model.switches):
        bridge = path.rsplit("/", len(model.switches) - place)[0]
        files |= pci_function(bridge, (0x1002, device, 0x1002, device, 0), 0x060400, "pcieport")
    files |= {f"{path}/{name}": content for name, content in _device_files(machine, card).items()}
    files |= _drm_files(card, path)
    files |= hwmon(path, card.hwmon, model.hwmon_name)
    files |= {f"{hwmon_path(card)}/{name}": content for name, content in _hwmon_files(model).items()}
    return files


def _device_files(machine: Machine, card: Card) -> Files:
    model = card.model
    node = machine.numa_node(card)
    first = max(node, 0) * machine.platform.threads
    files: Files = {
        "numa_node": line(node),
        "local_cpulist": line(f"{first}-{first + machine.platform.threads - 1}"),
        "max_link_speed": line(model.link[0]),
        "max_link_width": line(model.link[1]),
        "boot_vga": line(int(model.apu)),
        "enable": line(1),
        "power/control": line("auto" if model.fan else "on"),
        "power/autosuspend_delay_ms": line(5000),
        "power_dpm_state": line("performance"),
        "mem_info_vram_total": line(model.vram),
        "mem_info_vis_vram_total": line(model.vram),
        "mem_info_gtt_total": line(_gtt_total(machine, model)),
        "mem_info_preempt_used": line(0),
    }
    files |= {name: line(text.format(bdf=card.bdf)) for name, text in model.text.items()}
    if card.unique_id is not None:
        files["unique_id"] = line(f"{card.unique_id:016x}")
    if model.has_serial:
        files["serial_number"] = line(card.serial)
    if model.memory_vendor:
        files["mem_info_vram_vendor"] = line(model.memory_vendor)
    for name in model.firmware:
        files[f"fw_version/{name}_fw_version"] = line(f"0x{invent(16, model.gfx, name):08x}")
    if model.compute_partition:
        files["current_compute_partition"] = line(model.compute_partition)
        files["available_compute_partition"] = line(", ".join(model.compute_partitions))
        files["current_memory_partition"] = line(model.memory_partition)
        files["available_memory_partition"] = line(", ".join(model.memory_partitions))
    if model.hive:
        files["xgmi_device_id"] = line(card.hive_id + card.hive_position if card.hive_id else 0)
        files["xgmi_physical_id"] = line(card.hive_position)
    if model.ras:
        mask = (1 << len(model.ras)) - 1
        files["ras/features"] = line(f"feature mask: 0x{mask:x}")
        files["ras/version"] = line("table version: 0x10000")
        files["ras/schema"] = line(f"schema: 0x{mask:x}")
    return files


def _gtt_total(machine: Machine, model: Model) -> int:
    return model.bank or machine.platform.memory * machine.platform.sockets // 2 - 32 * MIB


def _drm_files(card: Card, path: str) -> Files:
    """The card's own nodes and, for its further partitions, those of the driver's platform devices."""
    files: Files = {}
    parents = [path]
    for place in card.xcp:
        name = f"{card.model.driver}_xcp_{place}"
        parent = f"sys/devices/platform/{name}"
        parents.append(parent)
        files |= {
            f"{parent}/uevent": lines(f"MODALIAS=platform:{name}"),
            f"{parent}/modalias": line(f"platform:{name}"),
            f"{parent}/subsystem": Link("sys/bus/platform"),
            f"sys/bus/platform/devices/{name}": Link(parent),
        }
    for parent, minor, render in zip(parents, card.drm_card, card.drm_render, strict=True):
        files |= drm_node(parent, f"card{minor}", minor)
        files |= drm_node(parent, f"renderD{render}", render)
    for connector in card.model.connectors:
        files |= drm_connector(path, f"card{card.drm_card[0]}", connector)
    return files


def _hwmon_files(model: Model) -> Files:
    files: Files = {"freq1_label": line("sclk")}
    if not model.apu:
        files["freq2_label"] = line("mclk")
    for sensor in model.sensors:
        if sensor.channel is None:
            continue
        name = f"temp{sensor.channel}"
        files[f"{name}_label"] = line(sensor.label)
        if sensor.critical is not None:
            files[f"{name}_crit"] = line(sensor.critical * 1000)
            files[f"{name}_crit_hyst"] = line(-273150)
        if sensor.emergency is not None:
            files[f"{name}_emergency"] = line(sensor.emergency * 1000)
    if model.power_label:
        files["power1_label"] = line(model.power_label)
    if model.cap:
        lowest, default, highest = model.cap
        files["power1_cap_min"] = line(lowest * 1000000)
        files["power1_cap_max"] = line(highest * 1000000)
        files["power1_cap_default"] = line(default * 1000000)
    if model.voltage:
        files["in0_label"] = line("vddgfx")
    if model.voltage_northbridge:
        files["in1_label"] = line("vddnb")
    if model.fan:
        files |= {"fan1_min": line(0), "fan1_max": line(model.fan.rpm_max), "fan1_enable": line(0)}
        files |= {"pwm1_min": line(0), "pwm1_max": line(255), "pwm1_enable": line(2)}
    return files


# ---- what follows the state ----


def card_readings(machine: Machine, card: Card) -> Files:
    """Every file of a card that follows its state; the set of names depends on the model alone."""
    path = device_path(card)
    files = {f"{path}/{name}": content for name, content in _device_readings(machine, card).items()}
    files |= {f"{hwmon_path(card)}/{name}": content for name, content in _hwmon_readings(card).items()}
    return files


def _device_readings(machine: Machine, card: Card) -> Files:
    model, state = card.model, card.state
    used = sum(state.memory_used)
    active = int(machine.uptime * 1000)
    suspended = state.runtime_status == "suspended"
    files: Files = {
        "gpu_busy_percent": line(state.busy),
        "mem_info_vram_used": line(used),
        "mem_info_vis_vram_used": line(used),
        "mem_info_gtt_used": line(state.gtt_used),
        "current_link_speed": line(state.link[0]),
        "current_link_width": line(state.link[1]),
        "power_dpm_force_performance_level": line(state.performance_level),
        "power_state": line("D3hot" if suspended else "D0"),
        "power/runtime_status": line(state.runtime_status),
        "power/runtime_active_time": line(active),
        "power/runtime_suspended_time": line(0),
        "pp_dpm_pcie": _link_levels(model, state),
    }
    for name, clock in model.clocks.items():
        files[f"pp_dpm_{name}"] = _levels(clock, state.clocks[name])
    if model.has_memory_busy:
        files["mem_busy_percent"] = line(state.memory_utilization)
    if not model.apu:
        files["pcie_replay_count"] = line(state.replays)
    if model.gpu_metrics:
        files["gpu_metrics"] = gpu_metrics(machine, card)
    for block, (uncorrected, corrected, deferred) in state.errors.items():
        counts = [f"ue: {uncorrected}", f"ce: {corrected}"]
        if model.ras_deferred and block == "umc":
            counts.append(f"de: {deferred}")
        files[f"ras/{block}_err_count"] = lines(*counts)
    if model.ras:
        pages = (f"0x{page:08x} : 0x00001000 : {flag}" for page, flag in state.bad_pages)
        files["ras/gpu_vram_bad_pages"] = lines(*pages)
    return files


def _hwmon_readings(card: Card) -> Files:
    model, state = card.model, card.state
    files: Files = {"freq1_input": line(state.clocks["sclk"] * 1000000)}
    if not model.apu:
        files["freq2_input"] = line(state.clocks["mclk"] * 1000000)
    for sensor in model.sensors:
        if sensor.channel is not None:
            files[f"temp{sensor.channel}_input"] = line(round(state.temperatures[sensor.label] * 1000))
    for name in model.power_files:
        files[f"power1_{name}"] = line(round(state.power * 1000000))
    if state.power_cap is not None:
        files["power1_cap"] = line(state.power_cap * 1000000)
    if state.voltage is not None:
        files["in0_input"] = line(state.voltage)
    if model.voltage_northbridge:
        files["in1_input"] = line(model.voltage_northbridge)
    if model.fan:
        rpm = round(model.fan.rpm_max * state.fan_share)
        files |= {"fan1_input": line(rpm), "fan1_target": line(rpm), "pwm1": line(round(255 * state.fan_share))}
    return files


def _levels(clock: Clock, now: int) -> bytes:
    """A pp_dpm file: the level in force carries the star."""
    levels = list(clock.levels)
    rows = []
    if clock.ranged and levels[0] < now < levels[-1]:
        levels = [levels[0], now, levels[-1]]
    elif clock.ranged:
        levels = [levels[0], levels[-1]]
    asleep = clock.deep_sleep is not None and now <= clock.deep_sleep
    if asleep:
        rows.append(f"S: {now}Mhz *")
    nearest = min(range(len(levels)), key=lambda n: abs(levels[n] - now))
    for place, level in enumerate(levels):
        rows.append(f"{place}: {level}Mhz {'*' if place == nearest and not asleep else ''}")
    return lines(*rows)


def _link_levels(model: Model, state: State) -> bytes:
    if model.apu:
        return b"\n"
    speed, width = model.link
    slow = state.link != model.link
    return lines(
        f"0: 2.5GT/s, x{width} 619Mhz {'*' if slow else ''}",
        f"1: {speed.split()[0]}GT/s, x{width} 619Mhz {'' if slow else '*'}",
    )
