package local

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/spec"
)

// CloudName is the name of this machine as a provider of sessions; Site is where they run in
// the inventory.
const (
	CloudName = "local"
	Site      = "local"
)

// ProviderOptions say what this machine offers.
type ProviderOptions struct {
	// Dir is the folder in which machines of sessions are kept; it is made.
	Dir string
	// Sessions is the folder with the files of sessions that run as other users than this process;
	// it is made. Those users pass through it, so it is in no folder of one user alone.
	Sessions string
	// Limits bound what a session uses.
	Limits LimitOptions
	// Name is the name of this machine, under which Machines may list it; empty is its host
	// name.
	Name string
	// Machines and Rates price it, as they do on-premises machines.
	Machines Machines
	Rates    Rates
	Tags     inventory.TagMapping
	// Prices knows GPUs by their other names; nil takes each by the name it has.
	Prices *price.Book
	// GPUs are those of this machine where Hardware tells none; nil Hardware is nvidia-smi.
	GPUs     []Listed
	Hardware Hardware
	// Agent is the program of the agent, to which the file of what it is told is appended.
	Agent []string
	// Helper is what carries out [Helper]; nil is this program with the argument "cage".
	Helper []string
	// Now is the clock; nil is that of the machine.
	Now func() time.Time
	// Log tells each step of a launch and an end, at the level of debugging; nil drops it.
	Log *slog.Logger
}

// Provider is this machine as a provider of sessions: each of a session's machines is a set
// of processes, with a folder that says what it is. It is safe for concurrent use, by any
// number of processes.
type Provider struct {
	o     ProviderOptions
	rates tariff
	// listed is the entry of Machines that is this machine; nil: none.
	listed *Machine
	users  knownUsers
}

var (
	_ session.Launcher = (*Provider)(nil)
	_ session.Rescuer  = (*Provider)(nil)
)

// NewProvider returns this machine as a provider.
func NewProvider(o ProviderOptions) (*Provider, error) {
	if o.Name == "" {
		name, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("read the name of this machine: %w", err)
		}
		o.Name = name
	}
	if !word.MatchString(o.Name) {
		return nil, &FieldError{Field: ".name", Message: fmt.Sprintf("%q is not a host name: letters, digits, '.', '_' and '-'", o.Name)}
	}
	if err := CheckGPUs(o.GPUs); err != nil {
		return nil, fmt.Errorf("gpus%w", err)
	}
	if err := o.Machines.Validate(o.Rates); err != nil {
		return nil, fmt.Errorf("machines%w", err)
	}
	rates, err := newTariff(o.Prices, o.Rates)
	if err != nil {
		return nil, err
	}
	if o.Hardware == nil {
		o.Hardware = SMI{}
	}
	if o.Helper == nil {
		o.Helper = thisProgram
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	// Agents and watchers run from the root, so that no folder is kept busy by them.
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, err
	}
	if o.Sessions != "" {
		if o.Sessions, err = filepath.Abs(o.Sessions); err != nil {
			return nil, err
		}
	}
	p := &Provider{o: o, rates: rates}
	for _, m := range o.Machines {
		if slices.Contains(m.names(), o.Name) {
			p.listed = &m
		}
	}
	return p, nil
}

// Account is what the machines of sessions are charged to.
func (p *Provider) Account() string { return p.o.Name }

func (p *Provider) machinesDir() string { return filepath.Join(p.o.Dir, "machines") }
func (p *Provider) endedDir() string    { return filepath.Join(p.o.Dir, "ended") }

// Pools implements session.Launcher. This machine is the only pool.
func (p *Provider) Pools(ctx context.Context, s *spec.Spec) ([]session.Pool, error) {
	_, pool, err := p.fits(ctx, s)
	if err != nil {
		return nil, err
	}
	return []session.Pool{pool}, nil
}

