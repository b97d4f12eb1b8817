"""The text parsers of libdtk: what they accept, what they refuse, and that a refusal changes nothing.

Most tests compare with a second reading of the same text, written in Python with regular expressions.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from gpu_metrics_model import REVISIONS, kernel_fields, possible
from hypothesis import example, given, settings
from hypothesis import strategies as st
from machines import CORPUS
from native_library import FAILED, NOT_FOUND, SOURCES, compile_c, library

from dtk.sim.gpu_metrics import pack

U64_MAX, U32_MAX = 2**64 - 1, 2**32 - 1
BLANKS = st.text(" \t\r\n", max_size=3)

prove = settings(max_examples=200)


def parse(name: str, ctype: str, text: bytes, *key: bytes) -> Any:
    """What parse_<name>() gives, or the status of a failure, after which the result must be as it was."""
    ffi, lib = library()
    ret, before = ffi.new(f"{ctype} *"), ffi.new(f"{ctype} *")
    for place in (ret, before):
        ffi.memmove(place, b"\x5a" * ffi.sizeof(ctype), ffi.sizeof(ctype))
    status = getattr(lib, f"parse_{name}")(ffi.from_buffer("char[]", text), len(text), *key, ret)
    if status != 0:
        assert bytes(ffi.buffer(ret)) == bytes(ffi.buffer(before))
        return Refused(status)
    return ret if ctype.startswith("struct") else ret[0]


class Refused:
    """The status of a call that failed."""

    def __init__(self, status: int) -> None:
        self.status = status

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Refused) and self.status == other.status

    def __repr__(self) -> str:
        return f"Refused({self.status})"


MALFORMED = Refused(FAILED)
ABSENT = Refused(NOT_FOUND)


def number_like(alphabet: str) -> st.SearchStrategy[str]:
    """Texts that are nearly numbers: digits, signs and blanks, and numbers beyond every limit."""
    return st.one_of(
        st.text(alphabet, max_size=24),
        st.integers(-(2**66), 2**66).map(str),
        st.integers(0, 2**66).map(hex),
        st.tuples(BLANKS, st.integers(0, U64_MAX).map(str), BLANKS).map("".join),
    )


# ---- Numbers ----


@prove
@given(number_like("0123456789abcdefABCDEFxX -+.\n\t\0"))
@example(str(U64_MAX))
@example(str(U64_MAX + 1))
@example(hex(U64_MAX))
@example("0x")
@example("")
def test_u64(text: str) -> None:
    found = re.fullmatch(r"[ \t\r\n]*(?:0[xX]([0-9a-fA-F]+)|([0-9]+))[ \t\r\n]*", text.split("\0")[0])
    value = (int(found[1], 16) if found[1] else int(found[2])) if found else None
    assert parse("u64", "uint64_t", text.encode()) == (MALFORMED if value is None or value > U64_MAX else value)


@prove
@given(number_like("0123456789x-+ \n\0"))
@example(str(-(2**63)))
@example(str(-(2**63) - 1))
@example(str(2**63 - 1))
@example(str(2**63))
@example("-")
@example("-0")
def test_i64(text: str) -> None:
    found = re.fullmatch(r"[ \t\r\n]*(-?[0-9]+)[ \t\r\n]*", text.split("\0")[0])
    value = int(found[1]) if found else None
    fits = value is not None and -(2**63) <= value < 2**63
    assert parse("i64", "int64_t", text.encode()) == (value if fits else MALFORMED)


@prove
@given(number_like("0123456789abcdefABCDEFxX \n"))
@example("00000000000000000")
def test_hex64(text: str) -> None:
    found = re.fullmatch(r"[ \t\r\n]*(?:0[xX])?([0-9a-fA-F]{1,16})[ \t\r\n]*", text)
    assert parse("hex64", "uint64_t", text.encode()) == (int(found[1], 16) if found else MALFORMED)


@prove
@given(st.integers(0, 10**15 - 1), st.integers(0, 15), st.sampled_from(["", " GT/s PCIe\n", "\0\0", "e5", " -1"]))
def test_leading_f64_is_the_nearest_double(digits: int, decimals: int, rest: str) -> None:
    text = f"{digits:0{decimals + 1}d}"
    text = f"{text[: len(text) - decimals]}.{text[len(text) - decimals :]}" if decimals else text
    assert parse("leading_f64", "double", (text + rest).encode()) == float(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"16.0 GT/s PCIe\n", 16.0),
        (b"  2.5 GT/s", 2.5),
        (b"32", 32.0),
        (b"Unknown\n", MALFORMED),
        (b"-1", MALFORMED),
        (b".5", MALFORMED),
        (b"", MALFORMED),
        (b"1000000000000000", MALFORMED),
        (b"100000000000000.0", MALFORMED),
        (b"0." + b"0" * 22, 0.0),
        (b"0." + b"0" * 23, MALFORMED),
        (b"2.5a", 2.5),
    ],
)
def test_leading_f64(text: bytes, value: Any) -> None:
    assert parse("leading_f64", "double", text) == value


# ---- Levels ----


def levels(text: bytes) -> Any:
    found = parse("levels", "struct levels", text)
    if isinstance(found, Refused):
        return found
    current = found.current if found.stars == 1 else None
    return found.count, found.stars, current, found.highest if found.count else None


LEVEL = st.tuples(st.sampled_from(["S", "0", "1", "2", "17"]), st.integers(0, 100_000), st.booleans())


@prove
@given(st.lists(LEVEL, min_size=1, max_size=9), st.sampled_from(["Mhz", "MHz", "mhz", "MHZ"]), st.booleans())
def test_levels(lines: list[tuple[str, int, bool]], unit: str, ended: bool) -> None:
    text = "\n".join(f"{name}: {mhz}{unit} {'*' if star else ''}" for name, mhz, star in lines) + "\n" * ended
    real = [mhz for name, mhz, _ in lines if name != "S"]
    starred = [mhz for _, mhz, star in lines if star]
    current = starred[0] if len(starred) == 1 else None
    expected = (len(real), len(starred), current, max(real, default=None))
    assert levels(text.encode()) == expected
    assert levels(text.encode() + b"\0\0* junk") == expected
    assert levels(text.encode() + b"\nOD_SCLK:\n") == MALFORMED


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" \n\n",
        b"0: 8.0GT/s, x16 619Mhz *\n",
        b"0: 500\n",
        b"0: 500Mhz x\n",
        b"0: 500Mhz **\n",
        b"0 500Mhz\n",
        b": 500Mhz\n",
        b"a: 500Mhz\n",
        b"0: Mhz\n",
        b"0: -5Mhz\n",
        b"0: 99999999999999999999Mhz\n",
        b"SS: 19Mhz\n",
    ],
)
def test_levels_of_another_form_are_refused(text: bytes) -> None:
    assert levels(text) == MALFORMED


def test_sleep_state_is_current_but_no_level() -> None:
    assert levels(b"S: 19Mhz *\n1: 615Mhz \n2: 3010Mhz \n") == (2, 1, 19, 3010)


# ---- Lines with keys ----

KEY = st.text("abcdefghijklmnop_", min_size=1, max_size=8)


@prove
@given(st.dictionaries(KEY, st.integers(0, U64_MAX), min_size=1, max_size=8), KEY)
def test_property(properties: dict[str, int], other: str) -> None:
    text = "".join(f"{key} {value}\n" for key, value in properties.items()).encode()
    for key, value in {**properties, other: properties.get(other)}.items():
        found = parse("property", "uint64_t", text, key.encode())
        assert found == (ABSENT if value is None else value)


def test_property_refuses_what_is_no_number() -> None:
    assert parse("property", "uint64_t", b"simd_count 12 4\n", b"simd_count") == MALFORMED
    assert parse("property", "uint64_t", b"simd_count -1\n", b"simd_count") == MALFORMED
    assert parse("property", "uint64_t", b"simd_count_x 1\n", b"simd_count") == ABSENT
    assert parse("property", "uint64_t", b"\n", b"simd_count") == MALFORMED


def string(name: str, text: bytes, size: int, *key: bytes) -> Any:
    """What parse_text() or parse_variable() puts into `size` bytes; it must leave those behind them alone."""
    ffi, lib = library()
    room = ffi.new("char[]", b"\x5a" * (size + 8))
    status = getattr(lib, f"parse_{name}")(ffi.from_buffer("char[]", text), len(text), *key, room, size)
    assert bytes(ffi.buffer(room))[size:-1] == b"\x5a" * 8
    if status != 0:
        assert bytes(ffi.buffer(room))[:size] == b"\x5a" * size
        return Refused(status)
    return ffi.string(room, size)


def test_variable() -> None:
    uevent = b"DRIVER=amdgpu\nPCI_CLASS=38000\nPCI_ID=1002:740F\nEMPTY=\nPCI_SLOT_NAME=0000:43:00.0\n"
    assert string("variable", uevent, 32, b"DRIVER") == b"amdgpu"
    assert string("variable", uevent, 32, b"PCI_SLOT_NAME") == b"0000:43:00.0"
    assert string("variable", uevent, 5, b"DRIVER") == b"amdg"
    assert string("variable", uevent, 32, b"PCI") == ABSENT
    assert string("variable", uevent, 32, b"EMPTY") == MALFORMED
    assert string("variable", b"", 32, b"DRIVER") == MALFORMED
    assert string("variable", b"DRIVER=amd\x1b[31m\n", 32, b"DRIVER") == b"amd?[31m"


# ---- Errors ----


@prove
@given(
    st.dictionaries(st.sampled_from(["ue", "ce", "de", "xx"]), st.integers(0, U64_MAX), max_size=4),
    st.randoms(use_true_random=False),
)
def test_error_counts(counts: dict[str, int], order: Any) -> None:
    lines = [f"{name}: {count}\n" for name, count in counts.items()]
    order.shuffle(lines)
    found = parse("error_counts", "struct error_counts", "".join(lines).encode())
    if not {"ue", "ce"} <= counts.keys():
        assert found == MALFORMED
        return
    assert (found.correctable, found.uncorrectable) == (counts["ce"], counts["ue"])
    assert found.has_deferred == ("de" in counts)
    assert found.deferred == counts.get("de", 0)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"ue: 0\n",
        b"ue: 0\nue: 1\nce: 0\n",
        b"ue: x\nce: 0\n",
        b"ue: -1\nce: 0\n",
        b"Query currently inaccessible\n",
    ],
)
def test_error_counts_of_another_form_are_refused(text: bytes) -> None:
    assert parse("error_counts", "struct error_counts", text) == MALFORMED


def bad_pages(text: bytes) -> Any:
    ffi, lib = library()
    retired, pending = ffi.new("uint64_t *", 77), ffi.new("uint64_t *", 78)
    status = lib.parse_bad_pages(ffi.from_buffer("char[]", text), len(text), retired, pending)
    if status != 0:
        assert (retired[0], pending[0]) == (77, 78)
        return Refused(status)
    return retired[0], pending[0]


@prove
@given(st.lists(st.tuples(st.integers(0, U32_MAX), st.sampled_from("RPF")), max_size=20))
def test_bad_pages(pages: list[tuple[int, str]]) -> None:
    text = "".join(f"0x{page:08x} : 0x00001000 : {flag}\n" for page, flag in pages).encode()
    flags = [flag for _, flag in pages]
    assert bad_pages(text) == (flags.count("R"), flags.count("P"))
    assert bad_pages(text + b"\0" * 9) == (flags.count("R"), flags.count("P"))
    for junk in (b"0x1 : 0x1000\n", b"0x1 : 0x1000 : X\n", b"0x1 : 0x1000 : RR\n", b"pages\n", b": 0x1000 : R\n"):
        assert bad_pages(text + junk) == MALFORMED


# ---- Addresses and names ----


@prove
@given(
    st.one_of(
        st.from_regex(r"([0-9a-fA-F]{1,9}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]", fullmatch=True),
        st.from_regex(r"([0-9a-fA-F]{4}:)?[0-9a-fA-F]{2}:[01][0-9a-fA-F]\.[0-7]", fullmatch=True),
        st.text("0123456789abcdef:. ", max_size=14),
    )
)
@example("0000:43:00.0\n")
@example("ffffffff:ff:1f.7")
@example("100000000:00:00.0")
@example("00:20.0")
@example("00:00.8")
@example("043:00.0")
@example("43:000.0")
@example("43:00.00")
@example("0:43:00.00")
@example("::00.0")
def test_pci_address(text: str) -> None:
    found = re.fullmatch(r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{2}):([01][0-9a-fA-F])\.([0-7])", text)
    address = parse("pci_address", "struct pci_address", text.encode())
    if found is None:
        assert address == MALFORMED
        return
    expected = [int(part or "0", 16) for part in found.groups()]
    assert [address.domain, address.bus, address.device, address.function] == expected


@prove
@given(st.one_of(st.integers(0, 2**33).map(str), st.text("0123456789x -", max_size=12)), st.sampled_from(["card", ""]))
@example("4294967295", "card")
@example("4294967296", "card")
def test_number_after(rest: str, prefix: str) -> None:
    ffi, lib = library()
    ret = ffi.new("uint32_t *", 77)
    status = lib.parse_number_after((prefix + rest).encode(), prefix.encode(), ret)
    valid = re.fullmatch("[0-9]+", rest) is not None and int(rest) <= U32_MAX
    assert (status, ret[0]) == ((0, int(rest)) if valid else (FAILED, 77))
    assert lib.parse_number_after(("render" + rest).encode(), b"card", ret) == FAILED


def printable(text: bytes, size: int) -> bytes:
    """parse_text() once more, after Python's own decoder."""
    line = text.split(b"\0")[0].split(b"\n")[0].strip(b" \t\r")
    decoded = line.decode("utf-8", "surrogateescape")
    shown = ["?" if 0xDC80 <= ord(c) <= 0xDCFF or ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 else c for c in decoded]
    kept = b""
    for character in shown:
        if len(kept) + len(character.encode()) >= size:
            break
        kept += character.encode()
    return kept


