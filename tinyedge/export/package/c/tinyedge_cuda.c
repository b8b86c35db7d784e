/* The CUDA backend: bundles of target cuda on NVIDIA's GPUs, by the driver's API alone. All is made
   at creation; a run copies inputs and outputs and launches one graph, or one for each straight
   piece of an entry with branches. */
#include "tinyedge_internal.h"

#include <stdio.h>
#include <string.h>

#define TOTAL(kind) (model->totals[TE_N_##kind])

/* --- the driver, as much as is used ----------------------------------------------------------- */

typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef uint64_t CUdeviceptr;

typedef struct launch_node {
    CUfunction function;
    unsigned grid[3], block[3], shared_bytes;
    void **arguments, **extra;
} launch_node;

typedef struct copy_end {
    size_t x, y, z, level;
    int kind;
    void *host;
    CUdeviceptr device;
    void *array, *reserved;
    size_t pitch, height;
} copy_end;

typedef struct copy_node {
    copy_end source, destination;
    size_t width, height, depth;
} copy_node;

enum {
    /* answers */
    OUT_OF_MEMORY = 2,
    NO_BINARY_FOR_GPU = 209,
    INVALID_IMAGE = 200,
    INVALID_PTX = 218,
    JIT_COMPILER_NOT_FOUND = 221,
    UNSUPPORTED_PTX_VERSION = 222,
    NOT_READY = 600,
    /* facts about a device */
    MAX_THREADS_PER_BLOCK = 1,
    MAX_SHARED_MEMORY_PER_BLOCK = 8,
    INTEGRATED = 18,
    CAN_MAP_HOST_MEMORY = 19,
    CAPABILITY_MAJOR = 75,
    CAPABILITY_MINOR = 76,
    /* options */
    EVENT_BLOCKING = 1,
    EVENT_NO_TIME = 2,
    HOST_MEMORY_MAPPED = 2,
    ERROR_LOG = 5,
    ERROR_LOG_BYTES = 6,
    MEMORY_BY_ADDRESS = 4
};

/* Name, version and parameters of every function; all give 0 or the number of an error. */
#define FUNCTIONS(X)                                                                               \
    X(cuInit, , (unsigned))                                                                        \
    X(cuDriverGetVersion, , (int *))                                                               \
    X(cuGetErrorName, , (int, const char **))                                                      \
    X(cuDeviceGetCount, , (int *))                                                                 \
    X(cuDeviceGet, , (int *, int))                                                                 \
    X(cuDeviceGetName, , (char *, int, int))                                                       \
    X(cuDeviceGetAttribute, , (int *, int, int))                                                   \
    X(cuDevicePrimaryCtxRetain, , (CUcontext *, int))                                              \
    X(cuDevicePrimaryCtxRelease, _v2, (int))                                                       \
    X(cuCtxPushCurrent, _v2, (CUcontext))                                                          \
    X(cuCtxPopCurrent, _v2, (CUcontext *))                                                         \
    X(cuCtxGetDevice, , (int *))                                                                   \
    X(cuStreamCreate, , (CUstream *, unsigned))                                                    \
    X(cuStreamDestroy, _v2, (CUstream))                                                            \
    X(cuStreamGetCtx, , (CUstream, CUcontext *))                                                   \
    X(cuStreamSynchronize, , (CUstream))                                                           \
    X(cuEventCreate, , (CUevent *, unsigned))                                                      \
    X(cuEventDestroy, _v2, (CUevent))                                                              \
    X(cuEventRecord, , (CUevent, CUstream))                                                        \
    X(cuEventQuery, , (CUevent))                                                                   \
    X(cuEventSynchronize, , (CUevent))                                                             \
    X(cuEventElapsedTime, , (float *, CUevent, CUevent))                                           \
    X(cuModuleLoadDataEx, , (CUmodule *, const void *, unsigned, int *, void **))                  \
    X(cuModuleUnload, , (CUmodule))                                                                \
    X(cuModuleGetFunction, , (CUfunction *, CUmodule, const char *))                               \
    X(cuMemGetInfo, _v2, (size_t *, size_t *))                                                     \
    X(cuMemAlloc, _v2, (CUdeviceptr *, size_t))                                                    \
    X(cuMemFree, _v2, (CUdeviceptr))                                                               \
    X(cuMemHostAlloc, , (void **, size_t, unsigned))                                               \
    X(cuMemFreeHost, , (void *))                                                                   \
    X(cuMemHostGetDevicePointer, _v2, (CUdeviceptr *, void *, unsigned))                           \
    X(cuMemcpyHtoD, _v2, (CUdeviceptr, const void *, size_t))                                      \
    X(cuMemcpyAsync, , (CUdeviceptr, CUdeviceptr, size_t, CUstream))                               \
    X(cuMemsetD8Async, , (CUdeviceptr, unsigned char, size_t, CUstream))                           \
    X(cuLaunchKernel, ,                                                                            \
      (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, \
       void **, void **))                                                                          \
    X(cuGraphCreate, , (CUgraph *, unsigned))                                                      \
    X(cuGraphDestroy, , (CUgraph))                                                                 \
    X(cuGraphAddKernelNode, ,                                                                      \
      (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const launch_node *))                  \
    X(cuGraphAddMemcpyNode, ,                                                                      \
      (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const copy_node *, CUcontext))         \
    X(cuGraphInstantiateWithFlags, , (CUgraphExec *, CUgraph, unsigned long long))                 \
    X(cuGraphExecDestroy, , (CUgraphExec))                                                         \
    X(cuGraphExecKernelNodeSetParams, , (CUgraphExec, CUgraphNode, const launch_node *))           \
    X(cuGraphExecMemcpyNodeSetParams, , (CUgraphExec, CUgraphNode, const copy_node *, CUcontext))  \
    X(cuGraphNodeSetEnabled, , (CUgraphExec, CUgraphNode, unsigned))                               \
    X(cuGraphUpload, , (CUgraphExec, CUstream))                                                    \
    X(cuGraphLaunch, , (CUgraphExec, CUstream))

