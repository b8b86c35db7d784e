/*
Runs a bundle many times while every allocation and every file access of the whole process is
counted: the functions below stand before those of the C library.

    quiet FOLDER RUNS
*/
#define _GNU_SOURCE
#include "model.h"
#include "tinyedge.h"
#include "tinyedge_states.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void __libc_free(void *);

static int watching;
static int allocations, accesses;

void *malloc(size_t bytes) {
    allocations += watching;
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
    allocations += watching;
    return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes) {
    allocations += watching;
    return __libc_realloc(memory, bytes);
}

void free(void *memory) {
    allocations += watching;
    __libc_free(memory);
}

int open(const char *path, int flags, ...) {
    accesses += watching;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0);
}

ssize_t pread(int file, void *into, size_t bytes, off_t offset) {
    accesses += watching;
    return syscall(SYS_pread64, file, into, bytes, offset);
}

/* Everything that a context does after its creation. */
static int use(const te_model *model, bool profile, int runs) {
    const te_context_options options = {.size = sizeof options, .backend = MODEL_BACKEND,
                                        .kernels = MODEL_KERNELS, .threads = 2,
                                        .profile = profile};
    te_context *context;
    te_error error;
    watching = 1;
    if (te_create(model, &options, &context, &error)) return puts(error.text), 1;
    watching = 0;
    if (!allocations || !accesses) return puts("the counters do not count"), 1;
    const int before[2] = {allocations, accesses};
    static unsigned char file[1 << 16];
    float values[4096] = {1, 2, 3}, out[4096];
    te_tensor tensor = {.size = sizeof tensor, .data = values, .bytes = sizeof values};
    te_tensor result = {.size = sizeof result, .data = out, .bytes = sizeof out};
    te_tensor wrong = {.size = 1};
    watching = 1;
    for (int i = 0; i < te_port_count(model, TE_INPUTS); i++) te_bind_input(context, i, &tensor);
    for (int i = 0; i < te_port_count(model, TE_OUTPUTS); i++) te_bind_output(context, i, &result);
    for (int run = 0; run < runs; run++) {
        if (te_run(context, 0)) return puts(te_last_error(context)->text), 1;
        if (te_read_output(context, 0, &result)) return puts(te_last_error(context)->text), 1;
    }
    te_reset(context);
    te_get_state(context, 0, &result);
    te_set_state(context, 0, &tensor);
    size_t bytes = 0;
    if (te_save_states(context, file, sizeof file, &bytes)) return puts("no file"), 1;
    if (te_load_states(context, file, bytes)) return puts(te_last_error(context)->text), 1;
    te_bind_input(context, 99, &tensor); /* errors are words without memory, too */
    te_bind_output(context, 0, &wrong);
    te_run(context, 9);
    watching = 0;
    printf("%d allocations, %d file accesses\n", allocations - before[0], accesses - before[1]);
    te_destroy(context);
    return 0;
}

int main(int count, char **words) {
    te_open_options options = {.size = sizeof options};
    te_model *model;
    te_error error;
    if (count != 3) return 2;
    options.folder = words[1];
    watching = 1;
    if (te_open(&options, &model, &error)) return puts(error.text), 1;
    watching = 0;
    if (use(model, false, atoi(words[2])) || use(model, true, atoi(words[2]))) return 1;
    te_close(model);
    return 0;
}
