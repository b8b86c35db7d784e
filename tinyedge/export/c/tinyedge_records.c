/* From the manifest's text to records in one block of memory, sized by the counts of stage 3. */
#include "tinyedge_internal.h"

#include <string.h>

/* Where the next records of each kind go. */
typedef struct cursor {
    te_model *model;
    uint32_t tokens, slices, listed, segments, bindings, bound;
    uint32_t golden_symbols, golden_inputs, golden_outputs;
} cursor;

static te_text text_of(const char *record, const char *key) {
    return te_string(te_member(record, key));
}

static int64_t number_of(const char *record, const char *key) {
    return te_integer(te_member(record, key));
}

/* An index; one beyond 31 bits stays outside of every array. */
static int32_t as_index(const char *value) {
    const int64_t number = te_integer(value);
    return number > INT32_MAX ? INT32_MAX : (int32_t)number;
}

static int32_t index_of(const char *record, const char *key) {
    return as_index(te_member(record, key));
}

static te_dtype dtype_of(const char *record, const char *key) {
    return te_dtype_of(te_member(record, key));
}

static te_range_record range_of(const char *record) {
    return (te_range_record){index_of(record, "file"), number_of(record, "offset"),
                             number_of(record, "bytes")};
}

static int64_t token_of(const te_model *model, const char *value) {
    static const char operators[][9] = {"add",     "mul", "sub", "floordiv",
                                        "ceildiv", "mod", "min", "max"};
    if (te_is_integer(value)) return te_integer(value);
    te_text word = te_string(value);
    for (int i = 0; i < 8; i++) {
        if (te_is(word, operators[i])) return TE_OPERATOR_TOKEN + i;
    }
    if (!word.length || *word.at != '$') return TE_BAD_TOKEN;
    word.at++;
    word.length--;
    for (uint32_t i = 0; i < model->totals[TE_N_SYMBOLS]; i++) {
        if (te_same(word, model->symbols[i].name)) return TE_SYMBOL_TOKEN + i;
    }
    return TE_BAD_TOKEN;
}

static uint32_t expression(cursor *to, const char *value) {
    const uint32_t start = to->tokens++;
    int64_t *tokens = to->model->tokens;
    if (*value != '[') {
        tokens[to->tokens++] = te_integer(value);
    } else {
        for (const char *at = te_first(value); at; at = te_next(at)) {
            tokens[to->tokens++] = token_of(to->model, at);
        }
    }
    tokens[start] = to->tokens - start - 1;
    return start;
}

static uint32_t indices(const char *list, int32_t *pool, uint32_t *used) {
    const uint32_t start = *used;
    for (const char *at = te_first(list); at; at = te_next(at)) pool[(*used)++] = as_index(at);
    return *used - start;
}

static void read_symbol(cursor *to, const char *from, uint32_t i) {
    to->model->symbols[i] =
        (te_symbol_record){text_of(from, "name"), number_of(from, "min"), number_of(from, "max"),
                           number_of(from, "step")};
}

static void read_port(cursor *to, const char *from, te_port_record *port) {
    port->name = text_of(from, "name");
    port->dtype = te_declared_type(te_member(from, "dtype"), &port->codes);
    port->storage = dtype_of(from, "storage");
    port->buffer = index_of(from, "buffer");
    port->count = port->initial = -1;
    port->rank = 0;
    for (const char *at = te_first(te_member(from, "shape")); at; at = te_next(at)) {
        port->shape[port->rank++] = expression(to, at);
    }
    port->first_slice = to->slices;
    const char *slices = te_member(from, "slices");
    for (const char *at = slices ? te_first(slices) : NULL; at; at = te_next(at)) {
        to->model->slices[to->slices++] =
            (te_slice_record){text_of(at, "name"), number_of(at, "axis"), number_of(at, "start"),
                              number_of(at, "size")};
    }
    port->slices = to->slices - port->first_slice;
    if (te_member(from, "count")) port->count = index_of(from, "count");
    if (te_member(from, "initial")) port->initial = index_of(from, "initial");
}

static void read_input(cursor *to, const char *from, uint32_t i) {
    read_port(to, from, &to->model->ports[TE_INPUTS][i]);
}

