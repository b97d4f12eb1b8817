/* Loading the vendor's librocm_smi64: which one, which ABI it has, and how it numbers the cards. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rsmi.h"

typedef int init_function(uint64_t flags);
typedef int count_function(uint32_t *count);
typedef int u64_function(uint32_t card, uint64_t *ret);
typedef int version_function(void *ret);

enum { INIT_ALL_VENDORS = 1, DEVICES_MAX = 4096 };
#define INIT_THREAD_MUTEX 0x0400000000000000ULL

static const char *const abi_names[] = {"", "amd-5", "amd-6", "amd-7", "hygon-6.2", "hygon-6.3"};

/* Behind what is to be said of a file that was tried before. */
static void say(struct rsmi *rsmi, int status, const char *message)
{
    char *text = rsmi->about.message;
    size_t len = strlen(text);

    rsmi->about.status = status;
    snprintf(text + len, sizeof rsmi->about.message - len, "%s%s", len ? "; " : "", message);
}

/* ---- Which ABI ---- */

static bool has(const struct rsmi *rsmi, const char *symbol)
{
    return dlsym(rsmi->handle, symbol) != NULL;
}

/* Neither the file's name nor the version tells: two generations of Hygon share both with each other and with AMD's.
 * The functions do; where only an old Hygon and an old AMD library remain, the major version that AMD left in 2020. */
static enum dtk_rsmi_abi abi_of(const struct rsmi *rsmi, uint32_t major)
{
    if (has(rsmi, "rsmi_hy_version_get") || has(rsmi, "rsmi_driver_status"))
        return DTK_RSMI_HYGON_6_3;
    if (has(rsmi, "rsmi_dev_device_identifiers_get") || has(rsmi, "rsmi_dev_market_name_get"))
        return DTK_RSMI_AMD_7;
    if (has(rsmi, "rsmi_dev_activity_metric_get"))
        return DTK_RSMI_AMD_6;
    return major == 2 ? DTK_RSMI_HYGON_6_2 : DTK_RSMI_AMD_5;
}

static void learn_version(struct rsmi *rsmi)
{
    struct {
        uint32_t major, minor, patch;
        const char *build;
        char room[1024];
    } version = {0};
    uint32_t hygon[256] = {0};
    void *symbol = dlsym(rsmi->handle, "rsmi_version_get");
    char *text = rsmi->about.version;
    size_t room = sizeof rsmi->about.version;
    version_function *function;

    if (symbol) {
        RSMI_CALL(symbol, function);
        if (function(&version) == RSMI_SUCCESS)
            snprintf(text, room, "%u.%u.%u", version.major, version.minor, version.patch);
    }
    symbol = dlsym(rsmi->handle, "rsmi_hy_version_get");
    if (symbol && text[0]) {
        RSMI_CALL(symbol, function);
        if (function(hygon) == RSMI_SUCCESS)
            snprintf(text + strlen(text), room - strlen(text), "-%u.%u", hygon[0], hygon[1]);
    }
    rsmi->about.abi = abi_of(rsmi, version.major);
}

const char *dtk_rsmi_abi_name(int abi)
{
    return abi > 0 && abi < (int)(sizeof abi_names / sizeof abi_names[0]) ? abi_names[abi] : NULL;
}

/* ---- Which library ---- */

/* Both are built over the same classes, and in one process they call into each other. */
static bool other_library_is_there(void)
{
    static const char *const others[] = {"libamd_smi.so", "libamd_smi.so.27", "libamd_smi.so.26", "libamd_smi.so.25",
                                         "libamd_smi.so.24"};

    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        void *handle = dlopen(others[i], RTLD_LAZY | RTLD_NOLOAD);

        if (handle) {
            dlclose(handle);
            return true;
        }
    }
    return false;
}

static void learn_path(struct rsmi *rsmi, void *symbol, const dtk_rsmi_file *file)
{
    char resolved[4096];
    Dl_info info;
    const char *path = dladdr(symbol, &info) && info.dli_fname ? info.dli_fname : file->path;

    snprintf(rsmi->about.path, sizeof rsmi->about.path, "%.511s", realpath(path, resolved) ? resolved : path);
    snprintf(rsmi->about.origin, sizeof rsmi->about.origin, "%s", file->origin);
}

/* Beside the files only Hygon's has anything to tell. */
static bool is_of_use(const struct dtk_system *system, const struct rsmi *rsmi)
{
    return system->backend == DTK_OPEN_RSMI || rsmi->about.abi == DTK_RSMI_HYGON_6_2 ||
           rsmi->about.abi == DTK_RSMI_HYGON_6_3;
}

