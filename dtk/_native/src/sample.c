/* One sample: each metric from the first of its sources that answers. */
#include <math.h>
#include <string.h>

#include "backend.h"

const struct reading *sample_read(struct sample *sample, enum source source)
{
    if (!sample->done[source]) {
        sample->done[source] = true;
        (source > SOURCE_KERNEL_COUNT ? rsmi_read : kernel_read)(sample, source);
    }
    return &sample->reading[source];
}

/* Dead firmware answers 511 degrees, 255 percent and all ones. Limits are far above what any card can have. */
static bool is_plausible(const struct metric *metric, double value)
{
    static const double limits[] = {
        [UNIT_PERCENT] = 100,
        [UNIT_BYTES] = 1e15,
        [UNIT_CELSIUS] = 500,
        [UNIT_WATT] = 1e5,
        [UNIT_JOULE] = 1e15,
        [UNIT_MEGAHERTZ] = 1e5,
        [UNIT_MILLIVOLT] = 1e5,
        [UNIT_RPM] = 1e6,
        [UNIT_GIGATRANSFERS] = 1e3,
        [UNIT_LANES] = 32,
        [UNIT_COUNT] = 1.9e19,
        [UNIT_BITMASK] = 1.9e19,
        [UNIT_BYTES_PER_SECOND] = 1e15,
    };

    return value >= (metric->unit == UNIT_CELSIUS ? -100 : 0) && value <= limits[metric->unit];
}

/* Of several sources that failed, the one that says most. */
static int telling(uint8_t status)
{
    static const uint8_t order[] = {DTK_UNSUPPORTED, DTK_ON_CARD, DTK_DENIED, DTK_FAILED, DTK_ASLEEP, DTK_GONE};

    for (int i = 0; i < (int)sizeof order; i++)
        if (order[i] == status)
            return i;
    return -1;
}

/* Go on with the sources of one part where none has answered so far. */
static dtk_value resolve(struct sample *sample, const struct metric *metric, enum sample_part part, dtk_value value)
{
    for (int i = 0; metric->source[i] != SOURCE_NONE; i++) {
        const struct reading *reading;
        uint8_t status;
        int32_t detail;

        if ((metric->source[i] > SOURCE_KERNEL_COUNT) != (part == PART_LIBRARY))
            continue;
        reading = sample_read(sample, metric->source[i]);
        status = reading->status;
        detail = reading->detail;
        if (status == DTK_OK && is_plausible(metric, reading->f64)) {
            value.status = DTK_OK;
            value.source = (uint8_t)(i + 1);
            value.detail = 0;
            if (value.type == DTK_TYPE_F64)
                value.f64 = reading->f64;
            else
                value.u64 = reading->u64;
            return value;
        }
        if (status == DTK_OK) {
            status = DTK_FAILED;
            detail = DTK_DETAIL_IMPLAUSIBLE;
        }
        if (telling(status) > telling(value.status) || (status == value.status && !value.detail)) {
            value.status = status;
            value.detail = detail;
        }
    }
    return value;
}

/* ---- The vendor's library ---- */

static bool library_has(const struct metric *metric)
{
    for (int i = 0; metric->source[i] != SOURCE_NONE; i++)
        if (metric->source[i] > SOURCE_KERNEL_COUNT)
            return true;
    return false;
}

/* AMD's library reads the files that we read: beside them it is asked for what Hygon's cards do not tell there. */
bool library_is_wanted(const struct dtk_device *device, int metric, const dtk_value *value)
{
    const struct dtk_system *system = device->system;
    bool hygon = device->id.vendor_id == VENDOR_HYGON;

    if (!system->backend || device->card != device || !library_has(&metrics[metric]))
        return false;
    if (value->status == DTK_OK || value->status == DTK_ASLEEP || value->status == DTK_GONE)
        return false;
    return system->backend == DTK_OPEN_RSMI || (hygon && !atomic_load(&system->rsmi_missing));
}

static bool is_asked(int metric, uint32_t tiers)
{
    return (uint32_t)metrics[metric].info.tier & tiers;
}

static dtk_value of_kernel(struct sample *sample, const struct metric *metric)
{
    const struct dtk_device *device = sample->device;
    bool asked = device->system->backend != DTK_OPEN_RSMI;
    uint8_t status = asked || device->card == device ? DTK_UNSUPPORTED : DTK_ON_CARD;
    dtk_value value = {.type = (uint8_t)metric->info.type, .status = status};

    return asked ? resolve(sample, metric, PART_KERNEL, value) : value;
}

static dtk_value of_library(struct sample *sample, const struct metric *metric, dtk_value value)
{
    struct dtk_system *system = sample->device->system;

    if (system->rsmi_aborted) {
        value.status = DTK_FAILED;
        value.detail = DTK_DETAIL_LIBRARY_ABORTED;
        return value;
    }
    if (!sample->rsmi)
        sample->rsmi = rsmi_of(system);
    return resolve(sample, metric, PART_LIBRARY, value);
}

int sample_part(struct dtk_device *device, uint32_t tiers, enum sample_part part, dtk_value *values, size_t count)
{
    struct sample sample = {.device = device};
    bool missing = false;
    int state = DTK_OK;

    system_lock(device->system);
    if (part & PART_KERNEL)
        state = device_state(device);
    if (part & PART_KERNEL && state == DTK_OK)
        hwmon_prepare(device);
    for (int i = 0; i < (int)count; i++) {
        if (!is_asked(i, tiers))
            continue;
        if (state != DTK_OK)
            values[i] = (dtk_value){.type = (uint8_t)metrics[i].info.type, .status = (uint8_t)state};
        else if (part & PART_KERNEL)
            values[i] = of_kernel(&sample, &metrics[i]);
        if ((part & PART_LIBRARY || device->system->rsmi_aborted) && library_is_wanted(device, i, &values[i]))
            values[i] = of_library(&sample, &metrics[i], values[i]);
        missing = missing || values[i].status != DTK_OK;
    }
    /* A card that left on the way looks like one without files: ask again who it was. */
    if (state == DTK_OK && missing && !device_is_there(device))
        for (int i = 0; i < (int)count; i++)
            if (is_asked(i, tiers) && values[i].status != DTK_OK) {
                values[i].status = DTK_GONE;
                values[i].detail = 0;
            }
    system_unlock(device->system);
    return 0;
}

int dtk_device_sample(dtk_device *device, uint32_t tiers, dtk_value *ret, size_t count)
{
    const uint32_t known = DTK_TIER_STATIC | DTK_TIER_FAST | DTK_TIER_SLOW;

    if (!device || !ret || !tiers || tiers & ~known)
        return -DTK_INVALID_ARGUMENT;
    return sample_part(device, tiers, PART_BOTH, ret, count < DTK_METRIC_COUNT ? count : DTK_METRIC_COUNT);
}
