/* dtk-reader: reads cards for a program that must not hang. A thread for each card; see reader.h for what it writes.
 *
 *   dtk-reader --root DIR --tiers N [--interval MS [--slow N EVERY]] [--device KEY]... [--without BDF]...
 *              [--processes FLAGS] [--virtual LIBRARY] [--debug]
 *
 * Without --interval it reads once. It ends when its standard input does: whoever started it is gone. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "backend.h"
#include "reader.h"

enum { CARDS_MAX = 1024, KEYS_MAX = 4096 };

struct options {
    const char *root;
    uint32_t tiers, slow_tiers;
    int interval_ms; /* 0: once */
    int slow_every;  /* in which ticks the slow tiers are asked too */
    const char *keys[KEYS_MAX];
    int key_count;
    const char *without[CARDS_MAX];
    int without_count;
    uint32_t processes;   /* DTK_SCAN_*, 0 none */
    const char *virtuals; /* for virtuals_send(); NULL none */
    uint64_t flags;
};

/* A card, and those of its partitions that were asked for; or, by its slot, the processes or the virtual devices. Its
 * thread holds it while `asked`. */
struct card {
    struct dtk_device *device; /* NULL: no card */
    struct dtk_system *system; /* of the virtual devices */
    dtk_tracker *tracker;
    struct dtk_device *partitions[64];
    int slot, partition_count;
    bool asked;
    uint64_t tick;
    uint32_t tiers;
    pthread_cond_t wake;
};

static struct options options;
static struct card cards[CARDS_MAX];
static int card_count;
static int answered; /* an eventfd, written when a card has answered */
static pthread_mutex_t ask_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- Frames ---- */

static void send_error(int status, const char *key)
{
    struct frame_error error = {.status = status};

    snprintf(error.key, sizeof error.key, "%s", key);
    frame_send(FRAME_ERROR, -1, 0, &error, sizeof error, NULL, 0);
}

static void touching(const char *name)
{
    frame_send(FRAME_TOUCHING, -1, 0, name, strlen(name), NULL, 0);
}

static double seconds(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* ---- Cards, each in its thread ---- */

/* What belongs to the slow tier and is no metric: errors by block, versions of the firmware. */
static void read_details(struct dtk_device *device, int slot, uint64_t tick)
{
    enum { ROOM = 64 };
    dtk_ecc_block blocks[ROOM];
    dtk_firmware firmware[ROOM];
    int count = dtk_device_ecc(device, blocks, sizeof blocks[0], ROOM);

    if (count > 0)
        frame_send(FRAME_ECC, slot, tick, blocks, (size_t)(count < ROOM ? count : ROOM) * sizeof blocks[0], NULL, 0);
    count = dtk_device_firmware(device, firmware, sizeof firmware[0], ROOM);
    if (count > 0)
        frame_send(FRAME_FIRMWARE, slot, tick, firmware, (size_t)(count < ROOM ? count : ROOM) * sizeof firmware[0],
                   NULL, 0);
}

static void read_device(struct dtk_device *device, int slot, const struct card *card)
{
    struct frame_sample head = {.tiers = card->tiers, .count = DTK_METRIC_COUNT};
    dtk_value values[DTK_METRIC_COUNT];
    dtk_info info;

    memset(values, 0, sizeof values);
    head.time = seconds(CLOCK_REALTIME);
    head.monotonic = seconds(CLOCK_MONOTONIC);
    if (card->tiers & DTK_TIER_STATIC && dtk_device_info(device, &info, sizeof info) == 0)
        frame_send(FRAME_INFO, slot, card->tick, &info, sizeof info, NULL, 0);
    if (card->tiers & DTK_TIER_SLOW)
        read_details(device, slot, card->tick);
    if (dtk_device_sample(device, card->tiers, values, DTK_METRIC_COUNT) == 0)
        frame_send(FRAME_SAMPLE, slot, card->tick, &head, sizeof head, values, sizeof values);
}

/* Processes and what they use, as one frame; nothing when there is no memory for it. */
static void read_processes(const struct card *card)
{
    size_t processes_size, size;
    dtk_scan scan;
    char *rows;

    if (dtk_tracker_scan(card->tracker, options.processes, &scan, sizeof scan) != 0)
        return;
    processes_size = (size_t)scan.processes * sizeof(dtk_process);
    size = processes_size + (size_t)scan.usages * sizeof(dtk_usage);
    rows = malloc(size + 1);
    if (!rows)
        return;
    dtk_tracker_processes(card->tracker, (dtk_process *)rows, sizeof(dtk_process), (size_t)scan.processes);
    dtk_tracker_usages(card->tracker, (dtk_usage *)(rows + processes_size), sizeof(dtk_usage), (size_t)scan.usages);
    frame_send(FRAME_PROCESSES, PROCESSES_SLOT, card->tick, &scan, sizeof scan, rows, size);
    free(rows);
}

static void read_card(const struct card *card)
{
    if (card->slot == VIRTUAL_SLOT) {
        virtuals_send(card->system, options.virtuals, card->tick);
        return;
    }
    if (!card->device) {
        read_processes(card);
        return;
    }
    read_device(card->device, card->slot, card);
    for (int i = 0; i < card->partition_count; i++)
        read_device(card->partitions[i], card->slot + 1 + i, card);
}

static void *serve(void *context)
{
    struct card *card = context;

    pthread_mutex_lock(&ask_lock);
    for (;;) {
        const uint64_t one = 1;

        while (!card->asked)
            pthread_cond_wait(&card->wake, &ask_lock);
        pthread_mutex_unlock(&ask_lock);
        read_card(card);
        pthread_mutex_lock(&ask_lock);
        card->asked = false;
        if (write(answered, &one, sizeof one) < 0)
            _exit(1);
    }
    return NULL;
}

static int start_thread(struct card *card)
{
    pthread_attr_t attributes;
    pthread_t thread;
    int error;

    pthread_cond_init(&card->wake, NULL);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, (card->slot == VIRTUAL_SLOT ? 8192 : 512) * 1024); /* 8 MiB as for main() */
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    error = pthread_create(&thread, &attributes, serve, card);
    pthread_attr_destroy(&attributes);
    return error;
}

