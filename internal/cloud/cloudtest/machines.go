package cloudtest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/intent/intenttest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/spec"
)

// Machines is a [session.Launcher] with real state, in memory or in a file that survives the
// process; one process at a time may use it. Each machine has a volume, which stays when it ends.
type Machines struct {
	state intenttest.State[machines]
	now   func() time.Time
}

var _ session.Launcher = (*Machines)(nil)

// Stock is a pool and its capacity.
type Stock struct {
	session.Pool
	// Free is the number of machines available now.
	Free int
}

// MachineFault is a one-shot fault of the next call of an operation.
type MachineFault struct {
	// On is "pools", "launch", "find", "end" or "leftovers".
	On string
	// Message is the error. Class makes it an error of that class of package session. Carried makes
	// the call take effect all the same.
	Message string
	Class   error
	Carried bool
}

// MachineCall is one call to [Machines].
type MachineCall struct {
	On, Session, Token string
	Pool               session.Pool
	IDs                []string
	At                 time.Time
}

type machines struct {
	Stock    []Stock
	Quota    int
	Launches map[string]launched // by token, region and zone
	Made     []made
	Volumes  []disk
	Faults   []keptFault
	Calls    []MachineCall
	// Hidden is the time before machines are listed, Boot the time they are pending, Ends the time
	// they take to end.
	Hidden, Boot, Ends time.Duration
}

type launched struct {
	Params   string
	Machines []string
}

type made struct {
	session.Machine
	Session, Token, Installation string
	LeaseUntil                   time.Time
	Tags                         map[string]string
	Host                         session.HostConfig
	EndsAt                       time.Time // zero until its end was requested
	HiddenTo                     time.Time
}

type disk struct {
	ID, Machine, Session, Installation string
	Tags                               map[string]string
}

type keptFault struct {
	On, Message, Class string
	Carried            bool
}

// NewMachines returns a provider in memory with pools in order of preference.
func NewMachines(now func() time.Time, stock ...Stock) *Machines {
	m := &Machines{now: now}
	m.change(func(v *machines) { v.Stock = stock })
	return m
}

// OpenMachines returns the provider stored in a file, with the pools it was created with.
func OpenMachines(path string, now func() time.Time, stock ...Stock) *Machines {
	m := &Machines{state: intenttest.State[machines]{Path: path}, now: now}
	m.change(func(v *machines) {
		if v.Stock == nil {
			v.Stock = stock
		}
	})
	return m
}

// change modifies the state; only a damaged file can fail.
func (m *Machines) change(f func(v *machines)) {
	if err := m.state.Do(func(v *machines) error { f(v); return nil }); err != nil {
		panic(err)
	}
}

// Fail injects a fault for one call.
func (m *Machines) Fail(f MachineFault) {
	kept := keptFault{On: f.On, Message: f.Message, Carried: f.Carried}
	if f.Class != nil {
		kept.Class = f.Class.Error()
	}
	m.change(func(v *machines) { v.Faults = append(v.Faults, kept) })
}

// Delay hides machines launched from now on for a while, and sets their times to boot and to end.
func (m *Machines) Delay(hidden, boot, ends time.Duration) {
	m.change(func(v *machines) { v.Hidden, v.Boot, v.Ends = hidden, boot, ends })
}

// Quota limits the number of concurrent machines; 0 for no limit.
func (m *Machines) Quota(n int) { m.change(func(v *machines) { v.Quota = n }) }

// Supply sets the capacity of a pool.
func (m *Machines) Supply(p session.Pool, free int) {
	m.change(func(v *machines) {
		for i := range v.Stock {
			if samePool(v.Stock[i].Pool, p) {
				v.Stock[i].Free = free
			}
		}
	})
}

// Lose ends a machine like a spot interruption or a hardware failure.
func (m *Machines) Lose(id string) {
	m.change(func(v *machines) { v.end(m.now(), func(x *made) bool { return x.ID == id }) })
}

// Calls returns every call that modifies the state, in order.
func (m *Machines) Calls() (out []MachineCall) {
	m.change(func(v *machines) { out = v.Calls })
	return out
}

// Hosts returns the configuration of a session's existing machines, by ID.
func (m *Machines) Hosts(id string) map[string]session.HostConfig {
	out := map[string]session.HostConfig{}
	m.change(func(v *machines) {
		for _, x := range v.Made {
			if x.Session == id && !x.gone(m.now()) {
				out[x.ID] = x.Host
			}
		}
	})
	return out
}

