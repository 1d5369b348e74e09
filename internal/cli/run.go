// Package cli is the command line: it wires the domain to the clouds, the files
// and the terminal, and turns errors into one clear line and an exit code.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/term"

	appruntime "github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/store"
)

// The exit codes. When several apply, the order is 2, 1, 4, 5, 3.
const (
	ExitDone        = 0   // done
	ExitError       = 1   // an error: nothing could be read, a price is unknown, or a policy test fails
	ExitUsage       = 2   // a wrong command line, or an invalid file
	ExitHeld        = 3   // needs approval, or waste over --fail-on
	ExitDenied      = 4   // denied
	ExitPartial     = 5   // some resources could not be read or acted on
	ExitJob         = 10  // a job has failed; the exit code of its command is in the output
	ExitInterrupted = 130 // interrupted
)

// Process is everything that a command takes from outside.
type Process struct {
	Args           []string // without the program's name
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Lookup reads the environment.
	Lookup func(string) (string, bool)
	Now    func() time.Time
	// Uptime names the boot of the machine and says how long ago it was, by a clock that only goes
	// forward; nil if there is none.
	Uptime func() (boot string, up time.Duration)
	// FileTime is the clock of the file system that a directory is on; nil is Now.
	FileTime func(dir string) (time.Time, error)
	// Hangups begins to take requests to read the configuration again; nil takes none.
	Hangups func() <-chan os.Signal
	// Yield leaves terminal input, Ctrl-C too, to a started program that has the terminal; nil does
	// nothing.
	Yield func()
	// Secret asks for a line that is not shown; nil if Stdin is no terminal.
	Secret func() (string, error)
	// Dir is the working directory.
	Dir string
	// ConfigDir and DataDir are the user's own; empty when there is no home.
	ConfigDir, DataDir string
	// WitnessDir is where the witness of the state is unless it is configured.
	WitnessDir string
	// Width is the columns of the terminal that Stdout is; 0 when it is none.
	Width int
	// Progress is true when Stderr is a terminal.
	Progress bool
	Version  string
	// Commit and Date are of the source of the program, the date in RFC 3339; empty if the build
	// did not set them.
	Commit, Date string
}

// System returns the process as the operating system started it.
func System(version string) Process {
	p := Process{
		Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Lookup: os.LookupEnv, Now: time.Now, Uptime: appruntime.Uptime, FileTime: store.FileTime, Version: version,
		Progress: term.IsTerminal(int(os.Stderr.Fd())),
	}
	if fd := int(os.Stdin.Fd()); term.IsTerminal(fd) {
		p.Secret = func() (string, error) {
			line, err := term.ReadPassword(fd)
			return string(line), err
		}
	}
	p.Dir, _ = os.Getwd()
	p.ConfigDir, _ = os.UserConfigDir()
	p.DataDir = userDataDir(os.LookupEnv)
	p.WitnessDir = witnessDir(os.LookupEnv, os.Geteuid())
	if fd := int(os.Stdout.Fd()); term.IsTerminal(fd) {
		if w, _, err := term.GetSize(fd); err == nil {
			p.Width = w
		}
	}
	return p
}

func userDataDir(lookup func(string) (string, bool)) string {
	if d, ok := lookup("XDG_DATA_HOME"); ok && filepath.IsAbs(d) {
		return filepath.Join(d, "curfew")
	}
	home, err := os.UserHomeDir()
	switch {
	case err != nil:
		return ""
	case runtime.GOOS == "darwin":
		return filepath.Join(home, "Library", "Application Support", "curfew")
	}
	return filepath.Join(home, ".local", "share", "curfew")
}

// witnessDir is where the witness of the state is kept: apart from the data of curfew, so that
// who restores that does not restore the witness with it.
func witnessDir(lookup func(string) (string, bool), uid int) string {
	if d, ok := lookup("XDG_STATE_HOME"); ok && filepath.IsAbs(d) {
		return filepath.Join(d, "curfew", "witness")
	}
	if uid == 0 {
		return "/var/lib/curfew-witness"
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".local", "state", "curfew", "witness")
}

