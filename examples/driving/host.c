/*
Drive: camera frames in, predictions out, 20 times a second. See README.md.

    host [BUNDLE] [--frames N] [--hz RATE] [--device DEVICE] [--cache FOLDER] [--threads N]
         [--realtime] [--raw FILE] [--stride BYTES] [--turn ROLL,PITCH,YAW] [--desire N]
         [--right-hand] [--help]

BUNDLE is the folder, by default the current one. Two cameras give a frame each, every 1/RATE
seconds on an absolute clock: generated ones, or NV12 from --raw (`-`: standard input), where a
frame of the narrow camera and one of the wide camera follow each other, rows without gaps. Each
frame is warped by the entries `frame` and `wide_frame`, whose results stay on the device as states
of the entry `main`. A frame that is late is run all the same. --frames 0 goes on until the frames
end or SIGINT comes.

--device: its number, or a part of its name. --cache: a folder for the kernels that the driver
compiled. --threads: of the cpu. --realtime: SCHED_FIFO and locked memory, where that is allowed.
--stride: from one row to the next in memory, as a camera's driver may have it. --turn: how the
cameras are mounted, in radians. --desire: the wish that holds from the first frame on.

Exit: 0 all frames were run, or SIGINT came; 2 wrong usage; 3 the bundle or the device refuses.

Nothing is allocated and no file is opened from the first frame on.
*/
#include "model.h"
#include "tinyedge.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { USAGE = 2, REFUSED = 3, CAMERAS = 2, BLOCK = 32, BINS = 200000, BINS_EACH = 20 };

typedef struct arguments {
    const char *folder, *raw, *device, *cache;
    long frames;
    double hz, turn[3];
    int threads, stride, desire;
    bool realtime, right_hand;
} arguments;

/* An NV12 frame as a camera's driver gives it: all rows of Y, then those of UV, `stride` apart. */
typedef struct camera {
    unsigned char *memory;
    uint32_t *tiles; /* of a row of a generated frame */
    int rows, columns, stride;
    float transform[9];
} camera;

/* Latencies in bins of 50 microseconds, up to 10 seconds: memory of a fixed size. */
typedef struct latencies {
    uint32_t bins[BINS + 1];
    uint64_t count;
    double most;
} latencies;

static volatile sig_atomic_t stopped;

static void on_signal(int number) {
    (void)number;
    stopped = 1;
}

static void stop(int code, const char *subject, const char *words) {
    fprintf(stderr, "%s: %s\n", subject, words);
    exit(code);
}

static void check(te_context *context, te_status status) {
    if (status) stop(REFUSED, "host", te_last_error(context)->text);
}

/* --- the command line ------------------------------------------------------------------------ */

static double number(const char *option, const char *text, double least, double most) {
    char *end, words[128];
    const double value = strtod(text, &end);
    if (end == text || *end || !(value >= least && value <= most)) {
        snprintf(words, sizeof words, "it takes a number, %g to %g, not %s", least, most, text);
        stop(USAGE, option, words);
    }
    return value;
}

static void help(void) {
    puts("host [BUNDLE] [--frames N] [--hz RATE] [--device DEVICE] [--cache FOLDER] [--threads N]\n"
         "     [--realtime] [--raw FILE] [--stride BYTES] [--turn ROLL,PITCH,YAW] [--desire N]\n"
         "     [--right-hand] [--help]");
    exit(0);
}

static arguments parse(int count, char **words) {
    arguments a = {.folder = ".", .frames = 200, .hz = 20, .threads = 1, .desire = -1};
    for (int i = 1; i < count; i++) {
        const char *word = words[i], *next = i + 1 < count ? words[i + 1] : NULL;
        if (!strcmp(word, "--help")) help();
        else if (!strcmp(word, "--realtime")) a.realtime = true;
        else if (!strcmp(word, "--right-hand")) a.right_hand = true;
        else if (*word != '-') a.folder = word;
        else if (!next) stop(USAGE, word, "no such option, or it needs a value");
        else {
            i++;
            if (!strcmp(word, "--frames")) a.frames = (long)number(word, next, 0, 1e9);
            else if (!strcmp(word, "--hz")) a.hz = number(word, next, 0.1, 10000);
            else if (!strcmp(word, "--threads")) a.threads = (int)number(word, next, 1, 64);
            else if (!strcmp(word, "--stride")) a.stride = (int)number(word, next, 2, 65536);
            else if (!strcmp(word, "--raw")) a.raw = next;
            else if (!strcmp(word, "--device")) a.device = next;
            else if (!strcmp(word, "--cache")) a.cache = next;
            else if (!strcmp(word, "--desire")) {
                a.desire = (int)number(word, next, 0, MODEL_INPUT_DESIRE_ELEMENTS - 1);
            } else if (!strcmp(word, "--turn")) {
                double *turn = a.turn;
                if (sscanf(next, "%lf,%lf,%lf", &turn[0], &turn[1], &turn[2]) != 3) {
                    stop(USAGE, next, "give ROLL,PITCH,YAW in radians");
                }
            } else stop(USAGE, word, "no such option");
        }
    }
    return a;
}

