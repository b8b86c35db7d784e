/*
Pictures in a camera's or a decoder's memory as inputs that were exported with --image, where they
lie: rows may have gaps between them, and pixels too. Beside the runtime: a program that does not
call this does not link it.

    const te_picture frame = {.width = 1928, .height = 1208, .pixels = memory, .bytes = size,
                              .pitch = 2048};
    te_bind_picture(context, te_find_port(model, TE_INPUTS, "x"), &frame);
    te_run(context, 0);
*/
#ifndef TINYEDGE_IMAGE_H
#define TINYEDGE_IMAGE_H

#include "tinyedge.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A picture in the host's memory. 0 and NULL are what is usual: no gaps. */
typedef struct te_picture {
    int64_t width, height; /* pixels */
    void *pixels;          /* of nv12 the luma */
    size_t bytes;          /* nothing outside [pixels, pixels + bytes) is read */
    int64_t pitch;         /* from a row to the next, bytes */
    int64_t step;          /* from a pixel to the next, bytes: 4 for red, green, blue and one unused */
    void *chroma;          /* nv12: where it begins, in the same bytes or others; NULL: after
                              `height` rows of luma */
    size_t chroma_bytes;   /* of other memory; 0: chroma lies in `bytes` */
    int64_t chroma_pitch;  /* nv12: from a row of pairs to the next; 0: pitch */
} te_picture;

/* From where every following run takes an input of one picture: rgb, rgba or gray, or the luma of
   nv12, whose chroma is the input NAME.uv. Its memory is read when a run begins. run.input: there is
   no such input, or it is none of one picture. run.shape: a size, a pitch or a step is too small;
   from the run: the picture is too large, or its memory has too few bytes. */
te_status te_bind_picture(te_context *context, int input, const te_picture *picture);

#ifdef __cplusplus
}
#endif
#endif
