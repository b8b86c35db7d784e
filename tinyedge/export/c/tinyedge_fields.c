/* Stages 2 and 3 of the format's checks: a bundle of ours, and the shape of its records as one
   table. Nothing is allocated. */
#include "tinyedge_internal.h"

#include <string.h>

/* --- stage 2: is this ours ------------------------------------------------------------------- */

static bool string_is(const char *value, const char *word) {
    return value && *value == '"' && te_is(te_string(value), word);
}

static bool is_feature(const char *value) {
    static const char features[][8] = {"count", "entries", "if",     "images",
                                       "loop",  "state",   "symbols"};
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
    X(op) X(options) X(otherwise) X(outputs) X(peak_bytes) X(pitch) X(prelude) X(requirements)     \
    X(seed) X(segments) X(sha256) X(shape) X(size) X(slices) X(source) X(source_offset) X(start)   \
    X(states) X(step) X(steps) X(storage) X(stride) X(symbols) X(target) X(then) X(tolerance)      \
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
    FREE, SYMBOL, SLICE, INPUT, OUTPUT, STATE, ENTRY, ARENA, BUFFER, IMAGE, RANGE, WEIGHT, BINDING,
    KERNEL, LAUNCH, COPY, IF, LOOP, GOLDEN, GOLDEN_INPUT, GOLDEN_OUTPUT, FILE_, REQUIREMENTS, ROOT
} type;

/* least, most: of a number, of a text's or array's length. of: what an array's elements are, and
   total what they are counted as. */
typedef struct rule {
    int64_t most;
    int32_t least;
    uint8_t of, total;
} rule;

#define INT31 INT64_C(2147483647)
#define INT32 INT64_C(4294967295)

static const rule rules[FREE] = {
    [NUMBER] = {TE_INTEGER_LIMIT, 0, 0, 0},
    [IMAGE_LIMIT] = {TE_INTEGER_LIMIT, 0, 0, 0},
    [INDEX] = {TE_INTEGER_LIMIT, -1, 0, 0},
    [POSITIVE] = {TE_INTEGER_LIMIT, 1, 0, 0},
    [SIZE] = {INT31, 0, 0, 0},
    [STEP_SIZE] = {INT31, 1, 0, 0},
    [AXIS] = {TE_MAX_RANK - 1, 0, 0, 0},
    [ARENA_SIZE] = {INT64_C(1) << 40, 0, 0, 0},
    [IMAGE_SIDE] = {1 << 20, 1, 0, 0},
    [SIDE] = {1 << 16, 1, 0, 0},
    [SEED] = {INT32, 0, 0, 0},
    [REPEATS] = {1024, 1, 0, 0},
    [GOLDEN_BOUND] = {INT32, INT32_MIN, 0, 0},
    [ANY_TEXT] = {4096, 0, 0, 0},
    [SHORT_TEXT] = {64, 0, 0, 0},
    [TARGET_TEXT] = {32, 0, 0, 0},
    [NAME] = {1024, 1, 0, 0},
    [TYPE_WORD] = {32, 1, 0, 0},
    [IDENTIFIER] = {128, 1, 0, 0},
    [SHA256] = {64, 64, 0, 0},
    [EXPRESSION] = {TE_TOKENS, 1, 0, TE_N_TOKENS},
    [SHAPE] = {TE_MAX_RANK, 0, EXPRESSION, 0},
    [SLICES] = {256, 0, SLICE, TE_N_SLICES},
    [PORTS] = {1024, 0, INDEX, TE_N_LISTED},
    [RANGE_OF_STEPS] = {2, 2, NUMBER, 0},
    [SEGMENTS] = {4096, 1, RANGE, TE_N_SEGMENTS},
    [WEIGHT_SHAPE] = {TE_MAX_RANK, 0, NUMBER, 0},
    [BINDINGS] = {TE_MOST_BINDINGS, 1, BINDING, TE_N_BINDINGS},
    [MOVES] = {256, 0, FREE, 0},
    [WORKGROUP] = {3, 3, SIDE, 0},
    [BOUND] = {TE_MOST_BINDINGS, 0, INDEX, TE_N_BOUND},
    [COUNTS] = {3, 3, EXPRESSION, 0},
    [NODES] = {1024, 0, ANY_TEXT, 0},
    [GOLDEN_SYMBOLS] = {TE_MAX_SYMBOLS, 0, SIZE, TE_N_GOLDEN_SYMBOLS},
    [GOLDEN_INPUTS] = {1024, 0, GOLDEN_INPUT, TE_N_GOLDEN_INPUTS},
    [GOLDEN_OUTPUTS] = {1024, 0, GOLDEN_OUTPUT, TE_N_GOLDEN_OUTPUTS},
    [ARENAS] = {64, 0, ARENA, TE_N_ARENAS},
    [BUFFERS] = {262144, 0, BUFFER, TE_N_BUFFERS},
    [ENTRIES] = {64, 1, ENTRY, TE_N_ENTRIES},
    [FEATURES] = {64, 0, SHORT_TEXT, 0},
    [FILES] = {4096, 0, FILE_, TE_N_FILES},
    [GOLDENS] = {64, 0, GOLDEN, TE_N_GOLDENS},
    [IMAGES] = {262144, 0, IMAGE, TE_N_IMAGES},
    [INPUTS] = {1024, 0, INPUT, TE_N_INPUTS},
    [KERNELS] = {16384, 0, KERNEL, TE_N_KERNELS},
    [OUTPUTS] = {1024, 0, OUTPUT, TE_N_OUTPUTS},
    [STATES] = {1024, 0, STATE, TE_N_STATES},
    [STEPS] = {262144, 0, STEP, TE_N_STEPS},
    [SYMBOLS] = {TE_MAX_SYMBOLS, 0, SYMBOL, TE_N_SYMBOLS},
    [WEIGHTS] = {65536, 0, WEIGHT, TE_N_WEIGHTS},
};

