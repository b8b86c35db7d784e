/* Pictures as inputs: their planes as tensors with strides. */
#include "tinyedge_image.h"
#include "tinyedge_internal.h"

#include <string.h>

enum { ROWS, COLUMNS, CHANNELS };

#define NEED(id, condition, ...)                                                                   \
    do {                                                                                           \
        if (!(condition)) return te_finish(context, te_fail(&context->error, id, __VA_ARGS__));    \
    } while (0)

/* The input of an nv12 picture's chroma: NAME.uv, of which NAME is the luma's; -1: there is none. */
static int chroma_of(const te_model *model, const char *luma) {
    const size_t length = strlen(luma);
    te_port_info info;
    for (int index = 0; te_port(model, TE_INPUTS, index, &info); index++) {
        if (!strncmp(info.name, luma, length) && !strcmp(info.name + length, ".uv")) return index;
    }
    return -1;
}

/* Bind rows of pixels: `data` and `bytes` are their memory, shape has all axes of the port. */
static te_status bind_rows(te_context *context, int input, void *data, size_t bytes, int rank,
                           const int64_t *shape, int64_t pitch, int64_t step) {
    const int64_t strides[] = {pitch, step, 1};
    const te_tensor tensor = {.size = sizeof tensor, .data = data, .bytes = bytes, .rank = rank,
                              .shape = shape, .strides = strides};
    return te_bind_input(context, input, &tensor);
}

/* nv12: luma, and rows of pairs for each two rows and columns of it. */
static te_status bind_planes(te_context *context, int luma, int chroma,
                             const te_picture *picture, int64_t pitch) {
    const int64_t width = picture->width, height = picture->height;
    const int64_t whole[] = {height, width}, half[] = {(height + 1) / 2, (width + 1) / 2, 2};
    const int64_t pairs = picture->chroma_pitch ? picture->chroma_pitch : pitch;
    int64_t before = 0;
    NEED(TE_RUN_SHAPE, pairs >= 2 * half[COLUMNS], "the chroma's rows are %lld bytes apart",
         (long long)pairs);
    NEED(TE_RUN_SHAPE, te_multiply(pitch, height, &before), "its rows are too far apart");
    unsigned char *first = picture->pixels, *second = picture->chroma;
    size_t bytes = picture->chroma_bytes;
    if (!second) {
        NEED(TE_RUN_SHAPE, (uint64_t)before <= picture->bytes, "no byte is left for the chroma");
        second = first + before;
    }
    if (!bytes) {
        NEED(TE_RUN_SHAPE, second >= first && second <= first + picture->bytes,
             "the chroma lies elsewhere: how many bytes are there?");
        bytes = picture->bytes - (size_t)(second - first);
    }
    TE_TRY(bind_rows(context, luma, first, picture->bytes, 2, whole, pitch, 1));
    return bind_rows(context, chroma, second, bytes, 3, half, pairs, 2);
}

te_status te_bind_picture(te_context *context, int input, const te_picture *picture) {
    te_port_info info;
    NEED(TE_API_ARGUMENT, picture && (picture->pixels || !picture->bytes), "no picture is given");
    NEED(TE_RUN_INPUT, te_port(context->model, TE_INPUTS, input, &info), "there is no input %d",
         input);
    const int chroma = info.rank == 2 ? chroma_of(context->model, info.name) : -1;
    const int64_t channels = info.rank == 2 ? 1 : info.shape[CHANNELS];
    NEED(TE_RUN_INPUT,
         info.dtype == TE_UINT8 && (info.rank == 3 ? channels <= 4 && channels != 2 : chroma >= 0),
         "%s takes no picture", info.name);
    const int64_t step = picture->step ? picture->step : channels;
    int64_t row = 0;
    NEED(TE_RUN_SHAPE, picture->width > 0 && picture->height > 0 && step >= channels,
         "%s: %lld x %lld pixels, %lld bytes apart", info.name, (long long)picture->width,
         (long long)picture->height, (long long)step);
    NEED(TE_RUN_SHAPE, te_multiply(picture->width, step, &row), "%s: it is too large", info.name);
    row -= step - channels; /* what comes after the last pixel may be missing */
    const int64_t pitch = picture->pitch ? picture->pitch : picture->width * step;
    NEED(TE_RUN_SHAPE, pitch >= row, "%s: rows of %lld bytes, %lld apart", info.name,
         (long long)row, (long long)pitch);
    if (info.rank == 2) {
        NEED(TE_RUN_SHAPE, step == 1, "%s: luma has no gaps between pixels", info.name);
        return bind_planes(context, input, chroma, picture, pitch);
    }
    const int64_t shape[] = {picture->height, picture->width, channels};
    return bind_rows(context, input, picture->pixels, picture->bytes, 3, shape, pitch, step);
}
