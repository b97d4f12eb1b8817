"""Files of a simulated root, before they are written: path below the root to content, link or directory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Link:
    """A symlink to another path below the root; it is written relative, as the kernel writes them."""

    target: str


@dataclass(frozen=True)
class Reference:
    """A symlink that leads nowhere below the root, as those of proc/<pid>/fd: its text alone counts."""

    text: str


@dataclass(frozen=True)
class Denied:
    """A file that nobody may read."""

    content: bytes


class Directory:
    """A directory that stays empty."""


DIRECTORY = Directory()

Entry = bytes | Link | Reference | Denied | Directory
Files = dict[str, Entry]


def line(value: object) -> bytes:
    """A file as sysfs prints one value."""
    return f"{value}\n".encode()


def lines(*rows: str) -> bytes:
    """A file of several lines."""
    return "".join(f"{row}\n" for row in rows).encode()


def pci_ids(vendor: int, device: int, subsystem_vendor: int, subsystem_device: int, revision: int) -> Files:
    """The id files of a PCI function, below its directory."""
    return {
        "vendor": line(f"0x{vendor:04x}"),
        "device": line(f"0x{device:04x}"),
        "subsystem_vendor": line(f"0x{subsystem_vendor:04x}"),
        "subsystem_device": line(f"0x{subsystem_device:04x}"),
        "revision": line(f"0x{revision:02x}"),
    }


def pci_function(path: str, ids: tuple[int, int, int, int, int], pci_class: int, driver: str | None) -> Files:
    """What every PCI function has, and the links that lead to it. `path` is its directory in sys/devices."""
    bdf = path.rsplit("/", 1)[1]
    vendor, device, sub_vendor, sub_device, _ = ids
    alias = (
        f"pci:v{vendor:08X}d{device:08X}sv{sub_vendor:08X}sd{sub_device:08X}"
        f"bc{pci_class >> 16:02x}sc{pci_class >> 8 & 0xFF:02x}i{pci_class & 0xFF:02x}"
    )
    files: Files = {f"{path}/{name}": content for name, content in pci_ids(*ids).items()}
    files |= {
        f"{path}/class": line(f"0x{pci_class:06x}"),
        f"{path}/modalias": line(alias),
        f"{path}/subsystem": Link("sys/bus/pci"),
        f"{path}/uevent": lines(
            *([f"DRIVER={driver}"] if driver else []),
            f"PCI_CLASS={pci_class:04X}",
            f"PCI_ID={vendor:04X}:{device:04X}",
            f"PCI_SUBSYS_ID={sub_vendor:04X}:{sub_device:04X}",
            f"PCI_SLOT_NAME={bdf}",
            f"MODALIAS={alias}",
        ),
        f"sys/bus/pci/devices/{bdf}": Link(path),
    }
    if driver:
        files[f"{path}/driver"] = Link(f"sys/bus/pci/drivers/{driver}")
        files[f"sys/bus/pci/drivers/{driver}/{bdf}"] = Link(path)
    return files


def drm_node(path: str, name: str, minor: int) -> Files:
    """A card or render node of the device at `path`."""
    node = f"{path}/drm/{name}"
    return {
        f"{node}/dev": line(f"226:{minor}"),
        f"{node}/uevent": lines("MAJOR=226", f"MINOR={minor}", f"DEVNAME=dri/{name}", "DEVTYPE=drm_minor"),
        f"{node}/device": Link(path),
        f"{node}/subsystem": Link("sys/class/drm"),
        f"sys/class/drm/{name}": Link(node),
    }


def drm_connector(path: str, card: str, connector: str) -> Files:
    """A display connector, which stands beside the cards in sys/class/drm."""
    node = f"{path}/drm/{card}/{card}-{connector}"
    return {
        f"{node}/status": line("disconnected"),
        f"{node}/enabled": line("disabled"),
        f"{node}/device": Link(f"{path}/drm/{card}"),
        f"{node}/subsystem": Link("sys/class/drm"),
        f"sys/class/drm/{card}-{connector}": Link(node),
    }


def hwmon(parent: str, number: int, name: str, glue: bool = True) -> Files:
    """A hwmon directory of the device at `parent`, without its readings; below a class device there is no `hwmon/`."""
    path = f"{parent}/hwmon/hwmon{number}" if glue else f"{parent}/hwmon{number}"
    return {
        f"{path}/name": line(name),
        f"{path}/uevent": b"",
        f"{path}/device": Link(parent),
        f"{path}/subsystem": Link("sys/class/hwmon"),
        f"{path}/power/control": line("auto"),
        f"{path}/power/runtime_active_time": line(0),
        f"{path}/power/runtime_status": line("unsupported"),
        f"{path}/power/runtime_suspended_time": line(0),
        f"sys/class/hwmon/hwmon{number}": Link(path),
    }