static void read_output(cursor *to, const char *from, uint32_t i) {
    read_port(to, from, &to->model->ports[TE_OUTPUTS][i]);
}

static void read_state(cursor *to, const char *from, uint32_t i) {
    read_port(to, from, &to->model->ports[TE_STATES][i]);
}

static void read_entry(cursor *to, const char *from, uint32_t i) {
    te_entry_record *entry = &to->model->entries[i];
    const char *steps = te_first(te_member(from, "steps"));
    entry->name = text_of(from, "name");
    entry->first_input = to->listed;
    entry->inputs = indices(te_member(from, "inputs"), to->model->listed, &to->listed);
    entry->first_output = to->listed;
    entry->outputs = indices(te_member(from, "outputs"), to->model->listed, &to->listed);
    entry->first = te_integer(steps);
    entry->count = te_integer(te_next(steps));
}

static void read_arena(cursor *to, const char *from, uint32_t i) {
    to->model->arenas[i] = number_of(from, "bytes");
}

static void read_buffer(cursor *to, const char *from, uint32_t i) {
    to->model->buffers[i] =
        (te_buffer_record){index_of(from, "arena"), index_of(from, "weight"),
                           number_of(from, "offset"), number_of(from, "bytes")};
}

static void read_image(cursor *to, const char *from, uint32_t i) {
    to->model->images[i] =
        (te_image_record){index_of(from, "buffer"), dtype_of(from, "dtype"),
                          number_of(from, "width"), number_of(from, "height"),
                          number_of(from, "pitch")};
}

static void read_weight(cursor *to, const char *from, uint32_t i) {
    te_weight_record *weight = &to->model->weights[i];
    weight->name = text_of(from, "name");
    weight->bytes = number_of(from, "bytes");
    weight->first_segment = to->segments;
    for (const char *at = te_first(te_member(from, "segments")); at; at = te_next(at)) {
        to->model->segments[to->segments++] = range_of(at);
    }
    weight->segments = to->segments - weight->first_segment;
}

static void read_kernel(cursor *to, const char *from, uint32_t i) {
    te_kernel_record *kernel = &to->model->kernels[i];
    kernel->entry = text_of(from, "entry");
    kernel->range = range_of(from);
    kernel->symbols = *te_member(from, "symbols") == 't';
    int axis = 0;
    for (const char *at = te_first(te_member(from, "workgroup")); at; at = te_next(at)) {
        kernel->workgroup[axis++] = (int32_t)te_integer(at);
    }
    kernel->first_binding = to->bindings;
    for (const char *at = te_first(te_member(from, "bindings")); at; at = te_next(at)) {
        to->model->writes[to->bindings++] = !te_is(text_of(at, "access"), "read");
    }
    kernel->bindings = to->bindings - kernel->first_binding;
}

static void read_step(cursor *to, const char *from, uint32_t i) {
    te_step_record *step = &to->model->steps[i];
    const te_text op = text_of(from, "op");
    memset(step, 0, sizeof *step);
    if (te_is(op, "launch")) {
        step->op = TE_LAUNCH;
        step->kernel = index_of(from, "kernel");
        step->flops = number_of(from, "flops");
        step->first_buffer = to->bound;
        step->buffers = indices(te_member(from, "buffers"), to->model->bound, &to->bound);
        int axis = 0;
        for (const char *at = te_first(te_member(from, "counts")); at; at = te_next(at)) {
            step->sizes[axis++] = expression(to, at);
        }
        const char *nodes = te_member(from, "nodes");
        step->nodes = (te_text){(char *)(uintptr_t)nodes, (uint32_t)(te_skip(nodes) - nodes)};
    } else if (te_is(op, "copy")) {
        step->op = TE_COPY;
        step->source = index_of(from, "source");
        step->destination = index_of(from, "destination");
        step->source_offset = number_of(from, "source_offset");
        step->destination_offset = number_of(from, "destination_offset");
        step->sizes[0] = expression(to, te_member(from, "bytes"));
    } else {
        step->op = te_is(op, "if") ? TE_IF : TE_LOOP;
        step->condition = index_of(from, "condition");
        step->then = number_of(from, step->op == TE_IF ? "then" : "body");
        if (step->op == TE_IF) step->otherwise = number_of(from, "otherwise");
        if (step->op == TE_LOOP) step->bound = number_of(from, "bound");
    }
}

