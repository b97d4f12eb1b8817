"""`dtk-smi doctor` on "this machine": what it says of the vendors' libraries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import standin
from live_machine import CARDS, Live, found
from machines import device_directory, put
from test_doctor import FIRST, KFD, NODE, PAIR, SECOND, check, codes, findings

import dtk
from dtk.doctor.look import Look

if TYPE_CHECKING:
    from dtk.sim import Mounted

Get = Callable[[str], Path]


@pytest.fixture
def live(copy_machine: Get, tmp_path: Path) -> Live:
    return Live(copy_machine(NODE), tmp_path / "files")


# ---- libraries ----


def test_override_that_yields_nothing(live: Live, tmp_path: Path) -> None:
    document = live.examine(PATH=str(tmp_path), ROCM_SMI_LIB_PATH=str(tmp_path / "none"))
    assert found(document) == {"library_override"}
    assert "Unset ROCM_SMI_LIB_PATH" in findings(document)[0]["action"]
    (tmp_path / "there").mkdir()
    library = tmp_path / "there/librocm_smi64.so.2.8"
    library.write_bytes(b"x" * 10)
    (tmp_path / "there/librocm_smi64.so").symlink_to(library.name)
    document = live.examine(PATH=str(tmp_path), ROCM_SMI_LIB_PATH=str(tmp_path / "there"))
    assert found(document) == {"library_failed"}  # it is none
    assert "file too short" in findings(document)[0]["text"]
    places = check(document, "libraries")["facts"]["places"]
    (place,) = [place for place in places if place["origin"] == "ROCM_SMI_LIB_PATH"]
    link, file = place["files"]
    assert link == {
        "path": f"{tmp_path}/there/librocm_smi64.so",
        "target": str(library),
        "size": 10,
        "about": file["about"],
    }
    assert file == {"path": str(library), "target": None, "size": 10, "about": file["about"]}


def test_second_library_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dtk.doctor import libraries

    for name in ("driver", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "librocm_smi64.so.2").write_bytes(b"x")
    monkeypatch.setattr(libraries, "PLACES", (str(tmp_path / "driver"),))
    for directory, expected in (("other", ["library_shadowed"]), ("driver", []), ("", [])):
        variables = {"LD_LIBRARY_PATH": f"relative::{tmp_path / directory if directory else ''}"}
        software = {"libraries": libraries.search(variables)}
        look = Look(True, None, None, None, software, variables, {}, False)
        assert [finding.code for finding in libraries.libraries(look).findings] == expected


@pytest.mark.parametrize(
    ("path", "shadowed"),
    [
        ("", False),
        ("/opt/hyhal/lib", False),  # as Hygon's env.sh sets it
        ("/opt/hyhal/lib/:/opt/rocm/lib", False),
        ("/opt/dtk/.hyhal/lib", False),  # a link to it
        ("/opt/none:/opt/rocm/lib:/opt/hyhal/lib", True),
    ],
)
@pytest.mark.parametrize("variable", ["", "HYHAL_PATH"])
def test_libraries_of_both_vendors(live: Live, tmp_path: Path, path: str, shadowed: bool, variable: str) -> None:
    hygon = standin.for_machine(tmp_path, "HYGON63", live.root)
    live.put("opt/hyhal/lib/librocm_smi64.so.2", "").write_bytes(hygon.library.read_bytes())
    live.put("opt/rocm/lib/librocm_smi64.so.1", "").write_bytes(standin.build("AMD5").read_bytes())
    live.put("opt/dtk/env.sh", "")
    (live.files / "opt/dtk/.hyhal").symlink_to("/opt/hyhal")
    variables = {"DTK_STANDIN": hygon.env["DTK_STANDIN"], "LD_LIBRARY_PATH": path, "PATH": str(tmp_path)}
    document = live.examine(**variables, **({variable: "/opt/hyhal"} if variable else {}))
    assert found(document) == ({"library_shadowed"} if shadowed else set())


def test_library_of_amd_is_no_standard_for_hygon_cards(live: Live, tmp_path: Path) -> None:
    """Hygon's is elsewhere, and a variable says where."""
    hygon = standin.for_machine(tmp_path, "HYGON63", live.root)
    live.put("opt/rocm/lib/librocm_smi64.so.1", "").write_bytes(standin.build("AMD5").read_bytes())
    live.put("opt/driver/librocm_smi64.so.2", "").write_bytes(hygon.library.read_bytes())
    variables = {"DTK_STANDIN": hygon.env["DTK_STANDIN"], "LD_LIBRARY_PATH": "/opt/driver", "PATH": str(tmp_path)}
    assert found(live.examine(**variables)) == set()


