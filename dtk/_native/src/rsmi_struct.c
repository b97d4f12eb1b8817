/* Calls of librocm_smi64 that fill structs, whose layouts differ between its generations, or give several readings. */
#include <math.h>
#include <string.h>
#include <time.h>

#include "rsmi.h"

static bool has_deep_sleep_layout(const struct rsmi *rsmi)
{
    return rsmi->about.abi != DTK_RSMI_AMD_5 && rsmi->about.abi != DTK_RSMI_HYGON_6_2;
}

/* rsmi_frequencies_t of either layout: how many, which is in force, and all of them. */
struct frequencies {
    uint32_t count, current;
    const uint64_t *at;
};

static struct frequencies frequencies_of(const struct rsmi *rsmi, const room *room)
{
    bool later = has_deep_sleep_layout(rsmi);
    struct frequencies ret = {room->u32[later ? 1 : 0], room->u32[later ? 2 : 1], &room->u64[later ? 2 : 1]};
    uint32_t most = later ? 33 : 32;

    if (ret.count > most)
        ret.count = most;
    return ret;
}

void rsmi_read_clock(struct sample *sample, const struct rsmi *rsmi, enum source current, enum source top)
{
    static const uint8_t clocks[SOURCE_COUNT] = {[SOURCE_RSMI_CLOCK_GFX] = 0,
                                                 [SOURCE_RSMI_CLOCK_FABRIC] = 1,
                                                 [SOURCE_RSMI_CLOCK_SOC] = 3,
                                                 [SOURCE_RSMI_CLOCK_MEMORY] = 4};
    typedef int get_frequencies(uint32_t card, uint32_t clock, void *ret);
    room room = {0};
    struct frequencies levels;
    get_frequencies *function;
    uint64_t highest = 0;
    int status;

    RSMI_CALL(rsmi->symbol[current], function);
    status = function((uint32_t)sample->device->rsmi, clocks[current], &room);
    sample->done[current] = sample->done[top] = true;
    if (status != RSMI_SUCCESS) {
        sample->reading[current] = sample->reading[top] = rsmi_of_status(status);
        return;
    }
    levels = frequencies_of(rsmi, &room);
    for (uint32_t i = 0; i < levels.count; i++)
        highest = levels.at[i] > highest ? levels.at[i] : highest;
    sample->reading[current] = levels.current < levels.count ? rsmi_of_unsigned(levels.at[levels.current], 1e6)
                                                             : rsmi_no_reading(DTK_UNSUPPORTED, 0);
    sample->reading[top] = levels.count ? rsmi_of_unsigned(highest, 1e6) : rsmi_no_reading(DTK_UNSUPPORTED, 0);
}

/* rsmi_pcie_bandwidth_t: the frequencies, then the lanes of each. */
void rsmi_read_link(struct sample *sample, const struct rsmi *rsmi, void *symbol)
{
    struct reading *speed = &sample->reading[SOURCE_RSMI_LINK_SPEED], *width = &sample->reading[SOURCE_RSMI_LINK_WIDTH];
    typedef int get_link(uint32_t card, void *ret);
    const uint32_t *lanes;
    struct frequencies levels;
    room room = {0};
    get_link *function;
    int status;

    RSMI_CALL(symbol, function);
    status = function((uint32_t)sample->device->rsmi, &room);
    sample->done[SOURCE_RSMI_LINK_SPEED] = sample->done[SOURCE_RSMI_LINK_WIDTH] = true;
    levels = frequencies_of(rsmi, &room);
    lanes = &room.u32[(has_deep_sleep_layout(rsmi) ? 280 : 264) / 4];
    if (status != RSMI_SUCCESS || levels.current >= levels.count) {
        *speed = *width = status != RSMI_SUCCESS ? rsmi_of_status(status) : rsmi_no_reading(DTK_UNSUPPORTED, 0);
        return;
    }
    *speed = rsmi_of_unsigned(levels.at[levels.current], 1e9);
    *width = rsmi_of_unsigned(lanes[levels.current], 1);
}

struct reading rsmi_read_power(void *symbol, uint32_t card)
{
    typedef int get_power(uint32_t card, uint64_t *power, uint32_t *type);
    uint64_t power[4] = {0};
    uint32_t type[4] = {0};
    get_power *function;
    int status;

    RSMI_CALL(symbol, function);
    status = function(card, power, type);
    if (status != RSMI_SUCCESS)
        return rsmi_of_status(status);
    return type[0] == UINT32_MAX || power[0] == UINT64_MAX ? rsmi_no_reading(DTK_UNSUPPORTED, 0)
                                                           : rsmi_of_unsigned(power[0], 1e6);
}

