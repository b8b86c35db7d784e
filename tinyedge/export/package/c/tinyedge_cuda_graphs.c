/* Launches and copies as graphs: one for each straight piece of an entry. */
#include "tinyedge_cuda.h"

#include <string.h>

/* A launch with its arguments: the addresses of its buffers and, last, of the symbols. */
launch_node te_cuda_launch_node(const te_model *model, const cuda *device, uint32_t number,
                                const int64_t *sizes, arguments *to) {
    const te_step_record *step = &model->steps[number];
    const te_kernel_record *kernel = &model->kernels[step->kernel];
    launch_node node = {.function = device->functions[step->kernel], .arguments = to->pointers};
    for (int i = 0; i < 3; i++) {
        node.grid[i] = (unsigned)sizes[i];
        node.block[i] = (unsigned)kernel->workgroup[i];
    }
    for (uint32_t i = 0; i < step->buffers; i++) {
        to->values[i] = device->places[model->bound[step->first_buffer + i]].address;
    }
    to->values[step->buffers] = device->symbols;
    for (uint32_t i = 0; i <= step->buffers; i++) to->pointers[i] = &to->values[i];
    return node;
}

copy_node te_cuda_copy_node(const te_model *model, const cuda *device, uint32_t number,
                            int64_t bytes) {
    const te_step_record *step = &model->steps[number];
    copy_node node = {.width = (size_t)bytes, .height = 1, .depth = 1};
    node.source.kind = node.destination.kind = MEMORY_BY_ADDRESS;
    node.source.device = device->places[step->source].address + (uint64_t)step->source_offset;
    node.destination.device =
        device->places[step->destination].address + (uint64_t)step->destination_offset;
    return node;
}

static bool is_nothing(const te_step_record *step, const int64_t *sizes) {
    return !sizes[0] || (step->op == TE_LAUNCH && (!sizes[1] || !sizes[2]));
}

static te_status check_grid(uint32_t number, const te_step_record *step, const int64_t *sizes,
                            te_error *error) {
    TE_NEED(step->op != TE_LAUNCH || (sizes[1] <= 65535 && sizes[2] <= 65535), TE_DEVICE_COUNTS,
            "step %u: a grid of %lld x %lld x %lld", number, (long long)sizes[0],
            (long long)sizes[1], (long long)sizes[2]);
    return TE_OK;
}

/* Where straight pieces begin: at an entry's start, and at the ends of blocks. */
static void find_pieces(const te_model *model, node *nodes) {
    for (uint32_t i = 0; i < TOTAL(ENTRIES); i++) {
        if (model->entries[i].count) nodes[model->entries[i].first].first = true;
    }
    for (int64_t i = 0; i < TOTAL(STEPS); i++) {
        const te_step_record *step = &model->steps[i];
        if (step->op <= TE_COPY) continue;
        const int64_t ends[] = {i + 1, i + 1 + step->body};
        for (int j = 0; j < 2; j++) {
            if (ends[j] < TOTAL(STEPS)) nodes[ends[j]].first = true;
        }
    }
}

/* A node of these sizes behind the one before; one that does nothing has others until it does. */
static te_status add_node(const te_model *model, cuda *device, uint32_t number, CUgraph graph,
                          const CUgraphNode *before, te_error *error) {
    const te_step_record *step = &model->steps[number];
    node *node = &device->nodes[number];
    int64_t sizes[3] = {1, 1, 1};
    const bool nothing = is_nothing(step, node->sizes);
    if (!nothing) memcpy(sizes, node->sizes, sizeof sizes);
    if (step->op == TE_LAUNCH) {
        arguments arguments;
        const launch_node launch = te_cuda_launch_node(model, device, number, sizes, &arguments);
        CALL(cuGraphAddKernelNode, &node->node, graph, before, before != NULL, &launch);
        return TE_OK;
    }
    copy_node copy = te_cuda_copy_node(model, device, number, sizes[0]);
    if (nothing) { /* the offsets may be at the buffers' ends */
        copy.source.device = device->places[step->source].address;
        copy.destination.device = device->places[step->destination].address;
    }
    CALL(cuGraphAddMemcpyNode, &node->node, graph, before, before != NULL, &copy, device->context);
    return TE_OK;
}

