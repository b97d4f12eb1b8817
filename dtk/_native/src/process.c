/* Trackers: from what KFD and fdinfo tell to the processes that use cards. */
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

/* ---- Clients ---- */

/* By card and number; the oldest process first, for it opened the file and the others got it from there. */
static int by_id(const void *a, const void *b)
{
    const struct client *x = a, *y = b;

    if (x->target != y->target)
        return x->target < y->target ? -1 : 1;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    if (x->start_ticks != y->start_ticks)
        return x->start_ticks < y->start_ticks ? -1 : 1;
    return by_pid(a, b);
}

static int same_id(const void *a, const void *b)
{
    const struct client *x = a, *y = b;

    return x->target != y->target ? (x->target < y->target ? -1 : 1) : (x->id > y->id) - (x->id < y->id);
}

/* One of each, however many descriptors and processes share it. A time that went back, which the kernel allows, stays
 * where it was. */
static void unite_clients(struct dtk_tracker *tracker)
{
    struct client *clients = tracker->clients.at;
    const struct list *before = &tracker->clients_before;
    int count = 0;

    if (tracker->clients.count)
        qsort(clients, (size_t)tracker->clients.count, sizeof *clients, by_id);
    for (int i = 0; i < tracker->clients.count; i++) {
        const struct client *old;

        if (count > 0 && same_id(&clients[count - 1], &clients[i]) == 0)
            continue;
        clients[count] = clients[i];
        old = before->count ? bsearch(&clients[count], before->at, (size_t)before->count, sizeof *old, same_id) : NULL;
        for (int engine = 0; old && engine < ENGINES; engine++)
            if (old->info.engine[engine] > clients[count].info.engine[engine])
                clients[count].info.engine[engine] = old->info.engine[engine];
        count++;
    }
    tracker->clients.count = count;
}

/* ---- Rows ---- */

static int by_key(const void *a, const void *b)
{
    const struct row *x = a, *y = b;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return (x->target > y->target) - (x->target < y->target);
}

static void sort_rows(struct dtk_tracker *tracker)
{
    if (tracker->rows.count)
        qsort(tracker->rows.at, (size_t)tracker->rows.count, sizeof(struct row), by_key);
}

static struct row *find_row(const struct dtk_tracker *tracker, int sorted, process_key key, int target)
{
    const struct row wanted = {.key = key, .target = target};

    return sorted ? bsearch(&wanted, tracker->rows.at, (size_t)sorted, sizeof wanted, by_key) : NULL;
}

static int by_pasid(const void *a, const void *b)
{
    const struct client *x = a, *y = b;
    uint64_t p = x->info.has_pasid ? x->info.pasid : 0, q = y->info.has_pasid ? y->info.pasid : 0;

    return x->target != y->target ? (x->target < y->target ? -1 : 1) : (p > q) - (p < q);
}

static const struct client *find_pasid(const struct dtk_tracker *tracker, const struct row *row)
{
    const struct client wanted = {.target = row->target, .info = {.has_pasid = true, .pasid = row->pasid}};

    return row->pasid && tracker->clients.count
               ? bsearch(&wanted, tracker->clients.at, (size_t)tracker->clients.count, sizeof wanted, by_pasid)
               : NULL;
}

/* Inside a PID namespace KFD's pids are nobody's. But an address space has one number in KFD and in the files of its
 * process, and these are files of a process that can be seen. */
static void translate(struct dtk_tracker *tracker)
{
    struct row *rows = tracker->rows.at;
    int end;

    if (!tracker->namespaced)
        return;
    if (tracker->clients.count)
        qsort(tracker->clients.at, (size_t)tracker->clients.count, sizeof(struct client), by_pasid);
    /* The rows of a process follow each other. */
    for (int first = 0; first < tracker->rows.count; first = end) {
        const struct client *client = NULL;

        for (end = first; end < tracker->rows.count && rows[end].host_pid == rows[first].host_pid; end++)
            client = client ? client : find_pasid(tracker, &rows[end]);
        for (int i = first; i < end && client; i++)
            rows[i].key = client->pid;
    }
}

/* Opening a file is not using the card. A driver that tells nothing of its files leaves open whether it is; where KFD
 * knows the process and what it uses, KFD's word is enough. */
static bool is_used(struct dtk_tracker *tracker, const struct client *client)
{
    const struct fdinfo *info = &client->info;
    const struct kfd_entry *entry;
    bool working = false;

    for (int i = 0; i < ENGINES; i++)
        working = working || info->engine[i] > 0;
    if (working || info->vram > 0 || info->gtt > 0)
        return true;
    if (info->has_vram || info->has_gtt || info->engines)
        return false;
    entry = tracker->namespaced ? NULL : find_pid(&tracker->kfd_entries, sizeof *entry, client->pid);
    return !entry || !entry->told;
}

static void add_reading(dtk_value *sum, uint64_t number)
{
    uint64_t before = sum->status == DTK_OK ? sum->u64 : 0;

    *sum = usage_value(number > UINT64_MAX - before ? UINT64_MAX : before + number, DTK_SCAN_FDINFO);
}

