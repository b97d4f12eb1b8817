/* Hygon's libhydmi, which knows of virtual devices what is in no file: use, owner, and what a card has left.
 *
 * It is never linked: each function is looked up by its name, and one that is missing makes its readings unsupported.
 * What it writes goes into zeroed blocks that are larger than any version of its structs. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vdev.h"

enum dmi_status {
    DMI_SUCCESS = 0,
    DMI_OPEN_MKFD_FAILED = 3,
    DMI_NOT_SUPPORTED = 6,
    DMI_NOT_INITIALIZED = 13,
    DMI_DEVICE_NOT_SUPPORT = 14,
    DMI_VDEV_NOT_EXIST = 15,
    DMI_PERMISSION = 19,
    DMI_NOT_YET_IMPLEMENTED = 31,
    DMI_ABSENT = -1, /* ours: the library has no such function */
};

struct dmi_info {
    char name[256];
    int compute_units;
    size_t memory_total, memory_used; /* bytes */
    uint64_t container;
    int device;
};
_Static_assert(offsetof(struct dmi_info, device) == 288, "the layout of libhydmi's struct");

union block {
    int number;
    size_t size;
    struct dmi_info info;
    char room[1024];
};

/* Limits are far above what any card has; what is beyond them is no answer. */
enum { UNITS_MAX = 65535, PER_CARD_LEAST = 4 };
static const uint64_t memory_max = 1000000000000000;

struct dmi {
    struct dtk_virtuals *virtuals;
    void *handle;
};

/* ---- Calls ---- */

/* A function of the library as `ret`, a pointer to a function pointer: C has no other way to say it. */
static bool resolve(const struct dmi *dmi, const char *name, void *ret)
{
    void *symbol = dlsym(dmi->handle, name);

    memcpy(ret, &symbol, sizeof symbol);
    return symbol != NULL;
}

static int call_count(const struct dmi *dmi, const char *name, union block *ret)
{
    int (*function)(int *);

    memset(ret, 0, sizeof *ret);
    return resolve(dmi, name, &function) ? function(&ret->number) : DMI_ABSENT;
}

/* The functions that fill something for a device of that number have all the same shape. */
static int call_of(const struct dmi *dmi, const char *name, int number, union block *ret)
{
    int (*function)(int, void *);

    memset(ret, 0, sizeof *ret);
    return resolve(dmi, name, &function) ? function(number, ret) : DMI_ABSENT;
}

static int call_remaining(const struct dmi *dmi, int number, union block *units, union block *memory)
{
    int (*function)(int, size_t *, size_t *);

    memset(units, 0, sizeof *units);
    memset(memory, 0, sizeof *memory);
    return resolve(dmi, "dmiGetDeviceRemainingInfo", &function) ? function(number, &units->size, &memory->size)
                                                                : DMI_ABSENT;
}

static uint8_t status_of_dmi(int status)
{
    switch (status) {
    case DMI_SUCCESS:
        return DTK_OK;
    case DMI_ABSENT:
    case DMI_NOT_SUPPORTED:
    case DMI_DEVICE_NOT_SUPPORT:
    case DMI_NOT_YET_IMPLEMENTED:
        return DTK_UNSUPPORTED;
    case DMI_PERMISSION:
        return DTK_DENIED;
    case DMI_VDEV_NOT_EXIST:
        return DTK_GONE;
    default:
        return DTK_FAILED;
    }
}

static dtk_value failure(uint8_t type, int status)
{
    int32_t detail = status >= 0 && status < 0x10000 ? DTK_DETAIL_DMI + status : 0;

    return vdev_missing(type, status_of_dmi(status), detail);
}

static dtk_value count_of(int status, uint64_t number, uint64_t most)
{
    if (status != DMI_SUCCESS)
        return failure(DTK_TYPE_U64, status);
    if (number > most)
        return vdev_missing(DTK_TYPE_U64, DTK_FAILED, DTK_DETAIL_IMPLAUSIBLE);
    return (dtk_value){.u64 = number, .type = DTK_TYPE_U64, .source = DTK_VIRTUAL_LIBRARY};
}

static dtk_value percent_of(int status, int number)
{
    if (status != DMI_SUCCESS)
        return failure(DTK_TYPE_F64, status);
    if (number < 0 || number > 100)
        return vdev_missing(DTK_TYPE_F64, DTK_FAILED, DTK_DETAIL_IMPLAUSIBLE);
    return (dtk_value){.f64 = number, .type = DTK_TYPE_F64, .source = DTK_VIRTUAL_LIBRARY};
}

