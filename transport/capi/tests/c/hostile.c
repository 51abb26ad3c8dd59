/* What C may get wrong, as far as it can be found out: each is an error with its code, and nothing
 * else happens. Two endpoints in one thread, and a second thread for what belongs to one.
 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "pair.h"

static void configs(void) {
    tow_config *config = NULL;
    tow_pool bad[] = {{0, 1}, {1, 0}, {(size_t)1 << 32, 1}};
    tow_endpoint *none = NULL;
    size_t i;
    CHECK(tow_config_new(99, &config) == TOW_E_ARGUMENT && config == NULL);
    CHECK(tow_config_new(TOW_PROFILE_LATENCY, &config) == TOW_OK);
    CHECK(tow_config_set(config, 99, 1) == TOW_E_ARGUMENT);
    CHECK(tow_config_set(config, TOW_LINKS_MAX, UINT64_MAX) == TOW_E_ARGUMENT);
    CHECK(tow_config_set(config, TOW_PAYLOAD_CRC, 2) == TOW_E_ARGUMENT);
    CHECK(tow_config_set(config, TOW_UDP_PORT, 65536) == TOW_E_ARGUMENT);
    CHECK(tow_config_app_protocol(config, "two words") == TOW_E_ARGUMENT);
    CHECK(tow_config_app_protocol(config, NULL) == TOW_E_NULL);
    for (i = 0; i < 3; i++)
        CHECK(tow_config_send_pools(config, &bad[i], 1) == TOW_E_ARGUMENT);
    CHECK(tow_config_send_pools(config, NULL, 1) == TOW_E_NULL);
    CHECK(tow_config_send_pools(config, bad, SIZE_MAX) == TOW_E_ARGUMENT);
    CHECK(tow_endpoint_new("nowhere", config, &none) == TOW_E_ARGUMENT && none == NULL);
    CHECK(strstr(tow_last_error(), "nowhere") != NULL);
    /* No address of this host. */
    CHECK(tow_endpoint_new("192.0.2.1", config, &none) == TOW_E_SYSTEM && none == NULL);
    CHECK(tow_config_free(config) == TOW_OK);
    CHECK(tow_config_free(NULL) == TOW_OK);
}

static void links(void) {
    const char *addr;
    char peer[64];
    tow_event event;
    uint64_t rtt = 0;
    uint32_t most = 0;
    addr = join(TOW_PROFILE_SMALL_MEMORY, TOW_PROFILE_DEFAULT);
    CHECK(tow_connect(near, "127.0.0.1", 0) == TOW_E_ARGUMENT);
    CHECK(tow_link_peer(near, near_link, peer, sizeof peer) == TOW_OK && !strcmp(peer, addr));
    CHECK(tow_link_peer(near, near_link, peer, strlen(addr)) == TOW_E_TOO_LONG);
    CHECK(tow_link_message_max(near, near_link, &most) == TOW_OK && most > 0);
    CHECK(tow_channel_open(near, near_link, true, &channel) == TOW_OK);
    CHECK(tow_send_copy(near, near_link, channel, "x", 1, NULL, NULL) == TOW_E_NOT_OPEN);
    event = until(near, TOW_EVENT_CHANNEL_OPENED);
    CHECK(event.channel.id == channel.id && event.ordered && !event.by_peer);
    CHECK(tow_link_rtt_ns(near, near_link, &rtt) == TOW_OK);
}

static void forged_links(void) {
    tow_link forged[4];
    tow_options none = {0};
    tow_place place = {{0}, {0}, 0};
    size_t i;
    forged[0].id = 0;
    forged[1].id = UINT64_MAX;
    forged[2].id = near_link.id + 1;
    forged[3].id = near_link.id + ((uint64_t)1 << 32);
    for (i = 0; i < 4; i++) {
        tow_link link = forged[i];
        place.link = link;
        CHECK(tow_link_close(near, link) == TOW_E_STALE);
        CHECK(tow_channel_open(near, link, false, NULL) == TOW_E_STALE);
        CHECK(tow_send_copy(near, link, channel, "x", 1, &none, NULL) == TOW_E_STALE);
        CHECK(tow_revoke(near, link, place.grant) == TOW_E_STALE);
        CHECK(tow_read(near, place, 8, NULL) == TOW_E_STALE);
        CHECK(tow_fetch_add(near, place, 8, NULL) == TOW_E_STALE);
    }
}

