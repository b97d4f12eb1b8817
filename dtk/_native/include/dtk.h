/* dtk.h - read Hygon DCU cards and AMD ROCm GPUs. The manual of the C API.
 *
 * Conventions, for every function unless it says otherwise:
 *  - It returns 0 (or a count, >= 0) on success, and on failure a status of the table below, negative: -DTK_GONE.
 *    `ret` is written only on success. dtk_status_text() explains a status, of either sign.
 *  - A call that fills many values returns 0 and marks each value with a status of its own. A value that is missing is
 *    never 0 or a sentinel: look at `status` first.
 *  - Structs may grow at the end. The caller passes the size it was compiled with and gets that much filled.
 *  - The library keeps no global state, reads no environment variable, writes nothing, and never wakes a sleeping card.
 *    What that is worth once the vendor's library is in the process is said there.
 *    It opens only regular files below the root, never /dev/kfd, and none of the files that act when they are read.
 *    (Hygon's own libhydmi does other things; dtk_virtuals_read() loads it when it is asked to, and says what it does.)
 *  - Direct calls may block for as long as the kernel does when a card is sick.
 *  - Threads: any number may use one system, one call a device (and its card) at a time. dtk_rescan() waits for the
 *    others and they for it. After fork() both processes may go on, unless another thread was in dtk_rescan() then.
 *
 *      dtk_system *sys;
 *      dtk_value v[DTK_METRIC_COUNT];
 *      dtk_device *dev;
 *
 *      if (dtk_open(NULL, 0, &sys) == 0) {
 *          for (int i = 0; i < dtk_device_count(sys); i++)
 *              if (dtk_device_get(sys, i, &dev) == 0 &&
 *                  dtk_device_sample(dev, DTK_TIER_FAST, v, DTK_METRIC_COUNT) == 0 &&
 *                  v[DTK_METRIC_POWER_DRAW].status == DTK_OK)
 *                  printf("%d: %.1f W\n", i, v[DTK_METRIC_POWER_DRAW].f64);
 *          dtk_close(sys);
 *      }
 */
#ifndef DTK_H
#define DTK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define DTK_API __attribute__((visibility("default")))
#else
#define DTK_API
#endif

/* ---- Versions ---- */

/* (major << 16) + (minor << 8) + patch of the API in this header. Major changes only with the SONAME. */
#define DTK_API_VERSION 0x000200

/* DTK_API_VERSION of the library in use. A caller compares the upper 16 bits with its own. Never fails. */
DTK_API uint32_t dtk_api_version(void);

/* ---- Status ---- */

/* generated from status.def: begin */
/* clang-format off */
enum dtk_status {
    DTK_OK = 0,               /* success */
    DTK_UNSUPPORTED = 1,      /* this card or driver has no such thing */
    DTK_DENIED = 2,           /* this user may not read or change it */
    DTK_ASLEEP = 3,           /* the card is suspended; it was not woken */
    DTK_GONE = 4,             /* the card is no longer there */
    DTK_FAILED = 5,           /* the read failed or gave something that cannot be true */
    DTK_STALE = 6,            /* no answer by the deadline */
    DTK_ON_CARD = 7,          /* only the card of this partition can answer */
    DTK_INVALID_ARGUMENT = 8, /* an argument is not valid */
    DTK_NOT_FOUND = 9,        /* no such device */
    DTK_AMBIGUOUS = 10,       /* the key fits more than one device */
    DTK_NO_MEMORY = 11,       /* out of memory or of file descriptors */
    DTK_LIBRARY = 12,         /* the vendor library is missing or failed */
    DTK_NO_DRIVER = 13,       /* no driver is bound to a card */
};
/* clang-format on */
/* generated from status.def: end */

/* Name of a status ("denied") and what it means ("this user may not read or change it"), of either sign.
 * Never NULL: an unknown number is "unknown". The text is static. */
DTK_API const char *dtk_status_name(int status);
DTK_API const char *dtk_status_text(int status);

/* ---- Metrics ---- */

