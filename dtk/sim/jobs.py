"""Who works on a simulated machine: programs as data, jobs that come and go, and the processes they are.

A seat is a device: a whole card, or one partition of it. Everything is drawn from the seed and the job's number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor

from .machine import Card, Machine, Process, Use, User, draw
from .models import MIB
from .processes import ROOT_USER, USERS, container_id

Seat = tuple[str, int]  # bdf and partition


@dataclass(frozen=True)
class App:
    """A program that people run on cards."""

    command: tuple[str, ...]
    cgroup: str
    each: bool = False  # a process for each device, below a launcher; else one for all
    launcher: tuple[str, ...] = ()
    name: str = ""  # as its main thread names itself
    dip: float = 0.1  # how far its load falls below its level
    period: float = 30.0  # s; how often


APPS = (
    App(
        ("/usr/bin/python3", "-u", "train.py", "--config", "configs/llama-7b.yaml"),
        "slurm",
        each=True,
        launcher=("/usr/bin/python3", "/opt/venv/bin/torchrun", "--nproc-per-node=auto", "train.py"),
        name="pt_main_thread",
        dip=0.5,
        period=45.0,
    ),
    App(
        ("/usr/bin/python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "/data/模型/Qwen2.5-72B"),
        "container",
        name="VLLM::EngineCor",
        dip=0.7,
        period=12.0,
    ),
    App(
        ("ray::train_loop (rank 0)",),
        "pod",
        name="ray::train (r0)",
        dip=0.3,
        period=20.0,
    ),
    App(("/opt/lammps/bin/lmp", "-k", "on", "g", "1", "-sf", "kk", "-in", "in.reaxff"), "slurm", each=True),
    App(("gmx", "mdrun", "-deffnm", "md", "-nb", "gpu"), "session", dip=0.05),
    App(
        ("/home/chen/env/bin/python", "-m", "ipykernel_launcher", "-f", "/home/chen/.local/kernel-1.json"),
        "session",
        dip=0.9,
        period=25.0,
    ),
    App(("tritonserver", "--model-repository=/models", "--http-port=8000"), "pod", dip=0.8, period=8.0),
)
_RAMP = 12.0  # s from the start of a job until it holds its memory


@dataclass(frozen=True)
class Job:
    """A program on some devices for some time. Seconds after the boot; bytes."""

    number: int
    app: App
    user: User
    seats: tuple[Seat, ...]
    levels: tuple[float, ...]  # load, each device
    memory: tuple[int, ...]  # what its processes hold, each device
    extra: tuple[int, ...]  # what is held besides and no process shows
    start: float
    end: float
    pid: int
    container: str

    def load(self, place: int, now: float) -> float:
        """Of one of its devices, from 0 to 1: steady but for a dip in every period, and nothing while it starts."""
        age = now - self.start
        if age < _RAMP / 2:
            return 0.05
        phase = age / self.app.period + draw(self.number, "phase")
        shape = max(0.0, 1 - 4 * abs(phase % 1 - 0.5))  # up and down in the middle half of a period
        return self.levels[place] * (1 - self.app.dip * shape)

    def share(self, now: float) -> float:
        """How much of its memory it holds by now."""
        return min(1.0, (now - self.start + 1) / _RAMP)


def seats_of(machine: Machine) -> list[tuple[Card, int]]:
    """A machine's devices."""
    return [(card, part) for card in machine.cards for part in range(card.model.partitions)]


def first_jobs(machine: Machine) -> list[Job]:
    """The jobs that make the machine's cards do what their states say, under way for a while."""
    groups: list[list[tuple[Card, int]]] = []
    for card, part in seats_of(machine):
        if not card.state.utilization[part]:
            continue
        if groups and groups[-1][-1][0].model is card.model and draw(machine.seed, card.bdf, part, "join") < 0.45:
            groups[-1].append((card, part))
        else:
            groups.append([(card, part)])
    jobs = []
    for number, group in enumerate(groups):
        age = floor(20000 * draw(machine.seed, number, "age") ** 2) + 60
        memory = [card.state.memory_used[part] - _idle(card) for card, part in group]
        levels = [card.state.utilization[part] / 100 for card, part in group]
        end = machine.uptime + 15 + 200 * draw(machine.seed, number, "end")
        seats = [(card.bdf, part) for card, part in group]
        jobs.append(_job(machine.seed, number, seats, levels, memory, machine.uptime - age, end))
    return jobs


def new_job(seed: int, number: int, group: Sequence[tuple[Card, int]], now: float) -> Job:
    """Another job, which starts now."""
    level = 0.35 + 0.65 * draw(seed, number, "level")
    levels = [level - 0.05 * draw(seed, number, "level", n) for n in range(len(group))]
    room = 0.1 + 0.8 * draw(seed, number, "memory")
    memory = [pages(card.model.vram / card.model.partitions * room) for card, _ in group]
    seats = [(card.bdf, part) for card, part in group]
    end = now + 30 + 240 * draw(seed, number, "end")
    return _job(seed, number, seats, levels, memory, now, end)


