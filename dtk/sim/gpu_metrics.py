"""gpu_metrics tables as the kernel writes them: what a simulated card serves and what the decoder is tested with.

The layouts are text, one block a revision: name, size in bytes, the revision it continues if any, then
`offset name[count]:type` for each field. They are written from the kernel's kgd_pp_interface.h and share nothing with
the decoder in dtk/_native/src/gpu_metrics.c, so that one mistake cannot hide in both.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_TEXT = """
xcp_v1_0 168
  0 gfx_busy_inst[8]:u32, 32 jpeg_busy[32]:u16, 96 vcn_busy[4]:u16, 104 gfx_busy_acc[8]:u64

xcp_v1_1 232
  0 gfx_busy_inst[8]:u32, 32 jpeg_busy[32]:u16, 96 vcn_busy[4]:u16, 104 gfx_busy_acc[8]:u64,
  168 gfx_below_host_limit_acc[8]:u64

xcp_v1_2 440
  0 gfx_busy_inst[8]:u32, 32 jpeg_busy[40]:u16, 112 vcn_busy[4]:u16, 120 gfx_busy_acc[8]:u64,
  184 gfx_below_host_limit_ppt_acc[8]:u64, 248 gfx_below_host_limit_thm_acc[8]:u64,
  312 gfx_low_utilization_acc[8]:u64, 376 gfx_below_host_limit_total_acc[8]:u64

v1_0 80
  8 system_clock_counter:u64, 16 temperature_edge:u16, 18 temperature_hotspot:u16, 20 temperature_mem:u16,
  22 temperature_vrgfx:u16, 24 temperature_vrsoc:u16, 26 temperature_vrmem:u16, 28 average_gfx_activity:u16,
  30 average_umc_activity:u16, 32 average_mm_activity:u16, 34 average_socket_power:u16, 36 energy_accumulator:u32,
  40 average_gfxclk_frequency:u16, 42 average_socclk_frequency:u16, 44 average_uclk_frequency:u16,
  46 average_vclk0_frequency:u16, 48 average_dclk0_frequency:u16, 50 average_vclk1_frequency:u16,
  52 average_dclk1_frequency:u16, 54 current_gfxclk:u16, 56 current_socclk:u16, 58 current_uclk:u16,
  60 current_vclk0:u16, 62 current_dclk0:u16, 64 current_vclk1:u16, 66 current_dclk1:u16, 68 throttle_status:u32,
  72 current_fan_speed:u16, 74 pcie_link_width:u8, 75 pcie_link_speed:u8

v1_1 96
  4 temperature_edge:u16, 6 temperature_hotspot:u16, 8 temperature_mem:u16, 10 temperature_vrgfx:u16,
  12 temperature_vrsoc:u16, 14 temperature_vrmem:u16, 16 average_gfx_activity:u16, 18 average_umc_activity:u16,
  20 average_mm_activity:u16, 22 average_socket_power:u16, 24 energy_accumulator:u64, 32 system_clock_counter:u64,
  40 average_gfxclk_frequency:u16, 42 average_socclk_frequency:u16, 44 average_uclk_frequency:u16,
  46 average_vclk0_frequency:u16, 48 average_dclk0_frequency:u16, 50 average_vclk1_frequency:u16,
  52 average_dclk1_frequency:u16, 54 current_gfxclk:u16, 56 current_socclk:u16, 58 current_uclk:u16,
  60 current_vclk0:u16, 62 current_dclk0:u16, 64 current_vclk1:u16, 66 current_dclk1:u16, 68 throttle_status:u32,
  72 current_fan_speed:u16, 74 pcie_link_width:u16, 76 pcie_link_speed:u16, 80 gfx_activity_acc:u32,
  84 mem_activity_acc:u32, 88 temperature_hbm[4]:u16

v1_2 104 v1_1
  96 firmware_timestamp:u64

v1_3 120 v1_2
  104 voltage_soc:u16, 106 voltage_gfx:u16, 108 voltage_mem:u16, 112 indep_throttle_status:u64

