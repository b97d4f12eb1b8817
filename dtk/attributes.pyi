# Made by `make generate` from dtk/_native/metrics.def.

class MetricAttributes:
    """An attribute for each metric; None where it has no value, and Sample.reason() says why."""

    @property
    def utilization_gpu(self) -> float | None:
        """%: Share of time in which the compute and graphics engines were busy."""

    @property
    def utilization_memory(self) -> float | None:
        """%: Share of time in which the memory controller was busy; not how much memory is used."""

    @property
    def utilization_media(self) -> float | None:
        """%: Share of time in which the video engines were busy; mean of the engines that answer."""

    @property
    def memory_total(self) -> int | None:
        """B: Device memory; on an APU the carve-out of system memory."""

    @property
    def memory_used(self) -> int | None:
        """B: Device memory in use by all processes, the driver and the firmware."""

    @property
    def memory_free(self) -> int | None:
        """B: memory_total less memory_used."""

    @property
    def memory_visible_total(self) -> int | None:
        """B: Device memory that the CPU can address through the PCI window."""

    @property
    def memory_visible_used(self) -> int | None:
        """B: Of the CPU-addressable device memory, the part in use."""

    @property
    def memory_gtt_total(self) -> int | None:
        """B: System memory that the card may map (GTT)."""

    @property
    def memory_gtt_used(self) -> int | None:
        """B: System memory that the card has mapped (GTT)."""

    @property
    def temperature_edge(self) -> float | None:
        """°C: At the edge of the die; on an APU the graphics core."""

    @property
    def temperature_junction(self) -> float | None:
        """°C: The hottest spot of the die."""

    @property
    def temperature_memory(self) -> float | None:
        """°C: The hottest memory stack or chip."""

    @property
    def temperature_core(self) -> float | None:
        """°C: Hygon's CORE sensor."""

    @property
    def temperature_soc(self) -> float | None:
        """°C: The SoC part of an APU."""

    @property
    def temperature_vr_gfx(self) -> float | None:
        """°C: Voltage regulator of the graphics core."""

    @property
    def temperature_vr_soc(self) -> float | None:
        """°C: Voltage regulator of the SoC."""

    @property
    def temperature_vr_memory(self) -> float | None:
        """°C: Voltage regulator of the memory."""

    @property
    def temperature_hbm0(self) -> float | None:
        """°C: First HBM stack."""

    @property
    def temperature_hbm1(self) -> float | None:
        """°C: Second HBM stack."""

    @property
    def temperature_hbm2(self) -> float | None:
        """°C: Third HBM stack."""

    @property
    def temperature_hbm3(self) -> float | None:
        """°C: Fourth HBM stack."""

    @property
    def temperature_edge_critical(self) -> float | None:
        """°C: Edge temperature above which the card throttles."""

    @property
    def temperature_edge_emergency(self) -> float | None:
        """°C: Edge temperature at which the card shuts down."""

    @property
    def temperature_junction_critical(self) -> float | None:
        """°C: Junction temperature above which the card throttles."""

    @property
    def temperature_junction_emergency(self) -> float | None:
        """°C: Junction temperature at which the card shuts down."""

    @property
    def temperature_memory_critical(self) -> float | None:
        """°C: Memory temperature above which the card throttles."""

    @property
    def temperature_memory_emergency(self) -> float | None:
        """°C: Memory temperature at which the card shuts down."""

    @property
    def power_draw(self) -> float | None:
        """W: Power the card draws; on an APU that of the whole socket."""

    @property
    def power_average(self) -> float | None:
        """W: Averaged power, where the card reports one."""

    @property
    def power_current(self) -> float | None:
        """W: Momentary power, where the card reports one."""

    @property
    def power_limit(self) -> float | None:
        """W: The limit in force."""

    @property
    def power_limit_min(self) -> float | None:
        """W: The lowest limit that may be set."""

    @property
    def power_limit_max(self) -> float | None:
        """W: The highest limit that may be set."""

    @property
    def power_limit_default(self) -> float | None:
        """W: The limit the card starts with."""

    @property
    def energy(self) -> float | None:
        """J: Energy used, counted by the firmware in steps of 2^-16 J."""

    @property
    def clock_gfx(self) -> float | None:
        """MHz: Compute and graphics clock; of several dies the highest. 0 when clock gated."""

    @property
    def clock_memory(self) -> float | None:
        """MHz: Memory clock."""

    @property
    def clock_soc(self) -> float | None:
        """MHz: SoC clock; of several dies the highest."""

    @property
    def clock_fabric(self) -> float | None:
        """MHz: Data fabric clock."""

    @property
    def clock_video(self) -> float | None:
        """MHz: Clock of the first video engine; of several dies the highest."""

    @property
    def clock_gfx_max(self) -> float | None:
        """MHz: Highest level of the compute and graphics clock."""

    @property
    def clock_memory_max(self) -> float | None:
        """MHz: Highest level of the memory clock."""

    @property
    def clock_soc_max(self) -> float | None:
        """MHz: Highest level of the SoC clock."""

    @property
    def clock_fabric_max(self) -> float | None:
        """MHz: Highest level of the data fabric clock."""

    @property
    def clock_video_max(self) -> float | None:
        """MHz: Highest level of the video engine's clock."""

    @property
    def voltage_gfx(self) -> float | None:
        """mV: Supply of the compute and graphics core."""

    @property
    def voltage_soc(self) -> float | None:
        """mV: Supply of the SoC part."""

    @property
    def voltage_memory(self) -> float | None:
        """mV: Supply of the memory."""

    @property
    def fan_speed(self) -> float | None:
        """%: Fan drive as a share of its maximum; 0 is a fan that stands still."""

    @property
    def fan_rpm(self) -> float | None:
        """rpm: Fan speed."""

    @property
    def pcie_link_speed(self) -> float | None:
        """GT/s: Rate of each lane of the link at the card."""

    @property
    def pcie_link_width(self) -> int | None:
        """lanes: Lanes in use at the card."""

    @property
    def pcie_link_speed_max(self) -> float | None:
        """GT/s: Highest rate the card can run its link at."""

    @property
    def pcie_link_width_max(self) -> int | None:
        """lanes: Most lanes the card can use."""

    @property
    def pcie_replay_count(self) -> int | None:
        """count: Packets that had to be sent again."""

    @property
    def ecc_correctable(self) -> int | None:
        """count: Corrected errors, all blocks together."""

    @property
    def ecc_uncorrectable(self) -> int | None:
        """count: Errors that could not be corrected, all blocks together."""

    @property
    def ecc_deferred(self) -> int | None:
        """count: Errors found but not yet consumed, all blocks together."""

    @property
    def retired_pages(self) -> int | None:
        """count: Memory pages taken out of use."""

    @property
    def pending_pages(self) -> int | None:
        """count: Memory pages that will be taken out of use at the next reset."""

    @property
    def throttle_status(self) -> tuple[str, ...] | None:
        """bits: Why the card holds itself back: the ASIC-independent bits, see dtk_bit_name()."""

    @property
    def throttle_accumulation_counter(self) -> int | None:
        """count: Firmware ticks; what the residencies of an MI300 are measured against."""

    @property
    def throttle_prochot_residency(self) -> int | None:
        """count: Ticks throttled by the platform's PROCHOT signal."""

    @property
    def throttle_ppt_residency(self) -> int | None:
        """count: Ticks throttled by the package power limit."""

    @property
    def throttle_socket_thermal_residency(self) -> int | None:
        """count: Ticks throttled by the socket's temperature."""

    @property
    def throttle_vr_thermal_residency(self) -> int | None:
        """count: Ticks throttled by a voltage regulator's temperature."""

    @property
    def throttle_hbm_thermal_residency(self) -> int | None:
        """count: Ticks throttled by the memory's temperature."""

    @property
    def throttle_spl_residency(self) -> int | None:
        """count: APU: ticks at the sustained power limit."""

    @property
    def throttle_fppt_residency(self) -> int | None:
        """count: APU: ticks at the fast power limit."""

    @property
    def throttle_sppt_residency(self) -> int | None:
        """count: APU: ticks at the slow power limit."""

    @property
    def throttle_core_thermal_residency(self) -> int | None:
        """count: APU: ticks throttled by the CPU cores' temperature."""

    @property
    def throttle_gfx_thermal_residency(self) -> int | None:
        """count: APU: ticks throttled by the graphics core's temperature."""

    @property
    def throttle_soc_thermal_residency(self) -> int | None:
        """count: APU: ticks throttled by the SoC's temperature."""

    @property
    def utilization_cu(self) -> float | None:
        """%: Share of the compute units that hold a wave at this instant."""

    @property
    def utilization_gpu_window(self) -> float | None:
        """%: Share of a window in which any compute unit was busy."""

    @property
    def utilization_cu_window(self) -> float | None:
        """%: Share of the compute units that were busy, mean over a window."""

    @property
    def utilization_wave_window(self) -> float | None:
        """%: Waves in flight as a share of those that fit, mean over a window."""

    @property
    def utilization_decoder(self) -> float | None:
        """%: Share of a window in which the video decoder was busy."""

    @property
    def memory_read_bandwidth(self) -> float | None:
        """B/s: What the card reads from its memory."""

    @property
    def memory_write_bandwidth(self) -> float | None:
        """B/s: What the card writes to its memory."""

    @property
    def link_receive_bandwidth(self) -> float | None:
        """B/s: What comes in over the links to other cards (HyLink), all links together."""

    @property
    def link_send_bandwidth(self) -> float | None:
        """B/s: What goes out over the links to other cards (HyLink), all links together."""
