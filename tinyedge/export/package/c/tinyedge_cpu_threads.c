/* The cpu's threads. Who runs takes the next part of a task that may begin, so nobody waits for a
   thread that the system does not let run, but for what it has begun. Who finds nothing to take
   looks again for some microseconds, then sleeps. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif

#include "tinyedge_cpu.h"

#include <string.h>

#ifndef TINYEDGE_NO_THREADS
#include <limits.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#define SPIN_NANOSECONDS 30000
#define LOOKS 50 /* between two questions what time it is */

static bool available(te_pool *pool) {
    const unsigned next = atomic_load_explicit(&pool->next, memory_order_relaxed);
    const unsigned limit = atomic_load_explicit(&pool->limit, memory_order_acquire);
    return (int)(limit - next) > 0;
}

/* A ticket stays that of its list until its part is done: nothing of the list changes before. */
static bool take(te_pool *pool, unsigned *ticket) {
    *ticket = atomic_load_explicit(&pool->next, memory_order_relaxed);
    while ((int)(atomic_load_explicit(&pool->limit, memory_order_acquire) - *ticket) > 0) {
        if (atomic_compare_exchange_weak_explicit(&pool->next, ticket, *ticket + 1,
                                                  memory_order_relaxed, memory_order_relaxed)) {
            return true;
        }
    }
    return false;
}

/* Let all tasks begin that wait for nothing, and wake as many threads as they have parts, but for
   this one's. Unlocks. */
static void publish(te_pool *pool) {
    const te_task *tasks = pool->tasks;
    while (pool->ready < pool->count && tasks[pool->ready].after <= pool->done) pool->ready++;
    const uint32_t tickets =
        pool->ready < pool->count ? tasks[pool->ready].ticket : pool->tickets;
    const bool finished = pool->done == pool->count;
    atomic_store_explicit(&pool->limit, pool->base + tickets, memory_order_release);
    atomic_store_explicit(&pool->finished, finished, memory_order_release);
    const unsigned next = atomic_load_explicit(&pool->next, memory_order_relaxed);
    int others = (int)(pool->base + tickets - next) - 1;
    const bool caller = pool->caller_sleeps && (finished || others > 0);
    if (others > pool->sleeping) others = pool->sleeping;
    pthread_mutex_unlock(&pool->mutex);
    if (caller) pthread_cond_signal(&pool->end);
    for (int i = 0; i < others; i++) pthread_cond_signal(&pool->begin);
}

/* A task is done; those after it that were done before count now, too. */
static void finish(te_pool *pool) {
    pthread_mutex_lock(&pool->mutex);
    while (pool->done < pool->count &&
           !atomic_load_explicit(&pool->tasks[pool->done].left, memory_order_acquire)) {
        pool->done++;
    }
    publish(pool);
}

/* The part that a task's ticket is for. Threads that take tickets by turns get parts beside each
   other, so that few of the cache lines that one writes belong to another. */
static uint32_t part_of(uint32_t ticket, uint32_t parts, uint32_t threads) {
    const uint32_t thread = ticket % threads, more = parts % threads;
    return ticket / threads + thread * (parts / threads) + (thread < more ? thread : more);
}

/* Run what there is to take. near: a task at or before that of the next ticket, as a rule. */
static void work(te_pool *pool, uint32_t *near) {
    unsigned ticket;
    while (take(pool, &ticket)) {
        const uint32_t number = ticket - pool->base;
        if (*near >= pool->count || pool->tasks[*near].ticket > number) *near = 0;
        while (number - pool->tasks[*near].ticket >= pool->tasks[*near].parts) ++*near;
        te_task *task = &pool->tasks[*near];
        const uint32_t threads = (uint32_t)pool->threads;
        te_run_part(pool->commands, task, part_of(number - task->ticket, task->parts, threads));
        if (atomic_fetch_sub_explicit(&task->left, 1, memory_order_acq_rel) == 1) finish(pool);
    }
}

static int64_t nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Whether there is something to take soon, or for the caller of te_pool_run the end. */
static bool look(te_pool *pool, bool caller) {
    const int64_t start = nanoseconds();
    do {
        for (int i = 0; i < LOOKS; i++) {
            if (available(pool)) return true;
            if (caller && atomic_load_explicit(&pool->finished, memory_order_acquire)) return true;
        }
        sched_yield();
    } while (nanoseconds() - start < SPIN_NANOSECONDS);
    return false;
}

