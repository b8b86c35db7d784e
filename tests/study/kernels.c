/*
What careful C with vector types reaches on one thread: the yardstick of `python -m tests.study`.

Compiled once for each tile (see hand.py): W floats in a vector, tiles of R rows by C vectors. A
contraction keeps R*C sums in registers while it reads C vectors of weights and R numbers a step.
Its weights lie in panels: [columns / (C*W)][steps][C*W], padded with zeros to whole panels.
Vectors of data may begin at any float, but what is streamed past the caches must be aligned.
*/
#include <stdint.h>
#include <string.h>

#if defined(__AVX__)
#include <immintrin.h>
#endif

typedef float vec __attribute__((vector_size(4 * W)));
typedef int32_t whole __attribute__((vector_size(4 * W)));
typedef float loose __attribute__((vector_size(4 * W), aligned(4)));

#define UNROLL _Pragma("GCC unroll 16")
#define INLINE static inline __attribute__((always_inline))

enum { PANEL = C * W, ROWS = 96 / R * R, STEPS = 256, CACHED = 1 << 18, ROW = 1 << 22 };

INLINE vec load(const float *p) { return *(const loose *)p; }
INLINE void store(float *p, vec v) { *(loose *)p = v; }
INLINE vec splat(float x) { return (vec){} + x; }
#if defined(__AVX512F__) && W == 16
INLINE vec larger(vec a, vec b) { return (vec)_mm512_max_ps((__m512)a, (__m512)b); }
INLINE void stream(float *p, vec v) { _mm512_stream_ps(p, (__m512)v); }
#elif defined(__AVX__) && W == 8
INLINE vec larger(vec a, vec b) { return (vec)_mm256_max_ps((__m256)a, (__m256)b); }
INLINE void stream(float *p, vec v) { _mm256_stream_ps(p, (__m256)v); }
#else
INLINE vec larger(vec a, vec b) {
    const whole greater = a > b;
    return (vec)((greater & (whole)a) | (~greater & (whole)b));
}
/* Past the caches where a machine can: what is written is not read first. */
INLINE void stream(float *p, vec v) { store(p, v); }
#endif

INLINE float sum_of(vec v) {
    float total = 0;
    for (int i = 0; i < W; i++) total += v[i];
    return total;
}

INLINE float most_of(vec v) {
    float most = v[0];
    for (int i = 1; i < W; i++) most = v[i] > most ? v[i] : most;
    return most;
}

/* e^x for x <= 0 to about one unit in the last place, 0 below -87: 2^k * e^r, |r| <= ln(2)/2. */
INLINE vec exponential(vec x) {
    const vec shift = splat(12582912.0f); /* 1.5 * 2^23: adding it rounds to a whole number */
    x = larger(x, splat(-87.0f));
    const vec shifted = x * 1.44269504f + shift, k = shifted - shift;
    const vec r = (x - k * 0.693359375f) + k * 2.12194440e-4f;
    vec p = splat(1.0f / 720);
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    const whole power = ((whole)shifted - (whole)shift + 127) << 23;
    return p * (vec)power;
}

/* --- the machine's limits -------------------------------------------------------------------- */

/* Multiplies and adds in registers: 12 * 2 * W * turns operations. */
float fma_loop(long turns) {
    vec a[12], x = splat(1.0001f), y = splat(0.5f);
    UNROLL for (int i = 0; i < 12; i++) a[i] = splat((float)i);
    for (long n = 0; n < turns; n++) {
        UNROLL for (int i = 0; i < 12; i++) a[i] = a[i] * x + y;
#if defined(__x86_64__)
        UNROLL for (int i = 0; i < 12; i++) __asm__ volatile("" : "+x"(a[i]));
#elif defined(__aarch64__)
        UNROLL for (int i = 0; i < 12; i++) __asm__ volatile("" : "+w"(a[i]));
#endif
    }
    vec total = splat(0);
    UNROLL for (int i = 0; i < 12; i++) total += a[i];
    return sum_of(total);
}

void copy(const float *in, float *out, long n) { memcpy(out, in, (size_t)n * sizeof *in); }

/* --- elementwise, reductions ----------------------------------------------------------------- */

