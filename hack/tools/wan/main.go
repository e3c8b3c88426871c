// Command wan is a bad link between two segments of a network: it carries Ethernet frames from one TAP device to another and
// back, with delay, jitter, loss, late packets, a thin line, and a NAT that forgets (nat.go).
//
// usage: wan EDGE-TAP CLOUD-TAP FILE
//
// FILE has lines KEY=VALUE: seed, delay_ms, jitter_ms, late_ms, rate_kbit, queue_kb (numbers), loss, late (0 to 1), for one
// direction only loss_up (from the edge) and loss_down, and rebind, the number of the NAT's rebinding: each other one forgets all connections, 0 is none. It is read again at SIGHUP. What happens to the n-th frame of a direction is decided by the seed alone, from the moment that FILE is read.
// TCP on both sides is the kernel's own: what a lost packet costs is not modelled here.
package main

import (
	"bufio"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	largestFrame = 1 << 16
	typeARP      = 0x0806
)

// weather is how the link is.
type weather struct {
	seed, rebind   uint64
	delay, jitter  time.Duration
	lateBy         time.Duration
	loss, late     float64
	oneWay         [2]float64 // further loss, up and down
	bytesPerSecond float64
	queueBytes     float64
}

func read(path string) (weather, error) {
	found := weather{queueBytes: 1 << 20, lateBy: 5 * time.Millisecond}
	file, err := os.Open(path)
	if err != nil {
		return found, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		key, text, has := strings.Cut(strings.TrimSpace(lines.Text()), "=")
		if !has {
			continue
		}
		value, err := strconv.ParseFloat(text, 64)
		if err != nil || value < 0 {
			return found, fmt.Errorf("%s: %s=%s is no number from 0", path, key, text)
		}
		milliseconds := time.Duration(value * float64(time.Millisecond))
		switch key {
		case "seed":
			found.seed = uint64(value)
		case "rebind":
			found.rebind = uint64(value)
		case "delay_ms":
			found.delay = milliseconds
		case "jitter_ms":
			found.jitter = milliseconds
		case "late_ms":
			found.lateBy = milliseconds
		case "loss":
			found.loss = value
		case "loss_up":
			found.oneWay[0] = value
		case "loss_down":
			found.oneWay[1] = value
		case "late":
			found.late = value
		case "rate_kbit":
			found.bytesPerSecond = value * 1000 / 8
		case "queue_kb":
			found.queueBytes = value * 1024
		default:
			return found, fmt.Errorf("%s: unknown key %s", path, key)
		}
	}
	return found, lines.Err()
}

