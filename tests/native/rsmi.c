/* The vendor's library in the process of a C program: what every card reads of it, from a thread each.
 *
 *   rsmi    prints "<library> <status> <abi>", then "<card> <metric> <value>" for what has one */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "dtk.h"

enum { CARDS = 16 };

struct card {
    dtk_device *device;
    dtk_value values[DTK_METRIC_COUNT];
    int status;
};

static const char *environment(const char *name)
{
    return getenv(name);
}

static void *sample(void *context)
{
    struct card *card = context;

    card->status = dtk_device_sample(card->device, DTK_TIER_STATIC | DTK_TIER_FAST | DTK_TIER_SLOW, card->values,
                                     DTK_METRIC_COUNT);
    return NULL;
}

static void print(int number, const struct card *card)
{
    for (int i = 0; i < DTK_METRIC_COUNT; i++) {
        const dtk_value *value = &card->values[i];

        if (value->status == DTK_OK)
            printf("%d %s %.17g\n", number, dtk_metric_describe(i)->name,
                   value->type == DTK_TYPE_F64 ? value->f64 : (double)value->u64);
    }
}

int main(void)
{
    static struct card cards[CARDS];
    pthread_t threads[CARDS];
    dtk_system *system;
    dtk_rsmi about;
    int count;

    if (dtk_open(NULL, DTK_OPEN_RSMI, &system) != 0 || dtk_rsmi_environment(system, environment) != 0)
        return 1;
    count = dtk_card_count(system);
    for (int i = 0; i < count && i < CARDS; i++) {
        dtk_card_get(system, i, &cards[i].device);
        pthread_create(&threads[i], NULL, sample, &cards[i]);
    }
    for (int i = 0; i < count && i < CARDS; i++)
        pthread_join(threads[i], NULL);
    if (dtk_rsmi_get(system, &about, sizeof about) != 0 || dtk_rescan(system) != 0)
        return 1;
    printf("%s %s %s\n", about.path, dtk_status_name(about.status), dtk_rsmi_abi_name(about.abi));
    for (int i = 0; i < count && i < CARDS; i++)
        print(i, &cards[i]);
    dtk_close(system);
    return 0;
}
