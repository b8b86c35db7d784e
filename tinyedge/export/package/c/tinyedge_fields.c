/* Stages 2 and 3 of the format's checks: a bundle of ours, and the shape of its records as one
   table, which also says where they go in the model. The manifest is walked twice: to check and
   count, and, once there is memory for as many, to fill it. Nothing is allocated. */
#include "tinyedge_internal.h"

#include <string.h>

/* --- stage 2: is this ours ------------------------------------------------------------------- */

static bool string_is(const char *value, const char *word) {
    return value && *value == '"' && te_is(te_string(value), word);
}

static bool is_feature(const char *value) {
    static const char features[][8] = {"count", "entries", "images", "loop", "state", "symbols"};
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        if (string_is(value, features[i])) return true;
    }
    return false;
}

/* [a-z][a-z0-9]{0,31} */
static bool is_target(te_text name) {
    if (name.length < 1 || name.length > 32) return false;
    for (uint32_t i = 0; i < name.length; i++) {
        const char c = name.at[i];
        if (!(c >= 'a' && c <= 'z') && !(i && te_is_digit(c))) return false;
    }
    return true;
}

bool te_lists_feature(const char *text, const char *name) {
    for (const char *at = te_first(te_member(text, "features")); at; at = te_next(at)) {
        if (string_is(at, name)) return true;
    }
    return false;
}

te_status te_check_identity(const char *text, bool any_target, te_error *error) {
    TE_NEED(string_is(te_member(text, "format"), "tinyedge-bundle"), TE_FORMAT,
            "this is no tinyedge bundle");
    const char *version = te_member(text, "version");
    TE_NEED(te_is_integer(version) && te_integer(version) == 1, TE_VERSION,
            "the bundle is of another format version than 1");
    const char *features = te_member(text, "features");
    TE_NEED(features && *features == '[', TE_FEATURE, "features is no array");
    for (const char *at = te_first(features); at; at = te_next(at)) {
        TE_NEED(is_feature(at), TE_FEATURE, "the bundle requires a feature that is not known");
    }
    const char *target = te_member(text, "target");
    TE_NEED(target && *target == '"', TE_TARGET, "target is no string");
    const te_text name = te_string(target);
    TE_NEED(is_target(name), TE_TARGET, "target is no name of a target");
    TE_NEED(any_target || te_is(name, "cpu") || te_is(name, "cuda") || te_is(name, "qcom"),
            TE_TARGET, "bundles for target %.*s are not for C", (int)name.length, name.at);
    return TE_OK;
}

/* --- stage 3: the shape of the records ------------------------------------------------------- */

/* Every key, in one piece of memory: tables hold places in it, small and without a linker. */
#define KEYS(X)                                                                                    \
    X(access) X(arena) X(arenas) X(axis) X(binding_bytes) X(bindings) X(body) X(bound) X(buffer)   \
    X(buffer_bytes) X(buffers) X(bytes) X(condition) X(count) X(counts) X(destination)             \
    X(destination_offset) X(dtype) X(entries) X(entry) X(features) X(file) X(files) X(flops)       \
    X(format) X(golden) X(height) X(image_height) X(image_width) X(images) X(initial) X(inputs)    \
    X(invocations) X(kernel) X(kernels) X(made) X(max) X(min) X(moves) X(name) X(nodes) X(offset)  \
    X(op) X(options) X(outputs) X(peak_bytes) X(pitch) X(prelude) X(requirements)     \
    X(seed) X(segments) X(sha256) X(shape) X(size) X(slices) X(source) X(source_offset) X(start)   \
    X(states) X(step) X(steps) X(storage) X(stride) X(symbols) X(target) X(tolerance)      \
    X(tool) X(update) X(version) X(weight) X(weights) X(width) X(workgroup) X(workgroup_bytes)     \
    X(workgroups)
#define FIELD_OF(key) char key[sizeof #key];
#define TEXT_OF(key) #key,
typedef struct keys {
    KEYS(FIELD_OF)
} keys;
static const keys all_keys = {KEYS(TEXT_OF)};

