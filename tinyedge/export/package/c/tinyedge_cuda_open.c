/* Calls of NVIDIA's driver; choosing and opening a device. */
#include "tinyedge_cuda.h"

#include <string.h>

#define NAME(name, version, parameters) #name #version "\0"

static const char names[] = FUNCTIONS(NAME);

/* --- calls ------------------------------------------------------------------------------------ */

const char *te_cuda_word(const cuda *device, int answer) {
    const char *name = NULL;
    return !device->driver.cuGetErrorName(answer, &name) && name ? name : "an unknown error";
}

/* What function number `call` of the driver answered. */
te_status te_cuda_failed(const cuda *device, int answer, size_t call, te_error *error) {
    const char *name = names;
    if (!answer) return TE_OK;
    while (call--) name += strlen(name) + 1;
    return te_fail(error, answer == OUT_OF_MEMORY ? TE_DEVICE_MEMORY : TE_DEVICE_DRIVER,
                   "%s failed with %s (%d)", name, te_cuda_word(device, answer), answer);
}

/* The caller's current context is kept: every call of the backend is between these two. */
TE_NOINLINE te_status te_cuda_enter(cuda *device, te_error *error) {
    CALL(cuCtxPushCurrent, device->context);
    device->entered = true;
    return TE_OK;
}

te_status te_cuda_leave(cuda *device, te_status status, te_error *error) {
    CUcontext ours;
    if (!device->entered) return status;
    device->entered = false;
    const int answer = device->driver.cuCtxPopCurrent(&ours);
    return status ? status : te_cuda_failed(device, answer, NUMBER(cuCtxPopCurrent), error);
}

/* --- which device ----------------------------------------------------------------------------- */

static te_status open_library(cuda *device, const char *library, te_error *error) {
    static const char *const places[] = {"libcuda.so.1", NULL};
    void *handle = te_open_library(library, places);
    TE_NEED(handle, TE_DEVICE_MISSING, "there is no NVIDIA driver: %s cannot be loaded",
            library ? library : places[0]);
    const char *missing = te_find_functions(handle, names, &device->driver);
    TE_NEED(!missing, TE_DEVICE_MISSING, "the driver has no %s: it is older than CUDA 12",
            missing);
    const int answer = device->driver.cuInit(0);
    TE_NEED(!answer, TE_DEVICE_MISSING, "cuInit failed with %s (%d)",
            te_cuda_word(device, answer), answer);
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
        TE_TRY(te_cuda_enter(device, error));
        CALL(cuCtxGetDevice, &device->device);
    } else {
        TE_TRY(choose_device(device, options->device, error));
        CALL(cuDevicePrimaryCtxRetain, &device->context, device->device);
        device->retained = true;
        TE_TRY(te_cuda_enter(device, error));
    }
    if (!options->stream) CALL(cuStreamCreate, &device->own, 0);
    device->stream = options->stream ? options->stream : device->own;
    return TE_OK;
}

te_status te_cuda_fact(const cuda *device, int which, int64_t *value, te_error *error) {
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
        TE_TRY(te_cuda_fact(device, limits[i].limit, &limit, error));
        TE_NEED(needed <= limit, TE_DEVICE_LIMITS,
                "the bundle needs %s of %lld, the device has %lld",
                te_requirement_name(limits[i].requirement), (long long)needed, (long long)limit);
    }
    return TE_OK;
}

te_status te_cuda_open(cuda *device, const te_model *model, const te_cuda_options *options,
                       te_error *error) {
    TE_TRY(open_library(device, options->library, error));
    TE_TRY(open_stream(device, options, error));
    return check_limits(device, model, error);
}
