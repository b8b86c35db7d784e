/*
tinyedge.h - replay a tinyedge bundle from C99. This header is the manual.

    te_model *model;                        // a verified bundle: immutable, threads may share it
    te_error error;
    te_open_options open = {
        .size = sizeof open, .folder = "pnet.tinyedge", .plan = PNET_PLAN};
    if (te_open(&open, &model, &error)) return puts(error.text);

    te_context *context;                    // memory to run in: one thread at a time
    te_context_options options = {
        .size = sizeof options, .backend = te_cpu(), .kernels = PNET_KERNELS, .threads = 2};
    if (te_create(model, &options, &context, &error)) return puts(error.text);

    te_tensor image = {.size = sizeof image, .data = pixels, .bytes = sizeof pixels};
    te_tensor scores = {.size = sizeof scores, .data = floats, .bytes = sizeof floats};
    te_bind_input(context, PNET_INPUT_IMAGE, &image);       // names of model.h, made at export
    te_bind_output(context, PNET_OUTPUT_SCORES, &scores);
    if (te_run(context, 0)) return puts(te_last_error(context)->text);

    te_destroy(context);
    te_close(model);

THE RULES
  * Every option struct starts as zeros (`= {0}`, in C++ `= {}`) with `size` set to its sizeof;
    zeros are the defaults. A wrong size is refused, as `api.size`.
  * Every function that can fail returns a te_status, 0 when all is well. te_status_id() gives its
    stable id; ids of damaged bundles and wrong inputs are those of the JS and Python runtimes. The
    words are in the te_error of te_open, te_create, te_measure and te_self_test, and in
    te_last_error() of a context. On failure a result pointer is set to NULL.
  * A te_model is immutable after te_open: any number of threads and contexts may use it. It must
    outlive its contexts. A te_context belongs to one thread at a time. There are no globals.
  * te_open allocates the manifest and its records, and for the cpu the weights; te_create
    allocates and compiles everything else, and for devices reads, and verifies as it does so, the
    kernels and weights. From then on no function of a context allocates, compiles or reads a file,
    until te_destroy. te_measure() says how many bytes all will take, before anything is kept.
  * All memory comes from the caller's te_allocator, by default from malloc.
  * Inputs and outputs are the caller's dense or strided memory of the declared dtype. Their
    addresses, not their contents, are remembered by te_bind_*. As a rule they are copied, and
    converted where the device stores another type: inputs by te_submit, outputs by te_wait.
  * On the cpu nothing is copied that kernels can use as it is: dense memory, aligned to its
    elements, of a port stored as its own type (but bool), `bytes` not less than the port has at the
    symbols' maxima, rounded up to 4. It is fastest aligned to 64 bytes. Such an input must not
    change between te_submit and te_wait, and is never written; such an output is written from
    te_submit on, its content undefined should the run fail, and te_read_* finds it there after the
    run: once it is bound to other memory, or unbound, the content is gone (run.output). Copied are
    outputs at less than the maxima, counted ones, and what overlaps other memory bound for the same
    entry.
  * Between te_submit and te_wait a context answers nothing but te_bind_input and te_destroy.
  * Compile with TINYEDGE_NO_THREADS for no threads, TINYEDGE_NO_FOLDER for no file access (then
    give te_open `files` or a `reader`), TINYEDGE_NO_MALLOC for no default allocator.

WHAT IT DOES NOT
  * It does not compile anything for the cpu: kernels are compiled beforehand (see the bundle's
    Makefile) and given as a te_kernels table, which knows the one manifest that it is for.
    Kernels for cuda are compiled at export; only their PTX is translated by the driver.
  * It does not run on big-endian machines, and does not map weights: it copies them.
  * It does not trust a bundle, but it does trust the compiled kernels it is given. On the cpu these
    keep to their memory whatever the manifest says; on a device nothing but `plan` keeps them.
  * It does not interrupt a run: te_wait's timeout is for backends that run elsewhere; on the cpu
    te_submit does the work before it returns.
  * It does not keep goldens: te_self_test reads them, and allocates, in a context of its own.
  * It does not print, exit, install handlers, or read the environment.
*/
#ifndef TINYEDGE_H
#define TINYEDGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TE_MAX_RANK 8
#define TE_MAX_SYMBOLS 32

/* --- errors ---------------------------------------------------------------------------------- */