/* What a value may be: a number or text, an array, a record. */
typedef enum type {
    NUMBER, IMAGE_LIMIT, INDEX, POSITIVE, SIZE, STEP_SIZE, AXIS, ARENA_SIZE, IMAGE_SIDE, SIDE, SEED,
    REPEATS, GOLDEN_BOUND, ANY_TEXT, SHORT_TEXT, TARGET_TEXT, NAME, TYPE_WORD, IDENTIFIER, SHA256,
    FLAG, DTYPE, DECLARED, IMAGE_DTYPE, UPDATE, ACCESS, EXPRESSION, STEP,
    SHAPE, SLICES, PORTS, RANGE_OF_STEPS, SEGMENTS, WEIGHT_SHAPE, BINDINGS, MOVES, WORKGROUP, BOUND,
    COUNTS, NODES, GOLDEN_SYMBOLS, GOLDEN_INPUTS, GOLDEN_OUTPUTS, ARENAS, BUFFERS, ENTRIES,
    FEATURES, FILES, GOLDENS, IMAGES, INPUTS, KERNELS, OUTPUTS, STATES, STEPS, SYMBOLS, WEIGHTS,
    FREE, SYMBOL, SLICE, PORT, STATE, ENTRY, ARENA, BUFFER, IMAGE, RANGE, WEIGHT, BINDING,
    KERNEL, LAUNCH, COPY, LOOP, GOLDEN, GOLDEN_INPUT, GOLDEN_OUTPUT, FILE_, REQUIREMENTS, ROOT
} type;

#define INT31 INT64_C(2147483647)
#define INT32 INT64_C(4294967295)

static const struct {
    int64_t least, most;
} numbers[ANY_TEXT] = {
    [NUMBER] = {0, TE_INTEGER_LIMIT},
    [IMAGE_LIMIT] = {0, TE_INTEGER_LIMIT},
    [INDEX] = {-1, TE_INTEGER_LIMIT},
    [POSITIVE] = {1, TE_INTEGER_LIMIT},
    [SIZE] = {0, INT31},
    [STEP_SIZE] = {1, INT31},
    [AXIS] = {0, TE_MAX_RANK - 1},
    [ARENA_SIZE] = {0, INT64_C(1) << 40},
    [IMAGE_SIDE] = {1, 1 << 20},
    [SIDE] = {1, 1 << 16},
    [SEED] = {0, INT32},
    [REPEATS] = {1, 1024},
    [GOLDEN_BOUND] = {INT32_MIN, INT32},
};

/* least, most: of a text's or array's length. of: what an array's elements are, and total what they
   are counted as. */
typedef struct rule {
    uint32_t most;
    uint8_t least, of, total;
} rule;

