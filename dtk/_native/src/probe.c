/* The machine as a whole: who it is, and what there is when there are no cards. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernel_scan.h"

static const char *const modules[] = {"hycu", "hydcu", "amdgpu", "radeon"};

static bool read_line(const struct root *root, const char *path, char *ret, size_t size)
{
    char text[512];
    ssize_t got = root_read(root, root->fd, path, text, sizeof text);

    return got > 0 && parse_text(text, (size_t)got, ret, size) == 0;
}

/* ---- System ---- */

/* A driver that came with the kernel has no version but the kernel's; Hygon's never comes with it. */
static void read_driver_version(const struct root *root, const char *driver, char *ret, size_t size)
{
    char path[64];

    snprintf(path, sizeof path, "sys/module/%.15s/version", driver);
    if (!read_line(root, path, ret, size) &&
        (strncmp(driver, "hy", 2) == 0 || !read_line(root, "proc/sys/kernel/osrelease", ret, size)))
        ret[0] = '\0';
}

static void add_driver(const struct root *root, dtk_system_info *info, const char *driver)
{
    for (int i = 0; i < 4 && driver[0]; i++) {
        if (strcmp(info->driver[i], driver) == 0)
            return;
        if (!info->driver[i][0]) {
            snprintf(info->driver[i], sizeof info->driver[i], "%.15s", driver);
            read_driver_version(root, driver, info->version[i], sizeof info->version[i]);
            return;
        }
    }
}

int dtk_system_info_get(dtk_system *system, dtk_system_info *ret, size_t size)
{
    dtk_system_info info = {0};

    if (!system || !ret)
        return -DTK_INVALID_ARGUMENT;
    system_lock(system);
    info.live = system->root.live;
    info.simulated = root_has_file(system->root.fd, ".dtk-simulated") == 0;
    if (!read_line(&system->root, "proc/sys/kernel/hostname", info.hostname, sizeof info.hostname))
        info.hostname[0] = '\0';
    for (int i = 0; i < system->now.cards.count; i++)
        add_driver(&system->root, &info, system->now.cards.at[i]->id.driver);
    system_unlock(system);
    memcpy(ret, &info, size < sizeof info ? size : sizeof info);
    return 0;
}

/* ---- Probe ---- */

struct look {
    const struct root *root;
    dtk_probe *ret;
    char directory[ROOT_PATH_MAX]; /* of KFD's nodes */
};

static bool read_hex(const struct root *root, const char *directory, const char *name, uint64_t *ret)
{
    char path[ROOT_PATH_MAX], text[64];
    ssize_t got;

    if (snprintf(path, sizeof path, "%s/%s", directory, name) >= (int)sizeof path)
        return false;
    got = root_read(root, root->fd, path, text, sizeof text);
    return got > 0 && parse_u64(text, (size_t)got, ret) == 0;
}

/* The driver that holds a function, whichever it is; "" none. */
static void read_driver(const struct root *root, const char *directory, char *ret, size_t size)
{
    char path[ROOT_PATH_MAX], target[ROOT_PATH_MAX];
    const char *name = NULL;

    if (snprintf(path, sizeof path, "%s/driver", directory) < (int)sizeof path &&
        root_resolve(root, path, target, sizeof target) == 0)
        name = strrchr(target, '/');
    snprintf(ret, size, "%.*s", (int)size - 1, name ? name + 1 : "");
}

/* What a function says of itself; false when it does not say what it is. */
static bool read_function(const struct root *root, const char *name, char *directory, size_t size, dtk_pci_card *ret)
{
    char path[ROOT_PATH_MAX];
    uint64_t vendor, device, pci_class;

    snprintf(path, sizeof path, "sys/bus/pci/devices/%.64s", name);
    if (strlen(name) >= sizeof ret->bdf || root_resolve(root, path, directory, size) != 0 ||
        !read_hex(root, directory, "vendor", &vendor) || !read_hex(root, directory, "class", &pci_class))
        return false;
    *ret = (dtk_pci_card){
        .vendor_id = (int32_t)(vendor & 0xffff), .device_id = -1, .pci_class = (int32_t)(pci_class & 0xffffff)};
    if (read_hex(root, directory, "device", &device))
        ret->device_id = (int32_t)(device & 0xffff);
    snprintf(ret->bdf, sizeof ret->bdf, "%.23s", name);
    return true;
}