v1_4 288
  4 temperature_hotspot:u16, 6 temperature_mem:u16, 8 temperature_vrsoc:u16, 10 curr_socket_power:u16,
  12 average_gfx_activity:u16, 14 average_umc_activity:u16, 16 vcn_activity[4]:u16, 24 energy_accumulator:u64,
  32 system_clock_counter:u64, 40 throttle_status:u32, 44 gfxclk_lock_status:u32, 48 pcie_link_width:u16,
  50 pcie_link_speed:u16, 52 xgmi_link_width:u16, 54 xgmi_link_speed:u16, 56 gfx_activity_acc:u32,
  60 mem_activity_acc:u32, 64 pcie_bandwidth_acc:u64, 72 pcie_bandwidth_inst:u64, 80 pcie_l0_to_recov_count_acc:u64,
  88 pcie_replay_count_acc:u64, 96 pcie_replay_rover_count_acc:u64, 104 xgmi_read_data_acc[8]:u64,
  168 xgmi_write_data_acc[8]:u64, 232 firmware_timestamp:u64, 240 current_gfxclk[8]:u16, 256 current_socclk[4]:u16,
  264 current_vclk0[4]:u16, 272 current_dclk0[4]:u16, 280 current_uclk:u16

v1_5 360
  4 temperature_hotspot:u16, 6 temperature_mem:u16, 8 temperature_vrsoc:u16, 10 curr_socket_power:u16,
  12 average_gfx_activity:u16, 14 average_umc_activity:u16, 16 vcn_activity[4]:u16, 24 jpeg_activity[32]:u16,
  88 energy_accumulator:u64, 96 system_clock_counter:u64, 104 throttle_status:u32, 108 gfxclk_lock_status:u32,
  112 pcie_link_width:u16, 114 pcie_link_speed:u16, 116 xgmi_link_width:u16, 118 xgmi_link_speed:u16,
  120 gfx_activity_acc:u32, 124 mem_activity_acc:u32, 128 pcie_bandwidth_acc:u64, 136 pcie_bandwidth_inst:u64,
  144 pcie_l0_to_recov_count_acc:u64, 152 pcie_replay_count_acc:u64, 160 pcie_replay_rover_count_acc:u64,
  168 pcie_nak_sent_count_acc:u32, 172 pcie_nak_rcvd_count_acc:u32, 176 xgmi_read_data_acc[8]:u64,
  240 xgmi_write_data_acc[8]:u64, 304 firmware_timestamp:u64, 312 current_gfxclk[8]:u16, 328 current_socclk[4]:u16,
  336 current_vclk0[4]:u16, 344 current_dclk0[4]:u16, 352 current_uclk:u16

v1_6 1664
  4 temperature_hotspot:u16, 6 temperature_mem:u16, 8 temperature_vrsoc:u16, 10 curr_socket_power:u16,
  12 average_gfx_activity:u16, 14 average_umc_activity:u16, 16 energy_accumulator:u64, 24 system_clock_counter:u64,
  32 accumulation_counter:u32, 36 prochot_residency_acc:u32, 40 ppt_residency_acc:u32,
  44 socket_thm_residency_acc:u32, 48 vr_thm_residency_acc:u32, 52 hbm_thm_residency_acc:u32,
  56 gfxclk_lock_status:u32, 60 pcie_link_width:u16, 62 pcie_link_speed:u16, 64 xgmi_link_width:u16,
  66 xgmi_link_speed:u16, 68 gfx_activity_acc:u32, 72 mem_activity_acc:u32, 80 pcie_bandwidth_acc:u64,
  88 pcie_bandwidth_inst:u64, 96 pcie_l0_to_recov_count_acc:u64, 104 pcie_replay_count_acc:u64,
  112 pcie_replay_rover_count_acc:u64, 120 pcie_nak_sent_count_acc:u32, 124 pcie_nak_rcvd_count_acc:u32,
  128 xgmi_read_data_acc[8]:u64, 192 xgmi_write_data_acc[8]:u64, 256 firmware_timestamp:u64,
  264 current_gfxclk[8]:u16, 280 current_socclk[4]:u16, 288 current_vclk0[4]:u16, 296 current_dclk0[4]:u16,
  304 current_uclk:u16, 306 num_partition:u16, 312 xcp_stats[8]:xcp_v1_0, 1656 pcie_lc_perf_other_end_recovery:u32

