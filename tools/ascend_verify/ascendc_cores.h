// Cores of the 910B on the host, for sources in the AscendC API: memories, pipes, flags, launch.
//
// Written from CANN's public pages of the AscendC API (docs/zh/api/SIMD-API of asc-devkit, the same
// pages as hiascend.com/document, "Ascend C API"); a comment names the page. Every core is a
// coroutine that carries out its calls in order. Beside that each call says which bytes it reads and
// writes, and a clock for each pipe knows which other calls have certainly ended before: two calls
// that touch a byte, one of them writing, with neither barrier nor flag between them are an error.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <ucontext.h>
#include <vector>

#define __aicore__
#define __global__
#define __gm__
#define GM_ADDR uint8_t *

// Numbers ------------------------------------------------------------------------------------------

using half = _Float16;
struct bfloat16_t {
  uint16_t word = 0;
  bfloat16_t() = default;
  explicit bfloat16_t(float x) {
    uint32_t u;
    std::memcpy(&u, &x, 4);
    word = std::isnan(x) ? (u >> 16) | 64 : (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  }
  operator float() const {
    uint32_t u = (uint32_t)word << 16;
    float x;
    std::memcpy(&x, &u, 4);
    return x;
  }
};
template <typename T> constexpr bool is_real = std::is_same_v<T, float> || std::is_same_v<T, half> || std::is_same_v<T, bfloat16_t>;

enum pipe_t : int { PIPE_S, PIPE_V, PIPE_M, PIPE_MTE1, PIPE_MTE2, PIPE_MTE3, PIPE_FIX, PIPE_ALL };

namespace host {
constexpr int PIPES = 7;
inline const char *PIPE_NAMES[] = {"S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX", "ALL"};
constexpr int CORES = 3;  // of a block: the cube core and two vector cores
using Known = std::array<uint32_t, CORES * PIPES>;
inline void learn(Known &known, const Known &more) {
  for (size_t k = 0; k < known.size(); ++k) known[k] = std::max(known[k], more[k]);
}

template <typename T> const void *tag() {
  static const char place = 0;
  return &place;
}

struct Record {
  size_t lo, hi;
  int pid;
  uint32_t seq;
  bool write;
};
struct Memory {
  std::string name;
  uint8_t *data = nullptr;
  size_t size = 0;
  bool watched = true;
  std::vector<uint8_t> own;
  std::vector<Record> records;
  void allot(const char *called, size_t bytes) {
    name = called;
    own.assign(bytes, 0xff);  // what nobody has written is no number
    data = own.data();
    size = bytes;
  }
};

struct Group;
struct Core {
  Group *group = nullptr;
  int block = 0, index = 0;  // index: 0 the cube core, 1 and 2 the vector cores
  bool cube() const { return index == 0; }
  Memory ub, l1, l0a, l0b, l0c;
  std::array<Known, PIPES> known{};
  std::array<uint32_t, PIPES> done{};
  std::map<std::tuple<int, int, int>, Known> flags;  // raised: source pipe, target pipe, id
  std::array<std::deque<Known>, 16> crossed;         // counters of cross-core flags
  std::array<std::deque<Known>, 16> arrived[3];      // by mode: what this core has raised
  std::string atomic;
  const void *atomic_type = nullptr;
  bool ready = false, settled = true, ended = false;
  long steps = 0;  // flags raised, and waits that are over
  float dequant = 1;
  ucontext_t context;
  std::vector<char> stack;
};
struct Group {
  std::list<Core> cores;
};

inline Core *me;
inline ucontext_t scheduler;
inline std::list<Core *> running;
inline std::map<std::string, long> calls;
inline std::deque<Memory> tensors;
inline std::string task;
inline int blocks, cores_of_vector;
inline std::function<void()> body;

[[noreturn]] inline void fail(const std::string &why) {
  std::fprintf(stderr, "%s core %d of block %d: %s\n", me->cube() ? "cube" : "vector", me->cube() ? 0 : me->index - 1, me->block, why.c_str());
  std::_Exit(3);
}
inline void check(bool fine, const std::string &why) {
  if (!fine) fail(why);
}
inline void yield() { swapcontext(&me->context, &scheduler); }

// One call: what it is named, the pipe that carries it out, and the bytes that it touches.
class Call {
 public:
  const char *name;
  int pipe, pid;
  uint32_t seq;
  bool in_order;  // this pipe needs no barrier between this call and the one before
  Call(const char *called, int on, bool ordered = false) : name(called), pipe(on), in_order(ordered) {
    check(me->ready, std::string(name) + " before InitSocState");
    ++calls[name];
    me->settled = false;
    pid = me->index * PIPES + pipe;
    seq = ++me->done[pipe];
    // The scalar unit issues the call: what it has waited for is over. Itself it writes with flags.
    uint32_t own = me->known[pipe][me->index * PIPES + PIPE_S];
    learn(me->known[pipe], me->known[PIPE_S]);
    if (pipe != PIPE_S) me->known[pipe][me->index * PIPES + PIPE_S] = own;
  }
  uint8_t *read(Memory &m, size_t at, size_t bytes) { return touch(m, at, bytes, false); }
  uint8_t *write(Memory &m, size_t at, size_t bytes) { return touch(m, at, bytes, true); }

