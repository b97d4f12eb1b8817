/* dtk_device_find() gives the device that the key means, also while others rescan a machine whose devices move.
 *
 *   find ROOT NODE SECONDS: NODE is a KFD node that is taken away and put back all the time */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dtk.h"

static atomic_int stop;
static atomic_int rescans;
static const char *node;

static void *rescan(void *context)
{
    while (!stop) {
        dtk_rescan(context);
        rescans++;
    }
    return NULL;
}

static void *move(void *context)
{
    char away[1024];

    (void)context;
    snprintf(away, sizeof away, "%s-away", node);
    while (!stop) {
        rename(node, away);
        rename(away, node);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    dtk_system *system;
    dtk_device *device;
    dtk_info info, found;
    pthread_t threads[2];
    time_t end;
    int wrong = 0, finds = 0;

    if (argc != 4 || dtk_open(argv[1], 0, &system) != 0)
        return 2;
    node = argv[2];
    if (dtk_device_get(system, dtk_device_count(system) - 1, &device) != 0 ||
        dtk_device_info(device, &info, sizeof info) != 0)
        return 2;
    pthread_create(&threads[0], NULL, rescan, system);
    pthread_create(&threads[1], NULL, move, NULL);
    for (end = time(NULL) + atoi(argv[3]); time(NULL) <= end; finds++)
        if (dtk_device_find(system, info.uuid, &device) != 0 || dtk_device_info(device, &found, sizeof found) != 0 ||
            strcmp(found.uuid, info.uuid) != 0)
            wrong++;
    stop = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    if (wrong || rescans < 10)
        printf("%d of %d finds were wrong, %d rescans\n", wrong, finds, (int)rescans);
    dtk_close(system);
    return wrong || rescans < 10;
}
