/* The OpenCL backend: bundles of target qcom on any little-endian device of OpenCL 1.2's full
   profile. Everything is made at creation; a run only enqueues. */
#include "tinyedge_internal.h"

#include <stdio.h>
#include <string.h>

#define TOTAL(kind) (model->totals[TE_N_##kind])

/* --- OpenCL, as much as is used --------------------------------------------------------------- */

typedef struct object *cl_object; /* platforms, devices, contexts, queues, memory, ... */

typedef struct image_format {
    uint32_t order, type;
} image_format;

typedef struct image_description {
    uint32_t type;
    size_t width, height, depth, array_size, row_pitch, slice_pitch;
    uint32_t levels, samples;
    cl_object buffer;
} image_description;

enum {
    BLOCKING = 1,
    OUT_OF_RESOURCES = -5,
    OUT_OF_HOST_MEMORY = -6,
    NO_MEMORY = -4,
    NO_KERNEL = -46,
    TYPE_GPU = 1 << 2,
    OUT_OF_ORDER = 1,
    PROFILING = 2,
    READ_WRITE = 1,
    ALLOC_HOST_PTR = 1 << 4,
    MAP_READ = 1,
    MAP_WRITE_INVALIDATE = 4,
    REGION = 0x1220,
    IMAGE2D = 0x10F1,
    RGBA = 0x10B5,
    HALF_FLOAT = 0x10DD,
    FLOAT = 0x10DE
};

/* What is asked of platforms, devices, contexts, queues, programs, kernels, memory, events. */
enum {
    PLATFORM_VERSION = 0x0901,
    PLATFORM_NAME = 0x0902,
    DEVICE_TYPE = 0x1000,
    MAX_WORK_ITEM_SIZES = 0x1005,
    DEVICE_NAME = 0x102B,
    DRIVER_VERSION = 0x102D,
    DEVICE_PROFILE = 0x102E,
    DEVICE_VERSION = 0x102F,
    DEVICE_PLATFORM = 0x1031,
    CONTEXT_DEVICES = 0x1081,
    QUEUE_CONTEXT = 0x1090,
    QUEUE_DEVICE = 0x1091,
    QUEUE_PROPERTIES = 0x1093,
    MEM_SIZE = 0x1102,
    IMAGE_ROW_PITCH = 0x1112,
    PROGRAM_BINARY_SIZES = 0x1165,
    PROGRAM_BINARIES = 0x1166,
    BUILD_LOG = 0x1183,
    KERNEL_NUM_ARGS = 0x1191,
    KERNEL_WORK_GROUP_SIZE = 0x11B0,
    EVENT_STATUS = 0x11D3,
    PROFILING_START = 0x1282,
    PROFILING_END = 0x1283
};

#define TYPE_ALL UINT64_C(0xffffffff)

#define WAIT_LIST uint32_t, const cl_object *, cl_object *
#define ASK cl_object, uint32_t, size_t, void *, size_t *

/* Result, name and parameters of every function. */
#define FUNCTIONS(X)                                                                               \
    X(int32_t, clGetPlatformIDs, (uint32_t, cl_object *, uint32_t *))                              \
    X(int32_t, clGetPlatformInfo, (ASK))                                                           \
    X(int32_t, clGetDeviceIDs, (cl_object, uint64_t, uint32_t, cl_object *, uint32_t *))           \
    X(int32_t, clGetDeviceInfo, (ASK))                                                             \
    X(cl_object, clCreateContext,                                                                  \
      (const intptr_t *, uint32_t, const cl_object *, void *, void *, int32_t *))                  \
    X(int32_t, clRetainContext, (cl_object))                                                       \
    X(int32_t, clReleaseContext, (cl_object))                                                      \
    X(int32_t, clGetContextInfo, (ASK))                                                            \
    X(cl_object, clCreateCommandQueue, (cl_object, cl_object, uint64_t, int32_t *))                \
    X(int32_t, clRetainCommandQueue, (cl_object))                                                  \
    X(int32_t, clReleaseCommandQueue, (cl_object))                                                 \
    X(int32_t, clGetCommandQueueInfo, (ASK))                                                       \
    X(cl_object, clCreateProgramWithSource,                                                        \
      (cl_object, uint32_t, const char **, const size_t *, int32_t *))                             \
    X(cl_object, clCreateProgramWithBinary,                                                        \
      (cl_object, uint32_t, const cl_object *, const size_t *, const unsigned char **, int32_t *,  \
       int32_t *))                                                                                 \
    X(int32_t, clBuildProgram,                                                                     \
      (cl_object, uint32_t, const cl_object *, const char *, void *, void *))                      \
    X(int32_t, clGetProgramInfo, (ASK))                                                            \
    X(int32_t, clGetProgramBuildInfo, (cl_object, ASK))                                            \
    X(int32_t, clReleaseProgram, (cl_object))                                                      \
    X(cl_object, clCreateKernel, (cl_object, const char *, int32_t *))                             \
    X(int32_t, clSetKernelArg, (cl_object, uint32_t, size_t, const void *))                        \
    X(int32_t, clGetKernelInfo, (ASK))                                                             \
    X(int32_t, clGetKernelWorkGroupInfo, (cl_object, ASK))                                         \
    X(int32_t, clReleaseKernel, (cl_object))                                                       \
    X(cl_object, clCreateBuffer, (cl_object, uint64_t, size_t, void *, int32_t *))                 \
    X(cl_object, clCreateSubBuffer, (cl_object, uint64_t, uint32_t, const void *, int32_t *))      \
    X(cl_object, clCreateImage,                                                                    \
      (cl_object, uint64_t, const image_format *, const image_description *, void *, int32_t *))   \
    X(int32_t, clGetImageInfo, (ASK))                                                              \
    X(int32_t, clGetMemObjectInfo, (ASK))                                                          \
    X(int32_t, clRetainMemObject, (cl_object))                                                     \
    X(int32_t, clReleaseMemObject, (cl_object))                                                    \
    X(int32_t, clEnqueueNDRangeKernel,                                                             \
      (cl_object, cl_object, uint32_t, const size_t *, const size_t *, const size_t *, WAIT_LIST)) \
    X(int32_t, clEnqueueCopyBuffer,                                                                \
      (cl_object, cl_object, cl_object, size_t, size_t, size_t, WAIT_LIST))                        \
    X(int32_t, clEnqueueFillBuffer,                                                                \
      (cl_object, cl_object, const void *, size_t, size_t, size_t, WAIT_LIST))                     \
    X(int32_t, clEnqueueWriteBuffer,                                                               \
      (cl_object, cl_object, uint32_t, size_t, size_t, const void *, WAIT_LIST))                   \
    X(int32_t, clEnqueueWriteImage,                                                                \
      (cl_object, cl_object, uint32_t, const size_t *, const size_t *, size_t, size_t,             \
       const void *, WAIT_LIST))                                                                   \
    X(void *, clEnqueueMapBuffer,                                                                  \
      (cl_object, cl_object, uint32_t, uint64_t, size_t, size_t, WAIT_LIST, int32_t *))            \
    X(int32_t, clEnqueueUnmapMemObject, (cl_object, cl_object, void *, WAIT_LIST))                 \
    X(int32_t, clEnqueueMarkerWithWaitList, (cl_object, WAIT_LIST))                                \
    X(int32_t, clFlush, (cl_object))                                                               \
    X(int32_t, clFinish, (cl_object))                                                              \
    X(int32_t, clWaitForEvents, (uint32_t, const cl_object *))                                     \
    X(int32_t, clGetEventInfo, (ASK))                                                              \
    X(int32_t, clGetEventProfilingInfo, (ASK))                                                     \
    X(int32_t, clReleaseEvent, (cl_object))

