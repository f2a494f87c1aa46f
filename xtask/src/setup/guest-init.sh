#!/bin/sh
# The guest's only program: takes its address from vt.ip= on the kernel's
# command line (default 10.0.0.2) and answers ping, for ever.
PATH=/bin
bb=/bin/busybox
$bb mount -t devtmpfs dev /dev
$bb mount -t proc proc /proc
$bb mount -t sysfs sys /sys
ip=10.0.0.2
for word in $($bb cat /proc/cmdline); do
	case $word in vt.ip=*) ip=${word#vt.ip=} ;; esac
done
for module in /modules/*; do
	$bb insmod "$module" || echo "guest: cannot load $module"
done
tries=0
while [ ! -e /sys/class/net/eth0 ] && [ $tries -lt 50 ]; do
	$bb sleep 0.1
	tries=$((tries + 1))
done
$bb ip link set lo up
$bb ip link set eth0 up
$bb ip addr add "${ip%/*}/24" dev eth0
echo "guest: ready at $ip"
while :; do $bb sleep 1000; done
