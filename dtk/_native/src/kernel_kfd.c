/* Devices: KFD's nodes, each on the card it belongs to. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernel_scan.h"

/* Hygon's out-of-tree driver names the class kcd in places. */
static const char *const kfd_nodes[] = {"sys/class/kfd/kfd/topology/nodes", "sys/class/kcd/kcd/topology/nodes"};

/* ---- Nodes ---- */

static int visit_node(void *context, const char *name)
{
    struct scan *scan = context;
    struct node node = {0};
    char path[ROOT_PATH_MAX], text[4096];

    if (parse_number_after(name, "", &node.number) != 0 || node.number > INT32_MAX || (name[0] == '0' && name[1]))
        return 0; /* "01" is no node of the kernel's */
    snprintf(path, sizeof path, "kfd:%u", node.number);
    if (!touch(scan->system, path))
        return 0;
    snprintf(path, sizeof path, "%s/%.20s/properties", scan->directory, name);

    /* EPERM here is a device cgroup that denies the card: this process cannot open it. */
    ssize_t got = root_read(scan->root, scan->root->fd, path, text, sizeof text);

    if (got <= 0)
        return scan_note(scan, (int)got, path);

    size_t len = (size_t)got;

    if (parse_property(text, len, "simd_count", &node.simd_count) != 0 || node.simd_count == 0)
        return 0; /* a CPU */
    parse_property(text, len, "simd_per_cu", &node.simd_per_cu);
    parse_property(text, len, "vendor_id", &node.vendor_id);
    parse_property(text, len, "device_id", &node.device_id);
    parse_property(text, len, "location_id", &node.location);
    parse_property(text, len, "unique_id", &node.unique_id);
    parse_property(text, len, "hive_id", &node.hive_id);
    parse_property(text, len, "gfx_target_version", &node.gfx_version);
    parse_property(text, len, "local_mem_size", &node.local_mem_size);
    parse_property(text, len, "max_engine_clk_fcompute", &node.clock_max);
    node.has_domain = parse_property(text, len, "domain", &node.domain) == 0;
    node.has_render = parse_property(text, len, "drm_render_minor", &node.render) == 0 && node.render > 0;
    snprintf(path, sizeof path, "%s/%.20s/gpu_id", scan->directory, name);
    if (!scan_read_number(scan->root, scan->root->fd, path, &node.gpu_id))
        node.gpu_id = 0;
    if (scan->node_count == scan->node_room) {
        int room = scan->node_room ? 2 * scan->node_room : 16;
        struct node *grown = realloc(scan->nodes, (size_t)room * sizeof *grown);

        if (!grown)
            return scan->status = -DTK_NO_MEMORY;
        scan->nodes = grown;
        scan->node_room = room;
    }
    scan->nodes[scan->node_count++] = node;
    return 0;
}

static int by_number(const void *a, const void *b)
{
    const struct node *x = a, *y = b;

    return (x->number > y->number) - (x->number < y->number);
}

static struct pci_address address_of(const struct node *node)
{
    return (struct pci_address){.domain = (uint32_t)node->domain,
                                .bus = node->location >> 8 & 0xff,
                                .device = node->location >> 3 & 0x1f,
                                .function = node->location & 7};
}

/* Two cards never share a unique_id; two nodes of one address with different ones are of different cards, on kernels
 * that do not print the domain. */
static bool may_be(const struct dtk_device *card, const struct node *node)
{
    return !card->id.unique_id || !node->unique_id || card->id.unique_id == node->unique_id;
}

static struct dtk_device *find_card(struct scan *scan, const struct node *node, unsigned function)
{
    struct pci_address address = address_of(node);

    for (int i = 0; i < scan->found->cards.count; i++) {
        struct dtk_device *card = scan->found->cards.at[i];

        if ((card->address.domain == address.domain || !node->has_domain) && card->address.bus == address.bus &&
            card->address.device == address.device && card->address.function == function && may_be(card, node))
            return card;
    }
    return NULL;
}

static struct dtk_device *find_card_by_render(struct scan *scan, const struct node *node)
{
    for (int i = 0; node->has_render && i < scan->found->cards.count; i++)
        if (scan->found->cards.at[i]->id.drm_render == (int32_t)node->render && may_be(scan->found->cards.at[i], node))
            return scan->found->cards.at[i];
    return NULL;
}

