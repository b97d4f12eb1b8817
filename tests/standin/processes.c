/* Processes: the lines "process PID DEVICE VRAM UNITS USE" of the control file, one for each device of a process. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "abi.h"
#include "control.h"

struct use {
    uint32_t pid, device, compute_units;
    uint64_t vram;
    float percent;
};

static bool next_use(unsigned index, struct use *ret)
{
    char line[LINE_SIZE];
    return control_line("process", index, line) && sscanf(line, "%u %u %" SCNu64 " %u %f", &ret->pid, &ret->device,
                                                          &ret->vram, &ret->compute_units, &ret->percent) == 5;
}

/* Only pid and pasid: so does the vendors' library. */
int rsmi_compute_process_info_get(struct process *processes, uint32_t *count)
{
    ENTER(NO_DEVICE, 0, count);
    uint32_t room = processes ? *count : 0, found = 0, last = 0;
    struct use use;
    for (unsigned i = 0; next_use(i, &use); i++) {
        if (found > 0 && use.pid == last) {
            continue;
        }
        if (found < room) {
            POISON(&processes[found]);
            processes[found].pid = use.pid;
            processes[found].pasid = 0x8000 + found;
            processes[found].vram = processes[found].sdma = processes[found].compute_units = 0;
        }
        last = use.pid;
        found++;
    }
    *count = processes && found > room ? room : found;
    return processes && found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

static int sum_of(uint32_t pid, uint32_t device, struct process *ret)
{
    struct process sum = {.pid = pid, .pasid = 0x8000};
    struct use use;
    bool found = false;
    for (unsigned i = 0; next_use(i, &use); i++) {
        if (use.pid == pid && (device == NO_DEVICE || use.device == device)) {
            sum.vram += use.vram;
            sum.compute_units += use.compute_units;
            found = true;
        }
    }
    if (!found) {
        return NOT_FOUND;
    }
    POISON(ret);
    ret->pid = sum.pid;
    ret->pasid = sum.pasid;
    ret->vram = sum.vram;
    ret->sdma = sum.sdma;
    ret->compute_units = sum.compute_units;
    return SUCCESS;
}

int rsmi_compute_process_info_by_pid_get(uint32_t pid, struct process *ret)
{
    ENTER(NO_DEVICE, pid, ret);
    return sum_of(pid, NO_DEVICE, ret);
}

int rsmi_compute_process_info_by_device_get(uint32_t pid, uint32_t device, struct process *ret)
{
    ENTER(device, pid, ret);
    return sum_of(pid, device, ret);
}

#if GENERATION == HYGON63
/* The memory is in bytes, whatever the vendor's header says. */
int rsmi_compute_process_info_by_pid_get_v2(uint32_t pid, struct process_v2 *ret)
{
    ENTER(NO_DEVICE, pid, ret);
    struct use use;
    int32_t found = 0;
    double total = 0;
    POISON(ret);
    ret->pid = pid;
    ret->vram = 0;
    for (unsigned i = 0; next_use(i, &use) && found < 16; i++) {
        if (use.pid == pid) {
            ret->vram += use.vram;
            ret->devices[found] = (int32_t)use.device;
            ret->rates[found] = use.percent;
            total += (double)control_value(R_memory_total, use.device);
            found++;
        }
    }
    ret->device_count = found;
    ret->vram_rate = found ? (float)(100.0 * (double)ret->vram / total) : 0;
    return found ? SUCCESS : NOT_FOUND;
}

int rsmi_dev_proc_usage_get(uint32_t pid, uint32_t device, float *ret)
{
    ENTER(device, pid, ret);
    struct use use;
    for (unsigned i = 0; next_use(i, &use); i++) {
        if (use.pid == pid && use.device == device) {
            *ret = use.percent;
            return SUCCESS;
        }
    }
    return NOT_FOUND;
}
#endif
