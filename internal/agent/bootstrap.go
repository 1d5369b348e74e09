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
	"github.com/curfew-dev/curfew/internal/wait"
)

// bootstrapStep is one step of the setup. Steps are idempotent, because the process may crash
// between a step and the record that it is done.
type bootstrapStep struct {
	name string
	// everyProcess marks steps whose effect ends with the process or the boot, so that each process
	// repeats them.
	everyProcess bool
	run          func(ctx context.Context) (skipped string, err error)
}

// bootstrap sets the machine up.
type bootstrap struct {
	options     *Options
	stepTimeout time.Duration
	// commandInterval is the time between looks at the command.
	commandInterval time.Duration
	folder          *stateFolder
	workDir         string // the work folder
	saver           *saver
	// readState and updateState access the state, addEvent and printLine write to the journal, and
	// peers returns the node addresses known to the keeper.
	readState   func() state
	updateState func(func(*state)) error
	addEvent    func(kind, text string)
	printLine   func(line string)
	peers       func() []string

	mu            sync.Mutex
	secrets       map[string]string
	secretsReadAt time.Time // when the secrets were read
}

func (b *bootstrap) steps() []bootstrapStep {
	all := []bootstrapStep{
		{"driver", false, b.driverStep},
		{"work", false, b.workStep},
		{"nodes", true, b.nodesStep},
		{"secrets", true, b.secretsStep},
		{"data", true, b.dataStep},
		{"jupyter", true, b.jupyterStep},
		{"setup", false, b.setupStep},
	}
	if b.options.Host.Command != nil {
		all = slices.Insert(all, len(all)-1, bootstrapStep{"code", false, b.codeStep})
		if b.options.Host.Command.Held {
			all = slices.Insert(all, 0, bootstrapStep{"turn", false, b.turnStep})
		}
	}
	return all
}

// run runs the steps that are not done.
func (b *bootstrap) run(ctx context.Context) error {
	steps := b.steps()
	if err := b.updateState(func(s *state) {
		for _, st := range steps {
			if !slices.ContainsFunc(s.Steps, func(n session.SetupStep) bool { return n.Name == st.name }) {
				s.Steps = append(s.Steps, session.SetupStep{Name: st.name, State: "waiting"})
			}
		}
	}); err != nil {
		return err
	}
	for _, st := range steps {
		if err := b.runStep(ctx, st); err != nil {
			return fmt.Errorf("%s: %w", st.name, err)
		}
	}
	return nil
}

func (b *bootstrap) runStep(ctx context.Context, st bootstrapStep) error {
	mark := func(set func(*session.SetupStep)) error {
		return b.updateState(func(s *state) {
			for i := range s.Steps {
				if s.Steps[i].Name == st.name {
					set(&s.Steps[i])
				}
			}
		})
	}
	done := false
	for _, n := range b.readState().Steps {
		done = done || n.Name == st.name && (n.State == "done" || n.State == "skipped")
	}
	if done && !st.everyProcess {
		return nil
	}
	if !done {
		err := mark(func(n *session.SetupStep) { n.State, n.StartedAt, n.Why = "running", b.options.Now().UTC(), "" })
		if err != nil {
			return err
		}
		b.addEvent("step", session.StepRunning(st.name))
	}
	limited, cancel := context.WithTimeout(ctx, b.stepTimeout)
	defer cancel()
	skipped, err := st.run(limited)
	if ctx.Err() != nil {
		return ctx.Err() // the next process continues
	}
	if err != nil && limited.Err() != nil {
		err = fmt.Errorf("it took longer than %s: %w", plain.Duration(b.stepTimeout), err)
	}
	if err != nil {
		b.addEvent("step", st.name+": failed: "+err.Error())
		return errors.Join(err, mark(func(n *session.SetupStep) {
			n.State, n.FinishedAt, n.Why = "failed", b.options.Now().UTC(), err.Error()
		}))
	}
	if done {
		return nil
	}
	end := "done"
	if skipped != "" {
		end = "skipped"
		b.addEvent("skipped", st.name+": "+skipped)
	} else {
		b.addEvent("step", st.name+": done")
	}
	return mark(func(n *session.SetupStep) { n.State, n.FinishedAt, n.Why = end, b.options.Now().UTC(), skipped })
}

