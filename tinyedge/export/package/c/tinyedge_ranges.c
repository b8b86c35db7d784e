/* Stage 8 of the format's checks: what lies within what. */
#include "tinyedge_check.h"

static bool in_file(const te_model *model, te_range_record range) {
    return range.offset + range.bytes <= model->files[range.file].bytes;
}

static te_status check_weights(const te_model *model, te_error *error) {
    for (uint32_t i = 0; i < TOTAL(WEIGHTS); i++) {
        const te_weight_record *weight = &model->weights[i];
        int64_t sum = 0;
        NEED(TE_BOUNDS, weight->bytes > 0 && weight->bytes % 4 == 0, "weight %.*s: its bytes",
             TE_TEXT_ARGS(weight->name));
        for (uint32_t j = 0; j < weight->segments; j++) {
            const te_range_record segment = model->segments[weight->first_segment + j];
            const bool last = j + 1 == weight->segments;
            NEED(TE_BOUNDS,
                 segment.offset % TE_ALIGNMENT == 0 && segment.bytes > 0 &&
                     in_file(model, segment) && (last || segment.bytes % TE_ALIGNMENT == 0) &&
                     te_add(sum, segment.bytes, &sum),
                 "weight %.*s: a segment", TE_TEXT_ARGS(weight->name));
        }
        NEED(TE_BOUNDS, sum == weight->bytes, "weight %.*s is not the sum of its segments",
             TE_TEXT_ARGS(weight->name));
    }
    NEED(TE_BOUNDS, in_file(model, model->prelude), "the prelude leaves its file");
    for (uint32_t i = 0; i < TOTAL(KERNELS); i++) {
        const te_kernel_record *kernel = &model->kernels[i];
        NEED(TE_BOUNDS, in_file(model, kernel->range) && kernel->range.bytes > 0,
             "kernel %.*s is empty or leaves its file", TE_TEXT_ARGS(kernel->entry));
    }
    return TE_OK;
}

bool te_in_arena(const te_model *model, int32_t buffer) {
    return model->buffers[buffer].arena != -1;
}

/* Whether a buffer may be used by others than kernels: in an arena, and no image. */
static bool plain(const te_model *model, int32_t buffer) {
    return te_in_arena(model, buffer) && !te_image_of(model, buffer);
}

te_status te_check_port(const te_model *model, const te_port_record *port, const int64_t *symbols,
                        te_status id, te_error *error) {
    int64_t shape[TE_MAX_RANK], elements;
    const int64_t room =
        model->buffers[port->buffer].bytes / (int64_t)te_dtype_bytes(port->storage);
    NEED(id, te_extents(model, port, symbols, shape, &elements) && elements <= room,
         "%.*s has no shape, or does not fit its buffer", TE_TEXT_ARGS(port->name));
    if (port->count == -1) return TE_OK;
    const te_port_record *other = &model->ports[TE_OUTPUTS][port->count];
    NEED(id, te_extents(model, other, symbols, shape, &elements) && elements == 1,
         "the count of %.*s is not one element", TE_TEXT_ARGS(port->name));
    return TE_OK;
}

te_status te_check_slices(const te_model *model, const te_port_record *port,
                          const int64_t *symbols, te_status id, te_error *error) {
    int64_t shape[TE_MAX_RANK], elements;
    te_extents(model, port, symbols, shape, &elements);
    for (uint32_t i = 0; i < port->slices; i++) {
        const te_slice_record *slice = &model->slices[port->first_slice + i];
        NEED(id, slice->axis < port->rank && slice->start + slice->size <= shape[slice->axis],
             "a slice leaves %.*s", TE_TEXT_ARGS(port->name));
    }
    return TE_OK;
}

static te_status check_port(const te_model *model, const te_port_record *port, int group,
                            const sizes ends[2], te_error *error) {
    NEED(TE_BOUNDS, plain(model, port->buffer), "%.*s lies in a weight or an image",
         TE_TEXT_ARGS(port->name));
    for (int end = 0; end < 2; end++) {
        TE_TRY(te_check_port(model, port, ends[end].values, TE_BOUNDS, error));
    }
    TE_TRY(te_check_slices(model, port, ends[0].values, TE_BOUNDS, error));
    if (group == TE_STATES) {
        NEED(TE_BOUNDS,
             port->initial == -1 ||
                 model->weights[port->initial].bytes <= model->buffers[port->buffer].bytes,
             "the initial value of %.*s does not fit", TE_TEXT_ARGS(port->name));
    }
    if (port->count == -1) return TE_OK;
    const te_dtype count = model->ports[TE_OUTPUTS][port->count].dtype;
    NEED(TE_BOUNDS, count >= TE_INT8 && count <= TE_UINT64 && port->axis < port->rank,
         "the count of %.*s is no integer, or it has no such axis", TE_TEXT_ARGS(port->name));
    return TE_OK;
}

static bool copy_end_fits(const te_model *model, int32_t buffer, int64_t offset, int64_t bytes) {
    return offset % 4 == 0 && offset + bytes <= model->buffers[buffer].bytes;
}

