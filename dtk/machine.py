"""What a machine is as a whole: records of libdtk's structs, for System and snapshots."""

from __future__ import annotations

from ._record import Record
from .metrics import text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._native._dtk import CData

__all__ = ["PCICard", "Probe", "SystemInfo"]


class SystemInfo(Record):
    """A machine as a whole.

    hostname: from its own proc/sys/kernel/hostname; None where that is not known.
    simulated: it is a simulated machine. live: it is this machine, not a recorded or simulated one.
    drivers: those that hold a card, with their version (else the kernel's), None where that is not known.
    """

    hostname: str | None
    simulated: bool
    live: bool
    drivers: dict[str, str | None]


class Probe(Record):
    """What there is on a machine, to explain why there are no cards. None is not known.

    pci_cards: PCI functions that are AMD or Hygon cards, whatever their driver. pci_unbound: of these, without a known
    driver. pci_displays: display controllers of other vendors, such as a BMC's VGA.
    drm, kfd: sys/class/drm and sys/class/kfd are there.
    dev_kfd, dev_kfd_access: /dev/kfd is there, and this process may open it.
    dev_render, dev_render_access: how many render nodes are there, and how many of them this process may open.
    modules: loaded modules out of amdgpu, radeon, hydcu, hycu.
    first_unbound, first_display: PCI address of the first of each.
    render_group: group that owns /dev/kfd or the render nodes.
    module_states: of each of modules, None where the kernel does not say, as of a driver that is a part of it.
    kfd_nodes: KFD nodes with compute units. kfd_denied: KFD nodes that this process may not look at: a device cgroup
    keeps their cards from it.
    numa_nodes: of the machine.
    pci_denied, kfd_list_denied: sys/bus/pci/devices, or the directory of KFD's nodes, may not be read.
    kfd_group, kfd_gid, kfd_mode: group that owns /dev/kfd, its number, and the permissions of the node; dri_group,
    dri_gid, dri_mode: of a render node, of one that this process may not open where there is one.
    """

    pci_cards: int
    pci_unbound: int
    pci_displays: int
    drm: bool
    kfd: bool
    dev_kfd: bool | None
    dev_kfd_access: bool | None
    dev_render: int | None
    dev_render_access: int | None
    modules: tuple[str, ...]
    first_unbound: str | None
    first_display: str | None
    render_group: str | None
    module_states: dict[str, str | None]
    kfd_nodes: int
    kfd_denied: int
    numa_nodes: int | None
    pci_denied: bool
    kfd_list_denied: bool
    kfd_group: str | None
    kfd_gid: int | None
    kfd_mode: int | None
    dri_group: str | None
    dri_gid: int | None
    dri_mode: int | None


class PCICard(Record):
    """A PCI function that is an AMD or Hygon card by its vendor and class.

    driver: that holds it, also one that is none of a card's, such as "vfio-pci"; None when none does.
    """

    bdf: str
    driver: str | None
    vendor_id: int
    device_id: int | None
    pci_class: int


def system_info(info: CData) -> SystemInfo:
    """A dtk_system_info as a record."""
    drivers = {text(name): text(version) or None for name, version in zip(info.driver, info.version, strict=True)}
    drivers.pop("", None)
    return SystemInfo(text(info.hostname) or None, bool(info.simulated), bool(info.live), drivers)


def probe_record(probe: CData) -> Probe:
    """A dtk_probe as a record."""

    def known(number: int) -> int | None:
        return None if number < 0 else number

    def answer(number: int) -> bool | None:
        return None if number < 0 else bool(number)

    modules = tuple(name for name in text(probe.modules).split(",") if name)
    states = [state or None for state in text(probe.module_states).split(",")]
    return Probe(
        pci_cards=probe.pci_cards,
        pci_unbound=probe.pci_unbound,
        pci_displays=probe.pci_displays,
        drm=bool(probe.drm),
        kfd=bool(probe.kfd),
        dev_kfd=answer(probe.dev_kfd),
        dev_kfd_access=answer(probe.dev_kfd_access),
        dev_render=known(probe.dev_render),
        dev_render_access=known(probe.dev_render_access),
        modules=modules,
        first_unbound=text(probe.first_unbound) or None,
        first_display=text(probe.first_display) or None,
        render_group=text(probe.render_group) or None,
        module_states=dict(zip(modules, states, strict=False)),
        kfd_nodes=probe.kfd_nodes,
        kfd_denied=probe.kfd_denied,
        numa_nodes=probe.numa_nodes or None,
        pci_denied=bool(probe.pci_denied),
        kfd_list_denied=bool(probe.kfd_list_denied),
        kfd_group=text(probe.kfd_group) or None,
        kfd_gid=None if probe.kfd_mode < 0 else probe.kfd_gid,
        kfd_mode=known(probe.kfd_mode),
        dri_group=text(probe.dri_group) or None,
        dri_gid=None if probe.dri_mode < 0 else probe.dri_gid,
        dri_mode=known(probe.dri_mode),
    )


def pci_card(row: CData) -> PCICard:
    device = row.device_id
    return PCICard(
        text(row.bdf), text(row.driver) or None, row.vendor_id, None if device < 0 else device, row.pci_class
    )
