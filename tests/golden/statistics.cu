// k0: split range=1 factor=4 outer=2; to range=3 kind=lanes; padto range=2 multiple=16; split range=2 factor=16 outer=4; to range=5 kind=threads; to range=4 kind=unroll; split range=0 factor=4 outer=6; to range=7 kind=local; to range=6 kind=grid
extern "C" __global__ void k0(
    float *__restrict__ b0,
    float *__restrict__ b1,
    const float4 *__restrict__ b2) {
    const int g6 = (int)blockIdx.x;
    const int l5 = (int)threadIdx.x % 16;
    const int l7 = (int)threadIdx.x / 16;
    const bool v0 = l5 < 1;
    const int i0 = g6 * 96;
    const int i1 = l7 * 24;
    const float4 x0 = b2[(l5 + i0) + i1];
    const int i2 = l5 + 16;
    const bool4 v1 = te_bool4(i2 < 24);
    const float4 x1 = b2[(i0 + i1) + te_min(i2, 23)];
    const int i3 = (g6 * 4) + l7;
    const float4 v3 = te_max(x0, te_select(v1, x1, te_float4(-TE_INFINITY)));
    const float v2 = te_max(te_max(v3.x, v3.z), te_max(v3.y, v3.w));
    const float v4 = te_max(v2, te_shuffle(v2, 8));
    const float v5 = te_max(v4, te_shuffle(v4, 4));
    const float v6 = te_max(v5, te_shuffle(v5, 2));
    const float v7 = te_max(v6, te_shuffle(v6, 1));
    const float4 v9 = x0 + te_select(v1, x1, te_float4(0.0f));
    const float v8 = (v9.x + v9.z) + (v9.y + v9.w);
    const float v10 = v8 + te_shuffle(v8, 8);
    const float v11 = v10 + te_shuffle(v10, 4);
    const float v12 = v11 + te_shuffle(v11, 2);
    const float v13 = v12 + te_shuffle(v12, 1);
    if (v0) { b0[i3] = v7; }
    if (v0) { b1[i3] = v13 / 96.0f; }
}
