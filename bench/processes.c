/* Times scans for processes.
 *
 *     processes scan ROOT PLACES COUNT [UID]    median ms of COUNT scans that look at everything, and of as many others;
 *                                               then how many processes were found and how many are hidden
 *     processes hold COUNT FILES                COUNT processes with FILES descriptors each, until stdin ends
 */
#include <dtk.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SCANS_MAX = 1000 };

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(dtk_tracker *tracker, uint32_t flags, int count, dtk_scan *scan)
{
    double times[SCANS_MAX];

    for (int i = 0; i < count; i++) {
        double start = now();

        if (dtk_tracker_scan(tracker, flags, scan, sizeof *scan) != 0)
            exit(1);
        times[i] = now() - start;
    }
    qsort(times, (size_t)count, sizeof *times, by_size);
    return times[count / 2];
}

static int scan(const char *root, uint32_t places, int count)
{
    dtk_tracker *tracker;
    dtk_system *machine;
    dtk_scan scan;
    double full, tick;

    if (count < 1 || count > SCANS_MAX || dtk_open(root, 0, &machine) != 0 || dtk_tracker_open(machine, &tracker) != 0)
        return 1;
    full = median(tracker, places | DTK_SCAN_FULL, count, &scan);
    tick = median(tracker, places, count, &scan);
    printf("%.2f %.2f %d %d\n", full, tick, scan.processes, scan.hidden);
    dtk_tracker_close(tracker);
    dtk_close(machine);
    return 0;
}

static int hold(int count, int files)
{
    char byte;
    int ends[2];

    for (int i = 3; i < 256; i++)
        close(i);
    if (pipe(ends) != 0) /* its end ends the others */
        return 1;
    for (int i = 5; i < files + 1; i++)
        if (open("/dev/null", O_RDONLY) < 0)
            return 1;
    for (int i = 0; i < count; i++) {
        pid_t pid = fork();

        if (pid < 0)
            return 1;
        if (pid == 0) {
            close(ends[1]);
            _exit(read(ends[0], &byte, 1) != 0);
        }
    }
    printf("ready\n");
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    close(ends[1]);
    while (wait(NULL) > 0)
        ;
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "hold") == 0)
        return hold(atoi(argv[2]), atoi(argv[3]));
    if (argc < 5 || strcmp(argv[1], "scan") != 0)
        return 2;
    if (argc > 5 && (setgid((gid_t)atoi(argv[5])) != 0 || setuid((uid_t)atoi(argv[5])) != 0))
        return 1;
    return scan(argv[2], (uint32_t)atoi(argv[3]), atoi(argv[4]));
}
