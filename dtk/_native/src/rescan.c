/* Enumerating again, without letting go of the devices that callers hold. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend.h"

/* A device that callers hold, and what enumeration says of it now. */
struct pair {
    struct dtk_device *old, *fresh;
};

struct pairs {
    struct pair *at;
    int count;
};

/* The same card or partition, not one that was plugged in anew. */
static bool is_same(const struct dtk_device *a, const struct dtk_device *b)
{
    bool whole = a->card == a;

    if (whole != (b->card == b))
        return false;
    if (!whole)
        return is_same(a->card, b->card) && a->id.partition == b->id.partition && a->id.kfd_node == b->id.kfd_node;
    return a->partitioned == b->partitioned && a->path[0] && strcmp(a->path, b->path) == 0 &&
           a->stat.st_ino == b->stat.st_ino && a->stat.st_dev == b->stat.st_dev;
}

static bool is_claimed(const struct pairs *pairs, const struct dtk_device *old)
{
    for (int i = 0; i < pairs->count; i++)
        if (pairs->at[i].old == old)
            return true;
    return false;
}

static void pair_up(struct pairs *pairs, const struct device_list *former, struct dtk_device *fresh)
{
    for (int i = 0; i < former->count; i++)
        if (is_same(former->at[i], fresh) && !is_claimed(pairs, former->at[i])) {
            pairs->at[pairs->count++] = (struct pair){former->at[i], fresh};
            return;
        }
}

static void replace(const struct pairs *pairs, struct dtk_device **device)
{
    for (int i = 0; i < pairs->count; i++)
        if (pairs->at[i].fresh == *device) {
            *device = pairs->at[i].old;
            return;
        }
}

/* Everything but the buffer, which is only used within a call. */
static void swap_contents(struct dtk_device *a, struct dtk_device *b)
{
    enum { SIZE = offsetof(struct dtk_device, buffer) };
    _Alignas(struct dtk_device) char other[SIZE];

    memcpy(other, a, SIZE);
    memcpy(a, b, SIZE);
    memcpy(b, other, SIZE);
}

/* Let the old devices go on with what is known now, in the place of the fresh ones. */
static void exchange(const struct pairs *pairs, struct inventory *fresh)
{
    for (int i = 0; i < pairs->count; i++)
        swap_contents(pairs->at[i].old, pairs->at[i].fresh);
    for (int i = 0; i < fresh->devices.count; i++)
        replace(pairs, &fresh->devices.at[i]);
    for (int i = 0; i < fresh->cards.count; i++)
        replace(pairs, &fresh->cards.at[i]);
    for (int i = 0; i < fresh->devices.count; i++)
        replace(pairs, &fresh->devices.at[i]->card);
    for (int i = 0; i < fresh->cards.count; i++)
        replace(pairs, &fresh->cards.at[i]->card);
    for (int i = 0; i < pairs->count; i++)
        device_free(pairs->at[i].fresh);
}

static bool holds(const struct device_list *list, const struct dtk_device *device)
{
    for (int i = 0; i < list->count; i++)
        if (list->at[i] == device)
            return true;
    return false;
}

/* Devices that are no more answer GONE from now on. The room for them was reserved. */
static void retire(struct dtk_system *system, const struct device_list *list)
{
    for (int i = 0; i < list->count; i++) {
        struct dtk_device *device = list->at[i];

        if (holds(&system->now.devices, device) || holds(&system->now.cards, device) || holds(&system->former, device))
            continue;
        device->gone = true;
        device->id.index = device->id.card = device->id.hip_index = -1;
        if (device->directory >= 0)
            close(device->directory);
        device->directory = -1;
        device_list_add(&system->former, device);
    }
}

static int rescan(struct dtk_system *system)
{
    struct inventory fresh = {0}, former = system->now;
    int known = former.devices.count + former.cards.count;
    int status = device_list_reserve(&system->former, known);
    struct pairs pairs = {.at = calloc((size_t)known + 1, sizeof *pairs.at)};

    if (status == 0)
        status = pairs.at ? kernel_enumerate(system, &fresh) : -DTK_NO_MEMORY;
    if (status != 0) {
        inventory_free(&fresh);
        free(pairs.at);
        return status;
    }
    for (int i = 0; i < fresh.devices.count; i++)
        pair_up(&pairs, &former.devices, fresh.devices.at[i]);
    for (int i = 0; i < fresh.cards.count; i++)
        if (fresh.cards.at[i]->partitioned) /* the others stand in the devices */
            pair_up(&pairs, &former.cards, fresh.cards.at[i]);
    exchange(&pairs, &fresh);
    system->now = fresh;
    retire(system, &former.devices);
    retire(system, &former.cards);
    free(former.devices.at);
    free(former.cards.at);
    free(pairs.at);
    rsmi_number_cards(system);
    return 0;
}

int dtk_rescan(dtk_system *system)
{
    int status;

    if (!system)
        return -DTK_INVALID_ARGUMENT;
    system_lock_alone(system);
    status = rescan(system);
    system_unlock(system);
    return status;
}
