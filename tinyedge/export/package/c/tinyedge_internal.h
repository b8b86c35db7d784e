/* Shared by the runtime's own files; nothing here is for its users. */
#ifndef TINYEDGE_INTERNAL_H
#define TINYEDGE_INTERNAL_H

#include "tinyedge.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "bundles are little-endian, and this runtime copies them as they are"
#endif

#define TE_INTEGER_LIMIT INT64_C(9007199254740991) /* 2^53 - 1 */
#define TE_MANIFEST_LIMIT (16 * 1024 * 1024)
#define TE_ALIGNMENT 256
#define TE_TOKENS 255
#define TE_DEPTH 8
#define TE_LINE 64 /* a cache line: what arenas and weights are aligned to */

/* A function that is not to be copied into its callers: there are several, or it has large arrays,
   which would lie in their frames. */
#if defined(__GNUC__)
#define TE_NOINLINE __attribute__((noinline))
#else
#define TE_NOINLINE
#endif

/* --- errors: every check is one line --------------------------------------------------------- */

#if defined(__GNUC__)
#define TE_FORMAT_CHECK __attribute__((format(printf, 3, 4)))
#else
#define TE_FORMAT_CHECK
#endif
te_status te_fail(te_error *error, te_status status, const char *words, ...) TE_FORMAT_CHECK;
te_error *te_no_error(te_error *error); /* cleared */

#define TE_NEED(condition, ...)                                                                    \
    do {                                                                                           \
        if (!(condition)) return te_fail(error, __VA_ARGS__);                                      \
    } while (0)
#define TE_TRY(call)                                                                               \
    do {                                                                                           \
        const te_status status_ = (call);                                                          \
        if (status_ != TE_OK) return status_;                                                      \
    } while (0)

static inline bool within(int32_t index, uint32_t count) {
    return index >= 0 && (uint32_t)index < count;
}

/* --- arithmetic on numbers from files: false beyond 53 bits ---------------------------------- */

bool te_add(int64_t a, int64_t b, int64_t *sum);
bool te_multiply(int64_t a, int64_t b, int64_t *product);

/* --- the manifest's text --------------------------------------------------------------------- */

/* A string's characters as spelled, without quotes. */
typedef struct te_text {
    char *at;
    uint32_t length;
} te_text;

/* How many records of each kind there are: the sizes of the model's arrays. */
enum te_total {
    TE_NOTHING,
    TE_N_SYMBOLS,
    TE_N_INPUTS,
    TE_N_OUTPUTS,
    TE_N_STATES,
    TE_N_SLICES,
    TE_N_ENTRIES,
    TE_N_LISTED, /* inputs and outputs of entries */
    TE_N_ARENAS,
    TE_N_BUFFERS,
    TE_N_IMAGES,
    TE_N_WEIGHTS,
    TE_N_SEGMENTS,
    TE_N_KERNELS,
    TE_N_BINDINGS,
    TE_N_STEPS,
    TE_N_BOUND, /* buffers of launches */
    TE_N_GOLDENS,
    TE_N_GOLDEN_SYMBOLS,
    TE_N_GOLDEN_INPUTS,
    TE_N_GOLDEN_OUTPUTS,
    TE_N_FILES,
    TE_N_TOKENS, /* of expressions, each with its length before it */
    TE_TOTALS
};

/* Stages 1 to 3 of the format's checks. text ends with a NUL behind its size bytes. */
te_status te_check_syntax(const char *text, size_t size, te_error *error);
te_status te_check_identity(const char *text, bool any_target, te_error *error);
bool te_lists_feature(const char *text, const char *name);
te_status te_check_fields(const char *text, uint32_t totals[TE_TOTALS], te_error *error);

/* Walking a checked text. te_member: the value of a key, NULL if there is none. te_first: the first
   element of an array or key of an object, NULL if it is empty; te_next: the one behind a value. */
const char *te_member(const char *object, const char *key);
const char *te_first(const char *container);
const char *te_next(const char *value);
const char *te_skip(const char *value);          /* what follows a value */
const char *te_next_from(const char *end);       /* the element after the one that ends here */
const char *te_value_of(const char *key);
int te_compare_key(const char *key, const char *word);
bool te_is_digit(char c);
bool te_is_letter(char c); /* or underscore */
bool te_is_integer(const char *value);
int64_t te_integer(const char *value);
int64_t te_units(const char *value); /* the length of a string in UTF-16 units */
int te_unit(const char *digits);     /* four hexadecimal ones; -1 if they are not, also at a NUL */
te_text te_string(const char *value);
bool te_is(te_text text, const char *word);
bool te_same(te_text a, te_text b);