static const rule rules[FREE - ANY_TEXT] = {
#define RULE(type, least, most, of, total) [type - ANY_TEXT] = {most, least, of, total}
    RULE(ANY_TEXT, 0, 4096, 0, 0),
    RULE(SHORT_TEXT, 0, 64, 0, 0),
    RULE(TARGET_TEXT, 0, 32, 0, 0),
    RULE(NAME, 1, 1024, 0, 0),
    RULE(TYPE_WORD, 1, 32, 0, 0),
    RULE(IDENTIFIER, 1, 128, 0, 0),
    RULE(SHA256, 64, 64, 0, 0),
    RULE(EXPRESSION, 1, TE_TOKENS, 0, TE_N_TOKENS),
    RULE(SHAPE, 0, TE_MAX_RANK, EXPRESSION, 0),
    RULE(SLICES, 0, 256, SLICE, TE_N_SLICES),
    RULE(PORTS, 0, 1024, INDEX, TE_N_LISTED),
    RULE(RANGE_OF_STEPS, 2, 2, NUMBER, 0),
    RULE(SEGMENTS, 1, 4096, RANGE, TE_N_SEGMENTS),
    RULE(WEIGHT_SHAPE, 0, TE_MAX_RANK, NUMBER, 0),
    RULE(BINDINGS, 1, TE_MOST_BINDINGS, BINDING, TE_N_BINDINGS),
    RULE(MOVES, 0, 256, FREE, 0),
    RULE(WORKGROUP, 3, 3, SIDE, 0),
    RULE(BOUND, 0, TE_MOST_BINDINGS, INDEX, TE_N_BOUND),
    RULE(COUNTS, 3, 3, EXPRESSION, 0),
    RULE(NODES, 0, 1024, ANY_TEXT, 0),
    RULE(GOLDEN_SYMBOLS, 0, TE_MAX_SYMBOLS, SIZE, TE_N_GOLDEN_SYMBOLS),
    RULE(GOLDEN_INPUTS, 0, 1024, GOLDEN_INPUT, TE_N_GOLDEN_INPUTS),
    RULE(GOLDEN_OUTPUTS, 0, 1024, GOLDEN_OUTPUT, TE_N_GOLDEN_OUTPUTS),
    RULE(ARENAS, 0, 64, ARENA, TE_N_ARENAS),
    RULE(BUFFERS, 0, 262144, BUFFER, TE_N_BUFFERS),
    RULE(ENTRIES, 1, 64, ENTRY, TE_N_ENTRIES),
    RULE(FEATURES, 0, 64, SHORT_TEXT, 0),
    RULE(FILES, 0, 4096, FILE_, TE_N_FILES),
    RULE(GOLDENS, 0, 64, GOLDEN, TE_N_GOLDENS),
    RULE(IMAGES, 0, 262144, IMAGE, TE_N_IMAGES),
    RULE(INPUTS, 0, 1024, PORT, TE_N_INPUTS),
    RULE(KERNELS, 0, 16384, KERNEL, TE_N_KERNELS),
    RULE(OUTPUTS, 0, 1024, PORT, TE_N_OUTPUTS),
    RULE(STATES, 0, 1024, STATE, TE_N_STATES),
    RULE(STEPS, 0, 262144, STEP, TE_N_STEPS),
    RULE(SYMBOLS, 0, TE_MAX_SYMBOLS, SYMBOL, TE_N_SYMBOLS),
    RULE(WEIGHTS, 0, 65536, WEIGHT, TE_N_WEIGHTS),
#undef RULE
};

/* A member of a record, and its place in the model's; or, with key HEAD, the record whose members
   follow in the order of keys. */
typedef struct member {
    uint16_t key, type, place;
} member;

#define HEAD 0xffff
#define NOWHERE 0xffff /* checked, but not kept */
#define PLACE(key, type, place) {offsetof(keys, key), type, place}
#define SKIP(key, type) PLACE(key, type, NOWHERE)
#define LIST(key, type) PLACE(key, type, NOWHERE) /* all of an array of the model */
#define AS(record, key, type, field) PLACE(key, type, offsetof(te_##record, field))
#define IN(record, key, type) AS(record##_record, key, type, key)
#define LIMIT(key, type, which) PLACE(key, type, 8 * (which))

