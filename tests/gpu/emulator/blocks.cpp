/* Runs launches: blocks one by one (all at once in a cooperative launch), the threads of a block as fibers that meet at
 * __syncthreads and at operations of a warp. A thread runs until it has to wait; the order of threads turns around
 * from block to block, so that what is missing a barrier is seen. When nobody can go on, the launch fails with a
 * text. */
#include "blocks.h"

#include <sys/mman.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

namespace {

enum state : char { FRESH, READY, WAITING, DONE };
enum place : char { BARRIER, WARP, GRID };
const char *const places[] = {"__syncthreads", "an operation of its warp", "the barrier of the grid"};
constexpr uint64_t CANARY = 0x6b63617473756d65;
constexpr unsigned MAX_MEETINGS = 32; /* different masks of one warp */

struct meeting {
    unsigned mask = 0, arrived = 0, generation = 0;
    const char *file = nullptr;
    int line = 0;
    alignas(16) char slots[2][EMU_WARP][EMU_SLOT];
};

struct fiber {
    state status = FRESH;
    void *sp = nullptr;
    emu_thread *stack = nullptr;
    const char *file = nullptr; /* where it waits */
    int line = 0;
    place at = BARRIER;
};

} // namespace

struct emu_block {
    emu_uint3 index;
    std::vector<fiber> fibers;
    std::vector<std::vector<std::unique_ptr<meeting>>> warps;
    unsigned alive = 0;
    /* the barrier */
    unsigned arrived = 0;
    const char *file = nullptr;
    int line = 0, sum = 0, all = 1, any = 0, result[3] = {};
    bool at_grid = false;
    std::vector<char> shared, statics;
};

