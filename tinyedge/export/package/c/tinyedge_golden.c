/* Golden cases: generated inputs, and outputs compared with what is stored (see the format). */
#include "tinyedge_internal.h"

#include <math.h>
#include <string.h>

/* --- the generator --------------------------------------------------------------------------- */

/* The 32-bit finalizer of MurmurHash3 (Austin Appleby), after adding 2^32 / golden ratio. */
static TE_NOINLINE uint32_t mix(uint32_t x) {
    x += 0x9e3779b9;
    x ^= x >> 16;
    x *= 0x85ebca6b;
    x ^= x >> 13;
    x *= 0xc2b2ae35;
    return x ^ x >> 16;
}

void te_generate(te_dtype dtype, void *into, size_t elements, uint32_t seed, uint32_t run,
                 uint32_t position, int64_t min, int64_t max) {
    const uint32_t start = mix(mix(mix(seed) + run) + position);
    const double low = (double)min, span = (double)(max - min);
    const uint64_t count = (uint64_t)(max - min) + 1;
    const size_t size = te_dtype_bytes(dtype);
    unsigned char *to = into;
    for (size_t e = 0; e < elements; e++, to += size) {
        const uint32_t h = mix(start + (uint32_t)e);
        if (dtype == TE_FLOAT16) {
            const uint16_t half = te_half_bits(low + (h >> 21) * span / 2048);
            memcpy(to, &half, sizeof half);
        } else if (dtype == TE_FLOAT32) {
            const float single = (float)(low + (h >> 8) * span / 16777216);
            memcpy(to, &single, sizeof single);
        } else if (dtype == TE_FLOAT64) {
            const double value = low + (h >> 8) * span / 16777216;
            memcpy(to, &value, sizeof value);
        } else {
            const int64_t value = min + (int64_t)(count ? h % count : h);
            memcpy(to, &value, size); /* little-endian: the low bytes */
        }
    }
}

/* --- comparing ------------------------------------------------------------------------------- */

typedef struct comparison {
    double difference, scale;
    bool same; /* NaN, infinities, integers */
} comparison;

static double number(te_dtype dtype, bool bfloat16, const void *element) {
    uint16_t half;
    if (!bfloat16) return te_float_element(dtype, element);
    memcpy(&half, element, sizeof half);
    const uint32_t whole = (uint32_t)half << 16; /* a bfloat16 is the upper half of a float */
    return te_float_element(TE_FLOAT32, &whole);
}

static void compare_element(comparison *result, te_dtype dtype, bool bfloat16, const void *a,
                            const void *b) {
    if (dtype == TE_BOOL) {
        result->same &= !*(const unsigned char *)a == !*(const unsigned char *)b;
    } else if (dtype < TE_FLOAT16 && !bfloat16) {
        result->same &= !memcmp(a, b, te_dtype_bytes(dtype));
    } else {
        const double x = number(dtype, bfloat16, a), y = number(dtype, bfloat16, b);
        if (isnan(x) || isnan(y)) result->same &= isnan(x) && isnan(y);
        else if (isinf(x) || isinf(y)) result->same &= x == y;
        else {
            result->difference = fmax(result->difference, fabs(x - y));
            result->scale = fmax(result->scale, fabs(y));
        }
    }
}

/* An output's elements 0, stride, 2 * stride .. below `valid` against the stored ones. */
static TE_NOINLINE te_status compare(const te_model *model, const te_golden_output *expected,
                                  const te_port_record *port, const unsigned char *actual,
                                  int64_t valid, comparison *result, te_error *error) {
    const te_dtype dtype = port->dtype;
    const bool bfloat16 = dtype == TE_UINT16 && te_is(port->codes, "bfloat16");
    const te_file_record *file = &model->files[expected->range.file];
    const int64_t size = (int64_t)te_dtype_bytes(dtype);
    unsigned char part[4096];
    *result = (comparison){0, 0, true};
    int64_t left = (valid + expected->stride - 1) / expected->stride, at = 0;
    while (left > 0) {
        const int64_t room = (int64_t)sizeof part / size, count = left < room ? left : room;
        const int64_t from = expected->range.offset + at * size;
        TE_TRY(te_read_part(model, file, from, part, (size_t)(count * size), error));
        for (int64_t i = 0; i < count; i++) {
            compare_element(result, dtype, bfloat16, actual + (at + i) * expected->stride * size,
                            part + i * size);
        }
        at += count;
        left -= count;
    }
    return TE_OK;
}

/* --- a case ---------------------------------------------------------------------------------- */