/* The physical card of a node. In CPX and the like the function bits of location_id count partitions: there is no such
 * PCI function, the card is function 0. */
static struct dtk_device *card_of(struct scan *scan, const struct node *node)
{
    unsigned function = address_of(node).function;
    struct dtk_device *card = node->has_domain ? find_card(scan, node, function) : NULL;

    if (!card)
        card = find_card_by_render(scan, node);
    if (!card)
        card = find_card(scan, node, function);
    return card || function == 0 ? card : find_card(scan, node, 0);
}

/* A card that only KFD shows: in a container, or in a recorded topology. */
static struct dtk_device *add_kfd_card(struct scan *scan, const struct node *node)
{
    struct pci_address address = address_of(node);
    struct dtk_device *card = device_new(scan->system);
    bool partitionable = node->gfx_version / 100 == 904 || node->gfx_version / 100 == 905;

    if (!card) {
        scan->status = -DTK_NO_MEMORY;
        return NULL;
    }
    if (partitionable)
        address.function = 0;
    card_set_address(card, address);
    card->id.vendor_id = (int32_t)(node->vendor_id & 0xffff);
    card->id.device_id = (int32_t)(node->device_id & 0xffff);
    if (device_list_add(&scan->found->cards, card) != 0) {
        device_free(card);
        scan->status = -DTK_NO_MEMORY;
        return NULL;
    }
    return card;
}

static void name_arch(const struct node *node, char *ret, size_t size)
{
    unsigned version = (unsigned)node->gfx_version;

    if (version)
        snprintf(ret, size, "gfx%u%x%x", version / 10000, version / 100 % 100, version % 100);
}

/* What a node says of its device, whole card or partition. */
static void describe(struct scan *scan, struct dtk_device *device, const struct node *node)
{
    device->id.kfd_node = (int32_t)node->number;
    device->id.gpu_id = node->gpu_id ? (int64_t)node->gpu_id : -1;
    device->id.hive_id = node->hive_id;
    device->id.compute_units =
        (int32_t)(node->simd_per_cu ? node->simd_count / node->simd_per_cu : node->simd_count / 4);
    if (node->has_render)
        device->id.drm_render = (int32_t)node->render;
    if (device->id.device_id < 0 && node->device_id)
        device->id.device_id = (int32_t)(node->device_id & 0xffff); /* its own files may not be read */
    name_arch(node, device->id.arch, sizeof device->id.arch);
    device->node_memory = node->local_mem_size;
    device->node_clock_max = node->clock_max;
    snprintf(device->node, sizeof device->node, "%.*s/%u", ROOT_PATH_MAX - 16, scan->directory, node->number);
    if (device->directory < 0 && !device->path[0] &&
        fstatat(scan->root->fd, device->node, &device->stat, AT_SYMLINK_NOFOLLOW) == 0)
        memcpy(device->path, device->node, sizeof device->path);
}

/* ---- Devices ---- */

/* Read a file that the driver itself must answer, of an awake card that has it. */
static ssize_t ask(struct scan *scan, struct dtk_device *card, const char *name, char *ret, size_t size)
{
    if (card->left_out || card->directory < 0 || root_has_file(card->directory, name) != 0)
        return -ENOENT;
    if (!touch(scan->system, card->id.bdf) || device_state(card) != DTK_OK)
        return -EAGAIN;
    return root_read(scan->root, card->directory, name, ret, size);
}

/* A lone node is a partition when its location says so, or the card's mode does: the others may be hidden from us. */
static bool is_lone_partition(struct scan *scan, const struct node *node)
{
    char mode[16];
    ssize_t got;

    if (node->location >> 28 || (node->location & 7) != node->card->address.function)
        return true;
    got = ask(scan, node->card, "current_compute_partition", mode, sizeof mode);
    return got >= 3 && memcmp(mode + 1, "PX", 2) == 0 && mode[0] != 'S';
}

/* Partition numbers: bits 28-31 of location_id, else its function bits, whichever tells the nodes apart; else the order
 * of the nodes. */
static void number_partitions(struct node **of_card, int count)
{
    for (int way = 0; way < 3; way++) {
        bool distinct = true;

        for (int i = 0; i < count; i++) {
            uint64_t location = of_card[i]->location;

            of_card[i]->partition = way == 0 ? (uint32_t)(location >> 28 & 15) : way == 1 ? location & 7 : (uint32_t)i;
            for (int j = 0; j < i; j++)
                distinct = distinct && of_card[i]->partition != of_card[j]->partition;
        }
        if (distinct && (count > 1 || of_card[0]->partition || way == 2))
            return;
    }
}

