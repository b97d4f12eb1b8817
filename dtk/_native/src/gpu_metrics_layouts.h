/* Where each revision of gpu_metrics keeps what we use of it. Only gpu_metrics.c includes this. */
#ifndef DTK_GPU_METRICS_LAYOUTS_H
#define DTK_GPU_METRICS_LAYOUTS_H

#include "gpu_metrics.h"

/* Types of numbers, as version 1.9 counts them: 2^(type / 2) bytes, signed when odd. */
enum type { U8 = 0, U16 = 2, U32 = 4, U64 = 6, TYPE_COUNT = 8 };

/* What a field's number means. */
enum how {
    COUNT,         /* u64; of several elements the first valid */
    PLAIN,         /* already in our unit; of several elements the highest */
    CELSIUS,       /* of several elements the highest */
    CELSIUS_EACH,  /* each element has a field of its own */
    CENTI_CELSIUS, /* APUs */
    PERCENT,       /* of all elements of all rows of a field the mean */
    CENTI_PERCENT,
    EITHER_PERCENT, /* hundredths when above 100: which one depends on the firmware */
    MILLIWATT,
    ENERGY, /* 2^-16 J */
    LINK    /* 0.1 GT/s */
};

struct row {
    uint8_t field, type, count, how; /* enums table_field, type, how */
    uint16_t offset;
};

/* clang-format off */
#define ROW(offset, type, count, field, how) {TABLE_##field, type, count, how, offset}

/* ---- Discrete cards. Where two rows give the same field, the first valid one counts. ---- */

static const struct row rows_1_0[] = { /* its energy is in a unit of the firmware's own */
    ROW(16, U16, 1, TEMPERATURE_EDGE, CELSIUS),
    ROW(18, U16, 1, TEMPERATURE_HOTSPOT, CELSIUS),
    ROW(20, U16, 1, TEMPERATURE_MEMORY, CELSIUS),
    ROW(22, U16, 1, TEMPERATURE_VR_GFX, CELSIUS),
    ROW(24, U16, 1, TEMPERATURE_VR_SOC, CELSIUS),
    ROW(26, U16, 1, TEMPERATURE_VR_MEMORY, CELSIUS),
    ROW(28, U16, 1, GFX_ACTIVITY, PERCENT),
    ROW(30, U16, 1, MEMORY_ACTIVITY, PERCENT),
    ROW(32, U16, 1, MEDIA_ACTIVITY, PERCENT),
    ROW(34, U16, 1, POWER_AVERAGE, PLAIN),
    ROW(54, U16, 1, CLOCK_GFX, PLAIN),
    ROW(40, U16, 1, CLOCK_GFX, PLAIN),
    ROW(56, U16, 1, CLOCK_SOC, PLAIN),
    ROW(42, U16, 1, CLOCK_SOC, PLAIN),
    ROW(58, U16, 1, CLOCK_MEMORY, PLAIN),
    ROW(44, U16, 1, CLOCK_MEMORY, PLAIN),
    ROW(60, U16, 1, CLOCK_VIDEO, PLAIN),
    ROW(46, U16, 1, CLOCK_VIDEO, PLAIN),
    ROW(72, U16, 1, FAN_RPM, PLAIN),
    ROW(74, U8, 1, LINK_WIDTH, COUNT),
    ROW(75, U8, 1, LINK_SPEED, LINK),
};