static void messages(void) {
    tow_segment segments[TOW_SEGMENTS_MAX + 1];
    tow_bytes parts[2] = {{NULL, 0}, {NULL, 0}};
    tow_options options = {.token = 5};
    tow_channel closed = {channel.id + 1};
    tow_send_id sent = {0};
    tow_buf forged = {12345};
    tow_event event;
    uint8_t *data = NULL;
    size_t capacity = 0, count = 9;
    char out[64];

    CHECK(tow_send_copy(near, near_link, channel, NULL, 3, NULL, NULL) == TOW_E_NULL);
    CHECK(tow_send_copy(near, near_link, channel, "", 0, NULL, NULL) == TOW_E_ARGUMENT);
    CHECK(tow_send_copy(near, near_link, channel, "x", SIZE_MAX, NULL, NULL) == TOW_E_ARGUMENT);
    CHECK(tow_buf_alloc(near, SIZE_MAX, &segments[0].buf, &data, NULL) == TOW_E_TOO_LONG);
    CHECK(tow_buf_alloc(near, 100, &segments[0].buf, &data, &capacity) == TOW_OK);
    CHECK(capacity >= 100);
    memset(data, 'a', capacity);
    segments[1] = segments[0];
    segments[0].len = segments[1].len = 10;
    CHECK(tow_send(near, near_link, channel, segments, 0, NULL, NULL) == TOW_E_ARGUMENT);
    CHECK(tow_send(near, near_link, channel, NULL, 1, NULL, NULL) == TOW_E_NULL);
    CHECK(tow_send(near, near_link, channel, segments, 2, NULL, NULL) == TOW_E_ARGUMENT);
    CHECK(tow_send(near, near_link, channel, segments, 5, NULL, NULL) == TOW_E_ARGUMENT);
    CHECK(tow_send(near, near_link, closed, segments, 1, NULL, NULL) == TOW_E_NOT_OPEN);
    segments[0].len = 0;
    CHECK(tow_send(near, near_link, channel, segments, 1, NULL, NULL) == TOW_E_ARGUMENT);
    segments[0].len = capacity + 1;
    CHECK(tow_send(near, near_link, channel, segments, 1, NULL, NULL) == TOW_E_ARGUMENT);
    segments[0].len = 10;
    segments[1].buf = forged;
    CHECK(tow_send(near, near_link, channel, segments, 2, NULL, NULL) == TOW_E_STALE);
    CHECK(tow_buf_free(near, forged) == TOW_E_STALE);
    /* After all that the buffer is still ours, with its bytes. */
    CHECK(tow_send(near, near_link, channel, segments, 1, &options, &sent) == TOW_OK);
    CHECK(tow_buf_free(near, segments[0].buf) == TOW_E_STALE);
    CHECK(tow_send(near, near_link, channel, segments, 1, NULL, NULL) == TOW_E_STALE);

    event = until(far, TOW_EVENT_MESSAGE);
    CHECK(event.len == 10 && event.data != NULL && !memcmp(event.data, "aaaaaaaaaa", 10));
    CHECK(tow_message_parts(far, event.message, parts, 2, &count) == TOW_OK && count == 1);
    CHECK(parts[0].data == event.data && parts[0].len == 10 && parts[1].data == NULL);
    CHECK(tow_message_parts(far, event.message, NULL, 0, &count) == TOW_OK && count == 1);
    CHECK(tow_message_parts(far, event.message, NULL, 1, &count) == TOW_E_NULL);
    CHECK(tow_message_copy(far, event.message, out, 9, &count) == TOW_E_TOO_LONG);
    CHECK(tow_message_copy(far, event.message, NULL, 10, &count) == TOW_E_NULL);
    CHECK(tow_message_copy(far, event.message, out, 10, &count) == TOW_OK && count == 10);
    /* Sending it on where that is refused leaves it as it is. */
    CHECK(tow_send_message(far, far_link, closed, event.message, NULL, NULL) == TOW_E_NOT_OPEN);
    CHECK(tow_message_copy(far, event.message, out, 10, NULL) == TOW_OK && out[9] == 'a');
    CHECK(tow_message_release(far, event.message) == TOW_OK);
    CHECK(tow_message_release(far, event.message) == TOW_E_STALE);
    CHECK(tow_message_parts(far, event.message, parts, 2, &count) == TOW_E_STALE);
    CHECK(tow_message_copy(far, event.message, out, 64, &count) == TOW_E_STALE);
    CHECK(tow_send_message(far, far_link, channel, event.message, NULL, NULL) == TOW_E_STALE);
    event = until(near, TOW_EVENT_SENT);
    CHECK(event.token == 5 && event.outcome == TOW_DELIVERED && event.link.id == near_link.id);
    CHECK(tow_cancel(near, sent) == TOW_E_STALE);
    sent.id = 0;
    CHECK(tow_cancel(near, sent) == TOW_E_STALE);
}

