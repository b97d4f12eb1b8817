"""The vendor's libraries: which are where, and what each librocm_smi64 says of itself when dtk-reader loads it."""

from __future__ import annotations

import fnmatch
import os
import platform
import time

from ..errors import Error
from ..library import ABORTED, VendorLibrary, default_backend
from ..take import take_snapshot
from ..visibility import shown
from .look import HYGON, Look, count
from .report import Check, Finding, check, found

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

SMI = "librocm_smi64.so"
NAMES = (SMI, "libamdhip64.so", "libhydmi.so")
FILES_MAX = 16  # of a directory
ASKED_MAX = 4  # libraries
CARDS_MAX = 4  # named in a finding
ASK_SECONDS, LEAST_SECONDS = 2.0, 0.3  # for each of them

# A variable, and the directories below what it names. The first two may also name the file itself.
OVERRIDES: dict[str, tuple[str, ...]] = {
    "DTK_SMI_ROCM_SMI_LIB": ("",),
    "ROCM_SMI_LIB_PATH": ("",),
    "HYHAL_PATH": ("lib",),
    "DTKROOT": ("lib", ".hyhal/lib", ".hyhal/rocm_smi/lib"),
    "ROCM_PATH": ("lib", "lib64", "rocm_smi/lib"),
}
PLACES = (
    "/opt/hyhal/lib",
    "/usr/local/hyhal/lib",
    "/opt/hygondriver/lib",
    "/opt/dtk/.hyhal/lib",
    "/opt/dtk/.hyhal/rocm_smi/lib",
    "/opt/dtk/lib",
    "/opt/rocm/lib",
    "/opt/rocm/lib64",
    "/opt/rocm/rocm_smi/lib",
    "/usr/local/lib",
    f"/usr/lib/{platform.machine()}-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
)


# ---- what there is: in a process that may hang, since file systems do ----


