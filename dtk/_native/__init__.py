"""libdtk for Python: `ffi` and `lib` of the cffi module, with nothing added. Only dtk's own modules import this.

Importing it loads libdtk.so.0, the copy in lib/ beside it, and touches no device file. LibraryError when that copy is
missing or another one is in its place.
"""

from __future__ import annotations

from dtk.errors import LibraryError

try:
    from dtk._native._dtk import ffi, lib
except ModuleNotFoundError as error:
    raise LibraryError(
        "this is the source tree of dtk, which was not built here",
        operation="load libdtk",
        hint="pip install -e ., or start Python in another directory to get the installed one",
    ) from error
except ImportError as error:
    raise LibraryError(
        str(error), operation="load libdtk", hint="install dtk-smi again, for this Python and this processor"
    ) from error

__all__ = ["ffi", "lib"]

if lib.dtk_api_version() >> 16 != lib.DTK_API_VERSION >> 16:
    raise LibraryError(
        f"its API version is {lib.dtk_api_version():#x}, but dtk was built for {lib.DTK_API_VERSION:#x}",
        operation="load libdtk",
        hint="this process had loaded another libdtk.so.0 before: start it without that one",
    )
