/* Cards as PCI and DRM show them: by the driver that holds them, never by a glob on card[0-9]. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernel_scan.h"

static const char *const drivers[] = {"amdgpu", "radeon", "hydcu", "hycu"};
enum { DRIVER_COUNT = sizeof drivers / sizeof drivers[0] };

bool is_known_driver(const char *name)
{
    for (int i = 0; i < DRIVER_COUNT; i++)
        if (strcmp(name, drivers[i]) == 0)
            return true;
    return false;
}

bool is_card_vendor(uint64_t vendor)
{
    return vendor == VENDOR_AMD || vendor == VENDOR_HYGON;
}

/* Display controllers, processing accelerators, co-processors: Hygon's K100 and BW are the last of these. */
bool is_card_class(uint64_t pci_class)
{
    return pci_class >> 16 == 0x03 || pci_class >> 16 == 0x12 || pci_class >> 8 == 0x0b40;
}

bool scan_read_number(const struct root *root, int directory, const char *name, uint64_t *ret)
{
    char text[64];
    ssize_t got = root_read(root, directory, name, text, sizeof text);

    return got > 0 && parse_u64(text, (size_t)got, ret) == 0;
}

int scan_note(struct scan *scan, int error, const char *what)
{
    if (error >= 0 || error == scan->status || error == -ENOENT || error == -ENOTDIR)
        return scan->status;
    ROOT_DEBUG(scan->root, error, what);
    if (error == -EACCES || error == -EPERM)
        scan->denied = true;
    if (error == -EMFILE || error == -ENFILE || error == -ENOMEM)
        scan->status = -DTK_NO_MEMORY;
    return scan->status;
}

/* PCI ids and class of a card from uevent, which holds all of them; some recordings have only the single files. */
static void read_pci_ids(struct scan *scan, struct dtk_device *card, uint64_t *pci_class)
{
    const struct root *root = scan->root;
    char *text = card->buffer, value[64];
    ssize_t got = root_read(root, card->directory, "uevent", text, READ_MAX);
    size_t len = got > 0 ? (size_t)got : 0;
    unsigned vendor, device;
    uint64_t number;

    scan_note(scan, (int)got, "uevent");
    if (!card->id.driver[0] && parse_variable(text, len, "DRIVER", value, sizeof value) == 0)
        snprintf(card->id.driver, sizeof card->id.driver, "%.15s", value);
    if (parse_variable(text, len, "PCI_CLASS", value, sizeof value) == 0 &&
        parse_hex64(value, strlen(value), &number) == 0)
        *pci_class = number;
    if (parse_variable(text, len, "PCI_ID", value, sizeof value) == 0 &&
        sscanf(value, "%4x:%4x", &vendor, &device) == 2) {
        card->id.vendor_id = (int32_t)vendor;
        card->id.device_id = (int32_t)device;
    }
    if (parse_variable(text, len, "PCI_SUBSYS_ID", value, sizeof value) == 0 &&
        sscanf(value, "%4x:%4x", &vendor, &device) == 2) {
        card->id.subsystem_vendor_id = (int32_t)vendor;
        card->id.subsystem_device_id = (int32_t)device;
    }
    if (*pci_class == 0)
        scan_read_number(root, card->directory, "class", pci_class);
    if (card->id.vendor_id < 0 && scan_read_number(root, card->directory, "vendor", &number))
        card->id.vendor_id = (int32_t)(number & 0xffff);
    if (card->id.device_id < 0 && scan_read_number(root, card->directory, "device", &number))
        card->id.device_id = (int32_t)(number & 0xffff);
}

static void read_driver_link(const struct root *root, struct dtk_device *card)
{
    char path[ROOT_PATH_MAX], target[ROOT_PATH_MAX];

    if (snprintf(path, sizeof path, "%s/driver", card->path) < (int)sizeof path &&
        root_resolve(root, path, target, sizeof target) == 0) {
        const char *name = strrchr(target, '/');

        /* A recording may hold an empty file or directory of that name instead of the link. */
        if (name && is_known_driver(name + 1))
            snprintf(card->id.driver, sizeof card->id.driver, "%.15s", name + 1);
    }
}

static struct dtk_device *find_card_by_path(struct scan *scan, const char *path)
{
    for (int i = 0; i < scan->found->cards.count; i++)
        if (strcmp(scan->found->cards.at[i]->path, path) == 0)
            return scan->found->cards.at[i];
    return NULL;
}

void card_set_address(struct dtk_device *card, struct pci_address address)
{
    card->address = address;
    snprintf(card->id.bdf, sizeof card->id.bdf, "%04x:%02x:%02x.%x", address.domain, address.bus, address.device,
             address.function);
}

/* The card in a PCI directory: one already known, a new one, or NULL when it is none. `driver` is the one that lists it,
 * NULL when it was found otherwise: a card whose directory may not be read is still one. */
static struct dtk_device *add_pci_card(struct scan *scan, const char *path, const char *driver)
{
    const char *base = strrchr(path, '/');
    struct dtk_device *card = find_card_by_path(scan, path);
    struct pci_address address;
    uint64_t pci_class = 0;