te_status te_check_step(const te_model *model, uint32_t number, const int64_t *symbols,
                        int64_t sizes[3], te_status id, te_error *error) {
    const te_step_record *step = &model->steps[number];
    const int count = step->op == TE_LAUNCH ? 3 : step->op == TE_COPY ? 1 : 0;
    bool fits = true;
    for (int i = 0; i < count && fits; i++) {
        fits = te_evaluate(model->tokens + step->sizes[i], symbols, &sizes[i]) && sizes[i] >= 0;
    }
    if (step->op == TE_LAUNCH) {
        fits = fits && sizes[0] <= INT32_MAX && sizes[1] <= INT32_MAX && sizes[2] <= INT32_MAX;
    } else if (step->op == TE_COPY) {
        fits = fits && sizes[0] % 4 == 0 &&
               copy_end_fits(model, step->source, step->source_offset, sizes[0]) &&
               copy_end_fits(model, step->destination, step->destination_offset, sizes[0]);
    }
    NEED(id, fits, "step %u: its counts or bytes", (unsigned)number);
    return TE_OK;
}

static te_status check_step(const te_model *model, uint32_t number, const sizes ends[2],
                            te_error *error) {
    const te_step_record *step = &model->steps[number];
    int64_t sizes[3];
    bool allowed = true;
    if (step->op == TE_LAUNCH) {
        const uint8_t *writes = model->writes + model->kernels[step->kernel].first_binding;
        const int32_t *bound = model->bound + step->first_buffer;
        for (uint32_t i = 0; i < step->buffers; i++) {
            allowed &= !writes[i] || te_in_arena(model, bound[i]);
        }
    } else if (step->op == TE_COPY) {
        allowed = plain(model, step->destination) && !te_image_of(model, step->source);
    } else {
        allowed = plain(model, step->condition);
    }
    NEED(TE_BOUNDS, allowed, "step %u writes a weight, or uses an image", (unsigned)number);
    for (int end = 0; end < 2; end++) {
        TE_TRY(te_check_step(model, number, ends[end].values, sizes, TE_BOUNDS, error));
    }
    return TE_OK;
}

/* Blocks nest inside [first, end) and at most 8 deep. */
static te_status check_blocks(const te_model *model, int64_t first, int64_t end, te_error *error) {
    int64_t around[8 + 1]; /* where the blocks around a step end */
    int open = 0;
    around[0] = end;
    for (int64_t number = first; number < end; number++) {
        while (open && around[open] == number) open--;
        const te_step_record *step = &model->steps[number];
        if (step->op != TE_LOOP) continue;
        const int64_t after = number + 1 + step->body;
        NEED(TE_BOUNDS, after <= around[open], "the block of step %lld leaves the one around it",
             (long long)number);
        NEED(TE_BOUNDS, open < 8, "blocks nested more than 8 deep");
        if (step->body) around[++open] = after;
    }
    return TE_OK;
}

static te_status check_entries(const te_model *model, te_error *error) {
    int64_t reached = 0;
    for (uint32_t i = 0; i < TOTAL(ENTRIES); i++) {
        const te_entry_record *entry = &model->entries[i];
        NEED(TE_BOUNDS,
             entry->first == reached && entry->first + entry->count <= (int64_t)TOTAL(STEPS),
             "entry %.*s: its range of steps", TE_TEXT_ARGS(entry->name));
        reached = entry->first + entry->count;
        TE_TRY(check_blocks(model, entry->first, reached, error));
    }
    NEED(TE_BOUNDS, reached == (int64_t)TOTAL(STEPS), "steps that belong to no entry");
    return TE_OK;
}

/* A shape at a golden's sizes; with the id of what is wrong with it. */
static te_status golden_elements(const te_model *model, const te_port_record *port,
                                 const int64_t *symbols, int64_t *elements, te_error *error) {
    int64_t value;
    *elements = 1;
    for (int axis = 0; axis < port->rank; axis++) {
        NEED(TE_EXPRESSION, te_evaluate(model->tokens + port->shape[axis], symbols, &value),
             "%.*s has no shape in a golden", TE_TEXT_ARGS(port->name));
        NEED(TE_BOUNDS, value >= 0 && te_multiply(*elements, value, elements),
             "%.*s has a negative size or too many elements", TE_TEXT_ARGS(port->name));
    }
    return TE_OK;
}

static bool holds(te_range_record range, int64_t elements, te_dtype dtype) {
    int64_t bytes;
    return te_multiply(elements, (int64_t)te_dtype_bytes(dtype), &bytes) && range.bytes == bytes;
}

static bool stored(const te_model *model, te_range_record range) {
    return range.offset % TE_ALIGNMENT == 0 && in_file(model, range);
}

const te_port_record *te_golden_port(const te_model *model, const te_entry_record *entry,
                                     uint32_t position) {
    if (position >= entry->outputs) return &model->ports[TE_STATES][position - entry->outputs];
    return &model->ports[TE_OUTPUTS][model->listed[entry->first_output + position]];
}