/* Numbers that the device says of itself: asked for once, 0 where it does not say. */
#define FACTS(X)                                                                                   \
    X(max_work_group_size, 0x1004) X(address_bits, 0x100D) X(max_mem_alloc_size, 0x1010)           \
    X(image2d_max_width, 0x1011) X(image2d_max_height, 0x1012) X(image_support, 0x1016)            \
    X(max_parameter_size, 0x1017) X(mem_base_addr_align, 0x1019) X(global_mem_size, 0x101F)        \
    X(local_mem_size, 0x1023) X(endian_little, 0x1026) X(host_unified_memory, 0x1035)              \
    X(image_pitch_alignment, 0x104A) X(image_base_address_alignment, 0x104B)

#define MEMBER(result, name, parameters) result(*name) parameters;
#define NAME(result, name, parameters) #name "\0"

typedef struct api {
    FUNCTIONS(MEMBER)
} api;

#define FACT(name, what) uint64_t name;
#define WHAT(name, what) what,

typedef struct facts {
    FACTS(FACT)
} facts;

/* A part of a buffer that is mapped, until settle. */
typedef struct mapped {
    te_part part;
    unsigned char *memory;
} mapped;

typedef struct opencl {
    api cl;
    facts facts;
    cl_object device, context, queue, program, symbols;
    cl_object *arenas, *weights; /* NULL where only images are made of it */
    cl_object *buffers;          /* parts of arenas, or weights; NULL for images without one */
    cl_object *images;
    cl_object *kernels; /* of each step */
    bool *takes_image;  /* a binding, as the kernel's source says */
    mapped *mapped;     /* of inputs or outputs */
    uint32_t mappings;
    bool mapping;   /* what is mapped may not be there yet */
    cl_object last; /* the event at the end of a run */
    int32_t table[TE_MAX_SYMBOLS];
} opencl;

/* Arrays of objects in a row, for their release. */
static uint32_t memory_count(const te_model *model) {
    return TOTAL(ARENAS) + TOTAL(WEIGHTS) + TOTAL(BUFFERS) + TOTAL(IMAGES);
}

static uint64_t lay_out(const te_model *model, opencl *block) {
    opencl unused, *to = block ? block : &unused;
    uint64_t end = sizeof *to;
    to->arenas = te_place(block, &end, memory_count(model), sizeof *to->arenas);
    to->kernels = te_place(block, &end, TOTAL(STEPS), sizeof *to->kernels);
    to->takes_image = te_place(block, &end, TOTAL(BINDINGS), sizeof *to->takes_image);
    to->mapped = te_place(block, &end, TOTAL(INPUTS) + TOTAL(OUTPUTS), sizeof *to->mapped);
    if (!block) return end;
    to->weights = to->arenas + TOTAL(ARENAS);
    to->buffers = to->weights + TOTAL(WEIGHTS);
    to->images = to->buffers + TOTAL(BUFFERS);
    return end;
}

static void measure(const te_model *model, const te_context_options *options, te_memory *memory) {
    (void)options;
    memory->arenas = 0;
    memory->context = lay_out(model, NULL);
    memory->device = TOTAL(SYMBOLS) ? sizeof((opencl *)0)->table : 0;
    for (uint32_t i = 0; i < TOTAL(ARENAS); i++) memory->device += (uint64_t)model->arenas[i];
    for (uint32_t i = 0; i < TOTAL(WEIGHTS); i++) {
        memory->device += (uint64_t)model->weights[i].bytes;
    }
}

/* --- calls ----------------------------------------------------------------------------------- */

static const char names[] = FUNCTIONS(NAME);

/* place: of the function in struct api. */
static te_status failed(int32_t code, size_t place, te_error *error) {
    const bool memory = code <= NO_MEMORY && code >= OUT_OF_HOST_MEMORY;
    const char *name = names;
    if (!code) return TE_OK;
    for (; place; place -= sizeof(void *)) name += strlen(name) + 1;
    return te_fail(error, memory ? TE_DEVICE_MEMORY : TE_DEVICE_DRIVER, "%s failed with %d", name,
                   (int)code);
}

#define CALL(name, ...) TE_TRY(failed(device->cl.name(__VA_ARGS__), offsetof(api, name), error))

/* What makes an object gives its code by a pointer, which comes last. */
#define MAKE(object, name, ...)                                                                    \
    do {                                                                                           \
        int32_t code_ = 0;                                                                         \
        (object) = device->cl.name(__VA_ARGS__, &code_);                                           \
        TE_TRY(failed(code_, offsetof(api, name), error));                                         \
    } while (0)

static void settle(te_context *context);