/* d = a * b + c. d is aligned. */
void multiply_add(const float *a, const float *b, const float *c, float *d, long n) {
    long i = 0;
    if (n > CACHED) {
        for (; i + W <= n; i += W) stream(d + i, load(a + i) * load(b + i) + load(c + i));
    } else {
        for (; i + W <= n; i += W) store(d + i, load(a + i) * load(b + i) + load(c + i));
    }
    for (; i < n; i++) d[i] = a[i] * b[i] + c[i];
}

void sum(const float *in, float *out, long n) {
    vec part[8] = {};
    long i = 0;
    for (; i + 8 * W <= n; i += 8 * W) {
        UNROLL for (int k = 0; k < 8; k++) part[k] += load(in + i + k * W);
    }
    UNROLL for (int k = 1; k < 8; k++) part[0] += part[k];
    float total = sum_of(part[0]);
    for (; i < n; i++) total += in[i];
    *out = total;
}

static float most(const float *in, long n) {
    vec part[4] = {splat(in[0]), splat(in[0]), splat(in[0]), splat(in[0])};
    long i = 0;
    for (; i + 4 * W <= n; i += 4 * W) {
        UNROLL for (int k = 0; k < 4; k++) part[k] = larger(load(in + i + k * W), part[k]);
    }
    for (; i + W <= n; i += W) part[0] = larger(load(in + i), part[0]);
    float result = most_of(larger(larger(part[0], part[1]), larger(part[2], part[3])));
    for (; i < n; i++) result = in[i] > result ? in[i] : result;
    return result;
}

/* One last vector that is not full: the other lanes are `fill`. */
INLINE vec load_part(const float *in, long n, float fill) {
    float lanes[W];
    for (int i = 0; i < W; i++) lanes[i] = i < n ? in[i] : fill;
    return load(lanes);
}

INLINE void store_part(float *out, vec v, long n) { memcpy(out, &v, (size_t)n * sizeof *out); }

/* Sum of e^((x - top) * scale), kept in `out` unless that is NULL. */
INLINE float exponentials(const float *in, float *out, long n, float top, float scale) {
    vec total[4] = {};
    long i = 0;
    for (; i + 4 * W <= n; i += 4 * W) {
        UNROLL for (int k = 0; k < 4; k++) {
            const vec e = exponential((load(in + i + k * W) - top) * scale);
            if (out) store(out + i + k * W, e);
            total[k] += e;
        }
    }
    for (; i + W <= n; i += W) {
        const vec e = exponential((load(in + i) - top) * scale);
        if (out) store(out + i, e);
        total[0] += e;
    }
    if (i < n) {
        const vec e = exponential((load_part(in + i, n - i, top) - top) * scale);
        if (out) store_part(out + i, e, n - i);
        for (int k = 0; k < n - i; k++) total[0][k] += e[k];
    }
    return sum_of((total[0] + total[1]) + (total[2] + total[3]));
}

/* In a cache: greatest, exponentials, scaling. in may be out. */
static void short_row(const float *in, float *out, long n, float scale) {
    const float inverse = 1.0f / exponentials(in, out, n, most(in, n), scale);
    long i = 0;
    for (; i + W <= n; i += W) store(out + i, load(out + i) * inverse);
    for (; i < n; i++) out[i] *= inverse;
}

/* Beyond the caches: greatest and sum together, block by block, then each exponential again: two
   reads and one write of memory in place of three and two. out is aligned. */
static void long_row(const float *in, float *out, long n) {
    float top = in[0], total = 0;
    for (long start = 0; start < n; start += 4096) {
        const long size = n - start < 4096 ? n - start : 4096;
        const float above = most(in + start, size);
        if (above > top) {
            total *= exponential(splat(top - above))[0];
            top = above;
        }
        total += exponentials(in + start, NULL, size, top, 1.0f);
    }
    const float inverse = 1.0f / total;
    long i = 0;
    for (; i + W <= n; i += W) stream(out + i, exponential(load(in + i) - top) * inverse);
    if (i == n) return;
    store_part(out + i, exponential(load_part(in + i, n - i, top) - top) * inverse, n - i);
}

void softmax(const float *in, float *out, long rows, long n) {
    for (long row = 0; row < rows; row++, in += n, out += n) {
        if (n > ROW) long_row(in, out, n);
        else short_row(in, out, n, 1.0f);
    }
}

