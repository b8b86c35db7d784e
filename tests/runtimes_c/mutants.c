/*
Runs a bundle's own kernels by changed manifests, each in a process of its own.

    mutants FOLDER FILE

FILE holds manifests, each after its length as a 32-bit number. All that an accepted one allows is
done: every entry is run at the least and the greatest sizes, outputs, slices and states are read,
states written, goldens compared. Prints how many there were of each kind and ends with 1 at the
first that is killed or that the sanitizers report, whose manifest is then in FILE.found. With the
name that the program was built with (MODEL_PLAN) every one of them must be refused.
*/
#include "model.h"
#include "tinyedge_internal.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REFUSED = 10, ACCEPTED, SECONDS = 5, MOST_MEMORY = 64 * 1024 * 1024 };

typedef struct source {
    te_reader files;
    const char *manifest;
    size_t bytes;
} source;

static int64_t size_of(void *user, const char *name) {
    const source *from = user;
    if (!strcmp(name, "manifest.json")) return (int64_t)from->bytes;
    return from->files.size(from->files.user, name);
}

static int read_from(void *user, const char *name, int64_t offset, void *into, size_t bytes) {
    const source *from = user;
    if (strcmp(name, "manifest.json")) {
        return from->files.read(from->files.user, name, offset, into, bytes);
    }
    memcpy(into, from->manifest + offset, bytes);
    return 0;
}

static void *allocate(void *user, size_t bytes) {
    (void)user;
    return bytes > MOST_MEMORY ? NULL : malloc(bytes);
}

static void release(void *user, void *memory) {
    (void)user;
    free(memory);
}

static unsigned char memory[256 * 1024];

/* Numbers that are small as integers of any size and as indices, with some that are not. */
static void fill(unsigned seed) {
    for (size_t i = 0; i < sizeof memory; i++) {
        seed = seed * 1664525u + 1013904223u;
        memory[i] = (unsigned char)(i % 4 ? 0 : seed >> 24 & 7);
        if (seed >> 10 & 64) memory[i] = (unsigned char)(seed >> 20);
    }
}

static void use_ports(te_context *context, const te_model *model) {
    const te_tensor tensor = {.size = sizeof tensor, .data = memory, .bytes = sizeof memory};
    for (int i = 0; i < te_port_count(model, TE_OUTPUTS); i++) {
        te_slice_info slice;
        te_read_output(context, i, &tensor);
        for (int j = 0; te_slice(model, i, j, &slice); j++) {
            te_read_slice(context, i, j, &tensor);
        }
    }
    for (int i = 0; i < te_port_count(model, TE_STATES); i++) {
        te_get_state(context, i, &tensor);
        fill((unsigned)i);
        te_set_state(context, i, &tensor);
    }
}

static void use(te_context *context, const te_model *model, unsigned number) {
    const te_tensor tensor = {.size = sizeof tensor, .data = memory, .bytes = sizeof memory};
    for (int end = 0; end < 2; end++) {
        te_symbol_info symbol;
        for (int i = 0; te_symbol(model, i, &symbol); i++) {
            te_set_symbol(context, i, end ? symbol.min : symbol.max);
        }
        for (int entry = 0; entry < te_entry_count(model); entry++) {
            fill(number);
            for (int i = 0; i < te_port_count(model, TE_INPUTS); i++) {
                te_bind_input(context, i, &tensor);
            }
            te_run(context, entry);
            te_run(context, entry);
            use_ports(context, model);
        }
    }
}

static int run(source *from, unsigned number) {
    const te_open_options open = {.size = sizeof open,
                                  .reader = {size_of, read_from, from},
                                  .allocator = {allocate, release, NULL}};
    te_open_options genuine = open;
    te_model *model;
    te_context *context;
    genuine.plan = MODEL_PLAN;
    if (te_open(&genuine, &model, NULL) != TE_PLAN) return 1;
    if (te_open(&open, &model, NULL)) return REFUSED;
    te_context_options create = {.size = sizeof create, .backend = MODEL_BACKEND,
                                 .kernels = MODEL_KERNELS, .threads = 1 + number % 2};
    if (te_create(model, &create, &context, NULL) != TE_PLAN) return 1;
    te_kernels kernels = *MODEL_KERNELS;
    kernels.plan = model->plan;
    create.kernels = &kernels;
    if (te_create(model, &create, &context, NULL)) return REFUSED;
    use(context, model, number);
    te_destroy(context);
    te_self_test(model, &create, NULL, NULL);
    te_close(model);
    return ACCEPTED;
}

static int in_a_process(source *from, unsigned number) {
    const pid_t child = fork();
    if (!child) {
        alarm(SECONDS); /* loops may be told to go on for ever */
        _exit(run(from, number));
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child) exit(2);
    if (WIFSIGNALED(status)) return WTERMSIG(status) == SIGALRM ? SIGALRM : 1;
    return WEXITSTATUS(status);
}

int main(int count, char **words) {
    int accepted = 0, refused = 0, slow = 0;
    if (count != 3) return 2;
    source from = {.files = te_folder_reader(words[1])};
    FILE *file = fopen(words[2], "rb");
    uint32_t bytes;
    for (unsigned number = 0; file && fread(&bytes, sizeof bytes, 1, file); number++) {
        char *manifest = malloc(bytes ? bytes : 1);
        if (fread(manifest, 1, bytes, file) != bytes) return 2;
        from.manifest = manifest;
        from.bytes = bytes;
        const int result = in_a_process(&from, number);
        accepted += result == ACCEPTED;
        refused += result == REFUSED;
        slow += result == SIGALRM;
        if (result != ACCEPTED && result != REFUSED && result != SIGALRM) {
            char name[4096];
            snprintf(name, sizeof name, "%s.found", words[2]);
            FILE *found = fopen(name, "wb");
            if (found) fwrite(manifest, 1, bytes, found);
            fprintf(stderr, "mutant %u of %s\n", number, words[1]);
            return 1;
        }
        free(manifest);
    }
    printf("%d accepted, %d refused, %d slow\n", accepted, refused, slow);
    return 0;
}
