/* A run: sizes from shapes, inputs in, steps, outputs out, states. Nothing is allocated. */
#include "tinyedge_internal.h"

#include <string.h>

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
        const int64_t after = number + 1 + step->body;
        bool answer;
        TE_TRY(holds(context, step->condition, &answer));
        for (int64_t iteration = 0; answer; iteration++) {
            TE_TRY(walk(context, number + 1, after));
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
    if (!context->backend->fetch) return TE_OK;
    te_extents(context->model, port, context->symbols, shape, &elements);
    const te_part part = {port->buffer, 0, elements * (int64_t)te_dtype_bytes(port->storage)};
    if (!part.bytes) return TE_OK;
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
    TE_TRY(te_check_shape(port, tensor, shape, error));
    return te_plan_transfer(port, shape, NULL, shape, tensor, id, planned, error);
}

typedef enum pass { CHECK, FETCH, MOVE } pass;

static te_status pass_input(te_context *context, int32_t number, pass pass) {
    const te_port_record *port = &context->model->ports[TE_INPUTS][number];
    const te_tensor *tensor = &context->inputs[number].tensor;
    te_transfer planned;
    if (pass == FETCH) return tensor->device ? TE_OK : fetch(context, port, true);
    if (pass == MOVE && context->inputs[number].in_place) return TE_OK;
    TE_TRY(plan_port(context, port, tensor, TE_RUN_SHAPE, &planned));
    if (pass == CHECK) return TE_OK;
    return tensor->device ? te_exchange(context, port, &planned, tensor, false)
                          : te_transfer_now(context, port, &planned, tensor, false);
}

static te_status pass_output(te_context *context, int32_t number, pass pass) {
    const te_model *model = context->model;
    const te_port_record *port = &model->ports[TE_OUTPUTS][number];
    te_transfer planned;
    if (!context->outputs[number].bound) return TE_OK;
    const te_tensor tensor = tensor_of(context, number);
    if (tensor.device) {
        TE_TRY(plan_port(context, port, &tensor, TE_RUN_OUTPUT, &planned));
        return pass == CHECK ? TE_OK : te_exchange(context, port, &planned, &tensor, true);
    }
    return pass == CHECK ? TE_OK : fetch(context, port, false);
}

static TE_NOINLINE te_status pass_ports(te_context *context, const te_entry_record *entry,
                                        te_group group, pass pass) {
    uint32_t count;
    const int32_t *ports = te_listed(context->model, entry, group, &count);
    for (uint32_t i = 0; i < count; i++) {
        TE_TRY(group ? pass_output(context, ports[i], pass) : pass_input(context, ports[i], pass));
    }
    return TE_OK;
}

static te_status move_inputs(te_context *context, const te_entry_record *entry) {
    te_status status = pass_ports(context, entry, TE_INPUTS, FETCH);
    if (!status) status = pass_ports(context, entry, TE_INPUTS, MOVE);
    settle(context);
    return status;
}

/* Check all that bindings and sizes say, unless they are as they were: nothing is written before. */
static TE_NOINLINE te_status prepare(te_context *context, int number) {
    const te_entry_record *entry = &context->model->entries[number];
    int64_t values[TE_MAX_SYMBOLS];
    if (context->ready == number) return TE_OK;
    context->ready = -1;
    TE_TRY(solve(context, entry, values, &context->error));
    TE_TRY(resize(context, values, &context->error));
    if (context->backend->place) context->backend->place(context, entry);
    TE_TRY(pass_ports(context, entry, TE_OUTPUTS, CHECK));
    TE_TRY(pass_ports(context, entry, TE_INPUTS, CHECK));
    context->ready = number;
    return TE_OK;
}

static te_status submit(te_context *context, int number) {
    const te_model *model = context->model;
    const te_backend *backend = context->backend;
    te_error *error = &context->error;
    TE_TRY(te_need_idle(context, error));
    TE_NEED(within(number, TOTAL(ENTRIES)), TE_RUN_ENTRY, "there is no entry %d", number);
    const te_entry_record *entry = &model->entries[number];
    TE_TRY(prepare(context, number));
    TE_TRY(move_inputs(context, entry));
    TE_TRY(walk(context, entry->first, entry->first + entry->count));
    te_status status = pass_ports(context, entry, TE_OUTPUTS, FETCH);
    if (!status && backend->flush) status = backend->flush(context, error);
    if (status) settle(context);
    context->entry = number;
    context->running = !status;
    return status;
}