static bool is_card(const dtk_pci_card *function)
{
    return is_card_class((uint64_t)function->pci_class) && is_card_vendor((uint64_t)function->vendor_id);
}

/* The lowest address: entries come in any order. Equally long addresses sort as text. */
static void keep_lowest(char *ret, size_t size, const char *name)
{
    size_t old = strlen(ret), new = strlen(name);

    if (new < size && (old == 0 || new < old || (new == old && strcmp(name, ret) < 0)))
        memcpy(ret, name, new + 1);
}

static int visit_pci(void *context, const char *name)
{
    struct look *look = context;
    dtk_probe *ret = look->ret;
    char directory[ROOT_PATH_MAX];
    dtk_pci_card function;

    if (!read_function(look->root, name, directory, sizeof directory, &function))
        return 0;
    if (is_card(&function)) {
        read_driver(look->root, directory, function.driver, sizeof function.driver);
        ret->pci_cards++;
        if (!is_known_driver(function.driver)) {
            ret->pci_unbound++;
            keep_lowest(ret->first_unbound, sizeof ret->first_unbound, name);
        }
    } else if (function.pci_class >> 16 == 0x03) {
        ret->pci_displays++;
        keep_lowest(ret->first_display, sizeof ret->first_display, name);
    }
    return 0;
}

static bool is_directory(const struct root *root, const char *path)
{
    char target[ROOT_PATH_MAX];
    struct stat st;

    return root_resolve(root, path, target, sizeof target) == 0 && fstatat(root->fd, target, &st, 0) == 0 &&
           S_ISDIR(st.st_mode);
}

/* Text behind text, as far as there is room. */
static void append(char *ret, size_t size, const char *comma, const char *text)
{
    size_t len = strlen(ret);

    snprintf(ret + len, size - len, "%s%s", comma, text);
}

static void look_at_modules(struct look *look)
{
    char path[64];

    for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++) {
        snprintf(path, sizeof path, "sys/module/%s", modules[i]);
        if (is_directory(look->root, path)) {
            char state[16] = "";
            const char *comma = look->ret->modules[0] ? "," : "";

            strcat(path, "/initstate");
            read_line(look->root, path, state, sizeof state);
            append(look->ret->modules, sizeof look->ret->modules, comma, modules[i]);
            append(look->ret->module_states, sizeof look->ret->module_states, comma, state);
        }
    }
}

static int visit_kfd(void *context, const char *name)
{
    struct look *look = context;
    char path[ROOT_PATH_MAX], text[4096];
    uint64_t simds = 0;
    uint32_t number;
    ssize_t got;

    if (parse_number_after(name, "", &number) != 0 ||
        snprintf(path, sizeof path, "%s/%u/properties", look->directory, number) >= (int)sizeof path)
        return 0;
    got = root_read(look->root, look->root->fd, path, text, sizeof text);
    if (got == -EPERM || got == -EACCES)
        look->ret->kfd_denied++;
    else if (got > 0 && parse_property(text, (size_t)got, "simd_count", &simds) == 0 && simds)
        look->ret->kfd_nodes++;
    return 0;
}

static bool is_denied(int result)
{
    return result == -EACCES || result == -EPERM;
}

static void look_at_kfd(struct look *look)
{
    static const char *const places[] = {"sys/class/kfd/kfd/topology/nodes", "sys/class/kcd/kcd/topology/nodes"};

    for (int i = 0; i < 2; i++) {
        int result = root_resolve(look->root, places[i], look->directory, sizeof look->directory);

        if (result == 0)
            result = root_list(look->root, look->root->fd, look->directory, visit_kfd, look);
        look->ret->kfd_list_denied |= is_denied(result);
        if (result == 0)
            return;
    }
}

static int visit_numa(void *context, const char *name)
{
    struct look *look = context;
    uint32_t number;

    look->ret->numa_nodes += parse_number_after(name, "node", &number) == 0;
    return 0;
}

