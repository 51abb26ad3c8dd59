/* A driver's library that is made up: what Towpath looks for in libmlx5, on a device that has none
 * of it. Preloaded, it shows that the calls are found and tried; no port is changed. */
#include <stdbool.h>
#include <stdint.h>

bool mlx5dv_is_supported(const void *device) {
    return device != 0;
}

int mlx5dv_modify_qp_udp_sport(const void *qp, uint16_t udp_sport) {
    return qp != 0 && udp_sport >= 0xc000 ? 0 : 22;
}
