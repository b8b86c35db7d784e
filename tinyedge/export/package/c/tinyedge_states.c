/* Files of states. The form is safetensors: the size of a header in 8 bytes, the header as JSON (of
   each tensor by name its type, shape, and where its elements lie in what follows), the elements. A
   file may come from anyone. */
#include "tinyedge_states.h"
#include "tinyedge_internal.h"

#include <stdio.h>
#include <string.h>

#define HEADER_LIMIT 100000000 /* bytes, as the form's own reader has it */
#define MOST_AXES 32           /* of what is no state */
#define PREFIX 8               /* bytes before the header, and what its size is a multiple of */

/* Failures of this file's own; those of the functions that it calls are logged there. */
#define NEED(id, condition, ...)                                                                   \
    do {                                                                                           \
        if (!(condition)) return te_finish(context, te_fail(&context->error, id, __VA_ARGS__));    \
    } while (0)

typedef struct kind {
    char name[8], dtype[14];
    int bytes;
} kind;

static const kind kinds[] = {
    {"BOOL", "bool", 1},         {"U8", "uint8", 1},   {"I8", "int8", 1},     {"U16", "uint16", 2},
    {"I16", "int16", 2},         {"U32", "uint32", 4}, {"I32", "int32", 4},   {"U64", "uint64", 8},
    {"I64", "int64", 8},         {"F16", "float16", 2}, {"BF16", "bfloat16", 2},
    {"F32", "float32", 4},       {"F64", "float64", 8}, {"F8_E4M3", "float8_e4m3fn", 1},
    {"F8_E5M2", "float8_e5m2", 1},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* What the form calls a state's elements; NULL if it has no name for them. */
static const kind *kind_of(const te_port_info *info) {
    const char *dtype = *info->codes ? info->codes : te_dtype_name(info->dtype);
    for (int i = 0; i < KINDS; i++) {
        if (!strcmp(kinds[i].dtype, dtype)) return &kinds[i];
    }
    return NULL;
}

/* A state, its shape at the sizes of the last run, and the bytes that has. */
static te_status state_of(te_context *context, int state, te_port_info *info, int64_t *bytes) {
    te_port(context->model, TE_STATES, state, info);
    TE_TRY(te_shape(context, TE_STATES, state, &info->rank, info->shape));
    *bytes = (int64_t)te_dtype_bytes(info->dtype);
    for (int axis = 0; axis < info->rank; axis++) *bytes *= info->shape[axis];
    return TE_OK;
}

/* --- writing --------------------------------------------------------------------------------- */

typedef struct image {
    unsigned char *at; /* NULL: it is only counted */
    size_t used;
} image;

static void put(image *to, const char *text) {
    const size_t length = strlen(text);
    if (to->at) memcpy(to->at + to->used, text, length);
    to->used += length;
}

/* Names have no control characters: no manifest has such. */
static void put_name(image *to, const char *name) {
    put(to, "\"");
    for (; *name; name++) {
        const char letter[] = {*name, 0};
        if (*name == '"' || *name == '\\') put(to, "\\");
        put(to, letter);
    }
    put(to, "\"");
}

static void put_number(image *to, const char *before, int64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%s%lld", before, (long long)value);
    put(to, text);
}

static te_status put_state(te_context *context, image *to, int state, int64_t *end) {
    te_port_info info;
    int64_t bytes;
    TE_TRY(state_of(context, state, &info, &bytes));
    const kind *kind = kind_of(&info);
    NEED(TE_RUN_DTYPE, kind && strcmp(info.name, "__metadata__"),
         "%s: a file of states has no place for such a type or name", info.name);
    put_name(to, info.name);
    put(to, ":{\"dtype\":\"");
    put(to, kind->name);
    put(to, "\",\"shape\":[");
    for (int axis = 0; axis < info.rank; axis++) put_number(to, axis ? "," : "", info.shape[axis]);
    put_number(to, "],\"data_offsets\":[", *end);
    *end += bytes;
    put_number(to, ",", *end);
    put(to, "]}");
    return TE_OK;
}

static te_status put_header(te_context *context, image *to, int64_t *end) {
    *end = 0;
    to->used = PREFIX;
    put(to, "{");
    for (int i = 0; i < te_port_count(context->model, TE_STATES); i++) {
        if (i) put(to, ",");
        TE_TRY(put_state(context, to, i, end));
    }
    put(to, "}");
    while (to->used % PREFIX) put(to, " ");
    const uint64_t size = to->used - PREFIX;
    if (to->at) memcpy(to->at, &size, sizeof size);
    return TE_OK;
}

te_status te_save_states(te_context *context, void *into, size_t bytes, size_t *needed) {
    image to = {NULL, 0};
    int64_t end;
    NEED(TE_API_ARGUMENT, needed, "te_save_states needs a place for the number of bytes");
    TE_TRY(put_header(context, &to, &end));
    NEED(TE_RUN_STATE, (uint64_t)end <= SIZE_MAX - to.used, "the states are too large for a file");
    *needed = to.used + (size_t)end;
    if (!into) return TE_OK;
    NEED(TE_RUN_STATE, bytes >= *needed, "the file of states needs %llu bytes, %llu were given",
         (unsigned long long)*needed, (unsigned long long)bytes);
    to.at = into;
    TE_TRY(put_header(context, &to, &end));
    for (int i = 0; i < te_port_count(context->model, TE_STATES); i++) {
        te_port_info info;
        TE_TRY(state_of(context, i, &info, &end));
        const te_tensor tensor = {.size = sizeof tensor, .data = to.at + to.used,
                                  .bytes = (size_t)end};
        TE_TRY(te_get_state(context, i, &tensor));
        to.used += tensor.bytes;
    }
    return TE_OK;
}

/* --- JSON of a header: each of these takes what it is called off the front, or says false ------ */

typedef struct text {
    const unsigned char *at, *end;
} text;

static void blank(text *from) {
    while (from->at < from->end && *from->at && strchr(" \t\n\r", *from->at)) from->at++;
}

static bool mark(text *from, char wanted) {
    blank(from);
    if (from->at == from->end || *from->at != (unsigned char)wanted) return false;
    from->at++;
    return true;
}

/* The four digits of \uXXXX; -1 for others. */
static int32_t unit(text *from) {
    int32_t value = 0;
    if (from->end - from->at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        const unsigned char c = *from->at++, small = c | 0x20;
        if (te_is_digit((char)c)) value = value * 16 + c - '0';
        else if (small >= 'a' && small <= 'f') value = value * 16 + small - 'a' + 10;
        else return -1;
    }
    return value;
}

static int utf8(int32_t code, char into[4]) {
    const int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char first[] = {0, 0xc0, 0xe0, 0xf0};
    for (int i = more; i > 0; i--, code >>= 6) into[i] = (char)(0x80 | (code & 0x3f));
    into[0] = (char)(first[more] | code);
    return more + 1;
}

/* A backslash has been taken. */
static int escaped(text *from, char into[4]) {
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    if (from->at == from->end || !*from->at) return 0;
    const char letter = (char)*from->at++, *found = strchr(letters, letter);
    if (found) {
        into[0] = meant[found - letters];
        return 1;
    }
    int32_t code = letter == 'u' ? unit(from) : -1;
    if (code < 0) return 0;
    if (code >> 10 == 0xd800 >> 10 && from->end - from->at >= 6 && from->at[0] == '\\' &&
        from->at[1] == 'u') {
        text behind = {from->at + 2, from->end};
        const int32_t low = unit(&behind);
        if (low < 0) return 0;
        if (low >> 10 == 0xdc00 >> 10) {
            code = 0x10000 + ((code & 0x3ff) << 10 | (low & 0x3ff));
            *from = behind;
        }
    }
    return utf8(code, into);
}

/* A character of a string, in UTF-8, and its bytes; 0 if it is none. */
static int character(text *from, char into[4]) {
    const unsigned char c = *from->at++;
    if (c == '\\') return escaped(from, into);
    into[0] = (char)c;
    if (c < 0x80) return c >= 0x20;
    const int more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : 1;
    if (c < 0xc2 || c > 0xf4 || from->end - from->at < more) return 0;
    const unsigned char least = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
    const unsigned char most = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
    if (*from->at < least || *from->at > most) return 0;
    for (int i = 1; i <= more; i++) {
        if (*from->at >> 6 != 2) return 0;
        into[i] = (char)*from->at++;
    }
    return more + 1;
}

/* string: what stands between the quotes, as it is spelled. */
static bool quoted(text *from, text *string) {
    char ignored[4];
    if (!mark(from, '"')) return false;
    string->at = from->at;
    while (from->at < from->end && *from->at != '"') {
        if (!character(from, ignored)) return false;
    }
    string->end = from->at;
    return mark(from, '"');
}

static bool same(text string, const char *word) {
    char letters[4];
    while (string.at < string.end) {
        const int count = character(&string, letters);
        if (!letters[0] || strncmp(word, letters, (size_t)count)) return false;
        word += count;
    }
    return !*word;
}

static bool number(text *from, int64_t *value) {
    *value = 0;
    if (mark(from, '0')) return true; /* a digit behind it is refused by the caller */
    for (; from->at < from->end && te_is_digit((char)*from->at); from->at++) {
        *value = *value * 10 + (*from->at - '0');
        if (*value > TE_INTEGER_LIMIT) return false;
    }
    return *value > 0;
}

/* A list of sizes, and how many it has; -1 if it is none. */
static int numbers(text *from, int64_t *into, int most) {
    if (!mark(from, '[')) return -1;
    if (mark(from, ']')) return 0;
    for (int count = 0; count < most;) {
        if (!number(from, &into[count++])) return -1;
        if (mark(from, ']')) return count;
        if (!mark(from, ',')) return -1;
    }
    return -1;
}

typedef struct tensor {
    text dtype;
    int rank;
    int64_t shape[MOST_AXES], place[2];
} tensor;

/* What stands behind a tensor's name: each of its facts once, in any order. */
static bool facts(text *from, tensor *found) {
    text key;
    int places = -1;
    found->dtype.at = NULL;
    found->rank = -1;
    for (int i = 0; i < 3; i++) {
        if (!mark(from, i ? ',' : '{') || !quoted(from, &key) || !mark(from, ':')) return false;
        if (same(key, "dtype") && !found->dtype.at) {
            if (!quoted(from, &found->dtype)) return false;
        } else if (same(key, "shape") && found->rank < 0) {
            found->rank = numbers(from, found->shape, MOST_AXES);
            if (found->rank < 0) return false;
        } else if (same(key, "data_offsets") && places < 0) {
            places = numbers(from, found->place, 2);
            if (places != 2) return false;
        } else {
            return false;
        }
    }
    return mark(from, '}');
}

static bool metadata(text *from) {
    text key, value;
    if (!mark(from, '{')) return false;
    if (mark(from, '}')) return true;
    do {
        if (!quoted(from, &key) || !mark(from, ':') || !quoted(from, &value)) return false;
    } while (mark(from, ','));
    return mark(from, '}');
}

/* --- where states lie ------------------------------------------------------------------------ */

/* Records lie where the header was: in JSON a tensor takes more bytes than one. The header begins
   anywhere in memory, so they are copied in and out. */
typedef struct record {
    int64_t start, end;
    int64_t state; /* -1: none */
} record;

static record record_at(const unsigned char *records, size_t index) {
    record found;
    memcpy(&found, records + index * sizeof found, sizeof found);
    return found;
}

static void set_record(unsigned char *records, size_t index, record value) {
    memcpy(records + index * sizeof value, &value, sizeof value);
}

static bool precedes(const record *a, const record *b, bool by_state) {
    if (by_state) return a->state < b->state;
    return a->start < b->start || (a->start == b->start && a->end < b->end);
}

/* Let a record sink to its place in a heap, the last above. */
static void sink(unsigned char *records, size_t at, size_t count, bool by_state) {
    const record moved = record_at(records, at);
    for (size_t below; (below = 2 * at + 1) < count; at = below) {
        record last = record_at(records, below);
        if (below + 1 < count) {
            const record other = record_at(records, below + 1);
            if (precedes(&last, &other, by_state)) last = other, below++;
        }
        if (!precedes(&moved, &last, by_state)) break;
        set_record(records, at, last);
    }
    set_record(records, at, moved);
}

static void sort(unsigned char *records, size_t count, bool by_state) {
    for (size_t i = count / 2; i-- > 0;) sink(records, i, count, by_state);
    while (count > 1) {
        const record last = record_at(records, 0);
        set_record(records, 0, record_at(records, --count));
        set_record(records, count, last);
        sink(records, 0, count, by_state);
    }
}

/* The state of a name, or -1; the one to look at first. */
static int64_t find_state(const te_model *model, text name, uint32_t first) {
    const uint32_t count = te_count(model, TE_STATES);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t state = (first + i) % count;
        if (same(name, model->ports[TE_STATES][state].name.at)) return state;
    }
    return -1;
}