/* --- cameras --------------------------------------------------------------------------------- */

static void multiply(const double a[9], const double b[9], double result[9]) {
    for (int i = 0; i < 9; i++) {
        result[i] = 0;
        for (int k = 0; k < 3; k++) result[i] += a[i / 3 * 3 + k] * b[k * 3 + i % 3];
    }
}

/* From a pixel of the model's luma to the camera's: lens * mount * (the model's lens)^-1. The
   model's two views have fixed lenses; the cameras' are for 1928 columns. The mount's angles are
   taken to first order. */
static void aim(camera *c, bool wide, const double turn[3]) {
    const double focal = (wide ? 567 : 2648) * (double)c->columns / 1928;
    const double seen = wide ? 455 : 910, horizon = wide ? 151.8 : 47.6;
    const double lens[9] = {focal, 0, c->columns / 2.0, 0, focal, c->rows / 2.0, 0, 0, 1};
    const double mount[9] = {1, -turn[0], turn[2], turn[0], 1, -turn[1], -turn[2], turn[1], 1};
    const double view[9] = {1 / seen, 0, -256 / seen, 0, 1 / seen, -horizon / seen, 0, 0, 1};
    double outer[9], all[9];
    multiply(lens, mount, outer);
    multiply(outer, view, all);
    for (int i = 0; i < 9; i++) c->transform[i] = (float)all[i];
}

static camera open_camera(bool wide, const arguments *a, int rows, int columns) {
    camera c = {.rows = rows, .columns = columns};
    c.stride = a->stride ? a->stride : (columns + 127) / 128 * 128;
    if (c.stride < columns) stop(USAGE, "--stride", "it is less than a row");
    c.memory = calloc((size_t)rows * 3 / 2, (size_t)c.stride);
    c.tiles = calloc((size_t)columns / BLOCK + 2, sizeof *c.tiles);
    if (!c.memory || !c.tiles) stop(REFUSED, "camera", "out of memory");
    aim(&c, wide, a->turn);
    return c;
}

static uint32_t mix(uint32_t x) {
    x += 0x9e3779b9u;
    x ^= x >> 16;
    x *= 0x85ebca6bu;
    x ^= x >> 13;
    x *= 0xc2b2ae35u;
    return x ^ x >> 16;
}

/* Tiles of 32 by 32 pixels that move to the left, under a gradient that moves down. */
static void generate(const camera *c, uint32_t index, uint32_t frame) {
    for (int row = 0; row < c->rows; row++) {
        unsigned char *y = c->memory + (size_t)row * (size_t)c->stride;
        unsigned char *uv = c->memory + (size_t)(c->rows + row / 2) * (size_t)c->stride;
        if (row % BLOCK == 0) {
            for (uint32_t i = 0; i <= (uint32_t)(c->columns / BLOCK + 1); i++) {
                const uint32_t tile = (4 * frame >> 5) + i + (uint32_t)row / BLOCK * 256;
                c->tiles[i] = mix(tile + (index << 24));
            }
        }
        const uint32_t shift = 4 * frame % BLOCK, gradient = ((uint32_t)row + 2 * frame) & 127;
        for (uint32_t column = 0; column < (uint32_t)c->columns; column++) {
            y[column] = (unsigned char)((c->tiles[(column + shift) / BLOCK] & 127) + gradient);
        }
        if (row % 2) continue;
        for (uint32_t column = 0; column < (uint32_t)c->columns; column += 2) {
            const uint32_t tile = c->tiles[(column + shift) / BLOCK];
            uv[column] = (unsigned char)(64 + (tile >> 8 & 127));
            uv[column + 1] = (unsigned char)(64 + (tile >> 16 & 127));
        }
    }
}

