// Kernels by hand in OpenCL C, which are CUDA's too: programs.py puts sizes and a dialect's spellings before them.
// Operands are padded to whole vectors, threads and tiles before, so that no inner loop tests a bound.
// Sizes: THREADS of a workgroup, VECTORS of four floats, PARTS that are summed alone, EACH vectors of a part.

kernel void copy(global float4 *restrict y, global const float4 *restrict a) {
    const int i = get_global_id(0);
    y[i] = a[i];
}

kernel void multiply_add(global float4 *restrict y, global const float4 *restrict a, global const float4 *restrict b,
                         global const float4 *restrict c) {
    const int i = get_global_id(0);
    y[i] = a[i] * b[i] + c[i];
}

// The limit of arithmetic: eight independent chains of TURNS multiplies and adds in a thread.
kernel void fma_loop(global float4 *restrict y) {
    const int i = get_global_id(0);
    const float4 x = F4(1.0001f), b = F4(0.5f);
    float4 s[8];
#pragma unroll
    for (int k = 0; k < 8; k++) s[k] = F4(i + k);
    for (int turn = 0; turn < TURNS; turn++) {
#pragma unroll
        for (int k = 0; k < 8; k++) s[k] = s[k] * x + b;
    }
    y[i] = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

// A part's vectors lie together (STRIDED 0: for a cache of each thread), or one from each part in turn (1: threads read
// neighbors at the same time).
kernel void sum_parts(global float *restrict parts, global const float4 *restrict a) {
    const int part = get_global_id(0);
    const int start = STRIDED ? part : part * EACH, step = STRIDED ? PARTS : 1;
    float4 s[4] = {F4(0), F4(0), F4(0), F4(0)};
    for (int i = 0; i < EACH; i += 4) {
#pragma unroll
        for (int k = 0; k < 4; k++) s[k] = s[k] + a[start + (i + k) * step];
    }
    parts[part] = lanes((s[0] + s[1]) + (s[2] + s[3]));
}

kernel void sum_total(global float *restrict y, global const float *restrict parts) {
    local float shared[THREADS];
    const int thread = get_local_id(0);
    float total = 0;
    for (int i = thread; i < PARTS; i += THREADS) total += parts[i];
    shared[thread] = total;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int step = THREADS / 2; step; step /= 2) {
        if (thread < step) shared[thread] += shared[thread + step];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (thread == 0) y[0] = shared[0];
}

// Softmax of one long row: each part's greatest and its sum of exponentials, then those of all, then the row.
kernel void row_parts(global float *restrict parts, global const float4 *restrict a) {
    const int part = get_global_id(0);
    const int start = STRIDED ? part : part * EACH, step = STRIDED ? PARTS : 1;
    float4 most = a[start], total = F4(0);
    for (int i = 1; i < EACH; i++) most = larger(most, a[start + i * step]);
    const float top = greatest(most);
    for (int i = 0; i < EACH; i++) total = total + exponential(a[start + i * step] - F4(top));
    parts[part] = top;
    parts[PARTS + part] = lanes(total);
}

kernel void row_total(global float *restrict pair, global const float *restrict parts) {
    local float tops[THREADS];
    local float sums[THREADS];
    const int thread = get_local_id(0);
    float top = parts[thread], total = 0;
    for (int i = thread; i < PARTS; i += THREADS) top = fmax(top, parts[i]);
    for (int i = thread; i < PARTS; i += THREADS) total += parts[PARTS + i] * exp(parts[i] - top);
    tops[thread] = top;
    sums[thread] = total;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int step = THREADS / 2; step; step /= 2) {
        if (thread < step) {
            const float both = fmax(tops[thread], tops[thread + step]);
            sums[thread] = sums[thread] * exp(tops[thread] - both) + sums[thread + step] * exp(tops[thread + step] - both);
            tops[thread] = both;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (thread == 0) pair[0] = tops[0];
    if (thread == 0) pair[1] = 1.0f / sums[0];
}

kernel void row_write(global float4 *restrict y, global const float4 *restrict a, global const float *restrict pair) {
    const int i = get_global_id(0);
    y[i] = exponential(a[i] - F4(pair[0])) * pair[1];
}

// Softmax of rows of VECTORS, one by a thread; what pads a row is so small that its exponential is 0.
kernel void softmax_by_thread(global float4 *restrict y, global const float4 *restrict a) {
    const int at = get_global_id(0) * VECTORS;
    float4 most = a[at], total = F4(0);
    for (int i = 1; i < VECTORS; i++) most = larger(most, a[at + i]);
    const float top = greatest(most);
    for (int i = 0; i < VECTORS; i++) {
        const float4 e = exponential(a[at + i] - F4(top));
        y[at + i] = e;
        total = total + e;
    }
    const float inverse = 1.0f / lanes(total);
    for (int i = 0; i < VECTORS; i++) y[at + i] = y[at + i] * inverse;
}

// One by a workgroup, which keeps it in registers.
kernel void softmax_by_group(global float4 *restrict y, global const float4 *restrict a) {
    local float shared[THREADS];
    const int thread = get_local_id(0), at = get_group_id(0) * VECTORS;
    float4 row[(VECTORS + THREADS - 1) / THREADS];
    float4 most = F4(-1e30f), total = F4(0);
#pragma unroll
    for (int i = 0; i < (VECTORS + THREADS - 1) / THREADS; i++) {
        row[i] = i * THREADS + thread < VECTORS ? a[at + i * THREADS + thread] : F4(-1e30f);
        most = larger(most, row[i]);
    }
    shared[thread] = greatest(most);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int step = THREADS / 2; step; step /= 2) {
        if (thread < step) shared[thread] = fmax(shared[thread], shared[thread + step]);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    const float top = shared[0];
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (int i = 0; i < (VECTORS + THREADS - 1) / THREADS; i++) {
        row[i] = exponential(row[i] - F4(top));
        total = total + row[i];
    }
    shared[thread] = lanes(total);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int step = THREADS / 2; step; step /= 2) {
        if (thread < step) shared[thread] += shared[thread + step];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    const float inverse = 1.0f / shared[0];
#pragma unroll
    for (int i = 0; i < (VECTORS + THREADS - 1) / THREADS; i++) {
        if (i * THREADS + thread < VECTORS) y[at + i * THREADS + thread] = row[i] * inverse;
    }
}

kernel void norm_by_thread(global float4 *restrict y, global const float4 *restrict a, global const float4 *restrict scale,
                           global const float4 *restrict shift) {
    const int at = get_global_id(0) * VECTORS;
    float4 total = F4(0), squares = F4(0);
    for (int i = 0; i < VECTORS; i++) total = total + a[at + i];
    const float mean = lanes(total) / (4 * VECTORS);
    for (int i = 0; i < VECTORS; i++) {
        const float4 d = a[at + i] - F4(mean);
        squares = squares + d * d;
    }
    const float inverse = 1.0f / sqrt(lanes(squares) / (4 * VECTORS) + EPSILON);
    for (int i = 0; i < VECTORS; i++) y[at + i] = (a[at + i] - F4(mean)) * inverse * scale[i] + shift[i];
}

kernel void norm_by_group(global float4 *restrict y, global const float4 *restrict a, global const float4 *restrict scale,
                          global const float4 *restrict shift) {
    local float shared[THREADS];
    const int thread = get_local_id(0), at = get_group_id(0) * VECTORS;
    float4 total = F4(0), squares = F4(0);
    for (int i = thread; i < VECTORS; i += THREADS) total = total + a[at + i];
    shared[thread] = lanes(total);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int step = THREADS / 2; step; step /= 2) {
        if (thread < step) shared[thread] += shared[thread + step];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    const float mean = shared[0] / (4 * VECTORS);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = thread; i < VECTORS; i += THREADS) {
        const float4 d = a[at + i] - F4(mean);
        squares = squares + d * d;
    }
    shared[thread] = lanes(squares);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int step = THREADS / 2; step; step /= 2) {
        if (thread < step) shared[thread] += shared[thread + step];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    const float inverse = 1.0f / sqrt(shared[0] / (4 * VECTORS) + EPSILON);
    for (int i = thread; i < VECTORS; i += THREADS) {
        y[at + i] = (a[at + i] - F4(mean)) * inverse * scale[i] + shift[i];
    }
}

// Products and convolutions: y[p][n] = sum over ky and k of a[base(p) + ky * PITCH + k] * w[ky][k][n], where base(p) is
// p / WIDTH * ROW + p % WIDTH * PIXEL: for a product of matrices WIDTH is all rows, for a convolution over a halo with
// its channels last k runs over kx and channels, which lie together. In vectors: PITCH, ROW, PIXEL, STEPS (of k),
// COLUMNS (of n). A thread makes R pixels by C vectors.
kernel void contract(global float4 *restrict y, global const float4 *restrict a, global const float4 *restrict w) {
    const int column = get_global_id(0) * C, first = get_global_id(1) * R;
    int base[R];
    float4 s[R][C];
#pragma unroll
    for (int r = 0; r < R; r++) {
        base[r] = (first + r) / WIDTH * ROW + (first + r) % WIDTH * PIXEL;
#pragma unroll
        for (int c = 0; c < C; c++) s[r][c] = F4(0);
    }
    for (int ky = 0; ky < KERNEL; ky++) {
        for (int k = 0; k < STEPS; k++) {
            const int row = (ky * STEPS + k) * 4 * COLUMNS + column;
            float4 x[R];
#pragma unroll
            for (int r = 0; r < R; r++) x[r] = a[base[r] + ky * PITCH + k];
#pragma unroll
            for (int c = 0; c < C; c++) {
                const float4 w0 = w[row + c], w1 = w[row + COLUMNS + c];
                const float4 w2 = w[row + 2 * COLUMNS + c], w3 = w[row + 3 * COLUMNS + c];
#pragma unroll
                for (int r = 0; r < R; r++) {
                    s[r][c] = w0 * x[r].x + s[r][c];
                    s[r][c] = w1 * x[r].y + s[r][c];
                    s[r][c] = w2 * x[r].z + s[r][c];
                    s[r][c] = w3 * x[r].w + s[r][c];
                }
            }
        }
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
#pragma unroll
        for (int c = 0; c < C; c++) y[(first + r) * COLUMNS + column + c] = s[r][c];
    }
}

// Depthwise 3x3 over a halo, channels last: a thread makes one vector of channels of a pixel.
kernel void depthwise(global float4 *restrict y, global const float4 *restrict a, global const float4 *restrict w) {
    const int i = get_global_id(0), c = i % COLUMNS, p = i / COLUMNS;
    const int base = p / WIDTH * ROW + p % WIDTH * PIXEL + c;
    float4 s = F4(0);
#pragma unroll
    for (int k = 0; k < 9; k++) s = a[base + k / 3 * PITCH + k % 3 * COLUMNS] * w[k * COLUMNS + c] + s;
    y[i] = s;
}

// softmax(q kT / sqrt(width)) v by blocks of four keys with a running greatest and sum: a thread makes one row of VECTORS,
// which it keeps in registers. Rows of q are padded to ROWS a head, keys to 4 * BLOCKS, of which LENGTH count.
// Workgroups along y are heads.
kernel void attention(global float4 *restrict y, global const float4 *restrict q, global const float4 *restrict k,
                      global const float4 *restrict v) {
    const int head = get_group_id(1), at = (head * ROWS + get_global_id(0)) * VECTORS;
    const int keys = head * 4 * BLOCKS * VECTORS;
    float4 mine[VECTORS], out[VECTORS];
    float top = -1e30f, total = 0;
#pragma unroll
    for (int i = 0; i < VECTORS; i++) mine[i] = q[at + i] * SCALE;
#pragma unroll
    for (int i = 0; i < VECTORS; i++) out[i] = F4(0);
    for (int block = 0; block < BLOCKS; block++) {
        const int from = keys + block * 4 * VECTORS;
        float4 s0 = F4(0), s1 = F4(0), s2 = F4(0), s3 = F4(0);
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            s0 = mine[i] * k[from + i] + s0;
            s1 = mine[i] * k[from + VECTORS + i] + s1;
            s2 = mine[i] * k[from + 2 * VECTORS + i] + s2;
            s3 = mine[i] * k[from + 3 * VECTORS + i] + s3;
        }
        const int left = LENGTH - 4 * block;
        float4 s = F4(lanes(s0));
        s.y = left > 1 ? lanes(s1) : -1e30f;
        s.z = left > 2 ? lanes(s2) : -1e30f;
        s.w = left > 3 ? lanes(s3) : -1e30f;
        const float above = fmax(top, greatest(s)), less = exp(top - above);
        const float4 e = exponential(s - F4(above));
        top = above;
        total = total * less + lanes(e);
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            float4 o = out[i] * less;
            o = v[from + i] * e.x + o;
            o = v[from + VECTORS + i] * e.y + o;
            o = v[from + 2 * VECTORS + i] * e.z + o;
            out[i] = v[from + 3 * VECTORS + i] * e.w + o;
        }
    }
#pragma unroll
    for (int i = 0; i < VECTORS; i++) y[at + i] = out[i] * (1.0f / total);
}
