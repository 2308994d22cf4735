// SPDX-License-Identifier: MIT
// The library in C++: a limiter that closes itself, errors as exceptions, several threads.
//
// It shows what a thin layer over stint.h is: forty lines that a project writes for itself, with the
// names and the errors that it likes. It leaves out all that needs no layer: policies, requests and
// verdicts are plain structs, to be filled in and handed over.
#include <atomic>
#include <cstdint>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <stint.h>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

class Limiter {
  public:
    // An error with its reason: which argument it is, its range, what to do.
    static void check(int error) {
        if (error < 0)
            throw std::runtime_error(stint_reason());
    }

    explicit Limiter(const stint_options &options) {
        stint_limiter *opened;
        check(stint_open(&options, &opened));
        limiter.reset(opened);
    }

    // A policy, once for all threads. Returns its id.
    std::uint32_t policy(const std::string &notation) {
        stint_policy policy = STINT_POLICY_INIT;
        std::uint32_t id;
        check(stint_policy_parse(notation.c_str(), &policy, nullptr));
        check(stint_policy_add(limiter.get(), &policy, &id));
        return id;
    }

    stint_key key(std::string_view name) const noexcept {
        return stint_key_of(limiter.get(), name.data(), name.size());
    }

    // What decides never fails, and is noexcept: a refusal is a verdict.
    stint_verdict take(std::uint32_t policy, stint_key key, std::uint32_t cost = 1) noexcept {
        stint_verdict verdict;
        stint_take(limiter.get(), policy, key, cost, STINT_NOW, &verdict);
        return verdict;
    }

    void refund(stint_key key, stint_verdict &verdict) noexcept {
        stint_refund(limiter.get(), key, &verdict, verdict.granted);
    }

  private:
    struct Close {
        void operator()(stint_limiter *limiter) const noexcept { stint_close(limiter); }
    };
    std::unique_ptr<stint_limiter, Close> limiter; // so a Limiter can be moved, but not copied
};

// Tokens, if there were any, that go back unless the work was done, however the scope is left.
class Grant {
  public:
    Grant(Limiter &limiter, std::uint32_t policy, stint_key key)
        : limiter(limiter), key(key), verdict(limiter.take(policy, key)) {}
    Grant(const Grant &) = delete;
    Grant &operator=(const Grant &) = delete;

    ~Grant() {
        if (verdict.allowed && !kept)
            limiter.refund(key, verdict);
    }

    explicit operator bool() const noexcept { return verdict.allowed; }
    void keep() noexcept { kept = true; }

  private:
    Limiter &limiter;
    stint_key key;
    stint_verdict verdict;
    bool kept = false;
};

int main() try {
    stint_options options = STINT_OPTIONS_INIT;
    options.max_entries = 10000;
    Limiter limiter(options);
    const std::uint32_t daily = limiter.policy("1000/366d name=daily");
    const stint_key client = limiter.key("192.0.2.7");

    // Every other piece of work fails, and its token is another's.
    std::atomic<int> done = 0, failed = 0, refused = 0;
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; thread++)
        threads.emplace_back([&] {
            for (int i = 0; i < 1000; i++) {
                Grant grant(limiter, daily, client);
                if (!grant) {
                    refused++;
                } else if (i % 2 == 1) {
                    grant.keep();
                    done++;
                } else {
                    failed++;
                }
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    std::cout << done << " done, " << failed + refused << " not\n";

    try {
        limiter.policy("100/fortnight");
    } catch (const std::runtime_error &error) {
        std::cout << error.what() << '\n';
    }
    return 0;
} catch (const std::exception &error) {
    std::cerr << error.what() << '\n';
    return 1;
}
