// k0: to range=5 kind=unroll; split range=0 factor=2 outer=6; split range=6 factor=8 outer=8; to range=9 kind=local; to range=7 kind=upcast; merge range=1 inner=2 number=10; split range=10 factor=4 outer=11; to range=12 kind=vector; padto range=11 multiple=16; split range=11 factor=16 outer=13; to range=14 kind=local; stage range=15 slot=1 along=(4, 5, 14, 12) ahead=False whole=False; stage range=19 slot=2 along=(4, 5, 9, 7) ahead=False whole=False; to range=13 kind=grid
extern "C" __global__ void k0(
    float4 *__restrict__ b0,
    const float *__restrict__ b1,
    const float *__restrict__ b2,
    const float *__restrict__ b3) {
    __shared__ float4 shared0[144];
    __shared__ float shared1[144];
    const int g13 = (int)blockIdx.x;
    const int l9 = (int)threadIdx.x / 16;
    const int l14 = (int)threadIdx.x % 16;
    const int l23 = (int)threadIdx.x;
    const int i0 = g13 * 16;
    const bool v0 = (i0 + l14) < 49;
    const int i1 = te_min(i0 + (l23 % 16), 48);
    const int i2 = l23 / 48;
    const int i3 = (l23 / 16) % 3;
    const int i4 = ((i1 * 4) + (i2 * 14)) + i3;
    const int i5 = i1 * 2;
    const int i6 = i2 + (i5 / 7);
    const bool v1 = (0 < i6) & ((i6 + (-1)) < 14);
    const int i7 = i3 + ((i5 % 7) * 2);
    const bool v2 = v1 & (0 < i7);
    const bool v3 = v1 & (i7 < 14);
    const int i8 = i5 + 1;
    const int i9 = i2 + (i8 / 7);
    const bool v4 = (0 < i9) & ((i9 + (-1)) < 14);
    const int i10 = ((i8 % 7) * 2) + i3;
    const bool v5 = v4 & (0 < i10);
    const bool v6 = v4 & (i10 < 14);
    const int i11 = l23 + 128;
    const int i12 = te_min(i11, 143);
    const int i13 = te_min((i0 + i12) + (-128), 48);
    const int i14 = i13 * 4;
    const int i15 = i13 * 2;
    const bool v7 = ((i15 / 7) + 1) < 14;
    const bool v8 = v7 & ((((i15 % 7) * 2) + 2) < 14);
    const int i16 = i15 + 1;
    const bool v9 = ((i16 / 7) + 1) < 14;
    const bool v10 = v9 & ((((i16 % 7) * 2) + 2) < 14);
    const bool v11 = i11 < 144;
    const int i17 = (l23 / 6) % 8;
    const int i18 = l23 % 3;
    const int i19 = (l23 / 3) % 2;
    const int i20 = (((i2 * 3) + (i17 * 144)) + i18) + (i19 * 72);
    const int i21 = (((i2 * 48) + (i17 * 2)) + (i18 * 16)) + i19;
    const int i22 = i12 % 3;
    const int i23 = i12 / 3;
    const int i24 = i22 + (i23 * 72);
    const int i25 = ((i22 * 16) + i23) + 64;
    const int i26 = l9 * 2;
    float4 acc0 = te_float4(0.0f);
    float4 acc1 = te_float4(0.0f);
    for (int r3 = 0; r3 < 8; r3++) {
        const int i27 = r3 * 196;
        const int i28 = i4 + i27;
        const int i29 = i14 + i27;
        const float4 v12 = float4{v2 ? b1[i28 + (-15)] : 0.0f, v3 ? b1[i28 + (-14)] : 0.0f, v5 ? b1[i28 + (-13)] : 0.0f, v6 ? b1[i28 + (-12)] : 0.0f};
        const float4 v13 = float4{v7 ? b1[i29 + 15] : 0.0f, v8 ? b1[i29 + 16] : 0.0f, v9 ? b1[i29 + 17] : 0.0f, v10 ? b1[i29 + 18] : 0.0f};
        const int i30 = r3 * 9;
        const float x0 = b2[i20 + i30];
        const float x1 = b2[(i24 + i30) + (-2298)];
        __syncthreads();
        shared0[l23] = v12;
        if (v11) { shared0[i12] = v13; }
        shared1[i21] = x0;
        if (v11) { shared1[i25] = x1; }
        __syncthreads();
        for (int r4 = 0; r4 < 3; r4++) {
            const int i31 = r4 * 48;
            const int i32 = l14 + i31;
            const float4 x2 = shared0[i32];
            const int i33 = i26 + i31;
            acc0 = acc0 + (x2 * te_float4(shared1[i33]));
            const float4 x3 = shared0[i32 + 16];
            acc0 = acc0 + (x3 * te_float4(shared1[i33 + 16]));
            const float4 x4 = shared0[i32 + 32];
            acc0 = acc0 + (x4 * te_float4(shared1[i33 + 32]));
            acc1 = acc1 + (x2 * te_float4(shared1[i33 + 1]));
            acc1 = acc1 + (x3 * te_float4(shared1[i33 + 17]));
            acc1 = acc1 + (x4 * te_float4(shared1[i33 + 33]));
        }
    }
    const float4 v14 = acc0 + te_float4(b3[i26]);
    const int i34 = ((l9 * 98) + i0) + l14;
    if (v0) { b0[i34] = te_select(v14 < te_float4(0.0f), te_float4(0.0f), v14); }
    const float4 v15 = acc1 + te_float4(b3[i26 + 1]);
    if (v0) { b0[i34 + 49] = te_select(v15 < te_float4(0.0f), te_float4(0.0f), v15); }
}
