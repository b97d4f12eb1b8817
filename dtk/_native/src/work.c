#include "work.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "process.h"

struct work work;
static pthread_mutex_t ask_lock = PTHREAD_MUTEX_INITIALIZER;

static void wait_for_work(struct job *job);

double seconds(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void work_init(void)
{
    work.answered = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (work.answered < 0)
        _exit(1);
}

struct card *work_add(struct dtk_device *device, int slot)
{
    struct card *card = &work.cards[work.count];

    if (work.count == CARDS_MAX)
        return NULL;
    *card = (struct card){.device = device, .slot = slot};
    pthread_mutex_init(&card->lock, NULL);
    card->main = (struct job){.duty = device                   ? DUTY_CARD
                                      : slot == PROCESSES_SLOT ? DUTY_PROCESSES
                                                               : DUTY_VIRTUAL,
                              .card = card};
    card->library = (struct job){.duty = device ? DUTY_LIBRARY : DUTY_PROCESSES_LIBRARY, .card = card};
    card->slow = (struct job){.duty = DUTY_LIBRARY_SLOW, .card = card};
    work.count++;
    return card;
}

/* ---- Threads ---- */

static void *serve(void *context)
{
    wait_for_work(context);
    return NULL;
}

static int start(struct job *job)
{
    /* A vendor's library is not used to small stacks. */
    size_t stack = (job->duty == DUTY_CARD || job->duty == DUTY_PROCESSES ? 512 : 4096) * 1024;
    pthread_attr_t attributes;
    pthread_t thread;
    int error;

    pthread_cond_init(&job->wake, NULL);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, stack);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    error = pthread_create(&thread, &attributes, serve, job);
    pthread_attr_destroy(&attributes);
    return error ? -1 : 0;
}

static bool may_need_library(const struct card *card)
{
    const struct dtk_system *system = card->device ? card->device->system : card->system;
    bool any = card->scan & DTK_SCAN_RSMI;

    for (int i = 0; card->device && i < DTK_METRIC_COUNT; i++)
        any = any || (work.library[i] && library_is_wanted(card->device, i, &(dtk_value){.status = DTK_UNSUPPORTED}));
    return any && system->backend && !system->rsmi_aborted;
}

int work_start(void)
{
    int error = 0;

    for (int i = 0; i < work.count && error == 0; i++) {
        struct card *card = &work.cards[i];

        error = start(&card->main);
        if (error == 0 && may_need_library(card))
            error = start(&card->library);
        if (error == 0 && card->device && may_need_library(card))
            error = start(&card->slow);
    }
    return error;
}

/* ---- Asking, all of it under ask_lock ---- */

static void ask(struct job *job, uint64_t tick, uint32_t tiers)
{
    job->tick = tick;
    job->tiers = tiers;
    job->asked = true;
    pthread_cond_signal(&job->wake);
}

/* The tiers in which the library is to add something. */
static uint32_t wanted_tiers(struct card *card, uint32_t tiers)
{
    uint32_t ret = 0;

    pthread_mutex_lock(&card->lock);
    for (int i = 0; i < DTK_METRIC_COUNT; i++)
        if (card->wanted[i])
            ret |= (uint32_t)metrics[i].info.tier & tiers;
    pthread_mutex_unlock(&card->lock);
    return ret;
}

/* What the files gave is told already; the library goes on from there, unless it is busy still. */
static void pass_on(const struct job *job)
{
    struct card *card = job->card;
    uint32_t slow = job->tiers & DTK_TIER_SLOW, fast = job->tiers & (DTK_TIER_STATIC | DTK_TIER_FAST);

    if (!may_need_library(card))
        return;
    card->library.waiting = card->device ? wanted_tiers(card, fast) : DTK_TIER_FAST;
    card->slow.waiting = card->device ? wanted_tiers(card, slow) : 0;
    card->library.tick = card->library.asked ? card->library.tick : job->tick;
    card->slow.tick = card->slow.asked ? card->slow.tick : job->tick;
}

static void let_library_begin(void)
{
    for (int i = 0; i < work.count; i++) {
        struct job *jobs[] = {&work.cards[i].library, &work.cards[i].slow};

        for (int j = 0; j < 2; j++) {
            if (jobs[j]->waiting && !jobs[j]->asked)
                ask(jobs[j], jobs[j]->tick, jobs[j]->waiting);
            jobs[j]->waiting = 0;
        }
    }
}

void work_let_library_begin(void)
{
    pthread_mutex_lock(&ask_lock);
    let_library_begin();
    pthread_mutex_unlock(&ask_lock);
}

/* All cards that were asked in the tick have told what their files gave. */
static bool files_are_read(uint64_t tick)
{
    for (int i = 0; i < work.count; i++)
        if (work.cards[i].device && work.cards[i].main.asked && work.cards[i].main.tick == tick)
            return false;
    return true;
}

static bool is_busy(const struct card *card)
{
    /* The processes are one list for both of their jobs. */
    return card->main.asked || (card->device ? card->device->left_out : card->library.asked);
}

