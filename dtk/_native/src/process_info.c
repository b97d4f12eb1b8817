/* Who a process is: proc/<pid>/{stat,status,cmdline,cgroup} and etc/passwd, below the root. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "process.h"

/* What parse_cgroup() fills is copied as it is. */
#define SAME_SIZE(field) sizeof((dtk_process *)0)->field == sizeof((struct process_group *)0)->field
_Static_assert(SAME_SIZE(container) && SAME_SIZE(runtime) && SAME_SIZE(pod) && SAME_SIZE(slurm_job) &&
                   SAME_SIZE(slurm_step) && SAME_SIZE(unit),
               "parse.h must follow dtk_process");

enum { TICKS = 100, KERNEL_THREADS = 2, USERS_MAX = 1024 }; /* USER_HZ, the same on all machines that DTK runs on */

/* ---- proc as a whole ---- */

/* The number of the first PID namespace is the kernel's ABI. */
static const char first_namespace[] = "pid:[4026531836]";

/* A process of the first namespace may have another proc mounted, and the other way round. Kernel threads are listed by
 * the first namespace's proc alone, which says so when this process cannot. */
static bool is_in_namespace(struct dtk_tracker *tracker)
{
    char path[ROOT_PATH_MAX], link[64];
    struct process_stat stat;
    ssize_t got = -1;
    int directory;

    if (root_resolve(tracker->root, "proc/self", path, sizeof path - sizeof "/ns") != 0)
        return false;
    strcat(path, "/ns");
    directory = root_open_directory(tracker->root, tracker->root->fd, path);
    if (directory >= 0) {
        got = readlinkat(directory, "pid", link, sizeof link - 1);
        close(directory);
    }
    if (got <= 0)
        return false;
    link[got] = '\0';
    return strcmp(link, first_namespace) != 0 &&
           !(read_process_stat(tracker, KERNEL_THREADS, &stat) == 0 && stat.kernel);
}

void look_at_proc(struct dtk_tracker *tracker)
{
    struct stat st;

    tracker->namespaced = tracker->proc >= 0 && is_in_namespace(tracker);
    /* Every namespace has a process 1. */
    tracker->hidepid = tracker->proc >= 0 && tracker->system->root.live && fstatat(tracker->proc, "1", &st, 0) != 0;
}

/* When the machine was started, in Unix seconds. */
static double boot_time(struct dtk_tracker *tracker)
{
    struct timespec now, up;
    uint64_t seconds;

    if (tracker->boot_time > 0)
        return tracker->boot_time;
    if (tracker->system->root.live && clock_gettime(CLOCK_REALTIME, &now) == 0 &&
        clock_gettime(CLOCK_BOOTTIME, &up) == 0) {
        tracker->boot_time = (double)(now.tv_sec - up.tv_sec) + (double)(now.tv_nsec - up.tv_nsec) / 1e9;
    } else {
        ssize_t got = root_read(tracker->root, tracker->proc, "stat", tracker->text, sizeof tracker->text);

        if (got > 0 && parse_property(tracker->text, (size_t)got, "btime", &seconds) == 0)
            tracker->boot_time = (double)seconds;
    }
    return tracker->boot_time;
}

/* ---- One process ---- */

static ssize_t read_of_process(struct dtk_tracker *tracker, int32_t pid, const char *name)
{
    char path[32];

    snprintf(path, sizeof path, "%d/%s", pid, name);
    return root_read(tracker->root, tracker->proc, path, tracker->text, sizeof tracker->text);
}

int read_process_stat(struct dtk_tracker *tracker, int32_t pid, struct process_stat *ret)
{
    ssize_t got = tracker->proc < 0 ? tracker->proc : read_of_process(tracker, pid, "stat");

    if (got < 0)
        return (int)got;
    return parse_process_stat(tracker->text, (size_t)got, ret) == 0 ? 0 : -EIO;
}

/* Of a command line that is longer than the buffer the beginning is enough. */
static void read_command(struct dtk_tracker *tracker, dtk_process *process)
{
    char path[32];
    bool cut = false;
    ssize_t got;
    int fd;

    snprintf(path, sizeof path, "%d/cmdline", process->pid);
    fd = root_open_file(tracker->root, tracker->proc, path);
    if (fd < 0)
        return;
    got = read(fd, tracker->text, sizeof tracker->text);
    close(fd);
    if (got > 0 && parse_command(tracker->text, (size_t)got, process->command, sizeof process->command, &cut) == 0)
        process->command_cut = cut;
}

/* proc cuts names after 15 bytes; the command has the rest. */
static void lengthen_name(dtk_process *process)
{
    const char *end = process->command + strcspn(process->command, " "), *start = end;
    size_t length = strlen(process->name);

    while (start > process->command && start[-1] != '/')
        start--;
    if (length == 15 && strncmp(start, process->name, length) == 0 && (size_t)(end - start) < sizeof process->name) {
        memcpy(process->name, start, (size_t)(end - start));
        process->name[end - start] = '\0';
    }
}

static const char *name_of_user(struct dtk_tracker *tracker, int64_t uid)
{
    struct user_name *users = tracker->users.at, *user;
    ssize_t got;

    for (int i = 0; i < tracker->users.count; i++)
        if (users[i].uid == uid)
            return users[i].name;
    user = tracker_add(tracker, &tracker->users, sizeof *user, USERS_MAX);
    if (!user)
        return "";
    user->uid = uid;
    got = root_read(tracker->root, tracker->root->fd, "etc/passwd", tracker->text, sizeof tracker->text);
    if (got > 0)
        parse_user(tracker->text, (size_t)got, uid, user->name, sizeof user->name);
    return user->name;
}