def search(environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """Each place that was looked in, in the order in which they count: {"path", "origin", "files"}."""
    places: dict[str, dict[str, Any]] = {}
    for path, origin in _places(environment):
        path = os.path.normpath(path)
        if path not in places:
            places[path] = {"path": path, "origin": origin, "files": _files(path)}
    return list(places.values())


def _places(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Directories, or files of an override, and which variable names each; "" for the known places."""
    for variable, below in OVERRIDES.items():
        if value := environment.get(variable):
            for part in below:
                yield os.path.join(value, part), variable
    for entry in _linker_path(environment):
        yield entry, "LD_LIBRARY_PATH"
    for path in PLACES:
        yield path, ""


def _linker_path(environment: Mapping[str, str]) -> list[str]:
    return [entry for entry in environment.get("LD_LIBRARY_PATH", "").split(":") if entry.startswith("/")]


def _files(path: str) -> list[dict[str, Any]]:
    """The libraries in a directory, or the one that the path is; version and abi are told by who loads it."""
    try:
        if os.path.isdir(path):
            names = sorted(name for name in os.listdir(path) if any(fnmatch.fnmatch(name, f"{n}*") for n in NAMES))
            found = [os.path.join(path, name) for name in names[:FILES_MAX]]
        else:
            found = [path]
        return [_file(path) for path in found if os.path.isfile(path)]
    except (OSError, ValueError):  # may not be read; no path
        return []


def _file(path: str) -> dict[str, Any]:
    target = os.path.realpath(path)
    return {
        "path": path,
        "target": target if target != path else None,
        "size": os.stat(path).st_size,
    }


def ask(places: list[dict[str, Any]], end: float) -> list[dict[str, Any]]:
    """The same places, each librocm_smi64 with "about": what became of it in dtk-reader; None where there was no card
    to ask it about, or no time. None is asked while a card sleeps, which newer ones may wake. In a process of its own,
    whose environment this changes.
    """
    if default_backend() == "kernel":
        return places  # it is not wanted
    if _sleepers() != []:
        return places
    known: dict[str, dict[str, Any] | None] = {}
    for place in places:
        for file in _smi(place):
            target = _target(file)
            if target not in known:
                known[target] = _about(target, end) if len(known) < ASKED_MAX else None
            file["about"] = known[target]
    return places


def _sleepers() -> list[str] | None:
    """The cards of this machine that sleep; None when it did not say."""
    try:
        cards = take_snapshot("/", fast=False, deadline=ASK_SECONDS, backend="kernel").cards
    except Error:
        return None
    return [card.bdf for card in cards if card.state == "asleep"]


def _about(path: str, end: float) -> dict[str, Any] | None:
    deadline = min(ASK_SECONDS, end - time.monotonic())
    if deadline < LEAST_SECONDS:
        return None
    os.environ["DTK_SMI_ROCM_SMI_LIB"] = path
    try:
        snapshot = take_snapshot("/", fast=False, deadline=deadline, backend="rsmi")
    except Error as error:
        return VendorLibrary("library", path, None, None, None, None, None, str(error), None)._asdict()
    library = snapshot.library
    if library and library.path and os.path.realpath(library.path) != os.path.realpath(path):
        # Another was tried in its place; the first part of the message is about this one.
        message = (library.message or "").split("; ")[0].removeprefix(f"DTK_SMI_ROCM_SMI_LIB: {path}: ")
        library = VendorLibrary("library", path, None, None, None, None, None, message, None)
    return {**library._asdict(), "cards": {card.bdf: card.state for card in snapshot.cards}} if library else None


# ---- what that says ----


def libraries(look: Look) -> Check:
    """What was found, overrides that yield nothing, and a second librocm_smi64 in the way of the first."""
    title = "Libraries"
    if not look.live:
        return check("libraries", title, "not looked for: another machine's are not known", status="skipped")
    if not look.software or "libraries" not in look.software:
        return check("libraries", title, look.why("software"), status="unknown")
    places: list[dict[str, Any]] = look.software["libraries"]
    targets = {_target(file): _line(file) for place in places for file in place["files"]}
    summary = [*targets.values(), *_remarks(look, places)] or [
        f"no vendor library in {count(len(places), 'place')}; dtk needs none"
    ]
    return check("libraries", title, summary, {"places": places}, _findings(look, places))


def _remarks(look: Look, places: list[dict[str, Any]]) -> Iterator[str]:
    """What is no fault, but explains what is missing."""
    cards = look.snapshot.cards if look.snapshot else ()
    files = [file for place in places for file in _smi(place)]
    if files and not any("about" in file for file in files):
        if look.environment.get("DTK_SMI_BACKEND") != "kernel":
            yield "no librocm_smi64 was loaded: a card sleeps, and newer ones may wake it"
        return
    abis = {str((file.get("about") or {}).get("abi")) for place in places for file in _smi(place)}
    if any(card.vendor_id == HYGON for card in cards) and not any(abi.startswith("hygon") for abi in abis):
        yield "no librocm_smi64 of Hygon's: no use by compute unit, wave and process, no bandwidths"


def _line(file: dict[str, Any]) -> str:
    about = file.get("about") or {}
    version = f"version {shown(about['version'])}" if about.get("version") else None
    abi = f"ABI {about['abi']}" if about.get("abi") else None
    return "  ".join(filter(None, (_target(file), version, abi)))


def _ask_findings(look: Look, places: list[dict[str, Any]]) -> Iterator[Finding]:
    """What a librocm_smi64 did that should serve the cards of this machine."""
    cards = look.snapshot.cards if look.snapshot else ()
    told: set[str] = set()
    for file in (file for place in places for file in _smi(place)):
        about, path = file.get("about"), _target(file)
        if not about or path in told:
            continue
        if _is_foreign(look, file):
            continue
        told.add(path)
        log = f"; it printed: {about['log'].strip().splitlines()[-1]}" if (about["log"] or "").strip() else ""
        if about["status"] == ABORTED:
            yield found("library_aborted", f"{path} ended the process that loaded it{log}")
        elif about["status"] == "stale":
            yield found("library_silent", f"{path} did not answer within {ASK_SECONDS:.0f} s{log}")
        elif about["status"] != "ok":
            yield found("library_failed", f"{path}: {about['message']}{log}")
        elif hung := [c.bdf for c in cards if c.state != "stale" and about["cards"].get(c.bdf) == "stale"]:
            yield found("library_silent", f"{path} did not answer within {ASK_SECONDS:.0f} s for {_names(hung)}{log}")
        elif about["matched"] < len(about["cards"]):  # what it does not list cannot be read
            wanted = [card.bdf for card in cards if look.in_kfd(card)]  # others it leaves out rightly
            if missing := [bdf for bdf in wanted if about["cards"].get(bdf) == "failed"]:
                text = (
                    f"{path} lists {len(wanted) - len(missing)} of {count(len(wanted), 'card')}, not {_names(missing)}"
                )
                yield found("library_lists_fewer", text)


def _findings(look: Look, places: list[dict[str, Any]]) -> Iterator[Finding]:
    yield from _ask_findings(look, places)
    for variable in ("DTK_SMI_ROCM_SMI_LIB", "ROCM_SMI_LIB_PATH"):
        value = look.environment.get(variable)
        if value and not any(place["files"] for place in places if place["origin"] == variable):
            yield found("library_override", f"{variable}={value} holds no library", variable=variable)
    files = {place["path"]: _smi(place) for place in places}
    standard = next((file for file in _in(PLACES, files) if not _is_foreign(look, file)), None)
    first = next(_in(_linker_path(look.environment), files), None)
    if standard and first and _target(first) != _target(standard):
        text = f"LD_LIBRARY_PATH: {first['path']} comes before {standard['path']}"
        yield found("library_shadowed", text, directory=os.path.dirname(standard["path"]))


def _in(paths: Iterable[str], files: dict[str, list[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """The first file in each of these directories, in their order, whichever variable led to them."""
    for path in paths:
        yield from files.get(os.path.normpath(path), [])[:1]


def _is_foreign(look: Look, file: dict[str, Any]) -> bool:
    """AMD's is not made for Hygon cards."""
    cards = look.snapshot.cards if look.snapshot else ()
    about = file.get("about") or {}
    return all(card.vendor_id == HYGON for card in cards) and (about.get("abi") or "").startswith("amd")


def _names(cards: list[str]) -> str:
    return ", ".join(cards[:CARDS_MAX]) + (", ..." if len(cards) > CARDS_MAX else "")


def _smi(place: dict[str, Any]) -> list[dict[str, Any]]:
    """Of a place; a variable of ours names the file itself."""
    named = place["origin"] == "DTK_SMI_ROCM_SMI_LIB"
    return [file for file in place["files"] if named or os.path.basename(file["path"]).startswith(SMI)]


def _target(file: dict[str, Any]) -> str:
    return str(file["target"] or file["path"])
