/* Error counters and firmware versions: directories of small files, one a block. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backend.h"

/* Walk a directory of the card whose files are all of one kind. */
struct walk {
    struct dtk_device *device;
    const char *directory;
    void *ret;
    size_t size, room;    /* of the caller's records */
    struct reading *sums; /* of a sample, by source; NULL when records are wanted */
    int count;
};

static ssize_t read_entry(struct walk *walk, const char *name, char *path, size_t size)
{
    struct dtk_device *device = walk->device;

    snprintf(path, size, "%s/%.64s", walk->directory, name);
    return root_read(&device->system->root, device->directory, path, device->buffer, READ_MAX);
}

/* Hand a record to the caller, up to the size it knows. */
static void store(struct walk *walk, const void *record, size_t size)
{
    if ((size_t)walk->count < walk->room)
        memcpy((char *)walk->ret + (size_t)walk->count * walk->size, record, size < walk->size ? size : walk->size);
    walk->count++;
}

/* For a card that is awake. */
static int walk_files(struct walk *walk, root_visit *visit)
{
    struct dtk_device *device = walk->device;
    int error = device->directory < 0
                    ? -ENOENT
                    : root_list(&device->system->root, device->directory, walk->directory, visit, walk);

    if (error < 0)
        return device_is_there(device) ? -(int)status_of_error(error) : -DTK_GONE;
    return walk->count;
}

static int walk_directory(struct walk *walk, root_visit *visit)
{
    int state;

    if (walk->device->card != walk->device)
        return -DTK_ON_CARD;
    state = device_state(walk->device);
    return state == DTK_OK ? walk_files(walk, visit) : -state;
}

/* ---- Error counters ---- */

static dtk_value count_value(uint64_t count)
{
    return (dtk_value){.u64 = count, .type = DTK_TYPE_U64, .status = DTK_OK, .source = 1};
}

static dtk_value no_count(uint8_t status, int32_t detail)
{
    return (dtk_value){.type = DTK_TYPE_U64, .status = status, .detail = detail};
}

/* Block name of "umc_err_count" or, where the newer file has no older twin, "aca_umc". */
static bool is_block(const struct walk *walk, const char *name, char *ret, size_t size)
{
    static const char suffix[] = "_err_count", prefix[] = "aca_";
    size_t len = strlen(name), tail = sizeof suffix - 1;
    char twin[96];

    if (len > tail && strcmp(name + len - tail, suffix) == 0) {
        return parse_text(name, len - tail, ret, size) == 0;
    }
    if (strncmp(name, prefix, sizeof prefix - 1) != 0 || !name[sizeof prefix - 1])
        return false;
    if (parse_text(name + sizeof prefix - 1, len - (sizeof prefix - 1), ret, size) != 0)
        return false;
    snprintf(twin, sizeof twin, "%s/%.40s%s", walk->directory, ret, suffix);
    return root_has_file(walk->device->directory, twin) == -ENOENT;
}

static void add_count(struct reading *sum, const dtk_value *value)
{
    bool counts = sum->status == DTK_OK || sum->status == DTK_UNSUPPORTED;

    if (value->status == DTK_UNSUPPORTED || !counts)
        return;
    /* A sum without one of its parts, or one that overflows, would be a made-up number. */
    if (value->status != DTK_OK || value->u64 > UINT64_MAX - sum->u64) {
        sum->status = value->status != DTK_OK ? value->status : DTK_FAILED;
        sum->detail = value->status != DTK_OK ? value->detail : DTK_DETAIL_IMPLAUSIBLE;
        return;
    }
    sum->status = DTK_OK;
    sum->u64 += value->u64;
    sum->f64 = (double)sum->u64;
}

