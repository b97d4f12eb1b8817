/* A card's hwmon directory: found by its name, its channels by their labels. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "backend.h"

static const struct {
    const char *prefix, *label;
    enum channel channel;
} labels[] = {
    {"temp", "edge", CHANNEL_EDGE}, {"temp", "junction", CHANNEL_JUNCTION}, {"temp", "mem", CHANNEL_MEMORY},
    {"temp", "core", CHANNEL_CORE}, {"in", "vddgfx", CHANNEL_VDDGFX},
};

struct search {
    struct dtk_device *device;
    uint32_t best; /* number of the directory that was chosen */
    bool found, named;
};

static bool read_label(const struct dtk_device *device, int directory, const char *path, char *ret, size_t size)
{
    char text[4200];
    ssize_t got = root_read(&device->system->root, directory, path, text, sizeof text);

    return got > 0 && parse_text(text, (size_t)got, ret, size) == 0;
}

/* The directory whose name is the driver's; a driver that uses another name still has one of them. */
static int visit_hwmon(void *context, const char *name)
{
    struct search *search = context;
    char path[64], text[32];
    uint32_t number;

    if (parse_number_after(name, "hwmon", &number) != 0)
        return 0;
    snprintf(path, sizeof path, "hwmon/hwmon%u/name", number);

    bool named = read_label(search->device, search->device->directory, path, text, sizeof text) &&
                 (strcmp(text, search->device->id.driver) == 0 || strcmp(text, "amdgpu") == 0);

    if (!search->found || named > search->named || (named == search->named && number < search->best)) {
        search->found = true;
        search->named = named;
        search->best = number;
    }
    return 0;
}

/* N of "tempN_label", or -1. */
static int channel_number(const char *name, const char *prefix)
{
    size_t len = strlen(prefix), digits;
    char text[4];
    uint32_t number;

    if (strncmp(name, prefix, len) != 0)
        return -1;
    digits = strspn(name + len, "0123456789");
    if (digits >= sizeof text || strcmp(name + len + digits, "_label") != 0)
        return -1;
    memcpy(text, name + len, digits);
    text[digits] = '\0';
    return parse_number_after(text, "", &number) == 0 && number < UINT8_MAX ? (int)number : -1;
}

static int visit_label(void *context, const char *name)
{
    struct dtk_device *device = context;
    char text[32];

    for (size_t i = 0; i < sizeof labels / sizeof labels[0]; i++) {
        int number = channel_number(name, labels[i].prefix);

        if (number >= 0 && read_label(device, device->hwmon, name, text, sizeof text) &&
            strcmp(text, labels[i].label) == 0)
            device->channel[labels[i].channel] = (uint8_t)(number + 1);
    }
    return 0;
}

void hwmon_prepare(struct dtk_device *device)
{
    struct search search = {.device = device};
    const struct root *root = &device->system->root;
    struct stat st;
    char path[64];

    /* Look before opening: many devices (partitions, virtual functions) have none. */
    if (device->hwmon >= 0 || device->card != device || device->directory < 0 ||
        fstatat(device->directory, "hwmon", &st, 0) != 0)
        return;
    root_list(root, device->directory, "hwmon", visit_hwmon, &search);
    if (!search.found)
        return;
    snprintf(path, sizeof path, "hwmon/hwmon%u", search.best);
    device->hwmon = root_open_directory(root, device->directory, path);
    if (device->hwmon < 0)
        return;
    root_list(root, device->hwmon, ".", visit_label, device);
    /* Cards before Vega have one sensor without a label; it is on the edge of the die. */
    if (!device->channel[CHANNEL_EDGE] && root_has_file(device->hwmon, "temp1_label") == -ENOENT)
        device->channel[CHANNEL_EDGE] = 1 + 1;
}