/* The catalogue. Numbers never change; new ones go before DTK_METRIC_COUNT. */
/* generated from metrics.def: begin */
/* clang-format off */
enum dtk_metric {
    DTK_METRIC_UTILIZATION_GPU = 0,                    /* %: Share of time in which the compute and graphics engines were busy. */
    DTK_METRIC_UTILIZATION_MEMORY = 1,                 /* %: Share of time in which the memory controller was busy; not how much memory is used. */
    DTK_METRIC_UTILIZATION_MEDIA = 2,                  /* %: Share of time in which the video engines were busy; mean of the engines that answer. */
    DTK_METRIC_MEMORY_TOTAL = 3,                       /* B: Device memory; on an APU the carve-out of system memory. */
    DTK_METRIC_MEMORY_USED = 4,                        /* B: Device memory in use by all processes, the driver and the firmware. */
    DTK_METRIC_MEMORY_FREE = 5,                        /* B: memory_total less memory_used. */
    DTK_METRIC_MEMORY_VISIBLE_TOTAL = 6,               /* B: Device memory that the CPU can address through the PCI window. */
    DTK_METRIC_MEMORY_VISIBLE_USED = 7,                /* B: Of the CPU-addressable device memory, the part in use. */
    DTK_METRIC_MEMORY_GTT_TOTAL = 8,                   /* B: System memory that the card may map (GTT). */
    DTK_METRIC_MEMORY_GTT_USED = 9,                    /* B: System memory that the card has mapped (GTT). */
    DTK_METRIC_TEMPERATURE_EDGE = 10,                  /* °C: At the edge of the die; on an APU the graphics core. */
    DTK_METRIC_TEMPERATURE_JUNCTION = 11,              /* °C: The hottest spot of the die. */
    DTK_METRIC_TEMPERATURE_MEMORY = 12,                /* °C: The hottest memory stack or chip. */
    DTK_METRIC_TEMPERATURE_CORE = 13,                  /* °C: Hygon's CORE sensor. */
    DTK_METRIC_TEMPERATURE_SOC = 14,                   /* °C: The SoC part of an APU. */
    DTK_METRIC_TEMPERATURE_VR_GFX = 15,                /* °C: Voltage regulator of the graphics core. */
    DTK_METRIC_TEMPERATURE_VR_SOC = 16,                /* °C: Voltage regulator of the SoC. */
    DTK_METRIC_TEMPERATURE_VR_MEMORY = 17,             /* °C: Voltage regulator of the memory. */
    DTK_METRIC_TEMPERATURE_HBM0 = 18,                  /* °C: First HBM stack. */
    DTK_METRIC_TEMPERATURE_HBM1 = 19,                  /* °C: Second HBM stack. */
    DTK_METRIC_TEMPERATURE_HBM2 = 20,                  /* °C: Third HBM stack. */
    DTK_METRIC_TEMPERATURE_HBM3 = 21,                  /* °C: Fourth HBM stack. */
    DTK_METRIC_TEMPERATURE_EDGE_CRITICAL = 22,         /* °C: Edge temperature above which the card throttles. */
    DTK_METRIC_TEMPERATURE_EDGE_EMERGENCY = 23,        /* °C: Edge temperature at which the card shuts down. */
    DTK_METRIC_TEMPERATURE_JUNCTION_CRITICAL = 24,     /* °C: Junction temperature above which the card throttles. */
    DTK_METRIC_TEMPERATURE_JUNCTION_EMERGENCY = 25,    /* °C: Junction temperature at which the card shuts down. */
    DTK_METRIC_TEMPERATURE_MEMORY_CRITICAL = 26,       /* °C: Memory temperature above which the card throttles. */
    DTK_METRIC_TEMPERATURE_MEMORY_EMERGENCY = 27,      /* °C: Memory temperature at which the card shuts down. */
    DTK_METRIC_POWER_DRAW = 28,                        /* W: Power the card draws; on an APU that of the whole socket. */
    DTK_METRIC_POWER_AVERAGE = 29,                     /* W: Averaged power, where the card reports one. */
    DTK_METRIC_POWER_CURRENT = 30,                     /* W: Momentary power, where the card reports one. */
    DTK_METRIC_POWER_LIMIT = 31,                       /* W: The limit in force. */
    DTK_METRIC_POWER_LIMIT_MIN = 32,                   /* W: The lowest limit that may be set. */
    DTK_METRIC_POWER_LIMIT_MAX = 33,                   /* W: The highest limit that may be set. */
    DTK_METRIC_POWER_LIMIT_DEFAULT = 34,               /* W: The limit the card starts with. */
    DTK_METRIC_ENERGY = 35,                            /* J: Energy used, counted by the firmware in steps of 2^-16 J. */
    DTK_METRIC_CLOCK_GFX = 36,                         /* MHz: Compute and graphics clock; of several dies the highest. 0 when clock gated. */
    DTK_METRIC_CLOCK_MEMORY = 37,                      /* MHz: Memory clock. */
    DTK_METRIC_CLOCK_SOC = 38,                         /* MHz: SoC clock; of several dies the highest. */
    DTK_METRIC_CLOCK_FABRIC = 39,                      /* MHz: Data fabric clock. */
    DTK_METRIC_CLOCK_VIDEO = 40,                       /* MHz: Clock of the first video engine; of several dies the highest. */
    DTK_METRIC_CLOCK_GFX_MAX = 41,                     /* MHz: Highest level of the compute and graphics clock. */
    DTK_METRIC_CLOCK_MEMORY_MAX = 42,                  /* MHz: Highest level of the memory clock. */
    DTK_METRIC_CLOCK_SOC_MAX = 43,                     /* MHz: Highest level of the SoC clock. */
    DTK_METRIC_CLOCK_FABRIC_MAX = 44,                  /* MHz: Highest level of the data fabric clock. */
    DTK_METRIC_CLOCK_VIDEO_MAX = 45,                   /* MHz: Highest level of the video engine's clock. */
    DTK_METRIC_VOLTAGE_GFX = 46,                       /* mV: Supply of the compute and graphics core. */
    DTK_METRIC_VOLTAGE_SOC = 47,                       /* mV: Supply of the SoC part. */
    DTK_METRIC_VOLTAGE_MEMORY = 48,                    /* mV: Supply of the memory. */
    DTK_METRIC_FAN_SPEED = 49,                         /* %: Fan drive as a share of its maximum; 0 is a fan that stands still. */
    DTK_METRIC_FAN_RPM = 50,                           /* rpm: Fan speed. */
    DTK_METRIC_PCIE_LINK_SPEED = 51,                   /* GT/s: Rate of each lane of the link at the card. */
    DTK_METRIC_PCIE_LINK_WIDTH = 52,                   /* lanes: Lanes in use at the card. */
    DTK_METRIC_PCIE_LINK_SPEED_MAX = 53,               /* GT/s: Highest rate the card can run its link at. */
    DTK_METRIC_PCIE_LINK_WIDTH_MAX = 54,               /* lanes: Most lanes the card can use. */
    DTK_METRIC_PCIE_REPLAY_COUNT = 55,                 /* count: Packets that had to be sent again. */
    DTK_METRIC_ECC_CORRECTABLE = 56,                   /* count: Corrected errors, all blocks together. */
    DTK_METRIC_ECC_UNCORRECTABLE = 57,                 /* count: Errors that could not be corrected, all blocks together. */
    DTK_METRIC_ECC_DEFERRED = 58,                      /* count: Errors found but not yet consumed, all blocks together. */
    DTK_METRIC_RETIRED_PAGES = 59,                     /* count: Memory pages taken out of use. */
    DTK_METRIC_PENDING_PAGES = 60,                     /* count: Memory pages that will be taken out of use at the next reset. */
    DTK_METRIC_THROTTLE_STATUS = 61,                   /* bits: Why the card holds itself back: the ASIC-independent bits, see dtk_bit_name(). */
    DTK_METRIC_THROTTLE_ACCUMULATION_COUNTER = 62,     /* count: Firmware ticks; what the residencies of an MI300 are measured against. */
    DTK_METRIC_THROTTLE_PROCHOT_RESIDENCY = 63,        /* count: Ticks throttled by the platform's PROCHOT signal. */
    DTK_METRIC_THROTTLE_PPT_RESIDENCY = 64,            /* count: Ticks throttled by the package power limit. */
    DTK_METRIC_THROTTLE_SOCKET_THERMAL_RESIDENCY = 65, /* count: Ticks throttled by the socket's temperature. */
    DTK_METRIC_THROTTLE_VR_THERMAL_RESIDENCY = 66,     /* count: Ticks throttled by a voltage regulator's temperature. */
    DTK_METRIC_THROTTLE_HBM_THERMAL_RESIDENCY = 67,    /* count: Ticks throttled by the memory's temperature. */
    DTK_METRIC_THROTTLE_SPL_RESIDENCY = 68,            /* count: APU: ticks at the sustained power limit. */
    DTK_METRIC_THROTTLE_FPPT_RESIDENCY = 69,           /* count: APU: ticks at the fast power limit. */
    DTK_METRIC_THROTTLE_SPPT_RESIDENCY = 70,           /* count: APU: ticks at the slow power limit. */
    DTK_METRIC_THROTTLE_CORE_THERMAL_RESIDENCY = 71,   /* count: APU: ticks throttled by the CPU cores' temperature. */
    DTK_METRIC_THROTTLE_GFX_THERMAL_RESIDENCY = 72,    /* count: APU: ticks throttled by the graphics core's temperature. */
    DTK_METRIC_THROTTLE_SOC_THERMAL_RESIDENCY = 73,    /* count: APU: ticks throttled by the SoC's temperature. */
    DTK_METRIC_UTILIZATION_CU = 74,                    /* %: Share of the compute units that hold a wave at this instant. */
    DTK_METRIC_UTILIZATION_GPU_WINDOW = 75,            /* %: Share of a window in which any compute unit was busy. */
    DTK_METRIC_UTILIZATION_CU_WINDOW = 76,             /* %: Share of the compute units that were busy, mean over a window. */
    DTK_METRIC_UTILIZATION_WAVE_WINDOW = 77,           /* %: Waves in flight as a share of those that fit, mean over a window. */
    DTK_METRIC_UTILIZATION_DECODER = 78,               /* %: Share of a window in which the video decoder was busy. */
    DTK_METRIC_MEMORY_READ_BANDWIDTH = 79,             /* B/s: What the card reads from its memory. */
    DTK_METRIC_MEMORY_WRITE_BANDWIDTH = 80,            /* B/s: What the card writes to its memory. */
    DTK_METRIC_LINK_RECEIVE_BANDWIDTH = 81,            /* B/s: What comes in over the links to other cards (HyLink), all links together. */
    DTK_METRIC_LINK_SEND_BANDWIDTH = 82,               /* B/s: What goes out over the links to other cards (HyLink), all links together. */
    DTK_METRIC_COUNT = 83
};
/* clang-format on */
/* generated from metrics.def: end */

