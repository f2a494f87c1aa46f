// SPDX-License-Identifier: GPL-2.0-only
/*
 * The module's parameters: what devices follow that have no choice of their
 * own. Read with every batch, so a write works from the next one on.
 */
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/stringify.h>

#include "vnt_state.h"

unsigned int vnt_tx_batched = VNT_TX_BATCHED_MAX;
bool vnt_poll_peer = true;

static int vnt_set_tx_batched(const char *text, const struct kernel_param *param)
{
	int err = param_set_uint_minmax(text, param, 1, VNT_TX_BATCHED_MAX);

	/* Too large for an int is out of range like anything else. */
	return err == -ERANGE ? -EINVAL : err;
}

static const struct kernel_param_ops vnt_tx_batched_ops = {
	.set = vnt_set_tx_batched,
	.get = param_get_uint,
};

module_param_cb(tx_batched, &vnt_tx_batched_ops, &vnt_tx_batched, 0644);
__MODULE_PARM_TYPE(tx_batched, "uint");
MODULE_PARM_DESC(tx_batched, "Most packets from a guest that are handed over together, 1 to "
		 __stringify(VNT_TX_BATCHED_MAX));

module_param_named(poll_peer, vnt_poll_peer, bool, 0644);
MODULE_PARM_DESC(poll_peer, "A ring that spins watches the other direction as well");

MODULE_DESCRIPTION("Polling of both directions and a live cap on TX batches, by vhost-tuner");
/* How the tuner knows its own modules; the number is VNT_VERSION. */
MODULE_INFO(vhost_tuner, __stringify(VNT_VERSION));