static void lengths_and_rooms(void) {
    tow_buf all[600];
    uint8_t *data = NULL;
    tow_segment segment = {{0}, 1 << 20};
    int have = 0, i;
    tow_status status = TOW_OK;
    /* What the other end, which has little memory, does not take. */
    CHECK(tow_buf_alloc(far, segment.len, &segment.buf, &data, NULL) == TOW_OK);
    CHECK(tow_send(far, far_link, channel, &segment, 1, NULL, NULL) == TOW_E_TOO_LONG);
    CHECK(tow_buf_free(far, segment.buf) == TOW_OK);
    while (have < 600 && status == TOW_OK) {
        status = tow_buf_alloc(near, 10000, &all[have], &data, NULL);
        have += status == TOW_OK;
    }
    CHECK(status == TOW_E_NO_BUFFER && have > 0);
    CHECK(tow_want_buffer(near, 10000) == TOW_OK);
    for (i = 0; i < have; i++)
        CHECK(tow_buf_free(near, all[i]) == TOW_OK);
    CHECK(until(near, TOW_EVENT_BUFFER_FREE).len == 10000);
}

static int released;

static void release(void *user) {
    CHECK(user == &released);
    released++;
}

static void memory(void) {
    static uint64_t arena[1024];
    tow_memory *shared = NULL, *none = NULL;
    tow_grant_id grant = {0}, unknown = {999};
    tow_place place = {{0}, {0}, 0};
    tow_event event;
    tow_buf buf;
    uint8_t *data = NULL;
    uint64_t word = 0;
    void *start = NULL;
    size_t bytes = 0;
    char out[16];

    CHECK(tow_memory_new(0, &none) == TOW_E_ARGUMENT);
    CHECK(tow_memory_from((char *)arena + 1, 64, release, NULL, &none) == TOW_E_ARGUMENT);
    CHECK(tow_memory_from(arena, 63, release, NULL, &none) == TOW_E_ARGUMENT);
    CHECK(tow_memory_from(arena, SIZE_MAX - 7, release, NULL, &none) == TOW_E_ARGUMENT);
    CHECK(tow_memory_from(arena, 0, release, NULL, &none) == TOW_E_ARGUMENT);
    CHECK(tow_memory_from(NULL, 64, release, NULL, &none) == TOW_E_NULL);
    CHECK(tow_memory_from(arena, 64, release, NULL, NULL) == TOW_E_NULL);
    CHECK(tow_memory_from(arena, sizeof arena, release, &released, &shared) == TOW_OK);
    CHECK(tow_memory_extent(shared, &start, &bytes) == TOW_OK);
    CHECK(start == arena && bytes == sizeof arena);
    CHECK(tow_memory_load(shared, 4, &word) == TOW_E_ARGUMENT);
    CHECK(tow_memory_load(shared, sizeof arena, &word) == TOW_E_ARGUMENT);
    CHECK(tow_memory_load(shared, SIZE_MAX - 7, &word) == TOW_E_ARGUMENT);
    CHECK(tow_memory_read(shared, sizeof arena - 8, out, 9) == TOW_E_ARGUMENT);
    CHECK(tow_memory_read(shared, 0, NULL, 9) == TOW_E_NULL);
    CHECK(tow_memory_write(shared, SIZE_MAX, out, 1) == TOW_E_ARGUMENT);
    CHECK(tow_memory_store(shared, 8, 7) == TOW_OK);
    CHECK(tow_memory_fetch_add(shared, 8, 1, &word) == TOW_OK && word == 7);
    CHECK(tow_memory_cmp_swap(shared, 8, 9, 1, &word) == TOW_OK && word == 8);

    CHECK(tow_grant(far, far_link, shared, 0, sizeof arena + 1, 1, &grant) == TOW_E_ARGUMENT);
    CHECK(tow_grant(far, far_link, shared, SIZE_MAX, 2, 1, &grant) == TOW_E_ARGUMENT);
    CHECK(tow_grant(far, far_link, shared, 0, 0, 1, &grant) == TOW_E_ARGUMENT);
    CHECK(tow_grant(far, far_link, shared, 0, 64, 0, &grant) == TOW_E_ARGUMENT);
    CHECK(tow_grant(far, far_link, shared, 0, 64, 8, &grant) == TOW_E_ARGUMENT);
    CHECK(tow_grant(far, far_link, NULL, 0, 64, 1, &grant) == TOW_E_NULL);
    CHECK(tow_grant(far, far_link, shared, 0, 64, TOW_MAY_READ | TOW_MAY_ATOMIC, &grant) == TOW_OK);
    /* It lives on as long as it is granted. */
    CHECK(tow_memory_free(shared) == TOW_OK && released == 0);
    event = until(near, TOW_EVENT_GRANTED);
    CHECK(event.len == 64 && event.rights == (TOW_MAY_READ | TOW_MAY_ATOMIC));
    place.link = near_link;
    place.grant = unknown;
    CHECK(tow_read(near, place, 8, NULL) == TOW_E_STALE);
    place.grant = event.grant;
    CHECK(tow_read(near, place, 0, NULL) == TOW_E_DENIED);
    CHECK(tow_read(near, place, 65, NULL) == TOW_E_DENIED);
    CHECK(tow_read(near, place, UINT32_MAX, NULL) == TOW_E_TOO_LONG);
    CHECK(tow_write_word(near, place, 1, NULL) == TOW_E_DENIED);
    CHECK(tow_buf_alloc(near, 64, &buf, &data, &bytes) == TOW_OK);
    CHECK(tow_write(near, place, buf, 8, NULL) == TOW_E_DENIED);
    CHECK(tow_write(near, place, buf, (uint32_t)bytes + 1, NULL) == TOW_E_ARGUMENT);
    CHECK(tow_buf_free(near, buf) == TOW_OK);
    CHECK(tow_write(near, place, buf, 8, NULL) == TOW_E_STALE);
    CHECK(tow_write_copy(near, place, NULL, 8, NULL) == TOW_E_NULL);
    place.offset = 4;
    CHECK(tow_cmp_swap(near, place, 1, 2, NULL) == TOW_E_ARGUMENT);
    place.offset = 8;
    CHECK(tow_cmp_swap(near, place, 8, 20, NULL) == TOW_OK);
    event = until(near, TOW_EVENT_OP_DONE);
    CHECK(event.outcome == TOW_EXECUTED && event.has_word && event.word == 8);
    CHECK(tow_read(near, place, 8, NULL) == TOW_OK);
    event = until(near, TOW_EVENT_OP_DONE);
    memcpy(&word, event.data, 8);
    CHECK(event.outcome == TOW_EXECUTED && event.len == 8 && word == 20);
    CHECK(tow_buf_free(near, event.buf) == TOW_OK);
    CHECK(tow_buf_free(near, event.buf) == TOW_E_STALE);
    CHECK(tow_revoke(far, far_link, grant) == TOW_OK);
    CHECK(released == 1);
    CHECK(tow_revoke(far, far_link, grant) == TOW_E_STALE);
    until(near, TOW_EVENT_REVOKED);
    CHECK(tow_read(near, place, 8, NULL) == TOW_E_STALE);
}

