/* The CUDA backend: bundles of target cuda on NVIDIA's GPUs, by the driver's API alone. All is made
   at creation; a run copies inputs and outputs and launches one graph, or one for each straight
   piece of an entry with loops. */
#include "tinyedge_cuda.h"

#include <string.h>

#define INSIDE(call)                                                                               \
    do {                                                                                           \
        cuda *inside_ = context->device;                                                           \
        TE_TRY(te_cuda_enter(inside_, error));                                                     \
        return te_cuda_leave(inside_, (call), error);                                              \
    } while (0)

static CUdeviceptr host_address(const void *memory) { return (CUdeviceptr)(uintptr_t)memory; }

static te_status copy(cuda *device, CUdeviceptr to, CUdeviceptr from, int64_t bytes, bool changes,
                      te_error *error) {
    CALL(cuMemcpyAsync, to, from, (size_t)bytes, device->stream);
    queued(device, changes);
    return TE_OK;
}

static te_status mark(cuda *device, te_error *error) {
    if (!device->busy || device->marked) return TE_OK;
    CALL(cuEventRecord, device->done, device->stream);
    device->marked = true;
    return TE_OK;
}

static te_status ask_done(te_context *context, bool *done, te_error *error) {
    cuda *device = context->device;
    const int answer = device->driver.cuEventQuery(device->done);
    *done = answer != NOT_READY;
    return *done ? te_cuda_failed(device, answer, NUMBER(cuEventQuery), error) : TE_OK;
}

static te_status wait_inside(te_context *context, int64_t timeout, te_error *error) {
    cuda *device = context->device;
    if (!device->busy) return TE_OK;
    TE_TRY(mark(device, error));
    if (timeout < 0) CALL(cuEventSynchronize, device->done);
    else TE_TRY(te_poll(context, timeout, ask_done, error));
    device->busy = false;
    return TE_OK;
}

/* --- creation --------------------------------------------------------------------------------- */

static te_status make_all(te_context *context, cuda *device, te_error *error) {
    const te_model *model = context->model;
    TE_TRY(te_cuda_open(device, model, &context->options.cuda, error));
    TE_TRY(te_cuda_load_kernels(model, device, error));
    CALL(cuEventCreate, &device->done, EVENT_BLOCKING | EVENT_NO_TIME);
    for (uint32_t i = 0; context->timings && i <= TOTAL(STEPS); i++) {
        CALL(cuEventCreate, &device->times[i], 0);
    }
    TE_TRY(te_cuda_allocate(model, device, error));
    TE_TRY(te_stream_weights(model, te_cuda_load_weight, device, error));
    return te_cuda_make_graphs(context, device, error);
}

static te_status create(te_context *context, te_error *error) {
    cuda *device = context->device;
    te_cuda_lay_out(context->model, &context->options, device);
    device->changes = 1;
    return te_cuda_leave(device, make_all(context, device, error), error);
}

/* Also of a context whose creation failed half way; then there may be nothing to call. */
static void destroy(te_context *context) {
    const te_model *model = context->model;
    cuda *device = context->device;
    const driver *driver = &device->driver;
    te_error unwanted;
    if (!device->context) return;
    te_cuda_enter(device, &unwanted);
    if (device->stream && device->busy) driver->cuStreamSynchronize(device->stream);
    for (uint32_t i = 0; i < TOTAL(STEPS); i++) {
        if (device->nodes[i].executable) driver->cuGraphExecDestroy(device->nodes[i].executable);
        if (device->nodes[i].graph) driver->cuGraphDestroy(device->nodes[i].graph);
    }
    for (uint32_t i = 0; context->timings && i <= TOTAL(STEPS); i++) {
        if (device->times[i]) driver->cuEventDestroy(device->times[i]);
    }
    if (device->done) driver->cuEventDestroy(device->done);
    if (device->module) driver->cuModuleUnload(device->module);
    if (device->host) driver->cuMemFreeHost(device->host);
    if (device->memory) driver->cuMemFree(device->memory);
    if (device->own) driver->cuStreamDestroy(device->own);
    te_cuda_leave(device, TE_OK, &unwanted);
    if (device->retained) driver->cuDevicePrimaryCtxRelease(device->device);
}

/* --- running ---------------------------------------------------------------------------------- */

static te_status map_inside(te_context *context, te_part part, bool write, unsigned char **memory,
                            te_error *error) {
    cuda *device = context->device;
    const place *place = &device->places[part.buffer];
    *memory = place->host ? place->host + part.offset : device->spare;
    if (write) return TE_OK;
    const bool here = place->host && (device->mapped || place->fetched == device->changes);
    if (!here) {
        const CUdeviceptr from = place->address + (uint64_t)part.offset;
        TE_TRY(copy(device, host_address(*memory), from, part.bytes, false, error));
    }
    return wait_inside(context, -1, error);
}

static te_status map(te_context *context, te_part part, bool write, unsigned char **memory,
                     te_error *error) {
    INSIDE(map_inside(context, part, write, memory, error));
}

static te_status unmap_inside(te_context *context, te_part part, unsigned char *memory,
                              te_error *error) {
    cuda *device = context->device;
    const place *place = &device->places[part.buffer];
    const CUdeviceptr to = place->address + (uint64_t)part.offset;
    TE_TRY(copy(device, to, host_address(memory), part.bytes, true, error));
    return place->host ? TE_OK : wait_inside(context, -1, error); /* the next one may need spare */
}

