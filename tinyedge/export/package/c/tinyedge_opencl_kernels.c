/* The program of a bundle, compiled by the driver or from the cache, and its kernels. */
#include "tinyedge_opencl.h"

#include <string.h>

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
        te_opencl_ask_text(device->cl.clGetDeviceInfo, device->device, facts[i], text, sizeof text);
        te_sha256_add(&hash, text, strlen(text) + 1);
    }
    const cl_object platform = te_opencl_platform(device);
    te_opencl_ask_text(device->cl.clGetPlatformInfo, platform, PLATFORM_VERSION, text, sizeof text);
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

TE_NOINLINE te_status te_opencl_build(opencl *device, const te_context *context,
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
    TE_TRY(te_opencl_failed(code, offsetof(api, clCreateProgramWithSource), error));
    code = device->cl.clBuildProgram(device->program, 1, &device->device, build, NULL, NULL);
    if (code == OUT_OF_HOST_MEMORY) {
        return te_opencl_failed(code, offsetof(api, clBuildProgram), error);
    }
    if (code) return refused(device, model, code, error);
    if (cached) keep_compiled(device, model, &cache, key);
    return TE_OK;
}

te_status te_opencl_make_kernel(const opencl *device, const te_model *model, uint32_t number,
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
    TE_TRY(te_opencl_failed(code, offsetof(api, clCreateKernel), error));
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