// fits says what each node of a specification gets of this machine. ErrUnsupported where it
// never has that much.
func (p *Provider) fits(ctx context.Context, s *spec.Spec) (size, session.Pool, error) {
	never := func(format string, args ...any) (size, session.Pool, error) {
		return size{}, session.Pool{}, fmt.Errorf("%s: %s: %w", p.o.Name, fmt.Sprintf(format, args...), session.ErrUnsupported)
	}
	r := s.Resources
	nodes := max(r.Nodes, 1)
	switch {
	case s.Capacity == spec.Spot:
		return never("this machine is not sold as spot capacity")
	case r.InstanceType != "" && r.InstanceType != CloudName:
		return never("it is no %s; name GPUs or CPUs", r.InstanceType)
	}
	cpus, memory := p.whole()
	var of size
	if r.GPUs > 0 {
		all, err := p.gpus(ctx)
		if err != nil {
			return size{}, session.Pool{}, err
		}
		have := p.ofModel(all, r.GPU)
		if len(have) < r.GPUs*nodes {
			return never("asked for %s of %s, and it has %d (%s, %s of memory, %s)", plain.Count(r.GPUs*nodes, "GPU"), r.GPU, len(have),
				plain.Count(cpus, "CPU"), plain.Size(memory<<20), models(all))
		}
		// CPUs and memory go with the GPUs, in equal parts.
		n, of64 := int64(r.GPUs), int64(len(all))
		of = size{GPU: named(p.o.Prices, r.GPU), GPUs: r.GPUs, MilliCPUs: cpus * 1000 * n / of64, MemoryMiB: memory * n / of64}
	} else {
		n := int64(r.CPUs)
		if n > cpus {
			return never("%d CPUs are asked for and it has %d", n, cpus)
		}
		n = cmp.Or(n, cpus)
		of = size{MilliCPUs: n * 1000, MemoryMiB: memory * n / cpus}
	}
	pool := session.Pool{Type: of.kind(), Zone: p.o.Name}
	if m := p.rates.meter(CloudName, of.resource()); m.Unpriced == "" {
		pool.Rate = &m.Price.Rate
	}
	return of, pool, nil
}

// kind is what stands for a machine type: "1xL4", "2xCPU".
func (s size) kind() string {
	if s.GPUs > 0 {
		return strconv.Itoa(s.GPUs) + "x" + s.GPU
	}
	return strconv.FormatInt(s.MilliCPUs/1000, 10) + "xCPU"
}

// whole is what this machine has of CPUs and of memory (MiB): as the configuration lists it,
// else as it is; memory 0 where neither tells.
func (p *Provider) whole() (cpus, memoryMiB int64) {
	cpus, memoryMiB = int64(runtime.NumCPU()), memoryOf()
	if p.listed != nil {
		cpus = cmp.Or(p.listed.VCPUs, cpus)
		memoryMiB = cmp.Or(p.listed.MemoryGiB*1024, memoryMiB)
	}
	return cpus, memoryMiB
}

// memoryOf reads the memory of this machine in MiB; 0 where the kernel does not tell.
func memoryOf() int64 {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemTotal:" && f[2] == "kB" {
			if kib, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				return kib / 1024
			}
		}
	}
	return 0
}

// lock keeps out others that launch or end machines here. It removes what a process left
// that died while it wrote or removed a folder.
func (p *Provider) lock(ctx context.Context) (unlock func(), err error) {
	for _, dir := range []string{p.machinesDir(), p.endedDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	var f *os.File
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		var busy bool
		if f, busy, err = held(filepath.Join(p.o.Dir, "lock")); !busy {
			break
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for another launch on this machine: %w", ctx.Err())
		case <-time.After(pause):
		}
	}
	if err != nil {
		return nil, fmt.Errorf("lock the machines of this computer: %w", err)
	}
	unlock = func() { _ = f.Close() }
	for _, dir := range []string{p.machinesDir(), p.endedDir()} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			unlock()
			return nil, err
		}
		for _, e := range entries {
			old := strings.HasPrefix(e.Name(), unfinished)
			if info, err := e.Info(); dir == p.endedDir() && err == nil && p.o.Now().Sub(info.ModTime()) > memory {
				old = true
			}
			if old && ctx.Err() == nil { // what cannot be removed keeps no one from a launch or an end
				if err := removeTree(ctx, filepath.Join(dir, e.Name()), nil); err != nil {
					p.o.Log.WarnContext(ctx, "an old folder is left", slog.String("folder", filepath.Join(dir, e.Name())), slog.String("why", err.Error()))
				}
			}
		}
	}
	return unlock, nil
}

