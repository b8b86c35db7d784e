// The kernels of tests/bench/gpu.py as one writes them by hand. Sizes are macros: ROWS, COLUMNS, INNER.

// One vector of four a thread; 256 threads a block.
extern "C" __global__ void __launch_bounds__(256) elementwise(
    float4 *__restrict__ y, const float4 *__restrict__ a, const float4 *__restrict__ b) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    const float4 p = a[i], q = b[i];
    float4 r;
    r.x = fmaxf(p.x * 2.0f + q.x, 0.0f);
    r.y = fmaxf(p.y * 2.0f + q.y, 0.0f);
    r.z = fmaxf(p.z * 2.0f + q.z, 0.0f);
    r.w = fmaxf(p.w * 2.0f + q.w, 0.0f);
    y[i] = r;
}

// A block of 256 threads a row, which it keeps in registers.
extern "C" __global__ void __launch_bounds__(256) softmax(float4 *__restrict__ y, const float4 *__restrict__ x) {
    __shared__ float parts[2][8];
    const int vectors = COLUMNS / 4, mine = (vectors + 255) / 256;
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    float4 row[mine];
    float most = __int_as_float(0xff800000);
    for (int i = 0; i < mine; i++) {
        const int at = i * 256 + thread;
        if (at < vectors) {
            row[i] = x[blockIdx.x * vectors + at];
            most = fmaxf(fmaxf(fmaxf(most, row[i].x), fmaxf(row[i].y, row[i].z)), row[i].w);
        }
    }
    for (int step = 16; step; step /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
    if (lane == 0) parts[0][warp] = most;
    __syncthreads();
    for (int i = 0; i < 8; i++) most = fmaxf(most, parts[0][i]);
    float sum = 0;
    for (int i = 0; i < mine; i++) {
        if (i * 256 + thread < vectors) {
            row[i].x = expf(row[i].x - most);
            row[i].y = expf(row[i].y - most);
            row[i].z = expf(row[i].z - most);
            row[i].w = expf(row[i].w - most);
            sum += row[i].x + row[i].y + row[i].z + row[i].w;
        }
    }
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (lane == 0) parts[1][warp] = sum;
    __syncthreads();
    sum = 0;
    for (int i = 0; i < 8; i++) sum += parts[1][i];
    for (int i = 0; i < mine; i++) {
        const int at = i * 256 + thread;
        if (at < vectors) {
            row[i].x /= sum;
            row[i].y /= sum;
            row[i].z /= sum;
            row[i].w /= sum;
            y[blockIdx.x * vectors + at] = row[i];
        }
    }
}

// C = A B by tiles of 64 x 64: 16 x 16 threads of 4 x 4 results, tiles of both operands in shared memory.
extern "C" __global__ void __launch_bounds__(256) matmul(
    float *__restrict__ c, const float *__restrict__ a, const float *__restrict__ b) {
    __shared__ float left[16][64 + 4], right[16][64];
    const int thread = threadIdx.x, column = thread % 16 * 4, row = thread / 16 * 4;
    const int from = blockIdx.y * 64, to = blockIdx.x * 64;
    float sums[4][4] = {};
    for (int start = 0; start < INNER; start += 16) {
        const float4 p = *reinterpret_cast<const float4 *>(a + (from + thread / 4) * INNER + start + thread % 4 * 4);
        const float4 q = *reinterpret_cast<const float4 *>(b + (start + thread / 16) * COLUMNS + to + column);
        __syncthreads();
        left[thread % 4 * 4 + 0][thread / 4] = p.x;
        left[thread % 4 * 4 + 1][thread / 4] = p.y;
        left[thread % 4 * 4 + 2][thread / 4] = p.z;
        left[thread % 4 * 4 + 3][thread / 4] = p.w;
        *reinterpret_cast<float4 *>(&right[thread / 16][column]) = q;
        __syncthreads();
        for (int k = 0; k < 16; k++) {
            const float4 u = *reinterpret_cast<const float4 *>(&left[k][row]);
            const float4 v = *reinterpret_cast<const float4 *>(&right[k][column]);
            const float rows[4] = {u.x, u.y, u.z, u.w}, columns[4] = {v.x, v.y, v.z, v.w};
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++) sums[i][j] += rows[i] * columns[j];
        }
    }
    for (int i = 0; i < 4; i++)
        *reinterpret_cast<float4 *>(c + (from + row + i) * COLUMNS + to + column) =
            float4{sums[i][0], sums[i][1], sums[i][2], sums[i][3]};
}
