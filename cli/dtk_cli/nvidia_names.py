"""nvidia-smi's query fields: what DTK can answer of them, in nvidia's units, words and number of digits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import dtk
from dtk import throttle
from dtk_cli.cells import number
from dtk_cli.names import driver_version, gpu_temperature

Answer = Callable[[dtk.Snapshot, dtk.Reading], "str | None"]


class Question:
    """A field of nvidia-smi.

    answer: of a device; None where it is missing. ours: the field of `query` that the name is an alias of.
    """

    __slots__ = ("answer", "ours", "tiers", "unit")

    def __init__(self, answer: Answer, *, unit: str = "", ours: str = "", tiers: tuple[str, ...] = ()) -> None:
        self.unit = unit
        self.answer = answer
        self.ours = ours
        self.tiers = tiers


# ---- units and words ----


def _whole(value: float) -> str:
    return f"{value:.0f}"


def _mebibytes(value: float) -> str:
    return str(int(value) >> 20)


def _watts(value: float) -> str:
    return f"{value:.2f}"


def _yes(value: float) -> str:
    return "Yes" if value else "No"


def _generation(rate: float) -> str | None:
    """Of PCI Express, by the GT/s of a lane."""
    return {2.5: "1", 5.0: "2", 8.0: "3", 16.0: "4", 32.0: "5", 64.0: "6"}.get(rate)


def _local_time(_: dtk.Snapshot, device: dtk.Reading) -> str:
    seconds = device.sample.timestamp
    return f"{time.strftime('%Y/%m/%d %H:%M:%S', time.localtime(seconds))}.{int(seconds * 1000) % 1000:03}"


def _bus_id(_: dtk.Snapshot, device: dtk.Reading) -> str:
    """With eight digits of the domain, in capitals."""
    domain, rest = device.bdf.split(":", 1)
    return f"{domain:0>8}:{rest}".upper()


def _part(place: int) -> Answer:
    """A number of the PCI address: its domain, bus or device."""

    def answer(_: dtk.Snapshot, device: dtk.Reading) -> str:
        digits = device.bdf.replace(".", ":").split(":")[place]
        return f"0x{digits.upper()}"

    return answer


def _ids(device_id: str, vendor_id: str) -> Answer:
    def answer(_: dtk.Snapshot, device: dtk.Reading) -> str | None:
        numbers = getattr(device, device_id), getattr(device, vendor_id)
        return None if None in numbers else f"0x{numbers[0]:04X}{numbers[1]:04X}"

    return answer


def _temperature(_: dtk.Snapshot, device: dtk.Reading) -> str | None:
    value = number(device.sample, gpu_temperature(device.sample))
    return None if value is None else _whole(value)


def _throttled(*reasons: str) -> Answer:
    """Whether one of these of throttle.REASONS is active."""

    def answer(_: dtk.Snapshot, device: dtk.Reading) -> str | None:
        bits = device.sample.throttle_status
        if bits is None:
            return None
        return "Active" if any(throttle.reason_of(bit) in reasons for bit in bits) else "Not Active"

    return answer


# ---- the fields ----


def _is(ours: str, show: Callable[[float], str | None] = _whole, unit: str = "") -> Question:
    """A metric of ours, shown in nvidia's way."""

    def answer(_: dtk.Snapshot, device: dtk.Reading) -> str | None:
        value = number(device.sample, ours)
        return None if value is None else show(value)

    return Question(answer, unit=unit, ours=ours, tiers=(dtk.metrics.get(ours).tier,))


def _names(attribute: str, *tiers: str) -> Question:
    """What a device is called."""

    def answer(_: dtk.Snapshot, device: dtk.Reading) -> str | None:
        value = getattr(device, attribute)
        return None if value is None else str(value)

    return Question(answer, ours=attribute, tiers=tiers)


def _bytes(ours: str) -> Question:
    return _is(ours, _mebibytes, "MiB")


def _power(ours: str) -> Question:
    return _is(ours, _watts, "W")


def _clock(ours: str) -> Question:
    return _is(ours, unit="MHz")


