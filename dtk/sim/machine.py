"""A simulated machine: which cards sit where, what they are called, and what they are doing.

`assemble` makes one from groups such as "mi210:8" and a seed; `clock.build` adds its processes. Everything invented
(serials, unique ids, loads) is a pure function of the seed and the place, so the same machine comes out every time and
a further card changes no other.
A `State` is all of a card that moves; the rest of a `Machine` stands still. To move one, make new states and call
`Machine.with_states`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..errors import InvalidArgument
from .models import GIB, MIB, MODELS, Clock, Model


@dataclass(frozen=True)
class Slot:
    """A place for a card: the PCI root, the port on it and the bus behind the port."""

    domain: int
    root: int
    port: str
    bus: int
    socket: int


@dataclass(frozen=True)
class Platform:
    """What surrounds the cards. `probe` is the order in which the driver meets each four neighbouring slots."""

    cpu_vendor: int
    sockets: int
    threads: int  # logical CPUs of a socket
    memory: int  # bytes of a socket
    cpu_mhz: int
    slots: tuple[Slot, ...]
    probe: tuple[int, int, int, int] = (0, 1, 2, 3)
    bmc: bool = True
    bmc_display: bool = True  # AMD's library, asked for all cards, takes a connector for one more and aborts
    dkms: str | None = None  # version of an amdgpu built apart from the kernel
    kernel: str = "5.15.0-113-generic"


def _server(*places: tuple[int, int, int]) -> tuple[Slot, ...]:
    """Two cards on each root; the first half of the roots belongs to socket 0."""
    return tuple(
        Slot(domain, root, port, bus + further, index * 2 // len(places))
        for port, further in (("01.1", 0), ("03.1", 6))
        for index, (domain, root, bus) in enumerate(places)
    )


_INSTINCT_ROOTS = ((0, 0x00), (0, 0x20), (0, 0x40), (0, 0x60), (0, 0x80), (0, 0xA0), (0, 0xC0), (0, 0xE0))
_OAM_PLACES = ((0, 0x00, 0x0A), (0, 0x75, 0x80), (0, 0x99, 0xA4), (0, 0xBD, 0xC8))

PLATFORMS: Mapping[str, Platform] = {
    "hygon": Platform(
        cpu_vendor=0x1D94,
        sockets=2,
        threads=64,
        memory=256 * GIB,
        cpu_mhz=3200,
        slots=_server(*((domain, root, root + 5) for domain, root in _INSTINCT_ROOTS)),
        bmc_display=False,
        kernel="4.19.90-2211.5.0.0178.22.oe1.x86_64",
    ),
    # As on real hosts the driver does not meet the cards in the order of their addresses.
    "instinct": Platform(
        cpu_vendor=0x1022,
        sockets=2,
        threads=64,
        memory=512 * GIB,
        cpu_mhz=2450,
        slots=_server(*((domain, root, root + 3) for domain, root in _INSTINCT_ROOTS)),
        probe=(3, 2, 0, 1),
        dkms="6.10.5",
    ),
    # The second socket's roots are a PCI domain of their own.
    "oam": Platform(
        cpu_vendor=0x1022,
        sockets=2,
        threads=192,
        memory=1024 * GIB,
        cpu_mhz=3700,
        slots=_server(*_OAM_PLACES, *((1, root, bus + 1) for _, root, bus in _OAM_PLACES)),
        dkms="6.12.12",
    ),
    "desktop": Platform(
        cpu_vendor=0x1022,
        sockets=1,
        threads=16,
        memory=64 * GIB,
        cpu_mhz=4700,
        slots=tuple(Slot(0, 0x00, f"01.{n}", 4 * n - 1, 0) for n in range(1, 5)),
        bmc=False,
        kernel="6.8.0-45-generic",
    ),
}
_APU_SLOT = Slot(0, 0x00, "08.1", 0x64, 0)


@dataclass(frozen=True)
class State:
    """All of a card that moves. Bytes, W, °C, MHz, mV, J."""

    utilization: tuple[int, ...]  # percent, of each partition
    memory_utilization: int
    memory_used: tuple[int, ...]  # of each partition
    gtt_used: int
    power: float
    power_cap: int | None
    temperatures: Mapping[str, float]  # by the model's sensor labels
    clocks: Mapping[str, int]  # by the model's clock names
    voltage: int | None
    fan_share: float  # of full drive
    energy: float
    link: tuple[str, int]
    activity: tuple[float, ...]  # of each partition, percent summed over the firmware's ticks of 1 ms
    memory_activity: float
    throttle: int = 0  # ASIC-independent bits
    residencies: Mapping[str, int] = field(default_factory=dict)  # by the fields of gpu_metrics
    errors: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)  # block: uncorrected, corrected, deferred
    bad_pages: tuple[tuple[int, str], ...] = ()  # page frame and R, P or F
    replays: int = 0
    performance_level: str = "auto"
    runtime_status: str = "active"

    @property
    def busy(self) -> int:
        """Percent, of the whole card."""
        return round(sum(self.utilization) / len(self.utilization))


@dataclass(frozen=True)
class Card:
    """A card in its place. Tuples have an entry for each partition."""

    model: Model
    slot: Slot
    hwmon: int
    drm_card: tuple[int, ...]
    drm_render: tuple[int, ...]
    xcp: tuple[int, ...]  # numbers of the platform devices of the partitions after the first
    kfd_node: tuple[int, ...]
    gpu_id: tuple[int, ...]
    unique_id: int | None
    serial: str
    hive_id: int
    hive_position: int
    state: State

    @property
    def bdf(self) -> str:
        """PCI address."""
        return f"{self.slot.domain:04x}:{self.slot.bus:02x}:00.0"

    @property
    def banks(self) -> tuple[int, ...]:
        """KFD's device memory of each partition; the driver's reserve comes off the last."""
        if self.model.partitions == 1:
            return (self.model.bank or self.model.vram,)
        share = (self.model.vram + 16 * MIB) // self.model.partitions
        return (share,) * (self.model.partitions - 1) + (share - 16 * MIB,)


@dataclass(frozen=True)
class User:
    """Somebody who has processes."""

    name: str
    uid: int


@dataclass(frozen=True)
class Use:
    """What a process does on a device, a whole card (part 0) or a partition."""

    bdf: str
    part: int
    vram: int  # bytes
    gtt: int
    busy: float = 0.0  # share of the compute units
    sdma: int = 0  # µs
    graphics: int = 0  # ns of the graphics engine, asked for through DRM


@dataclass(frozen=True)
class Process:
    """A process. One that has KFD open need not use a device."""

    pid: int
    parent: int
    start: float  # seconds after the boot
    user: User
    command: tuple[str, ...]
    cgroup: str  # one of those of processes.CGROUPS
    container: str = ""  # id
    job: int = 0  # Slurm's number
    inner_pid: int | None = None  # in a PID namespace of its own
    name: str = ""  # as a thread names itself; else the command's
    kfd: bool = False
    uses: tuple[Use, ...] = ()
    cpu: float = 0.0  # seconds


@dataclass(frozen=True)
class Machine:
    """A machine; cards in the order in which the drivers met them, which is KFD's."""

    platform: Platform
    seed: int
    hostname: str
    uptime: float  # seconds
    cards: tuple[Card, ...]
    drivers: tuple[str, ...]  # of the cards; they stay when a card goes
    processes: tuple[Process, ...] = ()
    boot: int = 1767225600  # when it started; the same for every machine unless it is alive
    changes: int = 0  # of KFD's topology since the boot
    virtual: int = 0  # virtual devices of each Hygon card

    def numa_node(self, card: Card) -> int:
        """A card's node; -1 where there is but one."""
        return card.slot.socket if self.platform.sockets > 1 else -1

    def with_states(self, states: Sequence[State], uptime: float) -> Machine:
        """The machine at another moment; `states` in the order of `cards`."""
        cards = tuple(replace(card, state=state) for card, state in zip(self.cards, states, strict=True))
        return replace(self, cards=cards, uptime=uptime)


