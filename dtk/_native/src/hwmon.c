/* A card's hwmon directory: found by its name, its channels by their labels. */
#include <errno.h>
#include <fcntl.h>
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

/* 1 and the label, 0 when there is none, or a negative errno when we are out of descriptors. */
static int read_label(const struct dtk_device *device, const char *path, char *ret, size_t size)
{
    char text[4200];
    ssize_t got = root_read(&device->system->root, device->directory, path, text, sizeof text);

    if (got == -EMFILE || got == -ENFILE || got == -ENOMEM)
        return (int)got;
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

    int got = read_label(search->device, path, text, sizeof text);
    bool named = got > 0 && (strcmp(text, search->device->id.driver) == 0 || strcmp(text, "amdgpu") == 0);

    if (got < 0)
        return got;

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

/* Of two channels with one label the lower counts. */
static void set_channel(struct dtk_device *device, enum channel channel, int number)
{
    uint8_t *at = &device->channel[channel];

    if (*at == 0 || number + 1 < *at)
        *at = (uint8_t)(number + 1);
}

static int visit_label(void *context, const char *name)
{
    struct dtk_device *device = context;
    static const char *const prefixes[] = {"temp", "in"};
    char text[32], path[64];

    for (size_t p = 0; p < sizeof prefixes / sizeof prefixes[0]; p++) {
        int number = channel_number(name, prefixes[p]), got;

        if (number < 0 || snprintf(path, sizeof path, "%s/%s", device->hwmon, name) >= (int)sizeof path)
            continue;
        got = read_label(device, path, text, sizeof text);
        if (got < 0)
            return got;
        for (size_t i = 0; got > 0 && i < sizeof labels / sizeof labels[0]; i++)
            if (strcmp(labels[i].prefix, prefixes[p]) == 0 && strcmp(labels[i].label, text) == 0)
                set_channel(device, labels[i].channel, number);
    }
    return 0;
}

/* A driver that is bound anew makes a new directory, perhaps of another number. */
static bool is_still_there(struct dtk_device *device)
{
    struct stat st;

    if (!device->hwmon[0])
        return false;
    if (fstatat(device->directory, device->hwmon, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return true;
    device->hwmon[0] = '\0';
    memset(device->channel, 0, sizeof device->channel);
    return false;
}

void hwmon_prepare(struct dtk_device *device)
{
    struct search search = {.device = device};
    const struct root *root = &device->system->root;
    struct stat st;
    char path[64];

    /* Look before opening: some cards (virtual functions) have none. */
    if (device->card != device || device->directory < 0 || is_still_there(device) ||
        fstatat(device->directory, "hwmon", &st, AT_SYMLINK_NOFOLLOW) != 0)
        return;
    if (root_list(root, device->directory, "hwmon", visit_hwmon, &search) != 0 || !search.found)
        return;
    snprintf(device->hwmon, sizeof device->hwmon, "hwmon/hwmon%u", search.best);
    if (root_list(root, device->directory, device->hwmon, visit_label, device) != 0) {
        device->hwmon[0] = '\0'; /* ask again in the next sample */
        return;
    }
    /* Cards before Vega have one sensor without a label; it is on the edge of the die. */
    snprintf(path, sizeof path, "%s/temp1_label", device->hwmon);
    if (!device->channel[CHANNEL_EDGE] && root_has_file(device->directory, path) == -ENOENT)
        set_channel(device, CHANNEL_EDGE, 1);
}