typedef struct test {
    const te_model *model;
    te_context *context;
    te_test_report report;
    te_error *error;
    const te_golden_record *golden;
    const te_entry_record *entry;
    unsigned char *inputs;  /* of all inputs, one after the other */
    unsigned char *outputs; /* the same of outputs, and of states behind them */
    char (*hashes)[65];     /* of each of these in the first run */
} test;

static int64_t round_up(int64_t bytes) { return (bytes + TE_LINE - 1) / TE_LINE * TE_LINE; }

static TE_NOINLINE const te_port_record *port_of(const test *test, te_group group, uint32_t position) {
    const te_entry_record *entry = test->entry;
    if (group == TE_OUTPUTS) return te_golden_port(test->model, entry, position);
    return &test->model->ports[group][test->model->listed[entry->first_input + position]];
}

static TE_NOINLINE int64_t bytes_of(const test *test, te_group group, uint32_t position, int64_t *shape) {
    const te_port_record *port = port_of(test, group, position);
    const int64_t *symbols = test->model->golden_symbols + test->golden->first_symbol;
    int64_t elements = 0;
    te_extents(test->model, port, symbols, shape, &elements);
    return elements * (int64_t)te_dtype_bytes(port->dtype);
}

static te_status run_step(test *test, uint32_t step) {
    const te_model *model = test->model;
    te_error *error = test->error;
    int64_t shape[TE_MAX_RANK], at = 0;
    for (uint32_t i = 0; i < test->entry->inputs; i++) {
        const te_golden_input *input = &model->golden_inputs[test->golden->first_input + i];
        const te_port_record *port = port_of(test, TE_INPUTS, i);
        const int64_t bytes = bytes_of(test, TE_INPUTS, i, shape);
        if (input->range.file == -1) {
            te_generate(port->dtype, test->inputs + at,
                        (size_t)bytes / te_dtype_bytes(port->dtype), (uint32_t)test->golden->seed,
                        step, i, input->min, input->max);
        } else {
            TE_TRY(te_read_part(model, &model->files[input->range.file], input->range.offset,
                                test->inputs + at, (size_t)bytes, error));
        }
        const te_tensor tensor = {.size = sizeof tensor, .data = test->inputs + at,
                                  .bytes = (size_t)bytes, .rank = port->rank, .shape = shape};
        te_bind_input(test->context, model->listed[test->entry->first_input + i], &tensor);
        at += round_up(bytes);
    }
    const te_status status = te_run(test->context, test->golden->entry);
    if (status) *error = *te_last_error(test->context);
    return status;
}

/* What an output's count must be; -1: it has none. */
static te_status expected_length(const test *test, const te_port_record *port, int64_t *length) {
    const te_model *model = test->model;
    te_error *error = test->error;
    *length = -1;
    if (port->count == -1) return TE_OK;
    for (uint32_t i = 0; i < test->entry->outputs; i++) {
        if (model->listed[test->entry->first_output + i] != port->count) continue;
        const te_golden_output *output = &model->golden_outputs[test->golden->first_output + i];
        const size_t size = te_dtype_bytes(port_of(test, TE_OUTPUTS, i)->dtype);
        *length = 0;
        TE_TRY(te_read_part(model, &model->files[output->range.file], output->range.offset,
                            length, size, error));
    }
    return TE_OK;
}

static te_status check_output(test *test, uint32_t position, int run, int64_t *at) {
    const te_model *model = test->model;
    te_error *error = test->error;
    const te_port_record *port = port_of(test, TE_OUTPUTS, position);
    const bool kept = position >= test->entry->outputs;
    const te_group group = kept ? TE_STATES : TE_OUTPUTS;
    const int32_t number = (int32_t)(port - model->ports[group]);
    const te_golden_output *expected =
        &model->golden_outputs[test->golden->first_output + position];
    int64_t shape[TE_MAX_RANK] = {0}, length, valid = 1;
    const int64_t bytes = bytes_of(test, TE_OUTPUTS, position, shape);
    int rank;
    unsigned char *actual = test->outputs + *at;
    *at += round_up(bytes);
    const te_tensor tensor = {.size = sizeof tensor, .data = actual, .bytes = (size_t)bytes};
    if (kept && !expected->range.bytes) return TE_OK; /* of which nothing is told */
    te_status status = (kept ? te_get_state : te_read_output)(test->context, number, &tensor);
    if (!status) status = te_shape(test->context, group, number, &rank, shape);
    if (status) {
        *error = *te_last_error(test->context);
        return status;
    }
    for (int axis = 0; axis < port->rank; axis++) valid *= shape[axis];
    char digits[65];
    te_sha256 hash;
    te_sha256_start(&hash);
    te_sha256_add(&hash, actual, (size_t)valid * te_dtype_bytes(port->dtype));
    te_sha256_end(&hash, digits);
    if (run == 0) {
        memcpy(test->hashes[position], digits, sizeof digits);
        return TE_OK;
    }
    test->report.outputs++;
    test->report.distinct += memcmp(test->hashes[position], digits, sizeof digits) != 0;
    comparison result;
    TE_TRY(compare(model, expected, port, actual, valid, &result, error));
    TE_TRY(expected_length(test, port, &length));
    const bool cut = length != -1 && shape[port->axis] != length;
    const double tolerance = (double)test->golden->tolerance / 1e6;
    const bool agrees = result.same && !cut && result.difference <= tolerance * result.scale;
    test->report.wrong += !agrees;
    if (result.difference > 0) {
        const double off = result.scale > 0 ? result.difference / result.scale : INFINITY;
        test->report.error = fmax(test->report.error, off);
    }
    return TE_OK;
}