// turnStep waits for the end of the attempt before, whose last snapshot is restored.
func (b *bootstrap) turnStep(ctx context.Context) (string, error) {
	for {
		if o := b.readState().Order; o.Serial > 0 && !o.Held {
			return "", nil
		}
		if err := wait.For(ctx, 100*time.Millisecond); err != nil {
			return "", fmt.Errorf("wait for the end of the attempt before: %w", err)
		}
	}
}

// workStep restores the work folder.
func (b *bootstrap) workStep(ctx context.Context) (string, error) {
	interrupted := b.readState().Restoring
	if !interrupted {
		entries, err := os.ReadDir(b.saver.dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("read the work folder: %w", err)
		}
		// From here on the folder's content comes from the restore, and an interrupted restore may
		// replace it.
		if len(entries) == 0 {
			if err := b.updateState(func(s *state) { s.Restoring = true }); err != nil {
				return "", err
			}
		}
	}
	snapshot, message, err := b.saver.restore(ctx, interrupted)
	if err != nil {
		return "", err
	}
	for _, dir := range []string{b.workDir, b.saver.dir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return "", fmt.Errorf("make the work folder: %w", err)
		}
	}
	if message != "" {
		b.addEvent("step", message)
	}
	return "", b.updateState(func(s *state) {
		s.Restoring = false
		s.SavedSteps, s.Left = b.saver.restoredSteps, b.saver.left
		if snapshot.Manifest != "" {
			s.Snapshot, s.Restored = snapshot, snapshot
		}
	})
}

// nodesStep waits for the addresses of all nodes and writes the files that torchrun and MPI need.
func (b *bootstrap) nodesStep(ctx context.Context) (string, error) {
	h := &b.options.Host
	peers := []string{"127.0.0.1"}
	if h.Nodes > 1 {
		for {
			peers = b.peers()
			if len(peers) == h.Nodes && !slices.Contains(peers, "") {
				break
			}
			if err := wait.For(ctx, 100*time.Millisecond); err != nil {
				return "", fmt.Errorf("wait for the addresses of %d nodes: %w", h.Nodes, err)
			}
		}
	}
	slots := max(1, len(h.GPUs))
	if hasGPUs(b.options) && len(h.GPUs) == 0 {
		if all, err := b.options.GPUs.Read(ctx); err == nil {
			slots = max(1, len(all))
		}
	}
	var hosts, env strings.Builder
	for _, p := range peers {
		fmt.Fprintf(&hosts, "%s slots=%d\n", p, slots)
	}
	if err := durable.ReplaceBytes(b.folder.path("hostfile"), 0o644, []byte(hosts.String())); err != nil {
		return "", fmt.Errorf("write the hostfile: %w", err)
	}
	if err := b.updateState(func(s *state) { s.Slots, s.Master = slots, peers[0] }); err != nil {
		return "", err
	}
	for _, v := range b.nodeEnv() {
		name, value, _ := strings.Cut(v, "=")
		fmt.Fprintf(&env, "export %s=%s\n", name, plain.Shell(value))
	}
	if err := durable.ReplaceBytes(b.folder.path("environment"), 0o644, []byte(env.String())); err != nil {
		return "", fmt.Errorf("write the environment: %w", err)
	}
	if h.Nodes <= 1 {
		return "the session has one node", nil
	}
	return "", nil
}

