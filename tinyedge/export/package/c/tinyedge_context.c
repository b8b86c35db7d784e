/* A context, made and given back: only te_create allocates. */
#include "tinyedge_internal.h"

#include <string.h>

/* Every public function ends here: what went wrong is kept and logged. */
te_status te_finish(te_context *context, te_status status) {
    if (status) te_log(&context->model->logger, context->error.status, context->error.text);
    return status;
}

static te_status check_options(const te_model *model, const te_context_options *options,
                               te_error *error) {
    TE_NEED(options, TE_API_ARGUMENT, "a context needs options");
    TE_NEED(options->size == sizeof *options, TE_API_SIZE, "te_context_options has another size");
    TE_NEED(options->backend, TE_API_ARGUMENT, "a context needs a backend: te_cpu(), ...");
    TE_NEED(!strcmp(model->target.at, options->backend->target), TE_DEVICE_TARGET,
            "the bundle is for target %s, the backend for %s", model->target.at,
            options->backend->target);
    return TE_OK;
}

/* The pointers of a context in one block, or with block NULL how large that is. */
static uint64_t lay_out(const te_model *model, const te_context_options *options,
                        te_memory *memory, te_context *block) {
    te_context unused, *to = block ? block : &unused;
    uint64_t end = sizeof *to;
    options->backend->measure(model, options, memory);
    to->sizes = te_place(block, &end, TOTAL(STEPS), sizeof *to->sizes);
    to->inputs = te_place(block, &end, TOTAL(INPUTS), sizeof *to->inputs);
    to->outputs = te_place(block, &end, TOTAL(OUTPUTS), sizeof *to->outputs);
    to->timings = NULL;
    if (options->profile) {
        to->timings = te_place(block, &end, TOTAL(STEPS), sizeof *to->timings);
    }
    to->device = te_place(block, &end, memory->context, 1);
    return end;
}

te_status te_context_memory(const te_model *model, const te_context_options *options,
                            te_memory *memory, te_error *error) {
    TE_TRY(check_options(model, options, error));
    memory->context = lay_out(model, options, memory, NULL);
    return TE_OK;
}

te_status te_need_idle(const te_context *context, te_error *error) {
    TE_NEED(!context->running, TE_API_ARGUMENT, "te_wait first: a run is going on");
    return TE_OK;
}

static te_status reset(te_context *context, te_error *error) {
    TE_TRY(te_need_idle(context, error));
    for (uint32_t i = 0; i < te_count(context->model, TE_STATES); i++) {
        TE_TRY(context->backend->reset(context, i, error));
    }
    return TE_OK;
}

te_status te_reset(te_context *context) {
    return te_finish(context, reset(context, &context->error));
}

te_status te_create(const te_model *model, const te_context_options *options, te_context **result,
                    te_error *error) {
    te_error unwanted;
    error = te_no_error(error ? error : &unwanted);
    TE_NEED(model && result, TE_API_ARGUMENT, "te_create needs a model and a result");
    *result = NULL;
    te_status status = check_options(model, options, error);
    te_context *context = NULL;
    te_memory memory = {0};
    if (!status) {
        context = te_alloc(&model->allocator, lay_out(model, options, &memory, NULL), error);
        if (!context) status = TE_DEVICE_MEMORY;
    }
    if (!status) {
        context->model = model;
        context->backend = options->backend;
        context->options = *options;
        context->entry = context->ready = -1;
        for (int i = 0; i < TE_MAX_SYMBOLS; i++) context->given[i] = -1;
        lay_out(model, options, &memory, context);
        for (uint32_t i = 0; i < TOTAL(SYMBOLS); i++) context->symbols[i] = model->symbols[i].max;
        status = context->backend->create(context, error);
        if (!status) status = reset(context, error);
        if (status) te_destroy(context);
    }
    te_log(&model->logger, status, status ? error->text : "created a context");
    if (!status) *result = context;
    return status;
}

void te_destroy(te_context *context) {
    if (!context) return;
    context->backend->destroy(context);
    te_release(&context->model->allocator, context);
}

const te_error *te_last_error(const te_context *context) { return &context->error; }

te_status te_set_symbol(te_context *context, int symbol, int64_t value) {
    const te_model *model = context->model;
    if (!within(symbol, TOTAL(SYMBOLS)) ||
        (value != -1 && !te_symbol_allows(&model->symbols[symbol], value))) {
        te_fail(&context->error, TE_RUN_SHAPE, "there is no symbol %d, or it cannot be %lld",
                symbol, (long long)value);
        return te_finish(context, TE_RUN_SHAPE);
    }
    context->given[symbol] = value;
    context->ready = -1;
    return TE_OK;
}