QUESTIONS = {
    "timestamp": Question(_local_time, ours="timestamp"),
    "driver_version": Question(driver_version, ours="driver_version"),
    "count": Question(lambda snapshot, _: str(len(snapshot.devices))),
    "name": _names("name", "static"),
    "serial": _names("serial", "static"),
    "uuid": _names("uuid"),
    "index": _names("index"),
    "hostname": Question(lambda snapshot, _: snapshot.system.hostname, ours="hostname"),
    "pci.bus_id": Question(_bus_id, ours="bdf"),
    "pci.domain": Question(_part(0)),
    "pci.bus": Question(_part(1)),
    "pci.device": Question(_part(2)),
    "pci.device_id": Question(_ids("device_id", "vendor_id")),
    "pci.sub_device_id": Question(_ids("subsystem_device_id", "subsystem_vendor_id")),
    "pcie.link.gen.current": _is("pcie_link_speed", _generation),
    "pcie.link.gen.gpucurrent": _is("pcie_link_speed", _generation),
    "pcie.link.gen.max": _is("pcie_link_speed_max", _generation),
    "pcie.link.gen.gpumax": _is("pcie_link_speed_max", _generation),
    "pcie.link.width.current": _is("pcie_link_width"),
    "pcie.link.width.max": _is("pcie_link_width_max"),
    "vbios_version": Question(lambda _, device: device.info.get("vbios"), ours="vbios", tiers=("static",)),
    "fan.speed": _is("fan_speed", unit="%"),
    "clocks_event_reasons.sw_power_cap": Question(_throttled("power"), tiers=("fast",)),
    "clocks_event_reasons.sw_thermal_slowdown": Question(_throttled(*throttle.HEAT), tiers=("fast",)),
    "memory.total": _bytes("memory_total"),
    "memory.used": _bytes("memory_used"),
    "memory.free": _bytes("memory_free"),
    "utilization.gpu": _is("utilization_gpu", unit="%"),
    "utilization.memory": _is("utilization_memory", unit="%"),
    "ecc.errors.corrected.volatile.total": _is("ecc_correctable"),
    "ecc.errors.uncorrected.volatile.total": _is("ecc_uncorrectable"),
    "retired_pages.pending": _is("pending_pages", _yes),
    "temperature.gpu": Question(_temperature, ours="temperature_gpu", tiers=("fast",)),
    "temperature.memory": _is("temperature_memory"),
    "power.draw": _power("power_draw"),
    "power.draw.average": _power("power_average"),
    "power.draw.instant": _power("power_current"),
    "power.limit": _power("power_limit"),
    "enforced.power.limit": _power("power_limit"),
    "power.default_limit": _power("power_limit_default"),
    "power.min_limit": _power("power_limit_min"),
    "power.max_limit": _power("power_limit_max"),
    "clocks.current.graphics": _clock("clock_gfx"),
    "clocks.current.sm": _clock("clock_gfx"),
    "clocks.current.memory": _clock("clock_memory"),
    "clocks.current.video": _clock("clock_video"),
    "clocks.max.graphics": _clock("clock_gfx_max"),
    "clocks.max.sm": _clock("clock_gfx_max"),
    "clocks.max.memory": _clock("clock_memory_max"),
}