te_status te_submit(te_context *context, int entry) {
    return te_finish(context, submit(context, entry));
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
    int64_t one[TE_MAX_RANK], count = 0, valid = 0;
    const te_port_record *other = &model->ports[TE_OUTPUTS][port->count];
    te_tensor tensor = {.data = &count, .bytes = sizeof count};
    te_transfer planned;
    te_extents(model, other, context->symbols, one, &elements);
    TE_TRY(te_plan_transfer(other, one, NULL, one, &tensor, TE_RUN_OUTPUT, &planned, error));
    TE_TRY(te_transfer_now(context, other, &planned, &tensor, true));
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
    int64_t whole[TE_MAX_RANK] = {0}, shape[TE_MAX_RANK], start[TE_MAX_RANK] = {0};
    te_transfer planned;
    TE_TRY(te_check_index(context, group, index));
    TE_TRY(te_need_idle(context, error));
    const te_port_record *port = &context->model->ports[group][index];
    const te_status id = group == TE_STATES ? TE_RUN_STATE : TE_RUN_OUTPUT;
    TE_NEED(!part || within(*part, port->slices), id, "there is no slice %d of %s", *part,
            port->name.at);
    TE_NEED(group != TE_OUTPUTS || !context->outputs[index].lost, id,
            "%s is not bound", port->name.at);
    TE_TRY(te_check_tensor(tensor, port, error));
    TE_TRY(shape_of(context, group, index, whole, shape));
    if (part) {
        const te_slice_record *slice = &context->model->slices[port->first_slice + (uint32_t)*part];
        const int64_t left = shape[slice->axis] - slice->start; /* a count may cut it */
        start[slice->axis] = left > 0 ? slice->start : 0;
        shape[slice->axis] = left <= 0 ? 0 : left < slice->size ? left : slice->size;
    }
    TE_TRY(te_check_shape(port, tensor, shape, error));
    TE_TRY(te_plan_transfer(port, whole, start, shape, tensor, id, &planned, error));
    return te_transfer_now(context, port, &planned, tensor, to_tensor);
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
        const te_binding *binding = &context->outputs[number];
        if (!binding->bound || binding->in_place || binding->tensor.device) continue;
        const te_tensor tensor = tensor_of(context, number);
        status = move_port(context, TE_OUTPUTS, number, NULL, &tensor, true);
    }
    settle(context);
    return status;
}

te_status te_wait(te_context *context, int64_t timeout) {
    return te_finish(context, wait(context, timeout));
}

te_status te_run(te_context *context, int entry) {
    const te_status status = te_submit(context, entry);
    return status ? status : te_wait(context, -1);
}

te_status te_shape(te_context *context, te_group group, int index, int *rank, int64_t *shape) {
    int64_t whole[TE_MAX_RANK] = {0}, valid[TE_MAX_RANK];
    te_status status = te_check_index(context, group, index);
    if (!status) status = te_need_idle(context, &context->error);
    if (!status) status = shape_of(context, group, index, whole, valid);
    if (status) return te_finish(context, status);
    *rank = context->model->ports[group][index].rank;
    memcpy(shape, valid, sizeof *shape * (size_t)*rank);
    return TE_OK;
}

te_status te_read_output(te_context *context, int output, const te_tensor *tensor) {
    return te_finish(context, move_port(context, TE_OUTPUTS, output, NULL, tensor, true));
}

te_status te_read_slice(te_context *context, int output, int slice, const te_tensor *tensor) {
    return te_finish(context, move_port(context, TE_OUTPUTS, output, &slice, tensor, true));
}

te_status te_get_state(te_context *context, int state, const te_tensor *tensor) {
    return te_finish(context, move_port(context, TE_STATES, state, NULL, tensor, true));
}

te_status te_set_state(te_context *context, int state, const te_tensor *tensor) {
    return te_finish(context, move_port(context, TE_STATES, state, NULL, tensor, false));
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
        launch ? model->kernels[step->kernel].entry.at : step->op == TE_COPY ? "copy" : "loop",
        launch ? step->nodes.at : "", timing->runs, timing->nanoseconds, (uint64_t)step->flops};
    return true;
}

void te_profile_reset(te_context *context) {
    const size_t count = (size_t)te_profile_count(context);
    if (count) memset(context->timings, 0, count * sizeof *context->timings);
}