/* Take note of the first call that failed, for the look as a whole. */
static void note_failure(struct dmi *dmi, const char *call, int status)
{
    dtk_virtual_scan *scan = &dmi->virtuals->scan;

    if (scan->call[0])
        return;
    snprintf(scan->call, sizeof scan->call, "%s", call);
    scan->library_detail = status;
}

/* Nothing can be had from it. Without its device node a machine has no virtual devices that it could know of; version 1.5
 * then says that it is not initialized. */
static void give_up(struct dmi *dmi, const char *call, int status)
{
    dtk_virtual_scan *scan = &dmi->virtuals->scan;

    note_failure(dmi, call, status);
    scan->library = status == DMI_ABSENT ? DTK_LIBRARY : status_of_dmi(status);
    if (status != DMI_OPEN_MKFD_FAILED && status != DMI_NOT_INITIALIZED)
        return;
    scan->node = access("/dev/mkfd", F_OK) == 0;
    if (!scan->node)
        scan->library = DTK_UNSUPPORTED;
    else if (access("/dev/mkfd", R_OK | W_OK) != 0)
        scan->library = DTK_DENIED;
}

/* ---- Cards ---- */

/* Index of the card that the library numbers so: the one that a configuration file names beside that number, else by the
 * order of KFD's nodes. */
static int32_t card_of(const struct dtk_virtuals *virtuals, int number, int count)
{
    int32_t found = -1;
    int hygon = 0;

    for (int i = 0; i < virtuals->scan.devices; i++)
        if (virtuals->devices[i].device == number && virtuals->devices[i].card >= 0)
            return virtuals->devices[i].card;
    for (int i = 0; i < virtuals->machine_count; i++) {
        const struct vdev_card *card = &virtuals->machine[i];
        int before = 0;

        if (!card->hygon)
            continue;
        if (card->kfd_node < 0)
            return -1;
        hygon++;
        for (int j = 0; j < virtuals->machine_count; j++)
            before += virtuals->machine[j].hygon && virtuals->machine[j].kfd_node < card->kfd_node;
        if (before == number)
            found = card->index;
    }
    return hygon == count ? found : -1;
}

static void ask_cards(struct dmi *dmi, const int32_t *cards, int count)
{
    struct dtk_virtuals *virtuals = dmi->virtuals;

    for (int i = 0; i < count; i++) {
        union block units, memory;
        int status = call_remaining(dmi, i, &units, &memory);

        virtuals->cards[virtuals->scan.cards++] = (dtk_virtual_card){
            .card = cards[i],
            .device = i,
            .compute_units_free = count_of(status, units.size, UNITS_MAX),
            .memory_free = count_of(status, memory.size, memory_max),
        };
    }
}

/* ---- Virtual devices ---- */

static void fill(struct dmi *dmi, dtk_virtual *device, const struct dmi_info *info, const int32_t *cards, int count)
{
    const struct dtk_virtuals *virtuals = dmi->virtuals;

    device->sources |= DTK_VIRTUAL_LIBRARY;
    if (info->device >= 0 && info->device < VDEV_CARDS_MAX) {
        device->device = info->device;
        if (!device->bdf[0] && info->device < count)
            device->card = cards[info->device];
    }
    for (int i = 0; !device->bdf[0] && i < virtuals->machine_count; i++)
        if (virtuals->machine[i].index == device->card)
            memcpy(device->bdf, virtuals->machine[i].bdf, sizeof device->bdf);
    parse_text(info->name, sizeof info->name, device->name, sizeof device->name);
    if (info->container)
        snprintf(device->container, sizeof device->container, "0x%llx", (unsigned long long)info->container);
    device->compute_units = count_of(0, (uint64_t)(int64_t)info->compute_units, UNITS_MAX);
    device->memory_total = count_of(0, info->memory_total, memory_max);
    device->memory_used = count_of(0, info->memory_used, memory_max);
}

/* Numbers have gaps where a virtual device was destroyed. One that neither the library nor a file knows is no device. */
static void ask_device(struct dmi *dmi, int id, const int32_t *cards, int count)
{
    dtk_virtual *device = vdev_find(dmi->virtuals, id);
    union block block;
    int status = call_of(dmi, "dmiGetVDeviceInfo", id, &block);

    if (status != DMI_SUCCESS && status != DMI_VDEV_NOT_EXIST && (device || dmi->virtuals->scan.counted > 0))
        note_failure(dmi, "dmiGetVDeviceInfo", status);
    if (status == DMI_SUCCESS && !device)
        device = vdev_add(dmi->virtuals, id);
    if (!device)
        return;
    if (status != DMI_SUCCESS) {
        device->memory_used = failure(DTK_TYPE_U64, status);
        device->utilization = failure(DTK_TYPE_F64, status);
        return;
    }
    fill(dmi, device, &block.info, cards, count);
    status = call_of(dmi, "dmiGetVDevBusyPercent", id, &block);
    device->utilization = percent_of(status, block.number);
}

