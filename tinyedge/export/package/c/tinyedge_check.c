/* Stages 4 to 10 of the format's checks, on records. */
#include "tinyedge_internal.h"

#include <string.h>

#define NEED(status, condition, ...)                                                               \
    do {                                                                                           \
        if (!(condition)) return te_fail(error, status, __VA_ARGS__);                              \
    } while (0)
#define TOTAL(kind) (model->totals[TE_N_##kind])
#define TE_TEXT_ARGS(text) (int)(text).length, (text).at

/* The symbols at one end of their ranges. */
typedef struct sizes {
    int64_t values[TE_MAX_SYMBOLS];
} sizes;

/* --- stage 4: names -------------------------------------------------------------------------- */

static TE_NOINLINE int compare(te_text a, te_text b) {
    const uint32_t shorter = a.length < b.length ? a.length : b.length;
    const int order = memcmp(a.at, b.at, shorter);
    return order ? order : (a.length > b.length) - (a.length < b.length);
}

/* Let the name at `at` sink to its place in a heap, the greatest above. */
static void sink(const te_text **heap, uint32_t at, uint32_t count) {
    for (uint32_t below; (below = 2 * at + 1) < count; at = below) {
        if (below + 1 < count && compare(*heap[below], *heap[below + 1]) < 0) below++;
        if (compare(*heap[at], *heap[below]) >= 0) return;
        const te_text *greater = heap[below];
        heap[below] = heap[at];
        heap[at] = greater;
    }
}

static bool lists(const int32_t *list, uint32_t count, int32_t value) {
    for (uint32_t i = 0; i < count; i++) {
        if (list[i] == value) return true;
    }
    return false;
}

/* Names that lie `stride` bytes apart, those of an entry if there is one, are all different: equal
   ones come one after the other when they are sorted. */
static te_status check_unique(const te_model *model, const void *first, size_t stride,
                              uint32_t total, const int32_t *list, uint32_t listed,
                              te_error *error) {
    const te_text **heap;
    uint32_t count = 0;
    bool once = true;
    if (total < 2) return TE_OK;
    TE_TAKE(heap, &model->allocator, total * sizeof *heap);
    for (uint32_t i = 0; i < total; i++) {
        if (list && !lists(list, listed, (int32_t)i)) continue;
        heap[count++] = (const void *)((const char *)first + i * stride);
    }
    for (uint32_t i = count / 2; i-- > 0;) sink(heap, i, count);
    for (uint32_t left = count; left-- > 1 && once;) {
        const te_text *greatest = heap[0];
        heap[0] = heap[left];
        sink(heap, 0, left);
        once = compare(*greatest, *heap[0]) != 0;
    }
    te_release(&model->allocator, heap);
    NEED(TE_NAME, once, "two symbols, states, slices, entries, kernels or ports of an entry of one "
                        "name");
    return TE_OK;
}

/* The same of a kind of records, which begin with their names. */
#define UNIQUE(records, count)                                                                     \
    check_unique(model, records, sizeof *(records), count, NULL, 0, error)

static bool starts(te_text text, const char *word) {
    const size_t length = strlen(word);
    return text.length >= length && !memcmp(text.at, word, length);
}

/* (kernels|weights|golden)(-[0-9]{5})?\.[a-z0-9]{1,8} */
static bool is_file_name(te_text name) {
    static const char kinds[][8] = {"kernels", "weights", "golden"};
    for (int kind = 0; kind < 3; kind++) {
        if (!starts(name, kinds[kind])) continue;
        uint32_t at = (uint32_t)strlen(kinds[kind]);
        if (at < name.length && name.at[at] == '-') {
            for (int i = 0; i < 5; i++) {
                at++;
                if (at >= name.length || !te_is_digit(name.at[at])) return false;
            }
            at++;
        }
        if (at >= name.length || name.at[at] != '.') return false;
        const uint32_t letters = name.length - ++at;
        if (letters < 1 || letters > 8) return false;
        for (; at < name.length; at++) {
            const char c = name.at[at];
            if (!te_is_digit(c) && !(c >= 'a' && c <= 'z')) return false;
        }
        return true;
    }
    return false;
}

