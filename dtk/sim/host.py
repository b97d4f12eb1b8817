"""What surrounds the cards: bridges, the BMC's VGA, a drive, the processors, modules and proc.

Most of it is there to be overlooked: bridges that carry a card maker's vendor id, a display controller that is no card,
hwmon directories of other devices.
"""

from __future__ import annotations

from .files import Files, Link, drm_connector, drm_node, hwmon, line, lines, pci_function
from .machine import Machine, Slot
from .models import MIB, MODELS

_ASPEED = 0x1A03
_DRIVER_VERSIONS = {"hydcu": "6.2.26", "hycu": "6.3.28-V1.3.0b"}


def root_path(domain: int, root: int) -> str:
    """Directory of a PCI root."""
    return f"sys/devices/pci{domain:04x}:{root:02x}"


def port_path(slot: Slot) -> str:
    """Directory of the root port that a slot hangs on."""
    return f"{root_path(slot.domain, slot.root)}/{slot.domain:04x}:{slot.root:02x}:{slot.port}"


def host_files(machine: Machine) -> Files:
    """Everything of a machine that belongs to no card and not to KFD."""
    return (
        _bridges(machine)
        | (_bmc(machine) if machine.platform.bmc else {})
        | _drive(machine)
        | _processors(machine)
        | _modules(machine)
        | {
            "sys/class/drm/version": line("drm 1.1.0 20060810"),
            "usr/share/hwdata/pci.ids": _pci_ids(),
            "proc/sys/kernel/hostname": line(machine.hostname),
            "proc/sys/kernel/osrelease": line(machine.platform.kernel),
        }
    )


def _bridge(path: str, vendor: int, device: int, pci_class: int = 0x060400) -> Files:
    driver = "pcieport" if pci_class == 0x060400 else None
    return pci_function(path, (vendor, device, vendor, device, 0), pci_class, driver)


def _bridges(machine: Machine) -> Files:
    """Root complexes and root ports; on a Hygon host they have the cards' vendor id."""
    vendor = machine.platform.cpu_vendor
    slots = {(slot.domain, slot.root, slot.port): slot for slot in machine.platform.slots}
    slots |= {(card.slot.domain, card.slot.root, card.slot.port): card.slot for card in machine.cards}
    files: Files = {}
    for slot in slots.values():
        root = root_path(slot.domain, slot.root)
        files |= _bridge(f"{root}/{slot.domain:04x}:{slot.root:02x}:00.0", vendor, 0x1480, 0x060000)
        files |= _bridge(port_path(slot), vendor, 0x1483)
    return files


def _bmc(machine: Machine) -> Files:
    """The BMC's VGA, which is card0 and no card."""
    bridge = "sys/devices/pci0000:00/0000:00:05.5/0000:1e:00.0"
    path = f"{bridge}/0000:1f:00.0"
    files = _bridge("sys/devices/pci0000:00/0000:00:05.5", machine.platform.cpu_vendor, 0x1483)
    files |= _bridge(bridge, _ASPEED, 0x1150)
    files |= pci_function(path, (_ASPEED, 0x2000, _ASPEED, 0x2000, 0x52), 0x030000, "ast")
    files |= drm_node(path, "card0", 0)
    if machine.platform.bmc_display:
        files |= drm_connector(path, "card0", "VGA-1")
    files[f"{path}/boot_vga"] = line(1)
    files[f"{path}/numa_node"] = line(0)
    return files


def _drive(machine: Machine) -> Files:
    port = "sys/devices/pci0000:00/0000:00:02.1"
    path = f"{port}/0000:1d:00.0"
    drive = f"{path}/nvme/nvme0"
    files = _bridge(port, machine.platform.cpu_vendor, 0x1483)
    files |= pci_function(path, (0x144D, 0xA80A, 0x144D, 0xA801, 0), 0x010802, "nvme")
    files |= hwmon(drive, 0, "nvme", glue=False)
    files[f"{drive}/hwmon0/temp1_label"] = line("Composite")
    files[f"{drive}/hwmon0/temp1_input"] = line(38850)
    return files


def _processors(machine: Machine) -> Files:
    """Temperature of each socket, and the NUMA nodes."""
    platform = machine.platform
    sockets = range(platform.sockets)
    online = lines("0" if platform.sockets == 1 else f"0-{platform.sockets - 1}")
    files: Files = {"sys/devices/system/node/online": online, "sys/devices/system/node/possible": online}
    for socket in sockets:
        path = f"sys/devices/pci0000:00/0000:00:{0x18 + socket:02x}.3"
        files |= pci_function(path, (platform.cpu_vendor, 0x1653, 0, 0, 0), 0x060000, "k10temp")
        files |= hwmon(path, 1 + socket, "k10temp")
        files[f"{path}/hwmon/hwmon{1 + socket}/temp1_label"] = line("Tctl")
        files[f"{path}/hwmon/hwmon{1 + socket}/temp1_input"] = line(46125 + 1250 * socket)
        node = f"sys/devices/system/node/node{socket}"
        first = socket * platform.threads
        files[f"{node}/cpulist"] = line(f"{first}-{first + platform.threads - 1}")
        files[f"{node}/distance"] = line(" ".join("10" if other == socket else "32" for other in sockets))
        total = (platform.memory - 512 * MIB) // 1024
        files[f"{node}/meminfo"] = lines(
            f"Node {socket} MemTotal: {total:>14} kB",
            f"Node {socket} MemFree: {total * 3 // 4:>15} kB",
            f"Node {socket} MemUsed: {total // 4:>15} kB",
        )
    return files


def _pci_ids() -> bytes:
    """The list of PCI ids, as far as it is about the cards."""
    makers = {0x1002: "Advanced Micro Devices, Inc. [AMD/ATI]", 0x1D94: "Chengdu Haiguang IC Design Co., Ltd."}
    rows = ["# Of the public list only what simulated cards need."]
    for vendor, maker in makers.items():
        rows.append(f"{vendor:04x}  {maker}")
        names = {model.pci[1]: model.pci_name for model in MODELS.values() if model.pci[0] == vendor}
        rows += [f"\t{device:04x}  {name}" for device, name in sorted(names.items())]
    return lines(*rows)


def _modules(machine: Machine) -> Files:
    """The cards' drivers. The amdgpu that comes with the kernel has no version file."""
    files: Files = {}
    for driver in machine.drivers:
        module = f"sys/module/{driver}"
        files[f"{module}/initstate"] = line("live")
        files[f"{module}/refcnt"] = line(len(machine.cards))
        files[f"{module}/drivers/pci:{driver}"] = Link(f"sys/bus/pci/drivers/{driver}")
        files[f"sys/bus/pci/drivers/{driver}/module"] = Link(module)
        version = _DRIVER_VERSIONS.get(driver) or machine.platform.dkms
        if version:
            files[f"{module}/version"] = line(version)
    return files
