/* Streams as threads. */
#include "stream.h"

#include <chrono>
#include <cstdlib>

int64_t emu_now_ns()
{
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

void emu_mark::set()
{
    std::lock_guard<std::mutex> hold(lock);
    ns = emu_now_ns();
    done = true;
    changed.notify_all();
}

void emu_mark::wait()
{
    std::unique_lock<std::mutex> hold(lock);
    changed.wait(hold, [this] { return done; });
}

bool emu_mark::is_done()
{
    std::lock_guard<std::mutex> hold(lock);
    return done;
}

/* EMULATOR_DELAY_US: before each operation a stream rests for a random time up to this */
static void rest()
{
    static const unsigned most = [] {
        const char *text = getenv("EMULATOR_DELAY_US");
        return text ? static_cast<unsigned>(atoi(text)) : 0u;
    }();
    static std::atomic<unsigned> seed{12345};
    if (most) {
        unsigned r = seed.fetch_add(0x9e3779b9);
        r = (r ^ r >> 15) * 0x2c1b3c6d;
        r = (r ^ r >> 12) * 0x297a2d39;
        std::this_thread::sleep_for(std::chrono::microseconds((r ^ r >> 15) % most));
    }
}

void emu_stream::push(std::function<void()> work)
{
    std::lock_guard<std::mutex> hold(lock);
    queue.push_back(std::move(work));
    n_pushed++;
    if (!started) {
        started = true;
        std::thread([this] { run(); }).detach();
    }
    changed.notify_all();
}

void emu_stream::run()
{
    std::unique_lock<std::mutex> hold(lock);
    for (;;) {
        changed.wait(hold, [this] { return !queue.empty() || closed; });
        if (queue.empty())
            break;
        std::function<void()> work = std::move(queue.front());
        queue.pop_front();
        hold.unlock();
        rest();
        work();
        work = nullptr;
        hold.lock();
        n_done++;
        changed.notify_all();
    }
    hold.unlock();
    delete this;
}

void emu_stream::sync()
{
    std::unique_lock<std::mutex> hold(lock);
    uint64_t goal = n_pushed;
    changed.wait(hold, [this, goal] { return n_done >= goal; });
}

bool emu_stream::idle()
{
    std::lock_guard<std::mutex> hold(lock);
    return n_done == n_pushed;
}
