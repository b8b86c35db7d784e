/* The cpu backend: kernels are functions over host memory; large launches are divided among
   threads. */
#include "tinyedge_internal.h"

#include <string.h>

#ifndef TINYEDGE_NO_THREADS
#include <pthread.h>
#endif

/* A launch with less work than this stays on the calling thread: waking another costs more. */
#define PARALLEL_FLOPS 1000000
#define MOST_THREADS 256

typedef struct job {
    te_function *function;
    void *const *buffers;
    const int32_t *symbols;
    int32_t groups;
    int parts;
} job;

typedef struct cpu {
    unsigned char **arenas; /* as allocated */
    unsigned char **buffers;
    void **arguments; /* buffers of all launches, in the order of model->bound */
    const te_kernel **kernels;
    int32_t symbols[TE_MAX_SYMBOLS];
    int threads;
#ifndef TINYEDGE_NO_THREADS
    pthread_t *pool;
    int started;
    bool locks, stop;
    pthread_mutex_t mutex;
    pthread_cond_t begin, end;
    job job;
    uint64_t number; /* of the job */
    int next, left;  /* the next worker's part; parts not done */
#endif
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
    to->kernels = te_place(block, &end, TOTAL(KERNELS), sizeof *to->kernels);
#ifndef TINYEDGE_NO_THREADS
    to->pool = te_place(block, &end, (uint64_t)thread_count(options) - 1, sizeof *to->pool);
#else
    (void)options;
#endif
    return end;
}

static void measure(const te_model *model, const te_context_options *options, te_memory *memory) {
    memory->arenas = memory->device = 0;
    memory->context = lay_out(model, options, NULL);
    for (uint32_t i = 0; i < TOTAL(ARENAS); i++) {
        memory->arenas += (uint64_t)model->arenas[i] + TE_LINE;
    }
}

/* --- threads --------------------------------------------------------------------------------- */

static void run_part(const job *job, int part) {
    const int64_t begin = (int64_t)job->groups * part / job->parts;
    const int64_t end = (int64_t)job->groups * (part + 1) / job->parts;
    job->function(job->buffers, job->symbols, (int32_t)begin, (int32_t)end);
}

#ifndef TINYEDGE_NO_THREADS
static void *worker(void *argument) {
    cpu *device = argument;
    uint64_t seen = 0;
    pthread_mutex_lock(&device->mutex);
    for (;;) {
        while (!device->stop && (device->number == seen || device->next >= device->job.parts)) {
            seen = device->number;
            pthread_cond_wait(&device->begin, &device->mutex);
        }
        if (device->stop) break;
        const job job = device->job;
        const int part = device->next++;
        pthread_mutex_unlock(&device->mutex);
        run_part(&job, part);
        pthread_mutex_lock(&device->mutex);
        if (--device->left == 0) pthread_cond_signal(&device->end);
    }
    pthread_mutex_unlock(&device->mutex);
    return NULL;
}

static void run_parts(cpu *device, const job *job) {
    pthread_mutex_lock(&device->mutex);
    device->job = *job;
    device->number++;
    device->next = 1; /* part 0 is this thread's */
    device->left = job->parts - 1;
    pthread_cond_broadcast(&device->begin);
    pthread_mutex_unlock(&device->mutex);
    run_part(job, 0);
    pthread_mutex_lock(&device->mutex);
    while (device->left) pthread_cond_wait(&device->end, &device->mutex);
    pthread_mutex_unlock(&device->mutex);
}

static te_status start_threads(cpu *device, te_error *error) {
    if (device->threads == 1) return TE_OK;
    TE_NEED(!pthread_mutex_init(&device->mutex, NULL), TE_DEVICE_THREADS, "no mutex");
    if (pthread_cond_init(&device->begin, NULL)) {
        pthread_mutex_destroy(&device->mutex);
        return te_fail(error, TE_DEVICE_THREADS, "no condition variable");
    }
    if (pthread_cond_init(&device->end, NULL)) {
        pthread_cond_destroy(&device->begin);
        pthread_mutex_destroy(&device->mutex);
        return te_fail(error, TE_DEVICE_THREADS, "no condition variable");
    }
    device->locks = true;
    for (; device->started < device->threads - 1; device->started++) {
        TE_NEED(!pthread_create(&device->pool[device->started], NULL, worker, device),
                TE_DEVICE_THREADS, "thread %d could not be started", device->started + 1);
    }
    return TE_OK;
}

static void stop_threads(cpu *device) {
    if (!device->locks) return;
    pthread_mutex_lock(&device->mutex);
    device->stop = true;
    pthread_cond_broadcast(&device->begin);
    pthread_mutex_unlock(&device->mutex);
    for (int i = 0; i < device->started; i++) pthread_join(device->pool[i], NULL);
    pthread_cond_destroy(&device->end);
    pthread_cond_destroy(&device->begin);
    pthread_mutex_destroy(&device->mutex);
}
#endif

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

static te_status create(te_context *context, te_error *error) {
    cpu *device = context->device;
    lay_out(context->model, &context->options, device);
    device->threads = thread_count(&context->options);
    TE_TRY(find_kernels(context, device, error));
    TE_TRY(allocate(context, device, error));
#ifndef TINYEDGE_NO_THREADS
    TE_TRY(start_threads(device, error));
#endif
    return TE_OK;
}

/* Also of a context whose creation failed half way. */
static void destroy(te_context *context) {
    const te_model *model = context->model;
    cpu *device = context->device;
#ifndef TINYEDGE_NO_THREADS
    stop_threads(device);
#endif
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
    }
    return TE_OK;
}

static void launch(te_context *context, uint32_t number) {
    const te_step_record *step = &context->model->steps[number];
    cpu *device = context->device;
    job job = {.function = device->kernels[step->kernel]->function,
               .buffers = device->arguments + step->first_buffer,
               .symbols = device->symbols,
               .groups = (int32_t)context->sizes[number][0],
               .parts = 1};
    if (step->flops >= PARALLEL_FLOPS) {
        job.parts = device->threads < job.groups ? device->threads : job.groups;
    }
#ifndef TINYEDGE_NO_THREADS
    if (job.parts > 1) {
        run_parts(device, &job);
        return;
    }
#endif
    run_part(&job, 0);
}

static void copy(te_context *context, uint32_t number) {
    const te_step_record *step = &context->model->steps[number];
    cpu *device = context->device;
    memcpy(device->buffers[step->destination] + step->destination_offset,
           device->buffers[step->source] + step->source_offset,
           (size_t)context->sizes[number][0]);
}

static te_status run(te_context *context, uint32_t first, uint32_t end, te_error *error) {
    (void)error;
    for (uint32_t number = first; number < end; number++) {
        if (te_idle(context, number)) continue;
        const uint64_t start = context->timings ? te_clock() : 0;
        if (context->model->steps[number].op == TE_LAUNCH) launch(context, number);
        else copy(context, number);
        if (context->timings) {
            context->timings[number].runs++;
            context->timings[number].nanoseconds += te_clock() - start;
        }
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
