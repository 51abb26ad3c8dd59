/* What C gets right: messages in segments, sent on, given up and refused for want of room; memory
 * that is written; and loops that wait by epoll(7).
 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "pair.h"

static void profiles(void) {
    uint32_t profile;
    for (profile = TOW_PROFILE_DEFAULT; profile <= TOW_PROFILE_SMALL_MEMORY; profile++) {
        tow_config *config = NULL;
        tow_endpoint *endpoint = NULL;
        tow_pool pools[] = {{4096, 8}, {65536, 2}};
        tow_usage usage;
        CHECK(tow_config_new(profile, &config) == TOW_OK);
        CHECK(tow_config_set(config, TOW_LINKS_MAX, 3) == TOW_OK);
        CHECK(tow_config_send_pools(config, pools, 2) == TOW_OK);
        CHECK(tow_endpoint_new("127.0.0.1", config, &endpoint) == TOW_OK);
        CHECK(tow_endpoint_usage(endpoint, &usage, sizeof usage) == TOW_OK);
        CHECK(usage.links_max == 3 && usage.send_buffers_max == 10);
        CHECK(tow_endpoint_free(endpoint) == TOW_OK && tow_config_free(config) == TOW_OK);
    }
}

/* Two segments, which come as two pieces, go back as they are, and come back. */
static void segments(void) {
    tow_segment segments[2] = {{{0}, 5000}, {{0}, 6000}};
    tow_bytes parts[2];
    tow_event event;
    uint8_t *data = NULL;
    size_t count = 0;
    char all[11000];
    int i;
    for (i = 0; i < 2; i++) {
        CHECK(tow_buf_alloc(near, segments[i].len, &segments[i].buf, &data, NULL) == TOW_OK);
        memset(data, 'a' + i, segments[i].len);
    }
    CHECK(tow_send(near, near_link, channel, segments, 2, NULL, NULL) == TOW_OK);
    event = until(far, TOW_EVENT_MESSAGE);
    CHECK(event.len == 11000 && event.data == NULL && event.channel.id == channel.id);
    CHECK(tow_message_parts(far, event.message, parts, 2, &count) == TOW_OK && count == 2);
    CHECK(parts[0].len == 5000 && parts[1].len == 6000 && parts[1].data[5999] == 'b');
    CHECK(tow_send_message(far, far_link, channel, event.message, NULL, NULL) == TOW_OK);
    event = until(near, TOW_EVENT_MESSAGE);
    CHECK(tow_message_copy(near, event.message, all, sizeof all, &count) == TOW_OK);
    CHECK(count == 11000 && all[4999] == 'a' && all[5000] == 'b');
    CHECK(tow_message_release(near, event.message) == TOW_OK);
    CHECK(until(near, TOW_EVENT_SENT).outcome == TOW_DELIVERED);
    CHECK(until(far, TOW_EVENT_SENT).outcome == TOW_DELIVERED);
}

static void giving_up(void) {
    tow_options options = {0};
    tow_send_id sent = {0};
    tow_event event;
    uint64_t now_ns = 0;
    int is_late_there;
    CHECK(tow_now_ns(near, &now_ns) == TOW_OK && now_ns > 1);
    options.token = 1;
    options.deadline_ns = 1; /* long ago: it may be faster all the same */
    CHECK(tow_send_copy(near, near_link, channel, "late", 4, &options, NULL) == TOW_OK);
    event = until(near, TOW_EVENT_SENT);
    CHECK(event.token == 1);
    CHECK(event.outcome == TOW_ABANDONED || event.outcome == TOW_DELIVERED);
    is_late_there = event.outcome == TOW_DELIVERED;
    options.token = 2;
    options.deadline_ns = 0;
    CHECK(tow_send_copy(near, near_link, channel, "gone", 4, &options, &sent) == TOW_OK);
    CHECK(tow_cancel(near, sent) == TOW_OK); /* before the flush */
    event = until(near, TOW_EVENT_SENT);
    CHECK(event.token == 2 && event.outcome == TOW_ABANDONED);
    options.token = 3;
    options.timeout_ns = 3600000000000u;
    CHECK(tow_send_copy(near, near_link, channel, "kept", 4, &options, NULL) == TOW_OK);
    if (is_late_there) {
        event = until(far, TOW_EVENT_MESSAGE);
        CHECK(event.len == 4 && !memcmp(event.data, "late", 4));
        CHECK(tow_message_release(far, event.message) == TOW_OK);
    }
    event = until(far, TOW_EVENT_MESSAGE);
    CHECK(event.len == 4 && !memcmp(event.data, "kept", 4));
    CHECK(tow_message_release(far, event.message) == TOW_OK);
    event = until(near, TOW_EVENT_SENT);
    CHECK(event.token == 3 && event.outcome == TOW_DELIVERED);
}

