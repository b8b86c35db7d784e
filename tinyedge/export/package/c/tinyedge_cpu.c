/* The cpu backend: kernels are functions over host memory; threads share them. */
#include "tinyedge_cpu.h"
#include "tinyedge_internal.h"

#include <string.h>

#define MOST_THREADS 256

/* What is done to a buffer. fixed: it cannot lie in a caller's memory. */
typedef struct reach {
    int64_t bytes; /* from its start on, those that are touched */
    bool written, fixed;
} reach;

typedef struct cpu {
    unsigned char **arenas; /* as allocated */
    unsigned char **own;     /* of each buffer, its place in an arena or among the weights */
    unsigned char **buffers; /* where it is: there, or in the caller's memory */
    reach *reaches;
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
    to->own = te_place(block, &end, TOTAL(BUFFERS), sizeof *to->own);
    to->buffers = te_place(block, &end, TOTAL(BUFFERS), sizeof *to->buffers);
    to->reaches = te_place(block, &end, TOTAL(BUFFERS), sizeof *to->reaches);
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
    TE_TRY(te_check_needs(kernels, error));
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
            device->own[i] = model->weight_bytes + model->weights[buffer->weight].place;
        } else {
            unsigned char *arena = device->arenas[buffer->arena];
            const uintptr_t gap = (TE_LINE - (uintptr_t)arena % TE_LINE) % TE_LINE;
            device->own[i] = arena + gap + buffer->offset;
        }
        device->buffers[i] = device->own[i];
    }
    return TE_OK;
}

