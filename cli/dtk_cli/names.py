"""The names that `query` takes: of metrics, of what a device is, and nvidia-smi's as aliases of these."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import dtk
from dtk.document import rfc3339
from dtk_cli.exit import Exit, Stop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dtk.sample import Value

GPU_TEMPERATURE = ("temperature_edge", "temperature_junction", "temperature_core")


class Field:
    """A column: a name, its unit, the tier it is read in ("" is what a device is) and what it means."""

    __slots__ = ("help", "name", "read", "reason", "tier", "unit")

    def __init__(
        self,
        name: str,
        unit: str,
        tier: str,
        help: str,
        read: Callable[[dtk.Snapshot, dtk.Reading], Value | str],
        reason: Callable[[dtk.Reading], str | None],
    ) -> None:
        self.name = name
        self.unit = unit
        self.tier = tier
        self.help = help
        self.read = read  # the value of a device, None where it is missing
        self.reason = reason  # why it is missing; None where that is not known

    @property
    def title(self) -> str:
        """The name with its unit."""
        return f"{self.name} [{self.unit}]" if self.unit else self.name


def gpu_temperature(sample: dtk.Sample) -> str:
    """Which sensor nvidia's temperature.gpu is: the first of three that has a value."""
    return next((name for name in GPU_TEMPERATURE if sample[name] is not None), GPU_TEMPERATURE[0])


def driver_version(snapshot: dtk.Snapshot, device: dtk.Reading) -> str | None:
    """Of the driver that holds the card."""
    return snapshot.system.drivers.get(device.driver or "")


def _attribute(name: str) -> Callable[[dtk.Snapshot, dtk.Reading], Value | str]:
    return lambda _, device: getattr(device, name)


def _info(name: str) -> Callable[[dtk.Snapshot, dtk.Reading], str | None]:
    return lambda _, device: device.info.get(name)


def _hex(name: str, digits: int) -> Callable[[dtk.Snapshot, dtk.Reading], str | None]:
    def read(_: dtk.Snapshot, device: dtk.Reading) -> str | None:
        number = getattr(device, name)
        return None if number is None else f"0x{number:0{digits}x}"

    return read


def _unknown_because(device: dtk.Reading) -> str | None:
    return None if device.state == "ok" else device.state


def _metric(metric: dtk.Metric) -> Field:
    name = metric.name
    return Field(
        name,
        metric.unit,
        metric.tier,
        metric.help,
        lambda _, device: device.sample[name],
        lambda device: device.sample.reason(name),
    )


IDENTITY: dict[str, tuple[str, Callable[[dtk.Snapshot, dtk.Reading], Value | str]]] = {
    "timestamp": ("When it was read: RFC 3339, UTC.", lambda _, device: rfc3339(device.sample.timestamp)),
    "hostname": ("Name of the machine.", lambda snapshot, _: snapshot.system.hostname),
    "index": ("The number to name a device by.", _attribute("index")),
    "uuid": ("Unique on a machine.", _attribute("uuid")),
    "bdf": ("PCI address of the card.", _attribute("bdf")),
    "name": ("What the card is called.", _attribute("name")),
    "serial": ("Serial number.", _attribute("serial")),
    "state": ("ok, asleep, stale, gone, denied or failed.", _attribute("state")),
    "card": ("Index of its card among the cards.", _attribute("card_index")),
    "partition": ("Number of the partition; none of a whole card.", _attribute("partition")),
    "driver": ("Kernel driver.", _attribute("driver")),
    "driver_version": ("Version of the driver, else of the kernel.", driver_version),
    "arch": ("Instruction set.", _attribute("arch")),
    "compute_units": ("Number of compute units.", _attribute("compute_units")),
    "numa_node": ("NUMA node of the slot.", _attribute("numa_node")),
    "drm_card": ("N of /dev/dri/cardN.", _attribute("drm_card")),
    "drm_render": ("N of /dev/dri/renderDN.", _attribute("drm_render")),
    "kfd_node": ("Number of its node in the KFD topology.", _attribute("kfd_node")),
    "gpu_id": ("KFD's number for it.", _attribute("gpu_id")),
    "hip_index": ("HIP's number for it, before any *_VISIBLE_DEVICES.", _attribute("hip_index")),
    "unique_id": ("The card's unique id.", _hex("unique_id", 16)),
    "hive_id": ("The XGMI hive it belongs to.", _hex("hive_id", 16)),
    "vendor_id": ("PCI vendor.", _hex("vendor_id", 4)),
    "device_id": ("PCI device.", _hex("device_id", 4)),
    "subsystem_vendor_id": ("PCI vendor of the board.", _hex("subsystem_vendor_id", 4)),
    "subsystem_device_id": ("PCI device of the board.", _hex("subsystem_device_id", 4)),
    "revision_id": ("PCI revision.", _hex("revision_id", 2)),
    "vbios": ("Version of the video BIOS.", _info("vbios")),
    "performance_level": ("How the driver chooses clocks.", _info("performance_level")),
    "compute_partition": ("SPX, DPX, TPX, QPX or CPX.", _info("compute_partition")),
    "memory_partition": ("NPS1, NPS2 …", _info("memory_partition")),
    "memory_vendor": ("Maker of the memory.", _info("memory_vendor")),
}


# What only the card itself tells, which costs reading the static tier.
TOLD = {"name", "serial", "vbios", "performance_level", "compute_partition", "memory_partition", "memory_vendor"}


def all_fields() -> dict[str, Field]:
    """Every field by its name."""
    fields = {
        name: Field(name, "", "static" if name in TOLD else "", help, read, _unknown_because)
        for name, (help, read) in IDENTITY.items()
    }
    fields["temperature_gpu"] = Field(
        "temperature_gpu",
        "C",
        "fast",
        "temperature_edge, else _junction, else _core: what nvidia-smi's temperature.gpu is here.",
        lambda _, device: device.sample[gpu_temperature(device.sample)],
        lambda device: device.sample.reason(gpu_temperature(device.sample)),
    )
    return fields | {metric.name: _metric(metric) for metric in dtk.metrics.all()}


def metrics_of(fields: Iterable[str]) -> list[str]:
    """The metrics among fields of `query`."""
    names = {metric.name for metric in dtk.metrics.all()}
    found = {"temperature_edge" if field == "temperature_gpu" else field for field in fields}
    return sorted(found & names)


def find(names: list[str]) -> list[tuple[str, Field]]:
    """The fields of some names, ours or nvidia-smi's, each with the name as it was asked for."""
    fields = all_fields()
    found = []
    for name in names:
        field = fields.get(name)
        if field is None:
            from dtk_cli.nvidia_names import OURS

            field = fields.get(OURS.get(name, ""))
        if field is None:
            raise _unknown(name, fields)
        found.append((name, field))
    return found


def _unknown(name: str, fields: dict[str, Field]) -> Stop:
    from difflib import get_close_matches

    from dtk_cli.nvidia_names import OURS

    close = get_close_matches(name, [*fields, *OURS], n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else "'dtk-smi fields' lists them"
    return Stop(Exit.USAGE, f"no field {name!r}", hint)