static void *in_vain(void *endpoint) {
    tow_event event;
    CHECK(tow_poll(endpoint) == TOW_E_THREAD);
    CHECK(tow_next_event(endpoint, &event) == TOW_E_THREAD);
    CHECK(tow_endpoint_free(endpoint) == TOW_E_THREAD);
    CHECK(strstr(tow_last_error(), "tow_endpoint_adopt") != NULL);
    CHECK(tow_wake(endpoint) == TOW_OK);
    return NULL;
}

static void *adopts(void *endpoint) {
    CHECK(*tow_last_error() == 0);
    CHECK(tow_endpoint_adopt(endpoint) == TOW_OK);
    CHECK(tow_poll(endpoint) >= 0 && tow_flush(endpoint) == TOW_OK);
    return NULL;
}

static void threads(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, in_vain, near) == 0 && pthread_join(thread, NULL) == 0);
    /* The other thread has rung: a wait of an hour ends. */
    while (tow_poll(near) > 0)
        CHECK(tow_flush(near) == TOW_OK);
    CHECK(tow_flush(near) == TOW_OK);
    CHECK(tow_wait(near, 3600000000000u) >= 0);
    CHECK(pthread_create(&thread, NULL, adopts, near) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(tow_poll(near) == TOW_E_THREAD);
    CHECK(tow_endpoint_adopt(near) == TOW_OK);
    CHECK(tow_poll(near) >= 0 && tow_flush(near) == TOW_OK);
}