/* What was asked for by name and did not serve is kept as a message, also when another place served. */
static bool try_file(const struct dtk_system *system, struct rsmi *rsmi, const dtk_rsmi_file *file)
{
    const char *problem = "there is no such file";
    void *symbol = NULL;
    bool amd = false;

    if (file->found != 0) {
        rsmi->handle = dlopen(file->path, RTLD_LOCAL | RTLD_NOW);
        problem = rsmi->handle ? "it is no librocm_smi64" : dlerror();
        symbol = rsmi->handle ? dlsym(rsmi->handle, "rsmi_init") : NULL;
    }
    if (symbol) {
        learn_version(rsmi);
        if (is_of_use(system, rsmi)) {
            learn_path(rsmi, symbol, file);
            return true;
        }
        problem = "AMD's library tells nothing of Hygon cards that the files do not";
        amd = true;
    }
    if (rsmi->handle)
        dlclose(rsmi->handle);
    rsmi->handle = NULL;
    rsmi->about.abi = 0;
    rsmi->about.version[0] = '\0';
    if ((file->found >= 0 || amd) && !rsmi->about.message[0])
        snprintf(rsmi->about.message, sizeof rsmi->about.message, "%s: %.200s: %.200s", file->origin, file->path,
                 problem);
    return false;
}

static bool open_library(const struct dtk_system *system, struct rsmi *rsmi)
{
    dtk_rsmi_file file;

    for (int i = 0; dtk_rsmi_find(system->environment, i, &file, sizeof file) == 0; i++)
        if (try_file(system, rsmi, &file))
            return true;
    return false;
}

static void resolve_symbols(struct rsmi *rsmi)
{
    static const char *const functions[SOURCE_COUNT] = {
#define SOURCE(id, call, name, argument, divisor) [SOURCE_##id] = name,
#include "rsmi.def"
#undef SOURCE
    };

    for (int i = SOURCE_KERNEL_COUNT + 1; i < SOURCE_COUNT; i++)
        rsmi->symbol[i] = dlsym(rsmi->handle, functions[i]);
    rsmi->fan_speed_max = dlsym(rsmi->handle, "rsmi_dev_fan_speed_max_get");
    rsmi->ecc_enabled = dlsym(rsmi->handle, "rsmi_dev_ecc_enabled_get");
    rsmi->process_usage = dlsym(rsmi->handle, "rsmi_dev_proc_usage_get");
}

/* ---- Start ---- */

static uint64_t init_flags(const struct dtk_system *system, int abi)
{
    uint64_t flags;

    if (abi == DTK_RSMI_HYGON_6_2 || abi == DTK_RSMI_HYGON_6_3)
        return 0; /* as the vendor's own tools start it */
    /* Reads need no lock between processes; AMD's is one in /dev/shm that others can leave taken. */
    flags = INIT_THREAD_MUTEX;
    for (int i = 0; i < system->now.cards.count; i++)
        if (system->now.cards.at[i]->id.vendor_id != VENDOR_AMD)
            flags |= INIT_ALL_VENDORS;
    return flags;
}

static bool start(struct dtk_system *system, struct rsmi *rsmi)
{
    void *symbol = dlsym(rsmi->handle, "rsmi_init");
    init_function *init;
    char message[256];

    RSMI_CALL(symbol, init);
    rsmi->about.code = init(init_flags(system, rsmi->about.abi));
    if (rsmi->about.code == RSMI_SUCCESS)
        return true;
    snprintf(message, sizeof message, "rsmi_init() failed with %d%s", rsmi->about.code,
             rsmi->about.code == RSMI_INIT_ERROR
                 ? ": no driver, an incomplete sys/class/kfd, a sensor it does not know, or a lock in "
                   "/dev/shm/rocm_smi* that an ended process left; end the other users of the library and delete it"
             : rsmi->about.code == RSMI_PERMISSION ? ": this user may not; /dev/shm/rocm_smi* may be another user's"
                                                   : "");
    say(rsmi, DTK_LIBRARY, message);
    return false;
}

static void number_card(struct dtk_system *system, struct rsmi *rsmi, uint32_t number, uint64_t id)
{
    for (int i = 0; i < system->now.cards.count; i++) {
        struct dtk_device *card = system->now.cards.at[i];
        const struct pci_address *address = &card->address;

        if (card->rsmi < 0 && address->domain == (uint32_t)(id >> 32) && address->bus == (id >> 8 & 0xff) &&
            address->device == (id >> 3 & 0x1f) && (address->function == (id & 7) || card->partitioned)) {
            card->rsmi = (int)number;
            rsmi->about.matched++;
        }
    }
}