// asked is the hash of what a launch asks for. A lease that was extended meanwhile, and the
// times that the configuration gives, make it no other launch.
func asked(l session.Launch) (string, error) {
	h := l.Host
	h.Lease, h.Every, h.Idle, h.Grace, h.Save, h.Limit, h.Node, h.GPUs = time.Time{}, 0, 0, 0, 0, 0, 0, nil
	b, err := json.Marshal(map[string]any{"session": l.Session.ID, "nodes": l.Nodes, "type": l.Pool.Type, "zone": l.Pool.Zone, "spec": l.Spec.Hash(), "host": h})
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), err
}

// identify names the machine of a node. The same token is the same name, whoever launches.
func identify(installation, token string, node int) string {
	sum := sha256.Sum256([]byte(installation + "\x00" + token))
	return "m-" + hex.EncodeToString(sum[:8]) + "-" + strconv.Itoa(node)
}

// Launch implements session.Launcher. All is written down before anything starts, and every
// process waits until its number is written down; so whatever dies at any point, a launch
// with the same token goes on where it ended.
func (p *Provider) Launch(ctx context.Context, l session.Launch) ([]session.Machine, error) {
	installation := l.Tags[inventory.TagInstallation]
	switch {
	case l.Token == "" || l.Session.ID == "" || installation == "":
		return nil, errors.New("launch on this machine: it needs a token, a session and the tag " + inventory.TagInstallation)
	case l.Nodes < 1 || l.Spec == nil:
		return nil, fmt.Errorf("launch %d machines: at least 1, with what they are for", l.Nodes)
	case len(p.o.Agent) == 0:
		return nil, errors.New("launch on this machine: no agent is configured")
	}
	hash, err := asked(l)
	if err != nil {
		return nil, err
	}
	own, err := p.other(l.Session.RunAs)
	if err != nil {
		return nil, fmt.Errorf("launch %s: %w: %w", l.Session.Name, err, session.ErrUnsupported)
	}
	unlock, err := p.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if old, err := p.remembered(installation, l.Token, hash); err != nil || old != nil {
		return old, err
	}
	all, err := p.machines()
	if err != nil {
		return nil, err
	}
	mine := slices.DeleteFunc(slices.Clone(all), func(m *machine) bool { return m.Installation != installation || m.Token != l.Token })
	begun := false
	for _, m := range mine {
		if m.Asked != hash {
			return nil, fmt.Errorf("launch %s: %w", l.Session.Name, session.ErrMismatch)
		}
		s, err := m.look()
		if err != nil {
			return nil, err
		}
		begun = begun || s.Started || s.State != inventory.StatePending
	}
	if len(mine) < l.Nodes && !begun {
		if mine, err = p.record(ctx, l, own, installation, hash, all, mine); err != nil {
			return nil, err
		}
	}
	out := make([]session.Machine, 0, len(mine))
	for _, m := range mine {
		state, err := p.start(ctx, m)
		if err != nil {
			return nil, fmt.Errorf("start machine %s: %w", m.ID, err)
		}
		out = append(out, m.shown(state))
	}
	return out, nil
}