void work_ask(uint64_t tick, uint32_t tiers)
{
    struct frame_tick head = {.monotonic = seconds(CLOCK_MONOTONIC), .tiers = tiers};
    int32_t numbers[CARDS_MAX];
    int places[CARDS_MAX];

    pthread_mutex_lock(&ask_lock);
    for (int i = 0; i < work.count; i++) {
        if (is_busy(&work.cards[i]))
            continue;
        places[head.count] = i;
        numbers[head.count++] = work.cards[i].slot;
    }
    pthread_mutex_unlock(&ask_lock);
    frame_send(FRAME_TICK, -1, tick, &head, sizeof head, numbers, (size_t)head.count * sizeof numbers[0]);
    pthread_mutex_lock(&ask_lock);
    for (int i = 0; i < head.count; i++)
        ask(&work.cards[places[i]].main, tick, tiers);
    pthread_mutex_unlock(&ask_lock);
}

bool work_is_done(uint64_t tick)
{
    bool done = true;

    pthread_mutex_lock(&ask_lock);
    for (int i = 0; i < work.count; i++) {
        const struct card *card = &work.cards[i];
        const struct job *jobs[] = {&card->main, &card->library, &card->slow};

        for (int j = 0; j < 3; j++)
            done = done && !((jobs[j]->asked || jobs[j]->waiting) && jobs[j]->tick == tick);
    }
    pthread_mutex_unlock(&ask_lock);
    return done;
}

/* ---- The files of a card ---- */

/* What belongs to the slow tier and is no metric: errors by block and memory bank, versions of the firmware. */
static void read_details(struct dtk_device *device, int slot, uint64_t tick)
{
    enum { ROOM = 64, BANKS_ROOM = 1024 };
    dtk_bank_count banks[BANKS_ROOM];
    dtk_ecc_block blocks[ROOM];
    dtk_firmware firmware[ROOM];
    int count = dtk_device_ecc(device, blocks, sizeof blocks[0], ROOM);

    if (count > 0)
        frame_send(FRAME_ECC, slot, tick, blocks, (size_t)(count < ROOM ? count : ROOM) * sizeof blocks[0], NULL, 0);
    count = dtk_device_banks(device, banks, sizeof banks[0], BANKS_ROOM);
    if (count > 0)
        frame_send(FRAME_BANKS, slot, tick, banks, (size_t)(count < BANKS_ROOM ? count : BANKS_ROOM) * sizeof banks[0],
                   NULL, 0);
    count = dtk_device_firmware(device, firmware, sizeof firmware[0], ROOM);
    if (count > 0)
        frame_send(FRAME_FIRMWARE, slot, tick, firmware, (size_t)(count < ROOM ? count : ROOM) * sizeof firmware[0],
                   NULL, 0);
}

static struct frame_sample sample_head(const struct job *job)
{
    return (struct frame_sample){.time = seconds(CLOCK_REALTIME),
                                 .monotonic = seconds(CLOCK_MONOTONIC),
                                 .tiers = job->tiers,
                                 .count = DTK_METRIC_COUNT,
                                 .part = job->duty == DUTY_CARD ? PART_KERNEL : PART_LIBRARY};
}

/* Note which of the values the library is to find; until it has, they are stale. */
static void note_wanted(struct card *card, const struct frame_sample *head, const dtk_value *values, dtk_value *told)
{
    pthread_mutex_lock(&card->lock);
    card->head = *head;
    for (int i = 0; i < DTK_METRIC_COUNT; i++) {
        if (!((uint32_t)metrics[i].info.tier & head->tiers))
            continue;
        card->values[i] = values[i];
        card->wanted[i] =
            work.library[i] && library_is_wanted(card->device, i, &values[i]) && !card->device->system->rsmi_aborted;
        if (card->wanted[i])
            told[i] = (dtk_value){.type = values[i].type, .status = DTK_STALE};
    }
    pthread_mutex_unlock(&card->lock);
}

static void read_device(struct dtk_device *device, int slot, const struct job *job)
{
    struct frame_sample head = sample_head(job);
    dtk_value values[DTK_METRIC_COUNT], told[DTK_METRIC_COUNT];
    dtk_info info;

    memset(values, 0, sizeof values);
    if (job->tiers & DTK_TIER_STATIC && dtk_device_info(device, &info, sizeof info) == 0)
        frame_send(FRAME_INFO, slot, job->tick, &info, sizeof info, NULL, 0);
    if (job->tiers & DTK_TIER_SLOW)
        read_details(device, slot, job->tick);
    sample_part(device, job->tiers, PART_KERNEL, values, DTK_METRIC_COUNT);
    memcpy(told, values, sizeof told);
    if (device == job->card->device)
        note_wanted(job->card, &head, values, told);
    frame_send(FRAME_SAMPLE, slot, job->tick, &head, sizeof head, told, sizeof told);
}

