/* What the parts of libdtk share: systems, devices, sources and the backend. */
#ifndef DTK_BACKEND_H
#define DTK_BACKEND_H

#include <pthread.h>
#include <stdatomic.h>

#include "catalogue.h"
#include "dtk.h"
#include "gpu_metrics.h"
#include "parse.h"
#include "root.h"

/* Labelled hwmon channels that sources.def names. */
enum channel { CHANNEL_EDGE, CHANNEL_JUNCTION, CHANNEL_MEMORY, CHANNEL_CORE, CHANNEL_VDDGFX, CHANNEL_COUNT };

enum { VENDOR_AMD = 0x1002, VENDOR_HYGON = 0x1d94 };

enum { READ_MAX = 65536 }; /* the cap on every file: gpu_metrics may grow, the rest is far smaller */

struct dtk_device {
    struct dtk_system *system;
    struct dtk_device *card; /* itself, unless this is a partition */
    dtk_info id;             /* what enumeration found; strings a driver must be asked for are empty */
    struct pci_address address;
    bool partitioned; /* a card whose partitions are the devices */
    bool left_out;    /* nothing of it is read: see struct enumeration */
    bool gone;        /* no longer part of the machine since a rescan */

    char path[ROOT_PATH_MAX]; /* below the root: its PCI directory; of a partition, and where only KFD knows a card, its
                                 KFD directory; "" nothing to look at */
    struct stat stat;         /* of that, to tell a card that was plugged in anew */
    int directory;            /* the PCI directory; -1 for a partition, and where only KFD knows a card */
    char node[ROOT_PATH_MAX]; /* KFD's directory of the device, "" none */
    uint64_t node_memory;     /* local_mem_size, for old kernels; 0 unknown */
    uint64_t node_clock_max;  /* max_engine_clk_fcompute in MHz; 0 unknown */

    char hwmon[32];                   /* below the PCI directory; "" while none was found */
    uint8_t channel[CHANNEL_COUNT];   /* 1 + number of the channel with that label; 0 none */
    bool opened[SOURCE_KERNEL_COUNT]; /* the file was there last time: open it without a look first */
    bool opened_status;               /* the same of power/runtime_status */
    uint64_t memory_total;            /* what derived values need, as last read; 0 not yet */
    uint64_t pwm_max;
    int rsmi;              /* the vendor library's number of a card; negative: it does not list it */
    char buffer[READ_MAX]; /* one call a device at a time, so one is enough */
};

struct device_list {
    struct dtk_device **at;
    int count, room;
};

struct inventory {
    struct device_list cards, devices;
};

/* For dtk-reader, which must know where an enumeration hangs, and go on without the card that hung the last one. */
struct enumeration {
    void (*touching)(const char *name); /* called before files of a card or a KFD node are read; may be NULL */
    const char *const *without;         /* what not to touch: a card by its address, a node as "kfd:4" */
    int without_count;
};

struct rsmi;

struct dtk_system {
    struct root root;
    uint64_t backend; /* DTK_OPEN_AUTO, DTK_OPEN_RSMI, or 0 for the kernel's files alone */
    dtk_environment *environment;
    struct rsmi *rsmi;         /* the vendor's library, once it was needed; also when there is none: rsmi_of() */
    atomic_bool rsmi_missing;  /* and then this */
    int rsmi_pid;              /* of the process that may have it: a forked child has not */
    pthread_mutex_t rsmi_lock; /* while that is found out */
    bool rsmi_aborted;         /* dtk-reader: it has ended an earlier process */
    struct enumeration enumeration;
    pthread_rwlock_t lock; /* see system_lock() */
    atomic_int pid;        /* the process that made the lock; 0 while a forked child makes its own */
    struct inventory now;
    struct device_list former; /* devices that went away: callers may still hold them */
};

/* What a source gave. */
struct reading {
    uint8_t status;
    int32_t detail;
    double f64;
    uint64_t u64; /* the same as an integer, exact for whole numbers */
};

/* State of one dtk_device_sample(): what is read once and serves several metrics. */
struct sample {
    struct dtk_device *device;
    struct rsmi *rsmi; /* the vendor's library, where it is asked */
    bool done[SOURCE_COUNT];
    struct reading reading[SOURCE_COUNT];
    bool table_done;
    struct reading table_reading; /* of gpu_metrics as a whole */
    struct gpu_metrics table;
};

/* backend_kernel.c, backend_rsmi.c: read one source. May fill others of the sample that come with it. */
void kernel_read(struct sample *sample, enum source source);
void rsmi_read(struct sample *sample, enum source source);

/* A source's reading, read at most once a sample. */
const struct reading *sample_read(struct sample *sample, enum source source);

/* dtk_device_sample() in two parts, for dtk-reader, where the second may hang without harm to the first. The library's
 * part goes on from what the kernel's gave, and asks for what library_is_wanted() there. */
enum sample_part { PART_KERNEL = 1, PART_LIBRARY = 2, PART_BOTH = 3 };
int sample_part(struct dtk_device *device, uint32_t tiers, enum sample_part part, dtk_value *values, size_t count);
bool library_is_wanted(const struct dtk_device *device, int metric, const dtk_value *value);

/* rsmi_load.c: find and start the vendor's library, unless that was done. NULL when there is no memory, and in a child
 * that fork() made: what other threads of the parent were in stays locked there. */
struct rsmi *rsmi_of(struct dtk_system *system);
/* Number the cards as it does, again after they changed. */
void rsmi_number_cards(struct dtk_system *system);
void rsmi_close(struct dtk_system *system);

/* device.c: dtk_open() with the hooks of dtk-reader. */
int system_open(const char *root, uint64_t flags, const struct enumeration *enumeration, struct dtk_system **ret);

struct dtk_device *device_new(struct dtk_system *system);
void device_free(struct dtk_device *device);
int device_list_add(struct device_list *list, struct dtk_device *device);
int device_list_reserve(struct device_list *list, int more);
void inventory_free(struct inventory *inventory);

/* Hold the list of devices still, against dtk_rescan(). */
void system_lock(const struct dtk_system *system);
void system_unlock(const struct dtk_system *system);
void system_lock_alone(struct dtk_system *system);

/* dtk_device_info() for who holds the lock already. */
void device_info(const struct dtk_device *device, dtk_info *ret);

/* Is the directory still the one that enumeration found? */
bool device_is_there(const struct dtk_device *device);
/* 0, or ASLEEP, GONE, from power/runtime_status and the directory itself. Never negative. */
int device_state(struct dtk_device *device);

/* The status that a negative errno of a read means. */
uint8_t status_of_error(int error);

/* Sum of the error files of ras/ into the three RAS sources; see ras.c. */
void ras_read(struct sample *sample);

/* Find the card's hwmon directory and its labelled channels, unless that was done and they are still there. */
void hwmon_prepare(struct dtk_device *device);

/* Tell that a card or node is about to be touched; false when it is to be left out. */
bool touch(const struct dtk_system *system, const char *name);

/* kernel_kfd.c */
int kernel_enumerate(struct dtk_system *system, struct inventory *ret);

/* names.c: a name for a card by its ids; never fails. */
void name_of_card(const struct root *root, const dtk_info *id, char *ret, size_t size);

#endif
