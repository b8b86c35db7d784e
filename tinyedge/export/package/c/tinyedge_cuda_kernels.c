/* Compiled kernels: machine code for the device, else PTX that its driver translates. */
#include "tinyedge_cuda.h"

#include <stdio.h>
#include <string.h>

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
    if (!is_refusal(answer)) {
        return te_cuda_failed(device, answer, NUMBER(cuModuleLoadDataEx), error);
    }
    device->module = NULL;
    for (char *c = log; *c; c++) *c = *c < ' ' ? ' ' : *c;
    return te_fail(error, TE_DEVICE_ARCH,
                   "the driver of CUDA %d.%d refuses %s: %s (%d) %s; update it, or export by an "
                   "NVRTC no newer than it",
                   device->version / 1000, device->version % 1000 / 10,
                   model->files[file].name.at, te_cuda_word(device, answer), answer, log);
}

TE_NOINLINE te_status te_cuda_load_kernels(const te_model *model, cuda *device, te_error *error) {
    int64_t major, minor;
    int rank = 2 * BINARY;
    char compiled[96], advice[40];
    if (!TOTAL(KERNELS)) return TE_OK;
    TE_TRY(te_cuda_fact(device, CAPABILITY_MAJOR, &major, error));
    TE_TRY(te_cuda_fact(device, CAPABILITY_MINOR, &minor, error));
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
