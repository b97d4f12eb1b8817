/* How busy a process keeps a card: of Hygon's library, which is asked once for each of them. */
#include <math.h>
#include <string.h>

#include "process.h"
#include "rsmi.h"

/* The library's number of the card at an address; negative where it does not list that. */
static int card_number(const struct dtk_system *system, const struct pci_address *address)
{
    int ret = -1;

    system_lock(system);
    for (int i = 0; i < system->now.cards.count; i++)
        if (memcmp(&system->now.cards.at[i]->address, address, sizeof *address) == 0)
            ret = system->now.cards.at[i]->rsmi;
    system_unlock(system);
    return ret;
}

static dtk_value ask(struct rsmi *rsmi, int32_t pid, int card)
{
    typedef int get_usage(uint32_t pid, uint32_t card, float *percent);
    dtk_value value = {.type = DTK_TYPE_F64};
    uint64_t number = rsmi_begin(rsmi);
    struct reading reading;
    float percent[4] = {0};
    get_usage *function;
    int status;

    RSMI_CALL(rsmi->process_usage, function);
    status = function((uint32_t)pid, (uint32_t)card, percent);
    rsmi_end(rsmi, number);
    reading = status == RSMI_SUCCESS ? rsmi_of_float(percent[0]) : rsmi_of_status(status);
    value.status = reading.status;
    value.detail = reading.detail;
    if (reading.status == DTK_OK && (reading.f64 < 0 || reading.f64 > 100)) {
        value.status = DTK_FAILED;
        value.detail = DTK_DETAIL_IMPLAUSIBLE;
    }
    if (value.status == DTK_OK) {
        value.f64 = reading.f64;
        value.source = DTK_SCAN_RSMI;
    }
    return value;
}

void rsmi_scan(struct dtk_tracker *tracker)
{
    const struct target *targets = tracker->targets.at;
    struct row *rows = tracker->rows.at;
    bool asked = tracker->system->backend && !tracker->system->rsmi_aborted;
    struct rsmi *rsmi = asked ? rsmi_of(tracker->system) : NULL;

    if (!rsmi || rsmi->about.status != DTK_OK || !rsmi->process_usage)
        return;
    for (int i = 0; i < tracker->rows.count; i++) {
        int card = card_number(tracker->system, &targets[rows[i].target].address);

        if (card >= 0 && rows[i].host_pid > 0)
            rows[i].usage.utilization = ask(rsmi, rows[i].host_pid, card);
    }
}