/* A member of a record; or, with key HEAD, the record whose members follow in the order of keys. */
typedef struct member {
    uint16_t key, type;
} member;

#define HEAD 0xffff
#define KEY(key) offsetof(keys, key)

static const member members[] = {
    {HEAD, FREE},
    {HEAD, BUFFER}, {KEY(arena), INDEX}, {KEY(bytes), NUMBER}, {KEY(offset), NUMBER},
    {KEY(weight), INDEX},
    {HEAD, LAUNCH}, {KEY(buffers), BOUND}, {KEY(counts), COUNTS}, {KEY(flops), NUMBER},
    {KEY(kernel), INDEX}, {KEY(nodes), NODES}, {KEY(op), ANY_TEXT},
    {HEAD, COPY}, {KEY(bytes), EXPRESSION}, {KEY(destination), INDEX},
    {KEY(destination_offset), NUMBER}, {KEY(op), ANY_TEXT}, {KEY(source), INDEX},
    {KEY(source_offset), NUMBER},
    {HEAD, IF}, {KEY(condition), INDEX}, {KEY(op), ANY_TEXT}, {KEY(otherwise), NUMBER},
    {KEY(then), NUMBER},
    {HEAD, LOOP}, {KEY(body), NUMBER}, {KEY(bound), STEP_SIZE}, {KEY(condition), INDEX},
    {KEY(op), ANY_TEXT},
    {HEAD, WEIGHT}, {KEY(bytes), NUMBER}, {KEY(dtype), DECLARED}, {KEY(name), NAME},
    {KEY(segments), SEGMENTS}, {KEY(shape), WEIGHT_SHAPE}, {KEY(storage), DTYPE},
    {HEAD, RANGE}, {KEY(bytes), NUMBER}, {KEY(file), INDEX}, {KEY(offset), NUMBER},
    {HEAD, BINDING}, {KEY(access), ACCESS}, {KEY(dtype), TYPE_WORD},
    {HEAD, KERNEL}, {KEY(bindings), BINDINGS}, {KEY(bytes), NUMBER}, {KEY(entry), IDENTIFIER},
    {KEY(file), INDEX}, {KEY(moves), MOVES}, {KEY(offset), NUMBER}, {KEY(symbols), FLAG},
    {KEY(workgroup), WORKGROUP},
    {HEAD, IMAGE}, {KEY(buffer), INDEX}, {KEY(dtype), IMAGE_DTYPE}, {KEY(height), IMAGE_SIDE},
    {KEY(pitch), NUMBER}, {KEY(width), IMAGE_SIDE},
    {HEAD, SYMBOL}, {KEY(max), SIZE}, {KEY(min), SIZE}, {KEY(name), NAME}, {KEY(step), STEP_SIZE},
    {HEAD, SLICE}, {KEY(axis), AXIS}, {KEY(name), NAME}, {KEY(size), NUMBER}, {KEY(start), NUMBER},
    {HEAD, INPUT}, {KEY(buffer), INDEX}, {KEY(count), INDEX}, {KEY(dtype), DECLARED},
    {KEY(name), NAME}, {KEY(shape), SHAPE}, {KEY(slices), SLICES}, {KEY(storage), DTYPE},
    {HEAD, OUTPUT}, {KEY(buffer), INDEX}, {KEY(count), INDEX}, {KEY(dtype), DECLARED},
    {KEY(name), NAME}, {KEY(shape), SHAPE}, {KEY(slices), SLICES}, {KEY(storage), DTYPE},
    {HEAD, STATE}, {KEY(axis), AXIS}, {KEY(buffer), INDEX}, {KEY(dtype), DECLARED},
    {KEY(initial), INDEX}, {KEY(name), NAME}, {KEY(shape), SHAPE}, {KEY(storage), DTYPE},
    {KEY(update), UPDATE},
    {HEAD, ENTRY}, {KEY(inputs), PORTS}, {KEY(name), NAME}, {KEY(outputs), PORTS},
    {KEY(steps), RANGE_OF_STEPS},
    {HEAD, ARENA}, {KEY(bytes), ARENA_SIZE},
    {HEAD, GOLDEN}, {KEY(entry), INDEX}, {KEY(inputs), GOLDEN_INPUTS}, {KEY(made), ANY_TEXT},
    {KEY(outputs), GOLDEN_OUTPUTS}, {KEY(seed), SEED}, {KEY(steps), REPEATS},
    {KEY(symbols), GOLDEN_SYMBOLS}, {KEY(tolerance), NUMBER},
    {HEAD, GOLDEN_INPUT}, {KEY(bytes), NUMBER}, {KEY(file), INDEX}, {KEY(max), GOLDEN_BOUND},
    {KEY(min), GOLDEN_BOUND}, {KEY(offset), NUMBER},
    {HEAD, GOLDEN_OUTPUT}, {KEY(bytes), NUMBER}, {KEY(file), INDEX}, {KEY(offset), NUMBER},
    {KEY(stride), POSITIVE},
    {HEAD, FILE_}, {KEY(bytes), NUMBER}, {KEY(name), ANY_TEXT}, {KEY(sha256), SHA256},
    {HEAD, REQUIREMENTS}, {KEY(binding_bytes), NUMBER}, {KEY(bindings), NUMBER},
    {KEY(buffer_bytes), NUMBER}, {KEY(image_height), IMAGE_LIMIT}, {KEY(image_width), IMAGE_LIMIT},
    {KEY(invocations), NUMBER}, {KEY(workgroup_bytes), NUMBER}, {KEY(workgroups), NUMBER},
    {HEAD, ROOT}, {KEY(arenas), ARENAS}, {KEY(buffers), BUFFERS}, {KEY(entries), ENTRIES},
    {KEY(features), FEATURES}, {KEY(files), FILES}, {KEY(format), ANY_TEXT},
    {KEY(golden), GOLDENS}, {KEY(images), IMAGES}, {KEY(inputs), INPUTS}, {KEY(kernels), KERNELS},
    {KEY(options), FREE}, {KEY(outputs), OUTPUTS}, {KEY(peak_bytes), NUMBER}, {KEY(prelude), RANGE},
    {KEY(requirements), REQUIREMENTS}, {KEY(states), STATES}, {KEY(steps), STEPS},
    {KEY(symbols), SYMBOLS}, {KEY(target), TARGET_TEXT}, {KEY(tool), SHORT_TEXT},
    {KEY(version), NUMBER}, {KEY(weights), WEIGHTS},
    {HEAD, FREE},
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
    uint32_t *totals;
    const char *end; /* what follows the value just checked */
    te_error *error;
    bool images; /* whether the manifest has records of images */
} walk;