v1_7 2208
  4 temperature_hotspot:u16, 6 temperature_mem:u16, 8 temperature_vrsoc:u16, 10 curr_socket_power:u16,
  12 average_gfx_activity:u16, 14 average_umc_activity:u16, 16 mem_max_bandwidth:u64, 24 energy_accumulator:u64,
  32 system_clock_counter:u64, 40 accumulation_counter:u32, 44 prochot_residency_acc:u32, 48 ppt_residency_acc:u32,
  52 socket_thm_residency_acc:u32, 56 vr_thm_residency_acc:u32, 60 hbm_thm_residency_acc:u32,
  64 gfxclk_lock_status:u32, 68 pcie_link_width:u16, 70 pcie_link_speed:u16, 72 xgmi_link_width:u16,
  74 xgmi_link_speed:u16, 76 gfx_activity_acc:u32, 80 mem_activity_acc:u32, 88 pcie_bandwidth_acc:u64,
  96 pcie_bandwidth_inst:u64, 104 pcie_l0_to_recov_count_acc:u64, 112 pcie_replay_count_acc:u64,
  120 pcie_replay_rover_count_acc:u64, 128 pcie_nak_sent_count_acc:u32, 132 pcie_nak_rcvd_count_acc:u32,
  136 xgmi_read_data_acc[8]:u64, 200 xgmi_write_data_acc[8]:u64, 264 xgmi_link_status[8]:u16,
  288 firmware_timestamp:u64, 296 current_gfxclk[8]:u16, 312 current_socclk[4]:u16, 320 current_vclk0[4]:u16,
  328 current_dclk0[4]:u16, 336 current_uclk:u16, 338 num_partition:u16, 344 xcp_stats[8]:xcp_v1_1,
  2200 pcie_lc_perf_other_end_recovery:u32

v1_8 3872
  4 temperature_hotspot:u16, 6 temperature_mem:u16, 8 temperature_vrsoc:u16, 10 curr_socket_power:u16,
  12 average_gfx_activity:u16, 14 average_umc_activity:u16, 16 mem_max_bandwidth:u64, 24 energy_accumulator:u64,
  32 system_clock_counter:u64, 40 accumulation_counter:u32, 44 prochot_residency_acc:u32, 48 ppt_residency_acc:u32,
  52 socket_thm_residency_acc:u32, 56 vr_thm_residency_acc:u32, 60 hbm_thm_residency_acc:u32,
  64 gfxclk_lock_status:u32, 68 pcie_link_width:u16, 70 pcie_link_speed:u16, 72 xgmi_link_width:u16,
  74 xgmi_link_speed:u16, 76 gfx_activity_acc:u32, 80 mem_activity_acc:u32, 88 pcie_bandwidth_acc:u64,
  96 pcie_bandwidth_inst:u64, 104 pcie_l0_to_recov_count_acc:u64, 112 pcie_replay_count_acc:u64,
  120 pcie_replay_rover_count_acc:u64, 128 pcie_nak_sent_count_acc:u32, 132 pcie_nak_rcvd_count_acc:u32,
  136 xgmi_read_data_acc[8]:u64, 200 xgmi_write_data_acc[8]:u64, 264 xgmi_link_status[8]:u16,
  288 firmware_timestamp:u64, 296 current_gfxclk[8]:u16, 312 current_socclk[4]:u16, 320 current_vclk0[4]:u16,
  328 current_dclk0[4]:u16, 336 current_uclk:u16, 338 num_partition:u16, 344 xcp_stats[8]:xcp_v1_2,
  3864 pcie_lc_perf_other_end_recovery:u32

