/* librocm_smi64 for tests, in the ABI of one generation (-DGENERATION=, see abi.h). It reads no card: what it answers is
 * in readings.def, and what it does besides in the control file. It writes every byte of a struct of its generation,
 * padding too, so that a buffer that is too small does not go unnoticed. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "abi.h"
#include "control.h"

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* ---- the library ---- */

int rsmi_init(uint64_t flags)
{
    int status = control_enter(__func__, NO_DEVICE, flags);
    if (status == SUCCESS) {
        control_users++;
    }
    return status;
}

int rsmi_shut_down(void)
{
    int status = control_enter(__func__, NO_DEVICE, 0);
    if (status) {
        return status;
    }
    if (control_users == 0) {
        return INIT_ERROR;
    }
    control_users--;
    return SUCCESS;
}

int rsmi_num_monitor_devices(uint32_t *ret)
{
    ENTER(NO_DEVICE, 0, ret);
    *ret = control_devices();
    return SUCCESS;
}

int rsmi_version_get(struct version *ret)
{
    static const struct {
        uint32_t major, minor, patch;
    } versions[] = {
        [AMD5] = {5, 0, 0}, [AMD6] = {6, 0, 0}, [AMD7] = {7, 8, 0}, [HYGON62] = {2, 8, 0}, [HYGON63] = {7, 6, 0}};
    char line[LINE_SIZE];
    int status = control_enter(__func__, NO_DEVICE, 0);
    if (status) {
        return status;
    }
    POISON(ret);
    ret->major = versions[GENERATION].major;
    ret->minor = versions[GENERATION].minor;
    ret->patch = versions[GENERATION].patch;
    ret->build = "stand-in";
    if (control_line("version", 0, line)) {
        sscanf(line, "%u.%u.%u", &ret->major, &ret->minor, &ret->patch);
    }
    return SUCCESS;
}

int rsmi_status_string(int status, const char **ret)
{
    static _Thread_local char text[32];
    snprintf(text, sizeof text, "stand-in's status %d", status);
    *ret = text;
    return SUCCESS;
}

/* ---- readings that are one number ---- */

#define NUMBER(function, type, reading)                                                                                \
    int function(uint32_t device, type *ret)                                                                           \
    {                                                                                                                  \
        ENTER(device, 0, ret);                                                                                         \
        *ret = (type)VALUE(reading);                                                                                   \
        return SUCCESS;                                                                                                \
    }

NUMBER(rsmi_dev_busy_percent_get, uint32_t, utilization_gpu)
NUMBER(rsmi_dev_memory_busy_percent_get, uint32_t, utilization_memory)
NUMBER(rsmi_dev_power_cap_default_get, uint64_t, power_limit_default)
NUMBER(rsmi_dev_pci_replay_counter_get, uint64_t, pcie_replay_count)
NUMBER(rsmi_dev_ecc_enabled_get, uint64_t, ecc_enabled)
NUMBER(rsmi_dev_unique_id_get, uint64_t, unique_id)

/* The same of a sensor; there is but the first. */
#define SENSOR(function, type, reading)                                                                                \
    int function(uint32_t device, uint32_t sensor, type *ret)                                                          \
    {                                                                                                                  \
        ENTER(device, sensor, ret);                                                                                    \
        if (sensor != 0) {                                                                                             \
            return NOT_SUPPORTED;                                                                                      \
        }                                                                                                              \
        *ret = (type)VALUE(reading);                                                                                   \
        return SUCCESS;                                                                                                \
    }

SENSOR(rsmi_dev_power_ave_get, uint64_t, power_average)
SENSOR(rsmi_dev_power_cap_get, uint64_t, power_limit)
SENSOR(rsmi_dev_fan_speed_get, int64_t, fan_speed)
SENSOR(rsmi_dev_fan_rpms_get, int64_t, fan_rpm)

int rsmi_dev_fan_speed_max_get(uint32_t device, uint32_t sensor, uint64_t *ret)
{
    ENTER(device, sensor, ret);
    *ret = 255;
    return SUCCESS;
}

int rsmi_dev_power_cap_range_get(uint32_t device, uint32_t sensor, uint64_t *max, uint64_t *min)
{
    ENTER(device, sensor, min);
    *max = (uint64_t)VALUE(power_limit_max);
    *min = (uint64_t)VALUE(power_limit_min);
    return SUCCESS;
}

int rsmi_dev_energy_count_get(uint32_t device, uint64_t *count, float *resolution, uint64_t *timestamp)
{
    ENTER(device, 0, count);
    *count = (uint64_t)VALUE(energy_count);
    *resolution = (float)VALUE(energy_resolution) / 1000;
    *timestamp = now();
    return SUCCESS;
}

