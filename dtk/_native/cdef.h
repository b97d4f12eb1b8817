/* What cffi reads: the declarations of dtk.h without its comments, conditions and enums. The compiler checks every one
 * of them against dtk.h, a test that none is missing. Constants are written `...`: the compiler fills in their values. */

#define DTK_API_VERSION ...
#define DTK_METRIC_COUNT ...

#define DTK_OK ...
#define DTK_UNSUPPORTED ...
#define DTK_DENIED ...
#define DTK_ASLEEP ...
#define DTK_GONE ...
#define DTK_FAILED ...
#define DTK_STALE ...
#define DTK_ON_CARD ...
#define DTK_INVALID_ARGUMENT ...
#define DTK_NOT_FOUND ...
#define DTK_AMBIGUOUS ...
#define DTK_NO_MEMORY ...
#define DTK_LIBRARY ...
#define DTK_NO_DRIVER ...

#define DTK_TYPE_F64 ...
#define DTK_TYPE_I64 ...
#define DTK_TYPE_U64 ...
#define DTK_TYPE_BITS ...
#define DTK_KIND_GAUGE ...
#define DTK_KIND_COUNTER ...
#define DTK_TIER_STATIC ...
#define DTK_TIER_FAST ...
#define DTK_TIER_SLOW ...

#define DTK_DETAIL_MALFORMED ...
#define DTK_DETAIL_IMPLAUSIBLE ...
#define DTK_DETAIL_TABLE_DAMAGED ...
#define DTK_DETAIL_TABLE_UNKNOWN ...
#define DTK_DETAIL_LIBRARY_ABORTED ...
#define DTK_DETAIL_LIBRARY_MISSING ...
#define DTK_DETAIL_LIBRARY_NO_CARD ...
#define DTK_DETAIL_RSMI ...
#define DTK_DETAIL_DMI ...

#define DTK_OPEN_DEBUG ...
#define DTK_OPEN_NO_OPENAT2 ...
#define DTK_OPEN_AUTO ...
#define DTK_OPEN_RSMI ...

#define DTK_SCAN_KFD ...
#define DTK_SCAN_FDINFO ...
#define DTK_SCAN_FULL ...
#define DTK_SCAN_RSMI ...
#define DTK_HIDDEN_DENIED ...
#define DTK_HIDDEN_HIDEPID ...
#define DTK_HIDDEN_NAMESPACE ...
#define DTK_ENGINE_COUNT ...
#define DTK_ENGINE_ROOM 8

#define DTK_VIRTUAL_FILES ...
#define DTK_VIRTUAL_LIBRARY ...

uint32_t dtk_api_version(void);

const char *dtk_status_name(int status);
const char *dtk_status_text(int status);

typedef struct dtk_metric_info {
    int32_t number;
    int32_t type;
    int32_t kind;
    int32_t tier;
    const char *name;
    const char *unit;
    const char *window;
    const char *family;
    const char *label;
    const char *label_value;
    const char *help;
} dtk_metric_info;

const dtk_metric_info *dtk_metric_describe(int metric);

int dtk_metric_find(const char *name);

const char *dtk_metric_source(int metric, int source);

const char *dtk_bit_name(int metric, int bit);

typedef struct dtk_value {
    union {
        double f64;
        int64_t i64;
        uint64_t u64;
    };
    uint8_t type;
    uint8_t status;
    uint8_t source;
    uint8_t reserved;
    int32_t detail;
} dtk_value;

typedef struct dtk_system dtk_system;
typedef struct dtk_device dtk_device;

int dtk_open(const char *root, uint64_t flags, dtk_system **ret);

void dtk_close(dtk_system *system);

int dtk_rescan(dtk_system *system);

int dtk_device_count(const dtk_system *system);

int dtk_device_get(dtk_system *system, int index, dtk_device **ret);

int dtk_card_count(const dtk_system *system);
int dtk_card_get(dtk_system *system, int index, dtk_device **ret);

