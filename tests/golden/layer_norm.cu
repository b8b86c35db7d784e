// k0: split range=1 factor=4 outer=4; to range=5 kind=vector; split range=2 factor=4 outer=6; to range=7 kind=unroll; split range=6 factor=8 outer=8; to range=9 kind=threads; split range=3 factor=4 outer=10; to range=11 kind=unroll; split range=10 factor=8 outer=12; to range=13 kind=threads; split range=4 factor=8 outer=14; to range=15 kind=lane; to range=0 kind=local
extern "C" __global__ void k0(
    float4 *__restrict__ b0,
    const float4 *__restrict__ b1,
    const float4 *__restrict__ b2) {
    __shared__ float shared0[56];
    __shared__ float shared1[56];
    const int l9 = (int)threadIdx.x % 8;
    const int l13 = (int)threadIdx.x % 8;
    const int l15 = (int)threadIdx.x % 8;
    const int l0 = (int)threadIdx.x / 8;
    const int i0 = l0 * 24;
    const int i1 = i0 + l15;
    const int i2 = i0 + l9;
    float acc0 = 0.0f;
    for (int r8 = 0; r8 < 3; r8++) {
        const float4 x0 = b1[i2 + (r8 * 8)];
        acc0 = acc0 + x0.x;
        acc0 = acc0 + x0.y;
        acc0 = acc0 + x0.z;
        acc0 = acc0 + x0.w;
    }
    const int i3 = i0 + l13;
    float acc1 = 0.0f;
    const int i4 = (int)threadIdx.x - l9;
    shared0[(int)threadIdx.x] = acc0;
    __syncthreads();
    float acc2 = 0.0f;
    for (int r16 = 0; r16 < 8; r16++) {
        acc2 = acc2 + shared0[i4 + r16];
    }
    const float v0 = acc2 / 96.0f;
    const float4 v1 = te_float4(v0);
    for (int r12 = 0; r12 < 3; r12++) {
        const float4 x1 = b1[i3 + (r12 * 8)];
        const float v2 = x1.x - v0;
        acc1 = acc1 + (v2 * v2);
        const float v3 = x1.y - v0;
        acc1 = acc1 + (v3 * v3);
        const float v4 = x1.z - v0;
        acc1 = acc1 + (v4 * v4);
        const float v5 = x1.w - v0;
        acc1 = acc1 + (v5 * v5);
    }
    const int i5 = (int)threadIdx.x - l13;
    shared1[(int)threadIdx.x] = acc1;
    __syncthreads();
    float acc3 = 0.0f;
    for (int r17 = 0; r17 < 8; r17++) {
        acc3 = acc3 + shared1[i5 + r17];
    }
    const float4 v6 = te_float4(te_sqrt((acc3 / 96.0f) + 1e-05f));
    for (int r14 = 0; r14 < 3; r14++) {
        const int i6 = r14 * 8;
        const int i7 = i1 + i6;
        b0[i7] = ((b1[i7] - v1) / v6) * b2[l15 + i6];
    }
}
