/* Finding the processes that use cards: what the parts of a tracker share. See dtk_tracker_scan() in dtk.h.
 *
 *     kfd_scan         rows of what KFD tells            \  keyed by process and device
 *     fdinfo_scan      clients: open files of cards      /
 *     find_processes   clients into rows, rows into processes
 *     describe         who a process is
 */
#ifndef DTK_PROCESS_H
#define DTK_PROCESS_H

#include "backend.h"

/* More than any machine has; a hostile tree must not cost all memory. */
enum {
    PIDS_MAX = 131072,
    PROCESSES_MAX = 16384,
    ROWS_MAX = 65536,
    CLIENTS_MAX = 65536,
    DESCRIPTORS_MAX = 65536,
    QUEUES_MAX = 4096
};

/* A device as processes name it: a copy, since a scan must not hold the list of devices still. */
struct target {
    int32_t index, drm_card, drm_render;
    int64_t gpu_id;
    struct pci_address address;
    bool left_out; /* ask nothing that the driver must ask the card for */
    char uuid[32];
};

/* Name of a process within a scan: its pid in the root's proc, or FOREIGN and the pid that KFD has for it. */
typedef int64_t process_key;
#define FOREIGN ((process_key)1 << 32)

/* A process that KFD knows. */
struct kfd_entry {
    int32_t pid;
    bool told;            /* KFD tells how much memory it uses */
    uint64_t inode;       /* of its directory: another one is another process */
    uint64_t start_ticks; /* of the process that had this pid; 0 not known */
};

/* What one process uses of one target. */
struct row {
    process_key key;
    int32_t target, host_pid;
    uint64_t pasid; /* KFD's number of its address space on the card; 0 not known */
    dtk_usage usage;
};

/* An open file of a card. */
struct client {
    int32_t pid, target;
    uint64_t id, start_ticks;
    struct fdinfo info;
};

/* A process that was listed, and whether to look at it again. */
enum seen_as { SEEN_NONE, SEEN_OTHER, SEEN_USER, SEEN_DENIED };
struct seen {
    int32_t pid;
    uint8_t as;
    uint64_t inode;
};

struct list {
    void *at;
    int count, room;
};

struct user_name {
    int64_t uid;
    char name[32];
};

struct dtk_tracker {
    struct dtk_system *system;
    const struct root *root;
    int proc, kfd;   /* directories during a scan; -1 not there */
    bool namespaced; /* proc is that of a PID namespace, in which KFD's pids mean nothing */
    bool hidepid;    /* proc does not list the processes of others */
    bool kernel_threads_known;
    int status;                           /* of the scan: 0 or a negative status */
    double boot_time, full_at, full_took; /* s; boot_time is 0 while not known, full_at is CLOCK_MONOTONIC */
    dtk_scan scan;

    struct list targets;                     /* struct target */
    struct list kfd_entries, kfd_before;     /* struct kfd_entry, by pid; of this scan and of the one before */
    struct list seen, seen_before;           /* struct seen, by pid */
    struct list clients, clients_before;     /* struct client */
    struct list processes, processes_before; /* dtk_process, by pid */
    struct list rows;                        /* struct row */
    struct list users;                       /* struct user_name */
    struct list kernel_threads;              /* int32_t */
    char text[READ_MAX];
};

/* A new element at the end, zeroed. NULL when there are `most` already or no memory is left; the scan says so. */
void *tracker_add(struct dtk_tracker *tracker, struct list *list, size_t size, int most);

/* The element whose pid, which must be what it begins with, is that; NULL when there is none. For sorted lists. */
void *find_pid(const struct list *list, size_t size, int32_t pid);
void sort_by_pid(struct list *list, size_t size);

/* A pid, if a name is one; else -1. */
int32_t pid_of_name(const char *name);

static inline dtk_value usage_value(uint64_t number, uint32_t source)
{
    return (dtk_value){.u64 = number, .type = DTK_TYPE_U64, .status = DTK_OK, .source = (uint8_t)source};
}

static inline dtk_value no_usage(uint8_t status, int32_t detail)
{
    return (dtk_value){.type = DTK_TYPE_U64, .status = status, .detail = detail};
}

/* process_kfd.c: rows of the processes that KFD knows. Returns the status of the place. */
uint8_t kfd_scan(struct dtk_tracker *tracker);

/* process_fdinfo.c: clients of the processes that proc lists. Returns the status of the place. */
uint8_t fdinfo_scan(struct dtk_tracker *tracker, bool full);

/* process_rows.c */

/* From the clients and KFD's rows of this scan to the rows and processes that it found. */
void find_processes(struct dtk_tracker *tracker);

/* By card and number, as the next scan looks for them. */
void sort_clients(struct dtk_tracker *tracker);

/* process_rsmi.c: the utilization of the rows, from the vendor's library. */
void rsmi_scan(struct dtk_tracker *tracker);

/* process_info.c */

/* Whose pids proc has: sets `namespaced` and `hidepid`. */
void look_at_proc(struct dtk_tracker *tracker);

/* proc/<pid>/stat: 0 or a negative errno. */
int read_process_stat(struct dtk_tracker *tracker, int32_t pid, struct process_stat *ret);

/* Who a process is, as far as can be seen. */
void describe(struct dtk_tracker *tracker, process_key key, int32_t host_pid, dtk_process *ret);

#endif