// remembered returns the machines of a token that are gone.
func (p *Provider) remembered(installation, token, hash string) ([]session.Machine, error) {
	var old past
	there, err := readJSON(filepath.Join(p.endedDir(), identify(installation, token, 0)), &old)
	if err != nil || !there {
		return nil, err
	}
	if old.Asked != hash {
		return nil, fmt.Errorf("launch again: %w", session.ErrMismatch)
	}
	return old.Machines, nil
}

// record writes the folders of the machines of a launch that have none. They appear whole,
// and all or none.
func (p *Provider) record(ctx context.Context, l session.Launch, own *User, installation, hash string, all, mine []*machine) (_ []*machine, err error) {
	of, pool, err := p.fits(ctx, l.Spec)
	if err != nil {
		return nil, err
	}
	if !pool.Same(l.Pool) {
		return nil, fmt.Errorf("launch from %s: this machine is %s: %w", l.Pool, pool, session.ErrUnsupported)
	}
	found, err := Probe(ctx, p.o.Helper)
	if err != nil {
		return nil, err
	}
	if own != nil && found.Kind != Cgroup2 && found.Kind != Freezer {
		return nil, fmt.Errorf("launch %s as %s: it takes control groups, and they cannot be used here (version 2: %s; freezer of version 1: %s): %w", l.Session.Name, own.Name,
			found.Why[Cgroup2], found.Why[Freezer], session.ErrUnsupported)
	}
	p.o.Log.DebugContext(ctx, "the kind of cage is chosen", slog.String("kind", string(found.Kind)))
	var hardware, gpus []GPU
	if hardware, err = p.gpus(ctx); err != nil && of.GPUs > 0 {
		return nil, err
	}
	if of.GPUs > 0 {
		if gpus, err = p.available(all, p.ofModel(hardware, l.Spec.Resources.GPU)); err != nil {
			return nil, err
		}
	}
	have := map[int]bool{}
	for _, m := range mine {
		have[m.Node] = true
		gpus = slices.DeleteFunc(gpus, func(g GPU) bool { return slices.Contains(m.GPUs, g.ID) })
	}
	if short := of.GPUs*(l.Nodes-len(mine)) - len(gpus); short > 0 {
		return nil, fmt.Errorf("%s: %d more GPUs of %s are needed than are free: %w", p.o.Name, short, l.Spec.Resources.GPU, session.ErrCapacity)
	}
	var written []*machine
	defer func() {
		if err == nil {
			return
		}
		for _, m := range written {
			err = errors.Join(err, p.forget(ctx, m))
		}
	}()
	now := p.o.Now().UTC()
	for node := range l.Nodes {
		if have[node] {
			continue
		}
		m := &machine{record: record{ID: identify(installation, l.Token, node), Installation: installation, Session: l.Session.ID, Token: l.Token, Asked: hash,
			Node: node, Nodes: l.Nodes, Pool: pool, Tags: l.Tags, LeaseUntil: cmpTime(l.Session.LeaseUntil, l.Host.Lease).UTC(), LaunchedAt: now,
			Kind: found.Kind, Size: of, Agent: p.o.Agent, Helper: p.o.Helper, Limit: l.Host.EndLimit(), Limits: p.limits(of, own), User: own}}
		for _, g := range gpus[:of.GPUs] {
			m.GPUs = append(m.GPUs, g.ID)
		}
		gpus = gpus[of.GPUs:]
		if len(hardware) > 0 {
			visible := strings.Join(m.GPUs, ",")
			m.Visible = &visible
		}
		for _, g := range hardware {
			if g.Device != nil && !slices.Contains(m.GPUs, g.ID) {
				m.Deny = append(m.Deny, *g.Device)
			}
		}
		if err = p.write(ctx, m, l.Host); err != nil {
			return nil, fmt.Errorf("write down machine %s: %w", m.ID, err)
		}
		written = append(written, m)
		p.o.Log.DebugContext(ctx, "a machine is written down", slog.String("machine", m.ID))
	}
	mine = append(slices.Clone(mine), written...)
	slices.SortFunc(mine, func(a, b *machine) int { return a.Node - b.Node })
	return mine, nil
}

