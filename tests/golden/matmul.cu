// k0: split range=2 factor=16 outer=3; split range=4 factor=4 outer=5; to range=6 kind=unroll; split range=0 factor=2 outer=7; split range=7 factor=16 outer=9; to range=10 kind=local; to range=8 kind=upcast; split range=1 factor=4 outer=11; to range=12 kind=vector; padto range=11 multiple=16; split range=11 factor=16 outer=13; to range=14 kind=local; stage range=15 slot=1 along=(10, 8, 5, 6); stage range=19 slot=2 along=(5, 6, 14, 12)
extern "C" __global__ void k0(
    float4 *__restrict__ b0,
    const float4 *__restrict__ b1,
    const float4 *__restrict__ b2,
    const float4 *__restrict__ b3) {
    __shared__ float4 shared0[128];
    __shared__ float4 shared1[256];
    const int l10 = (int)threadIdx.x / 16;
    const int l14 = (int)threadIdx.x % 16;
    const int l23 = (int)threadIdx.x;
    const bool v0 = l14 < 12;
    const int i0 = te_min(l23, 127);
    const int i1 = (i0 % 4) + ((i0 / 4) * 16);
    const bool v1 = l23 < 128;
    const int i2 = l10 * 8;
    const int i3 = ((l23 / 16) * 12) + te_min(l23 % 16, 11);
    float4 acc0 = te_float4(0.0f);
    float4 acc1 = te_float4(0.0f);
    for (int r3 = 0; r3 < 4; r3++) {
        const float4 x0 = b1[i1 + (r3 * 4)];
        const float4 x1 = b2[i3 + (r3 * 192)];
        __syncthreads();
        if (v1) { shared0[i0] = x0; }
        shared1[l23] = x1;
        __syncthreads();
        for (int r5 = 0; r5 < 4; r5++) {
            const int i4 = i2 + r5;
            const float4 x2 = shared0[i4];
            const int i5 = l14 + (r5 * 64);
            const float4 x3 = shared1[i5];
            acc0 = acc0 + (te_float4(x2.x) * x3);
            const float4 x4 = shared1[i5 + 16];
            acc0 = acc0 + (te_float4(x2.y) * x4);
            const float4 x5 = shared1[i5 + 32];
            acc0 = acc0 + (te_float4(x2.z) * x5);
            const float4 x6 = shared1[i5 + 48];
            acc0 = acc0 + (te_float4(x2.w) * x6);
            const float4 x7 = shared0[i4 + 4];
            acc1 = acc1 + (te_float4(x7.x) * x3);
            acc1 = acc1 + (te_float4(x7.y) * x4);
            acc1 = acc1 + (te_float4(x7.z) * x5);
            acc1 = acc1 + (te_float4(x7.w) * x6);
        }
    }
    const int i6 = te_min(l14, 11);
    const float4 x8 = b3[i6];
    const float4 v2 = acc0 + x8;
    const int i7 = (l10 * 24) + i6;
    if (v0) { b0[i7] = te_select(v2 < te_float4(0.0f), te_float4(0.0f), v2); }
    const float4 v3 = acc1 + x8;
    if (v0) { b0[i7 + 12] = te_select(v3 < te_float4(0.0f), te_float4(0.0f), v3); }
}