enum dtk_type { DTK_TYPE_F64 = 0, DTK_TYPE_I64 = 1, DTK_TYPE_U64 = 2, DTK_TYPE_BITS = 3 };
enum dtk_kind { DTK_KIND_GAUGE = 0, DTK_KIND_COUNTER = 1 };

/* Tiers are bits, and dtk_device_sample() takes several at once. */
enum dtk_tier {
    DTK_TIER_STATIC = 1, /* changes only when somebody changes a setting: sizes and limits */
    DTK_TIER_FAST = 2,   /* a few microseconds a reading */
    DTK_TIER_SLOW = 4,   /* error counters; many files */
};

typedef struct dtk_metric_info {
    int32_t number;
    int32_t type;       /* enum dtk_type */
    int32_t kind;       /* enum dtk_kind */
    int32_t tier;       /* enum dtk_tier */
    const char *name;   /* "power_draw" */
    const char *unit;   /* "W", "%", "B", "C", "J", "MHz", "mV", "GT/s", "rpm", "B/s", "" for counts, lanes and bits */
    const char *window; /* what the value covers in time; "" for the static tier */
    const char *family; /* exporter family without the dtk_device_ prefix */
    const char *label;  /* exporter label and its value, "" if there is none */
    const char *label_value;
    const char *help;
} dtk_metric_info;

/* Row of a metric, or NULL when there is no such number. Static. */
DTK_API const dtk_metric_info *dtk_metric_describe(int metric);

/* Number of the metric of that name, or -DTK_NOT_FOUND. */
DTK_API int dtk_metric_find(const char *name);

/* Name of a metric's source, such as "gpu_busy_percent", "hwmon/power1_average" or "gpu_metrics/energy_accumulator".
 * `source` is dtk_value.source of a reading, or 1, 2, ... to list them in the order they are tried; NULL past the last. */
DTK_API const char *dtk_metric_source(int metric, int source);

/* Name of a bit of a DTK_TYPE_BITS metric, such as "ppt0" or "hotspot"; NULL for a bit that has none. */
DTK_API const char *dtk_bit_name(int metric, int bit);

/* One reading. `status` says whether the rest means anything. */
typedef struct dtk_value {
    union {
        double f64;
        int64_t i64;
        uint64_t u64; /* DTK_TYPE_U64 and DTK_TYPE_BITS */
    };
    uint8_t type;     /* enum dtk_type */
    uint8_t status;   /* enum dtk_status, never negative */
    uint8_t source;   /* for dtk_metric_source(); 0 when there is no reading */
    uint8_t reserved; /* 0 */
    int32_t detail;   /* why it failed: an errno, or an enum dtk_detail; 0 if there is no more to say */
} dtk_value;

/* Details that are no errno. */
enum dtk_detail {
    DTK_DETAIL_MALFORMED = 0x10000,       /* text that is no number, or too long, or empty */
    DTK_DETAIL_IMPLAUSIBLE = 0x10001,     /* a number that cannot be true, such as 2112 degrees */
    DTK_DETAIL_TABLE_DAMAGED = 0x10002,   /* gpu_metrics is short or inconsistent; other sources were used */
    DTK_DETAIL_LIBRARY_ABORTED = 0x10003, /* the vendor's library ended the process that asked it */
    DTK_DETAIL_LIBRARY_MISSING = 0x10004, /* it was not found or did not start: dtk_rsmi_get() says why */
    DTK_DETAIL_LIBRARY_NO_CARD = 0x10005, /* it does not list this card */
    DTK_DETAIL_TABLE_UNKNOWN =
        0x20000,               /* + (format << 8 | content): a gpu_metrics revision this library does not know */
    DTK_DETAIL_RSMI = 0x30000, /* + the rsmi_status_t that a function of the vendor's library returned */
    DTK_DETAIL_DMI = 0x40000,  /* + the status that Hygon's libhydmi gave */
};

