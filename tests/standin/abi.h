/* The structs of librocm_smi64 by ABI generation, and what a generation has. -DGENERATION= chooses one. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define AMD5 1
#define AMD6 2
#define AMD7 3
#define HYGON62 4
#define HYGON63 5

#define IS_HYGON (GENERATION == HYGON62 || GENERATION == HYGON63)
#define SINCE_AMD6 (GENERATION == AMD6 || GENERATION == AMD7 || GENERATION == HYGON63)

#if SINCE_AMD6
enum { FREQUENCIES = 33 };
#define SIZES(old, since_amd6, hygon63) (GENERATION == HYGON63 ? (hygon63) : (since_amd6))
#else
enum { FREQUENCIES = 32 };
#define SIZES(old, since_amd6, hygon63) (old)
#endif

struct version {
    uint32_t major, minor, patch;
    const char *build;
};

struct frequencies {
#if SINCE_AMD6
    bool has_deep_sleep;
#endif
    uint32_t count, current;
    uint64_t hertz[FREQUENCIES];
};

struct pcie_bandwidth {
    struct frequencies rates;
    uint32_t lanes[FREQUENCIES];
};

struct error_count {
    uint64_t correctable, uncorrectable;
#if GENERATION == HYGON63
    uint64_t deferred, reserved[5];
#endif
};

struct utilization_counter {
    uint32_t type;
    uint64_t value;
#if GENERATION == HYGON63
    uint64_t fine_values[4];
    uint16_t fine_count;
#endif
};

struct page {
    uint64_t address, size;
    uint32_t status;
};

struct process {
    uint32_t pid, pasid;
    uint64_t vram, sdma;
    uint32_t compute_units;
};

struct activity {
    uint16_t gfx, umc, mm;
};

struct process_v2 {
    uint32_t pid;
    uint64_t vram;
    float vram_rate;
    int32_t device_count;
    int32_t devices[16];
    float rates[16];
};

struct df_bandwidth {
    double read, write, read_write;
};

struct xhcl_bandwidth {
    double links[7];
};

struct shader_engines {
    float percent[8];
};

struct hygon_version {
    uint32_t major, minor;
};

struct identifiers {
    uint64_t words[9];
};

_Static_assert(sizeof(struct version) == 24, "rsmi_version_t");
_Static_assert(sizeof(struct frequencies) == SIZES(264, 280, 280), "rsmi_frequencies_t");
_Static_assert(sizeof(struct pcie_bandwidth) == SIZES(392, 416, 416), "rsmi_pcie_bandwidth_t");
_Static_assert(sizeof(struct error_count) == SIZES(16, 16, 64), "rsmi_error_count_t");
_Static_assert(sizeof(struct utilization_counter) == SIZES(16, 16, 56), "rsmi_utilization_counter_t");
_Static_assert(sizeof(struct page) == 24, "rsmi_retired_page_record_t");
_Static_assert(sizeof(struct process) == 32, "rsmi_process_info_t");
_Static_assert(sizeof(struct process_v2) == 152, "rsmi_process_info_v2_t");
_Static_assert(sizeof(struct activity) == 6, "rsmi_activity_metric_counter_t");
_Static_assert(sizeof(struct df_bandwidth) == 24, "rsmi_df_bandwidth_info_t");
_Static_assert(sizeof(struct xhcl_bandwidth) == 56, "rsmi_xhcl_bandwidth_info_t");
_Static_assert(sizeof(struct identifiers) == 72, "rsmi_device_identifiers_t");
