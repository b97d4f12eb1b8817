/* Readings from the vendor's librocm_smi64. What it is asked for is in rsmi.def. */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "rsmi.h"

enum call {
    U32,
    U64,
    SENSOR,
    FLOAT,
    MEMORY,
    TEMPERATURE,
    CRITICAL,
    EMERGENCY,
    VOLTAGE,
    CLOCK,
    TOP_CLOCK,
    POWER,
    POWER_RANGE,
    ENERGY,
    ACTIVITY,
    FAN_SPEED,
    LINK,
    ECC,
    PAGES,
    FREE,
    WINDOW,
    DECODER,
    MEMORY_BANDWIDTH,
    LINK_BANDWIDTH
};

/* Temperature sensors. Hygon put four of its own between AMD's. */
enum sensor {
    SENSOR_EDGE,
    SENSOR_JUNCTION,
    SENSOR_MEMORY,
    SENSOR_HBM0,
    SENSOR_HBM1,
    SENSOR_HBM2,
    SENSOR_HBM3,
    SENSOR_VR_GFX,
    SENSOR_VR_SOC,
    SENSOR_VR_MEMORY,
    SENSOR_CORE,
    SENSOR_COUNT
};
static const int8_t amd_sensors[SENSOR_COUNT] = {0, 1, 2, 3, 4, 5, 6, -1, -1, -1, -1};
static const int8_t hygon_sensors[SENSOR_COUNT] = {0, 1, 2, 7, 8, 9, 10, 3, 4, 5, 11};

static const struct {
    enum call call;
    int argument;
    double divisor;
} calls[SOURCE_COUNT] = {
#define SOURCE(id, call, name, argument, divisor) [SOURCE_##id] = {call, argument, divisor},
#include "rsmi.def"
#undef SOURCE
};

enum { PATIENCE_MS = 250, PATIENCE_AGAIN_MS = 20 }; /* with a call that hangs, and with the next ones */

/* ---- One call at a time ---- */

uint64_t rsmi_begin(struct rsmi *rsmi)
{
    uint64_t waited_for = 0, number;
    struct timespec until = {0};

    pthread_mutex_lock(&rsmi->lock);
    while (rsmi->holder != 0) {
        if (rsmi->holder != waited_for) {
            waited_for = rsmi->holder;
            clock_gettime(CLOCK_MONOTONIC, &until);
            until.tv_nsec += (rsmi->hung ? PATIENCE_AGAIN_MS : PATIENCE_MS) * 1000000L;
            until.tv_sec += until.tv_nsec / 1000000000L;
            until.tv_nsec %= 1000000000L;
        }
        if (pthread_cond_timedwait(&rsmi->turn, &rsmi->lock, &until) == ETIMEDOUT && rsmi->holder == waited_for) {
            rsmi->hung = true;
            break;
        }
    }
    number = rsmi->holder = ++rsmi->calls;
    pthread_mutex_unlock(&rsmi->lock);
    return number;
}

void rsmi_end(struct rsmi *rsmi, uint64_t number)
{
    pthread_mutex_lock(&rsmi->lock);
    if (rsmi->holder == number)
        rsmi->holder = 0;
    pthread_cond_signal(&rsmi->turn);
    pthread_mutex_unlock(&rsmi->lock);
}

/* ---- Results ---- */

struct reading rsmi_no_reading(uint8_t status, int32_t detail)
{
    return (struct reading){.status = status, .detail = detail};
}

struct reading rsmi_of_double(double value)
{
    value += 0.0; /* -0.0 is 0 */
    return (struct reading){
        .status = DTK_OK, .f64 = value, .u64 = value > 0 && value < 1e18 ? (uint64_t)(value + 0.5) : 0};
}

struct reading rsmi_of_unsigned(uint64_t value, double divisor)
{
    return (struct reading){.status = DTK_OK, .f64 = (double)value / divisor, .u64 = value};
}

/* A NaN is what it was before the call: nothing was written. */
struct reading rsmi_of_float(float value)
{
    if (isnan(value))
        return rsmi_no_reading(DTK_UNSUPPORTED, 0);
    return isfinite(value) ? rsmi_of_double((double)value) : rsmi_no_reading(DTK_FAILED, DTK_DETAIL_IMPLAUSIBLE);
}

/* What a failed call means. The library makes its statuses of errors of the kernel: see status_of_error(). */
struct reading rsmi_of_status(int status)
{
    switch (status) {
    case RSMI_NOT_SUPPORTED:
    case RSMI_NOT_YET_IMPLEMENTED:
    case RSMI_NOT_FOUND:
    case RSMI_NO_DATA:
    case RSMI_INVALID_ARGS: /* of the kernel: the arguments themselves are right */
        return rsmi_no_reading(DTK_UNSUPPORTED, 0);
    case RSMI_PERMISSION:
        return rsmi_no_reading(DTK_DENIED, DTK_DETAIL_RSMI + status);
    default:
        return rsmi_no_reading(DTK_FAILED, DTK_DETAIL_RSMI + (status >= 0 && status < 0xffff ? status : 0xffff));
    }
}