static const member members[] = {
    {HEAD, FREE, 0},
    {HEAD, BUFFER, 0}, IN(buffer, arena, INDEX), IN(buffer, bytes, NUMBER),
    IN(buffer, offset, NUMBER), IN(buffer, weight, INDEX),
    {HEAD, LAUNCH, 0}, AS(step_record, buffers, BOUND, first_buffer),
    AS(step_record, counts, COUNTS, sizes), IN(step, flops, NUMBER), IN(step, kernel, INDEX),
    IN(step, nodes, NODES), SKIP(op, ANY_TEXT),
    {HEAD, COPY, 0}, AS(step_record, bytes, EXPRESSION, sizes), IN(step, destination, INDEX),
    IN(step, destination_offset, NUMBER), SKIP(op, ANY_TEXT), IN(step, source, INDEX),
    IN(step, source_offset, NUMBER),
    {HEAD, LOOP, 0}, IN(step, body, NUMBER), IN(step, bound, STEP_SIZE),
    IN(step, condition, INDEX), SKIP(op, ANY_TEXT),
    {HEAD, WEIGHT, 0}, IN(weight, bytes, NUMBER), SKIP(dtype, DECLARED), IN(weight, name, NAME),
    AS(weight_record, segments, SEGMENTS, first_segment), SKIP(shape, WEIGHT_SHAPE),
    SKIP(storage, DTYPE),
    {HEAD, RANGE, 0}, IN(range, bytes, NUMBER), IN(range, file, INDEX), IN(range, offset, NUMBER),
    {HEAD, BINDING, 0}, PLACE(access, ACCESS, 0), SKIP(dtype, TYPE_WORD),
    {HEAD, KERNEL, 0}, AS(kernel_record, bindings, BINDINGS, first_binding),
    AS(kernel_record, bytes, NUMBER, range.bytes), IN(kernel, entry, IDENTIFIER),
    AS(kernel_record, file, INDEX, range.file), SKIP(moves, MOVES),
    AS(kernel_record, offset, NUMBER, range.offset), IN(kernel, symbols, FLAG),
    IN(kernel, workgroup, WORKGROUP),
    {HEAD, IMAGE, 0}, IN(image, buffer, INDEX), IN(image, dtype, IMAGE_DTYPE),
    IN(image, height, IMAGE_SIDE), IN(image, pitch, NUMBER), IN(image, width, IMAGE_SIDE),
    {HEAD, SYMBOL, 0}, IN(symbol, max, SIZE), IN(symbol, min, SIZE), IN(symbol, name, NAME),
    IN(symbol, step, STEP_SIZE),
    {HEAD, SLICE, 0}, IN(slice, axis, AXIS), IN(slice, name, NAME), IN(slice, size, NUMBER),
    IN(slice, start, NUMBER),
    {HEAD, PORT, 0}, IN(port, axis, AXIS), IN(port, buffer, INDEX), IN(port, count, INDEX),
    PLACE(dtype, DECLARED, 0),
    IN(port, name, NAME), AS(port_record, shape, SHAPE, rank),
    AS(port_record, slices, SLICES, first_slice), IN(port, storage, DTYPE),
    {HEAD, STATE, 0}, SKIP(axis, AXIS), IN(port, buffer, INDEX), PLACE(dtype, DECLARED, 0),
    IN(port, initial, INDEX), IN(port, name, NAME), AS(port_record, shape, SHAPE, rank),
    IN(port, storage, DTYPE), SKIP(update, UPDATE),
    {HEAD, ENTRY, 0}, AS(entry_record, inputs, PORTS, first_input), IN(entry, name, NAME),
    AS(entry_record, outputs, PORTS, first_output), AS(entry_record, steps, RANGE_OF_STEPS, first),
    {HEAD, ARENA, 0}, PLACE(bytes, ARENA_SIZE, 0),
    {HEAD, GOLDEN, 0}, IN(golden, entry, INDEX),
    AS(golden_record, inputs, GOLDEN_INPUTS, first_input), SKIP(made, ANY_TEXT),
    AS(golden_record, outputs, GOLDEN_OUTPUTS, first_output), IN(golden, seed, SEED),
    IN(golden, steps, REPEATS), AS(golden_record, symbols, GOLDEN_SYMBOLS, first_symbol),
    IN(golden, tolerance, NUMBER),
    {HEAD, GOLDEN_INPUT, 0}, AS(golden_input, bytes, NUMBER, range.bytes),
    AS(golden_input, file, INDEX, range.file), AS(golden_input, max, GOLDEN_BOUND, max),
    AS(golden_input, min, GOLDEN_BOUND, min), AS(golden_input, offset, NUMBER, range.offset),
    {HEAD, GOLDEN_OUTPUT, 0}, AS(golden_output, bytes, NUMBER, range.bytes),
    AS(golden_output, file, INDEX, range.file), AS(golden_output, offset, NUMBER, range.offset),
    AS(golden_output, stride, POSITIVE, stride),
    {HEAD, FILE_, 0}, IN(file, bytes, NUMBER), IN(file, name, ANY_TEXT), IN(file, sha256, SHA256),
    {HEAD, REQUIREMENTS, 0}, LIMIT(binding_bytes, NUMBER, TE_BINDING_BYTES),
    LIMIT(bindings, NUMBER, TE_BINDINGS), LIMIT(buffer_bytes, NUMBER, TE_BUFFER_BYTES),
    LIMIT(image_height, IMAGE_LIMIT, TE_IMAGE_HEIGHT),
    LIMIT(image_width, IMAGE_LIMIT, TE_IMAGE_WIDTH), LIMIT(invocations, NUMBER, TE_INVOCATIONS),
    LIMIT(workgroup_bytes, NUMBER, TE_WORKGROUP_BYTES), LIMIT(workgroups, NUMBER, TE_WORKGROUPS),
    {HEAD, ROOT, 0}, LIST(arenas, ARENAS), LIST(buffers, BUFFERS), LIST(entries, ENTRIES),
    SKIP(features, FEATURES), LIST(files, FILES), SKIP(format, ANY_TEXT), LIST(golden, GOLDENS),
    LIST(images, IMAGES), LIST(inputs, INPUTS), LIST(kernels, KERNELS), SKIP(options, FREE),
    LIST(outputs, OUTPUTS), SKIP(peak_bytes, NUMBER), AS(model, prelude, RANGE, prelude),
    AS(model, requirements, REQUIREMENTS, requirements), LIST(states, STATES), LIST(steps, STEPS),
    LIST(symbols, SYMBOLS), AS(model, target, TARGET_TEXT, target), SKIP(tool, SHORT_TEXT),
    SKIP(version, NUMBER), LIST(weights, WEIGHTS),
    {HEAD, FREE, 0},
};

