/*
Run this bundle, and no other; --help lists how. Inputs not given are generated; files other than
.npy are raw little-endian elements, of states safetensors. --loop N times N runs after a first one;
with --hz at that rate, it counts those that ended after the next was due. Exit: 0 all is well,
1 wrong outputs, 2 wrong usage or input, 3 the bundle or the device refuses.
All of it is in one file, for others to start from.
*/
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif

#include "model.h"
#include "tinyedge.h"
#include "tinyedge_states.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WRONG = 1, USAGE = 2, REFUSED = 3, MOST = 64 };

typedef struct pair { const char *name, *value; } pair;

typedef struct arguments {
    const char *folder, *entry, *device, *cache, *variant, *load_states, *save_states;
    pair inputs[MOST], outputs[MOST], symbols[MOST];
    int input_count, output_count, symbol_count, threads;
    long loop;
    double hz;
    bool profile, self_test, memory;
} arguments;

typedef struct array {
    unsigned char *data;
    size_t bytes;
    int rank; /* -1: raw */
    int64_t shape[TE_MAX_RANK];
} array;

static const char *const descriptions[] = {"",    "|b1", "|i1", "<i2", "<i4", "<i8", "|u1",
                                           "<u2", "<u4", "<u8", "<f2", "<f4", "<f8"};

static void stop(int code, const char *words, const char *subject) {
    fprintf(stderr, "%s%s%s\n", subject, *subject ? ": " : "", words);
    exit(code);
}

static void check_of(const char *subject, te_context *context, te_status status) {
    const int code = status >= TE_RUN_ENTRY ? USAGE : REFUSED;
    if (status) stop(code, te_last_error(context)->text, subject);
}

static void check(te_context *context, te_status status) { check_of("", context, status); }

static void *take(size_t bytes) {
    void *memory = calloc(1, bytes ? bytes : 1);
    if (!memory) stop(REFUSED, "out of memory", "");
    return memory;
}

/* --- the command line ------------------------------------------------------------------------ */

static void add_pair(pair *pairs, int *count, char *text) {
    char *equals = strrchr(text, '=');
    if (!equals || *count == MOST) stop(USAGE, "give NAME=VALUE, at most 64 times", text);
    *equals = 0;
    for (int i = 0; i < *count; i++) {
        if (!strcmp(pairs[i].name, text)) stop(USAGE, "it is given twice", text);
    }
    pairs[(*count)++] = (pair){text, equals + 1};
}

/* The value of an option, of which `kind` says more: "whole " or nothing. */
static double number(const char *option, const char *text, const char *kind, double least) {
    char *end, words[128];
    const double value = strtod(text, &end);
    const bool read = end != text && !*end && value >= least && value <= 1e9;
    if (!read || (*kind && value != (double)(long)value)) {
        snprintf(words, sizeof words, "it takes a %snumber, %g to 1e9, not %s", kind, least, text);
        stop(USAGE, words, option);
    }
    return value;
}

static long whole(const char *option, const char *text) {
    return (long)number(option, text, "whole ", 1);
}

static void help(void) {
    puts("run [BUNDLE] [options]           BUNDLE: its folder, by default the current one\n"
         "  --input NAME=FILE              .npy or raw elements; generated if it is not given\n"
         "  --output NAME=FILE             .npy or raw elements\n"
         "  --entry NAME, --symbol NAME=N  default: the first entry, the greatest sizes\n"
         "  --load-states FILE, --save-states FILE     all states, before and after the runs\n"
         "  --device DEVICE                its number, or a part of its name\n"
         "  --cache FOLDER                 keep the kernels that the driver compiled there\n"
         "  --threads N                    of the cpu\n"
         "  --variant NAME                 of several programs, which; default: the best\n"
         "  --loop N, --hz RATE            run N times, at a rate: latencies, missed deadlines\n"
         "  --profile                      time of each kernel\n"
         "  --memory                       what will be allocated\n"
         "  --self-test                    run the golden cases twice and compare");
    exit(0);
}

