/* Virtual devices for dtk-reader, which may hang or crash in Hygon's library without harm. */
#include <stdlib.h>
#include <string.h>

#include "reader.h"

static void send(dtk_system *system, uint32_t places, const char *library, uint64_t tick)
{
    dtk_virtuals *virtuals;
    dtk_virtual_scan scan;
    size_t cards_size, size;
    char *rows;

    if (dtk_virtuals_read(system, places, library, &virtuals) != 0)
        return;
    dtk_virtuals_scan(virtuals, &scan, sizeof scan);
    cards_size = (size_t)scan.cards * sizeof(dtk_virtual_card);
    size = cards_size + (size_t)scan.devices * sizeof(dtk_virtual);
    rows = malloc(size + 1);
    if (rows) {
        dtk_virtuals_cards(virtuals, (dtk_virtual_card *)rows, sizeof(dtk_virtual_card), (size_t)scan.cards);
        dtk_virtuals_devices(virtuals, (dtk_virtual *)(rows + cards_size), sizeof(dtk_virtual), (size_t)scan.devices);
        frame_send(FRAME_VIRTUAL, VIRTUAL_SLOT, tick, &scan, sizeof scan, rows, size);
    }
    free(rows);
    dtk_virtuals_free(virtuals);
}

/* First what the files tell, of tick 0: it is what there is when the library does not come back. */
void virtuals_send(dtk_system *system, const char *library, uint64_t tick)
{
    if (strcmp(library, "none") == 0) {
        send(system, DTK_VIRTUAL_FILES, NULL, tick);
        return;
    }
    send(system, DTK_VIRTUAL_FILES, NULL, 0);
    send(system, DTK_VIRTUAL_FILES | DTK_VIRTUAL_LIBRARY, library[0] ? library : NULL, tick);
}