    if (card || !base || parse_pci_address(base + 1, strlen(base + 1), &address) != 0)
        return card;
    card = device_new(scan->system);
    if (!card) {
        scan->status = -DTK_NO_MEMORY;
        return NULL;
    }
    snprintf(card->path, sizeof card->path, "%s", path);
    card_set_address(card, address);
    card->directory = root_open_directory(scan->root, scan->root->fd, path);
    if (card->directory < 0)
        scan_note(scan, card->directory, path);
    card->left_out = !touch(scan->system, card->id.bdf);
    if (driver)
        snprintf(card->id.driver, sizeof card->id.driver, "%.15s", driver);
    else
        read_driver_link(scan->root, card);
    if (!card->left_out && card->directory >= 0)
        read_pci_ids(scan, card, &pci_class);
    if (card->id.vendor_id < 0 && is_known_driver(card->id.driver))
        card->id.vendor_id = strncmp(card->id.driver, "hy", 2) == 0 ? VENDOR_HYGON : VENDOR_AMD;
    if (card->directory >= 0 && fstat(card->directory, &card->stat) != 0)
        memset(&card->stat, 0, sizeof card->stat);
    /* The driver tells a card from a bridge; the class only rules out what says that it is something else. */
    if (!is_card_vendor((uint64_t)card->id.vendor_id) || !is_known_driver(card->id.driver) ||
        (pci_class && !is_card_class(pci_class))) {
        device_free(card);
        return NULL;
    }
    if (device_list_add(&scan->found->cards, card) != 0) {
        device_free(card);
        scan->status = -DTK_NO_MEMORY;
        return NULL;
    }
    return card;
}

static int visit_bound(void *context, const char *name)
{
    struct scan *scan = context;
    struct pci_address address;
    char path[ROOT_PATH_MAX], target[ROOT_PATH_MAX];
    int error;

    if (parse_pci_address(name, strlen(name), &address) != 0 ||
        snprintf(path, sizeof path, "%s/%s", scan->directory, name) >= (int)sizeof path)
        return 0;
    error = root_resolve(scan->root, path, target, sizeof target);
    if (error)
        return scan_note(scan, error, path);
    add_pci_card(scan, target, strrchr(scan->directory, '/') + 1);
    return scan->status;
}

/* The pair of a platform device, whose cardN and renderDN are two entries of the class. */
static struct drm_pair *find_pair(struct scan *scan, const char *path)
{
    struct drm_pair pair = {.card = -1, .render = -1};

    if (snprintf(pair.path, sizeof pair.path, "%s", path) >= (int)sizeof pair.path)
        return NULL;
    for (int i = 0; i < scan->pair_count; i++)
        if (strcmp(scan->pairs[i].path, path) == 0)
            return &scan->pairs[i];
    if (scan->pair_count == scan->pair_room) {
        int room = scan->pair_room ? 2 * scan->pair_room : 16;
        struct drm_pair *grown = realloc(scan->pairs, (size_t)room * sizeof *grown);

        if (!grown) {
            scan->status = -DTK_NO_MEMORY;
            return NULL;
        }
        scan->pairs = grown;
        scan->pair_room = room;
    }
    scan->pairs[scan->pair_count] = pair;
    return &scan->pairs[scan->pair_count++];
}

static int visit_drm(void *context, const char *name)
{
    struct scan *scan = context;
    char path[ROOT_PATH_MAX], target[ROOT_PATH_MAX];
    uint32_t number;
    bool is_card = parse_number_after(name, "card", &number) == 0;

    if (!is_card && parse_number_after(name, "renderD", &number) != 0)
        return 0;
    if (number > INT32_MAX || snprintf(path, sizeof path, "sys/class/drm/%s/device", name) >= (int)sizeof path ||
        root_resolve(scan->root, path, target, sizeof target) != 0)
        return 0;

    struct dtk_device *card = add_pci_card(scan, target, NULL);
    struct drm_pair *pair = card || strncmp(target, "sys/devices/platform/", 21) != 0 ? NULL : find_pair(scan, target);
    int32_t *at = card   ? is_card ? &card->id.drm_card : &card->id.drm_render
                  : pair ? is_card ? &pair->card : &pair->render
                         : NULL;

    if (at && (*at < 0 || (int32_t)number < *at))
        *at = (int32_t)number;
    return scan->status;
}

void scan_pci(struct scan *scan)
{
    char path[ROOT_PATH_MAX];

    for (int i = 0; i < DRIVER_COUNT && scan->status == 0; i++) {
        snprintf(path, sizeof path, "sys/bus/pci/drivers/%s", drivers[i]);
        scan->directory = path;
        scan_note(scan, root_list(scan->root, scan->root->fd, path, visit_bound, scan), path);
    }
    if (scan->status == 0)
        scan_note(scan, root_list(scan->root, scan->root->fd, "sys/class/drm", visit_drm, scan), "sys/class/drm");
}
