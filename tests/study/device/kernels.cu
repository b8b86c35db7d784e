// The contraction of kernels.cl as one writes it for a GPU with fast shared memory: a block of 256 threads makes 16 * R
// pixels by 64 * C columns, and copies 16 or fewer steps (CHUNK) of both operands into shared memory first.
extern "C" __global__ void __launch_bounds__(256) contract(
    float4 *__restrict__ y, const float4 *__restrict__ a, const float4 *__restrict__ w) {
    __shared__ float left[CHUNK][16 * R + 4];
    __shared__ float4 right[CHUNK][16 * C];
    const int thread = threadIdx.x, column = thread % 16, row = thread / 16 * R;
    const int first = blockIdx.y * 16 * R, across = blockIdx.x * 16 * C;
    const int quads = CHUNK / 4, loads = 16 * R * quads;
    float4 s[R][C] = {};
    for (int ky = 0; ky < KERNEL; ky++) {
        for (int start = 0; start < STEPS; start += quads) {
            __syncthreads();
            for (int i = thread; i < loads; i += 256) {
                const int pixel = first + i / quads, k = i % quads;
                const float4 x = a[pixel / WIDTH * ROW + pixel % WIDTH * PIXEL + ky * PITCH + start + k];
                left[4 * k + 0][i / quads] = x.x;
                left[4 * k + 1][i / quads] = x.y;
                left[4 * k + 2][i / quads] = x.z;
                left[4 * k + 3][i / quads] = x.w;
            }
            for (int i = thread; i < CHUNK * 16 * C; i += 256) {
                const int k = i / (16 * C), n = i % (16 * C);
                right[k][n] = w[((ky * STEPS + start) * 4 + k) * COLUMNS + across + n];
            }
            __syncthreads();
#pragma unroll
            for (int k = 0; k < CHUNK; k++) {
                float4 b[C];
                for (int c = 0; c < C; c++) b[c] = right[k][16 * c + column];
                for (int r = 0; r < R; r++) {
                    const float x = left[k][row + r];
                    for (int c = 0; c < C; c++) s[r][c] = b[c] * x + s[r][c];
                }
            }
        }
    }
    for (int r = 0; r < R; r++) {
        for (int c = 0; c < C; c++) y[(first + row + r) * COLUMNS + across + 16 * c + column] = s[r][c];
    }
}
