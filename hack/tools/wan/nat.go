package main

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
)

const (
	typeIPv4   = 0x0800
	tcp, udp   = 6, 17
	firstPort  = 20000
	outerPorts = 40000
	flagSYN    = 0x02
	flagACK    = 0x10
	ipv4At     = 14 // behind the addresses and the type of an Ethernet frame
	mostMapped = outerPorts / 2
)

// An end of a connection on the edge's side: its protocol, address and port.
type end struct {
	protocol byte
	address  [4]byte
	port     uint16
}

// nat gives connections from the edge ports of its own, which the seed chooses. Each rebinding empties its table: what comes of connections of
// before is dropped in both directions and without a word, as a router does that was restarted. The zeroth is none, and nothing is touched.
type nat struct {
	lock         sync.Mutex
	seed, rebind uint64
	random       *rand.Rand
	outer        map[end]uint16
	inner        map[end]uint16
}

func (n *nat) turn(seed, rebind uint64) {
	n.lock.Lock()
	defer n.lock.Unlock()
	if n.outer != nil && n.seed == seed && n.rebind == rebind {
		return
	}
	n.seed, n.rebind = seed, rebind
	n.random = rand.New(rand.NewPCG(seed, rebind+3))
	n.outer, n.inner = map[end]uint16{}, map[end]uint16{}
}

// pass changes a frame as the router would, and says whether it lets it through.
func (n *nat) pass(frame []byte, up bool) bool {
	n.lock.Lock()
	defer n.lock.Unlock()
	if n.rebind == 0 || len(frame) < ipv4At+20 || binary.BigEndian.Uint16(frame[12:]) != typeIPv4 {
		return true
	}
	packet := frame[ipv4At:]
	protocol, header := packet[9], int(packet[0]&0xf)*4
	fragment := binary.BigEndian.Uint16(packet[6:]) & 0x1fff
	checksumAt := map[byte]int{tcp: 16, udp: 6}[protocol]
	if checksumAt == 0 || fragment != 0 || len(packet) < header+checksumAt+2 {
		return true
	}
	segment := packet[header:]
	port := segment[0:2]
	at := end{protocol, [4]byte(packet[12:16]), binary.BigEndian.Uint16(port)}
	if !up {
		port = segment[2:4]
		at = end{protocol, [4]byte(packet[16:20]), binary.BigEndian.Uint16(port)}
		inner, known := n.inner[at]
		if known {
			rewrite(port, segment[checksumAt:checksumAt+2], protocol, inner)
		}
		return known
	}
	outer, known := n.outer[at]
	if !known {
		begins := protocol == udp || segment[13]&(flagSYN|flagACK) == flagSYN
		if !begins || len(n.outer) >= mostMapped {
			return false
		}
		outer = n.free(at)
		n.outer[at], n.inner[end{protocol, at.address, outer}] = outer, at.port
	}
	rewrite(port, segment[checksumAt:checksumAt+2], protocol, outer)
	return true
}

// A port that no other connection of that address has.
func (n *nat) free(at end) uint16 {
	for {
		port := uint16(firstPort + n.random.IntN(outerPorts))
		if _, taken := n.inner[end{at.protocol, at.address, port}]; !taken {
			return port
		}
	}
}

// rewrite puts another port in place, and the checksum right (RFC 1624, equation 3).
func rewrite(port, checksum []byte, protocol byte, value uint16) {
	before := binary.BigEndian.Uint16(port)
	binary.BigEndian.PutUint16(port, value)
	is := binary.BigEndian.Uint16(checksum)
	if protocol == udp && is == 0 {
		return // there is none
	}
	sum := uint32(^is) + uint32(^before) + uint32(value)
	sum = sum&0xffff + sum>>16
	sum = sum&0xffff + sum>>16
	is = ^uint16(sum)
	if protocol == udp && is == 0 {
		is = 0xffff
	}
	binary.BigEndian.PutUint16(checksum, is)
}
