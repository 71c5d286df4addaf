/* A stand-in for ROCm's library, so that the real wrapper amdsmi is driven through real ctypes calls and layouts.
 *
 * Written independently of the Python emulator. One MI300X-like GPU with a constant power; the accumulator counts it
 * in units of 2^-16 J since the clock's zero. Layouts: those of the wrapper 7.0. The test adds a stub for every other
 * symbol that the wrapper binds.
 */
#include <stdint.h>
#include <string.h>
#include <time.h>

enum { OK = 0, INVALID = 1, NOT_SUPPORTED = 2, NOT_INITIALISED = 32 };

typedef struct {
    uint64_t socket;
    uint32_t current, average;
    uint64_t gfx_mv, soc_mv, memory_mv;
    uint32_t limit, pad;
    uint64_t reserved[18];
} Power;
typedef struct { uint32_t clock, least, most; uint8_t locked, deep_sleep; uint16_t pad; uint32_t reserved[4]; } Clock;
typedef struct { uint32_t render, card, hsa, hip; char hip_uuid[256]; } Enumeration;
typedef struct {
    char market_name[256];
    uint32_t vendor_id;
    char vendor_name[256];
    uint32_t subvendor_id;
    uint64_t device_id;
    uint32_t revision;
    char serial[256];
    uint32_t oam_id, units, pad;
    uint64_t graphics_version;
    uint32_t subsystem_id, reserved[21];
} __attribute__((packed)) Asic;
typedef struct { uint32_t major, minor, release, pad; const char *build; } Version;

static int started, init_code, handle;
static uint32_t watts = 217, shown;
static double fixed_s = -1;

void standin_watts(uint32_t w) { watts = w; }
void standin_shows(uint32_t w) { shown = w; } /* instead of the watts; 0: the watts */
void standin_init_code(int code) { init_code = code; }
void standin_now(double s) { fixed_s = s; }
int standin_started(void) { return started; }

static double now_s(void) {
    struct timespec t;
    if (fixed_s >= 0) return fixed_s;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
#define NEED(h) do { if (!started) return NOT_INITIALISED; if ((h) != (void *)&handle) return INVALID; } while (0)

int amdsmi_init(uint64_t flags) { (void)flags; started = !init_code; return init_code; }
int amdsmi_shut_down(void) { started = 0; return OK; }
int amdsmi_get_lib_version(Version *v) { memset(v, 0, sizeof *v); v->major = 26, v->release = 2, v->build = "standin"; return OK; }
int amdsmi_get_socket_handles(uint32_t *n, void **out) {
    if (!started) return NOT_INITIALISED;
    *n = 1;
    if (out) out[0] = &handle;
    return OK;
}
int amdsmi_get_processor_handles(void *socket, uint32_t *n, void **out) { (void)socket; return amdsmi_get_socket_handles(n, out); }
int amdsmi_get_processor_type(void *h, uint32_t *type) { NEED(h); *type = 1; return OK; }
int amdsmi_get_power_info(void *h, Power *p) {
    NEED(h);
    memset(p, 0, sizeof *p);
    p->socket = p->current = shown ? shown : watts, p->average = 0xffff;
    p->gfx_mv = p->soc_mv = p->memory_mv = 0xffff, p->limit = 750000000;
    return OK;
}
int amdsmi_get_energy_count(void *h, uint64_t *count, float *unit_uj, uint64_t *stamp_ns) {
    NEED(h);
    double ms = (double)(uint64_t)(now_s() * 1000); /* moves each millisecond */
    *count = 1000000 + (uint64_t)(ms / 1000 * watts * 65536);
    *unit_uj = 15.3f, *stamp_ns = (uint64_t)(ms * 1e6);
    return OK;
}
int amdsmi_get_temp_metric(void *h, uint32_t type, uint32_t metric, int64_t *t) {
    NEED(h);
    (void)metric;
    if (type != 1) return NOT_SUPPORTED;
    *t = 47;
    return OK;
}
int amdsmi_get_clock_info(void *h, uint32_t type, Clock *c) {
    NEED(h);
    memset(c, 0, sizeof *c);
    c->clock = type == 4 ? 1300 : 2100, c->most = 2100;
    return OK;
}
int amdsmi_get_gpu_device_bdf(void *h, uint64_t *bdf) { NEED(h); *bdf = 0xc1u << 8; return OK; }
int amdsmi_get_gpu_device_uuid(void *h, uint32_t *n, char *out) { NEED(h); (void)n; strcpy(out, "5cff74a1-0000-1000-80ab-000000000001"); return OK; }
int amdsmi_get_gpu_asic_info(void *h, Asic *a) {
    NEED(h);
    memset(a, 0, sizeof *a);
    strcpy(a->market_name, "AMD Stand-in"), strcpy(a->serial, "0x0123");
    return OK;
}
int amdsmi_get_gpu_enumeration_info(void *h, Enumeration *e) { NEED(h); memset(e, 0, sizeof *e); strcpy(e->hip_uuid, "GPU-1"); return OK; }