static te_status open_library(opencl *device, const char *library, te_error *error) {
    static const char *const places[] = {"libOpenCL.so.1", "libOpenCL.so",
                                         "/vendor/lib64/libOpenCL.so",
                                         "/system/vendor/lib64/libOpenCL.so", NULL};
    void *handle = te_open_library(library, places);
    TE_NEED(handle, TE_DEVICE_MISSING, "there is no OpenCL: %s cannot be loaded",
            library ? library : places[0]);
    const char *missing = te_find_functions(handle, names, &device->cl);
    TE_NEED(!missing, TE_DEVICE_MISSING, "the OpenCL library has no %s", missing);
    return TE_OK;
}

/* Numbers have 4 or 8 bytes. */
static void ask_facts(opencl *device) {
    static const uint16_t asked[] = {FACTS(WHAT)};
    uint64_t values[sizeof asked / sizeof *asked] = {0};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        uint64_t *value = &values[i];
        if (device->cl.clGetDeviceInfo(device->device, asked[i], 8, value, NULL)) *value = 0;
    }
    memcpy(&device->facts, values, sizeof values);
}

/* Text that a platform or device gives, "" where it does not, or where it is too long. */
static TE_NOINLINE void ask_text(int32_t (*ask)(ASK), cl_object object, uint32_t what, char *to,
                              size_t room) {
    size_t bytes = 0;
    if (ask(object, what, room - 1, to, &bytes) || bytes >= room) bytes = 0;
    to[bytes] = 0;
}

static cl_object platform_of(const opencl *device) {
    cl_object platform = NULL;
    device->cl.clGetDeviceInfo(device->device, DEVICE_PLATFORM, sizeof platform, &platform, NULL);
    return platform;
}

/* --- which device ---------------------------------------------------------------------------- */

#define MOST_PLATFORMS 16
#define MOST_DEVICES 32

/* "name (platform)" */
static void device_name(const opencl *device, char name[256]) {
    char of[120], platform[120];
    ask_text(device->cl.clGetDeviceInfo, device->device, DEVICE_NAME, of, sizeof of);
    ask_text(device->cl.clGetPlatformInfo, platform_of(device), PLATFORM_NAME, platform,
             sizeof platform);
    snprintf(name, 256, "%s (%s)", of, platform);
}

/* Which device is wanted, and those that were looked at. */
typedef struct search {
    const char *wanted;
    uint32_t number;
    char names[160];
} search;

/* Whether it is among these; GPUs are asked for first, then the others. */
static bool find(opencl *device, const cl_object *devices, size_t count, bool gpu,
                 search *search) {
    char name[256];
    for (size_t i = 0; i < count; i++) {
        device->device = devices[i];
        uint64_t type = 0;
        device->cl.clGetDeviceInfo(device->device, DEVICE_TYPE, sizeof type, &type, NULL);
        if (gpu != ((type & TYPE_GPU) != 0)) continue;
        device_name(device, name);
        if (te_is_wanted(search->wanted, search->number++, name)) return true;
        const size_t used = strlen(search->names);
        snprintf(search->names + used, sizeof search->names - used, "; %s", name);
    }
    return false;
}

static te_status choose_device(opencl *device, const te_opencl_options *options, te_error *error) {
    cl_object platforms[MOST_PLATFORMS], devices[MOST_DEVICES];
    search search = {.wanted = options->device};
    uint32_t found = 0, count = 0;
    size_t bytes = 0;
    if (options->context) {
        CALL(clGetContextInfo, options->context, CONTEXT_DEVICES, sizeof devices, devices, &bytes);
        for (int others = 0; others < 2; others++) {
            if (find(device, devices, bytes / sizeof *devices, !others, &search)) return TE_OK;
        }
    } else if (!device->cl.clGetPlatformIDs(MOST_PLATFORMS, platforms, &found)) {
        if (found > MOST_PLATFORMS) found = MOST_PLATFORMS;
        for (uint32_t i = 0; i < 2 * found; i++) {
            if (device->cl.clGetDeviceIDs(platforms[i % found], TYPE_ALL, MOST_DEVICES, devices,
                                          &count)) {
                continue; /* a platform without devices */
            }
            if (count > MOST_DEVICES) count = MOST_DEVICES;
            if (find(device, devices, count, i < found, &search)) return TE_OK;
        }
    }
    device->device = NULL;
    TE_NEED(search.number, TE_DEVICE_MISSING, "OpenCL finds no device");
    return te_fail(error, TE_DEVICE_ADAPTER, "no OpenCL device is called %s%s", search.wanted,
                   search.names);
}

static te_status open_queue(opencl *device, const te_context_options *all, te_error *error) {
    const te_opencl_options *options = &all->opencl;
    uint64_t properties = 0;
    if (options->queue) {
        cl_object context;
        const cl_object queue = options->queue;
        CALL(clGetCommandQueueInfo, queue, QUEUE_DEVICE, sizeof queue, &device->device, NULL);
        CALL(clGetCommandQueueInfo, queue, QUEUE_CONTEXT, sizeof queue, &context, NULL);
        CALL(clGetCommandQueueInfo, queue, QUEUE_PROPERTIES, sizeof properties, &properties, NULL);
        TE_NEED(!(properties & OUT_OF_ORDER) && (!all->profile || properties & PROFILING),
                TE_API_ARGUMENT, "a queue must be in order, and for profiles made for them");
        CALL(clRetainCommandQueue, queue);
        device->queue = queue;
        CALL(clRetainContext, context);
        device->context = context;
        return TE_OK;
    }
    TE_TRY(choose_device(device, options, error));
    if (options->context) {
        CALL(clRetainContext, options->context);
        device->context = options->context;
    } else {
        MAKE(device->context, clCreateContext, NULL, 1, &device->device, NULL, NULL);
    }
    properties = all->profile ? PROFILING : 0;
    MAKE(device->queue, clCreateCommandQueue, device->context, device->device, properties);
    return TE_OK;
}