v2_0 120
  8 system_clock_counter:u64, 16 temperature_gfx:u16, 18 temperature_soc:u16, 20 temperature_core[8]:u16,
  36 temperature_l3[2]:u16, 40 average_gfx_activity:u16, 42 average_mm_activity:u16, 44 average_socket_power:u16,
  46 average_cpu_power:u16, 48 average_soc_power:u16, 50 average_gfx_power:u16, 52 average_core_power[8]:u16,
  68 average_gfxclk_frequency:u16, 70 average_socclk_frequency:u16, 72 average_uclk_frequency:u16,
  74 average_fclk_frequency:u16, 76 average_vclk_frequency:u16, 78 average_dclk_frequency:u16,
  80 current_gfxclk:u16, 82 current_socclk:u16, 84 current_uclk:u16, 86 current_fclk:u16, 88 current_vclk:u16,
  90 current_dclk:u16, 92 current_coreclk[8]:u16, 108 current_l3clk[2]:u16, 112 throttle_status:u32, 116 fan_pwm:u16

v2_1 120
  4 temperature_gfx:u16, 6 temperature_soc:u16, 8 temperature_core[8]:u16, 24 temperature_l3[2]:u16,
  28 average_gfx_activity:u16, 30 average_mm_activity:u16, 32 system_clock_counter:u64, 40 average_socket_power:u16,
  42 average_cpu_power:u16, 44 average_soc_power:u16, 46 average_gfx_power:u16, 48 average_core_power[8]:u16,
  64 average_gfxclk_frequency:u16, 66 average_socclk_frequency:u16, 68 average_uclk_frequency:u16,
  70 average_fclk_frequency:u16, 72 average_vclk_frequency:u16, 74 average_dclk_frequency:u16,
  76 current_gfxclk:u16, 78 current_socclk:u16, 80 current_uclk:u16, 82 current_fclk:u16, 84 current_vclk:u16,
  86 current_dclk:u16, 88 current_coreclk[8]:u16, 104 current_l3clk[2]:u16, 108 throttle_status:u32, 112 fan_pwm:u16

v2_2 128 v2_1
  120 indep_throttle_status:u64

v2_3 152 v2_2
  128 average_temperature_gfx:u16, 130 average_temperature_soc:u16, 132 average_temperature_core[8]:u16,
  148 average_temperature_l3[2]:u16

v2_4 168 v2_3
  152 average_cpu_voltage:u16, 154 average_soc_voltage:u16, 156 average_gfx_voltage:u16,
  158 average_cpu_current:u16, 160 average_soc_current:u16, 162 average_gfx_current:u16

v3_0 264
  4 temperature_gfx:u16, 6 temperature_soc:u16, 8 temperature_core[16]:u16, 40 temperature_skin:u16,
  42 average_gfx_activity:u16, 44 average_vcn_activity:u16, 46 average_ipu_activity[8]:u16,
  62 average_core_c0_activity[16]:u16, 94 average_dram_reads:u16, 96 average_dram_writes:u16,
  98 average_ipu_reads:u16, 100 average_ipu_writes:u16, 104 system_clock_counter:u64, 112 average_socket_power:u32,
  116 average_ipu_power:u16, 120 average_apu_power:u32, 124 average_gfx_power:u32, 128 average_dgpu_power:u32,
  132 average_all_core_power:u32, 136 average_core_power[16]:u16, 168 average_sys_power:u16,
  170 stapm_power_limit:u16, 172 current_stapm_power_limit:u16, 174 average_gfxclk_frequency:u16,
  176 average_socclk_frequency:u16, 178 average_vpeclk_frequency:u16, 180 average_ipuclk_frequency:u16,
  182 average_fclk_frequency:u16, 184 average_vclk_frequency:u16, 186 average_uclk_frequency:u16,
  188 average_mpipu_frequency:u16, 190 current_coreclk[16]:u16, 222 current_core_maxfreq:u16,
  224 current_gfx_maxfreq:u16, 228 throttle_residency_prochot:u32, 232 throttle_residency_spl:u32,
  236 throttle_residency_fppt:u32, 240 throttle_residency_sppt:u32, 244 throttle_residency_thm_core:u32,
  248 throttle_residency_thm_gfx:u32, 252 throttle_residency_thm_soc:u32, 256 time_filter_alphavalue:u32
