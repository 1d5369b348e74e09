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
	_ session.Launcher      = (*Provider)(nil)
	_ session.FilePreserver = (*Provider)(nil)
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
		return nil, &FieldError{
			Field: ".name", Message: fmt.Sprintf("%q is not a host name: letters, digits, '.', '_' and '-'", o.Name),
		}
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
		return size{}, session.Pool{}, fmt.Errorf("%s: %s: %w", p.o.Name, fmt.Sprintf(format, args...),
			session.ErrUnsupported)
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
			return never("asked for %s of %s, and it has %d (%s, %s of memory, %s)", plain.Count(r.GPUs*nodes, "GPU"), r.GPU,
				len(have),
				plain.Count(cpus, "CPU"), plain.Size(memory<<20), models(all))
		}
		// CPUs and memory go with the GPUs, in equal parts.
		n, of64 := int64(r.GPUs), int64(len(all))
		of = size{
			GPU: named(p.o.Prices, r.GPU), GPUs: r.GPUs, MilliCPUs: cpus * 1000 * n / of64, MemoryMiB: memory * n / of64,
		}
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
					p.o.Log.WarnContext(ctx, "an old folder is left", slog.String("folder", filepath.Join(dir, e.Name())),
						slog.String("why", err.Error()))
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
	h.LeaseUntil, h.SaveInterval, h.IdleTimeout, h.Grace, h.SaveLimit, h.EndTimeout, h.Node, h.GPUs = time.Time{}, 0, 0,
		0, 0, 0, 0, nil
	b, err := json.Marshal(map[string]any{
		"session": l.Session.ID, "nodes": l.Nodes, "type": l.Pool.Type, "zone": l.Pool.Zone, "spec": l.Spec.Hash(),
		"host": h,
	})
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
		return nil, errors.New("launch on this machine: it needs a token, a session and the tag " +
			inventory.TagInstallation)
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
	mine := slices.DeleteFunc(slices.Clone(all), func(m *machine) bool {
		return m.Installation != installation || m.Token != l.Token
	})
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
func (p *Provider) record(ctx context.Context, l session.Launch, own *User, installation, hash string, all,
	mine []*machine) (_ []*machine, err error) {
	of, pool, err := p.fits(ctx, l.Spec)
	if err != nil {
		return nil, err
	}
	if !pool.SamePlace(l.Pool) {
		return nil, fmt.Errorf("launch from %s: this machine is %s: %w", l.Pool, pool, session.ErrUnsupported)
	}
	found, err := Probe(ctx, p.o.Helper)
	if err != nil {
		return nil, err
	}
	if own != nil && found.Kind != Cgroup2 && found.Kind != Freezer {
		return nil, fmt.Errorf("launch %s as %s: it takes control groups, and they cannot be used here (version 2: %s; "+
			"freezer of version 1: %s): %w", l.Session.Name, own.Name,
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
		return nil, fmt.Errorf("%s: %d more GPUs of %s are needed than are free: %w", p.o.Name, short, l.Spec.Resources.GPU,
			session.ErrCapacity)
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
		m := &machine{
			record: record{
				ID: identify(installation, l.Token, node), Installation: installation, Session: l.Session.ID, Token: l.Token,
				Asked: hash,
				Node:  node, Nodes: l.Nodes, Pool: pool, Tags: l.Tags,
				LeaseUntil: cmpTime(l.Session.LeaseUntil, l.Host.LeaseUntil).UTC(), LaunchedAt: now,
				Kind: found.Kind, Size: of, Agent: p.o.Agent, Helper: p.o.Helper, Limit: l.Host.EndLimit(),
				Limits: p.limits(of, own), User: own}}
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
func (p *Provider) write(ctx context.Context, m *machine, h session.HostConfig) (err error) {
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
	h.Node, h.GPUs, h.WholeMachine = m.Node, m.GPUs, false
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
	if err := errors.Join(writeJSON(filepath.Join(tmp, recordFile), m.record),
		writeJSON(filepath.Join(tmp, hostFile), h)); err != nil {
		return err
	}
	return os.Rename(tmp, m.dir)
}

// writeOwn makes the folder of the files of a machine whose processes are another user's.
func (p *Provider) writeOwn(ctx context.Context, m *machine, h session.HostConfig) error {
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
	if err := errors.Join(all.below(m.Session).mkdir(controlName), all.below(m.Session).mkdir(m.ID),
		m.own().mkdir(HomeDir)); err != nil {
		return err
	}
	return m.own().write(ctx, hostFile, b)
}

// forget removes a machine's folder. It is gone at once; what is left of it when this process
// dies, or cannot be removed in time, is removed later.
func (p *Provider) forget(ctx context.Context, m *machine) error {
	if m.User != nil {
		if err := removeTree(ctx, m.own().path(""), m.User); err != nil {
			p.o.Log.WarnContext(ctx, "the files of a session are left", slog.String("folder", m.own().path("")),
				slog.String("why", err.Error()))
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