/* The library's number of each card, by the PCI address. Of a partitioned card that of its first partition. */
void rsmi_number_cards(struct dtk_system *system)
{
    struct rsmi *rsmi = system->rsmi;
    void *symbol;
    u64_function *pci_id;

    if (!rsmi || rsmi->about.status != DTK_OK || getpid() != system->rsmi_pid)
        return;
    symbol = dlsym(rsmi->handle, "rsmi_dev_pci_id_get");
    RSMI_CALL(symbol, pci_id);
    rsmi->about.matched = 0;
    for (int i = 0; i < system->now.cards.count; i++)
        system->now.cards.at[i]->rsmi = -1;
    for (int number = 0; number < rsmi->about.devices; number++) {
        uint64_t id[4] = {0};

        uint64_t turn = rsmi_begin(rsmi);
        int status = pci_id((uint32_t)number, id);

        rsmi_end(rsmi, turn);
        if (status == RSMI_SUCCESS)
            number_card(system, rsmi, (uint32_t)number, id[0]);
    }
}

static void count_devices(struct rsmi *rsmi)
{
    void *symbol = dlsym(rsmi->handle, "rsmi_num_monitor_devices");
    uint32_t count[4] = {0};
    count_function *function;

    if (!symbol || !has(rsmi, "rsmi_dev_pci_id_get")) {
        say(rsmi, DTK_LIBRARY, "it has no rsmi_num_monitor_devices() or rsmi_dev_pci_id_get()");
        return;
    }
    RSMI_CALL(symbol, function);
    if (function(count) == RSMI_SUCCESS)
        rsmi->about.devices = count[0] < DEVICES_MAX ? (int32_t)count[0] : DEVICES_MAX;
}

static void load(struct dtk_system *system, struct rsmi *rsmi)
{
    if (other_library_is_there()) {
        say(rsmi, DTK_LIBRARY, "libamd_smi is loaded in this process, and the two do not go together");
        return;
    }
    if (!open_library(system, rsmi)) {
        rsmi->about.status = DTK_NOT_FOUND;
        if (!rsmi->about.message[0])
            say(rsmi, DTK_NOT_FOUND, "no librocm_smi64.so was found; DTK_SMI_ROCM_SMI_LIB may name it");
        return;
    }
    resolve_symbols(rsmi);
    if (start(system, rsmi))
        count_devices(rsmi);
}

static void init_lock(struct rsmi *rsmi)
{
    pthread_condattr_t attributes;

    pthread_mutex_init(&rsmi->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&rsmi->turn, &attributes);
    pthread_condattr_destroy(&attributes);
}

struct rsmi *rsmi_of(struct dtk_system *system)
{
    if (getpid() != system->rsmi_pid)
        return NULL;
    pthread_mutex_lock(&system->rsmi_lock);
    if (!system->rsmi) {
        struct rsmi *rsmi = calloc(1, sizeof *rsmi);

        if (rsmi) {
            init_lock(rsmi);
            load(system, rsmi);
            atomic_store(&system->rsmi_missing, rsmi->about.status == DTK_NOT_FOUND);
        }
        system->rsmi = rsmi;
        rsmi_number_cards(system);
    }
    pthread_mutex_unlock(&system->rsmi_lock);
    return system->rsmi;
}

/* The library itself stays in the process: its threads, and what it registered for the end, may still need it. */
void rsmi_close(struct dtk_system *system)
{
    typedef int shut_down_function(void);
    struct rsmi *rsmi = system->rsmi;
    bool runs = rsmi && rsmi->about.status == DTK_OK && getpid() == system->rsmi_pid;
    void *symbol = runs ? dlsym(rsmi->handle, "rsmi_shut_down") : NULL;
    shut_down_function *shut_down;

    if (symbol) {
        RSMI_CALL(symbol, shut_down);
        shut_down();
    }
    free(rsmi);
    system->rsmi = NULL;
}

/* ---- For callers ---- */

int dtk_rsmi_environment(dtk_system *system, dtk_environment *environment)
{
    if (!system)
        return -DTK_INVALID_ARGUMENT;
    system->environment = environment;
    return 0;
}

int dtk_rsmi_get(dtk_system *system, dtk_rsmi *ret, size_t size)
{
    const struct rsmi *rsmi;

    if (!system || !ret)
        return -DTK_INVALID_ARGUMENT;
    if (!system->backend)
        return -DTK_UNSUPPORTED;
    system_lock(system);
    rsmi = rsmi_of(system);
    system_unlock(system);
    if (!rsmi)
        return -DTK_NO_MEMORY;
    memcpy(ret, &rsmi->about, size < sizeof rsmi->about ? size : sizeof rsmi->about);
    return 0;
}
