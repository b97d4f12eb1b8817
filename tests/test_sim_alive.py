"""Simulated machines that live: what moves is plausible and the same each time, and the tree follows it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from machines import MACHINES, device_directory, hwmon_directory, put
from test_sim import NODES, cards, content, every_model

import dtk
from dtk import InvalidArgument, sim
from dtk.sim.faults import FAULTS, parse
from dtk.sim.run import keep_alive
from dtk.sim.tree import MARKER

KFD_PROC = "sys/class/kfd/kfd/proc"


def history(groups: list[str], ticks: int, seed: int = 1) -> Iterator[sim.Machine]:
    clock = sim.Clock(sim.assemble(groups, seed))
    for _ in range(ticks):
        clock.advance({})
        yield clock.machine


def find(machine: sim.Machine, bdf: str) -> sim.Card:
    return next(card for card in machine.cards if card.bdf == bdf)


def tree_content(root: Path) -> dict[str, bytes | str]:
    return {path: data for path, data in content(root).items() if path != FAULTS}


# ---- what moves ----


def test_seed_and_tick_are_a_machine(tmp_path: Path) -> None:
    simulator = sim.Simulator(tmp_path / "alive", sim.assemble(["mi210:2", "mi300x-cpx:1"], 7))
    for _ in range(90):
        simulator.advance()
    sim.write(tmp_path / "fresh", ["mi210:2", "mi300x-cpx:1"], 7, tick=90)
    assert tree_content(tmp_path / "alive") == tree_content(tmp_path / "fresh")
    sim.write(tmp_path / "later", ["mi210:2", "mi300x-cpx:1"], 7, tick=91)
    assert tree_content(tmp_path / "alive") != tree_content(tmp_path / "later")


@every_model
def test_every_moment_is_plausible(model: sim.Model) -> None:
    for machine in history([model.key], 200):
        (card,) = machine.cards
        state = card.state
        assert len(state.utilization) == model.partitions
        assert all(0 <= percent <= 100 for percent in (*state.utilization, state.memory_utilization))
        assert 0.8 * model.idle_watts <= state.power <= (state.power_cap or 1.1 * model.full_watts)
        for sensor in model.sensors:
            assert 20 < state.temperatures[sensor.label] < (sensor.critical or 100)
        for name, clock in model.clocks.items():
            assert (clock.deep_sleep or clock.levels[0]) <= state.clocks[name] <= clock.levels[-1]
        held = {(card.bdf, part): 0 for part in range(model.partitions)}
        for process in machine.processes:
            for use in process.uses:
                held[use.bdf, use.part] += use.vram
        for part, used in enumerate(state.memory_used):
            share = model.vram // model.partitions
            assert held[card.bdf, part] <= used <= share
            assert used - held[card.bdf, part] <= model.idle_vram // model.partitions + 0.04 * share
        assert 0 <= state.fan_share <= 1


def test_power_follows_load_at_once_and_heat_slowly() -> None:
    states = [find(machine, "0000:03:00.0").state for machine in history(["mi210:8"], 400)]
    assert {0} < {state.busy for state in states}
    for before, after in pairwise(states):
        assert abs(after.temperatures["junction"] - before.temperatures["junction"]) <= 8
        assert abs(after.temperatures["mem"] - before.temperatures["mem"]) <= 3
    for window in zip(*(states[n:] for n in range(5)), strict=False):
        loads = [state.busy for state in window]
        if max(loads) - min(loads) < 5:
            wanted = 40 + 250 * loads[-1] / 100
            assert window[-1].power == pytest.approx(wanted, rel=0.12)
    warmed = [state for n, state in enumerate(states) if n > 60 and min(s.busy for s in states[n - 60 : n]) > 60]
    cooled = [state for n, state in enumerate(states) if n > 60 and max(s.busy for s in states[n - 60 : n + 1]) == 0]
    assert all(state.temperatures["junction"] > 60 for state in warmed)
    assert all(state.temperatures["junction"] < 45 for state in cooled)


def test_counters_only_grow() -> None:
    before = None
    for machine in history(["mi300x-cpx:1"], 150):
        state = machine.cards[0].state
        now = [state.energy, *state.activity, state.memory_activity, *state.residencies.values(), state.replays]
        assert before is None or all(old <= new for old, new in zip(before, now, strict=True))
        before = now
    assert state.residencies["accumulation_counter"] > 150000


def test_processes_come_and_go() -> None:
    seen: dict[int, tuple[str, ...]] = {}
    generations = []
    for machine in history(["mi210:4", "k100_ai:2"], 400):
        pids = [process.pid for process in machine.processes]
        assert len(set(pids)) == len(pids)
        for process in machine.processes:
            assert seen.setdefault(process.pid, process.command) == process.command
            assert process.start <= machine.uptime
        generations.append({process.pid for process in machine.processes if process.uses})
    assert generations[0] - generations[-1]
    assert generations[-1] - generations[0]
    assert set.union(*generations) > generations[0] | generations[-1]


def test_a_cap_holds_power_and_clock_down() -> None:
    clock = sim.Clock(sim.assemble(["k100_ai:8"], 1))
    card = max(clock.machine.cards, key=lambda card: card.state.busy)
    free = card.state
    clock.set_power_cap(card.bdf, 200)
    for _ in range(5):
        clock.advance({})
    held = find(clock.machine, card.bdf).state
    assert free.power > 200 >= held.power
    assert held.power_cap == 200
    assert held.clocks["sclk"] < free.clocks["sclk"]
    assert held.throttle & 1
    clock.set_power_cap(card.bdf, 100000)
    clock.advance({})
    assert find(clock.machine, card.bdf).state.power_cap == 200


# ---- the tree follows ----


@pytest.fixture
def alive(tmp_path: Path) -> Callable[..., sim.Simulator]:
    def make(*groups: str, faults: tuple[str, ...] = ()) -> sim.Simulator:
        return sim.Simulator(tmp_path / "node", sim.assemble(groups or ["mi210:8"], 1), faults=faults)

    return make


def advance(simulator: sim.Simulator, ticks: int = 1) -> None:
    for _ in range(ticks):
        simulator.advance()


def test_files_are_replaced_and_only_when_they_change(alive: Callable[..., sim.Simulator], tmp_path: Path) -> None:
    simulator = alive()
    root = tmp_path / "node"
    busy = max(simulator.clock.machine.cards, key=lambda card: card.state.busy)
    table = device_directory(root, busy.bdf) / "gpu_metrics"
    still = [device_directory(root, busy.bdf) / name for name in ("vendor", "mem_info_vram_total", "unique_id")]
    inodes = [path.stat().st_ino for path in still]
    with table.open("rb") as reader:
        old = table.read_bytes()
        advance(simulator, 3)
        assert reader.read() == old != table.read_bytes()
    assert [path.stat().st_ino for path in still] == inodes


def test_readers_never_see_half_a_machine(alive: Callable[..., sim.Simulator], tmp_path: Path) -> None:
    simulator = alive("mi300x-cpx:1")
    stop = threading.Event()
    thread = threading.Thread(target=keep_alive, args=(simulator, 0.01, stop))
    thread.start()
    try:
        with dtk.System(tmp_path / "node") as system:
            for _ in range(100):
                sample = system.cards()[0].sample()
                assert (sample.state, sample.warnings) == ("ok", [])
                assert all(sample.reason(name) in (None, "unsupported") for name in sample)
    finally:
        stop.set()
        thread.join()


def test_kfd_and_proc_hold_the_same_processes(alive: Callable[..., sim.Simulator], tmp_path: Path) -> None:
    simulator, root = alive("mi210:4"), tmp_path / "node"
    for _ in range(6):
        advance(simulator, 15)
        processes = simulator.clock.machine.processes
        kfd = {int(path.name): path for path in (root / KFD_PROC).iterdir()}
        assert kfd.keys() == {process.pid for process in processes if process.kfd}
        assert {int(path.name) for path in (root / "proc").glob("[0-9]*")} == {process.pid for process in processes}
        for process in processes:
            directory = root / "proc" / str(process.pid)
            targets = {os.readlink(path) for path in (directory / "fd").iterdir()}
            assert ("/dev/kfd" in targets) == process.kfd
            assert len(list((directory / "fdinfo").iterdir())) == len(list((directory / "fd").iterdir()))
            if process.kfd:
                held = sum(int(path.read_text()) for path in kfd[process.pid].glob("vram_*"))
                assert held == sum(use.vram for use in process.uses)


def test_a_lost_card_goes_whole_and_comes_back_as_the_last(alive: Callable[..., sim.Simulator], tmp_path: Path) -> None:
    simulator = alive("mi210:4", faults=("lost@2-5=1",))
    root = tmp_path / "node"
    bdfs = sorted(card.bdf for card in simulator.clock.machine.cards)
    before = {path.name for path in (root / NODES).iterdir()}
    lost = device_directory(root, bdfs[1])
    with dtk.System(root) as system:
        devices = system.devices()
        advance(simulator, 2)
        assert not lost.exists()
        assert [path.name for path in cards(root)] == [bdfs[0], *bdfs[2:]]
        assert {path.name for path in (root / NODES).iterdir()} == before - {"5"}
        assert len(list((root / "sys/class/hwmon").iterdir())) == 3 + 3
        assert [device.sample().state for device in devices] == ["ok", "gone", "ok", "ok"]
        assert not any(use.bdf == bdfs[1] for process in simulator.clock.machine.processes for use in process.uses)
        system.rescan()
        assert [device.bdf for device in system.devices()] == [bdfs[0], *bdfs[2:]]
        advance(simulator, 3)
        system.rescan()
        back = system.device(bdfs[1])
        assert back.sample().state == "ok"
        assert (back.kfd_node, back.hip_index) == (5, 3)


@pytest.mark.parametrize("groups", [["mi300x-cpx:2"], MACHINES["mixed"]], ids=["partitions", "mixed"])
def test_whatever_came_or_went_the_tree_is_what_a_new_one_would_be(
    alive: Callable[..., sim.Simulator], tmp_path: Path, groups: list[str]
) -> None:
    simulator, root = alive(*groups), tmp_path / "node"
    every = [f"lost={number}" for number in range(len(simulator.clock.machine.cards))]
    for faults in (["lost=1"], ["lost=0"], every, [], ["lost=0"]):
        sim.set_faults(root, faults)
        advance(simulator, 4)
        with dtk.System(root) as system:
            assert len(system.cards()) == len(every) - len(faults)
        sim.create(tmp_path / "fresh", simulator.clock.machine)
        assert tree_content(root) == tree_content(tmp_path / "fresh")


def test_settings_are_obeyed(alive: Callable[..., sim.Simulator], tmp_path: Path) -> None:
    simulator, root = alive("k100_ai:4"), tmp_path / "node"
    card = max(simulator.clock.machine.cards, key=lambda card: card.state.busy)
    cap = hwmon_directory(root, card.bdf) / "power1_cap"
    level = device_directory(root, card.bdf) / "power_dpm_force_performance_level"
    cap.write_text("150000000")
    level.write_text("low")
    advance(simulator, 3)
    assert (cap.read_text(), level.read_text()) == ("150000000\n", "low\n")
    with dtk.System(root) as system:
        sample = system.device(card.bdf).sample()
    assert sample.power_draw is not None
    assert sample.power_draw <= 150
    assert sample.clock_gfx == 300
    for path, nonsense in ((cap, "999000000"), (cap, "much"), (level, "warp"), (cap, "")):
        before = path.read_text()
        path.write_text(nonsense)
        advance(simulator)
        assert path.read_text() == before


# ---- faults in the tree ----


def sample_of(root: Path, index: int, slow: bool = False) -> dtk.Sample:
    with dtk.System(root) as system:
        return system.devices()[index].sample(slow=slow)


def test_spoilt_files(alive: Callable[..., sim.Simulator], tmp_path: Path) -> None:
    faults = ("garbage=0", "truncated=1", "denied=2/hwmon/temp1_input", "garbage=3/gpu_busy_percent")
    simulator, root = alive(faults=faults), tmp_path / "node"
    advance(simulator)
    garbage, truncated = sample_of(root, 0), sample_of(root, 1)
    assert garbage.power_draw is None
    assert garbage.reason("power_draw") == "failed"
    assert garbage.memory_total is not None
    assert truncated.reason("temperature_hbm0") == "failed"
    assert truncated.utilization_gpu is not None
    bdfs = sorted(card.bdf for card in simulator.clock.machine.cards)
    assert (hwmon_directory(root, bdfs[2]) / "temp1_input").stat().st_mode & 0o777 == 0
    assert sample_of(root, 4).state == "ok"
    sim.set_faults(root, [])
    advance(simulator)
    assert sample_of(root, 0).power_draw is not None
    assert (hwmon_directory(root, bdfs[2]) / "temp1_input").stat().st_mode & 0o777 == 0o444


def test_a_card_without_cooling_holds_itself_back(alive: Callable[..., sim.Simulator], tmp_path: Path) -> None:
    simulator, root = alive("mi210:8"), tmp_path / "node"
    bdfs = sorted(card.bdf for card in simulator.clock.machine.cards)
    index = max(range(8), key=lambda n: find(simulator.clock.machine, bdfs[n]).state.busy)
    before = sample_of(root, index)
    sim.set_faults(root, [f"throttle={index}"])
    advance(simulator)
    assert sample_of(root, index).throttle_status == ("ppt0",)
    advance(simulator, 40)
    after = sample_of(root, index)
    assert {"ppt0", "temp_edge", "temp_hotspot"} <= set(after.throttle_status or ())
    assert after.temperature_junction is not None
    assert after.temperature_junction >= 105
    assert after.clock_gfx is not None
    assert before.clock_gfx is not None
    assert after.clock_gfx < 0.8 * before.clock_gfx
    sim.set_faults(root, [])
    advance(simulator, 60)
    assert sample_of(root, index).throttle_status == ()


def test_memory_errors(alive: Callable[..., sim.Simulator], tmp_path: Path) -> None:
    faults = ("ecc=0", "ecc:uncorrectable@1-4=1", "ecc:deferred=2")
    simulator, root = alive(faults=faults), tmp_path / "node"
    advance(simulator, 5)
    counts = [sample_of(root, n, slow=True) for n in range(4)]
    assert [sample.ecc_correctable for sample in counts] == [5, 0, 0, 0]
    assert [sample.ecc_uncorrectable for sample in counts] == [0, 3, 0, 0]
    assert [sample.ecc_deferred for sample in counts] == [0, 0, 5, 0]
    assert [(sample.retired_pages, sample.pending_pages) for sample in counts] == [(0, 0), (2, 1), (0, 0), (0, 0)]


def test_a_suspended_card(alive: Callable[..., sim.Simulator], tmp_path: Path) -> None:
    simulator, root = alive("radeon:2", faults=("suspended=0",)), tmp_path / "node"
    advance(simulator)
    assert [sample_of(root, n).state for n in range(2)] == ["asleep", "ok"]
    advance(simulator, 100)
    assert not [
        use
        for process in simulator.clock.machine.processes
        if process.kfd
        for use in process.uses
        if use.bdf == min(card.bdf for card in simulator.clock.machine.cards)
    ]


def test_faults_are_a_file(
    alive: Callable[..., sim.Simulator], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    simulator, root = alive("mi210:2"), tmp_path / "node"
    put(root, FAULTS, "# the second card is gone\n\nlost=1\n")
    advance(simulator)
    assert len(cards(root)) == 1
    for nonsense in ("lost=7\n", "explodes=0\n", "\xff"):
        put(root, FAULTS, nonsense)
        advance(simulator, 2)
        error = capfd.readouterr().err
        assert FAULTS in error
        assert len(error.splitlines()) == 1
        assert len(cards(root)) == 1
    put(root, FAULTS, "")
    advance(simulator)
    assert len(cards(root)) == 2


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("", "is no fault"),
        ("lost", "is no fault"),
        ("lost=", "is no fault"),
        ("lost@x=0", "is no fault"),
        ("lost=0 ", "is no fault"),
        ("gone=0", "no fault 'gone'.*lost"),
        ("lost=first", "an index or an address"),
        ("lost=0/gpu_metrics", "not of a file"),
        ("lost=sys/class/drm/card1", "an index or an address"),
        ("eio=etc/passwd", "begins with sys/"),
        ("clamp=0/hwmon/power1_cap", "clamp:250000000"),
        ("eio:5=0", "takes no argument"),
        ("ecc:many=0", "correctable"),
        ("throttle:hot=0", "decimal"),
    ],
)
def test_refuses_what_is_no_fault(spec: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=message):
        sim.set_faults(tmp_path, ["lost=0", spec])
    assert not list(tmp_path.iterdir())


def test_faults_have_their_time() -> None:
    fault = parse("lost@2.5-4=0000:43:00.0")
    assert (fault.kind, fault.card, fault.file) == ("lost", "0000:43:00.0", None)
    assert [fault.active(now) for now in (0, 2.5, 3.9, 4)] == [False, True, True, False]
    assert replace(parse("eio=3/hwmon/temp*"), start=0).active(1e9)


# ---- the commands ----


@contextmanager
def running(*arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "dtk.sim", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/") as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(condition: Callable[[], object], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run_ends_quietly_and_leaves_the_machine(number: signal.Signals, tmp_path: Path) -> None:
    root = tmp_path / "node"
    with running(root, "--cards", "mi210:2", "--run", "--interval", "0.02", "--fault", "lost@0.1=0") as process:
        assert process.stdout
        assert process.stdout.readline() == f"SIMULATED machine sim-mi210 with 2 cards is alive in {root}\n"
        uptime = root / "proc/uptime"
        before = uptime.read_text()
        wait_for(lambda: uptime.read_text() != before and len(cards(root)) == 1)
        boot = float(next(row.split()[1] for row in (root / "proc/stat").read_text().splitlines() if "btime" in row))
        assert abs(boot + float(uptime.read_text().split()[0]) - time.time()) < 60
        process.send_signal(number)
        assert process.wait(10) == 0
        assert (process.stdout.read(), process.stderr and process.stderr.read()) == ("", "")
    assert sample_of(root, 0).state == "ok"
    assert (root / MARKER).exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fault", "lost=0"], "--run"),
        (["--mount", "/tmp/x"], "--run"),
        (["--run", "--fault", "lost=8"], "card 8"),
        (["--run", "--fault", "hang=0"], "--mount"),
        (["--run", "--fault", "melts=0"], "no fault 'melts'"),
        (["--run", "--interval", "0"], "--interval"),
        (["--run", "--interval", "nan"], "--interval"),
        (["--tick", "-1"], "--tick"),
    ],
)
def test_run_refuses_bad_usage(arguments: list[str], message: str, tmp_path: Path) -> None:
    with running(tmp_path / "node", "--cards", "mi210:8", *arguments) as process:
        output, error = process.communicate(timeout=20)
    assert (process.returncode, output) == (2, "")
    assert message in error
    assert "Traceback" not in error


def test_demo_lives_and_cleans_up() -> None:
    with sim.demo(["mi210:2"], interval=0.05) as root:
        with dtk.System(root) as system:
            assert system.info.simulated
            assert len(system.devices()) == 2
        before = (root / "proc/uptime").read_text()
        wait_for(lambda: (root / "proc/uptime").read_text() != before)
    assert not root.exists()


def test_demo_refuses_what_cannot_be() -> None:
    with pytest.raises(InvalidArgument, match="no card model"), sim.demo(["h100:8"]):
        pass
    with pytest.raises(InvalidArgument, match="no fault"), sim.demo(faults=["melts=0"]):
        pass


def test_demo_ends_with_a_killed_parent() -> None:
    program = "from dtk import sim\nwith sim.demo(['radeon']) as root: print(root, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/"
    ) as parent:
        assert parent.stdout
        root = Path(parent.stdout.readline().strip())
        assert (root / MARKER).exists()
        parent.kill()
        parent.wait()
        wait_for(lambda: not root.exists())