/* ---- Systems ---- */

typedef struct dtk_system dtk_system;
typedef struct dtk_device dtk_device;

/* Flags of dtk_open(). */
#define DTK_OPEN_DEBUG 0x1ULL      /* print file:line of every swallowed error to stderr */
#define DTK_OPEN_NO_OPENAT2 0x2ULL /* walk paths by hand, as on kernels before 5.6 */
#define DTK_OPEN_AUTO 0x4ULL       /* ask the vendor's library for what a Hygon card does not tell in files */
#define DTK_OPEN_RSMI 0x8ULL       /* ask it alone; the cards are still found in files */

/* Open a machine and enumerate its cards. `root` is a directory that looks like "/": it holds sys/ and perhaps proc/;
 * NULL is "/", this machine. Nothing outside the root is read, whatever its links say.
 * A machine without cards is no error: the count is 0 and dtk_system_probe() says what is there.
 * Errors: INVALID_ARGUMENT the root has no sys/ directory, or an unknown flag; NOT_FOUND there is no such directory;
 * UNSUPPORTED DTK_OPEN_RSMI with a root other than "/": the library reads this machine (with DTK_OPEN_AUTO it is not
 * asked then);
 * DENIED it may not be entered, or what would show cards in it; NO_MEMORY, also of descriptors; FAILED anything else the kernel said. */
DTK_API int dtk_open(const char *root, uint64_t flags, dtk_system **ret);

/* Free a system and all its devices. NULL is ignored. */
DTK_API void dtk_close(dtk_system *system);

/* Enumerate again. The only call that changes indices. A device that is still there keeps its pointer; one that is not
 * answers GONE until dtk_close(); one that left and came back is a new device. Errors: NO_MEMORY, then nothing changed. */
DTK_API int dtk_rescan(dtk_system *system);

/* Number of devices: what a runtime can open, whole cards or the partitions of a partitioned card. */
DTK_API int dtk_device_count(const dtk_system *system);

/* Device by index, ordered by PCI domain, bus, device, function, then partition. Errors: NOT_FOUND. */
DTK_API int dtk_device_get(dtk_system *system, int index, dtk_device **ret);

/* Number of physical cards, and card by index, in the same order. Cards own the sensors. A card that is not
 * partitioned is the same pointer as its device. Errors: NOT_FOUND. */
DTK_API int dtk_card_count(const dtk_system *system);
DTK_API int dtk_card_get(dtk_system *system, int index, dtk_device **ret);

/* Indices of the devices that a key means, in order, at most `count` of them into `ret`; returns how many there are.
 * Keys: an index ("0"); a uuid or a unique prefix of one ("GPU-1a2b"); a PCI address ("0000:43:00.0", "43:00.0");
 * "card1", "renderD128", "kfd:4", "gpu_id:12345", "hip:0", "serial:S". An address, card or serial of a partitioned
 * card means all its partitions. Source files: those of dtk_device_info(), for serial: only.
 * Errors: NOT_FOUND; AMBIGUOUS a uuid prefix that fits several cards; INVALID_ARGUMENT the key has none of these forms. */
DTK_API int dtk_device_match(dtk_system *system, const char *key, int *ret, size_t count);

/* The one device of a key. Errors: as dtk_device_match(), and AMBIGUOUS when the key means several. */
DTK_API int dtk_device_find(dtk_system *system, const char *key, dtk_device **ret);

typedef struct dtk_system_info {
    int32_t simulated;   /* 1: the root carries the marker of a simulated machine */
    int32_t live;        /* 1: the root is this machine's */
    char hostname[256];  /* proc/sys/kernel/hostname below the root; "" unknown */
    char driver[4][16];  /* drivers that hold a card, "" past the last */
    char version[4][64]; /* their sys/module/<driver>/version, else amdgpu's is the kernel's; "" unknown */
} dtk_system_info;

/* What is known of the machine as a whole. `size` is sizeof(dtk_system_info). */
DTK_API int dtk_system_info_get(dtk_system *system, dtk_system_info *ret, size_t size);

/* What there is on a machine, for explaining why there are no cards. Booleans are 0 or 1. */
typedef struct dtk_probe {
    int32_t pci_cards;         /* PCI functions that are AMD or Hygon cards, whatever their driver */
    int32_t pci_unbound;       /* of these, functions no known driver holds */
    int32_t pci_displays;      /* display controllers of other vendors, such as a BMC's VGA */
    int32_t drm;               /* sys/class/drm is there */
    int32_t kfd;               /* sys/class/kfd is there */
    int32_t dev_kfd;           /* dev/kfd: 1 there, 0 not, -1 not this machine's root */
    int32_t dev_kfd_access;    /* this process may open it; -1 not known. Asked by access(2), never by opening */
    int32_t dev_render;        /* render nodes in dev/dri; -1 not this machine's root */
    int32_t dev_render_access; /* of these, how many this process may open; -1 not known */
    char modules[64];          /* loaded modules out of amdgpu, radeon, hydcu, hycu, comma between */
    char first_unbound[24];    /* PCI address of the first card no driver holds; "" if there is none */
    char first_display[24];    /* PCI address of the first other display controller; "" if there is none */
    char render_group[32];     /* group that owns dev/kfd or the render nodes, by name or number; "" not known */
    char module_states[64];    /* sys/module/<name>/initstate of each of `modules`, comma between: "live"; nothing where
                                  it is not there, as of a driver that is part of the kernel */
    int32_t kfd_nodes;         /* KFD nodes with compute units that this process may look at */
    int32_t kfd_denied;        /* KFD nodes that it may not: a device cgroup keeps their cards from it */
    int32_t numa_nodes;        /* of the machine; 0 not known */
    int32_t pci_denied;        /* sys/bus/pci/devices may not be read: what is counted of PCI is not all */
    int32_t kfd_list_denied;   /* the directory of KFD's nodes may not be read */
    char kfd_group[32];        /* group that owns dev/kfd, by name or number; "" not known */
    uint32_t kfd_gid;          /* its number */
    int32_t kfd_mode;          /* permissions of dev/kfd, as chmod(1) has them; -1 not known */
    char dri_group[32];        /* the same of a render node; of one that this process may not open, if there is one */
    uint32_t dri_gid;
    int32_t dri_mode;
} dtk_probe;

