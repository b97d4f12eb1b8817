/* Readings from the kernel's files: sysfs, hwmon, gpu_metrics, KFD. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backend.h"

enum place { DEVICE, LINK, HWMON, CHANNEL, LEVEL, TOP_LEVEL, TABLE, PARTITION, BANK, KFD, RAS, PAGES, DERIVED };

static const struct {
    enum place place;
    int argument;
    double divisor;
    const char *name;
} sources[SOURCE_KERNEL_COUNT] = {
#define SOURCE(id, place, name, argument, divisor) [SOURCE_##id] = {place, argument, divisor, name},
#include "sources.def"
#undef SOURCE
};

/* ---- Readings ---- */

uint8_t status_of_error(int error)
{
    switch (error) {
    case -ENOENT:
    case -ENOTDIR:
    case -EOPNOTSUPP:
    case -ENODATA:
    case -EINVAL:
        return DTK_UNSUPPORTED;
    case -EACCES:
    case -EPERM:
        return DTK_DENIED;
    default:
        return DTK_FAILED;
    }
}

static struct reading no_reading(uint8_t status, int32_t detail)
{
    return (struct reading){.status = status, .detail = detail};
}

static struct reading of_error(const struct root *root, int error, const char *what)
{
    uint8_t status = status_of_error(error);

    if (error != -ENOENT)
        ROOT_DEBUG(root, error, what);
    return no_reading(status, status == DTK_UNSUPPORTED ? 0 : -error);
}

static struct reading of_integer(int64_t value, double divisor)
{
    return (struct reading){.status = DTK_OK, .f64 = (double)value / divisor, .u64 = (uint64_t)value};
}

static struct reading of_unsigned(uint64_t value, double divisor)
{
    return (struct reading){.status = DTK_OK, .f64 = (double)value / divisor, .u64 = value};
}

static struct reading of_double(double value)
{
    return (struct reading){
        .status = DTK_OK, .f64 = value, .u64 = value > 0 && value < 1e18 ? (uint64_t)(value + 0.5) : 0};
}

/* ---- Files ---- */

/* Read a file of the card into the device's buffer. One that was not there last time is looked for before it is opened,
 * so that what a card lacks costs no open, and is found as soon as it appears. */
static ssize_t read_into_buffer(struct dtk_device *device, enum source source, int directory, const char *name)
{
    ssize_t got = -ENOENT;

    if (directory >= 0)
        got = (device->opened[source] ? root_read_again : root_read)(&device->system->root, directory, name,
                                                                     device->buffer, READ_MAX);
    device->opened[source] = got >= 0;
    return got;
}

typedef struct reading parse(const char *text, size_t len, double divisor);

static struct reading parse_integer(const char *text, size_t len, double divisor)
{
    uint64_t large;
    int64_t value;

    if (parse_i64(text, len, &value) == 0)
        return of_integer(value, divisor);
    if (parse_u64(text, len, &large) == 0)
        return of_unsigned(large, divisor);
    return no_reading(DTK_FAILED, DTK_DETAIL_MALFORMED);
}

static struct reading parse_leading(const char *text, size_t len, double divisor)
{
    double value;

    if (parse_leading_f64(text, len, &value) != 0)
        /* A link that is down, or a bridge that does not say. */
        return len >= 7 && memcmp(text, "Unknown", 7) == 0 ? no_reading(DTK_UNSUPPORTED, 0)
                                                           : no_reading(DTK_FAILED, DTK_DETAIL_MALFORMED);
    return of_double(value / divisor);
}

static bool is_blank(const char *text, size_t len)
{
    for (size_t i = 0; i < len && text[i]; i++)
        if (text[i] != ' ' && text[i] != '\n')
            return false;
    return true;
}