static te_status check_limits(const opencl *device, const te_model *model, te_error *error) {
    static const struct {
        uint8_t requirement, limit; /* the limit's place among the facts */
    } limits[] = {
        {TE_BINDING_BYTES, offsetof(facts, max_mem_alloc_size) / 8},
        {TE_BUFFER_BYTES, offsetof(facts, max_mem_alloc_size) / 8},
        {TE_INVOCATIONS, offsetof(facts, max_work_group_size) / 8},
        {TE_WORKGROUP_BYTES, offsetof(facts, local_mem_size) / 8},
        {TE_IMAGE_WIDTH, offsetof(facts, image2d_max_width) / 8},
        {TE_IMAGE_HEIGHT, offsetof(facts, image2d_max_height) / 8},
    };
    const facts *facts = &device->facts;
    char profile[32];
    te_memory memory;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        const uint64_t needed = (uint64_t)model->requirements[limits[i].requirement];
        uint64_t limit;
        memcpy(&limit, (const char *)facts + 8 * limits[i].limit, sizeof limit);
        TE_NEED(needed <= limit, TE_DEVICE_LIMITS,
                "the bundle needs %s of %llu, the device has %llu",
                te_requirement_name((enum te_requirement)limits[i].requirement),
                (unsigned long long)needed, (unsigned long long)limit);
    }
    measure(model, NULL, &memory);
    ask_text(device->cl.clGetDeviceInfo, device->device, DEVICE_PROFILE, profile, sizeof profile);
    const uint64_t arguments = (uint64_t)model->requirements[TE_BINDINGS] + 1; /* with the sizes */
    const char *lacks = NULL;
    if (strcmp(profile, "FULL_PROFILE")) lacks = "the full profile";
    if (!facts->endian_little) lacks = "little-endian numbers";
    if (TOTAL(IMAGES) && !facts->image_support) lacks = "images";
    if (memory.device > facts->global_mem_size) lacks = "enough memory";
    if (arguments * facts->address_bits > 8 * facts->max_parameter_size) {
        lacks = "kernels of so many arguments";
    }
    TE_NEED(!lacks, TE_DEVICE_LIMITS, "the device has not %s", lacks);
    return TE_OK;
}

/* --- the program ----------------------------------------------------------------------------- */

/* The bundle's options for the compiler are among these. */
static te_status check_build(const te_model *model, const char **build, te_error *error) {
    static const char *const known[] = {"-cl-std=CL1.2", "-cl-mad-enable",
                                        "-cl-fast-relaxed-math"};
    *build = model->build.at ? model->build.at : "-cl-std=CL1.2 -cl-mad-enable";
    for (const char *at = *build; *at;) {
        const size_t length = strcspn(at, " ");
        bool found = !length;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
            found |= strlen(known[i]) == length && !memcmp(known[i], at, length);
        }
        TE_NEED(found, TE_DEVICE_COMPILE, "the bundle wants its kernels compiled with %s", at);
        at += length + (at[length] != 0);
    }
    return TE_OK;
}

/* What a compiled program depends on, as a hash. */
static void cache_key(const opencl *device, const te_model *model, const char *build,
                      char key[65]) {
    static const uint16_t facts[] = {DEVICE_NAME, DRIVER_VERSION, DEVICE_VERSION};
    char text[256];
    te_sha256 hash;
    te_sha256_start(&hash);
    te_sha256_add(&hash, model->files[model->prelude.file].sha256.at, 64);
    te_sha256_add(&hash, build, strlen(build) + 1);
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        ask_text(device->cl.clGetDeviceInfo, device->device, facts[i], text, sizeof text);
        te_sha256_add(&hash, text, strlen(text) + 1);
    }
    const cl_object platform = platform_of(device);
    ask_text(device->cl.clGetPlatformInfo, platform, PLATFORM_VERSION, text, sizeof text);
    te_sha256_add(&hash, text, strlen(text) + 1);
    te_sha256_end(&hash, key);
}

static void digest(const void *data, size_t bytes, char digits[65]) {
    te_sha256 hash;
    te_sha256_start(&hash);
    te_sha256_add(&hash, data, bytes);
    te_sha256_end(&hash, digits);
}

/* A cached program lies behind its own hash. */
#define DIGITS 64

/* Whether the program could be made from the cache; nothing is left of one that could not. */
static bool load_cached(opencl *device, const te_model *model, const te_cache *cache,
                        const char *key, const char *build) {
    char digits[DIGITS + 1];
    int32_t codes[2] = {0, 0};
    const int64_t size = cache->read(cache->user, key, NULL, 0);
    if (size <= DIGITS || size > TE_INTEGER_LIMIT) return false;
    const size_t bytes = (size_t)size - DIGITS;
    unsigned char *data = te_allocate(&model->allocator, (uint64_t)size);
    if (data && cache->read(cache->user, key, data, (size_t)size) == size) {
        const unsigned char *binary = data + DIGITS;
        digest(binary, bytes, digits);
        if (!memcmp(digits, data, DIGITS)) {
            device->program = device->cl.clCreateProgramWithBinary(
                device->context, 1, &device->device, &bytes, &binary, &codes[0], &codes[1]);
        }
    }
    te_release(&model->allocator, data);
    if (!device->program) return false;
    if (!codes[0] && !codes[1] &&
        !device->cl.clBuildProgram(device->program, 1, &device->device, build, NULL, NULL)) {
        return true;
    }
    device->cl.clReleaseProgram(device->program);
    device->program = NULL;
    return false;
}

static void keep_compiled(const opencl *device, const te_model *model, const te_cache *cache,
                          const char *key) {
    size_t bytes = 0;
    device->cl.clGetProgramInfo(device->program, PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, NULL);
    if (!bytes || bytes > SIZE_MAX / 2) return;
    unsigned char *data = te_allocate(&model->allocator, (uint64_t)bytes + DIGITS + 1);
    if (!data) return;
    unsigned char *binary = data + DIGITS;
    if (!device->cl.clGetProgramInfo(device->program, PROGRAM_BINARIES, sizeof binary, &binary,
                                     NULL)) {
        char digits[DIGITS + 1];
        digest(binary, bytes, digits);
        memcpy(data, digits, DIGITS);
        if (cache->write(cache->user, key, data, bytes + DIGITS)) {
            te_log(&model->logger, TE_DEVICE_CACHE,
                   "the cache keeps nothing: the kernels will be compiled again next time");
        }
    }
    te_release(&model->allocator, data);
}