/* Look around: PCI devices, modules, device nodes, KFD nodes. Reads several small files for each PCI function. */
DTK_API int dtk_system_probe(dtk_system *system, dtk_probe *ret, size_t size);

/* A PCI function that is an AMD or Hygon card by its vendor and class, whatever its driver. */
typedef struct dtk_pci_card {
    char bdf[24];
    char driver[16]; /* that holds it, also one that is none of a card's, such as "vfio-pci"; "" none */
    int32_t vendor_id;
    int32_t device_id; /* -1 not known */
    int32_t pci_class; /* 0x0b4000 */
} dtk_pci_card;

/* The cards that PCI shows, in no order, at most `count` into `ret`, each `size` bytes; returns how many there are.
 * Source files: sys/bus/pci/devices/<address>/{vendor,device,class,driver}. Errors: INVALID_ARGUMENT. */
DTK_API int dtk_system_pci(dtk_system *system, dtk_pci_card *ret, size_t size, size_t count);

/* ---- The vendor's library, librocm_smi64 of AMD or Hygon ---- */

/* A system that was opened with DTK_OPEN_AUTO or DTK_OPEN_RSMI loads it into this process with the first sample that
 * needs it. What that means: it may hang, print to stdout and stderr, end the process, leave files in /dev/shm and take
 * a lock there that other processes wait for; and it may not share a process with libamd_smi, which is refused. Programs
 * that must not suffer this use dtk-reader, as the Python package does. The library is never linked, and it stays in the
 * process when the system is closed.
 * A child that fork() makes has no library: its readings of it are FAILED.
 * Readings have the same units and statuses from either source; dtk_metric_source() names the function asked. */

/* Looks a variable up; getenv() fits. libdtk itself reads no environment. */
typedef const char *dtk_environment(const char *name);

typedef struct dtk_rsmi_file {
    char path[512];  /* a file; a name without / for the linker */
    char origin[64]; /* the variable or directory it came from, "the linker's path" */
    int32_t found;   /* 1 there is such a file; 0 not, though a variable names it; -1 the linker knows */
} dtk_rsmi_file;

/* The index-th file that may be the library, in the order they are tried; NOT_FOUND past the last. Loads none.
 * $DTK_SMI_ROCM_SMI_LIB (a file or its directory); $ROCM_SMI_LIB_PATH, $HYHAL_PATH/lib, /opt/hyhal/lib,
 * /usr/local/hyhal/lib; $DTKROOT and then /opt/dtk: .hyhal/lib, .hyhal/rocm_smi/lib, rocm_smi/lib, lib; $ROCM_PATH and
 * then /opt/rocm: lib, lib64, rocm_smi/lib; /opt/rocm-VERSION/lib, the highest version first; the linker's path. In each the
 * plain name, else the highest version. Variables only with an `environment`, which may be NULL.
 * Errors: INVALID_ARGUMENT; NOT_FOUND. */
DTK_API int dtk_rsmi_find(dtk_environment *environment, int index, dtk_rsmi_file *ret, size_t size);

/* Let the search of this system respect variables. Before its first sample. */
DTK_API int dtk_rsmi_environment(dtk_system *system, dtk_environment *environment);

/* Generations of the ABI, told apart by the functions there are. */
enum dtk_rsmi_abi {
    DTK_RSMI_AMD_5 = 1,     /* ROCm before 6.0 */
    DTK_RSMI_AMD_6 = 2,     /* ROCm 6.0 to 6.4.0 */
    DTK_RSMI_AMD_7 = 3,     /* ROCm 6.4.1 and later */
    DTK_RSMI_HYGON_6_2 = 4, /* Hygon's driver up to 6.2 */
    DTK_RSMI_HYGON_6_3 = 5, /* Hygon's driver from 6.3 on */
};

/* "amd-5", "amd-6", "amd-7", "hygon-6.2", "hygon-6.3"; NULL when there is no such number. */
DTK_API const char *dtk_rsmi_abi_name(int abi);

typedef struct dtk_rsmi {
    int32_t status;  /* enum dtk_status: OK it runs; NOT_FOUND there is none; LIBRARY it did not start; STALE dtk-reader
                          is loading it */
    int32_t abi;     /* enum dtk_rsmi_abi; 0 not known */
    int32_t code;    /* what rsmi_init() returned */
    int32_t devices; /* how many it lists */
    int32_t matched; /* how many of our cards are among them */
    char path[512];  /* of the file, links resolved */
    char origin[64]; /* as dtk_rsmi_file.origin */
    char version[64];  /* "5.0.0"; of Hygon's "7.6.0-0.6" */
    char message[512]; /* what went wrong, also with a file that was tried before this one; "" nothing */
} dtk_rsmi;

/* What became of the library of a system; loads it if that was not yet done. `size` is sizeof(dtk_rsmi).
 * Errors: INVALID_ARGUMENT; UNSUPPORTED the system was opened without it, or its root is not "/"; NO_MEMORY. */
DTK_API int dtk_rsmi_get(dtk_system *system, dtk_rsmi *ret, size_t size);

/* ---- Devices ---- */

