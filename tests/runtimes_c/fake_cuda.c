/*
A libcuda.so.1 for tests: the driver's functions that the runtime calls, over memory of the host.
Kernels are functions of shared libraries that tests/cuda/shim.py makes of the kernels' own text;
which one a compiled file stands for is told by a hash of it.

It is as late as a driver may be: what is queued is done when somebody waits for it, and nodes of a
graph that do not depend on each other run backwards. Memory of the device cannot be touched by the
program at all. Wrong use is written down, see fake_faults, and answered by an error.

A file, named by the variable FAKE_CUDA or given to fake_start, says what the device is, and so may
fake_fact afterwards. A line for each fact:

    device NAME | capability 87 | version 12060 | integrated 0 | memory BYTES | not_ready COUNT
    module HASH cubin|ptx 87 LIBRARY | kernel NAME PARAMETERS X Y Z | newest_ptx 12060
    init ANSWER | fail NUMBER ANSWER | order 0..2
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    INVALID_PTX = 218,
    UNSUPPORTED_PTX_VERSION = 222,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    LAUNCH_FAILED = 719
};

enum { MOST_PARAMETERS = 65, MOST_QUEUED = 1 << 16, PAGE = 4096, POOL = 1 << 28, PATTERN = 0xA5, FRESH = 0xFF };

typedef enum kind { CONTEXT, STREAM, EVENT, MODULE, FUNCTION, GRAPH, NODE, EXECUTABLE } kind;

typedef struct launch_params {
    void *function;
    unsigned grid[3], block[3], shared_bytes;
    void **arguments, **extra;
} launch_params;

typedef struct copy_end {
    size_t x, y, z, level;
    int kind;
    void *host;
    uint64_t device;
    void *array, *reserved;
    size_t pitch, height;
} copy_end;

typedef struct copy_params {
    copy_end source, destination;
    size_t width, height, depth;
} copy_params;

typedef struct library_kernel {
    char name[128];
    int parameters;
    unsigned block[3];
} library_kernel;

typedef struct object object;

/* What a queue does. */
typedef struct work {
    enum { LAUNCH, COPY, SET, RECORD } type;
    object *function, *event;
    unsigned grid[3], block[3];
    uint64_t values[MOST_PARAMETERS];
    uint64_t to, from;
    size_t bytes;
    int value;
} work;

typedef struct node_state {
    object *node; /* of the graph */
    work work;
    bool enabled;
} node_state;

/* Whatever has a handle. It is kept when it is destroyed, to know its use afterwards. */
struct object {
    kind kind;
    bool alive;
    object *context, *parent; /* parent: module, graph */
    object *next;
    /* stream */
    work *queue;
    size_t queued;
    /* event */
    bool timed, recorded, done;
    int asked;
    double time;
    /* function */
    library_kernel *kernel;
    int (*run)(const void *, void **);
    void *library;
    /* node */
    work work;
    object **before;
    size_t before_count;
    /* executable */
    node_state *nodes;
    size_t node_count;
};

/* Memory between pages that nobody may touch. view: another address of the same memory. */
typedef struct memory {
    unsigned char *data, *view;
    size_t bytes, whole;
    bool host, mapped, alive;
    struct memory *next;
} memory;

typedef struct module_file {
    uint64_t hash;
    bool binary;
    int capability;
    char library[1024];
} module_file;

typedef struct count {
    const char *name;
    long calls;
    struct count *next;
} count;

static struct {
    char devices[4][128];
    int device_count, capability, version, newest_ptx, integrated, not_ready, init, order;
    long fail, calls;
    int answer;
    uint64_t most, used;
    module_file modules[64];
    int module_count;
    library_kernel kernels[1024];
    int kernel_count;
    object *objects, *primary;
    int retained;
    memory *memories;
    count *counts;
    char faults[4096];
    bool started, open;
    unsigned char *pool;
    size_t pool_used;
} fake;

static __thread object *stack[16];
static __thread int depth;

/* --- for tests ------------------------------------------------------------------------------- */

__attribute__((format(printf, 1, 2))) static int fault(const char *words, ...) {
    const size_t used = strlen(fake.faults);
    va_list arguments;
    va_start(arguments, words);
    vsnprintf(fake.faults + used, sizeof fake.faults - used - 2, words, arguments);
    va_end(arguments);
    strcat(fake.faults, "\n");
    return INVALID_VALUE;
}

const char *fake_faults(void);
long fake_calls(const char *name);
int fake_alive(void);
uint64_t fake_bytes(void);
void fake_start(const char *file);
void fake_fact(const char *line);
uint64_t fake_hash(const void *data, size_t bytes);

const char *fake_faults(void) { return fake.faults; }

/* How often a function was called; NULL: all together. */
long fake_calls(const char *name) {
    if (!name) return fake.calls;
    for (count *c = fake.counts; c; c = c->next) {
        if (!strcmp(c->name, name)) return c->calls;
    }
    return 0;
}

