/* Values: element types, expressions, and elements between the caller's memory and a buffer. */
#include "tinyedge_internal.h"

#include <string.h>

bool te_add(int64_t a, int64_t b, int64_t *sum) {
    *sum = a + b; /* both within 53 bits */
    return *sum >= -TE_INTEGER_LIMIT && *sum <= TE_INTEGER_LIMIT;
}

bool te_multiply(int64_t a, int64_t b, int64_t *product) {
    const int64_t size = a < 0 ? -a : a, other = b < 0 ? -b : b;
    if (size && other > TE_INTEGER_LIMIT / size) return false;
    *product = a * b;
    return true;
}

/* --- element types --------------------------------------------------------------------------- */

enum { BIT, SIGNED, UNSIGNED, FLOAT };

static const struct {
    char name[8];
    uint8_t bytes, kind;
    uint16_t holders; /* the storage types that may hold it, as bits */
} types[] = {
    {"", 0, 0, 0},
#include "tinyedge_types.h"
};

static bool known(te_dtype dtype) { return (unsigned)dtype <= TE_FLOAT64; }

const char *te_dtype_name(te_dtype dtype) { return known(dtype) ? types[dtype].name : ""; }

size_t te_dtype_bytes(te_dtype dtype) { return known(dtype) ? types[dtype].bytes : 0; }

static TE_NOINLINE te_dtype named(te_text word) {
    int dtype = TE_FLOAT64;
    while (dtype && !te_is(word, types[dtype].name)) dtype--;
    return (te_dtype)dtype;
}

te_dtype te_dtype_of(const char *value) { return named(te_string(value)); }

/* Of `uint16:bfloat16` the type before the colon, and in `codes` what follows it. */
te_dtype te_declared_type(const char *value, te_text *codes) {
    te_text word = te_string(value);
    *codes = word;
    while (codes->length && *codes->at != ':') codes->at++, codes->length--;
    if (!codes->length) return named(word);
    word.length -= codes->length;
    codes->at++, codes->length--;
    if (!codes->length || codes->length > 32) return TE_DTYPE_OF_PORT;
    for (uint32_t i = 0; i < codes->length; i++) {
        if (!te_is_letter(codes->at[i]) && !te_is_digit(codes->at[i])) return TE_DTYPE_OF_PORT;
    }
    const te_dtype carrier = named(word);
    const int carriers = 1 << TE_INT8 | 1 << TE_INT16 | 1 << TE_UINT8 | 1 << TE_UINT16;
    return carriers >> carrier & 1 ? carrier : TE_DTYPE_OF_PORT;
}

bool te_storage_holds(te_dtype dtype, te_dtype storage) {
    return types[dtype].holders >> storage & 1;
}

bool te_golden_range(te_dtype dtype, int64_t min, int64_t max) {
    if (dtype == TE_FLOAT16) return (min == -1 || min == 0) && max == 1;
    if (types[dtype].kind == FLOAT) return -(1 << 20) <= min && min <= max && max <= 1 << 20;
    const int bits = dtype == TE_BOOL ? 1 : 8 * types[dtype].bytes;
    int64_t low = 0, high = INT64_MAX;
    if (types[dtype].kind == SIGNED) {
        high = bits == 64 ? INT64_MAX : (INT64_C(1) << (bits - 1)) - 1;
        low = -high - 1;
    } else if (bits < 64) {
        high = (INT64_C(1) << bits) - 1;
    }
    return low <= min && min <= max && max <= high && max - min < INT64_C(1) << 32;
}

/* --- expressions ----------------------------------------------------------------------------- */

static int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b < 0); }

static bool apply(int operator, int64_t a, int64_t b, int64_t *value) {
    if (operator >= 3 && operator <= 5 && b < 1) return false;
    switch (operator) {
    case 0: return te_add(a, b, value);
    case 1: return te_multiply(a, b, value);
    case 2: return te_add(a, -b, value);
    case 3: *value = floor_divide(a, b); return true;
    case 4: *value = -floor_divide(-a, b); return true;
    case 5: *value = a - floor_divide(a, b) * b; return true;
    case 6: *value = a < b ? a : b; return true;
    default: *value = a > b ? a : b; return true;
    }
}

