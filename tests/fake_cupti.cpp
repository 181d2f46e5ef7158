// A stand-in for libcupti, as CUPTI 13 behaved on an H200, and for the GPU that it listens to.
//
// Records arrive when they are flushed, in the layout of CUPTI's headers, with mangled names; only
// enabled kinds are recorded; after cuptiFinalize nothing is registered. A test plays the GPU with
// gpu_launch, gpu_replay, gpu_copy and gpu_fill, and makes trouble with the gpu_set functions.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace {

struct Config {
    int32_t grid[3], block[3];
};

struct Kernel {  // CUpti_ActivityKernel10, as far as it is read
    uint32_t kind;
    uint8_t skip_1[2];
    uint16_t registers;
    uint8_t skip_2[8];
    uint64_t start, end;
    uint8_t skip_5[20];
    Config config;
    uint8_t skip_6[16];
    uint32_t correlation;
    uint8_t skip_3[8];
    const char* name;
    uint8_t skip_4[104];
};
static_assert(sizeof(Kernel) == 216 && offsetof(Kernel, correlation) == 92 && offsetof(Kernel, name) == 104);
static_assert(offsetof(Kernel, registers) == 6 && offsetof(Kernel, start) == 16 && offsetof(Kernel, config) == 52);

struct Copy {  // CUpti_ActivityMemcpy6
    uint32_t kind;
    uint8_t copy_kind, skip_1[3];
    uint64_t bytes, start, end;
    uint8_t skip_2[12];
    uint32_t correlation;
    uint8_t skip_3[48];
};
static_assert(sizeof(Copy) == 96 && offsetof(Copy, correlation) == 44);

struct Fill {  // CUpti_ActivityMemset4
    uint32_t kind, value;
    uint64_t bytes, start, end;
    uint8_t skip_1[12];
    uint32_t correlation;
    uint8_t skip_2[40];
};
static_assert(sizeof(Fill) == 88 && offsetof(Fill, correlation) == 44);

struct Call {  // CUpti_ActivityAPI
    uint32_t kind, number;
    uint64_t start, end;
    uint32_t process, thread, correlation, returned;
};
static_assert(sizeof(Call) == 40 && offsetof(Call, correlation) == 32);

enum { MEMCPY = 1, MEMSET = 2, DRIVER = 4, RUNTIME = 5, CONCURRENT_KERNEL = 10 };
const std::map<uint32_t, size_t> SIZES{{MEMCPY, sizeof(Copy)}, {MEMSET, sizeof(Fill)}, {DRIVER, sizeof(Call)},
                                       {RUNTIME, sizeof(Call)}, {CONCURRENT_KERNEL, sizeof(Kernel)}};
const std::map<std::pair<int, uint32_t>, const char*> NAMES{
    {{1, 307}, "cuLaunchKernel"}, {{1, 719}, "cuStreamGetCaptureInfo_v3"}, {{2, 17}, "cudaGetDevice_v3020"},
    {{2, 211}, "cudaLaunchKernel_v7000"}, {{2, 290}, "cudaLaunchHostFunc_v10000"}, {{2, 311}, "cudaGraphLaunch_v10000"}};
const int MAX_LIMIT_REACHED = 12;

using Requested = void (*)(uint8_t**, size_t*, size_t*);
using Completed = void (*)(void*, uint32_t, uint8_t*, size_t, size_t);

Requested requested;
Completed completed;
std::set<uint32_t> enabled;
std::vector<std::vector<uint8_t>> records;
std::set<std::string> names;  // CUPTI keeps one copy of each
uint64_t now;
uint32_t number;
int finalized, refusal, dropped, hidden_first, hidden_last;  // hidden: kernels, counted from 1
std::string refused_call;
Config config;  // of the kernels that are launched next
uint16_t registers;

template <typename Record>
void seen(const Record& record) {
    if (!enabled.count(record.kind)) return;
    const auto* bytes = reinterpret_cast<const uint8_t*>(&record);
    records.emplace_back(bytes, bytes + sizeof record);
}

void host(uint32_t kind, uint32_t id, uint64_t ns, uint32_t correlation) {
    seen(Call{kind, id, now, now + ns, 1, 1, correlation, 0});
    now += ns;
}

void kernel(const char* name, uint64_t ns, uint64_t gap, uint32_t correlation) {
    Kernel record{};
    now += gap;
    record.kind = CONCURRENT_KERNEL;
    record.start = now;
    record.end = now += ns;
    record.correlation = correlation;
    record.config = config;
    record.registers = registers;
    record.name = names.insert(name).first->c_str();
    seen(record);
}

