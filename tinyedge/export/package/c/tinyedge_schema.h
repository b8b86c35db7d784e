/* The format's records, made of schema.py by python -m tinyedge.export.bundle.tables. Included by
   tinyedge_fields.c alone, which says what the macros mean. */

/* Every key, in one piece of memory: tables hold places in it, small and without a linker. */
#define KEYS(X) \
    X(access) X(arena) X(arenas) X(axis) X(binding_bytes) X(bindings) X(body) X(bound) X(buffer) \
    X(buffer_bytes) X(buffers) X(bytes) X(condition) X(count) X(destination) X(destination_offset) \
    X(dtype) X(entries) X(entry) X(features) X(file) X(files) X(flops) X(format) X(golden) X(grid) \
    X(height) X(image_height) X(image_width) X(images) X(initial) X(inputs) X(invocations) \
    X(kernel) X(kernels) X(made) X(max) X(min) X(moves) X(name) X(nodes) X(offset) X(op) \
    X(options) X(outputs) X(peak_bytes) X(pitch) X(prelude) X(requirements) X(requires) X(seed) \
    X(segments) X(sha256) X(shape) X(size) X(slices) X(source) X(source_offset) X(start) X(states) \
    X(step) X(steps) X(storage) X(stride) X(symbols) X(target) X(tolerance) X(tool) X(update) \
    X(variant) X(variants) X(version) X(weight) X(weights) X(width) X(workgroup) \
    X(workgroup_bytes) X(workgroups) \

typedef struct keys {
    KEYS(FIELD_OF)
} keys;

/* What a value may be: a number, a text, an array, a record. */
typedef enum type {
    NUMBER, IMAGE_LIMIT, INDEX, POSITIVE, SIZE, STEP_SIZE, AXIS, ARENA_SIZE, IMAGE_SIDE, SIDE,
    SEED, REPEATS, GOLDEN_BOUND, ANY_TEXT, SHORT_TEXT, TARGET_TEXT, NAME, TYPE_WORD, IDENTIFIER,
    SHA256, FLAG, IMAGE_DTYPE, UPDATE, ACCESS, DTYPE, DECLARED, EXPRESSION, STEP, SHAPE, SLICES,
    PORTS, RANGE_OF_STEPS, WEIGHT_SHAPE, SEGMENTS, WORKGROUP, BINDINGS, MOVES, BOUND, GRID, NODES,
    GOLDEN_SYMBOLS, GOLDEN_INPUTS, GOLDEN_OUTPUTS, REQUIRES, FEATURES, SYMBOLS, INPUTS, OUTPUTS,
    STATES, ENTRIES, ARENAS, BUFFERS, IMAGES, WEIGHTS, KERNELS, STEPS, GOLDENS, FILES, VARIANTS,
    FREE, SYMBOL, SLICE, PORT, STATE, ENTRY, ARENA, BUFFER, IMAGE, RANGE, WEIGHT, BINDING, KERNEL,
    GOLDEN_INPUT, GOLDEN_OUTPUT, GOLDEN, FILE_, VARIANT, OTHER, LAUNCH, COPY, LOOP, REQUIREMENTS,
    ROOT,
} type;

static const char features[][9] = {
    "count", "entries", "images", "loop", "state", "symbols", "variants",
};

static const char operators[][9] = {
    "add", "mul", "sub", "floordiv", "ceildiv", "mod", "min", "max",
};

static const char ops[][7] = { /* in the order of te_op */
    "launch", "copy", "loop",
};