#define MEMBER(name, version, parameters) int(*name) parameters;
#define NAME(name, version, parameters) #name #version "\0"

typedef struct driver {
    FUNCTIONS(MEMBER)
} driver;

static const char names[] = FUNCTIONS(NAME);

/* Where a buffer lies. host: of inputs and outputs, as large as the buffer. */
typedef struct place {
    CUdeviceptr address;
    unsigned char *host;
    uint64_t fetched; /* the version of the device's memory that host has */
} place;

/* A launch or copy as a node of a graph; the first of a piece has the graph. */
typedef struct node {
    bool first, enabled;
    CUgraphNode node;
    CUgraph graph;
    CUgraphExec executable;
    int64_t sizes[3];
} node;

typedef struct cuda {
    driver driver;
    int device, version; /* version: 12060 for CUDA 12.6 */
    bool retained, entered;
    bool mapped; /* kernels work in `host` memory, and nothing is copied */
    bool busy, marked; /* there is work not waited for; `done` comes after it */
    uint64_t changes;  /* the version of the device's memory */
    CUcontext context;
    CUstream own, stream; /* own: made here */
    CUevent done, *times; /* times: one more than steps, only with profile */
    CUmodule module;
    CUfunction *functions;
    CUdeviceptr memory; /* arenas, weights, symbols */
    CUdeviceptr *arenas, *weights, symbols;
    unsigned char *host;              /* as allocated */
    unsigned char *table, *spare;     /* in it: of symbols; for all but inputs and outputs */
    place *places;
    node *nodes;
} cuda;

static uint64_t lay_out(const te_model *model, const te_context_options *options, cuda *block) {
    cuda unused, *to = block ? block : &unused;
    uint64_t end = sizeof *to;
    to->functions = te_place(block, &end, TOTAL(KERNELS), sizeof *to->functions);
    to->arenas = te_place(block, &end, TOTAL(ARENAS), sizeof *to->arenas);
    to->weights = te_place(block, &end, TOTAL(WEIGHTS), sizeof *to->weights);
    to->places = te_place(block, &end, TOTAL(BUFFERS), sizeof *to->places);
    to->nodes = te_place(block, &end, TOTAL(STEPS), sizeof *to->nodes);
    const uint64_t times = options->profile ? (uint64_t)TOTAL(STEPS) + 1 : 0;
    to->times = te_place(block, &end, times, sizeof *to->times);
    return end;
}

/* --- memory ---------------------------------------------------------------------------------- */

static uint64_t take(uint64_t *end, uint64_t bytes) {
    const uint64_t start = *end;
    *end += (bytes + TE_ALIGNMENT - 1) / TE_ALIGNMENT * TE_ALIGNMENT;
    return start;
}

/* Bytes of the device's one allocation; with `to`, where everything lies in it. */
static uint64_t place_memory(const te_model *model, cuda *to) {
    uint64_t end = 0;
    for (uint32_t i = 0; i < TOTAL(ARENAS); i++) {
        const uint64_t at = take(&end, (uint64_t)model->arenas[i]);
        if (to) to->arenas[i] = to->memory + at;
    }
    for (uint32_t i = 0; i < TOTAL(WEIGHTS); i++) {
        const uint64_t at = take(&end, (uint64_t)model->weights[i].bytes);
        if (to) to->weights[i] = to->memory + at;
    }
    const uint64_t at = take(&end, sizeof(int32_t[TE_MAX_SYMBOLS]));
    if (to) to->symbols = to->memory + at;
    for (uint32_t i = 0; to && i < TOTAL(BUFFERS); i++) {
        const te_buffer_record *buffer = &model->buffers[i];
        to->places[i].address = buffer->arena == -1
                                    ? to->weights[buffer->weight]
                                    : to->arenas[buffer->arena] + (uint64_t)buffer->offset;
    }
    return end;
}

/* An earlier port whose buffer is in the same place: they have one memory of the host, too. */
static const te_port_record *same_place(const te_model *model, int group, uint32_t number) {
    const te_buffer_record *buffer = &model->buffers[model->ports[group][number].buffer];
    for (int g = TE_INPUTS; g <= group; g++) {
        const uint32_t end = g == group ? number : te_count(model, g);
        for (uint32_t i = 0; i < end; i++) {
            const te_port_record *port = &model->ports[g][i];
            const te_buffer_record *other = &model->buffers[port->buffer];
            if (other->arena == buffer->arena && other->offset == buffer->offset &&
                other->bytes == buffer->bytes) {
                return port;
            }
        }
    }
    return NULL;
}

