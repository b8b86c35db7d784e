/* A bundle: opened, verified, its weights loaded. Errors and memory. */
#include "tinyedge_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#ifndef TINYEDGE_NO_MALLOC
#include <stdlib.h>
#endif

/* --- errors ---------------------------------------------------------------------------------- */

const char *te_status_id(te_status status) {
    static const char ids[] = "\0" /* TE_OK */
                              "bundle.manifest.missing\0"
                              "bundle.manifest.size\0"
                              "bundle.manifest.syntax\0"
                              "bundle.plan\0"
                              "bundle.format\0"
                              "bundle.version\0"
                              "bundle.feature\0"
                              "bundle.target\0"
                              "bundle.field\0"
                              "bundle.count\0"
                              "bundle.name\0"
                              "bundle.index\0"
                              "bundle.expression\0"
                              "bundle.bounds\0"
                              "bundle.overlap\0"
                              "bundle.requirement\0"
                              "bundle.file.missing\0"
                              "bundle.file.size\0"
                              "bundle.file.hash\0"
                              "bundle.file.text\0"
                              "device.target\0"
                              "device.memory\0"
                              "device.kernel\0"
                              "device.compile\0"
                              "device.missing\0"
                              "device.adapter\0"
                              "device.arch\0"
                              "device.limits\0"
                              "device.image\0"
                              "device.driver\0"
                              "device.threads\0"
                              "device.counts\0"
                              "device.cache\0"
                              "run.entry\0"
                              "run.input\0"
                              "run.output\0"
                              "run.state\0"
                              "run.states\0"
                              "run.dtype\0"
                              "run.shape\0"
                              "run.range\0"
                              "run.timeout\0"
                              "replay.count\0"
                              "verify.differs\0"
                              "api.size\0"
                              "api.argument\0";
    const char *id = ids;
    if ((unsigned)status >= TE_STATUSES) return "";
    for (int i = 0; i < (int)status; i++) id += strlen(id) + 1;
    return id;
}

te_status te_fail(te_error *error, te_status status, const char *words, ...) {
    va_list arguments;
    error->status = status;
    const int start = snprintf(error->text, sizeof error->text, "%s: ", te_status_id(status));
    va_start(arguments, words);
    vsnprintf(error->text + start, sizeof error->text - (size_t)start, words, arguments);
    va_end(arguments);
    return status;
}

te_error *te_no_error(te_error *error) {
    *error = (te_error){TE_OK, ""};
    return error;
}

/* --- memory ---------------------------------------------------------------------------------- */

#ifndef TINYEDGE_NO_MALLOC
static void *default_allocate(void *user, size_t bytes) {
    (void)user;
    return malloc(bytes);
}

static void default_release(void *user, void *memory) {
    (void)user;
    free(memory);
}
#endif

void *te_allocate(const te_allocator *allocator, uint64_t bytes) {
    if (bytes > SIZE_MAX / 2) return NULL;
    void *memory = allocator->allocate(allocator->user, bytes ? (size_t)bytes : 1);
    if (memory) memset(memory, 0, (size_t)bytes);
    return memory;
}

void *te_alloc(const te_allocator *allocator, uint64_t bytes, te_error *error) {
    void *memory = te_allocate(allocator, bytes);
    if (!memory) {
        te_fail(error, TE_DEVICE_MEMORY, "no memory for %llu bytes", (unsigned long long)bytes);
    }
    return memory;
}

void te_release(const te_allocator *allocator, void *memory) {
    if (memory) allocator->release(allocator->user, memory);
}

void *te_place(void *block, uint64_t *end, uint64_t count, size_t size) {
    const uint64_t start = (*end + 15) / 16 * 16;
    *end = start + count * size;
    return block ? (unsigned char *)block + start : NULL;
}

/* --- files in memory ------------------------------------------------------------------------- */

static const te_file *listed_file(const te_open_options *options, const char *name) {
    for (size_t i = 0; i < options->file_count; i++) {
        if (!strcmp(options->files[i].name, name)) return &options->files[i];
    }
    return NULL;
}

static int64_t listed_size(void *user, const char *name) {
    const te_open_options *options = user;
    const te_file *file = listed_file(options, name);
    return file ? (int64_t)file->bytes : -1;
}

static int listed_read(void *user, const char *name, int64_t offset, void *into, size_t bytes) {
    const te_file *file = listed_file(user, name);
    if (!file || (uint64_t)offset > file->bytes || bytes > file->bytes - (size_t)offset) return -1;
    memcpy(into, (const char *)file->data + offset, bytes);
    return 0;
}

/* --- opening --------------------------------------------------------------------------------- */

/* Where weights go in one block of the host. Their sum was checked against 53 bits. */
static void place_weights(te_model *model) {
    for (uint32_t i = 0; i < model->totals[TE_N_WEIGHTS]; i++) {
        te_weight_record *weight = &model->weights[i];
        weight->place = model->weight_total;
        model->weight_total += ((uint64_t)weight->bytes + TE_LINE - 1) / TE_LINE * TE_LINE;
    }
}

/* A device's weights go to the device when a context is created: the host keeps none. */
static bool keeps_weights(const te_model *model) {
#ifdef TINYEDGE_FUZZ
    return model != NULL; /* bundles of all targets run on the cpu */
#else
    return te_is(model->target, "cpu");
#endif
}