typedef enum te_status {
    TE_OK = 0,
    /* the bundle, in the order of the checks; see the description of the format */
    TE_MANIFEST_MISSING,  /* bundle.manifest.missing */
    TE_MANIFEST_SIZE,     /* bundle.manifest.size */
    TE_MANIFEST_SYNTAX,   /* bundle.manifest.syntax */
    TE_PLAN,              /* bundle.plan: not the manifest that the program was built for */
    TE_FORMAT,            /* bundle.format */
    TE_VERSION,           /* bundle.version */
    TE_FEATURE,           /* bundle.feature */
    TE_TARGET,            /* bundle.target */
    TE_FIELD,             /* bundle.field */
    TE_COUNT,             /* bundle.count */
    TE_NAME,              /* bundle.name */
    TE_INDEX,             /* bundle.index */
    TE_EXPRESSION,        /* bundle.expression */
    TE_BOUNDS,            /* bundle.bounds */
    TE_OVERLAP,           /* bundle.overlap */
    TE_REQUIREMENT,       /* bundle.requirement */
    TE_FILE_MISSING,      /* bundle.file.missing */
    TE_FILE_SIZE,         /* bundle.file.size */
    TE_FILE_HASH,         /* bundle.file.hash */
    TE_FILE_TEXT,         /* bundle.file.text */
    /* the device */
    TE_DEVICE_TARGET,     /* device.target: the backend runs bundles of another target */
    TE_DEVICE_MEMORY,     /* device.memory: the allocator or the device gave nothing */
    TE_DEVICE_KERNEL,     /* device.kernel: a kernel is missing, or compiled from another bundle */
    TE_DEVICE_COMPILE,    /* device.compile: the driver's compiler refuses the kernels */
    TE_DEVICE_MISSING,    /* device.missing: no driver, or it finds no device */
    TE_DEVICE_ADAPTER,    /* device.adapter: no device of that number or name */
    TE_DEVICE_ARCH,       /* device.arch: the bundle has no code for the device's architecture */
    TE_DEVICE_LIMITS,     /* device.limits: the device is too small for the bundle, or lacks what
                             it requires */
    TE_DEVICE_IMAGE,      /* device.image: other rows than asked for; a buffer for an image */
    TE_DEVICE_DRIVER,     /* device.driver: a call of the driver failed */
    TE_DEVICE_THREADS,    /* device.threads: a thread could not be started */
    TE_DEVICE_COUNTS,     /* device.counts: a grid that the device does not have */
    TE_DEVICE_CACHE,      /* device.cache, only logged: compiled kernels could not be kept */
    /* a run */
    TE_RUN_ENTRY,         /* run.entry: no such entry */
    TE_RUN_INPUT,         /* run.input: no such input, or it is not bound */
    TE_RUN_OUTPUT,        /* run.output: no such output or slice, or its memory is too small */
    TE_RUN_STATE,         /* run.state: no such state */
    TE_RUN_STATES,        /* run.states: a file of states is damaged, or of another model */
    TE_RUN_DTYPE,         /* run.dtype */
    TE_RUN_SHAPE,         /* run.shape: a shape or a size that the model does not take */
    TE_RUN_RANGE,         /* run.range: a value that the device's type cannot hold */
    TE_RUN_TIMEOUT,       /* run.timeout: not finished yet; te_wait may be called again */
    TE_REPLAY_COUNT,      /* replay.count: an output has more entries than there is room for */
    TE_VERIFY_DIFFERS,    /* verify.differs: the self-test found another output */
    /* the call */
    TE_API_SIZE,          /* api.size: a struct's size is not of this version */
    TE_API_ARGUMENT,      /* api.argument: a pointer that may not be NULL, no backend, ... */
    TE_STATUSES
} te_status;

typedef struct te_error {
    te_status status;
    char text[248]; /* one line, never empty after a failure */
} te_error;

/* The stable id of a status; "" for TE_OK. */
const char *te_status_id(te_status status);

/* --- what the caller supplies ---------------------------------------------------------------- */

/* allocate returns memory aligned as malloc's, or NULL. Both or neither must be set. A model and
   its contexts must be closed on threads that may call it. */
typedef struct te_allocator {
    void *(*allocate)(void *user, size_t bytes);
    void (*release)(void *user, void *memory);
    void *user;
} te_allocator;

/* Called with one line for every error, for what was opened and created, and with device.cache. */
typedef struct te_logger {
    void (*log)(void *user, te_status status, const char *text);
    void *user;
} te_logger;