static const struct row rows_1_1[] = { /* to 1.3 */
    ROW(4, U16, 1, TEMPERATURE_EDGE, CELSIUS),
    ROW(6, U16, 1, TEMPERATURE_HOTSPOT, CELSIUS),
    ROW(8, U16, 1, TEMPERATURE_MEMORY, CELSIUS),
    ROW(10, U16, 1, TEMPERATURE_VR_GFX, CELSIUS),
    ROW(12, U16, 1, TEMPERATURE_VR_SOC, CELSIUS),
    ROW(14, U16, 1, TEMPERATURE_VR_MEMORY, CELSIUS),
    ROW(16, U16, 1, GFX_ACTIVITY, PERCENT),
    ROW(18, U16, 1, MEMORY_ACTIVITY, PERCENT),
    ROW(20, U16, 1, MEDIA_ACTIVITY, PERCENT),
    ROW(22, U16, 1, POWER_AVERAGE, PLAIN),
    ROW(24, U64, 1, ENERGY, ENERGY),
    ROW(54, U16, 1, CLOCK_GFX, PLAIN),
    ROW(40, U16, 1, CLOCK_GFX, PLAIN),
    ROW(56, U16, 1, CLOCK_SOC, PLAIN),
    ROW(42, U16, 1, CLOCK_SOC, PLAIN),
    ROW(58, U16, 1, CLOCK_MEMORY, PLAIN),
    ROW(44, U16, 1, CLOCK_MEMORY, PLAIN),
    ROW(60, U16, 1, CLOCK_VIDEO, PLAIN),
    ROW(46, U16, 1, CLOCK_VIDEO, PLAIN),
    ROW(72, U16, 1, FAN_RPM, PLAIN),
    ROW(74, U16, 1, LINK_WIDTH, COUNT),
    ROW(76, U16, 1, LINK_SPEED, LINK),
    ROW(88, U16, 4, TEMPERATURE_HBM0, CELSIUS_EACH),
};

static const struct row rows_1_3[] = {
    ROW(104, U16, 1, VOLTAGE_SOC, PLAIN),
    ROW(106, U16, 1, VOLTAGE_GFX, PLAIN),
    ROW(108, U16, 1, VOLTAGE_MEMORY, PLAIN),
    ROW(112, U64, 1, THROTTLE_STATUS, COUNT),
};

/* ---- MI300 and later ---- */

static const struct row rows_1_4_head[] = { /* to 1.8 */
    ROW(4, U16, 1, TEMPERATURE_HOTSPOT, CELSIUS),
    ROW(6, U16, 1, TEMPERATURE_MEMORY, CELSIUS),
    ROW(8, U16, 1, TEMPERATURE_VR_SOC, CELSIUS),
    ROW(10, U16, 1, POWER_CURRENT, PLAIN),
    ROW(12, U16, 1, GFX_ACTIVITY, PERCENT),
    ROW(14, U16, 1, MEMORY_ACTIVITY, PERCENT),
};

static const struct row rows_1_4[] = {
    ROW(16, U16, 4, MEDIA_ACTIVITY, PERCENT),
    ROW(24, U64, 1, ENERGY, ENERGY),
    ROW(48, U16, 1, LINK_WIDTH, COUNT),
    ROW(50, U16, 1, LINK_SPEED, LINK),
    ROW(88, U64, 1, PCIE_REPLAYS, COUNT),
    ROW(240, U16, 8, CLOCK_GFX, PLAIN),
    ROW(256, U16, 4, CLOCK_SOC, PLAIN),
    ROW(264, U16, 4, CLOCK_VIDEO, PLAIN),
    ROW(280, U16, 1, CLOCK_MEMORY, PLAIN),
};

static const struct row rows_1_5[] = {
    ROW(16, U16, 4, MEDIA_ACTIVITY, PERCENT),
    ROW(24, U16, 32, MEDIA_ACTIVITY, PERCENT),
    ROW(88, U64, 1, ENERGY, ENERGY),
    ROW(112, U16, 1, LINK_WIDTH, COUNT),
    ROW(114, U16, 1, LINK_SPEED, LINK),
    ROW(152, U64, 1, PCIE_REPLAYS, COUNT),
    ROW(312, U16, 8, CLOCK_GFX, PLAIN),
    ROW(328, U16, 4, CLOCK_SOC, PLAIN),
    ROW(336, U16, 4, CLOCK_VIDEO, PLAIN),
    ROW(352, U16, 1, CLOCK_MEMORY, PLAIN),
};