static te_status check_names(const te_model *model, te_error *error) {
    te_text before = {NULL, 0};
    for (const char *at = te_first(te_member(model->text, "features")); at; at = te_next(at)) {
        const te_text feature = te_string(at);
        NEED(TE_NAME, !before.at || compare(before, feature) < 0, "features do not increase");
        before = feature;
    }
    TE_TRY(UNIQUE(model->symbols, TOTAL(SYMBOLS)));
    TE_TRY(UNIQUE(model->entries, TOTAL(ENTRIES)));
    TE_TRY(UNIQUE(model->kernels, TOTAL(KERNELS)));
    TE_TRY(UNIQUE(model->ports[TE_STATES], TOTAL(STATES)));
    for (uint32_t i = 0; i < 2 * TOTAL(ENTRIES); i++) {
        const te_group group = i % 2 ? TE_OUTPUTS : TE_INPUTS;
        uint32_t listed;
        const int32_t *list = te_listed(model, &model->entries[i / 2], group, &listed);
        if (listed < 2) continue;
        TE_TRY(check_unique(model, model->ports[group], sizeof *model->ports[group],
                            te_count(model, group), list, listed, error));
    }
    for (uint32_t i = 0; i < TOTAL(OUTPUTS); i++) {
        const te_port_record *port = &model->ports[TE_OUTPUTS][i];
        TE_TRY(UNIQUE(model->slices + port->first_slice, port->slices));
    }
    for (uint32_t i = 0; i < TOTAL(FILES); i++) {
        const te_text name = model->files[i].name;
        NEED(TE_NAME, is_file_name(name), "%.*s is no name of a bundle's file", TE_TEXT_ARGS(name));
        NEED(TE_NAME, !i || compare(model->files[i - 1].name, name) < 0, "files do not increase");
    }
    return TE_OK;
}

/* --- stage 5: indices ------------------------------------------------------------------------ */

static TE_NOINLINE bool file_of(const te_model *model, te_range_record range, const char *kind) {
    return within(range.file, TOTAL(FILES)) && starts(model->files[range.file].name, kind);
}

static te_status check_ports_of_entry(const te_model *model, const te_entry_record *entry,
                                      te_error *error) {
    for (int group = TE_INPUTS; group <= TE_OUTPUTS; group++) {
        uint32_t count;
        const int32_t *list = te_listed(model, entry, (te_group)group, &count);
        for (uint32_t i = 0; i < count; i++) {
            NEED(TE_INDEX, within(list[i], te_count(model, group)),
                 "entry %.*s lists a port that is not there", TE_TEXT_ARGS(entry->name));
            NEED(TE_INDEX, !lists(list, i, list[i]), "entry %.*s lists a port twice",
                 TE_TEXT_ARGS(entry->name));
        }
    }
    uint32_t outputs;
    const int32_t *list = te_listed(model, entry, TE_OUTPUTS, &outputs);
    for (uint32_t i = 0; i < outputs; i++) {
        const int32_t count = model->ports[TE_OUTPUTS][list[i]].count;
        NEED(TE_INDEX, count == -1 || lists(list, outputs, count), "entry %.*s lacks a count",
             TE_TEXT_ARGS(entry->name));
    }
    return TE_OK;
}

static te_status check_step_indices(const te_model *model, const te_step_record *step,
                                    te_error *error) {
    const uint32_t buffers = TOTAL(BUFFERS);
    if (step->op == TE_LAUNCH) {
        NEED(TE_INDEX, within(step->kernel, TOTAL(KERNELS)), "a launch of no kernel");
        NEED(TE_INDEX, step->buffers == model->kernels[step->kernel].bindings,
             "a launch with another number of buffers than its kernel has bindings");
        for (uint32_t i = 0; i < step->buffers; i++) {
            NEED(TE_INDEX, within(model->bound[step->first_buffer + i], buffers),
                 "a launch binds no buffer");
        }
    } else if (step->op == TE_COPY) {
        NEED(TE_INDEX, within(step->source, buffers) && within(step->destination, buffers),
             "a copy of no buffer");
    } else {
        NEED(TE_INDEX, within(step->condition, buffers), "a condition in no buffer");
    }
    return TE_OK;
}

