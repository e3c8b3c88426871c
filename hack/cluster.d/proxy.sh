# An HTTP proxy (CONNECT) with an address and a namespace of its own, as companies have them between their sites and the world:
# hack/tools/http-proxy. Whoever it does not come to it answers 502 for.
# shellcheck shell=bash

# The port of the gateways at which agents dial.
readonly links_port=10262

readonly proxy_port=3128 proxy_user=site:e2e

proxy_address() {
  echo "$network.251"
}

start_proxy() {
  local namespace=$id.proxy
  link_binaries http-proxy
  if [[ ! -e /run/netns/$namespace ]]; then
    make_netns "$namespace"
    make_veth "${bridge}p" "$namespace" eth0
    ip link set "${bridge}p" master "$bridge" up
    # The same each time: the sites' routers remember it for longer than a proxy may have been off.
    in_netns "$namespace" ip -batch - <<BATCH
link set eth0 address 02:00:00:00:02:51
address add $(proxy_address)/24 dev eth0
link set eth0 up
BATCH
  fi
  runs proxy || run_daemon proxy control-plane nsenter --net="/run/netns/$namespace" \
    "$state/bin/http-proxy" "$(proxy_address):$proxy_port" "$proxy_user"
  wait_for "the HTTP proxy" 5 "$state/logs/proxy.log" proxy_listens
}

proxy_listens() {
  [[ -n $(in_netns "$id.proxy" ss -Hltn "sport = :$proxy_port") ]]
}

# Its kernel answers for the gateways, to those connections as well that it has.
refuse_proxy() {
  allow_proxy
  in_netns "$id.proxy" iptables -w -A OUTPUT -p tcp --dport "$links_port" -j REJECT --reject-with tcp-reset
}

allow_proxy() {
  in_netns "$id.proxy" iptables -w -F OUTPUT
}

stop_proxy() {
  stop_daemon proxy
  remove_netns "$id.proxy"
}

command_proxy() {
  require_root
  need_cluster
  lock_cluster
  case ${1:-} in
    open | refused)
      start_proxy
      if [[ $1 == open ]]; then allow_proxy; else refuse_proxy; fi
      echo "http://$proxy_user@$(proxy_address):$proxy_port"
      ;;
    off) stop_proxy ;;
    *) die "usage: hack/cluster proxy open | refused | off" ;;
  esac
}