/* Identity. Numbers that are not known are -1 (unique_id: 0), strings that are not known are empty. */
typedef struct dtk_info {
    int32_t index;      /* among the devices; -1 for a partitioned card, whose partitions are the devices */
    int32_t card;       /* index among the cards */
    int32_t partition;  /* number of the partition on its card; -1 for a whole card */
    int32_t numa_node;  /* -1 also where the kernel says none */
    int32_t drm_card;   /* N of /dev/dri/cardN */
    int32_t drm_render; /* N of /dev/dri/renderDN */
    int32_t kfd_node;
    int32_t hip_index; /* position among the KFD nodes that this process may open, before any *_VISIBLE_DEVICES */
    int64_t gpu_id;    /* KFD's */
    int32_t vendor_id, device_id, subsystem_vendor_id, subsystem_device_id, revision_id;
    int32_t compute_units;
    uint64_t unique_id;
    uint64_t hive_id; /* XGMI hive; 0 none or not known */
    char uuid[32];    /* GPU-<16 hex>, GPU-<16 hex>/p<n>, PCI-<address>, PCI-<address>/p<n> */
    char bdf[24];     /* PCI address of the physical card, 0000:43:00.0 */
    char driver[16];
    char name[96]; /* never empty */
    char serial[64];
    char arch[16]; /* gfx90a */
    char vbios[64];
    char performance_level[32];
    char compute_partition[16]; /* SPX, DPX, TPX, QPX, CPX */
    char memory_partition[16];  /* NPS1, NPS2, NPS4, NPS8 */
    char memory_vendor[32];
} dtk_info;

/* Every name a device has. Strings that a driver may change are read anew at each call; those that the driver itself
 * must answer are left empty while the card is asleep.
 * Source files, below the card's PCI directory: vendor, device, subsystem_vendor, subsystem_device, revision,
 * numa_node, unique_id, serial_number, product_name, vbios_version, power_dpm_force_performance_level,
 * current_compute_partition, current_memory_partition, mem_info_vram_vendor; KFD's properties and gpu_id.
 * May be called while another thread samples the device.
 * Name: product_name; else etc/dtk/cards.ids below the root, then the built-in table; else pci.ids; else the gfx name.
 * Errors: INVALID_ARGUMENT. A card that is gone keeps the identity it had. */
DTK_API int dtk_device_info(const dtk_device *device, dtk_info *ret, size_t size);

/* Read the metrics of some tiers. `ret` is indexed by metric number and `count` is its length; metrics past it and
 * those of other tiers are left alone. Allocates nothing. Reads power/runtime_status first, and of a suspended card
 * nothing else: its values are ASLEEP. Each file is read at most once; gpu_metrics serves all that it holds.
 * A partition's own values are its memory and its share of the gpu_metrics; the rest is ON_CARD.
 * Statuses of values: OK, UNSUPPORTED, DENIED, ASLEEP, GONE (also for what was not yet read when the card vanished),
 * FAILED, ON_CARD. Errors: INVALID_ARGUMENT. */
DTK_API int dtk_device_sample(dtk_device *device, uint32_t tiers, dtk_value *ret, size_t count);

typedef struct dtk_ecc_block {
    char name[24];                                  /* "umc", "gfx", ... as the driver names its files */
    dtk_value correctable, uncorrectable, deferred; /* counts since the driver was loaded */
} dtk_ecc_block;

/* Error counts of each block, at most `count` into `ret`, each `size` bytes; returns how many blocks there are.
 * Source files: ras/<block>_err_count, else ras/aca_<block>.
 * Errors: UNSUPPORTED no ras directory; DENIED; ASLEEP; GONE; ON_CARD a partition was asked. */
DTK_API int dtk_device_ecc(dtk_device *device, dtk_ecc_block *ret, size_t size, size_t count);

typedef struct dtk_bank_count {
    char bank[24]; /* as the driver names it */
    char name[40]; /* of the number, as the driver writes it */
    uint64_t count;
} dtk_bank_count;

/* What Hygon's driver counts for each bank of the card's memory, errors among it: every number it tells, at most `count`
 * into `ret`, each `size` bytes; returns how many there are. Untested on a card: the names are the driver's.
 * Source files: mem_banks/<bank>/properties. Errors: as dtk_device_ecc(). */
DTK_API int dtk_device_banks(dtk_device *device, dtk_bank_count *ret, size_t size, size_t count);

typedef struct dtk_firmware {
    char name[24];    /* "smc", "mec", "vcn", ... */
    char version[40]; /* as the driver writes it, 0x hex */
} dtk_firmware;

/* Firmware versions, at most `count` into `ret`, each `size` bytes; returns how many there are.
 * Source files: fw_version/<name>_fw_version. Errors: as dtk_device_ecc(). */
DTK_API int dtk_device_firmware(dtk_device *device, dtk_firmware *ret, size_t size, size_t count);

/* What it costs to read one source. */
typedef struct dtk_cost {
    char name[48];        /* as dtk_metric_source() has it; "gpu_metrics" for all of its fields */
    int32_t status;       /* enum dtk_status of what was read */
    int32_t reserved;     /* 0 */
    uint64_t nanoseconds; /* median of nine reads, one after the other */
} dtk_cost;

/* Measure each source that a device has, at most `count` into `ret`, each `size` bytes; returns how many there are.
 * Reads what dtk_device_sample() reads of all tiers, nine times; of a sleeping card power/runtime_status alone, which is
 * always the first. Errors: INVALID_ARGUMENT. */
DTK_API int dtk_device_costs(dtk_device *device, dtk_cost *ret, size_t size, size_t count);

/* ---- Processes ---- */

/* Where a tracker looks, and what a reading of a dtk_usage came from. */
#define DTK_SCAN_KFD 0x1u    /* compute: sys/class/kfd/kfd/proc. Every user may read it */
#define DTK_SCAN_FDINFO 0x2u /* graphics, video and compute: proc/<pid>/fdinfo, which the owner and root may read */
#define DTK_SCAN_FULL 0x4u   /* look at every process anew, and not only when that is due */
/* The library of Hygon cards: how busy a process keeps one. With either of the first two. */
#define DTK_SCAN_RSMI 0x8u

/* Why processes may be hidden: bits of dtk_scan.hidden_reasons. */
#define DTK_HIDDEN_DENIED 0x1u    /* descriptors of other users' processes: only they and root may look at them */
#define DTK_HIDDEN_HIDEPID 0x2u   /* proc is mounted with hidepid and does not even list them */
#define DTK_HIDDEN_NAMESPACE 0x4u /* proc is that of a PID namespace and lists only what is in it */

