// k0: split range=1 factor=4 outer=4; to range=5 kind=vector; split range=2 factor=4 outer=6; to range=7 kind=lanes; padto range=6 multiple=16; split range=6 factor=16 outer=8; to range=9 kind=threads; to range=8 kind=unroll; split range=3 factor=4 outer=10; to range=11 kind=lanes; padto range=10 multiple=16; split range=10 factor=16 outer=12; to range=13 kind=threads; to range=12 kind=unroll; padto range=4 multiple=16; split range=4 factor=16 outer=14; to range=15 kind=lane; to range=14 kind=upcast; split range=0 factor=4 outer=16; to range=17 kind=local; to range=16 kind=grid
extern "C" __global__ void k0(
    float4 *__restrict__ b0,
    const float4 *__restrict__ b1) {
    const int g16 = (int)blockIdx.x;
    const int l15 = (int)threadIdx.x % 16;
    const int l17 = (int)threadIdx.x / 16;
    const int i0 = g16 * 100;
    const int i1 = l17 * 25;
    const int i2 = (l15 + i0) + i1;
    const float4 x0 = b1[i2];
    const int i3 = l15 + 16;
    const bool v0 = i3 < 25;
    const bool4 v1 = te_bool4(v0);
    const int i4 = (i0 + i1) + te_min(i3, 24);
    const float4 x1 = b1[i4];
    const float4 v3 = te_max(x0, te_select(v1, x1, te_float4(-TE_INFINITY)));
    const float v2 = te_max(te_max(v3.x, v3.z), te_max(v3.y, v3.w));
    const float v4 = te_max(v2, te_shuffle(v2, 8));
    const float v5 = te_max(v4, te_shuffle(v4, 4));
    const float v6 = te_max(v5, te_shuffle(v5, 2));
    const float v7 = te_max(v6, te_shuffle(v6, 1));
    const float4 v8 = te_float4(v7);
    const float4 v9 = te_exp(x0 - v8);
    const float4 v10 = te_exp(x1 - v8);
    const float4 v12 = v9 + te_select(v1, v10, te_float4(0.0f));
    const float v11 = (v12.x + v12.z) + (v12.y + v12.w);
    const float v13 = v11 + te_shuffle(v11, 8);
    const float v14 = v13 + te_shuffle(v13, 4);
    const float v15 = v14 + te_shuffle(v14, 2);
    const float v16 = v15 + te_shuffle(v15, 1);
    const float4 v17 = te_float4(te_reciprocal(v16));
    b0[i2] = v9 * v17;
    if (v0) { b0[i4] = v10 * v17; }
}
