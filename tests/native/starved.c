/* Without file descriptors nothing is found wrongly: opening fails, and a rescan fails and changes nothing.
 *
 *   starved ROOT */
#include <stdio.h>
#include <sys/resource.h>

#include "dtk.h"

#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            printf("line %d, limit %d: %s\n", __LINE__, limit, #what);                                                 \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

static void allow(int descriptors)
{
    struct rlimit limit = {.rlim_cur = (rlim_t)descriptors, .rlim_max = 1024};

    setrlimit(RLIMIT_NOFILE, &limit);
}

static int status_of(dtk_device *device, int metric)
{
    dtk_value values[DTK_METRIC_COUNT];

    return dtk_device_sample(device, DTK_TIER_STATIC | DTK_TIER_FAST, values, DTK_METRIC_COUNT) ? -1
                                                                                                : values[metric].status;
}

int main(int argc, char **argv)
{
    dtk_system *system;
    dtk_device *first, *again;
    int limit = 1024, count, critical, opened = 0;

    CHECK(argc == 2);
    allow(limit);
    CHECK(dtk_open(argv[1], 0, &system) == 0);
    count = dtk_device_count(system);
    CHECK(dtk_device_get(system, 0, &first) == 0);
    critical = status_of(first, DTK_METRIC_TEMPERATURE_JUNCTION_CRITICAL);
    dtk_close(system);
    for (limit = 3; limit < 64; limit++) {
        allow(limit);

        int status = dtk_open(argv[1], 0, &system);

        CHECK(status == 0 || status == -DTK_NO_MEMORY);
        if (status != 0)
            continue;
        opened++;
        CHECK(dtk_device_count(system) == count);
        CHECK(dtk_device_get(system, 0, &first) == 0);
        status_of(first, 0); /* perhaps with too few */
        for (int few = 3; few < limit; few += 3) {
            allow(few);
            status = dtk_rescan(system);
            CHECK(status == 0 || status == -DTK_NO_MEMORY);
            CHECK(dtk_device_count(system) == count);
            CHECK(dtk_device_get(system, 0, &again) == 0 && again == first);
            allow(1024);
            CHECK(status_of(first, DTK_METRIC_MEMORY_USED) == DTK_OK);
            CHECK(status_of(first, DTK_METRIC_TEMPERATURE_JUNCTION_CRITICAL) == critical);
        }
        dtk_close(system);
    }
    CHECK(opened > 0);
    return 0;
}
