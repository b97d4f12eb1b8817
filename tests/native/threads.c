/* Several threads sample their devices while one rescans: no crash, no wrong value, pointers stay good.
 *
 *   threads ROOT SECONDS */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "dtk.h"

static atomic_int stop, failures, samples;

static void *sample(void *context)
{
    dtk_device *device = context;
    dtk_value values[DTK_METRIC_COUNT];

    while (!stop) {
        dtk_info info;

        if (dtk_device_sample(device, DTK_TIER_STATIC | DTK_TIER_FAST, values, DTK_METRIC_COUNT) != 0 ||
            values[DTK_METRIC_MEMORY_TOTAL].status != DTK_OK || values[DTK_METRIC_MEMORY_TOTAL].u64 == 0 ||
            dtk_device_info(device, &info, sizeof info) != 0 || info.index < 0)
            failures++;
        samples++;
    }
    return NULL;
}

static void *rescan(void *context)
{
    dtk_system *system = context;

    while (!stop)
        if (dtk_rescan(system) != 0)
            failures++;
    return NULL;
}

int main(int argc, char **argv)
{
    dtk_system *system;
    pthread_t threads[65];
    int count = 0;

    if (argc != 3 || dtk_open(argv[1], 0, &system) != 0)
        return 2;
    pthread_create(&threads[count++], NULL, rescan, system);
    for (int i = 0; i < dtk_device_count(system) && count < 65; i++) {
        dtk_device *device;

        if (dtk_device_get(system, i, &device) != 0)
            return 2;
        pthread_create(&threads[count++], NULL, sample, device);
    }

    struct timespec pause = {.tv_sec = atoi(argv[2])};

    nanosleep(&pause, NULL);
    stop = 1;
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    if (failures || samples == 0)
        printf("%d failures in %d samples\n", failures, samples);
    dtk_close(system);
    return failures || samples == 0;
}
