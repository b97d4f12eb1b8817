"""A simulated machine through time: load, power, heat, clocks and memory move together, a tick at a time.

What a tick brings depends on the machine, the tick's number and what was done to the machine (faults, settings), and on
nothing else: the same seed and tick are the same machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor

from .jobs import Seat, first_jobs, job_processes, new_job, pages, services
from .machine import Card, Machine, Process, State, assemble, draw, settle
from .models import Clock as Domain

# By a card's address: the kinds of its faults, each with its argument.
Effects = Mapping[str, Mapping[str, str | None]]

_INERTIA = {"junction": 6.0, "core": 8.0, "edge": 16.0, "mem": 20.0}  # s; the others as a voltage regulator
_REGULATOR = 12.0
_PPT0 = 1 << 0
_HOT_BIT = {"edge": 1 << 35, "junction": 1 << 36, "mem": 1 << 34, "core": 1 << 33, "soc": 1 << 37}
_SIZES = (1, 1, 2, 4)  # devices of a job
_PATIENCE = 20.0  # s that a job waits for as many devices as it wants
_MARGIN = 5.0  # °C below its limit where a card begins to hold itself back


def build(groups: Sequence[str], seed: int = 0, tick: int = 0) -> Machine:
    """The machine of some groups of cards at a moment. Raises InvalidArgument with what does not fit."""
    clock = Clock(assemble(groups, seed))
    for _ in range(tick):
        clock.advance({})
    return clock.machine


@dataclass
class _Moving:
    """What a card carries from tick to tick, not rounded."""

    load: list[float]
    power: float
    temperatures: dict[str, float]
    fan_share: float
    energy: float
    activity: list[float]
    memory_activity: float
    residencies: dict[str, int]
    errors: dict[str, tuple[int, int, int]]
    power_cap: int | None
    bad_pages: tuple[tuple[int, str], ...] = ()
    performance_level: str = "auto"
    restraint: float = 1.0  # how much of its work the card allows itself
    replays: int = 0

    @classmethod
    def of(cls, state: State) -> _Moving:
        return cls(
            load=[percent / 100 for percent in state.utilization],
            power=state.power,
            temperatures=dict(state.temperatures),
            fan_share=state.fan_share,
            energy=state.energy,
            activity=list(state.activity),
            memory_activity=state.memory_activity,
            residencies=dict(state.residencies),
            errors=dict(state.errors),
            power_cap=state.power_cap,
        )


def _follow(value: float, target: float, step: float, inertia: float) -> float:
    return value + (target - value) * step / (inertia + step)


class Clock:
    """A machine's time. `machine` is the machine now, `tick` how often `advance` was called, `step` its seconds."""

    def __init__(self, machine: Machine, step: float = 1.0) -> None:
        self.step = step
        self.tick = 0
        self._cards = {card.bdf: card for card in machine.cards}
        self._moving = {card.bdf: _Moving.of(card.state) for card in machine.cards}
        self._jobs = first_jobs(machine)
        self._next_job = len(self._jobs)
        self._rest: dict[Seat, float] = {}  # when a free device is ready for its next job
        for card in machine.cards:
            self._free(card, machine.uptime, machine)
        self.machine = machine
        self.machine = replace(machine, processes=self._processes())

    def set_power_cap(self, bdf: str, watts: int) -> None:
        """As a write to power1_cap: what is out of range is refused."""
        cap = self._cards[bdf].model.cap
        if cap and cap[0] <= watts <= cap[2] and watts > 0:
            self._moving[bdf].power_cap = watts

    def set_performance_level(self, bdf: str, level: str) -> None:
        """As a write to power_dpm_force_performance_level."""
        if level in ("auto", "low", "high", "manual"):
            self._moving[bdf].performance_level = level

    def advance(self, effects: Effects) -> None:
        """One tick on, with the faults that are in force."""
        self.tick += 1
        uptime = self.machine.uptime + self.step
        self.machine = replace(self.machine, uptime=uptime)
        self._plug(effects)
        self._work(effects)
        states = [self._move(card, effects.get(card.bdf, {})) for card in self.machine.cards]
        self.machine = replace(self.machine.with_states(states, uptime), processes=self._processes())

    # ---- cards come and go ----

    def _plug(self, effects: Effects) -> None:
        """Take lost cards out and put those that are back in: at the end of KFD's order, where it numbers them anew."""
        lost = {bdf for bdf, kinds in effects.items() if "lost" in kinds}
        stay = [card for card in self.machine.cards if card.bdf not in lost]
        present = {card.bdf for card in self.machine.cards}
        back = [card for bdf, card in sorted(self._cards.items()) if bdf not in lost and bdf not in present]
        if len(stay) == len(self.machine.cards) and not back:
            return
        for card in back:
            model = card.model
            fresh = settle(model, [0.0] * model.partitions, 0.0, self.machine.seed, card.slot.domain, card.slot.bus)
            self._moving[card.bdf] = _Moving.of(fresh)
            self._free(card, self.machine.uptime, self.machine)
        node, cards = self.machine.platform.sockets, []
        for card in stay + back:
            count = card.model.partitions
            cards.append(replace(card, kfd_node=tuple(range(node, node + count))))
            node += count
        self.machine = replace(self.machine, cards=tuple(cards), changes=self.machine.changes + 1)

    def _free(self, card: Card, now: float, machine: Machine) -> None:
        for part in range(card.model.partitions):
            self._rest[card.bdf, part] = now + 4 + 50 * draw(machine.seed, card.bdf, part, "rest")

    # ---- jobs ----

    def _work(self, effects: Effects) -> None:
        """End jobs that are over or whose card is gone or asleep, and start others on cards that have rested."""
        machine, now = self.machine, self.machine.uptime
        usable = {card.bdf for card in machine.cards if "suspended" not in effects.get(card.bdf, {})}
        over = [job for job in self._jobs if job.end <= now or any(bdf not in usable for bdf, _ in job.seats)]
        for job in over:
            self._jobs.remove(job)
            for seat in job.seats:
                self._rest[seat] = now + 5 + 40 * draw(machine.seed, job.number, *seat, "rest")
        taken = {seat for job in self._jobs for seat in job.seats}
        ready = [
            (card, part)
            for card in machine.cards
            for part in range(card.model.partitions)
            if card.bdf in usable and (card.bdf, part) not in taken and self._rest[card.bdf, part] <= now
        ]
        while ready:
            size = _SIZES[floor(len(_SIZES) * draw(machine.seed, self._next_job, "size"))]
            group = [seat for seat in ready if seat[0].model is ready[0][0].model][:size]
            waited = now - min(self._rest[card.bdf, part] for card, part in ready)
            if len(group) < size and waited < _PATIENCE:
                break
            ready = [seat for seat in ready if seat not in group]
            self._jobs.append(new_job(machine.seed, self._next_job, group, now))
            self._next_job += 1

    def _processes(self) -> tuple[Process, ...]:
        now = self.machine.uptime
        found = services(self.machine)
        for job in self._jobs:
            found += job_processes(job, now, lambda seat: self._moving[seat[0]].load[seat[1]])
        return tuple(found)

    # ---- one card ----

    def _move(self, card: Card, effects: Mapping[str, str | None]) -> State:
        model, moving, step = card.model, self._moving[card.bdf], self.step
        self._load(card)
        load = sum(moving.load) / len(moving.load)
        squeeze, bits = self._power(card, load)
        bits |= self._heat(card, "throttle" in effects)
        if "throttle" in effects:
            bits |= int(effects["throttle"] or _PPT0)
            squeeze *= 0.6
        self._errors(card, effects)
        utilization = tuple(round(100 * one) for one in moving.load)
        memory_utilization = round(60 * load * (0.5 + 0.5 * draw(*self._place(card), "umc")))
        moving.energy += moving.power * step
        moving.activity = [
            sum_ + step * 1000 * percent for sum_, percent in zip(moving.activity, utilization, strict=True)
        ]
        moving.memory_activity += step * 1000 * memory_utilization
        self._residencies(moving, bits)
        factor = squeeze * (0.6 + 0.4 * moving.restraint)
        return State(
            utilization=utilization,
            memory_utilization=memory_utilization,
            memory_used=tuple(self._memory(card, part) for part in range(model.partitions)),
            gtt_used=(24 + round(200 * load)) << 20,
            power=round(moving.power / model.power_step) * model.power_step,
            power_cap=moving.power_cap,
            temperatures={label: round(value) for label, value in moving.temperatures.items()},
            clocks={name: self._clock(card, name, domain, load, factor) for name, domain in model.clocks.items()},
            voltage=model.voltage and round(model.voltage[0] + (model.voltage[1] - model.voltage[0]) * load * factor),
            fan_share=moving.fan_share,
            energy=moving.energy,
            link=model.link,
            activity=tuple(moving.activity),
            memory_activity=moving.memory_activity,
            throttle=bits,
            residencies=dict(moving.residencies),
            errors=dict(moving.errors),
            bad_pages=moving.bad_pages,
            replays=moving.replays,
            performance_level=moving.performance_level,
            runtime_status="suspended" if "suspended" in effects else "active",
        )

    def _place(self, card: Card) -> tuple[object, ...]:
        """What a card's own differences are drawn from, as in `assemble`."""
        return self.machine.seed, card.slot.domain, card.slot.bus

    def _load(self, card: Card) -> None:
        """Load follows the jobs within a second or two."""
        moving, now = self._moving[card.bdf], self.machine.uptime
        for part in range(card.model.partitions):
            seat = (card.bdf, part)
            wanted = sum(job.load(job.seats.index(seat), now) for job in self._jobs if seat in job.seats)
            jitter = 0.97 + 0.06 * draw(*self._place(card), part, self.tick, "load")
            load = _follow(moving.load[part], min(1.0, wanted * jitter), self.step, 0.6)
            moving.load[part] = load if wanted or load > 0.02 else 0.0

    def _power(self, card: Card, load: float) -> tuple[float, int]:
        """Power follows load up to the cap; returns how far the cap slows the card down, and its throttle bit."""
        model, moving = card.model, self._moving[card.bdf]
        place = self._place(card)
        noise = 0.97 + 0.04 * draw(*place, "power") + 0.02 * draw(*place, self.tick, "power")
        wanted = (model.idle_watts + (model.full_watts - model.idle_watts) * load * moving.restraint) * noise
        squeeze, bits, allowed = 1.0, 0, wanted
        if moving.power_cap is not None and wanted > moving.power_cap:
            allowed = max(moving.power_cap, 0.8 * model.idle_watts)
            squeeze = max(0.3, (max(allowed - model.idle_watts, 0.0) / (wanted - model.idle_watts)) ** 0.5)
            bits = _PPT0
        power = _follow(moving.power, allowed, self.step, 0.4)
        moving.power = min(power, allowed) if bits else power
        return squeeze, bits

    def _heat(self, card: Card, uncooled: bool) -> int:
        """Heat follows power slowly; near a limit the card allows itself less. Returns the throttle bits."""
        model, moving, step = card.model, self._moving[card.bdf], self.step
        warmth = (moving.power - model.idle_watts) / (model.full_watts - model.idle_watts)
        bits = 0
        for sensor in model.sensors:
            target = sensor.idle + (sensor.full - sensor.idle) * warmth + 3 * draw(*self._place(card), sensor.label)
            if uncooled and sensor.critical:
                target = max(target, sensor.critical - 2.0)
            value = _follow(moving.temperatures[sensor.label], target, step, _INERTIA.get(sensor.label, _REGULATOR))
            moving.temperatures[sensor.label] = value
            if sensor.critical and value >= sensor.critical - _MARGIN:
                bits |= _HOT_BIT.get(sensor.label, 0)
        change = -0.08 if bits else 0.03
        moving.restraint = max(0.3, min(1.0, moving.restraint + change * step))
        if model.fan:
            wanted = model.fan.idle_share + (model.fan.full_share - model.fan.idle_share) * max(0.0, min(1.0, warmth))
            moving.fan_share = _follow(moving.fan_share, wanted, step, 5.0)
        return bits

    def _errors(self, card: Card, effects: Mapping[str, str | None]) -> None:
        model, moving = card.model, self._moving[card.bdf]
        if not model.apu and draw(*self._place(card), self.tick, "replay") < 0.001:
            moving.replays += 1
        if "ecc" not in effects or not model.ras:
            return
        kind = effects["ecc"] or "correctable"
        uncorrectable, correctable, deferred = moving.errors["umc"]
        moving.errors["umc"] = (
            uncorrectable + (kind == "uncorrectable"),
            correctable + (kind == "correctable"),
            deferred + (kind == "deferred" and model.ras_deferred),
        )
        if kind == "uncorrectable":
            # The page is put away at once, and the one before is retired by now.
            retired = tuple((page, "R") for page, _ in moving.bad_pages)
            moving.bad_pages = (*retired, (0x1F000 + 0x40 * len(retired), "P"))

    def _residencies(self, moving: _Moving, bits: int) -> None:
        ticks = round(self.step * 1000)
        for name, counts in (
            ("accumulation_counter", True),
            ("ppt_residency_acc", bits & _PPT0),
            ("socket_thm_residency_acc", bits & ~_PPT0),
        ):
            if counts:
                moving.residencies[name] = (moving.residencies.get(name, 0) + ticks) % (1 << 32)

    def _memory(self, card: Card, part: int) -> int:
        """The driver's own, what processes hold, and what is held besides."""
        used = card.model.idle_vram // card.model.partitions & ~0xFFF
        for job in self._jobs:
            for place, seat in enumerate(job.seats):
                if seat == (card.bdf, part):
                    share = job.share(self.machine.uptime)
                    used += pages(job.memory[place] * share) + pages(job.extra[place] * share)
        return used

    def _clock(self, card: Card, name: str, domain: Domain, load: float, factor: float) -> int:
        """MHz: idle, or near the top as far as the card may; the video engines stay idle."""
        level = self._moving[card.bdf].performance_level
        lowest, top = domain.levels[0], domain.levels[-1]
        if level == "high":
            load = max(load, 0.01)
        if load == 0 or level == "low" or name in ("vclk", "dclk"):
            return lowest if domain.deep_sleep is None or level == "low" else domain.deep_sleep
        if name != "sclk":
            factor = 1.0
        if domain.ranged:
            place = self._place(card)
            own = 0.97 - 0.1 * load * draw(*place, name) + 0.02 * (draw(*place, self.tick, name) - 0.5)
            return max(lowest, round(top * own * factor))
        return max((one for one in domain.levels if one <= top * factor + 0.5), default=lowest)