bool te_evaluate(const int64_t *tokens, const int64_t *symbols, int64_t *value) {
    int64_t stack[TE_TOKENS];
    int depth = 0;
    for (int64_t i = tokens[0]; i > 0; i--) {
        const int64_t token = tokens[i];
        if (token >= TE_BAD_TOKEN) return false;
        if (token >= TE_OPERATOR_TOKEN) {
            if (depth < 2) return false;
            depth--;
            const int64_t first = stack[depth], second = stack[depth - 1];
            if (!apply((int)(token - TE_OPERATOR_TOKEN), first, second, &stack[depth - 1])) {
                return false;
            }
        } else {
            stack[depth++] = token >= TE_SYMBOL_TOKEN ? symbols[token - TE_SYMBOL_TOKEN] : token;
        }
    }
    *value = stack[0];
    return depth == 1;
}

bool te_extents(const te_model *model, const te_port_record *port, const int64_t *symbols,
                int64_t shape[TE_MAX_RANK], int64_t *elements) {
    *elements = 1;
    for (int axis = 0; axis < port->rank; axis++) {
        if (!te_evaluate(model->tokens + port->shape[axis], symbols, &shape[axis])) return false;
        if (shape[axis] < 0 || !te_multiply(*elements, shape[axis], elements)) return false;
    }
    return true;
}

int te_bare_symbol(const te_model *model, uint32_t expression) {
    const int64_t *tokens = model->tokens + expression;
    const bool symbol = tokens[0] == 1 && tokens[1] >= TE_SYMBOL_TOKEN;
    return symbol ? (int)(tokens[1] - TE_SYMBOL_TOKEN) : -1;
}

bool te_symbol_allows(const te_symbol_record *symbol, int64_t value) {
    return symbol->min <= value && value <= symbol->max &&
           (value - symbol->min) % symbol->step == 0;
}

/* --- halves ---------------------------------------------------------------------------------- */

