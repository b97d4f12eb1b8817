/* dtk_device_sample() allocates nothing, not even the first time: every malloc of the process is counted.
 *
 *   allocation ROOT */
#include <stdio.h>
#include <stdlib.h>

#include "dtk.h"

static unsigned long count;

/* glibc lets a program bring its own malloc; these are its own under other names. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t number, size_t size);
extern void *__libc_realloc(void *old, size_t size);

void *malloc(size_t size)
{
    count++;
    return __libc_malloc(size);
}

void *calloc(size_t number, size_t size)
{
    count++;
    return __libc_calloc(number, size);
}

void *realloc(void *old, size_t size)
{
    count++;
    return __libc_realloc(old, size);
}

int main(int argc, char **argv)
{
    dtk_system *system;
    dtk_value values[DTK_METRIC_COUNT];
    unsigned long before;
    int read = 0;

    if (argc != 2 || dtk_open(argv[1], 0, &system) != 0)
        return 2;
    before = count;
    if (before == 0) {
        puts("this malloc counts nothing");
        return 1;
    }
    for (int i = 0; i < dtk_device_count(system); i++) {
        dtk_device *device;

        if (dtk_device_get(system, i, &device) != 0)
            return 2;
        for (int again = 0; again < 3; again++) {
            if (dtk_device_sample(device, DTK_TIER_STATIC | DTK_TIER_FAST | DTK_TIER_SLOW, values, DTK_METRIC_COUNT) !=
                0)
                return 2;
            read += values[DTK_METRIC_MEMORY_USED].status == DTK_OK;
        }
    }
    if (count != before || read == 0) {
        printf("%lu allocations in %d samples\n", count - before, read);
        return 1;
    }
    dtk_close(system);
    return 0;
}
