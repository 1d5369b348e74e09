package fleets

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action/actiontest"
	"github.com/curfew-dev/curfew/internal/plan/fleet"
)

// frontDoor is a gateway that keeps new requests from hosts.
type frontDoor struct {
	*stub
	// open are the requests of each host, and waiting those that no host has.
	open    map[string]int
	waiting int
	drained []string
	calls   []string
}

func (f *frontDoor) Drain(_ context.Context, hosts []string, lasts time.Duration) (open int, err error) {
	f.calls = append(f.calls, fmt.Sprint(hosts, " ", lasts))
	if f.drained = hosts; lasts == 0 {
		f.drained = nil
		return 0, nil
	}
	for _, host := range hosts {
		open += f.open[host]
	}
	if len(hosts) == 0 {
		open = f.waiting
		for _, n := range f.open {
			open += n
		}
	}
	return open, nil
}

// behind puts a gateway in front of the fleet of a process.
func behind(p *acted) *frontDoor {
	f := &frontDoor{stub: p.source, open: map[string]int{}}
	p.fleets["asg/embed"].readers = []reader{f}
	return f
}

func bounded(least, most int) fleet.Config {
	c := fleetConfig()
	c.Min, c.Max = least, most
	return c
}

// TestDrainsBusyMachinesAtTheGateway ends a machine that had requests only after they were answered.
func TestDrainsBusyMachinesAtTheGateway(t *testing.T) {
	clock := actiontest.NewClock(start)
	g, source := newGroup(3), &stub{}
	g.before = func(_ int, ends []string) {
		if len(ends) != 1 || ends[0] != "i-0001" {
			t.Errorf("%v end", ends)
		}
	}
	p := acting(bounded(1, 5), g, actiontest.NewStore(), clock, source)
	door := behind(p)
	for _, id := range g.members {
		door.open[id] = 2
	}
	rounds := func(n int, idle ...string) {
		for range n {
			p.says(2, 1, idle...)
			p.step(t)
			clock.Advance(15 * time.Second)
		}
	}
	rounds(40)
	if g.desired != 3 || len(door.drained) != 2 {
		t.Fatalf("%d machines, drained %v: %v", g.desired, door.drained, p.status(t))
	}
	door.open["i-0001"] = 0
	rounds(2, "i-0001")
	if g.desired != 2 {
		t.Errorf("%d machines after the requests of one ended: %s; calls %v", g.desired, p.status(t), door.calls)
	}
}

// TestGivesRequestsBack ends the drain of machines that are needed again.
func TestGivesRequestsBack(t *testing.T) {
	clock := actiontest.NewClock(start)
	g, source := newGroup(3), &stub{}
	p := acting(bounded(1, 5), g, actiontest.NewStore(), clock, source)
	door := behind(p)
	door.open["i-0001"], door.open["i-0002"], door.open["i-0003"] = 1, 1, 1
	for range 40 {
		p.says(2, 1)
		p.step(t)
		clock.Advance(15 * time.Second)
	}
	if len(door.drained) == 0 {
		t.Fatalf("nothing is drained: %s", p.status(t))
	}
	for range 8 {
		p.says(400, 100)
		p.step(t)
		clock.Advance(15 * time.Second)
	}
	if door.drained != nil || g.desired < 3 {
		t.Errorf("drained %v, %d machines; calls %v", door.drained, g.desired, door.calls)
	}
}

// TestEmptiesAFleetBehindItsGateway takes a fleet that names no machine to zero, and not while a request
// is open or waits.
func TestEmptiesAFleetBehindItsGateway(t *testing.T) {
	clock := actiontest.NewClock(start)
	g, source := newGroup(1), &stub{}
	g.chooses = true
	c := bounded(0, 5)
	c.Zero = true
	p := acting(c, g, actiontest.NewStore(), clock, source)
	door := behind(p)
	door.waiting = 1
	quiet := func(n int) {
		for range n {
			p.says(0, 0)
			p.step(t)
			clock.Advance(15 * time.Second)
		}
	}
	quiet(40)
	if g.desired != 1 || len(door.calls) == 0 {
		t.Fatalf("%d machines with a request that waits; calls %v", g.desired, door.calls)
	}
	door.waiting = 0
	quiet(2)
	if g.desired != 0 {
		t.Errorf("%d machines: %s", g.desired, p.status(t))
	}
	clock.Advance(time.Second)
	p.says(1, 0.1)
	p.step(t)
	if g.desired != 1 {
		t.Errorf("%d machines after a request: %s", g.desired, p.status(t))
	}
}

func (p *acted) status(t *testing.T) string {
	t.Helper()
	s, _ := p.One("asg/embed")
	return fmt.Sprintf("%+v", s)
}