enum dtk_engine {
    DTK_ENGINE_GFX = 0,
    DTK_ENGINE_COMPUTE = 1, /* without the queues of KFD, which nobody counts */
    DTK_ENGINE_DMA = 2,
    DTK_ENGINE_DECODE = 3,
    DTK_ENGINE_ENCODE = 4,
    DTK_ENGINE_JPEG = 5,
    DTK_ENGINE_VPE = 6, /* video processing */
    DTK_ENGINE_COUNT = 7
};
#define DTK_ENGINE_ROOM 8

/* Name of an engine: "gfx", "compute", "dma", "decode", "encode", "jpeg", "vpe"; NULL when there is no such number. */
DTK_API const char *dtk_engine_name(int engine);

/* A process that uses a card. Numbers that are not known are -1, strings that are not known are empty. */
typedef struct dtk_process {
    int32_t pid;          /* as the root's proc numbers it; unless `status` is OK or DENIED, as KFD does: the host's */
    int32_t parent;       /* pid of its parent */
    int32_t ns_pid;       /* in its own PID namespace, when that is not the one of the root's proc */
    int32_t host_pid;     /* as KFD numbers it; -1 also for a process that KFD does not know */
    int64_t uid;          /* effective user */
    uint64_t start_ticks; /* start in clock ticks since boot; with the pid it names a process. 0 not known */
    double start_time;    /* the same in Unix seconds */
    uint8_t status;       /* enum dtk_status: OK; DENIED this user may not look at it; GONE it has ended and KFD still
                             holds it; UNSUPPORTED the root has no proc, or that of another PID namespace; FAILED */
    char state;           /* R, S, D, Z, T, t, I as in proc; 0 not known */
    uint8_t command_cut;  /* 1: `command` is the beginning of a longer one */
    uint8_t reserved[5];  /* 0 */
    char name[64];
    char user[32];       /* name of uid in etc/passwd below the root */
    char command[256];   /* arguments with blanks between; "" for a kernel thread or a zombie */
    char container[72];  /* id, mostly 64 hexadecimal digits */
    char runtime[16];    /* of the container: "docker", "containerd", "crio", "podman", "lxc" */
    char pod[40];        /* uid of its Kubernetes pod */
    char slurm_job[16];  /* "1234" */
    char slurm_step[16]; /* "0", "batch", "extern" */
    char unit[64];       /* innermost systemd service or scope */
} dtk_process;

/* What one process uses of one device. In each reading `source` is DTK_SCAN_KFD, _FDINFO or _RSMI. Statuses: OK;
 * UNSUPPORTED none of the places that were asked has it; DENIED; FAILED. Type: u64. */
typedef struct dtk_usage {
    int32_t process;    /* index among the processes of the same scan */
    int32_t device;     /* index of the device when the scan began */
    uint32_t sources;   /* where it was seen: DTK_SCAN_KFD | DTK_SCAN_FDINFO */
    int32_t queues;     /* compute queues; -1 not known */
    char uuid[32];      /* of the device */
    dtk_value vram;     /* B of device memory */
    dtk_value gtt;      /* B of system memory mapped for the device */
    dtk_value cu_count; /* compute units with at least one wave, at this instant */
    dtk_value sdma;     /* ns of copying by the queues of KFD, since the process began to use the device */
    dtk_value evicted;  /* ms for which its queues were evicted, since then */
    dtk_value engine[DTK_ENGINE_ROOM]; /* ns of work, since its files were opened; by enum dtk_engine */
    dtk_value utilization;             /* % of the card it keeps busy; f64, of DTK_SCAN_RSMI alone */
} dtk_usage;

/* A scan as a whole. */
typedef struct dtk_scan {
    int32_t processes;       /* rows of dtk_tracker_processes() */
    int32_t usages;          /* rows of dtk_tracker_usages() */
    int32_t hidden;          /* processes that may use a card unseen, since their descriptors may not be looked at */
    uint32_t hidden_reasons; /* DTK_HIDDEN_* bits; set also where nobody can tell how many */
    int32_t full;            /* 1: every process was looked at; 0: new ones and known users */
    int32_t truncated;       /* 1: there is more of something than this library takes; rows may be missing */
    uint8_t kfd, fdinfo;     /* enum dtk_status of each place: OK; UNSUPPORTED it is not there or was not asked; DENIED;
                                FAILED */
    uint8_t reserved[6];     /* 0 */
} dtk_scan;

/* Finds the processes that use the devices of a system, again and again; it remembers which ones do not, to leave them
 * out until they are due. One call a tracker at a time. Close it before its system. Errors: NO_MEMORY. */
typedef struct dtk_tracker dtk_tracker;
DTK_API int dtk_tracker_open(dtk_system *system, dtk_tracker **ret);

/* Free a tracker. NULL is ignored. */
DTK_API void dtk_tracker_close(dtk_tracker *tracker);

/* Look for processes in some places (DTK_SCAN_*) and keep what was found until the next scan. Returns 0, also when
 * nothing could be seen: `ret`, which may be NULL, says why. A process that ends meanwhile is left out. A process that
 * only has a card open, with no queue, no memory and no work done, does not use it.
 * Every process is looked at in the first scan, with DTK_SCAN_FULL, and when it is due: every 5 s, or less often where
 * that takes more than a tenth of a second. In between, new processes, known users and those of KFD.
 * Memory is the larger of what KFD and fdinfo tell, since KFD's is part of fdinfo's. Files that several processes share
 * count for the oldest of them. Nothing but text files is opened. DTK_SCAN_RSMI asks the library that the system was
 * opened with once for each row: it may take its time, and do all that is said of it above.
 * Source files: sys/class/kfd/kfd/proc/<pid>/{vram_<gpu_id>,sdma_<gpu_id>,pasid,pasid_<gpu_id>,queues/<n>/gpuid,
 * stats_<gpu_id>/{cu_occupancy,evicted_ms}}; proc/<pid>/{fd,fdinfo/<n>,stat,status,cmdline,cgroup}; proc/stat,
 * proc/self/ns/pid, proc/2/{stat,task/2/children}; etc/passwd.
 * Errors: INVALID_ARGUMENT no place or an unknown flag; NO_MEMORY, then there are no rows. */
DTK_API int dtk_tracker_scan(dtk_tracker *tracker, uint32_t flags, dtk_scan *ret, size_t size);

/* The processes of the last scan, by pid, and what each uses, in the order of processes and devices; at most `count`
 * into `ret`, each `size` bytes. Return how many there are. */
