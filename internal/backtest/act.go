package backtest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
)

// Allowed are the rules of a live account that a recorded one cannot answer
// recorded one.
var Allowed = action.Assumptions{NoGrace: true, Unpriced: true, NoDisks: true, FuseConfirmed: true}

// Unbounded is a gap between rounds that no replay reaches.
const Unbounded = time.Duration(math.MaxInt64)

// Everybody accepts every warning in a recorded account.
type Everybody struct{}

// Notify implements [action.Notifier].
func (Everybody) Notify(context.Context, string, action.Message) (string, error) {
	return "recorded", nil
}

// cloud carries out actions on the resources of a trace: a verb that ends a resource releases it,
// which the provider confirms at once.
type cloud struct {
	account *Account
	// release lets a resource go; stalled says that it computed without progress.
	release func(resource int, stalled bool, do policy.Verb) error
	states  map[int]duty.State
	done    map[string]bool // keys of calls
}

func newCloud(a *Account, release func(resource int, stalled bool, do policy.Verb) error) *cloud {
	return &cloud{account: a, release: release, states: map[int]duty.State{}, done: map[string]bool{}}
}

// know notes the duty of a resource, which decides when a release of it ends.
func (c *cloud) know(f *policy.Facts) {
	if i, ok := c.account.Index(f.Resource.ID); ok && f.Duty != nil {
		c.states[i] = f.Duty.State
	}
}

// Plan implements [action.Cloud].
func (c *cloud) Plan(_ context.Context, _ *inventory.Resource, do policy.Do) ([]action.Step, error) {
	return []action.Step{{Name: string(do.Verb)}}, nil
}

// Do implements [action.Cloud].
func (c *cloud) Do(_ context.Context, t action.Task) (string, error) {
	i, ok := c.account.Index(t.Ref.ID)
	if !ok {
		return "", fmt.Errorf("%s %s: it is not in the trace", t.Do.Verb, t.Ref.ID)
	}
	if ends(t.Do.Verb) {
		if err := c.release(i, c.states[i] == duty.Stalled, t.Do.Verb); err != nil {
			return "", err
		}
	}
	c.done[t.Step.Key] = true
	return "recorded", nil
}

// Look implements [action.Cloud].
func (c *cloud) Look(_ context.Context, t action.Task) (action.Progress, string, error) {
	if c.done[t.Step.Key] || t.Step.Receipt != "" {
		return action.Complete, "recorded", nil
	}
	return action.NotDone, "", nil
}

// Undo implements [action.Cloud].
func (c *cloud) Undo(context.Context, action.Task) error {
	return errors.New("releases of a replay cannot be undone")
}

// Rehearse implements [action.Cloud].
func (c *cloud) Rehearse(ctx context.Context, t action.Task) (string, error) {
	return "", c.Undo(ctx, t)
}

// ends reports whether a verb ends the cost of a running resource.
func ends(v policy.Verb) bool {
	switch v {
	case policy.Stop, policy.Hibernate, policy.Terminate, policy.Delete, policy.Release, policy.Suspend, policy.Scale:
		return true
	}
	return false
}

// virtual is a clock that stands still until it is set.
type virtual struct {
	mu  sync.Mutex
	now time.Time
}

func (c *virtual) set(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
}

func (c *virtual) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *virtual) clock() action.Clock { return ClockAt(c.read()) }

// ClockAt is the clock of a machine that a recorded time was read on: its uptime goes
// along with its wall.
func ClockAt(now time.Time) action.Clock {
	return action.Clock{Wall: now, Boot: "recorded", Uptime: now.Sub(time.Unix(0, 0))}
}
