"""Toolkits and compilers: ROCm's or Hygon's, and whether the compiler knows the cards."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
import stat
import time

from ..visibility import shown
from .child import run
from .look import Look
from .report import Check, Finding, check, found

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

COMMAND_SECONDS = 5.0  # for one command
COMPILERS_MAX = 4
HEAD_MAX = 200  # bytes of a file that holds a version
ARCH = re.compile(r"gfx[0-9a-f]{3,8}")
TOOLKITS = {"rocm": "/opt/rocm*", "dtk": "/opt/dtk*"}
VERSION_FILES = (".dtk_version", ".info/version", ".info/version-dev")


# ---- what there is: in a process that may hang ----


def search(environment: Mapping[str, str], archs: Iterable[str], end: float) -> dict[str, Any]:
    """Toolkits with their versions, and compilers with what they know of these targets, until `end` at most."""
    archs = [arch for arch in dict.fromkeys(archs) if ARCH.fullmatch(arch)]
    compilers = [_compiler(path, environment, archs, end) for path in _hipccs(environment)]
    return {"toolkits": list(_toolkits()), "compilers": compilers}


def _toolkits() -> Iterator[dict[str, Any]]:
    seen = set()
    for kind, pattern in TOOLKITS.items():
        for path in sorted(glob.glob(pattern)):
            real = os.path.realpath(path)
            if os.path.isdir(real) and real not in seen:
                seen.add(real)
                yield {"kind": kind, "path": path, "version": _version(path)}


def _version(path: str) -> str | None:
    for name in VERSION_FILES:
        with contextlib.suppress(OSError):
            if words := _head(os.path.join(path, name)).split():
                return shown(words[0])
    return None


def _head(path: str) -> str:
    """The beginning of an ordinary file; to open another could hang."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        return ""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(descriptor, HEAD_MAX).decode(errors="replace")
    finally:
        os.close(descriptor)


def _hipccs(environment: Mapping[str, str]) -> list[str]:
    """The hipcc that a shell would run, then those of toolkits."""
    found = [shutil.which("hipcc", path=environment.get("PATH", os.defpath))]
    for variable in ("ROCM_PATH", "DTKROOT"):
        if value := environment.get(variable):
            found.append(os.path.join(value, "bin", "hipcc"))
    for pattern in TOOLKITS.values():
        found += sorted(glob.glob(f"{pattern}/bin/hipcc"))
    usable: dict[str, str] = {}
    for path in found:
        if path and os.path.isfile(path) and os.access(path, os.X_OK):
            usable.setdefault(os.path.realpath(path), path)
    return list(usable.values())[:COMPILERS_MAX]


def _compiler(hipcc: str, environment: Mapping[str, str], archs: list[str], end: float) -> dict[str, Any]:
    # With a target given, hipcc does not look for cards itself, for which it would open /dev/kfd.
    environment = {**environment, "HCC_AMDGPU_TARGET": "gfx900", "LC_ALL": "C"}
    result: dict[str, Any] = {"hipcc": hipcc, "version": None, "clang": None, "clang_version": None, "error": None}
    text, error = _ask([hipcc, "--version"], environment, end)
    version = re.search(r"HIP version:\s*(\S+)", text)
    clang_version = re.search(r"clang version (\S+)", text)
    if not error and not clang_version:
        error = "it names no clang"
    clang = _clang(hipcc, text, clang_version and clang_version[1], environment)
    result |= {
        "version": version and shown(version[1]),
        "clang": clang,
        "clang_version": clang_version and shown(clang_version[1]),
        "error": error or (None if clang else "its clang was not found"),
        "targets": {arch: _knows(clang, arch, environment, end) for arch in archs} if clang else {},
    }
    return result