// cmpTime returns the first time that is set.
func cmpTime(times ...time.Time) time.Time {
	for _, t := range times {
		if !t.IsZero() {
			return t
		}
	}
	return time.Time{}
}

// available are GPUs that neither a machine of a session nor another process has.
func (p *Provider) available(all []*machine, of []GPU) ([]GPU, error) {
	given, ours := map[string]bool{}, map[int]bool{}
	for _, m := range all {
		s, err := m.look()
		if err != nil {
			return nil, err
		}
		if s.State == "" {
			continue
		}
		for _, id := range m.GPUs {
			given[id] = true
		}
		pids, err := m.processes()
		if err != nil {
			return nil, err
		}
		for _, pid := range pids {
			ours[pid] = true
		}
	}
	return free(of, given, ours), nil
}

// write makes a machine's folder, which appears whole, after that of its session where this is
// another user's.
func (p *Provider) write(ctx context.Context, m *machine, h session.Host) (err error) {
	tmp, err := os.MkdirTemp(p.machinesDir(), unfinished+"new-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(tmp))
		}
	}()
	m.dir = filepath.Join(p.machinesDir(), m.ID)
	h.Node, h.GPUs, h.Machine = m.Node, m.GPUs, false
	if h.Control == "" {
		h.Control = "file://" + m.path("control")
	}
	m.Control = h.Control
	if m.User != nil {
		if err := p.writeOwn(ctx, m, h); err != nil {
			return err
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, removeTree(ctx, m.own().path(""), m.User))
			}
		}()
	}
	if err := errors.Join(writeJSON(filepath.Join(tmp, recordFile), m.record), writeJSON(filepath.Join(tmp, hostFile), h)); err != nil {
		return err
	}
	return os.Rename(tmp, m.dir)
}

// writeOwn makes the folder of the files of a machine whose processes are another user's.
func (p *Provider) writeOwn(ctx context.Context, m *machine, h session.Host) error {
	base, err := p.sessionsDir()
	if err != nil {
		return fmt.Errorf("launch as %s: %w", m.User.Name, err)
	}
	m.Own = base
	b, err := json.MarshalIndent(h, "", " ")
	if err != nil {
		return err
	}
	all := tree{base: base, own: m.User}
	if err := errors.Join(all.mkdir(m.Session), all.mkdir("work-"+m.User.Name)); err != nil {
		return err
	}
	if err := errors.Join(all.below(m.Session).mkdir(controlName), all.below(m.Session).mkdir(m.ID), m.own().mkdir(HomeDir)); err != nil {
		return err
	}
	return m.own().write(ctx, hostFile, b)
}

// forget removes a machine's folder. It is gone at once; what is left of it when this process
// dies, or cannot be removed in time, is removed later.
func (p *Provider) forget(ctx context.Context, m *machine) error {
	if m.User != nil {
		if err := removeTree(ctx, m.own().path(""), m.User); err != nil {
			p.o.Log.WarnContext(ctx, "the files of a session are left", slog.String("folder", m.own().path("")), slog.String("why", err.Error()))
		}
	}
	away := filepath.Join(p.machinesDir(), unfinished+"old-"+m.ID)
	if err := removeTree(ctx, away, nil); err != nil {
		return err
	}
	if err := os.Rename(m.dir, away); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := removeTree(ctx, away, nil); err != nil {
		p.o.Log.WarnContext(ctx, "an old folder is left", slog.String("folder", away), slog.String("why", err.Error()))
	}
	return nil
}