static const number_rule numbers[ANY_TEXT] = {
    [NUMBER] = {INT64_C(0), TE_INTEGER_LIMIT},
    [IMAGE_LIMIT] = {INT64_C(0), TE_INTEGER_LIMIT},
    [INDEX] = {INT64_C(-1), TE_INTEGER_LIMIT},
    [POSITIVE] = {INT64_C(1), TE_INTEGER_LIMIT},
    [SIZE] = {INT64_C(0), INT64_C(2147483647)},
    [STEP_SIZE] = {INT64_C(1), INT64_C(2147483647)},
    [AXIS] = {INT64_C(0), INT64_C(7)},
    [ARENA_SIZE] = {INT64_C(0), INT64_C(1099511627776)},
    [IMAGE_SIDE] = {INT64_C(1), INT64_C(1048576)},
    [SIDE] = {INT64_C(1), INT64_C(65536)},
    [SEED] = {INT64_C(0), INT64_C(4294967295)},
    [REPEATS] = {INT64_C(1), INT64_C(1024)},
    [GOLDEN_BOUND] = {INT64_C(-2147483648), INT64_C(4294967295)},
};

static const rule rules[FREE - ANY_TEXT] = {
    RULE(ANY_TEXT, 0, 4096, 0, 0),
    RULE(SHORT_TEXT, 0, 64, 0, 0),
    RULE(TARGET_TEXT, 0, 32, 0, 0),
    RULE(NAME, 1, 1024, 0, 0),
    RULE(TYPE_WORD, 1, 32, 0, 0),
    RULE(IDENTIFIER, 1, 128, 0, 0),
    RULE(SHA256, 64, 64, 0, 0),
    RULE(EXPRESSION, 1, 255, 0, TE_N_TOKENS),
    RULE(SHAPE, 0, 8, EXPRESSION, 0),
    RULE(SLICES, 0, 256, SLICE, TE_N_SLICES),
    RULE(PORTS, 0, 1024, INDEX, TE_N_LISTED),
    RULE(RANGE_OF_STEPS, 2, 2, NUMBER, 0),
    RULE(WEIGHT_SHAPE, 0, 8, NUMBER, 0),
    RULE(SEGMENTS, 1, 4096, RANGE, TE_N_SEGMENTS),
    RULE(WORKGROUP, 3, 3, SIDE, 0),
    RULE(BINDINGS, 1, 64, BINDING, TE_N_BINDINGS),
    RULE(MOVES, 0, 256, FREE, 0),
    RULE(BOUND, 0, 64, INDEX, TE_N_BOUND),
    RULE(GRID, 3, 3, EXPRESSION, 0),
    RULE(NODES, 0, 1024, ANY_TEXT, 0),
    RULE(GOLDEN_SYMBOLS, 0, 32, SIZE, TE_N_GOLDEN_SYMBOLS),
    RULE(GOLDEN_INPUTS, 0, 1024, GOLDEN_INPUT, TE_N_GOLDEN_INPUTS),
    RULE(GOLDEN_OUTPUTS, 0, 1024, GOLDEN_OUTPUT, TE_N_GOLDEN_OUTPUTS),
    RULE(REQUIRES, 0, 32, TYPE_WORD, 0),
    RULE(FEATURES, 0, 64, SHORT_TEXT, 0),
    RULE(SYMBOLS, 0, 32, SYMBOL, TE_N_SYMBOLS),
    RULE(INPUTS, 0, 1024, PORT, TE_N_INPUTS),
    RULE(OUTPUTS, 0, 1024, PORT, TE_N_OUTPUTS),
    RULE(STATES, 0, 1024, STATE, TE_N_STATES),
    RULE(ENTRIES, 1, 64, ENTRY, TE_N_ENTRIES),
    RULE(ARENAS, 0, 64, ARENA, TE_N_ARENAS),
    RULE(BUFFERS, 0, 262144, BUFFER, TE_N_BUFFERS),
    RULE(IMAGES, 0, 262144, IMAGE, TE_N_IMAGES),
    RULE(WEIGHTS, 0, 65536, WEIGHT, TE_N_WEIGHTS),
    RULE(KERNELS, 0, 16384, KERNEL, TE_N_KERNELS),
    RULE(STEPS, 0, 262144, STEP, TE_N_STEPS),
    RULE(GOLDENS, 0, 64, GOLDEN, TE_N_GOLDENS),
    RULE(FILES, 0, 4096, FILE_, TE_N_FILES),
    RULE(VARIANTS, 1, 8, OTHER, 0),
};

