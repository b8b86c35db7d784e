// k0: split range=1 factor=4 outer=4; to range=5 kind=vector; split range=2 factor=4 outer=6; to range=7 kind=unroll; padto range=6 multiple=32; to range=6 kind=threads; split range=3 factor=4 outer=8; to range=9 kind=unroll; padto range=8 multiple=32; to range=8 kind=threads; padto range=4 multiple=32; to range=4 kind=lane; split range=0 factor=2 outer=10; to range=11 kind=local; to range=10 kind=grid
extern "C" __global__ void k0(
    float4 *__restrict__ b0,
    const float4 *__restrict__ b1) {
    const int g10 = (int)blockIdx.x;
    const int l4 = (int)threadIdx.x % 32;
    const int l6 = (int)threadIdx.x % 32;
    const int l8 = (int)threadIdx.x % 32;
    const int l11 = (int)threadIdx.x / 32;
    const int i0 = (g10 * 50) + (l11 * 25);
    const int i1 = i0 + te_min(l4, 24);
    const bool v0 = l6 < 25;
    const float4 x0 = b1[i0 + te_min(l6, 24)];
    const bool v1 = l8 < 25;
    const float4 x1 = b1[i0 + te_min(l8, 24)];
    const float v2 = te_max(te_max(te_max(v0 ? x0.x : (-TE_INFINITY), v0 ? x0.y : (-TE_INFINITY)), v0 ? x0.z : (-TE_INFINITY)), v0 ? x0.w : (-TE_INFINITY));
    const float v3 = te_max(v2, te_shuffle(v2, 16));
    const float v4 = te_max(v3, te_shuffle(v3, 8));
    const float v5 = te_max(v4, te_shuffle(v4, 4));
    const float v6 = te_max(v5, te_shuffle(v5, 2));
    const float v7 = te_max(v6, te_shuffle(v6, 1));
    const float v8 = (((v1 ? te_exp(x1.x - v7) : 0.0f) + (v1 ? te_exp(x1.y - v7) : 0.0f)) + (v1 ? te_exp(x1.z - v7) : 0.0f)) + (v1 ? te_exp(x1.w - v7) : 0.0f);
    const float v9 = v8 + te_shuffle(v8, 16);
    const float v10 = v9 + te_shuffle(v9, 8);
    const float v11 = v10 + te_shuffle(v10, 4);
    const float v12 = v11 + te_shuffle(v11, 2);
    const float v13 = v12 + te_shuffle(v12, 1);
    if (l4 < 25) { b0[i1] = te_exp(b1[i1] - te_float4(v7)) * te_float4(te_reciprocal(v13)); }
}
