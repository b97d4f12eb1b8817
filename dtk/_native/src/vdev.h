/* Virtual devices of Hygon cards, shared by their two sources: the configuration files and libhydmi. */
#ifndef DTK_VDEV_H
#define DTK_VDEV_H

#include "backend.h"

enum { VDEV_MAX = 1024, VDEV_CARDS_MAX = 64 };

/* A card of the machine, as it was when the look began. */
struct vdev_card {
    char bdf[24];
    int32_t index, kfd_node; /* kfd_node: -1 not known, or it is partitioned and has several */
    bool hygon;
};

struct dtk_virtuals {
    dtk_virtual_scan scan;
    dtk_virtual *devices; /* room for VDEV_MAX */
    dtk_virtual_card cards[VDEV_CARDS_MAX];
    struct vdev_card *machine;
    int machine_count;
};

/* The virtual device of that number; NULL when there is none. */
dtk_virtual *vdev_find(struct dtk_virtuals *virtuals, int32_t id);

/* A new one, of which nothing is known; NULL when there are too many. */
dtk_virtual *vdev_add(struct dtk_virtuals *virtuals, int32_t id);

dtk_value vdev_missing(uint8_t type, uint8_t status, int32_t detail);

/* vdev_library.c: find libhydmi, at `path` first unless that is NULL, and ask it. */
void vdev_ask_library(struct dtk_virtuals *virtuals, const char *path);

#endif
