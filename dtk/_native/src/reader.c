/* dtk-reader: reads cards for a program that must not hang. A thread for each card; see reader.h for what it writes.
 *
 *   dtk-reader --root DIR --tiers N [--interval MS [--slow N EVERY]] [--device KEY]... [--without BDF]...
 *              [--processes FLAGS] [--virtual LIBRARY] [--auto | --rsmi] [--library METRICS] [--library-aborted]
 *              [--debug]
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
#include <time.h>
#include <unistd.h>

#include "work.h"

enum { KEYS_MAX = 4096, FILES_MS = 300 }; /* how long the vendor's library waits for a card whose files hang */

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
    bool library_aborted;
};

static struct options options;

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
    struct dtk_device *partitions[PARTITIONS_READ_MAX];
    bool wanted = device->id.index >= 0 && selected[device->id.index];
    struct card *card;
    int count = 0;

    for (int i = 0; i < system->now.devices.count && count < PARTITIONS_READ_MAX; i++) {
        struct dtk_device *partition = system->now.devices.at[i];

        if (partition != device && partition->card == device && selected[i])
            partitions[count++] = partition;
    }
    card = wanted || count > 0 ? work_add(device, *slot) : NULL;
    if (!card)
        return;
    memcpy(card->partitions, partitions, (size_t)count * sizeof partitions[0]);
    card->partition_count = count;
    send_device(system, device, *slot, *slot, wanted);
    for (int i = 0; i < count; i++)
        send_device(system, partitions[i], *slot + 1 + i, *slot, true);
    *slot += 1 + count;
}

static int add_processes(struct dtk_system *system)
{
    struct card *card = work_add(NULL, PROCESSES_SLOT);

    if (!card)
        return 0;
    card->scan = options.processes;
    card->system = system;
    return dtk_tracker_open(system, &card->tracker);
}

static const char *environment(const char *name)
{
    return getenv(name);
}

static void add_virtuals(struct dtk_system *system)
{
    struct card *card = work_add(NULL, VIRTUAL_SLOT);

    if (card) {
        card->system = system;
        card->virtuals = options.virtuals;
    }
}

/* The machine, from HELLO to READY. */
static int introduce(struct dtk_system **ret)
{
    const struct enumeration enumeration = {touching, options.without, options.without_count};
    struct frame_hello hello = {
        DTK_API_VERSION,      DTK_METRIC_COUNT, sizeof(dtk_value),     sizeof(dtk_info),  sizeof(dtk_system_info),
        sizeof(dtk_probe),    sizeof(dtk_scan), sizeof(dtk_process),   sizeof(dtk_usage), sizeof(dtk_ecc_block),
        sizeof(dtk_firmware), sizeof(dtk_rsmi), sizeof(dtk_bank_count)};
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
    dtk_rsmi_environment(system, environment);
    system->rsmi_aborted = options.library_aborted;
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
    if (status == 0 && options.processes && work.count > 0)
        status = add_processes(system);
    if (status == 0 && options.virtuals)
        add_virtuals(system);
    if (status == 0)
        frame_send(FRAME_READY, -1, 0, NULL, 0, NULL, 0);
    *ret = system;
    return status;
}

/* ---- Ticks ---- */

static int add_name(void *context, const char *name)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a; the sum does not depend on the order of the entries */

    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 1099511628211u;
    *(uint64_t *)context += hash;
    return 0;
}

/* A number that changes when cards come or leave. */
static uint64_t sum_of_names(const struct root *root)
{
    static const char *const lists[] = {"sys/bus/pci/drivers/amdgpu",
                                        "sys/bus/pci/drivers/radeon",
                                        "sys/bus/pci/drivers/hydcu",
                                        "sys/bus/pci/drivers/hycu",
                                        "sys/class/drm",
                                        "sys/devices/virtual/kfd/kfd/topology/nodes"};
    uint64_t sum = 0;

    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        root_list(root, root->fd, lists[i], add_name, &sum);
    return sum;
}

/* The same before the search for cards: what changes while that goes on must not be taken for what it found. */
static uint64_t names_before(void)
{
    struct root root = {.fd = open(options.root, O_PATH | O_DIRECTORY | O_CLOEXEC)};
    uint64_t sum = 0;

    if (root.fd >= 0) {
        sum = sum_of_names(&root);
        close(root.fd);
    }
    return sum;
}

