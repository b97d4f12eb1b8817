"""System: one machine, and the devices it has."""

from __future__ import annotations

import os
from _thread import LockType, allocate_lock  # threading costs several milliseconds to import

from ._native import ffi, lib
from .device import Device
from .errors import Error, from_status
from .identity import Identity
from .library import FLAGS, VendorLibrary, environment, library_record, resolve_backend
from .machine import PCICard, Probe, SystemInfo, pci_card, probe_record, system_info

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ._native._dtk import CData
    from .process import ProcessTable
    from .virtual import VirtualTable

__all__ = ["System", "cards", "device", "devices"]

Key = int | str | Device

# How many forks lie between the process that imported dtk and this one: see System.call().
_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


class System:
    """One machine: this one, or a recorded or simulated one below a directory.

    root: a directory that looks like "/", so that it holds sys/. None is $DTK_SMI_ROOT, or "/" where that is not set.
    DTK_SMI_DEBUG=1 in the environment prints to stderr where an error was swallowed.
    backend: "kernel" reads files alone. "auto" asks the vendor's librocm_smi64 for what a Hygon card does not tell
    there, "rsmi" asks it alone: both load it into this process, with the first sample that needs it, where it may hang,
    print, or end the process; take_snapshot() and Monitor ask it in a process of its own. None is $DTK_SMI_BACKEND,
    else "kernel".

    A machine without cards is no error. Raises InvalidArgument when there is no such directory or it holds no sys/,
    PermissionDenied when it may not be entered, NotSupported when backend is "rsmi" and root is not "/": the library
    reads this machine.

    May be used from several threads, and on after a fork. It closes when it and its devices are no longer used, or by
    close() or a with statement.
    """

    def __init__(self, root: str | os.PathLike[str] | None = None, *, backend: str | None = None) -> None:
        self.backend = resolve_backend(backend, "kernel")  #: "kernel", "auto" or "rsmi".
        self.root, origin = resolve_root(root)  #: The root directory, absolute.
        self._handle: CData | None = None
        self._locks: dict[tuple[int, str], LockType] = {}
        self._identities: dict[CData, CData] = {}

        opened = ffi.new("dtk_system **")
        flags = FLAGS[self.backend] | (lib.DTK_OPEN_DEBUG if is_debugging() else 0)
        status = lib.dtk_open(os.fsencode(self.root), flags, opened)
        if status < 0:
            raise root_error(status, self.root, origin)
        self._handle = ffi.gc(opened[0], lib.dtk_close)
        lib.dtk_rsmi_environment(self._handle, environment())

    def close(self) -> None:
        """Give the files back. Calls that other threads are in are let finish; later ones raise Error."""
        self._handle = None  # dtk_close() runs when the last call that still uses it is over

    @property
    def closed(self) -> bool:
        """close() was called."""
        return self._handle is None

    def __enter__(self) -> System:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.root!r})"

    # ---- devices ----

    def devices(self) -> list[Device]:
        """What a runtime can open: whole cards, or the partitions of a partitioned card. [] when there are none.

        The position in this list is the index. The order is that of PCI addresses, then partitions.
        """
        return self._list(lib.dtk_device_get)

    def cards(self) -> list[Device]:
        """The physical cards, which own the sensors, in the same order. A card that is not partitioned is also a
        device. [] when there are none.
        """
        return self._list(lib.dtk_card_get)

    def match(self, key: Key) -> list[Device]:
        """The devices that a key means, in order; several for the address, card or serial of a partitioned card.

        Keys: an index (3 or "3"); a uuid, or the beginning of one that fits one card; a PCI address ("0000:43:00.0",
        "43:00.0"); "card1", "renderD128", "kfd:4", "gpu_id:12345", "hip:0", "serial:S"; a Device.
        Raises DeviceNotFound, and InvalidArgument when the key has none of these forms or is the beginning of the
        uuids of several cards.
        """
        if isinstance(key, Device):
            return [self._same(key)]
        text = key_text(key)
        with self.lock():
            handle = self.handle()
            room = max(lib.dtk_device_count(handle), 1)
            indices = ffi.new("int[]", room)
            count = lib.dtk_device_match(handle, os.fsencode(text), indices, room)
            found = self._some(lib.dtk_device_get, list(indices[0 : max(count, 0)]))
        if count < 0:
            raise self._no_match(count, text)
        return found

    def device(self, key: Key) -> Device:
        """The one device that a key means; for the keys see match().

        Raises as match() does, and InvalidArgument when the key means several devices.
        """
        found = self.match(key)
        if len(found) > 1:
            raise _ambiguous(str(key), found)
        return found[0]

    def rescan(self) -> None:
        """Look for cards again. Nothing else changes an index. A Device that is still there goes on, one that is not
        answers "gone" from now on.
        """
        with self.lock():
            status = lib.dtk_rescan(self.handle())
            self._identities = {}
        if status < 0:
            raise from_status(status, "rescan", self.root)

    def _list(self, get: Callable[[CData, int, CData], int]) -> list[Device]:
        with self.lock():
            count = (lib.dtk_card_count if get is lib.dtk_card_get else lib.dtk_device_count)(self.handle())
            return self._some(get, range(count))

    def _some(self, get: Callable[[CData, int, CData], int], indices: Iterable[int]) -> list[Device]:
        pointer = ffi.new("dtk_device **")
        return [Device(self, pointer[0]) for index in indices if get(self.handle(), index, pointer) == 0]

    def _same(self, other: Device) -> Device:
        """A device of this system; of another, the one with its uuid here."""
        if other._system is self:
            return other
        for device in [*self.devices(), *self.cards()]:
            if device.uuid == other.uuid:
                return device
        raise self._no_match(-lib.DTK_NOT_FOUND, other.uuid)

    def _no_match(self, status: int, key: str) -> Error:
        return key_error(status, key, self.devices())

    def processes(self, source: str = "kfd") -> ProcessTable:
        """The processes that use devices now, and what each uses.

        source: "kfd": those that compute, and their device memory; KFD tells everybody of all of them. "all": also
        those that draw or decode, engine times and mapped system memory, from the open files of every process: it takes
        longer, and other users' files are hidden from everybody but root. "use": besides, how busy a process keeps a
        Hygon card, from the vendor's library where the System was opened with it. Another user's process has what may
        be seen.
        A process that only has a card open does not use it. May block for as long as the kernel does when a card is
        sick; take_snapshot() and Monitor do not. Raises InvalidArgument for another source.

        Source files: sys/class/kfd/kfd/proc; proc/<pid>/{stat,status,cmdline,cgroup}, and for "all"
        proc/<pid>/{fd,fdinfo}; etc/passwd; all below the root.
        """
        from .process import scan

        return scan(self, [device.uuid for device in self.devices()], source)

    def virtual_devices(self) -> VirtualTable:
        """The virtual devices of Hygon cards as their configuration files tell: what each was given, not what it uses.

        Only Hygon's libhydmi knows that, which may crash or hang a program: take_snapshot(virtual=True) asks it in a
        process of its own. Untested on a card. Source files: etc/vdev/vdevN.conf, etc/vdev/docker/vdevN.conf below
        the root.
        """
        from .virtual import read

        return read(self)

    # ---- the machine as a whole ----

    @property
    def info(self) -> SystemInfo:
        """Hostname and drivers. Read below the root: proc/sys/kernel/hostname, sys/module/<driver>/version."""
        info = ffi.new("dtk_system_info *")
        status = lib.dtk_system_info_get(self.handle(), info, ffi.sizeof("dtk_system_info"))
        if status < 0:
            raise from_status(status, "info", self.root)
        return system_info(info)

    @property
    def library(self) -> VendorLibrary | None:
        """What became of the vendor's library, which this loads if nothing has needed it so far. None when the backend
        is "kernel" or the root is not "/".
        """
        about = ffi.new("dtk_rsmi *")
        status = lib.dtk_rsmi_get(self.handle(), about, ffi.sizeof("dtk_rsmi"))
        if status == -lib.DTK_UNSUPPORTED:
            return None
        if status < 0:
            raise from_status(status, "library", self.root)
        return library_record(about)

    def probe(self) -> Probe:
        """Look around, to explain why there are no cards: PCI devices, modules, device nodes. Opens no device."""
        probe = ffi.new("dtk_probe *")
        status = lib.dtk_system_probe(self.handle(), probe, ffi.sizeof("dtk_probe"))
        if status < 0:
            raise from_status(status, "probe", self.root)

        return probe_record(probe)

    def pci_cards(self) -> list[PCICard]:
        """The cards that PCI shows, whatever their driver, by address. Not all of them need to be in cards()."""
        room = 0
        while True:
            rows = ffi.new("dtk_pci_card[]", room)
            count = lib.dtk_system_pci(self.handle(), rows, ffi.sizeof("dtk_pci_card"), room)
            if count < 0:
                raise from_status(count, "pci", self.root)
            if count <= room:
                break
            room = count
        cards = [pci_card(row) for row in rows[0:count]]
        return sorted(cards, key=lambda card: (len(card.bdf), card.bdf))

    # ---- for Device ----

    def handle(self) -> CData:
        """The dtk_system. Whoever holds what this returns keeps it open."""
        handle = self._handle
        if handle is None:
            raise Error("this System is closed", operation="read", path=self.root, hint="open a new dtk.System")
        return handle

    def lock(self, card: str = "") -> LockType:
        """The lock of a card, by its address, or that of the system.

        libdtk wants one call a card at a time. A forked child has locks of its own: a thread that held one of the
        parent's was not forked with it.
        """
        key = _forks, card
        return self._locks.get(key) or self._locks.setdefault(key, allocate_lock())

    def call(self, card: str, function: Callable[..., int], *arguments: object) -> int:
        """Call a function that takes a device. The system stays open until it is over, whoever closes it meanwhile."""
        handle = self.handle()
        with self.lock(card):
            status = function(*arguments)
        del handle
        return status

    def identity(self, device: CData) -> CData:
        """The dtk_info of a device as it was when it was first asked for, or since the last rescan."""
        identities = self._identities
        if device not in identities:
            identities[device] = self.read_identity(device)
        return identities[device]

    def read_identity(self, device: CData) -> CData:
        """The dtk_info of a device now."""
        handle = self.handle()  # keeps the device alive
        info = ffi.new("dtk_info *")
        status = lib.dtk_device_info(device, info, ffi.sizeof("dtk_info"))
        del handle
        if status < 0:
            raise from_status(status, "info", self.root)
        return info