/* Of all memory that is allocated. */
uint64_t fake_bytes(void) {
    uint64_t bytes = 0;
    for (memory *m = fake.memories; m; m = m->next) bytes += m->alive ? m->bytes : 0;
    return bytes;
}

/* What was made and not given back. */
int fake_alive(void) {
    int alive = fake.retained + depth;
    for (object *o = fake.objects; o; o = o->next) {
        const bool with_owner = o->kind == NODE || o->kind == FUNCTION || o == fake.primary;
        alive += o->alive && !with_owner;
    }
    for (memory *m = fake.memories; m; m = m->next) alive += m->alive;
    return alive;
}

uint64_t fake_hash(const void *data, size_t bytes) { /* FNV-1a */
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ ((const unsigned char *)data)[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* Zeroed memory of the driver's own, for as long as this device is. It is not of malloc, so that a
   test may count what the runtime takes. */
static void *grab(size_t bytes) {
    if (!fake.pool) {
        fake.pool = mmap(NULL, POOL, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        fake.pool_used = 0;
    }
    unsigned char *at = fake.pool + fake.pool_used;
    fake.pool_used += (bytes + 15) / 16 * 16;
    if (fake.pool_used > POOL) abort();
    return at;
}

/* One more line of what the device is. */
void fake_fact(const char *line) {
    char word[16];
    unsigned long long number;
    module_file *m = &fake.modules[fake.module_count];
    library_kernel *k = &fake.kernels[fake.kernel_count];
    if (sscanf(line, "device %127[^\n]", fake.devices[fake.device_count]) == 1) {
        fake.device_count++;
    } else if (sscanf(line, "module %llx %15s %d %1023s", &number, word, &m->capability,
                      m->library) == 4) {
        m->hash = number;
        m->binary = !strcmp(word, "cubin");
        fake.module_count++;
    } else if (sscanf(line, "kernel %127s %d %u %u %u", k->name, &k->parameters, &k->block[0],
                      &k->block[1], &k->block[2]) == 5) {
        fake.kernel_count++;
    } else if (sscanf(line, "memory %llu", &number) == 1) {
        fake.most = number;
    } else if (sscanf(line, "fail %ld %d", &fake.fail, &fake.answer) != 2 &&
               sscanf(line, "capability %d", &fake.capability) != 1 &&
               sscanf(line, "version %d", &fake.version) != 1 &&
               sscanf(line, "newest_ptx %d", &fake.newest_ptx) != 1 &&
               sscanf(line, "integrated %d", &fake.integrated) != 1 &&
               sscanf(line, "not_ready %d", &fake.not_ready) != 1 &&
               sscanf(line, "init %d", &fake.init) != 1 &&
               sscanf(line, "order %d", &fake.order) != 1) {
        fault("no such fact: %s", line);
    }
}

/* Forget all that was, and be the device that a file describes. */
void fake_start(const char *file) {
    char line[2048];
    if (fake.pool) munmap(fake.pool, POOL);
    memset(&fake, 0, sizeof fake);
    depth = 0;
    fake.started = true;
    fake.capability = 87;
    fake.version = fake.newest_ptx = 12060;
    fake.most = UINT64_C(1) << 32;
    FILE *lines = fopen(file, "r");
    if (!lines) {
        fault("%s cannot be read", file);
        return;
    }
    while (fgets(line, sizeof line, lines)) fake_fact(line);
    fclose(lines);
}

/* In a program of its own: at its end it says what was wrong, and the program has failed. */
__attribute__((destructor)) static void at_end(void) {
    if (!getenv("FAKE_CUDA") || !fake.started) return;
    if (fake_alive()) fault("%d things were not given back", fake_alive());
    if (!fake.faults[0]) return;
    fflush(stdout);
    fprintf(stderr, "fake CUDA driver: %s", fake.faults);
    _exit(99);
}

/* Counts a call; the answer that it shall give instead of doing anything, or 0. */
static int called(const char *name) {
    if (!fake.started) fake_start(getenv("FAKE_CUDA") ? getenv("FAKE_CUDA") : "");
    count *c = fake.counts;
    while (c && strcmp(c->name, name)) c = c->next;
    if (!c) {
        c = grab(sizeof *c);
        c->name = name;
        c->next = fake.counts;
        fake.counts = c;
    }
    c->calls++;
    return ++fake.calls == fake.fail ? fake.answer : 0;
}

#define CALLED()                                                                                   \
    do {                                                                                           \
        const int answer_ = called(__func__);                                                      \
        if (answer_) return answer_;                                                               \
        if (!fake.open) return fault("%s before cuInit", __func__);                                \
    } while (0)

#define NEED(condition, ...)                                                                       \
    do {                                                                                           \
        if (!(condition)) return fault(__VA_ARGS__);                                               \
    } while (0)

/* --- handles --------------------------------------------------------------------------------- */

static object *current(void) { return depth ? stack[depth - 1] : NULL; }

static object *make(kind kind, object *parent) {
    object *o = grab(sizeof *o);
    o->kind = kind;
    o->alive = true;
    o->context = current();
    o->parent = parent;
    o->next = fake.objects;
    fake.objects = o;
    return o;
}

static const char *const kinds[] = {"context", "stream", "event",      "module",
                                    "function", "graph",  "node", "executable graph"};

static object *find(const void *handle, kind kind, const char *call) {
    for (object *o = fake.objects; o; o = o->next) {
        if (o != handle) continue;
        if (o->kind == kind && o->alive) return o;
        fault("%s: a %s %s as a %s", call, o->alive ? "living" : "dead", kinds[o->kind],
              kinds[kind]);
        return NULL;
    }
    fault("%s: no %s", call, kinds[kind]);
    return NULL;
}

/* A living thing of this kind, to be destroyed in whichever context is current. */
#define FIND_ANY(name, handle, kind)                                                               \
    object *name = find(handle, kind, __func__);                                                   \
    if (!name) return INVALID_HANDLE

/* One of the current context. */
#define FIND(name, handle, kind)                                                                   \
    FIND_ANY(name, handle, kind);                                                                  \
    if (name->context != current()) {                                                              \
        fault("%s: a %s of another context", __func__, kinds[kind]);                               \
        return INVALID_CONTEXT;                                                                    \
    }

#define NEED_CONTEXT()                                                                             \
    do {                                                                                           \
        if (!current() || !current()->alive) {                                                     \
            fault("%s: there is no current context", __func__);                                    \
            return INVALID_CONTEXT;                                                                \
        }                                                                                          \
    } while (0)

/* --- memory ---------------------------------------------------------------------------------- */

/* Memory of the device can be touched only while this is open. */
static void open_memory(bool open) {
    for (memory *m = fake.memories; m; m = m->next) {
        if (m->alive && (!m->host || m->mapped)) {
            unsigned char *start = (unsigned char *)((uintptr_t)m->view / PAGE * PAGE);
            mprotect(start, m->whole, open ? PROT_READ | PROT_WRITE : PROT_NONE);
        }
    }
}

static unsigned char *reserve(size_t whole, int file) {
    unsigned char *all = mmap(NULL, whole + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mmap(all + PAGE, whole, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
    return all + PAGE;
}

static memory *allocate(size_t bytes, bool host, bool mapped) {
    memory *m = grab(sizeof *m);
    const size_t offset = 256; /* of the first page: allocations are aligned no better */
    m->whole = (offset + bytes + PAGE - 1) / PAGE * PAGE;
    const int file = memfd_create("memory", 0);
    if (ftruncate(file, (off_t)m->whole)) abort();
    unsigned char *start = reserve(m->whole, file);
    memset(start, PATTERN, m->whole);
    memset(start + offset, FRESH, bytes);
    m->data = m->view = start + offset;
    if (mapped) m->view = reserve(m->whole, file) + offset;
    close(file);
    *m = (memory){m->data, m->view, bytes, m->whole, host, mapped, true, fake.memories};
    fake.memories = m;
    open_memory(false);
    return m;
}

static int give_back(memory *m, const char *call) {
    open_memory(true);
    const unsigned char *page = m->data - 256;
    for (size_t i = 0; i < m->whole; i++) {
        const bool guard = i < 256 || i >= 256 + m->bytes;
        if (guard && page[i] != PATTERN) {
            fault("%s: memory beside an allocation was written", call);
            break;
        }
    }
    munmap(m->data - 256 - PAGE, m->whole + 2 * PAGE);
    if (m->view != m->data) munmap(m->view - 256 - PAGE, m->whole + 2 * PAGE);
    m->alive = false;
    if (!m->host) fake.used -= m->bytes;
    open_memory(false);
    return 0;
}

/* The living memory that has these bytes at an address of the device or, if allowed, the host. */
static memory *holder(uint64_t address, size_t bytes, bool host) {
    for (memory *m = fake.memories; m; m = m->next) {
        const bool device = !m->host || m->mapped;
        const uint64_t starts[] = {(uintptr_t)m->view, (uintptr_t)m->data};
        for (int i = device ? 0 : 1; i < (host && m->host ? 2 : 1); i++) {
            const bool inside = address >= starts[i] && address - starts[i] <= m->bytes &&
                                bytes <= m->bytes - (address - starts[i]);
            if (m->alive && inside) return m;
        }
    }
    return NULL;
}

/* --- queues ---------------------------------------------------------------------------------- */

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

static void push(object *stream, const work *work) {
    if (stream->queued == MOST_QUEUED) abort();
    stream->queue[stream->queued++] = *work;
}

static bool in_memory(const work *work) {
    if (work->type == COPY) {
        return holder(work->to, work->bytes, true) && holder(work->from, work->bytes, true);
    }
    if (work->type == SET) return holder(work->to, work->bytes, false);
    for (int i = 0; work->type == LAUNCH && i < work->function->kernel->parameters; i++) {
        if (!holder(work->values[i], 4, false)) return false;
    }
    return true;
}

static int do_work(work *work) {
    struct {
        unsigned grid[3], block[3], order, seed;
    } launch;
    void *pointers[MOST_PARAMETERS];
    if (!in_memory(work)) return fault("work in memory that was freed");
    switch (work->type) {
    case LAUNCH:
        for (int i = 0; i < MOST_PARAMETERS; i++) pointers[i] = &work->values[i];
        memcpy(launch.grid, work->grid, sizeof launch.grid);
        memcpy(launch.block, work->block, sizeof launch.block);
        launch.order = (unsigned)fake.order;
        launch.seed = 1;
        return work->function->run(&launch, pointers) ? 0 : LAUNCH_FAILED; /* threads met */
    case COPY:
        memmove((void *)(uintptr_t)work->to, (void *)(uintptr_t)work->from, work->bytes);
        return 0;
    case SET: memset((void *)(uintptr_t)work->to, work->value, work->bytes); return 0;
    case RECORD:
        work->event->done = true;
        work->event->time = now();
        return 0;
    }
    return 0;
}

/* Do all that is queued. */
static int drain(object *stream) {
    int answer = 0;
    open_memory(true);
    for (size_t i = 0; i < stream->queued && !answer; i++) answer = do_work(&stream->queue[i]);
    stream->queued = 0;
    open_memory(false);
    return answer;
}

static int drain_all(void) {
    int answer = 0;
    for (object *o = fake.objects; o && !answer; o = o->next) {
        if (o->kind == STREAM && o->alive) answer = drain(o);
    }
    return answer;
}

static bool anything_queued(void) {
    for (object *o = fake.objects; o; o = o->next) {
        if (o->kind == STREAM && o->alive && o->queued) return true;
    }
    return false;
}

/* --- the driver ------------------------------------------------------------------------------ */

#define API __attribute__((visibility("default")))

API int cuInit(unsigned flags) {
    const int answer = called(__func__);
    if (answer) return answer;
    NEED(!flags, "cuInit: flags");
    if (fake.init) return fake.init;
    if (!fake.device_count) return NO_DEVICE;
    fake.open = true;
    return 0;
}

API int cuDriverGetVersion(int *version) {
    CALLED();
    *version = fake.version;
    return 0;
}

/* It is asked for the names of answers and not counted. */
API int cuGetErrorName(int answer, const char **name) {
    static const struct {
        int answer;
        const char *name;
    } names[] = {{1, "CUDA_ERROR_INVALID_VALUE"},
                 {2, "CUDA_ERROR_OUT_OF_MEMORY"},
                 {3, "CUDA_ERROR_NOT_INITIALIZED"},
                 {100, "CUDA_ERROR_NO_DEVICE"},
                 {200, "CUDA_ERROR_INVALID_IMAGE"},
                 {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
                 {218, "CUDA_ERROR_INVALID_PTX"},
                 {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
                 {719, "CUDA_ERROR_LAUNCH_FAILED"},
                 {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
                 {999, "CUDA_ERROR_UNKNOWN"}};
    *name = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (names[i].answer == answer) *name = names[i].name;
    }
    return *name ? 0 : INVALID_VALUE;
}

API int cuDeviceGetCount(int *number) {
    CALLED();
    *number = fake.device_count;
    return 0;
}

API int cuDeviceGet(int *device, int ordinal) {
    CALLED();
    if (ordinal < 0 || ordinal >= fake.device_count) return INVALID_DEVICE;
    *device = ordinal;
    return 0;
}

API int cuDeviceGetName(char *name, int length, int device) {
    CALLED();
    NEED(device >= 0 && device < fake.device_count && length > 0, "cuDeviceGetName: arguments");
    snprintf(name, (size_t)length, "%s", fake.devices[device]);
    return 0;
}

API int cuDeviceGetAttribute(int *value, int attribute, int device) {
    CALLED();
    NEED(device >= 0 && device < fake.device_count, "cuDeviceGetAttribute: device %d", device);
    switch (attribute) {
    case 1: *value = 1024; return 0;
    case 8: *value = 49152; return 0;
    case 18: *value = fake.integrated; return 0;
    case 19: *value = 1; return 0;
    case 75: *value = fake.capability / 10; return 0;
    case 76: *value = fake.capability % 10; return 0;
    }
    return fault("cuDeviceGetAttribute: %d", attribute);
}

API int cuDevicePrimaryCtxRetain(object **context, int device) {
    CALLED();
    NEED(device >= 0 && device < fake.device_count, "cuDevicePrimaryCtxRetain: device");
    if (!fake.primary) fake.primary = make(CONTEXT, NULL);
    fake.primary->alive = true;
    fake.retained++;
    *context = fake.primary;
    return 0;
}

API int cuDevicePrimaryCtxRelease_v2(int device) {
    const int answer = called(__func__);
    NEED(device >= 0 && fake.retained > 0, "cuDevicePrimaryCtxRelease: it was not retained");
    if (!--fake.retained) fake.primary->alive = false;
    return answer;
}

API int cuCtxCreate_v2(object **context, unsigned flags, int device) {
    CALLED();
    NEED(!flags && device >= 0, "cuCtxCreate: arguments");
    *context = make(CONTEXT, NULL);
    return 0;
}

API int cuCtxDestroy_v2(object *context) {
    const int answer = called(__func__);
    if (!find(context, CONTEXT, __func__)) return INVALID_CONTEXT;
    context->alive = false;
    return answer;
}

API int cuCtxPushCurrent_v2(object *context) {
    CALLED();
    if (!find(context, CONTEXT, __func__)) return INVALID_CONTEXT;
    NEED(depth < 16, "cuCtxPushCurrent: too deep");
    stack[depth++] = context;
    return 0;
}

API int cuCtxPopCurrent_v2(object **context) {
    const int answer = called(__func__);
    NEED(depth > 0, "cuCtxPopCurrent: nothing is there");
    *context = stack[--depth];
    return answer;
}

API int cuCtxGetDevice(int *device) {
    CALLED();
    NEED_CONTEXT();
    *device = 0;
    return 0;
}

API int cuStreamCreate(object **stream, unsigned flags) {
    CALLED();
    NEED_CONTEXT();
    NEED(flags <= 1, "cuStreamCreate: flags");
    *stream = make(STREAM, NULL);
    (*stream)->queue = grab(MOST_QUEUED * sizeof(work));
    return 0;
}

API int cuStreamDestroy_v2(object *stream) {
    const int answer = called(__func__);
    FIND_ANY(found, stream, STREAM);
    NEED(!found->queued, "cuStreamDestroy: with work in it");
    found->alive = false;
    return answer;
}

API int cuStreamGetCtx(object *stream, object **context) {
    CALLED();
    object *found = find(stream, STREAM, __func__);
    if (!found) return INVALID_HANDLE;
    *context = found->context;
    return 0;
}

API int cuStreamSynchronize(object *stream) {
    const int answer = called(__func__);
    FIND_ANY(found, stream, STREAM);
    const int end = drain(found);
    return answer ? answer : end;
}

API int cuEventCreate(object **event, unsigned flags) {
    CALLED();
    NEED_CONTEXT();
    NEED(flags <= 3, "cuEventCreate: flags");
    *event = make(EVENT, NULL);
    (*event)->timed = !(flags & 2);
    return 0;
}

API int cuEventDestroy_v2(object *event) {
    const int answer = called(__func__);
    FIND_ANY(found, event, EVENT);
    found->alive = false;
    return answer;
}

API int cuEventRecord(object *event, object *stream) {
    CALLED();
    FIND(e, event, EVENT);
    FIND(s, stream, STREAM);
    e->recorded = true;
    e->done = false;
    e->asked = 0;
    e->parent = s;
    const work work = {.type = RECORD, .event = e};
    push(s, &work);
    return 0;
}

API int cuEventQuery(object *event) {
    CALLED();
    FIND(found, event, EVENT);
    if (!found->recorded || found->done) return 0;
    if (found->asked++ < fake.not_ready) return NOT_READY;
    return drain(found->parent);
}

API int cuEventSynchronize(object *event) {
    CALLED();
    FIND(found, event, EVENT);
    return found->recorded && !found->done ? drain(found->parent) : 0;
}

API int cuEventElapsedTime(float *milliseconds, object *start, object *end) {
    CALLED();
    FIND(a, start, EVENT);
    FIND(b, end, EVENT);
    NEED(a->timed && b->timed && a->recorded && b->recorded, "cuEventElapsedTime: no times");
    if (!a->done || !b->done) return NOT_READY;
    *milliseconds = (float)(b->time - a->time);
    return 0;
}

/* --- modules --------------------------------------------------------------------------------- */

/* Bytes of a compiled file: an ELF file's end is in its headers, PTX is a C string. */
static size_t image_bytes(const unsigned char *image) {
    uint64_t programs, sections;
    uint16_t sizes[4]; /* of program and section headers: size, number */
    if (memcmp(image, "\x7f" "ELF", 4)) return strlen((const char *)image);
    memcpy(&programs, image + 32, 8);
    memcpy(&sections, image + 40, 8);
    memcpy(sizes, image + 54, 8);
    uint64_t end = programs + (uint64_t)sizes[0] * sizes[1];
    const uint64_t section_end = sections + (uint64_t)sizes[2] * sizes[3];
    if (section_end > end) end = section_end;
    for (unsigned i = 0; i < sizes[3]; i++) {
        const unsigned char *header = image + sections + i * sizes[2];
        uint32_t type;
        uint64_t place, bytes;
        memcpy(&type, header + 4, 4);
        memcpy(&place, header + 24, 8);
        memcpy(&bytes, header + 32, 8);
        if (type != 8 && place + bytes > end) end = place + bytes;
    }
    return (size_t)end;
}

API int cuModuleLoadDataEx(object **module, const void *image, unsigned count, const int *options,
                           void **values) {
    CALLED();
    NEED_CONTEXT();
    const uint64_t hash = fake_hash(image, image_bytes(image));
    char *log = NULL;
    size_t room = 0;
    for (unsigned i = 0; i < count; i++) {
        if (options[i] == 5) log = values[i];
        else if (options[i] == 6) room = (unsigned)(uintptr_t)values[i];
        else return fault("cuModuleLoadDataEx: option %d", options[i]);
    }
    const module_file *file = NULL;
    for (int i = 0; i < fake.module_count; i++) {
        if (fake.modules[i].hash == hash) file = &fake.modules[i];
    }
    if (!file) return INVALID_IMAGE;
    const bool major = file->capability / 10 == fake.capability / 10;
    if (file->binary && (!major || file->capability > fake.capability)) return NO_BINARY_FOR_GPU;
    if (file->capability > fake.capability) return INVALID_PTX;
    if (!file->binary && fake.version < fake.newest_ptx) {
        if (log) snprintf(log, room, "ptxas application ptx input, line 9; fatal : too new\n");
        return UNSUPPORTED_PTX_VERSION;
    }
    void *library = dlopen(file->library, RTLD_NOW | RTLD_LOCAL);
    if (!library) return fault("%s", dlerror());
    *module = make(MODULE, NULL);
    (*module)->library = library;
    return 0;
}

API int cuModuleUnload(object *module) {
    const int answer = called(__func__);
    FIND_ANY(found, module, MODULE);
    NEED(!anything_queued(), "cuModuleUnload: there is work");
    for (object *o = fake.objects; o; o = o->next) {
        if (o->kind == FUNCTION && o->parent == found) o->alive = false;
        if (o->kind != NODE || !o->alive || o->work.type != LAUNCH) continue;
        if (o->work.function->parent == found) return fault("cuModuleUnload: a graph uses it");
    }
    found->alive = false;
    dlclose(found->library);
    return answer;
}

API int cuModuleGetFunction(object **function, object *module, const char *name) {
    CALLED();
    FIND(found, module, MODULE);
    char symbol[160];
    snprintf(symbol, sizeof symbol, "shim_%s", name);
    void *run = dlsym(found->library, symbol);
    for (int i = 0; run && i < fake.kernel_count; i++) {
        if (strcmp(fake.kernels[i].name, name)) continue;
        *function = make(FUNCTION, found);
        (*function)->kernel = &fake.kernels[i];
        memcpy(&(*function)->run, &run, sizeof run);
        return 0;
    }
    return NOT_FOUND;
}

/* --- memory and copies ----------------------------------------------------------------------- */

API int cuMemGetInfo_v2(size_t *unused, size_t *all) {
    CALLED();
    NEED_CONTEXT();
    *unused = (size_t)(fake.most - fake.used);
    *all = (size_t)fake.most;
    return 0;
}

API int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
    CALLED();
    NEED_CONTEXT();
    NEED(bytes, "cuMemAlloc: nothing");
    if (bytes > fake.most - fake.used) return OUT_OF_MEMORY;
    fake.used += bytes;
    *address = (uintptr_t)allocate(bytes, false, false)->data;
    return 0;
}

API int cuMemFree_v2(uint64_t address) {
    const int answer = called(__func__);
    NEED(!anything_queued(), "cuMemFree: there is work");
    for (memory *m = fake.memories; m; m = m->next) {
        if (!m->alive || m->host || (uintptr_t)m->data != address) continue;
        give_back(m, __func__);
        return answer;
    }
    return fault("cuMemFree: there is no such memory");
}

API int cuMemHostAlloc(void **host, size_t bytes, unsigned flags) {
    CALLED();
    NEED_CONTEXT();
    NEED(bytes && !(flags & ~3u), "cuMemHostAlloc: arguments");
    *host = allocate(bytes, true, flags & 2)->data;
    return 0;
}

API int cuMemFreeHost(void *host) {
    const int answer = called(__func__);
    NEED(!anything_queued(), "cuMemFreeHost: there is work");
    for (memory *m = fake.memories; m; m = m->next) {
        if (!m->alive || !m->host || m->data != host) continue;
        give_back(m, __func__);
        return answer;
    }
    return fault("cuMemFreeHost: there is no such memory");
}

API int cuMemHostGetDevicePointer_v2(uint64_t *address, void *host, unsigned flags) {
    CALLED();
    NEED_CONTEXT();
    for (memory *m = fake.memories; m; m = m->next) {
        if (!m->alive || !m->mapped || m->data != host || flags) continue;
        *address = (uintptr_t)m->view;
        return 0;
    }
    return fault("cuMemHostGetDevicePointer: the memory is not mapped");
}

API int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
    CALLED();
    NEED_CONTEXT();
    NEED(holder(to, bytes, false) && bytes, "cuMemcpyHtoD: outside of memory");
    const int answer = drain_all();
    open_memory(true);
    memcpy((void *)(uintptr_t)to, from, bytes);
    open_memory(false);
    return answer;
}

API int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) {
    CALLED();
    NEED_CONTEXT();
    NEED(holder(from, bytes, false) && bytes, "cuMemcpyDtoH: outside of memory");
    const int answer = drain_all();
    open_memory(true);
    memcpy(to, (void *)(uintptr_t)from, bytes);
    open_memory(false);
    return answer;
}

API int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, object *stream) {
    CALLED();
    FIND(found, stream, STREAM);
    const work work = {.type = COPY, .to = to, .from = from, .bytes = bytes};
    NEED(bytes && in_memory(&work), "cuMemcpyAsync: outside of memory, or of memory not pinned");
    push(found, &work);
    return 0;
}

API int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, object *stream) {
    CALLED();
    FIND(found, stream, STREAM);
    const work work = {.type = SET, .to = to, .bytes = bytes, .value = value};
    NEED(bytes && in_memory(&work), "cuMemsetD8Async: outside of memory");
    push(found, &work);
    return 0;
}

/* --- launches and graphs --------------------------------------------------------------------- */

static int check_launch(const launch_params *params, work *work, const char *call) {
    FIND(function, params->function, FUNCTION);
    *work = (struct work){.type = LAUNCH, .function = function};
    for (int i = 0; i < 3; i++) {
        const unsigned most = i ? 65535 : 2147483647;
        NEED(params->grid[i] && params->grid[i] <= most, "%s: grid %u", call, params->grid[i]);
        NEED(params->block[i] == function->kernel->block[i], "%s: block %u", call, params->block[i]);
        work->grid[i] = params->grid[i];
        work->block[i] = params->block[i];
    }
    NEED(!params->shared_bytes && !params->extra, "%s: shared memory or extra", call);
    for (int i = 0; i < function->kernel->parameters; i++) {
        memcpy(&work->values[i], params->arguments[i], sizeof(uint64_t));
        NEED(work->values[i] % 256 == 0, "%s: argument %d is not aligned", call, i);
    }
    NEED(in_memory(work), "%s: an argument outside of the device's memory", call);
    return 0;
}

static int check_copy(const copy_params *params, work *work, const char *call) {
    const copy_end *ends[] = {&params->source, &params->destination};
    for (int i = 0; i < 2; i++) {
        const copy_end *end = ends[i];
        NEED(!end->x && !end->y && !end->z && !end->level && !end->host && !end->array &&
                 !end->reserved && end->kind == 4,
             "%s: an end", call);
    }
    NEED(params->width && params->height == 1 && params->depth == 1, "%s: sizes", call);
    *work = (struct work){.type = COPY, .to = params->destination.device,
                          .from = params->source.device, .bytes = params->width};
    NEED(holder(work->to, work->bytes, false) && holder(work->from, work->bytes, false),
         "%s: outside of memory", call);
    return 0;
}

#define TRY(call)                                                                                  \
    do {                                                                                           \
        const int tried_ = (call);                                                                 \
        if (tried_) return tried_;                                                                 \
    } while (0)

API int cuLaunchKernel(object *function, unsigned x, unsigned y, unsigned z, unsigned block_x,
                       unsigned block_y, unsigned block_z, unsigned shared_bytes, object *stream,
                       void **arguments, void **extra) {
    CALLED();
    FIND(found, stream, STREAM);
    const launch_params params = {function,           {x, y, z}, {block_x, block_y, block_z},
                                  shared_bytes, arguments, extra};
    work work;
    TRY(check_launch(&params, &work, __func__));
    push(found, &work);
    return 0;
}

API int cuGraphCreate(object **graph, unsigned flags) {
    CALLED();
    NEED(!flags, "cuGraphCreate: flags");
    *graph = make(GRAPH, NULL);
    return 0;
}

API int cuGraphDestroy(object *graph) {
    const int answer = called(__func__);
    FIND_ANY(found, graph, GRAPH);
    for (object *o = fake.objects; o; o = o->next) {
        if (o->kind == NODE && o->parent == found) o->alive = false;
    }
    found->alive = false;
    return answer;
}

static int add_node(object **node, object *graph, object *const *before, size_t count,
                    const work *work, const char *call) {
    for (size_t i = 0; i < count; i++) {
        object *found = find(before[i], NODE, call);
        if (!found || found->parent != graph) return fault("%s: dependencies", call);
    }
    *node = make(NODE, graph);
    (*node)->work = *work;
    (*node)->before = grab(count * sizeof(object *));
    if (count) memcpy((*node)->before, before, count * sizeof *before);
    (*node)->before_count = count;
    return 0;
}

API int cuGraphAddKernelNode(object **node, object *graph, object *const *before, size_t count,
                             const launch_params *params) {
    CALLED();
    FIND(found, graph, GRAPH);
    work work;
    TRY(check_launch(params, &work, __func__));
    return add_node(node, found, before, count, &work, __func__);
}

API int cuGraphAddMemcpyNode(object **node, object *graph, object *const *before, size_t count,
                             const copy_params *params, object *context) {
    CALLED();
    FIND(found, graph, GRAPH);
    NEED(context == current(), "cuGraphAddMemcpyNode: the context");
    work work;
    TRY(check_copy(params, &work, __func__));
    return add_node(node, found, before, count, &work, __func__);
}

/* Nodes in an order that their dependencies allow: as far as that, the last made comes first. */
API int cuGraphInstantiateWithFlags(object **executable, object *graph, unsigned long long flags) {
    CALLED();
    FIND(found, graph, GRAPH);
    NEED(!flags, "cuGraphInstantiate: flags");
    size_t count = 0;
    for (object *o = fake.objects; o; o = o->next) count += o->kind == NODE && o->parent == found;
    object *made = make(EXECUTABLE, found);
    made->nodes = grab(count * sizeof *made->nodes);
    while (made->node_count < count) {
        object *next = NULL;
        for (object *o = fake.objects; o && !next; o = o->next) { /* the last made is the first */
            if (o->kind != NODE || o->parent != found) continue;
            bool ready = true, taken = false;
            for (size_t i = 0; i < o->before_count; i++) {
                bool there = false;
                for (size_t j = 0; j < made->node_count; j++) {
                    there = there || made->nodes[j].node == o->before[i];
                }
                ready = ready && there;
            }
            for (size_t j = 0; j < made->node_count; j++) {
                taken = taken || made->nodes[j].node == o;
            }
            if (ready && !taken) next = o;
        }
        made->nodes[made->node_count++] = (node_state){next, next->work, true};
    }
    *executable = made;
    return 0;
}

API int cuGraphExecDestroy(object *executable) {
    const int answer = called(__func__);
    FIND_ANY(found, executable, EXECUTABLE);
    NEED(!anything_queued(), "cuGraphExecDestroy: there is work");
    found->alive = false;
    return answer;
}

static int find_node(object *executable, object *node, const char *call, node_state **state) {
    FIND(found, executable, EXECUTABLE);
    if (!find(node, NODE, call)) return INVALID_VALUE;
    NEED(found->parent->alive, "%s: the graph was destroyed", call);
    for (size_t i = 0; i < found->node_count; i++) {
        *state = &found->nodes[i];
        if ((*state)->node == node) return 0;
    }
    return fault("%s: a node of another graph", call);
}

API int cuGraphExecKernelNodeSetParams(object *executable, object *node,
                                       const launch_params *params) {
    CALLED();
    node_state *state;
    work work;
    TRY(find_node(executable, node, __func__, &state));
    TRY(check_launch(params, &work, __func__));
    NEED(state->work.type == LAUNCH, "cuGraphExecKernelNodeSetParams: a node of another kind");
    state->work = work;
    return 0;
}

API int cuGraphExecMemcpyNodeSetParams(object *executable, object *node, const copy_params *params,
                                       object *context) {
    CALLED();
    node_state *state;
    work work;
    TRY(find_node(executable, node, __func__, &state));
    TRY(check_copy(params, &work, __func__));
    NEED(state->work.type == COPY && context == current(),
         "cuGraphExecMemcpyNodeSetParams: a node of another kind, or context");
    state->work = work;
    return 0;
}

API int cuGraphNodeSetEnabled(object *executable, object *node, unsigned enabled) {
    CALLED();
    node_state *state;
    TRY(find_node(executable, node, __func__, &state));
    state->enabled = enabled;
    return 0;
}

API int cuGraphUpload(object *executable, object *stream) {
    CALLED();
    FIND(found, executable, EXECUTABLE);
    FIND(to, stream, STREAM);
    (void)found;
    (void)to;
    return 0;
}

API int cuGraphLaunch(object *executable, object *stream) {
    CALLED();
    FIND(found, executable, EXECUTABLE);
    FIND(to, stream, STREAM);
    for (size_t i = 0; i < found->node_count; i++) {
        if (found->nodes[i].enabled) push(to, &found->nodes[i].work);
    }
    return 0;
}