def pages(size: float) -> int:
    """A size in whole pages."""
    return floor(size) & ~0xFFF


def _idle(card: Card) -> int:
    return card.model.idle_vram // card.model.partitions


def _job(
    seed: int,
    number: int,
    seats: Sequence[Seat],
    levels: Sequence[float],
    memory: Sequence[int],
    start: float,
    end: float,
) -> Job:
    app = APPS[floor(len(APPS) * draw(seed, number, "app"))]
    extra = [pages(held * 0.04) if draw(seed, number, "extra", n) < 0.3 else 0 for n, held in enumerate(memory)]
    return Job(
        number=number,
        app=app,
        user=USERS[floor(len(USERS) * draw(seed, number, "user"))],
        seats=tuple(seats),
        levels=tuple(levels),
        memory=tuple(held - more for held, more in zip(memory, extra, strict=True)),
        extra=tuple(extra),
        start=start,
        end=end,
        pid=20000 + 100 * number + floor(30 * draw(seed, number, "pid")),
        container=container_id(seed, number) if app.cgroup in ("container", "pod") else "",
    )


# ---- processes ----


def job_processes(job: Job, now: float, busy: Callable[[Seat], float]) -> list[Process]:
    """The processes of a job; `busy` tells the load of a device."""
    uses = []
    age = now - job.start
    for place, seat in enumerate(job.seats):
        sdma = floor(age * 20000 * job.levels[place])
        held, gtt = pages(job.memory[place] * job.share(now)), (16 + 8 * place) * MIB
        uses.append(Use(*seat, vram=held, gtt=gtt, busy=busy(seat), sdma=sdma))
    groups = [[use] for use in uses] if job.app.each else [uses]
    inside = bool(job.container)
    launcher = [_process(job, job.pid, 1, job.app.launcher, age * 0.01)] if job.app.launcher else []
    parent = job.pid if launcher else 1
    return launcher + [
        _process(job, job.pid + 1 + n, parent, job.app.command, age * 1.05, tuple(group), 1 + 6 * n if inside else None)
        for n, group in enumerate(groups)
    ]


def _process(
    job: Job,
    pid: int,
    parent: int,
    command: tuple[str, ...],
    cpu: float,
    uses: tuple[Use, ...] = (),
    inner_pid: int | None = None,
) -> Process:
    return Process(
        pid=pid,
        parent=parent,
        start=job.start,
        user=ROOT_USER if job.app.cgroup == "pod" else job.user,
        command=command,
        cgroup=job.app.cgroup,
        container=job.container,
        job=41000 + job.number,
        inner_pid=inner_pid,
        name=job.app.name if uses else "",
        kfd=bool(uses),
        uses=uses,
        cpu=cpu,
    )


def services(machine: Machine) -> list[Process]:
    """What runs on the machine anyway; most of it has nothing to do with cards."""
    always = machine.uptime * 0.001
    found = [
        Process(1, 0, 0.0, ROOT_USER, ("/usr/lib/systemd/systemd", "--system"), "system", cpu=always),
        Process(812, 1, 4.0, ROOT_USER, ("/usr/sbin/sshd", "-D"), "system"),
    ]
    if machine.platform.bmc:
        return [
            *found,
            Process(1203, 1, 5.5, ROOT_USER, ("/usr/sbin/slurmd", "-D", "-s"), "system", cpu=always),
            Process(1377, 1, 5.8, ROOT_USER, ("/usr/bin/containerd",), "system", cpu=always),
            # A monitor that keeps KFD open and uses no card.
            Process(1544, 1, 9.2, ROOT_USER, ("/usr/local/bin/card-exporter", "--listen=:9400"), "system", kfd=True),
        ]
    for pid, command, share in (
        (2210, ("/usr/bin/Xwayland", ":0", "-rootless"), 0.15),
        (2304, ("/usr/bin/gnome-shell",), 0.45),
        (3188, ("/usr/lib/firefox/firefox", "--new-window"), 0.25),
    ):
        uses = tuple(_graphics(machine, card, share) for card in machine.cards)
        found.append(Process(pid, 1, 31.0, USERS[0], command, "session", job=2, uses=uses, cpu=2 * always))
    return found


def _graphics(machine: Machine, card: Card, share: float) -> Use:
    return Use(
        card.bdf,
        0,
        vram=pages(card.model.idle_vram * share),
        gtt=pages(24 * MIB * share),
        graphics=floor(machine.uptime * 4e6 * share),
    )
