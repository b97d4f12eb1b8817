/* Processes with open files of cards: proc/<pid>/fd tells which files are a card's, fdinfo what they hold. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "process.h"

enum { DRM_MAJOR = 226, RENDER_MINOR_FIRST = 128 };

/* ---- Kernel threads ---- */

static int by_number(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return (x > y) - (x < y);
}

/* They are the children of process 2. One file names them all, where it is there and not too long. */
static void read_kernel_threads(struct dtk_tracker *tracker)
{
    ssize_t got = root_read(tracker->root, tracker->proc, "2/task/2/children", tracker->text, sizeof tracker->text - 1);

    tracker->kernel_threads_known = true;
    if (got <= 0)
        return;
    tracker->text[got] = '\0';
    for (const char *at = tracker->text; *at;) {
        char *end;
        unsigned long pid = strtoul(at, &end, 10);
        int32_t *thread;

        if (end == at || pid > INT32_MAX)
            break;
        thread = tracker_add(tracker, &tracker->kernel_threads, sizeof *thread, PIDS_MAX);
        if (!thread)
            break;
        *thread = (int32_t)pid;
        at = end + strspn(end, " \n");
    }
    if (tracker->kernel_threads.count)
        qsort(tracker->kernel_threads.at, (size_t)tracker->kernel_threads.count, sizeof(int32_t), by_number);
}

/* They hold no files, but nobody else than root may see that. */
static bool is_kernel_thread(struct dtk_tracker *tracker, int32_t pid)
{
    struct process_stat stat;

    if (!tracker->kernel_threads_known)
        read_kernel_threads(tracker);
    if (pid == 2 || tracker->kernel_threads.count == 0)
        return read_process_stat(tracker, pid, &stat) == 0 && stat.kernel;
    return find_pid(&tracker->kernel_threads, sizeof(int32_t), pid) != NULL;
}

/* ---- Which card a file is of ---- */

/* The minor number in "/dev/dri/renderD128" or "/dev/dri/card0", also when " (deleted)" follows; -1 for other files. */
static int minor_of_link(const char *link)
{
    static const char *const prefixes[] = {"/dev/dri/renderD", "/dev/dri/card"};

    for (int i = 0; i < 2; i++) {
        size_t length = strlen(prefixes[i]);
        int number = 0, digits = 0;

        if (strncmp(link, prefixes[i], length) != 0)
            continue;
        for (const char *at = link + length; *at >= '0' && *at <= '9' && digits < 6; at++, digits++)
            number = 10 * number + *at - '0';
        return digits > 0 ? number : -1;
    }
    return -1;
}

/* A container may have a node under another name than the host: its number tells, and asking for it opens nothing. */
static int minor_of_node(const struct dtk_tracker *tracker, int directory, const char *name, int named)
{
    struct stat st;

    if (!tracker->system->root.live || fstatat(directory, name, &st, 0) != 0 || !S_ISCHR(st.st_mode) ||
        major(st.st_rdev) != DRM_MAJOR)
        return named;
    return (int)minor(st.st_rdev);
}

static bool is_same_address(const struct pci_address *a, const struct pci_address *b)
{
    return a->domain == b->domain && a->bus == b->bus && a->device == b->device && a->function == b->function;
}

/* The driver's word on the card goes before the name of the node; of partitions, which have one address, the node
 * tells. A card's own node is that of its first partition. */
static int find_target(const struct dtk_tracker *tracker, int minor, const struct fdinfo *info)
{
    const struct target *targets = tracker->targets.at;
    int found = -1;

    for (int i = 0; i < tracker->targets.count; i++) {
        bool is_node = minor == (minor >= RENDER_MINOR_FIRST ? targets[i].drm_render : targets[i].drm_card);

        if (info->has_address && !is_same_address(&targets[i].address, &info->address))
            continue;
        if (is_node)
            return i;
        if (info->has_address && found < 0)
            found = i;
    }
    return found;
}

/* ---- One process ---- */

struct look {
    struct dtk_tracker *tracker;
    int32_t pid;
    int directory; /* proc/<pid>/fd */
    bool user, denied;
    uint64_t start_ticks;
};

static void add_client(struct look *look, int target, const struct fdinfo *info)
{
    struct dtk_tracker *tracker = look->tracker;
    struct process_stat stat;
    struct client *client;

    if (!look->user && read_process_stat(tracker, look->pid, &stat) == 0)
        look->start_ticks = stat.start_ticks;
    look->user = true;
    client = tracker_add(tracker, &tracker->clients, sizeof *client, CLIENTS_MAX);
    if (!client)
        return;
    *client = (struct client){.pid = look->pid, .target = target, .start_ticks = look->start_ticks, .info = *info};
    /* Drivers before Linux 5.19 number no clients. There is one address space for each, and that has a number; else
     * each file counts for itself. Real numbers do not reach these. */
    client->id = info->has_client                     ? info->client
                 : info->has_pasid && info->pasid > 0 ? 1ULL << 62 | info->pasid
                                                      : 1ULL << 63 | (uint64_t)tracker->clients.count;
}

