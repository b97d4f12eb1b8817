/* The kernel's gpu_metrics table: one binary file with most of what a card's firmware measures. */
#ifndef DTK_GPU_METRICS_H
#define DTK_GPU_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What we use of it, the same for all revisions. f64 unless it says u64. */
enum table_field {
    TABLE_GFX_ACTIVITY, /* % */
    TABLE_MEMORY_ACTIVITY,
    TABLE_MEDIA_ACTIVITY,   /* mean of the video and JPEG engines that answer */
    TABLE_TEMPERATURE_EDGE, /* degrees C; on an APU the graphics core */
    TABLE_TEMPERATURE_HOTSPOT,
    TABLE_TEMPERATURE_MEMORY,
    TABLE_TEMPERATURE_SOC,
    TABLE_TEMPERATURE_VR_GFX,
    TABLE_TEMPERATURE_VR_SOC,
    TABLE_TEMPERATURE_VR_MEMORY,
    TABLE_TEMPERATURE_HBM0, /* the four follow each other */
    TABLE_TEMPERATURE_HBM1,
    TABLE_TEMPERATURE_HBM2,
    TABLE_TEMPERATURE_HBM3,
    TABLE_POWER_CURRENT, /* W */
    TABLE_POWER_AVERAGE,
    TABLE_ENERGY,    /* J */
    TABLE_CLOCK_GFX, /* MHz, of several dies the highest; the average where there is no current one */
    TABLE_CLOCK_MEMORY,
    TABLE_CLOCK_SOC,
    TABLE_CLOCK_FABRIC,
    TABLE_CLOCK_VIDEO,
    TABLE_VOLTAGE_GFX, /* mV */
    TABLE_VOLTAGE_SOC,
    TABLE_VOLTAGE_MEMORY,
    TABLE_FAN_RPM,
    TABLE_LINK_SPEED,           /* GT/s */
    TABLE_LINK_WIDTH,           /* u64, lanes */
    TABLE_PCIE_REPLAYS,         /* u64 */
    TABLE_THROTTLE_STATUS,      /* u64, the ASIC-independent bits */
    TABLE_ACCUMULATION_COUNTER, /* u64, firmware ticks, as are the residencies */
    TABLE_PROCHOT_RESIDENCY,
    TABLE_PPT_RESIDENCY,
    TABLE_SOCKET_THERMAL_RESIDENCY,
    TABLE_VR_THERMAL_RESIDENCY,
    TABLE_HBM_THERMAL_RESIDENCY,
    TABLE_SPL_RESIDENCY,
    TABLE_FPPT_RESIDENCY,
    TABLE_SPPT_RESIDENCY,
    TABLE_CORE_THERMAL_RESIDENCY,
    TABLE_GFX_THERMAL_RESIDENCY,
    TABLE_SOC_THERMAL_RESIDENCY,
    TABLE_FIELD_COUNT
};

#define PARTITIONS_MAX 8

struct table_value {
    union {
        double f64;
        uint64_t u64;
    };
    bool valid; /* false: this revision has no such field, the card does not fill it, or it cannot be true */
};

struct gpu_metrics {
    uint8_t format, content; /* the revision: 1, 3 is version 1.3 */
    struct table_value field[TABLE_FIELD_COUNT];
    struct {
        struct table_value gfx_activity, media_activity; /* f64, %; mean of the partition's engines that answer */
    } partition[PARTITIONS_MAX];                         /* versions 1.6 to 1.8 */
    bool torn; /* a temperature that cannot be true was left out: read once more, the rest may be as wrong */
};

/* Decode a table as it was read, of any revision from 1.0 to 1.9, 2.0 to 2.4 or 3.0. What follows it is ignored.
 * Returns 0; -DTK_FAILED when the table is damaged: shorter than it says, or not of the size its revision has;
 * -DTK_UNSUPPORTED for another revision, with format and content of `ret` set. */
int gpu_metrics_decode(const uint8_t *bytes, size_t len, struct gpu_metrics *ret);

#endif
