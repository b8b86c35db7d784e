/* Opening OpenCL's library, choosing a device, and whether it is large enough. */
#include "tinyedge_opencl.h"

#include <stdio.h>
#include <string.h>

#define NAME(result, name, parameters) #name "\0"
#define WHAT(name, what) what,

static const char names[] = FUNCTIONS(NAME);

/* --- calls ------------------------------------------------------------------------------------ */

/* place: of the function in struct api. */
te_status te_opencl_failed(int32_t code, size_t place, te_error *error) {
    const bool memory = code <= NO_MEMORY && code >= OUT_OF_HOST_MEMORY;
    const char *name = names;
    if (!code) return TE_OK;
    for (; place; place -= sizeof(void *)) name += strlen(name) + 1;
    return te_fail(error, memory ? TE_DEVICE_MEMORY : TE_DEVICE_DRIVER, "%s failed with %d", name,
                   (int)code);
}

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
TE_NOINLINE void te_opencl_ask_text(int32_t (*ask)(ASK), cl_object object, uint32_t what, char *to,
                                    size_t room) {
    size_t bytes = 0;
    if (ask(object, what, room - 1, to, &bytes) || bytes >= room) bytes = 0;
    to[bytes] = 0;
}

cl_object te_opencl_platform(const opencl *device) {
    cl_object platform = NULL;
    device->cl.clGetDeviceInfo(device->device, DEVICE_PLATFORM, sizeof platform, &platform, NULL);
    return platform;
}

/* --- which device ----------------------------------------------------------------------------- */

#define MOST_PLATFORMS 16
#define MOST_DEVICES 32

/* "name (platform)" */
static void device_name(const opencl *device, char name[256]) {
    char of[120], platform[120];
    te_opencl_ask_text(device->cl.clGetDeviceInfo, device->device, DEVICE_NAME, of, sizeof of);
    te_opencl_ask_text(device->cl.clGetPlatformInfo, te_opencl_platform(device), PLATFORM_NAME,
                       platform, sizeof platform);
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
    te_opencl_measure(model, NULL, &memory);
    te_opencl_ask_text(device->cl.clGetDeviceInfo, device->device, DEVICE_PROFILE, profile,
                       sizeof profile);
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

te_status te_opencl_open(opencl *device, const te_model *model, const te_context_options *options,
                         te_error *error) {
    TE_TRY(open_library(device, options->opencl.library, error));
    TE_TRY(open_queue(device, options, error));
    ask_facts(device);
    return check_limits(device, model, error);
}
