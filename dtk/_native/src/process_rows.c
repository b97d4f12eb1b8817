/* From clients, which are open files of cards, to rows of what a process uses of a card, and from rows to processes. */
#include <stdlib.h>
#include <string.h>

#include "process.h"

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
    return (x->pid > y->pid) - (x->pid < y->pid);
}

void sort_clients(struct dtk_tracker *tracker)
{
    if (tracker->clients.count)
        qsort(tracker->clients.at, (size_t)tracker->clients.count, sizeof(struct client), by_id);
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

    sort_clients(tracker);
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

    if (x->pid != y->pid)
        return x->pid < y->pid ? -1 : 1;
    return (x->target > y->target) - (x->target < y->target);
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

void find_processes(struct dtk_tracker *tracker)
{
    unite_clients(tracker);
    translate(tracker);
    sort_rows(tracker);
    clients_into_rows(tracker);
    sort_rows(tracker);
    rows_into_processes(tracker);
}