def draw(*what: object) -> float:
    """A number from 0 up to 1 that depends on its arguments alone, on every Python."""
    digest = hashlib.sha256(repr(what).encode()).digest()
    return int.from_bytes(digest[:6], "big") / (1 << 48)


def invent(bits: int, *what: object) -> int:
    """A whole number above 0 of at most `bits` bits; as `draw`."""
    digest = hashlib.sha256(repr(what).encode()).digest()
    return int.from_bytes(digest, "big") % (1 << bits) or 1


def settle(model: Model, loads: Sequence[float], uptime: float, *noise: object) -> State:
    """The state a card comes to when its partitions do `loads` (0 to 1) for long; `noise` seeds small differences."""
    load = sum(loads) / len(loads)
    span = model.full_watts - model.idle_watts
    power = (model.idle_watts + span * load) * (0.98 + 0.04 * draw(*noise, "power"))
    power = round(power / model.power_step) * model.power_step
    warmth = (power - model.idle_watts) / span
    utilization = tuple(round(100 * load) for load in loads)
    memory_utilization = round(60 * load * (0.5 + 0.5 * draw(*noise, "umc")))
    return State(
        utilization=utilization,
        memory_utilization=memory_utilization,
        memory_used=tuple(_memory_used(model, load, *noise, n) for n, load in enumerate(loads)),
        gtt_used=(24 + round(200 * load)) * MIB,
        power=power,
        power_cap=model.cap and model.cap[1],
        temperatures={
            sensor.label: sensor.idle + round((sensor.full - sensor.idle) * warmth + 3 * draw(*noise, sensor.label))
            for sensor in model.sensors
        },
        clocks={name: _running(clock, name, load, *noise) for name, clock in model.clocks.items()},
        voltage=model.voltage and round(model.voltage[0] + (model.voltage[1] - model.voltage[0]) * load),
        fan_share=model.fan.idle_share + (model.fan.full_share - model.fan.idle_share) * load if model.fan else 0.0,
        energy=uptime * (0.8 * model.idle_watts + 0.2 * power),
        link=model.link,
        activity=tuple(uptime * 1000 * percent for percent in utilization),
        memory_activity=uptime * 1000 * memory_utilization,
        residencies=_residencies(load, uptime),
        errors=dict.fromkeys(model.ras, (0, 0, 0)),
    )