static const struct row rows_1_6[] = {
    ROW(16, U64, 1, ENERGY, ENERGY),
    ROW(32, U32, 1, ACCUMULATION_COUNTER, COUNT),
    ROW(36, U32, 1, PROCHOT_RESIDENCY, COUNT),
    ROW(40, U32, 1, PPT_RESIDENCY, COUNT),
    ROW(44, U32, 1, SOCKET_THERMAL_RESIDENCY, COUNT),
    ROW(48, U32, 1, VR_THERMAL_RESIDENCY, COUNT),
    ROW(52, U32, 1, HBM_THERMAL_RESIDENCY, COUNT),
    ROW(60, U16, 1, LINK_WIDTH, COUNT),
    ROW(62, U16, 1, LINK_SPEED, LINK),
    ROW(104, U64, 1, PCIE_REPLAYS, COUNT),
    ROW(264, U16, 8, CLOCK_GFX, PLAIN),
    ROW(280, U16, 4, CLOCK_SOC, PLAIN),
    ROW(288, U16, 4, CLOCK_VIDEO, PLAIN),
    ROW(304, U16, 1, CLOCK_MEMORY, PLAIN),
};

static const struct row rows_1_7[] = { /* and 1.8 */
    ROW(24, U64, 1, ENERGY, ENERGY),
    ROW(40, U32, 1, ACCUMULATION_COUNTER, COUNT),
    ROW(44, U32, 1, PROCHOT_RESIDENCY, COUNT),
    ROW(48, U32, 1, PPT_RESIDENCY, COUNT),
    ROW(52, U32, 1, SOCKET_THERMAL_RESIDENCY, COUNT),
    ROW(56, U32, 1, VR_THERMAL_RESIDENCY, COUNT),
    ROW(60, U32, 1, HBM_THERMAL_RESIDENCY, COUNT),
    ROW(68, U16, 1, LINK_WIDTH, COUNT),
    ROW(70, U16, 1, LINK_SPEED, LINK),
    ROW(112, U64, 1, PCIE_REPLAYS, COUNT),
    ROW(296, U16, 8, CLOCK_GFX, PLAIN),
    ROW(312, U16, 4, CLOCK_SOC, PLAIN),
    ROW(320, U16, 4, CLOCK_VIDEO, PLAIN),
    ROW(336, U16, 1, CLOCK_MEMORY, PLAIN),
};

/* ---- APUs. Their firmware counts activity in hundredths of a percent and the driver passes that on; only Van Gogh's
 * later firmware (2.2 and up) counts percent. ---- */

static const struct row rows_2_0[] = {
    ROW(16, U16, 1, TEMPERATURE_EDGE, CENTI_CELSIUS),
    ROW(18, U16, 1, TEMPERATURE_SOC, CENTI_CELSIUS),
    ROW(40, U16, 1, GFX_ACTIVITY, CENTI_PERCENT),
    ROW(42, U16, 1, MEDIA_ACTIVITY, CENTI_PERCENT),
    ROW(44, U16, 1, POWER_AVERAGE, MILLIWATT),
    ROW(80, U16, 1, CLOCK_GFX, PLAIN),
    ROW(68, U16, 1, CLOCK_GFX, PLAIN),
    ROW(82, U16, 1, CLOCK_SOC, PLAIN),
    ROW(70, U16, 1, CLOCK_SOC, PLAIN),
    ROW(84, U16, 1, CLOCK_MEMORY, PLAIN),
    ROW(72, U16, 1, CLOCK_MEMORY, PLAIN),
    ROW(86, U16, 1, CLOCK_FABRIC, PLAIN),
    ROW(74, U16, 1, CLOCK_FABRIC, PLAIN),
    ROW(88, U16, 1, CLOCK_VIDEO, PLAIN),
    ROW(76, U16, 1, CLOCK_VIDEO, PLAIN),
};

static const struct row rows_2_1[] = { /* to 2.4 */
    ROW(4, U16, 1, TEMPERATURE_EDGE, CENTI_CELSIUS),
    ROW(6, U16, 1, TEMPERATURE_SOC, CENTI_CELSIUS),
    ROW(40, U16, 1, POWER_AVERAGE, MILLIWATT),
    ROW(76, U16, 1, CLOCK_GFX, PLAIN),
    ROW(64, U16, 1, CLOCK_GFX, PLAIN),
    ROW(78, U16, 1, CLOCK_SOC, PLAIN),
    ROW(66, U16, 1, CLOCK_SOC, PLAIN),
    ROW(80, U16, 1, CLOCK_MEMORY, PLAIN),
    ROW(68, U16, 1, CLOCK_MEMORY, PLAIN),
    ROW(82, U16, 1, CLOCK_FABRIC, PLAIN),
    ROW(70, U16, 1, CLOCK_FABRIC, PLAIN),
    ROW(84, U16, 1, CLOCK_VIDEO, PLAIN),
    ROW(72, U16, 1, CLOCK_VIDEO, PLAIN),
};