static te_status unmap(te_context *context, te_part part, bool write, unsigned char *memory,
                       te_error *error) {
    const cuda *device = context->device;
    if (!write || (device->mapped && device->places[part.buffer].host)) return TE_OK;
    INSIDE(unmap_inside(context, part, memory, error));
}

static te_status exchange(te_context *context, te_part part, const te_tensor *tensor,
                          bool to_tensor, te_error *error) {
    cuda *device = context->device;
    const CUdeviceptr ours = device->places[part.buffer].address + (uint64_t)part.offset;
    const CUdeviceptr theirs = tensor->device + tensor->offset;
    INSIDE(to_tensor ? copy(device, theirs, ours, part.bytes, false, error)
                     : copy(device, ours, theirs, part.bytes, true, error));
}

static te_status reset_inside(te_context *context, uint32_t number, te_error *error) {
    const te_model *model = context->model;
    const te_port_record *state = &model->ports[TE_STATES][number];
    cuda *device = context->device;
    const CUdeviceptr to = device->places[state->buffer].address;
    const int64_t bytes = model->buffers[state->buffer].bytes;
    int64_t initial = 0;
    if (state->initial != -1) {
        initial = model->weights[state->initial].bytes;
        TE_TRY(copy(device, to, device->weights[state->initial], initial, true, error));
    }
    if (initial == bytes) return TE_OK;
    CALL(cuMemsetD8Async, to + (uint64_t)initial, 0, (size_t)(bytes - initial), device->stream);
    queued(device, true);
    return TE_OK;
}

static te_status reset(te_context *context, uint32_t number, te_error *error) {
    INSIDE(reset_inside(context, number, error));
}

static te_status resize_inside(te_context *context, te_error *error) {
    const te_model *model = context->model;
    cuda *device = context->device;
    TE_TRY(te_cuda_resize_graphs(context, error));
    if (!TOTAL(SYMBOLS)) return TE_OK;
    for (uint32_t i = 0; i < TOTAL(SYMBOLS); i++) {
        const int32_t value = (int32_t)context->symbols[i];
        memcpy(device->table + i * sizeof value, &value, sizeof value);
    }
    return copy(device, device->symbols, host_address(device->table),
                TE_MAX_SYMBOLS * sizeof(int32_t), true, error);
}

static te_status resize(te_context *context, te_error *error) {
    INSIDE(resize_inside(context, error));
}

static te_status launch_one(te_context *context, uint32_t number, te_error *error) {
    const te_model *model = context->model;
    const int64_t *sizes = context->sizes[number];
    cuda *device = context->device;
    if (model->steps[number].op == TE_COPY) {
        const copy_node node = te_cuda_copy_node(model, device, number, sizes[0]);
        return copy(device, node.destination.device, node.source.device, sizes[0], true, error);
    }
    arguments arguments;
    const launch_node node = te_cuda_launch_node(model, device, number, sizes, &arguments);
    CALL(cuLaunchKernel, node.function, node.grid[0], node.grid[1], node.grid[2], node.block[0],
         node.block[1], node.block[2], 0, device->stream, node.arguments, NULL);
    queued(device, true);
    return TE_OK;
}

/* One launch after the other, with an event after each, and then the times between these. */
static te_status run_timed(te_context *context, uint32_t first, uint32_t end, te_error *error) {
    cuda *device = context->device;
    CUevent *last = device->times;
    CALL(cuEventRecord, *last, device->stream);
    queued(device, false);
    for (uint32_t i = first; i < end; i++) {
        if (te_idle(context, i)) continue;
        TE_TRY(launch_one(context, i, error));
        CALL(cuEventRecord, *++last, device->stream);
    }
    CALL(cuEventSynchronize, *last);
    last = device->times;
    for (uint32_t i = first; i < end; i++) {
        float milliseconds;
        if (te_idle(context, i)) continue;
        CALL(cuEventElapsedTime, &milliseconds, last[0], last[1]);
        context->timings[i].runs++;
        context->timings[i].nanoseconds += (uint64_t)((double)milliseconds * 1e6);
        last++;
    }
    return TE_OK;
}

static te_status run_inside(te_context *context, uint32_t first, uint32_t end, te_error *error) {
    cuda *device = context->device;
    if (context->timings) return run_timed(context, first, end, error);
    CALL(cuGraphLaunch, device->nodes[first].executable, device->stream);
    queued(device, true);
    return TE_OK;
}

static te_status run(te_context *context, uint32_t first, uint32_t end, te_error *error) {
    INSIDE(run_inside(context, first, end, error));
}

static te_status fetch_inside(te_context *context, te_part part, te_error *error) {
    cuda *device = context->device;
    place *place = &device->places[part.buffer];
    TE_TRY(copy(device, host_address(place->host), place->address, part.bytes, false, error));
    place->fetched = device->changes;
    return TE_OK;
}

static te_status fetch(te_context *context, te_part part, bool write, te_error *error) {
    const cuda *device = context->device;
    if (write || device->mapped) return TE_OK;
    INSIDE(fetch_inside(context, part, error));
}

static te_status flush(te_context *context, te_error *error) {
    INSIDE(mark(context->device, error));
}

static te_status wait(te_context *context, int64_t timeout, te_error *error) {
    INSIDE(wait_inside(context, timeout, error));
}

const te_backend *te_cuda(void) {
    static const te_backend backend = {
        .target = "cuda",
        .measure = te_cuda_measure,
        .create = create,
        .destroy = destroy,
        .resize = resize,
        .reset = reset,
        .map = map,
        .unmap = unmap,
        .exchange = exchange,
        .run = run,
        .fetch = fetch,
        .flush = flush,
        .wait = wait,
    };
    return &backend;
}
