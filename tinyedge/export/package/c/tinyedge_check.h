/* What the files of the checks share. */
#ifndef TINYEDGE_CHECK_H
#define TINYEDGE_CHECK_H

#include "tinyedge_internal.h"

#define NEED(status, condition, ...)                                                               \
    do {                                                                                           \
        if (!(condition)) return te_fail(error, status, __VA_ARGS__);                              \
    } while (0)
#define TOTAL(kind) (model->totals[TE_N_##kind])
#define TE_TEXT_ARGS(text) (int)(text).length, (text).at

/* The symbols at one end of their ranges. */
typedef struct sizes {
    int64_t values[TE_MAX_SYMBOLS];
} sizes;

bool te_starts(te_text text, const char *word);
bool te_in_arena(const te_model *model, int32_t buffer);

te_status te_check_ranges(const te_model *model, const sizes ends[2], te_error *error);
te_status te_check_overlaps(const te_model *model, const sizes ends[2], te_error *error);
te_status te_check_requirements(const te_model *model, const sizes ends[2], te_error *error);

#endif
