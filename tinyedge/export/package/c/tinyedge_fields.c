/* Stages 2 and 3 of the format's checks: a bundle of ours, and the shape of its records as one
   table, which also says where they go in the model. The manifest is walked twice: to check and
   count, and, once there is memory for as many, to fill it. Nothing is allocated. */
#include "tinyedge_internal.h"

#include <string.h>

/* --- stage 3: the shape of the records ------------------------------------------------------- */

/* least, most: of a number. */
typedef struct number_rule {
    int64_t least, most;
} number_rule;

/* least, most: of a text's or array's length. of: what an array's elements are, and total what they
   are counted as. */
typedef struct rule {
    uint32_t most;
    uint8_t least, of, total;
} rule;

/* A member of a record, and its place in the model's; or, with key HEAD, the record whose members
   follow in the order of keys. */
typedef struct member {
    uint16_t key, type, place;
} member;

#define HEAD 0xffff
#define NOWHERE 0xffff /* checked, but not kept; also all of an array of the model */
#define RULE(type, least, most, of, total) [type - ANY_TEXT] = {most, least, of, total}
#define PLACE(key, type, place) {offsetof(keys, key), type, place}
#define SKIP(key, type) PLACE(key, type, NOWHERE)
#define AS(record, key, type, field) PLACE(key, type, offsetof(te_##record, field))
#define LIMIT(key, type, which) PLACE(key, type, 8 * (which))
#define FIELD_OF(key) char key[sizeof #key];
#define TEXT_OF(key) #key,
#include "tinyedge_schema.h"
static const keys all_keys = {KEYS(TEXT_OF)};

/* --- stage 2: is this ours ------------------------------------------------------------------- */

static bool string_is(const char *value, const char *word) {
    return value && *value == '"' && te_is(te_string(value), word);
}

static bool is_feature(const char *value) {
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
    TE_NEED(any_target || !te_is(name, "webgpu"), TE_TARGET,
            "bundles for target webgpu are not for C");
    return TE_OK;
}

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
    bool images, variants; /* whether the manifest has records of these */
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
    for (; at->key != HEAD; at++) {
        const bool images = at->type == IMAGES || at->type == IMAGE_LIMIT;
        const bool variants = at->type == VARIANT || at->type == VARIANTS;
        if ((walk->images || !images) && (walk->variants || !variants)) return at;
    }
    return NULL;
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

static walk begin(const char *manifest, uint32_t totals[TE_TOTALS], te_error *error) {
    memset(totals, 0, TE_TOTALS * sizeof *totals);
    return (walk){.totals = totals, .error = error, .images = te_lists_feature(manifest, "images"),
                  .variants = te_lists_feature(manifest, "variants")};
}

te_status te_check_fields(const char *manifest, uint32_t totals[TE_TOTALS], te_error *error) {
    walk walk = begin(manifest, totals, error);
    return check(&walk, manifest, ROOT, "manifest", NULL);
}

te_status te_fill_records(te_model *model, te_error *error) {
    uint32_t totals[TE_TOTALS];
    walk walk = begin(model->text, totals, error);
    walk.model = model;
    /* Expressions need the names of symbols, which come behind them. */
    TE_TRY(check(&walk, te_member(model->text, "symbols"), SYMBOLS, "symbols", NULL));
    memset(totals, 0, sizeof totals);
    return check(&walk, model->text, ROOT, "manifest", model);
}

const char *te_requirement_name(enum te_requirement requirement) {
    return name_of(members_of(REQUIREMENTS) + requirement);
}