/* --- records --------------------------------------------------------------------------------- */

/* The table of tinyedge_fields.c fills them: a list is the number of its first element in one of
   the model's arrays and, next to it, how many it has; a shape's sizes stand behind its rank. */

/* Tokens of expressions: integers as they are, these above all of them. */
#define TE_SYMBOL_TOKEN (INT64_C(1) << 56)   /* + the symbol's index */
#define TE_OPERATOR_TOKEN (INT64_C(1) << 57) /* + the operator */
#define TE_BAD_TOKEN (INT64_C(1) << 58)

typedef struct te_symbol_record {
    te_text name;
    int64_t min, max, step;
} te_symbol_record;

typedef struct te_slice_record {
    te_text name;
    int64_t axis, start, size;
} te_slice_record;

/* Inputs, outputs and states. */
typedef struct te_port_record {
    te_text name, codes;
    te_dtype dtype, storage;
    int rank;
    uint32_t shape[TE_MAX_RANK]; /* expressions: where their tokens begin */
    int32_t buffer;
    int32_t count;   /* outputs; along `axis` */
    int32_t initial; /* states */
    int64_t axis;
    uint32_t first_slice, slices;
} te_port_record;

typedef struct te_entry_record {
    te_text name;
    uint32_t first_input, inputs, first_output, outputs;
    int64_t first, count; /* steps */
} te_entry_record;

typedef struct te_buffer_record {
    int32_t arena, weight;
    int64_t offset, bytes;
} te_buffer_record;

/* A buffer that kernels take as an image of four-channel pixels; pitch: bytes of a row. */
typedef struct te_image_record {
    int32_t buffer;
    te_dtype dtype;
    int64_t width, height, pitch;
} te_image_record;

typedef struct te_range_record {
    int32_t file;
    int64_t offset, bytes;
} te_range_record;

typedef struct te_weight_record {
    te_text name;
    int64_t bytes;
    uint32_t first_segment, segments;
    uint64_t place; /* among all weights */
} te_weight_record;

typedef struct te_kernel_record {
    te_text entry;
    te_range_record range;
    int64_t workgroup[3];
    uint32_t first_binding, bindings;
    bool symbols;
} te_kernel_record;

typedef enum te_op { TE_LAUNCH, TE_COPY, TE_LOOP } te_op;

typedef struct te_step_record {
    te_op op;
    int32_t kernel, source, destination, condition;
    uint32_t first_buffer, buffers;
    uint32_t sizes[3]; /* expressions: a launch's grid, a copy's bytes */
    int64_t source_offset, destination_offset;
    int64_t body; /* steps of a loop */
    int64_t bound, flops;
    te_text nodes;
} te_step_record;

typedef struct te_golden_input {
    te_range_record range;
    int64_t min, max;
} te_golden_input;

typedef struct te_golden_output {
    te_range_record range;
    int64_t stride;
} te_golden_output;

typedef struct te_golden_record {
    int32_t entry;
    int64_t seed, steps, tolerance;
    uint32_t first_symbol, symbols, first_input, inputs, first_output, outputs;
} te_golden_record;

typedef struct te_file_record {
    te_text name;
    int64_t bytes;
    te_text sha256;
} te_file_record;

/* The integers of the manifest's requirements; those of images are 0 without images. */
enum te_requirement {
    TE_BINDING_BYTES,
    TE_BINDINGS,
    TE_BUFFER_BYTES,
    TE_IMAGE_HEIGHT,
    TE_IMAGE_WIDTH,
    TE_INVOCATIONS,
    TE_WORKGROUP_BYTES,
    TE_WORKGROUPS,
    TE_REQUIREMENTS
};