static const char *name_of(const member *member) { return (const char *)&all_keys + member->key; }

/* Whether a record's dtype and storage, which are dtypes, fit each other. */
static bool storage_fits(const char *record) {
    te_text codes;
    return te_storage_holds(te_declared_type(te_member(record, "dtype"), &codes),
                            te_dtype_of(te_member(record, "storage")));
}

static bool input_is_plain(const char *record) {
    return te_integer(te_member(record, "count")) == -1 && !te_first(te_member(record, "slices"));
}

typedef struct walk {
    uint32_t *totals; /* so far: where the next records of each kind go */
    const char *end;  /* what follows the value just checked */
    te_error *error;
    te_model *model; /* to fill; NULL in the first walk */
    bool images;     /* whether the manifest has records of images */
} walk;

/* to: where the value goes, NULL for nowhere. */
static te_status check(walk *walk, const char *p, type type, const char *where, void *to);

#define FIELD(condition)                                                                           \
    TE_NEED(condition, TE_FIELD, "%s is of the wrong type or not allowed", where)

static const rule *rule_of(type type) { return &rules[type - ANY_TEXT]; }

static bool is_text(const char *p, type type) {
    const te_text word = te_string(p);
    const rule *rule = rule_of(type);
    te_text codes;
    switch (type) {
    case DTYPE: return te_dtype_of(p) != TE_DTYPE_OF_PORT;
    case DECLARED: return te_declared_type(p, &codes) != TE_DTYPE_OF_PORT;
    case IMAGE_DTYPE: return te_is(word, "float16") || te_is(word, "float32");
    case UPDATE: return te_is(word, "replace") || te_is(word, "shift");
    case ACCESS: return te_is(word, "read") || te_is(word, "read_write");
    case TYPE_WORD: case IDENTIFIER: case SHA256: break;
    default: return te_units(p) >= rule->least && te_units(p) <= rule->most;
    }
    if (word.length < rule->least || word.length > rule->most) return false;
    for (uint32_t i = 0; i < word.length; i++) {
        const char c = word.at[i];
        const bool letter = te_is_letter(c) && (type == IDENTIFIER || c == '_' || c >= 'a');
        const bool allowed = type == SHA256 ? c >= 'a' && c <= 'f' : letter;
        if (!allowed && !(te_is_digit(c) && (i || type != IDENTIFIER))) return false;
    }
    return true;
}

