/* Names of cards whose board does not say its own. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend.h"

static const struct {
    int32_t vendor, device;
    const char *name;
} table[] = {
#define NAME(vendor, device, name) {vendor, device, name},
#include "names.def"
#undef NAME
};

/* A site's own names come before ours, the public list after. */
static const char *const site_list = "etc/dtk/cards.ids";
static const char *const public_lists[] = {"usr/share/hwdata/pci.ids", "usr/share/misc/pci.ids", "usr/share/pci.ids",
                                           "var/lib/pciutils/pci.ids"};

/* Where a list of the pci.ids format is being read: "vvvv  vendor", then "<tab>dddd  device" lines below it. */
struct search {
    char vendor[6], device[7]; /* what the wanted lines start with */
    bool inside;               /* below the vendor's line */
    char *ret;
    size_t size;
};

static bool take_line(struct search *search, const char *line, size_t len)
{
    if (len < 6 || line[0] == '#')
        return false;
    if (line[0] != '\t') {
        search->inside = strncasecmp(line, search->vendor, 5) == 0;
        return false;
    }
    return search->inside && strncasecmp(line, search->device, 6) == 0 &&
           parse_text(line + 6, len - 6, search->ret, search->size) == 0;
}

enum { LIST_MAX = 16 << 20 };

/* The list is over a megabyte: read it in pieces, cut a line that is longer than the buffer. */
static bool search_file(int fd, struct search *search)
{
    char buffer[READ_MAX / 8];
    size_t held = 0, total = 0;
    ssize_t got;

    while (total < LIST_MAX && (got = read(fd, buffer + held, sizeof buffer - held)) > 0) {
        char *line = buffer, *end = buffer + held + got, *newline;

        total += (size_t)got;

        while ((newline = memchr(line, '\n', (size_t)(end - line)))) {
            if (take_line(search, line, (size_t)(newline - line)))
                return true;
            line = newline + 1;
        }
        held = (size_t)(end - line);
        if (held == sizeof buffer)
            held = 0;
        memmove(buffer, line, held);
    }
    return held && take_line(search, buffer, held);
}

static bool search_list(const struct root *root, const char *list, struct search *search)
{
    char path[ROOT_PATH_MAX];
    bool found;
    int fd;

    if (root_resolve(root, list, path, sizeof path) != 0 || root_has_file(root->fd, path) != 0)
        return false;
    fd = root_open_file(root, root->fd, path);
    if (fd < 0)
        return false;
    search->inside = false;
    found = search_file(fd, search);
    close(fd);
    return found;
}

static bool search_table(const dtk_info *id, char *ret, size_t size)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].vendor == id->vendor_id && table[i].device == id->device_id) {
            snprintf(ret, size, "%s", table[i].name);
            return true;
        }
    return false;
}

void name_of_card(const struct root *root, const dtk_info *id, char *ret, size_t size)
{
    struct search search = {.ret = ret, .size = size};

    snprintf(search.vendor, sizeof search.vendor, "%04x ", (unsigned)id->vendor_id & 0xffff);
    snprintf(search.device, sizeof search.device, "\t%04x ", (unsigned)id->device_id & 0xffff);
    if (search_list(root, site_list, &search) || search_table(id, ret, size))
        return;
    for (size_t i = 0; i < sizeof public_lists / sizeof public_lists[0]; i++)
        if (search_list(root, public_lists[i], &search))
            return;
    if (id->arch[0])
        snprintf(ret, size, "%s %s", id->vendor_id == VENDOR_HYGON ? "Hygon" : "AMD", id->arch);
    else if (id->device_id < 0)
        snprintf(ret, size, "%s card", id->vendor_id == VENDOR_HYGON ? "Hygon" : "AMD");
    else
        snprintf(ret, size, "%s %04x:%04x", id->vendor_id == VENDOR_HYGON ? "Hygon" : "AMD",
                 (unsigned)id->vendor_id & 0xffff, (unsigned)id->device_id & 0xffff);
}
