/* What dtk_rescan() promises: a device that is still there keeps its pointer, one that left answers GONE, one that came
 * back is a new device.
 *
 *   rescan ROOT LEAVE RETURN REBUILD: shell commands that take the first card away, bring it back, and give all KFD
 *   nodes new inodes, as the kernel does when any card comes or leaves */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dtk.h"

#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            printf("line %d: %s\n", __LINE__, #what);                                                                  \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

static int status_of(dtk_device *device)
{
    dtk_value values[DTK_METRIC_COUNT];
    int status = dtk_device_sample(device, DTK_TIER_FAST, values, DTK_METRIC_COUNT);

    return status ? status : values[DTK_METRIC_MEMORY_USED].status;
}

static int open_descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int count = 0;

    while (directory && readdir(directory))
        count++;
    closedir(directory);
    return count;
}

int main(int argc, char **argv)
{
    dtk_system *machine;
    dtk_device *first, *last, *again;
    dtk_info before, after;
    int count;

    CHECK(argc == 5);
    CHECK(dtk_open(argv[1], 0, &machine) == 0);
    count = dtk_device_count(machine);
    CHECK(count >= 2);
    CHECK(dtk_device_get(machine, 0, &first) == 0 && dtk_device_get(machine, count - 1, &last) == 0);
    CHECK(dtk_device_info(first, &before, sizeof before) == 0);
    CHECK(status_of(first) == DTK_OK);
    CHECK(dtk_rescan(machine) == 0);
    CHECK(dtk_device_get(machine, 0, &again) == 0 && again == first);

    CHECK(system(argv[2]) == 0);
    CHECK(status_of(first) == DTK_GONE && status_of(last) == DTK_OK);
    CHECK(dtk_rescan(machine) == 0);
    CHECK(dtk_device_count(machine) < count);
    CHECK(dtk_device_get(machine, dtk_device_count(machine) - 1, &again) == 0 && again == last);
    CHECK(dtk_device_info(last, &after, sizeof after) == 0 && after.index == dtk_device_count(machine) - 1);
    CHECK(status_of(first) == DTK_GONE);
    CHECK(dtk_device_info(first, &after, sizeof after) == 0 && after.index == -1);
    CHECK(strcmp(before.uuid, after.uuid) == 0);

    CHECK(system(argv[3]) == 0);
    CHECK(dtk_rescan(machine) == 0);
    CHECK(dtk_device_count(machine) == count);
    CHECK(dtk_device_get(machine, 0, &again) == 0 && again != first && status_of(again) == DTK_OK);
    CHECK(status_of(first) == DTK_GONE);

    /* Nothing is kept open of what left. */
    count = open_descriptors();
    for (int i = 0; i < 3; i++) {
        CHECK(system(argv[2]) == 0 && dtk_rescan(machine) == 0);
        CHECK(system(argv[3]) == 0 && dtk_rescan(machine) == 0);
    }
    CHECK(open_descriptors() == count);

    CHECK(system(argv[4]) == 0);
    CHECK(dtk_rescan(machine) == 0);
    for (int i = 0; i < dtk_device_count(machine); i++)
        CHECK(dtk_device_get(machine, i, &again) == 0 && status_of(again) == DTK_OK);
    dtk_close(machine);
    return 0;
}
