// SPDX-License-Identifier: GPL-2.0-only
// The cap holds for packets that the socket holds back as well (MSG_MORE).
// Expect: vnt_tx_may_wait 1
@@
identifier net, sock, vq, f = {handle_tx_copy};
expression length;
@@
 f(struct vhost_net *net, struct socket *sock)
 {
 	<+...
-	tx_can_batch(vq, length)
+	vnt_tx_may_wait(vnt, tx_can_batch(vq, length))
 	...+>
 }
