/* The OpenCL backend: bundles of target qcom on any little-endian device of OpenCL 1.2's full
   profile. Everything is made at creation; a run only enqueues. */
#include "tinyedge_opencl.h"

#include <string.h>

/* --- creation --------------------------------------------------------------------------------- */

static void settle(te_context *context);

static te_status create(te_context *context, te_error *error) {
    const te_model *model = context->model;
    opencl *device = context->device;
    te_opencl_lay_out(model, device);
    TE_TRY(te_opencl_open(device, model, &context->options, error));
    if (TOTAL(KERNELS)) TE_TRY(te_opencl_build(device, context, error));
    TE_TRY(te_opencl_make_memory(device, model, error));
    if (TOTAL(SYMBOLS)) {
        TE_TRY(te_opencl_make_buffer(device, sizeof device->table, &device->symbols, error));
    }
    TE_TRY(te_stream_weights(model, te_opencl_write_weight, context, error));
    for (uint32_t i = 0; i < TOTAL(STEPS); i++) {
        if (model->steps[i].op == TE_LAUNCH) TE_TRY(te_opencl_make_kernel(device, model, i, error));
    }
    return TE_OK;
}

static void forget_last(opencl *device) {
    if (device->last) device->cl.clReleaseEvent(device->last);
    device->last = NULL;
}

/* Also of a context whose creation failed half way. */
static void destroy(te_context *context) {
    const te_model *model = context->model;
    opencl *device = context->device;
    if (device->queue) {
        settle(context);
        device->cl.clFinish(device->queue);
    }
    forget_last(device);
    for (uint32_t i = 0; device->kernels && i < TOTAL(STEPS); i++) {
        if (device->kernels[i]) device->cl.clReleaseKernel(device->kernels[i]);
    }
    /* Views before what they are of. */
    for (uint32_t i = te_opencl_memory_count(model); device->arenas && i-- > 0;) {
        if (device->arenas[i]) device->cl.clReleaseMemObject(device->arenas[i]);
    }
    if (device->symbols) device->cl.clReleaseMemObject(device->symbols);
    if (device->program) device->cl.clReleaseProgram(device->program);
    if (device->queue) device->cl.clReleaseCommandQueue(device->queue);
    if (device->context) device->cl.clReleaseContext(device->context);
}

/* --- running ---------------------------------------------------------------------------------- */

/* Where a buffer lies: in an arena or weight, and at which byte of it. */
static TE_NOINLINE cl_object place(const te_context *context, int32_t number, int64_t offset,
                                   size_t *at) {
    const te_buffer_record *buffer = &context->model->buffers[number];
    const opencl *device = context->device;
    *at = (size_t)(buffer->offset + offset);
    return buffer->arena != -1 ? device->arenas[buffer->arena] : device->weights[buffer->weight];
}

static TE_NOINLINE te_status copy(const opencl *device, cl_object from, size_t from_byte,
                                  cl_object to, size_t to_byte, size_t bytes, cl_object *event,
                                  te_error *error) {
    CALL(clEnqueueCopyBuffer, device->queue, from, to, from_byte, to_byte, bytes, 0, NULL, event);
    return TE_OK;
}

static te_status map_part(te_context *context, te_part part, bool write, bool block,
                          unsigned char **memory, te_error *error) {
    const opencl *device = context->device;
    size_t at;
    const cl_object buffer = place(context, part.buffer, part.offset, &at);
    MAKE(*memory, clEnqueueMapBuffer, device->queue, buffer, block,
         write ? MAP_WRITE_INVALIDATE : MAP_READ, at, (size_t)part.bytes, 0, NULL, NULL);
    return TE_OK;
}

static te_status unmap_part(te_context *context, te_part part, unsigned char *memory,
                            te_error *error) {
    const opencl *device = context->device;
    size_t at;
    const cl_object buffer = place(context, part.buffer, part.offset, &at);
    CALL(clEnqueueUnmapMemObject, device->queue, buffer, memory, 0, NULL, NULL);
    return TE_OK;
}