/* How the files of a bundle are read, wherever they lie. size: the bytes of a file, or -1 if there
   is none. read: fill `into` from `offset` on; 0 when that was possible. Names are flat and safe:
   "manifest.json", "weights-00000.bin". Calls come only from te_open, te_measure, te_create and
   te_self_test. */
typedef struct te_reader {
    int64_t (*size)(void *user, const char *name);
    int (*read)(void *user, const char *name, int64_t offset, void *into, size_t bytes);
    void *user;
} te_reader;

/* A file in memory. */
typedef struct te_file {
    const char *name;
    const void *data;
    size_t bytes;
} te_file;

/* --- a bundle -------------------------------------------------------------------------------- */

typedef struct te_model te_model;

/* Exactly one of folder, files and reader. What files and reader point to is used by te_open, for
   the weights and kernels of a device by te_create, and by te_self_test, and must live as long as
   the last of them needs it; folder is copied. */
typedef struct te_open_options {
    size_t size;
    const char *folder;
    const te_file *files;
    size_t file_count;
    te_reader reader;
    te_allocator allocator;
    te_logger logger;
    bool any_target; /* also verify bundles that no backend of this library runs */
    const char *plan; /* PNET_PLAN of model.h: the only manifest to take; NULL: any */
    const char *manifest; /* its file, of a bundle of several programs; default: manifest.json */
} te_open_options;

/* Verify a bundle in the order of its format's checks, and load its weights. With `plan`, the
   SHA-256 of the manifest comes first (bundle.plan): as the manifest holds those of the other files,
   nothing but the bundle that the program was built with is run. */
te_status te_open(const te_open_options *options, te_model **model, te_error *error);
void te_close(te_model *model); /* NULL is allowed, here and in te_destroy */

typedef enum te_dtype {
    TE_DTYPE_OF_PORT = 0,
    TE_BOOL, /* one byte an element: 0 or 1 */
    TE_INT8,
    TE_INT16,
    TE_INT32,
    TE_INT64,
    TE_UINT8,
    TE_UINT16,
    TE_UINT32,
    TE_UINT64,
    TE_FLOAT16,
    TE_FLOAT32,
    TE_FLOAT64
} te_dtype;

const char *te_dtype_name(te_dtype dtype);
size_t te_dtype_bytes(te_dtype dtype);

typedef enum te_group { TE_INPUTS, TE_OUTPUTS, TE_STATES } te_group;

/* An input, an output or a state. Names are UTF-8. shape is at the symbols' maxima; symbol[i] is
   the symbol that axis i is, or -1 where it is a number or computed. */
typedef struct te_port_info {
    const char *name;
    te_dtype dtype;
    te_dtype storage; /* of its elements in the device's memory */
    int rank;
    int64_t shape[TE_MAX_RANK];
    int symbol[TE_MAX_RANK];
    int slices;
    bool counted; /* a run tells the size of one axis: see te_shape; shape has the most */
    const char *codes; /* what its elements are the codes of, such as "bfloat16"; else "" */
} te_port_info;

typedef struct te_slice_info {
    const char *name;
    int axis;
    int64_t start, size;
} te_slice_info;

typedef struct te_symbol_info {
    const char *name;
    int64_t min, max, step;
} te_symbol_info;

typedef struct te_entry_info {
    const char *name;
    int inputs, outputs;
} te_entry_info;

/* Numbers of things, and facts about them: false where there is no such thing. */
int te_port_count(const te_model *model, te_group group);
bool te_port(const te_model *model, te_group group, int index, te_port_info *info);
bool te_slice(const te_model *model, int output, int slice, te_slice_info *info);
int te_symbol_count(const te_model *model);
bool te_symbol(const te_model *model, int index, te_symbol_info *info);
int te_entry_count(const te_model *model);
bool te_entry(const te_model *model, int index, te_entry_info *info);
int te_entry_port(const te_model *model, int entry, te_group group, int position); /* or -1 */

/* The index of what is called so, or -1; of several ports, which are of different entries, the
   first. */
int te_find_port(const te_model *model, te_group group, const char *name);
int te_find_entry(const te_model *model, const char *name);

/* --- a context ------------------------------------------------------------------------------- */

typedef struct te_context te_context;
typedef struct te_backend te_backend;

/* The cpu backend: kernels are functions, compiled beforehand. */
const te_backend *te_cpu(void);

/* OpenCL, for bundles of target qcom: kernels are compiled by te_create, or come from a cache. */
const te_backend *te_opencl(void);

