/* What it costs to read each source of a device: the time that the kernel, and behind it the card, takes to answer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend.h"

enum { TURNS = 9 }; /* odd: the middle one counts */

static const char *const names[SOURCE_KERNEL_COUNT] = {
#define SOURCE(id, place, name, argument, divisor) [SOURCE_##id] = name,
#include "sources.def"
#undef SOURCE
};

/* Made of other sources, or known since the cards were looked for. */
static bool is_read(enum source source)
{
    return source != SOURCE_MEMORY_FREE && source != SOURCE_FAN_SPEED && source != SOURCE_KFD_CLOCK_MAX;
}

static uint64_t nanoseconds(void)
{
    struct timespec now = {0};

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static uint64_t median(uint64_t *times)
{
    qsort(times, TURNS, sizeof times[0], by_size);
    return times[TURNS / 2];
}

static dtk_cost measure_state(struct dtk_device *device)
{
    dtk_cost cost = {.name = "power/runtime_status"};
    uint64_t times[TURNS];

    for (int i = 0; i < TURNS; i++) {
        uint64_t before = nanoseconds();

        cost.status = device_state(device);
        times[i] = nanoseconds() - before;
    }
    cost.nanoseconds = median(times);
    return cost;
}

/* All fields of gpu_metrics come from one file. */
static void name_file(enum source source, char *ret, size_t size)
{
    static const char table[] = "gpu_metrics";

    snprintf(ret, size, "%s", strncmp(names[source], table, strlen(table)) == 0 ? table : names[source]);
}

/* Of a source that the device does not have, the status alone. */
static dtk_cost measure(struct dtk_device *device, enum source source)
{
    dtk_cost cost = {0};
    uint64_t times[TURNS];

    name_file(source, cost.name, sizeof cost.name);
    for (int i = 0; i < TURNS; i++) {
        struct sample sample = {.device = device};
        uint64_t before = nanoseconds();

        cost.status = sample_read(&sample, source)->status;
        times[i] = nanoseconds() - before;
        if (cost.status == DTK_UNSUPPORTED || cost.status == DTK_ON_CARD)
            return cost;
    }
    cost.nanoseconds = median(times);
    return cost;
}

struct costs {
    char *ret;
    size_t size, room;
    int count;
    bool stored[SOURCE_KERNEL_COUNT];
};

static void store(struct costs *costs, const dtk_cost *cost)
{
    if ((size_t)costs->count < costs->room)
        memcpy(costs->ret + (size_t)costs->count * costs->size, cost,
               costs->size < sizeof *cost ? costs->size : sizeof *cost);
    costs->count++;
}

/* Several sources are in one file; the first that the device has stands for it. */
static bool is_stored(const struct costs *costs, enum source source)
{
    char name[48], other[48];

    name_file(source, name, sizeof name);
    for (int i = SOURCE_NONE + 1; i < (int)source; i++) {
        name_file((enum source)i, other, sizeof other);
        if (costs->stored[i] && strcmp(name, other) == 0)
            return true;
    }
    return false;
}

int dtk_device_costs(dtk_device *device, dtk_cost *ret, size_t size, size_t count)
{
    struct costs costs = {.ret = (char *)ret, .size = size, .room = count};
    dtk_cost cost;

    if (!device || (!ret && count))
        return -DTK_INVALID_ARGUMENT;
    system_lock(device->system);
    cost = measure_state(device);
    store(&costs, &cost);
    if (cost.status == DTK_OK)
        hwmon_prepare(device);
    for (int i = SOURCE_NONE + 1; i < SOURCE_KERNEL_COUNT && cost.status != DTK_ASLEEP && cost.status != DTK_GONE;
         i++) {
        int state;

        if (!is_read((enum source)i) || is_stored(&costs, (enum source)i))
            continue;
        state = device_state(device); /* it may fall asleep meanwhile, and a read would wake it */
        if (state == DTK_ASLEEP || state == DTK_GONE)
            break;
        cost = measure(device, (enum source)i);
        if (cost.status == DTK_UNSUPPORTED || cost.status == DTK_ON_CARD)
            continue;
        costs.stored[i] = true;
        store(&costs, &cost);
    }
    system_unlock(device->system);
    return costs.count;
}
