"""What the calls of a Device return: named tuples. A value is None where it is missing, never 0 in its place."""

from __future__ import annotations

from ._record import Record
from .metrics import text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._native._dtk import CData

__all__ = [
    "ECC",
    "Clocks",
    "ECCBlock",
    "Fan",
    "Memory",
    "PCIe",
    "Power",
    "Temperature",
    "Throttle",
    "Utilization",
]


class Memory(Record):
    """Memory in bytes, now.

    total, used, free: device memory; free is total less used.
    visible_total, visible_used: the part of it that the CPU can address through the PCI window.
    gtt_total, gtt_used: system memory that the card may map, and has mapped.
    """

    total: int | None
    used: int | None
    free: int | None
    visible_total: int | None
    visible_used: int | None
    gtt_total: int | None
    gtt_used: int | None


class Temperature(Record):
    """Temperatures in °C, now, and their limits.

    edge, junction, memory: the edge of the die, its hottest spot, and the hottest memory stack or chip.
    core: Hygon's CORE sensor. soc: of an APU. vr_gfx, vr_soc, vr_memory: voltage regulators.
    hbm: of each memory stack, in order; () where the card tells none.
    …_critical: above it the card throttles. …_emergency: at it the card shuts down.
    """

    edge: float | None
    junction: float | None
    memory: float | None
    core: float | None
    soc: float | None
    vr_gfx: float | None
    vr_soc: float | None
    vr_memory: float | None
    hbm: tuple[float | None, ...]
    edge_critical: float | None
    edge_emergency: float | None
    junction_critical: float | None
    junction_emergency: float | None
    memory_critical: float | None
    memory_emergency: float | None


class Power(Record):
    """Power in watts; energy in joules.

    draw: what the card draws: the momentary reading where it has one, else the average.
    average, current: each of the two, where the card has it.
    limit: in force. limit_min, limit_max: what may be set. limit_default: what the card starts with.
    energy: used since the driver was loaded.
    """

    draw: float | None
    average: float | None
    current: float | None
    limit: float | None
    limit_min: float | None
    limit_max: float | None
    limit_default: float | None
    energy: float | None


class Clocks(Record):
    """Clocks in MHz, now, and their highest levels. 0 is a clock that is gated. Of several dies the highest."""

    gfx: float | None
    memory: float | None
    soc: float | None
    fabric: float | None
    video: float | None
    gfx_max: float | None
    memory_max: float | None
    soc_max: float | None
    fabric_max: float | None
    video_max: float | None


class Utilization(Record):
    """Share of time that was busy, 0 to 100 %, over the driver's own window of up to a second.

    gpu: the compute and graphics engines. memory: the memory controller, not how much is used. media: video engines.
    cu: of Hygon cards, the share of the compute units that hold a wave at this instant.
    """

    gpu: float | None
    memory: float | None
    media: float | None
    cu: float | None


def memory_banks(rows: Iterable[CData]) -> dict[str, dict[str, int]]:
    """dtk_bank_counts by bank and name."""
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        found.setdefault(text(row.bank), {})[text(row.name)] = int(row.count)
    return dict(sorted(found.items()))


class Activity(Record):
    """What Hygon's library measures over a window of time; None on other cards.

    gpu: share of 0.1 s in which any compute unit was busy, in %. cu: share of the compute units that were busy, mean.
    wave: waves in flight as a share of those that fit, mean. decoder: share in which the video decoder was busy.
    memory_read, memory_write: device memory, in B/s. link_receive, link_send: all links to other cards, in B/s.
    """

    gpu: float | None
    cu: float | None
    wave: float | None
    decoder: float | None
    memory_read: float | None
    memory_write: float | None
    link_receive: float | None
    link_send: float | None


class Fan(Record):
    """speed: drive in % of its maximum, 0 is a fan that stands still. rpm: turns a minute."""

    speed: float | None
    rpm: float | None


class PCIe(Record):
    """The link at the card.

    link_speed, link_width: now, in GT/s a lane, and lanes. …_max: what the card can do.
    replay_count: packets that had to be sent again since the driver was loaded.
    """

    link_speed: float | None
    link_width: int | None
    link_speed_max: float | None
    link_width_max: int | None
    replay_count: int | None


class ECCBlock(Record):
    """Memory errors of one block of the card, since the driver was loaded."""

    correctable: int | None
    uncorrectable: int | None
    deferred: int | None


class ECC(Record):
    """Memory errors since the driver was loaded, and memory pages.

    correctable, uncorrectable, deferred: of all blocks together; deferred were found but not yet consumed.
    retired_pages: taken out of use for good. pending_pages: will be at the next reset.
    blocks: each block by the driver's name for it, such as "umc"; {} where the card counts none.
    """

    correctable: int | None
    uncorrectable: int | None
    deferred: int | None
    retired_pages: int | None
    pending_pages: int | None
    blocks: dict[str, ECCBlock]


class Throttle(Record):
    """Why the card holds itself back.

    status: names of the reasons now, such as "ppt0" or "hotspot"; () for none, None where the card does not tell.
    accumulation_counter: firmware ticks, what the residencies of an MI300 are measured against.
    …_residency: ticks throttled for that reason, since the firmware started.
    """

    status: tuple[str, ...] | None
    accumulation_counter: int | None
    prochot_residency: int | None
    ppt_residency: int | None
    socket_thermal_residency: int | None
    vr_thermal_residency: int | None
    hbm_thermal_residency: int | None
    spl_residency: int | None
    fppt_residency: int | None
    sppt_residency: int | None
    core_thermal_residency: int | None
    gfx_thermal_residency: int | None
    soc_thermal_residency: int | None


def ecc_blocks(rows: Iterable[CData]) -> dict[str, ECCBlock]:
    """dtk_ecc_blocks as records, by name in order."""

    def count(reading: CData) -> int | None:
        return None if reading.status else int(reading.u64)

    blocks = ((text(row.name), row) for row in rows)
    return {
        name: ECCBlock(count(row.correctable), count(row.uncorrectable), count(row.deferred))
        for name, row in sorted(blocks, key=lambda block: block[0])
    }