static const struct row rows_2_1_hundredths[] = {
    ROW(28, U16, 1, GFX_ACTIVITY, CENTI_PERCENT),
    ROW(30, U16, 1, MEDIA_ACTIVITY, CENTI_PERCENT),
};

static const struct row rows_2_1_percent[] = {
    ROW(28, U16, 1, GFX_ACTIVITY, EITHER_PERCENT),
    ROW(30, U16, 1, MEDIA_ACTIVITY, EITHER_PERCENT),
};

static const struct row rows_2_2[] = {
    ROW(120, U64, 1, THROTTLE_STATUS, COUNT),
};

static const struct row rows_2_4[] = {
    ROW(154, U16, 1, VOLTAGE_SOC, PLAIN),
    ROW(156, U16, 1, VOLTAGE_GFX, PLAIN),
};

static const struct row rows_3_0[] = { /* the driver divides video by 100 always, graphics for old firmware only */
    ROW(4, U16, 1, TEMPERATURE_EDGE, CENTI_CELSIUS),
    ROW(6, U16, 1, TEMPERATURE_SOC, CENTI_CELSIUS),
    ROW(42, U16, 1, GFX_ACTIVITY, EITHER_PERCENT),
    ROW(44, U16, 1, MEDIA_ACTIVITY, CENTI_PERCENT),
    ROW(112, U32, 1, POWER_AVERAGE, MILLIWATT),
    ROW(174, U16, 1, CLOCK_GFX, PLAIN),
    ROW(176, U16, 1, CLOCK_SOC, PLAIN),
    ROW(182, U16, 1, CLOCK_FABRIC, PLAIN),
    ROW(184, U16, 1, CLOCK_VIDEO, PLAIN),
    ROW(186, U16, 1, CLOCK_MEMORY, PLAIN),
    ROW(228, U32, 1, PROCHOT_RESIDENCY, COUNT),
    ROW(232, U32, 1, SPL_RESIDENCY, COUNT),
    ROW(236, U32, 1, FPPT_RESIDENCY, COUNT),
    ROW(240, U32, 1, SPPT_RESIDENCY, COUNT),
    ROW(244, U32, 1, CORE_THERMAL_RESIDENCY, COUNT),
    ROW(248, U32, 1, GFX_THERMAL_RESIDENCY, COUNT),
    ROW(252, U32, 1, SOC_THERMAL_RESIDENCY, COUNT),
};

/* ---- Revisions ---- */

struct revision {
    uint8_t format, content;
    uint16_t size;
    uint16_t marker; /* offset of a u16 that must be valid for this row to be the one; 0 no condition */
    struct {
        const struct row *rows;
        size_t count;
    } part[4];
    struct {
        uint16_t offset, size, jpegs; /* of a partition's statistics, and how many JPEG engines they have */
    } partition;
};

#define PART(rows) {rows, sizeof rows / sizeof rows[0]}

