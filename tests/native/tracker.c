/* Two trackers scan while processes come and go and while another thread rescans: no crash, and what is told hangs
 * together.
 *
 *   tracker ROOT SECONDS    ROOT has the processes proc/<pid> and the entries <pid> of KFD of 100 and 101 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "dtk.h"

enum { ROWS = 64 };

static atomic_int stop, failures, scans, rows;
static const char *root;

static void *come_and_go(void *context)
{
    const char *name = context;
    char here[512], away[512];

    snprintf(here, sizeof here, "%s/%s", root, name);
    snprintf(away, sizeof away, "%s/away-%s", root, strrchr(name, '/') + 1);
    while (!stop) {
        failures += rename(here, away) != 0;
        usleep(50);
        failures += rename(away, here) != 0;
        usleep(50);
    }
    return NULL;
}

static void *rescan(void *context)
{
    dtk_system *system = context;

    while (!stop)
        failures += dtk_rescan(system) != 0;
    return NULL;
}

/* Each usage is of a process, each process has one, and all is in order. */
static int is_sound(const dtk_tracker *tracker, const dtk_scan *scan)
{
    static _Thread_local dtk_process processes[ROWS];
    static _Thread_local dtk_usage usages[ROWS];
    int process = -1, device = -1;

    if (dtk_tracker_processes(tracker, processes, sizeof processes[0], ROWS) != scan->processes ||
        dtk_tracker_usages(tracker, usages, sizeof usages[0], ROWS) != scan->usages || scan->usages > ROWS)
        return 0;
    for (int i = 0; i < scan->usages; i++) {
        if (usages[i].process != process && (usages[i].process != process + 1 || process + 1 >= scan->processes))
            return 0;
        if (usages[i].process == process && usages[i].device <= device)
            return 0;
        process = usages[i].process;
        device = usages[i].device;
        if (processes[process].status == DTK_OK && processes[process].start_ticks == 0)
            return 0;
    }
    return process == scan->processes - 1;
}

static void *scan(void *context)
{
    dtk_system *system = context;
    dtk_tracker *tracker;
    unsigned turn = 0;

    if (dtk_tracker_open(system, &tracker) != 0) {
        failures++;
        return NULL;
    }
    while (!stop) {
        uint32_t places = turn % 3 + 1;
        dtk_scan result;

        if (dtk_tracker_scan(tracker, places | (turn % 5 == 0 ? DTK_SCAN_FULL : 0), &result, sizeof result) != 0 ||
            !is_sound(tracker, &result))
            failures++;
        scans++;
        rows += result.usages;
        turn++;
    }
    dtk_tracker_close(tracker);
    return NULL;
}

int main(int argc, char **argv)
{
    static char kfd[] = "sys/devices/virtual/kfd/kfd/proc/100", proc[] = "proc/101";
    dtk_system *system;
    pthread_t threads[5];

    if (argc != 3 || dtk_open(root = argv[1], 0, &system) != 0)
        return 2;
    pthread_create(&threads[0], NULL, come_and_go, kfd);
    pthread_create(&threads[1], NULL, come_and_go, proc);
    pthread_create(&threads[2], NULL, rescan, system);
    pthread_create(&threads[3], NULL, scan, system);
    pthread_create(&threads[4], NULL, scan, system);

    struct timespec pause = {.tv_sec = atoi(argv[2])};

    nanosleep(&pause, NULL);
    stop = 1;
    for (int i = 0; i < 5; i++)
        pthread_join(threads[i], NULL);
    if (failures || scans == 0 || rows == 0)
        printf("%d failures in %d scans of %d rows\n", failures, scans, rows);
    dtk_close(system);
    return failures || scans == 0 || rows == 0;
}