static te_status run_case(test *test) {
    const te_model *model = test->model;
    test->entry = &model->entries[test->golden->entry];
    for (uint32_t i = 0; i < test->golden->symbols; i++) {
        te_set_symbol(test->context, (int)i,
                      model->golden_symbols[test->golden->first_symbol + i]);
    }
    for (int run = 0; run < 2; run++) {
        te_reset(test->context);
        for (uint32_t step = 0; step < (uint32_t)test->golden->steps; step++) {
            TE_TRY(run_step(test, step));
        }
        int64_t at = 0;
        for (uint32_t i = 0; i < test->golden->outputs; i++) {
            TE_TRY(check_output(test, i, run, &at));
        }
    }
    test->report.cases++;
    return TE_OK;
}

/* The most that inputs, outputs and output hashes of any case take. */
static void measure(test *test, uint64_t sizes[3]) {
    int64_t shape[TE_MAX_RANK];
    for (uint32_t i = 0; i < test->model->totals[TE_N_GOLDENS]; i++) {
        uint64_t in = 0, out = 0;
        test->golden = &test->model->goldens[i];
        test->entry = &test->model->entries[test->golden->entry];
        for (uint32_t j = 0; j < test->entry->inputs; j++) {
            in += (uint64_t)round_up(bytes_of(test, TE_INPUTS, j, shape));
        }
        for (uint32_t j = 0; j < test->golden->outputs; j++) {
            out += (uint64_t)round_up(bytes_of(test, TE_OUTPUTS, j, shape));
        }
        if (in > sizes[0]) sizes[0] = in;
        if (out > sizes[1]) sizes[1] = out;
        if (test->golden->outputs > sizes[2]) sizes[2] = test->golden->outputs;
    }
}

static TE_NOINLINE te_status run_all(test *test) {
    const te_model *model = test->model;
    te_error *error = test->error;
    uint64_t sizes[3] = {0, 0, 0};
    for (uint32_t i = 0; i < model->totals[TE_N_FILES]; i++) {
        if (model->files[i].name.at[0] == 'g') TE_TRY(te_check_file(model, (int32_t)i, error));
    }
    measure(test, sizes);
    TE_TAKE(test->inputs, &model->allocator, sizes[0]);
    TE_TAKE(test->outputs, &model->allocator, sizes[1]);
    TE_TAKE(test->hashes, &model->allocator, sizes[2] * sizeof *test->hashes);
    for (uint32_t i = 0; i < model->totals[TE_N_GOLDENS]; i++) {
        test->golden = &model->goldens[i];
        TE_TRY(run_case(test));
    }
    TE_NEED(!test->report.wrong && !test->report.distinct, TE_VERIFY_DIFFERS,
            "%d of %d outputs are wrong, %d differ between two runs", test->report.wrong,
            test->report.outputs, test->report.distinct);
    return TE_OK;
}

te_status te_self_test(const te_model *model, const te_context_options *options,
                       te_test_report *report, te_error *error) {
    te_error unwanted;
    error = te_no_error(error ? error : &unwanted);
    if (report) *report = (te_test_report){0};
    TE_NEED(model, TE_API_ARGUMENT, "te_self_test needs a model");
    test test = {.model = model, .error = error};
    TE_TRY(te_create(model, options, &test.context, error));
    const te_status status = run_all(&test);
    te_destroy(test.context);
    te_release(&model->allocator, test.inputs);
    te_release(&model->allocator, test.outputs);
    te_release(&model->allocator, test.hashes);
    if (report) *report = test.report;
    if (status) te_log(&model->logger, status, error->text);
    return status;
}
