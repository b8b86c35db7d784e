/* What backends of drivers share: the driver's library, and which of its devices is wanted. */
#include "tinyedge_internal.h"

#include <dlfcn.h>
#include <string.h>

void *te_open_library(const char *library, const char *const *places) {
    void *handle = NULL;
    if (library) return dlopen(library, RTLD_NOW | RTLD_LOCAL);
    for (; !handle && *places; places++) handle = dlopen(*places, RTLD_NOW | RTLD_LOCAL);
    return handle;
}

const char *te_find_functions(void *handle, const char *names, void *table) {
    unsigned char *to = table;
    for (; *names; names += strlen(names) + 1) {
        void *function = dlsym(handle, names);
        if (!function) return names;
        memcpy(to, &function, sizeof function);
        to += sizeof function;
    }
    return NULL;
}

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 'a' - 'A') : c; }

bool te_contains(const char *text, const char *part) {
    for (;; text++) {
        size_t i = 0;
        while (part[i] && lower(text[i]) == lower(part[i])) i++;
        if (!part[i]) return true;
        if (!*text) return false;
    }
}

bool te_is_wanted(const char *wanted, uint32_t number, const char *name) {
    uint64_t digits = 0;
    if (!wanted || !*wanted) return true;
    const char *at = wanted;
    for (; te_is_digit(*at) && digits <= UINT32_MAX; at++) {
        digits = digits * 10 + (uint64_t)(*at - '0');
    }
    return *at ? te_contains(name, wanted) : digits == number;
}
