/* The structs of dtk.h as compiled programs know them.
 *
 *  +-----------------------------------------------------------------------------------------------------------------+
 *  | A line of output here means that a struct of the public header changed, and programs compiled before will meet  |
 *  | it. Look at what the line says:                                                                                 |
 *  |                                                                                                                 |
 *  |  - A size grew and no offset changed: fields were added at the end, which is allowed. Raise the minor number of |
 *  |    DTK_API_VERSION, correct the size below, and add a FIELD line for the new last field.                        |
 *  |  - An offset changed, or dtk_value has another size (callers hold arrays of it): old programs read garbage.     |
 *  |    Put the field at the end instead. If it must be: raise the major number of DTK_API_VERSION, the SOVERSION in |
 *  |    CMakeLists.txt, the names libdtk.so.0 and DTK_0 in libdtk.map, and then correct the numbers below.           |
 *  +-----------------------------------------------------------------------------------------------------------------+
 */
#include <dtk.h>

#include <stdio.h>

static int changed;

static void check(const char *what, size_t is, size_t was)
{
    if (is != was) {
        printf("%s is %zu, was %zu: see the top of tests/native/abi.c\n", what, is, was);
        changed = 1;
    }
}

#define SIZE(type, was) check("sizeof(" #type ")", sizeof(type), was)
#define FIELD(type, field, was) check("offsetof(" #type ", " #field ")", offsetof(type, field), was)

