/* Virtual devices of Hygon cards: a look at them, and their configuration files. */
#include "vdev.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 4096, HYGON = 0x1d94 };

/* ---- Rows ---- */

dtk_value vdev_missing(uint8_t type, uint8_t status, int32_t detail)
{
    return (dtk_value){.type = type, .status = status, .detail = detail};
}

dtk_virtual *vdev_find(struct dtk_virtuals *virtuals, int32_t id)
{
    for (int i = 0; i < virtuals->scan.devices; i++)
        if (virtuals->devices[i].id == id)
            return &virtuals->devices[i];
    return NULL;
}

dtk_virtual *vdev_add(struct dtk_virtuals *virtuals, int32_t id)
{
    const dtk_value none = vdev_missing(DTK_TYPE_U64, DTK_UNSUPPORTED, 0);
    dtk_virtual *device;

    if (virtuals->scan.devices == VDEV_MAX) {
        virtuals->scan.truncated = 1;
        return NULL;
    }
    device = &virtuals->devices[virtuals->scan.devices++];
    *device = (dtk_virtual){.id = id, .card = -1, .device = -1, .pipe = -1, .enabled = -1};
    device->compute_units = device->memory_total = device->memory_used = none;
    device->utilization = vdev_missing(DTK_TYPE_F64, DTK_UNSUPPORTED, 0);
    return device;
}

static int by_number(const void *a, const void *b)
{
    int32_t left = ((const dtk_virtual *)a)->id, right = ((const dtk_virtual *)b)->id;

    return (left > right) - (left < right);
}

/* ---- Configuration files ---- */

struct walk {
    struct dtk_virtuals *virtuals;
    const struct root *root;
    const char *directory;
    int before; /* rows when this directory began: of an earlier one they go before */
};

static void skip(struct walk *walk, const char *path, int32_t detail)
{
    dtk_virtual_scan *scan = &walk->virtuals->scan;

    ROOT_DEBUG(walk->root, detail < DTK_DETAIL_MALFORMED ? -detail : -EINVAL, path);
    if (scan->skipped++ > 0)
        return;
    parse_text(path, strlen(path), scan->first_skipped, sizeof scan->first_skipped);
    scan->skipped_detail = detail;
}

static int32_t number_or(const struct vdev_number *number, int32_t other)
{
    return number->status == DTK_OK ? (int32_t)number->value : other;
}

static dtk_value reading_of(const struct vdev_number *number)
{
    if (number->status != DTK_OK)
        return vdev_missing(DTK_TYPE_U64, number->status, number->status == DTK_FAILED ? DTK_DETAIL_MALFORMED : 0);
    return (dtk_value){.u64 = number->value, .type = DTK_TYPE_U64, .source = DTK_VIRTUAL_FILES};
}

static void put_on_card(const struct dtk_virtuals *virtuals, dtk_virtual *device, const struct pci_address *address)
{
    snprintf(device->bdf, sizeof device->bdf, "%04x:%02x:%02x.%x", address->domain, address->bus, address->device,
             address->function);
    for (int i = 0; i < virtuals->machine_count; i++)
        if (strcmp(virtuals->machine[i].bdf, device->bdf) == 0)
            device->card = virtuals->machine[i].index;
}

static void add_file(struct walk *walk, const char *path, const struct vdev *vdev, int32_t number)
{
    struct dtk_virtuals *virtuals = walk->virtuals;
    int32_t id = number_or(&vdev->id, number);
    dtk_virtual *device = vdev_find(virtuals, id);

    if (device) {
        if (device - virtuals->devices >= walk->before)
            skip(walk, path, EEXIST);
        return;
    }
    device = vdev_add(virtuals, id);
    if (!device)
        return;
    device->sources = DTK_VIRTUAL_FILES;
    device->device = number_or(&vdev->card, -1);
    device->pipe = number_or(&vdev->pipe, -1);
    device->enabled = number_or(&vdev->enabled, -1);
    device->compute_units = reading_of(&vdev->compute_units);
    device->memory_total = reading_of(&vdev->memory);
    if (vdev->has_address)
        put_on_card(virtuals, device, &vdev->address);
}

/* "vdev3.conf" */
static bool is_vdev(const char *name, uint32_t *number)
{
    static const char suffix[] = ".conf";
    size_t len = strlen(name), tail = sizeof suffix - 1;
    char start[16];

    if (len <= tail || len - tail >= sizeof start || strcmp(name + len - tail, suffix) != 0)
        return false;
    memcpy(start, name, len - tail);
    start[len - tail] = '\0';
    return parse_number_after(start, "vdev", number) == 0 && *number <= INT32_MAX;
}

static int visit_file(void *context, const char *name)
{
    struct walk *walk = context;
    char path[64], text[FILE_MAX];
    struct vdev vdev;
    uint32_t number;
    ssize_t got;

    if (!is_vdev(name, &number))
        return 0;
    snprintf(path, sizeof path, "%s/%.24s", walk->directory, name);
    got = root_read(walk->root, walk->root->fd, path, text, sizeof text);
    if (got == -ENOENT) /* destroyed meanwhile */
        return 0;
    if (got < 0)
        skip(walk, path, (int32_t)-got);
    else if (parse_vdev(text, (size_t)got, &vdev) != 0)
        skip(walk, path, DTK_DETAIL_MALFORMED);
    else
        add_file(walk, path, &vdev, (int32_t)number);
    return 0;
}