def _memory_used(model: Model, load: float, *noise: object) -> int:
    used = model.idle_vram // model.partitions
    if load > 0:
        used += round(model.vram * 0.9 * draw(*noise, "memory") / model.partitions)
    return used & ~0xFFF


def _running(clock: Clock, name: str, load: float, *noise: object) -> int:
    """MHz of a clock under load; the video engines stay idle."""
    if load == 0 or name in ("vclk", "dclk"):
        return clock.levels[0] if clock.deep_sleep is None else clock.deep_sleep
    top = clock.levels[-1]
    return round(top * (0.97 - 0.1 * load * draw(*noise, name))) if clock.ranged else top


def _residencies(load: float, uptime: float) -> Mapping[str, int]:
    """The firmware's ticks, one a millisecond, and those spent at the power limit."""
    ticks = int(uptime * 1000) % (1 << 32)
    return {"accumulation_counter": ticks, "ppt_residency_acc": ticks // 50 if load > 0.9 else 0}


def parse_cards(groups: Sequence[str]) -> list[Model]:
    """The models of groups such as "mi210:8", one entry a card. Raises InvalidArgument with what is wrong."""
    models: list[Model] = []
    for group in groups:
        key, colon, count = group.partition(":")
        if key not in MODELS:
            raise InvalidArgument(f"no card model {key!r}; there are {', '.join(MODELS)}")
        if colon and not (count.isascii() and count.isdigit() and int(count) > 0):
            raise InvalidArgument(f"{group!r}: after the colon stands how many, such as {key}:8")
        models += [MODELS[key]] * (int(count) if colon else 1)
    if not models:
        raise InvalidArgument("a machine needs at least one card, such as mi210:8")
    return models


def assemble(groups: Sequence[str], seed: int = 0) -> Machine:
    """The machine of some groups of cards, in the order of its slots, without processes.

    Raises InvalidArgument with what does not fit.
    """
    models = parse_cards(groups)
    kind = next((model.platform for model in models if model.platform != "desktop"), "desktop")
    platform = PLATFORMS[kind]
    placed = _place(models, kind)
    uptime = 86400.0 + int(500000 * draw(seed, "uptime"))
    cards: list[Card] = []
    taken: set[int] = set()
    hwmon = 2 + platform.sockets  # after the NVMe drive, the processors and one that is gone again
    minor = 0
    node = platform.sockets
    xcp = 0
    for model, slot in placed:
        where = (seed, slot.domain, slot.bus)
        hive_id, hive_position = _hive(model, slot, placed, seed)
        # Card 0 is the BMC, or on a desktop the boot framebuffer that handed over.
        parts = range(model.partitions)
        card = Card(
            model=model,
            slot=slot,
            hwmon=hwmon,
            drm_card=tuple(1 + minor + n for n in parts),
            drm_render=tuple(128 + minor + n for n in parts),
            xcp=tuple(xcp + n for n in range(model.partitions - 1)),
            kfd_node=tuple(node + n for n in parts),
            gpu_id=tuple(_gpu_id(taken, *where, n) for n in parts),
            unique_id=invent(64, *where, "unique") if model.has_unique_id else None,
            serial=model.serial + "".join(str(invent(32, *where, n) % 10) for n in range(model.serial_digits)),
            hive_id=hive_id,
            hive_position=hive_position,
            state=settle(model, [_load(*where, n) for n in parts], uptime, *where),
        )
        cards.append(card)
        hwmon += 1
        minor += model.xcp_devices
        node += model.partitions
        xcp += model.xcp_devices - 1
    drivers = tuple(sorted({model.driver for model in models}))
    return Machine(platform, seed, f"sim-{models[0].key.replace('_', '-')}", uptime, tuple(cards), drivers)


def _place(models: Sequence[Model], kind: str) -> list[tuple[Model, Slot]]:
    """Each card's slot, in the order in which the drivers meet them."""
    platform = PLATFORMS[kind]
    apus = [model for model in models if model.apu]
    others = [model for model in models if not model.apu]
    if apus and kind != "desktop":
        raise InvalidArgument(
            f"{apus[0].key} is part of a desktop's processor; it goes with radeon, not with server cards"
        )
    if len(apus) > 1:
        raise InvalidArgument(f"a machine has one {apus[0].key}")
    if len(others) > len(platform.slots):
        raise InvalidArgument(f"{len(others)} cards do not fit: this kind of machine has {len(platform.slots)} slots")
    order = sorted(range(len(others)), key=lambda n: (n // 4, platform.probe.index(n % 4)))
    return [(others[n], platform.slots[n]) for n in order] + [(apu, _APU_SLOT) for apu in apus]


def _hive(model: Model, slot: Slot, placed: Sequence[tuple[Model, Slot]], seed: int) -> tuple[int, int]:
    """Hive id and place in the hive: neighbours of one model, counted from the first slot; 0 for a card alone."""
    peers = sorted((s.domain, s.bus) for m, s in placed if m == model)
    place = peers.index((slot.domain, slot.bus))
    if not model.hive:
        return 0, 0
    hive = place // model.hive
    size = len(peers[hive * model.hive : (hive + 1) * model.hive])
    return (invent(64, seed, model.key, "hive", hive) if size > 1 or model.partitions > 1 else 0), place % model.hive


def _gpu_id(taken: set[int], *where: object) -> int:
    """Sixteen bits, as KFD's hash; two of a machine never share one."""
    gpu_id = invent(16, *where, "gpu_id")
    while gpu_id in taken:
        gpu_id = gpu_id % 0xFFFF + 1
    taken.add(gpu_id)
    return gpu_id


def _load(*where: object) -> float:
    """Four cards in ten idle, the others somewhere between a third and all."""
    chance = draw(*where, "load")
    return 0.0 if chance < 0.4 else round(0.3 + 0.7 * (chance - 0.4) / 0.6, 2)
