/* One sample: each metric from the first of its sources that answers. */
#include <math.h>
#include <string.h>

#include "backend.h"

const struct reading *sample_read(struct sample *sample, enum source source)
{
    if (!sample->done[source]) {
        sample->done[source] = true;
        backend_kernel.read(sample, source);
    }
    return &sample->reading[source];
}

/* Dead firmware answers 511 degrees, 255 percent and all ones. Limits are far above what any card can have. */
static bool is_plausible(const struct metric *metric, double value)
{
    static const double limits[] = {
        [UNIT_PERCENT] = 100,       [UNIT_BYTES] = 1e15,    [UNIT_CELSIUS] = 500,   [UNIT_WATT] = 1e5,
        [UNIT_JOULE] = 1e15,        [UNIT_MEGAHERTZ] = 1e5, [UNIT_MILLIVOLT] = 1e5, [UNIT_RPM] = 1e6,
        [UNIT_GIGATRANSFERS] = 1e3, [UNIT_LANES] = 32,      [UNIT_COUNT] = 1.9e19,  [UNIT_BITMASK] = 1.9e19,
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

static dtk_value resolve(struct sample *sample, const struct metric *metric)
{
    dtk_value value = {.type = (uint8_t)metric->info.type, .status = DTK_UNSUPPORTED};

    for (int i = 0; metric->source[i] != SOURCE_NONE; i++) {
        const struct reading *reading = sample_read(sample, metric->source[i]);
        uint8_t status = reading->status;
        int32_t detail = reading->detail;

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

static bool is_asked(int metric, uint32_t tiers)
{
    return (uint32_t)metrics[metric].info.tier & tiers;
}

int dtk_device_sample(dtk_device *device, uint32_t tiers, dtk_value *ret, size_t count)
{
    const uint32_t known = DTK_TIER_STATIC | DTK_TIER_FAST | DTK_TIER_SLOW;
    struct sample sample = {.device = device};
    bool missing = false;
    int state;

    if (!device || !ret || !tiers || tiers & ~known)
        return -DTK_INVALID_ARGUMENT;
    if (count > DTK_METRIC_COUNT)
        count = DTK_METRIC_COUNT;
    system_lock(device->system);
    state = device_state(device);
    if (state == DTK_OK)
        backend_kernel.prepare(device);
    for (int i = 0; i < (int)count; i++) {
        if (!is_asked(i, tiers))
            continue;
        if (state == DTK_OK)
            ret[i] = resolve(&sample, &metrics[i]);
        else
            ret[i] = (dtk_value){.type = (uint8_t)metrics[i].info.type, .status = (uint8_t)state};
        missing = missing || ret[i].status != DTK_OK;
    }
    /* A card that left on the way looks like one without files: ask again who it was. */
    if (state == DTK_OK && missing && !device_is_there(device))
        for (int i = 0; i < (int)count; i++)
            if (is_asked(i, tiers) && ret[i].status != DTK_OK) {
                ret[i].status = DTK_GONE;
                ret[i].detail = 0;
            }
    system_unlock(device->system);
    return 0;
}