// failure is an error with its exit code and remedy.
type failure struct {
	exit int
	// code is the error's stable name in JSON: "no_credentials".
	code string
	err  error
	hint string
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func usageError(format string, a ...any) error {
	return &failure{exit: ExitUsage, code: "usage", err: fmt.Errorf(format, a...)}
}

// Run carries out one command line and returns its exit code. What goes wrong is
// one line on p.Stderr, and with -o json a JSON object after it.
func Run(ctx context.Context, p Process) int {
	// All other output goes through these two writers; only the progress bar moves the cursor.
	far := &progress{to: p.Stderr}
	out, log := plain.NewWriter(before{p.Stdout, far, true}, p.color()), plain.NewWriter(before{p.Stderr, far, false},
		false)
	raw := streams{out: before{p.Stdout, far, true}, err: before{p.Stderr, far, false}, file: p.Stdout}
	if f, is := p.Stdout.(*os.File); is && term.IsTerminal(int(f.Fd())) {
		raw.out = f
	}
	if f, is := p.Stderr.(*os.File); is && term.IsTerminal(int(f.Fd())) {
		raw.err = f
	}
	p.Stdout, p.Stderr = out, log
	defer func() { _ = errors.Join(out.Close(), log.Close()) }() // writes a character that was cut off
	a := newApp(&p)
	a.progress, a.raw = far, raw
	root := a.root()
	root.SetArgs(p.Args)
	running, stop := context.WithCancel(ctx)
	err := root.ExecuteContext(running)
	stop()
	far.clear(true)
	if ended := errors.Join(a.at.Local.Close(), a.req.Close()); err == nil {
		err = ended
	}
	if err == nil {
		return ExitDone
	}
	f := classify(ctx, err)
	if f.err != nil {
		line := "curfew: " + oneLine(f.err.Error())
		if f.hint != "" {
			line += "; " + f.hint
		}
		fmt.Fprintln(p.Stderr, line)
		if wantsJSON(p.Args) {
			doc := map[string]any{
				"error": map[string]string{"code": f.code, "message": oneLine(f.err.Error()), "hint": f.hint},
			}
			if b, err := json.Marshal(doc); err == nil {
				fmt.Fprintln(p.Stderr, string(b))
			}
		}
	}
	return f.exit
}

// exits are the exit codes of the application's errors.
var exits = map[appruntime.Class]int{
	appruntime.Failed: ExitError, appruntime.Usage: ExitUsage, appruntime.Denied: ExitDenied,
	appruntime.Held:    ExitHeld,
	appruntime.Partial: ExitPartial,
}

// classify gives every error its exit code.
func classify(ctx context.Context, err error) *failure {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		what := "interrupted before it was done"
		if broken := (*appruntime.CutOff)(nil); errors.As(err, &broken) {
			what = "interrupted; " + broken.Done()
		}
		return &failure{exit: ExitInterrupted, code: "interrupted", err: errors.New(what)}
	}
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	if wired := (*appruntime.Error)(nil); errors.As(err, &wired) {
		if wired.Err == nil {
			return &failure{exit: exits[wired.Class]}
		}
		return &failure{exit: exits[wired.Class], code: wired.Code, err: err, hint: wired.Hint}
	}
	if said := serverFailure(err); said != nil {
		return said
	}
	var broken *document.Error
	if errors.As(err, &broken) {
		return &failure{exit: ExitUsage, code: "invalid_file", err: err}
	}
	return &failure{exit: ExitError, code: "error", err: err}
}

func oneLine(s string) string { return plain.Line(s) }

// wantsJSON reports whether the command line asks for JSON, also when it could not
// be parsed.
func wantsJSON(args []string) bool {
	for i, a := range args {
		switch {
		case a == "-ojson", a == "-o=json", a == "--output=json":
			return true
		case (a == "-o" || a == "--output") && i+1 < len(args) && args[i+1] == "json":
			return true
		}
	}
	return false
}
