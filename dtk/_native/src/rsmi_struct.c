/* Calls of librocm_smi64 that fill structs, whose layouts differ between its generations, or give several readings. */
#include <math.h>
#include <string.h>
#include <time.h>

#include "rsmi.h"

room rsmi_room(void)
{
    room ret;

    memset(&ret, 0xff, sizeof ret);
    return ret;
}

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
        ret.count = 0; /* nothing was written, or nonsense */
    return ret;
}

void rsmi_read_clock(struct sample *sample, const struct rsmi *rsmi, enum source current, enum source top)
{
    static const uint8_t clocks[SOURCE_COUNT] = {[SOURCE_RSMI_CLOCK_GFX] = 0,
                                                 [SOURCE_RSMI_CLOCK_FABRIC] = 1,
                                                 [SOURCE_RSMI_CLOCK_SOC] = 3,
                                                 [SOURCE_RSMI_CLOCK_MEMORY] = 4};
    typedef int get_frequencies(uint32_t card, uint32_t clock, void *ret);
    room room = rsmi_room();
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
    room room = rsmi_room();
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
    uint64_t power[4] = RSMI_UNWRITTEN;
    uint32_t type[4] = {0};
    get_power *function;
    int status;

    RSMI_CALL(symbol, function);
    status = function(card, power, type);
    if (status != RSMI_SUCCESS)
        return rsmi_of_status(status);
    return type[0] == UINT32_MAX || power[0] == UINT64_MAX || power[0] == UINT32_MAX
               ? rsmi_no_reading(DTK_UNSUPPORTED, 0)
               : rsmi_of_unsigned(power[0], 1e6);
}

static struct reading limit(uint64_t microwatts)
{
    return microwatts == UINT64_MAX ? rsmi_no_reading(DTK_UNSUPPORTED, 0) : rsmi_of_unsigned(microwatts, 1e6);
}

void rsmi_read_power_range(struct sample *sample, void *symbol)
{
    struct reading *max = &sample->reading[SOURCE_RSMI_POWER_CAP_MAX],
                   *min = &sample->reading[SOURCE_RSMI_POWER_CAP_MIN];
    typedef int get_range(uint32_t card, uint32_t sensor, uint64_t *max, uint64_t *min);
    uint64_t highest[4] = RSMI_UNWRITTEN, lowest[4] = RSMI_UNWRITTEN;
    get_range *function;
    int status;

    RSMI_CALL(symbol, function);
    status = function((uint32_t)sample->device->rsmi, 0, highest, lowest);
    sample->done[SOURCE_RSMI_POWER_CAP_MAX] = sample->done[SOURCE_RSMI_POWER_CAP_MIN] = true;
    *max = status != RSMI_SUCCESS ? rsmi_of_status(status) : limit(highest[0]);
    *min = status != RSMI_SUCCESS ? rsmi_of_status(status) : limit(lowest[0]);
}

/* AMD's libraries name 15.3 µJ as their counter's step. It is the card's, 2^-16 J: the number was rounded up. */
struct reading rsmi_read_energy(void *symbol, uint32_t card)
{
    typedef int get_energy(uint32_t card, uint64_t *count, float *microjoules, uint64_t *time);
    uint64_t count[4] = RSMI_UNWRITTEN, time[4] = {0};
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
    uint16_t shares[512];
    get_activity *function;
    int status;

    memset(shares, 0xff, sizeof shares);
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
    const uint64_t COUNT_MAX = UINT64_C(1) << 56; /* what is more was not written, or is none */
    typedef int get_errors(uint32_t card, uint64_t block, void *ret);
    uint32_t card = (uint32_t)sample->device->rsmi;
    uint64_t sums[3] = {0}, enabled = enabled_blocks(rsmi, card), answered = 0;
    struct reading problem = rsmi_no_reading(DTK_UNSUPPORTED, 0);
    bool deferred = rsmi->about.abi == DTK_RSMI_HYGON_6_3, known;
    get_errors *function;

