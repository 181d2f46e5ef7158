// Which instructions this CPU has, and how a user keeps the kernels from some of them.
#pragma once

#include <cstdlib>
#include <stdexcept>
#include <string>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define LSTM_KERNELS_X86 1
#if defined(__linux__) && __GNUC__ >= 11
#define LSTM_KERNELS_TILES 1
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__GNUC__) && !defined(__clang__)
#define LSTM_KERNELS_ARM 1
#include <sys/auxv.h>
#endif

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

// Linux keeps the tiles of AMX from a process that has not asked for them.
static inline bool has_tiles() {
#if LSTM_KERNELS_TILES
    constexpr int Ask = 0x1023, TileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    static const bool allowed = __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16") &&
                                __builtin_cpu_supports("amx-int8") && syscall(SYS_arch_prctl, Ask, TileData) == 0;
    return allowed;
#else
    return false;
#endif
}

static inline InstructionSet best_instruction_set() {
#if LSTM_KERNELS_X86
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return InstructionSet::sse2;
    if (!__builtin_cpu_supports("avx512f")) return InstructionSet::avx2;
    if (!__builtin_cpu_supports("avx512vnni")) return InstructionSet::avx512;
    if (!__builtin_cpu_supports("avx512bf16")) return InstructionSet::avx512_vnni;
    return has_tiles() ? InstructionSet::amx : InstructionSet::avx512_bf16;
#elif LSTM_KERNELS_ARM
    constexpr unsigned long Dot = 1UL << 20, Bf16 = 1UL << 14;  // HWCAP_ASIMDDP, HWCAP2_BF16
    if (!(getauxval(AT_HWCAP) & Dot)) return InstructionSet::neon;
    return getauxval(AT_HWCAP2) & Bf16 ? InstructionSet::neon_bf16 : InstructionSet::neon_dot;
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