static const struct revision revisions[] = {
    {1, 0, 80, 0, {PART(rows_1_0)}, {0}},
    {1, 1, 96, 0, {PART(rows_1_1)}, {0}},
    {1, 2, 104, 0, {PART(rows_1_1)}, {0}},
    {1, 3, 120, 0, {PART(rows_1_1), PART(rows_1_3)}, {0}},
    {1, 4, 288, 0, {PART(rows_1_4_head), PART(rows_1_4)}, {0}},
    {1, 5, 360, 0, {PART(rows_1_4_head), PART(rows_1_5)}, {0}},
    {1, 6, 312, 0, {PART(rows_1_4_head), PART(rows_1_6)}, {0}}, /* an interim build without partitions */
    {1, 6, 1664, 0, {PART(rows_1_4_head), PART(rows_1_6)}, {312, 168, 32}},
    {1, 7, 2208, 0, {PART(rows_1_4_head), PART(rows_1_7)}, {344, 232, 32}},
    {1, 8, 3872, 0, {PART(rows_1_4_head), PART(rows_1_7)}, {344, 440, 40}},
    {2, 0, 120, 0, {PART(rows_2_0)}, {0}},
    {2, 1, 120, 0, {PART(rows_2_1), PART(rows_2_1_hundredths)}, {0}},
    {2, 2, 128, 26, {PART(rows_2_1), PART(rows_2_1_hundredths), PART(rows_2_2)}, {0}}, /* second L3 cache: Renoir */
    {2, 2, 128, 0, {PART(rows_2_1), PART(rows_2_1_percent), PART(rows_2_2)}, {0}},     /* Van Gogh */
    {2, 3, 152, 0, {PART(rows_2_1), PART(rows_2_1_percent), PART(rows_2_2)}, {0}},
    {2, 4, 168, 0, {PART(rows_2_1), PART(rows_2_1_percent), PART(rows_2_2), PART(rows_2_4)}, {0}},
    {3, 0, 264, 0, {PART(rows_3_0)}, {0}},
};

/* ---- Attributes of version 1.9. A record in another unit than the one we know is left out. ---- */

enum unit { UNIT_NONE = 0, UNIT_MHZ = 1, UNIT_CELSIUS = 2, UNIT_WATT = 3, UNIT_TENTH_GTS = 7, UNIT_PERCENT = 10 };

static const struct attribute {
    uint8_t number, unit, field, how;
} attributes[] = {
#define ATTRIBUTE(number, unit, field, how) {number, unit, TABLE_##field, how}
    ATTRIBUTE(0, UNIT_CELSIUS, TEMPERATURE_HOTSPOT, CELSIUS),
    ATTRIBUTE(1, UNIT_CELSIUS, TEMPERATURE_MEMORY, CELSIUS),
    ATTRIBUTE(2, UNIT_CELSIUS, TEMPERATURE_VR_SOC, CELSIUS),
    ATTRIBUTE(3, UNIT_WATT, POWER_CURRENT, PLAIN),
    ATTRIBUTE(4, UNIT_PERCENT, GFX_ACTIVITY, PERCENT),
    ATTRIBUTE(5, UNIT_PERCENT, MEMORY_ACTIVITY, PERCENT),
    ATTRIBUTE(7, UNIT_NONE, ENERGY, ENERGY),
    ATTRIBUTE(9, UNIT_NONE, ACCUMULATION_COUNTER, COUNT),
    ATTRIBUTE(10, UNIT_NONE, PROCHOT_RESIDENCY, COUNT),
    ATTRIBUTE(11, UNIT_NONE, PPT_RESIDENCY, COUNT),
    ATTRIBUTE(12, UNIT_NONE, SOCKET_THERMAL_RESIDENCY, COUNT),
    ATTRIBUTE(13, UNIT_NONE, VR_THERMAL_RESIDENCY, COUNT),
    ATTRIBUTE(14, UNIT_NONE, HBM_THERMAL_RESIDENCY, COUNT),
    ATTRIBUTE(16, UNIT_NONE, LINK_WIDTH, COUNT),
    ATTRIBUTE(17, UNIT_TENTH_GTS, LINK_SPEED, LINK),
    ATTRIBUTE(25, UNIT_NONE, PCIE_REPLAYS, COUNT),
    ATTRIBUTE(33, UNIT_MHZ, CLOCK_GFX, PLAIN),
    ATTRIBUTE(34, UNIT_MHZ, CLOCK_SOC, PLAIN),
    ATTRIBUTE(35, UNIT_MHZ, CLOCK_VIDEO, PLAIN),
    ATTRIBUTE(37, UNIT_MHZ, CLOCK_MEMORY, PLAIN),
    ATTRIBUTE(41, UNIT_PERCENT, MEDIA_ACTIVITY, PERCENT), /* JPEG */
    ATTRIBUTE(42, UNIT_PERCENT, MEDIA_ACTIVITY, PERCENT), /* video */
    ATTRIBUTE(48, UNIT_CELSIUS, TEMPERATURE_HBM0, CELSIUS_EACH),
};
/* clang-format on */

#endif
