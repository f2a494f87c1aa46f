/* SPDX-License-Identifier: GPL-2.0-only */
/* The busy poll. */
#ifndef VNT_POLL_H
#define VNT_POLL_H

#include <linux/types.h>

struct vhost_dev;
struct vhost_virtqueue;
struct vnt_spin;

void vnt_busy_poll(struct vhost_dev *dev, struct vhost_virtqueue *rvq,
		   struct vhost_virtqueue *tvq, bool *interrupted, bool rx);
void vnt_poll_own_side(struct vnt_spin *spin);

#endif
