// SPDX-License-Identifier: GPL-2.0-only
/*
 * The hooked net.c, under names of its own, for the livepatch.
 *
 * vhost_net_open() is not replaced: it stores addresses of handlers in the
 * device, which may outlive the livepatch.
 */
#define VNT_LIVEPATCH
#include "net.c"

#include "vnt_livepatch.h"

struct klp_func vnt_funcs[] = {
	{ .old_name = "handle_rx", .new_func = handle_rx },
	{ .old_name = "handle_tx", .new_func = handle_tx },
	{ .old_name = "vhost_net_ioctl", .new_func = vhost_net_ioctl },
	{ .old_name = "vhost_net_release", .new_func = vhost_net_release },
	{ }
};