static te_status fetch(te_context *context, te_part part, bool write, te_error *error) {
    opencl *device = context->device;
    mapped *mapped = &device->mapped[device->mappings];
    mapped->part = part;
    TE_TRY(map_part(context, part, write, false, &mapped->memory, error));
    device->mappings++;
    device->mapping = true;
    return TE_OK;
}

static void settle(te_context *context) {
    opencl *device = context->device;
    te_error unwanted;
    while (device->mappings) {
        const mapped *mapped = &device->mapped[--device->mappings];
        unmap_part(context, mapped->part, mapped->memory, &unwanted);
    }
}

/* What fetch mapped around a part, or NULL. */
static unsigned char *fetched(const opencl *device, te_part part) {
    for (uint32_t i = 0; i < device->mappings; i++) {
        const mapped *mapped = &device->mapped[i];
        const int64_t offset = part.offset - mapped->part.offset;
        if (mapped->part.buffer == part.buffer && offset >= 0 &&
            offset + part.bytes <= mapped->part.bytes) {
            return mapped->memory + offset;
        }
    }
    return NULL;
}

static te_status map(te_context *context, te_part part, bool write, unsigned char **memory,
                     te_error *error) {
    opencl *device = context->device;
    *memory = fetched(device, part);
    if (!*memory) return map_part(context, part, write, true, memory, error);
    if (device->mapping) CALL(clFinish, device->queue);
    device->mapping = false;
    return TE_OK;
}

static te_status unmap(te_context *context, te_part part, bool write, unsigned char *memory,
                       te_error *error) {
    (void)write;
    if (fetched(context->device, part)) return TE_OK; /* settle does it */
    return unmap_part(context, part, memory, error);
}

static te_status exchange(te_context *context, te_part part, const te_tensor *tensor,
                          bool to_tensor, te_error *error) {
    const opencl *device = context->device;
    cl_object theirs;
    size_t room = 0, at;
    const uintptr_t handle = (uintptr_t)tensor->device;
    const size_t bytes = (size_t)part.bytes, offset = (size_t)tensor->offset;
    memcpy(&theirs, &handle, sizeof theirs);
    CALL(clGetMemObjectInfo, theirs, MEM_SIZE, sizeof room, &room, NULL);
    TE_NEED(tensor->offset <= room && bytes <= room - offset, TE_API_ARGUMENT,
            "a cl_mem of %llu bytes is too small", (unsigned long long)room);
    const cl_object ours = place(context, part.buffer, part.offset, &at);
    return to_tensor ? copy(device, ours, at, theirs, offset, bytes, NULL, error)
                     : copy(device, theirs, offset, ours, at, bytes, NULL, error);
}

static te_status reset(te_context *context, uint32_t number, te_error *error) {
    static const int32_t zero = 0;
    const te_model *model = context->model;
    const opencl *device = context->device;
    const te_port_record *state = &model->ports[TE_STATES][number];
    size_t at, initial = 0;
    const size_t bytes = (size_t)model->buffers[state->buffer].bytes;
    const cl_object to = place(context, state->buffer, 0, &at);
    if (state->initial != -1) {
        initial = (size_t)model->weights[state->initial].bytes;
        const cl_object weight = device->weights[state->initial];
        TE_TRY(copy(device, weight, 0, to, at, initial, NULL, error));
    }
    if (initial < bytes) {
        CALL(clEnqueueFillBuffer, device->queue, to, &zero, sizeof zero, at + initial,
             bytes - initial, 0, NULL, NULL);
    }
    return TE_OK;
}

static te_status resize(te_context *context, te_error *error) {
    const te_model *model = context->model;
    opencl *device = context->device;
    const size_t bytes = TOTAL(SYMBOLS) * sizeof *device->table;
    for (uint32_t i = 0; i < TOTAL(STEPS); i++) {
        if (model->steps[i].op != TE_LAUNCH) continue;
        const int64_t *workgroup = model->kernels[model->steps[i].kernel].workgroup;
        for (int axis = 0; axis < 3; axis++) {
            TE_NEED(context->sizes[i][axis] * workgroup[axis] <= INT32_MAX, TE_DEVICE_COUNTS,
                    "step %u: more than 2^31 threads along one dimension", (unsigned)i);
        }
    }
    if (!bytes) return TE_OK;
    for (uint32_t i = 0; i < TOTAL(SYMBOLS); i++) device->table[i] = (int32_t)context->symbols[i];
    CALL(clEnqueueWriteBuffer, device->queue, device->symbols, BLOCKING, 0, bytes, device->table, 0,
         NULL, NULL);
    return TE_OK;
}

