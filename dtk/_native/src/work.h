/* What the threads of dtk-reader do: a card each, and beside it what may hang by itself. */
#ifndef DTK_WORK_H
#define DTK_WORK_H

#include "backend.h"
#include "reader.h"

enum { CARDS_MAX = 1024, PARTITIONS_READ_MAX = 64 };

enum duty {
    DUTY_CARD,         /* the files of a card and its partitions */
    DUTY_LIBRARY,      /* what the vendor's library is to add to that */
    DUTY_LIBRARY_SLOW, /* its calls that take their time */
    DUTY_PROCESSES,
    DUTY_PROCESSES_LIBRARY, /* how busy they keep the cards */
    DUTY_VIRTUAL
};

/* A thread. It has what it works on for itself while `asked`. */
struct job {
    enum duty duty;
    struct card *card;
    bool asked;
    uint64_t tick;
    uint32_t tiers;
    uint32_t waiting; /* tiers that it is to be asked for, as soon as the files of the tick are read */
    pthread_cond_t wake;
};

/* A card, and those of its partitions that were asked for; or, by its slot, the processes or the virtual devices. */
struct card {
    struct dtk_device *device; /* NULL: no card */
    struct dtk_device *partitions[PARTITIONS_READ_MAX];
    dtk_tracker *tracker;
    uint32_t scan;             /* of the processes: DTK_SCAN_* */
    struct dtk_system *system; /* of the processes and the virtual devices */
    const char *virtuals;      /* of these: the library for virtuals_send() */
    int slot, partition_count;
    struct job main, library, slow;
    pthread_mutex_t lock;               /* of what follows */
    struct frame_sample head;           /* of the last sample of the files */
    dtk_value values[DTK_METRIC_COUNT]; /* as the files gave them last */
    bool wanted[DTK_METRIC_COUNT];      /* of the library: see library_is_wanted() */
};

struct work {
    struct card cards[CARDS_MAX];
    int count;
    int answered;                   /* an eventfd, written when a job is done */
    bool library[DTK_METRIC_COUNT]; /* metrics for which the library may be asked */
};
extern struct work work;

void work_init(void);
/* A card, or with NULL what the slot says, to be filled in; NULL when there are too many. */
struct card *work_add(struct dtk_device *device, int slot);

/* Start the threads: all of them before a library is loaded, which may keep the linker's locks for ever. -1 when one does
 * not start. */
int work_start(void);

/* Ask every card that is not still busy with an earlier tick, and is not left out. */
void work_ask(uint64_t tick, uint32_t tiers);
bool work_is_done(uint64_t tick);

/* Let the library begin although files of the tick are still being read: a card hangs. */
void work_let_library_begin(void);

double seconds(clockid_t clock);

#endif
