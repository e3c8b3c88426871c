# A manager of systemd that knows one unit, beside this machine's own: the first process of a namespace, with this machine's files below a layer
# of its own. $1: a folder with the unit, the binary as `edge-hub`, and what is to be in /etc/edge-hub as `etc`; `out` in it is /mnt there.
set -eu
folder=$1
control_group=$2
for hierarchy in /sys/fs/cgroup /sys/fs/cgroup/*/; do
  # Of version 2 that is the first, of version 1 systemd's own: it makes what it needs in the others.
  [ -e "$hierarchy/cgroup.procs" ] || continue
  mkdir -p "$hierarchy/$control_group"
  echo $$ 2>/dev/null >"$hierarchy/$control_group/cgroup.procs" || rmdir "$hierarchy/$control_group"
done

mount --make-rprivate /
layer=$folder/layer
mkdir "$layer"
mount -t tmpfs tmpfs "$layer"
mkdir "$layer/upper" "$layer/work" "$layer/root"
mount -t overlay -o "lowerdir=/,upperdir=$layer/upper,workdir=$layer/work" overlay "$layer/root"
cd "$layer/root"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
mount --bind "$folder/out" mnt

# Nothing of this machine's starts there, nor is anything mounted.
rm -rf etc/systemd/system/*.wants usr/lib/systemd/system/*.wants usr/lib/systemd/system-generators
cp "$folder/edge-hub.service" etc/systemd/system/
cp "$folder/edge-hub" usr/local/bin/
mkdir -p etc/edge-hub etc/systemd/system/edge-hub.service.d
cp "$folder"/etc/* etc/edge-hub/
printf '[Service]\nStandardOutput=append:/mnt/log\nStandardError=append:/mnt/log\n' >etc/systemd/system/edge-hub.service.d/log.conf
exec chroot . /usr/bin/env container=test /lib/systemd/systemd --system --unit=edge-hub.service --log-target=console --show-status=no
