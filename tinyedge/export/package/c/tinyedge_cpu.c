/* The cpu backend: kernels are functions over host memory; threads share them. */
#include "tinyedge_cpu.h"
#include "tinyedge_internal.h"

#include <string.h>

#define MOST_THREADS 256

typedef struct cpu {
    unsigned char **arenas; /* as allocated */
    unsigned char **buffers;
    void **arguments; /* buffers of all launches, in the order of model->bound */
    void *(*ends)[2]; /* of each step that is a copy: where to, where from */
    const te_kernel **kernels;
    te_command *commands; /* of each step */
    te_task *tasks;       /* of a straight piece: from its first step's number on */
    te_pool *pool;
    int32_t symbols[TE_MAX_SYMBOLS];
} cpu;

static int thread_count(const te_context_options *options) {
#ifndef TINYEDGE_NO_THREADS
    const int threads = options->threads;
    return threads < 1 ? 1 : threads > MOST_THREADS ? MOST_THREADS : threads;
#else
    (void)options;
    return 1;
#endif
}

/* The tables behind struct cpu, or with block NULL how large all is. */
static uint64_t lay_out(const te_model *model, const te_context_options *options, cpu *block) {
    cpu unused, *to = block ? block : &unused;
    uint64_t end = sizeof *to;
    to->arenas = te_place(block, &end, TOTAL(ARENAS), sizeof *to->arenas);
    to->buffers = te_place(block, &end, TOTAL(BUFFERS), sizeof *to->buffers);
    to->arguments = te_place(block, &end, TOTAL(BOUND), sizeof *to->arguments);
    to->ends = te_place(block, &end, TOTAL(STEPS), sizeof *to->ends);
    to->kernels = te_place(block, &end, TOTAL(KERNELS), sizeof *to->kernels);
    to->commands = te_place(block, &end, TOTAL(STEPS), sizeof *to->commands);
    to->tasks = te_place(block, &end, TOTAL(STEPS), sizeof *to->tasks);
    to->pool = te_place(block, &end, 1, te_pool_bytes(thread_count(options)));
    return end;
}

static void measure(const te_model *model, const te_context_options *options, te_memory *memory) {
    memory->arenas = memory->device = 0;
    memory->context = lay_out(model, options, NULL);
    for (uint32_t i = 0; i < TOTAL(ARENAS); i++) {
        memory->arenas += (uint64_t)model->arenas[i] + TE_LINE;
    }
}

/* --- creation -------------------------------------------------------------------------------- */

/* Kernels by name; a table made from this bundle has them in order. */
static const te_kernel *find(const te_kernels *kernels, const char *name, size_t guess) {
    if (guess < kernels->count && !strcmp(kernels->table[guess].name, name)) {
        return &kernels->table[guess];
    }
    for (size_t i = 0; i < kernels->count; i++) {
        if (!strcmp(kernels->table[i].name, name)) return &kernels->table[i];
    }
    return NULL;
}

/* Kernels keep to their grid and to the sizes that they were compiled for, but what memory they get
   is for the plan to say: it must be what they were compiled for, or more. */
static te_status check_launch(const te_context *context, const te_kernel *const *compiled,
                              uint32_t number, te_error *error) {
    const te_model *model = context->model;
    const te_step_record *step = &model->steps[number];
    const te_kernel *kernel = compiled[step->kernel];
    const uint8_t *writes = model->writes + model->kernels[step->kernel].first_binding;
    TE_NEED(step->buffers == kernel->count, TE_DEVICE_KERNEL, "step %u: kernel %s takes %d buffers",
            number, kernel->name, (int)kernel->count);
    for (uint32_t i = 0; i < step->buffers; i++) {
        const int64_t bytes = model->buffers[model->bound[step->first_buffer + i]].bytes;
        TE_NEED(bytes >= kernel->buffers[i].bytes && (writes[i] || !kernel->buffers[i].written),
                TE_DEVICE_KERNEL, "step %u: buffer %u of kernel %s must have %lld bytes%s", number,
                i, kernel->name, (long long)kernel->buffers[i].bytes,
                kernel->buffers[i].written ? " and be read_write" : "");
    }
    return TE_OK;
}