"""

# Version 1.9 describes itself: attribute number, name[count]:type/unit. "?" marks what an MI300X does not send.
_ATTRIBUTES_TEXT = """
  0 temperature_hotspot:u16/2, 1 temperature_mem:u16/2, 2 temperature_vrsoc:u16/2, 3 curr_socket_power:u16/3,
  4 average_gfx_activity:u16/10, 5 average_umc_activity:u16/10, 6 mem_max_bandwidth:u64/8, 7 energy_accumulator:u64/0,
  8 system_clock_counter:u64/4, 9 accumulation_counter:u32/0, 10 prochot_residency_acc:u32/0,
  11 ppt_residency_acc:u32/0, 12 socket_thm_residency_acc:u32/0, 13 vr_thm_residency_acc:u32/0,
  14 hbm_thm_residency_acc:u32/0, 15 gfxclk_lock_status:u32/0, 16 pcie_link_width:u16/0, 17 pcie_link_speed:u16/7,
  18 xgmi_link_width:u16/0, 19 xgmi_link_speed:u16/6, 20 gfx_activity_acc:u32/10, 21 mem_activity_acc:u32/10,
  22 pcie_bandwidth_acc:u64/10, 23 pcie_bandwidth_inst:u64/8, 24 pcie_l0_to_recov_count_acc:u64/0,
  25 pcie_replay_count_acc:u64/0, 26 pcie_replay_rover_count_acc:u64/0, 27 pcie_nak_sent_count_acc:u32/0,
  28 pcie_nak_rcvd_count_acc:u32/0, 29 xgmi_read_data_acc[8]:u64/9, 30 xgmi_write_data_acc[8]:u64/9,
  31 xgmi_link_status[8]:u16/0, 32 firmware_timestamp:u64/5, 33 current_gfxclk[8]:u16/1, 34 current_socclk[4]:u16/1,
  35 current_vclk0[4]:u16/1, 36 current_dclk0[4]:u16/1, 37 current_uclk:u16/1, 38 num_partition?:u16/0,
  39 pcie_lc_perf_other_end_recovery:u32/0, 40 gfx_busy_inst[8]:u32/10, 41 jpeg_busy[40]:u16/10,
  42 vcn_busy[4]:u16/10, 43 gfx_busy_acc[8]:u64/10, 44 gfx_below_host_limit_ppt_acc[8]:u64/0,
  45 gfx_below_host_limit_thm_acc[8]:u64/0, 46 gfx_low_utilization_acc[8]:u64/0,
  47 gfx_below_host_limit_total_acc[8]:u64/0, 48 temperature_hbm?[8]:u16/2
"""

# A field's value; None and everything not given is all ones, the kernel's "not supported".
Number = int | None
Stats = Mapping[str, Number | Sequence[Number]]
Value = Number | Sequence[Number] | Sequence[Stats]


class Field(NamedTuple):
    """Where a field lies: `offset` in bytes, `length` elements, each `width` bytes wide.

    `nested` is the name of the layout of each element, "" for a number.
    """

    offset: int
    length: int
    width: int
    nested: str


class Layout(NamedTuple):
    """A fixed table: its size in bytes and its fields by the kernel's names."""

    size: int
    fields: dict[str, Field]


class Attribute(NamedTuple):
    """A record of version 1.9. `type` and `unit` are the kernel's numbers; `sent` says an MI300X has it."""

    number: int
    length: int
    width: int
    type: int
    unit: int
    sent: bool


_WIDTHS = {"u8": 1, "u16": 2, "u32": 4, "u64": 8}
_TYPES = {"u8": 0, "u16": 2, "u32": 4, "u64": 6}


def _split(declaration: str) -> tuple[int, str, int, str]:
    """`8 temperature_core[16]:u16` as number, name, count and type."""
    number, _, rest = declaration.strip().partition(" ")
    name, _, kind = rest.partition(":")
    name, _, count = name.partition("[")
    return int(number), name, int(count.rstrip("]") or 1), kind