/* Whether a tensor's place has the bytes of its type and shape. */
static const kind *kind_in(const tensor *found) {
    int64_t bytes;
    bool empty = false;
    for (int i = 0; i < KINDS; i++) {
        if (!same(found->dtype, kinds[i].name)) continue;
        bytes = kinds[i].bytes;
        for (int axis = 0; axis < found->rank; axis++) {
            const int64_t size = found->shape[axis];
            empty = empty || !size;
            if (!te_multiply(bytes, size ? size : 1, &bytes)) return NULL;
        }
        return found->place[1] - found->place[0] == (empty ? 0 : bytes) ? &kinds[i] : NULL;
    }
    return NULL;
}

static te_status check_state(te_context *context, int state, const tensor *found,
                             const kind *kind) {
    te_port_info info;
    int64_t bytes;
    TE_TRY(state_of(context, state, &info, &bytes));
    bool fits = kind == kind_of(&info) && found->rank == info.rank;
    for (int axis = 0; axis < info.rank && fits; axis++) {
        fits = found->shape[axis] == info.shape[axis];
    }
    NEED(TE_RUN_STATES, fits, "%s has another type or shape in the file", info.name);
    return TE_OK;
}

/* The header's tensors as records in its place, and their number. */
static te_status read_header(te_context *context, text header, unsigned char *records,
                             size_t *count) {
    const unsigned char *start = header.at;
    int64_t state = -1;
    bool more = mark(&header, '{'), described = false;
    *count = 0;
    NEED(TE_RUN_STATES, more, "the file's header is no JSON object");
    if (mark(&header, '}')) more = false;
    while (more) {
        text name;
        tensor found;
        bool right = quoted(&header, &name) && mark(&header, ':');
        if (right && same(name, "__metadata__")) {
            right = !described && metadata(&header);
            described = true;
        } else {
            right = right && facts(&header, &found);
            const kind *kind = right ? kind_in(&found) : NULL;
            right = kind != NULL;
            if (right) {
                state = find_state(context->model, name, (uint32_t)(state + 1));
                if (state >= 0) TE_TRY(check_state(context, (int)state, &found, kind));
                set_record(records, (*count)++, (record){found.place[0], found.place[1], state});
            }
        }
        NEED(TE_RUN_STATES, right, "the file's header is not as it must be before its byte %llu",
             (unsigned long long)(header.at - start));
        more = mark(&header, ',');
        NEED(TE_RUN_STATES, more || mark(&header, '}'), "the file's header does not end");
    }
    blank(&header);
    NEED(TE_RUN_STATES, header.at == header.end, "something follows the file's header");
    return TE_OK;
}