/* ---- Calls of a plain shape ---- */

typedef int get_u32(uint32_t card, uint32_t *ret);
typedef int get_u64(uint32_t card, uint64_t *ret);
typedef int get_float(uint32_t card, float *ret);
typedef int get_of_u64(uint32_t card, uint32_t which, uint64_t *ret);
typedef int get_of_metric(uint32_t card, uint32_t which, uint32_t metric, int64_t *ret);
typedef int get_window(uint32_t card, uint32_t milliseconds, float *ret);

static struct reading read_u32(void *symbol, uint32_t card, double divisor)
{
    uint32_t value[4] = RSMI_UNWRITTEN;
    get_u32 *function;
    int status;

    RSMI_CALL(symbol, function);
    status = function(card, value);
    if (status != RSMI_SUCCESS)
        return rsmi_of_status(status);
    return value[0] == UINT32_MAX ? rsmi_no_reading(DTK_UNSUPPORTED, 0) : rsmi_of_unsigned(value[0], divisor);
}

/* All ones of 64 bits, or of the 32 that the kernel's number had. */
static bool is_unknown(uint64_t value)
{
    return value == UINT64_MAX || value == UINT32_MAX;
}

static struct reading read_u64(void *symbol, uint32_t card, double divisor)
{
    uint64_t value[4] = RSMI_UNWRITTEN;
    get_u64 *function;
    int status;

    RSMI_CALL(symbol, function);
    status = function(card, value);
    if (status != RSMI_SUCCESS)
        return rsmi_of_status(status);
    return is_unknown(value[0]) ? rsmi_no_reading(DTK_UNSUPPORTED, 0) : rsmi_of_unsigned(value[0], divisor);
}

/* Of a sensor or a kind of memory. Signed values (fans) that are negative are none. */
static struct reading read_of(void *symbol, uint32_t card, uint32_t which, double divisor)
{
    uint64_t value[4] = RSMI_UNWRITTEN;
    get_of_u64 *function;
    int status;

    RSMI_CALL(symbol, function);
    status = function(card, which, value);
    if (status != RSMI_SUCCESS)
        return rsmi_of_status(status);
    return value[0] > INT64_MAX || is_unknown(value[0]) ? rsmi_no_reading(DTK_UNSUPPORTED, 0)
                                                        : rsmi_of_unsigned(value[0], divisor);
}

static struct reading read_metric(void *symbol, uint32_t card, uint32_t which, uint32_t metric, double divisor)
{
    int64_t value[4] = RSMI_UNWRITTEN;
    get_of_metric *function;
    int status;

    RSMI_CALL(symbol, function);
    status = function(card, which, metric, value);
    if (status != RSMI_SUCCESS)
        return rsmi_of_status(status);
    return value[0] == -1 ? rsmi_no_reading(DTK_UNSUPPORTED, 0) : rsmi_of_double((double)value[0] / divisor);
}

static struct reading read_float(void *symbol, uint32_t card)
{
    float value[4] = {NAN, NAN, NAN, NAN};
    get_float *function;
    int status;

    RSMI_CALL(symbol, function);
    status = function(card, value);
    return status == RSMI_SUCCESS ? rsmi_of_float(value[0]) : rsmi_of_status(status);
}

static struct reading read_window(void *symbol, uint32_t card)
{
    float value[4] = {NAN, NAN, NAN, NAN};
    get_window *function;
    int status;

    RSMI_CALL(symbol, function);
    status = function(card, WINDOW_MS, value);
    return status == RSMI_SUCCESS ? rsmi_of_float(value[0]) : rsmi_of_status(status);
}

static struct reading read_temperature(const struct rsmi *rsmi, void *symbol, uint32_t card, int sensor, int metric)
{
    bool hygon = rsmi->about.abi == DTK_RSMI_HYGON_6_2 || rsmi->about.abi == DTK_RSMI_HYGON_6_3;
    int number = (hygon ? hygon_sensors : amd_sensors)[sensor];

    /* The older generation has no number for it, and what it would do with one is not known. */
    if (number < 0 || (sensor == SENSOR_CORE && rsmi->about.abi != DTK_RSMI_HYGON_6_3))
        return rsmi_no_reading(DTK_UNSUPPORTED, 0);
    return read_metric(symbol, card, (uint32_t)number, (uint32_t)metric, 1e3);
}

