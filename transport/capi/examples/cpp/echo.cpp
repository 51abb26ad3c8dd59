// An echo, and a counter in the memory of its server: both ends in one process, each in turn.
//
// c++ -std=c++17 echo.cpp $(pkg-config --cflags --libs towpath)

#include <algorithm>
#include <iostream>

#include <towpath.hpp>

int main() try {
    using namespace std::chrono_literals;
    tow::config config(TOW_PROFILE_SMALL_MEMORY);
    config.app_protocol("echo/1").set(TOW_CONNECT_TIMEOUT_NS, 60'000'000'000);
    tow::endpoint server("127.0.0.1", config);
    tow::endpoint client("127.0.0.1", config);
    tow::memory counters(4096);
    client.connect("127.0.0.1:" + std::to_string(server.listen("127.0.0.1:0")));

    std::string answer;
    std::uint64_t was = ~0ull;
    bool down = false;
    while (!down) {
        bool busy = server.turn([&](tow::event &event) {
            if (event->kind == TOW_EVENT_ACCEPTED)
                server.grant(event->link, counters, 0, 64, TOW_MAY_ATOMIC);
            if (event->kind == TOW_EVENT_MESSAGE)
                // It leaves from the memory in which it came.
                server.send(event->link, event->channel, event.take_message());
        });
        busy |= client.turn([&](tow::event &event) {
            switch (event->kind) {
            case TOW_EVENT_CONNECTED:
                client.open_channel(event->link);
                break;
            case TOW_EVENT_CHANNEL_OPENED: {
                tow::buffer hello = client.alloc(5);
                std::copy_n("hello", 5, hello.data());
                client.send(event->link, event->channel, std::move(hello), 5);
                break;
            }
            case TOW_EVENT_GRANTED:
                client.fetch_add(tow_place{event->link, event->grant, 8}, 5);
                break;
            case TOW_EVENT_MESSAGE:
                answer = event.bytes(); // given back when the event ends
                break;
            case TOW_EVENT_OP_DONE:
                was = event->word;
                break;
            case TOW_EVENT_CONNECT_FAILED:
                throw tow::error(event->status);
            case TOW_EVENT_LINK_DOWN:
                down = true;
                break;
            default:
                break;
            }
            if (!answer.empty() && was == 0 && event->kind != TOW_EVENT_LINK_DOWN) {
                std::cout << client.counters(event->link).messages_received << " message came\n";
                client.close(event->link);
                was = 1;
            }
        });
        if (!busy)
            client.wait(50us); // nothing to do: let the other one look
    }
    std::cout << answer << ", " << counters.load(8) << "\n";
    return answer == "hello" && counters.load(8) == 5 ? 0 : 1;
} catch (const std::exception &error) {
    std::cerr << "echo: " << error.what() << "\n";
    return 1;
}
