/* Stages 4 to 7 of the format's checks, on records, and the order of all. */
#include "tinyedge_check.h"

#include <string.h>

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

bool te_starts(te_text text, const char *word) {
    const size_t length = strlen(word);
    return text.length >= length && !memcmp(text.at, word, length);
}

/* (kernels|weights|golden)(-[0-9]{5})?\.[a-z0-9]{1,8} */
static bool is_file_name(te_text name) {
    static const char kinds[][8] = {"kernels", "weights", "golden"};
    for (int kind = 0; kind < 3; kind++) {
        if (!te_starts(name, kinds[kind])) continue;
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
    return within(range.file, TOTAL(FILES)) && te_starts(model->files[range.file].name, kind);
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
             "a launch with more or fewer buffers than its kernel has bindings");
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
    static const char no_file[] = "a golden's values are in no golden file";
    NEED(TE_INDEX, within(golden->entry, TOTAL(ENTRIES)), "a golden of no entry");
    const te_entry_record *entry = &model->entries[golden->entry];
    NEED(TE_INDEX,
         golden->symbols == TOTAL(SYMBOLS) && golden->inputs == entry->inputs &&
             (golden->outputs == entry->outputs ||
              golden->outputs == entry->outputs + te_count(model, TE_STATES)),
         "a golden's lists have other lengths");
    for (uint32_t i = 0; i < golden->inputs; i++) {
        const te_range_record range = model->golden_inputs[golden->first_input + i].range;
        NEED(TE_INDEX, range.file == -1 || file_of(model, range, "golden"), no_file);
    }
    for (uint32_t i = 0; i < golden->outputs; i++) {
        const te_range_record range = model->golden_outputs[golden->first_output + i].range;
        NEED(TE_INDEX, file_of(model, range, "golden"), no_file);
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
                 "an expression is malformed, divides by < 1 or exceeds 53 bits");
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
    TE_TRY(te_check_ranges(model, ends, error));
    TE_TRY(te_check_overlaps(model, ends, error));
    return te_check_requirements(model, ends, error);
}
