"""dtk-exporter for ten minutes on a living machine with random faults, one card hanging all the time.

It is scraped every half second. A scrape that fails or takes long is counted, and memory, threads and descriptors at
the end are compared with those after the first minute: a healthy exporter has lost nothing and not grown.

    python bench/soak.py [SECONDS]
"""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import psutil
from scrapes import COMMAND, Target, running

from dtk import sim
from dtk.sim.run import keep_alive

SCRAPE_EVERY = 0.5
LONG = 0.5  # seconds
LOOKS_EVERY = 60  # scrapes, within which the cards must have been looked at again
WARM = 60.0  # seconds after which it should not grow any more
SOME = 40  # scrapes, over which a size is taken
MORE_MEMORY = 5.0  # MB that it may have more at the end: what a day brings comes in the first minutes
HUNG = "hang=7"  # for the whole run
FAULTS = ("lost", "hang", "eio", "enodev", "garbage", "truncated", "denied", "throttle", "ecc", "suspended")


class Size(NamedTuple):
    """What may not grow."""

    memory: float
    threads: int
    descriptors: int

    def __str__(self) -> str:
        return f"{self.memory:.1f} MB, {self.threads} threads, {self.descriptors} descriptors"


def size(process: psutil.Process) -> Size:
    """Its size now."""
    return Size(process.memory_info().rss / 1e6, process.num_threads(), process.num_fds())


def smallest(sizes: list[Size]) -> Size:
    """Of some time: a reader that asks whether a card still hangs has descriptors for a moment."""
    return Size(*(min(column) for column in zip(*sizes, strict=True)))


def trouble(below: Path, exporter: psutil.Process, stop: threading.Event, done: dict[str, int]) -> None:
    """Faults that come and go at random, and readers that are killed."""
    chance = random.Random(1)
    while not stop.wait(chance.uniform(0.2, 3)):
        kinds = chance.sample(FAULTS, chance.randint(0, 3))
        sim.set_faults(below, [HUNG, *(f"{kind}={chance.randrange(7)}" for kind in kinds)])
        for kind in kinds:
            done[kind] = done.get(kind, 0) + 1
        if chance.random() < 0.1:
            for reader in exporter.children():
                os.kill(reader.pid, signal.SIGKILL)
            done["reader killed"] = done.get("reader killed", 0) + 1


def scrape(target: Target, seconds: float) -> tuple[list[float], int, list[Size]]:
    """Times of the scrapes, how many failed, and the size at each."""
    times: list[float] = []
    sizes: list[Size] = []
    failed, last = 0, b""
    begin = time.monotonic()
    while (elapsed := time.monotonic() - begin) < seconds:
        try:
            taken, page = target.scrape()
            times.append(taken)
            looks = re.search(rb"^dtk_exporter_snapshots_total (\S+)", page, re.M)
            if not looks or (len(times) % LOOKS_EVERY == 0 and looks[1] == last):
                print(f"after {elapsed:.0f} s: no look at the cards since {LOOKS_EVERY} scrapes")
                failed += 1
            if len(times) % LOOKS_EVERY == 0:
                last = looks[1] if looks else b""
        except Exception as error:  # noqa: BLE001 - whatever it is, the scrape is lost
            print(f"after {elapsed:.0f} s: {error!r}")
            failed += 1
        sizes.append(size(target.process))
        time.sleep(SCRAPE_EVERY)
    return times, failed, sizes


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 600.0
    with tempfile.TemporaryDirectory(prefix="dtk-soak-") as directory:
        below, mounted = Path(directory) / "below", Path(directory) / "mounted"
        simulator = sim.Simulator(below, sim.assemble(["mi210:8"], 1), 1.0, [HUNG])
        stop, done = threading.Event(), dict[str, int]()
        with sim.mount(below, mounted):
            options = ["--web.listen-address", "127.0.0.1:0", "--collect.processes"]
            with running(COMMAND, "--root", str(mounted), *options) as target:
                threads = [
                    threading.Thread(target=keep_alive, args=(simulator, 1.0, stop)),
                    threading.Thread(target=trouble, args=(below, target.process, stop, done)),
                ]
                for thread in threads:
                    thread.start()
                times, failed, sizes = scrape(target, seconds)
                stop.set()
                for thread in threads:
                    thread.join()
                began = time.monotonic()
                target.process.terminate()
                target.process.wait(5)
                ended = time.monotonic() - began
            sim.set_faults(below, [])
    print(
        f"{len(times)} scrapes in {seconds:.0f} s, {failed} lost, {sum(t > LONG for t in times)} longer than {LONG} s"
    )
    print(f"p50 {1e3 * sorted(times)[len(times) // 2]:.1f} ms, longest {1e3 * max(times):.0f} ms")
    warmed = int(len(sizes) * min(WARM / seconds, 1 / 3))
    warm, end = smallest(sizes[warmed : warmed + SOME]), smallest(sizes[-SOME:])
    print(f"after the warm-up: {warm}")
    print(f"at the end:        {end}")
    print(f"ended {ended:.2f} s after SIGTERM, a card hanging")
    print("faults:", ", ".join(f"{kind} {count}" for kind, count in sorted(done.items())))
    grown = end.memory > warm.memory + MORE_MEMORY or end.threads > warm.threads or end.descriptors > warm.descriptors
    if grown:
        print("it has grown")
    sys.exit(bool(failed) or grown)


if __name__ == "__main__":
    main()
