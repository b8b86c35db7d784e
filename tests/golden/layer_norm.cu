// k0: split range=1 factor=4 outer=4; to range=5 kind=vector; split range=2 factor=4 outer=6; to range=7 kind=lanes; padto range=6 multiple=16; split range=6 factor=16 outer=8; to range=9 kind=threads; to range=8 kind=unroll; split range=3 factor=4 outer=10; to range=11 kind=lanes; padto range=10 multiple=16; split range=10 factor=16 outer=12; to range=13 kind=threads; to range=12 kind=unroll; padto range=4 multiple=16; split range=4 factor=16 outer=14; to range=15 kind=lane; to range=14 kind=upcast; padto range=0 multiple=4; split range=0 factor=4 outer=16; to range=17 kind=local; to range=16 kind=grid
extern "C" __global__ void k0(
    float4 *__restrict__ b0,
    const float4 *__restrict__ b1,
    const float4 *__restrict__ b2) {
    const int g16 = (int)blockIdx.x;
    const int l15 = (int)threadIdx.x % 16;
    const int l17 = (int)threadIdx.x / 16;
    const int i0 = (g16 * 4) + l17;
    const bool v0 = i0 < 7;
    const int i1 = te_min(i0, 6) * 24;
    const int i2 = l15 + i1;
    const float4 x0 = b1[i2];
    const int i3 = l15 + 16;
    const bool v1 = i3 < 24;
    const bool4 v2 = te_bool4(v1);
    const int i4 = te_min(i3, 23);
    const int i5 = i1 + i4;
    const float4 x1 = b1[i5];
    const float4 v4 = x0 + te_select(v2, x1, te_float4(0.0f));
    const float v3 = (v4.x + v4.z) + (v4.y + v4.w);
    const float v5 = v3 + te_shuffle(v3, 8);
    const float v6 = v5 + te_shuffle(v5, 4);
    const float v7 = v6 + te_shuffle(v6, 2);
    const float v8 = v7 + te_shuffle(v7, 1);
    const float4 v9 = te_float4(v8 / 96.0f);
    const float4 v10 = x0 - v9;
    const float4 v11 = x1 - v9;
    const float4 v13 = (v10 * v10) + te_select(v2, v11 * v11, te_float4(0.0f));
    const float v12 = (v13.x + v13.z) + (v13.y + v13.w);
    const float v14 = v12 + te_shuffle(v12, 8);
    const float v15 = v14 + te_shuffle(v14, 4);
    const float v16 = v15 + te_shuffle(v15, 2);
    const float v17 = v16 + te_shuffle(v16, 1);
    const float4 v18 = te_float4(te_sqrt((v17 / 96.0f) + 1e-05f));
    if (v0) { b0[i2] = (v10 / v18) * b2[l15]; }
    if (v0 & v1) { b0[i5] = (v11 / v18) * b2[i4]; }
}