#if SINCE_AMD6
NUMBER(rsmi_dev_current_socket_power_get, uint64_t, power_socket)

int rsmi_dev_power_get(uint32_t device, uint64_t *ret, uint32_t *type)
{
    ENTER(device, 0, ret);
    *ret = (uint64_t)VALUE(power_current);
    *type = (uint32_t)VALUE(power_type);
    return SUCCESS;
}

int rsmi_dev_activity_metric_get(uint32_t device, uint32_t types, struct activity *ret)
{
    ENTER(device, types, ret);
    POISON(ret);
    ret->gfx = types & 1 ? (uint16_t)VALUE(activity_gfx) : UINT16_MAX;
    ret->umc = types & 2 ? (uint16_t)VALUE(activity_umc) : UINT16_MAX;
    ret->mm = types & 4 ? (uint16_t)VALUE(activity_mm) : UINT16_MAX;
    return SUCCESS;
}
#endif

/* ---- readings by kind ---- */

int rsmi_dev_memory_total_get(uint32_t device, uint32_t kind, uint64_t *ret)
{
    static const enum reading totals[] = {R_memory_total, R_memory_visible_total, R_memory_gtt_total};
    ENTER(device, kind, ret);
    if (kind > 2) {
        return INVALID_ARGS;
    }
    *ret = (uint64_t)control_value(totals[kind], device);
    return SUCCESS;
}

int rsmi_dev_memory_usage_get(uint32_t device, uint32_t kind, uint64_t *ret)
{
    static const enum reading used[] = {R_memory_used, R_memory_visible_used, R_memory_gtt_used};
    ENTER(device, kind, ret);
    if (kind > 2) {
        return INVALID_ARGS;
    }
    *ret = (uint64_t)control_value(used[kind], device);
    return SUCCESS;
}

int rsmi_dev_temp_metric_get(uint32_t device, uint32_t sensor, uint32_t metric, int64_t *ret)
{
    static const enum reading sensors[] = {
        R_temperature_edge,   R_temperature_junction, R_temperature_memory,
#if IS_HYGON
        R_temperature_vr_gfx, R_temperature_vr_soc,   R_temperature_vr_mem0, R_temperature_vr_mem1,
#endif
        R_temperature_hbm0,   R_temperature_hbm1,     R_temperature_hbm2,    R_temperature_hbm3,
#if GENERATION == HYGON63
        R_temperature_core,
#endif
    };
    static const enum reading criticals[] = {R_temperature_edge_critical, R_temperature_junction_critical,
                                             R_temperature_memory_critical};
    static const enum reading emergencies[] = {R_temperature_edge_emergency, R_temperature_junction_emergency,
                                               R_temperature_memory_emergency};
    ENTER(device, sensor, ret);
    if (metric == 0 && sensor < sizeof sensors / sizeof *sensors) {
        *ret = control_value(sensors[sensor], device);
    } else if (metric == 5 && sensor < 3) {
        *ret = control_value(criticals[sensor], device);
    } else if (metric == 7 && sensor < 3) {
        *ret = control_value(emergencies[sensor], device);
    } else {
        return NOT_SUPPORTED;
    }
    return SUCCESS;
}

int rsmi_dev_volt_metric_get(uint32_t device, uint32_t sensor, uint32_t metric, int64_t *ret)
{
    ENTER(device, sensor, ret);
    if (sensor != 0 || metric != 0) {
        return NOT_SUPPORTED;
    }
    *ret = VALUE(voltage_gfx);
    return SUCCESS;
}

static void fill_levels(struct frequencies *ret, uint32_t device, uint64_t low, int64_t current, int64_t top)
{
    POISON(ret);
#if SINCE_AMD6
    ret->has_deep_sleep = VALUE(deep_sleep) != 0;
#endif
    ret->count = (uint32_t)VALUE(levels);
    ret->current = (uint32_t)VALUE(level);
    ret->hertz[0] = low;
    ret->hertz[1] = (uint64_t)current;
    ret->hertz[2] = (uint64_t)top;
}

int rsmi_dev_gpu_clk_freq_get(uint32_t device, uint32_t kind, struct frequencies *ret)
{
    static const enum reading clocks[][2] = {
        [0] = {R_clock_gfx, R_clock_gfx_max},
        [1] = {R_clock_fabric, R_clock_fabric_max},
        [3] = {R_clock_soc, R_clock_soc_max},
        [4] = {R_clock_memory, R_clock_memory_max},
    };
    ENTER(device, kind, ret);
    if (kind > 4 || kind == 2) {
        return NOT_SUPPORTED;
    }
    int64_t current = control_value(clocks[kind][0], device);
    fill_levels(ret, device, (uint64_t)current / 2, current, control_value(clocks[kind][1], device));
    return SUCCESS;
}