/* Every state is there once, and the elements lie one after the other and fill the rest. */
static te_status check_places(te_context *context, unsigned char *records, size_t count,
                              int64_t bytes) {
    const te_model *model = context->model;
    int64_t state = 0, end = 0;
    sort(records, count, true);
    for (size_t i = 0; i < count; i++) {
        const record found = record_at(records, i);
        if (found.state < 0) continue;
        if (found.state > state) break;
        NEED(TE_RUN_STATES, found.state == state, "%s is in the file twice",
             model->ports[TE_STATES][found.state].name.at);
        state++;
    }
    NEED(TE_RUN_STATES, state == te_count(model, TE_STATES), "the file lacks %s",
         model->ports[TE_STATES][state].name.at);
    sort(records, count, false);
    for (size_t i = 0; i < count; i++) {
        const record found = record_at(records, i);
        NEED(TE_RUN_STATES, found.start == end, "the file's elements overlap or have a gap");
        end = found.end;
    }
    NEED(TE_RUN_STATES, end == bytes, "the file has %lld bytes of elements, and lists %lld",
         (long long)bytes, (long long)end);
    return TE_OK;
}

te_status te_load_states(te_context *context, void *file, size_t bytes) {
    uint64_t size = 0;
    size_t count;
    unsigned char *records = (unsigned char *)file + PREFIX;
    NEED(TE_API_ARGUMENT, file, "te_load_states needs a file");
    NEED(TE_RUN_STATES, bytes >= PREFIX, "the file has %llu bytes", (unsigned long long)bytes);
    memcpy(&size, file, sizeof size);
    NEED(TE_RUN_STATES, size <= bytes - PREFIX && size <= HEADER_LIMIT,
         "the file has %llu bytes, its header %llu", (unsigned long long)bytes,
         (unsigned long long)size);
    unsigned char *elements = records + size;
    const text header = {records, elements};
    TE_TRY(read_header(context, header, records, &count));
    TE_TRY(check_places(context, records, count, (int64_t)(bytes - PREFIX - size)));
    for (size_t i = 0; i < count; i++) {
        const record found = record_at(records, i);
        if (found.state < 0) continue;
        const te_tensor tensor = {.size = sizeof tensor, .data = elements + found.start,
                                  .bytes = (size_t)(found.end - found.start)};
        TE_TRY(te_set_state(context, (int)found.state, &tensor));
    }
    return TE_OK;
}
