/* A context: sizes from shapes, inputs in, steps, outputs out, states. Only te_create allocates. */
#include "tinyedge_internal.h"

#include <string.h>

static TE_NOINLINE te_status fail(te_context *context) {
    te_log(&context->model->logger, context->error.status, context->error.text);
    return context->error.status;
}

/* Every public function ends here: what went wrong is kept and logged. */
static te_status finish(te_context *context, te_status status) {
    return status ? fail(context) : TE_OK;
}

static bool within(int index, uint32_t count) { return index >= 0 && (uint32_t)index < count; }

/* --- creation -------------------------------------------------------------------------------- */

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

static te_status need_idle(const te_context *context, te_error *error) {
    TE_NEED(!context->running, TE_API_ARGUMENT, "te_wait first: a run is going on");
    return TE_OK;
}

static te_status reset(te_context *context, te_error *error) {
    TE_TRY(need_idle(context, error));
    for (uint32_t i = 0; i < te_count(context->model, TE_STATES); i++) {
        TE_TRY(context->backend->reset(context, i, error));
    }
    return TE_OK;
}

te_status te_reset(te_context *context) {
    return finish(context, reset(context, &context->error));
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
        context->entry = -1;
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

/* --- the caller's tensors -------------------------------------------------------------------- */

static te_status check_tensor(const te_tensor *tensor, const te_port_record *port,
                              te_error *error) {
    const char *name = port->name.at;
    TE_NEED(tensor, TE_API_ARGUMENT, "%s: the tensor is NULL", name);
    TE_NEED(tensor->size == sizeof *tensor, TE_API_SIZE, "te_tensor has another size");
    TE_NEED(tensor->data || tensor->device || !tensor->bytes, TE_API_ARGUMENT,
            "%s: data is NULL", name);
    TE_NEED(tensor->device || !tensor->offset, TE_API_ARGUMENT,
            "%s: offset is for memory of a device", name);
    TE_NEED(tensor->dtype == TE_DTYPE_OF_PORT || tensor->dtype == port->dtype, TE_RUN_DTYPE,
            "%s is %s, not %s", name, te_dtype_name(port->dtype), te_dtype_name(tensor->dtype));
    TE_NEED(!tensor->shape || tensor->rank == port->rank, TE_RUN_SHAPE, "%s has %d axes, not %d",
            name, port->rank, tensor->rank);
    for (int axis = 0; axis < port->rank && tensor->strides; axis++) {
        TE_NEED(tensor->strides[axis] >= 0, TE_RUN_SHAPE, "%s: a negative stride", name);
    }
    return TE_OK;
}

static te_status check_index(te_context *context, te_group group, int index) {
    static const char words[3][8] = {"input", "output", "state"};
    te_error *error = &context->error;
    TE_NEED((unsigned)group <= TE_STATES && within(index, te_count(context->model, group)),
            group == TE_STATES ? TE_RUN_STATE : group ? TE_RUN_OUTPUT : TE_RUN_INPUT,
            "there is no %s %d", words[(unsigned)group % 3], index);
    return TE_OK;
}

static te_status bind(te_context *context, te_group group, int index, const te_tensor *tensor) {
    TE_TRY(check_index(context, group, index));
    if (group == TE_OUTPUTS) TE_TRY(need_idle(context, &context->error));
    const te_port_record *port = &context->model->ports[group][index];
    te_binding *binding = &(group ? context->outputs : context->inputs)[index];
    if (!tensor) {
        binding->bound = false;
        return TE_OK;
    }
    TE_TRY(check_tensor(tensor, port, &context->error));
    *binding = (te_binding){.bound = true, .tensor = *tensor};
    binding->shaped = tensor->shape != NULL;
    binding->strided = tensor->strides != NULL;
    for (int axis = 0; axis < port->rank; axis++) {
        if (tensor->shape) binding->shape[axis] = tensor->shape[axis];
        if (tensor->strides) binding->strides[axis] = tensor->strides[axis];
    }
    binding->tensor.shape = binding->shaped ? binding->shape : NULL;
    binding->tensor.strides = binding->strided ? binding->strides : NULL;
    return TE_OK;
}

te_status te_bind_input(te_context *context, int input, const te_tensor *tensor) {
    return finish(context, bind(context, TE_INPUTS, input, tensor));
}

te_status te_bind_output(te_context *context, int output, const te_tensor *tensor) {
    return finish(context, bind(context, TE_OUTPUTS, output, tensor));
}

te_status te_set_symbol(te_context *context, int symbol, int64_t value) {
    const te_model *model = context->model;
    if (!within(symbol, TOTAL(SYMBOLS)) ||
        (value != -1 && !te_symbol_allows(&model->symbols[symbol], value))) {
        te_fail(&context->error, TE_RUN_SHAPE, "there is no symbol %d, or it cannot be %lld",
                symbol, (long long)value);
        return fail(context);
    }
    context->given[symbol] = value;
    return TE_OK;
}

/* Where the elements of a part of a port lie on both sides. `start` is the first index of each
   axis; NULL: all zero. The caller's memory is checked to hold `shape`. */
static te_status plan(const te_port_record *port, const int64_t *whole, const int64_t *start,
                      const int64_t *shape, const te_tensor *tensor, te_status id,
                      te_transfer *transfer, te_error *error) {
    const int64_t size = (int64_t)te_dtype_bytes(port->dtype);
    int64_t device = (int64_t)te_dtype_bytes(port->storage), host = size, end = size;
    int64_t device_end = device;
    bool empty = false, fits = true, dense = true;
    *transfer = (te_transfer){.rank = port->rank, .dtype = port->dtype, .storage = port->storage};
    for (int axis = port->rank - 1; axis >= 0; axis--) {
        int64_t reach = 0;
        transfer->shape[axis] = shape[axis];
        transfer->device_strides[axis] = device;
        transfer->host_strides[axis] = tensor->strides ? tensor->strides[axis] : host;
        transfer->device_offset += start ? start[axis] * device : 0;
        empty |= !shape[axis];
        if (!shape[axis]) continue;
        const bool follows = transfer->host_strides[axis] == host && device == host;
        dense = dense && (follows || shape[axis] == 1);
        device_end += device * (shape[axis] - 1);
        device *= whole[axis];
        host *= shape[axis];
        fits = fits && te_multiply(transfer->host_strides[axis], shape[axis] - 1, &reach) &&
               te_add(end, reach, &end);
    }
    TE_NEED(empty || (fits && (uint64_t)end <= tensor->bytes), id,
            "%s needs %lld bytes, %llu were given", port->name.at, (long long)end,
            (unsigned long long)tensor->bytes);
    TE_NEED(!tensor->device || empty || (dense && port->dtype == port->storage), TE_RUN_DTYPE,
            "%s: memory of the device must be dense, and the device stores %s as %s",
            port->name.at, te_dtype_name(port->dtype), te_dtype_name(port->storage));
    transfer->host = tensor->data;
    transfer->device_bytes = empty ? 0 : device_end;
    return TE_OK;
}

/* Copy on the device, in the order of its work. */
static te_status exchange(te_context *context, const te_port_record *port, const te_transfer *plan,
                          const te_tensor *tensor, bool to_tensor) {
    te_error *error = &context->error;
    const te_backend *backend = context->backend;
    const te_part part = {port->buffer, plan->device_offset, plan->device_bytes};
    TE_NEED(backend->exchange, TE_API_ARGUMENT, "%s: the %s has no memory of its own",
            port->name.at, backend->target);
    return part.bytes ? backend->exchange(context, part, tensor, to_tensor, error) : TE_OK;
}

/* Copy now, whichever memory it is. */
static te_status transfer(te_context *context, const te_port_record *port, te_transfer *plan,
                          const te_tensor *tensor, bool to_tensor) {
    te_error *error = &context->error;
    const te_backend *backend = context->backend;
    const te_part part = {port->buffer, plan->device_offset, plan->device_bytes};
    unsigned char *mapped;
    if (!part.bytes) return TE_OK;
    if (tensor->device) {
        TE_TRY(exchange(context, port, plan, tensor, to_tensor));
        return backend->wait(context, -1, error);
    }
    TE_TRY(backend->map(context, part, !to_tensor, &mapped, error));
    plan->device = mapped;
    plan->to_host = to_tensor;
    const bool fits = te_move(plan);
    TE_TRY(backend->unmap(context, part, !to_tensor, mapped, error));
    TE_NEED(fits, TE_RUN_RANGE, "%s has a value that the device's %s cannot hold", port->name.at,
            te_dtype_name(port->storage));
    return TE_OK;
}

static te_status check_shape(const te_port_record *port, const te_tensor *tensor,
                             const int64_t *shape, te_error *error) {
    for (int axis = 0; axis < port->rank && tensor->shape; axis++) {
        TE_NEED(tensor->shape[axis] == shape[axis], TE_RUN_SHAPE, "axis %d of %s is %lld, not %lld",
                axis, port->name.at, (long long)shape[axis], (long long)tensor->shape[axis]);
    }
    return TE_OK;
}

/* --- sizes ----------------------------------------------------------------------------------- */

/* The one unknown symbol of an axis that is a symbol, or is computed from it as past + new is. */
static te_status solve_axis(const te_model *model, const te_port_record *port, int axis,
                            int64_t size, int64_t *values, te_error *error) {
    const int64_t *tokens = model->tokens + port->shape[axis];
    int64_t unknown = -1, most, below;
    for (int64_t i = 1; i <= tokens[0]; i++) {
        const int64_t symbol = tokens[i] - TE_SYMBOL_TOKEN;
        if (symbol < 0 || symbol >= TOTAL(SYMBOLS) || values[symbol] != -1) continue;
        if (unknown != -1 && unknown != symbol) return TE_OK;
        unknown = symbol;
    }
    if (unknown == -1) return TE_OK;
    const te_symbol_record *symbol = &model->symbols[unknown];
    values[unknown] = symbol->max - symbol->step;
    bool fits = (uint64_t)size <= TE_INTEGER_LIMIT && te_evaluate(tokens, values, &below);
    values[unknown] = symbol->max;
    fits = fits && te_evaluate(tokens, values, &most) && most != below;
    if (fits) {
        const int64_t steps = (most - size) / (most - below);
        fits = steps >= 0 && steps <= (symbol->max - symbol->min) / symbol->step;
        if (fits) values[unknown] -= steps * symbol->step;
    }
    TE_NEED(fits, TE_RUN_SHAPE, "axis %d of %s cannot be %lld", axis, port->name.at,
            (long long)size);
    return TE_OK;
}

/* Every symbol's value: as given, else from the inputs' shapes, first the axes that are a symbol,
   else its maximum. That all shapes fit is checked later. */
static te_status solve(te_context *context, const te_entry_record *entry, int64_t *values,
                       te_error *error) {
    const te_model *model = context->model;
    memcpy(values, context->given, sizeof context->given);
    for (uint32_t i = 0; i < 2 * entry->inputs; i++) {
        const int32_t number = model->listed[entry->first_input + i % entry->inputs];
        const te_binding *binding = &context->inputs[number];
        const te_port_record *port = &model->ports[TE_INPUTS][number];
        TE_NEED(binding->bound, TE_RUN_INPUT, "input %s is not bound", port->name.at);
        for (int axis = 0; axis < port->rank && binding->shaped; axis++) {
            if (i < entry->inputs && te_bare_symbol(model, port->shape[axis]) < 0) continue;
            TE_TRY(solve_axis(model, port, axis, binding->shape[axis], values, error));
        }
    }
    for (uint32_t i = 0; i < TOTAL(SYMBOLS); i++) {
        if (values[i] == -1) values[i] = model->symbols[i].max;
    }
    return TE_OK;
}

/* Stages 8 and 9 at these sizes. */
static te_status resize(te_context *context, const int64_t *values, te_error *error) {
    const te_model *model = context->model;
    const size_t bytes = TOTAL(SYMBOLS) * sizeof *values;
    const te_status id = TE_RUN_SHAPE;
    if (context->sized && !memcmp(values, context->symbols, bytes)) return TE_OK;
    context->sized = false;
    for (int group = 0; group < 3; group++) {
        for (uint32_t i = 0; i < te_count(model, group); i++) {
            const te_port_record *port = &model->ports[group][i];
            TE_TRY(te_check_port(model, port, values, id, error));
            TE_TRY(te_check_slices(model, port, values, id, error));
        }
    }
    for (uint32_t i = 0; i < TOTAL(STEPS); i++) {
        int64_t *sizes = context->sizes[i];
        TE_TRY(te_check_step(model, i, values, sizes, id, error));
        if (model->steps[i].op == TE_COPY) TE_TRY(te_check_copy(model, i, sizes[0], id, error));
    }
    memcpy(context->symbols, values, bytes);
    TE_TRY(context->backend->resize(context, error));
    context->sized = true;
    return TE_OK;
}

/* --- running --------------------------------------------------------------------------------- */

bool te_idle(const te_context *context, uint32_t number) {
    const int64_t *sizes = context->sizes[number];
    const bool launch = context->model->steps[number].op == TE_LAUNCH;
    return !sizes[0] || (launch && (!sizes[1] || !sizes[2]));
}

static te_status holds(te_context *context, int32_t condition, bool *answer) {
    te_error *error = &context->error;
    const te_part part = {condition, 0, sizeof(int32_t)};
    unsigned char *memory;
    int32_t value;
    TE_TRY(context->backend->map(context, part, false, &memory, error));
    memcpy(&value, memory, sizeof value);
    *answer = value != 0;
    return context->backend->unmap(context, part, false, memory, error);
}

/* Blocks nest at most 8 deep, which was checked: so does this. */
static te_status walk(te_context *context, int64_t first, int64_t end) {
    const te_model *model = context->model;
    for (int64_t number = first; number < end;) {
        const te_step_record *step = &model->steps[number];
        if (step->op == TE_LAUNCH || step->op == TE_COPY) {
            const int64_t straight = number;
            while (number < end && model->steps[number].op <= TE_COPY) number++;
            TE_TRY(context->backend->run(context, (uint32_t)straight, (uint32_t)number,
                                         &context->error));
            continue;
        }
        const int64_t then = number + 1 + step->then, after = then + step->otherwise;
        bool answer;
        TE_TRY(holds(context, step->condition, &answer));
        if (step->op == TE_IF) {
            TE_TRY(answer ? walk(context, number + 1, then) : walk(context, then, after));
        }
        for (int64_t iteration = 0; step->op == TE_LOOP && answer; iteration++) {
            TE_TRY(walk(context, number + 1, then));
            if (iteration + 1 == step->bound) break;
            TE_TRY(holds(context, step->condition, &answer));
        }
        number = after;
    }
    return TE_OK;
}

/* A bound output's memory; its shape may be left out, a counted one's is known after the run. */
static te_tensor tensor_of(const te_context *context, int32_t output) {
    const te_binding *binding = &context->outputs[output];
    const bool counted = context->model->ports[TE_OUTPUTS][output].count != -1;
    te_tensor tensor = binding->tensor;
    tensor.shape = binding->shaped && !counted ? binding->shape : NULL;
    tensor.strides = binding->strided ? binding->strides : NULL;
    return tensor;
}

/* Begin to map a port of the host's, before all inputs are written or after all steps. */
static te_status fetch(te_context *context, const te_port_record *port, bool write) {
    int64_t shape[TE_MAX_RANK], elements;
    te_extents(context->model, port, context->symbols, shape, &elements);
    const te_part part = {port->buffer, 0, elements * (int64_t)te_dtype_bytes(port->storage)};
    if (!part.bytes || !context->backend->fetch) return TE_OK;
    return context->backend->fetch(context, part, write, &context->error);
}

static void settle(te_context *context) {
    if (context->backend->settle) context->backend->settle(context);
}

/* The shape and places of an input, or of an output in the device's memory. */
static te_status plan_port(te_context *context, const te_port_record *port,
                           const te_tensor *tensor, te_status id, te_transfer *planned) {
    te_error *error = &context->error;
    int64_t shape[TE_MAX_RANK], elements;
    te_extents(context->model, port, context->symbols, shape, &elements);
    TE_TRY(check_shape(port, tensor, shape, error));
    return plan(port, shape, NULL, shape, tensor, id, planned, error);
}

typedef enum pass { CHECK, FETCH, MOVE } pass;

static te_status pass_input(te_context *context, int32_t number, pass pass) {
    const te_port_record *port = &context->model->ports[TE_INPUTS][number];
    const te_tensor *tensor = &context->inputs[number].tensor;
    te_transfer planned;
    if (pass == FETCH) return tensor->device ? TE_OK : fetch(context, port, true);
    TE_TRY(plan_port(context, port, tensor, TE_RUN_SHAPE, &planned));
    if (pass == CHECK) return TE_OK;
    return tensor->device ? exchange(context, port, &planned, tensor, false)
                          : transfer(context, port, &planned, tensor, false);
}

static te_status pass_output(te_context *context, int32_t number, pass pass) {
    const te_model *model = context->model;
    const te_port_record *port = &model->ports[TE_OUTPUTS][number];
    te_transfer planned;
    if (!context->outputs[number].bound) return TE_OK;
    const te_tensor tensor = tensor_of(context, number);
    if (tensor.device) {
        TE_TRY(plan_port(context, port, &tensor, TE_RUN_OUTPUT, &planned));
        return pass == CHECK ? TE_OK : exchange(context, port, &planned, &tensor, true);
    }
    return pass == CHECK ? TE_OK : fetch(context, port, false);
}

/* Nothing is written before all is known to be right. */
static te_status move_inputs(te_context *context, const te_entry_record *entry) {
    const int32_t *inputs = context->model->listed + entry->first_input;
    te_status status = TE_OK;
    for (int pass = CHECK; pass <= MOVE; pass++) {
        for (uint32_t i = 0; i < entry->inputs && !status; i++) {
            status = pass_input(context, inputs[i], (enum pass)pass);
        }
    }
    settle(context);
    return status;
}

static te_status move_outputs(te_context *context, const te_entry_record *entry, pass pass) {
    const int32_t *outputs = context->model->listed + entry->first_output;
    for (uint32_t i = 0; i < entry->outputs; i++) {
        TE_TRY(pass_output(context, outputs[i], pass));
    }
    return TE_OK;
}

static te_status submit(te_context *context, int number) {
    const te_model *model = context->model;
    const te_backend *backend = context->backend;
    te_error *error = &context->error;
    int64_t values[TE_MAX_SYMBOLS];
    TE_TRY(need_idle(context, error));
    TE_NEED(within(number, TOTAL(ENTRIES)), TE_RUN_ENTRY, "there is no entry %d", number);
    const te_entry_record *entry = &model->entries[number];
    TE_TRY(solve(context, entry, values, error));
    TE_TRY(resize(context, values, error));
    TE_TRY(move_outputs(context, entry, CHECK));
    TE_TRY(move_inputs(context, entry));
    TE_TRY(walk(context, entry->first, entry->first + entry->count));
    te_status status = move_outputs(context, entry, FETCH);
    if (!status && backend->flush) status = backend->flush(context, error);
    if (status) settle(context);
    context->entry = number;
    context->running = !status;
    return status;
}

te_status te_submit(te_context *context, int entry) {
    return finish(context, submit(context, entry));
}

/* --- outputs --------------------------------------------------------------------------------- */

static te_status shape_of(te_context *context, te_group group, int index, int64_t *whole,
                          int64_t *shape) {
    const te_model *model = context->model;
    te_error *error = &context->error;
    const te_port_record *port = &model->ports[group][index];
    int64_t elements;
    te_extents(model, port, context->symbols, whole, &elements);
    memcpy(shape, whole, sizeof(int64_t) * TE_MAX_RANK);
    if (port->count == -1) return TE_OK;
    int64_t one[TE_MAX_RANK] = {0}, count = 0, valid = 0;
    const te_port_record *other = &model->ports[TE_OUTPUTS][port->count];
    te_tensor tensor = {.data = &count, .bytes = sizeof count};
    te_transfer planned;
    te_extents(model, other, context->symbols, one, &elements);
    TE_TRY(plan(other, one, NULL, one, &tensor, TE_RUN_OUTPUT, &planned, error));
    TE_TRY(transfer(context, other, &planned, &tensor, true));
    const int unused = 64 - 8 * (int)te_dtype_bytes(other->dtype);
    const bool negative = other->dtype <= TE_INT64 && (uint64_t)count << unused >> 63;
    valid = negative ? -1 : count;
    TE_NEED(valid >= 0 && valid <= whole[port->axis], TE_REPLAY_COUNT,
            "%s has %lld entries of %lld (-1: sizes that must be equal differ)",
            port->name.at, (long long)valid, (long long)whole[port->axis]);
    whole[port->axis] = shape[port->axis] = valid;
    return TE_OK;
}

/* Copy a port, or one slice of it unless that is NULL, from or to the caller's memory. */
static te_status move_port(te_context *context, te_group group, int index, const int *part,
                           const te_tensor *tensor, bool to_tensor) {
    te_error *error = &context->error;
    int64_t whole[TE_MAX_RANK] = {0}, shape[TE_MAX_RANK] = {0}, start[TE_MAX_RANK] = {0};
    te_transfer planned;
    TE_TRY(check_index(context, group, index));
    TE_TRY(need_idle(context, error));
    const te_port_record *port = &context->model->ports[group][index];
    const te_status id = group == TE_STATES ? TE_RUN_STATE : TE_RUN_OUTPUT;
    TE_NEED(!part || within(*part, port->slices), id, "there is no slice %d of %s", *part,
            port->name.at);
    TE_TRY(check_tensor(tensor, port, error));
    TE_TRY(shape_of(context, group, index, whole, shape));
    if (part) {
        const te_slice_record *slice = &context->model->slices[port->first_slice + (uint32_t)*part];
        const int64_t left = shape[slice->axis] - slice->start; /* a count may cut it */
        start[slice->axis] = left > 0 ? slice->start : 0;
        shape[slice->axis] = left <= 0 ? 0 : left < slice->size ? left : slice->size;
    }
    TE_TRY(check_shape(port, tensor, shape, error));
    TE_TRY(plan(port, whole, start, shape, tensor, id, &planned, error));
    return transfer(context, port, &planned, tensor, to_tensor);
}

static te_status wait(te_context *context, int64_t timeout) {
    const te_model *model = context->model;
    te_error *error = &context->error;
    TE_NEED(context->running, TE_API_ARGUMENT, "te_wait without te_submit");
    te_status status = context->backend->wait(context, timeout, error);
    if (status == TE_RUN_TIMEOUT) return status;
    context->running = false;
    const te_entry_record *entry = &model->entries[context->entry];
    for (uint32_t i = 0; i < entry->outputs && !status; i++) {
        const int32_t number = model->listed[entry->first_output + i];
        const te_tensor tensor = tensor_of(context, number);
        if (!context->outputs[number].bound || tensor.device) continue;
        status = move_port(context, TE_OUTPUTS, number, NULL, &tensor, true);
    }
    settle(context);
    return status;
}

te_status te_wait(te_context *context, int64_t timeout) {
    return finish(context, wait(context, timeout));
}

te_status te_run(te_context *context, int entry) {
    const te_status status = te_submit(context, entry);
    return status ? status : te_wait(context, -1);
}

te_status te_shape(te_context *context, te_group group, int index, int *rank, int64_t *shape) {
    int64_t whole[TE_MAX_RANK] = {0}, valid[TE_MAX_RANK] = {0};
    te_status status = check_index(context, group, index);
    if (!status) status = need_idle(context, &context->error);
    if (!status) status = shape_of(context, group, index, whole, valid);
    if (status) return fail(context);
    *rank = context->model->ports[group][index].rank;
    memcpy(shape, valid, sizeof *shape * (size_t)*rank);
    return TE_OK;
}

te_status te_read_output(te_context *context, int output, const te_tensor *tensor) {
    return finish(context, move_port(context, TE_OUTPUTS, output, NULL, tensor, true));
}

te_status te_read_slice(te_context *context, int output, int slice, const te_tensor *tensor) {
    return finish(context, move_port(context, TE_OUTPUTS, output, &slice, tensor, true));
}

te_status te_get_state(te_context *context, int state, const te_tensor *tensor) {
    return finish(context, move_port(context, TE_STATES, state, NULL, tensor, true));
}

te_status te_set_state(te_context *context, int state, const te_tensor *tensor) {
    return finish(context, move_port(context, TE_STATES, state, NULL, tensor, false));
}

/* --- times ----------------------------------------------------------------------------------- */

int te_profile_count(const te_context *context) {
    return context->timings ? (int)context->model->totals[TE_N_STEPS] : 0;
}

bool te_profile(const te_context *context, int index, te_profile_info *info) {
    if (!within(index, (uint32_t)te_profile_count(context))) return false;
    const te_model *model = context->model;
    const te_step_record *step = &model->steps[index];
    const te_timing *timing = &context->timings[index];
    const bool launch = step->op == TE_LAUNCH;
    *info = (te_profile_info){
        launch ? model->kernels[step->kernel].entry.at : step->op == TE_COPY ? "copy" : "branch",
        launch ? step->nodes.at : "", timing->runs, timing->nanoseconds, (uint64_t)step->flops};
    return true;
}

void te_profile_reset(te_context *context) {
    const size_t count = (size_t)te_profile_count(context);
    if (count) memset(context->timings, 0, count * sizeof *context->timings);
}