static void read_card(const struct job *job)
{
    const struct card *card = job->card;

    read_device(card->device, card->slot, job);
    for (int i = 0; i < card->partition_count; i++)
        read_device(card->partitions[i], card->slot + 1 + i, job);
}

/* ---- The vendor's library ---- */

/* Told of before it is loaded: when the process ends there, it is known why. */
static void load_library(struct dtk_system *system)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool told;
    dtk_rsmi about = {.status = DTK_STALE};

    pthread_mutex_lock(&lock);
    if (!told) {
        frame_send(FRAME_LIBRARY, -1, 0, &about, sizeof about, NULL, 0);
        dtk_rsmi_get(system, &about, sizeof about);
        frame_send(FRAME_LIBRARY, -1, 0, &about, sizeof about, NULL, 0);
        told = true;
    }
    pthread_mutex_unlock(&lock);
}

/* The values of the files once more, now with those that the library found. */
static void ask_library(const struct job *job)
{
    struct card *card = job->card;
    struct frame_sample head;
    dtk_value found[DTK_METRIC_COUNT], told[DTK_METRIC_COUNT];
    bool wanted[DTK_METRIC_COUNT];

    load_library(card->device->system);
    head = sample_head(job);
    pthread_mutex_lock(&card->lock);
    memcpy(found, card->values, sizeof found);
    for (int i = 0; i < DTK_METRIC_COUNT; i++) {
        wanted[i] = card->wanted[i] && (uint32_t)metrics[i].info.tier & job->tiers;
        if (!wanted[i])
            found[i].status = DTK_OK; /* nothing more to find */
    }
    pthread_mutex_unlock(&card->lock);
    sample_part(card->device, job->tiers, PART_LIBRARY, found, DTK_METRIC_COUNT);
    pthread_mutex_lock(&card->lock);
    memcpy(told, card->values, sizeof told);
    for (int i = 0; i < DTK_METRIC_COUNT; i++)
        if (wanted[i])
            told[i] = found[i];
    if (job->duty == DUTY_LIBRARY) { /* of one time with the files */
        head.time = card->head.time;
        head.monotonic = card->head.monotonic;
    }
    frame_send(FRAME_SAMPLE, card->slot, job->tick, &head, sizeof head, told, sizeof told);
    pthread_mutex_unlock(&card->lock);
}

/* ---- Processes ---- */

/* Processes and what they use, as one frame; nothing when there is no memory for it. */
static void send_processes(const struct job *job, const dtk_scan *scan)
{
    const dtk_tracker *tracker = job->card->tracker;
    size_t processes_size = (size_t)scan->processes * sizeof(dtk_process);
    size_t size = processes_size + (size_t)scan->usages * sizeof(dtk_usage);
    char *rows = malloc(size + 1);

    if (!rows)
        return;
    dtk_tracker_processes(tracker, (dtk_process *)rows, sizeof(dtk_process), (size_t)scan->processes);
    dtk_tracker_usages(tracker, (dtk_usage *)(rows + processes_size), sizeof(dtk_usage), (size_t)scan->usages);
    frame_send(FRAME_PROCESSES, PROCESSES_SLOT, job->tick, scan, sizeof *scan, rows, size);
    free(rows);
}

static void read_processes(const struct job *job)
{
    dtk_scan scan;

    if (dtk_tracker_scan(job->card->tracker, job->card->scan & ~DTK_SCAN_RSMI, &scan, sizeof scan) == 0)
        send_processes(job, &scan);
}

/* The same once more, with how busy they keep the cards. */
static void ask_library_of_processes(const struct job *job)
{
    load_library(job->card->system);
    rsmi_scan(job->card->tracker);
    send_processes(job, &job->card->tracker->scan);
}

/* ---- A thread's life ---- */

static void do_duty(const struct job *job)
{
    switch (job->duty) {
    case DUTY_CARD:
        read_card(job);
        break;
    case DUTY_LIBRARY:
    case DUTY_LIBRARY_SLOW:
        ask_library(job);
        break;
    case DUTY_PROCESSES:
        read_processes(job);
        break;
    case DUTY_PROCESSES_LIBRARY:
        ask_library_of_processes(job);
        break;
    case DUTY_VIRTUAL:
        virtuals_send(job->card->system, job->card->virtuals, job->tick);
        break;
    }
}

static void wait_for_work(struct job *job)
{
    const uint64_t one = 1;

    pthread_mutex_lock(&ask_lock);
    for (;;) {
        while (!job->asked)
            pthread_cond_wait(&job->wake, &ask_lock);
        pthread_mutex_unlock(&ask_lock);
        do_duty(job);
        pthread_mutex_lock(&ask_lock);
        job->asked = false;
        if (job == &job->card->main)
            pass_on(job);
        if (job->duty == DUTY_CARD && files_are_read(job->tick)) {
            frame_send(FRAME_FILES, -1, job->tick, NULL, 0, NULL, 0);
            let_library_begin();
        }
        if (write(work.answered, &one, sizeof one) < 0)
            _exit(1);
    }
}