@prove
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=4),
            st.text(max_size=4).map(lambda text: text.encode("utf-8", "surrogatepass")),
            st.sampled_from([b" ", b"\t", b"\xc2\x9b", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe4\xb8"]),
        ),
        max_size=8,
    ).map(b"".join),
    st.integers(0, 24),
)
@example("\u007f\u0080\u009f\u00a0\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff".encode(), 99)
@example(b"\xc1\xbf \xe0\x9f\xbf \xf0\x8f\xbf\xbf \xed\xbf\xbf \xf4\x90\x80\x80 \xf8\x88\x80\x80\x80", 99)
@example(b"\xe4\xb8", 99)
def test_text(text: bytes, size: int) -> None:
    expected = printable(text, size)
    assert string("text", text, size) == (expected or MALFORMED)


def test_text_takes_the_first_line() -> None:
    assert string("text", b"  Instinct MI210 \r\nmore\n", 64) == b"Instinct MI210"
    assert string("text", b"\nmore\n", 64) == MALFORMED
    assert string("text", b"\0", 64) == MALFORMED
    assert string("text", "华为".encode(), 6) == "华".encode()


# ---- Real files ----


def recorded(name: str) -> list[Path]:
    # Not through links: they lead up again, as a kernel's do.
    return sorted(path for path in CORPUS.glob(f"machines/*/sys/devices/**/{name}") if path.is_file())