/* Rows of n, a multiple of W. */
void layer_norm(const float *in, const float *scale, const float *shift, float *out, long rows,
                long n, float epsilon) {
    for (long row = 0; row < rows; row++, in += n, out += n) {
        vec total = splat(0), squares = splat(0);
        for (long i = 0; i < n; i += W) total += load(in + i);
        const float mean = sum_of(total) / (float)n;
        for (long i = 0; i < n; i += W) {
            const vec difference = load(in + i) - mean;
            squares += difference * difference;
        }
        const float variance = sum_of(squares) / (float)n;
        const float inverse = 1.0f / __builtin_sqrtf(variance + epsilon);
        for (long i = 0; i < n; i += W) {
            store(out + i, (load(in + i) - mean) * inverse * load(scale + i) + load(shift + i));
        }
    }
}

/* --- contractions ---------------------------------------------------------------------------- */

/* The tile's sums over `steps` rows of a panel: row i reads a[i * stride + step]. */
INLINE void accumulate(vec sums[R][C], const float *a, long stride, const float *w, long steps) {
    for (long k = 0; k < steps; k++, w += PANEL) {
        vec b[C];
        UNROLL for (int c = 0; c < C; c++) b[c] = load(w + c * W);
        UNROLL for (int i = 0; i < R; i++) {
            const vec x = splat(a[i * stride + k]);
            UNROLL for (int c = 0; c < C; c++) sums[i][c] += x * b[c];
        }
    }
}

/* columns: how many of the tile's there are; less than PANEL at the right edge. */
INLINE void load_tile(vec sums[R][C], const float *out, long stride, long columns) {
    UNROLL for (int i = 0; i < R; i++) {
        UNROLL for (int c = 0; c < C; c++) {
            const float *p = out + i * stride + c * W;
            const long left = columns - c * W;
            sums[i][c] = left >= W ? load(p) : left > 0 ? load_part(p, left, 0) : splat(0);
        }
    }
}

INLINE void store_tile(vec sums[R][C], float *out, long stride, long columns) {
    if (columns >= PANEL) {
        UNROLL for (int i = 0; i < R; i++) {
            UNROLL for (int c = 0; c < C; c++) store(out + i * stride + c * W, sums[i][c]);
        }
        return;
    }
    float rows[R][PANEL];
    UNROLL for (int i = 0; i < R; i++) {
        UNROLL for (int c = 0; c < C; c++) store(rows[i] + c * W, sums[i][c]);
    }
    for (int i = 0; i < R; i++) memcpy(out + i * stride, rows[i], (size_t)columns * sizeof *out);
}

#define NONE(sums) \
    UNROLL for (int i = 0; i < R; i++) UNROLL for (int c = 0; c < C; c++) sums[i][c] = splat(0)

/* A convolution over a halo. in: [rows][pitch / channels][channels] with the padding written out;
   w: [panels][channels / block][kernel][kernel][block][PANEL]; out: [height][width][filters].
   The last tile of a row overlaps the one before it; with several blocks, width is whole tiles. */
void convolution(const float *in, const float *w, float *out, long height, long width,
                 long channels, long filters, long kernel, long stride, long pitch, long block) {
    for (long panel = 0; panel * PANEL < filters; panel++) {
        const long columns = filters - panel * PANEL;
        const long size = kernel * kernel * block * PANEL;
        for (long first = 0; first < channels; first += block, w += size) {
            for (long y = 0; y < height; y++) {
                for (long start = 0; start < width; start += R) {
                    const long x = start + R > width ? width - R : start;
                    float *o = out + (y * width + x) * filters + panel * PANEL;
                    const float *p = in + y * stride * pitch + x * stride * channels + first;
                    const float *weights = w;
                    vec sums[R][C];
                    NONE(sums);
                    if (first) load_tile(sums, o, filters, columns);
                    for (long ky = 0; ky < kernel; ky++) {
                        for (long kx = 0; kx < kernel; kx++, weights += block * PANEL) {
                            const float *a = p + ky * pitch + kx * channels;
                            accumulate(sums, a, stride * channels, weights, block);
                        }
                    }
                    store_tile(sums, o, filters, columns);
                }
            }
        }
    }
}

/* out[m][n] = a[m][k] * panels of [k][n]. Blocks of steps, whose sums are kept in `out`, and of
   rows that stay in the second cache. The last rows are tiles over all steps, which overlap others.
   m is at least R. */
