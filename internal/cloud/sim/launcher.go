package sim

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/spec"
	"github.com/curfew-dev/curfew/internal/usage"
)

// LauncherOptions configure the launches of an account.
type LauncherOptions struct {
	// Clock is the simulated clock.
	Clock func() time.Time
	// Types returns the machine types that can run a specification; an empty list means none.
	Types func(s *spec.Spec) ([]string, error)
	// Rate returns the price of a machine; nil is unknown.
	Rate func(machineType, region string, spot bool) *money.Rate
	// Scarce are machine types that have no spot capacity.
	Scarce []string
	// MemoryFaults are the steps at which commands run out of GPU memory, by the names of jobs.
	MemoryFaults map[string]int64
}

// Launcher launches machines in the account. They are listed and measured like its other machines, and
// their hosts are simulated: a job's command makes a step every half minute and is saved every twenty.
type Launcher struct {
	cloud   *Cloud
	options LauncherOptions
}

var _ session.Launcher = (*Launcher)(nil)

// Launcher returns the launcher of the account.
func (c *Cloud) Launcher(o LauncherOptions) *Launcher { return &Launcher{c, o} }

// launched is one machine that was launched.
type launched struct {
	session.FoundMachine
	installation, launch string
	key                  key
	host                 session.HostConfig
	tags                 map[string]string
	work                 time.Duration
	// start is the snapshot that the host restores.
	start session.Snapshot
	// takenAt is the time at which the provider takes a spot machine, endedAt that of its end; zero is
	// never.
	takenAt, endedAt time.Time
	// memoryFault is the step at which the command runs out of GPU memory; 0 is none.
	memoryFault int64
	// order is the newest order, orderedAt the time of the first one that ends the work, and begunAt that
	// of the first one that does not hold the host.
	order              session.Order
	version            int
	orderedAt, begunAt time.Time
	// round is the round of the command, restartedAt the time of its begin; zero for the first one.
	round       int64
	restartedAt time.Time
}

// goneBy reports whether nothing is left of a machine at a time.
func (m *launched) goneBy(t time.Time) bool {
	return !m.takenAt.IsZero() && !t.Before(m.takenAt) || !m.endedAt.IsZero() && !t.Before(m.endedAt)
}

const (
	// capacityWindow is the length of the windows with and without capacity of a spot pool, and
	// shareOfCapacity the share of those with it.
	capacityWindow  = 90 * time.Minute
	shareOfCapacity = 0.66
	streamCapacity  = 1 << 20
)

// hasCapacity reports whether a pool has machines at a time.
func (l *Launcher) hasCapacity(p session.Pool, at time.Time) bool {
	if !p.Spot {
		return true
	}
	if slices.Contains(l.options.Scarce, p.Type) {
		return false
	}
	k := newKey(l.cloud.options.Seed, "capacity/"+p.Type+"/"+p.Zone)
	return k.uniform(streamCapacity, at.Unix()/int64(capacityWindow/time.Second)) < shareOfCapacity
}

// takenAt returns the time at which a spot machine is taken: within the first window without capacity.
func (l *Launcher) takenAt(p session.Pool, from time.Time, k key) time.Time {
	if !p.Spot {
		return time.Time{}
	}
	at := from.Truncate(capacityWindow)
	for range 400 {
		if at = at.Add(capacityWindow); !l.hasCapacity(p, at) {
			return at.Add(time.Duration(k.between(streamCapacity, at.Unix(), 0, float64(capacityWindow/4)))).
				Truncate(time.Second)
		}
	}
	return time.Time{}
}

