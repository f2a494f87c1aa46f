/* SPDX-License-Identifier: GPL-2.0-only */
/* Counting of runs, hand-overs and polls. */
#ifndef VNT_COUNT_H
#define VNT_COUNT_H

#include <linux/types.h>

#include "vnt_uapi.h"

struct vhost_dev;
struct vhost_virtqueue;
struct vnt_ring;

void vnt_run_begins(struct vhost_dev *dev, unsigned int index);
void vnt_run_ends(struct vhost_dev *dev, unsigned int index, bool waits);
void vnt_reached_weight(struct vhost_dev *dev, unsigned int index);
void vnt_handing_over(struct vhost_dev *dev, struct vhost_virtqueue *vq, u32 count);
void vnt_cap_reached(void);
void vnt_settle_poll(struct vnt_ring *ring, u16 index, bool found);

#endif