DTK_API int dtk_tracker_processes(const dtk_tracker *tracker, dtk_process *ret, size_t size, size_t count);
DTK_API int dtk_tracker_usages(const dtk_tracker *tracker, dtk_usage *ret, size_t size, size_t count);

/* ---- Virtual devices of Hygon cards (vDCU) ---- */

/* Where dtk_virtuals_read() looks, and what a reading came from. Read only; untested on a card. */
#define DTK_VIRTUAL_FILES 0x1u   /* etc/vdev/vdev<n>.conf below the root: what was set up; no use, no owner */
#define DTK_VIRTUAL_LIBRARY 0x2u /* Hygon's libhydmi.so, of this machine alone */

/* A virtual device. Numbers that are not known are -1, strings that are not known are empty.
 * In each reading `source` is DTK_VIRTUAL_FILES or DTK_VIRTUAL_LIBRARY. Statuses: OK; UNSUPPORTED none of the places has
 * it; DENIED; GONE the library does not know the device of a file; FAILED. `detail` may be DTK_DETAIL_DMI + a status of
 * the library. */
typedef struct dtk_virtual {
    int32_t id;              /* N of vdev<N> */
    int32_t card;            /* index of its card; -1 it is not there, or nobody says which it is */
    int32_t device;          /* number of its card, as Hygon's tools count them */
    int32_t pipe;            /* of the card, that it uses */
    int32_t enabled;         /* 1 or 0 */
    uint32_t sources;        /* where it was seen: DTK_VIRTUAL_FILES | DTK_VIRTUAL_LIBRARY */
    char bdf[24];            /* PCI address of its card, also of one that is not there */
    char name[96];           /* what the library calls it */
    char container[24];      /* number of the container that owns it: 0x1234abcd */
    dtk_value compute_units; /* u64; 0 when it shares all of its card's */
    dtk_value memory_total;  /* u64, B */
    dtk_value memory_used;   /* u64, B; from the library alone */
    dtk_value utilization;   /* f64, %; from the library alone */
} dtk_virtual;

/* What a card has left for virtual devices, which the library alone knows. */
typedef struct dtk_virtual_card {
    int32_t card;                 /* index of the card; -1 not known which one it is */
    int32_t device;               /* its number, as Hygon's tools count them */
    dtk_value compute_units_free; /* u64 */
    dtk_value memory_free;        /* u64, B */
} dtk_virtual_card;

/* A look as a whole. */
typedef struct dtk_virtual_scan {
    int32_t devices;        /* rows of dtk_virtuals_devices() */
    int32_t cards;          /* rows of dtk_virtuals_cards() */
    int32_t counted;        /* virtual devices that the library counts; -1 not known */
    int32_t most;           /* virtual devices that a card can have; -1 not known */
    int32_t truncated;      /* 1: there are more than this library takes */
    int32_t skipped;        /* configuration files that could not be used */
    int32_t skipped_detail; /* why, of the first: an errno (EEXIST: a second one of a device), or an enum dtk_detail */
    int32_t files_detail;   /* errno, when `files` is FAILED */
    int32_t library_detail; /* status of `call`, the library's own; -1 the library has no such function */
    int32_t node;           /* /dev/mkfd, looked at when the library could not begin: 1 there, 0 not, -1 not asked */
    uint8_t files;          /* enum dtk_status: OK; UNSUPPORTED no etc/vdev, or it was not asked; DENIED; FAILED */
    uint8_t library;        /* enum dtk_status: OK; UNSUPPORTED it was not asked, or says so; NOT_FOUND there is none;
                               LIBRARY it cannot be loaded; DENIED; FAILED */
    uint8_t named;          /* 1: there was another `library` asked for, which cannot be loaded */
    uint8_t reserved[5];    /* 0 */
    char first_skipped[64]; /* path of the first of these files */
    char call[40];          /* function of the library that failed, "" none */
    char path[256];         /* of the library that was loaded */
    char message[256];      /* why one could not be loaded, in the words of the linker */
} dtk_virtual_scan;

/* Look for virtual devices in some places (DTK_VIRTUAL_*), once. Free what it gives before its system.
 * `library` is a path of libhydmi.so, NULL the known places: /opt/hyhal/lib, /usr/local/hyhal/lib, /opt/dtk/.hyhal/lib
 * and where the linker looks; they come next too when there is none at that path. It is loaded by dlopen(RTLD_LOCAL)
 * when the root is this machine's and has a Hygon card, or a path is given; it stays loaded, opens /dev/mkfd, runs ps
 * and lsmod, keeps a lock file in /tmp, and may print, block or end the process: call it where that does no harm.
 * Of the library only what reads is called: dmiGetDeviceCount, dmiGetMaxVDeviceCount, dmiGetVDeviceCount,
 * dmiGetDeviceRemainingInfo, dmiGetVDeviceInfo, dmiGetVDevBusyPercent.
 * It does not say which card is which. A virtual device is on the card that its file names; else the library's cards are
 * taken for the Hygon cards in the order of their KFD nodes, when it has as many.
 * Errors: INVALID_ARGUMENT no place or an unknown one; NO_MEMORY. That nothing could be seen is none: see the scan. */
typedef struct dtk_virtuals dtk_virtuals;
DTK_API int dtk_virtuals_read(dtk_system *system, uint32_t places, const char *library, dtk_virtuals **ret);

/* Free a look. NULL is ignored. */
DTK_API void dtk_virtuals_free(dtk_virtuals *virtuals);

/* The look as a whole. `size` is sizeof(dtk_virtual_scan). */
DTK_API int dtk_virtuals_scan(const dtk_virtuals *virtuals, dtk_virtual_scan *ret, size_t size);

/* The virtual devices by number, and the cards as the library counts them; at most `count` into `ret`, each `size`
 * bytes. Return how many there are. */
DTK_API int dtk_virtuals_devices(const dtk_virtuals *virtuals, dtk_virtual *ret, size_t size, size_t count);
DTK_API int dtk_virtuals_cards(const dtk_virtuals *virtuals, dtk_virtual_card *ret, size_t size, size_t count);

#ifdef __cplusplus
}
#endif

#endif