struct te_model {
    te_allocator allocator;
    te_logger logger;
    te_reader reader;
    te_open_options open; /* what the reader of files in memory reads */
    char *folder; /* the path, kept for the self-test */
    char plan[65]; /* the SHA-256 of the manifest */
    char *text;
    void *records;
    unsigned char *weight_block, *weight_bytes; /* as allocated, as aligned; only of the cpu */
    uint64_t record_bytes, weight_total;
    size_t text_bytes;
    uint32_t totals[TE_TOTALS];
    bool any_target, webgpu;
    te_text target;
    te_text build; /* the options' "build": for a compiler of the device */
    int64_t requirements[TE_REQUIREMENTS];
    te_symbol_record *symbols;
    te_port_record *ports[3]; /* by te_group */
    te_slice_record *slices;
    te_entry_record *entries;
    int32_t *listed;
    int64_t *arenas;
    te_buffer_record *buffers;
    te_image_record *images; /* their buffers increase */
    te_weight_record *weights;
    te_range_record *segments;
    te_range_record prelude;
    te_kernel_record *kernels;
    uint8_t *writes; /* a binding: whether the kernel writes it */
    te_step_record *steps;
    int32_t *bound;
    te_golden_record *goldens;
    int64_t *golden_symbols;
    te_golden_input *golden_inputs;
    te_golden_output *golden_outputs;
    te_file_record *files;
    int64_t *tokens;
};

#define TOTAL(kind) (model->totals[TE_N_##kind])
#define te_count(model, group) ((model)->totals[TE_N_INPUTS + (group)])

te_status te_read_records(te_model *model, te_error *error); /* allocates them */
te_status te_fill_records(te_model *model, te_error *error); /* stage 3's walk once more */

/* An array of the model, and the bytes of its records. */
void *te_array(const te_model *model, enum te_total total, size_t *bytes);
void te_finish_strings(te_model *model); /* makes names UTF-8; the text is JSON no longer */
te_status te_check_records(const te_model *model, te_error *error); /* stages 4 to 10 */

/* Parts of stages 8 and 9 at some sizes, refused by an id. sizes: a step's counts or bytes. */
te_status te_check_port(const te_model *model, const te_port_record *port, const int64_t *symbols,
                        te_status id, te_error *error);
te_status te_check_slices(const te_model *model, const te_port_record *port,
                          const int64_t *symbols, te_status id, te_error *error);
te_status te_check_step(const te_model *model, uint32_t number, const int64_t *symbols,
                        int64_t sizes[3], te_status id, te_error *error);
te_status te_check_copy(const te_model *model, uint32_t number, int64_t bytes, te_status id,
                        te_error *error);

/* The inputs or outputs that an entry lists; it lists no states. */
const int32_t *te_listed(const te_model *model, const te_entry_record *entry, te_group group,
                         uint32_t *count);

const te_image_record *te_image_of(const te_model *model, int32_t buffer); /* or NULL */
int64_t te_threads(const te_kernel_record *kernel);                        /* of a workgroup */
const char *te_requirement_name(enum te_requirement requirement);
te_dtype te_dtype_of(const char *value); /* a string's; TE_DTYPE_OF_PORT: it names none */
te_dtype te_declared_type(const char *value, te_text *codes);
bool te_storage_holds(te_dtype dtype, te_dtype storage);
/* Of a golden's outputs: the entry's, then all states. */
const te_port_record *te_golden_port(const te_model *model, const te_entry_record *entry,
                                     uint32_t position);
bool te_golden_range(te_dtype dtype, int64_t min, int64_t max);

/* Zeroed memory from a caller's allocator, NULL if there is none. */
void *te_allocate(const te_allocator *allocator, uint64_t bytes);
void te_release(const te_allocator *allocator, void *memory);

/* The same, or return with TE_DEVICE_MEMORY. */
void *te_alloc(const te_allocator *allocator, uint64_t bytes, te_error *error);
#define TE_TAKE(pointer, allocator, bytes)                                                         \
    do {                                                                                           \
        (pointer) = te_alloc(allocator, bytes, error);                                              \
        if (!(pointer)) return TE_DEVICE_MEMORY;                                                   \
    } while (0)

/* Where `count` things of `size` bytes go in a block, of which `end` bytes are taken: laid out with
   block NULL first, to know how large it must be. */
void *te_place(void *block, uint64_t *end, uint64_t count, size_t size);

void te_log(const te_logger *logger, te_status status, const char *text);
te_status te_context_memory(const te_model *model, const te_context_options *options,
                            te_memory *memory, te_error *error);