static void read_status(struct dtk_tracker *tracker, dtk_process *process)
{
    struct process_status status;
    ssize_t got = read_of_process(tracker, process->pid, "status");

    if (got <= 0 || parse_process_status(tracker->text, (size_t)got, &status) != 0)
        return;
    process->uid = status.uid;
    process->ns_pid = status.ns_pid;
    snprintf(process->user, sizeof process->user, "%s", name_of_user(tracker, status.uid));
}

static void read_group(struct dtk_tracker *tracker, dtk_process *process)
{
    struct process_group group;
    ssize_t got = read_of_process(tracker, process->pid, "cgroup");

    if (got <= 0 || parse_cgroup(tracker->text, (size_t)got, &group) != 0)
        return;
    memcpy(process->container, group.container, sizeof process->container);
    memcpy(process->runtime, group.runtime, sizeof process->runtime);
    memcpy(process->pod, group.pod, sizeof process->pod);
    memcpy(process->slurm_job, group.slurm_job, sizeof process->slurm_job);
    memcpy(process->slurm_step, group.slurm_step, sizeof process->slurm_step);
    memcpy(process->unit, group.unit, sizeof process->unit);
}

static void keep_stat(struct dtk_tracker *tracker, const struct process_stat *stat, dtk_process *process)
{
    double boot = boot_time(tracker);

    process->parent = stat->parent;
    process->state = stat->state;
    process->start_ticks = stat->start_ticks;
    process->start_time = boot > 0 ? boot + (double)stat->start_ticks / TICKS : -1;
    memcpy(process->name, stat->name, sizeof process->name);
}

/* What the scan before read of the same process, when it is the same program still. */
static bool recall(struct dtk_tracker *tracker, const struct process_stat *stat, dtk_process *process)
{
    const dtk_process *before = find_pid(&tracker->processes_before, sizeof *before, process->pid);
    int32_t host_pid = process->host_pid;

    if (tracker->scan.full || !before || before->status != DTK_OK || before->start_ticks != stat->start_ticks ||
        strncmp(before->name, stat->name, strlen(stat->name)) != 0 || !before->command[0])
        return false;
    *process = *before;
    process->host_pid = host_pid;
    process->state = stat->state;
    process->parent = stat->parent;
    return true;
}

/* KFD keeps an entry until all of a process is undone, and its pid may be another's by then: the entry is the one of the
 * last scan, the process is not. */
static bool is_of_another(struct dtk_tracker *tracker, int32_t pid, uint64_t start_ticks)
{
    struct kfd_entry *entry = find_pid(&tracker->kfd_entries, sizeof *entry, pid);
    const struct kfd_entry *before = find_pid(&tracker->kfd_before, sizeof *before, pid);

    if (!entry)
        return false;
    entry->start_ticks = start_ticks;
    if (!before || before->inode != entry->inode || !before->start_ticks || before->start_ticks == start_ticks)
        return false;
    entry->start_ticks = before->start_ticks;
    return true;
}

static uint8_t status_without_stat(const struct dtk_tracker *tracker, int error)
{
    if (tracker->proc < 0)
        return DTK_UNSUPPORTED;
    if (error == -ENOENT || error == -ESRCH)
        return tracker->hidepid ? DTK_DENIED : DTK_GONE;
    return status_of_error(error);
}

/* hidepid=1 lets everybody see whose a process is, and no more. */
static void read_owner(struct dtk_tracker *tracker, dtk_process *process)
{
    char path[16];
    struct stat st;

    snprintf(path, sizeof path, "%d", process->pid);
    if (tracker->system->root.live && fstatat(tracker->proc, path, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        process->uid = st.st_uid;
        snprintf(process->user, sizeof process->user, "%s", name_of_user(tracker, process->uid));
    }
}

static void read_process(struct dtk_tracker *tracker, bool known_to_kfd, dtk_process *process)
{
    struct process_stat stat, again;
    int error = read_process_stat(tracker, process->pid, &stat);

    if (error) {
        process->status = status_without_stat(tracker, error);
        if (process->status == DTK_DENIED)
            read_owner(tracker, process);
    } else if (known_to_kfd && is_of_another(tracker, process->pid, stat.start_ticks)) {
        process->status = DTK_GONE;
    } else {
        dtk_process unseen = *process;

        if (recall(tracker, &stat, process))
            return;
        keep_stat(tracker, &stat, process);
        read_status(tracker, process);
        read_group(tracker, process);
        /* What waits in the kernel may hold the lock that reading its arguments takes. */
        if (stat.state != 'D')
            read_command(tracker, process);
        lengthen_name(process);
        /* All that was one process, unless it ended and its pid was given away in between. */
        if (read_process_stat(tracker, process->pid, &again) != 0 || again.start_ticks != stat.start_ticks) {
            *process = unseen;
            process->status = DTK_GONE;
        }
    }
}

void describe(struct dtk_tracker *tracker, process_key key, int32_t host_pid, dtk_process *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->pid = (int32_t)(key & INT32_MAX);
    ret->host_pid = host_pid;
    ret->parent = ret->ns_pid = -1;
    ret->uid = -1;
    ret->start_time = -1;
    ret->status = DTK_UNSUPPORTED;
    if (!(key & FOREIGN)) {
        ret->status = DTK_OK;
        read_process(tracker, host_pid >= 0 && !tracker->namespaced, ret);
    }
}