static te_status check_golden(const te_model *model, const te_golden_record *golden,
                              te_error *error) {
    static const char wrong[] = "a golden's %.*s: its range, min or max";
    const int64_t *symbols = model->golden_symbols + golden->first_symbol;
    const te_entry_record *entry = &model->entries[golden->entry];
    int64_t elements;
    for (uint32_t i = 0; i < golden->symbols; i++) {
        NEED(TE_BOUNDS, te_symbol_allows(&model->symbols[i], symbols[i]), "a golden's symbols");
    }
    for (uint32_t i = 0; i < golden->inputs; i++) {
        const te_golden_input *input = &model->golden_inputs[golden->first_input + i];
        const te_port_record *port =
            &model->ports[TE_INPUTS][model->listed[entry->first_input + i]];
        TE_TRY(golden_elements(model, port, symbols, &elements, error));
        const bool fits = input->range.file == -1
                              ? input->range.bytes == 0 && input->range.offset == 0 &&
                                    te_golden_range(port->dtype, input->min, input->max)
                              : holds(input->range, elements, port->dtype) &&
                                    stored(model, input->range) && input->min == 0 &&
                                    input->max == 0;
        NEED(TE_BOUNDS, fits, wrong, TE_TEXT_ARGS(port->name));
    }
    for (uint32_t i = 0; i < golden->outputs; i++) {
        const te_golden_output *output = &model->golden_outputs[golden->first_output + i];
        const te_port_record *port = te_golden_port(model, entry, i);
        TE_TRY(golden_elements(model, port, symbols, &elements, error));
        elements = elements / output->stride + (elements % output->stride != 0);
        if (i >= entry->outputs && !output->range.bytes) elements = 0; /* a state that is not told */
        NEED(TE_BOUNDS,
             holds(output->range, elements, port->dtype) && stored(model, output->range),
             wrong, TE_TEXT_ARGS(port->name));
    }
    return TE_OK;
}

te_status te_check_ranges(const te_model *model, const sizes ends[2], te_error *error) {
    int64_t total = 0;
    bool sums = true;
    for (uint32_t i = 0; i < TOTAL(SYMBOLS); i++) {
        const te_symbol_record *symbol = &model->symbols[i];
        NEED(TE_BOUNDS, te_symbol_allows(symbol, symbol->max), "symbol %.*s: min, max and step",
             TE_TEXT_ARGS(symbol->name));
    }
    for (uint32_t i = 0; i < TOTAL(ARENAS); i++) {
        NEED(TE_BOUNDS, model->arenas[i] > 0 && model->arenas[i] % TE_ALIGNMENT == 0,
             "the bytes of an arena");
        sums = sums && te_add(total, model->arenas[i], &total);
    }
    for (uint32_t i = 0; i < TOTAL(WEIGHTS); i++) {
        sums = sums && te_add(total, model->weights[i].bytes, &total);
    }
    NEED(TE_BOUNDS, sums && total == te_integer(te_member(model->text, "peak_bytes")),
         "peak_bytes is not the sum of arenas and weights");
    for (uint32_t i = 0; i < TOTAL(FILES); i++) {
        const te_file_record *file = &model->files[i];
        const int64_t limit = te_starts(file->name, "kernels") ? 64 * 1048576 : 32 * 1048576;
        NEED(TE_BOUNDS, file->bytes <= limit, "%.*s is too large", TE_TEXT_ARGS(file->name));
    }
    TE_TRY(check_weights(model, error));
    for (uint32_t i = 0; i < TOTAL(BUFFERS); i++) {
        const te_buffer_record *buffer = &model->buffers[i];
        const bool inside =
            buffer->arena != -1
                ? buffer->offset + buffer->bytes <= model->arenas[buffer->arena]
                : buffer->offset == 0 && buffer->bytes == model->weights[buffer->weight].bytes;
        NEED(TE_BOUNDS,
             inside && buffer->offset % TE_ALIGNMENT == 0 && buffer->bytes > 0 &&
                 buffer->bytes % 4 == 0,
             "buffer %u: its alignment, or it is not inside its arena or all of its weight", i);
    }
    for (uint32_t i = 0; i < TOTAL(IMAGES); i++) {
        const te_image_record *image = &model->images[i];
        const int64_t pixel = 4 * (int64_t)te_dtype_bytes(image->dtype);
        int64_t bytes;
        NEED(TE_BOUNDS,
             image->pitch % pixel == 0 && image->pitch >= image->width * pixel &&
                 te_multiply(image->pitch, image->height, &bytes) &&
                 bytes <= model->buffers[image->buffer].bytes,
             "image %u: its pitch, or it does not fit its buffer", i);
    }
    for (int group = 0; group < 3; group++) {
        for (uint32_t i = 0; i < te_count(model, group); i++) {
            TE_TRY(check_port(model, &model->ports[group][i], group, ends, error));
        }
    }
    for (uint32_t i = 0; i < TOTAL(STEPS); i++) TE_TRY(check_step(model, i, ends, error));
    TE_TRY(check_entries(model, error));
    for (uint32_t i = 0; i < TOTAL(GOLDENS); i++) {
        TE_TRY(check_golden(model, &model->goldens[i], error));
    }
    return TE_OK;
}
