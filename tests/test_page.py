"""The page for people, in a real browser: what it shows, and that it fits a phone."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from exporting import exporting
from machines import put

import dtk
from dtk import sim

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PHONE = 390  # pixels

pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs chromium")

# Appended to a copy of the page: how wide it is, as the browser laid it out, and which of its elements stick out.
MEASURE = """<script>
addEventListener("load", () => {
  const width = document.documentElement.clientWidth
  const wide = [...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > width + 1)
  document.title = `measured ${width} ${document.documentElement.scrollWidth} ${wide.length}`
})
</script>"""


def browse(url: str, tmp_path: Path, *options: str) -> str:
    """The page's DOM after the browser is done with it."""
    command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    command += ["--virtual-time-budget=2000", "--dump-dom", *options, url]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A machine with a card of each state, and a name that would be markup if it were let."""
    root = tmp_path / "node"
    simulator = sim.Simulator(
        root, sim.assemble(["k100_ai:3", "mi300x-cpx:1"], 1), 1.0, ["suspended=1", "ecc:uncorrectable=2"]
    )
    simulator.advance()
    put(root, "proc/sys/kernel/hostname", "<b>node&1</b>\n")
    return root


def test_cards_and_states_are_there(node: Path, tmp_path: Path) -> None:
    with exporting(node) as exporter:
        dom = browse(f"http://127.0.0.1:{exporter.port}/", tmp_path)
    for device in dtk.take_snapshot(node).devices:
        assert device.uuid in dom
    assert re.search(r'class="state ok">asleep<', dom)
    assert re.search(r'class="state degraded">degraded<', dom)
    assert "uncorrectable memory errors: 1" in dom
    assert "SIMULATED" in dom
    assert "&lt;b&gt;node&amp;1&lt;/b&gt;" in dom


def test_it_fits_a_phone(node: Path, tmp_path: Path) -> None:
    with exporting(node) as exporter:
        page = exporter.get("/").text
    copy = tmp_path / "copy.html"
    copy.write_text(page.replace("</body>", f"{MEASURE}</body>").replace('http-equiv="refresh"', ""))
    # A headless window is no narrower than 500 pixels, so that the page is looked at in a frame.
    frame = tmp_path / "frame.html"
    frame.write_text(
        f'<iframe id="phone" style="width:{PHONE}px;height:800px;border:0" src="copy.html"></iframe><p id="out"></p>'
        "<script>setTimeout(() => out.textContent = phone.contentDocument.title, 1000)</script>"
    )
    dom = browse(f"file://{frame}", tmp_path, "--allow-file-access-from-files")
    measured = re.search(r"measured (\d+) (\d+) (\d+)", dom)
    assert measured, dom
    width, content, sticking_out = (int(number) for number in measured.groups())
    assert width <= PHONE
    assert (content, sticking_out) == (width, 0)


def test_it_loads_nothing_from_elsewhere(machine: Callable[[str], Path]) -> None:
    with exporting(machine("mi210")) as exporter:
        answer = exporter.get("/")
    assert "script" not in answer.text
    assert not re.search(r'(src|href)="?(https?:)?//', answer.text)
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
