/* The cards of a machine, one a line.
 *
 *     cc list_devices.c $(dtk-smi --cflags) $(dtk-smi --libs) -o list_devices && ./list_devices [ROOT]
 */
#include <dtk.h>

#include <stdio.h>

static void print_value(const dtk_value *value, double scale, const char *unit)
{
    if (value->status != DTK_OK)
        printf("  %s", dtk_status_name(value->status));
    else if (value->type == DTK_TYPE_F64)
        printf("  %.1f %s", value->f64 * scale, unit);
    else
        printf("  %.1f %s", (double)value->u64 * scale, unit);
}

int main(int argc, char **argv)
{
    dtk_system *system;
    dtk_device *device;
    dtk_info info;
    dtk_value values[DTK_METRIC_COUNT];
    int error = dtk_open(argc > 1 ? argv[1] : NULL, 0, &system);

    if (error) {
        fprintf(stderr, "list_devices: %s\n", dtk_status_text(error));
        return 1;
    }
    for (int i = 0; i < dtk_device_count(system); i++) {
        if (dtk_device_get(system, i, &device) || dtk_device_info(device, &info, sizeof info))
            continue;
        if (dtk_device_sample(device, DTK_TIER_STATIC | DTK_TIER_FAST, values, DTK_METRIC_COUNT))
            continue;
        printf("%d  %s  %s", info.index, info.bdf, info.name);
        print_value(&values[DTK_METRIC_POWER_DRAW], 1, "W");
        print_value(&values[DTK_METRIC_MEMORY_TOTAL], 1.0 / (1 << 30), "GiB");
        putchar('\n');
    }
    dtk_close(system);
    return 0;
}
