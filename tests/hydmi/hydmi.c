/* Stands in for Hygon's libhydmi.so: two cards of four virtual devices at most, and three of these, one in a gap.
 *
 * A test compiles it as it needs it: -DCARDS=3; -DWITHOUT_dmiGetVDeviceCount leaves a function out; and
 * -DAT_dmiGetVDeviceInfo='...' is what one does first, such as to return a status, to hang or to abort. */
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef CARDS
#define CARDS 2
#endif
#ifndef MOST
#define MOST 4
#endif
#ifndef COUNTED
#define COUNTED 3
#endif
#ifndef NAME
#define NAME "K100_AI vDCU"
#endif

#ifndef AT_dmiGetDeviceCount
#define AT_dmiGetDeviceCount
#endif
#ifndef AT_dmiGetMaxVDeviceCount
#define AT_dmiGetMaxVDeviceCount
#endif
#ifndef AT_dmiGetVDeviceCount
#define AT_dmiGetVDeviceCount
#endif
#ifndef AT_dmiGetDeviceRemainingInfo
#define AT_dmiGetDeviceRemainingInfo
#endif
#ifndef AT_dmiGetVDeviceInfo
#define AT_dmiGetVDeviceInfo
#endif
#ifndef AT_dmiGetVDevBusyPercent
#define AT_dmiGetVDevBusyPercent
#endif

#define MIB (1024 * 1024)
enum { SUCCESS = 0, INVALID_ARGUMENTS = 10, VDEV_NOT_EXIST = 15 };

struct info {
    char name[256];
    int compute_unit_count;
    size_t global_mem_size, usage_mem_size;
    uint64_t container_id;
    int device_id;
};

#ifndef WITHOUT_dmiGetDeviceCount
int dmiGetDeviceCount(int *count)
{
    AT_dmiGetDeviceCount *count = CARDS;
    return SUCCESS;
}
#endif

#ifndef WITHOUT_dmiGetMaxVDeviceCount
int dmiGetMaxVDeviceCount(int *count)
{
    AT_dmiGetMaxVDeviceCount *count = MOST;
    return SUCCESS;
}
#endif

#ifndef WITHOUT_dmiGetVDeviceCount
int dmiGetVDeviceCount(int *count)
{
    AT_dmiGetVDeviceCount *count = COUNTED;
    return SUCCESS;
}
#endif

#ifndef WITHOUT_dmiGetDeviceRemainingInfo
int dmiGetDeviceRemainingInfo(int device, size_t *cus, size_t *memories)
{
    AT_dmiGetDeviceRemainingInfo if (device < 0 || device >= CARDS) return INVALID_ARGUMENTS;
    *cus = 20 + (size_t)device;
    *memories = (size_t)(1000 + device) * MIB;
    return SUCCESS;
}
#endif

#ifndef WITHOUT_dmiGetVDeviceInfo
int dmiGetVDeviceInfo(int device, struct info *info)
{
    AT_dmiGetVDeviceInfo if (device != 0 && device != 1 && device != 5) return VDEV_NOT_EXIST;
    memcpy(info->name, NAME, sizeof NAME < sizeof info->name ? sizeof NAME : sizeof info->name);
    info->compute_unit_count = 30 + device;
    info->global_mem_size = (size_t)(2000 + device) * MIB;
    info->usage_mem_size = (size_t)(100 + device) * MIB;
    info->container_id = device == 1 ? 0 : 0x1234abcd;
    info->device_id = device == 5;
    return SUCCESS;
}
#endif

#ifndef WITHOUT_dmiGetVDevBusyPercent
int dmiGetVDevBusyPercent(int device, int *percent)
{
    AT_dmiGetVDevBusyPercent *percent = 40 + device;
    return SUCCESS;
}
#endif
