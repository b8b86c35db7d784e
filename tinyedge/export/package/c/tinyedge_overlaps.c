/* Stages 9 and 10 of the format's checks: overlaps of buffers, and what a device needs. */
#include "tinyedge_check.h"

/* Bytes of an arena, or of a weight (memory is -1 - weight). */
typedef struct span {
    int32_t memory;
    int64_t start, end;
} span;

static span span_of(const te_model *model, int32_t number, int64_t offset, int64_t bytes) {
    const te_buffer_record *buffer = &model->buffers[number];
    const int32_t memory = buffer->arena != -1 ? buffer->arena : -1 - buffer->weight;
    const int64_t start = buffer->offset + offset;
    return (span){memory, start, start + (bytes < 0 ? buffer->bytes : bytes)};
}

static bool overlap(span a, span b) {
    return a.memory == b.memory && a.start < b.end && b.start < a.end;
}

static bool identical(span a, span b) {
    return a.memory == b.memory && a.start == b.start && a.end == b.end;
}

static span port_span(const te_model *model, int group, int32_t port) {
    return span_of(model, model->ports[group][port].buffer, 0, -1);
}

static int64_t value_of(const te_model *model, uint32_t expression, const sizes *end) {
    int64_t value = 0;
    te_evaluate(model->tokens + expression, end->values, &value); /* which it was found to have */
    return value;
}

static te_status check_order(const te_range_record *range, te_range_record *before,
                             te_error *error) {
    const bool later = range->file > before->file ||
                       (range->file == before->file && range->offset >= before->offset);
    NEED(TE_OVERLAP, later, "a file's ranges overlap or go back");
    *before = (te_range_record){range->file, range->offset + range->bytes, 0};
    return TE_OK;
}

static te_status check_entry_overlaps(const te_model *model, const te_entry_record *entry,
                                      te_error *error) {
    for (int group = TE_INPUTS; group <= TE_OUTPUTS; group++) {
        uint32_t count;
        const int32_t *list = te_listed(model, entry, (te_group)group, &count);
        for (uint32_t i = 0; i < count; i++) {
            const span one = port_span(model, group, list[i]);
            for (uint32_t j = 0; j < i; j++) {
                const span other = port_span(model, group, list[j]);
                NEED(TE_OVERLAP, !overlap(one, other) || (group && identical(one, other)),
                     "ports of entry %.*s overlap", TE_TEXT_ARGS(entry->name));
            }
        }
    }
    return TE_OK;
}

static te_status check_state_overlaps(const te_model *model, te_error *error) {
    for (uint32_t i = 0; i < TOTAL(STATES); i++) {
        const span state = port_span(model, TE_STATES, (int32_t)i);
        for (int group = 0; group < 3; group++) {
            const uint32_t count = group == TE_STATES ? i : te_count(model, group);
            for (uint32_t j = 0; j < count; j++) {
                NEED(TE_OVERLAP, !overlap(state, port_span(model, group, (int32_t)j)),
                     "state %.*s overlaps another port",
                     TE_TEXT_ARGS(model->ports[TE_STATES][i].name));
            }
        }
    }
    return TE_OK;
}

te_status te_check_copy(const te_model *model, uint32_t number, int64_t bytes, te_status id,
                        te_error *error) {
    const te_step_record *step = &model->steps[number];
    const span from = span_of(model, step->source, step->source_offset, bytes);
    const span to = span_of(model, step->destination, step->destination_offset, bytes);
    NEED(id, !bytes || !overlap(from, to), "step %u copies onto itself", (unsigned)number);
    return TE_OK;
}

