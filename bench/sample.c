/* dtk_device_sample() against a bare loop that opens, reads and closes the same files.
 *
 *   sample ROOT FILES    FILES has a path a line: those that one fast sample of all devices opens
 *
 * Prints microseconds for one pass over all devices: the median of the rounds of each, and of the rounds' ratios. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "dtk.h"

enum { ROUNDS = 51, PASSES = 40, PATHS = 4096 };

static char paths[PATHS][512];
static int path_count;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void bare_loop(void)
{
    static char buffer[65536];

    for (int i = 0; i < path_count; i++) {
        int fd = open(paths[i], O_RDONLY | O_CLOEXEC);

        if (fd < 0 || read(fd, buffer, sizeof buffer) < 0)
            exit(3);
        close(fd);
    }
}

static void sample_all(dtk_system *system)
{
    dtk_value values[DTK_METRIC_COUNT];
    dtk_device *device;

    for (int i = 0; dtk_device_get(system, i, &device) == 0; i++)
        if (dtk_device_sample(device, DTK_TIER_FAST, values, DTK_METRIC_COUNT) != 0)
            exit(3);
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof *values, by_value);
    return values[ROUNDS / 2];
}

int main(int argc, char **argv)
{
    double sample[ROUNDS], bare[ROUNDS], ratio[ROUNDS];
    dtk_system *system;
    FILE *list;

    if (argc != 3 || !(list = fopen(argv[2], "r")) || dtk_open(argv[1], 0, &system) != 0)
        return 2;
    for (; path_count < PATHS && fgets(paths[path_count], sizeof paths[0], list); path_count++)
        paths[path_count][strcspn(paths[path_count], "\n")] = '\0';
    fclose(list);
    sample_all(system);
    for (int round = 0; round < ROUNDS; round++) {
        double start = now(), middle;

        for (int i = 0; i < PASSES; i++)
            sample_all(system);
        middle = now();
        for (int i = 0; i < PASSES; i++)
            bare_loop();
        sample[round] = (middle - start) / PASSES;
        bare[round] = (now() - middle) / PASSES;
        ratio[round] = sample[round] / bare[round];
    }
    printf("%.1f %.1f %.2f\n", median(sample), median(bare), median(ratio));
    dtk_close(system);
    return 0;
}
