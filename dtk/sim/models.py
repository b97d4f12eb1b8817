"""Card models as data: what the simulator knows of each card, and nothing else.

Ids, memory sizes, compute units, power caps and which files a card lacks are those of the real cards. Where nothing is
published (most of a Hygon card's clock levels, temperatures under load, subsystem ids) the number is plausible and
invented. A new model is a new entry of MODELS.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True)
class Sensor:
    """A temperature: °C when idle and at the power cap, and its limits (hwmon's crit and emergency)."""

    label: str
    idle: float
    full: float
    critical: int | None = None
    emergency: int | None = None
    channel: int | None = None  # N of hwmon's tempN_input; None: only in gpu_metrics


@dataclass(frozen=True)
class Clock:
    """A clock domain and its levels in MHz, as its pp_dpm file lists them."""

    levels: tuple[int, ...]
    ranged: bool = False  # the file lists lowest, present and highest clock, not fixed levels
    deep_sleep: int | None = None  # an idle card's clock, shown as level "S:"


@dataclass(frozen=True)
class Fan:
    """An own fan; rpm at full drive."""

    rpm_max: int
    idle_share: float = 0.0
    full_share: float = 0.7


@dataclass(frozen=True)
class Kfd:
    """The constant part of a KFD node's properties; counts are those of one XCC."""

    asic: str  # the node's name
    arrays: int
    cu_per_array: int
    arrays_per_engine: int = 1
    simd_per_cu: int = 4
    wave_front: int = 64
    max_waves: int = 8
    bank_width: int = 4096
    sdma: int = 2
    sdma_xgmi: int = 0
    sdma_queues: int = 8
    cp_queues: int = 24
    firmware: int = 90
    sdma_firmware: int = 9
    capability: int = 746037888
    debug_prop: int = 470


@dataclass(frozen=True)
class Model:
    """A card model. Bytes, W, MHz and mV; `pci` is vendor, device, subsystem vendor, subsystem device, revision."""

    key: str
    title: str
    pci_name: str  # in the public list of PCI ids
    platform: str  # the kind of machine it usually sits in, a key of machine.PLATFORMS
    driver: str
    pci: tuple[int, int, int, int, int]
    pci_class: int
    gfx: str
    compute_units: int
    vram: int
    idle_vram: int
    idle_watts: float
    full_watts: float  # what it draws under full load when no cap stops it before
    clocks: Mapping[str, Clock]  # by the name in pp_dpm_<name>
    sensors: tuple[Sensor, ...]
    kfd: Kfd
    cap: tuple[int, int, int] | None = None  # power cap in W: lowest, default, highest
    power_files: tuple[str, ...] = ("average",)  # which of hwmon's power1_average and power1_input exist
    power_label: str | None = "PPT"
    power_step: float = 1.0  # W; what the firmware rounds to
    voltage: tuple[int, int] | None = None  # vddgfx idle and full; None: no in0
    voltage_northbridge: int | None = None
    fan: Fan | None = None
    hwmon_name: str = "amdgpu"
    gpu_metrics: tuple[int, int] | None = None
    link: tuple[str, int] = ("16.0 GT/s PCIe", 16)
    switches: tuple[int, ...] = ()  # device ids of the PCIe switch ports on the card itself, from the outside in
    apu: bool = False
    bank: int | None = None  # KFD's memory, where it is not vram
    xccs: int = 1
    partitions: int = 1
    xcp_devices: int = 1  # DRM devices the driver sets aside for each card: minors advance by this
    compute_partition: str = ""
    compute_partitions: tuple[str, ...] = ()
    memory_partition: str = ""
    memory_partitions: tuple[str, ...] = ()
    hive: int = 0  # cards in an XGMI hive; 0: no such links
    ras: tuple[str, ...] = ()  # blocks with an error count
    ras_deferred: bool = False  # umc also counts deferred errors
    firmware: tuple[str, ...] = ()
    text: Mapping[str, str] = field(default_factory=dict)  # further files of the PCI device and what they hold
    serial: str = ""  # what it starts with; twelve or sixteen characters; "" an empty file; see has_serial
    serial_digits: int = 0
    has_serial: bool = True
    has_unique_id: bool = True
    has_memory_busy: bool = True
    memory_vendor: str | None = "hynix"
    connectors: tuple[str, ...] = ()


_INSTINCT_FIRMWARE = ("asd", "mec", "mec2", "rlc", "sdma", "sdma2", "smc", "sos", "ta_ras", "ta_xgmi", "vcn")
_RADEON_FIRMWARE = ("asd", "imu", "me", "mec", "mes", "mes_kiq", "pfp", "rlc", "sdma", "smc", "sos", "vcn")
_APU_FIRMWARE = ("asd", "dmcub", "imu", "me", "mec", "mes", "mes_kiq", "pfp", "rlc", "sdma", "smc", "vcn")
_HYGON_FIRMWARE = ("asd", "mec", "mec2", "rlc", "sdma", "sdma2", "smc", "sos", "ta_ras", "ta_xgmi")

_INSTINCT_RAS = ("umc", "sdma", "gfx", "mmhub", "pcie_bif", "hdp", "xgmi_wafl")
_HYGON_RAS = ("umc", "sdma", "gfx", "mmhub", "pcie_bif", "hdp")


def _hygon_sensors(idle: float, full: float) -> tuple[Sensor, ...]:
    # Which cards have the core sensor in hwmon is not published. AMD's library gives up on a label that it does not
    # know, so that only BW1000 shows it here and the others can be checked with that library.
    return (
        Sensor("edge", idle, full, 100, 105, channel=1),
        Sensor("junction", idle - 2, full + 7, 105, 110, channel=2),
        Sensor("mem", idle + 1, full + 1, 95, 100, channel=3),
        Sensor("core", idle - 2, full + 4, 105, 110, channel=4),
    )


K100_AI = Model(
    key="k100_ai",
    title="Hygon K100_AI, 64 GB",
    pci_name="KONGMING",
    platform="hygon",
    driver="hycu",
    pci=(0x1D94, 0x6210, 0x1D94, 0x6210, 0x01),
    pci_class=0x0B4000,
    gfx="gfx928",
    compute_units=120,
    vram=65520 * MIB,
    idle_vram=2 * MIB,
    idle_watts=105,
    full_watts=385,
    cap=(0, 400, 400),
    clocks={
        "sclk": Clock((300, 600, 900, 1200, 1400, 1500)),
        "mclk": Clock((500, 900, 1250)),
        "socclk": Clock((309, 566, 927)),
    },
    sensors=_hygon_sensors(46, 72)[:3],
    kfd=Kfd("kongming", arrays=8, cu_per_array=15, firmware=68, sdma_firmware=7),
    voltage=(700, 875),
    ras=_HYGON_RAS,
    firmware=_HYGON_FIRMWARE,
    text={
        "vbios_version": "5.928.001200K.881240",
        "pp_sclk_od": "0",
        "pp_mclk_od": "0",
        "xgmi_error": "0",
    },
    serial="TRCW",
    serial_digits=12,
    has_memory_busy=False,
)

Z100L = Model(
    key="z100l",
    title="Hygon Z100L, 32 GB; without unique_id",
    pci_name="ZIFANG",
    platform="hygon",
    driver="hydcu",
    pci=(0x1D94, 0x55B7, 0x1D94, 0x55B7, 0x01),
    pci_class=0x038000,
    gfx="gfx906",
    compute_units=60,
    vram=32752 * MIB,
    idle_vram=2 * MIB,
    idle_watts=38,
    full_watts=262,
    cap=(0, 280, 280),
    clocks={
        "sclk": Clock((300, 600, 900, 1100, 1319)),
        "mclk": Clock((350, 800)),
        "socclk": Clock((309, 523, 971)),
    },
    sensors=_hygon_sensors(39, 74)[:3],
    kfd=Kfd("zifang", arrays=4, cu_per_array=16, max_waves=10, firmware=408, sdma_firmware=145, capability=8832),
    voltage=(725, 1000),
    ras=_HYGON_RAS,
    firmware=_HYGON_FIRMWARE,
    text={
        "vbios_version": "4.906.000800Z.632052",
        "pp_sclk_od": "0",
        "pp_mclk_od": "0",
        "xgmi_error": "0",
    },
    serial="T8R0",
    serial_digits=12,
    has_unique_id=False,
    has_memory_busy=False,
)

BW1000 = Model(
    key="bw1000",
    title="Hygon BW1000_H, 64 GB, 800 W, all cards linked",
    pci_name="KONGMING",
    platform="hygon",
    driver="hycu",
    pci=(0x1D94, 0x631A, 0x1D94, 0x631A, 0x01),
    pci_class=0x0B4000,
    gfx="gfx936",
    compute_units=80,
    vram=65520 * MIB,
    idle_vram=2 * MIB,
    idle_watts=158,
    full_watts=720,
    cap=(0, 800, 800),
    clocks={
        "sclk": Clock((300, 600, 1000, 1400, 1700)),
        "mclk": Clock((900, 1300, 1800)),
        "socclk": Clock((400, 800, 1143)),
    },
    sensors=_hygon_sensors(38, 70),
    kfd=Kfd("kongming", arrays=8, cu_per_array=10, bank_width=8192, firmware=77, sdma_firmware=11),
    voltage=(700, 900),
    hwmon_name="hycu",
    link=("32.0 GT/s PCIe", 16),
    hive=8,
    ras=(*_HYGON_RAS, "xgmi_wafl"),
    firmware=_HYGON_FIRMWARE,
    text={
        "vbios_version": "6.312.002400Q.984920",
        "pp_sclk_od": "0",
        "pp_mclk_od": "0",
        "xgmi_error": "0",
    },
    serial="T6T0",
    serial_digits=12,
)

MI210 = Model(
    key="mi210",
    title="AMD Instinct MI210, 64 GB, XGMI hives of four",
    pci_name="Aldebaran/MI200 [Instinct MI210]",
    platform="instinct",
    driver="amdgpu",
    pci=(0x1002, 0x740F, 0x1002, 0x0C34, 0x02),
    pci_class=0x038000,
    gfx="gfx90a",
    compute_units=104,
    vram=64 * GIB - 16 * MIB,
    idle_vram=10850304,
    idle_watts=40,
    full_watts=290,
    cap=(0, 300, 300),
    clocks={
        "sclk": Clock((500, 1700), ranged=True),
        "mclk": Clock((400, 700, 1200, 1600)),
        "socclk": Clock((666, 857, 1000, 1090, 1333)),
        "fclk": Clock((400, 1200, 1600)),
        "vclk": Clock((400, 900, 1300)),
        "dclk": Clock((400, 800, 1200)),
    },
    sensors=(
        Sensor("edge", 34, 63, 100, 105, channel=1),
        Sensor("junction", 37, 82, 110, 115, channel=2),
        Sensor("mem", 41, 70, 105, 110, channel=3),
        Sensor("vrgfx", 36, 66),
        Sensor("vrsoc", 35, 58),
        Sensor("vrmem", 36, 60),
    ),
    kfd=Kfd("aldebaran", arrays=8, cu_per_array=14, sdma_xgmi=3, firmware=92),
    voltage=(781, 1018),
    gpu_metrics=(1, 3),
    hive=4,
    ras=_INSTINCT_RAS,
    ras_deferred=True,
    firmware=_INSTINCT_FIRMWARE,
    text={
        "product_name": "AMD Instinct MI210",
        "product_number": "102-D67302-00",
        "vbios_version": "113-D67301V-073",
        "pcie_bw": "1146 902 512",
        "xgmi_error": "0",
        "thermal_throttling_logging": "{bdf}: thermal throttling logging enabled, with interval 60 seconds",
    },
    serial="PCB0",
    serial_digits=12,
)

MI300X = Model(
    key="mi300x",
    title="AMD Instinct MI300X, 192 GB, one device (SPX, NPS1)",
    pci_name="Aqua Vanjaram [Instinct MI300X]",
    platform="oam",
    driver="amdgpu",
    pci=(0x1002, 0x74A1, 0x1002, 0x74A1, 0x00),
    pci_class=0x120000,
    gfx="gfx942",
    compute_units=304,
    vram=192 * GIB - 16 * MIB,
    idle_vram=297 * MIB,
    idle_watts=138,
    full_watts=735,
    cap=(0, 750, 750),
    power_files=("input",),
    clocks={
        "sclk": Clock((500, 2100), ranged=True, deep_sleep=132),
        "mclk": Clock((900, 1100, 1200, 1300)),
        "socclk": Clock((27, 800, 1143)),
        "fclk": Clock((1200, 1600, 2000)),
        "vclk": Clock((29, 1000, 1530)),
        "dclk": Clock((22, 900, 1350)),
    },
    # No edge sensor and no vddgfx on this generation.
    sensors=(
        Sensor("junction", 42, 88, 100, 105, channel=2),
        Sensor("mem", 38, 74, 105, 110, channel=3),
        Sensor("vrsoc", 45, 78),
    ),
    kfd=Kfd(
        "ip discovery",
        arrays=4,
        cu_per_array=10,
        bank_width=8192,
        sdma_xgmi=14,
        firmware=149,
        sdma_firmware=19,
        debug_prop=1511,
    ),
    gpu_metrics=(1, 6),
    link=("32.0 GT/s PCIe", 16),
    xccs=8,
    xcp_devices=8,
    compute_partition="SPX",
    compute_partitions=("SPX", "DPX", "QPX", "CPX"),
    memory_partition="NPS1",
    memory_partitions=("NPS1", "NPS4"),
    hive=8,
    ras=(*_INSTINCT_RAS, "vcn", "jpeg"),
    ras_deferred=True,
    firmware=(*_INSTINCT_FIRMWARE, "rlc_srlc"),
    text={
        "product_name": "AMD Instinct MI300X OAM",
        "product_number": "102-G30211-0C",
        "vbios_version": "113-M3000100-103",
        "thermal_throttling_logging": "{bdf}: thermal throttling logging enabled, with interval 60 seconds",
    },
    serial="6924",
    serial_digits=8,
)

MI300X_CPX = replace(
    MI300X,
    key="mi300x-cpx",
    title="AMD Instinct MI300X, 192 GB, in 8 partitions (CPX, NPS4)",
    partitions=8,
    compute_partition="CPX",
    memory_partition="NPS4",
)

RADEON = Model(
    key="radeon",
    title="AMD Radeon RX 7900 XTX, 24 GB, with fan and displays",
    pci_name="Navi 31 [Radeon RX 7900 XT/7900 XTX/7900 GRE/7900M]",
    platform="desktop",
    driver="amdgpu",
    pci=(0x1002, 0x744C, 0x1002, 0x0E3B, 0xC8),
    pci_class=0x030000,
    gfx="gfx1100",
    compute_units=96,
    vram=24 * GIB - 16 * MIB,
    idle_vram=412 * MIB,
    idle_watts=19,
    full_watts=335,
    cap=(297, 339, 389),
    clocks={
        "sclk": Clock((500, 2500), ranged=True),
        "mclk": Clock((96, 456, 772, 1249)),
        "socclk": Clock((500, 960, 1200)),
        "fclk": Clock((500, 1400, 2000)),
        "vclk": Clock((25, 1000, 2100)),
        "dclk": Clock((25, 900, 1700)),
    },
    sensors=(
        Sensor("edge", 38, 66, 100, 105, channel=1),
        Sensor("junction", 42, 88, 110, 115, channel=2),
        Sensor("mem", 48, 84, 108, 113, channel=3),
        Sensor("vrgfx", 40, 72),
        Sensor("vrsoc", 40, 66),
        Sensor("vrmem", 41, 70),
    ),
    kfd=Kfd(
        "ip discovery",
        arrays=12,
        cu_per_array=8,
        arrays_per_engine=2,
        simd_per_cu=2,
        wave_front=32,
        max_waves=16,
        bank_width=384,
        sdma_queues=6,
        cp_queues=8,
        firmware=550,
        sdma_firmware=21,
        capability=709075584,
        debug_prop=1495,
    ),
    voltage=(660, 1050),
    fan=Fan(rpm_max=3300),
    gpu_metrics=(1, 3),
    switches=(0x1478, 0x1479),
    firmware=_RADEON_FIRMWARE,
    text={
        "product_name": "",
        "product_number": "",
        "vbios_version": "113-D7020100-102",
        "thermal_throttling_logging": "{bdf}: thermal throttling logging enabled, with interval 60 seconds",
    },
    memory_vendor="samsung",
    connectors=("DP-1", "DP-2", "HDMI-A-1"),
)

APU = Model(
    key="apu",
    title="AMD Phoenix APU (Radeon 780M), 4 GB carved out of system memory",
    pci_name="Phoenix1",
    platform="desktop",
    driver="amdgpu",
    pci=(0x1002, 0x15BF, 0x17AA, 0x50DA, 0xDD),
    pci_class=0x030000,
    gfx="gfx1103",
    compute_units=12,
    vram=4 * GIB,
    idle_vram=436 * MIB,
    idle_watts=4.2,
    full_watts=27.5,
    power_files=("average", "input"),
    power_step=0.001,
    clocks={
        "sclk": Clock((800, 1100, 2700), ranged=True),
        "mclk": Clock((400, 800, 1600, 2400)),
        "socclk": Clock((400, 600, 720, 800, 900, 1028, 1200)),
        "fclk": Clock((400, 800, 1200, 1600)),
        "vclk": Clock((800, 1200, 1600, 2400)),
        "dclk": Clock((800, 1028, 1600, 2057)),
    },
    sensors=(Sensor("edge", 38, 78, channel=1), Sensor("soc", 39, 74)),
    kfd=Kfd(
        "ip discovery",
        arrays=2,
        cu_per_array=6,
        arrays_per_engine=2,
        simd_per_cu=2,
        wave_front=32,
        max_waves=16,
        bank_width=128,
        sdma=1,
        sdma_queues=6,
        cp_queues=8,
        firmware=67,
        sdma_firmware=23,
        capability=709075584,
        debug_prop=1495,
    ),
    voltage=(814, 1150),
    voltage_northbridge=615,
    gpu_metrics=(2, 1),
    apu=True,
    bank=31433977856,
    firmware=_APU_FIRMWARE,
    text={
        "vbios_version": "113-PHXGENERIC-001",
        "unique_id": "",
        "pp_od_clk_voltage": "OD_SCLK:\n0:        800Mhz\n1:       2700Mhz",
        "thermal_throttling_logging": "{bdf}: thermal throttling logging enabled, with interval 60 seconds",
    },
    has_serial=False,
    has_unique_id=False,
    has_memory_busy=False,
    memory_vendor=None,
    connectors=("eDP-1", "HDMI-A-2"),
)

MODELS: Mapping[str, Model] = {
    model.key: model for model in (K100_AI, Z100L, BW1000, MI210, MI300X, MI300X_CPX, RADEON, APU)
}