static arguments parse(int count, char **words) {
    arguments a = {.threads = 1};
    for (int i = 1; i < count; i++) {
        char *word = words[i], *next = i + 1 < count ? words[i + 1] : NULL;
        if (!strcmp(word, "--self-test")) a.self_test = true;
        else if (!strcmp(word, "--profile")) a.profile = true;
        else if (!strcmp(word, "--memory")) a.memory = true;
        else if (!strcmp(word, "--help") || !strcmp(word, "-h")) help();
        else if (*word != '-' && a.folder) stop(USAGE, "a bundle is given before it", word);
        else if (*word != '-') a.folder = word;
        else if (!next) stop(USAGE, "no such option, or it needs a value: see --help", word);
        else {
            i++;
            if (!strcmp(word, "--input")) add_pair(a.inputs, &a.input_count, next);
            else if (!strcmp(word, "--output")) add_pair(a.outputs, &a.output_count, next);
            else if (!strcmp(word, "--symbol")) add_pair(a.symbols, &a.symbol_count, next);
            else if (!strcmp(word, "--entry")) a.entry = next;
            else if (!strcmp(word, "--device")) a.device = next;
            else if (!strcmp(word, "--cache")) a.cache = next;
            else if (!strcmp(word, "--variant")) a.variant = next;
            else if (!strcmp(word, "--load-states")) a.load_states = next;
            else if (!strcmp(word, "--save-states")) a.save_states = next;
            else if (!strcmp(word, "--threads")) a.threads = (int)whole(word, next);
            else if (!strcmp(word, "--loop")) a.loop = whole(word, next);
            else if (!strcmp(word, "--hz")) a.hz = number(word, next, "", 1e-3);
            else stop(USAGE, "no such option: see --help", word);
        }
    }
    if (a.hz > 0 && !a.loop) stop(USAGE, "it needs --loop", "--hz");
    if (!a.folder) a.folder = ".";
    return a;
}

/* --- arrays in files ------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end) {
    const size_t length = strlen(text), tail = strlen(end);
    return length >= tail && !strcmp(text + length - tail, end);
}

/* The header of a .npy file, as numpy writes it: a Python dict in text. */
static size_t npy_header(array *array, const te_port_info *input, const char *file) {
    const unsigned char *data = array->data;
    char text[4096], words[256];
    if (array->bytes < 12 || memcmp(data, "\x93NUMPY", 6)) stop(USAGE, "it is no .npy file", file);
    const bool first = data[6] == 1;
    size_t length = data[8] | (size_t)data[9] << 8, start = first ? 10 : 12;
    if (!first) length |= (size_t)data[10] << 16 | (size_t)data[11] << 24;
    if (length >= sizeof text || length > array->bytes - start) stop(USAGE, "its header", file);
    memcpy(text, data + start, length);
    text[length] = 0;
    const char *kind = strstr(text, "'descr': '");
    kind = kind ? kind + strlen("'descr': '") : "";
    const size_t letters = strcspn(kind, "'"), wanted = strlen(descriptions[input->dtype]);
    if (letters != wanted || memcmp(kind, descriptions[input->dtype], wanted)) {
        snprintf(words, sizeof words, "input %s takes %s, '%s', the file has '%.*s'", input->name,
                 te_dtype_name(input->dtype), descriptions[input->dtype],
                 letters < 16 ? (int)letters : 16, kind);
        stop(USAGE, words, file);
    }
    if (!strstr(text, "'fortran_order': False")) stop(USAGE, "it is in Fortran's order", file);
    char *at = strstr(text, "'shape': (");
    if (!at) stop(USAGE, "its header has no shape", file);
    at += strlen("'shape': (");
    array->rank = 0;
    while (*at >= '0' && *at <= '9') {
        if (array->rank == TE_MAX_RANK) stop(USAGE, "it has more than 8 axes", file);
        array->shape[array->rank++] = strtoll(at, &at, 10);
        while (*at == ',' || *at == ' ') at++;
    }
    return start + length;
}

/* for_what: of what the file is, such as " for input x", or nothing. */
static array read_file(const char *name, const char *for_what) {
    array result = {.rank = -1};
    char words[256];
    FILE *file = fopen(name, "rb");
    if (!file || fseek(file, 0, SEEK_END)) {
        snprintf(words, sizeof words, "%s%s", strerror(errno), for_what);
        stop(USAGE, words, name);
    }
    const long bytes = ftell(file);
    if (bytes == LONG_MAX) stop(USAGE, "it is no file", name); /* a folder */
    rewind(file);
    result.bytes = bytes > 0 ? (size_t)bytes : 0;
    result.data = take(result.bytes);
    if (fread(result.data, 1, result.bytes, file) != result.bytes) {
        stop(USAGE, "it cannot be read", name);
    }
    fclose(file);
    return result;
}

