/*
Gives files of states to a bundle's first context, each as one of its length and its bytes.

    states FOLDER FILES

For each a line: what te_load_states said, and what te_save_states gives then, in hexadecimal. A
refused file has changed no state, which is an abort() otherwise. Memory ends where a file does.
*/
#include "model.h"
#include "tinyedge.h"
#include "tinyedge_states.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned char *saved(te_context *context, size_t *bytes) {
    if (te_save_states(context, NULL, 0, bytes)) abort();
    unsigned char *memory = malloc(*bytes);
    if (!memory || te_save_states(context, memory, *bytes, bytes)) abort();
    return memory;
}

static void try_file(te_context *context, unsigned char *file, size_t bytes) {
    size_t before_bytes, after_bytes;
    unsigned char *before = saved(context, &before_bytes);
    const te_status status = te_load_states(context, file, bytes);
    unsigned char *after = saved(context, &after_bytes);
    if (before_bytes != after_bytes) abort();
    if (status && memcmp(before, after, after_bytes)) abort();
    printf("%s ", status ? te_status_id(status) : "ok");
    for (size_t i = 0; i < after_bytes; i++) printf("%02x", after[i]);
    printf("\n");
    free(before);
    free(after);
}

int main(int count, char **words) {
    te_open_options open = {.size = sizeof open, .plan = MODEL_PLAN};
    const te_context_options options = {.size = sizeof options, .backend = MODEL_BACKEND,
                                        .kernels = MODEL_KERNELS};
    te_model *model;
    te_context *context;
    uint32_t bytes;
    if (count != 3) return 2;
    open.folder = words[1];
    if (te_open(&open, &model, NULL) || te_create(model, &options, &context, NULL)) return 3;
    FILE *files = fopen(words[2], "rb");
    while (files && fread(&bytes, sizeof bytes, 1, files) == 1) {
        unsigned char *file = malloc(bytes ? bytes : 1);
        if (!file || fread(file, 1, bytes, files) != bytes) return 3;
        try_file(context, file, bytes);
        free(file);
    }
    if (files) fclose(files);
    te_destroy(context);
    te_close(model);
    return 0;
}
