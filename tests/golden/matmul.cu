// k0: split range=1 factor=4 outer=3; to range=4 kind=vector; split range=0 factor=2 outer=5; to range=6 kind=upcast; split range=2 factor=4 outer=7; to range=8 kind=unroll; to range=3 kind=local; split range=5 factor=4 outer=9; to range=10 kind=local; to range=9 kind=grid
extern "C" __global__ void k0(
    float4 *__restrict__ b0,
    const float4 *__restrict__ b1,
    const float4 *__restrict__ b2,
    const float4 *__restrict__ b3) {
    const int g9 = (int)blockIdx.x;
    const int l3 = (int)threadIdx.x / 4;
    const int l10 = (int)threadIdx.x % 4;
    const int i0 = (g9 * 128) + (l10 * 32);
    float4 acc0 = te_float4(0.0f);
    float4 acc1 = te_float4(0.0f);
    for (int r7 = 0; r7 < 16; r7++) {
        const int i1 = i0 + r7;
        const float4 x0 = b1[i1];
        const int i2 = l3 + (r7 * 48);
        const float4 x1 = b2[i2];
        acc0 = acc0 + (te_float4(x0.x) * x1);
        const float4 x2 = b2[i2 + 12];
        acc0 = acc0 + (te_float4(x0.y) * x2);
        const float4 x3 = b2[i2 + 24];
        acc0 = acc0 + (te_float4(x0.z) * x3);
        const float4 x4 = b2[i2 + 36];
        acc0 = acc0 + (te_float4(x0.w) * x4);
        const float4 x5 = b1[i1 + 16];
        acc1 = acc1 + (te_float4(x5.x) * x1);
        acc1 = acc1 + (te_float4(x5.y) * x2);
        acc1 = acc1 + (te_float4(x5.z) * x3);
        acc1 = acc1 + (te_float4(x5.w) * x4);
    }
    const float4 x6 = b3[l3];
    const float4 v0 = acc0 + x6;
    const int i3 = (l3 + (g9 * 96)) + (l10 * 24);
    b0[i3] = te_select(v0 < te_float4(0.0f), te_float4(0.0f), v0);
    const float4 v1 = acc1 + x6;
    b0[i3 + 12] = te_select(v1 < te_float4(0.0f), te_float4(0.0f), v1);
}
