/* The caller's tensors: bound, checked, and moved between their memory and the device's. */
#include "tinyedge_internal.h"

#include <string.h>

te_status te_check_tensor(const te_tensor *tensor, const te_port_record *port,
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

te_status te_check_index(te_context *context, te_group group, int index) {
    static const char words[3][8] = {"input", "output", "state"};
    te_error *error = &context->error;
    TE_NEED((unsigned)group <= TE_STATES && within(index, te_count(context->model, group)),
            group == TE_STATES ? TE_RUN_STATE : group ? TE_RUN_OUTPUT : TE_RUN_INPUT,
            "there is no %s %d", words[(unsigned)group % 3], index);
    return TE_OK;
}

static te_status bind(te_context *context, te_group group, int index, const te_tensor *tensor) {
    TE_TRY(te_check_index(context, group, index));
    if (group == TE_OUTPUTS) TE_TRY(te_need_idle(context, &context->error));
    const te_port_record *port = &context->model->ports[group][index];
    te_binding *binding = &(group ? context->outputs : context->inputs)[index];
    if (tensor) TE_TRY(te_check_tensor(tensor, port, &context->error));
    context->ready = -1;
    *binding = (te_binding){.lost = binding->in_place || binding->lost};
    if (!tensor) return TE_OK;
    binding->bound = true;
    binding->tensor = *tensor;
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
    return te_finish(context, bind(context, TE_INPUTS, input, tensor));
}

te_status te_bind_output(te_context *context, int output, const te_tensor *tensor) {
    return te_finish(context, bind(context, TE_OUTPUTS, output, tensor));
}

/* Where the elements of a part of a port lie on both sides. `start` is the first index of each
   axis; NULL: all zero. The caller's memory is checked to hold `shape`. */
te_status te_plan_transfer(const te_port_record *port, const int64_t *whole, const int64_t *start,
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
te_status te_exchange(te_context *context, const te_port_record *port, const te_transfer *plan,
                      const te_tensor *tensor, bool to_tensor) {
    te_error *error = &context->error;
    const te_backend *backend = context->backend;
    const te_part part = {port->buffer, plan->device_offset, plan->device_bytes};
    TE_NEED(backend->exchange, TE_API_ARGUMENT, "%s: the %s has no memory of its own",
            port->name.at, backend->target);
    return part.bytes ? backend->exchange(context, part, tensor, to_tensor, error) : TE_OK;
}

/* Copy now, whichever memory it is. */
te_status te_transfer_now(te_context *context, const te_port_record *port, te_transfer *plan,
                          const te_tensor *tensor, bool to_tensor) {
    te_error *error = &context->error;
    const te_backend *backend = context->backend;
    const te_part part = {port->buffer, plan->device_offset, plan->device_bytes};
    unsigned char *mapped;
    if (!part.bytes) return TE_OK;
    if (tensor->device) {
        TE_TRY(te_exchange(context, port, plan, tensor, to_tensor));
        return backend->wait(context, -1, error);
    }
    TE_TRY(backend->map(context, part, !to_tensor, &mapped, error));
    plan->device = mapped;
    plan->to_host = to_tensor;
    const bool fits = mapped == plan->host || te_move(plan); /* the caller's memory, in place */
    TE_TRY(backend->unmap(context, part, !to_tensor, mapped, error));
    TE_NEED(fits, TE_RUN_RANGE, "%s has a value that the device's %s cannot hold", port->name.at,
            te_dtype_name(port->storage));
    return TE_OK;
}

te_status te_check_shape(const te_port_record *port, const te_tensor *tensor,
                         const int64_t *shape, te_error *error) {
    for (int axis = 0; axis < port->rank && tensor->shape; axis++) {
        TE_NEED(tensor->shape[axis] == shape[axis], TE_RUN_SHAPE, "axis %d of %s is %lld, not %lld",
                axis, port->name.at, (long long)shape[axis], (long long)tensor->shape[axis]);
    }
    return TE_OK;
}
