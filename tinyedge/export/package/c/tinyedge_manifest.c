/* The manifest's text: stage 1 of the format's checks, and walks over what passed it. Nothing is
   allocated: the text stays where it lies, and is well formed, so the walks need no limits. */
#include "tinyedge_internal.h"

#include <string.h>

/* --- stage 1: restricted JSON with one spelling ---------------------------------------------- */

bool te_is_digit(char c) { return c >= '0' && c <= '9'; }
bool te_is_letter(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_'; }

int te_unit(const char *p) {
    int value = 0;
    for (int i = 0; i < 4; i++) {
        const bool digit = te_is_digit(p[i]);
        if (!digit && !(p[i] >= 'a' && p[i] <= 'f')) return -1;
        value = value * 16 + (digit ? p[i] - '0' : p[i] - 'a' + 10);
    }
    return value;
}

/* Each of these returns what follows the value, or NULL where it is not as it must be. */

static const char *syntax_string(const char *p) {
    if (*p++ != '"') return NULL;
    while (*p != '"') {
        if (*p < 0x20 || *p > 0x7e) return NULL; /* the NUL at the end as well */
        if (*p++ != '\\') continue;
        if (*p == '"' || *p == '\\') {
            p++;
            continue;
        }
        if (*p++ != 'u') return NULL;
        const int high = te_unit(p);
        if (high < 0x80 || (high >= 0xdc00 && high <= 0xdfff)) return NULL;
        p += 4;
        if (high < 0xd800 || high > 0xdbff) continue;
        if (p[0] != '\\' || p[1] != 'u') return NULL;
        const int low = te_unit(p + 2);
        if (low < 0xdc00 || low > 0xdfff) return NULL;
        p += 6;
    }
    return p + 1;
}

static const char *syntax_key(const char *p) {
    if (*p++ != '"' || !te_is_letter(*p)) return NULL;
    const char *start = p;
    while (te_is_letter(*p) || te_is_digit(*p) || *p == '.' || *p == '-') p++;
    return *p == '"' && p - start <= 64 ? p + 1 : NULL;
}

static const char *syntax_integer(const char *p) {
    const bool negative = *p == '-';
    if (negative) p++;
    if (!te_is_digit(*p)) return NULL;
    if (*p == '0') return negative ? NULL : p + 1; /* a digit behind it is refused by the caller */
    int64_t value = 0;
    while (te_is_digit(*p)) {
        value = value * 10 + (*p++ - '0');
        if (value > TE_INTEGER_LIMIT) return NULL;
    }
    return p;
}

static bool key_increases(const char *before, const char *key) {
    while (*before == *key && *before != '"') before++, key++;
    if (*before == '"' || *key == '"') return *before == '"' && *key != '"';
    return (unsigned char)*before < (unsigned char)*key;
}

static const char *syntax_value(const char *p, int depth, bool lines);

/* Members or elements up to the closing bracket. lines: each on a line of its own. */
static const char *syntax_container(const char *p, int depth, bool lines) {
    const bool object = *p == '{';
    const char close = object ? '}' : ']';
    const char *before = NULL;
    if (depth > TE_DEPTH) return NULL;
    p++;
    if (*p == close && !(lines && object)) return p + 1;
    if (lines && *p++ != '\n') return NULL;
    if (lines && object && p[0] == '\n' && p[1] == close) return p + 2; /* an empty root */
    for (;;) {
        if (object) {
            const char *key = p;
            p = syntax_key(p);
            if (!p || *p++ != ':' || (before && !key_increases(before + 1, key + 1))) return NULL;
            before = key;
        }
        p = syntax_value(p, depth + 1, lines && object);
        if (!p) return NULL;
        if (*p != ',') break;
        p++;
        if (lines && *p++ != '\n') return NULL;
    }
    if (lines && *p++ != '\n') return NULL;
    return *p == close ? p + 1 : NULL;
}

static const char *syntax_value(const char *p, int depth, bool lines) {
    if (*p == '"') return syntax_string(p);
    if (*p == '{') return syntax_container(p, depth, false);
    if (*p == '[') return syntax_container(p, depth, lines);
    if (!strncmp(p, "true", 4)) return p + 4;
    if (!strncmp(p, "false", 5)) return p + 5;
    return syntax_integer(p);
}

te_status te_check_syntax(const char *text, size_t size, te_error *error) {
    TE_NEED(size <= TE_MANIFEST_LIMIT, TE_MANIFEST_SIZE, "the manifest has more than 16 MiB");
    const char *end = *text == '{' ? syntax_container(text, 1, true) : NULL;
    TE_NEED(end && end[0] == '\n' && end + 1 == text + size, TE_MANIFEST_SYNTAX,
            "the manifest is not canonical JSON");
    return TE_OK;
}

/* --- walking --------------------------------------------------------------------------------- */

static const char *skip_string(const char *p) {
    for (p++; *p != '"'; p++) {
        if (*p == '\\') p++;
    }
    return p + 1;
}

/* What follows a value. */
const char *te_skip(const char *p) {
    if (*p == '"') return skip_string(p);
    if (*p != '{' && *p != '[') {
        while (*p != ',' && *p != ']' && *p != '}' && *p != '\n') p++;
        return p;
    }
    int depth = 0;
    for (;;) {
        if (*p == '"') {
            p = skip_string(p);
            continue;
        }
        if (*p == '{' || *p == '[') depth++;
        if (*p == '}' || *p == ']') depth--;
        p++;
        if (!depth) return p;
    }
}

const char *te_first(const char *container) {
    const char *p = container + 1;
    while (*p == '\n') p++;
    return *p == ']' || *p == '}' ? NULL : p;
}

/* The element or key after the one that ends at p. */
const char *te_next_from(const char *p) {
    while (*p == '\n') p++;
    if (*p != ',') return NULL;
    p++;
    return *p == '\n' ? p + 1 : p;
}

const char *te_next(const char *value) { return te_next_from(te_skip(value)); }

/* A key has no escapes: compare it with a word. */
int te_compare_key(const char *key, const char *word) {
    const size_t length = strlen(word);
    const int order = strncmp(key + 1, word, length);
    return order ? order : key[1 + length] == '"' ? 0 : 1;
}

const char *te_value_of(const char *key) { return skip_string(key) + 1; }

const char *te_member(const char *object, const char *key) {
    for (const char *at = te_first(object); at; at = te_next(te_value_of(at))) {
        if (!te_compare_key(at, key)) return te_value_of(at);
    }
    return NULL;
}

int64_t te_integer(const char *value) {
    const bool negative = *value == '-';
    int64_t result = 0;
    for (value += negative; te_is_digit(*value); value++) result = result * 10 + (*value - '0');
    return negative ? -result : result;
}

te_text te_string(const char *value) {
    const char *end = skip_string(value);
    return (te_text){(char *)(uintptr_t)(value + 1), (uint32_t)(end - value - 2)};
}

bool te_is(te_text text, const char *word) {
    return text.length == strlen(word) && !memcmp(text.at, word, text.length);
}

bool te_same(te_text a, te_text b) {
    return a.length == b.length && !memcmp(a.at, b.at, a.length);
}

bool te_is_integer(const char *p) { return p && (te_is_digit(*p) || *p == '-'); }

/* The length of a string in UTF-16 units. */
int64_t te_units(const char *p) {
    int64_t count = 0;
    for (p++; *p != '"'; count++) p += *p != '\\' ? 1 : p[1] == 'u' ? 6 : 2;
    return count;
}