/* The same for the memory of the host. */
static uint64_t place_host(const te_model *model, cuda *to) {
    uint64_t end = 0, most = sizeof(int32_t); /* a condition */
    const uint64_t table = take(&end, sizeof(int32_t[TE_MAX_SYMBOLS]));
    for (int group = TE_INPUTS; group <= TE_OUTPUTS; group++) {
        for (uint32_t i = 0; i < te_count(model, group); i++) {
            const int32_t buffer = model->ports[group][i].buffer;
            const te_port_record *same = same_place(model, group, i);
            const uint64_t bytes = same ? 0 : (uint64_t)model->buffers[buffer].bytes;
            const uint64_t at = take(&end, bytes);
            if (to) to->places[buffer].host = same ? to->places[same->buffer].host : to->host + at;
        }
    }
    for (uint32_t i = 0; i < TOTAL(STATES); i++) {
        const uint64_t bytes = (uint64_t)model->buffers[model->ports[TE_STATES][i].buffer].bytes;
        if (bytes > most) most = bytes;
    }
    const uint64_t spare = take(&end, most);
    if (to) {
        to->table = to->host + table;
        to->spare = to->host + spare;
    }
    return end;
}

static void measure(const te_model *model, const te_context_options *options, te_memory *memory) {
    memory->arenas = 0;
    memory->context = lay_out(model, options, NULL);
    memory->device = place_memory(model, NULL) + place_host(model, NULL);
}

/* --- calls ----------------------------------------------------------------------------------- */

static const char *word(const cuda *device, int answer) {
    const char *name = NULL;
    return !device->driver.cuGetErrorName(answer, &name) && name ? name : "an unknown error";
}

/* What function number `call` of the driver answered. */
static te_status failed(const cuda *device, int answer, size_t call, te_error *error) {
    const char *name = names;
    if (!answer) return TE_OK;
    while (call--) name += strlen(name) + 1;
    return te_fail(error, answer == OUT_OF_MEMORY ? TE_DEVICE_MEMORY : TE_DEVICE_DRIVER,
                   "%s failed with %s (%d)", name, word(device, answer), answer);
}

#define NUMBER(name) (offsetof(driver, name) / sizeof(int (*)(void)))
#define CALL(name, ...)                                                                            \
    TE_TRY(failed(device, device->driver.name(__VA_ARGS__), NUMBER(name), error))

/* The caller's current context is kept: every call of the backend is between these two. */
static TE_NOINLINE te_status enter(cuda *device, te_error *error) {
    CALL(cuCtxPushCurrent, device->context);
    device->entered = true;
    return TE_OK;
}

static te_status leave(cuda *device, te_status status, te_error *error) {
    CUcontext ours;
    if (!device->entered) return status;
    device->entered = false;
    const int answer = device->driver.cuCtxPopCurrent(&ours);
    return status ? status : failed(device, answer, NUMBER(cuCtxPopCurrent), error);
}

#define INSIDE(call)                                                                               \
    do {                                                                                           \
        cuda *inside_ = context->device;                                                           \
        TE_TRY(enter(inside_, error));                                                             \
        return leave(inside_, (call), error);                                                      \
    } while (0)

/* Work for the device, done in order. changes: whether it changes what the device keeps. */
static void queued(cuda *device, bool changes) {
    device->busy = true;
    device->marked = false;
    device->changes += changes;
}

static CUdeviceptr host_address(const void *memory) { return (CUdeviceptr)(uintptr_t)memory; }

static te_status copy(cuda *device, CUdeviceptr to, CUdeviceptr from, int64_t bytes, bool changes,
                      te_error *error) {
    CALL(cuMemcpyAsync, to, from, (size_t)bytes, device->stream);
    queued(device, changes);
    return TE_OK;
}

static te_status mark(cuda *device, te_error *error) {
    if (!device->busy || device->marked) return TE_OK;
    CALL(cuEventRecord, device->done, device->stream);
    device->marked = true;
    return TE_OK;
}

static te_status ask_done(te_context *context, bool *done, te_error *error) {
    cuda *device = context->device;
    const int answer = device->driver.cuEventQuery(device->done);
    *done = answer != NOT_READY;
    return *done ? failed(device, answer, NUMBER(cuEventQuery), error) : TE_OK;
}

static te_status wait_inside(te_context *context, int64_t timeout, te_error *error) {
    cuda *device = context->device;
    if (!device->busy) return TE_OK;
    TE_TRY(mark(device, error));
    if (timeout < 0) CALL(cuEventSynchronize, device->done);
    else TE_TRY(te_poll(context, timeout, ask_done, error));
    device->busy = false;
    return TE_OK;
}

/* --- which device ---------------------------------------------------------------------------- */

static te_status open_library(cuda *device, const char *library, te_error *error) {
    static const char *const places[] = {"libcuda.so.1", NULL};
    void *handle = te_open_library(library, places);
    TE_NEED(handle, TE_DEVICE_MISSING, "there is no NVIDIA driver: %s cannot be loaded",
            library ? library : places[0]);
    const char *missing = te_find_functions(handle, names, &device->driver);
    TE_NEED(!missing, TE_DEVICE_MISSING, "the driver has no %s: it is older than CUDA 12",
            missing);
    const int answer = device->driver.cuInit(0);
    TE_NEED(!answer, TE_DEVICE_MISSING, "cuInit failed with %s (%d)", word(device, answer), answer);
    CALL(cuDriverGetVersion, &device->version);
    return TE_OK;
}