static const member members[] = {
    {HEAD, FREE, 0},
    {HEAD, SYMBOL, 0},
    AS(symbol_record, max, SIZE, max), AS(symbol_record, min, SIZE, min),
    AS(symbol_record, name, NAME, name), AS(symbol_record, step, STEP_SIZE, step),
    {HEAD, SLICE, 0},
    AS(slice_record, axis, AXIS, axis), AS(slice_record, name, NAME, name),
    AS(slice_record, size, NUMBER, size), AS(slice_record, start, NUMBER, start),
    {HEAD, PORT, 0},
    AS(port_record, axis, AXIS, axis), AS(port_record, buffer, INDEX, buffer),
    AS(port_record, count, INDEX, count), PLACE(dtype, DECLARED, 0),
    AS(port_record, name, NAME, name), AS(port_record, shape, SHAPE, rank),
    AS(port_record, slices, SLICES, first_slice), AS(port_record, storage, DTYPE, storage),
    {HEAD, STATE, 0},
    SKIP(axis, AXIS), AS(port_record, buffer, INDEX, buffer), PLACE(dtype, DECLARED, 0),
    AS(port_record, initial, INDEX, initial), AS(port_record, name, NAME, name),
    AS(port_record, shape, SHAPE, rank), AS(port_record, storage, DTYPE, storage),
    SKIP(update, UPDATE),
    {HEAD, ENTRY, 0},
    AS(entry_record, inputs, PORTS, first_input), AS(entry_record, name, NAME, name),
    AS(entry_record, outputs, PORTS, first_output),
    AS(entry_record, steps, RANGE_OF_STEPS, first),
    {HEAD, ARENA, 0},
    PLACE(bytes, ARENA_SIZE, 0),
    {HEAD, BUFFER, 0},
    AS(buffer_record, arena, INDEX, arena), AS(buffer_record, bytes, NUMBER, bytes),
    AS(buffer_record, offset, NUMBER, offset), AS(buffer_record, weight, INDEX, weight),
    {HEAD, IMAGE, 0},
    AS(image_record, buffer, INDEX, buffer), AS(image_record, dtype, IMAGE_DTYPE, dtype),
    AS(image_record, height, IMAGE_SIDE, height), AS(image_record, pitch, NUMBER, pitch),
    AS(image_record, width, IMAGE_SIDE, width),
    {HEAD, RANGE, 0},
    AS(range_record, bytes, NUMBER, bytes), AS(range_record, file, INDEX, file),
    AS(range_record, offset, NUMBER, offset),
    {HEAD, WEIGHT, 0},
    AS(weight_record, bytes, NUMBER, bytes), SKIP(dtype, DECLARED),
    AS(weight_record, name, NAME, name), AS(weight_record, segments, SEGMENTS, first_segment),
    SKIP(shape, WEIGHT_SHAPE), SKIP(storage, DTYPE),
    {HEAD, BINDING, 0},
    PLACE(access, ACCESS, 0), SKIP(dtype, TYPE_WORD),
    {HEAD, KERNEL, 0},
    AS(kernel_record, bindings, BINDINGS, first_binding),
    AS(kernel_record, bytes, NUMBER, range.bytes), AS(kernel_record, entry, IDENTIFIER, entry),
    AS(kernel_record, file, INDEX, range.file), SKIP(moves, MOVES),
    AS(kernel_record, offset, NUMBER, range.offset), AS(kernel_record, symbols, FLAG, symbols),
    AS(kernel_record, workgroup, WORKGROUP, workgroup),
    {HEAD, GOLDEN_INPUT, 0},
    AS(golden_input, bytes, NUMBER, range.bytes), AS(golden_input, file, INDEX, range.file),
    AS(golden_input, max, GOLDEN_BOUND, max), AS(golden_input, min, GOLDEN_BOUND, min),
    AS(golden_input, offset, NUMBER, range.offset),
    {HEAD, GOLDEN_OUTPUT, 0},
    AS(golden_output, bytes, NUMBER, range.bytes), AS(golden_output, file, INDEX, range.file),
    AS(golden_output, offset, NUMBER, range.offset), AS(golden_output, stride, POSITIVE, stride),
    {HEAD, GOLDEN, 0},
    AS(golden_record, entry, INDEX, entry), AS(golden_record, inputs, GOLDEN_INPUTS, first_input),
    SKIP(made, ANY_TEXT), AS(golden_record, outputs, GOLDEN_OUTPUTS, first_output),
    AS(golden_record, seed, SEED, seed), AS(golden_record, steps, REPEATS, steps),
    AS(golden_record, symbols, GOLDEN_SYMBOLS, first_symbol),
    AS(golden_record, tolerance, NUMBER, tolerance),
    {HEAD, FILE_, 0},
    AS(file_record, bytes, NUMBER, bytes), AS(file_record, name, ANY_TEXT, name),
    AS(file_record, sha256, SHA256, sha256),
    {HEAD, VARIANT, 0},
    SKIP(name, TYPE_WORD), SKIP(requires, REQUIRES),
    {HEAD, OTHER, 0},
    SKIP(bytes, NUMBER), SKIP(name, TYPE_WORD), SKIP(requires, REQUIRES), SKIP(sha256, SHA256),
    {HEAD, LAUNCH, 0},
    AS(step_record, buffers, BOUND, first_buffer), AS(step_record, flops, NUMBER, flops),
    AS(step_record, grid, GRID, sizes), AS(step_record, kernel, INDEX, kernel),
    AS(step_record, nodes, NODES, nodes), SKIP(op, ANY_TEXT),
    {HEAD, COPY, 0},
    AS(step_record, bytes, EXPRESSION, sizes), AS(step_record, destination, INDEX, destination),
    AS(step_record, destination_offset, NUMBER, destination_offset), SKIP(op, ANY_TEXT),
    AS(step_record, source, INDEX, source), AS(step_record, source_offset, NUMBER, source_offset),
    {HEAD, LOOP, 0},
    AS(step_record, body, NUMBER, body), AS(step_record, bound, STEP_SIZE, bound),
    AS(step_record, condition, INDEX, condition), SKIP(op, ANY_TEXT),
    {HEAD, REQUIREMENTS, 0},
    LIMIT(binding_bytes, NUMBER, TE_BINDING_BYTES), LIMIT(bindings, NUMBER, TE_BINDINGS),
    LIMIT(buffer_bytes, NUMBER, TE_BUFFER_BYTES),
    LIMIT(image_height, IMAGE_LIMIT, TE_IMAGE_HEIGHT),
    LIMIT(image_width, IMAGE_LIMIT, TE_IMAGE_WIDTH), LIMIT(invocations, NUMBER, TE_INVOCATIONS),
    LIMIT(workgroup_bytes, NUMBER, TE_WORKGROUP_BYTES), LIMIT(workgroups, NUMBER, TE_WORKGROUPS),
    {HEAD, ROOT, 0},
    SKIP(arenas, ARENAS), SKIP(buffers, BUFFERS), SKIP(entries, ENTRIES),
    SKIP(features, FEATURES), SKIP(files, FILES), SKIP(format, ANY_TEXT), SKIP(golden, GOLDENS),
    SKIP(images, IMAGES), SKIP(inputs, INPUTS), SKIP(kernels, KERNELS), SKIP(options, FREE),
    SKIP(outputs, OUTPUTS), SKIP(peak_bytes, NUMBER), AS(model, prelude, RANGE, prelude),
    AS(model, requirements, REQUIREMENTS, requirements), SKIP(states, STATES), SKIP(steps, STEPS),
    SKIP(symbols, SYMBOLS), AS(model, target, TARGET_TEXT, target), SKIP(tool, SHORT_TEXT),
    SKIP(variant, VARIANT), SKIP(variants, VARIANTS), SKIP(version, NUMBER),
    SKIP(weights, WEIGHTS),
    {HEAD, FREE, 0},
};
