/* Which devices a key means. */
#include <string.h>

#include "backend.h"

/* What a key asks for. */
struct key {
    const char *text; /* of the whole key, or behind its prefix */
    uint32_t number;
    struct pci_address address;
};

typedef bool matches(const struct dtk_device *device, const struct key *key);

static bool by_index(const struct dtk_device *device, const struct key *key)
{
    return device->id.index == (int32_t)key->number;
}

/* The card's own node means all its partitions; the first partition has no other. */
static bool by_drm_card(const struct dtk_device *device, const struct key *key)
{
    return device->card->id.drm_card == (int32_t)key->number || device->id.drm_card == (int32_t)key->number;
}

static bool by_drm_render(const struct dtk_device *device, const struct key *key)
{
    return device->id.drm_render == (int32_t)key->number;
}

static bool by_kfd_node(const struct dtk_device *device, const struct key *key)
{
    return device->id.kfd_node == (int32_t)key->number;
}

static bool by_gpu_id(const struct dtk_device *device, const struct key *key)
{
    return device->id.gpu_id == (int64_t)key->number;
}

static bool by_hip_index(const struct dtk_device *device, const struct key *key)
{
    return device->id.hip_index == (int32_t)key->number;
}

static bool by_address(const struct dtk_device *device, const struct key *key)
{
    return device->address.domain == key->address.domain && device->address.bus == key->address.bus &&
           device->address.device == key->address.device && device->address.function == key->address.function;
}

static bool by_uuid(const struct dtk_device *device, const struct key *key)
{
    return strncasecmp(device->id.uuid, key->text, strlen(key->text)) == 0;
}

static bool by_serial(const struct dtk_device *device, const struct key *key)
{
    dtk_info info;

    if (!touch(device->system, device->id.bdf))
        return false;
    device_info(device, &info);
    return info.serial[0] && strcmp(info.serial, key->text) == 0;
}

static const struct {
    const char *prefix;
    matches *test;
} numbered[] = {
    {"", by_index},        {"card", by_drm_card},  {"renderD", by_drm_render},
    {"kfd:", by_kfd_node}, {"gpu_id:", by_gpu_id}, {"hip:", by_hip_index},
};

static matches *understand(const char *text, struct key *ret)
{
    ret->text = text;
    for (size_t i = 0; i < sizeof numbered / sizeof numbered[0]; i++)
        if (parse_number_after(text, numbered[i].prefix, &ret->number) == 0)
            return ret->number <= INT32_MAX ? numbered[i].test : NULL;
    if (parse_pci_address(text, strlen(text), &ret->address) == 0)
        return by_address;
    if (strncmp(text, "serial:", 7) == 0 && text[7]) {
        ret->text = text + 7;
        return by_serial;
    }
    return strncasecmp(text, "GPU-", 4) == 0 || strncasecmp(text, "PCI-", 4) == 0 ? by_uuid : NULL;
}

/* A prefix may mean one card with all its partitions, not two cards; the whole uuid of one device is that device, even
 * when others begin with it (p1 and p10). */
static int settle_uuid(const dtk_system *system, const char *text, int *ret, size_t count, int found)
{
    const struct dtk_device *card = NULL;

    for (int i = 0; i < system->now.devices.count; i++) {
        const struct dtk_device *device = system->now.devices.at[i];

        if (strcasecmp(device->id.uuid, text) == 0) {
            if (count)
                ret[0] = i;
            return 1;
        }
        if (strncasecmp(device->id.uuid, text, strlen(text)) != 0)
            continue;
        if (card && card != device->card)
            return -DTK_AMBIGUOUS;
        card = device->card;
    }
    return found;
}

/* For who holds the lock. */
static int match(const struct dtk_system *system, const char *text, int *ret, size_t count)
{
    const struct device_list *devices = &system->now.devices;
    struct key key = {0};
    matches *test = understand(text, &key);
    int found = 0;

    if (!test)
        return -DTK_INVALID_ARGUMENT;
    for (int i = 0; i < devices->count; i++) {
        if (!test(devices->at[i], &key))
            continue;
        if ((size_t)found < count)
            ret[found] = i;
        found++;
    }
    if (test == by_uuid && found > 1)
        found = settle_uuid(system, key.text, ret, count, found);
    return found ? found : -DTK_NOT_FOUND;
}

int dtk_device_match(dtk_system *system, const char *key, int *ret, size_t count)
{
    int found;

    if (!system || !key || (!ret && count))
        return -DTK_INVALID_ARGUMENT;
    system_lock(system);
    found = match(system, key, ret, count);
    system_unlock(system);
    return found;
}

int dtk_device_find(dtk_system *system, const char *key, dtk_device **ret)
{
    int index = -1, found;

    if (!system || !key || !ret)
        return -DTK_INVALID_ARGUMENT;
    system_lock(system);
    found = match(system, key, &index, 1);
    if (found == 1)
        *ret = system->now.devices.at[index];
    system_unlock(system);
    return found < 0 ? found : found == 1 ? 0 : -DTK_AMBIGUOUS;
}