/* The highest number that a virtual device may have, and one more. */
static int number_limit(const struct dtk_virtuals *virtuals, int cards)
{
    const dtk_virtual_scan *scan = &virtuals->scan;
    int each = scan->most > PER_CARD_LEAST ? scan->most : PER_CARD_LEAST;
    int limit = each < VDEV_MAX ? cards * each : VDEV_MAX;

    if (scan->counted > limit)
        limit = scan->counted;
    for (int i = 0; i < scan->devices; i++)
        if (virtuals->devices[i].id >= limit)
            limit = virtuals->devices[i].id < VDEV_MAX ? virtuals->devices[i].id + 1 : VDEV_MAX;
    return limit < VDEV_MAX ? limit : VDEV_MAX;
}

static int32_t plausible_count(int status, int number)
{
    return status == DMI_SUCCESS && number >= 0 ? number : -1;
}

static void ask(struct dmi *dmi)
{
    dtk_virtual_scan *scan = &dmi->virtuals->scan;
    int32_t cards[VDEV_CARDS_MAX];
    union block block;
    int status = call_count(dmi, "dmiGetDeviceCount", &block), count = block.number, limit;

    if (status != DMI_SUCCESS) {
        give_up(dmi, "dmiGetDeviceCount", status);
        return;
    }
    scan->library = DTK_OK;
    scan->truncated |= count > VDEV_CARDS_MAX;
    count = count < 0 ? 0 : count > VDEV_CARDS_MAX ? VDEV_CARDS_MAX : count;
    for (int i = 0; i < count; i++)
        cards[i] = card_of(dmi->virtuals, i, count);
    ask_cards(dmi, cards, count);
    status = call_count(dmi, "dmiGetMaxVDeviceCount", &block);
    scan->most = plausible_count(status, block.number);
    status = call_count(dmi, "dmiGetVDeviceCount", &block);
    scan->counted = plausible_count(status, block.number);
    scan->truncated |= scan->counted > VDEV_MAX;
    if (status != DMI_SUCCESS && status != DMI_ABSENT)
        note_failure(dmi, "dmiGetVDeviceCount", status);
    limit = number_limit(dmi->virtuals, count);
    for (int id = 0; id < limit; id++)
        ask_device(dmi, id, cards, count);
}

/* ---- Finding it ---- */

/* RTLD_NODELETE: it may have threads, or handlers that run at the end of the process. To open a FIFO may wait for ever
 * and to open a device may do something, so neither is tried. */
static bool load(struct dmi *dmi, const char *path)
{
    dtk_virtual_scan *scan = &dmi->virtuals->scan;
    struct stat st;

    if (strchr(path, '/') && stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        if (!scan->message[0])
            snprintf(scan->message, sizeof scan->message, "%.200s: not a regular file", path);
        return false;
    }
    dmi->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (dmi->handle)
        snprintf(scan->path, sizeof scan->path, "%s", path);
    return dmi->handle != NULL;
}

/* Keep why one that is there cannot be loaded; the first that was tried says most. */
static void note_message(struct dmi *dmi)
{
    dtk_virtual_scan *scan = &dmi->virtuals->scan;
    const char *message = dlerror();

    if (message && !scan->message[0])
        parse_text(message, strlen(message), scan->message, sizeof scan->message);
}

static bool find(struct dmi *dmi, const char *named)
{
    static const char *const directories[] = {"/opt/hyhal/lib/", "/usr/local/hyhal/lib/", "/opt/dtk/.hyhal/lib/", ""};
    static const char *const names[] = {"libhydmi.so", "libhydmi.so.1", "libhydmi.so.1.5", "libhydmi.so.1.4"};
    dtk_virtual_scan *scan = &dmi->virtuals->scan;
    char path[64];

    if (named && load(dmi, named))
        return true;
    if (named) {
        scan->named = 1;
        note_message(dmi);
    }
    scan->library = DTK_NOT_FOUND;
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            bool there;

            snprintf(path, sizeof path, "%s%s", directories[i], names[j]);
            there = directories[i][0] && access(path, F_OK) == 0;
            if ((there || !directories[i][0]) && load(dmi, path))
                return true;
            if (there) {
                scan->library = DTK_LIBRARY;
                note_message(dmi);
            }
        }
    if (named)
        scan->library = DTK_LIBRARY;
    return false;
}

void vdev_ask_library(struct dtk_virtuals *virtuals, const char *path)
{
    struct dmi dmi = {.virtuals = virtuals};

    if (!find(&dmi, path))
        return;
    ask(&dmi);
    dlclose(dmi.handle);
}