static void store(const char *p, type type, void *to) {
    if (type == INDEX) {
        const int64_t number = te_integer(p); /* one beyond 31 bits stays outside of every array */
        *(int32_t *)to = number > INT32_MAX ? INT32_MAX : (int32_t)number;
    } else if (type <= GOLDEN_BOUND) {
        *(int64_t *)to = te_integer(p);
    } else if (type == FLAG) {
        *(bool *)to = *p == 't';
    } else if (type == ACCESS) {
        *(uint8_t *)to = !te_is(te_string(p), "read");
    } else if (type == DECLARED) {
        te_port_record *port = to;
        port->dtype = te_declared_type(p, &port->codes);
    } else if (type == DTYPE || type == IMAGE_DTYPE) {
        *(te_dtype *)to = te_dtype_of(p);
    } else {
        *(te_text *)to = te_string(p);
    }
}

static TE_NOINLINE int64_t token_of(const te_model *model, const char *value) {
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

/* An expression's tokens, behind their number; `first` is the only one or that of an array. */
static te_status check_tokens(walk *walk, const char *first, uint32_t count, const char *where,
                              uint32_t *to) {
    te_error *error = walk->error;
    uint32_t start = walk->totals[TE_N_TOKENS];
    walk->totals[TE_N_TOKENS] += count + 1;
    if (to) {
        *to = start;
        walk->model->tokens[start] = count;
    }
    for (const char *at = first; count; at = te_next(at), count--) {
        FIELD(te_is_integer(at) || *at == '"');
        if (to) walk->model->tokens[++start] = token_of(walk->model, at);
    }
    return TE_OK;
}

/* What a record keeps of an array: where its elements begin in an array of the model and how many
   they are, or a shape's rank and sizes, or, if their number is fixed, only them. Where these go,
   and the bytes from one to the next. */
static char *place_elements(const walk *walk, type type, uint32_t count, void *to, size_t *bytes) {
    const rule *rule = rule_of(type);
    const uint32_t start = walk->totals[rule->total];
    if (to && rule->least != rule->most) {
        uint32_t *list = to;
        if (rule->total) *list++ = start;
        *list++ = count;
        to = list;
    }
    *bytes = rule->of == EXPRESSION ? sizeof(uint32_t) : sizeof(int64_t);
    if (!walk->model || !rule->total) return to;
    char *array = te_array(walk->model, rule->total, bytes);
    return array + start * *bytes;
}

static te_status check_array(walk *walk, const char *p, type type, const char *where, void *to) {
    te_error *error = walk->error;
    const rule *rule = rule_of(type);
    FIELD(*p == '[');
    uint32_t count = 0;
    for (const char *at = te_first(p); at; at = te_next(at)) count++;
    TE_NEED(count >= rule->least && count <= rule->most, TE_COUNT,
            "%s has %u elements, not %u to %u", where, (unsigned)count, (unsigned)rule->least,
            (unsigned)rule->most);
    if (type == EXPRESSION) {
        TE_TRY(check_tokens(walk, te_first(p), count, where, to));
        walk->end = te_skip(p);
        return TE_OK;
    }
    size_t bytes = 0;
    char *element = type == NODES ? NULL : place_elements(walk, type, count, to, &bytes);
    walk->totals[rule->total] += count;
    for (const char *at = te_first(p); at; at = te_next_from(walk->end)) {
        TE_TRY(check(walk, at, (enum type)rule->of, where, element));
        if (type == INPUTS) FIELD(input_is_plain(at));
        if (element) element += bytes;
    }
    walk->end = te_skip(p);
    if (to && type == NODES) { /* as they stand, until te_finish_strings */
        *(te_text *)to = (te_text){(char *)(uintptr_t)p, (uint32_t)(walk->end - p)};
    }
    return TE_OK;
}

/* The member that a record must have next; NULL at its end. */
static const member *wanted_from(const walk *walk, const member *at) {
    while (!walk->images && (at->type == IMAGES || at->type == IMAGE_LIMIT)) at++;
    return at->key == HEAD ? NULL : at;
}

static const member *members_of(type type) {
    const member *at = members;
    while (at->key != HEAD || at->type != type) at++;
    return at + 1;
}

static te_status check_record(walk *walk, const char *p, type type, const char *where, char *to) {
    te_error *error = walk->error;
    FIELD(*p == '{');
    const member *first = wanted_from(walk, members_of(type));
    const bool open = type == FREE || type == REQUIREMENTS; /* to other members */
    const member *wanted = first;
    int keys = 0;
    for (const char *key = te_first(p); key; key = te_next(te_value_of(key)), keys++) {
        const int order = wanted ? te_compare_key(key, name_of(wanted)) : -1;
        TE_NEED(order <= 0, TE_FIELD, "%s has no %s", where, name_of(wanted));
        TE_NEED(order == 0 || open, TE_FIELD, "%s has the unknown key %.*s", where,
                (int)te_string(key).length, key + 1);
        if (order == 0) wanted = wanted_from(walk, wanted + 1);
    }
    TE_NEED(!wanted, TE_FIELD, "%s has no %s", where, name_of(wanted));
    TE_NEED(!open || keys <= 64, TE_COUNT, "%s has %d keys, most 64", where, keys);
    wanted = first;
    const char *end = p + 2; /* of an empty record */
    for (const char *key = te_first(p); key; key = te_next_from(end)) {
        const char *value = te_value_of(key);
        if (wanted && !te_compare_key(key, name_of(wanted))) {
            void *place = to && wanted->place != NOWHERE ? to + wanted->place : NULL;
            TE_TRY(check(walk, value, (enum type)wanted->type, name_of(wanted), place));
            end = walk->end;
            wanted = wanted_from(walk, wanted + 1);
        } else {
            end = te_skip(value);
        }
    }
    if (type == PORT || type == STATE) FIELD(storage_fits(p));
    while (*end == '\n') end++;
    walk->end = te_first(p) ? end + 1 : end;
    return TE_OK;
}

static te_status check_step(walk *walk, const char *p, const char *where, te_step_record *to) {
    static const char ops[][8] = {"launch", "copy", "loop"}; /* in the order of te_op */
    te_error *error = walk->error;
    FIELD(*p == '{');
    const char *word = te_member(p, "op");
    for (int op = TE_LAUNCH; op <= TE_LOOP; op++) {
        if (!string_is(word, ops[op])) continue;
        if (to) to->op = (te_op)op;
        return check_record(walk, p, (type)(LAUNCH + op), ops[op], (char *)to);
    }
    return te_fail(error, TE_FIELD, "a step has no op that is known");
}

static te_status check(walk *walk, const char *p, type type, const char *where, void *to) {
    te_error *error = walk->error;
    if (type >= FREE) return check_record(walk, p, type, where, to);
    if (type == STEP) return check_step(walk, p, where, to);
    if (type >= SHAPE || (type == EXPRESSION && !te_is_integer(p))) {
        return check_array(walk, p, type, where, to);
    }
    walk->end = te_skip(p);
    if (type == EXPRESSION) return check_tokens(walk, p, 1, where, to);
    if (type <= GOLDEN_BOUND) {
        FIELD(te_is_integer(p) && te_integer(p) >= numbers[type].least &&
              te_integer(p) <= numbers[type].most);
    } else if (type == FLAG) {
        FIELD(*p == 't' || *p == 'f');
    } else {
        FIELD(*p == '"' && is_text(p, type));
    }
    if (to) store(p, type, to);
    return TE_OK;
}

te_status te_check_fields(const char *manifest, uint32_t totals[TE_TOTALS], te_error *error) {
    walk walk = {.totals = totals, .error = error, .images = te_lists_feature(manifest, "images")};
    memset(totals, 0, TE_TOTALS * sizeof *totals);
    return check(&walk, manifest, ROOT, "manifest", NULL);
}

te_status te_fill_records(te_model *model, te_error *error) {
    uint32_t totals[TE_TOTALS] = {0};
    walk walk = {.totals = totals, .error = error, .model = model,
                 .images = te_lists_feature(model->text, "images")};
    /* Expressions need the names of symbols, which come behind them. */
    TE_TRY(check(&walk, te_member(model->text, "symbols"), SYMBOLS, "symbols", NULL));
    memset(totals, 0, sizeof totals);
    return check(&walk, model->text, ROOT, "manifest", model);
}

const char *te_requirement_name(enum te_requirement requirement) {
    return name_of(members_of(REQUIREMENTS) + requirement);
}