static array read_array(const char *name, const te_port_info *input) {
    char words[128];
    snprintf(words, sizeof words, ", for input %s", input->name);
    array result = read_file(name, words);
    if (!ends_with(name, ".npy")) return result;
    const size_t header = npy_header(&result, input, name);
    result.bytes -= header;
    memmove(result.data, result.data + header, result.bytes);
    return result;
}

static void write_array(const char *name, te_dtype dtype, const array *array) {
    FILE *file = fopen(name, "wb");
    if (!file) stop(USAGE, strerror(errno), name);
    if (ends_with(name, ".npy")) {
        char text[512];
        int used = snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                            descriptions[dtype]);
        for (int axis = 0; axis < array->rank; axis++) {
            used += snprintf(text + used, sizeof text - (size_t)used, "%lld,%s",
                             (long long)array->shape[axis], axis + 1 < array->rank ? " " : "");
        }
        used += snprintf(text + used, sizeof text - (size_t)used, "), }");
        const int length = (used + 1 + 10 + 63) / 64 * 64 - 10;
        fprintf(file, "\x93NUMPY%c%c%c%c%-*s\n", 1, 0, length & 255, length >> 8, length - 1, text);
    }
    if (fwrite(array->data, 1, array->bytes, file) != array->bytes || fclose(file)) {
        stop(USAGE, "it cannot be written", name);
    }
}

/* --- running --------------------------------------------------------------------------------- */

static const char *chosen(const pair *pairs, int count, const char *name) {
    for (int i = 0; i < count; i++) {
        if (!strcmp(pairs[i].name, name)) return pairs[i].value;
    }
    return NULL;
}

static size_t bytes_of(te_dtype dtype, int rank, const int64_t *shape) {
    size_t bytes = te_dtype_bytes(dtype);
    for (int axis = 0; axis < rank; axis++) bytes *= (size_t)shape[axis];
    return bytes;
}

/* The words with one more of the names that there are. */
static void add_name(char *words, size_t size, int number, const char *name) {
    const size_t used = strlen(words);
    snprintf(words + used, size - used, "%s %s", number ? "," : "", name);
}

/* Names of the command line must be of the entry: another one is a slip. */
static void check_names(const te_model *model, int entry, te_group group, const pair *pairs,
                        int count) {
    for (int i = 0; i < count; i++) {
        te_port_info info;
        te_entry_info own;
        bool found = false;
        char words[512];
        te_entry(model, entry, &own);
        snprintf(words, sizeof words, "no such %s; entry %s has",
                 group == TE_INPUTS ? "input" : "output", own.name);
        for (int at = 0, port; (port = te_entry_port(model, entry, group, at)) >= 0; at++) {
            te_port(model, group, port, &info);
            found = found || !strcmp(info.name, pairs[i].name);
            add_name(words, sizeof words, at, info.name);
        }
        if (!found) stop(USAGE, words, pairs[i].name);
    }
}

static int find_entry(const te_model *model, const char *name) {
    te_entry_info info;
    char words[512] = "no such entry; the bundle has";
    for (int i = 0; te_entry(model, i, &info); i++) {
        if (!strcmp(info.name, name)) return i;
        add_name(words, sizeof words, i, info.name);
    }
    stop(USAGE, words, name);
    return -1;
}

static int find_symbol(const te_model *model, const char *name) {
    te_symbol_info info;
    char words[512] = "no such symbol; the bundle has";
    for (int i = 0; te_symbol(model, i, &info); i++) {
        if (!strcmp(info.name, name)) return i;
        add_name(words, sizeof words, i, info.name);
    }
    stop(USAGE, te_symbol_count(model) ? words : "the bundle has no symbols", name);
    return -1;
}

/* A symbol's size: as given by --symbol, else its maximum. */
static int64_t symbol_size(const te_model *model, const arguments *a, int index) {
    te_symbol_info info;
    te_symbol(model, index, &info);
    const char *given = chosen(a->symbols, a->symbol_count, info.name);
    char *end = "";
    const int64_t size = given ? strtoll(given, &end, 10) : info.max;
    const bool read = !given || (end != given && !*end);
    if (!read || size < info.min || size > info.max || (size - info.min) % info.step) {
        char words[256];
        snprintf(words, sizeof words, "it is %lld to %lld by steps of %lld, not %s",
                 (long long)info.min, (long long)info.max, (long long)info.step, given);
        stop(USAGE, words, info.name);
    }
    return size;
}

