"""The vendor's library librocm_smi64 as a source of readings: which backend is asked for, and what became of it."""

from __future__ import annotations

import os

from ._native import ffi, lib
from ._record import Record
from ._statuses import STATUSES
from .errors import from_status
from .metrics import text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._native._dtk import CData

__all__ = ["LibraryFile", "VendorLibrary", "default_backend", "library_files"]

VARIABLE = "DTK_SMI_BACKEND"
FLAGS = {"kernel": 0, "auto": lib.DTK_OPEN_AUTO, "rsmi": lib.DTK_OPEN_RSMI}
ABORTED = "aborted"


class VendorLibrary(Record):
    """What became of the vendor's library.

    status: "ok"; "not_found" there is none; "library" it did not start; "stale" it had not started by the deadline;
    "aborted" it ended the process that asked it, and its readings are left out.
    path: of the file, links resolved. origin: the variable or directory that led to it. version: as it says, such as
    "7.6.0-0.6". abi: "amd-5", "amd-6", "amd-7", "hygon-6.2" or "hygon-6.3". devices: how many it lists, and matched
    how many of our cards are among them. message: what went wrong, also with a file that was tried before it.
    log: what it printed to stderr, the beginning. None is not known.
    """

    status: str
    path: str | None
    origin: str | None
    version: str | None
    abi: str | None
    devices: int | None
    matched: int | None
    message: str | None
    log: str | None


class LibraryFile(Record):
    """A place where the library is looked for. found: None where only the linker knows."""

    path: str
    origin: str
    found: bool | None


def resolve_backend(backend: str | None, default: str) -> str:
    """The backend that was asked for: the argument, else $DTK_SMI_BACKEND, else the default."""
    name = str(backend if backend is not None else os.environ.get(VARIABLE) or default)
    if name not in FLAGS:
        where = "backend" if backend is not None else VARIABLE
        raise from_status(
            lib.DTK_INVALID_ARGUMENT, where, None, '"auto", "kernel" or "rsmi"', f"no backend {name[:40]!r}"
        )
    return name


def default_backend() -> str:
    """The backend of take_snapshot() and Monitor where none is given: $DTK_SMI_BACKEND, else "auto". Raises
    InvalidArgument.
    """
    return resolve_backend(None, "auto")


def environment() -> CData:
    """getenv(), which sees what os.environ was set to."""
    return ffi.addressof(lib, "getenv")


def library_files() -> list[LibraryFile]:
    """The files that may be the vendor's library, in the order they are tried; see dtk_rsmi_find() in dtk.h. Those of a
    variable come first, also when they are not there. Loads none.
    """
    found: list[LibraryFile] = []
    file = ffi.new("dtk_rsmi_file *")
    while lib.dtk_rsmi_find(environment(), len(found), file, ffi.sizeof("dtk_rsmi_file")) == 0:
        found.append(LibraryFile(text(file.path), text(file.origin), None if file.found < 0 else bool(file.found)))
    return found


def library_record(about: CData) -> VendorLibrary:
    """A dtk_rsmi as a record."""
    abi = lib.dtk_rsmi_abi_name(about.abi)
    runs = about.status == lib.DTK_OK
    return VendorLibrary(
        status=STATUSES[about.status][0],
        path=text(about.path) or None,
        origin=text(about.origin) or None,
        version=text(about.version) or None,
        abi=text(abi) if abi else None,
        devices=about.devices if runs else None,
        matched=about.matched if runs else None,
        message=text(about.message) or None,
        log=None,
    )


def library_warnings(library: VendorLibrary | None, backend: str, late: bool) -> list[tuple[str, str]]:
    """(code, text) of what is to be said of it. `late`: readings of it did not come by the deadline."""
    name = (library and library.path) or "librocm_smi64"
    if library is None:
        return []
    if library.status == ABORTED:
        return [("library_aborted", f"{name} ended the process that asked it; its readings are left out")]
    # That there is none is worth a word only to who asked for it.
    asked = backend == "rsmi" or (library.message or "").startswith("DTK_SMI_ROCM_SMI_LIB: ")
    if library.status == "library" or (library.status == "not_found" and asked):
        return [("library_failed", f"{name}: {library.message}")]
    if library.status == "stale" or late:
        return [("library_stale", f"{name}: no answer by the deadline")]
    if library.status == "ok" and library.message:
        return [("library_other", f"{library.message}; {name} was taken")]
    return []
