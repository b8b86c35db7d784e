/* The instruction sets of the processor. Nothing here knows a model: Python's cpu device compiles
   this file, too. Sources: Intel's manual, volume 2, CPUID; Arm's, ID_AA64PFR0_EL1. */
#include "tinyedge_cpu.h"

#include <string.h>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

/* Which of the registers that an instruction set has the system keeps for a program. */
enum { NONE = 0, AVX = 0x6, AVX512 = 0xe6 };

/* The bits of a register of a leaf of CPUID. */
static const struct {
    char name[12];
    unsigned char leaf, subleaf, place, bit, kept; /* place: eax, ebx, ecx, edx */
} sets[] = {
    {"sse2", 1, 0, 3, 26, NONE},       {"sse4_1", 1, 0, 2, 19, NONE},
    {"avx", 1, 0, 2, 28, AVX},         {"fma", 1, 0, 2, 12, AVX},
    {"f16c", 1, 0, 2, 29, AVX},        {"avx2", 7, 0, 1, 5, AVX},
    {"avx512f", 7, 0, 1, 16, AVX512},  {"avx512dq", 7, 0, 1, 17, AVX512},
    {"avx512bw", 7, 0, 1, 30, AVX512}, {"avx512vl", 7, 0, 1, 31, AVX512},
    {"avx512vnni", 7, 0, 2, 11, AVX512}, {"avxvnni", 7, 1, 0, 4, AVX},
};

/* The registers that the system keeps (XGETBV); 0 where it has no such instruction. */
static unsigned kept_registers(void) {
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) return 0;
    __asm__ volatile(".byte 0x0f, 0x01, 0xd0" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

bool te_processor_has(const char *instructions) {
    unsigned found[4];
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        if (strcmp(sets[i].name, instructions)) continue;
        if (!__get_cpuid_count(sets[i].leaf, sets[i].subleaf, &found[0], &found[1], &found[2],
                               &found[3])) {
            return false;
        }
        const unsigned kept = sets[i].kept;
        return (found[sets[i].place] >> sets[i].bit & 1) &&
               (!kept || (kept_registers() & kept) == kept);
    }
    return false;
}

#elif defined(__aarch64__) || defined(_M_ARM64)

bool te_processor_has(const char *instructions) { return !strcmp(instructions, "neon"); }

#elif defined(__arm__) && defined(__linux__)
#include <sys/auxv.h>

bool te_processor_has(const char *instructions) {
    const unsigned long neon = 1ul << 12; /* HWCAP_NEON */
    return !strcmp(instructions, "neon") && (getauxval(AT_HWCAP) & neon);
}

#else

bool te_processor_has(const char *instructions) {
    (void)instructions;
    return false;
}

#endif
