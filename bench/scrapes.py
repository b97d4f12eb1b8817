"""dtk-exporter beside node_exporter's drm and hwmon collectors, in one run on the same simulated machines.

Times are of whole scrapes over one connection that is kept open, gzip and all, as Prometheus makes them.
"""

from __future__ import annotations

import contextlib
import gzip
import http.client
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from dtk import sim

COMMAND = str(Path(sys.executable).with_name("dtk-exporter"))
PEER = shutil.which("prometheus-node-exporter")
SCRAPES = 400
FIRSTS = 30
COST_SECONDS = 60.0
SCRAPE_EVERY = 15.0
HEADERS = {
    "Accept": "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    "Accept-Encoding": "gzip",
}


class Target:
    """A process that is scraped."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = psutil.Process(process.pid)
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)

    def scrape(self) -> tuple[float, bytes]:
        """Seconds, and the page."""
        begin = time.perf_counter()
        self._connection.request("GET", "/metrics", headers=HEADERS)
        body = self._connection.getresponse().read()
        return time.perf_counter() - begin, gzip.decompress(body)

    def seconds(self) -> float:
        """Processor time of it and its children so far."""
        times = [process.cpu_times() for process in (self.process, *self.process.children())]
        return sum(time.user + time.system for time in times)


@contextlib.contextmanager
def running(*command: str) -> Iterator[Target]:
    """Start it on a free port, which it tells on stderr."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if found := re.search(r"[Ll]istening on.*:(\d+)$", line.rstrip()):
                    # Nobody reads its log any more, and it must not wait for that.
                    threading.Thread(target=process.stderr.read, daemon=True).start()
                    yield Target(process, int(found[1]))
                    break
        finally:
            process.kill()


def exporter(root: Path, interval: float) -> contextlib.AbstractContextManager[Target]:
    """dtk-exporter of a machine."""
    options = ["--web.listen-address", "127.0.0.1:0", "--collect.interval", str(interval)]
    return running(COMMAND, "--root", str(root), *options)


def node_exporter(root: Path) -> contextlib.AbstractContextManager[Target]:
    """The peer, with what it has of cards."""
    collectors = ["--collector.disable-defaults", "--collector.drm", "--collector.hwmon"]
    return running(str(PEER), "--web.listen-address=127.0.0.1:0", f"--path.sysfs={root / 'sys'}", *collectors)


def percentile(times: list[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * share))] * 1000


def samples(page: bytes) -> int:
    return sum(1 for line in page.splitlines() if line and not line.startswith(b"#"))


def against_the_peer(root: Path) -> None:
    """Scrapes in turns, so that a noisy moment costs both."""
    with exporter(root, 1) as ours, node_exporter(root) as theirs:
        mine, other = ours.scrape()[1], theirs.scrape()[1]
        pairs = [(ours.scrape()[0], theirs.scrape()[0]) for _ in range(SCRAPES)]
    p50 = [percentile([pair[side] for pair in pairs], 0.5) for side in (0, 1)]
    ratio = statistics.median(a / b for a, b in pairs)
    print(f"scrape p50: {p50[0]:.2f} ms, node_exporter {p50[1]:.2f} ms, ratio {ratio:.2f} (budget 1)")
    counts = samples(mine), samples(other)
    print(f"samples: {counts[0]}, node_exporter {counts[1]}, ratio {counts[0] / counts[1]:.1f} (at least 2)")


def bodies(root: Path, what: str, budget: float) -> None:
    """The first scrape of a snapshot, which makes the body, and the ones after it, which are given the same."""
    firsts, others = [], []
    with exporter(root, 0.5) as target:
        count = b""
        while len(firsts) < FIRSTS:
            seconds, page = target.scrape()
            now = re.search(rb"^dtk_exporter_snapshots_total (\S+)", page, re.M)
            if now and now[1] != count:
                firsts.append(seconds)
                count = now[1]
            else:
                others.append(seconds)
            time.sleep(0.01)
    print(
        f"{what}: first scrape of a snapshot {percentile(firsts, 0.5):.1f} ms (budget {budget:.0f}), "
        f"a rendered body p99 {percentile(others, 0.99):.1f} ms (budget 10)"
    )


def cost(root: Path) -> None:
    """What it takes of a processor when it looks once a second and is scraped every 15 s."""
    with exporter(root, 1) as target:
        target.scrape()
        time.sleep(2)
        begin, before = time.monotonic(), target.seconds()
        while time.monotonic() < begin + COST_SECONDS:
            time.sleep(SCRAPE_EVERY)
            target.scrape()
        share = (target.seconds() - before) / (time.monotonic() - begin)
        memory = target.process.memory_info().rss
    print(f"processor: {100 * share:.2f} % of a core, reader included (budget 0.5)")
    print(f"resident memory: {memory / 1e6:.1f} MB (budget 45)")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="dtk-bench-") as directory:
        eight, many = Path(directory) / "mi210", Path(directory) / "partitions"
        sim.write(eight, ["mi210:8"], seed=1)
        sim.write(many, ["mi300x-cpx:8"], seed=1)
        if PEER:
            against_the_peer(eight)
        else:
            print("prometheus-node-exporter is not installed: no peer")
        bodies(eight, "8 MI210", 10)
        bodies(many, "64 partitions", 60)
        cost(eight)


if __name__ == "__main__":
    main()