// Left returns what exists of a session with its tags: volumes, and machines whose end was not
// requested. "" stands for all sessions.
func (m *Machines) Left(id string) map[string]map[string]string {
	out := map[string]map[string]string{}
	m.change(func(v *machines) {
		for _, x := range v.Made {
			if (id == "" || x.Session == id) && x.EndsAt.IsZero() {
				out[x.ID] = x.Tags
			}
		}
		for _, x := range v.Volumes {
			if id == "" || x.Session == id {
				out[x.ID] = x.Tags
			}
		}
	})
	return out
}

// Pools implements [session.Launcher].
func (m *Machines) Pools(ctx context.Context, s *spec.Spec) (out []session.Pool, err error) {
	err = m.call(ctx, "pools", nil, func(v *machines) error {
		for _, stock := range v.Stock {
			r := s.Resources
			if (r.InstanceType == "" || r.InstanceType == stock.Type) && (s.Capacity != spec.Spot || stock.Spot) &&
				(s.Capacity != spec.OnDemand && s.Capacity != "" || !stock.Spot) &&
				(len(s.Regions) == 0 || slices.Contains(s.Regions, stock.Region)) {
				out = append(out, stock.Pool)
			}
		}
		if out == nil {
			return fmt.Errorf("no pool has %s: %w",
				cmp.Or(s.Resources.InstanceType, s.Resources.GPU), session.ErrUnsupported)
		}
		return nil
	})
	return out, err
}

// Launch implements [session.Launcher].
func (m *Machines) Launch(ctx context.Context, l session.Launch) (out []session.Machine, err error) {
	err = m.call(ctx, "launch", &MachineCall{Session: l.Session.ID, Token: l.Token, Pool: l.Pool},
		func(v *machines) (err error) {
			out, err = v.launch(l, m.now())
			return err
		})
	return out, err
}

func (v *machines) launch(l session.Launch, now time.Time) ([]session.Machine, error) {
	if l.Token == "" || l.Nodes < 1 {
		return nil, fmt.Errorf("launch %s: it has no token, or no machines", l.Session.ID)
	}
	key, params := l.Token+" "+l.Pool.Region+" "+l.Pool.Zone, parameters(l)
	if before, ok := v.Launches[key]; ok {
		if before.Params != params {
			return nil, fmt.Errorf("launch %s: %w", l.Session.ID, session.ErrMismatch)
		}
		return v.machines(before.Machines, now), nil
	}
	i := slices.IndexFunc(v.Stock, func(s Stock) bool { return samePool(s.Pool, l.Pool) })
	switch {
	case i < 0:
		return nil, fmt.Errorf("launch %s in %s: %w", l.Pool.Type, l.Pool.Zone, session.ErrUnsupported)
	case v.Quota > 0 && v.running()+l.Nodes > v.Quota:
		return nil, fmt.Errorf("launch %d of %s: %w of %d machines", l.Nodes, l.Pool.Type, session.ErrQuota, v.Quota)
	case v.Stock[i].Free < l.Nodes:
		return nil, fmt.Errorf("launch %d of %s in %s: %w", l.Nodes, l.Pool.Type, l.Pool.Zone, session.ErrCapacity)
	}
	v.Stock[i].Free -= l.Nodes
	var ids []string
	for node := range l.Nodes {
		x := made{
			Session: l.Session.ID, Token: l.Token, Installation: l.Tags[inventory.TagInstallation],
			LeaseUntil: l.Session.LeaseUntil,
			Tags:       maps.Clone(l.Tags), Host: l.Host, HiddenTo: now.Add(v.Hidden)}
		x.Machine = session.Machine{ID: fmt.Sprintf("m-%d", len(v.Made)+1), Node: node, Pool: l.Pool, LaunchedAt: now}
		x.Host.Node = node
		v.Made = append(v.Made, x)
		v.Volumes = append(v.Volumes, disk{"vol-" + x.ID, x.ID, x.Session, x.Installation, maps.Clone(l.Tags)})
		ids = append(ids, x.ID)
	}
	if v.Launches == nil {
		v.Launches = map[string]launched{}
	}
	v.Launches[key] = launched{params, ids}
	return v.machines(ids, now), nil
}