@pytest.mark.skipif(not CORPUS.is_dir(), reason="no corpus beside the project")
@pytest.mark.parametrize("name", ["pp_dpm_sclk", "pp_dpm_mclk", "pp_dpm_socclk", "pp_dpm_fclk"])
def test_recorded_levels(name: str) -> None:
    files = recorded(name)
    assert files
    for path in files:
        found = levels(path.read_bytes())
        assert not isinstance(found, Refused), path
        assert found[1] == path.read_bytes().count(b"*"), path


@pytest.mark.skipif(not CORPUS.is_dir(), reason="no corpus beside the project")
def test_recorded_numbers() -> None:
    for name, kind, ctype in [
        ("gpu_busy_percent", "u64", "uint64_t"),
        ("mem_info_vram_total", "u64", "uint64_t"),
        ("vendor", "u64", "uint64_t"),
        ("numa_node", "i64", "int64_t"),
        ("temp1_input", "i64", "int64_t"),
        ("current_link_speed", "leading_f64", "double"),
    ]:
        files = recorded(name)
        assert files
        for path in files:
            assert not isinstance(parse(kind, ctype, path.read_bytes()), Refused), path


# ---- Any bytes at all ----


def test_fuzz(tmp_path: Path) -> None:
    """The parsers under AddressSanitizer and UndefinedBehaviorSanitizer, with inputs that are always the same."""
    program = compile_c(
        tmp_path / "fuzz",
        *("-g", "-O1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
        Path(__file__).parent / "native" / "fuzz.c",
        *SOURCES,
    )
    seeds = []
    for revision in REVISIONS:
        seeds.append(tmp_path / "{}.{}.bin".format(*revision))
        values = {name: possible(name, revision) for name in kernel_fields(revision)}
        seeds[-1].write_bytes(pack(*revision, values))
    seeds += sorted((CORPUS / "gpu_metrics").glob("*.bin"))
    done = subprocess.run([program, "200000", *seeds], capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"200000 inputs, {len(seeds)} tables\n"


# ---- parse_next_count ----


def counts(text: bytes) -> list[tuple[str, int]]:
    """All that parse_next_count() finds."""
    ffi, lib = library()
    at, name, number = ffi.new("size_t *"), ffi.new("char[40]"), ffi.new("uint64_t *")
    found = []
    while lib.parse_next_count(text, len(text), at, name, 40, number) == 1:
        found.append((ffi.string(name).decode(), number[0]))
    return found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"ce_count 5\nue_count 0\n", [("ce_count", 5), ("ue_count", 0)]),
        (b"ce: 5\nue count : 0x10", [("ce", 5), ("ue count", 16)]),
        (b"mode auto\n\n7\n: 3\nlast 1", [("last", 1)]),
        (b"a -1\nb 18446744073709551616\nc 2 3\n", [("c 2", 3)]),
        (b"", []),
        (b"a 1\0b 2\n", [("a", 1)]),
    ],
)
def test_next_count(text: bytes, found: list[tuple[str, int]]) -> None:
    assert counts(text) == found


@given(
    st.lists(st.tuples(st.from_regex(r"[a-z][a-z_]{0,20}", fullmatch=True), st.integers(0, 2**64 - 1))), st.booleans()
)
def test_next_count_finds_every_line(rows: list[tuple[str, int]], colon: bool) -> None:
    text = "".join(f"{name}{':' if colon else ''} {number}\n" for name, number in rows)
    assert counts(text.encode()) == rows
