package sim

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
)

// Clock is simulated time: it only moves when told to, together with the uptime.
type Clock struct {
	mu   sync.Mutex
	wall time.Time
	up   time.Duration
}

// NewClock returns a clock set to a time.
func NewClock(at time.Time) *Clock { return &Clock{wall: at} }

// Now returns the time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wall
}

// Read returns the time with the uptime of the simulated machine.
func (c *Clock) Read() action.Clock {
	c.mu.Lock()
	defer c.mu.Unlock()
	return action.Clock{Wall: c.wall, Boot: "demo", Uptime: c.up}
}

// Forward moves the clock to a time, by at least a minute.
func (c *Clock) Forward(to time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := max(to.Sub(c.wall), time.Minute)
	c.wall, c.up = c.wall.Add(d), c.up+d
}

// People are the owners in the simulated company, who read every message.
type People struct {
	// Sent counts the messages.
	Sent int
}

// Notify implements [action.Notifier].
func (p *People) Notify(_ context.Context, recipient string, m action.Message) (string, error) {
	if m.Resource == nil { // about a policy, which its people read
		p.Sent++
		return "demo:platform", nil
	}
	who := m.Resource.Owner.User
	if who == "" || recipient == "team" {
		who = m.Resource.Owner.Team
	}
	if !slices.Contains([]string{"owner", "team"}, recipient) {
		who = recipient
	}
	if who == "" {
		return "", errors.New("no recipient: no tag names an owner or a team")
	}
	p.Sent++
	return "demo:" + who, nil
}
