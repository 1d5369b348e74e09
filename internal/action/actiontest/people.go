package actiontest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/intent/intenttest"
)

// People is an [action.Notifier] that reaches all known recipients: "owner" is the resource's user,
// else its team; any other recipient is a name.
type People struct{ state intenttest.State[peopleState] }

var _ action.Notifier = (*People)(nil)

type peopleState struct {
	Refusing []string
	Told     []Told
}

// Told is a message that a channel accepted.
type Told struct{ Kind, By, Resource, Item string }

// NewPeople returns people who are reached in memory.
func NewPeople() *People { return &People{} }

// OpenPeople returns people whose messages are kept in a file.
func OpenPeople(path string) *People { return &People{intenttest.State[peopleState]{Path: path}} }

// Refuse makes the channel of a name refuse every message, or accept them again.
func (p *People) Refuse(name string, on bool) {
	_ = p.state.Do(func(v *peopleState) error {
		v.Refusing = slices.DeleteFunc(v.Refusing, func(n string) bool { return n == name })
		if on {
			v.Refusing = append(v.Refusing, name)
		}
		return nil
	})
}

// Told returns what was accepted.
func (p *People) Told() (out []Told) {
	_ = p.state.Do(func(v *peopleState) error {
		out = v.Told
		return nil
	})
	return out
}

// Notify implements [action.Notifier].
func (p *People) Notify(_ context.Context, recipient string, m action.Message) (name string, err error) {
	err = p.state.Do(func(v *peopleState) error {
		about := ""
		name = recipient
		if m.Resource != nil {
			about = m.Resource.ID
		}
		if recipient == "owner" && m.Resource == nil {
			name = ""
		} else if recipient == "owner" {
			if name = m.Resource.Owner.User; name == "" {
				name = m.Resource.Owner.Team
			}
		}
		switch {
		case name == "":
			return errors.New("no recipient: no tag names its owner")
		case slices.Contains(v.Refusing, name):
			return errors.New("the channel of " + name + " refused the message")
		}
		name = "test:" + name
		v.Told = append(v.Told, Told{m.Kind, name, about, m.Item})
		return nil
	})
	if err != nil {
		return "", err
	}
	return name, nil
}

// Clock is the clocks of a machine.
type Clock struct{ action.Clock }

// NewClock returns clocks that stand at a time.
func NewClock(at time.Time) *Clock {
	return &Clock{action.Clock{Wall: at, Boot: "boot-1", Uptime: time.Hour}}
}

// Read reads the clocks.
func (c *Clock) Read() action.Clock { return c.Clock }

// Advance lets time pass.
func (c *Clock) Advance(d time.Duration) { c.Wall, c.Uptime = c.Wall.Add(d), c.Uptime+d }

// Set sets the wall clock by d, while no time passes.
func (c *Clock) Set(d time.Duration) { c.Wall = c.Wall.Add(d) }

// Reboot starts the machine again after d.
func (c *Clock) Reboot(d time.Duration) {
	c.Wall, c.Uptime, c.Boot = c.Wall.Add(d), time.Second, c.Boot+"+"
}
