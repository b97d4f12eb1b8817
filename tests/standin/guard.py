"""How many bytes calls of a library write: each goes to a buffer that ends where memory does.

Arguments: the library, then a JSON list of calls, each a list of the function's name, a size, and the function's
arguments, where "buffer" is the buffer of that size and "one" the address of the number 1. Prints for each call whether
it survives a buffer of that size, and one that is a byte smaller.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import resource
import sys

library = ctypes.CDLL(sys.argv[1])
libc = ctypes.CDLL(None)


def survives(function: str, size: int, arguments: list[int | str]) -> bool:
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
        end = ctypes.addressof(ctypes.c_char.from_buffer(pages)) + mmap.PAGESIZE
        if libc.mprotect(ctypes.c_void_p(end), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0:
            places = {"buffer": ctypes.c_void_p(end - size), "one": ctypes.byref(ctypes.c_uint64(1))}
            getattr(library, function)(*(places[a] if isinstance(a, str) else a for a in arguments))
            os._exit(0)
        os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status <= 0, f"{function}: the child could not do it"
    return status == 0


if library.rsmi_init(ctypes.c_uint64(0)) != 0:
    sys.exit("rsmi_init failed")
calls = json.loads(sys.argv[2])
print(json.dumps([[survives(name, size - less, arguments) for less in (0, 1)] for name, size, *arguments in calls]))