void product(const float *a, const float *w, float *out, long m, long n, long k) {
    for (long first = 0; first < k; first += STEPS) {
        const long steps = k - first < STEPS ? k - first : STEPS;
        for (long top = 0; top < m; top += ROWS) {
            const long end = top + ROWS < m ? top + ROWS : m;
            for (long panel = 0; panel * PANEL < n; panel++) {
                for (long row = top; row + R <= end; row += R) {
                    float *o = out + row * n + panel * PANEL;
                    const float *weights = w + (panel * k + first) * PANEL;
                    vec sums[R][C];
                    NONE(sums);
                    if (first) load_tile(sums, o, n, n - panel * PANEL);
                    accumulate(sums, a + row * k + first, k, weights, steps);
                    store_tile(sums, o, n, n - panel * PANEL);
                }
            }
        }
    }
    if (m % R == 0) return;
    for (long panel = 0; panel * PANEL < n; panel++) {
        vec sums[R][C];
        NONE(sums);
        accumulate(sums, a + (m - R) * k, k, w + panel * k * PANEL, k);
        store_tile(sums, out + (m - R) * n + panel * PANEL, n, n - panel * PANEL);
    }
}

/* Depthwise 3x3 over a halo, channels a multiple of W. in as of `convolution`; w: [3][3][channels];
   out: [height][width][channels]. */
void depthwise(const float *in, const float *w, float *out, long height, long width, long channels,
               long stride, long pitch) {
    for (long y = 0; y < height; y++) {
        for (long c = 0; c < channels; c += W) {
            vec weights[9];
            UNROLL for (int i = 0; i < 9; i++) weights[i] = load(w + i * channels + c);
            const float *row = in + y * stride * pitch + c;
            float *o = out + y * width * channels + c;
            for (long x = 0; x < width; x++, row += stride * channels, o += channels) {
                vec total = splat(0);
                UNROLL for (int i = 0; i < 9; i++) {
                    total += load(row + i / 3 * pitch + i % 3 * channels) * weights[i];
                }
                store(o, total);
            }
        }
    }
}

/* Panels of a matrix [k][n]: of `b` as it is, or of b[n][k]. */
static void pack(const float *b, float *panels, long k, long n) {
    for (long first = 0; first < n; first += PANEL, panels += k * PANEL) {
        const long columns = n - first < PANEL ? n - first : PANEL;
        for (long i = 0; i < k; i++) {
            float *row = panels + i * PANEL;
            memcpy(row, b + i * n + first, (size_t)columns * sizeof *b);
            memset(row + columns, 0, (size_t)(PANEL - columns) * sizeof *b);
        }
    }
}

static void pack_transposed(const float *b, float *panels, long k, long n) {
    for (long first = 0; first < n; first += PANEL, panels += k * PANEL) {
        const long columns = n - first < PANEL ? n - first : PANEL;
        for (long i = 0; i < k; i += W) {
            const long end = i + W < k ? i + W : k;
            for (long j = 0; j < columns; j++) {
                for (long l = i; l < end; l++) panels[l * PANEL + j] = b[(first + j) * k + l];
            }
            for (long l = i; l < end; l++) {
                memset(panels + l * PANEL + columns, 0, (size_t)(PANEL - columns) * sizeof *b);
            }
        }
    }
}

/* softmax(q kT / sqrt(width)) v, each [heads][length][width], length at least R. Blocks of rows, so
   that the scores stay in the second cache. scratch: panels of k and v and ROWS rows of scores. */
void attention(const float *q, const float *k, const float *v, float *out, float *scratch,
               long heads, long length, long width) {
    const long padded = (length + PANEL - 1) / PANEL * PANEL;
    const long across = (width + PANEL - 1) / PANEL * PANEL;
    float *keys = scratch, *values = keys + padded * width, *scores = values + length * across;
    const float scale = 1.0f / __builtin_sqrtf((float)width);
    for (long head = 0; head < heads; head++) {
        const long at = head * length * width;
        pack_transposed(k + at, keys, width, length);
        pack(v + at, values, length, width);
        for (long top = 0; top < length; top += ROWS) {
            const long first = top + R > length ? length - R : top; /* a tile has R rows */
            const long rows = length - first < ROWS ? length - first : ROWS;
            product(q + at + first * width, keys, scores, rows, length, width);
            for (long i = 0; i < rows; i++) {
                short_row(scores + i * length, scores + i * length, length, scale);
            }
            product(scores, values, out + at + first * width, rows, width, length);
        }
    }
}