// Find implements session.Launcher. A machine is found until nothing of it runs any more.
func (p *Provider) Find(_ context.Context, installation, sessionID string) ([]session.Found, error) {
	all, err := p.machines()
	if err != nil {
		return nil, err
	}
	var out []session.Found
	for _, m := range all {
		if m.Installation != installation || sessionID != "" && m.Session != sessionID {
			continue
		}
		s, err := m.look()
		if err != nil {
			return nil, err
		}
		if s.State != "" {
			out = append(out, session.Found{Machine: m.shown(s.State), Session: m.Session, Token: m.Token, LeaseUntil: m.LeaseUntil, Owner: p.o.Tags.Owner(m.Tags),
				Unstarted: s.State == inventory.StatePending && !s.Watcher.Alive()})
		}
	}
	return out, nil
}

// End implements session.Launcher. The agent is told to end and has its grace; then it is
// killed, and all of its cage with it.
func (p *Provider) End(ctx context.Context, sessionID string, ids []string) error {
	unlock, err := p.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	all, err := p.machines()
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range ids {
		i := slices.IndexFunc(all, func(m *machine) bool { return m.ID == id })
		switch {
		case i < 0: // it is gone
		case all[i].Session != sessionID:
			errs = append(errs, fmt.Errorf("end %s: it is a machine of another session", id))
		default:
			if err := p.end(ctx, all[i]); err != nil {
				errs = append(errs, fmt.Errorf("end %s: %w", id, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Leftovers implements session.Launcher: folders and control groups.
func (p *Provider) Leftovers(ctx context.Context, installation, sessionID string) ([]string, error) {
	unlock, err := p.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	all, err := p.machines()
	if err != nil {
		return nil, err
	}
	mine := slices.DeleteFunc(all, func(m *machine) bool { return m.Installation != installation || m.Session != sessionID })
	var left []string
	for _, m := range mine {
		if s, err := m.look(); err != nil {
			return nil, err
		} else if s.State != "" {
			left = append(left, "machine "+m.ID)
		}
	}
	if len(left) > 0 {
		return left, nil
	}
	for _, m := range mine {
		if err := p.remember(m, mine); err != nil && ctx.Err() == nil {
			p.o.Log.DebugContext(ctx, "the token is not remembered", slog.String("why", err.Error())) // a full disk must not keep its folder
		}
	}
	for _, m := range mine {
		if err := p.clear(ctx, m); err != nil {
			left = append(left, fmt.Sprintf("folder of machine %s (%v)", m.ID, err))
			continue
		}
		p.o.Log.DebugContext(ctx, "a machine is cleared away", slog.String("machine", m.ID))
	}
	if len(left) == 0 && sessionID != "" && sessionID == filepath.Base(sessionID) {
		if err := os.Remove(p.orderPath(sessionID)); err != nil && !errors.Is(err, os.ErrNotExist) {
			left = append(left, err.Error())
		}
		for _, m := range mine {
			if m.User == nil {
				continue
			}
			if err := removeTree(ctx, filepath.Join(m.Own, sessionID), m.User); err != nil { // its user may still fill it
				p.o.Log.WarnContext(ctx, "the folder of a session is left", slog.String("folder", filepath.Join(m.Own, sessionID)), slog.String("why", err.Error()))
			}
		}
	}
	return left, nil
}

// remember keeps what a token launched.
func (p *Provider) remember(m *machine, all []*machine) error {
	old := past{Asked: m.Asked}
	for _, o := range all {
		if o.Token == m.Token {
			old.Machines = append(old.Machines, o.shown(inventory.StateDeleting))
		}
	}
	return writeJSON(filepath.Join(p.endedDir(), identify(m.Installation, m.Token, 0)), old)
}

// clear removes what is left of a machine that is gone.
func (p *Provider) clear(ctx context.Context, m *machine) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	c, err := OpenCage(m.dir)
	if err == nil {
		err = errors.Join(c.KillAll(ctx), c.Remove(ctx))
	} else if errors.Is(err, ErrNoCage) {
		err = nil
	}
	if err != nil {
		return err
	}
	if m.unsaved(ctx) {
		return p.rescue(ctx, m)
	}
	return p.forget(ctx, m)
}

// HomeDir is the folder of a machine's files that its session writes.
const HomeDir = "home"

// unsaved says whether a machine has files of its session and ended with no one having said
// that they are saved, or given up: the computer was shut down, or all was killed.
func (m *machine) unsaved(ctx context.Context) bool {
	if _, err := os.Lstat(m.path(rescueFile)); err == nil {
		return m.own().hasEntries(HomeDir)
	}
	if asked, err := readJSON(m.path(endingFile), &ending{}); err != nil || asked {
		return false
	}
	if s, known := m.said(ctx); known && s.Phase == session.HostEnding {
		return false
	}
	return m.own().hasEntries(HomeDir)
}

// aside is the tree, and the name in it, of the files of a machine that are put aside.
func (p *Provider) aside(m *machine) (tree, string) {
	if m.User != nil {
		return tree{base: m.Own}, "unsaved-" + m.ID
	}
	return tree{base: filepath.Join(p.o.Dir, "unsaved")}, m.ID
}

// rescue puts the files of a session aside that may not be saved. A person decides about
// them; nothing removes them.
func (p *Provider) rescue(ctx context.Context, m *machine) error {
	to, name := p.aside(m)
	if m.User == nil {
		if err := os.MkdirAll(to.base, 0o700); err != nil {
			return err
		}
	}
	if err := m.own().move(HomeDir, to, name); err != nil {
		return fmt.Errorf("put the files of session %s aside: %w", m.Session, err)
	}
	p.o.Log.WarnContext(ctx, "a session's machine ended without a last snapshot; its files are kept", slog.String("session", m.Session), slog.String("folder", to.path(name)))
	return p.forget(ctx, m)
}

// Rescue implements session.Rescuer.
func (p *Provider) Rescue(ctx context.Context, sessionID string, ids []string) (string, error) {
	unlock, err := p.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	all, err := p.machines()
	if err != nil {
		return "", err
	}
	var where []string
	for _, m := range all {
		if m.Session != sessionID || !slices.Contains(ids, m.ID) {
			continue
		}
		if err := writeJSON(m.path(rescueFile), ending{p.o.Now().UTC()}); err != nil {
			return "", err
		}
		to, name := p.aside(m)
		where = append(where, to.path(name))
	}
	return strings.Join(where, ", "), nil
}

// charged is what an hour of all machines of sessions costs that have a price.
func (p *Provider) charged() (money.Amount, error) {
	all, err := p.machines()
	if err != nil {
		return 0, err
	}
	var total money.Amount
	for _, m := range all {
		s, err := m.look()
		if err != nil {
			return 0, err
		}
		hour, unpriced := p.rates.hour(m.Size.resource())
		if s.State == "" || unpriced != nil {
			continue
		}
		if total, err = total.Add(hour); err != nil {
			return 0, err
		}
	}
	return total, nil
}

// rate is what an hour of a machine costs.
func (p *Provider) rate(m *machine) inventory.Meter {
	return p.rates.meter(CloudName, m.Size.resource())
}

// newTariff reads rates, with GPUs by the names that the book has for them. A mistake is a
// *FieldError.
func newTariff(book *price.Book, r Rates) (tariff, error) {
	rates, err := r.parse()
	if err != nil {
		return tariff{}, fmt.Errorf("rates%w", err)
	}
	known := make(map[string]money.Amount, len(rates.gpu))
	for name, v := range rates.gpu {
		own := canonical(book, name)
		if other, twice := known[own]; twice && other != v {
			return tariff{}, fmt.Errorf("rates%w", &FieldError{Field: ".gpu_hour", Message: fmt.Sprintf("%s has two prices, %s and %s, under two of its names", own, min(v, other), max(v, other))})
		}
		known[own] = v
	}
	rates.gpu = known
	return rates, nil
}