# ---- roots and keys, also those of snapshots ----

KEY_MAX = 250  # bytes; a frame of an error holds as many

_KEYS = (
    'keys are an index, a uuid or the beginning of one, a PCI address, or like "card1", "renderD128", "kfd:4", '
    '"gpu_id:12345", "hip:0", "serial:S"'
)


def is_debugging() -> bool:
    """DTK_SMI_DEBUG is set."""
    return os.environ.get("DTK_SMI_DEBUG", "") not in ("", "0")


def resolve_root(root: str | os.PathLike[str] | None) -> tuple[str, str]:
    """The absolute path of a root, and where it was named."""
    variable = os.environ.get("DTK_SMI_ROOT") if root is None else None
    origin = "DTK_SMI_ROOT" if variable else "the root (root=, --root)"
    name = variable or ("/" if root is None else os.fspath(root))
    try:
        if name and "\0" not in name and os.fsencode(name):
            # Not abspath(): that would resolve "link/.." as text, unlike the kernel.
            return (name if os.path.isabs(name) else os.path.join(os.getcwd(), name)), origin
        message = "no path"
    except OSError as error:  # of the working directory
        message = f"relative to a working directory that is gone: {error.strerror}"
    except ValueError:
        message = "no path"
    shown = name.encode(errors="replace").decode()
    raise from_status(lib.DTK_INVALID_ARGUMENT, "open", shown, _root_hint(origin), message)