/* The compiler's words: all to the logger, the first with an error in them to the error. */
static te_status refused(const opencl *device, const te_model *model, int32_t code,
                         te_error *error) {
    size_t bytes = 0;
    char *log = NULL;
    te_fail(error, TE_DEVICE_COMPILE, "clBuildProgram failed with %d", (int)code);
    device->cl.clGetProgramBuildInfo(device->program, device->device, BUILD_LOG, 0, NULL, &bytes);
    if (bytes) log = te_allocate(&model->allocator, (uint64_t)bytes + 1);
    if (log && !device->cl.clGetProgramBuildInfo(device->program, device->device, BUILD_LOG, bytes,
                                                 log, NULL)) {
        bool told = false;
        for (char *line = log; *line;) {
            const size_t length = strcspn(line, "\n");
            char *next = line + length + (line[length] != 0);
            line[length] = 0;
            te_log(&model->logger, TE_DEVICE_COMPILE, line);
            if (!told && te_contains(line, "error")) {
                te_fail(error, TE_DEVICE_COMPILE, "%s", line);
                told = true;
            }
            line = next;
        }
    }
    te_release(&model->allocator, log);
    return TE_DEVICE_COMPILE;
}

/* What follows a kernel's name and the bracket behind it, or NULL. */
static char *parameters(char *source, const char *name) {
    const size_t length = strlen(name);
    for (char *at = source; (at = strstr(at, name)) != NULL; at += length) {
        if (at > source && (te_is_letter(at[-1]) || te_is_digit(at[-1]))) continue;
        char *behind = at + length + strspn(at + length, " \t\n\v\f\r");
        if (*behind == '(') return behind + 1;
    }
    return NULL;
}

/* Drivers may crash where a kernel is given a buffer for an image, or an image for a buffer. */
static void find_images(const opencl *device, const te_model *model, char *source) {
    for (uint32_t i = 0; i < TOTAL(KERNELS); i++) {
        const te_kernel_record *kernel = &model->kernels[i];
        char *start = source + kernel->range.offset, *end = start + kernel->range.bytes;
        const char behind = *end;
        *end = 0;
        char *at = parameters(start, kernel->entry.at);
        for (uint32_t j = 0; at && j < kernel->bindings; j++) {
            const size_t length = strcspn(at, ",)");
            const char stop = at[length];
            at[length] = 0;
            device->takes_image[kernel->first_binding + j] = strstr(at, "image2d_t") != NULL;
            at[length] = stop;
            at += length + (stop == ',');
        }
        *end = behind;
    }
}

static TE_NOINLINE te_status build_program(opencl *device, const te_context *context,
                                        te_error *error) {
    const te_model *model = context->model;
    te_cache cache = context->options.opencl.cache;
    const char *folder = context->options.opencl.cache_folder, *build;
    char key[65], *source;
    TE_TRY(check_build(model, &build, error));
    for (uint32_t i = 0; i < TOTAL(KERNELS); i++) {
        TE_NEED(model->kernels[i].range.file == model->prelude.file, TE_DEVICE_KERNEL,
                "the kernels are not in one file");
    }
#ifndef TINYEDGE_NO_FOLDER
    if (folder) cache = te_folder_cache(folder);
#else
    TE_NEED(!folder, TE_API_ARGUMENT, "compiled without folders");
#endif
    const bool cached = cache.read && cache.write;
    TE_TRY(te_read_file(model, model->prelude.file, &source, error));
    find_images(device, model, source);
    const char *text = source;
    int32_t code = 0;
    if (cached) cache_key(device, model, build, key);
    const bool loaded = cached && load_cached(device, model, &cache, key, build);
    if (!loaded) {
        device->program =
            device->cl.clCreateProgramWithSource(device->context, 1, &text, NULL, &code);
    }
    te_release(&model->allocator, source);
    if (loaded) return TE_OK;
    TE_TRY(failed(code, offsetof(api, clCreateProgramWithSource), error));
    code = device->cl.clBuildProgram(device->program, 1, &device->device, build, NULL, NULL);
    if (code == OUT_OF_HOST_MEMORY) return failed(code, offsetof(api, clBuildProgram), error);
    if (code) return refused(device, model, code, error);
    if (cached) keep_compiled(device, model, &cache, key);
    return TE_OK;
}

/* --- memory ---------------------------------------------------------------------------------- */

static TE_NOINLINE te_status make_buffer(const opencl *device, uint64_t bytes, cl_object *buffer,
                                      te_error *error) {
    /* Where the host shares the device's memory, it can be mapped there without a copy. */
    const uint64_t flags = READ_WRITE | (device->facts.host_unified_memory ? ALLOC_HOST_PTR : 0);
    MAKE(*buffer, clCreateBuffer, device->context, flags, (size_t)bytes, NULL);
    return TE_OK;
}

static te_status make_weight(const opencl *device, const te_model *model, int32_t weight,
                             te_error *error) {
    if (device->weights[weight]) return TE_OK;
    return make_buffer(device, (uint64_t)model->weights[weight].bytes, &device->weights[weight],
                       error);
}

/* A part of an arena, or a weight, as an object of its own. */
static te_status make_part(const opencl *device, const te_model *model, uint32_t number,
                           te_error *error) {
    const te_buffer_record *buffer = &model->buffers[number];
    if (buffer->weight != -1) {
        TE_TRY(make_weight(device, model, buffer->weight, error));
        CALL(clRetainMemObject, device->weights[buffer->weight]);
        device->buffers[number] = device->weights[buffer->weight];
        return TE_OK;
    }
    const size_t region[2] = {(size_t)buffer->offset, (size_t)buffer->bytes};
    const uint64_t alignment = device->facts.mem_base_addr_align;
    TE_NEED(alignment && (uint64_t)buffer->offset * 8 % alignment == 0, TE_DEVICE_LIMITS,
            "the device's buffers begin at multiples of %llu bits", (unsigned long long)alignment);
    MAKE(device->buffers[number], clCreateSubBuffer, device->arenas[buffer->arena], READ_WRITE,
         REGION, region);
    return TE_OK;
}

static int64_t pixel_bytes(const te_image_record *image) {
    return 4 * (int64_t)te_dtype_bytes(image->dtype);
}

