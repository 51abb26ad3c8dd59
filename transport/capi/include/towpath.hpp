// Towpath for C++17: owners of what towpath.h hands out, and errors as exceptions.
//
// An object of these frees what it has when it ends; all can be moved and none copied. The rules of
// towpath.h hold: an endpoint, and messages and buffers of it, belong to one thread, and must end
// before it does.

#ifndef TOWPATH_HPP
#define TOWPATH_HPP

#include <towpath.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tow {

// A call that failed.
class error : public std::runtime_error {
public:
    explicit error(std::int32_t status)
        : std::runtime_error(text(status)), status_(static_cast<tow_status>(status)) {}

    tow_status status() const noexcept { return status_; }

private:
    static std::string text(std::int32_t status) {
        return std::string(tow_error_text(status)) + ": " + tow_last_error();
    }

    tow_status status_;
};

// What a call counted; throws its error.
inline std::int32_t check(std::int32_t result) {
    if (result < 0)
        throw error(result);
    return result;
}

struct deleter {
    void operator()(tow_config *config) const noexcept { tow_config_free(config); }
    void operator()(tow_endpoint *endpoint) const noexcept { tow_endpoint_free(endpoint); }
    void operator()(tow_memory *memory) const noexcept { tow_memory_free(memory); }
};

// How an endpoint is set up.
class config {
public:
    explicit config(tow_profile profile = TOW_PROFILE_DEFAULT) {
        tow_config *made = nullptr;
        check(tow_config_new(profile, &made));
        config_.reset(made);
    }

    config &set(tow_setting setting, std::uint64_t value) {
        check(tow_config_set(config_.get(), setting, value));
        return *this;
    }

    config &app_protocol(const std::string &name) {
        check(tow_config_app_protocol(config_.get(), name.c_str()));
        return *this;
    }

    config &send_pools(const std::vector<tow_pool> &pools) {
        check(tow_config_send_pools(config_.get(), pools.data(), pools.size()));
        return *this;
    }

    const tow_config *get() const noexcept { return config_.get(); }

private:
    std::unique_ptr<tow_config, deleter> config_;
};

// Memory that peers may reach as far as it is granted.
class memory {
public:
    explicit memory(std::size_t bytes) {
        tow_memory *made = nullptr;
        check(tow_memory_new(bytes, &made));
        memory_.reset(made);
    }

    // Memory of the caller's own: see tow_memory_from.
    memory(void *start, std::size_t bytes, void (*release)(void *), void *user) {
        tow_memory *made = nullptr;
        check(tow_memory_from(start, bytes, release, user, &made));
        memory_.reset(made);
    }

    void read(std::size_t offset, void *to, std::size_t len) const {
        check(tow_memory_read(get(), offset, to, len));
    }

    void write(std::size_t offset, const void *from, std::size_t len) const {
        check(tow_memory_write(get(), offset, from, len));
    }

    std::uint64_t load(std::size_t offset) const {
        std::uint64_t word = 0;
        check(tow_memory_load(get(), offset, &word));
        return word;
    }

    void store(std::size_t offset, std::uint64_t value) const {
        check(tow_memory_store(get(), offset, value));
    }

    std::uint64_t fetch_add(std::size_t offset, std::uint64_t add) const {
        std::uint64_t was = 0;
        check(tow_memory_fetch_add(get(), offset, add, &was));
        return was;
    }

    tow_memory *get() const noexcept { return memory_.get(); }

private:
    std::unique_ptr<tow_memory, deleter> memory_;
};

// What an endpoint names by a number, and who gives it back.
template <class Id, tow_status (*Free)(tow_endpoint *, Id)>
class owned {
public:
    owned() noexcept = default;
    owned(tow_endpoint *endpoint, Id id) noexcept : endpoint_(endpoint), id_(id) {}
    owned(owned &&other) noexcept : endpoint_(other.endpoint_), id_(other.release()) {}
    owned &operator=(owned &&other) noexcept {
        std::swap(endpoint_, other.endpoint_);
        std::swap(id_, other.id_);
        return *this;
    }
    owned(const owned &) = delete;
    owned &operator=(const owned &) = delete;
    ~owned() {
        if (id_.id != 0)
            Free(endpoint_, id_);
    }

    explicit operator bool() const noexcept { return id_.id != 0; }
    Id id() const noexcept { return id_; }

    // It is somebody else's from here on.
    Id release() noexcept { return std::exchange(id_, Id{}); }

protected:
    tow_endpoint *endpoint_ = nullptr;
    Id id_{};
};

// A message that came.
class message : public owned<tow_message, tow_message_release> {
public:
    using owned::owned;

    std::vector<tow_bytes> parts() const {
        std::size_t count = 0;
        check(tow_message_parts(endpoint_, id_, nullptr, 0, &count));
        std::vector<tow_bytes> parts(count);
        check(tow_message_parts(endpoint_, id_, parts.data(), count, &count));
        return parts;
    }

    std::string str() const {
        std::string all;
        for (const tow_bytes &part : parts())
            all.append(reinterpret_cast<const char *>(part.data), part.len);
        return all;
    }
};

// A buffer to fill and send, or what a read brought.
class buffer : public owned<tow_buf, tow_buf_free> {
public:
    buffer() noexcept = default;
    buffer(tow_endpoint *endpoint, tow_buf id, std::uint8_t *data, std::size_t size) noexcept
        : owned(endpoint, id), data_(data), size_(size) {}