static te_status check(walk *walk, const char *p, type type, const char *where);

#define FIELD(condition)                                                                           \
    TE_NEED(condition, TE_FIELD, "%s is of the wrong type or not allowed", where)

static bool is_text(const char *p, type type) {
    const te_text word = te_string(p);
    te_text codes;
    switch (type) {
    case DTYPE: return te_dtype_of(p) != TE_DTYPE_OF_PORT;
    case DECLARED: return te_declared_type(p, &codes) != TE_DTYPE_OF_PORT;
    case IMAGE_DTYPE: return te_is(word, "float16") || te_is(word, "float32");
    case UPDATE: return te_is(word, "replace") || te_is(word, "shift");
    case ACCESS: return te_is(word, "read") || te_is(word, "read_write");
    case TYPE_WORD: case IDENTIFIER: case SHA256: break;
    default: return te_units(p) >= rules[type].least && te_units(p) <= rules[type].most;
    }
    if (word.length < (uint64_t)rules[type].least || word.length > (uint64_t)rules[type].most) {
        return false;
    }
    for (uint32_t i = 0; i < word.length; i++) {
        const char c = word.at[i];
        const bool letter = te_is_letter(c) && (type == IDENTIFIER || c == '_' || c >= 'a');
        const bool allowed = type == SHA256 ? c >= 'a' && c <= 'f' : letter;
        if (!allowed && !(te_is_digit(c) && (i || type != IDENTIFIER))) return false;
    }
    return true;
}