static void ends(void) {
    tow_counters counters;
    tow_usage usage;
    tow_event event;
    memset(&counters, 0xff, sizeof counters);
    CHECK(tow_link_counters(near, near_link, &counters, 8) == TOW_OK);
    CHECK(counters.messages_delivered == 1 && counters.messages_abandoned == UINT64_MAX);
    CHECK(tow_link_counters(near, near_link, &counters, 0) == TOW_E_ARGUMENT);
    CHECK(tow_link_counters(near, near_link, &counters, sizeof counters) == TOW_OK);
    CHECK(counters.bytes_sent == 10 && counters.paths_failed == 0);
    CHECK(tow_channel_close(near, near_link, channel) == TOW_OK);
    event = until(near, TOW_EVENT_CHANNEL_CLOSED);
    CHECK(event.reason == TOW_CLOSED_HERE);
    CHECK(tow_send_copy(near, near_link, channel, "x", 1, NULL, NULL) == TOW_E_NOT_OPEN);
    CHECK(tow_link_close(near, near_link) == TOW_OK);
    event = until(near, TOW_EVENT_LINK_DOWN);
    CHECK(event.reason == TOW_DOWN_HERE && event.link.id == near_link.id);
    CHECK(tow_link_close(near, near_link) == TOW_E_STALE);
    CHECK(tow_send_copy(near, near_link, channel, "x", 1, NULL, NULL) == TOW_E_STALE);
    CHECK(tow_counters_of_all(near, &counters, sizeof counters) == TOW_OK);
    CHECK(counters.messages_delivered == 1);
    CHECK(tow_endpoint_usage(near, &usage, sizeof usage) == TOW_OK);
    CHECK(usage.links == 0 && usage.messages_held == 0 && usage.bufs_held == 0 && usage.sends == 0);
    CHECK(tow_stop_listening(far) == TOW_OK);
    /* Nobody listens there any more. */
    CHECK(tow_connect(near, "127.0.0.1:1", 9) == TOW_OK);
    event.kind = TOW_EVENT_NONE;
    while (event.kind != TOW_EVENT_CONNECT_FAILED) {
        CHECK(tow_poll(near) >= 0);
        if (tow_next_event(near, &event) == 0)
            CHECK(tow_flush(near) == TOW_OK && tow_wait(near, 1000000) >= 0);
    }
    CHECK(event.token == 9 && event.status == TOW_E_UNREACHABLE);
    CHECK(strstr(tow_last_error(), "127.0.0.1:1") != NULL);
}

int main(void) {
    int status;
    CHECK(tow_abi_version() == TOW_ABI_VERSION && strlen(tow_version()) >= 5);
    for (status = -30; status <= 1; status++)
        CHECK(strlen(tow_error_text(status)) > 3);
    CHECK(!strcmp(tow_error_text(-30), tow_error_text(1)));
    for (status = TOW_CARRIER_SILENT; status <= TOW_CARRIER_OTHER; status++)
        CHECK(strlen(tow_carrier_reason_text((uint32_t)status)) > 3);
    CHECK(!strcmp(tow_carrier_reason_text(0), tow_carrier_reason_text(1000)));
    configs();
    links();
    forged_links();
    messages();
    lengths_and_rooms();
    memory();
    threads();
    ends();
    CHECK(tow_endpoint_free(near) == TOW_OK && tow_endpoint_free(far) == TOW_OK);
    CHECK(tow_endpoint_free(NULL) == TOW_OK);
    return 0;
}