int rsmi_dev_pci_bandwidth_get(uint32_t device, struct pcie_bandwidth *ret)
{
    ENTER(device, 0, ret);
    POISON(ret);
    fill_levels(&ret->rates, device, 2500000000, VALUE(pcie_link_speed), VALUE(pcie_link_speed_max));
    ret->lanes[0] = 1;
    ret->lanes[1] = (uint32_t)VALUE(pcie_link_width);
    ret->lanes[2] = (uint32_t)VALUE(pcie_link_width_max);
    return SUCCESS;
}

/* Takes a second, as the real one does. */
int rsmi_dev_pci_throughput_get(uint32_t device, uint64_t *sent, uint64_t *received, uint64_t *packet)
{
    ENTER(device, 0, sent);
    wait_milliseconds(1000);
    *sent = (uint64_t)VALUE(pcie_sent);
    *received = (uint64_t)VALUE(pcie_received);
    *packet = (uint64_t)VALUE(pcie_packet);
    return SUCCESS;
}

int rsmi_utilization_count_get(uint32_t device, struct utilization_counter *counters, uint32_t count,
                               uint64_t *timestamp)
{
    ENTER(device, count, counters);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t type = counters[i].type;
        uint32_t kind = GENERATION == HYGON63 ? type % 100 : type;
        if (kind > (GENERATION == HYGON63 ? 2 : 1)) {
            return INVALID_ARGS;
        }
        POISON(&counters[i]);
        counters[i].type = type;
        counters[i].value = (uint64_t)control_value(R_counter_gfx + kind, device);
#if GENERATION == HYGON63
        counters[i].fine_values[0] = counters[i].value;
        counters[i].fine_count = 1;
#endif
    }
    *timestamp = now();
    return SUCCESS;
}

/* ---- errors and retired pages ---- */

int rsmi_dev_ecc_count_get(uint32_t device, uint64_t block, struct error_count *ret)
{
    ENTER(device, block, ret);
    if (block != 1 && block != 2 && block != 4) {
        return NOT_SUPPORTED;
    }
    enum reading first = R_umc_correctable + 3 * (block / 2);
    POISON(ret);
    ret->correctable = (uint64_t)control_value(first, device);
    ret->uncorrectable = (uint64_t)control_value(first + 1, device);
#if GENERATION == HYGON63
    ret->deferred = (uint64_t)control_value(first + 2, device);
#endif
    return SUCCESS;
}

int rsmi_dev_memory_reserved_pages_get(uint32_t device, uint32_t *count, struct page *pages)
{
    ENTER(device, 0, count);
    uint32_t retired = (uint32_t)VALUE(retired_pages), all = retired + (uint32_t)VALUE(pending_pages);
    uint32_t room = *count;
    *count = pages && room < all ? room : all;
    for (uint32_t i = 0; pages && i < *count; i++) {
        POISON(&pages[i]);
        pages[i].address = 0x1000 * (uint64_t)i;
        pages[i].size = 0x1000;
        pages[i].status = i < retired ? 0 : 1;
    }
    return pages && room < all ? INSUFFICIENT_SIZE : SUCCESS;
}

/* ---- which card it is ---- */

int rsmi_dev_pci_id_get(uint32_t device, uint64_t *ret)
{
    ENTER(device, 0, ret);
    return control_bdf(device, ret) ? SUCCESS : NOT_FOUND;
}

static int copy_name(uint32_t device, char *ret, size_t size)
{
    char name[32];
    int length = snprintf(name, sizeof name, "Stand-in %u", device);
    memset(ret, 0xA5, size);
    if (size > 0) {
        snprintf(ret, size, "%s", name);
    }
    return (size_t)length < size ? SUCCESS : INSUFFICIENT_SIZE;
}

int rsmi_dev_name_get(uint32_t device, char *ret, size_t size)
{
    ENTER(device, size, ret);
    return copy_name(device, ret, size);
}

#if GENERATION == AMD7
int rsmi_dev_market_name_get(uint32_t device, char *ret, uint32_t size)
{
    ENTER(device, size, ret);
    return copy_name(device, ret, size);
}

int rsmi_dev_device_identifiers_get(uint32_t device, struct identifiers *ret)
{
    ENTER(device, 0, ret);
    POISON(ret);
    return SUCCESS;
}
#endif

#if GENERATION == AMD5 || GENERATION == HYGON62
int rsmi_dev_nps_mode_get(uint32_t device, char *ret, uint32_t size)
{
    ENTER(device, size, ret);
    memset(ret, 0xA5, size);
    snprintf(ret, size, "NPS1");
    return size > 4 ? SUCCESS : INSUFFICIENT_SIZE;
}
#endif
