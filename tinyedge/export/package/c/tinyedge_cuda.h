/* The CUDA backend's own: the driver's declarations, a context, what its files share. */
#ifndef TINYEDGE_CUDA_H
#define TINYEDGE_CUDA_H

#include "tinyedge_internal.h"

/* --- the driver, as much as is used ----------------------------------------------------------- */

typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef uint64_t CUdeviceptr;

typedef struct launch_node {
    CUfunction function;
    unsigned grid[3], block[3], shared_bytes;
    void **arguments, **extra;
} launch_node;

typedef struct copy_end {
    size_t x, y, z, level;
    int kind;
    void *host;
    CUdeviceptr device;
    void *array, *reserved;
    size_t pitch, height;
} copy_end;

typedef struct copy_node {
    copy_end source, destination;
    size_t width, height, depth;
} copy_node;

enum {
    /* answers */
    OUT_OF_MEMORY = 2,
    NO_BINARY_FOR_GPU = 209,
    INVALID_IMAGE = 200,
    INVALID_PTX = 218,
    JIT_COMPILER_NOT_FOUND = 221,
    UNSUPPORTED_PTX_VERSION = 222,
    NOT_READY = 600,
    /* facts about a device */
    MAX_THREADS_PER_BLOCK = 1,
    MAX_SHARED_MEMORY_PER_BLOCK = 8,
    INTEGRATED = 18,
    CAN_MAP_HOST_MEMORY = 19,
    CAPABILITY_MAJOR = 75,
    CAPABILITY_MINOR = 76,
    /* options */
    EVENT_BLOCKING = 1,
    EVENT_NO_TIME = 2,
    HOST_MEMORY_MAPPED = 2,
    ERROR_LOG = 5,
    ERROR_LOG_BYTES = 6,
    MEMORY_BY_ADDRESS = 4
};

/* Name, version and parameters of every function; all give 0 or the number of an error. */
#define FUNCTIONS(X)                                                                               \
    X(cuInit, , (unsigned))                                                                        \
    X(cuDriverGetVersion, , (int *))                                                               \
    X(cuGetErrorName, , (int, const char **))                                                      \
    X(cuDeviceGetCount, , (int *))                                                                 \
    X(cuDeviceGet, , (int *, int))                                                                 \
    X(cuDeviceGetName, , (char *, int, int))                                                       \
    X(cuDeviceGetAttribute, , (int *, int, int))                                                   \
    X(cuDevicePrimaryCtxRetain, , (CUcontext *, int))                                              \
    X(cuDevicePrimaryCtxRelease, _v2, (int))                                                       \
    X(cuCtxPushCurrent, _v2, (CUcontext))                                                          \
    X(cuCtxPopCurrent, _v2, (CUcontext *))                                                         \
    X(cuCtxGetDevice, , (int *))                                                                   \
    X(cuStreamCreate, , (CUstream *, unsigned))                                                    \
    X(cuStreamDestroy, _v2, (CUstream))                                                            \
    X(cuStreamGetCtx, , (CUstream, CUcontext *))                                                   \
    X(cuStreamSynchronize, , (CUstream))                                                           \
    X(cuEventCreate, , (CUevent *, unsigned))                                                      \
    X(cuEventDestroy, _v2, (CUevent))                                                              \
    X(cuEventRecord, , (CUevent, CUstream))                                                        \
    X(cuEventQuery, , (CUevent))                                                                   \
    X(cuEventSynchronize, , (CUevent))                                                             \
    X(cuEventElapsedTime, , (float *, CUevent, CUevent))                                           \
    X(cuModuleLoadDataEx, , (CUmodule *, const void *, unsigned, int *, void **))                  \
    X(cuModuleUnload, , (CUmodule))                                                                \
    X(cuModuleGetFunction, , (CUfunction *, CUmodule, const char *))                               \
    X(cuMemGetInfo, _v2, (size_t *, size_t *))                                                     \
    X(cuMemAlloc, _v2, (CUdeviceptr *, size_t))                                                    \
    X(cuMemFree, _v2, (CUdeviceptr))                                                               \
    X(cuMemHostAlloc, , (void **, size_t, unsigned))                                               \
    X(cuMemFreeHost, , (void *))                                                                   \
    X(cuMemHostGetDevicePointer, _v2, (CUdeviceptr *, void *, unsigned))                           \
    X(cuMemcpyHtoD, _v2, (CUdeviceptr, const void *, size_t))                                      \
    X(cuMemcpyAsync, , (CUdeviceptr, CUdeviceptr, size_t, CUstream))                               \
    X(cuMemsetD8Async, , (CUdeviceptr, unsigned char, size_t, CUstream))                           \
    X(cuLaunchKernel, ,                                                                            \
      (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, \
       void **, void **))                                                                          \
    X(cuGraphCreate, , (CUgraph *, unsigned))                                                      \
    X(cuGraphDestroy, , (CUgraph))                                                                 \
    X(cuGraphAddKernelNode, ,                                                                      \
      (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const launch_node *))                  \
    X(cuGraphAddMemcpyNode, ,                                                                      \
      (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const copy_node *, CUcontext))         \
    X(cuGraphInstantiateWithFlags, , (CUgraphExec *, CUgraph, unsigned long long))                 \
    X(cuGraphExecDestroy, , (CUgraphExec))                                                         \
    X(cuGraphExecKernelNodeSetParams, , (CUgraphExec, CUgraphNode, const launch_node *))           \
    X(cuGraphExecMemcpyNodeSetParams, , (CUgraphExec, CUgraphNode, const copy_node *, CUcontext))  \
    X(cuGraphNodeSetEnabled, , (CUgraphExec, CUgraphNode, unsigned))                               \
    X(cuGraphUpload, , (CUgraphExec, CUstream))                                                    \
    X(cuGraphLaunch, , (CUgraphExec, CUstream))