/* CUDA: kernels come compiled with the bundle, for some architectures; te_create reads the file
   that suits the device. */
const te_backend *te_cuda(void);

typedef void te_function(void *const *buffers, const int32_t *symbols, int32_t begin, int32_t end);

/* A buffer that a kernel takes: the bytes that it needs from the buffer's start, and whether it
   writes them. */
typedef struct te_kernel_buffer {
    int64_t bytes;
    bool written;
} te_kernel_buffer;

typedef struct te_kernel {
    const char *name;
    te_function *function;
    const te_kernel_buffer *buffers;
    size_t count; /* of the buffers */
} te_kernel;

/* The compiled kernels of one bundle, and the SHA-256 of its manifest: te_create refuses another
   one (bundle.plan), and launches of these kernels with other buffers (device.kernel). */
typedef struct te_kernels {
    const char *plan;
    const te_kernel *table;
    size_t count;
    /* Of a bundle of several programs: */
    const char *variant;                     /* what this one is called */
    const char *manifest;                    /* the file that `plan` is of */
    const char *const *needs;                /* instruction sets, then NULL */
    const struct te_kernels *const *choices; /* all of the bundle, the best first, then NULL */
} te_kernels;

/* Of a bundle of several programs, exported with `--profile sse,default,avx512`, the one to open
   and create: the best whose instruction sets this processor has, or the one of that name.

       const te_kernels *kernels = te_choose(PNET_KERNELS, NULL, &error);
       if (!kernels) return puts(error.text);
       te_open_options open = {
           .size = sizeof open, .folder = "pnet.tinyedge", .plan = kernels->plan,
           .manifest = kernels->manifest};
       te_context_options options = {.size = sizeof options, .backend = te_cpu(),
                                     .kernels = kernels};

   NULL, and device.limits, if the processor lacks what it needs, api.argument if there is none of
   that name. Without this the last of them, PNET_PLAN in manifest.json, is run; te_create refuses
   kernels that the processor does not have the instructions of. Of a bundle of one program, that. */
const te_kernels *te_choose(const te_kernels *kernels, const char *name, te_error *error);

/* Whether the processor, and the system on it, has an instruction set: "avx2". */
bool te_processor_has(const char *instructions);

/* Programs as the driver compiled them, kept between runs of the program. read: fill `into` with
   at most `bytes` of what is kept under a key, and return how many that is, or -1; `into` NULL
   asks for the number only. write: keep it, and return 0; if it cannot, the logger is told
   (device.cache). Keys are 64 hexadecimal digits. What is damaged or stale is found out, compiled
   again and written again. */
typedef struct te_cache {
    int64_t (*read)(void *user, const char *key, void *into, size_t bytes);
    int (*write)(void *user, const char *key, const void *data, size_t bytes);
    void *user;
} te_cache;

/* For te_opencl(). Objects of the caller must be of one device, and a queue in order; they are
   retained until te_destroy. */
typedef struct te_opencl_options {
    const char *device;       /* its number, GPUs first, or a part of "name (platform)" */
    const char *library;      /* default: libOpenCL.so at its usual places */
    void *context;            /* cl_context of the caller */
    void *queue;              /* cl_command_queue of the caller, and with it its context */
    te_cache cache;           /* compiled programs, by functions, */
    const char *cache_folder; /* or as files in a folder */
} te_opencl_options;

/* For te_cuda(). What is done on memory of the caller must have been done before te_submit, or be
   in the same stream. */
typedef struct te_cuda_options {
    const char *device;  /* its number, or a part of its name; default 0 */
    const char *library; /* default: libcuda.so.1 */
    void *context;       /* CUcontext of the caller; default: the device's primary one */
    void *stream;        /* CUstream of the caller; default: one of the context's own */
} te_cuda_options;

typedef struct te_context_options {
    size_t size;
    const te_backend *backend;
    bool profile;              /* keep times, see te_profile; on cuda te_submit then waits */
    const te_kernels *kernels; /* cpu */
    int threads;               /* cpu: in all, at most one a processor; 0 and 1 start none */
    te_opencl_options opencl;
    te_cuda_options cuda;
} te_context_options;

te_status te_create(const te_model *model, const te_context_options *options, te_context **context,
                    te_error *error);
void te_destroy(te_context *context);

/* The last failure of this context; its status is TE_OK before any. */
const te_error *te_last_error(const te_context *context);

