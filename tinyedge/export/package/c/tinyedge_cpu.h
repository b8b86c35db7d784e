/* Launches and copies of the cpu, divided among threads. Nothing here knows a model or a context:
   Python's cpu device compiles tinyedge_cpu_tasks.c and tinyedge_cpu_threads.c, too. */
#ifndef TINYEDGE_CPU_H
#define TINYEDGE_CPU_H

#include "tinyedge.h"

#include <stdatomic.h>

#ifndef TINYEDGE_NO_THREADS
#include <pthread.h>
#endif

/* A launch, or a copy of bytes. */
typedef struct te_command {
    const te_kernel *kernel; /* NULL: a copy */
    void *const *buffers;    /* of a copy: where to, where from */
    const int32_t *symbols;
    int64_t amount; /* workgroups, or bytes of a copy; 0 does nothing */
    int64_t most;   /* the same at the greatest sizes */
    int64_t flops;  /* at these, an estimate */
} te_command;

/* What threads take, in this order: a command that may be divided into parts, or several small
   ones, one after the other. */
typedef struct te_task {
    uint32_t first, end; /* commands */
    uint32_t after;      /* so many tasks of the list must be done before it may begin */
    uint32_t parts;      /* at the sizes of its command */
    uint32_t ticket;     /* the first of its parts among those of the list */
    atomic_uint left;    /* parts that are not done */
} te_task;

/* Tasks for commands [first, end), which run in this order or as if they did; how many they are, at
   most one a command. */
uint32_t te_plan_tasks(const te_command *commands, uint32_t first, uint32_t end, te_task *tasks);

/* Divide tasks into parts for so many threads, at the sizes of now. false: one thread runs them as
   fast, for none has parts and each waits for the one before. */
bool te_divide_tasks(const te_command *commands, te_task *tasks, uint32_t count, int threads);

/* Part `part` of a task: its results do not depend on how many there are. */
void te_run_part(const te_command *commands, const te_task *task, uint32_t part);

typedef struct te_pool {
    int threads; /* with the one that calls te_pool_run */
#ifndef TINYEDGE_NO_THREADS
    int started;
    bool locks;
    pthread_mutex_t mutex; /* of all up to `sleeping`, and of writing to `limit` and `finished` */
    pthread_cond_t begin, end;
    const te_command *commands;
    te_task *tasks;
    uint32_t count, done, ready; /* tasks; those done, those that may begin: from the first on */
    uint32_t base, tickets;      /* the list's first ticket, and how many it has */
    bool stop, caller_sleeps;
    int sleeping;      /* workers */
    atomic_uint next;  /* ticket: each is a part of a task; they go on from list to list */
    atomic_uint limit; /* those below may be taken */
    atomic_bool finished;
    pthread_t workers[];
#endif
} te_pool;

/* TE_DEVICE_LIMITS where the processor lacks instruction sets that kernels need. */
te_status te_check_needs(const te_kernels *kernels, te_error *error);

int te_processors(void); /* of the machine; a great number where it does not say */

/* Start threads - 1 workers, in memory of te_pool_bytes. false: one could not be started;
   te_pool_stop ends those that were. */
size_t te_pool_bytes(int threads);
bool te_pool_start(te_pool *pool, int threads);
void te_pool_stop(te_pool *pool);

/* Run the tasks that end with command `end`, and wait for them. */
void te_pool_run(te_pool *pool, const te_command *commands, te_task *tasks, uint32_t end);

#endif