/* Refuse a file of other bytes than its input has: of a raw one the command line says the sizes. */
static void check_bytes(const te_model *model, const te_port_info *info, const array *given,
                        const array *wanted, const char *file) {
    const size_t bytes = bytes_of(info->dtype, wanted->rank, wanted->shape);
    const unsigned char *data = given->data;
    char words[1024];
    if (given->bytes == bytes) return;
    if (given->rank < 0 && info->dtype == TE_UINT8 && given->bytes > 3 &&
        (!memcmp(data, "\x89PNG", 4) || !memcmp(data, "\xff\xd8\xff", 3))) {
        snprintf(words, sizeof words, "a PNG or JPEG; input %s takes its pixels, .npy or raw bytes",
                 info->name);
        stop(USAGE, words, file);
    }
    snprintf(words, sizeof words, "elements of input %s are %zu bytes, the file has %zu",
             info->name, bytes, given->bytes);
    int open = 0;
    for (int axis = 0; axis < info->rank && given->rank < 0; axis++) {
        te_symbol_info symbol;
        if (info->symbol[axis] < 0) continue;
        te_symbol(model, info->symbol[axis], &symbol);
        const size_t used = strlen(words);
        snprintf(words + used, sizeof words - used, "%s%s=%lld",
                 open++ ? " --symbol " : "; that is --symbol ", symbol.name,
                 (long long)wanted->shape[axis]);
    }
    stop(USAGE, words, file);
}

/* Bind an input to its array, whose memory the caller frees after the last run. */
static void *bind(te_context *context, const te_model *model, const arguments *a, int input) {
    te_port_info info;
    te_port(model, TE_INPUTS, input, &info);
    const char *file = chosen(a->inputs, a->input_count, info.name);
    array array = {.rank = info.rank};
    for (int axis = 0; axis < info.rank; axis++) {
        array.shape[axis] =
            info.symbol[axis] < 0 ? info.shape[axis] : symbol_size(model, a, info.symbol[axis]);
    }
    if (file) {
        const struct array given = read_array(file, &info);
        array.data = given.data;
        array.bytes = given.bytes;
        if (given.rank >= 0) {
            array.rank = given.rank;
            memcpy(array.shape, given.shape, sizeof array.shape);
        }
        check_bytes(model, &info, &given, &array, file);
    } else {
        if (a->save_states) fprintf(stderr, "note: input %s is generated\n", info.name);
        const bool floats = info.dtype >= TE_FLOAT16;
        const int64_t most = floats || info.dtype == TE_BOOL ? 1 : 7;
        array.bytes = bytes_of(info.dtype, info.rank, array.shape);
        array.data = take(array.bytes);
        te_generate(info.dtype, array.data, array.bytes / te_dtype_bytes(info.dtype), 1, 0,
                    (uint32_t)input, floats ? -1 : 0, most);
    }
    const te_tensor tensor = {.size = sizeof tensor, .data = array.data, .bytes = array.bytes,
                              .rank = array.rank, .shape = array.shape};
    check(context, te_bind_input(context, input, &tensor));
    return array.data;
}

static void show(const char *name, te_dtype dtype, const array *array) {
    printf("%s %s [", name, te_dtype_name(dtype));
    for (int axis = 0; axis < array->rank; axis++) {
        printf("%s%lld", axis ? ", " : "", (long long)array->shape[axis]);
    }
    printf("]");
    const size_t size = te_dtype_bytes(dtype);
    for (size_t i = 0; i < array->bytes / size && i < 6; i++) {
        const unsigned char *element = array->data + i * size;
        float single;
        double value;
        int64_t whole = 0;
        memcpy(&single, element, size < 4 ? size : 4);
        memcpy(&value, element, size);
        memcpy(&whole, element, size);
        if (dtype == TE_FLOAT32) printf(" %.6g", (double)single);
        else if (dtype == TE_FLOAT64) printf(" %.6g", value);
        else if (dtype == TE_INT8) printf(" %d", (int)(int8_t)whole);
        else if (dtype == TE_INT16) printf(" %d", (int)(int16_t)whole);
        else if (dtype == TE_INT32) printf(" %d", (int)(int32_t)whole);
        else if (dtype == TE_FLOAT16) printf(" 0x%04llx", (unsigned long long)whole);
        else printf(" %lld", (long long)whole);
    }
    printf("%s\n", array->bytes / size > 6 ? " ..." : "");
}

