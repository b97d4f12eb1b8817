/* Trackers: scans of what KFD and fdinfo tell, each compared with the one before. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "process.h"

const char *dtk_engine_name(int engine)
{
    static const char *const names[DTK_ENGINE_COUNT] = {"gfx", "compute", "dma", "decode", "encode", "jpeg", "vpe"};

    return engine >= 0 && engine < DTK_ENGINE_COUNT ? names[engine] : NULL;
}

/* ---- Lists ---- */

void *tracker_add(struct dtk_tracker *tracker, struct list *list, size_t size, int most)
{
    if (list->count == most) {
        tracker->scan.truncated = 1;
        return NULL;
    }
    if (list->count == list->room) {
        int room = list->room ? 2 * list->room : 32;
        void *grown = realloc(list->at, (size_t)room * size);

        if (!grown) {
            tracker->status = -DTK_NO_MEMORY;
            return NULL;
        }
        list->at = grown;
        list->room = room;
    }
    return memset((char *)list->at + (size_t)list->count++ * size, 0, size);
}

static int by_pid(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return (x > y) - (x < y);
}

void sort_by_pid(struct list *list, size_t size)
{
    if (list->count)
        qsort(list->at, (size_t)list->count, size, by_pid);
}

void *find_pid(const struct list *list, size_t size, int32_t pid)
{
    return list->count ? bsearch(&pid, list->at, (size_t)list->count, size, by_pid) : NULL;
}

/* Make what was found the past, and the new list empty. */
static void turn(struct list *now, struct list *before)
{
    struct list old = *before;

    *before = *now;
    *now = old;
    now->count = 0;
}

int32_t pid_of_name(const char *name)
{
    uint32_t pid;

    return parse_number_after(name, "", &pid) == 0 && pid > 0 && pid <= INT32_MAX ? (int32_t)pid : -1;
}

/* ---- Life ---- */

int dtk_tracker_open(dtk_system *system, dtk_tracker **ret)
{
    struct dtk_tracker *tracker;

    if (!system || !ret)
        return -DTK_INVALID_ARGUMENT;
    tracker = calloc(1, sizeof *tracker);
    if (!tracker)
        return -DTK_NO_MEMORY;
    tracker->system = system;
    tracker->root = &system->root;
    tracker->proc = tracker->kfd = -1;
    *ret = tracker;
    return 0;
}

void dtk_tracker_close(dtk_tracker *tracker)
{
    if (!tracker)
        return;
    free(tracker->targets.at);
    free(tracker->kfd_entries.at);
    free(tracker->kfd_before.at);
    free(tracker->seen.at);
    free(tracker->seen_before.at);
    free(tracker->clients.at);
    free(tracker->clients_before.at);
    free(tracker->processes.at);
    free(tracker->processes_before.at);
    free(tracker->rows.at);
    free(tracker->users.at);
    free(tracker->kernel_threads.at);
    free(tracker);
}

/* ---- Scans ---- */

static void copy_targets(struct dtk_tracker *tracker)
{
    const struct device_list *devices = &tracker->system->now.devices;

    tracker->targets.count = 0;
    system_lock(tracker->system);
    for (int i = 0; i < devices->count; i++) {
        const struct dtk_device *device = devices->at[i];
        struct target *target = tracker_add(tracker, &tracker->targets, sizeof *target, ROWS_MAX);

        if (!target)
            break;
        target->index = i;
        target->drm_card = device->id.drm_card;
        target->drm_render = device->id.drm_render;
        target->gpu_id = device->id.gpu_id;
        target->address = device->card->address;
        target->left_out = device->card->left_out;
        memcpy(target->uuid, device->id.uuid, sizeof target->uuid);
    }
    system_unlock(tracker->system);
}

static double seconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Every 5 s, and at most a fiftieth of the time. */
static bool is_full_due(const struct dtk_tracker *tracker)
{
    double pause = 50 * tracker->full_took;

    return tracker->full_at == 0 || seconds_now() - tracker->full_at >= (pause > 5 ? pause : 5);
}

