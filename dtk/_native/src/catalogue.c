#include "catalogue.h"

#include <limits.h>
#include <stdbool.h>
#include <string.h>

/* ---- Metrics and their sources ---- */

/* The rows of metrics.def name sources without a prefix. */
enum {
#define SOURCE(id, place, name, argument, divisor) id = SOURCE_##id,
#include "rsmi.def"
#include "sources.def"
#undef SOURCE
};

static const char *const source_names[SOURCE_COUNT] = {
#define SOURCE(id, place, name, argument, divisor) [SOURCE_##id] = name,
#include "rsmi.def"
#include "sources.def"
#undef SOURCE
};

#define TEXT_PERCENT "%"
#define TEXT_BYTES "B"
#define TEXT_CELSIUS "C"
#define TEXT_WATT "W"
#define TEXT_JOULE "J"
#define TEXT_MEGAHERTZ "MHz"
#define TEXT_MILLIVOLT "mV"
#define TEXT_RPM "rpm"
#define TEXT_GIGATRANSFERS "GT/s"
#define TEXT_LANES ""
#define TEXT_COUNT ""
#define TEXT_BITMASK ""
#define TEXT_BYTES_PER_SECOND "B/s"

#define LIST(...) {__VA_ARGS__}

const struct metric metrics[DTK_METRIC_COUNT] = {
#define METRIC(number, name, unit, type, kind, tier, window, family, label, value, sources, help)                      \
    [number] = {{number, DTK_TYPE_##type, DTK_KIND_##kind, DTK_TIER_##tier, #name, TEXT_##unit, window, family, label, \
                 value, help},                                                                                         \
                UNIT_##unit,                                                                                           \
                LIST sources},
#include "metrics.def"
#undef METRIC
};

const dtk_metric_info *dtk_metric_describe(int metric)
{
    return metric >= 0 && metric < DTK_METRIC_COUNT ? &metrics[metric].info : NULL;
}

int dtk_metric_find(const char *name)
{
    for (int i = 0; name && i < DTK_METRIC_COUNT; i++)
        if (strcmp(metrics[i].info.name, name) == 0)
            return i;
    return name ? -DTK_NOT_FOUND : -DTK_INVALID_ARGUMENT;
}

const char *dtk_metric_source(int metric, int source)
{
    if (metric < 0 || metric >= DTK_METRIC_COUNT || source < 1 || source > METRIC_SOURCES_MAX)
        return NULL;
    return source_names[metrics[metric].source[source - 1]];
}

/* ---- Throttle bits: the kernel's ASIC-independent ones, amdgpu_smu.h ---- */

static const char *const throttle_bits[64] = {
    [0] = "ppt0",          [1] = "ppt1",          [2] = "ppt2",          [3] = "ppt3",         [4] = "spl",
    [5] = "fppt",          [6] = "sppt",          [7] = "sppt_apu",      [16] = "tdc_gfx",     [17] = "tdc_soc",
    [18] = "tdc_mem",      [19] = "tdc_vdd",      [20] = "tdc_cvip",     [21] = "edc_cpu",     [22] = "edc_gfx",
    [23] = "apcc",         [32] = "temp_gpu",     [33] = "temp_core",    [34] = "temp_mem",    [35] = "temp_edge",
    [36] = "temp_hotspot", [37] = "temp_soc",     [38] = "temp_vr_gfx",  [39] = "temp_vr_soc", [40] = "temp_vr_mem0",
    [41] = "temp_vr_mem1", [42] = "temp_liquid0", [43] = "temp_liquid1", [44] = "vrhot0",      [45] = "vrhot1",
    [46] = "prochot_cpu",  [47] = "prochot_gfx",  [56] = "ppm",          [57] = "fit",
};

const char *dtk_bit_name(int metric, int bit)
{
    return metric == DTK_METRIC_THROTTLE_STATUS && bit >= 0 && bit < 64 ? throttle_bits[bit] : NULL;
}

/* ---- Status ---- */

static const struct {
    const char *name, *text;
} statuses[] = {
#define STATUS(number, code, name, text, python) [number] = {name, text},
#include "status.def"
#undef STATUS
};

static int status_row(int status)
{
    int row = status == INT_MIN ? -1 : status < 0 ? -status : status;

    return row >= 0 && row < (int)(sizeof statuses / sizeof statuses[0]) ? row : -1;
}

const char *dtk_status_name(int status)
{
    int row = status_row(status);

    return row < 0 ? "unknown" : statuses[row].name;
}

const char *dtk_status_text(int status)
{
    int row = status_row(status);

    return row < 0 ? "a status this library does not know" : statuses[row].text;
}

uint32_t dtk_api_version(void)
{
    return DTK_API_VERSION;
}