int main(void)
{
    SIZE(dtk_value, 16);
    FIELD(dtk_value, f64, 0);
    FIELD(dtk_value, i64, 0);
    FIELD(dtk_value, u64, 0);
    FIELD(dtk_value, type, 8);
    FIELD(dtk_value, status, 9);
    FIELD(dtk_value, source, 10);
    FIELD(dtk_value, reserved, 11);
    FIELD(dtk_value, detail, 12);

    SIZE(dtk_metric_info, 72);
    FIELD(dtk_metric_info, number, 0);
    FIELD(dtk_metric_info, type, 4);
    FIELD(dtk_metric_info, kind, 8);
    FIELD(dtk_metric_info, tier, 12);
    FIELD(dtk_metric_info, name, 16);
    FIELD(dtk_metric_info, unit, 24);
    FIELD(dtk_metric_info, window, 32);
    FIELD(dtk_metric_info, family, 40);
    FIELD(dtk_metric_info, label, 48);
    FIELD(dtk_metric_info, label_value, 56);
    FIELD(dtk_metric_info, help, 64);

    SIZE(dtk_system_info, 584);
    FIELD(dtk_system_info, simulated, 0);
    FIELD(dtk_system_info, live, 4);
    FIELD(dtk_system_info, hostname, 8);
    FIELD(dtk_system_info, driver, 264);
    FIELD(dtk_system_info, version, 328);

    SIZE(dtk_probe, 344);
    FIELD(dtk_probe, pci_cards, 0);
    FIELD(dtk_probe, pci_unbound, 4);
    FIELD(dtk_probe, pci_displays, 8);
    FIELD(dtk_probe, drm, 12);
    FIELD(dtk_probe, kfd, 16);
    FIELD(dtk_probe, dev_kfd, 20);
    FIELD(dtk_probe, dev_kfd_access, 24);
    FIELD(dtk_probe, dev_render, 28);
    FIELD(dtk_probe, dev_render_access, 32);
    FIELD(dtk_probe, modules, 36);
    FIELD(dtk_probe, first_unbound, 100);
    FIELD(dtk_probe, first_display, 124);
    FIELD(dtk_probe, render_group, 148);
    FIELD(dtk_probe, module_states, 180);
    FIELD(dtk_probe, kfd_nodes, 244);
    FIELD(dtk_probe, kfd_denied, 248);
    FIELD(dtk_probe, numa_nodes, 252);
    FIELD(dtk_probe, pci_denied, 256);
    FIELD(dtk_probe, kfd_list_denied, 260);
    FIELD(dtk_probe, kfd_group, 264);
    FIELD(dtk_probe, kfd_gid, 296);
    FIELD(dtk_probe, kfd_mode, 300);
    FIELD(dtk_probe, dri_group, 304);
    FIELD(dtk_probe, dri_gid, 336);
    FIELD(dtk_probe, dri_mode, 340);

    SIZE(dtk_pci_card, 52);
    FIELD(dtk_pci_card, bdf, 0);
    FIELD(dtk_pci_card, driver, 24);
    FIELD(dtk_pci_card, vendor_id, 40);
    FIELD(dtk_pci_card, device_id, 44);
    FIELD(dtk_pci_card, pci_class, 48);

    SIZE(dtk_cost, 64);
    FIELD(dtk_cost, name, 0);
    FIELD(dtk_cost, status, 48);
    FIELD(dtk_cost, reserved, 52);
    FIELD(dtk_cost, nanoseconds, 56);

    SIZE(dtk_info, 488);
    FIELD(dtk_info, index, 0);
    FIELD(dtk_info, card, 4);
    FIELD(dtk_info, partition, 8);
    FIELD(dtk_info, numa_node, 12);
    FIELD(dtk_info, drm_card, 16);
    FIELD(dtk_info, drm_render, 20);
    FIELD(dtk_info, kfd_node, 24);
    FIELD(dtk_info, hip_index, 28);
    FIELD(dtk_info, gpu_id, 32);
    FIELD(dtk_info, vendor_id, 40);
    FIELD(dtk_info, device_id, 44);
    FIELD(dtk_info, subsystem_vendor_id, 48);
    FIELD(dtk_info, subsystem_device_id, 52);
    FIELD(dtk_info, revision_id, 56);
    FIELD(dtk_info, compute_units, 60);
    FIELD(dtk_info, unique_id, 64);
    FIELD(dtk_info, hive_id, 72);
    FIELD(dtk_info, uuid, 80);
    FIELD(dtk_info, bdf, 112);
    FIELD(dtk_info, driver, 136);
    FIELD(dtk_info, name, 152);
    FIELD(dtk_info, serial, 248);
    FIELD(dtk_info, arch, 312);
    FIELD(dtk_info, vbios, 328);
    FIELD(dtk_info, performance_level, 392);
    FIELD(dtk_info, compute_partition, 424);
    FIELD(dtk_info, memory_partition, 440);
    FIELD(dtk_info, memory_vendor, 456);

    SIZE(dtk_ecc_block, 72);
    FIELD(dtk_ecc_block, name, 0);
    FIELD(dtk_ecc_block, correctable, 24);
    FIELD(dtk_ecc_block, uncorrectable, 40);
    FIELD(dtk_ecc_block, deferred, 56);

    SIZE(dtk_bank_count, 72);
    FIELD(dtk_bank_count, bank, 0);
    FIELD(dtk_bank_count, name, 24);
    FIELD(dtk_bank_count, count, 64);

    SIZE(dtk_firmware, 64);
    FIELD(dtk_firmware, name, 0);
    FIELD(dtk_firmware, version, 24);

    SIZE(dtk_process, 624);
    FIELD(dtk_process, pid, 0);
    FIELD(dtk_process, parent, 4);
    FIELD(dtk_process, ns_pid, 8);
    FIELD(dtk_process, host_pid, 12);
    FIELD(dtk_process, uid, 16);
    FIELD(dtk_process, start_ticks, 24);
    FIELD(dtk_process, start_time, 32);
    FIELD(dtk_process, status, 40);
    FIELD(dtk_process, state, 41);
    FIELD(dtk_process, command_cut, 42);
    FIELD(dtk_process, reserved, 43);
    FIELD(dtk_process, name, 48);
    FIELD(dtk_process, user, 112);
    FIELD(dtk_process, command, 144);
    FIELD(dtk_process, container, 400);
    FIELD(dtk_process, runtime, 472);
    FIELD(dtk_process, pod, 488);
    FIELD(dtk_process, slurm_job, 528);
    FIELD(dtk_process, slurm_step, 544);
    FIELD(dtk_process, unit, 560);

    SIZE(dtk_usage, 272);
    FIELD(dtk_usage, process, 0);
    FIELD(dtk_usage, device, 4);
    FIELD(dtk_usage, sources, 8);
    FIELD(dtk_usage, queues, 12);
    FIELD(dtk_usage, uuid, 16);
    FIELD(dtk_usage, vram, 48);
    FIELD(dtk_usage, gtt, 64);
    FIELD(dtk_usage, cu_count, 80);
    FIELD(dtk_usage, sdma, 96);
    FIELD(dtk_usage, evicted, 112);
    FIELD(dtk_usage, engine, 128);
    FIELD(dtk_usage, utilization, 256);

    SIZE(dtk_rsmi_file, 580);
    FIELD(dtk_rsmi_file, path, 0);
    FIELD(dtk_rsmi_file, origin, 512);
    FIELD(dtk_rsmi_file, found, 576);

    SIZE(dtk_rsmi, 1172);
    FIELD(dtk_rsmi, status, 0);
    FIELD(dtk_rsmi, abi, 4);
    FIELD(dtk_rsmi, code, 8);
    FIELD(dtk_rsmi, devices, 12);
    FIELD(dtk_rsmi, matched, 16);
    FIELD(dtk_rsmi, path, 20);
    FIELD(dtk_rsmi, origin, 532);
    FIELD(dtk_rsmi, version, 596);
    FIELD(dtk_rsmi, message, 660);

    SIZE(dtk_scan, 32);
    FIELD(dtk_scan, processes, 0);
    FIELD(dtk_scan, usages, 4);
    FIELD(dtk_scan, hidden, 8);
    FIELD(dtk_scan, hidden_reasons, 12);
    FIELD(dtk_scan, full, 16);
    FIELD(dtk_scan, truncated, 20);
    FIELD(dtk_scan, kfd, 24);
    FIELD(dtk_scan, fdinfo, 25);
    FIELD(dtk_scan, reserved, 26);

    SIZE(dtk_virtual, 232);
    FIELD(dtk_virtual, id, 0);
    FIELD(dtk_virtual, card, 4);
    FIELD(dtk_virtual, device, 8);
    FIELD(dtk_virtual, pipe, 12);
    FIELD(dtk_virtual, enabled, 16);
    FIELD(dtk_virtual, sources, 20);
    FIELD(dtk_virtual, bdf, 24);
    FIELD(dtk_virtual, name, 48);
    FIELD(dtk_virtual, container, 144);
    FIELD(dtk_virtual, compute_units, 168);
    FIELD(dtk_virtual, memory_total, 184);
    FIELD(dtk_virtual, memory_used, 200);
    FIELD(dtk_virtual, utilization, 216);

    SIZE(dtk_virtual_card, 40);
    FIELD(dtk_virtual_card, card, 0);
    FIELD(dtk_virtual_card, device, 4);
    FIELD(dtk_virtual_card, compute_units_free, 8);
    FIELD(dtk_virtual_card, memory_free, 24);

    SIZE(dtk_virtual_scan, 664);
    FIELD(dtk_virtual_scan, devices, 0);
    FIELD(dtk_virtual_scan, cards, 4);
    FIELD(dtk_virtual_scan, counted, 8);
    FIELD(dtk_virtual_scan, most, 12);
    FIELD(dtk_virtual_scan, truncated, 16);
    FIELD(dtk_virtual_scan, skipped, 20);
    FIELD(dtk_virtual_scan, skipped_detail, 24);
    FIELD(dtk_virtual_scan, files_detail, 28);
    FIELD(dtk_virtual_scan, library_detail, 32);
    FIELD(dtk_virtual_scan, node, 36);
    FIELD(dtk_virtual_scan, files, 40);
    FIELD(dtk_virtual_scan, library, 41);
    FIELD(dtk_virtual_scan, named, 42);
    FIELD(dtk_virtual_scan, reserved, 43);
    FIELD(dtk_virtual_scan, first_skipped, 48);
    FIELD(dtk_virtual_scan, call, 112);
    FIELD(dtk_virtual_scan, path, 152);
    FIELD(dtk_virtual_scan, message, 408);

    return changed;
}