/* An image over a part, or with memory of its own where the device says that it cannot do that. */
static te_status make_image(const opencl *device, const te_model *model, uint32_t number,
                            te_error *error) {
    const te_image_record *image = &model->images[number];
    const te_buffer_record *buffer = &model->buffers[image->buffer];
    const image_format format = {RGBA, image->dtype == TE_FLOAT16 ? HALF_FLOAT : FLOAT};
    image_description description = {.type = IMAGE2D, .width = (size_t)image->width,
                                     .height = (size_t)image->height};
    const uint64_t rows = device->facts.image_pitch_alignment; /* both in pixels; 0: no views */
    const uint64_t start = device->facts.image_base_address_alignment;
    const int64_t pixel = pixel_bytes(image);
    size_t pitch = 0;
    cl_object *made = &device->images[number];
    if (rows && (uint64_t)(image->pitch / pixel) % rows == 0 &&
        (!start || (uint64_t)(buffer->offset / pixel) % start == 0)) {
        TE_TRY(make_part(device, model, (uint32_t)image->buffer, error));
        description.row_pitch = (size_t)image->pitch;
        description.buffer = device->buffers[image->buffer];
        MAKE(*made, clCreateImage, device->context, READ_WRITE, &format, &description, NULL);
        CALL(clGetImageInfo, *made, IMAGE_ROW_PITCH, sizeof pitch, &pitch, NULL);
        TE_NEED(pitch == (size_t)image->pitch, TE_DEVICE_IMAGE,
                "the device makes an image with rows of %llu bytes of one with rows of %llu",
                (unsigned long long)pitch, (unsigned long long)image->pitch);
        return TE_OK;
    }
    /* One of the same place and size is the same; weights that are equal are one already. */
    for (uint32_t i = number; i-- > 0 && buffer->arena != -1;) {
        const te_image_record *other = &model->images[i];
        const te_buffer_record *place = &model->buffers[other->buffer];
        if (place->arena == buffer->arena && place->offset == buffer->offset &&
            other->width == image->width && other->height == image->height &&
            other->dtype == image->dtype && !device->buffers[other->buffer]) {
            CALL(clRetainMemObject, device->images[i]);
            *made = device->images[i];
            return TE_OK;
        }
    }
    MAKE(*made, clCreateImage, device->context, READ_WRITE, &format, &description, NULL);
    return TE_OK;
}

static te_status make_memory(const opencl *device, const te_model *model, te_error *error) {
    for (uint32_t i = 0; i < TOTAL(ARENAS); i++) {
        TE_TRY(make_buffer(device, (uint64_t)model->arenas[i], &device->arenas[i], error));
    }
    for (uint32_t i = 0; i < TOTAL(BUFFERS); i++) {
        if (!te_image_of(model, (int32_t)i)) TE_TRY(make_part(device, model, i, error));
    }
    for (uint32_t i = 0; i < TOTAL(STATES); i++) {
        const int32_t initial = model->ports[TE_STATES][i].initial;
        if (initial != -1) TE_TRY(make_weight(device, model, initial, error));
    }
    for (uint32_t i = 0; i < TOTAL(IMAGES); i++) TE_TRY(make_image(device, model, i, error));
    return TE_OK;
}

/* Bytes of a weight into an image of its own: whole rows, or what there is of one. */
static te_status write_image(const opencl *device, const te_image_record *image, cl_object object,
                             int64_t offset, const unsigned char *data, int64_t bytes,
                             te_error *error) {
    const int64_t pixel = pixel_bytes(image), width = image->width * pixel;
    for (int64_t done; bytes > 0; offset += done, data += done, bytes -= done) {
        const int64_t row = offset / image->pitch, from = offset % image->pitch;
        int64_t rows = from ? 0 : bytes / image->pitch;
        if (row >= image->height) return TE_OK;
        if (rows > image->height - row) rows = image->height - row;
        done = rows ? rows * image->pitch : image->pitch - from;
        if (done > bytes) done = bytes;
        /* Behind its width a row has bytes that are no pixels. */
        const int64_t part = rows || done > width - from ? width - from : done;
        const size_t origin[3] = {(size_t)(from / pixel), (size_t)row, 0};
        const size_t region[3] = {(size_t)(part / pixel), (size_t)(rows ? rows : 1), 1};
        if (part <= 0) continue;
        CALL(clEnqueueWriteImage, device->queue, object, BLOCKING, origin, region,
             (size_t)(rows ? image->pitch : 0), 0, data, 0, NULL, NULL);
    }
    return TE_OK;
}

/* A piece of a weight to all that is made of it. */
static te_status write_weight(void *user, uint32_t weight, int64_t offset, const void *data,
                              size_t bytes, te_error *error) {
    const te_context *context = user;
    const te_model *model = context->model;
    const opencl *device = context->device;
    if (device->weights[weight]) {
        CALL(clEnqueueWriteBuffer, device->queue, device->weights[weight], BLOCKING,
             (size_t)offset, bytes, data, 0, NULL, NULL);
    }
    for (uint32_t i = 0; i < TOTAL(IMAGES); i++) {
        const te_image_record *image = &model->images[i];
        const bool own = !device->buffers[image->buffer];
        if (!own || model->buffers[image->buffer].weight != (int32_t)weight) continue;
        TE_TRY(write_image(device, image, device->images[i], offset, data, (int64_t)bytes, error));
    }
    return TE_OK;
}

/* --- kernels --------------------------------------------------------------------------------- */

static te_status make_kernel(const opencl *device, const te_model *model, uint32_t number,
                             te_error *error) {
    const te_step_record *step = &model->steps[number];
    const te_kernel_record *kernel = &model->kernels[step->kernel];
    const int64_t threads = te_threads(kernel);
    size_t sizes[3] = {0}, limit = 0;
    uint32_t arguments = 0, i = 0;
    cl_object *made = &device->kernels[number];
    int32_t code = 0;
    *made = device->cl.clCreateKernel(device->program, kernel->entry.at, &code);
    TE_NEED(code != NO_KERNEL, TE_DEVICE_KERNEL, "the program has no kernel %s", kernel->entry.at);
    TE_TRY(failed(code, offsetof(api, clCreateKernel), error));
    CALL(clGetKernelInfo, *made, KERNEL_NUM_ARGS, sizeof arguments, &arguments, NULL);
    TE_NEED(arguments == kernel->bindings + kernel->symbols, TE_DEVICE_KERNEL,
            "kernel %s takes %u arguments", kernel->entry.at, (unsigned)arguments);
    CALL(clGetKernelWorkGroupInfo, *made, device->device, KERNEL_WORK_GROUP_SIZE, sizeof limit,
         &limit, NULL);
    CALL(clGetDeviceInfo, device->device, MAX_WORK_ITEM_SIZES, sizeof sizes, sizes, NULL);
    for (int axis = 0; axis < 3; axis++) {
        if ((size_t)kernel->workgroup[axis] > sizes[axis]) limit = 0;
    }
    TE_NEED((uint64_t)threads <= limit, TE_DEVICE_LIMITS,
            "kernel %s has workgroups of %lld threads, too many for the device", kernel->entry.at,
            (long long)threads);
    for (; i < step->buffers; i++) {
        const int32_t buffer = model->bound[step->first_buffer + i];
        const te_image_record *image = te_image_of(model, buffer);
        TE_NEED(device->takes_image[kernel->first_binding + i] == (image != NULL), TE_DEVICE_IMAGE,
                "kernel %s is given %s", kernel->entry.at,
                image ? "an image for a buffer" : "a buffer for an image");
        const cl_object *object =
            image ? &device->images[image - model->images] : &device->buffers[buffer];
        CALL(clSetKernelArg, *made, i, sizeof *object, object);
    }
    if (kernel->symbols) CALL(clSetKernelArg, *made, i, sizeof device->symbols, &device->symbols);
    return TE_OK;
}