/* A card left and came back: its directory is another. */
static bool is_another(const struct dtk_system *system, const struct dtk_device *device)
{
    struct stat st;

    return device->path[0] && fstatat(system->root.fd, device->path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           st.st_ino != device->stat.st_ino;
}

static bool has_changed(const struct dtk_system *system, uint64_t names)
{
    if (sum_of_names(&system->root) != names)
        return true;
    for (int i = 0; i < work.count; i++)
        if (work.cards[i].device && is_another(system, work.cards[i].device))
            return true;
    return false;
}

/* Wait for the cards until `until` (CLOCK_MONOTONIC, milliseconds; negative: for ever). Ends with the process that
 * started us. Returns true when a card has answered. */
static bool wait_for_cards(int64_t until)
{
    struct pollfd polled[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = work.answered, .events = POLLIN}};
    int64_t now = (int64_t)(seconds(CLOCK_MONOTONIC) * 1000);
    uint64_t count;
    char byte;

    if (poll(polled, 2, until < 0 ? -1 : until > now ? (int)(until - now) : 0) < 0 && errno != EINTR)
        _exit(1);
    if (polled[0].revents && read(STDIN_FILENO, &byte, 1) <= 0)
        _exit(0);
    return polled[1].revents && read(work.answered, &count, sizeof count) > 0;
}

static void run_once(void)
{
    int64_t begin = (int64_t)(seconds(CLOCK_MONOTONIC) * 1000);

    work_ask(1, options.tiers);
    while (!work_is_done(1)) {
        bool late = (int64_t)(seconds(CLOCK_MONOTONIC) * 1000) >= begin + FILES_MS;

        if (late)
            work_let_library_begin();
        wait_for_cards(late ? -1 : begin + FILES_MS);
    }
    frame_send(FRAME_DONE, -1, 1, NULL, 0, NULL, 0);
}

/* One tick after another at fixed times; those that would come too late are dropped. `names` is from before the search
 * for cards. */
static void run(const struct dtk_system *system, uint64_t names)
{
    int64_t next = (int64_t)(seconds(CLOCK_MONOTONIC) * 1000);

    for (uint64_t tick = 1;; tick++) {
        bool slow = options.slow_every > 0 && (tick - 1) % (uint64_t)options.slow_every == 0, done = false;
        int64_t now, files = (int64_t)(seconds(CLOCK_MONOTONIC) * 1000) + FILES_MS;

        work_ask(tick, options.tiers | (slow ? options.slow_tiers : 0));
        next += options.interval_ms;
        do {
            if (!done && work_is_done(tick)) {
                done = true;
                frame_send(FRAME_DONE, -1, tick, NULL, 0, NULL, 0);
            }
            wait_for_cards(files < next ? files : next);
            now = (int64_t)(seconds(CLOCK_MONOTONIC) * 1000);
            if (now >= files) {
                work_let_library_begin();
                files = next;
            }
        } while (now < next);
        if (has_changed(system, names)) {
            frame_send(FRAME_CHANGED, -1, tick, NULL, 0, NULL, 0);
            return;
        }
        if (now > next + options.interval_ms)
            next = now;
    }
}

/* ---- Start ---- */

static bool parse_flag(const char *name)
{
    static const struct {
        const char *name;
        uint64_t flag;
    } flags[] = {{"--debug", DTK_OPEN_DEBUG}, {"--auto", DTK_OPEN_AUTO}, {"--rsmi", DTK_OPEN_RSMI}};

    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (strcmp(name, flags[i].name) == 0) {
            options.flags |= flags[i].flag;
            return true;
        }
    if (strcmp(name, "--library-aborted") == 0)
        return options.library_aborted = true;
    return false;
}

/* "3,28": numbers of metrics; "all". */
static void parse_metrics(const char *text)
{
    for (int i = 0; i < DTK_METRIC_COUNT; i++)
        work.library[i] = strcmp(text, "all") == 0;
    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        int number = atoi(at);

        if (*at >= '0' && *at <= '9' && number >= 0 && number < DTK_METRIC_COUNT)
            work.library[number] = true;
    }
}

static int parse_options(int argc, char **argv)
{
    options.root = "/";
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;

        if (parse_flag(name))
            continue;
        if (!value)
            return -1;
        i++;
        if (strcmp(name, "--root") == 0)
            options.root = value;
        else if (strcmp(name, "--tiers") == 0)
            options.tiers = (uint32_t)atoi(value);
        else if (strcmp(name, "--library") == 0)
            parse_metrics(value);
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
    uint64_t names;

    close_inherited();
    frame_open();
    signal(SIGINT, SIG_IGN); /* Ctrl-C is for the program that started us */
    signal(SIGPIPE, SIG_IGN);
    if (parse_options(argc, argv) != 0) {
        fprintf(stderr, "dtk-reader is started by dtk; see reader.c\n");
        return 2;
    }
    work_init();
    names = options.interval_ms > 0 ? names_before() : 0;
    if (introduce(&system) != 0)
        return 1;
    if (work_start() != 0) {
        send_error(-DTK_NO_MEMORY, "");
        return 1;
    }
    if (options.interval_ms > 0)
        run(system, names);
    else
        run_once();
    _exit(0); /* threads may hang: nothing is taken down in order */
}
