package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/agent"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/cloud/local"
	"github.com/curfew-dev/curfew/internal/objectstore"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/session"
)

// AgentOptions configure a session's agent.
type AgentOptions struct {
	// File holds the session.HostConfig; "-" reads In.
	File string
	In   io.Reader
	// State is the folder for data that survives the process; empty is below the data directory.
	State string
	// Home is the home folder of the session's user, Environ the environment of its processes.
	Home    string
	Environ []string
	// Out receives a line for each thing that the agent does.
	Out io.Writer
}

// AgentHost runs a session on this machine until it has ended.
func AgentHost(ctx context.Context, req *runtime.Request, o AgentOptions) error {
	options, err := newAgent(ctx, req, o)
	if err != nil {
		return err
	}
	if err := leavePlace(req, o, options); err != nil {
		return fmt.Errorf("say where the agent keeps its things: %w", err)
	}
	return agentError(agent.Run(ctx, options))
}

// AgentBootstrap prepares this machine for a session.
func AgentBootstrap(ctx context.Context, req *runtime.Request, o AgentOptions) error {
	options, err := newAgent(ctx, req, o)
	if err != nil {
		return err
	}
	return agentError(agent.Bootstrap(ctx, options))
}

func agentError(err error) error {
	if errors.Is(err, agent.ErrRunning) {
		return &runtime.Error{
			Class: runtime.Failed, Code: "running", Err: err, Hint: "one agent is enough for a session on a machine",
		}
	}
	return err
}

// maxHost limits the size of a host file: EC2 user data is at most 16 KiB.
const maxHost = 1 << 20

// readHost reads the configuration of a host.
func readHost(req *runtime.Request, o AgentOptions) (h session.HostConfig, err error) {
	in := o.In
	if o.File != "-" {
		f, err := os.Open(req.Path(o.File))
		if err != nil {
			return h, runtime.Invalid("%v", err)
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxHost+1))
	if err != nil {
		return h, fmt.Errorf("read %s: %w", o.File, err)
	}
	if len(data) > maxHost {
		return h, runtime.Invalid("%s is larger than %s", o.File, plain.Size(int64(maxHost)))
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&h); err != nil {
		return h, runtime.Invalid("read %s: %v", o.File, err)
	}
	switch {
	case h.Schema != session.HostSchema:
		return h, runtime.Invalid("read %s: its schema is %q, not %s", o.File, h.Schema, session.HostSchema)
	case h.Session == "" || strings.ContainsAny(h.Session, "/\\\x00") || h.Session[0] == '.':
		return h, runtime.Invalid("read %s: session %q is no id", o.File, h.Session)
	case h.Control == "" || h.WorkDir == "" || h.LeaseUntil.IsZero() || h.Epoch < 1:
		return h, runtime.Invalid("read %s: control, work_dir, lease_until and epoch are required", o.File)
	case h.Node < 0 || h.Node >= max(1, h.Nodes):
		return h, runtime.Invalid("read %s: node %d is none of %d", o.File, h.Node, max(1, h.Nodes))
	case h.SaveInterval < 0 || h.IdleTimeout < 0 || h.Grace < 0 || h.SaveLimit < 0:
		return h, runtime.Invalid("read %s: a time is negative", o.File)
	case h.IdleTimeout > 0 && h.Grace <= 0:
		return h, runtime.Invalid("read %s: an idle time needs a grace: nothing ends without a warning", o.File)
	}
	return h, nil
}

// newAgent fills in what an agent needs on this machine.
func newAgent(ctx context.Context, req *runtime.Request, o AgentOptions) (agent.Options, error) {
	h, err := readHost(req, o)
	if err != nil {
		return agent.Options{}, err
	}
	if home, ok := folder(req, o); ok {
		o.Home = filepath.Join(home, "home")
	}
	if strings.HasPrefix(h.WorkDir, "~/") && !filepath.IsAbs(o.Home) || !strings.HasPrefix(h.WorkDir, "~/") &&
		!filepath.IsAbs(h.WorkDir) {
		return agent.Options{}, runtime.Invalid(
			"read %s: work_dir %q is neither absolute nor below ~/ of a home that is known", o.File, h.WorkDir)
	}
	control, err := objectstore.Open(ctx, h.Control, objectstore.Options{})
	if err != nil {
		return agent.Options{}, &runtime.Error{Class: runtime.Usage, Code: "usage", Err: err}
	}
	state := o.State
	if state == "" {
		data := req.DataFlag
		if data == "" {
			data = req.DataDir
		}
		if data == "" {
			return agent.Options{}, runtime.Invalid("there is no home folder for the state: name one with --state")
		}
		state = filepath.Join(data, "agent", fmt.Sprintf("%s-%d", h.Session, h.Node))
	}
	state, err = filepath.Abs(req.Path(state))
	if err != nil {
		return agent.Options{}, err
	}
	cage, err := caged(req, &h, &o, &state)
	if err != nil {
		return agent.Options{}, err
	}
	started := req.Now()
	a := agent.Options{
		Host: h, State: state, Home: o.Home, Control: control, Environ: o.Environ, Now: req.Now,
		Work: func(ctx context.Context, url string) (checkpoint.Backend, error) {
			return objectstore.Open(ctx, url, objectstore.Options{})
		},
		Cage: cage, Intervals: paces(h.Control),
		GPUs: agent.SMI{}, Datasets: datasets{}, Memory: memoryFolder(req.Lookup),
		Uptime: func() (string, time.Duration) {
			if boot, up := req.Uptime(); boot != "" {
				return boot, up
			}
			return "process", req.Now().Sub(started)
		},
		Log: func(line string) { plain.Fprintln(o.Out, line) },
	}
	if !h.WholeMachine && len(h.Secrets) == 0 {
		a.Address = "127.0.0.1"
		return a, nil
	}
	machine, err := clouds.OnMachine(ctx)
	if err != nil {
		return agent.Options{}, err
	}
	a.Parameters = machine
	if !h.WholeMachine {
		a.Address = "127.0.0.1"
		return a, nil
	}
	a.Terminator, a.Notices = shutdown{}, machine
	// A machine outside EC2 is identified by its host name.
	limited, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if a.Address, err = machine.Address(limited); err != nil || a.Address == "" {
		if a.Address, err = os.Hostname(); err != nil {
			return agent.Options{}, fmt.Errorf("find the address of this machine: %w", err)
		}
	}
	return a, nil
}

