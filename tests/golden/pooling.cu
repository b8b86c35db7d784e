// k0: to range=4 kind=unroll; to range=2 kind=local; to range=1 kind=local; split range=0 factor=2 outer=5; to range=6 kind=local; to range=5 kind=grid
extern "C" __global__ void k0(
    float *__restrict__ b0,
    const float *__restrict__ b1) {
    const int g5 = (int)blockIdx.x;
    const int l1 = ((int)threadIdx.x / 2) / 5;
    const int l2 = ((int)threadIdx.x / 2) % 5;
    const int l6 = (int)threadIdx.x % 2;
    const int i0 = (((l1 * 24) + (l2 * 2)) + (g5 * 288)) + (l6 * 144);
    float acc0 = (-TE_INFINITY);
    for (int r3 = 0; r3 < 3; r3++) {
        const int i1 = i0 + (r3 * 12);
        acc0 = te_max(acc0, b1[i1]);
        acc0 = te_max(acc0, b1[i1 + 1]);
        acc0 = te_max(acc0, b1[i1 + 2]);
    }
    b0[(((l1 * 5) + l2) + (g5 * 50)) + (l6 * 25)] = acc0;
}

// k1: split range=1 factor=16 outer=2; to range=3 kind=lanes; to range=0 kind=local
extern "C" __global__ void k1(
    float *__restrict__ b0,
    const float4 *__restrict__ b1) {
    const int l0 = (int)threadIdx.x;
    const int i0 = l0 * 36;
    float4 acc0 = te_float4(0.0f);
    float4 acc1 = te_float4(0.0f);
    float4 acc2 = te_float4(0.0f);
    float4 acc3 = te_float4(0.0f);
    for (int r2 = 0; r2 < 9; r2++) {
        const int i1 = i0 + (r2 * 4);
        acc0 = acc0 + b1[i1];
        acc1 = acc1 + b1[i1 + 1];
        acc2 = acc2 + b1[i1 + 2];
        acc3 = acc3 + b1[i1 + 3];
    }
    const float4 v0 = (acc0 + acc1) + (acc2 + acc3);
    b0[l0] = ((v0.x + v0.z) + (v0.y + v0.w)) / 144.0f;
}