static struct reading read_parsed(struct sample *sample, enum source source, int directory, const char *name,
                                  parse *parse)
{
    struct dtk_device *device = sample->device;
    ssize_t got = read_into_buffer(device, source, directory, name);

    if (got < 0) {
        /* Newer kernels refuse a card that went to sleep since we looked. */
        if (got == -EPERM && device_state(device) == DTK_ASLEEP)
            return no_reading(DTK_ASLEEP, 0);
        return of_error(&device->system->root, (int)got, name);
    }

    struct reading reading = parse(device->buffer, (size_t)got, sources[source].divisor);

    if (reading.status == DTK_FAILED)
        ROOT_DEBUG(&device->system->root, EBADMSG, name);
    return reading;
}

/* Levels of a clock, for the current one and the highest. Of no star or several, none is the current. */
static void read_levels(struct sample *sample, enum source current, enum source top)
{
    struct dtk_device *device = sample->device;
    const char *name = sources[current].name;
    ssize_t got = read_into_buffer(device, current, device->directory, name);
    struct reading *readings[] = {&sample->reading[current], &sample->reading[top]};
    struct levels levels = {0};

    sample->done[current] = sample->done[top] = true;
    if (got < 0 || is_blank(device->buffer, (size_t)got) || parse_levels(device->buffer, (size_t)got, &levels) != 0) {
        *readings[0] = got < 0                                 ? of_error(&device->system->root, (int)got, name)
                       : is_blank(device->buffer, (size_t)got) ? no_reading(DTK_UNSUPPORTED, 0)
                                                               : no_reading(DTK_FAILED, DTK_DETAIL_MALFORMED);
        *readings[1] = *readings[0];
        return;
    }
    *readings[0] = levels.stars == 1 ? of_double(levels.current) : no_reading(DTK_UNSUPPORTED, 0);
    *readings[1] = levels.count ? of_double(levels.highest) : no_reading(DTK_UNSUPPORTED, 0);
}

/* A file "hwmon/power1_cap" of the card's hwmon directory. */
static struct reading read_hwmon(struct sample *sample, enum source source, const char *name)
{
    const char *directory = sample->device->hwmon;
    char path[64];

    if (!directory[0] || snprintf(path, sizeof path, "%s/%s", directory, name) >= (int)sizeof path)
        return no_reading(DTK_UNSUPPORTED, 0);
    return read_parsed(sample, source, sample->device->directory, path, parse_integer);
}

/* "hwmon/temp*_input (edge)": the number of the labelled channel goes in the place of *. */
static struct reading read_channel(struct sample *sample, enum source source)
{
    const char *pattern = sources[source].name + strlen("hwmon/");
    int head = (int)strcspn(pattern, "*"), tail = (int)strcspn(pattern + head + 1, " ");
    unsigned number = sample->device->channel[sources[source].argument];
    char name[32];

    if (number == 0)
        return no_reading(DTK_UNSUPPORTED, 0);
    snprintf(name, sizeof name, "%.*s%u%.*s", head, pattern, number - 1, tail, pattern + head + 1);
    return read_hwmon(sample, source, name);
}

static void read_pages(struct sample *sample)
{
    struct dtk_device *device = sample->device;
    struct reading *retired = &sample->reading[SOURCE_PAGES_RETIRED], *pending = &sample->reading[SOURCE_PAGES_PENDING];
    ssize_t got = read_into_buffer(device, SOURCE_PAGES_RETIRED, device->directory, "ras/gpu_vram_bad_pages");
    uint64_t counts[2];

    sample->done[SOURCE_PAGES_RETIRED] = sample->done[SOURCE_PAGES_PENDING] = true;
    if (got < 0) {
        *retired = *pending = of_error(&device->system->root, (int)got, "ras/gpu_vram_bad_pages");
    } else if (parse_bad_pages(device->buffer, (size_t)got, &counts[0], &counts[1]) != 0) {
        *retired = *pending = no_reading(DTK_FAILED, DTK_DETAIL_MALFORMED);
    } else {
        *retired = of_unsigned(counts[0], 1);
        *pending = of_unsigned(counts[1], 1);
    }
}

/* ---- gpu_metrics ---- */

static struct reading decode_table(struct sample *sample)
{
    struct dtk_device *device = sample->device;
    struct gpu_metrics *table = &sample->table;