static te_status find_kernels(te_context *context, cpu *device, te_error *error) {
    const te_model *model = context->model;
    const te_kernels *kernels = context->options.kernels;
    TE_NEED(kernels && (kernels->table || !kernels->count) && kernels->plan, TE_API_ARGUMENT,
            "the cpu backend needs compiled kernels");
    TE_TRY(te_check_plan(model, kernels->plan, error));
    for (uint32_t i = 0; i < TOTAL(KERNELS); i++) {
        const char *name = model->kernels[i].entry.at;
        device->kernels[i] = find(kernels, name, i);
        TE_NEED(device->kernels[i], TE_DEVICE_KERNEL, "there is no compiled kernel %s", name);
    }
    for (uint32_t i = 0; i < TOTAL(STEPS); i++) {
        if (model->steps[i].op != TE_LAUNCH) continue;
        TE_TRY(check_launch(context, device->kernels, i, error));
    }
    return TE_OK;
}

static te_status allocate(te_context *context, cpu *device, te_error *error) {
    const te_model *model = context->model;
    for (uint32_t i = 0; i < TOTAL(ARENAS); i++) {
        TE_TAKE(device->arenas[i], &model->allocator, (uint64_t)model->arenas[i] + TE_LINE);
    }
    for (uint32_t i = 0; i < TOTAL(BUFFERS); i++) {
        const te_buffer_record *buffer = &model->buffers[i];
        if (buffer->arena == -1) {
            device->buffers[i] = model->weight_bytes + model->weights[buffer->weight].place;
        } else {
            unsigned char *arena = device->arenas[buffer->arena];
            const uintptr_t gap = (TE_LINE - (uintptr_t)arena % TE_LINE) % TE_LINE;
            device->buffers[i] = arena + gap + buffer->offset;
        }
    }
    for (uint32_t i = 0; i < TOTAL(BOUND); i++) {
        device->arguments[i] = device->buffers[model->bound[i]];
    }
    return TE_OK;
}

/* What a step does, and how much of it at the greatest sizes. */
static void make_command(const te_context *context, cpu *device, uint32_t number) {
    const te_model *model = context->model;
    const te_step_record *step = &model->steps[number];
    te_command *command = &device->commands[number];
    te_evaluate(model->tokens + step->sizes[0], context->symbols, &command->most);
    command->symbols = device->symbols;
    if (step->op == TE_COPY) {
        command->buffers = device->ends[number];
        device->ends[number][0] = device->buffers[step->destination] + step->destination_offset;
        device->ends[number][1] = device->buffers[step->source] + step->source_offset;
        return;
    }
    command->kernel = device->kernels[step->kernel];
    command->buffers = device->arguments + step->first_buffer;
    command->flops = step->flops;
}

/* Steps [first, end) as they run: straight pieces, and between them blocks, at most 8 deep. */
static void plan(const te_context *context, cpu *device, uint32_t first, uint32_t end) {
    const te_step_record *steps = context->model->steps;
    for (uint32_t number = first; number < end;) {
        const uint32_t straight = number;
        for (; number < end && steps[number].op <= TE_COPY; number++) {
            make_command(context, device, number);
        }
        if (number > straight) {
            te_plan_tasks(device->commands, straight, number, device->tasks + straight);
            continue;
        }
        const uint32_t after = number + 1 + (uint32_t)steps[number].body;
        plan(context, device, number + 1, after);
        number = after;
    }
}

