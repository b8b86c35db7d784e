// k0: split range=1 factor=4 outer=4; to range=5 kind=vector; split range=2 factor=4 outer=6; to range=7 kind=unroll; split range=3 factor=4 outer=8; to range=9 kind=unroll; to range=0 kind=local
__kernel __attribute__((reqd_work_group_size(12, 1, 1)))
void k0(__global float4 *restrict b0, __global const float4 *restrict b1) {
    const int l0 = (int)get_local_id(0);
    const int i0 = l0 * 25;
    float acc0 = (-INFINITY);
    for (int r6 = 0; r6 < 25; r6++) {
        const float4 x0 = b1[i0 + r6];
        acc0 = te_max_f32(acc0, x0.x);
        acc0 = te_max_f32(acc0, x0.y);
        acc0 = te_max_f32(acc0, x0.z);
        acc0 = te_max_f32(acc0, x0.w);
    }
    float acc1 = 0.0f;
    for (int r8 = 0; r8 < 25; r8++) {
        const float4 x1 = b1[i0 + r8];
        acc1 = acc1 + exp(x1.x - acc0);
        acc1 = acc1 + exp(x1.y - acc0);
        acc1 = acc1 + exp(x1.z - acc0);
        acc1 = acc1 + exp(x1.w - acc0);
    }
    const float v0 = 1.0f / acc1;
    for (int r4 = 0; r4 < 25; r4++) {
        const int i1 = i0 + r4;
        b0[i1] = exp(b1[i1] - acc0) * v0;
    }
}