int dtk_device_match(dtk_system *system, const char *key, int *ret, size_t count);

int dtk_device_find(dtk_system *system, const char *key, dtk_device **ret);

typedef struct dtk_system_info {
    int32_t simulated;
    int32_t live;
    char hostname[256];
    char driver[4][16];
    char version[4][64];
} dtk_system_info;

int dtk_system_info_get(dtk_system *system, dtk_system_info *ret, size_t size);

typedef struct dtk_probe {
    int32_t pci_cards;
    int32_t pci_unbound;
    int32_t pci_displays;
    int32_t drm;
    int32_t kfd;
    int32_t dev_kfd;
    int32_t dev_kfd_access;
    int32_t dev_render;
    int32_t dev_render_access;
    char modules[64];
    char first_unbound[24];
    char first_display[24];
    char render_group[32];
    char module_states[64];
    int32_t kfd_nodes;
    int32_t kfd_denied;
    int32_t numa_nodes;
    int32_t pci_denied;
    int32_t kfd_list_denied;
    char kfd_group[32];
    uint32_t kfd_gid;
    int32_t kfd_mode;
    char dri_group[32];
    uint32_t dri_gid;
    int32_t dri_mode;
} dtk_probe;

int dtk_system_probe(dtk_system *system, dtk_probe *ret, size_t size);

typedef struct dtk_pci_card {
    char bdf[24];
    char driver[16];
    int32_t vendor_id;
    int32_t device_id;
    int32_t pci_class;
} dtk_pci_card;

int dtk_system_pci(dtk_system *system, dtk_pci_card *ret, size_t size, size_t count);

typedef const char *dtk_environment(const char *name);

typedef struct dtk_rsmi_file {
    char path[512];
    char origin[64];
    int32_t found;
} dtk_rsmi_file;

int dtk_rsmi_find(dtk_environment *environment, int index, dtk_rsmi_file *ret, size_t size);

int dtk_rsmi_environment(dtk_system *system, dtk_environment *environment);

const char *dtk_rsmi_abi_name(int abi);

typedef struct dtk_rsmi {
    int32_t status;
    int32_t abi;
    int32_t code;
    int32_t devices;
    int32_t matched;
    char path[512];
    char origin[64];
    char version[64];
    char message[512];
} dtk_rsmi;

int dtk_rsmi_get(dtk_system *system, dtk_rsmi *ret, size_t size);

typedef struct dtk_info {
    int32_t index;
    int32_t card;
    int32_t partition;
    int32_t numa_node;
    int32_t drm_card;
    int32_t drm_render;
    int32_t kfd_node;
    int32_t hip_index;
    int64_t gpu_id;
    int32_t vendor_id, device_id, subsystem_vendor_id, subsystem_device_id, revision_id;
    int32_t compute_units;
    uint64_t unique_id;
    uint64_t hive_id;
    char uuid[32];
    char bdf[24];
    char driver[16];
    char name[96];
    char serial[64];
    char arch[16];
    char vbios[64];
    char performance_level[32];
    char compute_partition[16];
    char memory_partition[16];
    char memory_vendor[32];
} dtk_info;

int dtk_device_info(const dtk_device *device, dtk_info *ret, size_t size);

int dtk_device_sample(dtk_device *device, uint32_t tiers, dtk_value *ret, size_t count);

typedef struct dtk_ecc_block {
    char name[24];
    dtk_value correctable, uncorrectable, deferred;
} dtk_ecc_block;

int dtk_device_ecc(dtk_device *device, dtk_ecc_block *ret, size_t size, size_t count);

typedef struct dtk_bank_count {
    char bank[24];
    char name[40];
    uint64_t count;
} dtk_bank_count;

int dtk_device_banks(dtk_device *device, dtk_bank_count *ret, size_t size, size_t count);

typedef struct dtk_firmware {
    char name[24];
    char version[40];
} dtk_firmware;