static double power_of_2(int exponent) { /* -1022 to 1023 */
    const uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

double te_half_value(uint16_t bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double value;
    if (exponent == 31) {
        const uint64_t wide = UINT64_C(0x7ff) << 52 | (uint64_t)fraction << 42;
        memcpy(&value, &wide, sizeof value);
    } else if (exponent) {
        value = (1024 + fraction) * power_of_2(exponent - 25);
    } else {
        value = fraction * power_of_2(-24);
    }
    return bits >> 15 ? -value : value;
}

/* Rounded to the nearest, ties to even. */
uint16_t te_half_bits(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint16_t sign = (uint16_t)(bits >> 48 & 0x8000);
    const int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
    uint64_t fraction = bits & ((UINT64_C(1) << 52) - 1);
    if (exponent == 1024) return sign | (fraction ? 0x7e00 | (uint16_t)(fraction >> 42) : 0x7c00);
    if (exponent < -25) return sign;
    fraction |= UINT64_C(1) << 52;
    const int drop = exponent < -14 ? 42 - 14 - exponent : 42;
    uint64_t kept = fraction >> drop;
    const uint64_t rest = fraction & ((UINT64_C(1) << drop) - 1), tie = UINT64_C(1) << (drop - 1);
    kept += rest > tie || (rest == tie && (kept & 1));
    if (exponent >= -14) kept += (uint64_t)(exponent + 14) << 10; /* kept has the leading one */
    return sign | (uint16_t)(exponent > 15 || kept > 0x7c00 ? 0x7c00 : kept);
}

double te_float_element(te_dtype dtype, const void *element) {
    uint16_t half;
    float single;
    double value;
    if (dtype == TE_FLOAT16) {
        memcpy(&half, element, sizeof half);
        return te_half_value(half);
    }
    if (dtype == TE_FLOAT32) {
        memcpy(&single, element, sizeof single);
        return (double)single;
    }
    memcpy(&value, element, sizeof value);
    return value;
}

/* --- elements -------------------------------------------------------------------------------- */

static bool is_finite(double value) { return value - value == 0; }

/* Whether a finite value stays finite. */
static bool move_float(te_dtype from_type, const void *from, te_dtype to_type, void *to) {
    const double value = te_float_element(from_type, from);
    const float single = (float)value;
    const uint16_t half = te_half_bits(value);
    if (to_type == TE_FLOAT16) memcpy(to, &half, sizeof half);
    if (to_type == TE_FLOAT32) memcpy(to, &single, sizeof single);
    if (to_type == TE_FLOAT64) memcpy(to, &value, sizeof value);
    return !is_finite(value) || is_finite(te_float_element(to_type, to));
}

static uint64_t load_integer(te_dtype type, const void *from) {
    uint64_t value = 0;
    const int bits = 8 * types[type].bytes;
    memcpy(&value, from, types[type].bytes);
    if (types[type].kind == SIGNED && bits < 64 && value >> (bits - 1)) {
        value |= ~UINT64_C(0) << bits;
    }
    return value;
}

static bool move_integer(te_dtype from_type, const void *from, te_dtype to_type, void *to) {
    uint64_t value = load_integer(from_type, from);
    if (types[from_type].kind == BIT || types[to_type].kind == BIT) value = value != 0;
    memcpy(to, &value, types[to_type].bytes);
    return load_integer(to_type, to) == value;
}

static bool move_run(const te_transfer *transfer, unsigned char *device, unsigned char *host,
                     int64_t count, int64_t device_stride, int64_t host_stride) {
    const te_dtype host_type = transfer->dtype, device_type = transfer->storage;
    const int64_t size = types[host_type].bytes;
    const bool floating = types[host_type].kind == FLOAT;
    bool fits = true;
    if (host_type == device_type && host_type != TE_BOOL) {
        if (host_stride == size && device_stride == size) {
            if (transfer->to_host) memcpy(host, device, (size_t)(count * size));
            else memcpy(device, host, (size_t)(count * size));
            return true;
        }
        for (int64_t i = 0; i < count; i++, device += device_stride, host += host_stride) {
            if (transfer->to_host) memcpy(host, device, (size_t)size);
            else memcpy(device, host, (size_t)size);
        }
        return true;
    }
    for (int64_t i = 0; i < count; i++, device += device_stride, host += host_stride) {
        if (transfer->to_host) {
            if (floating) move_float(device_type, device, host_type, host);
            else move_integer(device_type, device, host_type, host); /* wraps */
        } else if (floating) {
            fits &= move_float(host_type, host, device_type, device);
        } else {
            fits &= move_integer(host_type, host, device_type, device);
        }
    }
    return fits;
}

bool te_move(te_transfer *transfer) {
    int64_t at[TE_MAX_RANK] = {0};
    int64_t *shape = transfer->shape;
    int64_t *device = transfer->device_strides, *host = transfer->host_strides;
    int rank = transfer->rank;
    for (int axis = 0; axis < rank; axis++) {
        if (!shape[axis]) return true;
    }
    /* Axes that follow each other without a gap on both sides are one. */
    int last = rank - 1;
    for (int axis = rank - 2; axis >= 0; axis--) {
        if (device[axis] == device[last] * shape[last] && host[axis] == host[last] * shape[last]) {
            shape[last] *= shape[axis];
        } else {
            last--;
            shape[last] = shape[axis];
            device[last] = device[axis];
            host[last] = host[axis];
        }
    }
    const int first = last < 0 ? 0 : last;
    const int inner = rank - 1;
    bool fits = true;
    unsigned char *from = transfer->device, *to = transfer->host;
    if (!rank) return move_run(transfer, from, to, 1, 0, 0);
    for (;;) {
        fits &= move_run(transfer, from, to, shape[inner], device[inner], host[inner]);
        int axis = inner - 1;
        for (; axis >= first; axis--) {
            from += device[axis];
            to += host[axis];
            if (++at[axis] < shape[axis]) break;
            from -= device[axis] * shape[axis];
            to -= host[axis] * shape[axis];
            at[axis] = 0;
        }
        if (axis < first) return fits;
    }
}
