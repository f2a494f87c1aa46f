/* SPDX-License-Identifier: GPL-2.0-only */
/* The ioctls of vnt_uapi.h. */
#ifndef VNT_IOCTL_H
#define VNT_IOCTL_H

#include <linux/types.h>

struct vhost_dev;

bool vnt_is_ours(unsigned int cmd);
long vnt_ioctl(struct vhost_dev *dev, unsigned int cmd, unsigned long arg);

#endif