static void read_golden(cursor *to, const char *from, uint32_t i) {
    te_model *model = to->model;
    te_golden_record *golden = &model->goldens[i];
    golden->entry = index_of(from, "entry");
    golden->seed = number_of(from, "seed");
    golden->steps = number_of(from, "steps");
    golden->tolerance = number_of(from, "tolerance");
    golden->first_symbol = to->golden_symbols;
    for (const char *at = te_first(te_member(from, "symbols")); at; at = te_next(at)) {
        model->golden_symbols[to->golden_symbols++] = te_integer(at);
    }
    golden->symbols = to->golden_symbols - golden->first_symbol;
    golden->first_input = to->golden_inputs;
    for (const char *at = te_first(te_member(from, "inputs")); at; at = te_next(at)) {
        model->golden_inputs[to->golden_inputs++] =
            (te_golden_input){range_of(at), number_of(at, "min"), number_of(at, "max")};
    }
    golden->inputs = to->golden_inputs - golden->first_input;
    golden->first_output = to->golden_outputs;
    for (const char *at = te_first(te_member(from, "outputs")); at; at = te_next(at)) {
        model->golden_outputs[to->golden_outputs++] =
            (te_golden_output){range_of(at), number_of(at, "stride")};
    }
    golden->outputs = to->golden_outputs - golden->first_output;
}

static void read_file(cursor *to, const char *from, uint32_t i) {
    to->model->files[i] = (te_file_record){text_of(from, "name"), number_of(from, "bytes"),
                                           text_of(from, "sha256").at};
}

/* Every pointer of the model at its place in one block; with block NULL only how large that is.
   Counts are below 2^24 (the text's bytes), records below 2^8 bytes: no sum overflows. */
static uint64_t lay_out(te_model *model, void *block) {
    uint64_t end = 0;
#define PLACE(pointer, total)                                                                      \
    (pointer) = te_place(block, &end, model->totals[total], sizeof *(pointer))
    PLACE(model->symbols, TE_N_SYMBOLS);
    PLACE(model->ports[TE_INPUTS], TE_N_INPUTS);
    PLACE(model->ports[TE_OUTPUTS], TE_N_OUTPUTS);
    PLACE(model->ports[TE_STATES], TE_N_STATES);
    PLACE(model->slices, TE_N_SLICES);
    PLACE(model->entries, TE_N_ENTRIES);
    PLACE(model->listed, TE_N_LISTED);
    PLACE(model->arenas, TE_N_ARENAS);
    PLACE(model->buffers, TE_N_BUFFERS);
    PLACE(model->images, TE_N_IMAGES);
    PLACE(model->weights, TE_N_WEIGHTS);
    PLACE(model->segments, TE_N_SEGMENTS);
    PLACE(model->kernels, TE_N_KERNELS);
    PLACE(model->writes, TE_N_BINDINGS);
    PLACE(model->steps, TE_N_STEPS);
    PLACE(model->bound, TE_N_BOUND);
    PLACE(model->goldens, TE_N_GOLDENS);
    PLACE(model->golden_symbols, TE_N_GOLDEN_SYMBOLS);
    PLACE(model->golden_inputs, TE_N_GOLDEN_INPUTS);
    PLACE(model->golden_outputs, TE_N_GOLDEN_OUTPUTS);
    PLACE(model->files, TE_N_FILES);
    PLACE(model->tokens, TE_N_TOKENS);
#undef PLACE
    return end;
}

const char *te_requirement_name(enum te_requirement requirement) {
    static const char *const keys[TE_REQUIREMENTS] = {
        "binding_bytes", "bindings",    "buffer_bytes",    "image_height",
        "image_width",   "invocations", "workgroup_bytes", "workgroups"};
    return keys[requirement];
}

static void read_requirements(te_model *model) {
    const char *record = te_member(model->text, "requirements");
    const char *build = te_member(te_member(model->text, "options"), "build");
    for (int i = 0; i < TE_REQUIREMENTS; i++) {
        const char *value = te_member(record, te_requirement_name((enum te_requirement)i));
        if (te_is_integer(value)) model->requirements[i] = te_integer(value);
    }
    if (build && *build == '"') model->build = te_string(build);
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
    return (int64_t)kernel->workgroup[0] * kernel->workgroup[1] * kernel->workgroup[2];
}