static te_status choose_device(cuda *device, const char *wanted, te_error *error) {
    int count = 0;
    char name[256];
    CALL(cuDeviceGetCount, &count);
    TE_NEED(count > 0, TE_DEVICE_MISSING, "the NVIDIA driver finds no device");
    for (int i = 0; i < count; i++) {
        CALL(cuDeviceGet, &device->device, i);
        CALL(cuDeviceGetName, name, sizeof name, device->device);
        if (te_is_wanted(wanted, (uint32_t)i, name)) return TE_OK;
    }
    return te_fail(error, TE_DEVICE_ADAPTER, "none of %d CUDA devices is called %s", count, wanted);
}

/* The caller's context and stream, or the device's primary context and a stream in it. */
static te_status open_stream(cuda *device, const te_cuda_options *options, te_error *error) {
    CUcontext theirs = options->context;
    if (!theirs && options->stream) CALL(cuStreamGetCtx, options->stream, &theirs);
    if (theirs) {
        device->context = theirs;
        TE_TRY(enter(device, error));
        CALL(cuCtxGetDevice, &device->device);
    } else {
        TE_TRY(choose_device(device, options->device, error));
        CALL(cuDevicePrimaryCtxRetain, &device->context, device->device);
        device->retained = true;
        TE_TRY(enter(device, error));
    }
    if (!options->stream) CALL(cuStreamCreate, &device->own, 0);
    device->stream = options->stream ? options->stream : device->own;
    return TE_OK;
}

static te_status fact(const cuda *device, int which, int64_t *value, te_error *error) {
    int small;
    CALL(cuDeviceGetAttribute, &small, which, device->device);
    *value = small;
    return TE_OK;
}

static te_status check_limits(const cuda *device, const te_model *model, te_error *error) {
    static const struct {
        uint8_t requirement, limit;
    } limits[] = {{TE_INVOCATIONS, MAX_THREADS_PER_BLOCK},
                  {TE_WORKGROUP_BYTES, MAX_SHARED_MEMORY_PER_BLOCK}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        const int64_t needed = model->requirements[limits[i].requirement];
        int64_t limit;
        TE_TRY(fact(device, limits[i].limit, &limit, error));
        TE_NEED(needed <= limit, TE_DEVICE_LIMITS,
                "the bundle needs %s of %lld, the device has %lld",
                te_requirement_name(limits[i].requirement), (long long)needed, (long long)limit);
    }
    return TE_OK;
}

/* --- compiled kernels ------------------------------------------------------------------------ */

/* "kernels-00087.cubin" and "kernels-00087.ptx": what was compiled for capability 8.7. */
static bool is_compiled(const te_file_record *file, bool *binary, int *capability) {
    const char *digit = file->name.at + strlen("kernels-");
    if (strncmp(file->name.at, "kernels-", strlen("kernels-"))) return false;
    for (*capability = 0; *digit != '.'; digit++) *capability = 10 * *capability + (*digit - '0');
    *binary = !strcmp(digit, ".cubin");
    return *binary || !strcmp(digit, ".ptx");
}

/* The exporter compiles for no older ones. */
#define LEAST_ARCHITECTURE 75
#define TOO_OLD "export again for the target cpu, sm_75 is the oldest"

#define BINARY 1000000 /* what is compiled already comes before what the driver compiles */

/* The best compiled file that suits the device and ranks below `rank`, which becomes its rank. */
static int32_t next_file(const te_model *model, int own, int *rank) {
    int32_t best = -1;
    int best_rank = 0, capability;
    bool binary;
    for (uint32_t i = 0; i < TOTAL(FILES); i++) {
        if (!is_compiled(&model->files[i], &binary, &capability) || capability > own) continue;
        if (binary && capability / 10 != own / 10) continue;
        const int found = capability + (binary ? BINARY : 0);
        if (found < *rank && found > best_rank) {
            best_rank = found;
            best = (int32_t)i;
        }
    }
    *rank = best_rank;
    return best;
}

/* Which architectures the bundle has code for: "sm_87 sm_90". */
static void list_compiled(const te_model *model, char *text, size_t room) {
    size_t used = 0;
    int capability, last = -1;
    bool binary;
    text[0] = 0;
    for (uint32_t i = 0; i < TOTAL(FILES) && used < room; i++) {
        if (!is_compiled(&model->files[i], &binary, &capability) || capability == last) continue;
        used += (size_t)snprintf(text + used, room - used, "%ssm_%d", used ? " " : "", capability);
        last = capability;
    }
    if (!used) snprintf(text, room, "no architecture");
}

static bool is_refusal(int answer) {
    return answer == INVALID_IMAGE || answer == NO_BINARY_FOR_GPU || answer == INVALID_PTX ||
           answer == JIT_COMPILER_NOT_FOUND || answer == UNSUPPORTED_PTX_VERSION;
}