/* What a container was given lies in docker/. What both have is told by the first. */
static void read_configuration(struct dtk_virtuals *virtuals, const struct root *root)
{
    static const char *const directories[] = {"etc/vdev", "etc/vdev/docker"};
    dtk_virtual_scan *scan = &virtuals->scan;

    for (int i = 0; i < 2; i++) {
        struct walk walk = {virtuals, root, directories[i], scan->devices};
        int error = root_list(root, root->fd, directories[i], visit_file, &walk);

        if (error == 0)
            scan->files = DTK_OK;
        else if (error != -ENOENT && scan->files != DTK_OK) {
            scan->files = error == -EACCES || error == -EPERM ? DTK_DENIED : DTK_FAILED;
            scan->files_detail = -error;
        }
    }
}

/* ---- A look ---- */

static int note_cards(struct dtk_system *system, struct dtk_virtuals *virtuals)
{
    int status = 0;

    system_lock(system);
    virtuals->machine = calloc((size_t)system->now.cards.count + 1, sizeof *virtuals->machine);
    if (!virtuals->machine)
        status = -DTK_NO_MEMORY;
    for (int i = 0; status == 0 && i < system->now.cards.count; i++) {
        const struct dtk_device *card = system->now.cards.at[i];
        struct vdev_card *noted = &virtuals->machine[virtuals->machine_count++];

        noted->index = i;
        noted->kfd_node = card->partitioned ? -1 : card->id.kfd_node;
        noted->hygon = card->id.vendor_id == HYGON;
        memcpy(noted->bdf, card->id.bdf, sizeof noted->bdf);
    }
    system_unlock(system);
    return status;
}

static bool has_hygon_card(const struct dtk_virtuals *virtuals)
{
    for (int i = 0; i < virtuals->machine_count; i++)
        if (virtuals->machine[i].hygon)
            return true;
    return false;
}

int dtk_virtuals_read(dtk_system *system, uint32_t places, const char *library, dtk_virtuals **ret)
{
    struct dtk_virtuals *virtuals;

    if (!system || !ret || !places || places & ~(DTK_VIRTUAL_FILES | DTK_VIRTUAL_LIBRARY))
        return -DTK_INVALID_ARGUMENT;
    virtuals = calloc(1, sizeof *virtuals);
    if (virtuals)
        virtuals->devices = calloc(VDEV_MAX, sizeof *virtuals->devices);
    if (!virtuals || !virtuals->devices || note_cards(system, virtuals) != 0) {
        dtk_virtuals_free(virtuals);
        return -DTK_NO_MEMORY;
    }
    virtuals->scan.counted = virtuals->scan.most = virtuals->scan.node = -1;
    virtuals->scan.files = virtuals->scan.library = DTK_UNSUPPORTED;
    if (places & DTK_VIRTUAL_FILES)
        read_configuration(virtuals, &system->root);
    if (places & DTK_VIRTUAL_LIBRARY && system->root.live && (library || has_hygon_card(virtuals)))
        vdev_ask_library(virtuals, library);
    qsort(virtuals->devices, (size_t)virtuals->scan.devices, sizeof *virtuals->devices, by_number);
    *ret = virtuals;
    return 0;
}

void dtk_virtuals_free(dtk_virtuals *virtuals)
{
    if (!virtuals)
        return;
    free(virtuals->devices);
    free(virtuals->machine);
    free(virtuals);
}

int dtk_virtuals_scan(const dtk_virtuals *virtuals, dtk_virtual_scan *ret, size_t size)
{
    if (!virtuals || !ret)
        return -DTK_INVALID_ARGUMENT;
    memcpy(ret, &virtuals->scan, size < sizeof virtuals->scan ? size : sizeof virtuals->scan);
    return 0;
}

/* Hand rows to the caller, up to the size it knows. */
static int copy_rows(const void *rows, size_t row_size, int row_count, void *ret, size_t size, size_t count)
{
    if (!ret && count)
        return -DTK_INVALID_ARGUMENT;
    for (size_t i = 0; i < count && i < (size_t)row_count; i++)
        memcpy((char *)ret + i * size, (const char *)rows + i * row_size, size < row_size ? size : row_size);
    return row_count;
}

int dtk_virtuals_devices(const dtk_virtuals *virtuals, dtk_virtual *ret, size_t size, size_t count)
{
    if (!virtuals)
        return -DTK_INVALID_ARGUMENT;
    return copy_rows(virtuals->devices, sizeof *virtuals->devices, virtuals->scan.devices, ret, size, count);
}

int dtk_virtuals_cards(const dtk_virtuals *virtuals, dtk_virtual_card *ret, size_t size, size_t count)
{
    if (!virtuals)
        return -DTK_INVALID_ARGUMENT;
    return copy_rows(virtuals->cards, sizeof virtuals->cards[0], virtuals->scan.cards, ret, size, count);
}
