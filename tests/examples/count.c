/* Preloaded: counts a program's allocations and says so at its end. */
#include <stdio.h>
#include <stdlib.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);

static unsigned long allocations;

void *malloc(size_t bytes) {
    __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
    __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
    return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes) {
    __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
    return __libc_realloc(memory, bytes);
}

__attribute__((destructor)) static void report(void) {
    fprintf(stderr, "%lu allocations\n", __atomic_load_n(&allocations, __ATOMIC_RELAXED));
}