/* N of the cardN that goes with a render node. */
static int32_t drm_card_of(const struct scan *scan, const struct dtk_device *card, int32_t render)
{
    if (render >= 0 && render == card->id.drm_render)
        return card->id.drm_card;
    for (int i = 0; i < scan->pair_count; i++)
        if (render >= 0 && scan->pairs[i].render == render)
            return scan->pairs[i].card;
    return -1;
}

static void add_partition(struct scan *scan, struct dtk_device *card, const struct node *node)
{
    struct dtk_device *device = device_new(scan->system);

    if (!device) {
        scan->status = -DTK_NO_MEMORY;
        return;
    }
    device->id = card->id;
    device->id.drm_render = -1;
    device->id.partition = (int32_t)node->partition;
    device->address = card->address;
    device->card = card;
    card->partitioned = true;
    describe(scan, device, node);
    device->id.drm_card = drm_card_of(scan, card, device->id.drm_render);
    if (device_list_add(&scan->found->devices, device) != 0) {
        device_free(device);
        scan->status = -DTK_NO_MEMORY;
    }
}

/* Devices of one card: itself, or the partitions that its nodes are. */
static void add_devices(struct scan *scan, struct dtk_device *card)
{
    struct node **of_card = scan->of_card;
    int count = 0;

    for (int i = 0; i < scan->node_count; i++)
        if (scan->nodes[i].card == card)
            of_card[count++] = &scan->nodes[i];
    for (int i = 0; i < count && card->id.unique_id == 0; i++)
        card->id.unique_id = of_card[i]->unique_id;
    if (card->id.unique_id == 0) {
        char text[64];
        ssize_t got = ask(scan, card, "unique_id", text, sizeof text);

        scan_note(scan, got == -EAGAIN ? 0 : (int)got, "unique_id");
        if (got <= 0 || parse_hex64(text, (size_t)got, &card->id.unique_id) != 0 || card->id.unique_id == UINT64_MAX)
            card->id.unique_id = 0;
    }
    if (count == 0 || (count == 1 && !is_lone_partition(scan, of_card[0]))) {
        if (count == 1)
            describe(scan, card, of_card[0]);
        if (device_list_add(&scan->found->devices, card) != 0)
            scan->status = -DTK_NO_MEMORY;
        return;
    }
    card->id.hive_id = of_card[0]->hive_id;
    name_arch(of_card[0], card->id.arch, sizeof card->id.arch);
    number_partitions(of_card, count);
    for (int i = 0; i < count && scan->status == 0; i++)
        add_partition(scan, card, of_card[i]);
    /* A card without a PCI directory is there as long as its first node is. */
    if (!card->path[0] && scan->status == 0) {
        struct dtk_device *first = scan->found->devices.at[scan->found->devices.count - count];

        memcpy(card->path, first->path, sizeof card->path);
        card->stat = first->stat;
    }
}

static int by_address(const void *a, const void *b)
{
    const struct dtk_device *x = *(struct dtk_device *const *)a, *y = *(struct dtk_device *const *)b;
    const uint64_t key_x =
        (uint64_t)x->address.domain << 16 | x->address.bus << 8 | x->address.device << 3 | x->address.function;
    const uint64_t key_y =
        (uint64_t)y->address.domain << 16 | y->address.bus << 8 | y->address.device << 3 | y->address.function;

    if (key_x != key_y)
        return key_x < key_y ? -1 : 1;
    return (x->id.partition > y->id.partition) - (x->id.partition < y->id.partition);
}

static bool has_earlier_twin(const struct inventory *found, int card)
{
    for (int i = 0; i < card; i++)
        if (strcmp(found->cards.at[i]->id.bdf, found->cards.at[card]->id.bdf) == 0)
            return true;
    return false;
}

static bool shares_unique_id(const struct inventory *found, const struct dtk_device *card)
{
    for (int i = 0; i < found->cards.count; i++)
        if (found->cards.at[i] != card && found->cards.at[i]->id.unique_id == card->id.unique_id)
            return true;
    return false;
}