def _clang(hipcc: str, text: str, version: str | None, environment: Mapping[str, str]) -> str | None:
    """The clang that hipcc runs: it says where, and which version."""
    directories = [environment.get("HIP_CLANG_PATH", "")]
    if installed := re.search(r"InstalledDir: (.+)", text):
        directories.append(installed[1].strip())
    for home in dict.fromkeys(os.path.dirname(os.path.dirname(path)) for path in (hipcc, os.path.realpath(hipcc))):
        directories += [f"{home}/llvm/bin", f"{home}/lib/llvm/bin"]
    names = ([f"clang-{version.partition('.')[0]}"] if version else []) + ["clang", "clang++"]
    paths = (f"{directory}/{name}" for directory in directories if directory for name in names)
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), None)


def _knows(clang: str, arch: str, environment: Mapping[str, str], end: float) -> bool | None:
    """Whether a compiler takes a target, by asking it to compile nothing for it; None when it cannot be told."""
    command = [
        clang,
        "--target=amdgcn-amd-amdhsa",
        "-nogpulib",
        f"-mcpu={arch}",
        "-x",
        "c",
        "-fsyntax-only",
        "/dev/null",
    ]
    text, error = _ask(command, environment, end)
    if not error:
        return True
    return False if arch in text else None


def _ask(command: list[str], environment: Mapping[str, str], end: float) -> tuple[str, str | None]:
    """What a command says, and what went wrong."""
    try:
        outcome = run(command, min(end, time.monotonic() + COMMAND_SECONDS), environment)
    except (OSError, ValueError) as error:
        return "", f"it cannot be started: {error}"
    if outcome.flooded:
        return outcome.output, "it printed too much"
    if outcome.status is None:
        return outcome.output, "it did not answer in time"
    return outcome.output, f"it ended with status {outcome.status}" if outcome.status else None


# ---- what that says ----


def toolchain(look: Look) -> Check:
    """The compilers, and cards that they do not know."""
    title = "Toolchain"
    if not look.live:
        return check("toolchain", title, "not looked for: another machine's is not known", status="skipped")
    if not look.software or "toolchain" not in look.software:
        why = look.why("toolchain" if look.software else "software")
        return check("toolchain", title, why, status="unknown")
    facts: dict[str, Any] = look.software["toolchain"]
    summary = [" ".join(filter(None, (_NAMES[kit["kind"]], kit["version"], kit["path"]))) for kit in facts["toolkits"]]
    summary += [_words(compiler) for compiler in facts["compilers"]]
    if not facts["compilers"]:
        summary.append("no hipcc in PATH, /opt/rocm* or /opt/dtk*; programs run without one")
    cards = [
        {
            "bdf": card.bdf,
            "arch": card.arch,
            "known": {c["hipcc"]: c["targets"].get(card.arch) for c in facts["compilers"]},
        }
        for card in (look.snapshot.cards if look.snapshot else ())
    ]
    return check("toolchain", title, summary, {**facts, "cards": cards}, _findings(look, facts["compilers"]))


_NAMES = {"rocm": "ROCm", "dtk": "Hygon DTK"}


def _words(compiler: dict[str, Any]) -> str:
    clang = f"clang {compiler['clang_version']}" if compiler["clang_version"] else "no clang"
    words = f"{compiler['hipcc']} ({' '.join(filter(None, ('HIP', compiler['version'])))}, {clang})"
    for known, verb in ((True, "knows"), (False, "does not know"), (None, "does not say of")):
        if archs := [arch for arch, answer in compiler["targets"].items() if answer is known]:
            words += f" {verb} {', '.join(archs)}"
    return words


def _findings(look: Look, compilers: list[dict[str, Any]]) -> Iterator[Finding]:
    for compiler in compilers:
        if compiler["error"]:
            yield found("compiler_broken", f"{compiler['hipcc']}: {compiler['error']}")
    for first in compilers[:1]:  # the one that a shell runs; what others know is told
        for arch in (arch for arch, known in first["targets"].items() if known is False):
            cards = [str(card.card_index) for card in look.snapshot.cards if card.arch == arch] if look.snapshot else []
            which = f"the target of card{'s' * (len(cards) != 1)} {', '.join(cards)}"
            others = [f"; {other['hipcc']} does" for other in compilers if other["targets"].get(arch)]
            yield found("target_unknown", f"{first['hipcc']} does not know {arch}, {which}{''.join(others[:1])}")
