// k0: split range=1 factor=4 outer=2; to range=3 kind=unroll; split range=2 factor=8 outer=4; to range=5 kind=threads; split range=0 factor=6 outer=6; to range=7 kind=local; to range=6 kind=grid
extern "C" __global__ void k0(
    float *__restrict__ b0,
    float *__restrict__ b1,
    const float4 *__restrict__ b2) {
    __shared__ float shared0[48];
    __shared__ float shared1[48];
    const int g6 = (int)blockIdx.x;
    const int l5 = (int)threadIdx.x % 8;
    const int l7 = (int)threadIdx.x / 8;
    const bool v0 = l5 < 1;
    const int i0 = (l5 + (g6 * 144)) + (l7 * 24);
    float acc0 = (-TE_INFINITY);
    float acc1 = 0.0f;
    for (int r4 = 0; r4 < 3; r4++) {
        const float4 x0 = b2[i0 + (r4 * 8)];
        acc0 = te_max(acc0, x0.x);
        acc0 = te_max(acc0, x0.y);
        acc0 = te_max(acc0, x0.z);
        acc0 = te_max(acc0, x0.w);
        acc1 = acc1 + x0.x;
        acc1 = acc1 + x0.y;
        acc1 = acc1 + x0.z;
        acc1 = acc1 + x0.w;
    }
    const int i1 = (g6 * 6) + l7;
    const int i2 = (int)threadIdx.x - l5;
    shared0[(int)threadIdx.x] = acc0;
    shared1[(int)threadIdx.x] = acc1;
    __syncthreads();
    float acc2 = (-TE_INFINITY);
    float acc3 = 0.0f;
    for (int r8 = 0; r8 < 8; r8++) {
        acc2 = te_max(acc2, shared0[i2 + r8]);
        acc3 = acc3 + shared1[i2 + r8];
    }
    if (v0) { b0[i1] = acc2; }
    if (v0) { b1[i1] = acc3 / 96.0f; }
}
