# What a site's link to the cloud does: cut, a NAT that forgets what is silent, and bad weather: a NAT that rebinds, too.
# shellcheck shell=bash

# Frames pass a relay (hack/tools/wan) between these two: this kernel may have no netem, and the relay repeats by its seed.
weather_devices() {
  uplink=${bridge}s$node_site weather_bridge=${bridge}w$node_site edge_tap=${bridge}a$node_site cloud_tap=${bridge}b$node_site
  weather_file=$state/run/$site_netns.weather weather_daemon=site$node_site.wan
}

# Nothing passes, and nobody is told: no rule answers, and the devices stay up.
cut_link() {
  heal_link
  in_netns "$site_netns" iptables -t mangle -A POSTROUTING -o wan -j DROP
  in_netns "$site_netns" iptables -t raw -A PREROUTING -i wan -j DROP
}

heal_link() {
  in_netns "$site_netns" iptables -t mangle -F POSTROUTING
  in_netns "$site_netns" iptables -t raw -F PREROUTING
  in_netns "$site_netns" iptables -t mangle -F FORWARD
}

# Nothing comes to the cloud nodes' own addresses, as from behind a NAT that is not the cloud's neighbour. The API server's, the balancer's and
# the proxy's are no node's.
hide_nodes() {
  local router=$site_netns name
  heal_link
  for name in $(node_names); do
    select_node "$name"
    [[ $node_kind == edge ]] || in_netns "$router" iptables -t mangle -A FORWARD -d "$node_address" -j DROP
  done
}

# After how many silent seconds the router forgets a connection; what comes later it drops.
forget_on_link() {
  set_in_netns "$site_netns" netfilter/nf_conntrack_tcp_loose=0 "netfilter/nf_conntrack_tcp_timeout_established=$1"
}

devices_exist() {
  [[ -e /sys/class/net/$edge_tap && -e /sys/class/net/$cloud_tap ]]
}

set_weather() {
  local setting pid uplink weather_bridge edge_tap cloud_tap weather_file weather_daemon
  weather_devices
  link_binaries wan
  for setting; do
    [[ $setting =~ ^(seed|delay_ms|jitter_ms|late_ms|rate_kbit|queue_kb|loss|loss_up|loss_down|late|rebind)=[0-9.]+$ ]] ||
      die "bad weather '$setting': seed, delay_ms, jitter_ms, late_ms, rate_kbit, queue_kb, loss, loss_up, loss_down, late or rebind, =NUMBER"
  done
  printf '%s\n' "$@" >"$weather_file"
  if pid=$(daemon_pid "$weather_daemon"); then
    kill -HUP "$pid"
    return
  fi
  run_daemon "$weather_daemon" control-plane "$state/bin/wan" "$edge_tap" "$cloud_tap" "$weather_file"
  wait_for "the relay of site $node_site" 5 "$state/logs/$weather_daemon.log" devices_exist
  [[ -e /sys/class/net/$weather_bridge ]] || ip link add "$weather_bridge" type bridge
  ip -batch - <<BATCH
link set $weather_bridge up
link set $edge_tap master $weather_bridge up
link set $cloud_tap master $bridge up
link set $uplink master $weather_bridge
BATCH
}

clear_weather() {
  local uplink weather_bridge edge_tap cloud_tap weather_file weather_daemon
  weather_devices
  [[ -e /sys/class/net/$weather_bridge ]] || return 0
  ip link set "$uplink" master "$bridge"
  stop_daemon "$weather_daemon"
  ip link del "$weather_bridge"
  rm -f "$weather_file"
}

link_usage() {
  die "usage: hack/cluster link SITE heal | cut | hide | forget SECONDS | weather KEY=NUMBER... | clear"
}

command_link() {
  (($# >= 2)) || link_usage
  require_root
  need_cluster
  lock_cluster
  select_site "$1"
  case $2 in
    heal) heal_link ;;
    cut) cut_link ;;
    hide) hide_nodes ;;
    forget)
      [[ ${3:-} =~ ^[0-9]+$ ]] || link_usage
      forget_on_link "$3"
      ;;
    weather) set_weather "${@:3}" ;;
    clear) clear_weather ;;
    *) link_usage ;;
  esac
}