/* TE_DEVICE_ARCH: the driver does not take this file. */
static te_status load_file(const te_model *model, cuda *device, int32_t file, te_error *error) {
    char log[96] = "", *image;
    int options[] = {ERROR_LOG, ERROR_LOG_BYTES};
    void *values[] = {log, (void *)(uintptr_t)(sizeof log - 1)};
    TE_TRY(te_read_file(model, file, &image, error));
    const int answer =
        device->driver.cuModuleLoadDataEx(&device->module, image, 2, options, values);
    te_release(&model->allocator, image);
    if (!is_refusal(answer)) return failed(device, answer, NUMBER(cuModuleLoadDataEx), error);
    device->module = NULL;
    for (char *c = log; *c; c++) *c = *c < ' ' ? ' ' : *c;
    return te_fail(error, TE_DEVICE_ARCH,
                   "the driver of CUDA %d.%d refuses %s: %s (%d) %s; update it, or export by an "
                   "NVRTC no newer than it",
                   device->version / 1000, device->version % 1000 / 10,
                   model->files[file].name.at, word(device, answer), answer, log);
}

static TE_NOINLINE te_status load_kernels(const te_model *model, cuda *device, te_error *error) {
    int64_t major, minor;
    int rank = 2 * BINARY;
    char compiled[96], advice[40];
    if (!TOTAL(KERNELS)) return TE_OK;
    TE_TRY(fact(device, CAPABILITY_MAJOR, &major, error));
    TE_TRY(fact(device, CAPABILITY_MINOR, &minor, error));
    const int own = (int)(10 * major + minor);
    list_compiled(model, compiled, sizeof compiled);
    snprintf(advice, sizeof advice, "export again with --arch sm_%d", own);
    te_status status = te_fail(error, TE_DEVICE_ARCH,
                               "the device is sm_%d, the bundle's kernels are compiled for %s: %s",
                               own, compiled, own < LEAST_ARCHITECTURE ? TOO_OLD : advice);
    while (status) {
        const int32_t file = next_file(model, own, &rank);
        if (file == -1) return status;
        status = load_file(model, device, file, error);
        if (status && status != TE_DEVICE_ARCH) return status;
    }
    te_no_error(error);
    for (uint32_t i = 0; i < TOTAL(KERNELS); i++) {
        const char *name = model->kernels[i].entry.at;
        CALL(cuModuleGetFunction, &device->functions[i], device->module, name);
    }
    return TE_OK;
}

/* --- graphs ---------------------------------------------------------------------------------- */

typedef struct arguments {
    CUdeviceptr values[TE_MOST_BINDINGS + 1];
    void *pointers[TE_MOST_BINDINGS + 1];
} arguments;

/* A launch with its arguments: the addresses of its buffers and, last, of the symbols. */
static launch_node describe_launch(const te_model *model, const cuda *device, uint32_t number,
                                   const int64_t *sizes, arguments *to) {
    const te_step_record *step = &model->steps[number];
    const te_kernel_record *kernel = &model->kernels[step->kernel];
    launch_node node = {.function = device->functions[step->kernel], .arguments = to->pointers};
    for (int i = 0; i < 3; i++) {
        node.grid[i] = (unsigned)sizes[i];
        node.block[i] = (unsigned)kernel->workgroup[i];
    }
    for (uint32_t i = 0; i < step->buffers; i++) {
        to->values[i] = device->places[model->bound[step->first_buffer + i]].address;
    }
    to->values[step->buffers] = device->symbols;
    for (uint32_t i = 0; i <= step->buffers; i++) to->pointers[i] = &to->values[i];
    return node;
}

static copy_node describe_copy(const te_model *model, const cuda *device, uint32_t number,
                               int64_t bytes) {
    const te_step_record *step = &model->steps[number];
    copy_node node = {.width = (size_t)bytes, .height = 1, .depth = 1};
    node.source.kind = node.destination.kind = MEMORY_BY_ADDRESS;
    node.source.device = device->places[step->source].address + (uint64_t)step->source_offset;
    node.destination.device =
        device->places[step->destination].address + (uint64_t)step->destination_offset;
    return node;
}

static bool is_nothing(const te_step_record *step, const int64_t *sizes) {
    return !sizes[0] || (step->op == TE_LAUNCH && (!sizes[1] || !sizes[2]));
}

static te_status check_grid(uint32_t number, const te_step_record *step, const int64_t *sizes,
                            te_error *error) {
    TE_NEED(step->op != TE_LAUNCH || (sizes[1] <= 65535 && sizes[2] <= 65535), TE_DEVICE_COUNTS,
            "step %u: a grid of %lld x %lld x %lld", number, (long long)sizes[0],
            (long long)sizes[1], (long long)sizes[2]);
    return TE_OK;
}

/* Where straight pieces begin: at an entry's start, and at the ends of blocks. */
static void find_pieces(const te_model *model, node *nodes) {
    for (uint32_t i = 0; i < TOTAL(ENTRIES); i++) {
        if (model->entries[i].count) nodes[model->entries[i].first].first = true;
    }
    for (int64_t i = 0; i < TOTAL(STEPS); i++) {
        const te_step_record *step = &model->steps[i];
        if (step->op <= TE_COPY) continue;
        const int64_t ends[] = {i + 1, i + 1 + step->then, i + 1 + step->then + step->otherwise};
        for (int j = 0; j < 3; j++) {
            if (ends[j] < TOTAL(STEPS)) nodes[ends[j]].first = true;
        }
    }
}