static te_status check_step_overlaps(const te_model *model, uint32_t number, const sizes ends[2],
                                     te_error *error) {
    const te_step_record *step = &model->steps[number];
    for (int end = 0; end < 2; end++) {
        if (step->op != TE_COPY) break;
        const int64_t bytes = value_of(model, step->sizes[0], &ends[end]);
        TE_TRY(te_check_copy(model, number, bytes, TE_OVERLAP, error));
    }
    if (step->op != TE_LAUNCH) return TE_OK;
    const uint8_t *writes = model->writes + model->kernels[step->kernel].first_binding;
    const int32_t *bound = model->bound + step->first_buffer;
    for (uint32_t i = 0; i < step->buffers; i++) {
        for (uint32_t j = 0; j < i; j++) {
            const span one = span_of(model, bound[i], 0, -1);
            const span other = span_of(model, bound[j], 0, -1);
            const bool allowed = identical(one, other) && !model->webgpu;
            NEED(TE_OVERLAP, !(writes[i] || writes[j]) || allowed || !overlap(one, other),
                 "step %u: buffers %u and %u overlap", number, j, i);
        }
    }
    return TE_OK;
}

te_status te_check_overlaps(const te_model *model, const sizes ends[2], te_error *error) {
    te_range_record before = {0, 0, 0};
    for (uint32_t i = 0; i < TOTAL(SEGMENTS); i++) {
        TE_TRY(check_order(&model->segments[i], &before, error));
    }
    before = (te_range_record){0, 0, 0};
    TE_TRY(check_order(&model->prelude, &before, error));
    for (uint32_t i = 0; i < TOTAL(KERNELS); i++) {
        TE_TRY(check_order(&model->kernels[i].range, &before, error));
    }
    for (uint32_t i = 0; i < TOTAL(ENTRIES); i++) {
        TE_TRY(check_entry_overlaps(model, &model->entries[i], error));
    }
    TE_TRY(check_state_overlaps(model, error));
    for (uint32_t i = 0; i < TOTAL(STEPS); i++) {
        TE_TRY(check_step_overlaps(model, i, ends, error));
    }
    return TE_OK;
}

/* --- stage 10: requirements ------------------------------------------------------------------ */

te_status te_check_requirements(const te_model *model, const sizes ends[2], te_error *error) {
    const int64_t *limits = model->requirements;
    for (uint32_t i = 0; i < TOTAL(ARENAS); i++) {
        NEED(TE_REQUIREMENT, model->arenas[i] <= limits[TE_BUFFER_BYTES],
             "an arena beyond buffer_bytes");
    }
    for (uint32_t i = 0; i < TOTAL(WEIGHTS); i++) {
        NEED(TE_REQUIREMENT, model->weights[i].bytes <= limits[TE_BUFFER_BYTES],
             "weight %.*s beyond buffer_bytes", TE_TEXT_ARGS(model->weights[i].name));
    }
    for (uint32_t i = 0; i < TOTAL(KERNELS); i++) {
        const te_kernel_record *kernel = &model->kernels[i];
        NEED(TE_REQUIREMENT,
             kernel->bindings <= limits[TE_BINDINGS] &&
                 te_threads(kernel) <= limits[TE_INVOCATIONS],
             "kernel %.*s beyond bindings or invocations", TE_TEXT_ARGS(kernel->entry));
    }
    for (uint32_t i = 0; i < TOTAL(IMAGES); i++) {
        NEED(TE_REQUIREMENT,
             model->images[i].width <= limits[TE_IMAGE_WIDTH] &&
                 model->images[i].height <= limits[TE_IMAGE_HEIGHT],
             "image %u beyond image_width or image_height", i);
    }
    for (uint32_t i = 0; i < TOTAL(STEPS); i++) {
        const te_step_record *step = &model->steps[i];
        if (step->op != TE_LAUNCH) continue;
        for (int j = 0; j < 6; j++) {
            NEED(TE_REQUIREMENT, value_of(model, step->sizes[j / 2], &ends[j % 2]) <=
                                      limits[TE_WORKGROUPS],
                 "step %u beyond workgroups", i);
        }
        for (uint32_t j = 0; j < step->buffers; j++) {
            const int32_t buffer = model->bound[step->first_buffer + j];
            const bool writes = model->writes[model->kernels[step->kernel].first_binding + j];
            NEED(TE_REQUIREMENT, model->buffers[buffer].bytes <= limits[TE_BINDING_BYTES],
                 "step %u beyond binding_bytes", i);
            NEED(TE_REQUIREMENT, !model->webgpu || writes == te_in_arena(model, buffer),
                 "step %u: a buffer's access", i);
        }
    }
    return TE_OK;
}