static te_status check_golden_indices(const te_model *model, const te_golden_record *golden,
                                      te_error *error) {
    NEED(TE_INDEX, within(golden->entry, TOTAL(ENTRIES)), "a golden of no entry");
    const te_entry_record *entry = &model->entries[golden->entry];
    NEED(TE_INDEX,
         golden->symbols == TOTAL(SYMBOLS) && golden->inputs == entry->inputs &&
             golden->outputs == entry->outputs,
         "a golden's lists are not of its entry's lengths");
    for (uint32_t i = 0; i < golden->inputs; i++) {
        const te_range_record range = model->golden_inputs[golden->first_input + i].range;
        NEED(TE_INDEX, range.file == -1 || file_of(model, range, "golden"),
             "a golden's input is in no golden file");
    }
    for (uint32_t i = 0; i < golden->outputs; i++) {
        const te_range_record range = model->golden_outputs[golden->first_output + i].range;
        NEED(TE_INDEX, file_of(model, range, "golden"), "a golden's output is in no golden file");
    }
    return TE_OK;
}

static te_status check_indices(const te_model *model, te_error *error) {
    NEED(TE_INDEX, file_of(model, model->prelude, "kernels"), "the prelude is in no kernels file");
    for (int group = 0; group < 3; group++) {
        for (uint32_t i = 0; i < te_count(model, group); i++) {
            const te_port_record *port = &model->ports[group][i];
            NEED(TE_INDEX,
                 within(port->buffer, TOTAL(BUFFERS)) &&
                     (port->count == -1 || within(port->count, TOTAL(OUTPUTS))) &&
                     (port->initial == -1 || within(port->initial, TOTAL(WEIGHTS))),
                 "%.*s has a buffer, count or initial value that is not there", TE_TEXT_ARGS(port->name));
        }
    }
    for (uint32_t i = 0; i < TOTAL(ENTRIES); i++) {
        TE_TRY(check_ports_of_entry(model, &model->entries[i], error));
    }
    for (uint32_t i = 0; i < TOTAL(BUFFERS); i++) {
        const te_buffer_record *buffer = &model->buffers[i];
        NEED(TE_INDEX, (buffer->arena == -1) != (buffer->weight == -1),
             "buffer %u is not one of arena and weight", i);
        NEED(TE_INDEX,
             buffer->weight == -1 ? within(buffer->arena, TOTAL(ARENAS))
                                  : within(buffer->weight, TOTAL(WEIGHTS)),
             "buffer %u is in nothing", i);
    }
    for (uint32_t i = 0; i < TOTAL(IMAGES); i++) {
        const int32_t buffer = model->images[i].buffer;
        NEED(TE_INDEX, within(buffer, TOTAL(BUFFERS)), "an image of no buffer");
        NEED(TE_INDEX, !i || model->images[i - 1].buffer < buffer,
             "the buffers of images do not increase");
    }
    for (uint32_t i = 0; i < TOTAL(SEGMENTS); i++) {
        NEED(TE_INDEX, file_of(model, model->segments[i], "weights"),
             "a weight is in no weights file");
    }
    for (uint32_t i = 0; i < TOTAL(KERNELS); i++) {
        NEED(TE_INDEX, file_of(model, model->kernels[i].range, "kernels"),
             "a kernel is in no kernels file");
    }
    for (uint32_t i = 0; i < TOTAL(STEPS); i++) {
        TE_TRY(check_step_indices(model, &model->steps[i], error));
    }
    for (uint32_t i = 0; i < TOTAL(GOLDENS); i++) {
        TE_TRY(check_golden_indices(model, &model->goldens[i], error));
    }
    return TE_OK;
}

/* --- stages 6 and 7: features and expressions ------------------------------------------------ */

