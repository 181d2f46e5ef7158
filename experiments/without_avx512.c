// Lets a program and all its libraries believe that the CPU has no AVX-512: for measurements on a machine that has.
//
//     gcc -shared -fPIC -O2 experiments/without_avx512.c -o without_avx512.so -ldl
//     LD_PRELOAD=$PWD/without_avx512.so lstm-bench grid experiments/cpu_baseline.yaml
//
// ONNX Runtime has no switch for it. The CPUID instruction is made to fault (Linux on Intel, `cpuid_fault` in
// /proc/cpuinfo), and is answered here without the bits of AVX-512 and AMX. Programs ask a few times, when they start.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { SetCpuid = 0x1012 };  // of arch_prctl: 1 lets the instruction run, 0 lets it fault

static long let_cpuid(unsigned long run) { return syscall(SYS_arch_prctl, SetCpuid, run); }

static int really(int number, const struct sigaction* new, struct sigaction* old) {
    int (*const next)(int, const struct sigaction*, struct sigaction*) = dlsym(RTLD_NEXT, "sigaction");
    return next(number, new, old);
}

static void answer(int number, siginfo_t* info, void* context) {
    (void)info;
    greg_t* const r = ((ucontext_t*)context)->uc_mcontext.gregs;
    const uint8_t* const at = (const uint8_t*)r[REG_RIP];
    if (at[0] != 0x0f || at[1] != 0xa2) {  // not CPUID but a true fault, which comes again and ends the program
        struct sigaction end;
        memset(&end, 0, sizeof end);
        end.sa_handler = SIG_DFL;
        really(number, &end, NULL);
        return;
    }
    const uint32_t leaf = r[REG_RAX], sub = r[REG_RCX];
    uint32_t a = leaf, b, c = sub, d;
    let_cpuid(1);
    __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    let_cpuid(0);
    if (leaf == 7 && sub == 0) {
        b &= ~(1u << 16 | 1u << 17 | 1u << 21 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 30 | 1u << 31);
        c &= ~(1u << 1 | 1u << 6 | 1u << 11 | 1u << 12 | 1u << 14);
        d &= ~(1u << 2 | 1u << 3 | 1u << 8 | 1u << 22 | 1u << 23 | 1u << 24 | 1u << 25);
    }
    if (leaf == 7 && sub == 1) a &= ~(1u << 5);          // AVX512_BF16
    if (leaf == 13 && sub == 0) a &= ~(0xe0u | 3u << 17);  // the state that the system would save for them
    r[REG_RAX] = a, r[REG_RBX] = b, r[REG_RCX] = c, r[REG_RDX] = d;
    r[REG_RIP] += 2;
}

// Whoever wants to look at faults, as Python's faulthandler and compilers do, would take ours away.
int sigaction(int number, const struct sigaction* new, struct sigaction* old) {
    if (number != SIGSEGV || !new) return really(number, new, old);
    if (old) memset(old, 0, sizeof *old);
    return 0;
}

void (*signal(int number, void (*handler)(int)))(int) {
    struct sigaction new, old;
    memset(&new, 0, sizeof new);
    new.sa_handler = handler;
    new.sa_flags = SA_RESTART;
    return sigaction(number, &new, &old) ? SIG_ERR : old.sa_handler;
}

__attribute__((constructor)) static void begin(void) {
    struct sigaction ours;
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = answer;
    ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    really(SIGSEGV, &ours, NULL);
    if (let_cpuid(0) == 0) return;
    fputs("without_avx512: this machine cannot hide instructions; expected cpuid_fault in /proc/cpuinfo\n", stderr);
    exit(1);
}