int refuse(const char* call) { return refused_call == call ? refusal : 0; }

}  // namespace

extern "C" {

// --- CUPTI

int cuptiActivityRegisterCallbacks(Requested r, Completed c) {
    requested = r;
    completed = c;
    return refuse("cuptiActivityRegisterCallbacks");
}
int cuptiActivityEnable(uint32_t kind) {
    if (refuse("cuptiActivityEnable")) return refusal;
    enabled.insert(kind);
    return 0;
}
int cuptiGetTimestamp(uint64_t* time) {
    *time = now += 300;
    return 0;
}
int cuptiActivityFlushAll(uint32_t) {
    int kernels = 0;
    std::vector<const std::vector<uint8_t>*> kept;
    for (const auto& record : records) {
        uint32_t kind;
        std::memcpy(&kind, record.data(), sizeof kind);
        if (kind == CONCURRENT_KERNEL && ++kernels >= hidden_first && kernels <= hidden_last) continue;
        kept.push_back(&record);
    }
    size_t next = 0;
    while (next < kept.size()) {  // as many buffers as it takes
        uint8_t* buffer = nullptr;
        size_t size = 0, most = 0, used = 0;
        requested(&buffer, &size, &most);
        if (reinterpret_cast<uintptr_t>(buffer) % 8) return 1;  // CUPTI asks for this alignment
        while (next < kept.size() && used + kept[next]->size() <= size) {
            std::memcpy(buffer + used, kept[next]->data(), kept[next]->size());
            used += kept[next++]->size();
        }
        completed(nullptr, 0, buffer, size, used);
    }
    records.clear();
    return 0;
}
int cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid, uint8_t** record) {
    if (refuse("cuptiActivityGetNextRecord")) return refusal;
    uint32_t kind;
    uint8_t* next = buffer;
    if (*record) {
        std::memcpy(&kind, *record, sizeof kind);
        next = *record + SIZES.at(kind);
    }
    if (next >= buffer + valid) return MAX_LIMIT_REACHED;
    *record = next;
    return 0;
}
int cuptiActivityGetNumDroppedRecords(void*, uint32_t, size_t* lost) {
    *lost = dropped;
    return 0;
}
int cuptiGetCallbackName(int domain, uint32_t id, const char** name) {
    const auto found = NAMES.find({domain, id});
    *name = found == NAMES.end() ? nullptr : found->second;
    return found == NAMES.end() ? 1 : 0;
}
int cuptiGetResultString(int code, const char** text) {
    *text = code == 35 ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" : code == 39 ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED" : nullptr;
    return 0;
}
int cuptiFinalize() {
    enabled.clear();
    requested = nullptr;
    completed = nullptr;
    ++finalized;
    return 0;
}

// --- the GPU

void gpu_reset() {
    cuptiFinalize();
    records.clear();
    now = 1794728222000000000;
    number = 363294;
    finalized = refusal = dropped = hidden_first = hidden_last = 0;
    refused_call.clear();
    config = {{1, 1, 1}, {1, 1, 1}};
    registers = 0;
}
void gpu_launch(const char* name, uint64_t ns, uint64_t gap, int by_driver) {
    const uint32_t correlation = ++number;
    host(RUNTIME, 17, 400, ++number);  // cudaGetDevice
    host(by_driver ? DRIVER : RUNTIME, by_driver ? 307 : 211, 1500, correlation);
    kernel(name, ns, gap, correlation);
}
void gpu_graph(uint64_t ns) { host(RUNTIME, 311, ns, ++number); }  // its kernels bear its number
void gpu_node(const char* name, uint64_t ns) { kernel(name, ns, 500, number); }
void gpu_copy(uint64_t bytes, uint64_t ns, uint8_t kind) {
    seen(Copy{MEMCPY, kind, {}, bytes, now, now + ns, {}, ++number, {}});
    now += ns;
}
void gpu_fill(uint64_t bytes, uint64_t ns) {
    seen(Fill{MEMSET, 0, bytes, now, now + ns, {}, ++number, {}});
    now += ns;
}
void gpu_set_refusal(const char* call, int code) {
    refused_call = call;
    refusal = code;
}
void gpu_set_dropped(int count) { dropped = count; }
void gpu_set_hidden(int first, int last) {
    hidden_first = first;
    hidden_last = last;
}
void gpu_set_config(int x, int y, int z, int threads, int each) {
    config = {{x, y, z}, {threads, 1, 1}};
    registers = static_cast<uint16_t>(each);
}
int gpu_attached() { return completed != nullptr; }
int gpu_finalized() { return finalized; }
}
