package main

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// An IPv4 packet in an Ethernet frame, as far as a NAT looks at it, with the right checksum.
func packet(protocol byte, from, to [4]byte, fromPort, toPort uint16, flags byte) []byte {
	frame := make([]byte, ipv4At+20+20)
	binary.BigEndian.PutUint16(frame[12:], typeIPv4)
	ip := frame[ipv4At:]
	ip[0], ip[9] = 0x45, protocol
	copy(ip[12:], from[:])
	copy(ip[16:], to[:])
	segment := ip[20:]
	binary.BigEndian.PutUint16(segment, fromPort)
	binary.BigEndian.PutUint16(segment[2:], toPort)
	at := 16
	if protocol == udp {
		at = 6
	} else {
		segment[13] = flags
	}
	binary.BigEndian.PutUint16(segment[at:], ^sum(frame))
	return frame
}

// The sum of the pseudo header and the segment, all ones if the checksum in it is right.
func sum(frame []byte) uint16 {
	ip := frame[ipv4At:]
	total := uint32(ip[9]) + uint32(len(ip)-20)
	for at := 12; at < len(ip); at += 2 {
		total += uint32(binary.BigEndian.Uint16(ip[at:]))
	}
	for total > 0xffff {
		total = total&0xffff + total>>16
	}
	return uint16(total)
}

func ports(frame []byte) (from, to uint16) {
	segment := frame[ipv4At+20:]
	return binary.BigEndian.Uint16(segment), binary.BigEndian.Uint16(segment[2:])
}

var edge, cloud = [4]byte{10, 0, 0, 210}, [4]byte{10, 0, 0, 2}

func TestARebindingForgetsWithoutAWord(t *testing.T) {
	var router nat
	router.turn(7, 0)
	for _, protocol := range []byte{tcp, udp} {
		plain := packet(protocol, edge, cloud, 4000, 443, flagACK)
		same := bytes.Clone(plain)
		if !router.pass(plain, true) || !bytes.Equal(plain, same) {
			t.Fatal("without a rebinding a packet is touched")
		}
	}
	outerOf := func(protocol byte, port uint16, flags byte) uint16 {
		frame := packet(protocol, edge, cloud, port, 443, flags)
		if !router.pass(frame, true) {
			return 0
		}
		if got := sum(frame); got != 0xffff {
			t.Fatalf("checksum %x", got)
		}
		outer, to := ports(frame)
		if to != 443 || outer < firstPort {
			t.Fatalf("from %d to %d", outer, to)
		}
		answer := packet(protocol, cloud, edge, 443, outer, flagACK)
		if !router.pass(answer, false) || sum(answer) != 0xffff {
			t.Fatal("no answer comes back")
		}
		if _, to := ports(answer); to != port {
			t.Fatalf("an answer to %d", to)
		}
		return outer
	}
	seen := map[uint64]uint16{}
	for rebind := uint64(1); rebind <= 3; rebind++ {
		router.turn(7, rebind)
		if outerOf(tcp, 4000, flagACK) != 0 || outerOf(tcp, 4000, flagSYN|flagACK) != 0 {
			t.Fatal("a connection of before goes on")
		}
		if router.pass(packet(tcp, cloud, edge, 443, seen[rebind-1], flagACK), false) {
			t.Fatal("an answer for a connection of before comes through")
		}
		seen[rebind] = outerOf(tcp, 4000, flagSYN)
		// The same weather once more changes nothing.
		router.turn(7, rebind)
		if outerOf(tcp, 4000, flagACK) != seen[rebind] || outerOf(tcp, 4001, flagSYN) == seen[rebind] || outerOf(udp, 4000, 0) == 0 {
			t.Fatal("a port is not its own connection's")
		}
	}
	if seen[1] == seen[2] || seen[2] == seen[3] {
		t.Fatalf("the ports stay: %v", seen)
	}
	var again nat
	again.turn(7, 1)
	frame := packet(tcp, edge, cloud, 4000, 443, flagSYN)
	again.pass(frame, true)
	if outer, _ := ports(frame); outer != seen[1] {
		t.Fatalf("seed 7 chooses %d and %d", seen[1], outer)
	}
	// What is no packet of a connection passes, and what is too short.
	for _, other := range [][]byte{nil, frame[:20], packet(1, edge, cloud, 1, 1, 0)} {
		if !again.pass(other, false) {
			t.Fatalf("%x is dropped", other)
		}
	}
}
