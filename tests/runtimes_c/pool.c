/*
Lists of random commands by a pool of threads and by one thread, on equal memory: both end with the
same bytes. Between lists the workers go to sleep. For ThreadSanitizer as well.

    pool THREADS LISTS
*/
#include "tinyedge_cpu.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUFFERS 6
#define WORDS 512
#define GROUP 32
#define COMMANDS 40

typedef struct memory {
    uint32_t words[BUFFERS][WORDS];
    void *bound[COMMANDS][2];
} memory;

static uint32_t state = 1;

static uint32_t draw(uint32_t below) {
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % below;
}

/* Order matters: a multiple of what was there, and what another buffer has. */
static void mix(void *const *buffers, const int32_t *symbols, int32_t begin, int32_t end) {
    uint32_t *to = buffers[0];
    const uint32_t *from = buffers[1];
    for (int32_t i = begin * GROUP; i < end * GROUP; i++) {
        to[i] = to[i] * 31u + from[i] + (uint32_t)symbols[0];
    }
}

static const te_kernel_buffer touched[] = {{WORDS * sizeof(uint32_t), true},
                                           {WORDS * sizeof(uint32_t), false}};
static const te_kernel kernel = {"mix", mix, touched, 2};

/* The same commands for both memories: some large enough for several threads, some small. */
static void make(te_command *commands, memory *to, uint32_t seed, const int32_t *symbols) {
    state = seed;
    for (int i = 0; i < COMMANDS; i++) {
        const uint32_t one = draw(BUFFERS), other = (one + 1 + draw(BUFFERS - 1)) % BUFFERS;
        const bool copy = !draw(4);
        to->bound[i][0] = to->words[one];
        to->bound[i][1] = to->words[other];
        commands[i] = (te_command){.kernel = copy ? NULL : &kernel, .buffers = to->bound[i],
                                   .symbols = symbols, .flops = draw(3) ? 4000000 : 1000};
        commands[i].most = commands[i].amount =
            copy ? (int64_t)(WORDS * sizeof(uint32_t)) : WORDS / GROUP;
    }
}

static void wait_for_sleep(te_pool *pool) {
    for (bool asleep = false; !asleep;) {
        pthread_mutex_lock(&pool->mutex);
        asleep = pool->sleeping == pool->started;
        pthread_mutex_unlock(&pool->mutex);
        sched_yield();
    }
}

/* Small commands that wait for each other are nothing to share. */
static int run_small(te_pool *pool, memory *to, const int32_t *symbols) {
    te_command commands[COMMANDS];
    te_task tasks[COMMANDS];
    make(commands, to, 1, symbols);
    for (int i = 0; i < COMMANDS; i++) commands[i].flops = 1000;
    const uint32_t before = pool->base + pool->tickets;
    te_plan_tasks(commands, 0, COMMANDS, tasks);
    te_pool_run(pool, commands, tasks, COMMANDS);
    return pool->base + pool->tickets != before;
}

int main(int count, char **words) {
    static memory ones, others; /* by one thread, by several */
    te_command commands[2][COMMANDS];
    te_task tasks[COMMANDS];
    const int32_t symbols[1] = {7};
    if (count != 3) return 2;
    te_pool one, *pool = malloc(te_pool_bytes(atoi(words[1])));
    if (!te_pool_start(&one, 1) || !te_pool_start(pool, atoi(words[1]))) return 1;
    for (uint32_t list = 0; list < (uint32_t)atoi(words[2]); list++) {
        const uint32_t first = list % 7, end = COMMANDS - list % 5;
        make(commands[0], &ones, list, symbols);
        make(commands[1], &others, list, symbols);
        te_plan_tasks(commands[0], first, end, tasks);
        te_pool_run(&one, commands[0], tasks, end);
        te_plan_tasks(commands[1], first, end, tasks);
        te_pool_run(pool, commands[1], tasks, end);
        if (memcmp(ones.words, others.words, sizeof ones.words)) return puts("they differ"), 1;
        if (list % 16 == 0) wait_for_sleep(pool);
    }
    if (run_small(pool, &others, symbols)) return puts("threads for little work"), 1;
    te_pool_stop(pool);
    free(pool);
    puts("agree");
    return 0;
}