/* Root without CAP_SYS_PTRACE, as in most containers, may list the files of others but not look at them. */
static void note_denied(struct look *look, int error)
{
    look->denied = look->denied || error == -EACCES || error == -EPERM;
}

static void look_at_file(struct look *look, const char *name)
{
    struct dtk_tracker *tracker = look->tracker;
    char link[64], path[64];
    struct fdinfo info;
    ssize_t got = readlinkat(look->directory, name, link, sizeof link - 1);
    int minor, target;

    if (got <= 0) {
        note_denied(look, got < 0 ? -errno : 0);
        return;
    }
    link[got] = '\0';
    minor = minor_of_link(link);
    if (minor < 0)
        return;
    snprintf(path, sizeof path, "%d/fdinfo/%.20s", look->pid, name);
    got = root_read(tracker->root, tracker->proc, path, tracker->text, sizeof tracker->text);
    if (got < 0) {
        ROOT_DEBUG(tracker->root, (int)got, path);
        note_denied(look, (int)got);
    }
    if (got < 0 || parse_fdinfo(tracker->text, (size_t)got, &info) != 0)
        return;
    target = find_target(tracker, minor_of_node(tracker, look->directory, name, minor), &info);
    if (target >= 0)
        add_client(look, target, &info);
}

static enum seen_as look_at_process(struct dtk_tracker *tracker, int32_t pid)
{
    struct look look = {.tracker = tracker, .pid = pid};
    struct root_entries entries;
    const char *name;
    char path[24];
    int error;

    snprintf(path, sizeof path, "%d/fd", pid);
    error = root_entries_open(tracker->root, tracker->proc, path, &entries);
    if (error == -EACCES || error == -EPERM)
        return is_kernel_thread(tracker, pid) ? SEEN_OTHER : SEEN_DENIED;
    if (error)
        return SEEN_NONE; /* it ended */
    look.directory = entries.fd;
    for (int count = 0; tracker->status == 0 && (error = root_entries_next(&entries, &name, NULL)) == 1; count++) {
        if (count == DESCRIPTORS_MAX) {
            tracker->scan.truncated = 1;
            break;
        }
        look_at_file(&look, name);
    }
    close(entries.fd);
    note_denied(&look, error);
    return look.user ? SEEN_USER : look.denied ? SEEN_DENIED : SEEN_OTHER;
}

/* ---- All processes ---- */

static bool is_due(const struct dtk_tracker *tracker, const struct seen *before, uint64_t inode, bool full)
{
    if (full || !before || before->inode != inode || before->as == SEEN_USER)
        return true;
    return before->as == SEEN_OTHER && find_pid(&tracker->kfd_entries, sizeof(struct kfd_entry), before->pid);
}

uint8_t fdinfo_scan(struct dtk_tracker *tracker, bool full)
{
    struct root_entries entries;
    const char *name;
    uint64_t inode;
    int error = tracker->proc < 0 ? tracker->proc : root_entries_open(tracker->root, tracker->proc, ".", &entries);

    if (error)
        return status_of_error(error);
    tracker->kernel_threads.count = 0;
    tracker->kernel_threads_known = false;
    while (tracker->status == 0 && (error = root_entries_next(&entries, &name, &inode)) == 1) {
        int32_t pid = pid_of_name(name);
        const struct seen *before;
        struct seen *seen;
        enum seen_as as;

        if (pid < 0)
            continue;
        /* proc makes a new inode for a new process, and listing it costs nothing. */
        before = find_pid(&tracker->seen_before, sizeof *before, pid);
        as = is_due(tracker, before, inode, full) ? look_at_process(tracker, pid) : before->as;
        if (as == SEEN_NONE)
            continue;
        seen = tracker_add(tracker, &tracker->seen, sizeof *seen, PIDS_MAX);
        if (!seen)
            break;
        *seen = (struct seen){.pid = pid, .as = (uint8_t)as, .inode = inode};
        tracker->scan.hidden += as == SEEN_DENIED;
    }
    close(entries.fd);
    sort_by_pid(&tracker->seen, sizeof(struct seen));
    return error < 0 ? status_of_error(error) : DTK_OK;
}