    /* A torn read shows impossible temperatures; the next one is whole. */
    for (int try = 0; try < 2; try++) {
        ssize_t got = read_into_buffer(device, SOURCE_TABLE_GFX_ACTIVITY, device->card->directory, "gpu_metrics");

        if (got < 0)
            return of_error(&device->system->root, (int)got, "gpu_metrics");

        int status = gpu_metrics_decode((const uint8_t *)device->buffer, (size_t)got, table);

        if (status == -DTK_UNSUPPORTED)
            return no_reading(DTK_UNSUPPORTED, DTK_DETAIL_TABLE_UNKNOWN + (table->format << 8 | table->content));
        if (status != 0)
            return no_reading(DTK_FAILED, DTK_DETAIL_TABLE_DAMAGED);
        if (!table->torn)
            break;
    }
    return no_reading(DTK_OK, 0);
}

static bool is_integer_field(int field)
{
    return field == TABLE_LINK_WIDTH || field == TABLE_PCIE_REPLAYS || field >= TABLE_THROTTLE_STATUS;
}

static struct reading read_table(struct sample *sample, int field)
{
    struct table_value value;

    if (!sample->table_done) {
        sample->table_done = true;
        sample->table_reading = decode_table(sample);
    }
    if (sample->table_reading.status != DTK_OK)
        return sample->table_reading;
    value = sample->table.field[field];
    if (!value.valid) {
        bool torn = sample->table.torn && field >= TABLE_TEMPERATURE_EDGE && field <= TABLE_TEMPERATURE_HBM3;

        return torn ? no_reading(DTK_FAILED, DTK_DETAIL_IMPLAUSIBLE) : no_reading(DTK_UNSUPPORTED, 0);
    }
    return is_integer_field(field) ? of_unsigned(value.u64, 1) : of_double(value.f64);
}

static struct reading read_partition(struct sample *sample, int media)
{
    int partition = sample->device->id.partition;
    struct reading whole = read_table(sample, TABLE_GFX_ACTIVITY); /* reads the table if nobody did */
    struct table_value value;

    if (sample->table_reading.status != DTK_OK)
        return whole;
    if (partition < 0 || partition >= PARTITIONS_MAX)
        return no_reading(DTK_UNSUPPORTED, 0);
    value = media ? sample->table.partition[partition].media_activity : sample->table.partition[partition].gfx_activity;
    return value.valid ? of_double(value.f64) : no_reading(DTK_UNSUPPORTED, 0);
}

/* ---- KFD ---- */

struct banks {
    struct dtk_device *device;
    bool used;
    uint64_t sum;
    int count, error;
};

static int visit_bank(void *context, const char *name)
{
    struct banks *banks = context;
    struct dtk_device *device = banks->device;
    const struct root *root = &device->system->root;
    char path[ROOT_PATH_MAX + 64];
    uint64_t heap = 1, size;
    ssize_t got;

    snprintf(path, sizeof path, "%s/mem_banks/%.20s/%s", device->node, name,
             banks->used ? "used_memory" : "properties");
    got = root_read(root, root->fd, path, device->buffer, READ_MAX);
    if (got < 0)
        return banks->error = (int)got;
    if (banks->used) {
        if (parse_u64(device->buffer, (size_t)got, &size) != 0)
            return banks->error = -EBADMSG;
    } else {
        parse_property(device->buffer, (size_t)got, "heap_type", &heap);
        if (parse_property(device->buffer, (size_t)got, "size_in_bytes", &size) != 0)
            return banks->error = -EBADMSG;
    }
    /* 0 is system memory; 1 and 2 are the card's, addressable by the CPU or not. */
    if (heap == 1 || heap == 2) {
        banks->sum += size;
        banks->count++;
    }
    return 0;
}

static struct reading read_banks(struct sample *sample, bool used)
{
    struct dtk_device *device = sample->device;
    const struct root *root = &device->system->root;
    struct banks banks = {.device = device, .used = used};
    char path[ROOT_PATH_MAX + 16];
    int error = -ENOENT;