/* A node of these sizes behind the one before; one that does nothing has others until it does. */
static te_status add_node(const te_model *model, cuda *device, uint32_t number, CUgraph graph,
                          const CUgraphNode *before, te_error *error) {
    const te_step_record *step = &model->steps[number];
    node *node = &device->nodes[number];
    int64_t sizes[3] = {1, 1, 1};
    const bool nothing = is_nothing(step, node->sizes);
    if (!nothing) memcpy(sizes, node->sizes, sizeof sizes);
    if (step->op == TE_LAUNCH) {
        arguments arguments;
        const launch_node launch = describe_launch(model, device, number, sizes, &arguments);
        CALL(cuGraphAddKernelNode, &node->node, graph, before, before != NULL, &launch);
        return TE_OK;
    }
    copy_node copy = describe_copy(model, device, number, sizes[0]);
    if (nothing) { /* the offsets may be at the buffers' ends */
        copy.source.device = device->places[step->source].address;
        copy.destination.device = device->places[step->destination].address;
    }
    CALL(cuGraphAddMemcpyNode, &node->node, graph, before, before != NULL, &copy, device->context);
    return TE_OK;
}

static te_status enable(cuda *device, CUgraphExec executable, node *node, bool enabled,
                        te_error *error) {
    if (node->enabled == enabled) return TE_OK;
    CALL(cuGraphNodeSetEnabled, executable, node->node, enabled);
    node->enabled = enabled;
    return TE_OK;
}

/* The graph of the launches and copies from `first` on, up to the next piece or branch. */
static te_status make_piece(const te_model *model, cuda *device, uint32_t first, te_error *error) {
    node *piece = &device->nodes[first];
    uint32_t end = first;
    CALL(cuGraphCreate, &piece->graph, 0);
    do {
        const CUgraphNode *before = end > first ? &device->nodes[end - 1].node : NULL;
        TE_TRY(add_node(model, device, end, piece->graph, before, error));
        end++;
    } while (end < TOTAL(STEPS) && !device->nodes[end].first && model->steps[end].op <= TE_COPY);
    CALL(cuGraphInstantiateWithFlags, &piece->executable, piece->graph, 0);
    for (uint32_t i = first; i < end; i++) {
        node *node = &device->nodes[i];
        node->enabled = true;
        TE_TRY(enable(device, piece->executable, node, !is_nothing(&model->steps[i], node->sizes),
                      error));
    }
    CALL(cuGraphUpload, piece->executable, device->stream);
    queued(device, false);
    return TE_OK;
}

/* Graphs for the greatest sizes. With profile, every launch is on its own instead. */
static te_status make_graphs(te_context *context, cuda *device, te_error *error) {
    const te_model *model = context->model;
    find_pieces(model, device->nodes);
    for (uint32_t i = 0; i < TOTAL(STEPS); i++) {
        const te_step_record *step = &model->steps[i];
        int64_t *sizes = device->nodes[i].sizes;
        for (int j = 0; j < (step->op == TE_LAUNCH ? 3 : step->op == TE_COPY); j++) {
            te_evaluate(model->tokens + step->sizes[j], context->symbols, &sizes[j]);
        }
        TE_TRY(check_grid(i, step, sizes, error));
    }
    for (uint32_t i = 0; i < TOTAL(STEPS) && !context->timings; i++) {
        if (device->nodes[i].first && model->steps[i].op <= TE_COPY) {
            TE_TRY(make_piece(model, device, i, error));
        }
    }
    return TE_OK;
}

/* --- creation -------------------------------------------------------------------------------- */

static te_status allocate(const te_model *model, cuda *device, te_error *error) {
    int64_t integrated, maps;
    size_t unused_bytes = 0, all;
    const uint64_t bytes = place_memory(model, NULL), host_bytes = place_host(model, NULL);
    TE_TRY(fact(device, INTEGRATED, &integrated, error));
    TE_TRY(fact(device, CAN_MAP_HOST_MEMORY, &maps, error));
    device->mapped = integrated && maps;
    const int answer = device->driver.cuMemAlloc(&device->memory, (size_t)bytes);
    if (answer == OUT_OF_MEMORY) {
        CALL(cuMemGetInfo, &unused_bytes, &all);
        return te_fail(error, TE_DEVICE_MEMORY,
                       "weights and arenas need %llu bytes of the device, which has %llu unused",
                       (unsigned long long)bytes, (unsigned long long)unused_bytes);
    }
    TE_TRY(failed(device, answer, NUMBER(cuMemAlloc), error));
    place_memory(model, device);
    void *host;
    CALL(cuMemHostAlloc, &host, (size_t)host_bytes, device->mapped ? HOST_MEMORY_MAPPED : 0);
    device->host = host;
    place_host(model, device);
    if (!device->mapped) return TE_OK;
    CUdeviceptr address;
    CALL(cuMemHostGetDevicePointer, &address, device->host, 0);
    for (uint32_t i = 0; i < TOTAL(BUFFERS); i++) {
        place *place = &device->places[i];
        if (place->host) place->address = address + (uint64_t)(place->host - device->host);
    }
    return TE_OK;
}

static te_status load_weight(void *user, uint32_t weight, int64_t offset, const void *data,
                             size_t bytes, te_error *error) {
    const cuda *device = user;
    CALL(cuMemcpyHtoD, device->weights[weight] + (uint64_t)offset, data, bytes);
    return TE_OK;
}