/* Read and verify all files of weights, giving their bytes piece by piece, in order of weights and
   offsets (multiples of 256), as they are read: on failure, what was given may not be used. sink
   NULL: only verify. */
typedef te_status te_sink(void *user, uint32_t weight, int64_t offset, const void *data,
                          size_t bytes, te_error *error);
te_status te_stream_weights(const te_model *model, te_sink *sink, void *user, te_error *error);

/* A whole verified file, allocated and with a NUL behind it. */
te_status te_read_file(const te_model *model, int32_t file, char **data, te_error *error);

/* --- files ----------------------------------------------------------------------------------- */

#ifndef TINYEDGE_NO_FOLDER
te_reader te_folder_reader(const char *folder);
te_cache te_folder_cache(const char *folder);
#endif
te_status te_check_plan(const te_model *model, const char *plan, te_error *error);
te_status te_load_files(te_model *model, te_error *error); /* stage 11 for all but goldens */
te_status te_check_file(const te_model *model, int32_t file, te_error *error); /* stage 11 */
te_status te_read_part(const te_model *model, const te_file_record *file, int64_t offset,
                       void *into, size_t bytes, te_error *error);

typedef struct te_sha256 {
    uint32_t state[8];
    uint64_t bytes;
    unsigned char block[64];
} te_sha256;

void te_sha256_start(te_sha256 *hash);
void te_sha256_add(te_sha256 *hash, const void *data, size_t bytes);
void te_sha256_end(te_sha256 *hash, char digits[65]);

/* --- values ---------------------------------------------------------------------------------- */

/* false: malformed, a divisor below 1, or beyond 53 bits. */
bool te_evaluate(const int64_t *tokens, const int64_t *symbols, int64_t *value);

/* A shape's sizes and number of elements; false if one is negative or has no value. */
bool te_extents(const te_model *model, const te_port_record *port, const int64_t *symbols,
                int64_t shape[TE_MAX_RANK], int64_t *elements);
int te_bare_symbol(const te_model *model, uint32_t expression); /* which it is, or -1 */
bool te_symbol_allows(const te_symbol_record *symbol, int64_t value);

/* Elements between the caller's memory and a buffer. */
typedef struct te_transfer {
    int rank;
    int64_t shape[TE_MAX_RANK], device_strides[TE_MAX_RANK], host_strides[TE_MAX_RANK]; /* bytes */
    int64_t device_offset, device_bytes; /* what it covers of the buffer */
    unsigned char *device, *host;
    te_dtype dtype, storage;
    bool to_host;
} te_transfer;

/* false: a value that the storage type cannot hold. */
bool te_move(te_transfer *transfer);
double te_half_value(uint16_t bits);
uint16_t te_half_bits(double value);
double te_float_element(te_dtype dtype, const void *element);

/* --- contexts and backends ------------------------------------------------------------------- */

typedef struct te_timing {
    uint64_t runs, nanoseconds;
} te_timing;

typedef struct te_binding {
    bool bound, shaped, strided, in_place, lost; /* lost: the memory in which it was is not bound */
    te_tensor tensor;
    int64_t shape[TE_MAX_RANK], strides[TE_MAX_RANK];
} te_binding;

/* Bytes [offset, offset + bytes) of a buffer. */
typedef struct te_part {
    int32_t buffer;
    int64_t offset, bytes;
} te_part;

struct te_context {
    const te_model *model;
    const te_backend *backend;
    void *device; /* the backend's own */
    te_error error;
    te_context_options options;
    int64_t given[TE_MAX_SYMBOLS], symbols[TE_MAX_SYMBOLS]; /* -1: not given */
    bool sized, running;
    int entry, ready; /* of the last run; for which all is checked, and placed; -1: none */
    int64_t (*sizes)[3]; /* of each step */
    te_binding *inputs, *outputs;
    te_timing *timings; /* of each step, NULL without profile */
};

/* tinyedge_context.c: every public function of a context ends by te_finish. */
te_status te_finish(te_context *context, te_status status);
te_status te_need_idle(const te_context *context, te_error *error); /* no run is going on */

/* tinyedge_tensors.c: whether a tensor may be a port's, and whether its shape is this one. */
te_status te_check_index(te_context *context, te_group group, int index);
te_status te_check_tensor(const te_tensor *tensor, const te_port_record *port, te_error *error);
te_status te_check_shape(const te_port_record *port, const te_tensor *tensor,
                         const int64_t *shape, te_error *error);