te_status te_read_records(te_model *model, te_error *error) {
    static const struct {
        const char *key;
        void (*read)(cursor *to, const char *from, uint32_t i);
    } groups[] = {
        {"symbols", read_symbol}, /* first: expressions need their names */
        {"inputs", read_input},   {"outputs", read_output}, {"states", read_state},
        {"entries", read_entry},  {"arenas", read_arena},   {"buffers", read_buffer},
        {"images", read_image},   {"weights", read_weight}, {"kernels", read_kernel},
        {"steps", read_step},     {"golden", read_golden},  {"files", read_file},
    };
    cursor to = {.model = model};
    model->record_bytes = lay_out(model, NULL);
    TE_TAKE(model->records, &model->allocator, model->record_bytes);
    lay_out(model, model->records);
    for (size_t group = 0; group < sizeof groups / sizeof *groups; group++) {
        const char *list = te_member(model->text, groups[group].key); /* images may be missing */
        const char *at = list ? te_first(list) : NULL;
        for (uint32_t i = 0; at; at = te_next(at)) groups[group].read(&to, at, i++);
    }
    read_requirements(model);
    model->prelude = range_of(te_member(model->text, "prelude"));
    model->target = text_of(model->text, "target");
    model->webgpu = te_is(model->target, "webgpu");
    return TE_OK;
}

/* --- names as C strings ---------------------------------------------------------------------- */

static int hex(const char *digits) {
    int value = 0;
    for (int i = 0; i < 4; i++) {
        value = value * 16 + (te_is_digit(digits[i]) ? digits[i] - '0' : digits[i] - 'a' + 10);
    }
    return value;
}

static char *put(char *to, int c) {
    if (c < 0x80) {
        *to++ = (char)c;
    } else if (c < 0x800) {
        *to++ = (char)(0xc0 | c >> 6);
        *to++ = (char)(0x80 | (c & 63));
    } else if (c < 0x10000) {
        *to++ = (char)(0xe0 | c >> 12);
        *to++ = (char)(0x80 | (c >> 6 & 63));
        *to++ = (char)(0x80 | (c & 63));
    } else {
        *to++ = (char)(0xf0 | c >> 18);
        *to++ = (char)(0x80 | (c >> 12 & 63));
        *to++ = (char)(0x80 | (c >> 6 & 63));
        *to++ = (char)(0x80 | (c & 63));
    }
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
            int c = hex(from + 2);
            from += 6;
            if (c >= 0xd800 && c < 0xdc00) {
                c = 0x10000 + (c - 0xd800) * 0x400 + (hex(from + 2) - 0xdc00);
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

/* Names of records that begin with them. */
static void finish_names(void *first, size_t size, uint32_t count) {
    char *at = first;
    for (; count; count--, at += size) finish((void *)at);
}

#define FINISH(records, total) finish_names(records, sizeof *(records), model->totals[total])

void te_finish_strings(te_model *model) {
    FINISH(model->ports[TE_INPUTS], TE_N_INPUTS);
    FINISH(model->ports[TE_OUTPUTS], TE_N_OUTPUTS);
    FINISH(model->ports[TE_STATES], TE_N_STATES);
    for (int group = 0; group <= TE_STATES; group++) {
        const uint32_t count = te_count(model, (te_group)group);
        for (uint32_t i = 0; i < count; i++) finish(&model->ports[group][i].codes);
    }
    FINISH(model->symbols, TE_N_SYMBOLS);
    FINISH(model->slices, TE_N_SLICES);
    FINISH(model->entries, TE_N_ENTRIES);
    FINISH(model->weights, TE_N_WEIGHTS);
    FINISH(model->kernels, TE_N_KERNELS);
    FINISH(model->files, TE_N_FILES);
    for (uint32_t i = 0; i < model->totals[TE_N_STEPS]; i++) {
        if (model->steps[i].op == TE_LAUNCH) finish_list(&model->steps[i].nodes);
    }
    finish(&model->target);
    if (model->build.at) finish(&model->build);
}
