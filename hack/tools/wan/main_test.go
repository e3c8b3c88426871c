package main

import (
	"slices"
	"testing"
	"time"
)

func thrown(seed uint64, direction int, now weather) []decision {
	dice, all := newDice(seed, direction), make([]decision, 1000)
	for frame := range all {
		all[frame] = dice.next(&now)
	}
	return all
}

// The seed and the direction decide what becomes of each frame, and nothing else.
func TestASeedGivesTheSameAgain(t *testing.T) {
	bad := weather{jitter: 5 * time.Millisecond, loss: 0.1, late: 0.2}
	first := thrown(7, 0, bad)
	if !slices.Equal(first, thrown(7, 0, bad)) {
		t.Error("seed 7 is not what it was")
	}
	if slices.Equal(first, thrown(8, 0, bad)) || slices.Equal(first, thrown(7, 1, bad)) {
		t.Error("another seed, or the other direction, is the same")
	}
	lost, late := 0, 0
	for _, fate := range first {
		if fate.lost {
			lost++
		}
		if fate.late {
			late++
		}
		if fate.jitter < 0 || fate.jitter >= bad.jitter {
			t.Errorf("%v of jitter", fate.jitter)
		}
	}
	if lost < 50 || lost > 150 || late < 150 || late > 250 {
		t.Errorf("%d of 1000 frames are lost and %d late", lost, late)
	}
}

// One figure of the weather does not move another's dice, and loss of one direction leaves the other alone.
func TestFiguresAreIndependent(t *testing.T) {
	bad := weather{jitter: 5 * time.Millisecond, loss: 0.1, late: 0.2}
	more := bad
	more.loss, more.oneWay[0] = 0.3, 0.2
	for direction := range 2 {
		fewer, most := thrown(7, direction, bad), thrown(7, direction, more)
		for frame := range fewer {
			if fewer[frame].lost && !most[frame].lost || fewer[frame].late != most[frame].late || fewer[frame].jitter != most[frame].jitter {
				t.Fatalf("frame %d of direction %d: %v, with more loss %v", frame, direction, fewer[frame], most[frame])
			}
		}
	}
	silent := weather{oneWay: [2]float64{1, 0}}
	for direction, lost := range []bool{true, false} {
		for _, fate := range thrown(7, direction, silent) {
			if fate.lost != lost {
				t.Fatalf("direction %d: %v", direction, fate)
			}
		}
	}
}
