// k0: split range=2 factor=4 outer=5; to range=6 kind=vector; to range=4 kind=unroll; to range=5 kind=local; to range=1 kind=local; split range=0 factor=4 outer=7; to range=8 kind=local; to range=7 kind=grid
extern "C" __global__ void k0(
    float4 *__restrict__ b0,
    const float *__restrict__ b1,
    const float *__restrict__ b2) {
    const int g7 = (int)blockIdx.x;
    const int l1 = ((int)threadIdx.x / 4) / 2;
    const int l5 = ((int)threadIdx.x / 4) % 2;
    const int l8 = (int)threadIdx.x % 4;
    const int i0 = l1 * 30;
    const int i1 = l5 * 8;
    const int i2 = g7 * 900;
    const int i3 = l8 * 225;
    const int i4 = ((i0 + i1) + i2) + i3;
    const int i5 = l1 * (-2);
    const int i6 = te_max(i5 + 1, 0);
    const int i7 = te_min(i5 + 16, 3);
    const int i8 = (g7 * 36) + (l8 * 9);
    const int i9 = ((i0 + i2) + i3) + (-8);
    const int i10 = (0 < i1) ? (i4 + (-16)) : i9;
    const int i11 = ((i1 + 7) < 15) ? (i4 + (-8)) : i9;
    float4 acc0 = te_float4(0.0f);
    float4 acc1 = te_float4(0.0f);
    float4 acc2 = te_float4(0.0f);
    for (int r3 = i6; r3 < i7; r3++) {
        const int i12 = r3 * 15;
        const int i13 = i4 + i12;
        const int i14 = i8 + (r3 * 3);
        acc0 = acc0 + (float4{b1[i13 + (-15)], b1[i13 + (-13)], b1[i13 + (-11)], b1[i13 + (-9)]} * te_float4(b2[i14 + 1]));
        const float x0 = b1[i13 + (-14)];
        const float x1 = b1[i13 + (-12)];
        const float x2 = b1[i13 + (-10)];
        acc1 = acc1 + (float4{b1[i10 + i12], x0, x1, x2} * te_float4(b2[i14]));
        acc2 = acc2 + (float4{x0, x1, x2, b1[i11 + i12]} * te_float4(b2[i14 + 2]));
    }
    b0[(((l1 * 2) + l5) + (g7 * 64)) + (l8 * 16)] = (acc0 + te_select(bool4{0 < l5, true, true, true}, acc1, te_float4(0.0f))) + te_select(bool4{true, true, true, 0 < ((l5 * (-1)) + 1)}, acc2, te_float4(0.0f));
}