static struct reading read_fan_speed(const struct rsmi *rsmi, void *symbol, uint32_t card)
{
    struct reading speed = read_of(symbol, card, 0, 1), most = rsmi_no_reading(DTK_UNSUPPORTED, 0);

    if (rsmi->fan_speed_max)
        most = read_of(rsmi->fan_speed_max, card, 0, 1);
    if (speed.status != DTK_OK)
        return speed;
    return rsmi_of_double(speed.f64 * 100 / (most.status == DTK_OK && most.f64 > 0 ? most.f64 : 255));
}

static struct reading read_free(struct sample *sample)
{
    const struct reading *total = sample_read(sample, SOURCE_RSMI_VRAM_TOTAL);
    const struct reading *used = sample_read(sample, SOURCE_RSMI_VRAM_USED);

    if (total->status != DTK_OK || used->status != DTK_OK)
        return total->status != DTK_OK ? *total : *used;
    if (used->u64 > total->u64)
        return rsmi_no_reading(DTK_FAILED, DTK_DETAIL_IMPLAUSIBLE);
    return rsmi_of_unsigned(total->u64 - used->u64, 1);
}

/* ---- The backend ---- */

static void call(struct sample *sample, struct rsmi *rsmi, enum source source)
{
    struct reading *ret = &sample->reading[source];
    void *symbol = rsmi->symbol[source];
    uint32_t card = (uint32_t)sample->device->rsmi;
    int argument = calls[source].argument;
    double divisor = calls[source].divisor;

    switch (calls[source].call) {
    case U32:
        *ret = read_u32(symbol, card, divisor);
        break;
    case U64:
        *ret = read_u64(symbol, card, divisor);
        break;
    case SENSOR:
        *ret = read_of(symbol, card, 0, divisor);
        break;
    case FLOAT:
        *ret = read_float(symbol, card);
        break;
    case MEMORY:
        *ret = read_of(symbol, card, (uint32_t)argument, divisor);
        break;
    case TEMPERATURE:
        *ret = read_temperature(rsmi, symbol, card, argument, 0);
        break;
    case CRITICAL:
        *ret = read_temperature(rsmi, symbol, card, argument, 5);
        break;
    case EMERGENCY:
        *ret = read_temperature(rsmi, symbol, card, argument, 7);
        break;
    case VOLTAGE:
        *ret = read_metric(symbol, card, 0, 0, divisor);
        break;
    case CLOCK:
        rsmi_read_clock(sample, rsmi, source, (enum source)argument);
        break;
    case TOP_CLOCK:
        rsmi_read_clock(sample, rsmi, (enum source)argument, source);
        break;
    case POWER:
        *ret = rsmi_read_power(symbol, card);
        break;
    case POWER_RANGE:
        rsmi_read_power_range(sample, symbol);
        break;
    case ENERGY:
        *ret = rsmi_read_energy(symbol, card);
        break;
    case ACTIVITY:
        *ret = rsmi_read_activity(symbol, card);
        break;
    case FAN_SPEED:
        *ret = read_fan_speed(rsmi, symbol, card);
        break;
    case LINK:
        rsmi_read_link(sample, rsmi, symbol);
        break;
    case ECC:
        rsmi_read_ecc(sample, rsmi, symbol);
        break;
    case PAGES:
        rsmi_read_pages(sample, symbol);
        break;
    case FREE:
        *ret = read_free(sample);
        break;
    case WINDOW:
        *ret = read_window(symbol, card);
        break;
    case DECODER:
        *ret = rsmi_read_decoder(rsmi, symbol, card);
        break;
    case MEMORY_BANDWIDTH:
        rsmi_read_memory_bandwidth(sample, symbol);
        break;
    case LINK_BANDWIDTH:
        *ret = rsmi_read_link_bandwidth(symbol, card, argument);
        break;
    }
}

void rsmi_read(struct sample *sample, enum source source)
{
    struct rsmi *rsmi = sample->rsmi;
    struct reading *ret = &sample->reading[source];
    enum call kind = calls[source].call;

    if (!rsmi || rsmi->about.status != DTK_OK) {
        *ret = rsmi_no_reading(DTK_FAILED, DTK_DETAIL_LIBRARY_MISSING);
    } else if (sample->device->rsmi < 0) {
        *ret = rsmi_no_reading(DTK_FAILED, DTK_DETAIL_LIBRARY_NO_CARD);
    } else if (!rsmi->symbol[source]) {
        *ret = rsmi_no_reading(DTK_UNSUPPORTED, 0);
    } else if (kind == WINDOW || kind == DECODER || kind == LINK_BANDWIDTH || kind == FREE) {
        call(sample, rsmi, source); /* most of it is waiting, or other readings */
    } else {
        uint64_t number = rsmi_begin(rsmi);

        call(sample, rsmi, source);
        rsmi_end(rsmi, number);
    }
}