// nodeEnv returns the environment variables of a node: PET_… set defaults of torchrun flags, OMPI_…
// and PRTE_… name the hostfile for Open MPI 4 and 5.
func (b *bootstrap) nodeEnv() []string {
	h, s := &b.options.Host, b.readState()
	env := []string{
		"CURFEW_SESSION=" + h.Name, "CURFEW_NODE=" + strconv.Itoa(h.Node),
		"CURFEW_NODES=" + strconv.Itoa(max(1, h.Nodes)),
		"CURFEW_HOSTFILE=" + b.folder.path("hostfile"), "CURFEW_WORK=" + b.workDir,
		"CURFEW_RUN_DIR=" + b.runDir(), "CURFEW_CHECKPOINT_DIR=" + b.saver.dir,
	}
	if c := h.Command; c != nil {
		env = append(env, "CURFEW_JOB="+c.Job, "CURFEW_ATTEMPT="+strconv.Itoa(c.Attempt))
		if c.ArtifactsDir != "" {
			env = append(env, "CURFEW_ARTIFACTS_DIR="+expandHome(c.ArtifactsDir, b.options.Home))
		}
	}
	if len(h.Secrets) > 0 {
		env = append(env, "CURFEW_SECRETS="+b.secretsFile())
	}
	if len(h.GPUs) > 0 {
		env = append(env, "CUDA_VISIBLE_DEVICES="+strings.Join(h.GPUs, ","))
	}
	if h.Nodes > 1 && s.Master != "" {
		// All nodes share the port; other sessions on the same machines get another one.
		sum := fnv.New32a()
		_, _ = io.WriteString(sum, h.Session) // writing to a hash cannot fail
		port := strconv.Itoa(29500 + int(sum.Sum32()%500))
		node, nodes, slots := strconv.Itoa(h.Node), strconv.Itoa(h.Nodes), strconv.Itoa(s.Slots)
		env = append(env, "MASTER_ADDR="+s.Master, "MASTER_PORT="+port, "NODE_RANK="+node, "NNODES="+nodes,
			"PET_MASTER_ADDR="+s.Master, "PET_MASTER_PORT="+port, "PET_NODE_RANK="+node, "PET_NNODES="+nodes,
			"PET_NPROC_PER_NODE="+slots,
			"OMPI_MCA_orte_default_hostfile="+b.folder.path("hostfile"),
			"PRTE_MCA_prte_default_hostfile="+b.folder.path("hostfile"))
	}
	return env
}

// environ returns the environment of session commands, without secrets.
func (b *bootstrap) environ() []string {
	env := slices.Clone(b.options.Environ)
	env = append(env, b.nodeEnv()...)
	for name, value := range b.options.Host.Env {
		env = append(env, name+"="+value)
	}
	return env
}

// maxSecretsAge is the age at which secrets are read again before use.
const maxSecretsAge = 5 * time.Minute

func (b *bootstrap) secretsFile() string {
	folder := fmt.Sprintf("curfew-%s-%d", b.options.Host.Session, b.options.Host.Node)
	return filepath.Join(b.options.Memory, folder, "secrets.env")
}

// secretsStep reads the secrets into an in-memory file that only the user can read. They are never
// on disk, so each process reads them again.
func (b *bootstrap) secretsStep(ctx context.Context) (string, error) {
	if len(b.options.Host.Secrets) == 0 {
		return "the session names none", nil
	}
	return "", b.readSecrets(ctx)
}

// readSecrets reads the secrets and writes their file.
func (b *bootstrap) readSecrets(ctx context.Context) error {
	h := &b.options.Host
	switch {
	case b.options.Parameters == nil:
		return errors.New("the session names secrets, and this machine has no parameter store")
	case b.options.Memory == "" || !inMemory(b.options.Memory):
		return fmt.Errorf(
			"the session names secrets, and %q is no folder in memory (tmpfs): secrets are not written to disks",
			b.options.Memory)
	}
	values := map[string]string{}
	var text strings.Builder
	names := make([]string, 0, len(h.Secrets))
	for name := range h.Secrets {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		value, err := b.options.Parameters.Parameter(ctx, h.Secrets[name])
		if err != nil {
			return fmt.Errorf("read %s for %s: %w", h.Secrets[name], name, err)
		}
		values[name] = value
		fmt.Fprintf(&text, "export %s=%s\n", name, plain.Shell(value))
	}
	dir := filepath.Dir(b.secretsFile())
	if err := makePrivateFolder(dir); err != nil {
		return fmt.Errorf("make the folder of the secrets: %w", err)
	}
	if err := durable.ReplaceBytes(b.secretsFile(), 0o600, []byte(text.String())); err != nil {
		return fmt.Errorf("write the secrets: %w", err)
	}
	b.mu.Lock()
	b.secrets, b.secretsReadAt = values, b.options.Now()
	b.mu.Unlock()
	return nil
}

// makePrivateFolder creates a folder below a world-writable one. It refuses a folder that another
// user created first.
func makePrivateFolder(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	i, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if s, ok := i.Sys().(*syscall.Stat_t); !i.IsDir() || i.Mode().Perm()&0o077 != 0 ||
		ok && int(s.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not a folder of this user alone", dir)
	}
	return nil
}

