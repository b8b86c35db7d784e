/*
libFuzzer's target: the input is a manifest; the files it names have the bytes it says, all zero,
and the runtime is compiled with TINYEDGE_FUZZ, which skips the hashes. What is accepted is also
asked about, created and run, with kernels that do nothing.
*/
#include "tinyedge_internal.h"

#include <stdlib.h>
#include <string.h>

#define MOST_MEMORY (16 * 1024 * 1024)

static te_text current; /* the manifest */

static int64_t size_of(void *user, const char *name) {
    const te_model *model = *(te_model **)user;
    if (!strcmp(name, "manifest.json")) return current.length;
    for (uint32_t i = 0; model && i < model->totals[TE_N_FILES]; i++) {
        if (!strcmp(model->files[i].name.at, name)) return model->files[i].bytes;
    }
    return -1;
}

static int read_zeros(void *user, const char *name, int64_t offset, void *into, size_t bytes) {
    (void)user;
    memset(into, 0, bytes);
    if (!strcmp(name, "manifest.json")) memcpy(into, current.at + offset, bytes);
    return 0;
}

static te_model *opening; /* the first allocation of te_open is the model */

static void *allocate(void *user, size_t bytes) {
    (void)user;
    void *memory = bytes > MOST_MEMORY ? NULL : malloc(bytes);
    if (!opening) opening = memory;
    return memory;
}

static void release(void *user, void *memory) {
    (void)user;
    free(memory);
}

static void nothing(void *const *buffers, const int32_t *symbols, int32_t begin, int32_t end) {
    (void)buffers;
    (void)symbols;
    if (begin > end) abort();
}

static bool is_short(const te_model *model) {
    int64_t turns = 1;
    for (uint32_t i = 0; i < model->totals[TE_N_STEPS]; i++) {
        if (model->steps[i].op == TE_LOOP && model->steps[i].bound > 16) return false;
        if (model->steps[i].op == TE_LOOP) turns *= model->steps[i].bound + 1;
        if (turns > 1000) return false;
    }
    for (uint32_t i = 0; i < model->totals[TE_N_GOLDENS]; i++) {
        if (model->goldens[i].steps > 16) return false;
    }
    return true;
}

static void use(te_context *context, const te_model *model) {
    static unsigned char memory[1 << 20];
    const te_tensor tensor = {.size = sizeof tensor, .data = memory, .bytes = sizeof memory};
    for (int entry = 0; entry < te_entry_count(model); entry++) {
        for (int i = 0; i < te_port_count(model, TE_INPUTS); i++) {
            te_bind_input(context, i, &tensor);
        }
        te_run(context, entry);
        for (int i = 0; i < te_port_count(model, TE_OUTPUTS); i++) {
            te_slice_info slice;
            te_read_output(context, i, &tensor);
            for (int j = 0; te_slice(model, i, j, &slice); j++) {
                te_read_slice(context, i, j, &tensor);
            }
        }
        for (int i = 0; i < te_port_count(model, TE_STATES); i++) {
            te_get_state(context, i, &tensor);
            te_set_state(context, i, &tensor);
        }
        for (int i = 0; i < te_symbol_count(model); i++) {
            te_symbol_info symbol;
            te_symbol(model, i, &symbol);
            te_set_symbol(context, i, symbol.min);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    te_open_options options = {.size = sizeof options, .any_target = true,
                               .reader = {size_of, read_zeros, &opening},
                               .allocator = {allocate, release, NULL}};
    te_model *model;
    te_context *context;
    if (size > TE_MANIFEST_LIMIT) return 0;
    current = (te_text){(char *)(uintptr_t)data, (uint32_t)size};
    opening = NULL;
    if (te_open(&options, &model, NULL)) return 0;
    static const te_kernel_buffer buffers[TE_MOST_BINDINGS];
    const uint32_t count = model->totals[TE_N_KERNELS];
    te_kernel *table = calloc(count + 1, sizeof *table);
    for (uint32_t i = 0; i < count; i++) {
        const te_kernel_record *kernel = &model->kernels[i];
        table[i] = (te_kernel){kernel->entry.at, nothing, buffers, kernel->bindings};
    }
    const te_kernels kernels = {.plan = model->plan, .table = table, .count = count};
    te_backend backend = *te_cpu();
    backend.target = model->target.at;
    const te_context_options create = {.size = sizeof create, .backend = &backend,
                                       .kernels = &kernels};
    if (is_short(model) && !te_create(model, &create, &context, NULL)) {
        use(context, model);
        te_destroy(context);
        te_self_test(model, &create, NULL, NULL);
    }
    free(table);
    te_close(model);
    return 0;
}