/* A sender that does not look at its events runs into the limit of a link, and hears of room. */
static void room(void) {
    tow_channel other = {0};
    tow_event event;
    unsigned sent = 0, came = 0;
    tow_status status = TOW_OK;
    CHECK(tow_channel_open(far, far_link, false, &other) == TOW_OK);
    CHECK(until(far, TOW_EVENT_CHANNEL_OPENED).channel.id == other.id);
    while (status == TOW_OK) {
        status = tow_send_copy(far, far_link, other, "x", 1, NULL, NULL);
        sent += status == TOW_OK;
        CHECK(sent < 100000);
    }
    CHECK(status == TOW_E_FULL && sent > 100);
    while (came < sent) {
        event = until(near, TOW_EVENT_MESSAGE);
        CHECK(tow_message_release(near, event.message) == TOW_OK);
        came++;
        /* The list of what was told has an end. */
        while (take(far, TOW_EVENT_SENT, &event))
            CHECK(event.outcome == TOW_DELIVERED);
    }
    CHECK(until(far, TOW_EVENT_WRITABLE).link.id == far_link.id);
    CHECK(tow_channel_close(far, far_link, other) == TOW_OK);
    CHECK(until(far, TOW_EVENT_CHANNEL_CLOSED).reason == TOW_CLOSED_HERE);
}

static void writing(void) {
    tow_memory *memory = NULL;
    tow_place place = {{0}, {0}, 16};
    tow_grant_id grant = {0};
    tow_options options = {0};
    tow_event event;
    tow_buf buf = {0};
    uint8_t *data = NULL;
    char out[8];
    CHECK(tow_memory_new(4096, &memory) == TOW_OK);
    CHECK(tow_grant(far, far_link, memory, 64, 128, TOW_MAY_READ | TOW_MAY_WRITE, &grant) == TOW_OK);
    place.link = near_link;
    place.grant = until(near, TOW_EVENT_GRANTED).grant;
    CHECK(tow_buf_alloc(near, 8, &buf, &data, NULL) == TOW_OK);
    memcpy(data, "in place", 8);
    options.token = 4;
    CHECK(tow_write(near, place, buf, 8, &options) == TOW_OK);
    CHECK(tow_buf_free(near, buf) == TOW_E_STALE);
    event = until(near, TOW_EVENT_OP_DONE);
    CHECK(event.token == 4 && event.outcome == TOW_EXECUTED && event.buf.id == 0);
    CHECK(tow_memory_read(memory, 80, out, 8) == TOW_OK && !memcmp(out, "in place", 8));
    place.offset = 24;
    CHECK(tow_write_copy(near, place, "a copy", 6, NULL) == TOW_OK);
    CHECK(until(near, TOW_EVENT_OP_DONE).outcome == TOW_EXECUTED);
    CHECK(tow_memory_read(memory, 88, out, 6) == TOW_OK && !memcmp(out, "a copy", 6));
    CHECK(tow_revoke(far, far_link, grant) == TOW_OK);
    CHECK(until(near, TOW_EVENT_REVOKED).grant.id == place.grant.id);
    CHECK(tow_memory_free(memory) == TOW_OK);
}

static void *rings(void *endpoint) {
    CHECK(tow_wake(endpoint) == TOW_OK);
    return NULL;
}

/* A loop that waits for hours, and ends by what comes, or by a ring of another thread. */
static void by_epoll(void) {
    struct epoll_event want = {.events = EPOLLIN};
    struct epoll_event got;
    uint64_t span_ns = 0;
    int fd = -1, came = 0, epoll = epoll_create1(0);
    tow_event event;
    pthread_t thread;
    CHECK(tow_poll_fd(far, &fd) == TOW_OK && fd >= 0);
    CHECK(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &want) == 0);
    CHECK(tow_send_copy(near, near_link, channel, "ring", 4, NULL, NULL) == TOW_OK);
    CHECK(tow_flush(near) == TOW_OK);
    while (!came) {
        CHECK(tow_poll(far) >= 0);
        while (tow_next_event(far, &event) == 1) {
            came |= event.kind == TOW_EVENT_MESSAGE;
            if (event.kind == TOW_EVENT_MESSAGE)
                CHECK(tow_message_release(far, event.message) == TOW_OK);
        }
        CHECK(tow_flush(far) == TOW_OK);
        CHECK(tow_prepare_wait(far, 3600000000000u, &span_ns) == TOW_OK);
        if (!came && span_ns > 0)
            CHECK(epoll_wait(epoll, &got, 1, (int)(span_ns / 1000000) + 1) >= 0);
    }
    CHECK(until(near, TOW_EVENT_SENT).outcome == TOW_DELIVERED);
    CHECK(pthread_create(&thread, NULL, rings, far) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(epoll_wait(epoll, &got, 1, -1) == 1);
    CHECK(tow_next_timeout(far, &span_ns) == TOW_OK);
    CHECK(close(epoll) == 0 && close(fd) == 0);
}

int main(void) {
    profiles();
    join(TOW_PROFILE_THROUGHPUT, TOW_PROFILE_LATENCY);
    CHECK(tow_channel_open(near, near_link, true, &channel) == TOW_OK);
    until(near, TOW_EVENT_CHANNEL_OPENED);
    CHECK(until(far, TOW_EVENT_CHANNEL_OPENED).by_peer);
    segments();
    giving_up();
    writing();
    room();
    by_epoll();
    CHECK(tow_link_close(far, far_link) == TOW_OK);
    CHECK(until(far, TOW_EVENT_LINK_DOWN).reason == TOW_DOWN_HERE);
    CHECK(until(near, TOW_EVENT_LINK_DOWN).reason == TOW_DOWN_GOODBYE);
    CHECK(tow_endpoint_free(near) == TOW_OK && tow_endpoint_free(far) == TOW_OK);
    return 0;
}