/* The next frame of a file; false at its end. */
static bool read_frame(const camera *c, int file) {
    for (int row = 0; row < c->rows * 3 / 2; row++) {
        unsigned char *to = c->memory + (size_t)row * (size_t)c->stride;
        size_t left = (size_t)c->columns;
        while (left) {
            const ssize_t got = read(file, to, left);
            if (got < 0 && errno == EINTR && !stopped) continue;
            if (got < 0 && !stopped) stop(USAGE, "--raw", strerror(errno));
            if (got <= 0) return false;
            to += got;
            left -= (size_t)got;
        }
    }
    return true;
}

/* Bind an entry's inputs to a camera's memory: planes with gaps between their rows. */
static void bind_camera(te_context *context, const camera *c, const int inputs[3]) {
    const int64_t rows = c->rows, columns = c->columns, stride = c->stride;
    const int64_t y_shape[] = {rows, columns}, y_strides[] = {stride, 1};
    const int64_t uv_shape[] = {rows / 2, columns / 2, 2}, uv_strides[] = {stride, 2, 1};
    const size_t bytes = (size_t)(rows * stride);
    const te_tensor y = {.size = sizeof y, .data = c->memory, .bytes = bytes,
                         .rank = 2, .shape = y_shape, .strides = y_strides};
    const te_tensor uv = {.size = sizeof uv, .data = c->memory + bytes, .bytes = bytes / 2,
                          .rank = 3, .shape = uv_shape, .strides = uv_strides};
    const te_tensor transform = {.size = sizeof transform, .data = (void *)c->transform,
                                 .bytes = sizeof c->transform};
    check(context, te_bind_input(context, inputs[0], &y));
    check(context, te_bind_input(context, inputs[1], &uv));
    check(context, te_bind_input(context, inputs[2], &transform));
}

/* --- time ------------------------------------------------------------------------------------ */

static double milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* Sleep until a point of time on the monotonic clock, however long the work before it took. */
static void sleep_until(double time) {
    const int64_t nanoseconds = (int64_t)(time * 1e6);
    const struct timespec at = {(time_t)(nanoseconds / 1000000000), nanoseconds % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR && !stopped) {
    }
}

static void note(latencies *all, double time) {
    const double bin = time * BINS_EACH;
    all->bins[bin < BINS ? (int)bin : BINS]++;
    all->count++;
    if (time > all->most) all->most = time;
}

static double percentile(const latencies *all, uint64_t percent) {
    const uint64_t wanted = (all->count * percent + 99) / 100;
    uint64_t seen = 0;
    for (int bin = 0; bin < BINS; bin++) {
        seen += all->bins[bin];
        const double end = (bin + 1) / (double)BINS_EACH;
        if (seen >= wanted) return end < all->most ? end : all->most;
    }
    return all->most;
}

static void report(const char *name, const latencies *all) {
    printf("%-13s p50 %8.2f ms  p99 %8.2f ms  max %8.2f ms\n", name, percentile(all, 50),
           percentile(all, 99), all->most);
}

/* A real-time process is neither interrupted by others nor waits for its memory; the threads that
   it starts from then on are the same. */
static void become_realtime(void) {
    const struct sched_param parameter = {.sched_priority = 50};
    if (sched_setscheduler(0, SCHED_FIFO, &parameter)) perror("note: no SCHED_FIFO");
    if (mlockall(MCL_CURRENT | MCL_FUTURE)) perror("note: memory is not locked");
}

/* --- driving --------------------------------------------------------------------------------- */

static float outputs[MODEL_OUTPUT_OUTPUTS_ELEMENTS];

#define SLICE(name) \
    outputs + MODEL_OUTPUT_OUTPUTS_SLICE_##name##_OFFSET, MODEL_OUTPUT_OUTPUTS_SLICE_##name##_SIZE

static void show(const char *name, const float *values, int count) {
    printf("  %s", name);
    for (int i = 0; i < count && i < 6; i++) printf(" %.5g", (double)values[i]);
}

static void show_slices(long frame) {
    printf("frame %ld:", frame);
    show("pose", SLICE(POSE));
    show("lead_prob", SLICE(LEAD_PROB));
    show("desire_state", SLICE(DESIRE_STATE));
    printf("\n");
}