    RSMI_CALL(symbol, function);
    for (int bit = 0; bit < BLOCKS; bit++) {
        uint64_t block = UINT64_C(1) << bit;
        room room = rsmi_room();
        int status = enabled & block ? function(card, block, &room) : RSMI_NOT_SUPPORTED;

        if (status == RSMI_SUCCESS && room.u64[0] < COUNT_MAX && room.u64[1] < COUNT_MAX &&
            (!deferred || room.u64[2] < COUNT_MAX))
            answered |= block;
        else if (status != RSMI_SUCCESS && rsmi_of_status(status).status != DTK_UNSUPPORTED)
            problem = rsmi_of_status(status);
        for (int i = 0; answered & block && i < (deferred ? 3 : 2); i++)
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
    enum { RESERVED = 0, PENDING = 1, UNRESERVABLE = 2, PAGES_MAX = 4096 };
    struct reading *retired = &sample->reading[SOURCE_RSMI_PAGES_RETIRED];
    struct reading *pending = &sample->reading[SOURCE_RSMI_PAGES_PENDING];
    typedef int get_pages(uint32_t card, uint32_t *count, void *records);
    uint32_t counts[3] = {0}, count[4] = RSMI_UNWRITTEN, card = (uint32_t)sample->device->rsmi;
    struct retired_page records[PAGES_MAX];
    get_pages *function;
    bool whole = true;
    int status;

    RSMI_CALL(symbol, function);
    memset(records, 0xff, sizeof records);
    sample->done[SOURCE_RSMI_PAGES_RETIRED] = sample->done[SOURCE_RSMI_PAGES_PENDING] = true;
    status = function(card, count, NULL);
    if (status == RSMI_SUCCESS && count[0] > PAGES_MAX)
        status = RSMI_INSUFFICIENT_SIZE;
    if (status == RSMI_SUCCESS && count[0] > 0) {
        count[0] = PAGES_MAX; /* there may be more by now */
        status = function(card, count, records);
    }
    for (uint32_t i = 0; status == RSMI_SUCCESS && i < count[0] && whole; i++) {
        whole = i < PAGES_MAX && records[i].status <= UNRESERVABLE;
        if (whole)
            counts[records[i].status]++;
    }
    if (status != RSMI_SUCCESS || !whole) {
        *retired = *pending = whole ? rsmi_of_status(status) : rsmi_no_reading(DTK_FAILED, DTK_DETAIL_IMPLAUSIBLE);
        return;
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
    room room = rsmi_room();
    uint64_t time[4] = {0};
    uint64_t number = rsmi_begin(rsmi);
    get_counters *function;
    int status;

    room.u32[0] = DECODER_ACTIVITY;
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
    if (before == UINT64_MAX || after == UINT64_MAX)
        return rsmi_no_reading(DTK_UNSUPPORTED, 0);
    share = (double)(after - before) / (milliseconds() - begin);
    if (after < before || share > 2 * 100) /* the card was reset meanwhile, or it counts something else */
        return rsmi_no_reading(DTK_FAILED, DTK_DETAIL_IMPLAUSIBLE);
    return rsmi_of_double(share < 100 ? share : 100);
}

void rsmi_read_memory_bandwidth(struct sample *sample, void *symbol)
{
    enum { READ_AND_WRITE = 3 };
    typedef int get_bandwidth(uint32_t card, uint32_t type, void *ret);
    room room = rsmi_room();
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
    room room = rsmi_room();
    get_bandwidth *function;
    double sum = 0;
    int status, links = 0;

    RSMI_CALL(symbol, function);
    status = function(card, ALL_LINKS, (uint8_t)direction, LINK_WINDOW_MS, &room);
    if (status != RSMI_SUCCESS)
        return rsmi_of_status(status);
    for (int i = 0; i < LINKS; i++) {
        if (isnan(room.f64[i]))
            continue; /* not written: the card has fewer */
        if (!isfinite(room.f64[i]) || room.f64[i] < 0)
            return rsmi_no_reading(DTK_FAILED, DTK_DETAIL_IMPLAUSIBLE);
        sum += room.f64[i];
        links++;
    }
    return links ? rsmi_of_double(sum * 1e6) : rsmi_no_reading(DTK_UNSUPPORTED, 0);
}
