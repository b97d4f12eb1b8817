"""The uuid of the device with the most free memory: python most_free_memory.py [ROOT]."""

from __future__ import annotations

import sys

import dtk

with dtk.System(sys.argv[1] if len(sys.argv) > 1 else None) as system:
    free = {device.uuid: device.sample().memory_free for device in system.devices()}

known = {uuid: size for uuid, size in free.items() if size is not None}
if not known:
    sys.exit("most_free_memory: no device says how much memory is free")
print(max(known, key=known.__getitem__))
