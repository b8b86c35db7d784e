/* Time (POSIX): a clock, and waiting for a device with a limit. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif

#include "tinyedge_internal.h"

#include <time.h>

#define MOST_PAUSE 200000 /* nanoseconds between two questions */

uint64_t te_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

te_status te_poll(te_context *context, int64_t timeout, te_ask *ask, te_error *error) {
    const uint64_t start = te_clock();
    struct timespec pause = {0, 1000};
    bool done = false;
    for (;;) {
        TE_TRY(ask(context, &done, error));
        if (done) return TE_OK;
        TE_NEED(timeout < 0 || (te_clock() - start) / 1000000 < (uint64_t)timeout, TE_RUN_TIMEOUT,
                "not finished after %lld ms; the run goes on", (long long)timeout);
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < MOST_PAUSE) pause.tv_nsec *= 2;
    }
}
