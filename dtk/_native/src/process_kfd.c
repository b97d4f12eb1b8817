/* Processes that KFD knows: sys/class/kfd/kfd/proc, a directory each, with files for every card. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "process.h"

/* Hygon's out-of-tree driver names the class kcd in places. */
static const char *const classes[] = {"sys/class/kfd/kfd", "sys/class/kcd/kcd"};

/* A descriptor of the directory of processes, which a link leads to, or a negative errno. */
static int open_kfd(const struct root *root)
{
    char path[ROOT_PATH_MAX];
    int fd = -ENOENT;

    for (size_t i = 0; i < sizeof classes / sizeof classes[0] && fd == -ENOENT; i++) {
        int error = root_resolve(root, classes[i], path, sizeof path - sizeof "/proc");

        if (error) {
            fd = error;
            continue;
        }
        strcat(path, "/proc");
        fd = root_open_directory(root, root->fd, path);
    }
    return fd;
}

static dtk_value read_value(const struct dtk_tracker *tracker, int directory, const char *name)
{
    char text[64];
    uint64_t number;
    ssize_t got = root_read(tracker->root, directory, name, text, sizeof text);

    /* ENODEV: the process ended while its file was open. */
    if (got == -ENOENT || got == -ENODEV)
        return no_usage(DTK_UNSUPPORTED, 0);
    if (got < 0) {
        ROOT_DEBUG(tracker->root, (int)got, name);
        return no_usage(status_of_error((int)got), (int32_t)-got);
    }
    if (parse_u64(text, (size_t)got, &number) != 0)
        return no_usage(DTK_FAILED, DTK_DETAIL_MALFORMED);
    return usage_value(number, DTK_SCAN_KFD);
}

/* ---- Queues ---- */

/* Queues of the process on each target: -1 when KFD does not show queues. */
static void count_queues(struct dtk_tracker *tracker, int directory, int32_t *counts)
{
    const struct target *targets = tracker->targets.at;
    struct root_entries entries;
    const char *name;
    int error = root_entries_open(tracker->root, directory, "queues", &entries);

    for (int i = 0; i < tracker->targets.count; i++)
        counts[i] = error == 0 ? 0 : -1;
    if (error)
        return;
    for (int count = 0; root_entries_next(&entries, &name, NULL) == 1; count++) {
        char path[64];
        dtk_value gpu;

        if (count == QUEUES_MAX) {
            tracker->scan.truncated = 1;
            break;
        }
        snprintf(path, sizeof path, "%.40s/gpuid", name);
        gpu = read_value(tracker, entries.fd, path);
        for (int i = 0; i < tracker->targets.count && gpu.status == DTK_OK; i++)
            if (targets[i].gpu_id >= 0 && (uint64_t)targets[i].gpu_id == gpu.u64)
                counts[i]++;
    }
    close(entries.fd);
}

/* ---- One process ---- */

static dtk_value read_of_gpu(struct dtk_tracker *tracker, int directory, const char *format,
                             const struct target *target)
{
    char name[64];

    snprintf(name, sizeof name, format, (long long)target->gpu_id);
    return read_value(tracker, directory, name);
}

/* Newer kernels have a number for each card, older ones one for all. */
static uint64_t read_pasid(struct dtk_tracker *tracker, int directory, const struct target *target)
{
    dtk_value pasid = read_of_gpu(tracker, directory, "pasid_%lld", target);

    if (pasid.status != DTK_OK)
        pasid = read_value(tracker, directory, "pasid");
    return pasid.status == DTK_OK ? pasid.u64 : 0;
}

/* Who opened KFD has a file for every card. A card is in use by queues or memory; memory that cannot be read may be. */
static bool is_used(const dtk_value *vram, int32_t queues)
{
    return queues > 0 || (vram->status == DTK_OK ? vram->u64 > 0 : vram->status != DTK_UNSUPPORTED);
}

static void add_row(struct dtk_tracker *tracker, int directory, int32_t pid, int target_number, dtk_value vram,
                    int32_t queues)
{
    const struct target *target = (struct target *)tracker->targets.at + target_number;
    struct row *row = tracker_add(tracker, &tracker->rows, sizeof *row, ROWS_MAX);
    dtk_usage *usage;

    if (!row)
        return;
    row->key = tracker->namespaced ? FOREIGN | pid : pid;
    row->target = target_number;
    row->host_pid = pid;
    row->pasid = tracker->namespaced ? read_pasid(tracker, directory, target) : 0;
    usage = &row->usage;
    usage->sources = DTK_SCAN_KFD;
    usage->queues = queues;
    usage->vram = vram;
    usage->gtt = usage->cu_count = usage->sdma = usage->evicted = no_usage(DTK_UNSUPPORTED, 0);
    usage->utilization = no_usage(DTK_UNSUPPORTED, 0);
    for (int i = 0; i < DTK_ENGINE_ROOM; i++)
        usage->engine[i] = no_usage(DTK_UNSUPPORTED, 0);
    usage->evicted = read_of_gpu(tracker, directory, "stats_%lld/evicted_ms", target);
    /* These two ask the card, and only a card with queues has something to say. */
    if (queues == 0 || target->left_out)
        return;
    usage->cu_count = read_of_gpu(tracker, directory, "stats_%lld/cu_occupancy", target);
    usage->sdma = read_of_gpu(tracker, directory, "sdma_%lld", target);
    if (usage->sdma.status == DTK_OK && usage->sdma.u64 <= UINT64_MAX / 1000)
        usage->sdma.u64 *= 1000; /* us */
}

static void look_at_process(struct dtk_tracker *tracker, struct kfd_entry *entry, const char *name, int32_t *queues)
{
    const struct target *targets = tracker->targets.at;
    int directory = root_open_directory(tracker->root, tracker->kfd, name);

    if (directory < 0)
        return;
    count_queues(tracker, directory, queues);
    for (int i = 0; i < tracker->targets.count && tracker->status == 0; i++) {
        if (targets[i].gpu_id < 0)
            continue;

        dtk_value vram = read_of_gpu(tracker, directory, "vram_%lld", &targets[i]);

        entry->told = entry->told || vram.status == DTK_OK;
        if (is_used(&vram, queues[i]))
            add_row(tracker, directory, entry->pid, i, vram, queues[i]);
    }
    close(directory);
}

uint8_t kfd_scan(struct dtk_tracker *tracker)
{
    struct root_entries entries;
    const char *name;
    uint64_t inode;
    int error;

    tracker->kfd = open_kfd(tracker->root);
    if (tracker->kfd < 0)
        return status_of_error(tracker->kfd);
    error = root_entries_open(tracker->root, tracker->kfd, ".", &entries);
    if (error == 0) {
        int32_t *queues = calloc((size_t)tracker->targets.count + 1, sizeof *queues);

        if (!queues)
            tracker->status = -DTK_NO_MEMORY;
        while (tracker->status == 0 && (error = root_entries_next(&entries, &name, &inode)) == 1) {
            int32_t pid = pid_of_name(name);
            struct kfd_entry *entry;

            if (pid < 0)
                continue;
            entry = tracker_add(tracker, &tracker->kfd_entries, sizeof *entry, ROWS_MAX);
            if (!entry)
                break;
            *entry = (struct kfd_entry){.pid = pid, .inode = inode};
            look_at_process(tracker, entry, name, queues);
        }
        free(queues);
        close(entries.fd);
    }
    close(tracker->kfd);
    tracker->kfd = -1;
    sort_by_pid(&tracker->kfd_entries, sizeof(struct kfd_entry));
    return error < 0 ? status_of_error(error) : DTK_OK;
}
