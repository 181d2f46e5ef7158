// Which instructions this CPU has, and how a user keeps the kernels from some of them.
#pragma once

#include <cstdlib>
#include <stdexcept>
#include <string>

#if defined(__x86_64__) && defined(__GNUC__)
#define LSTM_KERNELS_X86 1
#include <cpuid.h>
#if defined(__linux__) && (defined(__clang__) || __GNUC__ >= 11)
#define LSTM_KERNELS_TILES 1
#endif
#elif defined(__aarch64__) && defined(__GNUC__)
#define LSTM_KERNELS_ARM 1
#endif

#include "system.hpp"

namespace lstm_kernels {

// From few to many: each has all of those before it.
#if LSTM_KERNELS_X86
enum class InstructionSet { sse2, avx2, avx512, avx512_vnni, avx512_bf16, amx };
constexpr const char* InstructionSets[] = {"sse2", "avx2", "avx512", "avx512-vnni", "avx512-bf16", "amx"};
#elif LSTM_KERNELS_ARM
enum class InstructionSet { neon, neon_dot, neon_bf16 };
constexpr const char* InstructionSets[] = {"neon", "neon-dot", "neon-bf16"};
#else
enum class InstructionSet { portable };
constexpr const char* InstructionSets[] = {"portable"};
#endif

#if LSTM_KERNELS_X86
// Bits of the processor's own account of itself; the compiler's runtime, which knows their names, is not in every library.
enum Register { eax, ebx, ecx, edx };
static inline bool cpu_has(unsigned leaf, unsigned part, Register which, unsigned bit) {
    unsigned found[4] = {};
    return __get_cpuid_count(leaf, part, &found[eax], &found[ebx], &found[ecx], &found[edx]) && (found[which] >> bit & 1);
}
// Registers that the system keeps for each process.
static inline bool kept(unsigned registers) {
    unsigned low = 0, high = 0;
    if (cpu_has(1, 0, ecx, 27)) asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & registers) == registers;
}
#ifndef HAS
#define HAS(leaf, part, which, bit) cpu_has(leaf, part, which, bit)
#endif
#endif

static inline bool has_tiles() {
#if LSTM_KERNELS_TILES
    static const bool allowed = HAS(7, 0, edx, 22) && HAS(7, 0, edx, 24) && HAS(7, 0, edx, 25) &&  // bf16, tiles, int8
                                tiles_are_allowed();
    return allowed;
#else
    return false;
#endif
}

static inline InstructionSet best_instruction_set() {
#if LSTM_KERNELS_X86
    constexpr unsigned Halves = 0x6, Wide = 0xe6;  // of AVX, of AVX-512
    if (!HAS(7, 0, ebx, 5) || !HAS(1, 0, ecx, 12) || !kept(Halves)) return InstructionSet::sse2;  // AVX2, FMA
    if (!HAS(7, 0, ebx, 16) || !kept(Wide)) return InstructionSet::avx2;                          // AVX-512 F
    if (!HAS(7, 0, ecx, 11)) return InstructionSet::avx512;                                       // VNNI
    if (!HAS(7, 1, eax, 5)) return InstructionSet::avx512_vnni;                                   // BF16
    return has_tiles() ? InstructionSet::amx : InstructionSet::avx512_bf16;
#elif LSTM_KERNELS_ARM
    const ArmFeatures has = arm_features();
    if (!has.dot) return InstructionSet::neon;
    return has.bf16 ? InstructionSet::neon_bf16 : InstructionSet::neon_dot;
#else
    return InstructionSet::portable;
#endif
}

// LSTM_BENCH_ISA names the most that may be used.
static inline InstructionSet instruction_set() {
    const InstructionSet best = best_instruction_set();
    const char* const asked = std::getenv("LSTM_BENCH_ISA");
    if (!asked || !*asked) return best;
    std::string known;
    for (int i = 0; const char* name : InstructionSets) {
        const InstructionSet set = InstructionSet(i++);
        if (set > best) break;
        if (asked == std::string(name)) return set;
        known += (known.empty() ? "" : ", ") + std::string(name);
    }
    throw std::invalid_argument("LSTM_BENCH_ISA: expected one that this CPU has, " + known + "; found " + asked);
}

}  // namespace lstm_kernels