# ---- the vendor's library ----


def library_of(document: Any, library: standin.Standin) -> dict[str, Any]:
    places = check(document, "libraries")["facts"]["places"]
    (about,) = (file["about"] for place in places for file in place["files"] if file["path"] == str(library.library))
    return dict(about)


def test_version_and_abi_of_a_library(live: Live, tmp_path: Path) -> None:
    library = standin.for_machine(tmp_path, "HYGON63", live.root)
    document = live.examine(**library.env)
    assert findings(document) == [] or "library" not in str(findings(document))
    about = library_of(document, library)
    assert (about["status"], about["abi"], about["matched"]) == ("ok", "hygon-6.3", CARDS)
    assert about["version"].startswith("7.6.0")
    assert "ABI hygon-6.3" in live.run("doctor", **library.env).stdout


@pytest.mark.parametrize(
    ("line", "code", "text"),
    [
        ("status rsmi_init * 8", "library_failed", "rsmi_init() failed with 8"),
        ("throw rsmi_init *", "library_aborted", "it printed:"),
        ("hang rsmi_init *", "library_silent", "did not answer"),
        ("hang rsmi_dev_memory_total_get 1", "library_silent", f"did not answer within 2 s for {SECOND}"),
    ],
)
def test_library_that_does_not_serve(live: Live, tmp_path: Path, line: str, code: str, text: str) -> None:
    library = standin.for_machine(tmp_path, "HYGON63", live.root, line)
    document = live.examine(**library.env)
    assert (code, None) in codes(document)
    assert any(text in finding["text"] for finding in findings(document) if finding["code"] == code)


def test_library_is_not_loaded_while_a_card_sleeps(live: Live, tmp_path: Path) -> None:
    put(live.root, f"{device_directory(live.root, SECOND).relative_to(live.root)}/power/runtime_status", "suspended\n")
    library = standin.for_machine(tmp_path, "HYGON63", live.root, "abort rsmi_init *")
    document = live.examine(PATH=str(tmp_path), **library.env)
    assert found(document) == set()
    assert "a card sleeps" in check(document, "libraries")["summary"][-1]
    assert library.calls() == []
    assert "no librocm_smi64 was loaded" in live.run("doctor", "-d", FIRST, **library.env).stdout


def test_library_that_does_not_list_every_card(live: Live, tmp_path: Path) -> None:
    library = standin.make(tmp_path, "HYGON62", [FIRST])
    (finding,) = [x for x in findings(live.examine(**library.env)) if x["code"] == "library_lists_fewer"]
    assert f"lists 1 of 8 cards, not {SECOND}, " in finding["text"]
    assert "library_lists_fewer" not in live.run("doctor", "-d", FIRST, **library.env).stdout
    done = live.run("doctor", "-d", SECOND, **library.env)
    assert f"lists 0 of 1 card, not {SECOND}" in " ".join(done.stdout.split())


def test_library_in_a_container_lists_the_cards_that_were_given(
    mounted: Callable[[str], Mounted], tmp_path: Path
) -> None:
    machine = mounted(PAIR)
    cards = [card.bdf for card in dtk.System(machine.root).cards()]
    nodes = [dtk.System(machine.root).device(bdf).kfd_node for bdf in cards[1:]]
    library = standin.make(tmp_path, "HYGON63", cards[:1])
    live = Live(machine.root, tmp_path / "files")
    machine.set(*(f"eacces={KFD}/topology/nodes/{number}/properties" for number in nodes))
    # The processes of a mount stay, and none of them is this machine's.
    assert found(live.examine(PATH=str(tmp_path), **library.env)) == {"process_ended"}


def test_library_of_amd_is_not_made_for_hygon_cards(live: Live, tmp_path: Path) -> None:
    library = standin.for_machine(tmp_path, "AMD5", live.root, "status rsmi_init * 8")
    assert not {code for code, _ in codes(live.examine(**library.env)) if code.startswith("library")}
