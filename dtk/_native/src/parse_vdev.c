/* Parser of the configuration file of a virtual device of a Hygon card. */
#include "dtk.h"
#include "parse.h"
#include "span.h"

enum { NUMBER_MAX = 65535, MIB_MAX = 1 << 30 };

/* A whole number, the unit behind it where there is one, and nothing else. */
static struct vdev_number number_of(struct span value, const char *unit, uint64_t most)
{
    struct vdev_number number = {.status = DTK_FAILED};
    uint64_t found;
    if (!take_digits(&value, 10, &found) || found > most)
        return number;
    skip_blanks(&value);
    if (!take_word(&value, unit) || !is_empty(&value))
        return number;
    return (struct vdev_number){.status = DTK_OK, .value = found};
}

/* Of several lines of one name the first counts, whatever it says. */
static bool take_number(struct span line, const char *key, const char *unit, uint64_t most, struct vdev_number *ret)
{
    if (!take_word(&line, key))
        return false;
    if (ret->status == DTK_UNSUPPORTED)
        *ret = number_of(trimmed(line), unit, most);
    return true;
}

static bool take_address(struct span line, struct vdev *ret)
{
    if (!take_word(&line, "PciBusId:"))
        return false;
    line = trimmed(line);
    if (!ret->has_address)
        ret->has_address = parse_pci_address(line.at, (size_t)(line.end - line.at), &ret->address) == 0;
    return true;
}

int parse_vdev(const char *text, size_t len, struct vdev *ret)
{
    const struct vdev_number none = {.status = DTK_UNSUPPORTED};
    struct vdev vdev = {.id = none, .card = none, .compute_units = none, .memory = none, .pipe = none, .enabled = none};
    struct span s = span_of(text, len), line;
    bool any = false;
    while (take_full_line(&s, &line))
        any |= take_address(line, &vdev) || take_number(line, "vdev_id:", "", NUMBER_MAX, &vdev.id) ||
               take_number(line, "device_id:", "", NUMBER_MAX, &vdev.card) ||
               take_number(line, "cu_count:", "", NUMBER_MAX, &vdev.compute_units) ||
               take_number(line, "mem:", "MiB", MIB_MAX, &vdev.memory) ||
               take_number(line, "pipe_id:", "", NUMBER_MAX, &vdev.pipe) ||
               take_number(line, "enable:", "", 1, &vdev.enabled);
    if (!any)
        return -DTK_FAILED;
    vdev.memory.value <<= 20;
    *ret = vdev;
    return 0;
}
