/* metrics.def, sources.def and rsmi.def as tables. */
#ifndef DTK_CATALOGUE_H
#define DTK_CATALOGUE_H

#include "dtk.h"

enum source {
    SOURCE_NONE,
#define SOURCE(id, place, name, argument, divisor) SOURCE_##id,
#include "sources.def"
    SOURCE_KERNEL_COUNT, /* what follows is asked of the vendor's library */
#include "rsmi.def"
#undef SOURCE
    SOURCE_COUNT
};

enum unit {
    UNIT_PERCENT,
    UNIT_BYTES,
    UNIT_CELSIUS,
    UNIT_WATT,
    UNIT_JOULE,
    UNIT_MEGAHERTZ,
    UNIT_MILLIVOLT,
    UNIT_RPM,
    UNIT_GIGATRANSFERS,
    UNIT_LANES,
    UNIT_COUNT,
    UNIT_BITMASK,
    UNIT_BYTES_PER_SECOND
};

enum { METRIC_SOURCES_MAX = 6 };

struct metric {
    dtk_metric_info info;
    enum unit unit;
    uint8_t source[METRIC_SOURCES_MAX + 1]; /* enum source; SOURCE_NONE after the last */
};

extern const struct metric metrics[DTK_METRIC_COUNT];

#endif
