#include "gpu_metrics.h"

#include "dtk.h"
#include "gpu_metrics_layouts.h"

#define LENGTH(array) (sizeof array / sizeof array[0])
enum { HEADER_SIZE = 4, ENCODING_SIZE = 8, HBM_COUNT = TABLE_TEMPERATURE_HBM3 - TABLE_TEMPERATURE_HBM0 + 1 };

struct mean {
    double sum;
    unsigned count;
};

struct decoder {
    struct gpu_metrics metrics;
    struct mean activity[TABLE_MEDIA_ACTIVITY + 1]; /* the percentages are the first fields */
};

static size_t width_of(unsigned type)
{
    return (size_t)1 << (type / 2);
}

static uint64_t all_ones(unsigned type)
{
    return UINT64_MAX >> (64 - 8 * width_of(type));
}

/* Little-endian, wherever it lies. */
static uint64_t load(const uint8_t *at, size_t width)
{
    uint64_t value = 0;
    for (size_t i = 0; i < width; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

/* A field's number. Every bit set is the kernel's "not supported", whatever the type: false. */
static bool load_valid(const uint8_t *at, unsigned type, uint64_t *ret)
{
    *ret = load(at, width_of(type));
    return *ret != all_ones(type);
}

static double as_double(uint64_t raw, unsigned type)
{
    bool negative = type % 2 == 1 && raw > all_ones(type) / 2;
    return negative ? -(double)((~raw + 1) & all_ones(type)) : (double)raw;
}

static void set(struct table_value *value, double f64)
{
    if (!value->valid || f64 > value->f64)
        *value = (struct table_value){.f64 = f64, .valid = true};
}

static void set_temperature(struct gpu_metrics *metrics, unsigned field, double celsius)
{
    if (celsius < -100 || celsius > 500)
        metrics->torn = true;
    else
        set(&metrics->field[field], celsius);
}

static void add_percent(struct mean *mean, double percent)
{
    if (percent >= 0 && percent <= 100) {
        mean->sum += percent;
        mean->count++;
    }
}

static void set_mean(struct table_value *value, const struct mean *mean)
{
    if (mean->count > 0)
        set(value, mean->sum / mean->count);
}

/* Take element `index` of a field. */
static void take(struct decoder *d, unsigned field, unsigned how, unsigned index, uint64_t raw, double number)
{
    struct table_value *value = &d->metrics.field[field];
    if (number < 0 && how != CELSIUS && how != CELSIUS_EACH)
        return;
    switch (how) {
    case COUNT:
        if (!value->valid)
            *value = (struct table_value){.u64 = raw, .valid = true};
        break;
    case PLAIN:
        set(value, number);
        break;
    case CELSIUS:
        set_temperature(&d->metrics, field, number);
        break;
    case CELSIUS_EACH:
        if (index < HBM_COUNT)
            set_temperature(&d->metrics, field + index, number);
        break;
    case CENTI_CELSIUS:
        set_temperature(&d->metrics, field, number / 100);
        break;
    case PERCENT:
        add_percent(&d->activity[field], number);
        break;
    case CENTI_PERCENT:
        add_percent(&d->activity[field], number / 100);
        break;
    case EITHER_PERCENT:
        add_percent(&d->activity[field], number > 100 ? number / 100 : number);
        break;
    case MILLIWATT: /* watts on some APUs, and no socket that runs this draws less than 250 mW */
        set(value, number <= 250 ? number : number / 1000);
        break;
    case ENERGY:
        set(value, number / 65536);
        break;
    case LINK: /* below PCIe 1's 2.5 GT/s it is no rate: some firmware gives the generation */
        if (number >= 25)
            set(value, number / 10);
        break;
    }
}

static void read_field(struct decoder *d, unsigned field, unsigned how, unsigned type, unsigned count,
                       const uint8_t *at)
{
    if (d->metrics.field[field].valid)
        return;
    for (unsigned i = 0; i < count; i++, at += width_of(type)) {
        uint64_t raw;
        if (load_valid(at, type, &raw))
            take(d, field, how, i, raw, as_double(raw, type));
    }
}

static void add_percents(struct mean *mean, const uint8_t *at, unsigned type, size_t count)
{
    for (size_t i = 0; i < count; i++, at += width_of(type)) {
        uint64_t raw;
        if (load_valid(at, type, &raw))
            add_percent(mean, (double)raw);
    }
}

/* One partition's gfx_busy_inst[8]:u32, jpeg_busy[jpegs]:u16, vcn_busy[4]:u16. */
static void read_partition(struct decoder *d, unsigned number, const uint8_t *at, size_t jpegs)
{
    struct mean gfx = {0}, media = {0}, *all = &d->activity[TABLE_MEDIA_ACTIVITY];
    add_percents(&gfx, at, U32, 8);
    add_percents(&media, at + 32, U16, jpegs + 4);
    set_mean(&d->metrics.partition[number].gfx_activity, &gfx);
    set_mean(&d->metrics.partition[number].media_activity, &media);
    all->sum += media.sum;
    all->count += media.count;
}

static int decode_fixed(struct decoder *d, const uint8_t *bytes, size_t size)
{
    const struct revision *found = NULL;
    bool known = false;
    uint64_t marker;
    for (size_t i = 0; i < LENGTH(revisions) && !found; i++) {
        const struct revision *r = &revisions[i];
        if (r->format != d->metrics.format || r->content != d->metrics.content)
            continue;
        known = true;
        if (r->size == size && (r->marker == 0 || load_valid(bytes + r->marker, U16, &marker)))
            found = r;
    }
    if (!found)
        return known ? -DTK_FAILED : -DTK_UNSUPPORTED;

    for (size_t p = 0; p < LENGTH(found->part); p++) {
        for (size_t i = 0; i < found->part[p].count; i++) {
            const struct row *row = &found->part[p].rows[i];
            read_field(d, row->field, row->how, row->type, row->count, bytes + row->offset);
        }
    }
    for (unsigned i = 0; found->partition.size > 0 && i < PARTITIONS_MAX; i++)
        read_partition(d, i, bytes + found->partition.offset + i * found->partition.size, found->partition.jpegs);
    return 0;
}

/* Version 1.9: an i32 number of records, then for each a u64 that says what it is, and its values, unaligned. */
static int decode_records(struct decoder *d, const uint8_t *bytes, size_t size)
{
    if (size < HEADER_SIZE + 4)
        return -DTK_FAILED;
    uint64_t records = load(bytes + HEADER_SIZE, 4);
    const uint8_t *at = bytes + HEADER_SIZE + 4, *end = bytes + size;
    for (uint64_t i = 0; i < records; i++) {
        if (end - at < ENCODING_SIZE)
            return -DTK_FAILED;
        uint64_t encoding = load(at, ENCODING_SIZE);
        unsigned count = encoding & 0x3ff, number = encoding >> 10 & 0x3ff;
        unsigned type = encoding >> 20 & 0xf, unit = encoding >> 24 & 0xff;
        at += ENCODING_SIZE;
        if (type >= TYPE_COUNT || count * width_of(type) > (size_t)(end - at))
            return -DTK_FAILED;
        for (size_t a = 0; a < LENGTH(attributes); a++) {
            if (attributes[a].number == number && attributes[a].unit == unit)
                read_field(d, attributes[a].field, attributes[a].how, type, count, at);
        }
        at += count * width_of(type);
    }
    return 0;
}

/* On RDNA 3 and 4 the hotspot bit is set even at rest; it is believed only where the hotspot may be hot. */
static void drop_false_hotspot(struct gpu_metrics *metrics)
{
    const struct table_value *hotspot = &metrics->field[TABLE_TEMPERATURE_HOTSPOT];
    if (hotspot->valid && hotspot->f64 < 90)
        metrics->field[TABLE_THROTTLE_STATUS].u64 &= ~((uint64_t)1 << 36);
}

int gpu_metrics_decode(const uint8_t *bytes, size_t len, struct gpu_metrics *ret)
{
    struct decoder d = {0};
    if (len < HEADER_SIZE)
        return -DTK_FAILED;
    size_t size = load(bytes, 2);
    if (size < HEADER_SIZE || size > len)
        return -DTK_FAILED;
    d.metrics.format = bytes[2];
    d.metrics.content = bytes[3];

    bool records = d.metrics.format == 1 && d.metrics.content == 9;
    int status = records ? decode_records(&d, bytes, size) : decode_fixed(&d, bytes, size);
    if (status == -DTK_UNSUPPORTED) {
        ret->format = d.metrics.format;
        ret->content = d.metrics.content;
    }
    if (status != 0)
        return status;

    for (unsigned i = 0; i < LENGTH(d.activity); i++)
        set_mean(&d.metrics.field[i], &d.activity[i]);
    drop_false_hotspot(&d.metrics);
    *ret = d.metrics;
    return 0;
}
