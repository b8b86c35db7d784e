// k0: split range=2 factor=16 outer=3; split range=4 factor=4 outer=5; to range=6 kind=unroll; split range=0 factor=2 outer=7; split range=7 factor=16 outer=9; to range=10 kind=local; to range=8 kind=upcast; split range=1 factor=4 outer=11; to range=12 kind=vector; padto range=11 multiple=16; split range=11 factor=16 outer=13; to range=14 kind=local; stage range=15 slot=1 along=(10, 8, 5, 6) ahead=True whole=False; stage range=19 slot=2 along=(5, 6, 14, 12) ahead=True whole=False
extern "C" __global__ void k0(
    float4 *__restrict__ b0,
    const float4 *__restrict__ b1,
    const float4 *__restrict__ b2,
    const float4 *__restrict__ b3) {
    __shared__ float4 shared0[256];
    __shared__ float4 shared1[512];
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
    const float4 x0 = b1[i1 + (0 * 4)];
    const float4 x1 = b2[i3 + (0 * 192)];
    if (v1) { shared0[(0 * 128) + i0] = x0; }
    shared1[(0 * 256) + l23] = x1;
    __syncthreads();
    for (int r3 = 0; r3 < 4; r3++) {
        const int i4 = te_min(r3 + 1, 3);
        const int i5 = r3 % 2;
        const int i6 = 1 - i5;
        const float4 x2 = b1[i1 + (i4 * 4)];
        const float4 x3 = b2[i3 + (i4 * 192)];
        for (int r5 = 0; r5 < 4; r5++) {
            const int i7 = i2 + r5;
            const float4 x4 = shared0[(i5 * 128) + i7];
            const int i8 = l14 + (r5 * 64);
            const float4 x5 = shared1[(i5 * 256) + i8];
            acc0 = acc0 + (te_float4(x4.x) * x5);
            const float4 x6 = shared1[(i5 * 256) + (i8 + 16)];
            acc0 = acc0 + (te_float4(x4.y) * x6);
            const float4 x7 = shared1[(i5 * 256) + (i8 + 32)];
            acc0 = acc0 + (te_float4(x4.z) * x7);
            const float4 x8 = shared1[(i5 * 256) + (i8 + 48)];
            acc0 = acc0 + (te_float4(x4.w) * x8);
            const float4 x9 = shared0[(i5 * 128) + (i7 + 4)];
            acc1 = acc1 + (te_float4(x9.x) * x5);
            acc1 = acc1 + (te_float4(x9.y) * x6);
            acc1 = acc1 + (te_float4(x9.z) * x7);
            acc1 = acc1 + (te_float4(x9.w) * x8);
        }
        if (v1) { shared0[(i6 * 128) + i0] = x2; }
        shared1[(i6 * 256) + l23] = x3;
        __syncthreads();
    }
    const float4 x10 = b3[te_min(l14, 11)];
    const float4 v2 = acc0 + x10;
    const int i9 = (l10 * 24) + l14;
    if (v0) { b0[i9] = te_select(v2 < te_float4(0.0f), te_float4(0.0f), v2); }
    const float4 v3 = acc1 + x10;
    if (v0) { b0[i9 + 12] = te_select(v3 < te_float4(0.0f), te_float4(0.0f), v3); }
}