def key_text(key: object) -> str:
    """A key of a device as libdtk takes it. Raises InvalidArgument for what can be none."""
    try:
        text = str(key)
        if isinstance(key, int | str) and "\0" not in text and len(os.fsencode(text)) <= KEY_MAX:
            return text
    except ValueError:  # a lone surrogate, or a number of thousands of digits
        text = type(key).__name__
    raise key_error(-lib.DTK_INVALID_ARGUMENT, text[:40], ())


def _root_hint(origin: str) -> str:
    return f"{origin} must name a directory that holds sys/"


def root_error(status: int, root: str, origin: str) -> Error:
    """The error of a root that dtk_open() refused."""
    if status == -lib.DTK_NOT_FOUND:  # a directory, where the status means a device
        return from_status(lib.DTK_INVALID_ARGUMENT, "open", root, _root_hint(origin), "there is no such directory")
    if status == -lib.DTK_UNSUPPORTED:
        hint = 'backend="kernel" or DTK_SMI_BACKEND=kernel reads the files'
        return from_status(status, "open", root, hint, "the vendor's library reads this machine only")
    message = "it has no sys/ directory" if status == -lib.DTK_INVALID_ARGUMENT else None
    hint = "ulimit -a shows what this process may have" if status == -lib.DTK_NO_MEMORY else _root_hint(origin)
    return from_status(status, "open", root, hint, message)