void rsmi_read_power_range(struct sample *sample, void *symbol)
{
    struct reading *max = &sample->reading[SOURCE_RSMI_POWER_CAP_MAX],
                   *min = &sample->reading[SOURCE_RSMI_POWER_CAP_MIN];
    typedef int get_range(uint32_t card, uint32_t sensor, uint64_t *max, uint64_t *min);
    uint64_t highest[4] = {0}, lowest[4] = {0};
    get_range *function;
    int status;

    RSMI_CALL(symbol, function);
    status = function((uint32_t)sample->device->rsmi, 0, highest, lowest);
    sample->done[SOURCE_RSMI_POWER_CAP_MAX] = sample->done[SOURCE_RSMI_POWER_CAP_MIN] = true;
    *max = status == RSMI_SUCCESS ? rsmi_of_unsigned(highest[0], 1e6) : rsmi_of_status(status);
    *min = status == RSMI_SUCCESS ? rsmi_of_unsigned(lowest[0], 1e6) : rsmi_of_status(status);
}

/* AMD's libraries name 15.3 µJ as their counter's step. It is the card's, 2^-16 J: the number was rounded up. */
struct reading rsmi_read_energy(void *symbol, uint32_t card)
{
    typedef int get_energy(uint32_t card, uint64_t *count, float *microjoules, uint64_t *time);
    uint64_t count[4] = {0}, time[4] = {0};
    float step[4] = {0};
    get_energy *function;
    double joules;
    int status;

    RSMI_CALL(symbol, function);
    status = function(card, count, step, time);
    if (status != RSMI_SUCCESS)
        return rsmi_of_status(status);
    if (count[0] == UINT64_MAX || !isfinite(step[0]) || step[0] <= 0)
        return rsmi_no_reading(DTK_UNSUPPORTED, 0);
    joules = step[0] > 15.29F && step[0] < 15.31F ? 0x1p-16 : (double)step[0] / 1e6;
    return rsmi_of_double((double)count[0] * joules);
}

struct reading rsmi_read_activity(void *symbol, uint32_t card)
{
    enum { MEDIA = 4 };
    typedef int get_activity(uint32_t card, uint32_t which, void *ret);
    uint16_t shares[512] = {0};
    get_activity *function;
    int status;

    RSMI_CALL(symbol, function);
    status = function(card, MEDIA, shares);
    if (status != RSMI_SUCCESS)
        return rsmi_of_status(status);
    return shares[2] == UINT16_MAX ? rsmi_no_reading(DTK_UNSUPPORTED, 0) : rsmi_of_unsigned(shares[2], 1);
}

/* The blocks that count errors, a bit each; all where the library cannot tell. */
static uint64_t enabled_blocks(const struct rsmi *rsmi, uint32_t card)
{
    typedef int get_enabled(uint32_t card, uint64_t *ret);
    uint64_t blocks[4] = {0};
    get_enabled *function;

    if (!rsmi->ecc_enabled)
        return UINT64_MAX;
    RSMI_CALL(rsmi->ecc_enabled, function);
    return function(card, blocks) == RSMI_SUCCESS ? blocks[0] : UINT64_MAX;
}

/* Sums over the blocks. One that the library does not support counts as none, as a file that is not there does; but the
 * memory, the copy engines and the compute units of a card that counts must answer: Hygon's older library calls what it
 * cannot parse unsupported, and a sum without them would be too low. */
void rsmi_read_ecc(struct sample *sample, const struct rsmi *rsmi, void *symbol)
{
    enum { UMC_SDMA_GFX = 7, BLOCKS = 19 };
    typedef int get_errors(uint32_t card, uint64_t block, void *ret);
    uint32_t card = (uint32_t)sample->device->rsmi;
    uint64_t sums[3] = {0}, enabled = enabled_blocks(rsmi, card), answered = 0;
    struct reading problem = rsmi_no_reading(DTK_UNSUPPORTED, 0);
    bool deferred = rsmi->about.abi == DTK_RSMI_HYGON_6_3, known;
    get_errors *function;

    RSMI_CALL(symbol, function);
    for (int bit = 0; bit < BLOCKS; bit++) {
        uint64_t block = UINT64_C(1) << bit;
        room room = {0};
        int status = enabled & block ? function(card, block, &room) : RSMI_NOT_SUPPORTED;

        if (status == RSMI_SUCCESS)
            answered |= block;
        else if (rsmi_of_status(status).status != DTK_UNSUPPORTED)
            problem = rsmi_of_status(status);
        for (int i = 0; status == RSMI_SUCCESS && i < 3; i++)
            sums[i] += room.u64[i];
    }
    known = problem.status == DTK_UNSUPPORTED && answered && !(enabled & UMC_SDMA_GFX & ~answered);
    for (int i = 0; i < 3; i++) {
        sample->done[SOURCE_RSMI_ECC_CORRECTABLE + i] = true;
        sample->reading[SOURCE_RSMI_ECC_CORRECTABLE + i] =
            known && (i < 2 || deferred) ? rsmi_of_unsigned(sums[i], 1) : problem;
    }
}

/* rsmi_retired_page_record_t, of which the card has many. */
struct retired_page {
    uint64_t address, size;
    uint32_t status;
};

