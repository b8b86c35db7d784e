/* Which of a bundle's programs this processor can run. */
#include "tinyedge_cpu.h"
#include "tinyedge_internal.h"

#include <string.h>

/* The first instruction set that the processor lacks, or NULL. */
static const char *lacking(const te_kernels *kernels) {
    for (const char *const *word = kernels->needs; word && *word; word++) {
        if (!te_processor_has(*word)) return *word;
    }
    return NULL;
}

te_status te_check_needs(const te_kernels *kernels, te_error *error) {
    const char *lacks = lacking(kernels);
    TE_NEED(!lacks, TE_DEVICE_LIMITS, "variant %s needs %s, which this processor lacks",
            kernels->variant, lacks);
    TE_NEED(kernels->table || !kernels->variant, TE_DEVICE_LIMITS,
            "variant %s was not compiled: it is for another kind of processor", kernels->variant);
    return TE_OK;
}

/* Adds words behind what is in a text, as far as there is room. */
static void add(char *text, size_t bytes, const char *words) {
    const size_t used = strlen(text);
    strncat(text, words, bytes - used - 1);
}

/* There is no variant of this name: the message lists those there are. */
static te_status refuse_name(const te_kernels *kernels, const char *name, te_error *error) {
    char text[200] = "";
    for (const te_kernels *const *at = kernels->choices; *at; at++) {
        add(text, sizeof text, *text ? ", " : "");
        add(text, sizeof text, (*at)->variant);
    }
    return te_fail(error, TE_API_ARGUMENT, "there is no variant %s; there are %s", name, text);
}

/* What each of the programs lacks. */
static te_status refuse(const te_kernels *kernels, te_error *error) {
    char text[200] = "";
    for (const te_kernels *const *at = kernels->choices; *at; at++) {
        const char *lacks = lacking(*at);
        add(text, sizeof text, *text ? ", " : "");
        add(text, sizeof text, (*at)->variant);
        add(text, sizeof text, lacks ? " needs " : " was not compiled");
        add(text, sizeof text, lacks ? lacks : "");
    }
    return te_fail(error, TE_DEVICE_LIMITS, "no variant fits this processor: %s", text);
}

static te_status choose(const te_kernels *kernels, const char *name, const te_kernels **chosen,
                        te_error *error) {
    te_error unwanted;
    TE_NEED(kernels, TE_API_ARGUMENT, "te_choose needs kernels");
    *chosen = kernels;
    if (!kernels->choices) {
        TE_NEED(!name, TE_API_ARGUMENT, "the bundle has no variants");
        return TE_OK;
    }
    for (const te_kernels *const *at = kernels->choices; *at; at++) {
        *chosen = *at;
        if (name && !strcmp((*at)->variant, name)) return te_check_needs(*at, error);
        if (!name && !te_check_needs(*at, &unwanted)) return TE_OK;
    }
    return name ? refuse_name(kernels, name, error) : refuse(kernels, error);
}

const te_kernels *te_choose(const te_kernels *kernels, const char *name, te_error *error) {
    te_error unwanted;
    const te_kernels *chosen = NULL;
    error = te_no_error(error ? error : &unwanted);
    return choose(kernels, name, &chosen, error) ? NULL : chosen;
}
