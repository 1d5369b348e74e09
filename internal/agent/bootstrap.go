package agent

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/curfew-dev/curfew/internal/durable"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/session"
)

// step is one step of the set-up. What it did is marked when it is done, so that it is not
// done again, and doing it twice is as good as once, because the process may die before the
// mark.
type step struct {
	name string
	// always says that each process does it again: what it does ends with the process or
	// the machine's boot.
	always bool
	run    func(ctx context.Context) (skipped string, err error)
}

// bootstrap sets a machine up.
type bootstrap struct {
	o     *Options
	limit time.Duration
	disk  *disk
	dir   string // the work folder
	work  *saver
	// view and update read and write the state, say records an event and print a line of
	// output; peers are the addresses that the keeper knows.
	view   func() state
	update func(func(*state)) error
	say    func(kind, text string)
	print  func(line string)
	peers  func() []string

	mu      sync.Mutex
	secrets map[string]string
	read    time.Time // when the secrets were read
}

func (b *bootstrap) steps() []step {
	return []step{
		{"driver", false, b.driverStep},
		{"work", false, b.workStep},
		{"nodes", true, b.nodesStep},
		{"secrets", true, b.secretsStep},
		{"data", true, b.dataStep},
		{"jupyter", true, b.jupyterStep},
		{"setup", false, b.setupStep},
	}
}

// run does what is not done yet.
func (b *bootstrap) run(ctx context.Context) error {
	steps := b.steps()
	if err := b.update(func(s *state) {
		for _, st := range steps {
			if !slices.ContainsFunc(s.Steps, func(n session.SetupStep) bool { return n.Name == st.name }) {
				s.Steps = append(s.Steps, session.SetupStep{Name: st.name, State: "waiting"})
			}
		}
	}); err != nil {
		return err
	}
	for _, st := range steps {
		if err := b.step(ctx, st); err != nil {
			return fmt.Errorf("%s: %w", st.name, err)
		}
	}
	return nil
}

func (b *bootstrap) step(ctx context.Context, st step) error {
	mark := func(set func(*session.SetupStep)) error {
		return b.update(func(s *state) {
			for i := range s.Steps {
				if s.Steps[i].Name == st.name {
					set(&s.Steps[i])
				}
			}
		})
	}
	done := false
	for _, n := range b.view().Steps {
		done = done || n.Name == st.name && (n.State == "done" || n.State == "skipped")
	}
	if done && !st.always {
		return nil
	}
	if !done {
		if err := mark(func(n *session.SetupStep) { n.State, n.StartedAt, n.Why = "running", b.o.Now().UTC(), "" }); err != nil {
			return err
		}
		b.say("step", session.StepRunning(st.name))
	}
	limited, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	skipped, err := st.run(limited)
	if ctx.Err() != nil {
		return ctx.Err() // the process ends; the next one goes on
	}
	if err != nil && limited.Err() != nil {
		err = fmt.Errorf("it took longer than %s: %w", plain.Duration(b.limit), err)
	}
	if err != nil {
		b.say("step", st.name+": failed: "+err.Error())
		return errors.Join(err, mark(func(n *session.SetupStep) {
			n.State, n.FinishedAt, n.Why = "failed", b.o.Now().UTC(), err.Error()
		}))
	}
	if done {
		return nil
	}
	end := "done"
	if skipped != "" {
		end = "skipped"
		b.say("skipped", st.name+": "+skipped)
	} else {
		b.say("step", st.name+": done")
	}
	return mark(func(n *session.SetupStep) { n.State, n.FinishedAt, n.Why = end, b.o.Now().UTC(), skipped })
}

// workStep restores the work folder.
func (b *bootstrap) workStep(ctx context.Context) (string, error) {
	cutOff := b.view().Restoring
	if !cutOff {
		entries, err := os.ReadDir(b.dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("read the work folder: %w", err)
		}
		// From here on what is in the folder is of the restore, and is replaced where it is
		// cut off.
		if len(entries) == 0 {
			if err := b.update(func(s *state) { s.Restoring = true }); err != nil {
				return "", err
			}
		}
	}
	snapshot, said, err := b.work.restore(ctx, cutOff)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return "", fmt.Errorf("make the work folder: %w", err)
	}
	if said != "" {
		b.say("step", said)
	}
	return "", b.update(func(s *state) {
		s.Restoring = false
		if snapshot.Manifest != "" {
			s.Snapshot = snapshot
		}
	})
}