func tap(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		return nil, err
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// A frame that waits for its time.
type frame struct {
	due    time.Time
	number uint64
	bytes  []byte
}

type waiting []frame

func (w waiting) Len() int { return len(w) }
func (w waiting) Less(a, b int) bool {
	return w[a].due.Before(w[b].due) || w[a].due.Equal(w[b].due) && w[a].number < w[b].number
}
func (w waiting) Swap(a, b int) { w[a], w[b] = w[b], w[a] }
func (w *waiting) Push(x any)   { *w = append(*w, x.(frame)) }
func (w *waiting) Pop() any {
	last := (*w)[len(*w)-1]
	(*w)[len(*w)-1].bytes = nil
	*w = (*w)[:len(*w)-1]
	return last
}

// A direction of the link.
type direction struct {
	from, to *os.File
	number   int // 0 up, 1 down
	weather  *atomic.Pointer[weather]
	router   *nat
	lock     sync.Mutex
	queue    waiting
	more     chan struct{}
}

// What the dice say of a frame.
type decision struct {
	lost, late bool
	jitter     time.Duration
}

// What becomes of the frames of a direction, one after another: by the seed alone.
type dice struct {
	random *rand.Rand
	number int // of the direction
}

func newDice(seed uint64, direction int) *dice {
	return &dice{rand.New(rand.NewPCG(seed, uint64(direction)+1)), direction}
}

// Each frame takes as many numbers, so that one figure of the weather does not move another's dice.
func (d *dice) next(now *weather) decision {
	loss, late, jitter := d.random.Float64(), d.random.Float64(), d.random.Float64()
	return decision{
		lost:   loss < now.loss+now.oneWay[d.number],
		late:   late < now.late,
		jitter: time.Duration(jitter * float64(now.jitter)),
	}
}

func (d *direction) take() error {
	var (
		now     *weather
		thrown  *dice
		number  uint64
		free    time.Time // when the line has sent what it was given
		in, out time.Time // the last frame's
		buffer  = make([]byte, largestFrame)
	)
	for {
		length, err := d.from.Read(buffer)
		if err != nil {
			return err
		}
		if current := d.weather.Load(); current != now {
			now, thrown = current, newDice(current.seed, d.number)
		}
		fate := thrown.next(now)
		in = time.Now()
		if !d.router.pass(buffer[:length], d.number == 0) {
			continue
		}
		isARP := length >= 14 && int(buffer[12])<<8|int(buffer[13]) == typeARP
		if fate.lost && !isARP {
			continue
		}
		due := in
		if now.bytesPerSecond > 0 {
			if free.Before(in) {
				free = in
			}
			if free.Sub(in).Seconds()*now.bytesPerSecond > now.queueBytes {
				continue
			}
			free = free.Add(time.Duration(float64(length) / now.bytesPerSecond * float64(time.Second)))
			due = free
		}
		due = due.Add(now.delay + fate.jitter)
		if due.Before(out) {
			due = out // jitter alone keeps the order
		}
		if fate.late {
			due = due.Add(now.lateBy)
		} else {
			out = due
		}
		number++
		d.lock.Lock()
		heap.Push(&d.queue, frame{due, number, append([]byte(nil), buffer[:length]...)})
		first := d.queue[0].number == number
		d.lock.Unlock()
		if first {
			select {
			case d.more <- struct{}{}:
			default:
			}
		}
	}
}

func (d *direction) give() {
	timer := time.NewTimer(time.Hour)
	for {
		d.lock.Lock()
		wait := time.Hour
		for len(d.queue) > 0 {
			wait = time.Until(d.queue[0].due)
			if wait > 0 {
				break
			}
			next := heap.Pop(&d.queue).(frame)
			d.lock.Unlock()
			// A device that is down, or whose queue is full, loses the frame, as a wire would.
			_, _ = d.to.Write(next.bytes)
			d.lock.Lock()
			wait = time.Hour
		}
		d.lock.Unlock()
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-d.more:
		}
	}
}

func run(arguments []string) error {
	if len(arguments) != 3 {
		return fmt.Errorf("usage: wan EDGE-TAP CLOUD-TAP FILE")
	}
	found, err := read(arguments[2])
	if err != nil {
		return err
	}
	var current atomic.Pointer[weather]
	current.Store(&found)
	router := new(nat)
	router.turn(found.seed, found.rebind)
	edge, err := tap(arguments[0])
	if err != nil {
		return err
	}
	cloud, err := tap(arguments[1])
	if err != nil {
		return err
	}
	failed := make(chan error, 2)
	for _, way := range []*direction{{from: edge, to: cloud, number: 0}, {from: cloud, to: edge, number: 1}} {
		way.weather, way.router, way.more = &current, router, make(chan struct{}, 1)
		go way.give()
		go func() {
			for {
				err := way.take()
				// A device says EIO while it is down.
				if pathError, is := err.(*os.PathError); !is || pathError.Err != syscall.EIO {
					failed <- err
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		}()
	}
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGHUP)
	for {
		select {
		case err := <-failed:
			return err
		case <-again:
			if changed, err := read(arguments[2]); err != nil {
				fmt.Fprintln(os.Stderr, "wan:", err, "(the weather stays as it is)")
			} else {
				router.turn(changed.seed, changed.rebind)
				current.Store(&changed)
			}
		}
	}
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "wan:", err)
		os.Exit(1)
	}
}