/* ---- Which devices ---- */

static void send_device(struct dtk_system *system, const struct dtk_device *device, int slot, int card_slot,
                        bool is_device)
{
    struct frame_device frame = {.info = device->id, .is_device = is_device, .card_slot = card_slot};

    for (int i = 0; slot == card_slot && i < system->now.devices.count; i++)
        if (system->now.devices.at[i] == device || system->now.devices.at[i]->card == device) {
            if (frame.count++ == 0)
                frame.first = i;
        }
    frame_send(FRAME_DEVICE, slot, 0, &frame, sizeof frame, NULL, 0);
}

/* The devices that the keys mean. Of several keys that mean none, the error is about the one that can mean nothing, and it
 * comes after all devices, for a helpful text. On a machine without devices a key means none: that is no error. */
static int select_devices(struct dtk_system *system, bool *selected)
{
    int total = system->now.devices.count, refused = 0, *found = calloc((size_t)total + 1, sizeof *found);
    const char *key = "";

    if (!found)
        return -DTK_NO_MEMORY;
    for (int i = 0; i < total; i++)
        selected[i] = options.key_count == 0;
    for (int i = 0; i < options.key_count; i++) {
        int status = dtk_device_match(system, options.keys[i], found, (size_t)total);

        for (int j = 0; j < status; j++)
            selected[found[j]] = true;
        if (status < 0 && (status != -DTK_NOT_FOUND || total > 0) && (refused == 0 || refused == -DTK_NOT_FOUND)) {
            refused = status;
            key = options.keys[i];
        }
    }
    free(found);
    if (refused != 0) {
        for (int i = 0; i < total; i++)
            send_device(system, system->now.devices.at[i], i, i, true);
        send_error(refused, key);
    }
    return refused;
}

/* Slots are numbered card by card, its partitions behind it. */
static void add_card(struct dtk_system *system, struct dtk_device *device, const bool *selected, int *slot)
{
    struct card *card = &cards[card_count];
    bool wanted = device->id.index >= 0 && selected[device->id.index];

    *card = (struct card){.device = device, .slot = *slot};
    for (int i = 0; i < system->now.devices.count && card->partition_count < 64; i++) {
        struct dtk_device *partition = system->now.devices.at[i];

        if (partition != device && partition->card == device && selected[i])
            card->partitions[card->partition_count++] = partition;
    }
    if ((!wanted && card->partition_count == 0) || card_count == CARDS_MAX - 2)
        return;
    send_device(system, device, *slot, *slot, wanted);
    for (int i = 0; i < card->partition_count; i++)
        send_device(system, card->partitions[i], *slot + 1 + i, *slot, true);
    *slot += 1 + card->partition_count;
    card_count++;
}

static int add_processes(struct dtk_system *system)
{
    struct card *card = &cards[card_count];
    int status;

    *card = (struct card){.slot = PROCESSES_SLOT};
    status = dtk_tracker_open(system, &card->tracker);
    if (status == 0)
        card_count++;
    return status;
}

