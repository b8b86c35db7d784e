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
    const float v0 = ((((((shared0[i4] + shared0[i4 + 1]) + shared0[i4 + 2]) + shared0[i4 + 3]) + shared0[i4 + 4]) + shared0[i4 + 5]) + shared0[i4 + 6]) + shared0[i4 + 7];
    const float v1 = v0 / 96.0f;
    const float4 v2 = te_float4(v1);
    for (int r12 = 0; r12 < 3; r12++) {
        const float4 x1 = b1[i3 + (r12 * 8)];
        const float v3 = x1.x - v1;
        acc1 = acc1 + (v3 * v3);
        const float v4 = x1.y - v1;
        acc1 = acc1 + (v4 * v4);
        const float v5 = x1.z - v1;
        acc1 = acc1 + (v5 * v5);
        const float v6 = x1.w - v1;
        acc1 = acc1 + (v6 * v6);
    }
    const int i5 = (int)threadIdx.x - l13;
    shared1[(int)threadIdx.x] = acc1;
    __syncthreads();
    const float v7 = ((((((shared1[i5] + shared1[i5 + 1]) + shared1[i5 + 2]) + shared1[i5 + 3]) + shared1[i5 + 4]) + shared1[i5 + 5]) + shared1[i5 + 6]) + shared1[i5 + 7];
    const float4 v8 = te_float4(te_sqrt((v7 / 96.0f) + 1e-05f));
    for (int r14 = 0; r14 < 3; r14++) {
        const int i6 = r14 * 8;
        const int i7 = i1 + i6;
        b0[i7] = ((b1[i7] - v2) / v8) * b2[l15 + i6];
    }
}