    if (device->node[0]) {
        snprintf(path, sizeof path, "%s/mem_banks", device->node);
        error = root_list(root, root->fd, path, visit_bank, &banks);
    }
    if (error < 0 && error != -ENOENT)
        return of_error(root, error, "kfd mem_banks");
    if (error == 0 && banks.count)
        return of_unsigned(banks.sum, 1);
    if (!used && device->node_memory)
        return of_unsigned(device->node_memory, 1); /* local_mem_size, of kernels before mem_banks */
    return no_reading(DTK_UNSUPPORTED, 0);
}

/* ---- Derived ---- */

static struct reading read_memory_free(struct sample *sample)
{
    struct dtk_device *device = sample->device;
    bool whole = device->card == device;
    const struct reading *used = sample_read(sample, SOURCE_VRAM_USED), *total;

    if (!whole || used->status != DTK_OK)
        used = sample_read(sample, SOURCE_BANK_USED);
    /* The total of this sample where it was asked for; else as it was, since only a new partitioning changes it. */
    if (device->memory_total == 0 || sample->done[SOURCE_VRAM_TOTAL]) {
        total = sample_read(sample, SOURCE_VRAM_TOTAL);
        if (!whole || total->status != DTK_OK)
            total = sample_read(sample, SOURCE_BANK_TOTAL);
        if (total->status != DTK_OK)
            return *total;
        device->memory_total = total->u64;
    }
    if (used->status != DTK_OK)
        return *used;
    /* Both change while we read: used may be the larger for a moment. */
    return of_unsigned(used->u64 < device->memory_total ? device->memory_total - used->u64 : 0, 1);
}

static struct reading read_fan_speed(struct sample *sample)
{
    struct dtk_device *device = sample->device;
    const struct reading *pwm = sample_read(sample, SOURCE_FAN_PWM);

    if (pwm->status != DTK_OK)
        return *pwm;
    if (device->pwm_max == 0) {
        const struct reading *max = sample_read(sample, SOURCE_FAN_PWM_MAX);

        device->pwm_max = max->status == DTK_OK && max->f64 > 0 ? max->u64 : 255; /* hwmon's range */
    }
    return of_double(pwm->f64 * 100 / (double)device->pwm_max);
}

/* ---- The backend ---- */

void kernel_read(struct sample *sample, enum source source)
{
    struct dtk_device *device = sample->device;
    const char *name = sources[source].name;
    enum place place = sources[source].place;
    int argument = sources[source].argument;
    struct reading *ret = &sample->reading[source];
    bool own = place == PARTITION || place == BANK || source == SOURCE_MEMORY_FREE;

    if (device->card != device && !own) {
        *ret = no_reading(DTK_ON_CARD, 0);
        return;
    }
    switch (place) {
    case DEVICE:
        *ret = read_parsed(sample, source, device->directory, name, parse_integer);
        break;
    case LINK:
        *ret = read_parsed(sample, source, device->directory, name, parse_leading);
        break;
    case HWMON:
        *ret = read_hwmon(sample, source, name + strlen("hwmon/"));
        break;
    case CHANNEL:
        *ret = read_channel(sample, source);
        break;
    case LEVEL:
        read_levels(sample, source, (enum source)argument);
        break;
    case TOP_LEVEL:
        read_levels(sample, (enum source)argument, source);
        break;
    case TABLE:
        *ret = read_table(sample, argument);
        break;
    case PARTITION:
        *ret = device->card != device ? read_partition(sample, argument) : no_reading(DTK_UNSUPPORTED, 0);
        break;
    case BANK:
        *ret = read_banks(sample, argument);
        break;
    case KFD:
        *ret = device->node_clock_max ? of_unsigned(device->node_clock_max, 1) : no_reading(DTK_UNSUPPORTED, 0);
        break;
    case RAS:
        ras_read(sample);
        break;
    case PAGES:
        read_pages(sample);
        break;
    case DERIVED:
        *ret = source == SOURCE_MEMORY_FREE ? read_memory_free(sample) : read_fan_speed(sample);
        break;
    }
}