// Pools implements session.Launcher.
func (l *Launcher) Pools(_ context.Context, s *spec.Spec) (out []session.Pool, err error) {
	types := []string{s.Resources.InstanceType}
	if s.Resources.InstanceType == "" {
		if types, err = l.options.Types(s); err != nil {
			return nil, err
		}
	}
	for _, region := range Regions() {
		if len(s.Regions) > 0 && !slices.Contains(s.Regions, region) {
			continue
		}
		for _, machineType := range types {
			for _, p := range []session.Pool{
				{Zone: "a"}, {Zone: "a", Spot: true}, {Zone: "b", Spot: true}, {Zone: "c", Spot: true},
			} {
				if p.Spot && s.Capacity == spec.OnDemand || !p.Spot && s.Capacity == spec.Spot {
					continue
				}
				p.Type, p.Region, p.Zone = machineType, region, region+p.Zone
				if p.Rate = l.options.Rate(machineType, region, p.Spot); p.Rate != nil {
					out = append(out, p)
				}
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s %s: %w", s.Kind, s.Name, session.ErrUnsupported)
	}
	slices.SortStableFunc(out, func(a, b session.Pool) int { return cmp.Compare(*a.Rate, *b.Rate) })
	return out, nil
}

// Launch implements session.Launcher.
func (l *Launcher) Launch(ctx context.Context, want session.Launch) (out []session.Machine, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	now := l.options.Clock().UTC()
	text, err := json.Marshal([]any{want.Host, want.FirstNode, want.Nodes, want.Pool})
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	launch := hex.EncodeToString(sum[:])
	l.cloud.mu.Lock()
	defer l.cloud.mu.Unlock()
	for _, m := range l.cloud.launched {
		if m.Token != want.Token {
			continue
		}
		if m.launch != launch {
			return nil, fmt.Errorf("launch %s: %w", want.Session.Name, session.ErrMismatch)
		}
		out = append(out, m.Machine)
	}
	if len(out) > 0 {
		return out, nil
	}
	if !l.hasCapacity(want.Pool, now) {
		return nil, fmt.Errorf("%s: %w", want.Pool, session.ErrCapacity)
	}
	for node := want.FirstNode; node < want.FirstNode+want.Nodes; node++ {
		k := newKey(l.cloud.options.Seed, "launched/"+want.Token+"/"+strconv.Itoa(node))
		m := &launched{
			installation: want.Tags[inventory.TagInstallation], launch: launch, key: k, host: want.Host,
			tags: want.Tags, work: want.Spec.Duration, start: want.Session.PreviousSnapshot,
			memoryFault: l.options.MemoryFaults[want.Spec.Name],
		}
		m.host.Node = node
		if m.round = m.host.Round; m.host.RestoreStep != nil {
			m.start = m.savedAt(*m.host.RestoreStep, now)
		}
		m.FoundMachine = session.FoundMachine{
			Machine: session.Machine{
				ID: "i-0" + k.hex(16), Node: node, Pool: want.Pool, State: inventory.StateRunning, LaunchedAt: now,
			},
			Session: want.Session.ID, Token: want.Token, Account: Account, LeaseUntil: want.Host.LeaseUntil,
			Owner: want.Session.Owner,
		}
		m.takenAt = l.takenAt(want.Pool, now, k)
		l.cloud.launched = append(l.cloud.launched, m)
		out = append(out, m.Machine)
	}
	return out, nil
}

// Find implements session.Launcher.
func (l *Launcher) Find(ctx context.Context, installation, id string) (out []session.FoundMachine, err error) {
	now := l.options.Clock().UTC()
	l.cloud.mu.Lock()
	defer l.cloud.mu.Unlock()
	for _, m := range l.cloud.launched {
		if m.installation == installation && (id == "" || m.Session == id) && !m.goneBy(now) {
			out = append(out, m.FoundMachine)
		}
	}
	return out, ctx.Err()
}

// End implements session.Launcher.
func (l *Launcher) End(ctx context.Context, id string, machines []string) error {
	now := l.options.Clock().UTC()
	l.cloud.mu.Lock()
	defer l.cloud.mu.Unlock()
	for _, m := range l.cloud.launched {
		if m.Session == id && slices.Contains(machines, m.ID) && m.endedAt.IsZero() {
			m.endedAt = now
		}
	}
	return ctx.Err()
}

// Leftovers implements session.Launcher. A machine leaves nothing behind.
func (l *Launcher) Leftovers(ctx context.Context, installation, id string) (left []string, err error) {
	there, err := l.Find(ctx, installation, id)
	for _, m := range there {
		left = append(left, "machine "+m.ID)
	}
	return left, err
}

// launchedEntries returns the machines that were launched as resources of the account. The caller holds the lock.
func (c *Cloud) launchedEntries(now time.Time) (out []*entry) {
	for _, m := range c.launched {
		if m.LaunchedAt.After(now) || m.goneBy(now) {
			continue
		}
		market := inventory.OnDemand
		if m.Pool.Spot {
			market = inventory.Spot
		}
		e := &entry{
			resource: &inventory.Resource{
				Cloud: CloudName, Account: Account, Region: m.Pool.Region, Zone: m.Pool.Zone,
				Kind: inventory.KindInstance, ID: m.ID, Name: m.host.Name, Type: m.Pool.Type, Tags: maps.Clone(m.tags),
				State: inventory.StateRunning, CreatedAt: m.LaunchedAt, StateSince: m.LaunchedAt,
				Detail: &inventory.Instance{
					Market: market, Platform: inventory.LinuxPlatform, Tenancy: inventory.SharedTenancy,
					TerminationProtected: inventory.Known(false), SpotOnce: inventory.Known(m.Pool.Spot),
					ImageID: "ami-0" + newKey(0, "public/"+m.Pool.Region).hex(16),
				},
			},
			key: m.key, hardware: hardwareOf(m.Pool.Type), telemetry: hosted, planted: honest("a machine of a run"),
			model: until(setupTime, download, m.behavior()), care: careful,
			signals: []usage.Signal{usage.CPUUtil, usage.NetBytes},
		}
		out = append(out, e)
	}
	return out
}

// behavior returns the work of a machine after its setup.
func (m *launched) behavior() behavior {
	if m.host.Command != nil {
		return train(91, 0.71)
	}
	return until(setupTime+attendedTime, trainQuietly(64, 0.4), rest)
}