static void look(struct dtk_tracker *tracker, uint32_t places)
{
    tracker->proc = root_open_directory(tracker->root, tracker->root->fd, "proc");
    look_at_proc(tracker);
    if (places & DTK_SCAN_KFD)
        tracker->scan.kfd = kfd_scan(tracker);
    if (places & DTK_SCAN_FDINFO && tracker->status == 0) {
        tracker->scan.fdinfo = fdinfo_scan(tracker, tracker->scan.full);
        tracker->scan.hidden_reasons = (tracker->scan.hidden ? DTK_HIDDEN_DENIED : 0) |
                                       (tracker->hidepid ? DTK_HIDDEN_HIDEPID : 0) |
                                       (tracker->namespaced ? DTK_HIDDEN_NAMESPACE : 0);
    }
    find_processes(tracker);
    if (tracker->proc >= 0)
        close(tracker->proc);
    tracker->proc = -1;
}

/* What this scan found is what the next one compares with. */
static void remember(struct dtk_tracker *tracker, uint32_t places)
{
    if (places & DTK_SCAN_KFD)
        turn(&tracker->kfd_entries, &tracker->kfd_before);
    if (places & DTK_SCAN_FDINFO) {
        sort_clients(tracker);
        turn(&tracker->clients, &tracker->clients_before);
        turn(&tracker->seen, &tracker->seen_before);
    }
}

int dtk_tracker_scan(dtk_tracker *tracker, uint32_t flags, dtk_scan *ret, size_t size)
{
    uint32_t places = flags & (DTK_SCAN_KFD | DTK_SCAN_FDINFO);
    double start = seconds_now();

    if (!tracker || !places || flags & ~(DTK_SCAN_KFD | DTK_SCAN_FDINFO | DTK_SCAN_FULL | DTK_SCAN_RSMI))
        return -DTK_INVALID_ARGUMENT;
    tracker->scan = (dtk_scan){.kfd = DTK_UNSUPPORTED, .fdinfo = DTK_UNSUPPORTED};
    tracker->scan.full =
        flags & DTK_SCAN_FULL || is_full_due(tracker) || (places & DTK_SCAN_FDINFO && tracker->seen_before.count == 0);
    tracker->status = 0;
    turn(&tracker->processes, &tracker->processes_before);
    tracker->rows.count = 0;
    if (tracker->scan.full)
        tracker->users.count = 0;
    copy_targets(tracker);
    if (tracker->status == 0 && tracker->targets.count > 0)
        look(tracker, places);
    if (tracker->status == 0 && flags & DTK_SCAN_RSMI)
        rsmi_scan(tracker);
    remember(tracker, places);
    if (tracker->scan.full) {
        tracker->full_at = seconds_now();
        tracker->full_took = tracker->full_at - start;
    }
    if (tracker->status != 0)
        tracker->rows.count = tracker->processes.count = 0;
    tracker->scan.processes = tracker->processes.count;
    tracker->scan.usages = tracker->rows.count;
    if (ret)
        memcpy(ret, &tracker->scan, size < sizeof tracker->scan ? size : sizeof tracker->scan);
    return tracker->status;
}

/* ---- Results ---- */

int dtk_tracker_processes(const dtk_tracker *tracker, dtk_process *ret, size_t size, size_t count)
{
    if (!tracker || (!ret && count))
        return -DTK_INVALID_ARGUMENT;
    for (int i = 0; i < tracker->processes.count && (size_t)i < count; i++)
        memcpy((char *)ret + (size_t)i * size, (const dtk_process *)tracker->processes.at + i,
               size < sizeof *ret ? size : sizeof *ret);
    return tracker->processes.count;
}

int dtk_tracker_usages(const dtk_tracker *tracker, dtk_usage *ret, size_t size, size_t count)
{
    const struct row *rows = tracker ? tracker->rows.at : NULL;

    if (!tracker || (!ret && count))
        return -DTK_INVALID_ARGUMENT;
    for (int i = 0; i < tracker->rows.count && (size_t)i < count; i++)
        memcpy((char *)ret + (size_t)i * size, &rows[i].usage, size < sizeof *ret ? size : sizeof *ret);
    return tracker->rows.count;
}