    std::uint8_t *data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }

private:
    std::uint8_t *data_ = nullptr;
    std::size_t size_ = 0;
};

// An event; what it brought and nobody took goes back when it ends.
class event {
public:
    event(tow_endpoint *endpoint, const tow_event &told) noexcept
        : told_(told), message_(endpoint, told.message),
          buffer_(endpoint, told.buf, const_cast<std::uint8_t *>(told.data), told.len) {}

    const tow_event *operator->() const noexcept { return &told_; }
    const tow_event &operator*() const noexcept { return told_; }

    message take_message() noexcept { return std::move(message_); }
    buffer take_buffer() noexcept { return std::move(buffer_); }

    // The bytes of a message in one piece, or of what was read.
    std::string_view bytes() const noexcept {
        if (told_.data == nullptr)
            return {};
        return {reinterpret_cast<const char *>(told_.data), told_.len};
    }

private:
    tow_event told_;
    message message_;
    buffer buffer_;
};

// An endpoint in a loop of the caller's.
class endpoint {
public:
    explicit endpoint(const std::string &ip) : endpoint(ip, nullptr) {}
    endpoint(const std::string &ip, const config &with) : endpoint(ip, with.get()) {}

    std::uint16_t listen(const std::string &addr) {
        std::uint16_t port = 0;
        check(tow_listen(get(), addr.c_str(), &port));
        return port;
    }

    void connect(const std::string &addr, std::uint64_t token = 0) {
        check(tow_connect(get(), addr.c_str(), token));
    }

    tow_channel open_channel(tow_link link, bool ordered = true) {
        tow_channel channel{};
        check(tow_channel_open(get(), link, ordered, &channel));
        return channel;
    }

    void close(tow_link link) { check(tow_link_close(get(), link)); }

    buffer alloc(std::size_t len) {
        tow_buf id{};
        std::uint8_t *data = nullptr;
        std::size_t size = 0;
        check(tow_buf_alloc(get(), len, &id, &data, &size));
        return {get(), id, data, size};
    }

    tow_send_id send(tow_link link, tow_channel channel, std::string_view bytes,
                     const tow_options &options = {}) {
        tow_send_id sent{};
        check(tow_send_copy(get(), link, channel, bytes.data(), bytes.size(), &options, &sent));
        return sent;
    }

    // The buffer is the endpoint's, unless this throws.
    tow_send_id send(tow_link link, tow_channel channel, buffer &&from, std::size_t len,
                     const tow_options &options = {}) {
        tow_send_id sent{};
        const tow_segment segment{from.id(), len};
        check(tow_send(get(), link, channel, &segment, 1, &options, &sent));
        from.release();
        return sent;
    }

    // The message is the endpoint's, unless this throws.
    tow_send_id send(tow_link link, tow_channel channel, message &&from,
                     const tow_options &options = {}) {
        tow_send_id sent{};
        check(tow_send_message(get(), link, channel, from.id(), &options, &sent));
        from.release();
        return sent;
    }

    tow_grant_id grant(tow_link link, const memory &of, std::size_t offset, std::size_t len,
                       std::uint32_t rights) {
        tow_grant_id granted{};
        check(tow_grant(get(), link, of.get(), offset, len, rights, &granted));
        return granted;
    }

    void revoke(tow_link link, tow_grant_id granted) { check(tow_revoke(get(), link, granted)); }

    void read(tow_place place, std::uint32_t len, const tow_options &options = {}) {
        check(tow_read(get(), place, len, &options));
    }

    void write(tow_place place, std::string_view bytes, const tow_options &options = {}) {
        check(tow_write_copy(get(), place, bytes.data(), bytes.size(), &options));
    }

    void fetch_add(tow_place place, std::uint64_t add, const tow_options &options = {}) {
        check(tow_fetch_add(get(), place, add, &options));
    }

    void cmp_swap(tow_place place, std::uint64_t compare, std::uint64_t swap,
                  const tow_options &options = {}) {
        check(tow_cmp_swap(get(), place, compare, swap, &options));
    }

    tow_counters counters(tow_link link) {
        tow_counters out{};
        check(tow_link_counters(get(), link, &out, sizeof out));
        return out;
    }

    // One turn: takes in what came, hands each event to `on_event`, sends. Whether anything was
    // done.
    template <class F>
    bool turn(F &&on_event) {
        bool busy = check(tow_poll(get())) > 0;
        tow_event told;
        while (check(tow_next_event(get(), &told)) == 1) {
            busy = true;
            event here(get(), told);
            on_event(here);
        }
        check(tow_flush(get()));
        return busy;
    }

    // Behind a turn: blocks until there is something to do, at most so long.
    void wait(std::chrono::nanoseconds most) {
        check(tow_wait(get(), static_cast<std::uint64_t>(most.count())));
    }

    // For poll and epoll; the caller closes it, and calls tow_prepare_wait before each wait.
    int poll_fd() {
        int fd = -1;
        check(tow_poll_fd(get(), &fd));
        return fd;
    }

    tow_endpoint *get() const noexcept { return endpoint_.get(); }

private:
    endpoint(const std::string &ip, const tow_config *with) {
        tow_endpoint *made = nullptr;
        check(tow_endpoint_new(ip.c_str(), with, &made));
        endpoint_.reset(made);
    }

    std::unique_ptr<tow_endpoint, deleter> endpoint_;
};

} // namespace tow

#endif // TOWPATH_HPP
