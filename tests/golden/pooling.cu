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

// k1: split range=0 factor=4 outer=2; to range=3 kind=vector; split range=1 factor=4 outer=4; to range=5 kind=unroll; to range=2 kind=local
extern "C" __global__ void k1(
    float4 *__restrict__ b0,
    const float4 *__restrict__ b1) {
    const int l2 = (int)threadIdx.x;
    const int i0 = l2 * 144;
    float4 acc0 = te_float4(0.0f);
    for (int r4 = 0; r4 < 36; r4++) {
        const int i1 = i0 + r4;
        const float4 x0 = b1[i1];
        const float4 x1 = b1[i1 + 36];
        const float4 x2 = b1[i1 + 72];
        const float4 x3 = b1[i1 + 108];
        acc0 = acc0 + float4{x0.x, x1.x, x2.x, x3.x};
        acc0 = acc0 + float4{x0.y, x1.y, x2.y, x3.y};
        acc0 = acc0 + float4{x0.z, x1.z, x2.z, x3.z};
        acc0 = acc0 + float4{x0.w, x1.w, x2.w, x3.w};
    }
    b0[l2] = acc0 / te_float4(144.0f);
}
