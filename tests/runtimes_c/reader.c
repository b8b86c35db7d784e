/*
The C reader's verdicts, for comparison with the other readers'.

    reader FOLDER...                one line a bundle: the error id, or nothing
    reader --mutations FOLDER STEP  one line a mutation: each file of the bundle, in the order of
                                    its manifest but that first, cut before each byte, then with
                                    each bit flipped; only every STEP-th byte
    reader --texts FILE             one line a manifest; FILE: each behind its length, 4 bytes
*/
#include "tinyedge_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 64

static te_file files[MOST];
static size_t count;

static void *load(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    if (!file) exit(2);
    fseek(file, 0, SEEK_END);
    *bytes = (size_t)ftell(file);
    rewind(file);
    char *data = malloc(*bytes + 1);
    if (fread(data, 1, *bytes, file) != *bytes) exit(2);
    fclose(file);
    return data;
}

static void add(const char *folder, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    files[count].name = strcpy(malloc(strlen(name) + 1), name);
    files[count].data = load(path, &files[count].bytes);
    count++;
}

static void verdict(const te_open_options *options) {
    te_model *model;
    te_error error;
    te_open(options, &model, &error);
    te_close(model);
    puts(te_status_id(error.status));
}

static void mutate(const te_open_options *options, size_t which, size_t step) {
    const te_file whole = files[which];
    unsigned char *changed = malloc(whole.bytes + 1);
    memcpy(changed, whole.data, whole.bytes);
    files[which].data = changed;
    for (size_t i = 0; i < whole.bytes; i += step) {
        files[which].bytes = i;
        verdict(options);
        files[which].bytes = whole.bytes;
        for (int bit = 0; bit < 8; bit++) {
            changed[i] ^= (unsigned char)(1 << bit);
            verdict(options);
            changed[i] ^= (unsigned char)(1 << bit);
        }
    }
    files[which] = whole;
    free(changed);
}

int main(int arguments, char **words) {
    if (arguments == 4 && !strcmp(words[1], "--mutations")) {
        te_open_options options = {.size = sizeof options, .folder = words[2], .any_target = true};
        te_model *model;
        if (te_open(&options, &model, NULL)) return 1;
        add(words[2], "manifest.json");
        for (uint32_t i = 0; i < model->totals[TE_N_FILES]; i++) {
            add(words[2], model->files[i].name.at);
        }
        te_close(model);
        options = (te_open_options){.size = sizeof options, .any_target = true, .files = files,
                                    .file_count = count};
        for (size_t i = 0; i < count; i++) mutate(&options, i, (size_t)atoi(words[3]));
        return 0;
    }
    if (arguments == 3 && !strcmp(words[1], "--texts")) {
        size_t bytes;
        const char *data = load(words[2], &bytes);
        for (size_t at = 0; at < bytes;) {
            uint32_t length;
            memcpy(&length, data + at, 4);
            files[0] = (te_file){"manifest.json", data + at + 4, length};
            const te_open_options options = {.size = sizeof options, .any_target = true,
                                             .files = files, .file_count = 1};
            verdict(&options);
            at += 4 + length;
        }
        return 0;
    }
    for (int i = 1; i < arguments; i++) {
        const te_open_options options = {.size = sizeof options, .folder = words[i],
                                         .any_target = true};
        verdict(&options);
    }
    return 0;
}
