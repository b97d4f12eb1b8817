/* Enumeration, shared by its two halves: what PCI and DRM show, and what KFD shows. */
#ifndef DTK_KERNEL_SCAN_H
#define DTK_KERNEL_SCAN_H

#include "backend.h"

/* A KFD node with compute units. */
struct node {
    uint32_t number;
    uint64_t gpu_id, vendor_id, device_id, location, domain, unique_id, hive_id, gfx_version;
    uint64_t simd_count, simd_per_cu, local_mem_size, clock_max, render;
    bool has_render, has_domain;
    struct dtk_device *card;
    uint32_t partition; /* its number on the card, if it is one */
};

/* The DRM nodes of a partition, on a platform device of its own (amdgpu_xcp_N). -1 not seen. */
struct drm_pair {
    char path[96];
    int32_t card, render;
};

struct scan {
    struct dtk_system *system;
    const struct root *root;
    struct inventory *found;
    const char *directory; /* being listed */
    struct node *nodes;
    int node_count, node_room;
    struct node **of_card; /* room for all nodes */
    struct drm_pair *pairs;
    int pair_count, pair_room;
    bool denied; /* something could not be looked at */
    int status;
};

/* Take note of a negative errno: nothing there is nothing, denied is kept in mind, and without descriptors or memory
 * the scan fails rather than finding nothing. Returns scan->status. */
int scan_note(struct scan *scan, int error, const char *what);

/* kernel_pci.c: add the cards that a driver holds, with their DRM nodes, and the pairs of partitions. Sets scan->status. */
void scan_pci(struct scan *scan);

void card_set_address(struct dtk_device *card, struct pci_address address);
bool scan_read_number(const struct root *root, int directory, const char *name, uint64_t *ret);

/* Drivers, and PCI classes, of cards. Hygon's CPU bridges carry the same vendor id. */
bool is_known_driver(const char *name);
bool is_card_class(uint64_t pci_class);
bool is_card_vendor(uint64_t vendor);

#endif