 private:
  bool before(const Record &r) const {
    if (r.pid == pid && (r.seq == seq || in_order || pipe == PIPE_S)) return true;
    return me->known[pipe][r.pid] >= r.seq;
  }
  std::string place(const Memory &m, size_t at) const { return m.name + "+" + std::to_string(at); }
  uint8_t *touch(Memory &m, size_t at, size_t bytes, bool writes) {
    if (at + bytes > m.size) fail(std::string(name) + " goes behind the end of " + m.name + ", to byte " + std::to_string(at + bytes));
    if (!m.watched || bytes == 0) return m.data + at;
    size_t kept = 0;
    for (size_t k = 0; k < m.records.size(); ++k) {
      const Record r = m.records[k];
      bool clash = r.lo < at + bytes && at < r.hi && (writes || r.write), over = before(r);
      // Both vector cores may do the same work and store the same numbers at one place.
      if (writes && r.write && r.pid / PIPES != me->index) over = true;
      if (clash && !over)
        fail(std::string(name) + " on " + PIPE_NAMES[pipe] + (writes ? " writes " : " reads ") + place(m, at) + ", which a call on " +
             PIPE_NAMES[r.pid % PIPES] + (r.write ? " may still write" : " may still read"));
      bool covered = at <= r.lo && r.hi <= at + bytes && over && (writes || (!r.write && r.pid == pid));
      if (!covered) m.records[kept++] = r;
    }
    m.records.resize(kept);
    if (writes || pipe != PIPE_S) m.records.push_back({at, at + bytes, pid, seq, writes});
    return m.data + at;
  }
};

inline Known now(int pipe) {
  Known out = me->known[pipe];
  out[me->index * PIPES + pipe] = me->done[pipe];
  return out;
}
inline void barrier_all() {
  Known all{};
  for (int p = 0; p < PIPES; ++p) learn(all, now(p));
  for (auto &known : me->known) known = all;
  me->settled = true;
}

// Cross-core flags (CrossCoreSetFlag): mode 0 all cores of a kind, 1 the vector cores of a block, 2
// the cube core to the vector cores of its block, or these to it. A counter goes up when all have
// raised it.
inline void deliver(const std::vector<Core *> &from, const std::vector<Core *> &to, int mode, int id) {
  for (Core *c : from) if (c->arrived[mode][id].empty()) return;
  Known all{};
  for (Core *c : from) {
    // Clocks are those of a block; what other blocks do to global memory is not watched.
    if (c->group == from[0]->group) learn(all, c->arrived[mode][id].front());
    c->arrived[mode][id].pop_front();
  }
  for (Core *c : to) {
    c->crossed[id].push_back(c->group == from[0]->group ? all : Known{});
    check(c->crossed[id].size() <= 15, "a cross-core flag is raised more than 15 times without a wait");
  }
}
inline void cross_set(int mode, int pipe, int id) {
  check(id >= 0 && id < 16, "cross-core flags are 0 to 15");
  ++me->steps;
  me->arrived[mode][id].push_back(now(pipe));
  std::vector<Core *> kind, mine, other;
  for (Core *c : running) if (c->cube() == me->cube()) kind.push_back(c);
  for (Core &c : me->group->cores) (c.cube() == me->cube() ? mine : other).push_back(&c);
  if (mode == 0) deliver(kind, kind, mode, id);
  else if (mode == 1) deliver(mine, mine, mode, id);
  else deliver(mine, other, mode, id);
}
inline void cross_wait(int id) {
  check(id >= 0 && id < 16, "cross-core flags are 0 to 15");
  while (me->crossed[id].empty()) yield();
  ++me->steps;
  Known got = me->crossed[id].front();
  me->crossed[id].pop_front();
  for (auto &known : me->known) learn(known, got);
}

// Launch -------------------------------------------------------------------------------------------

inline void start() {
  body();
  check(me->settled, "the kernel ends without PipeBarrier<PIPE_ALL>");
  check(me->flags.empty(), "the kernel ends with a flag raised");
  for (auto &counter : me->crossed) check(counter.empty(), "the kernel ends with a cross-core flag raised");
  me->ended = true;
  yield();
}
// Sizes of the memories: "Ascend C" programming guide, hardware of architecture version 2201.
inline void prepare(Core &core, Group &group, int block, int index) {
  core.group = &group;
  core.block = block;
  core.index = index;
  if (index) core.ub.allot("UB", 192 << 10);
  else {
    core.l1.allot("L1", 512 << 10);
    core.l0a.allot("L0A", 64 << 10);
    core.l0b.allot("L0B", 64 << 10);
    core.l0c.allot("L0C", 128 << 10);
  }
  core.stack.resize(512 << 10);
  getcontext(&core.context);
  core.context.uc_stack.ss_sp = core.stack.data();
  core.context.uc_stack.ss_size = core.stack.size();
  core.context.uc_link = &scheduler;
  makecontext(&core.context, start, 0);
}
inline void run_blocks(int first, int last) {
  std::list<Group> groups;
  for (int b = first; b < last; ++b) {
    Group &group = groups.emplace_back();
    for (int k = 0; k <= cores_of_vector; ++k) prepare(group.cores.emplace_back(), group, b, k);
  }
  running.clear();
  for (Group &g : groups) for (Core &c : g.cores) running.push_back(&c);
  for (bool left = true; left;) {
    bool moved = false;
    left = false;
    for (Core *c : running) {
      if (c->ended) continue;
      me = c;
      long before = c->steps;
      swapcontext(&scheduler, &c->context);
      moved |= c->ended || c->steps != before;
      left |= !c->ended;
    }
    if (left && !moved)
      for (Core *c : running) if (!c->ended) { me = c; fail("waits for a cross-core flag that nobody raises"); }
  }
}
// `together`: blocks meet (SyncAll, mode 0), so all run at the same time.
inline void launch(int count, int vectors, const char *type, bool together, std::function<void()> kernel) {
  blocks = count;
  cores_of_vector = vectors;
  task = type;
  body = kernel;
  if (together) run_blocks(0, count);
  else for (int b = 0; b < count; ++b) {
    for (Memory &t : tensors) t.records.clear();  // other blocks are not watched
    run_blocks(b, b + 1);
  }
}
inline void load(const char *name, const char *path, bool changes) {
  std::FILE *file = std::fopen(path, "rb");
  std::fseek(file, 0, SEEK_END);
  size_t size = std::ftell(file);
  std::rewind(file);
  Memory &m = tensors.emplace_back();
  m.name = name;
  m.size = size;
  m.watched = changes;
  m.data = (uint8_t *)std::aligned_alloc(512, size / 512 * 512 + 512);
  if (std::fread(m.data, 1, size, file) != size) std::_Exit(4);
  std::fclose(file);
}
inline void save(char **paths) {
  for (size_t k = 0; k < tensors.size(); ++k) {
    std::FILE *file = std::fopen(paths[k], "wb");
    std::fwrite(tensors[k].data, 1, tensors[k].size, file);
    std::fclose(file);
  }
  for (auto &[name, count] : calls) std::printf("%s %ld\n", name.c_str(), count);
}
}  // namespace host
