// k0: split range=2 factor=4 outer=5; to range=6 kind=vector; to range=4 kind=unroll; to range=5 kind=local; to range=1 kind=local; split range=0 factor=4 outer=7; to range=8 kind=local; to range=7 kind=grid
extern "C" __global__ void k0(
    float4 *__restrict__ b0,
    const float *__restrict__ b1,
    const float *__restrict__ b2) {
    const int g7 = (int)blockIdx.x;
    const int l1 = ((int)threadIdx.x / 4) / 2;
    const int l5 = ((int)threadIdx.x / 4) % 2;
    const int l8 = (int)threadIdx.x % 4;
    const int i0 = l5 * 8;
    const int i1 = (((l1 * 30) + i0) + (g7 * 900)) + (l8 * 225);
    const int i2 = l1 * 2;
    const bool v0 = 0 < i0;
    const int i3 = (g7 * 36) + (l8 * 9);
    const bool v1 = (i0 + 7) < 15;
    float4 acc0 = te_float4(0.0f);
    for (int r3 = 0; r3 < 3; r3++) {
        const int i4 = i1 + (r3 * 15);
        const int i5 = i2 + r3;
        const bool v2 = (0 < i5) & ((i5 + (-1)) < 15);
        const float x0 = v2 ? b1[i4 + (-14)] : 0.0f;
        const float x1 = v2 ? b1[i4 + (-12)] : 0.0f;
        const float x2 = v2 ? b1[i4 + (-10)] : 0.0f;
        const int i6 = i3 + (r3 * 3);
        acc0 = acc0 + (float4{(v2 & v0) ? b1[i4 + (-16)] : 0.0f, x0, x1, x2} * te_float4(b2[i6]));
        acc0 = acc0 + (float4{v2 ? b1[i4 + (-15)] : 0.0f, v2 ? b1[i4 + (-13)] : 0.0f, v2 ? b1[i4 + (-11)] : 0.0f, v2 ? b1[i4 + (-9)] : 0.0f} * te_float4(b2[i6 + 1]));
        acc0 = acc0 + (float4{x0, x1, x2, (v2 & v1) ? b1[i4 + (-8)] : 0.0f} * te_float4(b2[i6 + 2]));
    }
    b0[((i2 + l5) + (g7 * 64)) + (l8 * 16)] = acc0;
}
