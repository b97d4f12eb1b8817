/* Systems and devices: their life, and what a key means. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend.h"

/* ---- Lists ---- */

struct dtk_device *device_new(struct dtk_system *system)
{
    struct dtk_device *device = calloc(1, sizeof *device);

    if (!device)
        return NULL;
    device->system = system;
    device->card = device;
    device->directory = device->rsmi = -1;
    device->id.index = device->id.card = device->id.partition = device->id.numa_node = -1;
    device->id.drm_card = device->id.drm_render = device->id.kfd_node = device->id.hip_index = -1;
    device->id.gpu_id = -1;
    device->id.vendor_id = device->id.device_id = -1;
    device->id.subsystem_vendor_id = device->id.subsystem_device_id = -1;
    device->id.revision_id = device->id.compute_units = -1;
    return device;
}

void device_free(struct dtk_device *device)
{
    if (device->directory >= 0)
        close(device->directory);
    free(device);
}

int device_list_reserve(struct device_list *list, int more)
{
    struct dtk_device **grown;

    if (list->count + more <= list->room)
        return 0;
    grown = realloc(list->at, (size_t)(2 * list->count + more) * sizeof *grown);
    if (!grown)
        return -DTK_NO_MEMORY;
    list->at = grown;
    list->room = 2 * list->count + more;
    return 0;
}

int device_list_add(struct device_list *list, struct dtk_device *device)
{
    int status = device_list_reserve(list, 1);

    if (status == 0)
        list->at[list->count++] = device;
    return status;
}

/* A whole card stands in both lists. */
void inventory_free(struct inventory *inventory)
{
    for (int i = 0; i < inventory->devices.count; i++)
        if (inventory->devices.at[i]->card != inventory->devices.at[i])
            device_free(inventory->devices.at[i]);
    for (int i = 0; i < inventory->cards.count; i++)
        device_free(inventory->cards.at[i]);
    free(inventory->devices.at);
    free(inventory->cards.at);
    memset(inventory, 0, sizeof *inventory);
}

/* ---- The lock ---- */

/* A rescan must not wait for ever while others sample without a pause. */
static void lock_init(struct dtk_system *system)
{
    pthread_rwlockattr_t attributes;

    pthread_rwlockattr_init(&attributes);
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&system->lock, &attributes);
    pthread_rwlockattr_destroy(&attributes);
}

/* A child that fork() made while another thread held the lock has it held for ever: its first call makes a new one. */
static pthread_rwlock_t *lock_of(struct dtk_system *system)
{
    int pid = getpid(), owner = atomic_load(&system->pid);

    while (owner != pid)
        if (owner == 0) { /* being made by another thread of the child */
            sched_yield();
            owner = atomic_load(&system->pid);
        } else if (atomic_compare_exchange_weak(&system->pid, &owner, 0)) {
            lock_init(system);
            atomic_store(&system->pid, pid);
            owner = pid;
        }
    return &system->lock;
}

void system_lock(const struct dtk_system *system)
{
    pthread_rwlock_rdlock(lock_of((struct dtk_system *)system));
}

void system_lock_alone(struct dtk_system *system)
{
    pthread_rwlock_wrlock(lock_of(system));
}

void system_unlock(const struct dtk_system *system)
{
    pthread_rwlock_unlock((pthread_rwlock_t *)&system->lock);
}

/* ---- Systems ---- */

static int status_of_root(int error)
{
    switch (error) {
    case ENOENT:
    case ENOTDIR:
        return -DTK_NOT_FOUND;
    case ELOOP:
    case ENAMETOOLONG:
        return -DTK_INVALID_ARGUMENT;
    case EACCES:
        return -DTK_DENIED;
    case ENOMEM:
    case EMFILE:
    case ENFILE:
        return -DTK_NO_MEMORY;
    default:
        return -DTK_FAILED;
    }
}

int dtk_open(const char *root, uint64_t flags, dtk_system **ret)
{
    return system_open(root, flags, &(struct enumeration){0}, ret);
}

