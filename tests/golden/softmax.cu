// k0: split range=1 factor=4 outer=4; to range=5 kind=vector; split range=2 factor=4 outer=6; to range=7 kind=unroll; padto range=6 multiple=32; to range=6 kind=threads; split range=3 factor=4 outer=8; to range=9 kind=unroll; padto range=8 multiple=32; to range=8 kind=threads; padto range=4 multiple=32; to range=4 kind=lane; split range=0 factor=2 outer=10; to range=11 kind=local; to range=10 kind=grid
extern "C" __global__ void __launch_bounds__(64) k0(
    float4 *__restrict__ b0,
    const float4 *__restrict__ b1) {
    __shared__ float shared0[64];
    __shared__ float shared1[64];
    const int g10 = (int)blockIdx.x;
    const int l4 = (int)threadIdx.x % 32;
    const int l6 = (int)threadIdx.x % 32;
    const int l8 = (int)threadIdx.x % 32;
    const int l11 = (int)threadIdx.x / 32;
    const int i0 = (g10 * 50) + (l11 * 25);
    const int i1 = i0 + te_min(l4, 24);
    const bool v0 = l6 < 25;
    const float4 x0 = b1[i0 + te_min(l6, 24)];
    const int first0 = (int)threadIdx.x - l6;
    shared0[(int)threadIdx.x] = te_max(te_max(te_max(v0 ? x0.x : (-TE_INFINITY), v0 ? x0.y : (-TE_INFINITY)), v0 ? x0.z : (-TE_INFINITY)), v0 ? x0.w : (-TE_INFINITY));
    __syncthreads();
    if (l6 < 16) { shared0[first0 + l6] = te_max(shared0[first0 + l6], shared0[first0 + l6 + 16]); }
    __syncthreads();
    const float v1 = te_max(te_max(te_max(te_max(te_max(te_max(te_max(te_max(te_max(te_max(te_max(te_max(te_max(te_max(te_max(shared0[first0 + 0], shared0[first0 + 1]), shared0[first0 + 2]), shared0[first0 + 3]), shared0[first0 + 4]), shared0[first0 + 5]), shared0[first0 + 6]), shared0[first0 + 7]), shared0[first0 + 8]), shared0[first0 + 9]), shared0[first0 + 10]), shared0[first0 + 11]), shared0[first0 + 12]), shared0[first0 + 13]), shared0[first0 + 14]), shared0[first0 + 15]);
    const bool v2 = l8 < 25;
    const float4 x1 = b1[i0 + te_min(l8, 24)];
    const int first1 = (int)threadIdx.x - l8;
    shared1[(int)threadIdx.x] = (((v2 ? te_exp(x1.x - v1) : 0.0f) + (v2 ? te_exp(x1.y - v1) : 0.0f)) + (v2 ? te_exp(x1.z - v1) : 0.0f)) + (v2 ? te_exp(x1.w - v1) : 0.0f);
    __syncthreads();
    if (l8 < 16) { shared1[first1 + l8] = shared1[first1 + l8] + shared1[first1 + l8 + 16]; }
    __syncthreads();
    const float v3 = ((((((((((((((shared1[first1 + 0] + shared1[first1 + 1]) + shared1[first1 + 2]) + shared1[first1 + 3]) + shared1[first1 + 4]) + shared1[first1 + 5]) + shared1[first1 + 6]) + shared1[first1 + 7]) + shared1[first1 + 8]) + shared1[first1 + 9]) + shared1[first1 + 10]) + shared1[first1 + 11]) + shared1[first1 + 12]) + shared1[first1 + 13]) + shared1[first1 + 14]) + shared1[first1 + 15];
    if (l4 < 25) { b0[i1] = te_exp(b1[i1] - te_float4(v1)) / te_float4(v3); }
}
