// Kernels by hand in WGSL; programs.py puts constants before them: what each means, and how operands are padded, is said
// in kernels.cl, which has the same ones. Each is a module of its own, from one line of dashes to the next.
// --- copy
@group(0) @binding(0) var<storage, read_write> y: array<vec4f>;
@group(0) @binding(1) var<storage, read> a: array<vec4f>;
@compute @workgroup_size(THREADS) fn copy(@builtin(global_invocation_id) id: vec3u) {
    y[id.x] = a[id.x];
}
// --- multiply_add
@group(0) @binding(0) var<storage, read_write> y: array<vec4f>;
@group(0) @binding(1) var<storage, read> a: array<vec4f>;
@group(0) @binding(2) var<storage, read> b: array<vec4f>;
@group(0) @binding(3) var<storage, read> c: array<vec4f>;
@compute @workgroup_size(THREADS) fn multiply_add(@builtin(global_invocation_id) id: vec3u) {
    y[id.x] = fma(a[id.x], b[id.x], c[id.x]);
}
// --- fma_loop
@group(0) @binding(0) var<storage, read_write> y: array<vec4f>;
@compute @workgroup_size(THREADS) fn fma_loop(@builtin(global_invocation_id) id: vec3u) {
    let x = vec4f(1.0001);
    let b = vec4f(0.5);
    let i = f32(id.x);
    var s0 = vec4f(i); var s1 = vec4f(i + 1); var s2 = vec4f(i + 2); var s3 = vec4f(i + 3);
    var s4 = vec4f(i + 4); var s5 = vec4f(i + 5); var s6 = vec4f(i + 6); var s7 = vec4f(i + 7);
    for (var turn = 0u; turn < TURNS; turn++) {
        s0 = s0 * x + b; s1 = s1 * x + b; s2 = s2 * x + b; s3 = s3 * x + b;
        s4 = s4 * x + b; s5 = s5 * x + b; s6 = s6 * x + b; s7 = s7 * x + b;
    }
    y[id.x] = ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7));
}
// --- sum_parts
@group(0) @binding(0) var<storage, read_write> parts: array<f32>;
@group(0) @binding(1) var<storage, read> a: array<vec4f>;
@compute @workgroup_size(THREADS) fn sum_parts(@builtin(global_invocation_id) id: vec3u) {
    let part = id.x;
    let start = select(part * EACH, part, STRIDED == 1u);
    let step = select(1u, PARTS, STRIDED == 1u);
    var s0 = vec4f(); var s1 = vec4f(); var s2 = vec4f(); var s3 = vec4f();
    for (var i = 0u; i < EACH; i += 4u) {
        s0 += a[start + i * step];
        s1 += a[start + (i + 1u) * step];
        s2 += a[start + (i + 2u) * step];
        s3 += a[start + (i + 3u) * step];
    }
    let s = (s0 + s1) + (s2 + s3);
    parts[part] = (s.x + s.y) + (s.z + s.w);
}
// --- sum_total
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read> parts: array<f32>;
var<workgroup> shared_: array<f32, THREADS>;
@compute @workgroup_size(THREADS) fn sum_total(@builtin(local_invocation_index) thread: u32) {
    var total = 0.0;
    for (var i = thread; i < PARTS; i += THREADS) { total += parts[i]; }
    shared_[thread] = total;
    workgroupBarrier();
    for (var step = THREADS / 2u; step > 0u; step /= 2u) {
        if (thread < step) { shared_[thread] += shared_[thread + step]; }
        workgroupBarrier();
    }
    if (thread == 0u) { y[0] = shared_[0]; }
}
// --- row_parts
@group(0) @binding(0) var<storage, read_write> parts: array<f32>;
@group(0) @binding(1) var<storage, read> a: array<vec4f>;
@compute @workgroup_size(THREADS) fn row_parts(@builtin(global_invocation_id) id: vec3u) {
    let part = id.x;
    let start = select(part * EACH, part, STRIDED == 1u);
    let step = select(1u, PARTS, STRIDED == 1u);
    var most = a[start];
    var total = vec4f();
    for (var i = 1u; i < EACH; i++) { most = max(most, a[start + i * step]); }
    let top = max(max(most.x, most.y), max(most.z, most.w));
    for (var i = 0u; i < EACH; i++) { total += exp(a[start + i * step] - top); }
    parts[part] = top;
    parts[PARTS + part] = (total.x + total.y) + (total.z + total.w);
}
// --- row_total
@group(0) @binding(0) var<storage, read_write> pair: array<f32>;
@group(0) @binding(1) var<storage, read> parts: array<f32>;
var<workgroup> tops: array<f32, THREADS>;
var<workgroup> sums: array<f32, THREADS>;
@compute @workgroup_size(THREADS) fn row_total(@builtin(local_invocation_index) thread: u32) {
    var top = parts[thread];
    var total = 0.0;
    for (var i = thread; i < PARTS; i += THREADS) { top = max(top, parts[i]); }
    for (var i = thread; i < PARTS; i += THREADS) { total += parts[PARTS + i] * exp(parts[i] - top); }
    tops[thread] = top;
    sums[thread] = total;
    workgroupBarrier();
    for (var step = THREADS / 2u; step > 0u; step /= 2u) {
        if (thread < step) {
            let both = max(tops[thread], tops[thread + step]);
            sums[thread] = sums[thread] * exp(tops[thread] - both) + sums[thread + step] * exp(tops[thread + step] - both);
            tops[thread] = both;
        }
        workgroupBarrier();
    }
    if (thread == 0u) { pair[0] = tops[0]; pair[1] = 1.0 / sums[0]; }
}
// --- row_write
@group(0) @binding(0) var<storage, read_write> y: array<vec4f>;
@group(0) @binding(1) var<storage, read> a: array<vec4f>;
@group(0) @binding(2) var<storage, read> pair: array<f32>;
@compute @workgroup_size(THREADS) fn row_write(@builtin(global_invocation_id) id: vec3u) {
    y[id.x] = exp(a[id.x] - pair[0]) * pair[1];
}
// --- softmax_by_thread
@group(0) @binding(0) var<storage, read_write> y: array<vec4f>;
@group(0) @binding(1) var<storage, read> a: array<vec4f>;
@compute @workgroup_size(THREADS) fn softmax_by_thread(@builtin(global_invocation_id) id: vec3u) {
    let at = id.x * VECTORS;
    var most = a[at];
    var total = vec4f();
    for (var i = 1u; i < VECTORS; i++) { most = max(most, a[at + i]); }
    let top = max(max(most.x, most.y), max(most.z, most.w));
    for (var i = 0u; i < VECTORS; i++) {
        let e = exp(a[at + i] - top);
        y[at + i] = e;
        total += e;
    }
    let inverse = 1.0 / ((total.x + total.y) + (total.z + total.w));
    for (var i = 0u; i < VECTORS; i++) { y[at + i] *= inverse; }
}
// --- softmax_by_group
@group(0) @binding(0) var<storage, read_write> y: array<vec4f>;
@group(0) @binding(1) var<storage, read> a: array<vec4f>;
var<workgroup> shared_: array<f32, THREADS>;
@compute @workgroup_size(THREADS)
fn softmax_by_group(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    const mine = (VECTORS + THREADS - 1u) / THREADS;
    let at = group.x * VECTORS;
    var row: array<vec4f, mine>;
    var most = vec4f(-1e30);
    var total = vec4f();
    for (var i = 0u; i < mine; i++) {
        if (i * THREADS + thread < VECTORS) { row[i] = a[at + i * THREADS + thread]; } else { row[i] = vec4f(-1e30); }
        most = max(most, row[i]);
    }
    shared_[thread] = max(max(most.x, most.y), max(most.z, most.w));
    workgroupBarrier();
    for (var step = THREADS / 2u; step > 0u; step /= 2u) {
        if (thread < step) { shared_[thread] = max(shared_[thread], shared_[thread + step]); }
        workgroupBarrier();
    }
    let top = shared_[0];
    workgroupBarrier();
    for (var i = 0u; i < mine; i++) {
        row[i] = exp(row[i] - top);
        total += row[i];
    }
    shared_[thread] = (total.x + total.y) + (total.z + total.w);
    workgroupBarrier();
    for (var step = THREADS / 2u; step > 0u; step /= 2u) {
        if (thread < step) { shared_[thread] += shared_[thread + step]; }
        workgroupBarrier();
    }
    let inverse = 1.0 / shared_[0];
    for (var i = 0u; i < mine; i++) {
        if (i * THREADS + thread < VECTORS) { y[at + i * THREADS + thread] = row[i] * inverse; }
    }
}
// --- norm_by_thread
@group(0) @binding(0) var<storage, read_write> y: array<vec4f>;
@group(0) @binding(1) var<storage, read> a: array<vec4f>;
@group(0) @binding(2) var<storage, read> scale: array<vec4f>;
@group(0) @binding(3) var<storage, read> shift: array<vec4f>;
@compute @workgroup_size(THREADS) fn norm_by_thread(@builtin(global_invocation_id) id: vec3u) {
    let at = id.x * VECTORS;
    var total = vec4f();
    var squares = vec4f();
    for (var i = 0u; i < VECTORS; i++) { total += a[at + i]; }
    let mean = ((total.x + total.y) + (total.z + total.w)) / f32(4u * VECTORS);
    for (var i = 0u; i < VECTORS; i++) {
        let d = a[at + i] - mean;
        squares += d * d;
    }
    let variance = ((squares.x + squares.y) + (squares.z + squares.w)) / f32(4u * VECTORS);
    let inverse = 1.0 / sqrt(variance + EPSILON);
    for (var i = 0u; i < VECTORS; i++) { y[at + i] = (a[at + i] - mean) * inverse * scale[i] + shift[i]; }
}
// --- norm_by_group
@group(0) @binding(0) var<storage, read_write> y: array<vec4f>;
@group(0) @binding(1) var<storage, read> a: array<vec4f>;
@group(0) @binding(2) var<storage, read> scale: array<vec4f>;
@group(0) @binding(3) var<storage, read> shift: array<vec4f>;
var<workgroup> shared_: array<f32, THREADS>;
@compute @workgroup_size(THREADS)
fn norm_by_group(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let at = group.x * VECTORS;
    var total = vec4f();
    var squares = vec4f();
    for (var i = thread; i < VECTORS; i += THREADS) { total += a[at + i]; }
    shared_[thread] = (total.x + total.y) + (total.z + total.w);
    workgroupBarrier();
    for (var step = THREADS / 2u; step > 0u; step /= 2u) {
        if (thread < step) { shared_[thread] += shared_[thread + step]; }
        workgroupBarrier();
    }
    let mean = shared_[0] / f32(4u * VECTORS);
    workgroupBarrier();
    for (var i = thread; i < VECTORS; i += THREADS) {
        let d = a[at + i] - mean;
        squares += d * d;
    }
    shared_[thread] = (squares.x + squares.y) + (squares.z + squares.w);
    workgroupBarrier();
    for (var step = THREADS / 2u; step > 0u; step /= 2u) {
        if (thread < step) { shared_[thread] += shared_[thread + step]; }
        workgroupBarrier();
    }
    let inverse = 1.0 / sqrt(shared_[0] / f32(4u * VECTORS) + EPSILON);
    for (var i = thread; i < VECTORS; i += THREADS) { y[at + i] = (a[at + i] - mean) * inverse * scale[i] + shift[i]; }
}
// --- contract
// Lines with ${r} and ${c} are written once for each of the R pixels and C vectors of a thread.
@group(0) @binding(0) var<storage, read_write> y: array<vec4f>;
@group(0) @binding(1) var<storage, read> a: array<vec4f>;
@group(0) @binding(2) var<storage, read> w: array<vec4f>;
@compute @workgroup_size(8, 8) fn contract(@builtin(global_invocation_id) id: vec3u) {
    let column = id.x * C;
    let first = id.y * R;
    let base${r} = (first + ${r}u) / WIDTH * ROW + (first + ${r}u) % WIDTH * PIXEL;
    var s${r}_${c} = vec4f();
    for (var ky = 0u; ky < KERNEL; ky++) {
        for (var k = 0u; k < STEPS; k++) {
            let row = (ky * STEPS + k) * 4u * COLUMNS + column;
            let x${r} = a[base${r} + ky * PITCH + k];
            let v${c} = w[row + ${c}u];
            s${r}_${c} = x${r}.x * v${c} + s${r}_${c};
            let t${c} = w[row + COLUMNS + ${c}u];
            s${r}_${c} = x${r}.y * t${c} + s${r}_${c};
            let u${c} = w[row + 2u * COLUMNS + ${c}u];
            s${r}_${c} = x${r}.z * u${c} + s${r}_${c};
            let z${c} = w[row + 3u * COLUMNS + ${c}u];
            s${r}_${c} = x${r}.w * z${c} + s${r}_${c};
        }
    }
    y[(first + ${r}u) * COLUMNS + column + ${c}u] = s${r}_${c};
}
// --- depthwise
@group(0) @binding(0) var<storage, read_write> y: array<vec4f>;
@group(0) @binding(1) var<storage, read> a: array<vec4f>;
@group(0) @binding(2) var<storage, read> w: array<vec4f>;
@compute @workgroup_size(THREADS) fn depthwise(@builtin(global_invocation_id) id: vec3u) {
    let c = id.x % COLUMNS;
    let p = id.x / COLUMNS;
    let base = p / WIDTH * ROW + p % WIDTH * PIXEL + c;
    var s = vec4f();
    for (var k = 0u; k < 3u; k++) {
        let at = base + k * PITCH;
        let row = k * 3u * COLUMNS + c;
        s = a[at] * w[row] + s;
        s = a[at + COLUMNS] * w[row + COLUMNS] + s;
        s = a[at + 2u * COLUMNS] * w[row + 2u * COLUMNS] + s;
    }
    y[id.x] = s;
}
// --- attention
@group(0) @binding(0) var<storage, read_write> y: array<vec4f>;
@group(0) @binding(1) var<storage, read> q: array<vec4f>;
@group(0) @binding(2) var<storage, read> k: array<vec4f>;
@group(0) @binding(3) var<storage, read> v: array<vec4f>;
@compute @workgroup_size(THREADS)
fn attention(@builtin(global_invocation_id) id: vec3u, @builtin(workgroup_id) group: vec3u) {
    let at = (group.y * ROWS + id.x) * VECTORS;
    let keys = group.y * 4u * BLOCKS * VECTORS;
    var mine: array<vec4f, VECTORS>;
    var out: array<vec4f, VECTORS>;
    var top = -1e30;
    var total = 0.0;
    for (var i = 0u; i < VECTORS; i++) { mine[i] = q[at + i] * SCALE; }
    for (var block = 0u; block < BLOCKS; block++) {
        let at0 = keys + block * 4u * VECTORS;
        var s0 = vec4f(); var s1 = vec4f(); var s2 = vec4f(); var s3 = vec4f();
        for (var i = 0u; i < VECTORS; i++) {
            s0 = mine[i] * k[at0 + i] + s0;
            s1 = mine[i] * k[at0 + VECTORS + i] + s1;
            s2 = mine[i] * k[at0 + 2u * VECTORS + i] + s2;
            s3 = mine[i] * k[at0 + 3u * VECTORS + i] + s3;
        }
        let all = vec4f((s0.x + s0.y) + (s0.z + s0.w), (s1.x + s1.y) + (s1.z + s1.w),
                        (s2.x + s2.y) + (s2.z + s2.w), (s3.x + s3.y) + (s3.z + s3.w));
        let there = vec4u(0u, 1u, 2u, 3u) + 4u * block < vec4u(LENGTH);
        let s = select(vec4f(-1e30), all, there);
        let above = max(top, max(max(s.x, s.y), max(s.z, s.w)));
        let less = exp(top - above);
        let e = exp(s - above);
        top = above;
        total = total * less + ((e.x + e.y) + (e.z + e.w));
        for (var i = 0u; i < VECTORS; i++) {
            var o = out[i] * less;
            o = v[at0 + i] * e.x + o;
            o = v[at0 + VECTORS + i] * e.y + o;
            o = v[at0 + 2u * VECTORS + i] * e.z + o;
            out[i] = v[at0 + 3u * VECTORS + i] * e.w + o;
        }
    }
    for (var i = 0u; i < VECTORS; i++) { y[at + i] = out[i] * (1.0 / total); }
}