static te_status make_all(te_context *context, cuda *device, te_error *error) {
    const te_model *model = context->model;
    TE_TRY(open_library(device, context->options.cuda.library, error));
    TE_TRY(open_stream(device, &context->options.cuda, error));
    TE_TRY(check_limits(device, model, error));
    TE_TRY(load_kernels(model, device, error));
    CALL(cuEventCreate, &device->done, EVENT_BLOCKING | EVENT_NO_TIME);
    for (uint32_t i = 0; context->timings && i <= TOTAL(STEPS); i++) {
        CALL(cuEventCreate, &device->times[i], 0);
    }
    TE_TRY(allocate(model, device, error));
    TE_TRY(te_stream_weights(model, load_weight, device, error));
    return make_graphs(context, device, error);
}

static te_status create(te_context *context, te_error *error) {
    cuda *device = context->device;
    lay_out(context->model, &context->options, device);
    device->changes = 1;
    return leave(device, make_all(context, device, error), error);
}

/* Also of a context whose creation failed half way; then there may be nothing to call. */
static void destroy(te_context *context) {
    const te_model *model = context->model;
    cuda *device = context->device;
    const driver *driver = &device->driver;
    te_error unwanted;
    if (!device->context) return;
    enter(device, &unwanted);
    if (device->stream && device->busy) driver->cuStreamSynchronize(device->stream);
    for (uint32_t i = 0; i < TOTAL(STEPS); i++) {
        if (device->nodes[i].executable) driver->cuGraphExecDestroy(device->nodes[i].executable);
        if (device->nodes[i].graph) driver->cuGraphDestroy(device->nodes[i].graph);
    }
    for (uint32_t i = 0; context->timings && i <= TOTAL(STEPS); i++) {
        if (device->times[i]) driver->cuEventDestroy(device->times[i]);
    }
    if (device->done) driver->cuEventDestroy(device->done);
    if (device->module) driver->cuModuleUnload(device->module);
    if (device->host) driver->cuMemFreeHost(device->host);
    if (device->memory) driver->cuMemFree(device->memory);
    if (device->own) driver->cuStreamDestroy(device->own);
    leave(device, TE_OK, &unwanted);
    if (device->retained) driver->cuDevicePrimaryCtxRelease(device->device);
}

/* --- running --------------------------------------------------------------------------------- */

static te_status map_inside(te_context *context, te_part part, bool write, unsigned char **memory,
                            te_error *error) {
    cuda *device = context->device;
    const place *place = &device->places[part.buffer];
    *memory = place->host ? place->host + part.offset : device->spare;
    if (write) return TE_OK;
    const bool here = place->host && (device->mapped || place->fetched == device->changes);
    if (!here) {
        const CUdeviceptr from = place->address + (uint64_t)part.offset;
        TE_TRY(copy(device, host_address(*memory), from, part.bytes, false, error));
    }
    return wait_inside(context, -1, error);
}

static te_status map(te_context *context, te_part part, bool write, unsigned char **memory,
                     te_error *error) {
    INSIDE(map_inside(context, part, write, memory, error));
}

static te_status unmap_inside(te_context *context, te_part part, unsigned char *memory,
                              te_error *error) {
    cuda *device = context->device;
    const place *place = &device->places[part.buffer];
    const CUdeviceptr to = place->address + (uint64_t)part.offset;
    TE_TRY(copy(device, to, host_address(memory), part.bytes, true, error));
    return place->host ? TE_OK : wait_inside(context, -1, error); /* the next one may need spare */
}

static te_status unmap(te_context *context, te_part part, bool write, unsigned char *memory,
                       te_error *error) {
    const cuda *device = context->device;
    if (!write || (device->mapped && device->places[part.buffer].host)) return TE_OK;
    INSIDE(unmap_inside(context, part, memory, error));
}

static te_status exchange(te_context *context, te_part part, const te_tensor *tensor,
                          bool to_tensor, te_error *error) {
    cuda *device = context->device;
    const CUdeviceptr ours = device->places[part.buffer].address + (uint64_t)part.offset;
    const CUdeviceptr theirs = tensor->device + tensor->offset;
    INSIDE(to_tensor ? copy(device, theirs, ours, part.bytes, false, error)
                     : copy(device, ours, theirs, part.bytes, true, error));
}

static te_status reset_inside(te_context *context, uint32_t number, te_error *error) {
    const te_model *model = context->model;
    const te_port_record *state = &model->ports[TE_STATES][number];
    cuda *device = context->device;
    const CUdeviceptr to = device->places[state->buffer].address;
    const int64_t bytes = model->buffers[state->buffer].bytes;
    int64_t initial = 0;
    if (state->initial != -1) {
        initial = model->weights[state->initial].bytes;
        TE_TRY(copy(device, to, device->weights[state->initial], initial, true, error));
    }
    if (initial == bytes) return TE_OK;
    CALL(cuMemsetD8Async, to + (uint64_t)initial, 0, (size_t)(bytes - initial), device->stream);
    queued(device, true);
    return TE_OK;
}

static te_status reset(te_context *context, uint32_t number, te_error *error) {
    INSIDE(reset_inside(context, number, error));
}

