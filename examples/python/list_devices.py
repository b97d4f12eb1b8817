"""The cards of a machine, one a line: python list_devices.py [ROOT]."""

from __future__ import annotations

import sys

import dtk

with dtk.System(sys.argv[1] if len(sys.argv) > 1 else None) as system:
    for device in system.devices():
        sample = device.sample()
        power = f"{sample.power_draw:.1f} W" if sample.power_draw is not None else sample.reason("power_draw")
        print(device.index, device.bdf, device.name, power, sep="  ")