static void *worker(void *argument) {
    te_pool *pool = argument;
    uint32_t near = 0;
    bool stop = false;
    while (!stop) {
        work(pool, &near);
        if (look(pool, false)) continue;
        pthread_mutex_lock(&pool->mutex);
        pool->sleeping++;
        while (!pool->stop && !available(pool)) pthread_cond_wait(&pool->begin, &pool->mutex);
        pool->sleeping--;
        stop = pool->stop;
        pthread_mutex_unlock(&pool->mutex);
    }
    return NULL;
}

static void sleep_until(te_pool *pool) {
    pthread_mutex_lock(&pool->mutex);
    pool->caller_sleeps = true;
    while (!atomic_load(&pool->finished) && !available(pool)) {
        pthread_cond_wait(&pool->end, &pool->mutex);
    }
    pool->caller_sleeps = false;
    pthread_mutex_unlock(&pool->mutex);
}

static void run_together(te_pool *pool, const te_command *commands, te_task *tasks,
                         uint32_t count) {
    uint32_t near = 0;
    pthread_mutex_lock(&pool->mutex);
    pool->commands = commands;
    pool->tasks = tasks;
    pool->count = count;
    pool->done = pool->ready = 0;
    pool->base += pool->tickets;
    pool->tickets = tasks[count - 1].ticket + tasks[count - 1].parts;
    publish(pool);
    for (;;) {
        work(pool, &near);
        if (atomic_load_explicit(&pool->finished, memory_order_acquire)) return;
        if (!look(pool, true)) sleep_until(pool);
    }
}

int te_processors(void) {
#ifdef _SC_NPROCESSORS_ONLN
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    if (processors > 0) return processors < INT_MAX ? (int)processors : INT_MAX;
#endif
    return INT_MAX;
}

size_t te_pool_bytes(int threads) {
    return sizeof(te_pool) + (size_t)(threads - 1) * sizeof(pthread_t);
}

bool te_pool_start(te_pool *pool, int threads) {
    memset(pool, 0, sizeof *pool);
    pool->threads = threads;
    if (threads == 1) return true;
    if (pthread_mutex_init(&pool->mutex, NULL)) return false;
    if (pthread_cond_init(&pool->begin, NULL)) {
        pthread_mutex_destroy(&pool->mutex);
        return false;
    }
    if (pthread_cond_init(&pool->end, NULL)) {
        pthread_cond_destroy(&pool->begin);
        pthread_mutex_destroy(&pool->mutex);
        return false;
    }
    pool->locks = true;
    for (; pool->started < threads - 1; pool->started++) {
        if (pthread_create(&pool->workers[pool->started], NULL, worker, pool)) return false;
    }
    return true;
}

void te_pool_stop(te_pool *pool) {
    if (!pool->locks) return;
    pthread_mutex_lock(&pool->mutex);
    pool->stop = true;
    pthread_cond_broadcast(&pool->begin);
    pthread_mutex_unlock(&pool->mutex);
    for (int i = 0; i < pool->started; i++) pthread_join(pool->workers[i], NULL);
    pthread_cond_destroy(&pool->end);
    pthread_cond_destroy(&pool->begin);
    pthread_mutex_destroy(&pool->mutex);
}
#else
int te_processors(void) { return 1; }

size_t te_pool_bytes(int threads) {
    (void)threads;
    return sizeof(te_pool);
}

bool te_pool_start(te_pool *pool, int threads) {
    pool->threads = threads;
    return true;
}

void te_pool_stop(te_pool *pool) { (void)pool; }
#endif

void te_pool_run(te_pool *pool, const te_command *commands, te_task *tasks, uint32_t end) {
    uint32_t count = 1;
    while (tasks[count - 1].end != end) count++;
#ifndef TINYEDGE_NO_THREADS
    if (pool->threads > 1 && te_divide_tasks(commands, tasks, count, pool->threads)) {
        run_together(pool, commands, tasks, count);
        return;
    }
#else
    (void)pool;
#endif
    for (uint32_t i = 0; i < count; i++) te_run_part(commands, &tasks[i], 0);
}
