/*
A libOpenCL that passes everything on to the real one: it counts calls and objects, lets calls fail,
and changes what the device says of itself.

All parameters of OpenCL's functions are integers or pointers, and each takes one register or one
place of the stack on x86-64 and arm64: twelve of them are passed on, whatever a function takes.
*/
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef intptr_t word;
typedef word function(word, word, word, word, word, word, word, word, word, word, word, word);

/* code: the parameter that takes an error code, -1: the result is one. event: the one for an event.
   live: what a call that succeeds adds to the objects alive. */
#define FUNCTIONS(X)                                                                               \
    X(clGetPlatformIDs, -1, -1, 0)                                                                 \
    X(clGetPlatformInfo, -1, -1, 0)                                                                \
    X(clGetDeviceIDs, -1, -1, 0)                                                                   \
    X(clCreateContext, 5, -1, 1)                                                                   \
    X(clRetainContext, -1, -1, 1)                                                                  \
    X(clReleaseContext, -1, -1, -1)                                                                \
    X(clGetContextInfo, -1, -1, 0)                                                                 \
    X(clCreateCommandQueue, 3, -1, 1)                                                              \
    X(clRetainCommandQueue, -1, -1, 1)                                                             \
    X(clReleaseCommandQueue, -1, -1, -1)                                                           \
    X(clGetCommandQueueInfo, -1, -1, 0)                                                            \
    X(clCreateProgramWithSource, 4, -1, 1)                                                         \
    X(clCreateProgramWithBinary, 6, -1, 1)                                                         \
    X(clBuildProgram, -1, -1, 0)                                                                   \
    X(clGetProgramInfo, -1, -1, 0)                                                                 \
    X(clGetProgramBuildInfo, -1, -1, 0)                                                            \
    X(clReleaseProgram, -1, -1, -1)                                                                \
    X(clCreateKernel, 2, -1, 1)                                                                    \
    X(clSetKernelArg, -1, -1, 0)                                                                   \
    X(clGetKernelInfo, -1, -1, 0)                                                                  \
    X(clGetKernelWorkGroupInfo, -1, -1, 0)                                                         \
    X(clReleaseKernel, -1, -1, -1)                                                                 \
    X(clCreateBuffer, 4, -1, 1)                                                                    \
    X(clCreateSubBuffer, 4, -1, 1)                                                                 \
    X(clCreateImage, 5, -1, 1)                                                                     \
    X(clGetImageInfo, -1, -1, 0)                                                                   \
    X(clGetMemObjectInfo, -1, -1, 0)                                                               \
    X(clRetainMemObject, -1, -1, 1)                                                                \
    X(clReleaseMemObject, -1, -1, -1)                                                              \
    X(clEnqueueNDRangeKernel, -1, 8, 0)                                                            \
    X(clEnqueueCopyBuffer, -1, 8, 0)                                                               \
    X(clEnqueueFillBuffer, -1, 8, 0)                                                               \
    X(clEnqueueWriteBuffer, -1, 8, 0)                                                              \
    X(clEnqueueWriteImage, -1, 10, 0)                                                              \
    X(clEnqueueMapBuffer, 9, 8, 0)                                                                 \
    X(clEnqueueUnmapMemObject, -1, 5, 0)                                                           \
    X(clEnqueueMarkerWithWaitList, -1, 3, 0)                                                       \
    X(clFlush, -1, -1, 0)                                                                          \
    X(clFinish, -1, -1, 0)                                                                         \
    X(clWaitForEvents, -1, -1, 0)                                                                  \
    X(clGetEventInfo, -1, -1, 0)                                                                   \
    X(clGetEventProfilingInfo, -1, -1, 0)                                                          \
    X(clReleaseEvent, -1, -1, -1)                                                                  \
    X(clGetDeviceInfo, -1, -1, 0)

enum {
#define NUMBER(name, code, event, live) N_##name,
    FUNCTIONS(NUMBER) MOST
};

static const struct {
    const char *name;
    int code, event, live;
} facts[MOST] = {
#define FACT(name, code, event, live) {#name, code, event, live},
    FUNCTIONS(FACT)};

static long counts[MOST], calls, failing, alive, mapped, bytes;
static int failure;
static struct {
    uint32_t what;
    uint64_t value;
} answers[16];
static int answer_count;

/* --- what tests ask --------------------------------------------------------------------------- */

void shim_start(void) {
    memset(counts, 0, sizeof counts);
    calls = failing = bytes = 0;
    answer_count = 0;
}

/* Objects of earlier tests. */
void shim_forget(void) { alive = mapped = 0; }

/* The call of that number from now on, 1 for the next, fails with a code. */
void shim_fail(long number, int code) {
    calls = 0;
    failing = number;
    failure = code;
}

/* What a device or image says, as an integer of the asked size, in place of the truth. */
void shim_answer(uint32_t what, uint64_t value) {
    answers[answer_count].what = what;
    answers[answer_count++].value = value;
}

long shim_count(const char *name) {
    for (int i = 0; i < MOST; i++) {
        if (!strcmp(facts[i].name, name)) return counts[i];
    }
    abort();
}

long shim_calls(void) { return calls; }
long shim_alive(void) { return alive; }
long shim_mapped(void) { return mapped; }
long shim_bytes(void) { return bytes; } /* of buffers made since the start */

/* The names of all that was called since shim_start, each before a space. */
const char *shim_called(void) {
    static char names[4096];
    *names = 0;
    for (int i = 0; i < MOST; i++) {
        if (!counts[i]) continue;
        strcat(names, facts[i].name);
        strcat(names, " ");
    }
    return names;
}

/* --- passing on ------------------------------------------------------------------------------- */

static function *real(int number) {
    static void *library;
    static function *functions[MOST];
    if (!library) library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) abort();
    if (!functions[number]) {
        void *found = dlsym(library, facts[number].name);
        memcpy(&functions[number], &found, sizeof found);
    }
    return functions[number];
}

static word pass(int number, const word *a) {
    const int code = facts[number].code, event = facts[number].event;
    counts[number]++;
    const bool ends = facts[number].live < 0 || number == N_clEnqueueUnmapMemObject;
    if (++calls == failing && !ends) {
        if (code < 0) return failure;
        *(int32_t *)a[code] = failure;
        return 0;
    }
    if (number == N_clGetDeviceInfo || number == N_clGetImageInfo) {
        for (int i = 0; i < answer_count; i++) {
            if (answers[i].what != (uint32_t)a[1] || !a[3]) continue;
            memcpy((void *)a[3], &answers[i].value, a[2] < 8 ? (size_t)a[2] : 8);
            return 0;
        }
    }
    const word result = real(number)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9],
                                     a[10], a[11]);
    const int failed = code < 0 ? (int32_t)result : *(int32_t *)a[code];
    if (failed) return result;
    alive += facts[number].live;
    if (number == N_clCreateBuffer) bytes += a[2];
    if (event >= 0 && a[event]) alive++;
    mapped += (number == N_clEnqueueMapBuffer) - (number == N_clEnqueueUnmapMemObject);
    /* What ends something may fail, but it is ended. */
    return calls == failing ? failure : result;
}

#define FORWARD(name, code, event, live)                                                           \
    word name(word a, word b, word c, word d, word e, word f, word g, word h, word i, word j,      \
              word k, word l) {                                                                    \
        const word all[12] = {a, b, c, d, e, f, g, h, i, j, k, l};                                 \
        return pass(N_##name, all);                                                                \
    }
FUNCTIONS(FORWARD)