void rsmi_read_pages(struct sample *sample, void *symbol)
{
    enum { RESERVED = 0, PENDING = 1, PAGES_MAX = 4096 };
    struct reading *retired = &sample->reading[SOURCE_RSMI_PAGES_RETIRED];
    struct reading *pending = &sample->reading[SOURCE_RSMI_PAGES_PENDING];
    typedef int get_pages(uint32_t card, uint32_t *count, void *records);
    uint32_t counts[3] = {0}, count[4] = {0}, card = (uint32_t)sample->device->rsmi;
    struct retired_page records[PAGES_MAX] = {0};
    get_pages *function;
    int status;

    RSMI_CALL(symbol, function);
    sample->done[SOURCE_RSMI_PAGES_RETIRED] = sample->done[SOURCE_RSMI_PAGES_PENDING] = true;
    status = function(card, count, NULL);
    if (status == RSMI_SUCCESS && count[0] > PAGES_MAX)
        status = RSMI_INSUFFICIENT_SIZE;
    if (status == RSMI_SUCCESS && count[0] > 0)
        status = function(card, count, records);
    if (status != RSMI_SUCCESS) {
        *retired = *pending = rsmi_of_status(status);
        return;
    }
    for (uint32_t i = 0; i < count[0] && i < PAGES_MAX; i++) {
        uint32_t kind = records[i].status;

        counts[kind == RESERVED || kind == PENDING ? kind : 2]++;
    }
    *retired = rsmi_of_unsigned(counts[RESERVED], 1);
    *pending = rsmi_of_unsigned(counts[PENDING], 1);
}

/* ---- Hygon's, which take their time ---- */

/* rsmi_utilization_counter_t begins {u32 type, u64 value}. The decoder's is percent, summed every millisecond. */
static int read_decoder_counter(struct rsmi *rsmi, void *symbol, uint32_t card, uint64_t *value)
{
    enum { DECODER_ACTIVITY = 2 };
    typedef int get_counters(uint32_t card, void *counters, uint32_t count, uint64_t *time);
    room room = {.u32 = {DECODER_ACTIVITY}};
    uint64_t time[4] = {0};
    uint64_t number = rsmi_begin(rsmi);
    get_counters *function;
    int status;

    RSMI_CALL(symbol, function);
    status = function(card, &room, 1, time);
    rsmi_end(rsmi, number);
    *value = room.u64[1];
    return status;
}

static double milliseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

struct reading rsmi_read_decoder(struct rsmi *rsmi, void *symbol, uint32_t card)
{
    const struct timespec window = {.tv_nsec = WINDOW_MS * 1000000L};
    double begin = milliseconds(), share;
    uint64_t before, after;
    int status;

    if (rsmi->about.abi != DTK_RSMI_HYGON_6_3)
        return rsmi_no_reading(DTK_UNSUPPORTED, 0); /* AMD's has no such counter */
    status = read_decoder_counter(rsmi, symbol, card, &before);
    if (status != RSMI_SUCCESS)
        return rsmi_of_status(status);
    nanosleep(&window, NULL);
    status = read_decoder_counter(rsmi, symbol, card, &after);
    if (status != RSMI_SUCCESS)
        return rsmi_of_status(status);
    if (after < before)
        return rsmi_no_reading(DTK_FAILED, DTK_DETAIL_IMPLAUSIBLE); /* the card was reset meanwhile */
    share = (double)(after - before) / (milliseconds() - begin);
    return rsmi_of_double(share < 100 ? share : 100);
}

void rsmi_read_memory_bandwidth(struct sample *sample, void *symbol)
{
    enum { READ_AND_WRITE = 3 };
    typedef int get_bandwidth(uint32_t card, uint32_t type, void *ret);
    room room = {0};
    get_bandwidth *function;
    int status;

    RSMI_CALL(symbol, function);
    status = function((uint32_t)sample->device->rsmi, READ_AND_WRITE, &room);
    for (int i = 0; i < 2; i++) {
        sample->done[SOURCE_RSMI_MEMORY_READ + i] = true;
        sample->reading[SOURCE_RSMI_MEMORY_READ + i] = status != RSMI_SUCCESS ? rsmi_of_status(status)
                                                       : isfinite(room.f64[i])
                                                           ? rsmi_of_double(room.f64[i] * 1e6)
                                                           : rsmi_no_reading(DTK_FAILED, DTK_DETAIL_IMPLAUSIBLE);
    }
}

struct reading rsmi_read_link_bandwidth(void *symbol, uint32_t card, int direction)
{
    enum { ALL_LINKS = 0xff, LINKS = 7 };
    typedef int get_bandwidth(uint32_t card, uint32_t link, uint8_t direction, int milliseconds, void *ret);
    room room = {0};
    get_bandwidth *function;
    double sum = 0;
    int status;

    RSMI_CALL(symbol, function);
    status = function(card, ALL_LINKS, (uint8_t)direction, LINK_WINDOW_MS, &room);
    if (status != RSMI_SUCCESS)
        return rsmi_of_status(status);
    for (int i = 0; i < LINKS; i++)
        sum += room.f64[i];
    return isfinite(sum) ? rsmi_of_double(sum * 1e6) : rsmi_no_reading(DTK_FAILED, DTK_DETAIL_IMPLAUSIBLE);
}