static void name_uuids(struct inventory *found)
{
    for (int i = 0; i < found->cards.count; i++) {
        struct dtk_device *card = found->cards.at[i];

        card->id.card = i;
        if (card->id.unique_id && !shares_unique_id(found, card))
            snprintf(card->id.uuid, sizeof card->id.uuid, "GPU-%016llx", (unsigned long long)card->id.unique_id);
        else if (!has_earlier_twin(found, i))
            snprintf(card->id.uuid, sizeof card->id.uuid, "PCI-%s", card->id.bdf);
        else /* a tree that contradicts itself */
            snprintf(card->id.uuid, sizeof card->id.uuid, "PCI-%.16s/c%d", card->id.bdf, i % 1000);
    }
    for (int i = 0; i < found->devices.count; i++) {
        struct dtk_device *device = found->devices.at[i];
        const dtk_info *card = &device->card->id;

        device->id.index = i;
        device->id.card = card->card;
        device->id.unique_id = card->unique_id;
        if (device != device->card)
            snprintf(device->id.uuid, sizeof device->id.uuid, "%.24s/p%d", card->uuid, device->id.partition % 10000);
    }
}

/* HIP numbers the KFD nodes that the process may open, in node order. On a foreign root a readable node counts. */
static void number_hip(struct scan *scan)
{
    int32_t next = 0;

    for (int i = 0; i < scan->node_count; i++)
        for (int j = 0; j < scan->found->devices.count; j++) {
            struct dtk_device *device = scan->found->devices.at[j];
            char path[48];

            if (device->id.kfd_node != (int32_t)scan->nodes[i].number)
                continue;
            snprintf(path, sizeof path, "dev/dri/renderD%d", device->id.drm_render);
            if (!scan->root->live || faccessat(scan->root->fd, path, R_OK | W_OK, 0) == 0)
                device->id.hip_index = next++;
        }
}

static void scan_kfd(struct scan *scan, char *nodes, size_t size)
{
    for (size_t i = 0; i < sizeof kfd_nodes / sizeof kfd_nodes[0] && scan->status == 0 && scan->node_count == 0; i++) {
        int error = root_resolve(scan->root, kfd_nodes[i], nodes, size);

        scan->directory = nodes;
        scan_note(scan, error ? error : root_list(scan->root, scan->root->fd, nodes, visit_node, scan), kfd_nodes[i]);
    }
    if (scan->node_count)
        qsort(scan->nodes, (size_t)scan->node_count, sizeof *scan->nodes, by_number);
    for (int i = 0; i < scan->node_count && scan->status == 0; i++) {
        struct node *node = &scan->nodes[i];

        node->card = card_of(scan, node);
        if (!node->card)
            node->card = add_kfd_card(scan, node);
        if (node->card && node->card->id.unique_id == 0)
            node->card->id.unique_id = node->unique_id;
    }
}

/* Indices, names and uuids, when all cards are known. */
static void finish(struct scan *scan)
{
    struct device_list *cards = &scan->found->cards, *devices = &scan->found->devices;

    if (devices->count)
        qsort(devices->at, (size_t)devices->count, sizeof *devices->at, by_address);
    for (int i = 0; i < cards->count; i++)
        name_of_card(scan->root, &cards->at[i]->id, cards->at[i]->id.name, sizeof cards->at[i]->id.name);
    for (int i = 0; i < devices->count; i++)
        memcpy(devices->at[i]->id.name, devices->at[i]->card->id.name, sizeof devices->at[i]->id.name);
    name_uuids(scan->found);
    number_hip(scan);
}

int kernel_enumerate(struct dtk_system *system, struct inventory *ret)
{
    struct scan scan = {.system = system, .root = &system->root, .found = ret};
    char nodes[ROOT_PATH_MAX];

    scan_pci(&scan);
    scan_kfd(&scan, nodes, sizeof nodes);
    if (ret->cards.count)
        qsort(ret->cards.at, (size_t)ret->cards.count, sizeof *ret->cards.at, by_address);
    scan.of_card = malloc(((size_t)scan.node_count + 1) * sizeof *scan.of_card);
    if (!scan.of_card)
        scan.status = -DTK_NO_MEMORY;
    for (int i = 0; i < ret->cards.count && scan.status == 0; i++)
        add_devices(&scan, ret->cards.at[i]);
    if (scan.status == 0)
        finish(&scan);
    if (scan.status == 0 && scan.denied && ret->devices.count == 0)
        scan.status = -DTK_DENIED;
    free(scan.of_card);
    free(scan.nodes);
    free(scan.pairs);
    return scan.status;
}