static te_status resize_node(te_context *context, uint32_t number, CUgraphExec executable,
                             te_error *error) {
    const te_model *model = context->model;
    const te_step_record *step = &model->steps[number];
    cuda *device = context->device;
    node *node = &device->nodes[number];
    const int64_t *sizes = context->sizes[number];
    if (!memcmp(node->sizes, sizes, sizeof node->sizes)) return TE_OK;
    if (!te_idle(context, number) && step->op == TE_LAUNCH) {
        arguments arguments;
        const launch_node launch = describe_launch(model, device, number, sizes, &arguments);
        CALL(cuGraphExecKernelNodeSetParams, executable, node->node, &launch);
    } else if (!te_idle(context, number)) {
        const copy_node copy = describe_copy(model, device, number, sizes[0]);
        CALL(cuGraphExecMemcpyNodeSetParams, executable, node->node, &copy, device->context);
    }
    TE_TRY(enable(device, executable, node, !te_idle(context, number), error));
    memcpy(node->sizes, sizes, sizeof node->sizes);
    return TE_OK;
}

static te_status resize_inside(te_context *context, te_error *error) {
    const te_model *model = context->model;
    cuda *device = context->device;
    CUgraphExec executable = NULL;
    for (uint32_t i = 0; i < TOTAL(STEPS); i++) {
        TE_TRY(check_grid(i, &model->steps[i], context->sizes[i], error));
    }
    for (uint32_t i = 0; i < TOTAL(STEPS) && !context->timings; i++) {
        if (device->nodes[i].executable) executable = device->nodes[i].executable;
        if (model->steps[i].op <= TE_COPY) TE_TRY(resize_node(context, i, executable, error));
    }
    if (!TOTAL(SYMBOLS)) return TE_OK;
    for (uint32_t i = 0; i < TOTAL(SYMBOLS); i++) {
        const int32_t value = (int32_t)context->symbols[i];
        memcpy(device->table + i * sizeof value, &value, sizeof value);
    }
    return copy(device, device->symbols, host_address(device->table),
                TE_MAX_SYMBOLS * sizeof(int32_t), true, error);
}

static te_status resize(te_context *context, te_error *error) {
    INSIDE(resize_inside(context, error));
}

static te_status launch_one(te_context *context, uint32_t number, te_error *error) {
    const te_model *model = context->model;
    const int64_t *sizes = context->sizes[number];
    cuda *device = context->device;
    if (model->steps[number].op == TE_COPY) {
        const copy_node node = describe_copy(model, device, number, sizes[0]);
        return copy(device, node.destination.device, node.source.device, sizes[0], true, error);
    }
    arguments arguments;
    const launch_node node = describe_launch(model, device, number, sizes, &arguments);
    CALL(cuLaunchKernel, node.function, node.grid[0], node.grid[1], node.grid[2], node.block[0],
         node.block[1], node.block[2], 0, device->stream, node.arguments, NULL);
    queued(device, true);
    return TE_OK;
}

/* One launch after the other, with an event after each, and then the times between these. */
static te_status run_timed(te_context *context, uint32_t first, uint32_t end, te_error *error) {
    cuda *device = context->device;
    CUevent *last = device->times;
    CALL(cuEventRecord, *last, device->stream);
    queued(device, false);
    for (uint32_t i = first; i < end; i++) {
        if (te_idle(context, i)) continue;
        TE_TRY(launch_one(context, i, error));
        CALL(cuEventRecord, *++last, device->stream);
    }
    CALL(cuEventSynchronize, *last);
    last = device->times;
    for (uint32_t i = first; i < end; i++) {
        float milliseconds;
        if (te_idle(context, i)) continue;
        CALL(cuEventElapsedTime, &milliseconds, last[0], last[1]);
        context->timings[i].runs++;
        context->timings[i].nanoseconds += (uint64_t)((double)milliseconds * 1e6);
        last++;
    }
    return TE_OK;
}

static te_status run_inside(te_context *context, uint32_t first, uint32_t end, te_error *error) {
    cuda *device = context->device;
    if (context->timings) return run_timed(context, first, end, error);
    CALL(cuGraphLaunch, device->nodes[first].executable, device->stream);
    queued(device, true);
    return TE_OK;
}

static te_status run(te_context *context, uint32_t first, uint32_t end, te_error *error) {
    INSIDE(run_inside(context, first, end, error));
}

static te_status fetch_inside(te_context *context, te_part part, te_error *error) {
    cuda *device = context->device;
    place *place = &device->places[part.buffer];
    TE_TRY(copy(device, host_address(place->host), place->address, part.bytes, false, error));
    place->fetched = device->changes;
    return TE_OK;
}

static te_status fetch(te_context *context, te_part part, bool write, te_error *error) {
    const cuda *device = context->device;
    if (write || device->mapped) return TE_OK;
    INSIDE(fetch_inside(context, part, error));
}

static te_status flush(te_context *context, te_error *error) {
    INSIDE(mark(context->device, error));
}

static te_status wait(te_context *context, int64_t timeout, te_error *error) {
    INSIDE(wait_inside(context, timeout, error));
}

const te_backend *te_cuda(void) {
    static const te_backend backend = {
        .target = "cuda",
        .measure = measure,
        .create = create,
        .destroy = destroy,
        .resize = resize,
        .reset = reset,
        .map = map,
        .unmap = unmap,
        .exchange = exchange,
        .run = run,
        .fetch = fetch,
        .flush = flush,
        .wait = wait,
    };
    return &backend;
}