/* Which group a device node belongs to, for "join the group render", and whether that may open it. */
static void read_group(struct look *look, const char *path, char ret[32], uint32_t *gid, int32_t *mode)
{
    char buffer[1024];
    struct group group, *found = NULL;
    struct stat st;

    if (fstatat(look->root->fd, path, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return;
    *gid = st.st_gid;
    *mode = (int32_t)(st.st_mode & 07777);
    if (getgrgid_r(st.st_gid, &group, buffer, sizeof buffer, &found) == 0 && found)
        snprintf(ret, 32, "%.31s", group.gr_name);
    else
        snprintf(ret, 32, "%u", (unsigned)st.st_gid);
    memcpy(look->ret->render_group, ret, sizeof look->ret->render_group);
}

static int visit_render(void *context, const char *name)
{
    struct look *look = context;
    dtk_probe *ret = look->ret;
    char path[48];
    uint32_t number;
    bool open;

    if (parse_number_after(name, "renderD", &number) != 0)
        return 0;
    snprintf(path, sizeof path, "dev/dri/renderD%u", number);
    open = faccessat(look->root->fd, path, R_OK | W_OK, 0) == 0;
    if (ret->dev_render == 0 || (!open && ret->dev_render == ret->dev_render_access))
        read_group(look, path, ret->dri_group, &ret->dri_gid, &ret->dri_mode);
    ret->dev_render++;
    ret->dev_render_access += open;
    return 0;
}

/* Asked by access(2): opening a render node wakes its card, opening kfd makes a process there. */
static void look_at_nodes(struct look *look)
{
    dtk_probe *ret = look->ret;
    int fd = look->root->fd;

    ret->dev_render = ret->dev_render_access = 0;
    root_list(look->root, fd, "dev/dri", visit_render, look);
    ret->dev_kfd = faccessat(fd, "dev/kfd", F_OK, 0) == 0;
    ret->dev_kfd_access = ret->dev_kfd ? faccessat(fd, "dev/kfd", R_OK | W_OK, 0) == 0 : -1;
    if (ret->dev_kfd)
        read_group(look, "dev/kfd", ret->kfd_group, &ret->kfd_gid, &ret->kfd_mode);
    if (ret->dev_render == 0)
        ret->dev_render_access = -1;
}

int dtk_system_probe(dtk_system *system, dtk_probe *ret, size_t size)
{
    dtk_probe probe = {
        .dev_kfd = -1, .dev_kfd_access = -1, .dev_render = -1, .dev_render_access = -1, .kfd_mode = -1, .dri_mode = -1};
    struct look look;

    if (!system || !ret)
        return -DTK_INVALID_ARGUMENT;
    look = (struct look){.root = &system->root, .ret = &probe};
    probe.pci_denied = is_denied(root_list(look.root, look.root->fd, "sys/bus/pci/devices", visit_pci, &look));
    probe.drm = is_directory(look.root, "sys/class/drm");
    probe.kfd = is_directory(look.root, "sys/class/kfd") || is_directory(look.root, "sys/class/kcd");
    look_at_modules(&look);
    look_at_kfd(&look);
    root_list(look.root, look.root->fd, "sys/devices/system/node", visit_numa, &look);
    if (system->root.live)
        look_at_nodes(&look);
    memcpy(ret, &probe, size < sizeof probe ? size : sizeof probe);
    return 0;
}

/* ---- PCI ---- */

struct cards {
    const struct root *root;
    char *ret;
    size_t size, room;
    int count;
};

static int visit_card(void *context, const char *name)
{
    struct cards *cards = context;
    char directory[ROOT_PATH_MAX];
    dtk_pci_card card;

    if (!read_function(cards->root, name, directory, sizeof directory, &card) || !is_card(&card))
        return 0;
    read_driver(cards->root, directory, card.driver, sizeof card.driver);
    if ((size_t)cards->count < cards->room)
        memcpy(cards->ret + (size_t)cards->count * cards->size, &card,
               cards->size < sizeof card ? cards->size : sizeof card);
    cards->count++;
    return 0;
}

int dtk_system_pci(dtk_system *system, dtk_pci_card *ret, size_t size, size_t count)
{
    struct cards cards;

    if (!system || (!ret && count))
        return -DTK_INVALID_ARGUMENT;
    cards = (struct cards){.root = &system->root, .ret = (char *)ret, .size = size, .room = count};
    root_list(cards.root, cards.root->fd, "sys/bus/pci/devices", visit_card, &cards);
    return cards.count;
}