int dtk_device_firmware(dtk_device *device, dtk_firmware *ret, size_t size, size_t count);

typedef struct dtk_cost {
    char name[48];
    int32_t status;
    int32_t reserved;
    uint64_t nanoseconds;
} dtk_cost;

int dtk_device_costs(dtk_device *device, dtk_cost *ret, size_t size, size_t count);

const char *dtk_engine_name(int engine);

typedef struct dtk_process {
    int32_t pid;
    int32_t parent;
    int32_t ns_pid;
    int32_t host_pid;
    int64_t uid;
    uint64_t start_ticks;
    double start_time;
    uint8_t status;
    char state;
    uint8_t command_cut;
    uint8_t reserved[5];
    char name[64];
    char user[32];
    char command[256];
    char container[72];
    char runtime[16];
    char pod[40];
    char slurm_job[16];
    char slurm_step[16];
    char unit[64];
} dtk_process;

typedef struct dtk_usage {
    int32_t process;
    int32_t device;
    uint32_t sources;
    int32_t queues;
    char uuid[32];
    dtk_value vram;
    dtk_value gtt;
    dtk_value cu_count;
    dtk_value sdma;
    dtk_value evicted;
    dtk_value engine[DTK_ENGINE_ROOM];
    dtk_value utilization;
} dtk_usage;

typedef struct dtk_scan {
    int32_t processes;
    int32_t usages;
    int32_t hidden;
    uint32_t hidden_reasons;
    int32_t full;
    int32_t truncated;
    uint8_t kfd, fdinfo;
    uint8_t reserved[6];
} dtk_scan;

typedef struct dtk_tracker dtk_tracker;

int dtk_tracker_open(dtk_system *system, dtk_tracker **ret);

void dtk_tracker_close(dtk_tracker *tracker);

int dtk_tracker_scan(dtk_tracker *tracker, uint32_t flags, dtk_scan *ret, size_t size);

int dtk_tracker_processes(const dtk_tracker *tracker, dtk_process *ret, size_t size, size_t count);
int dtk_tracker_usages(const dtk_tracker *tracker, dtk_usage *ret, size_t size, size_t count);

typedef struct dtk_virtual {
    int32_t id;
    int32_t card;
    int32_t device;
    int32_t pipe;
    int32_t enabled;
    uint32_t sources;
    char bdf[24];
    char name[96];
    char container[24];
    dtk_value compute_units;
    dtk_value memory_total;
    dtk_value memory_used;
    dtk_value utilization;
} dtk_virtual;

typedef struct dtk_virtual_card {
    int32_t card;
    int32_t device;
    dtk_value compute_units_free;
    dtk_value memory_free;
} dtk_virtual_card;

typedef struct dtk_virtual_scan {
    int32_t devices;
    int32_t cards;
    int32_t counted;
    int32_t most;
    int32_t truncated;
    int32_t skipped;
    int32_t skipped_detail;
    int32_t files_detail;
    int32_t library_detail;
    int32_t node;
    uint8_t files;
    uint8_t library;
    uint8_t named;
    uint8_t reserved[5];
    char first_skipped[64];
    char call[40];
    char path[256];
    char message[256];
} dtk_virtual_scan;

typedef struct dtk_virtuals dtk_virtuals;

int dtk_virtuals_read(dtk_system *system, uint32_t places, const char *library, dtk_virtuals **ret);

void dtk_virtuals_free(dtk_virtuals *virtuals);

int dtk_virtuals_scan(const dtk_virtuals *virtuals, dtk_virtual_scan *ret, size_t size);

int dtk_virtuals_devices(const dtk_virtuals *virtuals, dtk_virtual *ret, size_t size, size_t count);

int dtk_virtuals_cards(const dtk_virtuals *virtuals, dtk_virtual_card *ret, size_t size, size_t count);
/* The C library's, to be passed on. */
extern char *getenv(const char *name);
