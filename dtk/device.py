"""Device: one card, or one partition of a card."""

from __future__ import annotations

import time

from . import metrics
from ._native import ffi, lib
from .errors import Error, from_status
from .identity import Identity, strings
from .metrics import text
from .records import (
    ECC,
    Activity,
    Clocks,
    Fan,
    Memory,
    PCIe,
    Power,
    Temperature,
    Throttle,
    Utilization,
    ecc_blocks,
    memory_banks,
)
from .sample import Sample

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ._native._dtk import CData
    from .process import ProcessTable
    from .system import System
    from .virtual import VirtualDevice

__all__ = ["Device"]

_LOST = "it was unplugged, or fell off the bus; System.rescan() looks for cards again"
_ON_CARD = "ask Device.card"


class Device(Identity):
    """One card, or one partition of a card: who it is, and what it reads now.

    Who it is are attributes, None where not known. They do not change, but for index, card_index and hip_index, which
    System.rescan() may change. Devices are equal when root and uuid are; they may be pickled and are found again by
    these two.

    What it reads are methods; each takes one sample and returns a named tuple. A value that is missing is None: while
    the card sleeps (it is not woken), where the card or its driver has no such thing, may not be read, or can be asked
    of Device.card only. `sample()` says which. They raise DeviceLost when the card is gone, and Error when the System
    was closed. They may block for as long as the kernel does when a card is sick.
    """

    __slots__ = ("_bdf", "_pointer", "_system")

    def __init__(self, system: System, pointer: CData) -> None:
        """For System: devices come from System.devices() and the like."""
        self._system = system
        self._pointer = pointer
        self._bdf: str | None = None

    # ---- who it is: Identity ----

    @property
    def card(self) -> Device:
        """The physical card, which owns the sensors; a whole card is its own. Raises DeviceLost when it is gone."""
        if not self.is_partition:
            return self
        cards = [card for card in self._system.cards() if card.card_index == self.card_index]
        if not cards:
            raise from_status(lib.DTK_GONE, "card", self._path, _LOST)
        return cards[0]

    def info(self) -> dict[str, str]:
        """Strings that a driver may change, read now; those that are known out of arch, vbios, performance_level,
        compute_partition (SPX, DPX, TPX, QPX, CPX), memory_partition (NPS1 …) and memory_vendor.

        Of a sleeping card only arch. Source files: vbios_version, power_dpm_force_performance_level,
        current_compute_partition, current_memory_partition, mem_info_vram_vendor.
        """
        return strings(self._system.read_identity(self._pointer))

    # ---- what it reads ----

    def sample(self, *, static: bool = True, fast: bool = True, slow: bool = False) -> Sample:
        """All readings of some tiers at one moment: sizes and limits (static), what changes (fast), error counters
        (slow; many files). Each file is read once.

        A card that sleeps or is gone raises nothing: see Sample.state and Sample.reason().
        """
        tiers = bool(static) * lib.DTK_TIER_STATIC | bool(fast) * lib.DTK_TIER_FAST | bool(slow) * lib.DTK_TIER_SLOW
        values = ffi.new("dtk_value[]", metrics.COUNT)
        bdf = self._bdf = self._bdf or self.bdf
        timestamp, monotonic = time.time(), time.monotonic()
        status = self._system.call(bdf, lib.dtk_device_sample, self._pointer, tiers, values, metrics.COUNT)
        if status < 0:
            raise from_status(status, "sample", self._path, "ask for at least one tier")
        return Sample(values, tiers, bdf, timestamp, monotonic)

    def memory(self) -> Memory:
        """Memory in bytes, now, of all processes, the driver and the firmware together. Raises DeviceLost.

        Source files: mem_info_{vram,vis_vram,gtt}_{total,used}, else KFD's mem_banks.
        """
        sample = self._read("memory", static=True)
        return Memory(
            total=sample.memory_total,
            used=sample.memory_used,
            free=sample.memory_free,
            visible_total=sample.memory_visible_total,
            visible_used=sample.memory_visible_used,
            gtt_total=sample.memory_gtt_total,
            gtt_used=sample.memory_gtt_used,
        )

    def temperature(self) -> Temperature:
        """Temperatures in °C, now, and their limits. Raises DeviceLost.

        Source files: gpu_metrics, else hwmon's temp*_input; limits from temp*_crit and temp*_emergency.
        """
        sample = self._read("temperature", static=True)
        hbm = (sample.temperature_hbm0, sample.temperature_hbm1, sample.temperature_hbm2, sample.temperature_hbm3)
        stacks = max((number for number, stack in enumerate(hbm, 1) if stack is not None), default=0)
        return Temperature(
            edge=sample.temperature_edge,
            junction=sample.temperature_junction,
            memory=sample.temperature_memory,
            core=sample.temperature_core,
            soc=sample.temperature_soc,
            vr_gfx=sample.temperature_vr_gfx,
            vr_soc=sample.temperature_vr_soc,
            vr_memory=sample.temperature_vr_memory,
            hbm=hbm[:stacks],
            edge_critical=sample.temperature_edge_critical,
            edge_emergency=sample.temperature_edge_emergency,
            junction_critical=sample.temperature_junction_critical,
            junction_emergency=sample.temperature_junction_emergency,
            memory_critical=sample.temperature_memory_critical,
            memory_emergency=sample.temperature_memory_emergency,
        )

    def power(self) -> Power:
        """Power in W, now or the firmware's average, its limits in W, and energy in J. Raises DeviceLost.

        Source files: hwmon's power1_input, power1_average and power1_cap*, else gpu_metrics.
        """
        sample = self._read("power", static=True)
        return Power(
            draw=sample.power_draw,
            average=sample.power_average,
            current=sample.power_current,
            limit=sample.power_limit,
            limit_min=sample.power_limit_min,
            limit_max=sample.power_limit_max,
            limit_default=sample.power_limit_default,
            energy=sample.energy,
        )

    def clocks(self) -> Clocks:
        """Clocks in MHz, now, and their highest levels. Raises DeviceLost.

        Source files: hwmon's freq*_input, pp_dpm_*, gpu_metrics; the highest gfx level also from KFD.
        """
        sample = self._read("clocks", static=True)
        return Clocks(
            gfx=sample.clock_gfx,
            memory=sample.clock_memory,
            soc=sample.clock_soc,
            fabric=sample.clock_fabric,
            video=sample.clock_video,
            gfx_max=sample.clock_gfx_max,
            memory_max=sample.clock_memory_max,
            soc_max=sample.clock_soc_max,
            fabric_max=sample.clock_fabric_max,
            video_max=sample.clock_video_max,
        )

    def utilization(self) -> Utilization:
        """Busy share in %, over the driver's own window of up to a second. Raises DeviceLost.

        Source files: gpu_busy_percent, mem_busy_percent, vcn_busy_percent, gpu_metrics. cu: the vendor's library.
        """
        sample = self._read("utilization")
        return Utilization(
            gpu=sample.utilization_gpu,
            memory=sample.utilization_memory,
            media=sample.utilization_media,
            cu=sample.utilization_cu,
        )

    def activity(self) -> Activity:
        """Busy shares over a window of 0.1 s each, and bandwidths. Takes most of a second; reads the slow tier.
        Raises DeviceLost.

        Source: the vendor's library of Hygon cards, where System was opened with it.
        """
        sample = self._read("activity", fast=False, slow=True)
        return Activity(
            gpu=sample.utilization_gpu_window,
            cu=sample.utilization_cu_window,
            wave=sample.utilization_wave_window,
            decoder=sample.utilization_decoder,
            memory_read=sample.memory_read_bandwidth,
            memory_write=sample.memory_write_bandwidth,
            link_receive=sample.link_receive_bandwidth,
            link_send=sample.link_send_bandwidth,
        )

    def fan(self) -> Fan:
        """Fan drive in % and speed in rpm, now. Raises DeviceLost.

        Source files: hwmon's pwm1, pwm1_max and fan1_input, gpu_metrics.
        """
        sample = self._read("fan")
        return Fan(speed=sample.fan_speed, rpm=sample.fan_rpm)

    def pcie(self) -> PCIe:
        """The PCIe link at the card: GT/s and lanes, now and at most; replays since the driver was loaded.
        Raises DeviceLost.

        Source files: current_link_speed, current_link_width, max_link_speed, max_link_width, pcie_replay_count,
        gpu_metrics.
        """
        sample = self._read("pcie", static=True)
        return PCIe(
            link_speed=sample.pcie_link_speed,
            link_width=sample.pcie_link_width,
            link_speed_max=sample.pcie_link_speed_max,
            link_width_max=sample.pcie_link_width_max,
            replay_count=sample.pcie_replay_count,
        )

    def ecc(self) -> ECC:
        """Memory errors since the driver was loaded, in all and by block, and memory pages. Reads many files.

        A card that counts no errors, or sleeps, and a partition give None and no blocks, like any reading.
        Source files: ras/<block>_err_count, else ras/aca_<block>; ras/gpu_vram_bad_pages.
        Raises DeviceLost, PermissionDenied when ras/ may not be read, Error when the kernel fails.
        """
        sample = self._read("ecc", fast=False, slow=True)
        count, rows = self._rows(lib.dtk_device_ecc, "dtk_ecc_block")
        if count < 0 and -count not in (lib.DTK_UNSUPPORTED, lib.DTK_ASLEEP, lib.DTK_ON_CARD):
            raise self._failed(count, "ecc")
        return ECC(
            correctable=sample.ecc_correctable,
            uncorrectable=sample.ecc_uncorrectable,
            deferred=sample.ecc_deferred,
            retired_pages=sample.retired_pages,
            pending_pages=sample.pending_pages,
            blocks=ecc_blocks(rows),
        )

    def throttle(self) -> Throttle:
        """Why the card holds itself back: names, now, and firmware ticks since it started. Raises DeviceLost.

        Source file: gpu_metrics.
        """
        sample = self._read("throttle")
        return Throttle(
            status=sample.throttle_status,
            accumulation_counter=sample.throttle_accumulation_counter,
            prochot_residency=sample.throttle_prochot_residency,
            ppt_residency=sample.throttle_ppt_residency,
            socket_thermal_residency=sample.throttle_socket_thermal_residency,
            vr_thermal_residency=sample.throttle_vr_thermal_residency,
            hbm_thermal_residency=sample.throttle_hbm_thermal_residency,
            spl_residency=sample.throttle_spl_residency,
            fppt_residency=sample.throttle_fppt_residency,
            sppt_residency=sample.throttle_sppt_residency,
            core_thermal_residency=sample.throttle_core_thermal_residency,
            gfx_thermal_residency=sample.throttle_gfx_thermal_residency,
            soc_thermal_residency=sample.throttle_soc_thermal_residency,
        )

    def processes(self, source: str = "kfd") -> ProcessTable:
        """The processes that use it now: see System.processes(). Of a partitioned card, those of its partitions."""
        from .process import scan

        whole = not self.is_partition
        uuids = [d.uuid for d in self._system.devices() if d == self or (whole and d.bdf == self.bdf)]
        return scan(self._system, uuids, source)

    def virtual_devices(self) -> tuple[VirtualDevice, ...]:
        """The virtual devices of its card, as their configuration files tell: see System.virtual_devices()."""
        return tuple(v for v in self._system.virtual_devices().devices if v.card == self.card_index)

    def memory_banks(self) -> dict[str, dict[str, int]]:
        """What Hygon's driver counts for each bank of the card's memory, errors among it, by the driver's names.
        Untested on a card. Raises as firmware() does.

        Source files: mem_banks/<bank>/properties.
        """
        count, rows = self._rows(lib.dtk_device_banks, "dtk_bank_count")
        if count < 0:
            raise self._failed(count, "memory_banks")
        return memory_banks(rows)

    def firmware(self) -> dict[str, str]:
        """Firmware versions as the driver writes them, by the driver's names: {"smc": "0x00446700", …}.

        Source files: fw_version/<name>_fw_version.
        Raises NotSupported where the driver tells none, the card sleeps or this is a partition (ask Device.card);
        PermissionDenied, DeviceLost, Error when the kernel fails.
        """
        count, rows = self._rows(lib.dtk_device_firmware, "dtk_firmware")
        if count < 0:
            raise self._failed(count, "firmware")
        return {text(row.name): text(row.version) for row in rows}

    def costs(self) -> dict[str, float]:
        """Microseconds that each source of its readings takes, by the names of Sample.source(), with "gpu_metrics" for
        all that is in that file: the median of nine reads each. Of a sleeping card power/runtime_status alone.
        """
        count, rows = self._rows(lib.dtk_device_costs, "dtk_cost")
        if count < 0:
            raise self._failed(count, "costs")
        return {text(row.name): row.nanoseconds / 1000 for row in rows if row.status in (lib.DTK_OK, lib.DTK_ASLEEP)}

    # ---- how ----

    @property
    def _identity(self) -> CData:
        return self._system.identity(self._pointer)

    @property
    def _told(self) -> CData:
        """The identity with what a sleeping card does not tell: until the driver told something, it is asked again."""
        info = self._identity
        return info if text(info.serial) or text(info.vbios) else self._system.read_identity(self._pointer)

    @property
    def _path(self) -> str:
        return f"{self._system.root.rstrip('/')}/sys/bus/pci/devices/{self.bdf}"

    def _read(self, operation: str, static: bool = False, fast: bool = True, slow: bool = False) -> Sample:
        sample = self.sample(static=static, fast=fast, slow=slow)
        if sample.state == "gone":
            raise self._failed(lib.DTK_GONE, operation)
        return sample

    def _rows(self, function: Callable[..., int], struct: str) -> tuple[int, list[CData]]:
        """What a function gives that fills an array: its return value, and the rows by name."""
        room = 64
        while True:
            rows = ffi.new(f"{struct}[]", room)
            count = self._system.call(self.bdf, function, self._pointer, rows, ffi.sizeof(struct), room)
            if count <= room:  # copies: a row alone does not keep the array that it is in
                copies = [ffi.new(f"{struct} *", row)[0] for row in rows[0 : max(count, 0)]]
                return count, sorted(copies, key=lambda row: text(row.name))
            room = count

    def _failed(self, status: int, operation: str) -> Error:
        hint = {lib.DTK_GONE: _LOST, lib.DTK_ON_CARD: _ON_CARD}.get(abs(status))
        return from_status(status, operation, self._path, hint)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Device):
            return NotImplemented
        return self.uuid == other.uuid and self._system.root == other._system.root

    def __hash__(self) -> int:
        return hash((self._system.root, self.uuid))

    def __repr__(self) -> str:
        try:
            where = f"card={self.card_index}" if self.index is None else f"index={self.index}"
            return f"Device({where}, name={self.name!r}, bdf={self.bdf!r})"
        except Error:  # of a closed system, and never asked before
            return f"Device(of {self._system!r}, closed)"

    def __reduce__(self) -> tuple[object, ...]:
        from .system import unpickle  # system.py builds on this file

        return unpickle, (self._system.root, self.uuid)