/* What launches and copies are given, after buffers were placed. */
static void give(const te_model *model, cpu *device) {
    for (uint32_t i = 0; i < TOTAL(BOUND); i++) {
        device->arguments[i] = device->buffers[model->bound[i]];
    }
    for (uint32_t i = 0; i < TOTAL(STEPS); i++) {
        const te_step_record *step = &model->steps[i];
        if (step->op != TE_COPY) continue;
        device->ends[i][0] = device->buffers[step->destination] + step->destination_offset;
        device->ends[i][1] = device->buffers[step->source] + step->source_offset;
    }
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

/* --- the caller's memory --------------------------------------------------------------------- */

static void touch(cpu *device, int32_t buffer, int64_t bytes, bool written) {
    reach *of = &device->reaches[buffer];
    if (bytes > of->bytes) of->bytes = bytes;
    of->written |= written;
}

static void touch_by_step(const te_model *model, cpu *device, const te_step_record *step) {
    if (step->op == TE_COPY) {
        touch(device, step->source, model->buffers[step->source].bytes, false);
        touch(device, step->destination, model->buffers[step->destination].bytes, true);
    } else if (step->op == TE_LOOP) {
        touch(device, step->condition, (int64_t)sizeof(int32_t), false);
    } else {
        const te_kernel *kernel = device->kernels[step->kernel];
        for (uint32_t i = 0; i < step->buffers; i++) {
            touch(device, model->bound[step->first_buffer + i], kernel->buffers[i].bytes,
                  kernel->buffers[i].written);
        }
    }
}

/* The ports of an entry, inputs first; false beyond the last. */
static bool port_at(const te_model *model, const te_entry_record *entry, uint32_t position,
                    te_group *group, int32_t *number) {
    const bool output = position >= entry->inputs;
    *group = output ? TE_OUTPUTS : TE_INPUTS;
    const uint32_t place = output ? position - entry->inputs : position;
    if (output && place >= entry->outputs) return false;
    *number = model->listed[(output ? entry->first_output : entry->first_input) + place];
    return true;
}

/* Two ports of one range have one value, which can be in one place only, unless the one is an input
   and the other an output that is computed. */
static void fix_shared(const te_model *model, cpu *device, const te_entry_record *entry) {
    te_group group, others;
    int32_t number, other;
    for (uint32_t i = 0; port_at(model, entry, i, &group, &number); i++) {
        const te_port_record *port = &model->ports[group][number];
        const te_buffer_record *buffer = &model->buffers[port->buffer];
        reach *of = &device->reaches[port->buffer];
        of->fixed |= buffer->arena == -1 || port->count != -1;
        if (port->count != -1) {
            device->reaches[model->ports[TE_OUTPUTS][port->count].buffer].fixed = true;
        }
        for (uint32_t j = 0; j < i && port_at(model, entry, j, &others, &other); j++) {
            const int32_t place = model->ports[others][other].buffer;
            const te_buffer_record *second = &model->buffers[place];
            const bool same = buffer->arena == second->arena && buffer->offset == second->offset;
            const bool one = others == TE_OUTPUTS || place == port->buffer || !of->written;
            if (same && one) of->fixed = device->reaches[place].fixed = true;
        }
    }
}

/* Ports have their buffers to themselves: what overlaps these is for other times. */
static void find_reaches(const te_model *model, cpu *device) {
    for (uint32_t i = 0; i < TOTAL(STEPS); i++) touch_by_step(model, device, &model->steps[i]);
    for (uint32_t i = 0; i < TOTAL(ENTRIES); i++) fix_shared(model, device, &model->entries[i]);
}

/* Whether the caller has all elements, as they follow each other on the device. whole: and steps
   touch nothing behind them, but to the next word. */
static bool is_dense(const te_context *context, const te_port_record *port,
                     const te_tensor *tensor, bool whole) {
    const reach *of = &((const cpu *)context->device)->reaches[port->buffer];
    int64_t shape[TE_MAX_RANK], elements, stride = (int64_t)te_dtype_bytes(port->dtype);
    te_extents(context->model, port, context->symbols, shape, &elements);
    for (int axis = port->rank - 1; axis >= 0; axis--) {
        if (tensor->shape && tensor->shape[axis] != shape[axis]) return false;
        if (tensor->strides && shape[axis] != 1 && tensor->strides[axis] != stride) return false;
        stride *= shape[axis];
    }
    return tensor->bytes >= (uint64_t)stride && tensor->bytes >= (uint64_t)of->bytes &&
           (!whole || stride + 3 >= of->bytes);
}

static bool fits(const te_context *context, te_group group, int32_t number) {
    const te_port_record *port = &context->model->ports[group][number];
    const te_binding *binding = &(group ? context->outputs : context->inputs)[number];
    const te_tensor *tensor = &binding->tensor;
    const reach *of = &((const cpu *)context->device)->reaches[port->buffer];
    if (!binding->bound || !tensor->data || tensor->device) return false;
    if (port->dtype != port->storage || port->dtype == TE_BOOL) return false;
    if (of->fixed || (of->written && group == TE_INPUTS)) return false;
    if ((uintptr_t)tensor->data % te_dtype_bytes(port->dtype)) return false;
    return is_dense(context, port, tensor, group == TE_OUTPUTS);
}

/* Whether no other port of the entry is bound to memory of this output. */
static bool is_apart(const te_context *context, const te_entry_record *entry, int32_t output) {
    const te_tensor *tensor = &context->outputs[output].tensor;
    const uintptr_t start = (uintptr_t)tensor->data;
    te_group group;
    int32_t number;
    for (uint32_t i = 0; port_at(context->model, entry, i, &group, &number); i++) {
        const te_binding *other = &(group ? context->outputs : context->inputs)[number];
        const uintptr_t from = (uintptr_t)other->tensor.data;
        if (!other->bound || other->tensor.device || (group && number == output)) continue;
        if (start < from + other->tensor.bytes && from < start + tensor->bytes) return false;
    }
    return true;
}

/* What the outputs of other entries had is gone. */
static void place(te_context *context, const te_entry_record *entry) {
    const te_model *model = context->model;
    cpu *device = context->device;
    te_group group;
    int32_t number;
    for (uint32_t i = 0; i < TOTAL(OUTPUTS); i++) {
        te_binding *binding = &context->outputs[i];
        binding->lost |= binding->in_place;
        binding->in_place = false;
    }
    memcpy(device->buffers, device->own, TOTAL(BUFFERS) * sizeof *device->own);
    for (uint32_t i = 0; port_at(model, entry, i, &group, &number); i++) {
        te_binding *binding = &(group ? context->outputs : context->inputs)[number];
        binding->lost = false;
        binding->in_place = fits(context, group, number) &&
                            (group == TE_INPUTS || is_apart(context, entry, number));
        if (!binding->in_place) continue;
        device->buffers[model->ports[group][number].buffer] = binding->tensor.data;
    }
    give(model, device);
}

static te_status create(te_context *context, te_error *error) {
    const te_model *model = context->model;
    cpu *device = context->device;
    lay_out(model, &context->options, device);
    TE_TRY(find_kernels(context, device, error));
    TE_TRY(allocate(context, device, error));
    give(model, device);
    find_reaches(model, device);
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
        .place = place,
        .map = map,
        .unmap = unmap,
        .run = run,
        .wait = wait,
    };
    return &backend;
}