static int visit_block(void *context, const char *name)
{
    struct walk *walk = context;
    dtk_ecc_block block = {0};
    struct error_counts counts;
    char path[96];

    if (!is_block(walk, name, block.name, sizeof block.name))
        return 0;

    ssize_t got = read_entry(walk, name, path, sizeof path);

    if (got >= 0 && parse_error_counts(walk->device->buffer, (size_t)got, &counts) == 0) {
        block.correctable = count_value(counts.correctable);
        block.uncorrectable = count_value(counts.uncorrectable);
        block.deferred = counts.has_deferred ? count_value(counts.deferred) : no_count(DTK_UNSUPPORTED, 0);
    } else {
        uint8_t status = got >= 0 ? DTK_FAILED : status_of_error((int)got);
        int32_t detail = got >= 0 ? DTK_DETAIL_MALFORMED : (int32_t)-got;

        block.correctable = block.uncorrectable = block.deferred = no_count(status, detail);
    }
    if (walk->sums) {
        add_count(&walk->sums[SOURCE_RAS_CORRECTABLE], &block.correctable);
        add_count(&walk->sums[SOURCE_RAS_UNCORRECTABLE], &block.uncorrectable);
        add_count(&walk->sums[SOURCE_RAS_DEFERRED], &block.deferred);
    } else {
        store(walk, &block, sizeof block);
    }
    return 0;
}

int dtk_device_ecc(dtk_device *device, dtk_ecc_block *ret, size_t size, size_t count)
{
    struct walk walk = {.device = device, .directory = "ras", .ret = ret, .size = size, .room = count};
    int status;

    if (!device || (!ret && count))
        return -DTK_INVALID_ARGUMENT;
    system_lock(device->system);
    status = walk_directory(&walk, visit_block);
    system_unlock(device->system);
    return status;
}

void ras_read(struct sample *sample)
{
    static const enum source parts[] = {SOURCE_RAS_CORRECTABLE, SOURCE_RAS_UNCORRECTABLE, SOURCE_RAS_DEFERRED};
    struct walk walk = {.device = sample->device, .directory = "ras", .sums = sample->reading};
    int status;

    for (int i = 0; i < 3; i++) {
        sample->reading[parts[i]] = (struct reading){.status = DTK_UNSUPPORTED};
        sample->done[parts[i]] = true;
    }
    status = walk_files(&walk, visit_block);
    for (int i = 0; status < 0 && i < 3; i++)
        sample->reading[parts[i]] = (struct reading){.status = (uint8_t)-status};
}

/* ---- Errors of memory banks ---- */

static int visit_bank(void *context, const char *name)
{
    struct walk *walk = context;
    struct dtk_device *device = walk->device;
    dtk_bank_count record = {0};
    char path[128];
    size_t at = 0;
    ssize_t got;

    snprintf(path, sizeof path, "%s/%.64s/properties", walk->directory, name);
    got = root_read(&device->system->root, device->directory, path, device->buffer, READ_MAX);
    if (got <= 0 || parse_text(name, strlen(name), record.bank, sizeof record.bank) != 0)
        return 0;
    while (parse_next_count(device->buffer, (size_t)got, &at, record.name, sizeof record.name, &record.count) == 1)
        store(walk, &record, sizeof record);
    return 0;
}

int dtk_device_banks(dtk_device *device, dtk_bank_count *ret, size_t size, size_t count)
{
    struct walk walk = {.device = device, .directory = "mem_banks", .ret = ret, .size = size, .room = count};
    int status;

    if (!device || (!ret && count))
        return -DTK_INVALID_ARGUMENT;
    system_lock(device->system);
    status = walk_directory(&walk, visit_bank);
    system_unlock(device->system);
    return status;
}

/* ---- Firmware ---- */

static int visit_firmware(void *context, const char *name)
{
    static const char suffix[] = "_fw_version";
    struct walk *walk = context;
    dtk_firmware firmware = {0};
    size_t len = strlen(name), tail = sizeof suffix - 1;
    char path[96];

    if (len <= tail || strcmp(name + len - tail, suffix) != 0)
        return 0;

    ssize_t got = read_entry(walk, name, path, sizeof path);

    /* A block without firmware has an empty or unreadable file. */
    if (got > 0 && parse_text(walk->device->buffer, (size_t)got, firmware.version, sizeof firmware.version) == 0) {
        if (parse_text(name, len - tail, firmware.name, sizeof firmware.name) == 0)
            store(walk, &firmware, sizeof firmware);
    }
    return 0;
}

int dtk_device_firmware(dtk_device *device, dtk_firmware *ret, size_t size, size_t count)
{
    struct walk walk = {.device = device, .directory = "fw_version", .ret = ret, .size = size, .room = count};
    int status;

    if (!device || (!ret && count))
        return -DTK_INVALID_ARGUMENT;
    system_lock(device->system);
    status = walk_directory(&walk, visit_firmware);
    system_unlock(device->system);
    return status;
}
