/* Looks at the virtual devices of a machine and gives back all that was taken.
 *
 *     test_virtual ROOT COUNT     COUNT of them are there */
#include <dtk.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    int count = argc > 2 ? atoi(argv[2]) : -1;
    dtk_system *system;
    dtk_virtuals *virtuals;
    dtk_virtual_scan scan;

    if (count < 0 || dtk_open(argv[1], 0, &system) != 0)
        return 2;
    if (dtk_virtuals_read(system, DTK_VIRTUAL_FILES | DTK_VIRTUAL_LIBRARY, NULL, &virtuals) != 0)
        return 1;
    /* A block of its exact size, so that one byte too many is seen. */
    dtk_virtual *devices = malloc((size_t)count * sizeof *devices + 1);

    if (!devices || dtk_virtuals_scan(virtuals, &scan, sizeof scan) != 0)
        return 1;
    if (scan.devices != count || dtk_virtuals_devices(virtuals, devices, sizeof *devices, (size_t)count) != count)
        printf("%d virtual devices, not %d\n", scan.devices, count);
    for (int i = 1; i < count; i++)
        if (devices[i].id <= devices[i - 1].id)
            printf("virtual device %d comes behind %d\n", devices[i].id, devices[i - 1].id);
    free(devices);
    dtk_virtuals_free(virtuals);
    dtk_close(system);
    return 0;
}
