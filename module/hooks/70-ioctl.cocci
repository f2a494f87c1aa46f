// SPDX-License-Identifier: GPL-2.0-only
// Our ioctls come first: anything unknown would be taken for the owner's, and
// flush the workers.
// Expect: vnt_is_ours 1
@@
identifier f, n, cmd, arg, r;
@@
 vhost_net_ioctl(struct file *f, unsigned int cmd, unsigned long arg)
 {
 	struct vhost_net *n = f->private_data;
 	<+...
 	int r;
+
+	if (vnt_is_ours(cmd))
+		return vnt_ioctl(&n->dev, cmd, arg);
 	...+>
 }