namespace {

struct machine {
    void *scheduler = nullptr;
    std::vector<emu_thread *> free_stacks;
    const emu_launch *launch = nullptr;
    emu_block *block = nullptr;
    std::vector<std::unique_ptr<emu_block>> blocks;
    unsigned current = 0, at_grid = 0;
    std::string fault;
};

thread_local machine *me = nullptr; /* of this stream's thread */
std::atomic<unsigned> launches{0};

extern "C" void emu_switch(void **from, void *to);
extern "C" void emu_enter();
#if defined(__x86_64__)
asm(".text\n.globl emu_switch\nemu_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n");
void *fresh_stack(char *top)
{
    void **sp = reinterpret_cast<void **>(top) - 1; /* a call pushes 8 bytes below an address of 16 */
    *--sp = reinterpret_cast<void *>(emu_enter);
    return sp - 6;
}
#elif defined(__aarch64__)
asm(".text\n.globl emu_switch\nemu_switch:\n"
    "sub sp, sp, #160\nstp x19, x20, [sp]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\nstp x25, x26, [sp, #48]\n"
    "stp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\nstp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\n"
    "stp d12, d13, [sp, #128]\nstp d14, d15, [sp, #144]\nmov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
    "ldp x19, x20, [sp]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\nldp x25, x26, [sp, #48]\n"
    "ldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\nldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\n"
    "ldp d12, d13, [sp, #128]\nldp d14, d15, [sp, #144]\nadd sp, sp, #160\nret\n");
void *fresh_stack(char *top)
{
    char *sp = top - 160;
    memset(sp, 0, 160);
    void *entry = reinterpret_cast<void *>(emu_enter);
    memcpy(sp + 88, &entry, sizeof entry);
    return sp;
}
#else
#error "the emulator switches fibers on x86-64 and aarch64"
#endif

fiber &self() { return me->block->fibers[me->current]; }

void to_scheduler() { emu_switch(&self().sp, me->scheduler); }

[[noreturn]] void stop(const char *format, ...)
{
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (me->fault.empty())
        me->fault = text;
    self().status = DONE;
    to_scheduler();
    abort();
}

void wait_at(place at, const char *file, int line)
{
    fiber &f = self();
    f.status = WAITING;
    f.at = at, f.file = file, f.line = line;
    to_scheduler();
}

void release_barrier(emu_block &b)
{
    b.result[0] = b.sum, b.result[1] = b.all, b.result[2] = b.any;
    b.arrived = 0, b.sum = 0, b.all = 1, b.any = 0, b.file = nullptr;
    for (fiber &f : b.fibers)
        if (f.status == WAITING && f.at == BARRIER)
            f.status = READY;
}

int barrier(int vote, int kind, const char *file, int line)
{
    emu_block &b = *me->block;
    if (b.arrived && (b.line != line || strcmp(b.file, file)))
        stop("thread %u reaches __syncthreads of %s:%d while others of its block wait at that of %s:%d", me->current,
             file, line, b.file, b.line);
    b.file = file, b.line = line;
    b.sum += vote != 0, b.all &= vote != 0, b.any |= vote != 0;
    if (++b.arrived == b.alive)
        release_barrier(b);
    else
        wait_at(BARRIER, file, line);
    return b.result[kind];
}

meeting &meeting_of(unsigned mask)
{
    auto &all = me->block->warps[me->current / EMU_WARP];
    for (auto &m : all)
        if (m->mask == mask)
            return *m;
    if (all.size() == MAX_MEETINGS)
        stop("a warp uses more than %u different masks", MAX_MEETINGS);
    all.push_back(std::make_unique<meeting>());
    all.back()->mask = mask;
    return *all.back();
}

const char *meet(unsigned mask, const void *given, size_t bytes, const char *file, int line)
{
    unsigned lane = me->current % EMU_WARP, first = me->current - lane;
    if (!(mask >> lane & 1))
        stop("lane %u of a warp is not in the mask 0x%x that it passes at %s:%d", lane, mask, file, line);
    size_t n = me->block->fibers.size();
    if (n - first < EMU_WARP) /* the last warp is not full: its other lanes do not exist */
        mask &= (1u << (n - first)) - 1;
    meeting &m = meeting_of(mask);
    if (m.arrived && (m.line != line || strcmp(m.file, file)))
        stop("lane %u is at %s:%d, others of its warp wait for it at %s:%d", lane, file, line, m.file, m.line);
    for (unsigned l = 0; l < EMU_WARP; l++)
        if (mask >> l & 1 && me->block->fibers[first + l].status == DONE)
            stop("lane %u waits at %s:%d for lane %u, which has returned from the kernel", lane, file, line, l);
    m.file = file, m.line = line;
    char (*slots)[EMU_SLOT] = m.slots[m.generation & 1];
    memcpy(slots[lane], given, bytes);
    m.arrived |= 1u << lane;
    if (m.arrived != mask) {
        wait_at(WARP, file, line);
        return slots[0];
    }
    m.arrived = 0;
    m.generation++;
    for (unsigned l = 0; l < EMU_WARP; l++)
        if (mask >> l & 1 && l != lane)
            me->block->fibers[first + l].status = READY;
    return slots[0];
}

void grid_barrier(const char *file, int line)
{
    if (!me->launch->cooperative)
        stop("%s:%d: a barrier of the grid needs a cooperative launch", file, line);
    emu_block &b = *me->block;
    if (b.arrived && (b.line != line || strcmp(b.file, file)))
        stop("thread %u is at %s:%d, others of its block wait at %s:%d", me->current, file, line, b.file, b.line);
    b.file = file, b.line = line;
    if (++b.arrived == b.alive) {
        b.arrived = 0;
        b.file = nullptr;
        b.at_grid = true;
        me->at_grid++;
    }
    wait_at(GRID, file, line);
}

void *shared() { return me->block->shared.data(); }
size_t shared_bytes() { return me->launch->shared_bytes; }

void pause()
{
    self().status = READY;
    to_scheduler();
}

void fail(const char *text, const char *file, int line) { stop("%s:%d: %s", file, line, text); }

extern "C" void emu_enter()
{
    const emu_launch *l = me->launch;
    l->call(l->args);
    fiber &f = self();
    f.status = DONE;
    emu_block &b = *me->block;
    b.alive--;
    if (b.alive && b.arrived == b.alive && b.file) /* the barrier no longer waits for this one */
        release_barrier(b);
    to_scheduler();
    abort();
}

emu_thread *new_stack()
{
    if (!me->free_stacks.empty()) {
        emu_thread *s = me->free_stacks.back();
        me->free_stacks.pop_back();
        return s;
    }
    constexpr size_t N = 64;
    char *p = static_cast<char *>(mmap(nullptr, (N + 1) * EMU_STACK, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (p == MAP_FAILED)
        abort();
    p += EMU_STACK - reinterpret_cast<uintptr_t>(p) % EMU_STACK;
    for (size_t i = 0; i < N; i++)
        me->free_stacks.push_back(reinterpret_cast<emu_thread *>(p + i * EMU_STACK));
    return new_stack();
}

void start(unsigned t)
{
    const emu_launch &l = *me->launch;
    fiber &f = self();
    emu_thread *s = f.stack = new_stack();
    s->linear = t;
    s->thread_idx = {t % l.block.x, t / l.block.x % l.block.y, t / (l.block.x * l.block.y)};
    s->block_idx = me->block->index;
    s->block_dim = l.block;
    s->grid_dim = l.grid;
    s->block = me->block;
    s->n_copies = s->group = 0;
    s->canary = CANARY;
    f.sp = fresh_stack(reinterpret_cast<char *>(s) + EMU_STACK);
}

void resume(unsigned t)
{
    me->current = t;
    fiber &f = self();
    if (f.status == FRESH)
        start(t);
    f.status = READY;
    emu_switch(&me->scheduler, f.sp);
    if (f.stack->canary != CANARY) {
        fprintf(stderr, "emulator: a kernel's thread needs more than %d bytes of stack\n", EMU_STACK);
        abort();
    }
    if (f.status == DONE) {
        me->free_stacks.push_back(f.stack);
        f.stack = nullptr;
    }
}

/* One turn: every thread that can run. Whether one did. */
bool turn(emu_block &b, bool downwards)
{
    unsigned n = static_cast<unsigned>(b.fibers.size());
    bool ran = false;
    for (unsigned k = 0; k < n && me->fault.empty(); k++) {
        unsigned t = downwards ? n - 1 - k : k;
        if (b.fibers[t].status == FRESH || b.fibers[t].status == READY) {
            resume(t);
            ran = true;
        }
    }
    return ran;
}

std::string where(const emu_block &b)
{
    std::string text;
    char line[512];
    const fiber *before = nullptr;
    for (unsigned t = 0; t < b.fibers.size(); t++) {
        const fiber &f = b.fibers[t];
        if (before && f.status == before->status && f.line == before->line && f.file == before->file)
            continue;
        before = &f;
        if (f.status == DONE)
            snprintf(line, sizeof line, "\n    from thread %u on: returned", t);
        else
            snprintf(line, sizeof line, "\n    from thread %u on: waits for %s at %s:%d", t, places[f.at], f.file,
                     f.line);
        text += line;
        if (text.size() > 1500)
            break;
    }
    return text;
}

std::unique_ptr<emu_block> make_block(const emu_launch &l, uint64_t number)
{
    auto b = std::make_unique<emu_block>();
    unsigned n = l.block.x * l.block.y * l.block.z;
    b->index = {static_cast<unsigned>(number % l.grid.x), static_cast<unsigned>(number / l.grid.x % l.grid.y),
                static_cast<unsigned>(number / (static_cast<uint64_t>(l.grid.x) * l.grid.y))};
    b->fibers.resize(n);
    b->warps.resize((n + EMU_WARP - 1) / EMU_WARP);
    b->alive = n;
    b->shared.assign(l.shared_bytes + 16, '\xff'); /* what nobody wrote is NaN */
    return b;
}

void release(emu_block &b)
{
    for (fiber &f : b.fibers)
        if (f.stack) {
            me->free_stacks.push_back(f.stack);
            f.stack = nullptr;
        }
}

void stuck(const emu_block &b)
{
    me->fault = "the threads of a block wait for each other:" + where(b);
}

void poison_statics(const emu_launch &l)
{
    if (l.statics_bytes)
        memset(l.statics(), 0xff, l.statics_bytes);
}

/* Every block lives; a block that waits at the grid's barrier makes room, its static shared memory with it. */
void run_cooperative(const emu_launch &l, uint64_t n, bool downwards)
{
    for (uint64_t i = 0; i < n; i++) {
        me->blocks.push_back(make_block(l, i));
        me->blocks.back()->statics.assign(l.statics_bytes, '\xff');
    }
    uint64_t finished = 0;
    bool ran = true;
    while (finished < n && me->fault.empty()) {
        if (!ran) {
            stuck(*me->block);
            break;
        }
        ran = false;
        for (uint64_t i = 0; i < n && me->fault.empty(); i++) {
            emu_block &b = *me->blocks[i];
            if (!b.alive || b.at_grid)
                continue;
            me->block = &b;
            memcpy(l.statics(), b.statics.data(), l.statics_bytes);
            ran |= turn(b, downwards ^ (i & 1));
            memcpy(b.statics.data(), l.statics(), l.statics_bytes);
            finished += !b.alive;
        }
        if (me->at_grid && me->at_grid + finished == n) {
            me->at_grid = 0;
            for (auto &b : me->blocks) {
                b->at_grid = false;
                for (fiber &f : b->fibers)
                    if (f.status == WAITING)
                        f.status = READY;
            }
            ran = true;
        }
    }
}

void run_blocks(const emu_launch &l, uint64_t n, bool downwards)
{
    for (uint64_t i = 0; i < n && me->fault.empty(); i++) {
        me->blocks.clear();
        me->blocks.push_back(make_block(l, i));
        emu_block &b = *(me->block = me->blocks.back().get());
        poison_statics(l);
        while (b.alive && me->fault.empty())
            if (!turn(b, downwards ^ (i & 1)) && me->fault.empty())
                stuck(b);
        release(b);
    }
}

} // namespace

const emu_host emu_callbacks = {barrier, meet, grid_barrier, shared, shared_bytes, pause, fail};

std::string emu_run(const emu_launch &launch)
{
    if (!me)
        me = new machine;
    me->launch = &launch;
    me->fault.clear();
    me->at_grid = 0;
    uint64_t n = static_cast<uint64_t>(launch.grid.x) * launch.grid.y * launch.grid.z;
    bool downwards = launches++ & 1;
    if (launch.cooperative)
        run_cooperative(launch, n, downwards);
    else
        run_blocks(launch, n, downwards);
    if (!me->fault.empty() || launch.cooperative)
        for (auto &b : me->blocks)
            release(*b);
    emu_uint3 b = me->block->index;
    me->blocks.clear();
    if (me->fault.empty())
        return "";
    char at[256];
    snprintf(at, sizeof at, "%s, block (%u, %u, %u): ", launch.name, b.x, b.y, b.z);
    return at + me->fault;
}