def _read_layouts(text: str) -> dict[str, Layout]:
    layouts: dict[str, Layout] = {}
    for block in text.strip().split("\n\n"):
        head, _, body = block.partition("\n")
        name, size, *base = head.split()
        fields = dict(layouts[base[0]].fields) if base else {}
        for declaration in body.split(","):
            offset, field, count, kind = _split(declaration)
            nested = kind if kind in layouts else ""
            width = layouts[kind].size if nested else _WIDTHS[kind]
            fields[field] = Field(offset, count, width, nested)
        layouts[name] = Layout(int(size), fields)
    return layouts


def _read_attributes(text: str) -> dict[str, Attribute]:
    attributes: dict[str, Attribute] = {}
    for declaration in text.split(","):
        number, name, count, kind = _split(declaration)
        kind, _, unit = kind.partition("/")
        sent = not name.endswith("?")
        attributes[name.rstrip("?")] = Attribute(number, count, _WIDTHS[kind], _TYPES[kind], int(unit), sent)
    return attributes


LAYOUTS = _read_layouts(_TEXT)
ATTRIBUTES = _read_attributes(_ATTRIBUTES_TEXT)


def pack(format: int, content: int, values: Mapping[str, Value]) -> bytes:
    """One gpu_metrics table of revision `format`.`content`, as the kernel would write it.

    Args:
        values: raw numbers in the table's own units, by the kernel's names ("temperature_hotspot"). An array takes a
            sequence, or a number for its first element; "xcp_stats" (1.6 to 1.8) takes a sequence of mappings.
            What is not given, or is None, is all ones: not supported.

    Raises:
        ValueError: an unknown revision or field, too many elements, or a number that does not fit its field.
    """
    if (format, content) == (1, 9):
        return _pack_records(values)
    layout = LAYOUTS.get(f"v{format}_{content}")
    if layout is None:
        known = ", ".join(name[1:].replace("_", ".") for name in LAYOUTS if name.startswith("v"))
        raise ValueError(f"no layout for gpu_metrics {format}.{content}; known are {known} and 1.9")
    table = bytearray(b"\xff" * layout.size)
    _fill(table, 0, layout, values)
    table[:4] = struct.pack("<HBB", layout.size, format, content)
    return bytes(table)


def _fill(table: bytearray, start: int, layout: Layout, values: Mapping[str, Value]) -> None:
    for name, value in values.items():
        field = layout.fields.get(name)
        if field is None:
            raise ValueError(f"this gpu_metrics table has no field {name!r}; it has {', '.join(layout.fields)}")
        for index, item in enumerate(_elements(name, value, field.length)):
            at = start + field.offset + index * field.width
            if not field.nested:
                table[at : at + field.width] = _bytes(name, item, field.width)
            elif isinstance(item, Mapping):
                _fill(table, at, LAYOUTS[field.nested], item)
            elif item is not None:
                raise ValueError(f"{name} takes mappings, not {item!r}")


def _pack_records(values: Mapping[str, Value]) -> bytes:
    unknown = values.keys() - ATTRIBUTES.keys()
    if unknown:
        raise ValueError(f"gpu_metrics 1.9 has no attribute {', '.join(sorted(unknown))}")
    records = [
        struct.pack("<Q", a.unit << 24 | a.type << 20 | a.number << 10 | a.length)
        + b"".join(_bytes(name, item, a.width) for item in _elements(name, values.get(name), a.length))
        for name, a in ATTRIBUTES.items()
        if a.sent or name in values
    ]
    body = struct.pack("<i", len(records)) + b"".join(records)
    return struct.pack("<HBB", 4 + len(body), 1, 9) + body


def _elements(name: str, value: Value, length: int) -> list[Number | Stats]:
    items: list[Number | Stats] = [value] if value is None or isinstance(value, int) else list(value)
    if len(items) > length:
        raise ValueError(f"{name} holds {length} elements, not {len(items)}")
    return items + [None] * (length - len(items))


def _bytes(name: str, item: Number | Stats, width: int) -> bytes:
    if item is None:
        return b"\xff" * width
    if not isinstance(item, int) or not 0 <= item < 1 << 8 * width:
        raise ValueError(f"{name} takes integers from 0 to {(1 << 8 * width) - 1}, not {item!r}")
    return item.to_bytes(width, "little")