te_status te_check_plan(const te_model *model, const char *plan, te_error *error) {
    TE_NEED(!strcmp(plan, model->plan), TE_PLAN,
            "manifest.json is not the one that this program was built for: put that back, or build "
            "the program again with the model.h and model.c of this bundle");
    return TE_OK;
}

static te_status read_manifest(te_model *model, te_error *error) {
    const te_reader *reader = &model->reader;
    const char *name = model->open.manifest ? model->open.manifest : "manifest.json";
    const int64_t size = reader->size(reader->user, name);
    TE_NEED(size >= 0, TE_MANIFEST_MISSING, "%s cannot be read", name);
    TE_NEED(size <= TE_MANIFEST_LIMIT, TE_MANIFEST_SIZE, "the manifest has more than 16 MiB");
    model->text_bytes = (size_t)size + 1;
    TE_TAKE(model->text, &model->allocator, model->text_bytes);
    TE_NEED(!size || !reader->read(reader->user, name, 0, model->text, (size_t)size),
            TE_MANIFEST_MISSING, "%s cannot be read", name);
    te_sha256 hash;
    te_sha256_start(&hash);
    te_sha256_add(&hash, model->text, (size_t)size);
    te_sha256_end(&hash, model->plan);
    if (model->open.plan) TE_TRY(te_check_plan(model, model->open.plan, error));
    TE_TRY(te_check_syntax(model->text, (size_t)size, error));
    TE_TRY(te_check_identity(model->text, model->any_target, error));
    TE_TRY(te_check_fields(model->text, model->totals, error));
    TE_TRY(te_read_records(model, error));
    TE_TRY(te_check_records(model, error));
    place_weights(model);
    te_finish_strings(model);
    return TE_OK;
}

static te_status start(const te_open_options *options, te_model **result, te_error *error) {
    te_allocator allocator = options->allocator;
    const bool reads = options->reader.read && options->reader.size;
    TE_NEED(options->size == sizeof *options, TE_API_SIZE, "te_open_options has another size");
    TE_NEED((options->folder != NULL) + (options->files != NULL) + reads == 1, TE_API_ARGUMENT,
            "give exactly one of folder, files and reader");
#ifndef TINYEDGE_NO_MALLOC
    if (!allocator.allocate && !allocator.release) {
        allocator = (te_allocator){default_allocate, default_release, NULL};
    }
#endif
    TE_NEED(allocator.allocate && allocator.release, TE_API_ARGUMENT,
            "an allocator is two functions");
    te_model *model;
    TE_TAKE(model, &allocator, sizeof *model);
    *result = model;
    model->allocator = allocator;
    model->logger = options->logger;
    model->any_target = options->any_target;
    model->open = *options;
    if (reads) model->reader = options->reader;
    else model->reader = (te_reader){listed_size, listed_read, &model->open};
    if (options->folder) {
#ifndef TINYEDGE_NO_FOLDER
        const size_t bytes = strlen(options->folder) + 1;
        TE_TAKE(model->folder, &allocator, bytes);
        memcpy(model->folder, options->folder, bytes);
        model->reader = te_folder_reader(model->folder);
#else
        return te_fail(error, TE_API_ARGUMENT, "compiled without folders");
#endif
    }
    return read_manifest(model, error);
}

static te_status load(te_model *model, te_error *error) {
    if (keeps_weights(model)) {
        TE_TAKE(model->weight_block, &model->allocator, model->weight_total + TE_LINE);
        const uintptr_t gap = (TE_LINE - (uintptr_t)model->weight_block % TE_LINE) % TE_LINE;
        model->weight_bytes = model->weight_block + gap;
    }
    return te_load_files(model, error);
}

void te_log(const te_logger *logger, te_status status, const char *text) {
    if (logger->log) logger->log(logger->user, status, text);
}

te_status te_open(const te_open_options *options, te_model **model, te_error *error) {
    te_error unwanted;
    error = te_no_error(error ? error : &unwanted);
    TE_NEED(options && model, TE_API_ARGUMENT, "te_open needs options and a result");
    *model = NULL;
    te_model *opened = NULL;
    te_status status = start(options, &opened, error);
    if (!status) status = load(opened, error);
    if (status) {
        te_log(&options->logger, status, error->text);
        te_close(opened);
        return status;
    }
    te_log(&options->logger, TE_OK, "opened a bundle");
    *model = opened;
    return TE_OK;
}

void te_close(te_model *model) {
    if (!model) return;
    const te_allocator allocator = model->allocator;
    te_release(&allocator, model->weight_block);
    te_release(&allocator, model->records);
    te_release(&allocator, model->text);
    te_release(&allocator, model->folder);
    te_release(&allocator, model);
}

te_status te_measure(const te_open_options *open, const te_context_options *options,
                     te_memory *memory, te_error *error) {
    te_error unwanted;
    error = te_no_error(error ? error : &unwanted);
    TE_NEED(open && memory, TE_API_ARGUMENT, "te_measure needs options and a result");
    te_model *model = NULL;
    te_status status = start(open, &model, error);
    if (!status) {
        memory->manifest = sizeof *model + model->text_bytes + model->record_bytes;
        if (model->folder) memory->manifest += strlen(model->folder) + 1;
        memory->weights = keeps_weights(model) ? model->weight_total + TE_LINE : 0;
        status = te_context_memory(model, options, memory, error);
    }
    te_close(model);
    return status;
}