// parameters returns the parameters that launches with the same token must share.
func parameters(l session.Launch) string {
	text, err := json.Marshal([]any{l.Session.ID, l.Pool.Type, l.Pool.Spot, l.Nodes, l.Tags, l.Host})
	if err != nil {
		panic(err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

func samePool(a, b session.Pool) bool {
	return a.Type == b.Type && a.Region == b.Region && a.Zone == b.Zone && a.Spot == b.Spot
}

func (x *made) gone(now time.Time) bool { return !x.EndsAt.IsZero() && !now.Before(x.EndsAt) }

// running counts the machines that exist and are not ending.
func (v *machines) running() (n int) {
	for _, x := range v.Made {
		if x.EndsAt.IsZero() {
			n++
		}
	}
	return n
}

// at returns the state of a machine at a time.
func (v *machines) at(x made, now time.Time) session.Machine {
	out := x.Machine
	switch {
	case !x.EndsAt.IsZero():
		out.State = inventory.StateDeleting
	case now.Before(x.LaunchedAt.Add(v.Boot)):
		out.State = inventory.StatePending
	default:
		out.State = inventory.StateRunning
	}
	return out
}

// machines returns the machines with the given IDs, ordered by node.
func (v *machines) machines(ids []string, now time.Time) (out []session.Machine) {
	for _, x := range v.Made {
		if slices.Contains(ids, x.ID) {
			out = append(out, v.at(x, now))
		}
	}
	return out
}

// end starts to end machines that are not ending already.
func (v *machines) end(now time.Time, which func(*made) bool) {
	for i := range v.Made {
		x := &v.Made[i]
		if !x.EndsAt.IsZero() || !which(x) {
			continue
		}
		x.EndsAt = now.Add(v.Ends)
		for j := range v.Stock {
			if samePool(v.Stock[j].Pool, x.Pool) {
				v.Stock[j].Free++
			}
		}
	}
}

// Find implements [session.Launcher].
func (m *Machines) Find(ctx context.Context, installation, id string) (out []session.FoundMachine, err error) {
	now := m.now()
	err = m.call(ctx, "find", nil, func(v *machines) error {
		for _, x := range v.Made {
			if x.Installation == installation && (id == "" || x.Session == id) && !x.gone(now) &&
				!now.Before(x.HiddenTo) {
				out = append(out, session.FoundMachine{
					Machine: v.at(x, now), Session: x.Session, Token: x.Token, LeaseUntil: x.LeaseUntil,
				})
			}
		}
		return nil
	})
	return out, err
}

// End implements [session.Launcher].
func (m *Machines) End(ctx context.Context, id string, ids []string) error {
	return m.call(ctx, "end", &MachineCall{Session: id, IDs: ids}, func(v *machines) error {
		v.end(m.now(), func(x *made) bool { return x.Session == id && slices.Contains(ids, x.ID) })
		return nil
	})
}

// Leftovers implements [session.Launcher].
func (m *Machines) Leftovers(ctx context.Context, installation, id string) (left []string, err error) {
	now := m.now()
	err = m.call(ctx, "leftovers", &MachineCall{Session: id}, func(v *machines) error {
		of := func(i, s string) bool { return i == installation && s == id }
		for _, x := range v.Made {
			if of(x.Installation, x.Session) && !x.gone(now) {
				left = append(left, x.ID)
			}
		}
		if len(left) == 0 {
			v.Volumes = slices.DeleteFunc(v.Volumes, func(x disk) bool { return of(x.Installation, x.Session) })
		}
		return nil
	})
	return left, err
}

// call runs a call unless a fault is injected. A failed call has no effect unless its fault is
// Carried.
func (m *Machines) call(ctx context.Context, on string, call *MachineCall, f func(v *machines) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.change(func(v *machines) {
		if call != nil {
			call.On, call.At = on, m.now()
			v.Calls = append(v.Calls, *call)
		}
		i := slices.IndexFunc(v.Faults, func(f keptFault) bool { return f.On == on })
		if i < 0 {
			err = f(v)
			return
		}
		fault := v.Faults[i]
		v.Faults = slices.Delete(v.Faults, i, i+1)
		if fault.Carried {
			if err = f(v); err != nil {
				return
			}
		}
		err = errors.New(fault.Message)
		for _, class := range []error{
			session.ErrCapacity, session.ErrQuota, session.ErrUnsupported, session.ErrMismatch,
		} {
			if class.Error() == fault.Class {
				err = fmt.Errorf("%s: %w", fault.Message, class)
			}
		}
	})
	return err
}
