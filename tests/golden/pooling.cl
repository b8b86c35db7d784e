// k0: to range=4 kind=unroll; to range=2 kind=local; to range=1 kind=local; split range=0 factor=2 outer=5; to range=6 kind=local; to range=5 kind=grid
__kernel __attribute__((reqd_work_group_size(50, 1, 1)))
void k0(__global float *restrict b0, __global const float *restrict b1) {
    const int g5 = (int)get_group_id(0);
    const int l1 = ((int)get_local_id(0) / 2) / 5;
    const int l2 = ((int)get_local_id(0) / 2) % 5;
    const int l6 = (int)get_local_id(0) % 2;
    const int i0 = (((l1 * 24) + (l2 * 2)) + (g5 * 288)) + (l6 * 144);
    float acc0 = (-INFINITY);
    for (int r3 = 0; r3 < 3; r3++) {
        const int i1 = i0 + (r3 * 12);
        acc0 = te_max_f32(acc0, b1[i1]);
        acc0 = te_max_f32(acc0, b1[i1 + 1]);
        acc0 = te_max_f32(acc0, b1[i1 + 2]);
    }
    b0[(((l1 * 5) + l2) + (g5 * 50)) + (l6 * 25)] = acc0;
}

// k1: split range=1 factor=16 outer=2; to range=3 kind=lanes; to range=0 kind=local
__kernel __attribute__((reqd_work_group_size(8, 1, 1)))
void k1(__global float *restrict b0, __global const float4 *restrict b1) {
    const int l0 = (int)get_local_id(0);
    const int i0 = l0 * 36;
    float4 acc0 = ((float4)(0.0f));
    float4 acc1 = ((float4)(0.0f));
    float4 acc2 = ((float4)(0.0f));
    float4 acc3 = ((float4)(0.0f));
    for (int r2 = 0; r2 < 9; r2++) {
        const int i1 = i0 + (r2 * 4);
        acc0 = acc0 + b1[i1];
        acc1 = acc1 + b1[i1 + 1];
        acc2 = acc2 + b1[i1 + 2];
        acc3 = acc3 + b1[i1 + 3];
    }
    const float4 v0 = (acc0 + acc1) + (acc2 + acc3);
    b0[l0] = ((v0.x + v0.z) + (v0.y + v0.w)) / 144.0f;
}