def key_error(status: int, key: str, devices: Sequence[Identity]) -> Error:
    """The error of a key that dtk_device_match() refused, on a machine with these devices."""
    operation = f"device {key!r}"
    if status == -lib.DTK_NOT_FOUND:
        count = len(devices)
        numbers = {0: "there are no devices", 1: "there is one device, 0"}.get(
            count, f"there are {count} devices, 0 to {count - 1}"
        )
        return from_status(status, operation, None, numbers)
    if status == -lib.DTK_AMBIGUOUS:
        return _ambiguous(key, [device for device in devices if device.uuid.startswith(key)])
    return from_status(status, operation, None, _KEYS, "no key for a device")


def _ambiguous(key: str, devices: Sequence[Identity]) -> Error:
    names = ", ".join(f"{device.index} {device.uuid}" for device in devices)
    return from_status(lib.DTK_AMBIGUOUS, f"device {key!r}", None, f"say which: {names}")


# ---- the default system ----

_shared: dict[str, System] = {}


def shared(root: str | None = None) -> System:
    """The System of a root that all of a process uses: for dtk.devices(), and for devices that come out of a pickle."""
    key, _ = resolve_root(root)
    system = _shared.get(key)
    if system is None or system.closed:
        system = _shared[key] = System(root)
    return system


def unpickle(root: str, uuid: str) -> Device:
    """The device of that uuid, for Device.__reduce__()."""
    system = shared(root)
    for device in [*system.devices(), *system.cards()]:
        if device.uuid == uuid:
            return device
    raise from_status(lib.DTK_NOT_FOUND, f"unpickle {uuid}", root, "it is not on this machine now")


def devices() -> list[Device]:
    """The devices of this machine, or of the one below $DTK_SMI_ROOT: see System.devices()."""
    return shared().devices()


def cards() -> list[Device]:
    """The physical cards of this machine, or of the one below $DTK_SMI_ROOT: see System.cards()."""
    return shared().cards()


def device(key: Key) -> Device:
    """The one device that a key means: see System.device()."""
    return shared().device(key)
