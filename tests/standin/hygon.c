/* What only Hygon's library of driver 6.3 has. */
#include <string.h>

#include "abi.h"
#include "control.h"

#if GENERATION == HYGON63
enum { ALL_LINKS = 0xff };

int rsmi_hy_version_get(struct hygon_version *ret)
{
    int status = control_enter(__func__, NO_DEVICE, 0);
    if (status == SUCCESS) {
        *ret = (struct hygon_version){.major = 0, .minor = 10};
    }
    return status;
}

int rsmi_driver_status(uint32_t *ret)
{
    int status = control_enter(__func__, NO_DEVICE, 0);
    if (status == SUCCESS) {
        *ret = (uint32_t)control_value(R_driver_state, 0);
    }
    return status;
}

/* Utilization over a window, which the call waits for. */
#define WINDOW(function, reading)                                                                                      \
    int function(uint32_t device, uint32_t duration, float *ret)                                                       \
    {                                                                                                                  \
        ENTER(device, duration, ret);                                                                                  \
        wait_milliseconds(duration);                                                                                   \
        *ret = (float)VALUE(reading) / 1000;                                                                           \
        return SUCCESS;                                                                                                \
    }

WINDOW(rsmi_dev_hcu_util_get, hcu_util)
WINDOW(rsmi_dev_cu_util_get, cu_util)
WINDOW(rsmi_dev_wave_util_get, wave_util)

int rsmi_dev_cu_usage_get(uint32_t device, float *ret)
{
    ENTER(device, 0, ret);
    *ret = (float)VALUE(cu_usage) / 1000;
    return SUCCESS;
}

int rsmi_dev_se_util_get(uint32_t device, struct shader_engines *ret)
{
    ENTER(device, 0, ret);
    for (int i = 0; i < 8; i++) {
        ret->percent[i] = (float)VALUE(se_util) / 1000 + (float)i;
    }
    return SUCCESS;
}

int rsmi_dev_cu_num_get(uint32_t device, int *ret)
{
    ENTER(device, 0, ret);
    *ret = (int)VALUE(cu_num);
    return SUCCESS;
}

int rsmi_dev_df_bandwidth_get(uint32_t device, uint32_t type, struct df_bandwidth *ret)
{
    ENTER(device, type, ret);
    *ret = (struct df_bandwidth){
        .read = type == 0 || type == 3 ? (double)VALUE(df_read) : 0,
        .write = type == 1 || type == 3 ? (double)VALUE(df_write) : 0,
        .read_write = type == 2 || type == 3 ? (double)VALUE(df_read_write) : 0,
    };
    return type > 3 ? INVALID_ARGS : SUCCESS;
}

int rsmi_dev_xhcl_bandwidth_get(uint32_t device, uint32_t link, uint8_t direction, int delay,
                                struct xhcl_bandwidth *ret)
{
    ENTER(device, link, ret);
    if (direction > 1 || (link != ALL_LINKS && link >= VALUE(xhcl_links))) {
        return INVALID_ARGS;
    }
    wait_milliseconds(delay);
    for (int i = 0; i < 7; i++) {
        bool asked = i < VALUE(xhcl_links) && (link == ALL_LINKS || link == (uint32_t)i);
        ret->links[i] = asked ? (double)(direction ? VALUE(xhcl_sent) : VALUE(xhcl_received)) + 10 * i : 0;
    }
    return SUCCESS;
}

int rsmi_dev_xhcl_link_number_get(uint32_t device, uint32_t *ret)
{
    ENTER(device, 0, ret);
    *ret = (uint32_t)VALUE(xhcl_links);
    return SUCCESS;
}

int rsmi_dev_xhcl_link_state_get(uint32_t device, uint32_t link, uint32_t *ret)
{
    ENTER(device, link, ret);
    *ret = link < VALUE(xhcl_links_up);
    return link < VALUE(xhcl_links) ? SUCCESS : INVALID_ARGS;
}

/* Link n leads to the n-th next device. */
int rsmi_dev_xhcl_link_remote_bdfid_get(uint32_t device, uint32_t link, uint64_t *ret)
{
    ENTER(device, link, ret);
    return link < VALUE(xhcl_links) && control_bdf((device + link + 1) % control_devices(), ret) ? SUCCESS
                                                                                                 : INVALID_ARGS;
}

int rsmi_dev_xhcl_link_remote_dev_type_get(uint32_t device, uint32_t link, uint32_t *ret)
{
    ENTER(device, link, ret);
    *ret = 0;
    return link < VALUE(xhcl_links) ? SUCCESS : INVALID_ARGS;
}
#endif