/* Where the elements of a part of a port lie on both sides. `start` is the first index of each
   axis; NULL: all zero. The caller's memory is checked to hold `shape`. */
te_status te_plan_transfer(const te_port_record *port, const int64_t *whole, const int64_t *start,
                           const int64_t *shape, const te_tensor *tensor, te_status id,
                           te_transfer *transfer, te_error *error);

/* Copy on the device, in the order of its work; or now, whichever memory it is. */
te_status te_exchange(te_context *context, const te_port_record *port, const te_transfer *plan,
                      const te_tensor *tensor, bool to_tensor);
te_status te_transfer_now(te_context *context, const te_port_record *port, te_transfer *plan,
                          const te_tensor *tensor, bool to_tensor);

/* What an API must give. Things are named by their number in the model; numbers, ranges and
   sizes were checked. What a device is asked for it may begin and do later, in the order of the
   calls; only map for reading, wait and destroy must wait for it. */
struct te_backend {
    const char *target;
    /* Fills in arenas, device and, for what `device` points to, context. */
    void (*measure)(const te_model *model, const te_context_options *options, te_memory *memory);
    /* Makes all that running needs, weights loaded. destroy also takes what was half made. */
    te_status (*create)(te_context *context, te_error *error);
    void (*destroy)(te_context *context);
    /* New values of symbols and sizes: refuse them or be prepared. */
    te_status (*resize)(te_context *context, te_error *error);
    /* Give a state its initial value. */
    te_status (*reset)(te_context *context, uint32_t state, te_error *error);
    /* Let ports of an entry lie in the memory that they are bound to: in_place. May be NULL. */
    void (*place)(te_context *context, const te_entry_record *entry);
    /* Host memory for [offset, offset + bytes) of a buffer, until unmap: its content for reading,
       undefined and all to be written otherwise. At most one is mapped at a time. */
    te_status (*map)(te_context *context, te_part part, bool write, unsigned char **memory,
                     te_error *error);
    te_status (*unmap)(te_context *context, te_part part, bool write, unsigned char *memory,
                       te_error *error);
    /* Copy between a part and memory of the device that the caller gave. NULL: there is none. */
    te_status (*exchange)(te_context *context, te_part part, const te_tensor *tensor,
                          bool to_tensor, te_error *error);
    /* Launches and copies of [first, end), which has no loops. te_idle steps do nothing. */
    te_status (*run)(te_context *context, uint32_t first, uint32_t end, te_error *error);
    /* Begin to map parts that map will ask for, all for writing or, once the steps are done, all
       for reading: at most the inputs, or the outputs. settle ends that. Both may be NULL. */
    te_status (*fetch)(te_context *context, te_part part, bool write, te_error *error);
    void (*settle)(te_context *context);
    /* Nothing more comes before wait: begin. May be NULL. */
    te_status (*flush)(te_context *context, te_error *error);
    /* Milliseconds, or -1: TE_RUN_TIMEOUT when the work is not finished by then. */
    te_status (*wait)(te_context *context, int64_t timeout, te_error *error);
};

#define TE_MOST_BINDINGS 64

/* A driver's library, or NULL: the given one, or the first of places, which end with NULL. It stays
   loaded, for drivers have threads that do not end. */
void *te_open_library(const char *library, const char *const *places);

/* Fills a table of pointers with functions; names: one after the other, then an empty one. The
   first name that is not there, or NULL. */
const char *te_find_functions(void *handle, const char *names, void *table);

bool te_contains(const char *text, const char *part); /* capital letters are as small ones */

/* Whether a device is the one that is asked for: by number, by a part of its name, or not. */
bool te_is_wanted(const char *wanted, uint32_t number, const char *name);

bool te_idle(const te_context *context, uint32_t step); /* a launch or copy of nothing */
uint64_t te_clock(void);                                /* nanoseconds */

/* Ask again and again until done, or TE_RUN_TIMEOUT. For backends that cannot wait with a limit. */
typedef te_status te_ask(te_context *context, bool *done, te_error *error);
te_status te_poll(te_context *context, int64_t timeout, te_ask *ask, te_error *error);

#endif