// refreshSecrets reads the secrets again before they expire, until the context ends.
func (b *bootstrap) refreshSecrets(ctx context.Context) {
	if len(b.options.Host.Secrets) == 0 {
		return
	}
	lastMessage := ""
	for wait.For(ctx, maxSecretsAge*4/5) == nil {
		message := ""
		if err := b.readSecrets(ctx); err != nil && ctx.Err() == nil {
			message = "the secrets are not read again: " + err.Error()
			// Expired secrets must not be used.
			b.mu.Lock()
			old := b.options.Now().Sub(b.secretsReadAt) >= maxSecretsAge
			b.mu.Unlock()
			if old {
				_ = os.Remove(b.secretsFile())
			}
		}
		if message != "" && message != lastMessage {
			b.addEvent("step", message)
		}
		lastMessage = message
	}
}

// removeSecrets removes the secrets file.
func (b *bootstrap) removeSecrets() {
	if len(b.options.Host.Secrets) > 0 && b.options.Memory != "" {
		_ = os.RemoveAll(filepath.Dir(b.secretsFile())) // memory is cleared with the machine
	}
}

// withSecrets returns the environment with fresh secrets.
func (b *bootstrap) withSecrets(ctx context.Context) ([]string, error) {
	env := b.environ()
	if len(b.options.Host.Secrets) == 0 {
		return env, nil
	}
	b.mu.Lock()
	old := b.secretsReadAt.IsZero() || b.options.Now().Sub(b.secretsReadAt) >= maxSecretsAge
	b.mu.Unlock()
	if old {
		if err := b.readSecrets(ctx); err != nil {
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

// dataStep fetches each dataset to ~/data/NAME, where NAME is the last element of its URL.
func (b *bootstrap) dataStep(ctx context.Context) (string, error) {
	if len(b.options.Host.Data) == 0 {
		return "the session names none", nil
	}
	if b.options.Datasets == nil {
		return "", errors.New("the session names data, and this machine cannot fetch any")
	}
	sources := map[string]string{}
	for _, from := range b.options.Host.Data {
		name := path.Base(strings.TrimRight(from, "/"))
		if existing, taken := sources[name]; taken {
			return "", fmt.Errorf("%s and %s would both be data/%s: rename one of them", existing, from, name)
		}
		sources[name] = from
		dir := filepath.Join(b.options.Home, "data", name)
		if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
			return "", err
		}
		if err := b.options.Datasets.Fetch(ctx, from, dir); err != nil {
			return "", fmt.Errorf("fetch %s: %w", from, err)
		}
		b.addEvent("step", "data: "+from+" is at "+dir)
	}
	return "", nil
}

// jupyterPort is the session port that requests Jupyter.
const jupyterPort = 8888

// jupyterStep starts Jupyter on the loopback if it is installed and its port is requested.
func (b *bootstrap) jupyterStep(ctx context.Context) (string, error) {
	if !slices.Contains(b.options.Host.Ports, jupyterPort) {
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
	s := b.readState()
	if s.Jupyter.PID != 0 && alive(s.Jupyter.PID, s.Jupyter.StartTicks) {
		return "", nil
	}
	var token [16]byte
	_, _ = rand.Read(token[:]) // rand.Read never fails
	text := hex.EncodeToString(token[:])
	if err := durable.ReplaceBytes(b.folder.path("jupyter-token"), 0o600, []byte(text)); err != nil {
		return "", err
	}
	// Environment variables are private, unlike arguments.
	//nolint:noctx // it outlives the agent
	c := exec.Command(at, "lab", "--no-browser", "--ip=127.0.0.1", "--port="+strconv.Itoa(jupyterPort),
		"--ServerApp.port_retries=0")
	c.Env = append(env, "JUPYTER_TOKEN="+text)
	c.Dir = b.workDir
	out, err := os.OpenFile(b.folder.path("jupyter.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return "", err
	}
	defer out.Close()
	c.Stdout, c.Stderr, c.SysProcAttr = out, out, &syscall.SysProcAttr{Setsid: true}
	if err := b.options.Cage.Start(ctx, c); err != nil {
		return "", fmt.Errorf("start Jupyter: %w", err)
	}
	go func() { _ = c.Wait() }() // reap the process, whatever its exit status
	p, err := readProcess(c.Process.Pid)
	if err != nil {
		return "", fmt.Errorf("start Jupyter: it ended at once: see %s", b.folder.path("jupyter.log"))
	}
	b.addEvent("step", "jupyter: listens on 127.0.0.1:8888; its token is in "+b.folder.path("jupyter-token"))
	return "", b.updateState(func(s *state) { s.Jupyter = processRef{p.pid, p.startTicks} })
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