static te_status check_features(const te_model *model, te_error *error) {
    bool count = false, loop = false;
    for (uint32_t i = 0; i < TOTAL(OUTPUTS); i++) count |= model->ports[TE_OUTPUTS][i].count != -1;
    for (uint32_t i = 0; i < TOTAL(STEPS); i++) loop |= model->steps[i].op == TE_LOOP;
    static const char names[][8] = {"count", "entries", "loop", "state", "symbols"};
    const bool used[] = {count, TOTAL(ENTRIES) > 1, loop, TOTAL(STATES), TOTAL(SYMBOLS)};
    for (size_t i = 0; i < sizeof used; i++) {
        NEED(TE_FEATURE, !used[i] || te_lists_feature(model->text, names[i]),
             "it uses %s without listing it", names[i]);
    }
    return TE_OK;
}

static te_status check_expressions(const te_model *model, const sizes ends[2], te_error *error) {
    int64_t value;
    for (uint32_t at = 0; at < TOTAL(TOKENS); at += (uint32_t)model->tokens[at] + 1) {
        for (int end = 0; end < 2; end++) {
            NEED(TE_EXPRESSION, te_evaluate(model->tokens + at, ends[end].values, &value),
                 "an expression is malformed, divides by less than 1 or exceeds 53 bits");
        }
    }
    return TE_OK;
}

/* --- stage 8: ranges ------------------------------------------------------------------------- */

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

static bool in_arena(const te_model *model, int32_t buffer) {
    return model->buffers[buffer].arena != -1;
}

/* Whether a buffer may be used by others than kernels: in an arena, and no image. */
static bool plain(const te_model *model, int32_t buffer) {
    return in_arena(model, buffer) && !te_image_of(model, buffer);
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
            allowed &= !writes[i] || in_arena(model, bound[i]);
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
             "%.*s has no shape at a golden's sizes", TE_TEXT_ARGS(port->name));
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

static te_status check_golden(const te_model *model, const te_golden_record *golden,
                              te_error *error) {
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
        NEED(TE_BOUNDS, fits, "a golden's input %.*s: its range, min or max", TE_TEXT_ARGS(port->name));
    }
    for (uint32_t i = 0; i < golden->outputs; i++) {
        const te_golden_output *output = &model->golden_outputs[golden->first_output + i];
        const te_port_record *port =
            &model->ports[TE_OUTPUTS][model->listed[entry->first_output + i]];
        TE_TRY(golden_elements(model, port, symbols, &elements, error));
        elements = elements / output->stride + (elements % output->stride != 0);
        NEED(TE_BOUNDS,
             holds(output->range, elements, port->dtype) && stored(model, output->range),
             "a golden's output %.*s: its range", TE_TEXT_ARGS(port->name));
    }
    return TE_OK;
}

static te_status check_bounds(const te_model *model, const sizes ends[2], te_error *error) {
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
        const int64_t limit = starts(file->name, "kernels") ? 64 * 1048576 : 32 * 1048576;
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

/* --- stage 9: overlaps ----------------------------------------------------------------------- */

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

static te_status check_overlaps(const te_model *model, const sizes ends[2], te_error *error) {
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

static te_status check_requirements(const te_model *model, const sizes ends[2], te_error *error) {
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
            NEED(TE_REQUIREMENT, !model->webgpu || writes == in_arena(model, buffer),
                 "step %u: a buffer's access", i);
        }
    }
    return TE_OK;
}

te_status te_check_records(const te_model *model, te_error *error) {
    sizes ends[2];
    for (uint32_t i = 0; i < TOTAL(SYMBOLS); i++) {
        ends[0].values[i] = model->symbols[i].min;
        ends[1].values[i] = model->symbols[i].max;
    }
    TE_TRY(check_names(model, error));
    TE_TRY(check_indices(model, error));
    TE_TRY(check_features(model, error));
    TE_TRY(check_expressions(model, ends, error));
    TE_TRY(check_bounds(model, ends, error));
    TE_TRY(check_overlaps(model, ends, error));
    return check_requirements(model, ends, error);
}