static te_status create(te_context *context, te_error *error) {
    const te_model *model = context->model;
    cpu *device = context->device;
    lay_out(model, &context->options, device);
    TE_TRY(find_kernels(context, device, error));
    TE_TRY(allocate(context, device, error));
    for (uint32_t i = 0; i < TOTAL(ENTRIES); i++) {
        const te_entry_record *entry = &model->entries[i];
        plan(context, device, (uint32_t)entry->first, (uint32_t)(entry->first + entry->count));
    }
    int threads = thread_count(&context->options);
    /* More than there are processors would only get in each other's way. */
    if (threads > te_processors()) threads = te_processors();
    TE_NEED(te_pool_start(device->pool, threads), TE_DEVICE_THREADS,
            "not all of %d threads could be started", threads);
    return TE_OK;
}

/* Also of a context whose creation failed half way. */
static void destroy(te_context *context) {
    const te_model *model = context->model;
    cpu *device = context->device;
    te_pool_stop(device->pool);
    for (uint32_t i = 0; i < TOTAL(ARENAS); i++) te_release(&model->allocator, device->arenas[i]);
}

/* --- running --------------------------------------------------------------------------------- */

static te_status map(te_context *context, te_part part, bool write, unsigned char **memory,
                     te_error *error) {
    cpu *device = context->device;
    (void)write;
    (void)error;
    *memory = device->buffers[part.buffer] + part.offset;
    return TE_OK;
}

static te_status unmap(te_context *context, te_part part, bool write, unsigned char *memory,
                       te_error *error) {
    (void)context;
    (void)part;
    (void)write;
    (void)memory;
    (void)error;
    return TE_OK;
}

static te_status reset(te_context *context, uint32_t number, te_error *error) {
    const te_model *model = context->model;
    const te_port_record *state = &model->ports[TE_STATES][number];
    cpu *device = context->device;
    unsigned char *to = device->buffers[state->buffer];
    size_t initial = 0;
    (void)error;
    if (state->initial != -1) {
        const te_weight_record *weight = &model->weights[state->initial];
        initial = (size_t)weight->bytes;
        memcpy(to, model->weight_bytes + weight->place, initial);
    }
    memset(to + initial, 0, (size_t)model->buffers[state->buffer].bytes - initial);
    return TE_OK;
}

static te_status resize(te_context *context, te_error *error) {
    const te_model *model = context->model;
    cpu *device = context->device;
    for (uint32_t i = 0; i < TOTAL(SYMBOLS); i++) device->symbols[i] = (int32_t)context->symbols[i];
    for (uint32_t i = 0; i < TOTAL(STEPS); i++) {
        const int64_t *sizes = context->sizes[i];
        const bool one = model->steps[i].op != TE_LAUNCH || (sizes[1] <= 1 && sizes[2] <= 1);
        TE_NEED(one, TE_DEVICE_COUNTS, "step %u: a grid of more than one dimension", i);
        device->commands[i].amount = te_idle(context, i) ? 0 : sizes[0];
    }
    return TE_OK;
}

/* One step by itself, with its time. */
static void run_timed(te_context *context, uint32_t number) {
    const cpu *device = context->device;
    te_timing *timing = &context->timings[number];
    const uint64_t start = te_clock();
    te_task task = {.first = number, .end = number + 1, .parts = 1};
    te_pool_run(device->pool, device->commands, &task, number + 1);
    timing->runs++;
    timing->nanoseconds += te_clock() - start;
}

static te_status run(te_context *context, uint32_t first, uint32_t end, te_error *error) {
    cpu *device = context->device;
    (void)error;
    if (!context->timings) {
        te_pool_run(device->pool, device->commands, device->tasks + first, end);
        return TE_OK;
    }
    for (uint32_t number = first; number < end; number++) {
        if (!te_idle(context, number)) run_timed(context, number);
    }
    return TE_OK;
}

static te_status wait(te_context *context, int64_t timeout, te_error *error) {
    (void)context;
    (void)timeout;
    (void)error;
    return TE_OK;
}

const te_backend *te_cpu(void) {
    static const te_backend backend = {
        .target = "cpu",
        .measure = measure,
        .create = create,
        .destroy = destroy,
        .resize = resize,
        .reset = reset,
        .map = map,
        .unmap = unmap,
        .run = run,
        .wait = wait,
    };
    return &backend;
}