static void give(te_context *context, const te_model *model, const arguments *a, int output) {
    te_port_info info;
    array array = {.rank = 0};
    te_port(model, TE_OUTPUTS, output, &info);
    check(context, te_shape(context, TE_OUTPUTS, output, &array.rank, array.shape));
    array.bytes = bytes_of(info.dtype, array.rank, array.shape);
    array.data = take(array.bytes);
    const te_tensor tensor = {.size = sizeof tensor, .data = array.data, .bytes = array.bytes};
    check(context, te_read_output(context, output, &tensor));
    const char *file = chosen(a->outputs, a->output_count, info.name);
    if (file) write_array(file, info.dtype, &array);
    show(info.name, info.dtype, &array);
    free(array.data);
}

static void load_states(te_context *context, const char *name) {
    array file = read_file(name, "");
    check_of(name, context, te_load_states(context, file.data, file.bytes));
    free(file.data);
}

/* What is computed can be written, told before it is computed. */
static void check_place(const char *name) {
    char folder[FILENAME_MAX];
    const char *slash = strrchr(name, '/');
    const size_t length = !slash ? 0 : slash == name ? 1 : (size_t)(slash - name);
    if (length >= sizeof folder) stop(USAGE, "too long", name);
    memcpy(folder, slash ? name : ".", slash ? length : 1);
    folder[slash ? length : 1] = 0;
    if (access(folder, W_OK)) stop(USAGE, strerror(errno), name);
}