static te_status create(te_context *context, te_error *error) {
    const te_model *model = context->model;
    const te_context_options *options = &context->options;
    opencl *device = context->device;
    lay_out(model, device);
    TE_TRY(open_library(device, options->opencl.library, error));
    TE_TRY(open_queue(device, options, error));
    ask_facts(device);
    TE_TRY(check_limits(device, model, error));
    if (TOTAL(KERNELS)) TE_TRY(build_program(device, context, error));
    TE_TRY(make_memory(device, model, error));
    if (TOTAL(SYMBOLS)) {
        TE_TRY(make_buffer(device, sizeof device->table, &device->symbols, error));
    }
    TE_TRY(te_stream_weights(model, write_weight, context, error));
    for (uint32_t i = 0; i < TOTAL(STEPS); i++) {
        if (model->steps[i].op == TE_LAUNCH) TE_TRY(make_kernel(device, model, i, error));
    }
    return TE_OK;
}

static void forget_last(opencl *device) {
    if (device->last) device->cl.clReleaseEvent(device->last);
    device->last = NULL;
}

/* Also of a context whose creation failed half way. */
static void destroy(te_context *context) {
    const te_model *model = context->model;
    opencl *device = context->device;
    if (device->queue) {
        settle(context);
        device->cl.clFinish(device->queue);
    }
    forget_last(device);
    for (uint32_t i = 0; device->kernels && i < TOTAL(STEPS); i++) {
        if (device->kernels[i]) device->cl.clReleaseKernel(device->kernels[i]);
    }
    /* Views before what they are of. */
    for (uint32_t i = memory_count(model); device->arenas && i-- > 0;) {
        if (device->arenas[i]) device->cl.clReleaseMemObject(device->arenas[i]);
    }
    if (device->symbols) device->cl.clReleaseMemObject(device->symbols);
    if (device->program) device->cl.clReleaseProgram(device->program);
    if (device->queue) device->cl.clReleaseCommandQueue(device->queue);
    if (device->context) device->cl.clReleaseContext(device->context);
}

/* --- running --------------------------------------------------------------------------------- */

/* Where a buffer lies: in an arena or weight, and at which byte of it. */
static cl_object place(const te_context *context, int32_t number, int64_t offset, size_t *at) {
    const te_buffer_record *buffer = &context->model->buffers[number];
    const opencl *device = context->device;
    *at = (size_t)(buffer->offset + offset);
    return buffer->arena != -1 ? device->arenas[buffer->arena] : device->weights[buffer->weight];
}

static te_status map_part(te_context *context, te_part part, bool write, bool block,
                          unsigned char **memory, te_error *error) {
    const opencl *device = context->device;
    size_t at;
    const cl_object buffer = place(context, part.buffer, part.offset, &at);
    MAKE(*memory, clEnqueueMapBuffer, device->queue, buffer, block,
         write ? MAP_WRITE_INVALIDATE : MAP_READ, at, (size_t)part.bytes, 0, NULL, NULL);
    return TE_OK;
}

static te_status unmap_part(te_context *context, te_part part, unsigned char *memory,
                            te_error *error) {
    const opencl *device = context->device;
    size_t at;
    const cl_object buffer = place(context, part.buffer, part.offset, &at);
    CALL(clEnqueueUnmapMemObject, device->queue, buffer, memory, 0, NULL, NULL);
    return TE_OK;
}

static te_status fetch(te_context *context, te_part part, bool write, te_error *error) {
    opencl *device = context->device;
    mapped *mapped = &device->mapped[device->mappings];
    mapped->part = part;
    TE_TRY(map_part(context, part, write, false, &mapped->memory, error));
    device->mappings++;
    device->mapping = true;
    return TE_OK;
}

static void settle(te_context *context) {
    opencl *device = context->device;
    te_error unwanted;
    while (device->mappings) {
        const mapped *mapped = &device->mapped[--device->mappings];
        unmap_part(context, mapped->part, mapped->memory, &unwanted);
    }
}

/* What fetch mapped around a part, or NULL. */
static unsigned char *fetched(const opencl *device, te_part part) {
    for (uint32_t i = 0; i < device->mappings; i++) {
        const mapped *mapped = &device->mapped[i];
        const int64_t offset = part.offset - mapped->part.offset;
        if (mapped->part.buffer == part.buffer && offset >= 0 &&
            offset + part.bytes <= mapped->part.bytes) {
            return mapped->memory + offset;
        }
    }
    return NULL;
}

static te_status map(te_context *context, te_part part, bool write, unsigned char **memory,
                     te_error *error) {
    opencl *device = context->device;
    *memory = fetched(device, part);
    if (!*memory) return map_part(context, part, write, true, memory, error);
    if (device->mapping) CALL(clFinish, device->queue);
    device->mapping = false;
    return TE_OK;
}

static te_status unmap(te_context *context, te_part part, bool write, unsigned char *memory,
                       te_error *error) {
    (void)write;
    if (fetched(context->device, part)) return TE_OK; /* settle does it */
    return unmap_part(context, part, memory, error);
}

