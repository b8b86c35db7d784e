/* The model's records: their arrays in one block of memory, sized by the counts of stage 3, and
   their names. */
#include "tinyedge_internal.h"

#include <string.h>

/* Every array of the model, and whether its records begin with a name. */
static const struct {
    uint16_t place;
    uint8_t bytes;
    bool named;
} arrays[TE_TOTALS] = {
#define ARRAY(pointer, named) {offsetof(te_model, pointer), sizeof *((te_model *)0)->pointer, named}
    [TE_N_SYMBOLS] = ARRAY(symbols, true),
    [TE_N_INPUTS] = ARRAY(ports[TE_INPUTS], true),
    [TE_N_OUTPUTS] = ARRAY(ports[TE_OUTPUTS], true),
    [TE_N_STATES] = ARRAY(ports[TE_STATES], true),
    [TE_N_SLICES] = ARRAY(slices, true),
    [TE_N_ENTRIES] = ARRAY(entries, true),
    [TE_N_LISTED] = ARRAY(listed, false),
    [TE_N_ARENAS] = ARRAY(arenas, false),
    [TE_N_BUFFERS] = ARRAY(buffers, false),
    [TE_N_IMAGES] = ARRAY(images, false),
    [TE_N_WEIGHTS] = ARRAY(weights, true),
    [TE_N_SEGMENTS] = ARRAY(segments, false),
    [TE_N_KERNELS] = ARRAY(kernels, true),
    [TE_N_BINDINGS] = ARRAY(writes, false),
    [TE_N_STEPS] = ARRAY(steps, false),
    [TE_N_BOUND] = ARRAY(bound, false),
    [TE_N_GOLDENS] = ARRAY(goldens, false),
    [TE_N_GOLDEN_SYMBOLS] = ARRAY(golden_symbols, false),
    [TE_N_GOLDEN_INPUTS] = ARRAY(golden_inputs, false),
    [TE_N_GOLDEN_OUTPUTS] = ARRAY(golden_outputs, false),
    [TE_N_FILES] = ARRAY(files, true),
    [TE_N_TOKENS] = ARRAY(tokens, false),
#undef ARRAY
};

void *te_array(const te_model *model, enum te_total total, size_t *bytes) {
    void *array;
    memcpy(&array, (const char *)model + arrays[total].place, sizeof array);
    *bytes = arrays[total].bytes;
    return array;
}

/* Every array at its place in one block; with block NULL only how large that is. Counts are below
   2^24 (the text's bytes), records below 2^8 bytes: no sum overflows. */
static uint64_t lay_out(te_model *model, void *block) {
    uint64_t end = 0;
    for (int i = TE_N_SYMBOLS; i < TE_TOTALS; i++) {
        void *array = te_place(block, &end, model->totals[i], arrays[i].bytes);
        memcpy((char *)model + arrays[i].place, &array, sizeof array);
    }
    return end;
}

te_status te_read_records(te_model *model, te_error *error) {
    model->record_bytes = lay_out(model, NULL);
    TE_TAKE(model->records, &model->allocator, model->record_bytes);
    lay_out(model, model->records);
    for (int group = TE_INPUTS; group <= TE_STATES; group++) {
        for (uint32_t i = 0; i < te_count(model, group); i++) {
            te_port_record *port = &model->ports[group][i];
            port->count = port->initial = -1; /* of those that have none */
        }
    }
    TE_TRY(te_fill_records(model, error));
    const char *build = te_member(te_member(model->text, "options"), "build");
    if (build && *build == '"') model->build = te_string(build);
    model->webgpu = te_is(model->target, "webgpu");
    return TE_OK;
}

const int32_t *te_listed(const te_model *model, const te_entry_record *entry, te_group group,
                         uint32_t *count) {
    const bool input = group == TE_INPUTS;
    *count = input ? entry->inputs : group == TE_OUTPUTS ? entry->outputs : 0;
    return model->listed + (input ? entry->first_input : entry->first_output);
}

const te_image_record *te_image_of(const te_model *model, int32_t buffer) {
    uint32_t low = 0, high = model->totals[TE_N_IMAGES];
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (model->images[middle].buffer == buffer) return &model->images[middle];
        if (model->images[middle].buffer < buffer) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

/* At most 2^48: three factors of at most 2^16. */
int64_t te_threads(const te_kernel_record *kernel) {
    return kernel->workgroup[0] * kernel->workgroup[1] * kernel->workgroup[2];
}

/* --- names as C strings ---------------------------------------------------------------------- */

/* A character of more than one byte, for others are not escaped, in UTF-8. */
static char *put(char *to, int c) {
    const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    *to++ = (char)(0xf80 >> more | c >> 6 * more);
    for (int i = more - 1; i >= 0; i--) *to++ = (char)(0x80 | (c >> 6 * i & 63));
    return to;
}

/* UTF-8 is never longer than the escapes it comes from, so it goes in their place. */
static char *decode(const char *from, const char *end, char *to) {
    while (from < end) {
        if (*from != '\\') {
            *to++ = *from++;
        } else if (from[1] != 'u') {
            *to++ = from[1];
            from += 2;
        } else {
            int c = te_unit(from + 2);
            from += 6;
            if (c >= 0xd800 && c < 0xdc00) {
                c = 0x10000 + (c - 0xd800) * 0x400 + (te_unit(from + 2) - 0xdc00);
                from += 6;
            }
            to = put(to, c);
        }
    }
    return to;
}

static void finish(te_text *name) {
    char *end = decode(name->at, name->at + name->length, name->at);
    name->length = (uint32_t)(end - name->at);
    *end = 0; /* where a character was, or the closing quote */
}

/* `["a","b"]` becomes `a, b`, also in its place. */
static void finish_list(te_text *list) {
    const char *from = list->at + 1;
    char *to = list->at;
    while (*from == '"') {
        const char *end = te_skip(from) - 1;
        const char *next = end[1] == ',' ? end + 2 : end + 1;
        if (to != list->at) {
            *to++ = ',';
            *to++ = ' ';
        }
        to = decode(from + 1, end, to);
        from = next;
    }
    *to = 0;
    list->length = (uint32_t)(to - list->at);
}

void te_finish_strings(te_model *model) {
    for (int total = TE_N_SYMBOLS; total < TE_TOTALS; total++) {
        size_t bytes;
        char *record = te_array(model, (enum te_total)total, &bytes);
        for (uint32_t i = 0; arrays[total].named && i < model->totals[total]; i++) {
            finish((void *)(record + i * bytes));
        }
    }
    for (int group = TE_INPUTS; group <= TE_STATES; group++) {
        for (uint32_t i = 0; i < te_count(model, group); i++) {
            finish(&model->ports[group][i].codes);
        }
    }
    for (uint32_t i = 0; i < model->totals[TE_N_STEPS]; i++) {
        if (model->steps[i].op == TE_LAUNCH) finish_list(&model->steps[i].nodes);
    }
    finish(&model->target);
    if (model->build.at) finish(&model->build);
}