/* The machine, from HELLO to READY. */
static int introduce(struct dtk_system **ret)
{
    const struct enumeration enumeration = {touching, options.without, options.without_count};
    struct frame_hello hello = {DTK_API_VERSION,       DTK_METRIC_COUNT,        sizeof(dtk_value),
                                sizeof(dtk_info),      sizeof(dtk_system_info), sizeof(dtk_probe),
                                sizeof(dtk_scan),      sizeof(dtk_process),     sizeof(dtk_usage),
                                sizeof(dtk_ecc_block), sizeof(dtk_firmware)};
    dtk_system_info info;
    dtk_probe probe;
    struct dtk_system *system;
    bool *selected;
    int slot = 0, status;

    frame_send(FRAME_HELLO, -1, 0, &hello, sizeof hello, NULL, 0);
    status = system_open(options.root, options.flags, &enumeration, &system);
    if (status != 0) {
        send_error(status, "");
        return status;
    }
    dtk_system_info_get(system, &info, sizeof info);
    frame_send(FRAME_SYSTEM, -1, 0, &info, sizeof info, NULL, 0);
    if (system->now.devices.count == 0) {
        dtk_system_probe(system, &probe, sizeof probe);
        frame_send(FRAME_PROBE, -1, 0, &probe, sizeof probe, NULL, 0);
    }
    selected = calloc((size_t)system->now.devices.count + 1, sizeof *selected);
    status = selected ? select_devices(system, selected) : -DTK_NO_MEMORY;
    for (int i = 0; status == 0 && i < system->now.cards.count; i++)
        add_card(system, system->now.cards.at[i], selected, &slot);
    free(selected);
    if (status == 0 && options.processes && card_count > 0)
        status = add_processes(system);
    if (status == 0 && options.virtuals)
        cards[card_count++] = (struct card){.slot = VIRTUAL_SLOT, .system = system};
    if (status == 0)
        frame_send(FRAME_READY, -1, 0, NULL, 0, NULL, 0);
    *ret = system;
    return status;
}

/* ---- Ticks ---- */

/* Ask every card that is not still busy with an earlier tick, and is not left out. */
static void ask_cards(uint64_t tick, uint32_t tiers)
{
    struct frame_tick head = {.monotonic = seconds(CLOCK_MONOTONIC), .tiers = tiers};
    int32_t slots[CARDS_MAX];

    pthread_mutex_lock(&ask_lock);
    for (int i = 0; i < card_count; i++)
        if (!cards[i].asked && !(cards[i].device && cards[i].device->left_out))
            slots[head.count++] = i;
    pthread_mutex_unlock(&ask_lock);

    int32_t numbers[CARDS_MAX];

    for (int i = 0; i < head.count; i++)
        numbers[i] = cards[slots[i]].slot;
    frame_send(FRAME_TICK, -1, tick, &head, sizeof head, numbers, (size_t)head.count * sizeof numbers[0]);
    pthread_mutex_lock(&ask_lock);
    for (int i = 0; i < head.count; i++) {
        struct card *card = &cards[slots[i]];

        card->tick = tick;
        card->tiers = tiers;
        card->asked = true;
        pthread_cond_signal(&card->wake);
    }
    pthread_mutex_unlock(&ask_lock);
}

static bool have_answered(uint64_t tick)
{
    bool all = true;

    pthread_mutex_lock(&ask_lock);
    for (int i = 0; i < card_count; i++)
        all = all && !(cards[i].asked && cards[i].tick == tick);
    pthread_mutex_unlock(&ask_lock);
    return all;
}

/* A number that changes when cards come, leave, or leave and come back. */
static int add_name(void *context, const char *name)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a; the sum does not depend on the order of the entries */

    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 1099511628211u;
    *(uint64_t *)context += hash;
    return 0;
}

static uint64_t fingerprint(const struct dtk_system *system)
{
    static const char *const lists[] = {"sys/bus/pci/drivers/amdgpu",
                                        "sys/bus/pci/drivers/radeon",
                                        "sys/bus/pci/drivers/hydcu",
                                        "sys/bus/pci/drivers/hycu",
                                        "sys/class/drm",
                                        "sys/devices/virtual/kfd/kfd/topology/nodes"};
    uint64_t sum = 0;

    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        root_list(&system->root, system->root.fd, lists[i], add_name, &sum);
    for (int i = 0; i < card_count; i++) {
        struct stat st;

        if (cards[i].device && fstatat(system->root.fd, cards[i].device->path, &st, AT_SYMLINK_NOFOLLOW) == 0)
            sum += (uint64_t)st.st_ino * (uint64_t)(2 * i + 3);
    }
    return sum;
}