int main(int count, char **words) {
    static char text[4096];
    static latencies warps, runs, wholes;
    const arguments a = parse(count, words);
    setvbuf(stdout, text, _IOLBF, sizeof text);

    te_model *model;
    te_context *context;
    te_error error;
    const te_open_options open_options = {
        .size = sizeof open_options, .folder = a.folder, .plan = MODEL_PLAN};
    const te_context_options options = {.size = sizeof options, .backend = MODEL_BACKEND,
                                        .kernels = MODEL_KERNELS, .threads = a.threads,
                                        .cuda = {.device = a.device},
                                        .opencl = {.device = a.device, .cache_folder = a.cache}};
    if (te_open(&open_options, &model, &error)) stop(REFUSED, a.folder, error.text);
    if (a.realtime) become_realtime(); /* the context's threads are then as well */
    if (te_create(model, &options, &context, &error)) stop(REFUSED, a.folder, error.text);

    const int shapes[CAMERAS][2] = {MODEL_INPUT_Y_SHAPE, MODEL_INPUT_WIDE_Y_SHAPE};
    const int inputs[CAMERAS][3] = {
        {MODEL_INPUT_Y, MODEL_INPUT_UV, MODEL_INPUT_TRANSFORM},
        {MODEL_INPUT_WIDE_Y, MODEL_INPUT_WIDE_UV, MODEL_INPUT_WIDE_TRANSFORM}};
    const int entries[CAMERAS] = {MODEL_ENTRY_FRAME, MODEL_ENTRY_WIDE_FRAME};
    camera cameras[CAMERAS];
    for (int i = 0; i < CAMERAS; i++) {
        cameras[i] = open_camera(i == 1, &a, shapes[i][0], shapes[i][1]);
        bind_camera(context, &cameras[i], inputs[i]);
    }

    float desire[MODEL_INPUT_DESIRE_ELEMENTS] = {0};
    if (a.desire >= 0) desire[a.desire] = 1;
    float traffic[MODEL_INPUT_TRAFFIC_CONVENTION_ELEMENTS] = {!a.right_hand, a.right_hand};
    const te_tensor wish = {.size = sizeof wish, .data = desire, .bytes = sizeof desire};
    const te_tensor side = {.size = sizeof side, .data = traffic, .bytes = sizeof traffic};
    const te_tensor result = {.size = sizeof result, .data = outputs, .bytes = sizeof outputs};
    check(context, te_bind_input(context, MODEL_INPUT_DESIRE, &wish));
    check(context, te_bind_input(context, MODEL_INPUT_TRAFFIC_CONVENTION, &side));
    check(context, te_bind_output(context, MODEL_OUTPUT_OUTPUTS, &result));

    int file = -1;
    if (a.raw) {
        file = strcmp(a.raw, "-") ? open(a.raw, O_RDONLY) : STDIN_FILENO;
        if (file < 0) stop(USAGE, a.raw, strerror(errno));
    }
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);

    const double period = 1e3 / a.hz;
    const long second = a.hz < 1 ? 1 : (long)a.hz;
    long frame = 0, missed = 0;
    const double began = milliseconds();
    for (; !stopped && (!a.frames || frame < a.frames); frame++) {
        sleep_until(began + period * (double)frame);
        bool there = !stopped;
        for (int i = 0; i < CAMERAS && there; i++) {
            if (file >= 0) there = read_frame(&cameras[i], file);
            else generate(&cameras[i], (uint32_t)i, (uint32_t)frame);
        }
        if (!there) break;
        const double start = milliseconds();
        for (int i = 0; i < CAMERAS; i++) check(context, te_run(context, entries[i]));
        const double warped = milliseconds();
        check(context, te_run(context, MODEL_ENTRY_MAIN));
        const double end = milliseconds();
        note(&warps, warped - start);
        note(&runs, end - warped);
        note(&wholes, end - start);
        if (end > began + period * (double)(frame + 1)) missed++;
        if (frame % second == 0) show_slices(frame);
    }
    if (!frame && !stopped) stop(USAGE, a.raw, "it has no whole frame of both cameras");
    if (frame) {
        show_slices(frame - 1);
        report("preprocessing", &warps);
        report("model", &runs);
        report("both", &wholes);
    }
    printf("%ld frames, %ld missed deadlines at %g Hz\n", frame, missed, a.hz);
    if (file > STDIN_FILENO) close(file);
    for (int i = 0; i < CAMERAS; i++) {
        free(cameras[i].memory);
        free(cameras[i].tiles);
    }
    te_destroy(context);
    te_close(model);
    if (fflush(stdout) || ferror(stdout)) stop(USAGE, "standard output", "it cannot be written");
    return 0;
}
