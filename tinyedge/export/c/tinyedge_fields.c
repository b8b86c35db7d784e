/* Stages 2 and 3 of the format's checks: a bundle of ours, and the shape of its records as one
   table. Nothing is allocated. */
#include "tinyedge_internal.h"

#include <string.h>

/* --- stage 2: is this ours ------------------------------------------------------------------- */

static bool string_is(const char *value, const char *word) {
    return value && *value == '"' && te_is(te_string(value), word);
}

static bool is_feature(const char *value) {
    static const char *const features[] = {"count", "entries", "if", "images",
                                           "loop",  "state",   "symbols"};
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        if (string_is(value, features[i])) return true;
    }
    return false;
}

/* Whether all characters are letters a-z, digits, or of `more`; or the first, of `first` only. */
static bool consists(te_text text, const char *first, const char *more) {
    for (uint32_t i = 0; i < text.length; i++) {
        const char c = text.at[i];
        const bool lower = c >= 'a' && c <= 'z';
        if (i == 0 && *first) {
            if (!lower && !(first[0] == '_' && te_is_letter(c))) return false;
        } else if (!lower && !te_is_digit(c) && !(*more && c != '"' && strchr(more, c))) {
            return false;
        }
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
    TE_NEED(name.length >= 1 && name.length <= 32 && consists(name, "a", ""), TE_TARGET,
            "target is no name of a target");
    TE_NEED(any_target || te_is(name, "cpu") || te_is(name, "cuda") || te_is(name, "qcom"),
            TE_TARGET, "bundles for target %.*s are not for C", (int)name.length, name.at);
    return TE_OK;
}

/* --- stage 3: the shape of the records ------------------------------------------------------- */

typedef enum kind { INTEGER, TEXT, WORD, CHOICE, FLAG, ARRAY, RECORD, STEP, EXPRESSION } kind;
typedef struct shape shape;

/* Members in the order of their keys. */
typedef struct member {
    const char *key;
    const shape *value;
} member;

/* least and most: of an integer, of a string's or array's length. */
struct shape {
    uint8_t kind;
    uint8_t total; /* what an array's elements are counted as */
    bool free;     /* a record may have other members */
    bool input;    /* a record is an input: without slices or count */
    bool port;     /* a record has a dtype, and a storage that must hold it */
    bool images;   /* a member that is there only and always with the feature of that name */
    int64_t least, most;
    const void *of; /* an array's shape, a record's members, a choice's words before spaces */
};

#define INT53 TE_INTEGER_LIMIT
#define INT31 INT64_C(2147483647)
#define NUMBER(low, high) {.kind = INTEGER, .least = (low), .most = (high)}
#define STRING(low, high) {.kind = TEXT, .least = (low), .most = (high)}
#define LIST(item, low, high, as)                                                                  \
    {.kind = ARRAY, .of = &(item), .least = (low), .most = (high), .total = (as)}
#define EXACTLY(list) {.kind = RECORD, .of = (list)}

static const shape integer = NUMBER(0, INT53), index_ = NUMBER(-1, INT53), size_ = NUMBER(0, INT31);
static const shape positive = NUMBER(1, INT53), step_size = NUMBER(1, INT31), axis = NUMBER(0, 7);
static const shape arena_size = NUMBER(0, INT64_C(1) << 40), side = NUMBER(1, 65536);
static const shape seed = NUMBER(0, INT64_C(4294967295)), repeats = NUMBER(1, 1024);
static const shape bound_ = NUMBER(-INT31 - 1, INT64_C(4294967295));
static const shape text = STRING(0, 4096), name = STRING(1, 1024), short_text = STRING(0, 64);
static const shape target_text = STRING(0, 32), flag = {.kind = FLAG};
static const shape digits = {.kind = WORD, .least = 64, .most = 64};
static const shape type_word = {.kind = WORD, .least = 1, .most = 32, .of = "_"};
static const shape identifier = {.kind = WORD, .least = 1, .most = 128, .of = "id"};
static const char dtypes[] = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 "
                             "float32 float64 ";
static const shape dtype = {.kind = CHOICE, .of = dtypes};
static const shape update = {.kind = CHOICE, .of = "replace shift "};
static const shape access_ = {.kind = CHOICE, .of = "read read_write "};
static const shape free_ = {.kind = RECORD, .free = true};
static const shape expression = {.kind = EXPRESSION, .total = TE_N_TOKENS};
static const shape extents = LIST(expression, 0, 8, TE_NOTHING);

static const member symbol_members[] = {
    {"max", &size_}, {"min", &size_}, {"name", &name}, {"step", &step_size}, {NULL, NULL}};
static const shape symbol = EXACTLY(symbol_members);
static const member slice_members[] = {
    {"axis", &axis}, {"name", &name}, {"size", &integer}, {"start", &integer}, {NULL, NULL}};
static const shape slice = EXACTLY(slice_members);
static const shape slices = LIST(slice, 0, 256, TE_N_SLICES);
static const member port_members[] = {
    {"buffer", &index_}, {"count", &index_}, {"dtype", &dtype}, {"name", &name},
    {"shape", &extents}, {"slices", &slices}, {"storage", &dtype}, {NULL, NULL}};
static const shape input = {.kind = RECORD, .of = port_members, .port = true, .input = true};
static const shape output = {.kind = RECORD, .of = port_members, .port = true};
static const member state_members[] = {
    {"axis", &axis}, {"buffer", &index_}, {"dtype", &dtype}, {"initial", &index_},
    {"name", &name}, {"shape", &extents}, {"storage", &dtype}, {"update", &update}, {NULL, NULL}};
static const shape state = {.kind = RECORD, .of = state_members, .port = true};
static const shape ports_of_entry = LIST(index_, 0, 1024, TE_N_LISTED);
static const shape steps_of_entry = LIST(integer, 2, 2, TE_NOTHING);
static const member entry_members[] = {{"inputs", &ports_of_entry}, {"name", &name},
                                       {"outputs", &ports_of_entry}, {"steps", &steps_of_entry},
                                       {NULL, NULL}};
static const shape entry = EXACTLY(entry_members);
static const member arena_members[] = {{"bytes", &arena_size}, {NULL, NULL}};
static const shape arena = EXACTLY(arena_members);
static const member buffer_members[] = {
    {"arena", &index_}, {"bytes", &integer}, {"offset", &integer}, {"weight", &index_},
    {NULL, NULL}};
static const shape buffer = EXACTLY(buffer_members);
static const member range_members[] = {
    {"bytes", &integer}, {"file", &index_}, {"offset", &integer}, {NULL, NULL}};
static const shape range = EXACTLY(range_members);
static const shape weight_shape = LIST(integer, 0, 8, TE_NOTHING);
static const shape segments = LIST(range, 1, 4096, TE_N_SEGMENTS);
static const member weight_members[] = {
    {"bytes", &integer}, {"dtype", &dtype}, {"name", &name}, {"segments", &segments},
    {"shape", &weight_shape}, {"storage", &dtype}, {NULL, NULL}};
static const shape weight = EXACTLY(weight_members);
static const member binding_members[] = {{"access", &access_}, {"dtype", &type_word}, {NULL, NULL}};
static const shape binding = EXACTLY(binding_members);
static const shape bindings = LIST(binding, 1, 64, TE_N_BINDINGS);
static const shape moves = LIST(free_, 0, 256, TE_NOTHING);
static const shape workgroup = LIST(side, 3, 3, TE_NOTHING);
static const member kernel_members[] = {
    {"bindings", &bindings}, {"bytes", &integer}, {"entry", &identifier}, {"file", &index_},
    {"moves", &moves}, {"offset", &integer}, {"symbols", &flag}, {"workgroup", &workgroup},
    {NULL, NULL}};
static const shape kernel = EXACTLY(kernel_members);
static const shape launch_buffers = LIST(index_, 0, 64, TE_N_BOUND);
static const shape counts = LIST(expression, 3, 3, TE_NOTHING);
static const shape nodes = LIST(text, 0, 1024, TE_NOTHING);
static const member launch_members[] = {
    {"buffers", &launch_buffers}, {"counts", &counts}, {"flops", &integer}, {"kernel", &index_},
    {"nodes", &nodes}, {"op", &text}, {NULL, NULL}};
static const member copy_members[] = {
    {"bytes", &expression}, {"destination", &index_}, {"destination_offset", &integer},
    {"op", &text}, {"source", &index_}, {"source_offset", &integer}, {NULL, NULL}};
static const member if_members[] = {
    {"condition", &index_}, {"op", &text}, {"otherwise", &integer}, {"then", &integer},
    {NULL, NULL}};
static const member loop_members[] = {
    {"body", &integer}, {"bound", &step_size}, {"condition", &index_}, {"op", &text}, {NULL, NULL}};
static const shape step_kinds[] = {EXACTLY(launch_members), EXACTLY(copy_members),
                                   EXACTLY(if_members), EXACTLY(loop_members)};
static const shape step = {.kind = STEP};
static const shape golden_symbols = LIST(size_, 0, 32, TE_N_GOLDEN_SYMBOLS);
static const member golden_input_members[] = {{"bytes", &integer}, {"file", &index_},
                                              {"max", &bound_}, {"min", &bound_},
                                              {"offset", &integer}, {NULL, NULL}};
static const shape golden_input = EXACTLY(golden_input_members);
static const shape golden_inputs = LIST(golden_input, 0, 1024, TE_N_GOLDEN_INPUTS);
static const member golden_output_members[] = {
    {"bytes", &integer}, {"file", &index_}, {"offset", &integer}, {"stride", &positive},
    {NULL, NULL}};
static const shape golden_output = EXACTLY(golden_output_members);
static const shape golden_outputs = LIST(golden_output, 0, 1024, TE_N_GOLDEN_OUTPUTS);
static const member golden_members[] = {
    {"entry", &index_}, {"inputs", &golden_inputs}, {"made", &text}, {"outputs", &golden_outputs},
    {"seed", &seed}, {"steps", &repeats}, {"symbols", &golden_symbols}, {"tolerance", &integer},
    {NULL, NULL}};
static const shape golden = EXACTLY(golden_members);
static const member file_members[] = {
    {"bytes", &integer}, {"name", &text}, {"sha256", &digits}, {NULL, NULL}};
static const shape file = EXACTLY(file_members);
static const shape image_limit = {.kind = INTEGER, .most = INT53, .images = true};
static const member requirement_members[] = {
    {"binding_bytes", &integer}, {"bindings", &integer}, {"buffer_bytes", &integer},
    {"image_height", &image_limit}, {"image_width", &image_limit}, {"invocations", &integer},
    {"workgroup_bytes", &integer}, {"workgroups", &integer}, {NULL, NULL}};
static const shape requirements = {.kind = RECORD, .of = requirement_members, .free = true};
static const shape image_side = NUMBER(1, 1 << 20);
static const shape image_dtype = {.kind = CHOICE, .of = "float16 float32 "};
static const member image_members[] = {
    {"buffer", &index_}, {"dtype", &image_dtype}, {"height", &image_side}, {"pitch", &integer},
    {"width", &image_side}, {NULL, NULL}};
static const shape image = EXACTLY(image_members);

static const shape arenas = LIST(arena, 0, 64, TE_N_ARENAS);
static const shape buffers = LIST(buffer, 0, 262144, TE_N_BUFFERS);
static const shape entries = LIST(entry, 1, 64, TE_N_ENTRIES);
static const shape features = LIST(short_text, 0, 64, TE_NOTHING);
static const shape files = LIST(file, 0, 4096, TE_N_FILES);
static const shape goldens = LIST(golden, 0, 64, TE_N_GOLDENS);
static const shape images = {.kind = ARRAY, .of = &image, .most = 262144, .total = TE_N_IMAGES,
                             .images = true};
static const shape inputs = LIST(input, 0, 1024, TE_N_INPUTS);
static const shape kernels = LIST(kernel, 0, 16384, TE_N_KERNELS);
static const shape outputs = LIST(output, 0, 1024, TE_N_OUTPUTS);
static const shape states = LIST(state, 0, 1024, TE_N_STATES);
static const shape steps = LIST(step, 0, 262144, TE_N_STEPS);
static const shape symbols = LIST(symbol, 0, 32, TE_N_SYMBOLS);
static const shape weights = LIST(weight, 0, 65536, TE_N_WEIGHTS);
static const member root_members[] = {
    {"arenas", &arenas}, {"buffers", &buffers}, {"entries", &entries}, {"features", &features},
    {"files", &files}, {"format", &text}, {"golden", &goldens},
    {"images", &images}, {"inputs", &inputs},
    {"kernels", &kernels}, {"options", &free_}, {"outputs", &outputs}, {"peak_bytes", &integer},
    {"prelude", &range}, {"requirements", &requirements}, {"states", &states}, {"steps", &steps},
    {"symbols", &symbols}, {"target", &target_text}, {"tool", &short_text}, {"version", &integer},
    {"weights", &weights}, {NULL, NULL}};
static const shape root = EXACTLY(root_members);

static bool storage_fits(const char *record) {
    const te_text port[] = {te_string(te_member(record, "dtype")),
                            te_string(te_member(record, "storage"))};
    int types[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        while (!te_is(port[i], te_dtype_name((te_dtype)types[i]))) types[i]++;
    }
    return te_storage_holds((te_dtype)types[0], (te_dtype)types[1]);
}

static bool input_is_plain(const char *record) {
    return te_integer(te_member(record, "count")) == -1 && !te_first(te_member(record, "slices"));
}

typedef struct walk {
    uint32_t *totals;
    const char *end; /* what follows the value just checked */
    te_error *error;
    bool images;
} walk;

static te_status check(walk *walk, const char *p, const shape *shape, const char *where);

#define FIELD(condition)                                                                           \
    TE_NEED(condition, TE_FIELD, "%s is of the wrong type or not allowed", where)

static bool is_choice(te_text word, const char *words) {
    while (*words) {
        const size_t length = strcspn(words, " ");
        if (word.length == length && !memcmp(word.at, words, length)) return true;
        words += length + 1;
    }
    return false;
}

static bool is_word(te_text word, const shape *shape) {
    if (word.length < (uint64_t)shape->least || word.length > (uint64_t)shape->most) return false;
    if (shape == &identifier) {
        for (uint32_t i = 0; i < word.length; i++) {
            if (!te_is_letter(word.at[i]) && (i == 0 || !te_is_digit(word.at[i]))) return false;
        }
        return true;
    }
    if (shape == &type_word) return consists(word, "", "_");
    for (uint32_t i = 0; i < word.length; i++) {
        if (!te_is_digit(word.at[i]) && !(word.at[i] >= 'a' && word.at[i] <= 'f')) return false;
    }
    return true;
}

static te_status check_array(walk *walk, const char *p, const shape *shape, const char *where) {
    te_error *error = walk->error;
    FIELD(*p == '[');
    int64_t count = 0;
    for (const char *at = te_first(p); at; at = te_next(at)) count++;
    TE_NEED(count >= shape->least && count <= shape->most, TE_COUNT,
            "%s has %lld elements, not %lld to %lld", where, (long long)count,
            (long long)shape->least, (long long)shape->most);
    walk->totals[shape->total] += (uint32_t)count;
    const char *at = te_first(p);
    while (at) {
        TE_TRY(check(walk, at, shape->of, where));
        at = te_next_from(walk->end);
    }
    walk->end = te_skip(p);
    return TE_OK;
}

/* The first of members that a record of this manifest has; NULL if there is none. */
static const member *wanted_of(const walk *walk, const member *members) {
    while (members && members->key && members->value->images && !walk->images) members++;
    return members && members->key ? members : NULL;
}

static te_status check_record(walk *walk, const char *p, const shape *shape, const char *where) {
    te_error *error = walk->error;
    FIELD(*p == '{');
    const member *wanted = wanted_of(walk, shape->of);
    int keys = 0;
    for (const char *key = te_first(p); key; key = te_next(te_value_of(key)), keys++) {
        const int order = wanted ? te_compare_key(key, wanted->key) : -1;
        TE_NEED(order <= 0, TE_FIELD, "%s has no %s", where, wanted->key);
        TE_NEED(order == 0 || shape->free, TE_FIELD, "%s has the unknown key %.*s", where,
                (int)te_string(key).length, key + 1);
        if (order == 0) wanted = wanted_of(walk, wanted + 1);
    }
    TE_NEED(!wanted, TE_FIELD, "%s has no %s", where, wanted->key);
    TE_NEED(!shape->free || keys <= 64, TE_COUNT, "%s has %d keys, most 64", where, keys);
    wanted = wanted_of(walk, shape->of);
    const char *key = te_first(p);
    const char *end = p + 2; /* of an empty record */
    while (key) {
        const char *value = te_value_of(key);
        if (wanted && !te_compare_key(key, wanted->key)) {
            TE_TRY(check(walk, value, wanted->value, wanted->key));
            end = walk->end;
            wanted = wanted_of(walk, wanted + 1);
        } else {
            end = te_skip(value);
        }
        key = te_next_from(end);
    }
    if (shape->port) FIELD(storage_fits(p));
    if (shape->input) FIELD(input_is_plain(p));
    while (*end == '\n') end++;
    walk->end = te_first(p) ? end + 1 : end;
    return TE_OK;
}

static te_status check_step(walk *walk, const char *p, const char *where) {
    static const char *const ops[] = {"launch", "copy", "if", "loop"};
    te_error *error = walk->error;
    FIELD(*p == '{');
    const char *op = te_member(p, "op");
    for (int i = 0; i < 4; i++) {
        if (string_is(op, ops[i])) return check_record(walk, p, &step_kinds[i], ops[i]);
    }
    return te_fail(error, TE_FIELD, "a step has no op that is known");
}

static te_status check_expression(walk *walk, const char *p, const char *where) {
    te_error *error = walk->error;
    uint32_t count = 1;
    FIELD(te_is_integer(p) || *p == '[');
    if (*p == '[') {
        count = 0;
        for (const char *at = te_first(p); at; at = te_next(at)) count++;
        TE_NEED(count >= 1 && count <= TE_TOKENS, TE_COUNT, "an expression has %u tokens", count);
        for (const char *at = te_first(p); at; at = te_next(at)) {
            FIELD(te_is_integer(at) || *at == '"');
        }
    }
    walk->totals[TE_N_TOKENS] += count + 1;
    walk->end = te_skip(p);
    return TE_OK;
}

static te_status check(walk *walk, const char *p, const shape *shape, const char *where) {
    te_error *error = walk->error;
    if (shape->kind == ARRAY) return check_array(walk, p, shape, where);
    if (shape->kind == RECORD) return check_record(walk, p, shape, where);
    if (shape->kind == STEP) return check_step(walk, p, where);
    if (shape->kind == EXPRESSION) return check_expression(walk, p, where);
    walk->end = te_skip(p);
    if (shape->kind == INTEGER) {
        FIELD(te_is_integer(p) && te_integer(p) >= shape->least && te_integer(p) <= shape->most);
    } else if (shape->kind == FLAG) {
        FIELD(*p == 't' || *p == 'f');
    } else {
        FIELD(*p == '"');
        if (shape->kind == TEXT) FIELD(te_units(p) >= shape->least && te_units(p) <= shape->most);
        if (shape->kind == WORD) FIELD(is_word(te_string(p), shape));
        if (shape->kind == CHOICE) FIELD(is_choice(te_string(p), shape->of));
    }
    return TE_OK;
}

te_status te_check_fields(const char *manifest, uint32_t totals[TE_TOTALS], te_error *error) {
    walk walk = {totals, NULL, error, te_lists_feature(manifest, "images")};
    memset(totals, 0, TE_TOTALS * sizeof *totals);
    return check(&walk, manifest, &root, "manifest");
}
