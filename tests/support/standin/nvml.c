/* A stand-in for NVIDIA's driver library, so that the real pynvml is driven through real ctypes calls.
 *
 * Written independently of the Python emulator, with which the tests compare it. One GPU, one square-wave load, a
 * boxcar sensor: a reading taken at floor(t / period) * period is the mean power of the window before it; the average
 * is that of a second at the same instants; the counter is the integral at instants of its own; a ring of 120 samples.
 * Layouts and return codes: nvml.h. The standin_* functions below are the test's handles on it.
 *
 *     cc -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 nvml.c -o libnvidia-ml.so.1 -lm
 */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, SIZE = 7, LOST = 15 };
enum { RING = 120 };

typedef union { double d; unsigned u; unsigned long ul; unsigned long long ull; long long sll; int s; unsigned short us; } Value;
typedef struct {
    uint32_t field, scope;
    int64_t stamp_us, latency_us;
    uint32_t type, code;
    Value value;
} Field; /* 40 bytes */
typedef struct { unsigned long long stamp_us; Value value; } Sample; /* 16 bytes */
typedef struct { char legacy[16]; uint32_t domain, bus, device, id, subsystem; char bus_id[32]; } Pci; /* 68 bytes */
typedef struct { uint32_t version, sensor; int32_t celsius; } Temperature; /* 12 bytes */

static struct {
    double now_s, low_w, high_w, hz, period_s, window_s, counter_s;
    int has_average, has_energy, init_code, lost, references;
    double restart_s;
    char driver[32];
} gpu;

static int device; /* the handle is its address */
static const char *uuid = "GPU-5ca1ab1e-0000-0000-0000-000000000001";
static const char *bus_id = "00000000:3B:00.0";

void standin_reset(void) {
    memset(&gpu, 0, sizeof gpu);
    gpu.now_s = NAN; /* the clock of this machine */
    gpu.low_w = 100, gpu.high_w = 300, gpu.hz = 0.7;
    gpu.period_s = 0.1, gpu.window_s = 0.025, gpu.counter_s = 0.1;
    gpu.has_average = gpu.has_energy = 1;
    strcpy(gpu.driver, "570.86.15");
}
__attribute__((constructor)) static void loaded(void) { standin_reset(); }

void standin_now(double unix_s) { gpu.now_s = unix_s; }
void standin_sensor(double period_s, double window_s, double counter_s) {
    gpu.period_s = period_s, gpu.window_s = window_s, gpu.counter_s = counter_s;
}
void standin_load(double low_w, double high_w, double hz) { gpu.low_w = low_w, gpu.high_w = high_w, gpu.hz = hz; }
void standin_has(int average, int energy) { gpu.has_average = average, gpu.has_energy = energy; }
void standin_fail(int init_code, int lost) { gpu.init_code = init_code, gpu.lost = lost; }
void standin_restart(void);
int standin_references(void) { return gpu.references; }