/* The clients of one process on one card, from `first` to before `end`, into one usage. KFD's memory is a part of what
 * the files hold, and either may leave out some: so the larger, never the sum. */
static void fill_usage(const struct client *first, const struct client *end, dtk_usage *usage)
{
    dtk_value vram = no_usage(DTK_UNSUPPORTED, 0);

    usage->sources |= DTK_SCAN_FDINFO;
    for (const struct client *client = first; client < end; client++) {
        const struct fdinfo *info = &client->info;

        if (info->has_vram)
            add_reading(&vram, info->vram);
        if (info->has_gtt)
            add_reading(&usage->gtt, info->gtt);
        for (int i = 0; i < ENGINES; i++)
            if (info->engines >> i & 1)
                add_reading(&usage->engine[i], info->engine[i]);
    }
    if (vram.status == DTK_OK && (usage->vram.status != DTK_OK || vram.u64 > usage->vram.u64))
        usage->vram = vram;
}

static struct row *new_row(struct dtk_tracker *tracker, process_key key, int target)
{
    struct row *row = tracker_add(tracker, &tracker->rows, sizeof *row, ROWS_MAX);
    dtk_usage *usage;

    if (!row)
        return NULL;
    row->key = key;
    row->target = target;
    row->host_pid = -1;
    usage = &row->usage;
    usage->queues = -1;
    usage->vram = usage->gtt = usage->cu_count = usage->sdma = usage->evicted = no_usage(DTK_UNSUPPORTED, 0);
    usage->utilization = no_usage(DTK_UNSUPPORTED, 0);
    for (int i = 0; i < DTK_ENGINE_ROOM; i++)
        usage->engine[i] = no_usage(DTK_UNSUPPORTED, 0);
    return row;
}

static int by_process(const void *a, const void *b)
{
    const struct client *x = a, *y = b;
    int order = by_pid(a, b);

    return order ? order : (x->target > y->target) - (x->target < y->target);
}

static void clients_into_rows(struct dtk_tracker *tracker)
{
    struct client *clients = tracker->clients.at, *end = clients + tracker->clients.count, *next;
    int sorted = tracker->rows.count;

    if (tracker->clients.count)
        qsort(clients, (size_t)tracker->clients.count, sizeof *clients, by_process);
    for (struct client *first = clients; first < end; first = next) {
        struct row *row = find_row(tracker, sorted, first->pid, first->target);
        bool used = row != NULL;

        for (next = first; next < end && by_process(first, next) == 0; next++)
            used = used || is_used(tracker, next);
        if (!row && used)
            row = new_row(tracker, first->pid, first->target);
        if (row)
            fill_usage(first, next, &row->usage);
    }
}

/* Files of a process that may not be looked at hold what is not told: it is denied, not absent. */
static void mark_denied(struct dtk_tracker *tracker, const dtk_process *process, dtk_usage *usage)
{
    const struct seen *seen = find_pid(&tracker->seen, sizeof *seen, process->pid);

    if (process->status == DTK_GONE || (process->status == DTK_OK && (!seen || seen->as != SEEN_DENIED)))
        return;
    if (usage->vram.status == DTK_UNSUPPORTED)
        usage->vram.status = DTK_DENIED;
    if (usage->gtt.status == DTK_UNSUPPORTED)
        usage->gtt.status = DTK_DENIED;
    for (int i = 0; i < DTK_ENGINE_COUNT; i++)
        if (usage->engine[i].status == DTK_UNSUPPORTED)
            usage->engine[i].status = DTK_DENIED;
}

/* ---- Processes ---- */

static void rows_into_processes(struct dtk_tracker *tracker)
{
    struct row *rows = tracker->rows.at;
    const struct target *targets = tracker->targets.at;
    int count = 0, end;

    for (int first = 0; first < tracker->rows.count && tracker->status == 0; first = end) {
        dtk_process *process = tracker_add(tracker, &tracker->processes, sizeof *process, PROCESSES_MAX);
        int32_t host_pid = -1;

        for (end = first; end < tracker->rows.count && rows[end].key == rows[first].key; end++)
            host_pid = rows[end].host_pid >= 0 ? rows[end].host_pid : host_pid;
        if (!process)
            break;
        describe(tracker, rows[first].key, host_pid, process);
        if (process->status == DTK_GONE && host_pid < 0) {
            tracker->processes.count--; /* it ended meanwhile */
            continue;
        }
        for (int i = first; i < end; i++) {
            dtk_usage *usage = &rows[i].usage;

            usage->process = tracker->processes.count - 1;
            usage->device = targets[rows[i].target].index;
            memcpy(usage->uuid, targets[rows[i].target].uuid, sizeof usage->uuid);
            if (tracker->scan.fdinfo != DTK_UNSUPPORTED)
                mark_denied(tracker, process, usage);
            rows[count++] = rows[i];
        }
    }
    tracker->rows.count = count;
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
    unite_clients(tracker);
    translate(tracker);
    sort_rows(tracker);
    clients_into_rows(tracker);
    sort_rows(tracker);
    rows_into_processes(tracker);
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
        if (tracker->clients.count)
            qsort(tracker->clients.at, (size_t)tracker->clients.count, sizeof(struct client), by_id);
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