static te_status launch(const te_context *context, uint32_t number, cl_object *event,
                        te_error *error) {
    const te_step_record *step = &context->model->steps[number];
    const opencl *device = context->device;
    const int64_t *sizes = context->sizes[number];
    size_t threads[3], workgroup[3], from, to;
    if (step->op == TE_COPY) {
        const cl_object source = place(context, step->source, step->source_offset, &from);
        const cl_object destination =
            place(context, step->destination, step->destination_offset, &to);
        return copy(device, source, from, destination, to, (size_t)sizes[0], event, error);
    }
    for (int axis = 0; axis < 3; axis++) {
        workgroup[axis] = (size_t)context->model->kernels[step->kernel].workgroup[axis];
        threads[axis] = (size_t)sizes[axis] * workgroup[axis];
    }
    CALL(clEnqueueNDRangeKernel, device->queue, device->kernels[number], 3, NULL, threads,
         workgroup, 0, NULL, event);
    return TE_OK;
}

/* What the device's clock says of a command, which is waited for. */
static te_status time_event(const opencl *device, cl_object event, te_timing *timing,
                            te_error *error) {
    uint64_t start = 0, end = 0;
    CALL(clWaitForEvents, 1, &event);
    CALL(clGetEventProfilingInfo, event, PROFILING_START, sizeof start, &start, NULL);
    CALL(clGetEventProfilingInfo, event, PROFILING_END, sizeof end, &end, NULL);
    timing->runs++;
    timing->nanoseconds += end - start;
    return TE_OK;
}

static te_status run(te_context *context, uint32_t first, uint32_t end, te_error *error) {
    const opencl *device = context->device;
    for (uint32_t number = first; number < end; number++) {
        cl_object event = NULL;
        if (te_idle(context, number)) continue;
        TE_TRY(launch(context, number, context->timings ? &event : NULL, error));
        if (!event) continue;
        const te_status status = time_event(device, event, &context->timings[number], error);
        device->cl.clReleaseEvent(event);
        TE_TRY(status);
    }
    return TE_OK;
}

/* An event at the end of what was enqueued. */
static te_status mark(opencl *device, te_error *error) {
    if (!device->last) {
        CALL(clEnqueueMarkerWithWaitList, device->queue, 0, NULL, &device->last);
    }
    return TE_OK;
}

static te_status flush(te_context *context, te_error *error) {
    opencl *device = context->device;
    TE_TRY(mark(device, error));
    CALL(clFlush, device->queue);
    return TE_OK;
}

static te_status ask(te_context *context, bool *done, te_error *error) {
    const opencl *device = context->device;
    int32_t state = 0;
    CALL(clGetEventInfo, device->last, EVENT_STATUS, sizeof state, &state, NULL);
    *done = state <= 0;
    return te_opencl_failed(state < 0 ? state : 0, offsetof(api, clGetEventInfo), error);
}

static te_status wait(te_context *context, int64_t timeout, te_error *error) {
    opencl *device = context->device;
    TE_TRY(mark(device, error));
    if (timeout >= 0) TE_TRY(te_poll(context, timeout, ask, error));
    else CALL(clWaitForEvents, 1, &device->last);
    forget_last(device);
    device->mapping = false;
    return TE_OK;
}

const te_backend *te_opencl(void) {
    static const te_backend backend = {
        .target = "qcom",
        .measure = te_opencl_measure,
        .create = create,
        .destroy = destroy,
        .resize = resize,
        .reset = reset,
        .map = map,
        .unmap = unmap,
        .exchange = exchange,
        .run = run,
        .fetch = fetch,
        .settle = settle,
        .flush = flush,
        .wait = wait,
    };
    return &backend;
}