/* Beside the old file, which it replaces once it is whole. */
static void save_states(te_context *context, const char *name) {
    char beside[FILENAME_MAX];
    array file = {.rank = -1};
    check(context, te_save_states(context, NULL, 0, &file.bytes));
    file.data = take(file.bytes);
    check(context, te_save_states(context, file.data, file.bytes, &file.bytes));
    const int length = snprintf(beside, sizeof beside, "%s.part", name);
    if (length < 0 || (size_t)length >= sizeof beside) stop(USAGE, "too long", name);
    write_array(beside, TE_UINT8, &file);
    if (rename(beside, name)) stop(USAGE, strerror(errno), name);
    free(file.data);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void sleep_until(double time) {
    const double left = time - seconds();
    if (left <= 0) return;
    struct timespec pause = {(time_t)left, (long)((left - (double)(time_t)left) * 1e9)};
    while (nanosleep(&pause, &pause) && errno == EINTR) continue;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Whether the last run made outputs of sizes that there is room for. */
static void check_sizes(te_context *context, const te_model *model, int entry) {
    int64_t shape[TE_MAX_RANK];
    int rank, output;
    for (int i = 0; (output = te_entry_port(model, entry, TE_OUTPUTS, i)) >= 0; i++) {
        check(context, te_shape(context, TE_OUTPUTS, output, &rank, shape));
    }
}

static void loop(te_context *context, const te_model *model, const arguments *a, int entry) {
    const size_t count = (size_t)a->loop;
    double *times = take(count * sizeof *times);
    long missed = 0;
    const double began = seconds();
    for (size_t i = 0; i < count; i++) {
        if (a->hz > 0) sleep_until(began + (double)i / a->hz);
        const double start = seconds();
        check(context, te_run(context, entry));
        const double end = seconds();
        times[i] = (end - start) * 1e3;
        if (a->hz > 0 && end > began + (double)(i + 1) / a->hz) missed++;
    }
    check_sizes(context, model, entry);
    qsort(times, count, sizeof *times, ascending);
    printf("%zu runs: p50 %.3f ms, p99 %.3f ms, max %.3f ms", count, times[count / 2],
           times[(count * 99 + 99) / 100 - 1], times[count - 1]);
    if (a->hz > 0) printf(", %ld missed deadlines at %g Hz", missed, a->hz);
    printf("\n");
    free(times);
}

static void print_profile(const te_context *context) {
    te_profile_info info;
    for (int i = 0; i < te_profile_count(context); i++) {
        te_profile(context, i, &info);
        if (!info.runs) continue;
        const double each = (double)info.nanoseconds / (double)info.runs;
        printf("%10.3f us %8.3f GFLOP/s  %-32s %s\n", each * 1e-3,
               each > 0 ? (double)info.flops / each : 0, info.kernel, info.nodes);
    }
}

/* What was printed has arrived. */
static void check_printed(void) {
    if (fflush(stdout) || ferror(stdout)) stop(USAGE, "it cannot be written", "standard output");
}

static int self_test(const te_model *model, const te_context_options *options) {
    te_test_report report;
    te_error error;
    const te_status status = te_self_test(model, options, &report, &error);
    if (status && status != TE_VERIFY_DIFFERS) stop(REFUSED, error.text, "");
    printf("self-test: %d cases, %d outputs: %d wrong, %d distinct between two runs, error %.2g\n",
           report.cases, report.outputs, report.wrong, report.distinct, report.error);
    return status || !report.cases ? WRONG : 0;
}

/* Of what the runtime logs, what no call returns. */
static void note(void *folder, te_status status, const char *text) {
    if (status != TE_DEVICE_CACHE) return;
    fprintf(stderr, "note: %s: %s; it must be yours, with room, and nobody else may write to it\n",
            (const char *)folder, text);
}

/* The kernels to run: of a bundle of several programs those that suit the processor. */
static const te_kernels *kernels_of(const arguments *a) {
#ifdef MODEL_VARIANTS
    te_error error;
    const te_kernels *kernels = te_choose(MODEL_KERNELS, a->variant, &error);
    if (!kernels) stop(error.status == TE_API_ARGUMENT ? USAGE : REFUSED, error.text, "");
    if (a->self_test || a->loop) printf("variant %s\n", kernels->variant);
    return kernels;
#else
    if (a->variant) stop(USAGE, "the bundle has no variants", "--variant");
    return MODEL_KERNELS;
#endif
}

int main(int count, char **words) {
    const arguments a = parse(count, words);
    const te_kernels *kernels = kernels_of(&a);
    if (kernels && a.device) stop(USAGE, "the processor is the only one", "--device");
    const te_open_options open = {.size = sizeof open, .folder = a.folder,
                                  .plan = kernels ? kernels->plan : MODEL_PLAN,
                                  .manifest = kernels ? kernels->manifest : NULL,
                                  .logger = {note, (void *)(uintptr_t)a.cache}};
    const te_context_options options = {.size = sizeof options, .backend = MODEL_BACKEND,
                                        .kernels = kernels, .threads = a.threads,
                                        .profile = a.profile, .cuda = {.device = a.device},
                                        .opencl = {.device = a.device, .cache_folder = a.cache}};
    te_model *model;
    te_context *context;
    te_error error;
    if (a.memory) {
        te_memory memory;
        if (te_measure(&open, &options, &memory, &error)) stop(REFUSED, error.text, a.folder);
        printf("memory: weights %" PRIu64 ", manifest %" PRIu64 "; each context: arenas %" PRIu64
               ", tables %" PRIu64 ", of the device %" PRIu64 " bytes\n",
               memory.weights, memory.manifest, memory.arenas, memory.context, memory.device);
    }
    if (te_open(&open, &model, &error)) stop(REFUSED, error.text, a.folder);
    if (a.self_test) {
        const int wrong = self_test(model, &options);
        te_close(model);
        check_printed();
        return wrong;
    }
    const int entry = a.entry ? find_entry(model, a.entry) : 0;
    const char *file = a.load_states ? a.load_states : a.save_states;
    te_port_info state;
    if (file && !te_port(model, TE_STATES, 0, &state)) stop(USAGE, "the bundle has no states", file);
    check_names(model, entry, TE_INPUTS, a.inputs, a.input_count);
    check_names(model, entry, TE_OUTPUTS, a.outputs, a.output_count);
    for (int i = 0; i < a.output_count; i++) check_place(a.outputs[i].value);
    if (a.save_states) check_place(a.save_states);
    if (te_create(model, &options, &context, &error)) stop(REFUSED, error.text, a.folder);
    for (int i = 0; i < a.symbol_count; i++) {
        const int symbol = find_symbol(model, a.symbols[i].name);
        check(context, te_set_symbol(context, symbol, symbol_size(model, &a, symbol)));
    }
    te_entry_info info;
    te_entry(model, entry, &info);
    void **memory = take((size_t)info.inputs * sizeof *memory);
    for (int i = 0; i < info.inputs; i++) {
        memory[i] = bind(context, model, &a, te_entry_port(model, entry, TE_INPUTS, i));
    }
    if (a.load_states) load_states(context, a.load_states);
    check(context, te_run(context, entry));
    check_sizes(context, model, entry); /* before others are timed */
    te_profile_reset(context); /* the first run warms up */
    if (a.loop) loop(context, model, &a, entry);
    else if (a.profile) check(context, te_run(context, entry));
    for (int i = 0; i < info.outputs; i++) {
        give(context, model, &a, te_entry_port(model, entry, TE_OUTPUTS, i));
    }
    if (a.save_states) save_states(context, a.save_states);
    print_profile(context);
    te_destroy(context);
    te_close(model);
    for (int i = 0; i < info.inputs; i++) free(memory[i]);
    free(memory);
    check_printed();
    return 0;
}