// folder returns the folder of a local machine if the host file is in one.
func folder(req *runtime.Request, o AgentOptions) (string, bool) {
	if o.File == "-" {
		return "", false
	}
	dir := filepath.Dir(req.Path(o.File))
	_, err := local.OpenCage(dir)
	return dir, err == nil
}

// caged returns what contains the processes of a session. On a local machine that is its cage; the
// session's home and state are in the machine's folder and removed with it.
func caged(req *runtime.Request, h *session.HostConfig, o *AgentOptions, state *string) (agent.Cage, error) {
	dir, ok := folder(req, *o)
	if !ok {
		return agent.ProcessTree{ID: fmt.Sprintf("%s-%d", h.Session, h.Node), WholeMachine: h.WholeMachine}, nil
	}
	c, err := local.OpenCage(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Home, 0o700); err != nil {
		return nil, err
	}
	*state = filepath.Join(dir, "agent")
	o.Environ = append(slices.DeleteFunc(local.Environ(o.Environ), func(v string) bool {
		return strings.HasPrefix(v, "HOME=")
	}), "HOME="+o.Home)
	return c, nil
}

// memoryFolder returns a folder in memory: the user's own, or else that of the machine.
func memoryFolder(lookup func(string) (string, bool)) string {
	if dir, ok := lookup("XDG_RUNTIME_DIR"); ok && dir != "" {
		return dir
	}
	if i, err := os.Stat("/dev/shm"); err == nil && i.IsDir() {
		return "/dev/shm"
	}
	return ""
}

// shutdown returns a machine: machines are launched such that they terminate on shutdown.
type shutdown struct{}

// End implements agent.MachineTerminator.
func (shutdown) Terminate(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "shutdown", "-h", "now").CombinedOutput()
	if err != nil {
		return fmt.Errorf("shut the machine down: %w: %.200s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// paces returns how often an agent reads its orders: more often if they are in a folder, which
// costs nothing to read, so that `curfew down` is not delayed.
func paces(control string) (p agent.Intervals) {
	if strings.HasPrefix(control, "file://") {
		p.Poll = 500 * time.Millisecond
	}
	return p
}

// datasets provides data from folders, by a link, and from S3, mounted with mount-s3 if that is
// installed, otherwise copied.
type datasets struct{}

// maxObject is the size limit of copied objects, which are held in memory.
const maxObject = 2 << 30

// Fetch implements agent.Datasets.
func (datasets) Fetch(ctx context.Context, from, dir string) error {
	if folder, is := strings.CutPrefix(from, "file://"); is {
		if i, err := os.Stat(folder); err != nil || !i.IsDir() {
			return fmt.Errorf("%s is no folder on this machine", folder)
		}
		if at, err := os.Readlink(dir); err == nil && at == folder {
			return nil
		}
		return os.Symlink(folder, dir)
	}
	at, is := strings.CutPrefix(from, "s3://")
	if !is {
		return fmt.Errorf("data is at s3://bucket/prefix or file:///folder")
	}
	if mount, err := exec.LookPath("mount-s3"); err == nil {
		return mountS3(ctx, mount, at, dir)
	}
	return copyS3(ctx, from, dir)
}

func mountS3(ctx context.Context, mount, at, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err == nil && strings.Contains(string(mounts), " "+dir+" ") {
		return nil
	}
	bucket, prefix, _ := strings.Cut(strings.TrimRight(at, "/"), "/")
	args := []string{bucket, dir, "--read-only"}
	if prefix != "" {
		args = append(args, "--prefix", prefix+"/")
	}
	if out, err := exec.CommandContext(ctx, mount, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("mount-s3: %w: %.200s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

func copyS3(ctx context.Context, from, dir string) error {
	store, err := objectstore.Open(ctx, from, objectstore.Options{})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	var list []checkpoint.Info
	if err := store.List(ctx, "", func(i checkpoint.Info) error { list = append(list, i); return nil }); err != nil {
		return err
	}
	if len(list) == 0 {
		return errors.New("there is nothing")
	}
	for _, i := range list {
		if strings.HasSuffix(i.Key, "/") {
			continue // a folder placeholder made by the console
		}
		name := filepath.FromSlash(i.Key)
		if f, err := root.Stat(name); err == nil && f.Size() == i.Size && !f.ModTime().Before(i.Modified) {
			continue
		}
		if i.Size > maxObject {
			return fmt.Errorf("%s has %s: install mount-s3, which mounts it", i.Key, plain.Size(i.Size))
		}
		o, err := store.Get(ctx, i.Key, maxObject)
		if err != nil {
			return fmt.Errorf("read %s: %w", i.Key, err)
		}
		if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := root.WriteFile(name+".part", o.Data, 0o644); err != nil {
			return err
		}
		if err := root.Rename(name+".part", name); err != nil {
			return err
		}
	}
	return nil
}