static double now_s(void) {
    if (!isnan(gpu.now_s)) return gpu.now_s;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static double joules(double t) { /* integral of the square wave from 0 */
    double turns = t * gpu.hz, whole = floor(turns), part = turns - whole;
    return gpu.low_w * t + (gpu.high_w - gpu.low_w) * (whole * 0.5 + fmin(part, 0.5)) / gpu.hz;
}
static double tick(double period) { return floor(now_s() / period) * period; }
static double mean(double end, double window) { return (joules(end) - joules(end - window)) / window; }
static unsigned milliwatts(double w) { return (unsigned)lround(w * 1000); }
static unsigned long long millijoules(void) {
    return (unsigned long long)floor((joules(tick(gpu.counter_s)) - joules(gpu.restart_s)) * 1000);
}
void standin_restart(void) { gpu.restart_s = tick(gpu.counter_s) - 0.01; }

static int ready(void *handle) {
    if (!gpu.references) return UNINITIALIZED;
    if (handle != &device) return INVALID;
    return gpu.lost ? LOST : OK;
}
#define NEED(handle) do { int code_ = ready(handle); if (code_) return code_; } while (0)

int nvmlInitWithFlags(unsigned flags) { (void)flags; if (gpu.init_code) return gpu.init_code; gpu.references++; return OK; }
int nvmlShutdown(void) { if (!gpu.references) return UNINITIALIZED; gpu.references--; return OK; }
const char *nvmlErrorString(int code) { static char s[32]; snprintf(s, sizeof s, "stand-in %d", code); return s; }
static int text(char *out, unsigned size, const char *s) { if (strlen(s) >= size) return SIZE; strcpy(out, s); return OK; }
int nvmlSystemGetDriverVersion(char *out, unsigned size) { return text(out, size, gpu.driver); }
int nvmlSystemGetNVMLVersion(char *out, unsigned size) { return text(out, size, gpu.driver); }
int nvmlDeviceGetCount_v2(unsigned *n) { if (!gpu.references) return UNINITIALIZED; *n = 1; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) {
    if (!gpu.references) return UNINITIALIZED;
    if (i) return INVALID;
    *h = &device;
    return OK;
}
int nvmlDeviceGetHandleByUUID(const char *s, void **h) {
    if (!gpu.references) return UNINITIALIZED;
    if (strcmp(s, uuid)) return NOT_FOUND;
    *h = &device;
    return OK;
}
int nvmlDeviceGetName(void *h, char *out, unsigned size) { NEED(h); return text(out, size, "NVIDIA Stand-in"); }
int nvmlDeviceGetUUID(void *h, char *out, unsigned size) { NEED(h); return text(out, size, uuid); }
int nvmlDeviceGetPciInfo_v3(void *h, Pci *p) {
    NEED(h);
    memset(p, 0, sizeof *p);
    p->bus = 0x3b;
    strcpy(p->bus_id, bus_id), strcpy(p->legacy, bus_id + 4);
    return OK;
}
int nvmlDeviceGetArchitecture(void *h, unsigned *a) { NEED(h); *a = 9; return OK; }
int nvmlDeviceGetCudaComputeCapability(void *h, int *a, int *b) { NEED(h); *a = 9, *b = 0; return OK; }
int nvmlDeviceGetPowerManagementLimitConstraints(void *h, unsigned *a, unsigned *b) { NEED(h); *a = 100000, *b = 700000; return OK; }
int nvmlDeviceGetTemperature(void *h, int sensor, unsigned *t) { NEED(h); (void)sensor; *t = 41; return OK; }
int nvmlDeviceGetTemperatureV(void *h, Temperature *t) {
    NEED(h);
    if (t->version != 0x100000c) return 25; /* argument version mismatch */
    t->celsius = 41;
    return OK;
}
int nvmlDeviceGetClockInfo(void *h, int type, unsigned *mhz) { NEED(h); *mhz = type == 2 ? 2619 : 1755; return OK; }
int nvmlDeviceGetPowerUsage(void *h, unsigned *mw) { NEED(h); *mw = milliwatts(mean(tick(gpu.period_s), 1.0)); return OK; }
int nvmlDeviceGetTotalEnergyConsumption(void *h, unsigned long long *mj) {
    NEED(h);
    if (!gpu.has_energy) return NOT_SUPPORTED;
    *mj = millijoules();
    return OK;
}
int nvmlDeviceGetFieldValues(void *h, int n, Field *f) {
    NEED(h);
    for (int i = 0; i < n; i++) {
        double at = tick(f[i].field == 83 ? gpu.counter_s : gpu.period_s);
        f[i].stamp_us = (int64_t)llround(at * 1e6);
        f[i].latency_us = 12, f[i].type = 1, f[i].code = NOT_SUPPORTED, f[i].value.ull = 0;
        if (f[i].scope) continue;
        if (f[i].field == 186) f[i].value.u = milliwatts(mean(at, gpu.window_s)), f[i].code = OK;
        if (f[i].field == 185 && gpu.has_average) f[i].value.u = milliwatts(mean(at, 1.0)), f[i].code = OK;
        if (f[i].field == 83 && gpu.has_energy) f[i].value.ull = millijoules(), f[i].type = 3, f[i].code = OK;
    }
    return OK;
}
int nvmlDeviceGetSamples(void *h, int type, unsigned long long last, int *value_type, unsigned *count, Sample *out) {
    NEED(h);
    if (type) return NOT_SUPPORTED;
    double newest = tick(gpu.period_s);
    unsigned n = 0;
    for (int i = RING - 1; i >= 0; i--) {
        double at = newest - i * gpu.period_s;
        unsigned long long stamp = (unsigned long long)llround((at + 5e8) * 1e6); /* an epoch of its own */
        if (stamp <= last) continue;
        if (out) out[n].stamp_us = stamp, out[n].value.u = milliwatts(mean(at, gpu.window_s));
        n++;
    }
    *count = n, *value_type = 1;
    return n ? OK : NOT_FOUND;
}
