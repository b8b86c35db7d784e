// k0: split range=2 factor=2 outer=6; to range=7 kind=vector; split range=0 factor=2 outer=8; to range=9 kind=upcast; to range=5 kind=unroll; to range=6 kind=local; split range=1 factor=7 outer=10; to range=11 kind=local; to range=8 kind=grid; to range=10 kind=grid
extern "C" __global__ void k0(
    float2 *__restrict__ b0,
    const float *__restrict__ b1,
    const float *__restrict__ b2,
    const float *__restrict__ b3) {
    const int g10 = (int)blockIdx.x;
    const int g8 = (int)blockIdx.y;
    const int l6 = (int)threadIdx.x / 7;
    const int l11 = (int)threadIdx.x % 7;
    const int i0 = l6 * 2;
    const int i1 = (i0 + (g10 * 98)) + (l11 * 14);
    const int i2 = (g10 * 7) + l11;
    const bool v0 = 0 < i0;
    const int i3 = g8 * 144;
    const bool v1 = (i0 + 2) < 14;
    float2 acc0 = te_float2(0.0f);
    float2 acc1 = te_float2(0.0f);
    for (int r3 = 0; r3 < 8; r3++) {
        const int i4 = i1 + (r3 * 196);
        const int i5 = i3 + (r3 * 9);
        for (int r4 = 0; r4 < 3; r4++) {
            const int i6 = i4 + (r4 * 14);
            const int i7 = i2 + r4;
            const bool v2 = (0 < i7) & ((i7 + (-1)) < 14);
            const int i8 = i6 + (-14);
            const float2 v3 = float2{(v2 & v0) ? b1[i6 + (-15)] : 0.0f, v2 ? b1[i8] : 0.0f};
            const int i9 = i5 + (r4 * 3);
            acc0 = acc0 + (v3 * te_float2(b2[i9]));
            const float2 x0 = v2 ? te_load<float2>(b1 + i8) : te_float2(0.0f);
            acc0 = acc0 + (x0 * te_float2(b2[i9 + 1]));
            const float2 v4 = float2{v2 ? b1[i6 + (-13)] : 0.0f, (v2 & v1) ? b1[i6 + (-12)] : 0.0f};
            acc0 = acc0 + (v4 * te_float2(b2[i9 + 2]));
            acc1 = acc1 + (v3 * te_float2(b2[i9 + 72]));
            acc1 = acc1 + (x0 * te_float2(b2[i9 + 73]));
            acc1 = acc1 + (v4 * te_float2(b2[i9 + 74]));
        }
    }
    const int i10 = g8 * 2;
    const float2 v5 = acc0 + te_float2(b3[i10]);
    const int i11 = ((l6 + (g8 * 196)) + (g10 * 49)) + (l11 * 7);
    b0[i11] = te_select(v5 < te_float2(0.0f), te_float2(0.0f), v5);
    const float2 v6 = acc1 + te_float2(b3[i10 + 1]);
    b0[i11 + 98] = te_select(v6 < te_float2(0.0f), te_float2(0.0f), v6);
}