# The other fields, which have no answer here; those with a unit stand behind it.
UNANSWERED = """
    pci.baseClass pci.subClass pcie.link.gen.hostmax persistence_mode addressing_mode display_attached display_active
    display_mode accounting.mode accounting.buffer_size driver_model.current driver_model.pending
    inforom.img inforom.oem inforom.ecc inforom.pwr inforom.checksum_validation gpu_recovery_action
    gom.current gom.pending pstate clocks_event_reasons.supported clocks_event_reasons.active
    clocks_event_reasons.gpu_idle clocks_event_reasons.applications_clocks_setting clocks_event_reasons.hw_slowdown
    clocks_event_reasons.hw_thermal_slowdown clocks_event_reasons.hw_power_brake_slowdown
    clocks_event_reasons.sync_boost compute_mode compute_cap
    encoder.stats.sessionCount encoder.stats.averageFps encoder.stats.averageLatency
    dramEncryption.mode.current dramEncryption.mode.pending ecc.mode.current ecc.mode.pending
    ecc.errors.corrected.aggregate.total ecc.errors.uncorrected.aggregate.total
    retired_pages.single_bit_ecc.count retired_pages.double_bit.count
    remapped_rows.correctable remapped_rows.uncorrectable remapped_rows.pending remapped_rows.failure
    temperature.gpu.tlimit power.management mig.mode.current mig.mode.pending c2c.mode gsp.mode.current gsp.mode.default
    fabric.state fabric.status fabric.cliqueId fabric.clusterUuid fabric.health.summary fabric.health.bandwidth
    fabric.health.route_recovery_in_progress fabric.health.route_unhealthy fabric.health.access_timeout_recovery
    fabric.health.incorrect_configuration
  %
    utilization.encoder utilization.decoder utilization.jpeg utilization.ofa edpp_multiplier
  MiB
    memory.reserved protected_memory.total protected_memory.used protected_memory.free
  W
    module.power.draw.average module.power.draw.instant module.power.limit module.enforced.power.limit
    module.power.default_limit module.power.min_limit module.power.max_limit
  MHz
    clocks.applications.graphics clocks.applications.memory clocks.default_applications.graphics
    clocks.default_applications.memory
  us
    clocks_event_reasons_counters.sw_power_cap clocks_event_reasons_counters.sync_boost
    clocks_event_reasons_counters.sw_thermal_slowdown clocks_event_reasons_counters.hw_thermal_slowdown
    clocks_event_reasons_counters.hw_power_brake_slowdown
"""

# An alias, and the name that stands in the header.
ALIASES = dict(
    line.split()
    for line in """
    gpu_name name
    gpu_serial serial
    gpu_uuid uuid
    gpu_bus_id pci.bus_id
    inforom.image inforom.img
    inforom.power inforom.pwr
    gpu_operation_mode.current gom.current
    gpu_operation_mode.pending gom.pending
    remapped_rows.sbe remapped_rows.correctable
    remapped_rows.dbe remapped_rows.uncorrectable
    retired_pages.sbe retired_pages.single_bit_ecc.count
    retired_pages.dbe retired_pages.double_bit.count
    gpu.power.draw.average power.draw.average
    gpu.power.draw.instant power.draw.instant
    gpu.power.requested_limit power.limit
    gpu.power.current_limit enforced.power.limit
    gpu.power.default_limit power.default_limit
    gpu.power.min_limit power.min_limit
    gpu.power.max_limit power.max_limit
    module.power.requested_limit module.power.limit
    module.power.current_limit module.enforced.power.limit
    clocks.gr clocks.current.graphics
    clocks.sm clocks.current.sm
    clocks.mem clocks.current.memory
    clocks.video clocks.current.video
    clocks.max.gr clocks.max.graphics
    clocks.max.mem clocks.max.memory
    clocks.applications.gr clocks.applications.graphics
    clocks.applications.mem clocks.applications.memory
    clocks.default_applications.gr clocks.default_applications.graphics
    clocks.default_applications.mem clocks.default_applications.memory
    """.strip().splitlines()
)


def _unanswered() -> Iterator[tuple[str, Question]]:
    unit = ""
    for line in UNANSWERED.splitlines()[1:]:
        if line.startswith("    "):
            yield from ((name, Question(lambda *_: None, unit=unit)) for name in line.split())
        else:
            unit = line.strip()


QUESTIONS.update(_unanswered())
ALIASES.update(
    (name.replace("event", "throttle", 1), name) for name in QUESTIONS if name.startswith("clocks_event_reasons.")
)

# nvidia-smi's names, aliases too, that `query` takes for its own fields, besides those that are the same.
OURS = {
    name: QUESTIONS[canonical].ours
    for name, canonical in [*((name, name) for name in QUESTIONS), *ALIASES.items()]
    if QUESTIONS[canonical].ours not in ("", name)
}