int system_open(const char *root, uint64_t flags, const struct enumeration *enumeration, struct dtk_system **ret)
{
    const uint64_t backends = DTK_OPEN_AUTO | DTK_OPEN_RSMI;
    struct dtk_system *system;
    struct stat live, own = {0};
    int status;

    if (!ret || flags & ~(DTK_OPEN_DEBUG | DTK_OPEN_NO_OPENAT2 | backends) || (flags & backends) == backends)
        return -DTK_INVALID_ARGUMENT;
    system = calloc(1, sizeof *system);
    if (!system)
        return -DTK_NO_MEMORY;
    lock_init(system);
    pthread_mutex_init(&system->rsmi_lock, NULL);
    atomic_init(&system->rsmi_missing, false);
    system->rsmi_pid = getpid();
    atomic_init(&system->pid, getpid());
    errno = 0;
    system->enumeration = *enumeration;
    system->root.debug = flags & DTK_OPEN_DEBUG;
    system->root.walk = flags & DTK_OPEN_NO_OPENAT2;
    system->root.fd = open(root ? root : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (system->root.fd < 0) {
        status = status_of_root(errno);
    } else if (fstatat(system->root.fd, "sys", &own, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(own.st_mode)) {
        status = errno == EACCES ? -DTK_DENIED : -DTK_INVALID_ARGUMENT;
    } else if (fstatat(system->root.fd, "sys/.", &own, 0) != 0 && errno == EACCES) {
        status = -DTK_DENIED;
    } else {
        system->root.live = stat("/", &live) == 0 && fstat(system->root.fd, &own) == 0 && live.st_ino == own.st_ino &&
                            live.st_dev == own.st_dev;
        /* The library reads this machine, whatever the root. */
        system->backend = system->root.live ? flags & backends : 0;
        status =
            flags & DTK_OPEN_RSMI && !system->root.live ? -DTK_UNSUPPORTED : kernel_enumerate(system, &system->now);
    }
    if (status != 0) {
        dtk_close(system);
        return status;
    }
    *ret = system;
    return 0;
}

void dtk_close(dtk_system *system)
{
    if (!system)
        return;
    rsmi_close(system);
    inventory_free(&system->now);
    for (int i = 0; i < system->former.count; i++)
        device_free(system->former.at[i]);
    free(system->former.at);
    if (system->root.fd >= 0)
        close(system->root.fd);
    pthread_rwlock_destroy(&system->lock);
    pthread_mutex_destroy(&system->rsmi_lock);
    free(system);
}

/* ---- Access by index ---- */

static int list_count(const dtk_system *system, const struct device_list *list)
{
    int count;

    system_lock(system);
    count = list->count;
    system_unlock(system);
    return count;
}

static int list_get(dtk_system *system, const struct device_list *list, int index, dtk_device **ret)
{
    int status = -DTK_NOT_FOUND;

    system_lock(system);
    if (index >= 0 && index < list->count) {
        *ret = list->at[index];
        status = 0;
    }
    system_unlock(system);
    return status;
}

int dtk_device_count(const dtk_system *system)
{
    return system ? list_count(system, &system->now.devices) : -DTK_INVALID_ARGUMENT;
}

int dtk_card_count(const dtk_system *system)
{
    return system ? list_count(system, &system->now.cards) : -DTK_INVALID_ARGUMENT;
}

int dtk_device_get(dtk_system *system, int index, dtk_device **ret)
{
    return system && ret ? list_get(system, &system->now.devices, index, ret) : -DTK_INVALID_ARGUMENT;
}

int dtk_card_get(dtk_system *system, int index, dtk_device **ret)
{
    return system && ret ? list_get(system, &system->now.cards, index, ret) : -DTK_INVALID_ARGUMENT;
}

/* ---- State ---- */

bool touch(const struct dtk_system *system, const char *name)
{
    const struct enumeration *enumeration = &system->enumeration;

    for (int i = 0; i < enumeration->without_count; i++)
        if (strcmp(enumeration->without[i], name) == 0)
            return false;
    if (enumeration->touching)
        enumeration->touching(name);
    return true;
}

bool device_is_there(const struct dtk_device *device)
{
    struct stat st;

    if (device->gone)
        return false;
    if (!device->path[0])
        return true; /* nothing to ask */
    return fstatat(device->system->root.fd, device->path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           st.st_ino == device->stat.st_ino && st.st_dev == device->stat.st_dev;
}

int device_state(struct dtk_device *device)
{
    char text[64];
    ssize_t got;

    if (!device_is_there(device) || (device->card != device && !device_is_there(device->card)))
        return DTK_GONE;
    if (device->card->directory < 0)
        return DTK_OK;
    got = (device->opened_status ? root_read_again : root_read)(&device->system->root, device->card->directory,
                                                                "power/runtime_status", text, sizeof text - 1);
    device->opened_status = got >= 0;
    if (got <= 0)
        return DTK_OK;
    text[got] = '\0';
    return strncmp(text, "suspend", 7) == 0 ? DTK_ASLEEP : DTK_OK; /* suspended, suspending */
}

/* ---- Identity ---- */

static void read_string(const struct dtk_device *device, const char *name, char *ret, size_t size)
{
    char text[4200];
    ssize_t got = root_read(&device->system->root, device->directory, name, text, sizeof text);

    if (got <= 0 || parse_text(text, (size_t)got, ret, size) != 0)
        ret[0] = '\0';
}

static void read_id(const struct dtk_device *device, const char *name, int32_t *ret)
{
    char text[4200];
    ssize_t got = root_read(&device->system->root, device->directory, name, text, sizeof text);
    uint64_t number;
    int64_t signed_number;

    if (got <= 0)
        return;
    if (parse_u64(text, (size_t)got, &number) == 0 && number <= INT32_MAX)
        *ret = (int32_t)number;
    else if (parse_i64(text, (size_t)got, &signed_number) == 0 && signed_number == -1)
        *ret = -1;
}

void device_info(const struct dtk_device *device, dtk_info *ret)
{
    struct dtk_device *card = device->card;
    char product[sizeof ret->name];

    *ret = device->id;
    if (card->directory < 0 || !device_is_there(card))
        return;
    /* The PCI core answers these without the driver; a sleeping card stays asleep. */
    read_id(card, "numa_node", &ret->numa_node);
    read_id(card, "revision", &ret->revision_id);
    if (ret->subsystem_vendor_id < 0)
        read_id(card, "subsystem_vendor", &ret->subsystem_vendor_id);
    if (ret->subsystem_device_id < 0)
        read_id(card, "subsystem_device", &ret->subsystem_device_id);
    if (device_state(card) != DTK_OK)
        return;
    read_string(card, "serial_number", ret->serial, sizeof ret->serial);
    read_string(card, "product_name", product, sizeof product);
    if (product[0])
        memcpy(ret->name, product, sizeof ret->name);
    read_string(card, "vbios_version", ret->vbios, sizeof ret->vbios);
    read_string(card, "power_dpm_force_performance_level", ret->performance_level, sizeof ret->performance_level);
    read_string(card, "current_compute_partition", ret->compute_partition, sizeof ret->compute_partition);
    read_string(card, "current_memory_partition", ret->memory_partition, sizeof ret->memory_partition);
    read_string(card, "mem_info_vram_vendor", ret->memory_vendor, sizeof ret->memory_vendor);
}

int dtk_device_info(const dtk_device *device, dtk_info *ret, size_t size)
{
    dtk_info info;

    if (!device || !ret)
        return -DTK_INVALID_ARGUMENT;
    system_lock(device->system);
    device_info(device, &info);
    system_unlock(device->system);
    memcpy(ret, &info, size < sizeof info ? size : sizeof info);
    return 0;
}
