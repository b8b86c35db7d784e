/* The files of a bundle: verified, read whole, in parts, or streamed to where weights go. */
#include "tinyedge_internal.h"

#include <string.h>

#define PIECE 65536 /* bytes of a file in memory at a time */

static te_status check_size(const te_model *model, const te_file_record *file, te_error *error) {
    const int64_t bytes = model->reader.size(model->reader.user, file->name.at);
    TE_NEED(bytes >= 0, TE_FILE_MISSING, "%s cannot be read", file->name.at);
    TE_NEED(bytes == file->bytes, TE_FILE_SIZE, "%s has %lld bytes, not %lld", file->name.at,
            (long long)bytes, (long long)file->bytes);
    return TE_OK;
}

te_status te_read_part(const te_model *model, const te_file_record *file, int64_t offset,
                       void *into, size_t bytes, te_error *error) {
    const te_reader *reader = &model->reader;
    TE_NEED(!bytes || !reader->read(reader->user, file->name.at, offset, into, bytes),
            TE_FILE_MISSING, "%s cannot be read", file->name.at);
    return TE_OK;
}

/* Hash what lies in [from, to) of a file; without a hash, check that it is ASCII. */
static te_status scan(const te_model *model, const te_file_record *file, int64_t from, int64_t to,
                      te_sha256 *hash, te_error *error) {
    unsigned char part[4096];
#ifdef TINYEDGE_FUZZ
    if (hash) from = to;
#endif
    while (from < to) {
        const size_t bytes = to - from < (int64_t)sizeof part ? (size_t)(to - from) : sizeof part;
        TE_TRY(te_read_part(model, file, from, part, bytes, error));
        if (hash) te_sha256_add(hash, part, bytes);
        for (size_t i = 0; !hash && i < bytes; i++) {
            TE_NEED(part[i] < 0x80, TE_FILE_TEXT, "a kernel is not ASCII");
        }
        from += (int64_t)bytes;
    }
    return TE_OK;
}

static te_status check_hash(const te_file_record *file, te_sha256 *hash, te_error *error) {
    char digits[65];
    te_sha256_end(hash, digits);
#ifndef TINYEDGE_FUZZ
    TE_NEED(!memcmp(digits, file->sha256.at, 64), TE_FILE_HASH, "the SHA-256 of %s is another",
            file->name.at);
#else
    (void)file;
    (void)error;
#endif
    return TE_OK;
}

te_status te_check_file(const te_model *model, int32_t number, te_error *error) {
    const te_file_record *file = &model->files[number];
    te_sha256 hash;
    te_sha256_start(&hash);
    TE_TRY(check_size(model, file, error));
    TE_TRY(scan(model, file, 0, file->bytes, &hash, error));
    return check_hash(file, &hash, error);
}

te_status te_read_file(const te_model *model, int32_t number, char **data, te_error *error) {
    const te_file_record *file = &model->files[number];
    te_sha256 hash;
    te_sha256_start(&hash);
    *data = NULL;
    TE_TRY(check_size(model, file, error));
    char *text;
    TE_TAKE(text, &model->allocator, (uint64_t)file->bytes + 1);
    te_status status = te_read_part(model, file, 0, text, (size_t)file->bytes, error);
    if (!status) {
        te_sha256_add(&hash, text, (size_t)file->bytes);
        status = check_hash(file, &hash, error);
    }
    if (status) te_release(&model->allocator, text);
    else *data = text;
    return status;
}

/* The weight and place in it of a segment that is read piece by piece. */
typedef struct stream {
    te_sink *sink;
    void *user;
    uint32_t weight, segment; /* segment: the next of all */
    unsigned char *piece;
} stream;

static te_status stream_segment(const te_model *model, stream *to, te_sha256 *hash,
                                te_error *error) {
    const te_range_record *range = &model->segments[to->segment];
    const te_weight_record *weight = &model->weights[to->weight];
    if (to->segment >= weight->first_segment + weight->segments) weight++, to->weight++;
    int64_t place = 0;
    for (uint32_t i = weight->first_segment; i < to->segment; i++) {
        place += model->segments[i].bytes;
    }
    for (int64_t at = 0; at < range->bytes;) {
        const int64_t left = range->bytes - at;
        const size_t bytes = left < PIECE ? (size_t)left : PIECE;
        TE_TRY(te_read_part(model, &model->files[range->file], range->offset + at, to->piece,
                            bytes, error));
        te_sha256_add(hash, to->piece, bytes);
        TE_TRY(to->sink(to->user, to->weight, place + at, to->piece, bytes, error));
        at += (int64_t)bytes;
    }
    to->segment++;
    return TE_OK;
}

/* One pass over a file of weights: segments go to the sink, gaps are only hashed. Segments of all
   weights increase by file and offset, so the next segment never goes back. */
static te_status stream_file(const te_model *model, int32_t number, stream *to, te_error *error) {
    const te_file_record *file = &model->files[number];
    te_sha256 hash;
    int64_t reached = 0;
    te_sha256_start(&hash);
    TE_TRY(check_size(model, file, error));
    while (to->sink && to->segment < model->totals[TE_N_SEGMENTS] &&
           model->segments[to->segment].file == number) {
        const te_range_record *segment = &model->segments[to->segment];
        TE_TRY(scan(model, file, reached, segment->offset, &hash, error));
        TE_TRY(stream_segment(model, to, &hash, error));
        reached = segment->offset + segment->bytes;
    }
    TE_TRY(scan(model, file, reached, file->bytes, &hash, error));
    return check_hash(file, &hash, error);
}

te_status te_stream_weights(const te_model *model, te_sink *sink, void *user, te_error *error) {
    te_status status = TE_OK;
    stream to = {.sink = sink, .user = user};
    if (sink) TE_TAKE(to.piece, &model->allocator, PIECE);
    for (uint32_t i = 0; !status && i < model->totals[TE_N_FILES]; i++) {
        if (model->files[i].name.at[0] != 'w') continue;
        status = stream_file(model, (int32_t)i, &to, error);
    }
    te_release(&model->allocator, to.piece);
    return status;
}

static te_status check_text(const te_model *model, te_range_record range, te_error *error) {
    const te_file_record *file = &model->files[range.file];
    return scan(model, file, range.offset, range.offset + range.bytes, NULL, error);
}

/* Weights as the cpu reads them. */
static te_status keep(void *user, uint32_t weight, int64_t offset, const void *data, size_t bytes,
                      te_error *error) {
    const te_model *model = user;
    (void)error;
    memcpy(model->weight_bytes + model->weights[weight].place + offset, data, bytes);
    return TE_OK;
}

/* Stage 11: kernels come before weights, by name; goldens are left to the self-test. */
te_status te_load_files(te_model *model, te_error *error) {
    for (uint32_t i = 0; i < model->totals[TE_N_FILES]; i++) {
        if (model->files[i].name.at[0] == 'k') TE_TRY(te_check_file(model, (int32_t)i, error));
    }
    TE_TRY(te_stream_weights(model, model->weight_block ? keep : NULL, model, error));
    TE_TRY(check_text(model, model->prelude, error));
    for (uint32_t i = 0; i < model->totals[TE_N_KERNELS]; i++) {
        TE_TRY(check_text(model, model->kernels[i].range, error));
    }
    return TE_OK;
}
