"""Identity: every name that a device has."""

from __future__ import annotations

from .metrics import text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._native._dtk import CData

__all__ = ["Identity", "strings"]

_STRINGS = ("arch", "vbios", "performance_level", "compute_partition", "memory_partition", "memory_vendor")


class Identity:
    """Who a device is: the attributes that Device and a snapshot's Reading share. None where not known."""

    __slots__ = ()

    @property
    def _identity(self) -> CData:
        """Its dtk_info."""
        raise NotImplementedError

    @property
    def _told(self) -> CData:
        """The same with what only an awake card tells: name and serial."""
        return self._identity

    @property
    def index(self) -> int | None:
        """Position in devices(); None for a partitioned card, whose partitions are the devices."""
        return _number(self._identity.index)

    @property
    def card_index(self) -> int | None:
        """Position of its card in cards()."""
        return _number(self._identity.card)

    @property
    def partition(self) -> int | None:
        """Number of the partition on its card; None for a whole card."""
        return _number(self._identity.partition)

    @property
    def is_partition(self) -> bool:
        """It is a part of a card; Device.card is the whole."""
        return self.partition is not None

    @property
    def uuid(self) -> str:
        """Unique on a machine: "GPU-<16 hex>", or "PCI-<address>" where the card has no unique id; "/p<n>" behind that
        is a partition.
        """
        return text(self._identity.uuid)

    @property
    def bdf(self) -> str:
        """PCI address of the card: "0000:43:00.0"."""
        return text(self._identity.bdf)

    @property
    def name(self) -> str:
        """What it is called: the card's own product name, else one from a table of ids; never empty."""
        return text(self._told.name)

    @property
    def serial(self) -> str | None:
        """Serial number. None also while the card sleeps."""
        return text(self._told.serial) or None

    @property
    def driver(self) -> str | None:
        """Kernel driver: "amdgpu", "hydcu"."""
        return text(self._identity.driver) or None

    @property
    def arch(self) -> str | None:
        """Instruction set: "gfx90a"."""
        return text(self._identity.arch) or None

    @property
    def numa_node(self) -> int | None:
        """NUMA node of its PCI slot; None also where the kernel says that there is none."""
        return _number(self._identity.numa_node)

    @property
    def drm_card(self) -> int | None:
        """N of /dev/dri/cardN."""
        return _number(self._identity.drm_card)

    @property
    def drm_render(self) -> int | None:
        """N of /dev/dri/renderDN."""
        return _number(self._identity.drm_render)

    @property
    def kfd_node(self) -> int | None:
        """Number of its node in the KFD topology."""
        return _number(self._identity.kfd_node)

    @property
    def gpu_id(self) -> int | None:
        """KFD's number for it, as in /sys/class/kfd/kfd/proc."""
        return _number(self._identity.gpu_id)

    @property
    def hip_index(self) -> int | None:
        """HIP's number for it when no *_VISIBLE_DEVICES is set; None where this process may not open it."""
        return _number(self._identity.hip_index)

    @property
    def unique_id(self) -> int | None:
        """The card's unique id, which its uuid shows in hex."""
        return self._identity.unique_id or None

    @property
    def hive_id(self) -> int | None:
        """The XGMI hive it belongs to; None where there is none."""
        return self._identity.hive_id or None

    @property
    def compute_units(self) -> int | None:
        """Number of compute units."""
        return _number(self._identity.compute_units)

    @property
    def vendor_id(self) -> int | None:
        """PCI vendor: 0x1002 AMD, 0x1d94 Hygon."""
        return _number(self._identity.vendor_id)

    @property
    def device_id(self) -> int | None:
        """PCI device."""
        return _number(self._identity.device_id)

    @property
    def subsystem_vendor_id(self) -> int | None:
        """PCI subsystem vendor: who made the board."""
        return _number(self._identity.subsystem_vendor_id)

    @property
    def subsystem_device_id(self) -> int | None:
        """PCI subsystem device."""
        return _number(self._identity.subsystem_device_id)

    @property
    def revision_id(self) -> int | None:
        """PCI revision."""
        return _number(self._identity.revision_id)


def strings(info: CData) -> dict[str, str]:
    """The strings of a dtk_info that a driver may change, those that are known."""
    return {name: string for name in _STRINGS if (string := text(getattr(info, name)))}


def _number(number: int) -> int | None:
    return None if number < 0 else number
