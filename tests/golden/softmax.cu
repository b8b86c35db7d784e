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
    float v1 = te_max(te_max(te_max(v0 ? x0.x : (-TE_INFINITY), v0 ? x0.y : (-TE_INFINITY)), v0 ? x0.z : (-TE_INFINITY)), v0 ? x0.w : (-TE_INFINITY));
    v1 = te_max(v1, te_shuffle(v1, 16));
    v1 = te_max(v1, te_shuffle(v1, 8));
    v1 = te_max(v1, te_shuffle(v1, 4));
    v1 = te_max(v1, te_shuffle(v1, 2));
    v1 = te_max(v1, te_shuffle(v1, 1));
    const bool v2 = l8 < 25;
    const float4 x1 = b1[i0 + te_min(l8, 24)];
    float v3 = (((v2 ? te_exp(x1.x - v1) : 0.0f) + (v2 ? te_exp(x1.y - v1) : 0.0f)) + (v2 ? te_exp(x1.z - v1) : 0.0f)) + (v2 ? te_exp(x1.w - v1) : 0.0f);
    v3 = v3 + te_shuffle(v3, 16);
    v3 = v3 + te_shuffle(v3, 8);
    v3 = v3 + te_shuffle(v3, 4);
    v3 = v3 + te_shuffle(v3, 2);
    v3 = v3 + te_shuffle(v3, 1);
    if (l4 < 25) { b0[i1] = te_exp(b1[i1] - te_float4(v1)) / te_float4(v3); }
}