// nodesStep waits for the addresses of all nodes, and writes what torchrun and MPI need.
func (b *bootstrap) nodesStep(ctx context.Context) (string, error) {
	h := &b.o.Host
	peers := []string{"127.0.0.1"}
	if h.Nodes > 1 {
		for {
			peers = b.peers()
			if len(peers) == h.Nodes && !slices.Contains(peers, "") {
				break
			}
			if err := pause(ctx, 100*time.Millisecond); err != nil {
				return "", fmt.Errorf("wait for the addresses of %d nodes: %w", h.Nodes, err)
			}
		}
	}
	slots := max(1, len(h.GPUs))
	if hasGPUs(b.o) && len(h.GPUs) == 0 {
		if all, err := b.o.GPUs.Read(ctx); err == nil {
			slots = max(1, len(all))
		}
	}
	var hosts, env strings.Builder
	for _, p := range peers {
		fmt.Fprintf(&hosts, "%s slots=%d\n", p, slots)
	}
	if err := durable.ReplaceBytes(b.disk.path("hostfile"), 0o644, []byte(hosts.String())); err != nil {
		return "", fmt.Errorf("write the hostfile: %w", err)
	}
	if err := b.update(func(s *state) { s.Slots, s.Master = slots, peers[0] }); err != nil {
		return "", err
	}
	for _, v := range b.nodeEnv() {
		name, value, _ := strings.Cut(v, "=")
		fmt.Fprintf(&env, "export %s=%s\n", name, plain.Shell(value))
	}
	if err := durable.ReplaceBytes(b.disk.path("environment"), 0o644, []byte(env.String())); err != nil {
		return "", fmt.Errorf("write the environment: %w", err)
	}
	if h.Nodes <= 1 {
		return "the session has one node", nil
	}
	return "", nil
}

// nodeEnv are the variables of a node: PET_… are the defaults of torchrun's flags, OMPI_… and
// PRTE_… name the hostfile for Open MPI 4 and 5.
func (b *bootstrap) nodeEnv() []string {
	h, s := &b.o.Host, b.view()
	env := []string{
		"CURFEW_SESSION=" + h.Name, "CURFEW_NODE=" + strconv.Itoa(h.Node), "CURFEW_NODES=" + strconv.Itoa(max(1, h.Nodes)),
		"CURFEW_HOSTFILE=" + b.disk.path("hostfile"), "CURFEW_WORK=" + b.dir,
	}
	if len(h.Secrets) > 0 {
		env = append(env, "CURFEW_SECRETS="+b.secretsFile())
	}
	if len(h.GPUs) > 0 {
		env = append(env, "CUDA_VISIBLE_DEVICES="+strings.Join(h.GPUs, ","))
	}
	if h.Nodes > 1 && s.Master != "" {
		// One port for all nodes, and another for another session on the same machines.
		sum := fnv.New32a()
		_, _ = io.WriteString(sum, h.Session) // a hash takes all
		port := strconv.Itoa(29500 + int(sum.Sum32()%500))
		node, nodes, slots := strconv.Itoa(h.Node), strconv.Itoa(h.Nodes), strconv.Itoa(s.Slots)
		env = append(env, "MASTER_ADDR="+s.Master, "MASTER_PORT="+port, "NODE_RANK="+node, "NNODES="+nodes,
			"PET_MASTER_ADDR="+s.Master, "PET_MASTER_PORT="+port, "PET_NODE_RANK="+node, "PET_NNODES="+nodes,
			"PET_NPROC_PER_NODE="+slots,
			"OMPI_MCA_orte_default_hostfile="+b.disk.path("hostfile"),
			"PRTE_MCA_prte_default_hostfile="+b.disk.path("hostfile"))
	}
	return env
}