static te_status check_array(walk *walk, const char *p, type type, const char *where) {
    te_error *error = walk->error;
    const rule *rule = &rules[type];
    FIELD(*p == '[');
    int64_t count = 0;
    for (const char *at = te_first(p); at; at = te_next(at)) count++;
    TE_NEED(count >= rule->least && count <= rule->most, TE_COUNT,
            "%s has %lld elements, not %d to %lld", where, (long long)count, (int)rule->least,
            (long long)rule->most);
    walk->totals[rule->total] += (uint32_t)count;
    if (type == EXPRESSION) {
        for (const char *at = te_first(p); at; at = te_next(at)) {
            FIELD(te_is_integer(at) || *at == '"');
        }
        walk->totals[rule->total]++; /* their number comes first */
    } else {
        for (const char *at = te_first(p); at; at = te_next_from(walk->end)) {
            TE_TRY(check(walk, at, (enum type)rule->of, where));
        }
    }
    walk->end = te_skip(p);
    return TE_OK;
}

/* The member that a record must have next; NULL at its end. */
static const member *wanted_from(const walk *walk, const member *at) {
    while (!walk->images && (at->type == IMAGES || at->type == IMAGE_LIMIT)) at++;
    return at->key == HEAD ? NULL : at;
}

static te_status check_record(walk *walk, const char *p, type type, const char *where) {
    te_error *error = walk->error;
    FIELD(*p == '{');
    const member *first = members;
    while (first->key != HEAD || first->type != type) first++;
    first = wanted_from(walk, first + 1);
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
            TE_TRY(check(walk, value, (enum type)wanted->type, name_of(wanted)));
            end = walk->end;
            wanted = wanted_from(walk, wanted + 1);
        } else {
            end = te_skip(value);
        }
    }
    if (type == INPUT || type == OUTPUT || type == STATE) FIELD(storage_fits(p));
    if (type == INPUT) FIELD(input_is_plain(p));
    while (*end == '\n') end++;
    walk->end = te_first(p) ? end + 1 : end;
    return TE_OK;
}

static te_status check_step(walk *walk, const char *p, const char *where) {
    static const char ops[][8] = {"launch", "copy", "if", "loop"};
    te_error *error = walk->error;
    FIELD(*p == '{');
    const char *op = te_member(p, "op");
    for (int i = 0; i < 4; i++) {
        if (string_is(op, ops[i])) return check_record(walk, p, (type)(LAUNCH + i), ops[i]);
    }
    return te_fail(error, TE_FIELD, "a step has no op that is known");
}

static te_status check(walk *walk, const char *p, type type, const char *where) {
    te_error *error = walk->error;
    if (type >= FREE) return check_record(walk, p, type, where);
    if (type == STEP) return check_step(walk, p, where);
    if (type >= SHAPE || (type == EXPRESSION && !te_is_integer(p))) {
        return check_array(walk, p, type, where);
    }
    walk->end = te_skip(p);
    if (type == EXPRESSION) {
        walk->totals[TE_N_TOKENS] += 2;
    } else if (type <= GOLDEN_BOUND) {
        FIELD(te_is_integer(p) && te_integer(p) >= rules[type].least &&
              te_integer(p) <= rules[type].most);
    } else if (type == FLAG) {
        FIELD(*p == 't' || *p == 'f');
    } else {
        FIELD(*p == '"' && is_text(p, type));
    }
    return TE_OK;
}

te_status te_check_fields(const char *manifest, uint32_t totals[TE_TOTALS], te_error *error) {
    walk walk = {totals, NULL, error, te_lists_feature(manifest, "images")};
    memset(totals, 0, TE_TOTALS * sizeof *totals);
    return check(&walk, manifest, ROOT, "manifest");
}
