package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/curfew-dev/curfew/internal/agent"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/durable"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/session"
)

// DefaultHostFile is the host file on a session's machine, unless CURFEW_HOST names another one.
const DefaultHostFile = "/etc/curfew/host.json"

// agentPlace records where the agent of a machine keeps its files. It is stored next to the host
// file, for people who connect to the machine.
type agentPlace struct {
	State string `json:"state"`
	Home  string `json:"home"`
}

func placeFile(host string) string { return filepath.Join(filepath.Dir(host), "agent.json") }

// leavePlace writes the agentPlace of a machine.
func leavePlace(req *runtime.Request, o AgentOptions, a agent.Options) error {
	if !a.Host.WholeMachine || o.File == "-" {
		return nil
	}
	text, err := json.Marshal(agentPlace{a.State, a.Home})
	if err != nil {
		return err
	}
	return durable.ReplaceBytes(placeFile(req.Path(o.File)), 0o600, text)
}

// AgentEnter replaces this process by a shell or a command in a machine's session: in its work
// folder, with its environment. Before the session exists, a shell is one of the machine.
func AgentEnter(req *runtime.Request, environ, argv []string, out io.Writer) error {
	env, file, err := enterCommand(req, environ)
	args := []string{"sh", "-c", EnterScript, "sh", file}
	if err != nil {
		if len(argv) > 0 {
			return err
		}
		plain.Fprintf(out, "curfew: %v; this is a shell of the machine\n", err)
		env, args = environ, []string{"sh", "-c", `exec "$@"`, "sh"}
	}
	if len(argv) == 0 {
		argv = []string{"/bin/sh"}
		if bash, err := exec.LookPath("bash"); err == nil {
			argv = []string{bash}
		}
	}
	if err := syscall.Exec("/bin/sh", append(args, argv...), env); err != nil {
		return fmt.Errorf("start %s: %w", argv[0], err)
	}
	return nil
}

// enterCommand returns the environment of a machine's session, and the file with the result of its
// set-up.
func enterCommand(req *runtime.Request, environ []string) (env []string, file string, err error) {
	host := DefaultHostFile
	if named, ok := req.Lookup("CURFEW_HOST"); ok && named != "" {
		host = named
	}
	var h session.HostConfig
	var place agentPlace
	for name, to := range map[string]any{host: &h, placeFile(host): &place} {
		text, err := os.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(text, to)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil, "", &runtime.Error{
				Code: "no_agent", Err: errors.New("the agent of this machine has not started yet"),
				Hint: "`curfew status NAME` shows what the machine does",
			}
		}
		if err != nil {
			return nil, "", fmt.Errorf("read %s: %w", name, err)
		}
	}
	file = filepath.Join(place.State, "environment")
	if _, err := os.Stat(file); err != nil {
		return nil, "", &runtime.Error{
			Code: "not_ready", Err: errors.New("the set-up of this machine has not come so far yet"),
			Hint: "`curfew status NAME` shows its steps",
		}
	}
	env = slices.Clone(environ)
	set := maps.Clone(h.Env)
	if set == nil {
		set = map[string]string{}
	}
	if place.Home != "" {
		set["HOME"] = place.Home
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		env = append(slices.DeleteFunc(env, func(v string) bool {
			return strings.HasPrefix(v, name+"=")
		}), name+"="+set[name])
	}
	return env, file, nil
}

// AgentDoor lets one SSH connection in to this machine.
func AgentDoor(ctx context.Context, req *runtime.Request, key string, environ []string, out io.Writer) error {
	return agent.ServeOneSSH(ctx, agent.OneSSHOptions{PublicKey: key, Environ: environ, Out: out})
}

// EnterScript sources the result of the set-up in the work folder. It also marks activity of a
// person, since a short command may be over before it is measured.
const EnterScript = `: 2>/dev/null >"${1%/*}/` + agent.EnteredFile + `"; . "$1" && shift && cd "$CURFEW_WORK" && exec "$@"`