// environ is the environment of what runs in the session, the secrets left out.
func (b *bootstrap) environ() []string {
	env := slices.Clone(b.o.Environ)
	env = append(env, b.nodeEnv()...)
	for name, value := range b.o.Host.Env {
		env = append(env, name+"="+value)
	}
	return env
}

// secretsAge is how old secrets may be when they are used.
const secretsAge = 5 * time.Minute

func (b *bootstrap) secretsFile() string {
	return filepath.Join(b.o.Memory, fmt.Sprintf("curfew-%s-%d", b.o.Host.Session, b.o.Host.Node), "secrets.env")
}

// secretsStep reads the secrets into a file in memory that only the user can read. They are
// on no disk: another process reads them again.
func (b *bootstrap) secretsStep(ctx context.Context) (string, error) {
	if len(b.o.Host.Secrets) == 0 {
		return "the session names none", nil
	}
	return "", b.refresh(ctx)
}

// refresh reads the secrets again.
func (b *bootstrap) refresh(ctx context.Context) error {
	h := &b.o.Host
	switch {
	case b.o.Parameters == nil:
		return errors.New("the session names secrets, and this machine has no parameter store")
	case b.o.Memory == "" || !inMemory(b.o.Memory):
		return fmt.Errorf(
			"the session names secrets, and %q is no folder in memory (tmpfs): secrets are not written to disks", b.o.Memory)
	}
	values := map[string]string{}
	var text strings.Builder
	names := make([]string, 0, len(h.Secrets))
	for name := range h.Secrets {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		value, err := b.o.Parameters.Parameter(ctx, h.Secrets[name])
		if err != nil {
			return fmt.Errorf("read %s for %s: %w", h.Secrets[name], name, err)
		}
		values[name] = value
		fmt.Fprintf(&text, "export %s=%s\n", name, plain.Shell(value))
	}
	dir := filepath.Dir(b.secretsFile())
	if err := ownFolder(dir); err != nil {
		return fmt.Errorf("make the folder of the secrets: %w", err)
	}
	if err := durable.ReplaceBytes(b.secretsFile(), 0o600, []byte(text.String())); err != nil {
		return fmt.Errorf("write the secrets: %w", err)
	}
	b.mu.Lock()
	b.secrets, b.read = values, b.o.Now()
	b.mu.Unlock()
	return nil
}

// ownFolder makes a folder below one that everyone can write. Where another user was faster, it is
// not used.
func ownFolder(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	i, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if s, ok := i.Sys().(*syscall.Stat_t); !i.IsDir() || i.Mode().Perm()&0o077 != 0 || ok && int(s.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not a folder of this user alone", dir)
	}
	return nil
}

// keepFresh reads the secrets again before they are too old, until the context ends.
func (b *bootstrap) keepFresh(ctx context.Context) {
	if len(b.o.Host.Secrets) == 0 {
		return
	}
	told := ""
	for pause(ctx, secretsAge*4/5) == nil {
		said := ""
		if err := b.refresh(ctx); err != nil && ctx.Err() == nil {
			said = "the secrets are not read again: " + err.Error()
			// What is too old is not used.
			b.mu.Lock()
			old := b.o.Now().Sub(b.read) >= secretsAge
			b.mu.Unlock()
			if old {
				_ = os.Remove(b.secretsFile())
			}
		}
		if said != "" && said != told {
			b.say("step", said)
		}
		told = said
	}
}

// forget removes the secrets.
func (b *bootstrap) forget() {
	if len(b.o.Host.Secrets) > 0 && b.o.Memory != "" {
		_ = os.RemoveAll(filepath.Dir(b.secretsFile())) // memory goes with the machine
	}
}