/* Bytes asked of the allocator and of the device. Nothing but the manifest is read, nothing is
   kept. */
typedef struct te_memory {
    uint64_t manifest; /* the manifest's text and records, kept by te_open */
    uint64_t weights;  /* cpu: kept by te_open, shared by all contexts */
    uint64_t arenas;   /* cpu: of each context */
    uint64_t context;  /* of each context: tables */
    uint64_t device;   /* others: of each context, of the driver: weights, arenas, images; on cuda
                          also the host's memory for inputs and outputs */
} te_memory;

te_status te_measure(const te_open_options *open, const te_context_options *options,
                     te_memory *memory, te_error *error);

/* --- running --------------------------------------------------------------------------------- */

/* Memory of the caller, in the host or of the context's device. shape: NULL for the declared one at
   the sizes in force. strides: bytes from one index to the next of each axis, at least 0 (rows of
   a camera plane, say); NULL: dense. bytes: nothing outside [data, data + bytes) is touched. Memory
   of a device must be dense, hold elements as the device stores them (te_port_info's storage), and
   be neither changed nor freed between te_submit and te_wait. */
typedef struct te_tensor {
    size_t size;
    void *data;
    uint64_t device; /* instead of data: a cl_mem or a CUdeviceptr */
    uint64_t offset; /* of a device's memory: bytes from its start; with data, 0 */
    size_t bytes;
    te_dtype dtype; /* 0, or the port's: there is no conversion */
    int rank;       /* of shape */
    const int64_t *shape;
    const int64_t *strides;
} te_tensor;

/* From where every following run takes an input; to where it gives an output. An input's shape
   gives the symbols' sizes. tensor NULL unbinds. shape and strides are copied. */
te_status te_bind_input(te_context *context, int input, const te_tensor *tensor);
te_status te_bind_output(te_context *context, int output, const te_tensor *tensor);

/* A size that no input's shape tells; -1 for its maximum again. */
te_status te_set_symbol(te_context *context, int symbol, int64_t value);

/* Check and copy the inputs and start an entry; then wait and copy the bound outputs.
   te_wait's timeout is in milliseconds, -1 for none: beyond it, run.timeout, and the run goes on
   and may be waited for again. te_run does both. */
te_status te_submit(te_context *context, int entry);
te_status te_wait(te_context *context, int64_t timeout);
te_status te_run(te_context *context, int entry);

/* After te_wait: the shape (a counted output's is what the run made) and the content. */
te_status te_shape(te_context *context, te_group group, int index, int *rank, int64_t *shape);
te_status te_read_output(te_context *context, int output, const te_tensor *tensor);
te_status te_read_slice(te_context *context, int output, int slice, const te_tensor *tensor);

/* States keep their values between runs. Their shapes are at the sizes of the last run. As a file:
   tinyedge_states.h. */
te_status te_reset(te_context *context);
te_status te_get_state(te_context *context, int state, const te_tensor *tensor);
te_status te_set_state(te_context *context, int state, const te_tensor *tensor);

/* --- measuring and testing ------------------------------------------------------------------- */

/* What a launch or copy took, in all runs since te_create or te_profile_reset. */
typedef struct te_profile_info {
    const char *kernel; /* "copy" for copies */
    const char *nodes;  /* of the ONNX model: "Conv_0, Relu_1" */
    uint64_t runs, nanoseconds, flops;
} te_profile_info;

int te_profile_count(const te_context *context); /* 0 unless created with profile */
bool te_profile(const te_context *context, int index, te_profile_info *info);
void te_profile_reset(te_context *context);

typedef struct te_test_report {
    int cases, outputs;
    int wrong;          /* outputs that differ from what was expected */
    int distinct;       /* outputs that differ, in any bit, between two runs of one case */
    double error;       /* the greatest max|a - b| / max|b| of an output of floats */
} te_test_report;

/* Run every golden case of the bundle twice, in a context of its own, and compare.
   TE_VERIFY_DIFFERS if an output is wrong or distinct. report may be NULL. */
te_status te_self_test(const te_model *model, const te_context_options *options,
                       te_test_report *report, te_error *error);

/* Fill elements of a dtype as golden cases do, for inputs to try a model with. */
void te_generate(te_dtype dtype, void *into, size_t elements, uint32_t seed, uint32_t run,
                 uint32_t position, int64_t min, int64_t max);

#ifdef __cplusplus
}
#endif
#endif
