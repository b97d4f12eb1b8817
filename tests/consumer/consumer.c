/* A program of somebody else's: it knows dtk.h alone. Prints "count name" of the machine below argv[1]. */
#include <dtk.h>

#include <stdio.h>

int main(int argc, char **argv)
{
    dtk_system *system;
    dtk_device *device;
    dtk_info info;

    if (argc != 2 || dtk_api_version() >> 16 != DTK_API_VERSION >> 16)
        return 2;
    if (dtk_open(argv[1], 0, &system) < 0)
        return 3;
    if (dtk_device_get(system, 0, &device) < 0 || dtk_device_info(device, &info, sizeof info) < 0)
        return 4;
    printf("%d %s\n", dtk_device_count(system), info.name);
    dtk_close(system);
    return 0;
}