/* Wait for the cards until `until` (CLOCK_MONOTONIC, milliseconds; negative: for ever). Ends with the process that
 * started us. Returns true when a card has answered. */
static bool wait_for_cards(int64_t until)
{
    struct pollfd polled[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = answered, .events = POLLIN}};
    int64_t now = (int64_t)(seconds(CLOCK_MONOTONIC) * 1000);
    uint64_t count;
    char byte;

    if (poll(polled, 2, until < 0 ? -1 : until > now ? (int)(until - now) : 0) < 0 && errno != EINTR)
        _exit(1);
    if (polled[0].revents && read(STDIN_FILENO, &byte, 1) <= 0)
        _exit(0);
    return polled[1].revents && read(answered, &count, sizeof count) > 0;
}

static void run_once(void)
{
    ask_cards(1, options.tiers);
    while (!have_answered(1))
        wait_for_cards(-1);
    frame_send(FRAME_DONE, -1, 1, NULL, 0, NULL, 0);
}

/* One tick after another at fixed times; those that would come too late are dropped. */
static void run(const struct dtk_system *system)
{
    int64_t next = (int64_t)(seconds(CLOCK_MONOTONIC) * 1000);
    uint64_t before = fingerprint(system);

    for (uint64_t tick = 1;; tick++) {
        bool slow = options.slow_every > 0 && (tick - 1) % (uint64_t)options.slow_every == 0, done = false;
        int64_t now;

        ask_cards(tick, options.tiers | (slow ? options.slow_tiers : 0));
        next += options.interval_ms;
        do {
            if (!done && have_answered(tick)) {
                done = true;
                frame_send(FRAME_DONE, -1, tick, NULL, 0, NULL, 0);
            }
            wait_for_cards(next);
            now = (int64_t)(seconds(CLOCK_MONOTONIC) * 1000);
        } while (now < next);
        if (fingerprint(system) != before) {
            frame_send(FRAME_CHANGED, -1, tick, NULL, 0, NULL, 0);
            return;
        }
        if (now > next + options.interval_ms)
            next = now;
    }
}

/* ---- Start ---- */

static int parse_options(int argc, char **argv)
{
    options.root = "/";
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;

        if (strcmp(name, "--debug") == 0) {
            options.flags |= DTK_OPEN_DEBUG;
            continue;
        }
        if (!value)
            return -1;
        i++;
        if (strcmp(name, "--root") == 0)
            options.root = value;
        else if (strcmp(name, "--tiers") == 0)
            options.tiers = (uint32_t)atoi(value);
        else if (strcmp(name, "--processes") == 0)
            options.processes = (uint32_t)atoi(value);
        else if (strcmp(name, "--virtual") == 0)
            options.virtuals = value;
        else if (strcmp(name, "--interval") == 0)
            options.interval_ms = atoi(value);
        else if (strcmp(name, "--slow") == 0 && i + 1 < argc) {
            options.slow_tiers = (uint32_t)atoi(value);
            options.slow_every = atoi(argv[++i]);
        } else if (strcmp(name, "--device") == 0 && options.key_count < KEYS_MAX)
            options.keys[options.key_count++] = value;
        else if (strcmp(name, "--without") == 0 && options.without_count < CARDS_MAX)
            options.without[options.without_count++] = value;
        else
            return -1;
    }
    return options.tiers ? 0 : -1;
}

/* Nothing that was open in the process that started us stays open because of us: no lease, no socket. */
static void close_inherited(void)
{
    DIR *directory = opendir("/proc/self/fd");
    const struct dirent *entry;

    while (directory && (entry = readdir(directory))) {
        int fd = atoi(entry->d_name);

        if (fd > STDERR_FILENO && fd != dirfd(directory))
            close(fd);
    }
    if (directory)
        closedir(directory);
}

int main(int argc, char **argv)
{
    struct dtk_system *system = NULL;

    close_inherited();
    signal(SIGINT, SIG_IGN); /* Ctrl-C is for the program that started us */
    signal(SIGPIPE, SIG_IGN);
    if (parse_options(argc, argv) != 0) {
        fprintf(stderr, "dtk-reader is started by dtk; see reader.c\n");
        return 2;
    }
    answered = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (answered < 0 || frame_start() != 0 || introduce(&system) != 0)
        return 1;
    for (int i = 0; i < card_count; i++)
        if (start_thread(&cards[i]) != 0) {
            send_error(-DTK_NO_MEMORY, "");
            return 1;
        }
    if (options.interval_ms > 0)
        run(system);
    else
        run_once();
    _exit(0); /* threads may hang: nothing is taken down in order */
}