// withSecrets is the environment with secrets that are fresh.
func (b *bootstrap) withSecrets(ctx context.Context) ([]string, error) {
	env := b.environ()
	if len(b.o.Host.Secrets) == 0 {
		return env, nil
	}
	b.mu.Lock()
	old := b.read.IsZero() || b.o.Now().Sub(b.read) >= secretsAge
	b.mu.Unlock()
	if old {
		if err := b.refresh(ctx); err != nil {
			return nil, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, value := range b.secrets {
		env = append(env, name+"="+value)
	}
	return env, nil
}

// dataStep brings the datasets, each to ~/data under the last name of its address.
func (b *bootstrap) dataStep(ctx context.Context) (string, error) {
	if len(b.o.Host.Data) == 0 {
		return "the session names none", nil
	}
	if b.o.Datasets == nil {
		return "", errors.New("the session names data, and this machine cannot fetch any")
	}
	used := map[string]string{}
	for _, from := range b.o.Host.Data {
		name := path.Base(strings.TrimRight(from, "/"))
		if other, taken := used[name]; taken {
			return "", fmt.Errorf("%s and %s would both be data/%s: rename one of them", other, from, name)
		}
		used[name] = from
		dir := filepath.Join(b.o.Home, "data", name)
		if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
			return "", err
		}
		if err := b.o.Datasets.Fetch(ctx, from, dir); err != nil {
			return "", fmt.Errorf("fetch %s: %w", from, err)
		}
		b.say("step", "data: "+from+" is at "+dir)
	}
	return "", nil
}

// jupyterPort is the port that asks for Jupyter.
const jupyterPort = 8888

// jupyterStep starts Jupyter on the loopback where it is installed and asked for by its port.
func (b *bootstrap) jupyterStep(ctx context.Context) (string, error) {
	if !slices.Contains(b.o.Host.Ports, jupyterPort) {
		return "port 8888 is not asked for", nil
	}
	env, err := b.withSecrets(ctx)
	if err != nil {
		return "", err
	}
	at, err := lookPath("jupyter", env)
	if err != nil {
		return "it is not installed", nil
	}
	s := b.view()
	if s.Jupyter.PID != 0 && alive(s.Jupyter.PID, s.Jupyter.Began) {
		return "", nil
	}
	var token [16]byte
	_, _ = rand.Read(token[:]) // it never fails
	text := hex.EncodeToString(token[:])
	if err := durable.ReplaceBytes(b.disk.path("jupyter-token"), 0o600, []byte(text)); err != nil {
		return "", err
	}
	// The token is in the environment and not in the arguments, which every user can see.
	//nolint:noctx // it outlives the agent
	c := exec.Command(at, "lab", "--no-browser", "--ip=127.0.0.1", "--port="+strconv.Itoa(jupyterPort),
		"--ServerApp.port_retries=0")
	c.Env = append(env, "JUPYTER_TOKEN="+text)
	c.Dir = b.dir
	out, err := os.OpenFile(b.disk.path("jupyter.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return "", err
	}
	defer out.Close()
	c.Stdout, c.Stderr, c.SysProcAttr = out, out, &syscall.SysProcAttr{Setsid: true}
	if err := b.o.Cage.Start(ctx, c); err != nil {
		return "", fmt.Errorf("start Jupyter: %w", err)
	}
	go func() { _ = c.Wait() }() // it is reaped, whatever it ends with
	p, err := readProcess(c.Process.Pid)
	if err != nil {
		return "", fmt.Errorf("start Jupyter: it ended at once: see %s", b.disk.path("jupyter.log"))
	}
	b.say("step", "jupyter: listens on 127.0.0.1:8888; its token is in "+b.disk.path("jupyter-token"))
	return "", b.update(func(s *state) { s.Jupyter = running{p.pid, p.began} })
}

// lookPath finds a program on the PATH of an environment.
func lookPath(name string, env []string) (string, error) {
	for _, v := range slices.Backward(env) {
		dirs, is := strings.CutPrefix(v, "PATH=")
		if !is {
			continue
		}
		for _, dir := range filepath.SplitList(dirs) {
			at := filepath.Join(dir, name)
			if i, err := os.Stat(at); err == nil && i.Mode().IsRegular() && i.Mode()&0o111 != 0 {
				return at, nil
			}
		}
		break
	}
	return "", fmt.Errorf("%s: %w", name, exec.ErrNotFound)
}