#define MEMBER(name, version, parameters) int(*name) parameters;

typedef struct driver {
    FUNCTIONS(MEMBER)
} driver;

/* --- a context -------------------------------------------------------------------------------- */

/* Where a buffer lies. host: of inputs and outputs, as large as the buffer. */
typedef struct place {
    CUdeviceptr address;
    unsigned char *host;
    uint64_t fetched; /* the version of the device's memory that host has */
} place;

/* A launch or copy as a node of a graph; the first of a piece has the graph. */
typedef struct node {
    bool first, enabled;
    CUgraphNode node;
    CUgraph graph;
    CUgraphExec executable;
    int64_t sizes[3];
} node;

typedef struct cuda {
    driver driver;
    int device, version; /* version: 12060 for CUDA 12.6 */
    bool retained, entered;
    bool mapped; /* kernels work in `host` memory, and nothing is copied */
    bool busy, marked; /* there is work not waited for; `done` comes after it */
    uint64_t changes;  /* the version of the device's memory */
    CUcontext context;
    CUstream own, stream; /* own: made here */
    CUevent done, *times; /* times: one more than steps, only with profile */
    CUmodule module;
    CUfunction *functions;
    CUdeviceptr memory; /* arenas, weights, symbols */
    CUdeviceptr *arenas, *weights, symbols;
    unsigned char *host;              /* as allocated */
    unsigned char *table, *spare;     /* in it: of symbols; for all but inputs and outputs */
    place *places;
    node *nodes;
} cuda;

typedef struct arguments {
    CUdeviceptr values[TE_MOST_BINDINGS + 1];
    void *pointers[TE_MOST_BINDINGS + 1];
} arguments;

/* Work for the device, done in order. changes: whether it changes what the device keeps. */
static inline void queued(cuda *device, bool changes) {
    device->busy = true;
    device->marked = false;
    device->changes += changes;
}

/* --- what the files share -------------------------------------------------------------------- */

/* tinyedge_cuda_open.c: calls of the driver, and the device. answer: of function number `call`. */
te_status te_cuda_failed(const cuda *device, int answer, size_t call, te_error *error);
const char *te_cuda_word(const cuda *device, int answer);
te_status te_cuda_fact(const cuda *device, int which, int64_t *value, te_error *error);
te_status te_cuda_open(cuda *device, const te_model *model, const te_cuda_options *options,
                       te_error *error);

/* The caller's current context is kept: every call of the backend is between these two. */
te_status te_cuda_enter(cuda *device, te_error *error);
te_status te_cuda_leave(cuda *device, te_status status, te_error *error);

/* tinyedge_cuda_memory.c: where all lies, on the host and on the device. */
uint64_t te_cuda_lay_out(const te_model *model, const te_context_options *options, cuda *block);
void te_cuda_measure(const te_model *model, const te_context_options *options, te_memory *memory);
te_status te_cuda_allocate(const te_model *model, cuda *device, te_error *error);
te_sink te_cuda_load_weight;

/* tinyedge_cuda_kernels.c: the machine code or the PTX that suits the device. */
te_status te_cuda_load_kernels(const te_model *model, cuda *device, te_error *error);

/* tinyedge_cuda_graphs.c: steps as nodes of graphs. */
launch_node te_cuda_launch_node(const te_model *model, const cuda *device, uint32_t number,
                                const int64_t *sizes, arguments *to);
copy_node te_cuda_copy_node(const te_model *model, const cuda *device, uint32_t number,
                            int64_t bytes);
te_status te_cuda_make_graphs(te_context *context, cuda *device, te_error *error);
te_status te_cuda_resize_graphs(te_context *context, te_error *error);

#define NUMBER(name) (offsetof(driver, name) / sizeof(int (*)(void)))
#define CALL(name, ...)                                                                            \
    TE_TRY(te_cuda_failed(device, device->driver.name(__VA_ARGS__), NUMBER(name), error))

#endif
