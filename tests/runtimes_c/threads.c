/*
Two contexts, each with threads of its own, in two threads on one model, under ThreadSanitizer.

    threads FOLDER RUNS
*/
#include "model.h"
#include "tinyedge.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ELEMENTS 256

static te_model *model;
static int runs;

static void *use(void *argument) {
    const te_context_options options = {.size = sizeof options, .backend = te_cpu(),
                                        .kernels = MODEL_KERNELS, .threads = 3};
    float a[ELEMENTS], b[ELEMENTS], out[ELEMENTS], *first = argument;
    te_context *context;
    if (te_create(model, &options, &context, NULL)) exit(1);
    for (int run = 0; run < runs; run++) {
        for (int i = 0; i < ELEMENTS; i++) a[i] = *first + (float)(run + i), b[i] = 1;
        const te_tensor in[2] = {{.size = sizeof *in, .data = a, .bytes = sizeof a},
                                 {.size = sizeof *in, .data = b, .bytes = sizeof b}};
        const te_tensor to = {.size = sizeof to, .data = out, .bytes = sizeof out};
        for (int i = 0; i < 2; i++) te_bind_input(context, i, &in[i]);
        te_bind_output(context, 0, &to);
        if (te_run(context, 0)) exit(1);
        for (int i = 0; i < ELEMENTS; i++) {
            if (out[i] != a[i] + b[i] + (float)i) exit(1);
        }
    }
    te_destroy(context);
    return NULL;
}

int main(int count, char **words) {
    const te_open_options options = {.size = sizeof options, .folder = words[count > 1]};
    float starts[2] = {1, 1000};
    pthread_t threads[2];
    if (count != 3 || te_open(&options, &model, NULL)) return 2;
    runs = atoi(words[2]);
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, use, &starts[i]);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    te_close(model);
    puts("agree");
    return 0;
}