static te_status enable(cuda *device, CUgraphExec executable, node *node, bool enabled,
                        te_error *error) {
    if (node->enabled == enabled) return TE_OK;
    CALL(cuGraphNodeSetEnabled, executable, node->node, enabled);
    node->enabled = enabled;
    return TE_OK;
}

/* The graph of the launches and copies from `first` on, up to the next piece or loop. */
static te_status make_piece(const te_model *model, cuda *device, uint32_t first, te_error *error) {
    node *piece = &device->nodes[first];
    uint32_t end = first;
    CALL(cuGraphCreate, &piece->graph, 0);
    do {
        const CUgraphNode *before = end > first ? &device->nodes[end - 1].node : NULL;
        TE_TRY(add_node(model, device, end, piece->graph, before, error));
        end++;
    } while (end < TOTAL(STEPS) && !device->nodes[end].first && model->steps[end].op <= TE_COPY);
    CALL(cuGraphInstantiateWithFlags, &piece->executable, piece->graph, 0);
    for (uint32_t i = first; i < end; i++) {
        node *node = &device->nodes[i];
        node->enabled = true;
        TE_TRY(enable(device, piece->executable, node, !is_nothing(&model->steps[i], node->sizes),
                      error));
    }
    CALL(cuGraphUpload, piece->executable, device->stream);
    queued(device, false);
    return TE_OK;
}

/* Graphs for the greatest sizes. With profile, every launch is on its own instead. */
te_status te_cuda_make_graphs(te_context *context, cuda *device, te_error *error) {
    const te_model *model = context->model;
    find_pieces(model, device->nodes);
    for (uint32_t i = 0; i < TOTAL(STEPS); i++) {
        const te_step_record *step = &model->steps[i];
        int64_t *sizes = device->nodes[i].sizes;
        for (int j = 0; j < (step->op == TE_LAUNCH ? 3 : step->op == TE_COPY); j++) {
            te_evaluate(model->tokens + step->sizes[j], context->symbols, &sizes[j]);
        }
        TE_TRY(check_grid(i, step, sizes, error));
    }
    for (uint32_t i = 0; i < TOTAL(STEPS) && !context->timings; i++) {
        if (device->nodes[i].first && model->steps[i].op <= TE_COPY) {
            TE_TRY(make_piece(model, device, i, error));
        }
    }
    return TE_OK;
}

static te_status resize_node(te_context *context, uint32_t number, CUgraphExec executable,
                             te_error *error) {
    const te_model *model = context->model;
    const te_step_record *step = &model->steps[number];
    cuda *device = context->device;
    node *node = &device->nodes[number];
    const int64_t *sizes = context->sizes[number];
    if (!memcmp(node->sizes, sizes, sizeof node->sizes)) return TE_OK;
    if (!te_idle(context, number) && step->op == TE_LAUNCH) {
        arguments arguments;
        const launch_node launch = te_cuda_launch_node(model, device, number, sizes, &arguments);
        CALL(cuGraphExecKernelNodeSetParams, executable, node->node, &launch);
    } else if (!te_idle(context, number)) {
        const copy_node copy = te_cuda_copy_node(model, device, number, sizes[0]);
        CALL(cuGraphExecMemcpyNodeSetParams, executable, node->node, &copy, device->context);
    }
    TE_TRY(enable(device, executable, node, !te_idle(context, number), error));
    memcpy(node->sizes, sizes, sizeof node->sizes);
    return TE_OK;
}

/* Nodes get the context's sizes; a grid that the device does not have changes nothing. */
te_status te_cuda_resize_graphs(te_context *context, te_error *error) {
    const te_model *model = context->model;
    const cuda *device = context->device;
    CUgraphExec executable = NULL;
    for (uint32_t i = 0; i < TOTAL(STEPS); i++) {
        TE_TRY(check_grid(i, &model->steps[i], context->sizes[i], error));
    }
    for (uint32_t i = 0; i < TOTAL(STEPS) && !context->timings; i++) {
        if (device->nodes[i].executable) executable = device->nodes[i].executable;
        if (model->steps[i].op <= TE_COPY) TE_TRY(resize_node(context, i, executable, error));
    }
    return TE_OK;
}
