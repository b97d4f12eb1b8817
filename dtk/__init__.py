"""dtk: read Hygon DCU cards and AMD ROCm GPUs.

    >>> import dtk
    >>> for device in dtk.devices():
    ...     print(device.index, device.name, device.power().draw, "W")

`devices()` are whole cards, or the partitions of a partitioned card; `cards()` are the physical cards. A `Device` has
calls that return records (`memory()`, `temperature()`, `power()` …) and `sample()`, which reads everything at once.
A value that is missing is None, never 0. `System(root)` is another machine: a recorded or a simulated one.
`dtk.metrics` lists what can be read. Errors are drawn in `dtk.errors`.

Importing dtk touches no device file, and nothing here ever wakes a sleeping card.
"""

from __future__ import annotations

from . import metrics
from .device import Device
from .errors import (
    DeviceLost,
    DeviceNotFound,
    Error,
    InvalidArgument,
    LibraryError,
    NoDriver,
    NotSupported,
    PermissionDenied,
    Timeout,
)
from .machine import PCICard, Probe, SystemInfo
from .metrics import Metric
from .records import ECC, Activity, Clocks, ECCBlock, Fan, Memory, PCIe, Power, Temperature, Throttle, Utilization
from .sample import Sample
from .system import System, cards, device, devices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import crosscheck, doctor
    from .events import Event
    from .library import LibraryFile, VendorLibrary, default_backend, library_files
    from .monitor import Monitor, MonitorCounters
    from .process import Process, ProcessTable, ProcessUsage, processes
    from .snapshot import Reading, Snapshot
    from .take import take_snapshot
    from .virtual import VirtualCard, VirtualDevice, VirtualTable

__all__ = [
    "ECC",
    "Activity",
    "Clocks",
    "Device",
    "DeviceLost",
    "DeviceNotFound",
    "ECCBlock",
    "Error",
    "Event",
    "Fan",
    "InvalidArgument",
    "LibraryError",
    "LibraryFile",
    "Memory",
    "Metric",
    "Monitor",
    "MonitorCounters",
    "NoDriver",
    "NotSupported",
    "PCICard",
    "PCIe",
    "PermissionDenied",
    "Power",
    "Probe",
    "Process",
    "ProcessTable",
    "ProcessUsage",
    "Reading",
    "Sample",
    "Snapshot",
    "System",
    "SystemInfo",
    "Temperature",
    "Throttle",
    "Timeout",
    "Utilization",
    "VendorLibrary",
    "VirtualCard",
    "VirtualDevice",
    "VirtualTable",
    "__version__",
    "cards",
    "crosscheck",
    "default_backend",
    "device",
    "devices",
    "doctor",
    "document",
    "events",
    "library_files",
    "metrics",
    "processes",
    "take_snapshot",
    "throttle",
]

__version__ = "0.1.0"

# A name, and the module it is in; a module is its own.
_LATER = {
    "crosscheck": "",
    "default_backend": "library",
    "doctor": "",
    "document": "",
    "LibraryFile": "library",
    "Event": "events",
    "events": "",
    "throttle": "",
    "Monitor": "monitor",
    "MonitorCounters": "monitor",
    "Process": "process",
    "ProcessTable": "process",
    "ProcessUsage": "process",
    "Reading": "snapshot",
    "Snapshot": "snapshot",
    "VendorLibrary": "library",
    "library_files": "library",
    "VirtualCard": "virtual",
    "VirtualDevice": "virtual",
    "VirtualTable": "virtual",
    "processes": "process",
    "take_snapshot": "take",
}


def __getattr__(name: str) -> object:
    """What not every program needs is imported when it is used: threads alone cost more than the rest of dtk."""
    if name not in _LATER:
        raise AttributeError(f"module 'dtk' has no attribute {name!r}")
    from importlib import import_module

    module = import_module(f"dtk.{_LATER[name] or name}")
    value = globals()[name] = getattr(module, name) if _LATER[name] else module
    return value