static te_status exchange(te_context *context, te_part part, const te_tensor *tensor,
                          bool to_tensor, te_error *error) {
    const opencl *device = context->device;
    cl_object theirs;
    size_t room = 0, at;
    const uintptr_t handle = (uintptr_t)tensor->device;
    const size_t bytes = (size_t)part.bytes, offset = (size_t)tensor->offset;
    memcpy(&theirs, &handle, sizeof theirs);
    CALL(clGetMemObjectInfo, theirs, MEM_SIZE, sizeof room, &room, NULL);
    TE_NEED(tensor->offset <= room && bytes <= room - offset, TE_API_ARGUMENT,
            "a cl_mem of %llu bytes is too small", (unsigned long long)room);
    const cl_object ours = place(context, part.buffer, part.offset, &at);
    if (to_tensor) {
        CALL(clEnqueueCopyBuffer, device->queue, ours, theirs, at, offset, bytes, 0, NULL, NULL);
    } else {
        CALL(clEnqueueCopyBuffer, device->queue, theirs, ours, offset, at, bytes, 0, NULL, NULL);
    }
    return TE_OK;
}

static te_status reset(te_context *context, uint32_t number, te_error *error) {
    static const int32_t zero = 0;
    const te_model *model = context->model;
    const opencl *device = context->device;
    const te_port_record *state = &model->ports[TE_STATES][number];
    size_t at, initial = 0;
    const size_t bytes = (size_t)model->buffers[state->buffer].bytes;
    const cl_object to = place(context, state->buffer, 0, &at);
    if (state->initial != -1) {
        initial = (size_t)model->weights[state->initial].bytes;
        CALL(clEnqueueCopyBuffer, device->queue, device->weights[state->initial], to, 0, at,
             initial, 0, NULL, NULL);
    }
    if (initial < bytes) {
        CALL(clEnqueueFillBuffer, device->queue, to, &zero, sizeof zero, at + initial,
             bytes - initial, 0, NULL, NULL);
    }
    return TE_OK;
}

static te_status resize(te_context *context, te_error *error) {
    const te_model *model = context->model;
    opencl *device = context->device;
    const size_t bytes = TOTAL(SYMBOLS) * sizeof *device->table;
    for (uint32_t i = 0; i < TOTAL(STEPS); i++) {
        if (model->steps[i].op != TE_LAUNCH) continue;
        const int64_t *workgroup = model->kernels[model->steps[i].kernel].workgroup;
        for (int axis = 0; axis < 3; axis++) {
            TE_NEED(context->sizes[i][axis] * workgroup[axis] <= INT32_MAX, TE_DEVICE_COUNTS,
                    "step %u: more than 2^31 threads along one dimension", (unsigned)i);
        }
    }
    if (!bytes) return TE_OK;
    for (uint32_t i = 0; i < TOTAL(SYMBOLS); i++) device->table[i] = (int32_t)context->symbols[i];
    CALL(clEnqueueWriteBuffer, device->queue, device->symbols, BLOCKING, 0, bytes, device->table, 0,
         NULL, NULL);
    return TE_OK;
}

static te_status launch(const te_context *context, uint32_t number, cl_object *event,
                        te_error *error) {
    const te_step_record *step = &context->model->steps[number];
    const opencl *device = context->device;
    const int64_t *sizes = context->sizes[number];
    size_t threads[3], workgroup[3], from, to;
    if (step->op == TE_COPY) {
        const cl_object source = place(context, step->source, step->source_offset, &from);
        const cl_object destination =
            place(context, step->destination, step->destination_offset, &to);
        CALL(clEnqueueCopyBuffer, device->queue, source, destination, from, to, (size_t)sizes[0],
             0, NULL, event);
        return TE_OK;
    }
    for (int axis = 0; axis < 3; axis++) {
        workgroup[axis] = (size_t)context->model->kernels[step->kernel].workgroup[axis];
        threads[axis] = (size_t)sizes[axis] * workgroup[axis];
    }
    CALL(clEnqueueNDRangeKernel, device->queue, device->kernels[number], 3, NULL, threads,
         workgroup, 0, NULL, event);
    return TE_OK;
}

/* What the device's clock says of a command, which is waited for. */
static te_status time_event(const opencl *device, cl_object event, te_timing *timing,
                            te_error *error) {
    uint64_t start = 0, end = 0;
    CALL(clWaitForEvents, 1, &event);
    CALL(clGetEventProfilingInfo, event, PROFILING_START, sizeof start, &start, NULL);
    CALL(clGetEventProfilingInfo, event, PROFILING_END, sizeof end, &end, NULL);
    timing->runs++;
    timing->nanoseconds += end - start;
    return TE_OK;
}

static te_status run(te_context *context, uint32_t first, uint32_t end, te_error *error) {
    const opencl *device = context->device;
    for (uint32_t number = first; number < end; number++) {
        cl_object event = NULL;
        if (te_idle(context, number)) continue;
        TE_TRY(launch(context, number, context->timings ? &event : NULL, error));
        if (!event) continue;
        const te_status status = time_event(device, event, &context->timings[number], error);
        device->cl.clReleaseEvent(event);
        TE_TRY(status);
    }
    return TE_OK;
}

/* An event at the end of what was enqueued. */
static te_status mark(opencl *device, te_error *error) {
    if (!device->last) {
        CALL(clEnqueueMarkerWithWaitList, device->queue, 0, NULL, &device->last);
    }
    return TE_OK;
}

static te_status flush(te_context *context, te_error *error) {
    opencl *device = context->device;
    TE_TRY(mark(device, error));
    CALL(clFlush, device->queue);
    return TE_OK;
}

static te_status ask(te_context *context, bool *done, te_error *error) {
    const opencl *device = context->device;
    int32_t state = 0;
    CALL(clGetEventInfo, device->last, EVENT_STATUS, sizeof state, &state, NULL);
    *done = state <= 0;
    return failed(state < 0 ? state : 0, offsetof(api, clGetEventInfo), error);
}

static te_status wait(te_context *context, int64_t timeout, te_error *error) {
    opencl *device = context->device;
    TE_TRY(mark(device, error));
    if (timeout >= 0) TE_TRY(te_poll(context, timeout, ask, error));
    else CALL(clWaitForEvents, 1, &device->last);
    forget_last(device);
    device->mapping = false;
    return TE_OK;
}

const te_backend *te_opencl(void) {
    static const te_backend backend = {
        .target = "qcom",
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
        .settle = settle,
        .flush = flush,
        .wait = wait,
    };
    return &backend;
}
